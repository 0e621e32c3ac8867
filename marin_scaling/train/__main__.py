"""`python -m marin_scaling.train SPEC.json ...`: train each of these runs unless it is finished or claimed.

A crash or an out-of-memory kill of such a process costs one run; several runs in one process import Levanter once. The process
dies with its launcher. It writes events as JSON lines to standard output; output of libraries goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import gc
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import Interrupted, MarinScalingError, StorageError
from marin_scaling.files import claim, read_own_bytes, replace_file
from marin_scaling.git import checked_out_commit
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.spec import RunSpec, by_trunk, read_spec
from marin_scaling.run.store import (
    STARTED_NAME,
    History,
    RunRecord,
    Workplace,
    add_run,
    compiled_dir,
    end_of_run,
    is_finished,
    is_moment,
    read_run,
    run_folder,
    trunk_dir,
    weights_dir,
    work_dir,
)
from marin_scaling.train.compiled_programs import compiling_once, in_turns
from marin_scaling.train.environment import ALONE, ProcessGroup
from marin_scaling.train.progress import EventWriter, WorkerEvent, failure_of
from marin_scaling.train.shared_storage import Exchange

if TYPE_CHECKING:
    from marin_scaling.train.train import TrainingResult

_TO_END = threading.Event()
_POLL_SECONDS = 5.0
_ENDING_SECONDS = 60.0
_FULL = os.strerror(errno.ENOSPC)


def main() -> int:
    """Train the runs named on the command line; return 1 if one failed, 143 after SIGTERM, with the run saved."""
    arguments = _parser().parse_args()
    if arguments.processes == 1:  # the processes of a group save together, or end at once
        signal.signal(signal.SIGTERM, lambda _number, _frame: _TO_END.set())
    events = EventWriter(_take_standard_output())
    if arguments.launcher:
        threading.Thread(target=_die_with, args=(arguments.launcher,), daemon=True).start()
    if arguments.cores:
        os.sched_setaffinity(0, arguments.cores)
    group = ProcessGroup(count=arguments.processes, rank=arguments.process, coordinator=arguments.coordinator)
    group.join()
    specs = [read_spec(read_own_bytes(path), name=str(path)) for path in arguments.specs]
    place = Workplace(
        runs_dir=arguments.runs,
        work_root=arguments.work,
        keep_weights=arguments.keep_weights,
        storage=arguments.storage,
        git_commit=arguments.git_commit,
        mesh=arguments.mesh,
    )
    if group.count > 1:
        for spec in specs:
            _train_together(spec, place, events=events, group=group)
        sys.exit(0)  # after the other processes of the group
    try:
        return 0 if _train_in_turns(specs, place, events=events) else 1
    except Interrupted:
        return 128 + signal.SIGTERM


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m marin_scaling.train", description=__doc__)
    parser.add_argument(
        "specs", nargs="+", type=Path, help="spec.json files, trained in this order unless another process compiles"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="run store")
    parser.add_argument("--work", type=Path, default=Path(".marin-scaling"), help="folder of checkpoints, caches and logs")
    parser.add_argument("--keep-weights", action="store_true", help="keep the weights of rungs too, not only of targets")
    parser.add_argument("--storage", help="address where machines share runs and checkpoints")
    parser.add_argument("--git-commit", help="commit to record; default: that of the current folder")
    parser.add_argument("--mesh", type=Mesh.model_validate_json, default=ONE_AXIS, help="axes of devices, as JSON")
    parser.add_argument("--cores", type=lambda text: {int(core) for core in text.split(",")}, help="CPU cores to use")
    parser.add_argument("--processes", type=int, default=1, help="number of processes that train each run together")
    parser.add_argument("--process", type=int, default=0, help="number of this process among them, from 0")
    parser.add_argument("--coordinator", default="", help="HOST:PORT on which the first of them listens")
    parser.add_argument("--launcher", type=int, help="process to die with")
    return parser


def _take_standard_output() -> TextIO:
    """Return the real standard output, for events; redirect output of libraries to standard error."""
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return stream


def _die_with(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(0.5)
    os._exit(1)


def _train_in_turns(specs: Sequence[RunSpec], place: Workplace, *, events: EventWriter) -> bool:
    """Train runs in turns with the processes that compile; return False if one failed.

    The runs of a trunk follow each other in the process that trains the shortest, even after one failed.
    """
    shortest = {alike[0].digest: alike for alike in by_trunk(specs)}
    went_well = True
    for first in in_turns([alike[0] for alike in shortest.values()], compiled_dir(place)):
        for spec in shortest[first.digest]:
            is_done = _train_if_free(spec, place, events=events, waits=len(specs) == 1)
            went_well &= is_done
            if is_done and not is_finished(place.runs_dir, spec):
                break  # another process trains it, and then the longer ones
    return went_well


def _train_if_free(spec: RunSpec, place: Workplace, *, events: EventWriter, waits: bool) -> bool:
    """Train the run unless it is finished or claimed by another process; return False if it failed.

    With `waits`, wait for a run that another machine holds, and take it over if that machine dies.
    """
    if place.storage is None and is_finished(place.runs_dir, spec):
        return True
    try:
        if _TO_END.is_set():
            raise Interrupted
        with claim(work_dir(spec, place)) as is_ours:
            if is_ours and place.storage is not None:
                _train_what_is_shared(spec, place, events=events, waits=waits)
            elif is_ours and not is_finished(place.runs_dir, spec):
                _train_and_record(spec, place, events=events)
    except Exception as error:  # any library may hit a full disk
        is_full = _FULL in f"{error} {error.__cause__}"
        if isinstance(error, MarinScalingError) and not is_full:
            events.tell(failure_of(spec.directory_name, error))
            return False
        if not is_full:
            raise
        with contextlib.suppress(OSError):  # the log may be on the full disk
            traceback.print_exc()
        message = f"the disk is full: nothing could be written below {place.work_root}. Earlier checkpoints are kept."
        events.tell(WorkerEvent(kind="failed", run=spec.directory_name, message=message))
        return False
    return True


def _train_together(spec: RunSpec, place: Workplace, *, events: EventWriter, group: ProcessGroup) -> None:
    """Train with the other processes of a group, whose leader claims the run; end this process if the run failed."""
    try:
        with contextlib.ExitStack() as stack:
            is_free = group.is_leader and _claimed_soon(spec, place, stack)
            if group.leaders(is_free and not is_finished(place.runs_dir, spec)):
                _train_and_record(spec, place, events=events, group=group)
        return
    except MarinScalingError as error:
        events.tell(failure_of(spec.directory_name, error))
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # a normal exit would wait five minutes for processes that wait for this one in a step


def _claimed_soon(spec: RunSpec, place: Workplace, stack: contextlib.ExitStack) -> bool:
    """Try to claim the run until `stack` is closed; wait for an earlier group's process to end."""
    until = time.monotonic() + _ENDING_SECONDS
    while not (is_ours := stack.enter_context(claim(work_dir(spec, place)))) and time.monotonic() < until:
        time.sleep(1.0)
    return is_ours


def _train_what_is_shared(spec: RunSpec, place: Workplace, *, events: EventWriter, waits: bool) -> None:
    """Train a run unless another machine has trained or is training it, from its latest checkpoint.

    The run is left for later if the storage cannot be reached. A later failure to copy it there costs only the copy.
    """
    exchange = Exchange(place)
    with contextlib.ExitStack() as stack:
        try:
            while waits and exchange.is_leased(spec):
                if _TO_END.wait(_POLL_SECONDS):
                    raise Interrupted
            is_ours = stack.enter_context(exchange.lease(spec))
            exchange.share_finished([spec])
            if not is_ours or is_finished(place.runs_dir, spec):
                return
            exchange.bring_data(spec.data.digest)
            exchange.bring_state(spec)
        except StorageError as error:
            _tell_note(events, spec, f"not started, because other machines cannot be asked for it. {error.what}")
            return
        _train_and_record(spec, place, events=events, exchange=exchange)


def _train_and_record(
    spec: RunSpec, place: Workplace, *, events: EventWriter, exchange: Exchange | None = None, group: ProcessGroup = ALONE
) -> None:
    events.tell(WorkerEvent(kind="started", run=spec.directory_name))
    _load_levanter()
    from marin_scaling.train.levanter_config import use_compilation_cache
    from marin_scaling.train.weights import keep_weights

    use_compilation_cache(compiled_dir(place), on_note=partial(_tell_note, events, spec))
    started_at, clock = _first_start(work_dir(spec, place)), time.perf_counter()
    result = _trained(spec, place, events=events, exchange=exchange, group=group)
    seconds = time.perf_counter() - clock
    record = _record(spec, result, started_at=started_at, wall_seconds=seconds, place=place)
    if record.status == "finished" and (place.keep_weights or spec.role == "target"):
        keep_weights(result.model, record, train_steps=spec.train_steps, place=place, group=group)  # before the record
    if group.is_leader:
        _publish(spec, record, result.loss_curve.history(spec_digest=spec.digest), place, events=events, exchange=exchange)
    group.is_everywhere(True)  # processes at their exit wait only five minutes for the others


@functools.cache
def _load_levanter() -> None:
    """Import the training libraries, and exclude them from garbage collection, since each pass over them takes a second."""
    gc.disable()

    gc.freeze()
    gc.enable()


def _trained(
    spec: RunSpec, place: Workplace, *, events: EventWriter, exchange: Exchange | None, group: ProcessGroup
) -> TrainingResult:
    """Train to the end, and report progress to the launcher, to trackers, and to machines that share runs."""
    from marin_scaling.data.corpus import data_folder, map_corpus
    from marin_scaling.train.environment import wandb_trackers
    from marin_scaling.train.train import train

    if exchange is not None:
        _copied(events, spec, exchange.agree_when_begun, spec)
    trackers = wandb_trackers(spec, on_note=partial(_tell_note, events, spec)) if group.is_leader else []
    with _compiling(spec, place, events=events, group=group) as tell_compiled:
        result = train(
            spec,
            corpus=map_corpus(data_folder(spec.data.digest, work_root=place.work_root)),
            work_dir=work_dir(spec, place),
            on_step=partial(_see_step, events, spec, tell_compiled),
            on_note=partial(_tell_note, events, spec),
            on_saved=None if exchange is None else partial(_copied, events, spec, exchange.take_state, spec),
            trackers=trackers,
            group=group,
            is_to_end=_TO_END.is_set,
            trunk=trunk_dir(spec, place) if spec.shared_trunk else None,
            mesh=place.mesh,
        )
    for tracker in trackers:
        tracker.log_summary({spec.evaluation.metric: result.bits_per_byte})
        tracker.finish()
    return result


def _compiling(
    spec: RunSpec, place: Workplace, *, events: EventWriter, group: ProcessGroup
) -> AbstractContextManager[Callable[[], None]]:
    """Return `compiling_once`; processes of a group train together without it."""
    if group.count > 1:
        return contextlib.nullcontext(lambda: None)
    return compiling_once(spec, compiled_dir(place), wait=_TO_END.wait, on_note=partial(_tell_note, events, spec))


def _record(spec: RunSpec, result: TrainingResult, *, started_at: str, wall_seconds: float, place: Workplace) -> RunRecord:
    from marin_scaling.train.environment import hardware, package_versions
    from marin_scaling.train.levanter_config import scans_layers

    shape, history = spec.model.shape(), result.loss_curve.history(spec_digest=spec.digest)
    return RunRecord(
        spec_digest=spec.digest,
        status="diverged" if result.bits_per_byte is None else "finished",
        metric=spec.evaluation.metric,
        loss=result.bits_per_byte,
        losses=dict(result.bits_per_byte_by_set) if spec.data.held_out else {},
        final_train_loss_nats_per_token=result.loss_curve.last_finite(),
        flops=spec.flops,
        flops_convention=spec.flops_convention,
        params_total=shape.params_total,
        params_active=shape.params_active,
        params_non_embedding=shape.params_non_embedding,
        trained_tokens=spec.trained_tokens,
        seed=spec.seed,
        wall_seconds=round(wall_seconds, 3),
        step_seconds=round(result.step_seconds, 3),
        started_at=started_at,
        finished_at=end_of_run(started_at, wall_seconds=wall_seconds, now=datetime.now(UTC)),
        hardware=hardware(place.mesh),
        versions=package_versions(),
        layers="scanned" if scans_layers(spec) else "unrolled",
        trunk=result.trunk,
        git_commit=place.git_commit or checked_out_commit(Path.cwd()),
        data_digest=spec.data.digest,
        history_sha256=sha256_hex(history.to_bytes()),
        statement_sha256=spec.statement_sha256,
    )


def _publish(
    spec: RunSpec, record: RunRecord, history: History, place: Workplace, *, events: EventWriter, exchange: Exchange | None
) -> None:
    """Add the run to the store and to the shared one; if another machine was faster, its record counts."""
    if exchange is not None:
        _copied(events, spec, exchange.share_finished, [spec])
    if is_finished(place.runs_dir, spec):
        _tell_note(events, spec, "another machine has recorded it meanwhile; its record counts.")
        shutil.rmtree(weights_dir(spec.directory_name, place), ignore_errors=True)
    else:
        add_run(place.runs_dir, spec=spec, record=record, history=history)
        if exchange is not None:
            _copied(events, spec, exchange.share_finished, [spec])
    record = read_run(run_folder(place.runs_dir, spec)).record
    events.tell(WorkerEvent(kind=record.status, run=spec.directory_name, step=spec.train_steps, loss=record.loss))
    shutil.rmtree(work_dir(spec, place), ignore_errors=True)


def _first_start(work_dir: Path) -> str:
    """Return when this run first began, before any interruption: a forecast must be older."""
    marker = work_dir / STARTED_NAME
    if not marker.exists():
        replace_file(marker, datetime.now(UTC).isoformat(timespec="seconds").encode())
    elif not is_moment(read_own_bytes(marker)):  # the disk is damaged
        began = datetime.fromtimestamp(marker.stat().st_mtime, UTC)
        replace_file(marker, began.isoformat(timespec="seconds").encode())
    return read_own_bytes(marker).decode()


def _copied(events: EventWriter, spec: RunSpec, copy: Callable[..., None], *arguments: Any) -> None:
    """Copy to the shared storage; on failure, continue on this machine."""
    try:
        copy(*arguments)
    except StorageError as error:
        _tell_note(events, spec, f"only on this machine for now. {error.what}")


def _tell_note(events: EventWriter, spec: RunSpec, note: str) -> None:
    events.tell(WorkerEvent(kind="noted", run=spec.directory_name, message=note))


def _see_step(events: EventWriter, spec: RunSpec, tell_compiled: Callable[[], None], step: int, loss: float) -> None:
    tell_compiled()
    if step == spec.train_steps:
        events.tell(WorkerEvent(kind="evaluating", run=spec.directory_name, step=step))
    else:
        events.tell_step(spec.directory_name, step, loss)


if __name__ == "__main__":
    if status := main():
        sys.exit(status)  # libraries close what the run left open
    sys.stderr.flush()
    os._exit(0)  # all is closed; JAX's normal exit takes a second
