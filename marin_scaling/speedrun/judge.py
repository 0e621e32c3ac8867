"""Validate the submissions of a repository by its tracks, against each other and against its run records."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from marin_scaling.git import GitError, Repository, find_repository
from marin_scaling.run.store import records_by_log
from marin_scaling.speedrun.checks import Validated, validate
from marin_scaling.speedrun.submission import SUBMISSION_NAME, Submission, Submitted, read_submissions
from marin_scaling.speedrun.track import SPEEDRUNS_DIR, Track, read_tracks, tracks_folder

_USUAL_BASES = ("origin/HEAD", "origin/main", "main", "origin/master", "master")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Submissions at a place, with their findings and tracks."""

    found: tuple[Submitted, ...] = ()
    validated: tuple[Validated, ...] = ()
    tracks: Mapping[str, Track] = field(default_factory=dict)


def judge_all(place: Path, *, at: datetime, base: str | None = None) -> Judged:
    """Validate all submissions at `place`, a folder or a file; `at` is now (UTC).

    Among duplicates, the one on the branch `base` is accepted (default: the repository's main branch).
    """
    found, tracks = read_submissions(place), read_tracks(tracks_folder(place))
    sound = [each for each in found if each.submission is not None]
    validated = validate(
        [each.submission for each in sound if each.submission],
        at=at,
        tracks=tracks,
        records=records_by_log(runs_folder(place)),
        order=_order([each.place for each in sound], place=place, base=base),
    )
    return Judged(found=tuple(found), validated=tuple(validated), tracks=tracks)


def judge_new(submission: Submission, *, to: Path, at: datetime) -> Validated:
    """Validate a new submission for the folder `to`, with the tracks and submissions there."""
    there = [each.submission for each in read_submissions(to) if each.submission] if to.is_dir() else []
    tracks, records = read_tracks(tracks_folder(to)), records_by_log(runs_folder(to))
    return validate([*there, submission], at=at, tracks=tracks, records=records)[-1]


def runs_folder(place: Path) -> Path:
    """Return the run store beside the `speedruns` folder that holds `place`, else that of the current folder."""
    above = next((each for each in (place, *place.parents) if each.name == SPEEDRUNS_DIR), None)
    return Path("runs") if above is None else above.parent / "runs"


def _order(files: Sequence[Path], *, place: Path, base: str | None) -> list[int]:
    """Return positions of files by age: first those on the base branch, then by the commit that added them."""
    repository = find_repository(place if place.is_dir() else place.parent)
    if repository is None:
        return list(range(len(files)))
    paths = [repository.path_from_root(each) if repository.holds(each) else None for each in files]
    on_base, added = _paths_on(repository, base, place), _paths_by_age(repository, place)
    ranks = [(path not in on_base, added.get(path, len(added)) if path else len(added)) for path in paths]
    return sorted(range(len(files)), key=lambda position: (ranks[position], position))


def _paths_on(repository: Repository, base: str | None, place: Path) -> set[Path | None]:
    """Return the submissions on the base branch; `GitError` if a named branch does not exist."""
    for name in (base,) if base else _USUAL_BASES:
        try:
            commit = repository.commit_id(name)
        except GitError:
            if base:
                raise
            continue
        return set(repository.tree(commit, place)) if repository.holds(place) else set()
    return set()


def _paths_by_age(repository: Repository, place: Path) -> dict[Path, int]:
    """Return the number of the commit that added each submission, along the first parents of HEAD."""
    if repository.head() is None or not repository.holds(place):
        return {}
    below = repository.path_from_root(place)
    options = ("--first-parent", "--diff-merges=first-parent", "--diff-filter=A", "--no-renames", "--reverse", "--no-ext-diff")
    told = repository.ask("log", *options, "--format=%x00commit", "--name-only", "-z", "HEAD", "--", str(below))
    ages: dict[Path, int] = {}
    commit = 0
    for word in told.split(b"\0"):
        name = word.strip(b"\n")
        if name == b"commit":
            commit += 1
        elif name.endswith(SUBMISSION_NAME.encode()):
            ages.setdefault(Path(os.fsdecode(name)), commit)
    return ages
