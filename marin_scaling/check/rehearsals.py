"""Runs in the store that trained what a forecast is about, under another name or before the forecast."""

from __future__ import annotations

import contextlib
from pathlib import Path

from marin_scaling.check.brought_runs import answering_run
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.run_identity import identity
from marin_scaling.regular_files import is_present
from marin_scaling.run.run_store import run_folders


def rehearsals(folder: Path, *, runs_dir: Path) -> list[str]:
    """Return the recorded runs that differ from the target of a forecast in labels only, as `LADDER/RUN`.

    The run that answers the forecast is none of them.
    """
    wanted, own = identity(read_bytes(folder / "target.json")), answering_run(folder, runs_dir=runs_dir)
    ladders = sorted(path for path in runs_dir.iterdir() if path.is_dir()) if runs_dir.is_dir() else []
    found = []
    for run in (run for ladder in ladders for run in run_folders(ladder)):
        name = str(run.relative_to(runs_dir))
        with contextlib.suppress(MarinScalingError):  # refused where its ladder is verified
            if name != own and is_present(run / "record.json") and identity(read_bytes(run / "spec.json")) == wanted:
                found.append(name)
    return found
