"""Write a run as configuration and cache for Levanter's `train_lm`."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from levanter.data.text.formats import PrebuiltCacheProcessor
from levanter.store.cache import CacheMetadata, SerialCacheWriter
from numpy.typing import NDArray

from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.errors import StorageError
from marin_scaling.files import new_folder, read_own_bytes, replace_file
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.spec import RunSpec
from marin_scaling.train.levanter_config import MIXTURE_SIZES, mesh_config, model_settings, precision_policy, sequences_at_once
from marin_scaling.train.optimizer import is_sparse, schedule_settings
from marin_scaling.train.train import evaluation_windows
from marin_scaling.train.train_lm import MODEL, OPTIMIZERS
from marin_scaling.units import format_count, format_flops

TOKENIZER_FOLDER = "no-tokenizer"
"""Unused tokenizer: without one on disk, Levanter fetches one from the Hugging Face hub for any Qwen3."""
TRAIN = "train"
"""Name of the training tokens; no held-out set may have it."""
_COMMENT_WIDTH = 126


def command(spec: RunSpec) -> str:
    """Return the command that trains a run, in the folder of its file.

    That for a mixture of experts is Levanter's, with the model and its optimizer registered.
    """
    module = "marin_scaling.train.train_lm" if is_sparse(spec) else "levanter.main.train_lm"
    return f"python -P -m {module} --config_path {file_name(spec)}"


def file_name(spec: RunSpec) -> str:
    """Return budget, width and seed of a rung, with the suffix `.yaml`."""
    budget = f"{spec.budget_flops:g}".replace("+", "")
    return f"{budget}-width-{spec.model.hidden_dim}-seed-{spec.seed}.yaml"


def tokens_folder(spec: RunSpec) -> str:
    """Return the folder of the tokens next to the file; runs with the same seed and sequence length share it.

    Phases and simulated repeats depend on the length of the run, which then has a folder of its own.
    """
    order = f"seed-{spec.seed}" if spec.role == "rung" else "target"
    own = f"-{spec.train_steps}-steps-of-{spec.batch_size}" if len(spec.mix) > 1 or spec.horizon_tokens else ""
    return f"tokens/{order}-windows-of-{spec.model.seq_len}{own}"


def train_lm_yaml(spec: RunSpec, *, bits_per_byte_of_nat: Mapping[str, float], mesh: Mesh) -> bytes:
    """Return the file; `bits_per_byte_of_nat` converts a nat per token to bits per byte, for each held-out set."""
    document = {
        "data": _data(spec, list(bits_per_byte_of_nat)),
        "model": _model(spec),
        "optimizer": _optimizer(spec),
        "z_loss_weight": spec.optimizer.z_loss_weight,
        "trainer": {**_trainer(spec), **_mesh(mesh)},
    }
    return (_comments(spec, bits_per_byte_of_nat) + yaml.safe_dump(document, sort_keys=False)).encode()


def _model(spec: RunSpec) -> dict[str, Any]:
    if not is_sparse(spec):
        return {"type": spec.recipe_model.family, "tokenizer": TOKENIZER_FOLDER, **model_settings(spec), **_layers(spec)}
    mixture = {name: getattr(spec.model, name) for name in MIXTURE_SIZES}
    mixture["router_z_loss_weight"] = spec.recipe_optimizer.router_z_loss_weight
    return {"type": MODEL, "tokenizer": TOKENIZER_FOLDER, **model_settings(spec), **mixture}


def _optimizer(spec: RunSpec) -> dict[str, Any]:
    settings = schedule_settings(spec.recipe_optimizer)
    if not is_sparse(spec):
        return {"type": spec.optimizer.name, **settings}
    return {"type": OPTIMIZERS[spec.optimizer.name], **settings, "constant_norm": spec.recipe_optimizer.constant_norm}


def _layers(spec: RunSpec) -> dict[str, bool]:
    """Return scanned layers if the norm of whole matrices is kept, as Levanter does; recomputation needs them too."""
    is_scanned = spec.recipe_optimizer.constant_norm == "matrix"
    return {"scan_layers": is_scanned, "gradient_checkpointing": is_scanned and spec.compute.recompute}


def _data(spec: RunSpec, held_out: list[str]) -> dict[str, Any]:
    """Return the windows in the order on disk; a window may hold parts of several documents."""
    prebuilt = {"type": "prebuilt"}
    return {
        "tokenizer": "passthrough",
        "vocab_size": spec.model.vocab_size,
        "cache_dir": tokens_folder(spec),
        "shuffle": False,
        "mixture_block_size": 1,  # Levanter shuffles within a block, whatever `shuffle` is
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
        "per_device_parallelism": sequences_at_once(spec, batch_parts=1) if spec.compute.sequences_at_a_time else -1,
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


def _mesh(mesh: Mesh) -> dict[str, Any]:
    """Return the section of the mesh, nothing for Levanter's default."""
    config = mesh_config(mesh)
    parts = {name: dict(getattr(config, name)) for name in ("axes", "shared_mapping", "compute_mapping", "param_mapping")}
    return {} if mesh == ONE_AXIS else {"mesh": parts}


def _comments(spec: RunSpec, bits_per_byte_of_nat: Mapping[str, float]) -> str:
    paragraphs = [
        f"Ladder {spec.ladder}, recipe {spec.recipe}: the {spec.role} of {format_flops(spec.budget_flops)} FLOPs at width "
        f"{spec.model.hidden_dim}, seed {spec.seed}; {format_count(spec.trained_tokens)} tokens.",
        f"SHA-256 of its spec: {spec.digest}",
        f"For marin-levanter {version('marin-levanter')}. In the folder of this file:",
        f"  {command(spec)}",
        "With tokens and checkpoints in a bucket, and the rest of the folder here, add:",
        f"  --data.cache_dir gs://BUCKET/{tokens_folder(spec)} --trainer.checkpointer.base_path gs://BUCKET/checkpoints",
        "Same as in `marin-scale ladder`: the model, every batch, the learning rates, the loss, the held-out windows.",
        "Different: the initial weights, which this command derives in another way from the seed. The final loss is that of "
        "another seed.",
        f"Levanter's bpb is wrong, because it does not know the text of these tokens. {_conversion(bits_per_byte_of_nat)}",
        _freedom(spec),
    ]
    lines = [line for text in paragraphs for line in _wrapped(text)]
    return "".join(f"# {line}\n" for line in lines) + "\n"


def _freedom(spec: RunSpec) -> str:
    """Describe which settings may be changed."""
    if is_sparse(spec):
        return "attn_backend, scan_layers and gradient_checkpointing may be changed; they affect time or memory, not the loss."
    if spec.recipe_optimizer.constant_norm == "matrix":
        return (
            "attn_backend and gradient_checkpointing may be changed; they affect time or memory, not the loss. scan_layers may "
            "not: the optimizer keeps the norm of whole matrices in scanned layers, and that of each head's part in others."
        )
    return (
        "attn_backend may be changed; it affects time or memory, not the loss. scan_layers may not: the optimizer keeps the "
        "norm of whole matrices in scanned layers, and that of each head's part in these. gradient_checkpointing has no "
        "effect without it."
    )


def _wrapped(text: str) -> list[str]:
    return [text] if text.startswith(" ") else textwrap.wrap(text, _COMMENT_WIDTH, break_long_words=False)


def _conversion(bits_per_byte_of_nat: Mapping[str, float]) -> str:
    """Describe how to convert the loss that Levanter logs to bits per byte."""
    if len(bits_per_byte_of_nat) == 1:
        (factor,) = bits_per_byte_of_nat.values()
        return f"Bits per byte are eval/loss times {factor!r}."
    sets = ", ".join(f"eval/{name}/loss times {factor!r}" for name, factor in bits_per_byte_of_nat.items())
    return f"Bits per byte are the mean of {sets}."


_WINDOWS_AT_A_TIME = 4096
_NO_TOKENIZER = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
}


def emit_levanter(specs: Sequence[RunSpec], *, corpus: TokenCorpus, folder: Path, mesh: Mesh = ONE_AXIS) -> bool:
    """Write a folder with a YAML file for each of these runs and their tokens, in one atomic step.

    Return False if it exists with the same files; `StorageError` if it exists with others.
    """
    files = {file_name(spec): _yaml(spec, corpus, mesh) for spec in specs}
    if folder.exists():
        _require_same(folder, files)
        return False
    with new_folder(folder) as inside:
        for alike in _by_tokens(specs).values():
            _write_tokens(inside / tokens_folder(alike[0]), alike, corpus)
        for name, content in _NO_TOKENIZER.items():
            replace_file(inside / TOKENIZER_FOLDER / name, json.dumps(content).encode())
        for name, text in files.items():
            replace_file(inside / name, text)
    return True


def _yaml(spec: RunSpec, corpus: TokenCorpus, mesh: Mesh) -> bytes:
    bits = {
        name: windows[:, 1:].size / (math.log(2) * int(corpus.token_bytes[windows[:, 1:]].sum(dtype=np.int64)))
        for name, windows in evaluation_windows(spec, corpus).items()
    }
    return train_lm_yaml(spec, bits_per_byte_of_nat=bits, mesh=mesh)


def _require_same(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        if not path.exists() or read_own_bytes(path) != content:
            raise StorageError(
                f"{folder} exists, and {name} in it is {'different' if path.exists() else 'missing'}.",
                why="It may be in use, or was changed by hand; nothing in it is overwritten.",
                fix=f"Move {folder} away or remove it, then rerun the command.",
            )


def _by_tokens(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    """Group the runs that read the same windows in the same order."""
    found: dict[str, list[RunSpec]] = {}
    for spec in specs:
        found.setdefault(tokens_folder(spec), []).append(spec)
    return found


def _write_tokens(folder: Path, alike: Sequence[RunSpec], corpus: TokenCorpus) -> None:
    longest = max(alike, key=lambda spec: spec.batch_size * spec.train_steps)
    _write_cache(folder / TRAIN, _training_windows(longest, corpus))
    for name, windows in evaluation_windows(longest, corpus).items():
        _write_cache(folder / name / "validation", [windows])


def _training_windows(spec: RunSpec, corpus: TokenCorpus) -> Iterator[NDArray[np.int32]]:
    """Yield all windows of the run in its order, some thousands at a time: (window, position)."""
    seq_len, wanted = spec.model.seq_len, spec.batch_size * spec.train_steps
    starts = spec.window_starts()[:wanted]
    for first in range(0, wanted, _WINDOWS_AT_A_TIME):
        some = starts[first : first + _WINDOWS_AT_A_TIME]
        yield corpus.train[some[:, None] + np.arange(seq_len)].astype(np.int32)


def _write_cache(folder: Path, parts: Iterable[NDArray[np.int32]]) -> None:
    rows = PrebuiltCacheProcessor("input_ids", None)
    metadata = CacheMetadata(preprocessor_metadata=rows.metadata)
    with SerialCacheWriter(str(folder), rows.output_exemplar, metadata=metadata) as writer:
        for windows in parts:
            writer.write_batch([{"input_ids": window} for window in windows])
