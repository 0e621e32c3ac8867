"""A ladder of four runs of a second each, in a folder of its own, and its launcher as a process; tests train it for real."""

import json
import os
import subprocess
import sys
from pathlib import Path

CORES = sorted(os.sched_getaffinity(0))[:2]
"""What a launcher may use: at most two, so that every run has one, with Ray and without."""
LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 1e10, hidden_dims: [8, 12]}
  - {budget_flops: 2e10, hidden_dims: [8, 12]}
target: {budget_flops: 1e11}
evaluation: {windows: 64}
"""


def repository(folder: Path, *, more: str = "", ladder: str = LADDER) -> Path:
    """`folder`, made, with `ladders/tiny.yaml` in it, and what was compiled for others; `more` is YAML to add."""
    (folder / "ladders").mkdir(parents=True)
    (folder / ".marin-scaling").mkdir()
    (folder / ".marin-scaling" / "compiled").symlink_to(os.environ["MARIN_SCALING_TESTS_COMPILED"])
    (folder / "ladders" / "tiny.yaml").write_text(ladder + more)
    return folder


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """`marin-scale ladder` on that file, with what it prints and its errors in one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "marin_scaling.cli", "ladder", "ladders/tiny.yaml", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, CORES),
    )


def histories(folder: Path) -> dict[str, bytes]:
    """The loss curves recorded so far, by the run's folder; one that is being written has a name that begins with a point."""
    return {path.parent.name: path.read_bytes() for path in (folder / "runs").glob("tiny/[0-9a-f]*/history.json")}


def records_without_times(folder: Path) -> dict[str, dict[str, object]]:
    """The records so far, by the run's folder, of which two of one run in two places are equal."""
    times = {"started_at", "finished_at", "wall_seconds", "step_seconds"}
    records = {path.parent.name: json.loads(path.read_bytes()) for path in (folder / "runs").glob("tiny/[0-9a-f]*/record.json")}
    return {run: {name: value for name, value in record.items() if name not in times} for run, record in records.items()}


def training_processes(folder: Path) -> list[int]:
    """Processes that train runs of this folder now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"marin_scaling.train" in command and str(folder).encode() in command:
                found.append(int(entry.name))
    return found
