"""Validate the submissions of a repository by its tracks, against each other, its run records and its base branch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import Finding, MarinScalingError, error, warning
from marin_scaling.files import read_bytes
from marin_scaling.git import GitError, Repository, find_repository, require_repository
from marin_scaling.printable import quoted
from marin_scaling.run.store import records_by_log
from marin_scaling.speedrun.checks import CLOCKS_DIFFER, Rank, Validated, validate
from marin_scaling.speedrun.entry import Entry, entry_files, entry_of, is_logged, read_entry
from marin_scaling.speedrun.from_runs import Confirmation, compute_settings, confirmation
from marin_scaling.speedrun.submission import (
    CONFIRMATION_NAME,
    SUBMISSION_NAME,
    ConfirmationFile,
    Submission,
    Submitted,
    read_confirmation,
    read_submissions,
)
from marin_scaling.speedrun.track import RETRAINING_TOLERANCE, SPEEDRUNS_DIR, Track, read_tracks, tracks_folder
from marin_scaling.untrusted_files import is_present

_USUAL_BASES = ("origin/HEAD", "origin/main", "main", "origin/master", "master")
NO_BASE = (
    f"no base branch ({', '.join(_USUAL_BASES)}) is here, so what this branch adds is unknown. "
    "Get the branch and name it: git fetch origin main, then --base FETCH_HEAD"
)
"""Warning for a repository without one of the usual base branches."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Submissions at a place, with their findings and tracks."""

    found: tuple[Submitted, ...] = ()
    validated: tuple[Validated, ...] = ()
    tracks: Mapping[str, Track] = field(default_factory=dict)
    warning: str = ""
    """`NO_BASE` for a repository without a base branch."""


def judge_all(place: Path, *, at: datetime, base: str | None = None) -> Judged:
    """Validate all submissions at `place`, a folder or a file; `at` is now (UTC).

    Among duplicates, the one on the branch `base` is accepted (default: the repository's main branch).
    """
    found, tracks = read_submissions(place), read_tracks(tracks_folder(place))
    sound = [each for each in found if each.submission is not None]
    repository, commit = base_of(place, base)
    root, submissions = runs_folder(place).parent, [each.submission for each in sound if each.submission]
    differs = _differs(repository, commit) if repository and commit else lambda _: False
    stored = [list(_confirmation_findings(each, place=place, tracks=tracks, differs=differs, at=at)) for each in sound]
    validated = validate(
        submissions,
        at=at,
        tracks=tracks,
        records=records_by_log(runs_folder(place)),
        further=[[*entry_findings(each, root=root), *more] for each, more in zip(submissions, stored, strict=True)],
        ranks=_ranks([each.place for each in sound], place=place, repository=repository, base=commit),
    )
    return Judged(
        found=tuple(found),
        validated=tuple(
            replace(each, confirmation=_confirmation_of(one)) if each.accepted else each
            for each, one in zip(validated, sound, strict=True)
        ),
        tracks=tracks,
        warning=NO_BASE if repository and commit is None else "",
    )


def judge_new(submission: Submission, *, to: Path, at: datetime) -> Validated:
    """Validate a new submission for the folder `to`, with the tracks and submissions there."""
    there = [each.submission for each in read_submissions(to) if each.submission] if to.is_dir() else []
    tracks, records = read_tracks(tracks_folder(to)), records_by_log(runs_folder(to))
    return validate([*there, submission], at=at, tracks=tracks, records=records)[-1]


def runs_folder(place: Path) -> Path:
    """Return the run store beside the `speedruns` folder that holds `place`, else that of the current folder."""
    above = next((each for each in (place, *place.parents) if each.name == SPEEDRUNS_DIR), None)
    return Path("runs") if above is None else above.parent / "runs"


def entry_findings(submission: Submission, *, root: Path) -> Iterator[Finding]:
    """Yield a warning if the entry of a submission, its recipe or Python file, is missing or unreadable below `root`."""
    path = entry_of(submission)
    if path is None:
        return
    try:
        entry = read_entry(root / path)
        beside = entry_files(entry, root / path, root=root)
        missing = [str(each) for each in beside if not is_present(each)]
        said = f"its file {', '.join(missing)} does not exist" if missing else ""
        if not missing:
            yield from _changed_findings(submission, entry, beside)
    except MarinScalingError as fault:
        said = fault.lines[0].rstrip(".")
    if said:
        yield warning("entry", "code.path", f"the entry {path} cannot be retrained: {said}")


def _changed_findings(submission: Submission, entry: Entry, files: Sequence[Path]) -> Iterator[Finding]:
    """Yield an error for each value in which an entry differs from its submission; its Python file is only read."""
    training, model = submission.training, submission.model.config
    pairs: dict[str, tuple[object, object]] = {
        "seeds.seed": (sorted(each.seed for each in submission.seeds if each.seed is not None), sorted(entry.seeds)),
        "name": (submission.name, entry.name),
        "track": (submission.track, entry.track),
        "data.name": (submission.data.name, entry.data.source),
        "tuning.trials": (submission.tuning and submission.tuning.trials, entry.trials),
    }
    if training is not None:
        pairs["training.config.compute"] = (training.config.get("compute"), compute_settings(entry.compute))
    if entry.hidden_dim is not None:
        pairs["model.config.hidden_dim"] = (model.get("hidden_dim"), entry.hidden_dim)
    if (own := entry.own_classes) is not None and training is not None:
        for key, config, section in (("model", model, own.model), ("training", training.config, own.optimizer)):
            settings = config.get("settings")
            stated = {"type": config.get("type"), **(settings if isinstance(settings, dict) else {})}
            pairs |= {f"{key}.config.{name}": (stated.get(name), section.get(name)) for name in {*stated, *section}}
        pairs["training.config.z_loss_weight"] = (training.config.get("z_loss_weight"), own.z_loss_weight)
        pairs["training.steps"] = (training.steps, own.steps)
        before, now = ([each.model_dump() for each in one] for one in (training.stages, own.batch_stages))
        pairs["training.batch_size"] = (before, now)
    if entry.code is not None:
        stated_digest, found = submission.code and submission.code.tree_sha256, sha256_hex(read_bytes(files[0]))
        pairs["code.tree_sha256"] = ((stated_digest or "none")[:16], found[:16])
    for key, (stated_value, written) in sorted(pairs.items()):
        if stated_value != written:
            yield error("entry", key, f"{quoted(stated_value)} is stated, and the entry has {quoted(written)}")


def compared(claimed: Submission, retrained: Submission, *, tracks: Mapping[str, Track]) -> Confirmation:
    """Compare a submission with its retraining, by the tolerance of its track."""
    track = tracks.get(claimed.track)
    tolerance = track.retraining_tolerance if track else RETRAINING_TOLERANCE
    return confirmation(claimed, retrained, tolerance=tolerance, one_order=not is_logged(claimed))


def _confirmation_of(submitted: Submitted) -> ConfirmationFile | None:
    path = submitted.place.with_name(CONFIRMATION_NAME)
    return read_confirmation(path) if is_present(path) else None


def _confirmation_findings(
    submitted: Submitted, *, place: Path, tracks: Mapping[str, Track], differs: Callable[[Path], bool], at: datetime
) -> Iterator[Finding]:
    """Yield an error for a confirmation of something else, or that comes with its submission; a warning if it is new."""
    where, said = submitted.place.with_name(CONFIRMATION_NAME), ""
    if not is_present(where) or submitted.submission is None:
        return
    try:
        stored = read_confirmation(where)
        said = _fault(stored, submitted, tracks=tracks, at=at)
        if not said and differs(where):
            if any(map(differs, _files(submitted, place=place))):
                said = "this branch also changes the submission, its entry or its track, which has to be merged first"
            else:
                yield warning("confirmation", CONFIRMATION_NAME, f"new: reproduced by {quoted(stored.by)}")
    except MarinScalingError as fault:
        said = fault.lines[0].rstrip(".")
    if said:
        yield error("confirmation", CONFIRMATION_NAME, f"{said}; remove the file, then retrain with confirm --by")


def _fault(stored: ConfirmationFile, submitted: Submitted, *, tracks: Mapping[str, Track], at: datetime) -> str:
    """Return why a confirmation cannot be that of another person's retraining of the submission, or ""."""
    claimed = submitted.submission
    assert claimed is not None  # checked by the caller
    if stored.submission_sha256 != sha256_hex(read_bytes(submitted.place)):
        return "it is of another version of submission.json"
    if not compared(claimed, stored.retrained, tracks=tracks).confirmed:
        return "its losses or settings are not those of the submission"
    starts = {seed.started_at for seed in claimed.seeds} - {None}
    if any(seed.started_at in starts for seed in stored.retrained.seeds):
        return "its runs begin when those of the submission do, so nothing was retrained"
    if stored.by.casefold() in {author.name.casefold() for author in claimed.authors}:
        return f"{quoted(stored.by)} is an author of the submission"
    return f"its time, {stored.at.isoformat()}, is in the future" if stored.at > at + CLOCKS_DIFFER else ""


def changed_entries(submitted: Iterable[Submitted], *, place: Path, repository: Repository, base: str) -> list[Submitted]:
    """Return the submissions whose file, confirmation, entry, recipe and Python files, or track differ from a commit."""
    differs = _differs(repository, base)
    return [
        each for each in submitted if any(map(differs, [*_files(each, place=place), each.place.with_name(CONFIRMATION_NAME)]))
    ]


def _differs(repository: Repository, base: str) -> Callable[[Path], bool]:
    """Return a function that tells if a file differs from that of a commit."""
    before = repository.tree(base, repository.root)

    def differs(path: Path) -> bool:
        known = before.get(repository.path_from_root(path))
        if known is None or not is_present(path):
            return known is not None or is_present(path)
        return not known.is_regular or repository.content(known) != read_bytes(path)

    return differs


def _files(submitted: Submitted, *, place: Path) -> list[Path]:
    """Return the files that state a submission and determine its runs; code and text are not among them."""
    submission, root = submitted.submission, runs_folder(place).parent
    entry = entry_of(submission) if submission else None
    if submission is None or entry is None:
        return [submitted.place]
    track = tracks_folder(place) / f"{submission.track}.yaml"
    return [submitted.place, track, root / entry, *entry_files(read_entry(root / entry), root / entry, root=root)]


def base_of(place: Path, base: str | None) -> tuple[Repository | None, str | None]:
    """Return the repository of `place` and the commit of its base branch, each None if there is none.

    `GitError` if the named branch `base` does not exist.
    """
    folder = place if place.is_dir() else place.parent
    if base:
        repository = require_repository(folder)
        return repository, repository.commit_id(base)
    found = find_repository(folder)
    if found is None or not found.holds(place):
        return None, None
    for name in _USUAL_BASES:
        with contextlib.suppress(GitError):
            return found, found.commit_id(name)
    return found, None


def _ranks(files: Sequence[Path], *, place: Path, repository: Repository | None, base: str | None) -> list[Rank]:
    """Return the ranks of files by age: first those on the base branch, then by the commit that added them."""
    if repository is None:
        return [()] * len(files)
    paths = [repository.path_from_root(each) for each in files]
    on_base = set(repository.tree(base, place)) if base else set()
    added = _paths_by_age(repository, place)
    return [(path not in on_base, added.get(path, len(added))) for path in paths]


def _paths_by_age(repository: Repository, place: Path) -> dict[Path, int]:
    """Return the number of the commit that added each submission, along the first parents of HEAD."""
    if repository.head() is None:
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
