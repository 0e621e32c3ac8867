"""The quickstart, with a smaller ladder, killed again and again: it ends as if nobody had disturbed it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytest.importorskip("material", reason="the site extra is not installed")
pytestmark = pytest.mark.train

LADDER = """\
name: quickstart
recipe: quickstart
rungs:
  - {budget_flops: 1.4e10, hidden_dims: [8, 12, 16]}
  - {budget_flops: 2.8e10, hidden_dims: [8, 12, 16]}
  - {budget_flops: 5.6e10, hidden_dims: [8, 12, 16]}
  - {budget_flops: 1.12e11, hidden_dims: [8, 12, 16]}
target: {budget_flops: 5.7e11}
evaluation: {windows: 64}
"""


def start(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "marin_scaling.cli", "quickstart", str(folder / "work")]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what a shell starts with & ignores it
    )


def repository(folder: Path) -> Path:
    (folder / "work" / "ladders").mkdir(parents=True)
    (folder / "work" / "ladders" / "quickstart.yaml").write_text(LADDER)
    return folder


def records(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in (folder / "work" / "runs").glob("*/[0-9a-f]*/record.json")}


def interrupt(process: "subprocess.Popen[str]", *, how: signal.Signals, after: float) -> str:
    """Let it work for some seconds, then interrupt it; what it had printed."""
    time.sleep(after)
    process.send_signal(how)
    return process.communicate(timeout=300)[0]


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_killed_at_random_moments_it_goes_on_where_it_was(tmp_path: Path, kills: int) -> None:
    """With kill -9 and Ctrl-C no finished run is trained twice or lost, and one forecast is registered and shown."""
    folder, moments = repository(tmp_path), random.Random(20261121)
    kept: dict[str, bytes] = {}
    for number in range(kills):
        how = signal.SIGINT if number % 2 else signal.SIGKILL
        output = interrupt(start(folder), how=how, after=moments.uniform(5, 45))
        assert "Traceback" not in output
        assert how is signal.SIGKILL or "Rerun the same command to resume." in output
        assert kept.items() <= records(folder).items()
        kept = records(folder)
    output, _ = start(folder).communicate(timeout=900)
    assert "Your result: " in output, output
    assert kept.items() <= records(folder).items()
    (registration,) = (folder / "work" / "preregistrations").glob("*-quickstart")
    assert len(records(folder)) == 13
    outcome = json.loads((registration / "outcome.json").read_text())
    assert outcome["verdict"] in ("held", "missed")
    page = folder / "work" / ".site" / "generated" / "preregistrations" / f"{registration.name}.html"
    assert f"{outcome['value']:.4f}" in page.read_text()

    output, _ = start(folder).communicate(timeout=300)
    assert "12 of 12 runs are finished already" in output
    assert "1 of 1 runs are finished already" in output
    assert f"{registration.name} is registered already" in output
