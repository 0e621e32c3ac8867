"""Weights kept after training, and their export to Hugging Face format; exported models, loaded."""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import StorageError, UsageError, first_line, missing_extra
from marin_scaling.files import read_bytes, read_own_bytes, replace_file, sync_folder
from marin_scaling.run.spec import DIRECTORY_DIGITS, MoeModelSpec, RunSpec
from marin_scaling.run.store import WEIGHTS_MARKER, RunRecord, StoredRun, Workplace, weights_dir
from marin_scaling.strict_model import faults_of
from marin_scaling.train.checkpoints import digest_of_files
from marin_scaling.train.environment import ALONE, ProcessGroup

if TYPE_CHECKING:
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from levanter.trainer import TrainerConfig


def keep_weights(model: Any, record: RunRecord, *, train_steps: int, place: Workplace, group: ProcessGroup = ALONE) -> None:
    """Keep Levanter's trained `model`, unrolled, as that of `record`, replacing what an interrupted process may have left.

    Each process of the group writes its part in the run's working folder, which is then moved. `StorageError` if that fails;
    the run then resumes from its checkpoint.
    """
    from levanter.checkpoint import save_checkpoint

    from marin_scaling.train.step import unrolled

    name = record.spec_digest[:DIRECTORY_DIGITS]
    unfinished, folder = place.work_root / "work" / name / "weights", weights_dir(name, place)
    try:
        if group.is_leader:
            shutil.rmtree(unfinished, ignore_errors=True)
        group.is_everywhere(True)  # no process may write into the folder now
        save_checkpoint(unrolled(model), step=train_steps, checkpoint_path=str(unfinished), is_temporary=False)
        if group.is_everywhere(True) and group.is_leader:
            replace_file(
                unfinished / WEIGHTS_MARKER,
                dump_canonical({**_marker(record), "files": digest_of_files(unfinished, without=WEIGHTS_MARKER)}),
            )
            sync_folder(unfinished)
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            unfinished.rename(folder)
    except Exception as error:  # whatever tensorstore, JAX and the disk raise
        if group.count > 1 and not isinstance(error, OSError):
            raise  # another process may have ended, after which the group is restarted
        raise StorageError(
            f"{folder}: the weights cannot be written: {first_line(error)}.",
            why="The run is recorded only with its weights.",
            fix="Free some space or check permissions, then rerun the command; it resumes.",
        ) from error


def kept_weights(run: StoredRun, place: Workplace) -> Path:
    """Return the checkpoint of a recorded run's model; `UsageError` if it is missing or from another training of the run.

    `StorageError` if a file is damaged.
    """
    folder = weights_dir(run.spec.directory_name, place)
    marker = folder / WEIGHTS_MARKER
    if not marker.is_file():
        raise UsageError(
            f"The weights of {run.folder.name} are missing: no folder {folder}.",
            why="Training keeps the weights of targets, and of other runs with --keep-weights.",
            fix=f"{_again(run)} On the same machine and number of cores its loss curve is the same, bit for bit.",
        )
    files = _marked(marker, run)
    if files is None:
        raise UsageError(
            f"{folder} has the weights of another training of {run.folder.name}; its loss curve is not the recorded one.",
            why="On another machine or number of cores, sums and weights differ in their last digits.",
            fix=f"{_again(run)} Or export the record that was made with these weights.",
        )
    if files and files != digest_of_files(folder, without=WEIGHTS_MARKER):
        raise StorageError(
            f"{folder}: its files were changed or damaged after they were written.",
            fix=_again(run),
        )
    return folder


def load_weights(spec: RunSpec, folder: Path, *, axis_mapping: Any, mesh: Any) -> Any:
    """Load Levanter's model of this spec with the weights in `folder`; `StorageError` if they cannot be read."""
    import equinox as eqx
    import jax
    from levanter.checkpoint import load_checkpoint

    from marin_scaling.train.levanter_config import built_model
    from marin_scaling.train.step import unrolled

    shapes = eqx.filter_eval_shape(lambda: unrolled(built_model(spec, key=jax.random.PRNGKey(0))))
    try:
        return load_checkpoint(shapes, str(folder), axis_mapping=axis_mapping, mesh=mesh)
    except Exception as error:  # whatever tensorstore and JAX raise for damaged files
        raise StorageError(
            f"{folder}: the weights cannot be read: {first_line(error)}.",
            fix="Remove that folder and train the run again with its weights kept.",
        ) from error


def _marker(record: RunRecord) -> dict[str, Any]:
    return {"format_version": 1, "spec_digest": record.spec_digest, "history_sha256": record.history_sha256}


def _marked(marker: Path, run: StoredRun) -> str | None:
    """Return the digest of these weights' files, empty if none was recorded; None if they are from another training."""
    try:
        document = dict(json.loads(read_own_bytes(marker)))
    except (ValueError, TypeError):
        return None
    files = str(document.pop("files", ""))
    return files if document == _marker(run.record) else None


def _again(run: StoredRun) -> str:
    spec = run.spec
    one = f"{spec.budget_flops:.10g}/{spec.model.hidden_dim}".replace("e+", "e")
    command = (
        "marin-scale run PREREGISTRATION"
        if spec.role == "target"
        else f"marin-scale ladder ladders/{spec.ladder}.yaml --only {one} --keep-weights"
    )
    cores = f"taskset -c 0-{run.record.hardware.cpu_count - 1}"  # alone, it would use all cores
    return f"Move {run.folder} away, train it again ({cores} {command}), and put the old folder back."


SHARD_BYTES = 5 * 10**9
"""Size above which the tensors are written into several files with an index, as on the hub."""
CONFIG_NAME, TENSORS_NAME, INDEX_NAME = "config.json", "model.safetensors", "model.safetensors.index.json"


def write_hugging_face(spec: RunSpec, *, weights: Path, folder: Path, tokenizer: Path | None, end_token: str = "") -> None:
    """Write the model of `spec` with checkpoint `weights` into `folder`; `tokenizer` is a folder too.

    A dense model gets Qwen3's names and configuration, a mixture those of `mixture_document`.
    With an `end_token`, the tokenizer encodes a text as training did: alone, without special tokens before or after it.
    """
    logging.getLogger("levanter").setLevel(logging.ERROR)  # it warns of a missing checkpoint on the hub
    trainer = _any_trainer()
    with trainer.use_device_mesh():
        model = load_weights(spec, weights, axis_mapping=trainer.parameter_axis_mapping, mesh=trainer.device_mesh)
        saved = converter(tokenizer, end_token=end_token)
        saved.save_pretrained(model, str(folder), save_tokenizer=tokenizer is not None, max_shard_size=SHARD_BYTES)
    if isinstance(spec.model, MoeModelSpec):
        reference = spec.data.tokenizer.model_dump() if spec.data.tokenizer else None
        document = {**mixture_document(spec.model), "tokenizer": reference}
        (folder / CONFIG_NAME).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _any_trainer() -> TrainerConfig:
    """Return a trainer of which only the devices are used."""
    from levanter.tracker.tracker import NoopConfig
    from levanter.trainer import TrainerConfig

    return TrainerConfig(tracker=NoopConfig(), require_accelerator=False)


def tokenizer_to_export(folder: Path | None, *, end_token: str) -> Any:
    """Return the tokenizer in a folder, with an `end_token` as training used it: without special tokens around a text.

    Nothing without a folder, because None would mean a tokenizer of the hub.
    """
    from tokenizers import processors
    from transformers import AutoTokenizer

    if folder is None:
        return ()
    found = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if end_token:
        for switch in ("add_bos_token", "add_eos_token"):
            if getattr(found, switch, False):
                setattr(found, switch, False)
        rust = found.backend_tokenizer
        if rust.encode("a").ids != rust.encode("a", add_special_tokens=False).ids:
            rust.post_processor = processors.Sequence([])
        found.eos_token = found.eos_token or end_token
    return found


def converter(tokenizer: Path | None, *, end_token: str = "") -> HFCheckpointConverter[Any]:
    """Return Levanter's converter, with or without the tokenizer in a folder; it reads dense models and writes all."""
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from levanter.models.qwen import Qwen3Config
    from transformers import Qwen3Config as HuggingFaceConfig

    return HFCheckpointConverter(
        Qwen3Config,
        HfConfigClass=HuggingFaceConfig,
        tokenizer=tokenizer_to_export(tokenizer, end_token=end_token),
        config_overrides={"architectures": ["Qwen3ForCausalLM"]},
    )


MIXTURE_TYPE, LAYOUT_VERSION = "marin_scaling_grug_moe", 1
"""`model_type` of an exported mixture, and the version of its names, shapes and formulas (site/how-to/export-a-model.md)."""
_SIZES = {
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "seq_len",
    "num_experts": "num_experts",
    "num_experts_per_tok": "experts_per_token",
    "moe_intermediate_size": "intermediate_dim",
    "shared_expert_intermediate_size": "shared_intermediate_dim",
    "norm_gate_rank": "norm_gate_rank",
}
"""Hugging Face's name of each size in `config.json`, and ours."""


def mixture_document(model: MoeModelSpec) -> dict[str, Any]:
    """Return `config.json` of an exported mixture: its sizes, and the constants of its formulas."""
    from marin_scaling.train.levanter_config import mixture_config
    from marin_scaling.train.moe import QUERY_SCALE, ROUTED_WEIGHT_SUM

    config = mixture_config(model)
    rope_theta, rope_scaling = config.rope.to_hf_config()
    return {
        "model_type": MIXTURE_TYPE,
        "architectures": ["MarinScalingGrugMoe"],
        "layout_version": LAYOUT_VERSION,
        "dtype": "float32",
        **{name: getattr(model, ours) for name, ours in _SIZES.items()},
        "head_dim": model.hidden_dim // model.num_heads,
        "hidden_act": config.activation_function.name,
        "rms_norm_eps": config.layer_norm_epsilon,
        "rope_theta": rope_theta,
        "rope_scaling": rope_scaling,
        "query_scale": QUERY_SCALE,
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": ROUTED_WEIGHT_SUM,
        "attention_bias": config.use_bias,
        "tie_word_embeddings": config.tie_word_embeddings,
    }


def load_exported(folder: Path | str) -> Any:
    """Return Levanter's model from a folder that `marin-scale export` wrote, in float32 on JAX's default device.

    `StorageError` for a file that is missing or unreadable; of a mixture it lists every wrong key and tensor. Changed numbers
    in a file of the right form are not noticed.
    """
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="loading a model")
    folder = Path(folder).absolute()
    try:
        document = dict(json.loads(read_bytes(folder / CONFIG_NAME)))
        kind = document.get("model_type")
        if kind == MIXTURE_TYPE:
            return _loaded_mixture(folder, document)
        if kind == "qwen3":
            return _loaded_dense(folder)
    except StorageError:
        raise
    except Exception as error:  # whatever JSON, safetensors, Haliax and the disk raise
        raise _unloadable(folder, [first_line(error)]) from error
    raise _unloadable(folder, [f"model_type is {kind!r}, not 'qwen3' or {MIXTURE_TYPE!r}"])


def _unloadable(folder: Path, problems: list[str]) -> StorageError:
    return StorageError(
        (f"{folder} is not a model that marin-scale export wrote:", *problems),
        fix="Export the run again: marin-scale export RUN --to FOLDER",
    )


def _loaded_dense(folder: Path) -> Any:
    from levanter.models.qwen import Qwen3LMHeadModel

    trainer = _any_trainer()
    with trainer.use_device_mesh():
        return converter(None).load_pretrained(Qwen3LMHeadModel, str(folder), axis_mapping=trainer.parameter_axis_mapping)


def _loaded_mixture(folder: Path, document: dict[str, Any]) -> Any:
    import equinox as eqx
    from haliax.state_dict import from_torch_compatible_state_dict

    model, arrays = _sizes_in(document, folder), _tensors_in(folder)
    template, expected = _template(model)
    constants = mixture_document(model).items()
    wrong = [f"{name} is {document.get(name)!r}, not {value!r}" for name, value in constants if document.get(name) != value]
    if problems := [*wrong, *_tensor_problems(arrays, expected)]:
        raise _unloadable(folder, problems)
    return eqx.filter_jit(lambda state: from_torch_compatible_state_dict(template, state))(arrays)


def _sizes_in(document: dict[str, Any], folder: Path) -> MoeModelSpec:
    try:
        return MoeModelSpec.model_validate({ours: document.get(name) for name, ours in _SIZES.items()}, strict=True)
    except ValidationError as error:
        names = {ours: name for name, ours in _SIZES.items()}
        faults = [(str(fault.place[0]), fault.message) for fault in faults_of(error)]
        raise _unloadable(folder, [message.replace(ours, names[ours], 1) for ours, message in faults]) from error


def _tensors_in(folder: Path) -> dict[str, Any]:
    from haliax.state_dict import load_state_dict

    index = folder / INDEX_NAME
    files = {TENSORS_NAME}
    if index.is_file():
        files = {Path(file).name for file in json.loads(read_bytes(index))["weight_map"].values()}  # none outside the folder
    return {name: array for file in sorted(files) for name, array in load_state_dict(folder / file).items()}


def _template(model: MoeModelSpec) -> tuple[Any, dict[str, Any]]:
    """Return the model without its numbers, and the shapes of its tensors by exported name."""
    import equinox as eqx
    import haliax as hax
    import jax
    from haliax.state_dict import flatten_modules_for_export, to_state_dict

    from marin_scaling.train.levanter_config import mixture_config

    def built() -> Any:
        return mixture_config(model).build(hax.Axis("vocab", model.vocab_size), key=jax.random.PRNGKey(0))

    def exported() -> Any:
        return to_state_dict(flatten_modules_for_export(eqx.filter(built(), eqx.is_array)))

    return eqx.filter_eval_shape(built), eqx.filter_eval_shape(exported)


def _tensor_problems(arrays: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    found, wanted = ({name: f"{each.dtype}{list(each.shape)}" for name, each in of.items()} for of in (arrays, expected))
    reshaped = [name for name in wanted if name in found and found[name] != wanted[name]]
    return [
        *(f"{name} is missing" for name in wanted if name not in found),
        *(f"{name} is unknown" for name in found if name not in wanted),
        *(f"{name} is {found[name]}, not {wanted[name]}" for name in reshaped),
    ]
