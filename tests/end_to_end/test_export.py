"""A target that is trained for real, though its process is killed, can be exported with its forecast and what came of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy_qwen3
import pytest
from command_line import SMALL_LADDER, assert_refused, make_repository, marin_scale_process

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

from marin_scaling.data.documents import standard_library_corpus  # noqa: E402
from marin_scaling.run.store import read_runs  # noqa: E402
from marin_scaling.train.train import evaluation_windows  # noqa: E402


def test_a_killed_target_resumes_and_is_exported_with_its_forecast_and_outcome(tmp_path: Path) -> None:
    """Weights that stand without a record are written over; the folder has the recorded loss, and is not written into twice."""
    root = make_repository(tmp_path / "repository", ladder=SMALL_LADDER)
    registered = marin_scale_process("preregister", "ladders/tiny.yaml", "--as", "ada@example.org", cwd=root)
    assert registered.returncode == 0, registered.stderr
    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    name = train_with_a_kill(root, folder.name)
    assert (root / ".marin-scaling" / "weights" / name / "left-behind").exists()
    done = marin_scale_process("run", folder.name, cwd=root)
    assert done.returncode == 0, done.stderr
    assert marin_scale_process("check", folder.name, cwd=root).returncode == 0
    exported = marin_scale_process("export", folder.name, "--to", "model", cwd=root)
    assert exported.stdout == "model: README.md, config.json, model.safetensors\n", exported.stderr

    run = next(run for run in read_runs(root / "runs" / "tiny") if run.spec.role == "target")
    windows = evaluation_windows(run.spec, standard_library_corpus())["validation"]
    measured = numpy_qwen3.bits_per_byte(root / "model", windows, np.ones(256, int))
    assert measured == pytest.approx(run.record.loss, rel=1e-5)
    outcome = json.loads((folder / "outcome.json").read_text())
    card = (root / "model" / "README.md").read_text()
    assert f"**{outcome['verdict']}**: {outcome['value']:.4f} was observed" in card
    assert f"`preregistrations/{folder.name}`" in card
    assert_refused(marin_scale_process("export", name, "--to", "model", cwd=root), "not empty")
    assert sorted(path.name for path in root.iterdir() if "model" in path.name) == ["model"]


def train_with_a_kill(root: Path, registration: str) -> str:
    """The run's name, after its launcher was killed in the middle; weights lie there as if that had come later."""
    process = subprocess.Popen(
        [sys.executable, "-m", "marin_scaling.cli", "run", registration], cwd=root, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (curves := [path for path in curves_in(root) if path.stat().st_size > 2_000]):
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    name = curves[0].parent.name
    left = root / ".marin-scaling" / "weights" / name
    left.mkdir(parents=True)
    (left / "left-behind").write_text("of a killed process")
    assert not (root / "runs" / "tiny" / name).exists()
    return name


def curves_in(root: Path) -> list[Path]:
    return list((root / ".marin-scaling" / "work").glob("*/loss_curve.jsonl"))
