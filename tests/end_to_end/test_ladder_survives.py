"""A ladder that is killed goes on where it was: nothing is trained twice, nothing is lost, and the losses are the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 1e10, hidden_dims: [8, 12]}
  - {budget_flops: 2e10, hidden_dims: [8, 12]}
target: {budget_flops: 1e11}
evaluation: {windows: 64}
"""


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "marin_scaling.cli", "ladder", "ladders/tiny.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def repository(folder: Path) -> Path:
    (folder / "ladders").mkdir(parents=True)
    (folder / "ladders" / "tiny.yaml").write_text(LADDER)
    return folder


def records(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in (folder / "runs").glob("tiny/*/history.json")}


def test_two_launchers_and_a_kill_change_nothing_but_time(tmp_path: Path) -> None:
    """One launcher is killed with -9 once a rung is recorded, a second one beside it ends the ladder; a third trains nothing.

    The loss curves are, bit for bit, those of a ladder that nobody disturbed.
    """
    disturbed, quiet = repository(tmp_path / "disturbed"), repository(tmp_path / "quiet")
    first, second = start(disturbed), start(disturbed)
    deadline = time.monotonic() + 300
    while not records(disturbed) and time.monotonic() < deadline:
        time.sleep(0.2)
    before = records(disturbed)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    output, _ = second.communicate(timeout=300)
    assert second.returncode == 0, output
    assert len(records(disturbed)) == 4
    assert before.items() <= records(disturbed).items()

    third = start(disturbed)
    output, _ = third.communicate(timeout=60)
    assert "4 of 4 runs are finished already" in output

    undisturbed = start(quiet)
    output, _ = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, output
    assert records(quiet) == records(disturbed)
