"""A ladder on a real Ray cluster of this machine: the same records as without one, whatever dies on the way."""

import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tiny_ladder import CORES, histories, records_without_times, repository, start, training_processes

pytest.importorskip("levanter", reason="the train extra is not installed")
pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = pytest.mark.train

SPECS = """
from pathlib import Path
from marin_scaling.run.plan import load_ladder
print(*(spec.directory_name for spec in load_ladder(Path("ladders/tiny.yaml")).bind().specs))
"""


def parent_of(process: int) -> int:
    return int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1])


def committed(folder: Path) -> str:
    """The commit of a repository with one, made of its ladders."""
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "ladders"), (*identity, "commit", "-qm", "A ladder")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return found.stdout.strip()


@pytest.mark.nightly
@pytest.mark.skipif(len(CORES) < 2, reason="two runs at a time need two cores")
def test_a_worker_killed_in_the_middle_changes_nothing_but_time(tmp_path: Path) -> None:
    """Two runs at a time on a cluster started here; the Ray worker of one is killed with -9.

    Every rung is recorded once, with its weights; the loss curves are, bit for bit, those of the same ladder without Ray.
    """
    on_ray, local = repository(tmp_path / "ray"), repository(tmp_path / "local")
    launcher = start(on_ray, "--on", "ray", "--keep-weights")
    deadline = time.monotonic() + 300
    while len(training_processes(on_ray)) < 2 and launcher.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    victim = parent_of(training_processes(on_ray)[0])
    os.kill(victim, signal.SIGKILL)
    output, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, output
    assert "All 4 runs are recorded" in output
    assert output.count("its worker died") == 1, output
    assert {path.parent.name for path in on_ray.glob(".marin-scaling/weights/*/weights.json")} == histories(on_ray).keys()
    alone = start(local)
    output, _ = alone.communicate(timeout=600)
    assert alone.returncode == 0, output
    assert len(histories(local)) == 4
    assert histories(on_ray) == histories(local)
    assert records_without_times(on_ray) == records_without_times(local)


@pytest.mark.nightly
@pytest.mark.skipif(len(CORES) < 2, reason="two nodes need two cores")
def test_a_node_that_dies_is_told_in_one_line(tmp_path: Path) -> None:
    """Its raylet and all that it started; nothing that Ray writes of it, its last log neither, stands between our lines."""
    from ray.cluster_utils import Cluster

    folder = repository(tmp_path / "here")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = {node.all_processes["raylet"][0].process.pid: node for node in (cluster.add_node(num_cpus=1) for _ in range(2))}
        launcher = start(folder, "--on", f"ray:{cluster.address}", "--only", "2e10")
        deadline = time.monotonic() + 300
        while not training_processes(folder) and launcher.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        cluster.remove_node(nodes[parent_of(parent_of(training_processes(folder)[0]))], allow_graceful=False)
        cluster.add_node(num_cpus=1)
        output, _ = launcher.communicate(timeout=600)
    finally:
        cluster.shutdown()
    assert launcher.returncode == 0, output
    assert output.count("its worker died") == 1, output
    assert "raylet" not in output
    assert "state-dump" not in output
    assert len(histories(folder)) == 2


@pytest.mark.nightly
def test_nodes_without_a_common_file_system_share_runs_at_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks work in folders of their nodes, and the launcher has the records; but for times they are those without Ray, with
    the commit of the launcher's repository."""
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # the paths of its sockets have to be short
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where nodes have their folders
    on_ray = repository(tmp_path / "ray", more=f"hardware: {{storage: 'file://{tmp_path}/shared'}}\n")
    local = repository(tmp_path / "local")
    commit = committed(on_ray)
    subprocess.run(["git", "clone", "-q", on_ray / ".git", tmp_path / "clone"], check=True)
    (tmp_path / "clone" / ".git").rename(local / ".git")
    for folder, *arguments in ((on_ray, "--on", "ray"), (local,)):
        launcher = start(folder, *arguments)
        output, _ = launcher.communicate(timeout=600)
        assert launcher.returncode == 0, output
        assert "All 4 runs are recorded" in output
    assert not list(on_ray.glob(".marin-scaling/work/*/*"))
    assert len(list(tmp_path.glob("marin-scaling-*/*/runs/tiny/*/record.json"))) == 4
    assert histories(on_ray) == histories(local)
    assert records_without_times(on_ray) == records_without_times(local)
    assert {record["git_commit"] for record in records_without_times(on_ray).values()} == {commit}


def test_a_run_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    """A folder of the store that is in the way: its run is named once with its own reason, three are recorded."""
    folder = repository(tmp_path / "here")
    planned = subprocess.run(
        [sys.executable, "-c", SPECS], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()
    in_the_way = folder / "runs" / "tiny" / planned[0]
    in_the_way.mkdir(parents=True)
    (in_the_way / "note.txt").write_text("not a run")
    output, _ = start(folder, "--on", "ray").communicate(timeout=600)
    assert f"error: 1 of 4 runs failed:\n       1e10/8 ({planned[0]}): {in_the_way}" in output, output
    assert len(histories(folder)) == 3


@pytest.mark.parametrize(
    ("place", "more", "said"),
    [
        ("ray:127.0.0.1:1", "", "No Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:1", "", "No Ray cluster answers at ray://127.0.0.1:1"),
        (
            "ray",
            "hardware: {per_run: {resources: {TPU-v5e-8-head: 1}}}\n",
            "A run needs 1 of CPU, 1 of TPU-v5e-8-head; none of the cluster's 1 nodes",
        ),
        ("slurm", "", "--on slurm: runs are trained on this machine or on a Ray cluster"),
    ],
)
def test_a_cluster_that_is_not_there_is_said_with_what_why_and_fix(tmp_path: Path, place: str, more: str, said: str) -> None:
    """And nothing is trained elsewhere instead."""
    folder = repository(tmp_path / "here", more=more)
    launcher = start(folder, "--on", place)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == 2, output
    assert f"error: {said}" in output
    assert "  fix: " in output
    assert "Traceback" not in output
    assert not histories(folder)


@pytest.mark.parametrize("says", [b"HTTP/1.0 404 Not Found\r\n\r\n", b""], ids=["a-web-server", "nothing"])
def test_an_address_where_something_else_listens_is_told_at_once(tmp_path: Path, says: bytes) -> None:
    """Ray itself would try for minutes."""
    folder = repository(tmp_path / "here")
    with socketserver.TCPServer(("127.0.0.1", 0), type("Other", (Other,), {"says": says})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        launcher = start(folder, "--on", f"ray:127.0.0.1:{server.server_address[1]}")
        output, _ = launcher.communicate(timeout=300)
        server.shutdown()
    assert launcher.returncode == 2, output
    assert f"error: No Ray cluster answers at 127.0.0.1:{server.server_address[1]}:" in output


class Other(socketserver.BaseRequestHandler):
    """Another server than Ray's: says its word, and ends."""

    says: bytes

    def handle(self) -> None:
        self.request.recv(100)
        self.request.sendall(self.says)
