"""Make a submission from finished runs: of the store, of a preregistration, or of logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.errors import UsageError
from marin_scaling.preregistration.registry import REGISTRY
from marin_scaling.preregistration.tracked_run import named_spec
from marin_scaling.printable import joined
from marin_scaling.run.store import RUNS_DIR, read_run, run_folder
from marin_scaling.run.trackers import ONLINE
from marin_scaling.speedrun.from_logs import is_log, submission_from_logs, submission_of_logged_entry
from marin_scaling.speedrun.from_runs import submission_from_runs
from marin_scaling.speedrun.submission import Author, Submission
from marin_scaling.speedrun.track import SPEEDRUNS_DIR, read_tracks, tracks_folder
from marin_scaling.strict_model import fault_text


def submit_runs(
    runs: Sequence[str],
    *,
    name: str | None = None,
    track: str | None = None,
    author: str | None = None,
    description: str = "",
    trials: int | None = None,
    entry: Path | str | None = None,
    data: str | None = None,
    config: Path | None = None,
    peak_flops_per_second: float | None = None,
    to: Path | str = SPEEDRUNS_DIR,
) -> Submission:
    """Return the submission of runs, one per seed, which is not written.

    A run is the folder or the digest of a recorded one, a preregistration's folder, or the place of a log: a file, a folder or
    wandb:ENTITY/PROJECT. `name`, `track` and `author` are needed, or `entry`, the path of the entry file of logged runs, which
    has them. `data` and `config` complete logs; `to` is the folder with the tracks. `UsageError` for what cannot be combined.
    """
    _require_runs(runs)
    options: dict[str, object] = {"name": name, "track": track, "author": author}
    given = [key for key, value in (options | {"description": description, "trials": trials, "data": data}).items() if value]
    logged, tracks = all(map(is_log, runs)), read_tracks(tracks_folder(Path(to)))
    if not logged and (of_logs := [key for key, value in (("data", data), ("config", config), ("entry", entry)) if value]):
        raise UsageError(f"{joined(of_logs)} given, which is for logs.", why="Records name their data.", fix="Leave it out.")
    if entry is not None and given:
        raise UsageError(
            f"{joined(given)} cannot be combined with an entry, which has its own.", fix=f"Change {entry} instead."
        )
    more: dict[str, Any] = {"peak_flops_per_second": peak_flops_per_second}
    try:
        if entry is not None:
            return submission_of_logged_entry(runs, path=Path(entry), tracks=tracks, config=config, **more)
        if name is None or track is None or author is None:
            missing = [key for key, value in options.items() if value is None]
            needed = "A submission needs them; logs of Levanter's classes may have an entry instead."
            raise UsageError(f"{joined(missing)} missing.", why=needed, fix=f"Add --{joined(missing, separator=' and --')}.")
        rules = tracks.get(track)
        more |= {"name": name, "track": track, "author": Author(name=author), "description": description, "trials": trials}
        if logged:
            return submission_from_logs(runs, **more, rules=rules, data=data, config=config)
        stored = [read_run(folder) for folder in stored_folders(runs)]
        return submission_from_runs(stored, **more, held_out=rules.evaluation_name if rules else None)
    except ValidationError as error:
        raise UsageError(
            f"{fault_text(error)}.", why="A submission cannot state that.", fix="Change the named option, or the entry."
        ) from error


_DIGEST = re.compile("[0-9a-f]+")


def _require_runs(runs: Sequence[str]) -> None:
    """Raise `UsageError` for a place that does not exist, or that is named twice."""
    known = [run for run in runs if run.startswith(ONLINE) or _DIGEST.fullmatch(run) or Path(run).exists()]
    if absent := [run for run in runs if run not in known and not (REGISTRY / run).exists()]:
        raise UsageError(
            tuple(f"{run} does not exist." for run in absent), fix="Name a run's folder or digest, or the log of a run."
        )
    if twice := sorted({run for run in runs if runs.count(run) > 1}):
        raise UsageError(f"{twice[0]} is named {runs.count(twice[0])} times.", fix="Name each run once.")


def stored_folders(runs: Sequence[str]) -> list[Path]:
    """Return the folders of recorded runs; none for logs."""
    if all(map(is_log, runs)):
        return []
    return [run_folder(RUNS_DIR, named_spec(run, registry=REGISTRY)) for run in runs]
