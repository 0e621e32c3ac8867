"""A pool on a Ray cluster: each run is a task, or a group of them, with the resources that it is given.

Run store and working folder must be on a file system that all nodes share, under one path: the data, the specs, checkpoints
and claims lie there. Where machines share runs at an address (`exchange`), each node has a folder of its own instead. A run
whose node or worker dies is started again and goes on from its last checkpoint. Not here: what a group of tasks is
(`ray_task_groups`) and does (`on_ray_node`); which runs are due, and what is recorded (`run_ladder` and the process itself).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin_scaling.errors import ClusterError, first_line
from marin_scaling.git import checked_out_commit
from marin_scaling.ladder.ladder_file import PerRun
from marin_scaling.run.ray_task_groups import Retries, TaskGroup, require_resources, start_group
from marin_scaling.run.run_ladder import Pool
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.worker_events import WorkerEvent, parse_event
from marin_scaling.run.workplace import Workplace

_POLL_SECONDS = 0.5
_RETRIES = 5  # of a run whose worker died, and that got no further; an error in the training itself is not tried again
_CONNECT_SECONDS = 5.0
_HTTP2_SETTINGS = b"\x04"  # a frame's type, after three bytes of its length
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _HTTP2_SETTINGS + bytes(5)  # RFC 9113, section 3.4
_ROOM_SECONDS = 15.0  # until a slice is asked for again
_GOES_ON = "what trained it died; it goes on from its last checkpoint, if it has one."
_WAITS = "it waits for a slice of the cluster that is whole and idle."


def ray_pool(address: str | None, *, per_run: PerRun, max_parallel: int | None = None) -> Pool:
    """A pool on the cluster at `address`, or on one that is started on this machine and ended after use.

    As many runs at a time as the cluster has room for, or at most `max_parallel`.
    """

    def pool(specs: Sequence[RunSpec], workplace: Workplace) -> Iterator[WorkerEvent]:
        workplace = replace(workplace, git_commit=checked_out_commit(Path.cwd()))
        with _cluster(address):
            yield from _run_tasks(specs, workplace, per_run=per_run, at_a_time=max_parallel or len(specs))

    return pool


def _tracker() -> dict[str, Any]:
    """What nodes are told of where curves are mirrored, where this process was told."""
    names = ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_MODE")
    told = {name: value for name in names if (value := os.environ.get(name))}
    return {"runtime_env": {"env_vars": told}} if told else {}


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Connected to a cluster; `ClusterError` where there is none at that address."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # or a node's last log comes to standard output, if it dies
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    started = {"num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False} if address is None else {}
    try:
        _require_answer(address)
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **started, **_tracker())
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
    """`OSError` where nothing at HOST:PORT speaks gRPC, as Ray does; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS") == "1":  # then it answers in TLS only
            return
        connection.sendall(_HTTP2_PREFACE)
        if connection.makefile("rb").read(4)[3:] != _HTTP2_SETTINGS:
            raise OSError("what listens there is not Ray")


def _run_tasks(specs: Sequence[RunSpec], workplace: Workplace, *, per_run: PerRun, at_a_time: int) -> Iterator[WorkerEvent]:
    """Events of the tasks of all runs, in the order in which they come, until the last has ended."""
    require_resources(per_run)
    runs = _Runs(specs, workplace, per_run=per_run, at_a_time=at_a_time)
    try:
        while runs.waiting or runs.groups:
            yield from runs.start()
            ended = runs.wait()
            yield from runs.tell()
            yield from runs.see(ended)
    finally:
        for group in runs.groups:
            group.release()


class _Runs:
    """Those that wait for their tasks, and those whose tasks are under way."""

    def __init__(self, specs: Sequence[RunSpec], workplace: Workplace, *, per_run: PerRun, at_a_time: int) -> None:
        import ray

        self.waiting, self.groups = list(specs), list[TaskGroup]()
        self._workplace, self._per_run, self._at_a_time = workplace, per_run, at_a_time
        self._lines = ray.remote(num_cpus=0, max_restarts=-1)(_Lines).remote()
        self._retries = Retries(_RETRIES)
        self._failed, self._said_to_wait = set[str](), set[str]()
        self._next_start = 0.0

    def start(self) -> Iterator[WorkerEvent]:
        """Start as many as may be under way; what finds no slice is tried again later, and said once to wait."""
        while self.waiting and len(self.groups) < self._at_a_time and time.monotonic() >= self._next_start:
            spec = self.waiting[0]
            group = start_group(spec, self._workplace, per_run=self._per_run, events=self._lines)
            if group is not None:
                self.groups.append(group)
                self.waiting.pop(0)
                continue
            self._next_start = time.monotonic() + _ROOM_SECONDS
            if spec.directory_name not in self._said_to_wait:
                self._said_to_wait.add(spec.directory_name)
                yield WorkerEvent(kind="noted", run=spec.directory_name, message=_WAITS)

    def wait(self) -> Sequence[Any]:
        """The tasks that have ended, once all have or some time has passed."""
        import ray

        tasks = [task for group in self.groups for task in group.tasks]
        if not tasks:
            time.sleep(_POLL_SECONDS)
            return []
        ended, _ = ray.wait(tasks, num_returns=len(tasks), timeout=_POLL_SECONDS)
        return list(ended)

    def tell(self) -> Iterator[WorkerEvent]:
        """What the processes have said; that a run failed once, though each process of a group says it."""
        for event in _drained(self._lines):
            self._retries.see(event)
            if event.run not in self._failed:
                yield event
            self._failed |= {event.run} if event.kind == "failed" else set()

    def see(self, ended: Sequence[Any]) -> Iterator[WorkerEvent]:
        """Take out the groups that have ended, and put back those that may go on."""
        for group, ending in [(group, ending) for group in self.groups if (ending := group.ending(ended))]:
            group.release()
            self.groups.remove(group)
            run = group.spec.directory_name
            if ending.reason and run not in self._failed:
                if ending.may_go_on and self._retries.take(run):
                    self.waiting.insert(0, group.spec)
                    yield WorkerEvent(kind="noted", run=run, message=_GOES_ON)
                else:
                    yield WorkerEvent(kind="failed", run=run, message=ending.reason)


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
