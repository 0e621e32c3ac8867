"""A ladder trained on this machine, and on a Ray cluster of two nodes of which one is killed in mid-run: the records compared.

The rungs of ladders/bytes-dense.yaml and a run at its target's budget, from nothing each time. The first run on the cluster
that has gone on beyond a checkpoint loses its node: the raylet and all that it started die by SIGKILL, another node takes its
place.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ray.cluster_utils import Cluster
from report import parser, publish

from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import LadderFile, PerRun, read_ladder_file
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.recipe.find import find_recipe, usual_plan
from marin_scaling.run.plan import run_spec, rung_specs
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import Workplace
from marin_scaling.train.launcher import Pool, local_pool, train_runs
from marin_scaling.train.progress import WorkerEvent
from marin_scaling.train.ray_pool import ray_pool

LADDER = Path(__file__).parents[1] / "ladders" / "bytes-dense.yaml"
TIMES = {"started_at", "finished_at", "wall_seconds", "step_seconds"}


class TwoNodes:
    """A cluster of two nodes of a core each, which loses one once."""

    def __init__(self, work: Path) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self._nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        self._work = work
        self.killed, self.killed_at, self.went_on_at, self._began_again = "", 0, 0, False

    def see(self, event: WorkerEvent) -> None:
        """Kill when it is time, and note where that run goes on."""
        if self.killed == event.run and event.kind == "started":
            self._began_again = True
        if event.kind != "stepped":
            return
        if self.killed == event.run and self._began_again:
            self.went_on_at = self.went_on_at or event.step
        if not self.killed and self._is_saved(event.run):
            self.killed, self.killed_at = event.run, event.step
            self.cluster.remove_node(self._node_of(event.run), allow_graceful=False)
            self.cluster.add_node(num_cpus=1)

    def _is_saved(self, run: str) -> bool:
        return any((self._work / run / "checkpoints").glob("*/step-*/metadata.json"))

    def _node_of(self, run: str) -> object:
        """The node whose raylet started the worker that started the process of this run."""
        training = next(pid for pid, words in _processes() if "marin_scaling.train" in words and run in words)
        raylet = _parent(_parent(training))
        return next(node for node in self._nodes if node.all_processes["raylet"][0].process.pid == raylet)


def _processes() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append((int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode()))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def _parent(process: int) -> int:
    return int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1])


def _trained(
    specs: Sequence[RunSpec], folder: Path, pool: Pool, see: Callable[[WorkerEvent], None]
) -> tuple[dict[str, Path], float]:
    """Folders of the finished runs by name, and seconds."""
    place = Workplace(runs_dir=folder / "runs", work_root=folder / "work")
    spent = train_runs(specs, corpus=standard_library_corpus(), workplace=place, pool=pool, on_event=see)
    return {path.parent.name: path.parent for path in place.runs_dir.glob("*/*/record.json")}, spent.wall_seconds


def _without_times(folder: Path) -> dict[str, object]:
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return {name: value for name, value in record.items() if name not in TIMES}


def _equal(one: dict[str, Path], other: dict[str, Path], read: Callable[[Path], object]) -> str:
    same = sum(read(one[run]) == read(other[run]) for run in one.keys() & other.keys())
    return f"{same} of {len(one.keys() | other.keys())}"


def _specs(file: LadderFile, corpus: TokenCorpus) -> list[RunSpec]:
    """The rungs, and a run that lasts long enough for a checkpoint on any machine."""
    largest = usual_plan(find_recipe(file.recipe), budget_flops=file.target.budget_flops)
    return [
        *rung_specs(plan_ladder(file), corpus=corpus),
        run_spec(file, largest, ladder=file.name, seed=file.seeds[0], corpus=corpus),
    ]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    specs = _specs(read_ladder_file(LADDER), standard_library_corpus())
    with tempfile.TemporaryDirectory(prefix="marin-") as folder:
        local, local_seconds = _trained(specs, Path(folder) / "local", local_pool(2), lambda _event: None)
        nodes = TwoNodes(Path(folder) / "ray" / "work" / "work")
        try:
            pool = ray_pool(nodes.cluster.address, per_run=PerRun())
            on_ray, ray_seconds = _trained(specs, Path(folder) / "ray", pool, nodes.see)
        finally:
            nodes.cluster.shutdown()
        rows = [
            ["runs recorded on this machine, and on the cluster", f"{len(local)}, {len(on_ray)}"],
            ["run that lost its node: its step, and the first it told of afterwards", f"{nodes.killed_at}, {nodes.went_on_at}"],
            ["records equal in every field that is not a time", _equal(local, on_ray, _without_times)],
            ["specs equal byte for byte", _equal(local, on_ray, lambda run: (run / "spec.json").read_bytes())],
            ["loss curves equal byte for byte", _equal(local, on_ray, lambda run: (run / "history.json").read_bytes())],
            ["wall time on this machine, two runs at a time", f"{local_seconds:.0f} s"],
            ["wall time on the cluster", f"{ray_seconds:.0f} s"],
        ]
    publish(
        "A ladder on this machine and on Ray, where a node is killed",
        columns=("what", "measured"),
        rows=rows,
        packages=("jax", "marin-levanter", "ray"),
        notes=[f"Fields that are times: {', '.join(sorted(TIMES))}."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
