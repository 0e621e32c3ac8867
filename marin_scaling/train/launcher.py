"""Train runs on this machine with a pool of worker processes that share cores and GPUs."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from marin_scaling.data.corpus import TokenCorpus, data_folder, write_corpus
from marin_scaling.errors import StorageError, TrainingFailed
from marin_scaling.files import claim, hide_from_git, replace_file, require_writable
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.spec import RunSpec, by_trunk, differences
from marin_scaling.run.store import Workplace, is_finished, spec_path, work_dir
from marin_scaling.train.environment import ALONE, ProcessGroup
from marin_scaling.train.progress import WorkerEvent, parse_event
from marin_scaling.train.shared_storage import Exchange
from marin_scaling.untrusted_files import child_environment, program, python_module

_USED_SHARE = 0.9  # of a GPU's memory for all processes together; the driver and the compiler use the rest


def visible_gpus() -> list[str]:
    """Return the GPUs in `CUDA_VISIBLE_DEVICES`, or all that the driver lists; empty without a driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run([program("nvidia-smi"), "--list-gpus"], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return [str(number) for number in range(len(listed.stdout.splitlines()))] if listed.returncode == 0 else []


def runs_that_fit(gpus_per_run: float, gpus: int) -> int:
    """Return how many runs can have their GPUs at the same time.

    >>> [runs_that_fit(each, 8) for each in (0.25, 1, 3)]
    [32, 8, 2]
    """
    return gpus // int(gpus_per_run) if gpus_per_run >= 1 else gpus * _sharers(gpus_per_run)


def gpu_environment(number: int, *, gpus_per_run: float, gpus: Sequence[str]) -> dict[str, str]:
    """Return the environment of a process: its GPUs, or its share of one; none if runs use no GPUs.

    >>> gpu_environment(1, gpus_per_run=2, gpus=["0", "1", "2", "3"])
    {'CUDA_VISIBLE_DEVICES': '2,3'}
    >>> gpu_environment(5, gpus_per_run=0.25, gpus=["0", "1"])
    {'CUDA_VISIBLE_DEVICES': '1', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.225'}
    >>> gpu_environment(0, gpus_per_run=0, gpus=["0"])
    {'CUDA_VISIBLE_DEVICES': ''}
    >>> gpu_environment(0, gpus_per_run=0, gpus=[])
    {}
    """
    if not gpus_per_run:
        return {"CUDA_VISIBLE_DEVICES": ""} if gpus else {}
    if gpus_per_run >= 1:
        each = int(gpus_per_run)
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus[number * each : (number + 1) * each])}
    return {"CUDA_VISIBLE_DEVICES": gpus[number // _sharers(gpus_per_run)], **shared_memory(gpus_per_run)}


def shared_memory(gpus_per_run: float) -> dict[str, str]:
    """Return the environment that limits a process to its share of a GPU's memory; empty for a whole GPU.

    >>> shared_memory(0.5)
    {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.45'}
    """
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_USED_SHARE * gpus_per_run:g}"} if 0 < gpus_per_run < 1 else {}


def _sharers(share: float) -> int:
    return int(1 / share + 1e-9)


_POLL_SECONDS = 1.0
_SHARED_POLL_SECONDS = 5.0  # each poll costs requests
_PATIENCE_SECONDS = 300.0  # for an unavailable storage to come back
_SAVING_SECONDS = 10.0  # a process that compiles does not react in this time
_QUOTED_LINES = 8  # of a worker's log


@dataclass(frozen=True, kw_only=True)
class TrainingTime:
    """Duration of this call in seconds, and the part in which at least one run was in its training steps."""

    wall_seconds: float
    stepping_seconds: float


Pool = Callable[[Sequence[RunSpec], Workplace], Iterator[WorkerEvent]]
"""Events of training these runs, until each one is recorded, claimed by another launcher, or failed."""


def train_runs(
    specs: Sequence[RunSpec],
    *,
    corpus: TokenCorpus,
    workplace: Workplace,
    pool: Pool,
    on_event: Callable[[WorkerEvent], None],
) -> TrainingTime:
    """Train all `specs` that are not finished, and return when the store holds all of them.

    The most expensive run begins first, but while a process compiles, another begins a run with cached programs.
    `TrainingFailed` lists the runs that failed, after all others are done; it quotes the log if processes end before their
    first run. Runs of another launcher are waited for, and taken over if it dies. Runs are also copied to the shared
    storage, if there is one; `StorageError` if that fails.
    """
    clock, stepping = time.monotonic(), _SteppingTime()
    pending = _unfinished(specs, workplace)
    if pending:
        _lay_out(pending, corpus, workplace)
        hide_from_git(workplace.work_root)
    failures: dict[str, WorkerEvent] = {}
    others = _Others(workplace, on_event)
    while pending:
        attempts = [spec for spec in pending if spec.directory_name not in failures]
        if not attempts:
            raise _failed(failures, specs, workplace)
        free = others.leave(attempts)
        for event in pool(free, workplace) if free else ():
            stepping.see(event)
            on_event(event)
            if event.kind == "failed":
                failures[event.run] = event
        others.share(pending)
        pending = _unfinished(specs, workplace)
        if any(others.train(spec) for spec in pending):
            time.sleep(_POLL_SECONDS if workplace.storage is None else _SHARED_POLL_SECONDS)
    others.share_at_last(specs)
    return TrainingTime(wall_seconds=time.monotonic() - clock, stepping_seconds=stepping.seconds)


class _Others:
    """State of runs in other processes, here and on machines that share runs; reports each wait once."""

    def __init__(self, workplace: Workplace, on_event: Callable[[WorkerEvent], None]) -> None:
        self._place, self._on_event = workplace, on_event
        self._reported: set[str] = set()

    def leave(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """Return the runs that other processes do not train, and that continue no run of theirs."""
        return [spec for alike in by_trunk(specs) for spec in itertools.takewhile(lambda each: not self.train(each), alike)]

    def train(self, spec: RunSpec) -> bool:
        """Return True if another process trains the run, or if that cannot be determined."""
        try:
            is_theirs = is_claimed(spec, self._place)
        except StorageError as error:
            self._report_once(spec, f"cannot ask whether another machine trains it; retrying. {error.what}")
            return True
        if is_theirs:
            self._report_once(spec, "another process is training it; waiting for it.")
        return is_theirs

    def share(self, specs: Sequence[RunSpec]) -> None:
        """Exchange finished runs if the storage can be reached."""
        if self._place.storage is not None:
            with contextlib.suppress(StorageError):  # `train` has reported it
                Exchange(self._place).share_finished(specs)

    def share_at_last(self, specs: Sequence[RunSpec]) -> None:
        """Exchange finished runs once all are recorded here, and retry for `_PATIENCE_SECONDS`, since no one would do it later.

        `StorageError` if that fails; a rerun of the command completes it.
        """
        given_up = time.monotonic() + _PATIENCE_SECONDS
        while self._place.storage is not None and specs:
            try:
                Exchange(self._place).share_finished(specs)
                return
            except StorageError as error:
                if time.monotonic() > given_up:
                    raise
                self._report_once(
                    specs[-1], f"it is recorded here, but cannot be copied to the storage; retrying. {error.what}"
                )
                time.sleep(_SHARED_POLL_SECONDS)

    def _report_once(self, spec: RunSpec, message: str) -> None:
        if message not in self._reported:
            self._on_event(WorkerEvent(kind="noted", run=spec.directory_name, message=message))
        self._reported.add(message)


class _SteppingTime:
    """Measures the time in which at least one run is between its first step and its evaluation."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._stepping: set[str] = set()
        self._since = 0.0

    def see(self, event: WorkerEvent) -> None:
        now = time.monotonic()
        if self._stepping:
            self.seconds += now - self._since
        self._since = now
        if event.kind == "stepped":
            self._stepping.add(event.run)
        else:
            self._stepping.discard(event.run)


def _unfinished(specs: Sequence[RunSpec], workplace: Workplace) -> list[RunSpec]:
    pending = [spec for spec in specs if not is_finished(workplace.runs_dir, spec)]
    return [spec for alike in sorted(by_trunk(pending), key=lambda alike: -alike[-1].flops) for spec in alike]


def _lay_out(specs: Sequence[RunSpec], corpus: TokenCorpus, workplace: Workplace) -> None:
    """Write the data and the specs for the training processes, after checking that runs can be recorded."""
    for ladder in sorted({spec.ladder for spec in specs}):
        require_writable(workplace.runs_dir / ladder)
    write_corpus(corpus, data_folder(corpus.digest, work_root=workplace.work_root))
    if workplace.storage is not None:
        exchange = Exchange(workplace)
        exchange.require_writable()
        exchange.take_data(corpus.digest)
    for spec in specs:
        replace_file(spec_path(spec, workplace), spec.to_bytes())


def is_claimed(spec: RunSpec, workplace: Workplace) -> bool:
    """Return True if a process is training the run now, here or on a machine that shares runs."""
    with claim(work_dir(spec, workplace)) as is_free:
        pass
    return not is_free or (workplace.storage is not None and Exchange(workplace).is_leased(spec))


def local_pool(runs_at_a_time: int, *, gpus: Sequence[str] = (), gpus_per_run: float = 0, mesh: Mesh = ONE_AXIS) -> Pool:
    """Return a pool of processes on this machine, each with its share of the cores and with its `gpus`, or a share of one.

    `TrainingFailed` if a process fails before any event, since another pool would fail in the same way.
    """
    environments = [gpu_environment(number, gpus_per_run=gpus_per_run, gpus=gpus) for number in range(runs_at_a_time)]
    return lambda specs, workplace: _run_pool(specs, workplace=replace(workplace, mesh=mesh), environments=environments)


def _run_pool(
    specs: Sequence[RunSpec], *, workplace: Workplace, environments: Sequence[Mapping[str, str]]
) -> Iterator[WorkerEvent]:
    workers = min(len(environments), len(specs))
    log_sizes = [_size(_log_path(workplace, number)) for number in range(workers)]
    events: queue.Queue[WorkerEvent | None] = queue.Queue()
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(_worker(number, cores, specs, workplace, environments[number]))
            for number, cores in enumerate(_share_cores(len(environments))[:workers])
        ]
        stack.callback(_let_them_save, processes)
        for process in processes:
            threading.Thread(target=_forward, args=(process, events), daemon=True).start()
        ended, is_silent = 0, True
        while ended < workers:
            event = events.get()
            if event is None:
                ended += 1
            else:
                is_silent = False
                yield event
        broken = [number for number, process in enumerate(processes) if process.returncode]
        if is_silent and broken:
            log_path = _log_path(workplace, broken[0])
            raise _never_began(log_path, status=processes[broken[0]].returncode, log_size=log_sizes[broken[0]])


def _let_them_save(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Give the processes time to save checkpoints before they are killed."""
    until = time.monotonic() + _SAVING_SECONDS
    for process in processes:
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        for process in processes:
            process.wait(timeout=max(until - time.monotonic(), 0))


def _forward(process: subprocess.Popen[str], events: queue.Queue[WorkerEvent | None]) -> None:
    """Forward a process's events; report a process that dies in a run as a failure of that run."""
    assert process.stdout is not None
    current = ""
    with process.stdout as lines:
        for line in lines:
            event = parse_event(line)
            if event is not None:
                current = event.run if event.kind in ("started", "stepped", "evaluating", "noted") else ""
                events.put(event)
    if process.wait() != 0 and current:
        events.put(WorkerEvent(kind="failed", run=current, message=how_it_ended(process.returncode)))
    events.put(None)


def how_it_ended(status: int) -> str:
    """Describe the exit status of a training process.

    >>> how_it_ended(1)
    'its process ended with status 1.'
    """
    if status == -signal.SIGKILL:
        return (
            "its process was killed (signal 9), usually for lack of memory: train fewer runs at a time (--max-parallel 1), "
            "or smaller models or batches."
        )
    return f"its process ended with status {status}."


@contextlib.contextmanager
def _worker(
    number: int, cores: Sequence[int], specs: Sequence[RunSpec], workplace: Workplace, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start a training process in its own session (Ctrl-C reaches only the launcher), and end it with the block."""
    log_path = _log_path(workplace, number)
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = worker_command(specs, workplace=workplace, cores=cores)
    with open(log_path, "a") as log:
        process = subprocess.Popen(
            command,
            env=child_environment(os.environ | environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def worker_command(
    specs: Sequence[RunSpec], *, workplace: Workplace, cores: Sequence[int], group: ProcessGroup = ALONE
) -> list[str]:
    """Return the command of a process that trains these runs on these cores, and dies with its launcher."""
    command = python_module("marin_scaling.train")
    command += ["--runs", str(workplace.runs_dir), "--work", str(workplace.work_root)]
    command += ["--launcher", str(os.getpid()), "--cores", ",".join(map(str, cores))]
    command += ["--keep-weights"] if workplace.keep_weights else []
    command += ["--storage", workplace.storage] if workplace.storage is not None else []
    command += ["--git-commit", workplace.git_commit] if workplace.git_commit is not None else []
    command += ["--mesh", workplace.mesh.model_dump_json()] if workplace.mesh != ONE_AXIS else []
    if group.count > 1:
        command += ["--processes", str(group.count), "--process", str(group.rank), "--coordinator", group.coordinator]
    return command + [str(spec_path(spec, workplace)) for spec in specs]


def _share_cores(workers: int) -> list[list[int]]:
    """Return disjoint sets of this process's cores, one per simultaneous run; more runs than cores share them.

    A single remaining run gets no more cores, since the last digits of its losses depend on their number.

    >>> len(_share_cores(1)[0]) == len(os.sched_getaffinity(0))
    True
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    return [cores[number::workers] or [cores[number % len(cores)]] for number in range(workers)]


def _log_path(workplace: Workplace, number: int) -> Path:
    return workplace.work_root / "logs" / f"worker-{number}.log"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _never_began(log_path: Path, *, status: int, log_size: int) -> TrainingFailed:
    """Return the error for a process that ended before its first run; its log held `log_size` bytes before it began."""
    with open(log_path, "rb") as log:
        log.seek(log_size)
        output = log.read().decode(errors="replace").splitlines()[-_QUOTED_LINES:]
    wrote = f"It wrote into {log_path}:{'' if output else ' nothing.'}"
    return TrainingFailed(
        (f"A training process ended with status {status} before it began a run. {wrote}", *output),
        why="Other processes would end in the same way; recorded runs are kept.",
        fix=f"Fix the error in {log_path}, then rerun the command; it resumes.",
    )


def _failed(failures: Mapping[str, WorkerEvent], specs: Sequence[RunSpec], workplace: Workplace) -> TrainingFailed:
    others = len(specs) - len(failures)
    return TrainingFailed(
        (f"{len(failures)} of {len(specs)} runs failed:", *_listed(failures, specs)),
        why="All other runs are trained and recorded." if others else "",
        fix=f"Fix the errors in {_log_path(workplace, 0).parent}, then rerun the command.",
    )


def _listed(failures: Mapping[str, WorkerEvent], specs: Sequence[RunSpec]) -> list[str]:
    """Return one line per failed run; equal reasons and fixes are listed once."""
    apart = differences(specs)
    named = {spec.directory_name: spec.rung_name + apart[spec.directory_name] for spec in specs}
    reasons: dict[tuple[str, str], list[str]] = {}
    for run, event in sorted(failures.items()):
        reasons.setdefault((event.why, event.fix), []).append(f"{named[run]} ({run}): {event.message}")
    lines = []
    for (why, fix), runs in reasons.items():
        lines += [line.strip() for run in runs for line in run.splitlines()]
        lines += [f"  why: {why}"] if why else []
        lines += [f"  fix: {fix}"] if fix else []
    return lines
