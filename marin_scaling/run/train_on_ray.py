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
from typing import Any

from marin_scaling.errors import ClusterError, first_line
from marin_scaling.ladder.ladder_file import PerRun
from marin_scaling.run.ray_task_groups import Retries, TaskGroup, has_room, require_resources, start_group
from marin_scaling.run.run_ladder import Pool
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.worker_events import WorkerEvent, parse_event
from marin_scaling.run.workplace import Workplace

_POLL_SECONDS = 0.5
_RETRIES = 5  # of a run whose worker died, and that got no further; an error in the training itself is not tried again
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
    """Events of the tasks of all runs, in the order in which they come, until the last has ended."""
    import ray

    require_resources(per_run)
    events = ray.remote(num_cpus=0, max_restarts=-1)(_Lines).remote()
    waiting, retries = list(specs), Retries(_RETRIES)
    groups, failed = list[TaskGroup](), set[str]()
    try:
        while waiting or groups:
            while waiting and len(groups) < at_a_time and has_room(per_run, running=len(groups)):
                groups.append(start_group(waiting.pop(0), workplace, per_run=per_run, events=events))
            ended = _ended(groups)
            for event in _drained(events):
                retries.see(event)
                if event.run not in failed:  # of a group each process tells that it failed
                    yield event
                failed |= {event.run} if event.kind == "failed" else set()
            for group, end in [(group, end) for group in groups if (end := group.ending(ended))]:
                group.release()
                groups.remove(group)
                run = group.spec.directory_name
                if end.may_go_on and run not in failed and retries.take(run):
                    waiting.insert(0, group.spec)
                elif end.reason and run not in failed:
                    yield WorkerEvent(kind="failed", run=run, message=end.reason)
    finally:
        for group in groups:
            group.release()


def _ended(groups: Sequence[TaskGroup]) -> Sequence[Any]:
    """The tasks that have ended, once all have or some time has passed."""
    import ray

    tasks = [task for group in groups for task in group.tasks]
    if not tasks:
        time.sleep(_POLL_SECONDS)
        return []
    ended, _ = ray.wait(tasks, num_returns=len(tasks), timeout=_POLL_SECONDS)
    return list(ended)


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
