"""Paths of runs and of the work on them: specs, checkpoints, curves, weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.errors import UsageError
from marin_scaling.files import read_bytes, read_own_bytes
from marin_scaling.git import GitError, find_repository
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.spec import DIRECTORY_DIGITS, RunSpec, read_spec
from marin_scaling.untrusted_files import require_no_link

RUNS_DIR = Path("runs")
WORK_ROOT = Path(".marin-scaling")


STARTED_NAME = "started_at"
"""File in a run's working folder with the time at which the run began."""
WEIGHTS_MARKER = "weights.json"
"""File in a folder of kept weights, written last, that names their run."""


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """The run store, and a working folder for checkpoints, caches and logs, which is safe to delete when idle.

    The weights of a target are kept there; with `keep_weights`, those of every run. Other machines find this work at
    `storage`, if it is given (`shared_storage`). `git_commit` is given for processes of a cluster, which work outside of the
    repository; other processes look it up. `mesh` is that of the ladder file, for training processes.
    """

    runs_dir: Path
    work_root: Path
    keep_weights: bool = False
    storage: str | None = None
    git_commit: str | None = None
    mesh: Mesh = ONE_AXIS


def spec_path(spec: RunSpec, place: Workplace) -> Path:
    """Return the path of a run's spec, which training processes read."""
    return place.work_root / "specs" / f"{spec.directory_name}.json"


def known_specs(place: Workplace, *, digits: str = "") -> list[RunSpec]:
    """Return the specs of runs recorded or begun here, sorted by digest; only those whose digest begins with `digits`."""
    recorded = ((path, read_bytes(path)) for path in place.runs_dir.glob(f"*/{digits}*/spec.json"))
    begun = ((path, read_own_bytes(path)) for path in place.work_root.glob(f"specs/{digits}*.json"))
    specs = {spec.digest: spec for spec in (read_spec(raw, name=str(path)) for path, raw in (*recorded, *begun))}
    return [specs[digest] for digest in sorted(specs)]


def work_dir(spec: RunSpec, place: Workplace) -> Path:
    """Return the working folder of an unfinished run."""
    return place.work_root / "work" / spec.directory_name


def compiled_dir(place: Workplace) -> Path:
    """Return the folder in which processes share compiled programs."""
    return place.work_root / "compiled"


def elsewhere_dir(spec: RunSpec, place: Workplace) -> Path:
    """Return the local copy of another machine's unfinished run, for `ladder status`."""
    return place.work_root / "elsewhere" / spec.directory_name


def curve_path(folder: Path) -> Path:
    """Return the path of the loss curve in a run's working folder."""
    return folder / "loss_curve.jsonl"


def checkpoints_root(folder: Path) -> Path:
    """Return Levanter's checkpoint folder in a run's working folder; Levanter adds a folder named after the run."""
    return folder / "checkpoints"


def trunk_dir(spec: RunSpec, place: Workplace) -> Path:
    """Return the folder in which runs that share this run's trunk leave checkpoints for each other, by number of steps."""
    return place.work_root / "trunks" / spec.trunk_digest[:DIRECTORY_DIGITS]


def weights_dir(run: str, place: Workplace) -> Path:
    """Return the folder of a run's trained model."""
    return place.work_root / "weights" / run


def require_untracked_work_root(root: Path, tracked: Sequence[Path]) -> None:
    """Raise `UsageError` if the working folder is a link, or if git tracks files in it: its content must be this machine's own.

    Runs resume from and train on what is in it. `tracked` are the files below `root` that git tracks.
    """
    if root.is_symlink():
        raise UsageError(
            f"{root} is a link to {os.readlink(root)}.",
            why="Checkpoints, tokens and compiled programs would be read from there.",
            fix=f"Remove the link (rm {root}). For more space keep the whole repository on a larger disk.",
        )
    if tracked:
        raise UsageError(
            f"Git tracks {len(tracked)} files below {root}, including {tracked[0].name!r}.",
            why="Checkpoints, tokens and weights must be this machine's own.",
            fix=f"Remove them from the repository and the disk: git rm -r --cached {root.name} && rm -r {root.name}",
        )


def workplace(*, storage: str | None = None) -> Workplace:
    """Return this repository's run store and folder for the work; `storage` as in the ladder's file."""
    return Workplace(runs_dir=RUNS_DIR.absolute(), work_root=own_work_root().absolute(), storage=storage)


def own_work_root() -> Path:
    """Return the folder for the work; `UsageError` if git tracks files in it, or if it or the run store is a link."""
    tracked: list[Path] = []
    with contextlib.suppress(GitError):  # a repository of another user
        if repository := find_repository():
            tracked = repository.tracked(WORK_ROOT)
    require_untracked_work_root(WORK_ROOT, tracked)
    require_no_link(RUNS_DIR)
    return WORK_ROOT
