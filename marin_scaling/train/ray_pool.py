"""Train runs on a Ray cluster: resources, task groups, retries, and the tasks on its nodes, which import it without JAX."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import ClusterError, first_line
from marin_scaling.files import claim, make_private, replace_file
from marin_scaling.git import checked_out_commit
from marin_scaling.ladder.config import PerRun, TpuSlice
from marin_scaling.run.spec import RunSpec, by_trunk
from marin_scaling.run.store import Workplace, spec_path
from marin_scaling.train.environment import ProcessGroup
from marin_scaling.train.launcher import Pool, how_it_ended, shared_memory, worker_command
from marin_scaling.train.progress import WorkerEvent, parse_event
from marin_scaling.untrusted_files import child_environment

_HOST_LABEL = "ray.io/tpu-worker-id"
_RESERVING_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Outcome of a run's tasks: success without a `reason`; `may_go_on` if a restart may help."""

    reason: str = ""
    may_go_on: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskGroup:
    """Tasks that are training a run."""

    spec: RunSpec
    tasks: Sequence[Any]
    leave: Callable[[], None]
    """Releases the group's placement."""

    def ending(self, ended: Sequence[Any]) -> Ending | None:
        """Return the outcome, given these ended tasks; None while it is running. A failed task ends its group."""
        endings = [_ending(task) for task in self.tasks if task in ended]
        bad = [ending for ending in endings if ending.reason]
        if not bad:
            return Ending() if len(endings) == len(self.tasks) else None
        if len(self.tasks) == 1:
            return bad[0]
        return Ending(reason=" ".join(dict.fromkeys(ending.reason for ending in bad)), may_go_on=True)  # one ends the others

    def release(self) -> None:
        """End remaining tasks and release their placement."""
        import ray

        for task in self.tasks:
            ray.cancel(task, force=True)
        self.leave()


def _ending(task: Any) -> Ending:
    import ray

    try:
        status = ray.get(task)
    except ray.exceptions.RayError as error:
        is_ours = isinstance(error, ray.exceptions.RayTaskError)  # an error in our own code would recur
        return Ending(reason=f"its Ray task ended: {str(error).strip().splitlines()[-1]}", may_go_on=not is_ours)
    return Ending(reason=f"{how_it_ended(status)} See ray-*.log." if status else "")


class Retries:
    """Limit of restarts without progress; a run that progresses between machine losses may restart as often as needed.

    >>> retries = Retries(1)
    >>> retries.take("a"), retries.take("a")
    (True, False)
    >>> retries.see(WorkerEvent(kind="stepped", run="a", step=7))
    >>> retries.take("a")
    True
    >>> retries.see(WorkerEvent(kind="stepped", run="a", step=6))
    >>> retries.take("a")
    False
    """

    def __init__(self, without_progress: int) -> None:
        self._all = without_progress
        self._left = dict[str, int]()
        self._furthest = dict[str, int]()

    def see(self, event: WorkerEvent) -> None:
        """Record the progress of a run."""
        if event.step > self._furthest.get(event.run, 0):
            self._furthest[event.run] = event.step
            self._left[event.run] = self._all

    def take(self, run: str) -> bool:
        """Return True if the run may be restarted, and count that."""
        left = self._left.get(run, self._all)
        self._left[run] = left - 1
        return left > 0


def start_group(spec: RunSpec, workplace: Workplace, *, per_run: PerRun, events: Any) -> TaskGroup | None:
    """Start the tasks of a run, which wait for resources; None if they need a slice and none is idle."""
    import ray

    options = {"num_cpus": per_run.cpus, "num_gpus": per_run.gpus, "resources": dict(per_run.resources), "max_retries": 0}
    if not per_run.is_group:
        alone = ray.remote(**options)(train_one).remote(spec, workplace, per_run, events, ProcessGroup())
        return TaskGroup(spec=spec, tasks=[alone], leave=lambda: None)
    held = _apart(per_run) if per_run.tpu_slice is None else _on_slice(per_run.tpu_slice, cpus=per_run.cpus)
    if held is None:
        return None
    coordinator = ray.remote(num_cpus=0)(free_address).options(scheduling_strategy=held.places[0]).remote()
    task = ray.remote(**{**options, **held.options})(train_one)
    tasks = [
        task.options(scheduling_strategy=place).remote(
            spec, workplace, per_run, events, ProcessGroup(count=len(held.places), rank=rank), coordinator
        )
        for rank, place in enumerate(held.places)
    ]
    return TaskGroup(spec=spec, tasks=tasks, leave=held.leave)


@dataclass(frozen=True, kw_only=True)
class _Held:
    """Placement of a group's processes in order, their resources, and how to release it."""

    places: Sequence[Any]
    options: Mapping[str, Any]
    leave: Callable[[], None]


def _apart(per_run: PerRun) -> _Held:
    """Place processes on several nodes, as far as available."""
    from ray.util import placement_group, remove_placement_group

    group = placement_group([dict(_wanted(per_run))] * per_run.processes, strategy="SPREAD")
    return _Held(places=_bundles(group, range(per_run.processes)), options={}, leave=lambda: remove_placement_group(group))


def _on_slice(tpu: TpuSlice, *, cpus: int) -> _Held | None:
    """Place processes on every host of one slice, in the TPU's order; None if no slice is idle."""
    import ray
    from ray.util.placement_group import placement_group_table
    from ray.util.tpu import slice_placement_group

    try:
        held = slice_placement_group(
            tpu.topology,
            tpu.version,
            resources_per_bundle={"CPU": cpus},
            head_reservation_timeout_s=_RESERVING_SECONDS,
        )
    except TimeoutError:
        return None
    except (RuntimeError, ValueError) as error:
        raise ClusterError(
            f"A slice {tpu.topology} of TPU {tpu.version} cannot be reserved: {first_line(error)}",
            why="A run needs all hosts of one slice at once.",
            fix="Check that its hosts joined the cluster with Ray's TPU labels, or fix hardware.per_run.",
        ) from error
    group = held.slice_placement_group
    if not ray.wait([group.ready()], timeout=_RESERVING_SECONDS)[0]:
        held.shutdown()
        return None
    hosts = {node["NodeID"]: int(node["Labels"].get(_HOST_LABEL, 0)) for node in ray.nodes()}
    nodes = placement_group_table(group)["bundles_to_node_id"]  # by bundle
    places = _bundles(group, sorted(nodes, key=lambda bundle: hosts[nodes[bundle]]))
    return _Held(places=places, options={"resources": {"TPU": held.bundle_resources["TPU"]}}, leave=held.shutdown)


def _bundles(group: Any, order: Sequence[int]) -> list[Any]:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle) for bundle in order]


def _wanted(per_run: PerRun) -> Mapping[str, float]:
    """Return the resources of one process by Ray's names."""
    every = {"CPU": per_run.cpus, "GPU": per_run.gpus, **per_run.resources}
    return {name: amount for name, amount in every.items() if amount}


def require_resources(per_run: PerRun) -> None:
    """Raise `ClusterError` if the cluster lacks the resources of one run, whose tasks would wait forever."""
    import ray

    if per_run.tpu_slice is not None:
        _require_slice(per_run.tpu_slice)
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    each = _wanted(per_run)
    room = sum(min(int(node.get(name, 0) / amount + 1e-9) for name, amount in each.items()) for node in nodes)
    listed = ", ".join(f"{amount:g} of {name}" for name, amount in each.items())
    if not room:
        raise _never(f"A run needs {listed}; none of the cluster's {len(nodes)} nodes has that")
    if room < per_run.processes:
        raise _never(f"A run needs {per_run.processes} times {listed}; the cluster has room for {room}")


def _require_slice(tpu: TpuSlice) -> None:
    import ray

    try:
        from ray.util.tpu import get_num_tpu_slices
    except ImportError as error:
        raise _never(f"Ray {ray.__version__} cannot place a run on a slice; version 2.60 or later can") from error
    if not get_num_tpu_slices(tpu.topology, _ray_name(tpu)):
        raise _never(f"A run needs a whole slice {tpu.topology} of TPU {tpu.version}, which the cluster lacks")


def _ray_name(tpu: TpuSlice) -> str:
    return f"TPU-{tpu.version.upper()}"


def _never(what: str) -> ClusterError:
    return ClusterError(
        f"{what}.",
        why="The run would wait forever.",
        fix="Lower hardware.per_run in the ladder file, or add a node with these resources.",
    )


_POLL_SECONDS = 0.5
_RETRIES = 5  # restarts without progress after a worker died; an error in training itself is not retried
_CONNECT_SECONDS = 5.0
_HTTP2_SETTINGS = b"\x04"  # type of a frame, after three bytes of length
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _HTTP2_SETTINGS + bytes(5)  # RFC 9113, section 3.4
_ROOM_SECONDS = 15.0  # between attempts to get a slice
_GOES_ON = "its worker died; the run resumes from its last checkpoint, if there is one."
_WAITS = "waiting for a whole, idle slice of the cluster."


def ray_pool(address: str | None, *, per_run: PerRun, max_parallel: int | None = None) -> Pool:
    """Return a pool on the cluster at `address`, or on a local cluster that ends after use.

    It trains as many runs at a time as the cluster has room for, or at most `max_parallel`.
    """

    def pool(specs: Sequence[RunSpec], workplace: Workplace) -> Iterator[WorkerEvent]:
        workplace = replace(workplace, git_commit=checked_out_commit(Path.cwd()), mesh=per_run.mesh)
        with _cluster(address):
            yield from _run_tasks(specs, workplace, per_run=per_run, at_a_time=max_parallel or len(specs))

    return pool


def _tracker() -> dict[str, Any]:
    """Return the environment that tells nodes where curves are mirrored, if it is set here."""
    names = ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_MODE")
    tracker = {name: value for name in names if (value := os.environ.get(name))}
    return {"runtime_env": {"env_vars": tracker}} if tracker else {}


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Connect to a cluster; `ClusterError` if none answers at that address."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # otherwise a dead node's last log goes to standard output
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
            fix="Start it (ray start --head), fix the address, or train here: --on local.",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str | None) -> None:
    """Raise `OSError` if no gRPC server, such as Ray, answers at HOST:PORT; Ray itself would retry for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS") == "1":  # then it answers only in TLS
            return
        connection.sendall(_HTTP2_PREFACE)
        if connection.makefile("rb").read(4)[3:] != _HTTP2_SETTINGS:
            raise OSError("the server there is not Ray")


def _run_tasks(specs: Sequence[RunSpec], workplace: Workplace, *, per_run: PerRun, at_a_time: int) -> Iterator[WorkerEvent]:
    """Yield events of the tasks of all runs in the order of arrival, until the last task has ended."""
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
    """Runs that wait for their tasks, and runs whose tasks are running."""

    def __init__(self, specs: Sequence[RunSpec], workplace: Workplace, *, per_run: PerRun, at_a_time: int) -> None:
        import ray

        self.waiting, self.groups = list(specs), list[TaskGroup]()
        self._workplace, self._per_run, self._at_a_time = workplace, per_run, at_a_time
        self._lines = ray.remote(num_cpus=0, max_restarts=-1)(_Lines).remote()
        self._retries = Retries(_RETRIES)
        self._failed, self._said_to_wait = set[str](), set[str]()
        self._next_start = 0.0

    def start(self) -> Iterator[WorkerEvent]:
        """Start as many runs as allowed; runs without a slice are retried later, and reported once."""
        while self.waiting and len(self.groups) < self._at_a_time and time.monotonic() >= self._next_start:
            spec = self._next()
            if spec is None:
                return
            group = start_group(spec, self._workplace, per_run=self._per_run, events=self._lines)
            if group is not None:
                self.groups.append(group)
                self.waiting.remove(spec)
                continue
            self._next_start = time.monotonic() + _ROOM_SECONDS
            if spec.directory_name not in self._said_to_wait:
                self._said_to_wait.add(spec.directory_name)
                yield WorkerEvent(kind="noted", run=spec.directory_name, message=_WAITS)

    def _next(self) -> RunSpec | None:
        """Return the first run that continues no other that waits or is trained; None if all do."""
        first = [alike[0] for alike in by_trunk([*self.waiting, *(group.spec for group in self.groups)])]
        return next((spec for spec in first if spec in self.waiting), None)

    def wait(self) -> Sequence[Any]:
        """Return the tasks that ended, after all did or some time has passed."""
        import ray

        tasks = [task for group in self.groups for task in group.tasks]
        if not tasks:
            time.sleep(_POLL_SECONDS)
            return []
        ended, _ = ray.wait(tasks, num_returns=len(tasks), timeout=_POLL_SECONDS)
        return list(ended)

    def tell(self) -> Iterator[WorkerEvent]:
        """Yield events of the processes; the failure of a run is reported once per group."""
        for event in _drained(self._lines):
            self._retries.see(event)
            if event.run not in self._failed:
                yield event
            self._failed |= {event.run} if event.kind == "failed" else set()

    def see(self, ended: Sequence[Any]) -> Iterator[WorkerEvent]:
        """Remove groups that ended, and put back those that may restart."""
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
    """Ray actor with unread lines of the tasks' processes."""

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
    except ray.exceptions.RayActorError:  # its node died; it restarts, and unread lines are lost
        lines = []
    for line in lines:
        event = parse_event(line)
        if event is not None:
            yield event


def train_one(
    spec: RunSpec, workplace: Workplace, per_run: PerRun, events: Any, group: ProcessGroup, coordinator: str = ""
) -> int:
    """Train one run in a process, alone or in a group, and forward its lines; return the exit status."""
    import ray

    if workplace.storage is not None:
        workplace = _place_of_node(workplace, workplace.storage)
        replace_file(spec_path(spec, workplace), spec.to_bytes())
    log = workplace.work_root / "logs" / f"ray-{socket.gethostname()}-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sent = []
    with _own_cores(per_run.cpus) as cores, open(log, "a") as stream:
        group = replace(group, coordinator=coordinator)
        command = worker_command([spec], workplace=workplace, cores=cores, group=group)
        with subprocess.Popen(
            command,
            cwd=workplace.runs_dir.parent,
            env=child_environment(os.environ | shared_memory(per_run.gpus)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not group.is_leader and not _is_failure(line):
                    continue
                sent = [events.add.remote(line)]  # not awaited: Ray gives the cores of a waiting task to another
    with contextlib.suppress(ray.exceptions.RayActorError):
        ray.get(sent)  # the last line, and so all before it, have arrived
    return process.returncode


def _is_failure(line: str) -> bool:
    event = parse_event(line)
    return event is not None and event.kind == "failed"


def free_address() -> str:
    """Return a free HOST:PORT of this node."""
    import ray

    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"


def _place_of_node(workplace: Workplace, storage: str) -> Workplace:
    """Return a working folder on this node for this user and storage; its content is a copy."""
    folder = _folder_of_user("marin-scaling") / sha256_hex(storage.encode())[:16]
    return replace(workplace, runs_dir=folder / "runs", work_root=folder / ".marin-scaling")


def _folder_of_user(name: str) -> Path:
    """Return a temporary folder of this user; `StorageError` if another user created it, or a link to it."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    make_private(folder, allow_link=False)
    return folder


@contextlib.contextmanager
def _own_cores(wanted: int) -> Iterator[list[int]]:
    """Reserve cores of this machine that no other run of ours uses, since Ray counts cores without assigning them.

    Always reserve `wanted` cores (or all, if there are fewer), since sums over more cores differ in their last digits.
    """
    folder = _folder_of_user("marin-scaling-cores")
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
