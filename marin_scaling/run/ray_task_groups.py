"""The tasks of one run on a Ray cluster: one, or one for each process of a group, placed together and ended together.

A group is placed as a whole (a placement group; on a TPU all hosts of one slice) or waits. What a task does is in
`on_ray_node`; which runs are under way, and what is told of them, in `train_on_ray`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_scaling.errors import ClusterError, first_line
from marin_scaling.ladder.ladder_file import PerRun, TpuSlice
from marin_scaling.run.on_ray_node import free_address, train_one
from marin_scaling.run.process_group import ProcessGroup
from marin_scaling.run.run_ladder import how_it_ended
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.worker_events import WorkerEvent
from marin_scaling.run.workplace import Workplace

_HOST_LABEL = "ray.io/tpu-worker-id"
_RESERVING_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run's tasks ended: well where there is no reason; `may_go_on` where starting them again may help."""

    reason: str = ""
    may_go_on: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskGroup:
    """The tasks that train a run now."""

    spec: RunSpec
    tasks: Sequence[Any]
    leave: Callable[[], None]
    """Gives back what the group was placed on."""

    def ending(self, ended: Sequence[Any]) -> Ending | None:
        """How it ended, now that these tasks have; None while it is under way. One that ends badly ends its group."""
        endings = [_ending(task) for task in self.tasks if task in ended]
        bad = [ending for ending in endings if ending.reason]
        if not bad:
            return Ending() if len(endings) == len(self.tasks) else None
        if len(self.tasks) == 1:
            return bad[0]
        return Ending(reason=" ".join(dict.fromkeys(ending.reason for ending in bad)), may_go_on=True)  # one takes others along

    def release(self) -> None:
        """End what is left of it."""
        import ray

        for task in self.tasks:
            ray.cancel(task, force=True)
        self.leave()


def _ending(task: Any) -> Ending:
    import ray

    try:
        status = ray.get(task)
    except ray.exceptions.RayError as error:
        is_ours = isinstance(error, ray.exceptions.RayTaskError)  # an error in our own code comes again
        return Ending(reason=f"its Ray task ended: {str(error).strip().splitlines()[-1]}", may_go_on=not is_ours)
    return Ending(reason=f"{how_it_ended(status)} See ray-*.log." if status else "")


class Retries:
    """How often runs may be started again without getting any further: on machines that are taken away, as often as it helps.

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
        """Take note of how far a run is."""
        if event.step > self._furthest.get(event.run, 0):
            self._furthest[event.run] = event.step
            self._left[event.run] = self._all

    def take(self, run: str) -> bool:
        """Whether it may be started once more; then that counts."""
        left = self._left.get(run, self._all)
        self._left[run] = left - 1
        return left > 0


def start_group(spec: RunSpec, workplace: Workplace, *, per_run: PerRun, events: Any) -> TaskGroup | None:
    """Start the tasks of a run; they wait for what they want. None where they want a slice and none is idle now."""
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
    """Where the processes of a group go, in their order; what their tasks ask for there; how it is given back."""

    places: Sequence[Any]
    options: Mapping[str, Any]
    leave: Callable[[], None]


def _apart(per_run: PerRun) -> _Held:
    """On several nodes, as far as there are."""
    from ray.util import placement_group, remove_placement_group

    group = placement_group([dict(_wanted(per_run))] * per_run.processes, strategy="SPREAD")
    return _Held(places=_bundles(group, range(per_run.processes)), options={}, leave=lambda: remove_placement_group(group))


def _on_slice(tpu: TpuSlice, *, cpus: int) -> _Held | None:
    """On every host of one slice, in the order in which the TPU counts them; None where none is idle now."""
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
            fix="See that its hosts have joined the cluster with Ray's labels of a TPU, or correct hardware.per_run.",
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
    """What one process of a run is given, by Ray's names."""
    every = {"CPU": per_run.cpus, "GPU": per_run.gpus, **per_run.resources}
    return {name: amount for name, amount in every.items() if amount}


def require_resources(per_run: PerRun) -> None:
    """`ClusterError` where the cluster has not what one run wants: such tasks would wait for ever."""
    import ray

    if per_run.tpu_slice is not None:
        _require_slice(per_run.tpu_slice)
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    each = _wanted(per_run)
    room = sum(min(int(node.get(name, 0) / amount + 1e-9) for name, amount in each.items()) for node in nodes)
    listed = ", ".join(f"{amount:g} of {name}" for name, amount in each.items())
    if not room:
        raise _never(f"A run wants {listed}, and none of the cluster's {len(nodes)} nodes has that")
    if room < per_run.processes:
        raise _never(f"A run wants {per_run.processes} times {listed}, and the cluster has room for {room}")


def _require_slice(tpu: TpuSlice) -> None:
    import ray

    try:
        from ray.util.tpu import get_num_tpu_slices
    except ImportError as error:
        raise _never(f"Ray {ray.__version__} cannot place a run on a slice; later versions (2.60) can") from error
    if not get_num_tpu_slices(tpu.topology, _ray_name(tpu)):
        raise _never(f"A run wants a slice {tpu.topology} of TPU {tpu.version}, and the cluster has no whole one")


def _ray_name(tpu: TpuSlice) -> str:
    return f"TPU-{tpu.version.upper()}"


def _never(what: str) -> ClusterError:
    return ClusterError(
        f"{what}.",
        why="It would wait for ever.",
        fix="Lower hardware.per_run in the ladder file, or add a node that has it.",
    )
