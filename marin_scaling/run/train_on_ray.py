"""A pool on a Ray cluster: each run is a task that starts the same training process as here, with the resources it is given.

Run store and working folder must be on a file system that all nodes share, under one path: the data, the specs, checkpoints
and claims lie there. Where machines share runs at an address (`exchange`), each node has a folder of its own instead. A task
whose node or worker dies is started again by Ray and goes on from the run's last checkpoint. Not here: which runs are due, and
what is recorded (`run_ladder` and the process itself).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.claim import claim
from marin_scaling.durable_files import replace_file
from marin_scaling.errors import ClusterError, first_line
from marin_scaling.ladder.ladder_file import PerRun
from marin_scaling.run.gpus import shared_memory
from marin_scaling.run.run_ladder import Pool, how_it_ended, worker_command
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.worker_events import WorkerEvent, parse_event
from marin_scaling.run.workplace import Workplace, spec_path

_POLL_SECONDS = 0.5
_RETRIES = 5  # of a task whose worker died; an error in the training itself is not tried again
_CONNECT_SECONDS = 5.0


def ray_pool(address: str | None, *, per_run: PerRun, max_parallel: int | None = None) -> Pool:
    """A pool on the cluster at `address`, or on one that is started on this machine and ended after use.

    As many runs at a time as the cluster has room for, or at most `max_parallel`.
    """

    def pool(specs: Sequence[RunSpec], workplace: Workplace) -> Iterator[WorkerEvent]:
        with _cluster(address):
            yield from _run_tasks(specs, workplace, per_run=per_run, at_a_time=max_parallel or len(specs))

    return pool


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Connected to a cluster; `ClusterError` where there is none at that address."""
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    started = {"num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False} if address is None else {}
    try:
        _require_answer(address)
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **started)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"No Ray cluster answers at {address or 'this machine'}: {first_line(error)}.",
            why="Runs are trained where the ladder was told to train them, and nowhere else.",
            fix="Start it (ray start --head), correct the address, or train here: --on local.",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str | None) -> None:
    """`OSError` where nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()


def _run_tasks(specs: Sequence[RunSpec], workplace: Workplace, *, per_run: PerRun, at_a_time: int) -> Iterator[WorkerEvent]:
    """Events of one task a run, in the order in which they come, until the last has ended."""
    import ray

    _require_resources(per_run)
    events = ray.remote(num_cpus=0, max_restarts=-1)(_Lines).remote()
    options = {"num_cpus": per_run.cpus, "num_gpus": per_run.gpus, "resources": dict(per_run.resources)}
    task = ray.remote(max_retries=_RETRIES, **options)(_train_one)
    waiting, tasks, failed = list(specs), dict[Any, RunSpec](), set[str]()
    try:
        while waiting or tasks:
            while waiting and len(tasks) < at_a_time:
                spec = waiting.pop(0)
                tasks[task.remote(spec, workplace, per_run, events)] = spec
            ended, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=_POLL_SECONDS)
            for event in _drained(events):
                failed |= {event.run} if event.kind == "failed" else set()
                yield event
            for done in ended:
                spec = tasks.pop(done)
                yield from _outcome(done, spec, is_told=spec.directory_name in failed)
    finally:
        for left in tasks:
            ray.cancel(left, force=True)


class _Lines:
    """An actor: what the tasks' processes have said and nobody has read yet."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


def _drained(events: Any) -> Iterator[WorkerEvent]:
    import ray

    try:
        lines = ray.get(events.take.remote())
    except ray.exceptions.RayActorError:  # its node died; it is started again, and what it had not told is lost
        lines = []
    for line in lines:
        event = parse_event(line)
        if event is not None:
            yield event


def _outcome(task: Any, spec: RunSpec, *, is_told: bool) -> Iterator[WorkerEvent]:
    """Nothing where a task ended well, or where the run has told of its failure itself. Else that it failed, and why."""
    import ray

    try:
        status = ray.get(task)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        yield WorkerEvent(kind="failed", run=spec.directory_name, message=f"its Ray task ended: {reason}")
    else:
        if status and not is_told:
            yield WorkerEvent(kind="failed", run=spec.directory_name, message=f"{how_it_ended(status)} See ray-*.log.")


def _require_resources(per_run: PerRun) -> None:
    """`ClusterError` where no node has what one run wants: such a task would wait for ever."""
    import ray

    wanted = {
        name: amount for name, amount in {"CPU": per_run.cpus, "GPU": per_run.gpus, **per_run.resources}.items() if amount
    }
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        listed = ", ".join(f"{amount:g} of {name}" for name, amount in wanted.items())
        raise ClusterError(
            f"A run wants {listed}, and none of the cluster's {len(nodes)} nodes has that.",
            why="It would wait for ever.",
            fix="Lower hardware.per_run in the ladder file, or add a node that has it.",
        )


def _train_one(spec: RunSpec, workplace: Workplace, per_run: PerRun, events: Any) -> int:
    """On a node: train one run in a process of its own and pass its lines on; its exit status."""
    import ray

    if workplace.storage is not None:
        workplace = _place_of_node(workplace, workplace.storage)
        replace_file(spec_path(spec, workplace), spec.to_bytes())
    log = workplace.work_root / "logs" / f"ray-{socket.gethostname()}-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    told = []
    with _own_cores(per_run.cpus) as cores, open(log, "a") as stream:
        command = worker_command([spec], workplace=workplace, cores=cores)
        with subprocess.Popen(
            command,
            cwd=workplace.runs_dir.parent,
            env=os.environ | shared_memory(per_run.gpus),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                told = [events.add.remote(line)]  # not waited for: while a task waits, Ray gives its cores to another one
    with contextlib.suppress(ray.exceptions.RayActorError):
        ray.get(told)  # the last line is there, and so are those before it
    return process.returncode


def _place_of_node(workplace: Workplace, storage: str) -> Workplace:
    """On this node, apart from other users' and other storages'; what lies there is a copy."""
    folder = Path(tempfile.gettempdir()) / f"marin-scaling-{os.getuid()}" / sha256_hex(storage.encode())[:16]
    return replace(workplace, runs_dir=folder / "runs", work_root=folder / ".marin-scaling")


@contextlib.contextmanager
def _own_cores(wanted: int) -> Iterator[list[int]]:
    """Cores of this machine that no other run of ours is on; Ray counts cores and does not say which.

    Always so many (or all, where there are fewer), because a sum over more cores is another sum in its last digits.
    """
    folder = Path(tempfile.gettempdir()) / f"marin-scaling-cores-{os.getuid()}"
    cores = sorted(os.sched_getaffinity(0))
    while True:
        with contextlib.ExitStack() as stack:
            mine: list[int] = []
            for core in cores:
                if len(mine) < wanted and stack.enter_context(claim(folder / f"core-{core}")):
                    mine.append(core)
            if len(mine) == min(wanted, len(cores)):
                yield mine
                return
        time.sleep(_POLL_SECONDS)
