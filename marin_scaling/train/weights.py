"""Weights kept after training, and their export to Hugging Face format."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import StorageError, UsageError, first_line
from marin_scaling.files import read_own_bytes, replace_file, sync_folder
from marin_scaling.run.paths import WEIGHTS_MARKER, Workplace, weights_dir
from marin_scaling.run.spec import DIRECTORY_DIGITS, RunSpec
from marin_scaling.run.store import RunRecord, StoredRun
from marin_scaling.train.checkpoints import digest_of_files
from marin_scaling.train.environment import ALONE, ProcessGroup

if TYPE_CHECKING:
    from levanter.compat.hf_checkpoints import HFCheckpointConverter


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


def write_hugging_face(spec: RunSpec, *, weights: Path, folder: Path, tokenizer: Path | None, end_token: str = "") -> None:
    """Write the dense model of `spec` with checkpoint `weights` into `folder`; `tokenizer` is a folder too.

    With an `end_token`, the tokenizer encodes a text as training did: alone, without special tokens before or after it.
    """
    from levanter.tracker.tracker import NoopConfig
    from levanter.trainer import TrainerConfig

    logging.getLogger("levanter").setLevel(logging.ERROR)  # it warns of a missing checkpoint on the hub
    trainer = TrainerConfig(tracker=NoopConfig(), require_accelerator=False)  # only its devices are used
    with trainer.use_device_mesh():
        model = load_weights(spec, weights, axis_mapping=trainer.parameter_axis_mapping, mesh=trainer.device_mesh)
        saved = converter(tokenizer, end_token=end_token)
        saved.save_pretrained(model, str(folder), save_tokenizer=tokenizer is not None)


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
    """Return Levanter's converter of our dense models, with or without the tokenizer in a folder."""
    from levanter.compat.hf_checkpoints import HFCheckpointConverter
    from levanter.models.qwen import Qwen3Config
    from transformers import Qwen3Config as HuggingFaceConfig

    return HFCheckpointConverter(
        Qwen3Config,
        HfConfigClass=HuggingFaceConfig,
        tokenizer=tokenizer_to_export(tokenizer, end_token=end_token),
        config_overrides={"architectures": ["Qwen3ForCausalLM"]},
    )
