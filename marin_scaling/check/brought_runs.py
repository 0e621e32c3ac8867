"""Runs that a branch brings for forecasts of its base: a run can settle a forecast, and a rung can make it refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

from marin_scaling.check.compared_trees import compared_trees
from marin_scaling.errors import MarinScalingError
from marin_scaling.git import require_repository
from marin_scaling.preregistration.binding import answering_spec
from marin_scaling.preregistration.registry import read_registration, registration_folders
from marin_scaling.run.run_store import run_folder


def brought_runs(base: str, *, registry_dir: Path, runs_dir: Path) -> dict[Path, tuple[str, ...]]:
    """Return each readable preregistration whose ladder has runs that `base` has not, with these runs as `LADDER/RUN`."""
    if not require_repository().holds(runs_dir):
        return {}
    new = sorted({path.relative_to(runs_dir).parts[:2] for path in compared_trees(base, runs_dir).changes()})
    brought: dict[str, list[str]] = {}
    for ladder, *run in new:
        brought.setdefault(ladder, []).extend(f"{ladder}/{name}" for name in run)
    found: dict[Path, tuple[str, ...]] = {}
    for folder in registration_folders(registry_dir) if brought else []:
        with contextlib.suppress(MarinScalingError):  # sealed, or refused elsewhere
            if runs := brought.get(read_registration(folder).predicate["targetRun"]["ladder"]):
                found[folder] = tuple(runs)
    return found


def answering_run(folder: Path, *, runs_dir: Path) -> str:
    """Return the run that answers a preregistration, as `LADDER/RUN`."""
    return str(run_folder(runs_dir, answering_spec(folder)).relative_to(runs_dir))
