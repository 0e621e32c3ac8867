"""The configuration of Levanter's own command `train_lm` for one dense run, as YAML with comments for the person who runs it.

Model, rates, batches and losses are those of `train`; only the initial weights are others, because that command draws them in
another way from the same seed. Addresses are relative to the folder of the file. Text only: `emit_levanter` writes the files.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import yaml

from marin_scaling.run.levanter_config import model_settings, precision_policy, sequences_at_once
from marin_scaling.run.optimizer import schedule_settings
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.units import format_count, format_flops

COMMAND = "python -P -m levanter.main.train_lm --config_path"
"""What trains a file, typed in its folder."""
TOKENIZER_FOLDER = "no-tokenizer"
"""A tokenizer that nothing uses: without one on disk, Levanter fetches one from the Hugging Face hub for any Qwen3."""
TRAIN = "train"
"""Name of the tokens to train on; no held-out set has it."""
_COMMENT_WIDTH = 126


def file_name(spec: RunSpec) -> str:
    """Budget, width and seed of a rung, and `.yaml`."""
    budget = f"{spec.budget_flops:g}".replace("+", "")
    return f"{budget}-width-{spec.model.hidden_dim}-seed-{spec.seed}.yaml"


def tokens_folder(spec: RunSpec) -> str:
    """Where the tokens lie, beside the file: the same for all runs of one seed and sequence length."""
    return f"tokens/seed-{spec.seed}-windows-of-{spec.model.seq_len}"


def train_lm_yaml(spec: RunSpec, *, bits_per_byte_of_nat: Mapping[str, float]) -> bytes:
    """The file; `bits_per_byte_of_nat` has, for each held-out set, what a nat per token is there."""
    document = {
        "data": _data(spec, list(bits_per_byte_of_nat)),
        "model": {"type": spec.model.family, "tokenizer": TOKENIZER_FOLDER, **model_settings(spec), **_layers(spec)},
        "optimizer": {"type": spec.optimizer.name, **schedule_settings(spec.optimizer)},
        "z_loss_weight": spec.optimizer.z_loss_weight,
        "trainer": _trainer(spec),
    }
    return (_comments(spec, bits_per_byte_of_nat) + yaml.safe_dump(document, sort_keys=False)).encode()


def _layers(spec: RunSpec) -> dict[str, bool]:
    """Scanned where the norm of matrices is to be kept, for so Levanter's optimizers do it; only then it can recompute them."""
    is_scanned = spec.optimizer.constant_norm == "matrix"
    return {"scan_layers": is_scanned, "gradient_checkpointing": is_scanned and spec.compute.recompute}


def _data(spec: RunSpec, held_out: list[str]) -> dict[str, Any]:
    """The windows as they lie on disk, one after the other; a window may hold parts of several documents."""
    prebuilt = {"type": "prebuilt"}
    return {
        "tokenizer": "passthrough",
        "vocab_size": spec.model.vocab_size,
        "cache_dir": tokens_folder(spec),
        "shuffle": False,
        "mixture_block_size": 1,  # within a block Levanter shuffles, whatever `shuffle` says
        "block_cross_document_attention": False,
        "components": {
            TRAIN: {"format": prebuilt, "flat_cache": True},
            **{name: {"format": dict(prebuilt)} for name in held_out},
        },
        "train_weights": {TRAIN: 1.0, **dict.fromkeys(held_out, 0.0)},
    }


def _trainer(spec: RunSpec) -> dict[str, Any]:
    return {
        "id": spec.directory_name,
        "seed": spec.seed,
        "mp": precision_policy(spec),
        "per_device_parallelism": sequences_at_once(spec, devices=1) if spec.compute.sequences_at_a_time else -1,
        "train_batch_size": spec.batch_size,
        "num_train_steps": spec.train_steps,
        "steps_per_eval": spec.train_steps,
        "require_accelerator": False,
        "tracker": {"type": "json_logger"},
        "log_dir": "logs",
        "log_jaxprs": False,
        "log_xla_hlo": False,
        "watch": {"watch_targets": []},
        "checkpointer": {"base_path": "checkpoints"},
    }


def _comments(spec: RunSpec, bits_per_byte_of_nat: Mapping[str, float]) -> str:
    name = file_name(spec)
    paragraphs = [
        f"Ladder {spec.ladder}, recipe {spec.recipe}: the rung of {format_flops(spec.budget_flops)} FLOPs at width "
        f"{spec.model.hidden_dim}, seed {spec.seed}; {format_count(spec.trained_tokens)} tokens.",
        f"SHA-256 of its spec: {spec.digest}",
        f"For marin-levanter {version('marin-levanter')}. In the folder of this file:",
        f"  {COMMAND} {name}",
        "With tokens and checkpoints in a bucket, the rest of the folder here, add:",
        f"  --data.cache_dir gs://BUCKET/{tokens_folder(spec)} --trainer.checkpointer.base_path gs://BUCKET/checkpoints",
        "As `marin-scale ladder` trains it: the model, every batch, the rates of every step, the loss, the held-out windows.",
        "Not as there: the initial weights, which this command draws in another way from the same seed. So the final loss is "
        "that of another seed.",
        f"Levanter's bpb is wrong, because it does not know the text of these tokens. {_conversion(bits_per_byte_of_nat)}",
        _freedom(spec),
    ]
    lines = [line for text in paragraphs for line in _wrapped(text)]
    return "".join(f"# {line}\n" for line in lines) + "\n"


def _freedom(spec: RunSpec) -> str:
    """What may be changed and what may not."""
    if spec.optimizer.constant_norm == "matrix":
        return (
            "attn_backend and gradient_checkpointing may be changed: they cost time or memory, and no loss. scan_layers may "
            "not: the optimizer keeps the norm of each matrix of scanned layers, of others that of each head's part."
        )
    return (
        "attn_backend may be changed: it costs time or memory, and no loss. scan_layers may not: of scanned layers the "
        "optimizer keeps the norm of each matrix, of these that of each head's part. gradient_checkpointing does nothing "
        "without it."
    )


def _wrapped(text: str) -> list[str]:
    return [text] if text.startswith(" ") else textwrap.wrap(text, _COMMENT_WIDTH, break_long_words=False)


def _conversion(bits_per_byte_of_nat: Mapping[str, float]) -> str:
    """How the loss that Levanter logs becomes bits per byte."""
    if len(bits_per_byte_of_nat) == 1:
        (factor,) = bits_per_byte_of_nat.values()
        return f"Bits per byte are eval/loss times {factor!r}."
    sets = ", ".join(f"eval/{name}/loss times {factor!r}" for name, factor in bits_per_byte_of_nat.items())
    return f"Bits per byte are the mean of {sets}."
