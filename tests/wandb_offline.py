"""What Weights & Biases leaves offline, waited for: on a busy machine its `finish` comes back before all of it is written."""

import time
from pathlib import Path

from marin_scaling.run.tracker_logs import TrackedRun, read_tracked_runs


def whole_run(folder: Path, *, last: str) -> TrackedRun:
    """The one run in the folder, once the metric that is written last is there, or after twenty seconds as it is."""
    for _ in range(100):
        runs = list(folder.rglob("run-*.wandb")) and read_tracked_runs(str(folder))
        if runs and last in runs[0].metrics and runs[0].state != "running":
            break
        time.sleep(0.2)
    (run,) = runs
    return run
