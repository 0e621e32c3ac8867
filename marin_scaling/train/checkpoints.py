"""Choose the checkpoint to resume from; seal checkpoints; set damaged ones aside; pass trunks from run to run."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from levanter.checkpoint import discover_latest_checkpoint, load_checkpoint, save_checkpoint
from levanter.trainer import Trainer
from levanter.trainer_state import TrainerState

from marin_scaling.canonical_json import digest_of
from marin_scaling.errors import StorageError, first_line
from marin_scaling.files import read_own_bytes, replace_file, sync_folder
from marin_scaling.run.curves import forget_seal
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import Trunk, checkpoints_root, curve_path
from marin_scaling.train.environment import ALONE, ProcessGroup
from marin_scaling.train.step import in_other_layout

SEAL_ENDING = ".sha256"
"""Suffix of the file with a folder's digest; the name of the folder precedes it."""


def seal(folder: Path) -> None:
    """Write the digest of all files in a folder next to it, and remove the digests of deleted folders.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name) / "step-7"
    ...     folder.mkdir()
    ...     _ = (folder / "arrays").write_bytes(b"1")
    ...     before, _, kept = is_intact(folder), seal(folder), is_intact(folder)
    ...     _ = (folder / "arrays").write_bytes(b"2")
    ...     before, kept, is_intact(folder)
    (True, True, False)
    """
    replace_file(_seal_of(folder), digest_of_files(folder).encode("ascii"))
    for other in folder.parent.glob(f".*{SEAL_ENDING}"):
        if not folder.with_name(other.name[1:].removesuffix(SEAL_ENDING)).exists():
            other.unlink(missing_ok=True)


def is_intact(folder: Path) -> bool:
    """Return True if the files are those that were sealed, or if the folder was not sealed."""
    kept = _seal_of(folder)
    return not kept.exists() or read_own_bytes(kept) == digest_of_files(folder).encode("ascii")


def digest_of_files(folder: Path, *, without: str = "") -> str:
    """Return the digest of names and contents of all files in a folder except `without`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != without)
    return digest_of({path.relative_to(folder).as_posix(): _digest_of_file(path) for path in paths})


def _seal_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{SEAL_ENDING}")


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


try:  # 0.2.227 reads in one process for all; if that one fails, the others wait forever
    from levanter.tensorstore_serialization import ReplicaRestoreMode, TensorStoreReadConfig

    _EACH_READS: dict[str, Any] = {"read_config": TensorStoreReadConfig(replica_mode=ReplicaRestoreMode.EVERY_REPLICA)}
except ImportError:
    _EACH_READS = {}

_DESCRIPTION = "metadata.json"
"""File in a checkpoint, written last, that holds its step."""
_MOST_SEALED_BYTES = 2**30
_SEALING_SECONDS, _POLL_SECONDS = 60.0, 0.1


def resume_latest(
    trainer: Trainer,
    state: TrainerState,
    spec: RunSpec,
    *,
    steps_recorded: int,
    on_note: Callable[[str], None],
    group: ProcessGroup = ALONE,
) -> TrainerState:
    """Return the state in the newest complete checkpoint of this run, or `state` if there is none.

    The spec of the run (and with it the digest of a target's statement) is written next to its checkpoints before the first
    step. A checkpoint is set aside with a note, and the run starts from `state`, in these cases: the spec next to it differs;
    it cannot be read; its files were changed; its step is beyond the loss curve, which would leave a gap. In a group the
    leader chooses the checkpoint. If only another process cannot read it, all end with an error and may be restarted.
    """
    folder = Path(trainer.checkpoint_path)
    if group.is_leader:
        _leave_damaged(folder, on_note=on_note)
        _claim(folder, spec, on_note=on_note)
    latest = discover_latest_checkpoint(trainer.checkpoint_path) if group.is_leader else None
    step = group.leaders(-1 if latest is None else _step_of(latest))
    if step < 0:
        return state
    resumed, reason = _read(trainer, state, step=step, steps_recorded=group.leaders(steps_recorded), group=group)
    if group.is_everywhere(not reason):
        return resumed
    if not group.leaders(bool(reason)):
        raise RuntimeError(f"A process of the group cannot read the checkpoint of step {step}. {reason}")
    if group.is_leader:
        _leave(folder, reason, on_note=on_note)
    return state


def seal_once_whole(checkpoint: Path) -> None:
    """Seal a checkpoint that is being written, once it is complete, unless a later one replaces it.

    A checkpoint that takes over a minute to write, or exceeds a GiB, is not sealed: reading it again would slow down training.
    """
    until = time.monotonic() + _SEALING_SECONDS
    while not is_whole(checkpoint) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    with contextlib.suppress(OSError, StorageError):  # the checkpoint was deleted, or the disk is full
        if is_whole(checkpoint) and sum(path.stat().st_size for path in checkpoint.rglob("*")) <= _MOST_SEALED_BYTES:
            seal(checkpoint)


def is_whole(checkpoint: Path) -> bool:
    """Return True if the checkpoint was written completely."""
    return (checkpoint / _DESCRIPTION).exists()


def _read(
    trainer: Trainer, state: TrainerState, *, step: int, steps_recorded: int, group: ProcessGroup
) -> tuple[TrainerState, str]:
    """Return the state in the checkpoint of this step, or what is wrong with it."""
    try:
        resumed = eqx.combine(_loaded_in_any_layout(trainer, state.saveable_state, step=step, group=group), state)
        if int(resumed.step) <= steps_recorded:
            return resumed, ""
        return state, f"It is of step {int(resumed.step)}, and the loss curve ends at {steps_recorded}"
    except Exception as error:  # whatever tensorstore, JAX and Levanter raise for damaged files
        return state, first_line(error)


def _loaded_in_any_layout(trainer: Trainer, like: Any, *, step: int, group: ProcessGroup) -> Any:
    """Return the checkpoint of this step in the structure of `like`, also if its layers are in the other layout."""
    try:
        return _loaded(trainer, like, step=step, group=group)
    except Exception:  # of the other layout, from another kind of device; or damaged, which the second attempt says
        found = _loaded(trainer, eqx.filter_eval_shape(in_other_layout, like), step=step, group=group)
        turned = eqx.filter_jit(in_other_layout)(found)
        return jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(turned))


def _loaded(trainer: Trainer, like: Any, *, step: int, group: ProcessGroup) -> Any:
    """Return the checkpoint of this step, in the structure of `like`."""
    return load_checkpoint(
        like,
        f"{trainer.checkpoint_path}/step-{step}",
        axis_mapping=trainer.parameter_axis_mapping,
        mesh=trainer.device_mesh,
        **(_EACH_READS if group.count > 1 else {}),
    )


def _leave_damaged(folder: Path, *, on_note: Callable[[str], None]) -> None:
    """Set checkpoints aside if Levanter would fail on a damaged one, or resume from it with other numbers.

    An older one may lack files, if a process was killed while deleting it.
    """
    whole = sorted(path for path in folder.glob("step-*") if is_whole(path))
    for checkpoint in whole:
        if not _says_its_step(checkpoint / _DESCRIPTION):
            return _leave(folder, f"{checkpoint.name}/{_DESCRIPTION} is damaged", on_note=on_note)
    if whole and not is_intact(newest := max(whole, key=_step_of)):
        return _leave(folder, f"The files of {newest.name} were changed after they were written", on_note=on_note)
    return None


def _step_of(checkpoint: Path | str) -> int:
    return int(str(checkpoint).rpartition("-")[2])


def _says_its_step(path: Path) -> bool:
    try:
        saved = json.loads(read_own_bytes(path))
        return int(saved["step"]) >= 0 and bool(datetime.fromisoformat(saved["timestamp"]))
    except (ValueError, TypeError, KeyError):
        return False


def _claim(folder: Path, spec: RunSpec, *, on_note: Callable[[str], None]) -> None:
    """Write the spec next to a folder of checkpoints; set those of another run aside."""
    mark = folder / "spec.json"
    if mark.exists() and read_own_bytes(mark) != spec.to_bytes():
        on_note(f"its checkpoints belong to another run and were moved to {_set_aside(folder)}; training restarts.")
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(mark, spec.to_bytes())


def _leave(folder: Path, why: str, *, on_note: Callable[[str], None]) -> None:
    on_note(f"its checkpoint cannot be used and was moved to {_set_aside(folder)}; training restarts. {why}.")


def _set_aside(folder: Path) -> Path:
    """Rename a folder to an unused name next to it."""
    kept = next(path for n in itertools.count(1) if not (path := folder.with_name(f"{folder.name}-damaged-{n}")).exists())
    folder.rename(kept)
    return kept


_TRUNK_MARKER, _EARLIER_MARKER = "trunk.json", "earlier-trunk.json"
"""Files next to the checkpoint of a trunk: the run that trained it and its steps; the trunk that this run continued."""


def keep_trunk(state: TrainerState, spec: RunSpec, *, work_dir: Path, trunk: Path, group: ProcessGroup = ALONE) -> None:
    """Leave the state before the decay, and the loss curve so far, in a folder of `trunk`, unless a run has done so.

    All processes of a group write into the same `work_dir`.
    """
    steps, unfinished, curve = int(state.step), work_dir / "trunk", curve_path(work_dir)
    kept = trunk / str(steps)
    if group.leaders(kept.exists()):
        return
    if group.is_leader:
        shutil.rmtree(unfinished, ignore_errors=True)
    group.is_everywhere(True)  # no process may write into the folder before
    checkpoint = unfinished / f"step-{steps - 1}"
    save_checkpoint(state.saveable_state, step=steps - 1, checkpoint_path=str(checkpoint), is_temporary=False)
    if group.is_everywhere(True) and group.is_leader:
        seal_once_whole(checkpoint)
        replace_file(unfinished / curve.name, read_own_bytes(curve))
        replace_file(unfinished / _TRUNK_MARKER, Trunk(spec_digest=spec.digest, steps=steps).model_dump_json().encode())
        if (earlier := begun_at(spec, work_dir=work_dir)) is not None:
            replace_file(unfinished / _EARLIER_MARKER, earlier.model_dump_json().encode())
        sync_folder(unfinished)
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished.rename(kept)


def begin_at_trunk(spec: RunSpec, *, work_dir: Path, trunk: Path, group: ProcessGroup = ALONE) -> None:
    """Copy the longest part of the trunk that this run can continue into its working folder, unless the run has begun.

    The run then resumes from it as from a checkpoint of its own.
    """
    folder, curve = _checkpoints_of(spec, work_dir), curve_path(work_dir)
    if group.is_leader and not any(map(is_whole, folder.glob("step-*"))):
        found = [path for path in trunk.glob("[0-9]*") if int(path.name) <= spec.steps_before_decay]
        longest = max(found, key=lambda path: int(path.name), default=None)
        if longest is not None and is_intact(longest / f"step-{int(longest.name) - 1}"):
            copied = work_dir / "copied-trunk"
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(longest, copied)
            shutil.rmtree(folder, ignore_errors=True)
            forget_seal(curve)
            (copied / curve.name).replace(curve)
            if _marked(copied).spec_digest == spec.digest:  # it trained this trunk before it was interrupted
                (copied / _TRUNK_MARKER).unlink()
                with contextlib.suppress(FileNotFoundError):
                    (copied / _EARLIER_MARKER).rename(copied / _TRUNK_MARKER)
            folder.parent.mkdir(parents=True, exist_ok=True)
            copied.rename(folder)
    group.is_everywhere(True)


def begun_at(spec: RunSpec, *, work_dir: Path) -> Trunk | None:
    """Return the steps that an unfinished run took from a trunk; None if it trains all steps itself."""
    folder = _checkpoints_of(spec, work_dir)
    return _marked(folder) if (folder / _TRUNK_MARKER).exists() else None


def _marked(folder: Path) -> Trunk:
    return Trunk.model_validate_json(read_own_bytes(folder / _TRUNK_MARKER))


def _checkpoints_of(spec: RunSpec, work_dir: Path) -> Path:
    return checkpoints_root(work_dir) / spec.directory_name
