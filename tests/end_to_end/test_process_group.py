"""Several processes train a run together: with the losses of one, and from its checkpoint when one of them dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from real_training import losses_of, trained
from run_factory import mixture_spec, rung_spec
from tiny_ladder import CORES, LADDER, repository, start, training_processes

from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import read_runs

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


MEMBER = """
import json, os, sys
sys.path[:0] = {path!r}
from pathlib import Path
import marin_scaling.train.train as module
from marin_scaling.train.levanter_config import use_compilation_cache
from marin_scaling.train.environment import ProcessGroup
from real_training import losses_of, trained
from test_process_group import SPECS

module.CHECKPOINT_SECONDS, module.SAVING_SHARE = 0.0, 1.0
rank, kind, stop = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
group = ProcessGroup(count=2, rank=rank, coordinator=sys.argv[4])
group.join()
use_compilation_cache(Path("../compiled"))
steps = []

def on_step(step, _loss):
    steps.append(step)
    if rank == 1 and step == stop:
        os._exit(9)

trunk = Path("trunk") if SPECS[kind].shared_trunk else None
losses = losses_of(trained(SPECS[kind], Path("work", kind), on_step=on_step, group=group, trunk=trunk))
print(json.dumps([steps[0], *losses]))
"""


SHORT = LADDER.replace("[8, 12]", "[16, 20]")
"""With few steps: in each of them processes wait for each other, which is slow where others have their cores."""


def on_trunk(steps: int) -> RunSpec:
    """A run that shares its steps before the decay with others, without warm-up."""
    optimizer = rung_spec().optimizer.model_copy(update={"warmup_fraction": 0.0})
    return rung_spec(train_steps=steps, optimizer=optimizer, shared_trunk=True)


SPECS = {
    "dense": rung_spec(train_steps=20),
    "sparse": mixture_spec(train_steps=12),
    "short": on_trunk(6),
    "long": on_trunk(12),
}
"""The mixture's router is balanced on whole batches, which lie on two devices."""


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def together(folder: Path, kind: str, *, stop: int = 0) -> list[tuple[int, list[float]]]:
    """Two processes that train the run in this folder; by process, its exit status, and what it saw: first step, losses, bits.

    When one has ended badly the other is ended, as a launcher does.
    """
    folder.mkdir(exist_ok=True)
    path, address = [str(Path(__file__).parent), str(Path(__file__).parents[1])], free_address()
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER.format(path=path), str(rank), kind, str(stop), address],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    while any(member.poll() is None for member in members):
        if any(member.poll() for member in members):
            for member in members:
                member.kill()
        time.sleep(0.1)
    printed = [member.communicate()[0].splitlines() for member in members]
    return [
        (member.returncode, [] if member.returncode else json.loads(lines[-1]))
        for member, lines in zip(members, printed, strict=True)
    ]


@pytest.mark.parametrize("kind", ["sparse", pytest.param("dense", marks=pytest.mark.nightly)])
def test_two_processes_have_the_losses_of_one(kind: str, tmp_path: Path) -> None:
    """Both of them, each with a part of the batch and of the state."""
    (one, first), (other, second) = together(tmp_path / "whole", kind)
    assert (one, other) == (0, 0)
    assert first == second
    assert first[1:] == pytest.approx(losses_of(trained(SPECS[kind], tmp_path / "alone")), rel=1e-5)


def test_after_one_was_killed_both_go_on_from_their_checkpoint(tmp_path: Path) -> None:
    """And end, bit for bit, with the undisturbed curve. A group may save at every eighth step."""
    (_, undisturbed), _ = together(tmp_path / "whole", "dense")
    killed = together(tmp_path / "parts", "dense", stop=14)
    assert killed[1][0] == 9
    went_on = together(tmp_path / "parts", "dense")
    assert [status for status, _ in went_on] == [0, 0]
    assert all(seen[0] > 1 for _, seen in went_on)
    assert [seen[1:] for _, seen in went_on] == [undisturbed[1:]] * 2


@pytest.mark.nightly
def test_two_processes_continue_the_trunk_of_a_shorter_run(tmp_path: Path) -> None:
    """Each has written its part of the state; the losses are those of two processes that train all steps."""
    alone = together(tmp_path / "alone", "long")
    together(tmp_path / "both", "short")
    continued = together(tmp_path / "both", "long")
    first = SPECS["short"].steps_before_decay + 1
    assert [(status, losses[0]) for status, losses in continued] == [(0, first)] * 2
    assert [losses[1:] for _, losses in continued] == [losses[1:] for _, losses in alone]


@pytest.mark.nightly
@pytest.mark.skipif(len(CORES) < 2, reason="two processes with a core each need two cores")
def test_a_group_on_ray_records_its_runs_though_a_process_is_killed(tmp_path: Path) -> None:
    """Two processes a run; one is killed with -9, both are started again. Each run is recorded once, with its weights."""
    pytest.importorskip("ray", reason="the ray extra is not installed")
    on_ray = repository(tmp_path / "ray", ladder=SHORT, more="hardware: {per_run: {processes: 2}}\n")
    local = repository(tmp_path / "local", ladder=SHORT)
    launcher = start(on_ray, "--on", "ray", "--keep-weights", "--only", "1e10")
    deadline = time.monotonic() + 300
    while len(training_processes(on_ray)) < 2 and launcher.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(training_processes(on_ray)[-1], signal.SIGKILL)
    output, _ = launcher.communicate(timeout=1200)
    assert launcher.returncode == 0, output
    assert len(list(on_ray.glob(".marin-scaling/weights/*/weights.json"))) == 2
    output, _ = start(local, "--only", "1e10").communicate(timeout=1200)
    ours, theirs = ({run.spec.digest: run.record for run in read_runs(folder / "runs" / "tiny")} for folder in (on_ray, local))
    assert ours.keys() == theirs.keys(), output
    assert all(record.loss == pytest.approx(theirs[digest].loss, rel=1e-5) for digest, record in ours.items())
    assert {record.hardware.device_count for record in ours.values()} == {2}


@pytest.mark.nightly
@pytest.mark.skipif(len(CORES) < 2, reason="two nodes with a core each need two cores")
def test_a_run_is_given_all_hosts_of_a_tpu_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run after the other, as there is one slice; Ray is told of nodes that are its hosts. A larger one is refused."""
    pytest.importorskip("ray", reason="the ray extra is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("TPU_NAME", "a")  # as Google's clusters set it on the hosts of a slice
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for host in (1, 0):
            labels = {"ray.io/tpu-slice-name": "a", "ray.io/tpu-pod-type": "v4-16", "ray.io/tpu-worker-id": str(host)}
            resources = {"TPU": 4} | ({"TPU-v4-16-head": 1} if host == 0 else {})
            cluster.add_node(num_cpus=1, resources=resources, labels=labels | {"ray.io/tpu-topology": "2x2x2"})
        wanted = "hardware: {{per_run: {{tpu_slice: {{version: v4, topology: {0}}}}}}}\n"
        fits, larger = (repository(tmp_path / name, ladder=SHORT, more=wanted.format(name)) for name in ("2x2x2", "2x2x4"))
        output, _ = start(fits, "--on", f"ray:{cluster.address}", "--only", "1e10").communicate(timeout=1200)
        records = [run.record for run in read_runs(fits / "runs" / "tiny")]
        assert [record.hardware.device_count for record in records] == [2, 2], output
        assert "waiting for a whole, idle slice" in output
        output, _ = start(larger, "--on", f"ray:{cluster.address}").communicate(timeout=300)
        assert "slice 2x2x4 of TPU v4" in output
    finally:
        cluster.shutdown()


def test_a_group_is_not_trained_without_ray_and_not_on_a_cluster_without_room(tmp_path: Path) -> None:
    """With what, why and how to go on; and it does not go with storage."""
    pytest.importorskip("ray", reason="the ray extra is not installed")
    folder = repository(tmp_path / "here", more="hardware: {per_run: {processes: 4}}\n")
    output, _ = start(folder).communicate(timeout=300)
    assert "error: hardware.per_run: " in output
    output, _ = start(folder, "--on", "ray").communicate(timeout=300)
    assert f"4 times 1 of CPU; the cluster has room for {len(CORES)}" in output
    other = repository(tmp_path / "other", more="hardware: {storage: 'file:///shared', per_run: {processes: 2}}\n")
    output, _ = start(other, "--dry-run").communicate(timeout=300)
    assert ": hardware: " in output
