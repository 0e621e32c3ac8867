"""Plan and train entries, and train them again to confirm their submissions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling.data.prepare import prepare
from marin_scaling.errors import Finding, Severity, UsageError
from marin_scaling.ladder.config import Hardware
from marin_scaling.run.store import RUNS_DIR, Workplace, own_work_root, read_run, run_folder, workplace
from marin_scaling.speedrun.entry import (
    Entry,
    entry_of,
    entry_plan,
    entry_specs,
    name_findings,
    planned_claim,
    read_entry,
    run_info,
    submission_of,
)
from marin_scaling.speedrun.from_runs import Confirmation
from marin_scaling.speedrun.judge import compared, entry_findings
from marin_scaling.speedrun.submission import Submission, read_submission
from marin_scaling.speedrun.track import SPEEDRUNS_DIR, Track, claim_findings, read_tracks, tracks_folder
from marin_scaling.train.session import pool_of, train_with_progress

if TYPE_CHECKING:
    from marin_scaling.accelerators import Machine
    from marin_scaling.data.corpus import TokenCorpus
    from marin_scaling.recipe.base import RungPlan
    from marin_scaling.run.plan import OwnPlan


class RulesBroken(UsageError):
    """An entry breaks a rule, or differs from its submission, as is known before training; `findings` are all of them."""

    exit_status = 1

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__(
            tuple(f"{each.where}: {each.message}." for each in findings),
            fix="Correct what is named. Nothing was trained, and finished runs are kept.",
        )


def plan_entry(path: Path | str, *, machine: Machine | None = None, price_per_chip_hour: float | None = None) -> dict[str, Any]:
    """Return sizes, FLOPs, cost and broken rules of the entry at `path`; train nothing.

    A `machine` gives times, and a price in US dollars costs. This runs the Python code of an entry that has some.
    """
    path = Path(path)
    entry, tracks = read_entry(path), tracks_folder(path)
    return run_info(
        entry,
        entry_plan(entry, path=path),
        machine=machine,
        tracks=read_tracks(tracks),
        price_per_chip_hour=price_per_chip_hour,
        folder=tracks.parent,
    )


def train_entry(path: Path | str, *, on: str = "local", to: Path | str = "speedruns") -> Submission:
    """Train the missing runs of the entry at `path` into `runs/`, and return its submission, which is not written.

    `on` is local, ray or ray:ADDRESS; `to` is the folder of submissions and tracks. `RulesBroken` before training.
    """
    path, to = Path(path), Path(to)
    if taken := list(name_findings(read_entry(path), folder=to)):
        raise RulesBroken(taken)
    place = Workplace(runs_dir=RUNS_DIR.absolute(), work_root=workplace().work_root)
    return _trained(path, at=place, on=on, tracks=read_tracks(tracks_folder(to)))


def confirm_entry(
    submission: Submission | Path | str,
    *,
    tracks: Mapping[str, Track] | None = None,
    on: str = "local",
    run_code: bool = False,
) -> Confirmation:
    """Train the entry of a submission again, and compare each seed; the new runs are not kept.

    `submission` is read or the path of its file; `tracks` are by default those in its `speedruns` folder, or in that of the
    current folder. `run_code` allows Python code of the entry, which runs with your permissions. `CodeNotRun` without it;
    `RulesBroken` for an entry that was changed since, `UsageError` if there is none.
    """
    claimed = submission if isinstance(submission, Submission) else read_submission(Path(submission))
    if tracks is None:
        tracks = read_tracks(tracks_folder(Path(SPEEDRUNS_DIR) if submission is claimed else Path(str(submission))))
    entry = _entry_path(claimed)
    if not run_code and (code := read_entry(entry).code) is not None:
        raise CodeNotRun(entry.parent / code)
    if changed := _errors(entry_findings(claimed, root=Path())):
        raise RulesBroken(changed)
    root = own_work_root()
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="again-") as folder:
        place = Workplace(runs_dir=Path(folder).absolute() / "runs", work_root=Path(folder).absolute())
        again = _trained(entry, at=place, on=on, tracks=tracks)
    return compared(claimed, again, tracks=tracks)


class CodeNotRun(UsageError):
    """An entry has Python code of its own, and nobody has asked to run it."""

    exit_status = 1

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the entry has Python code of its own, {path}.",
            why="It would run on this machine, with your permissions.",
            fix="Read the code, then add --run-code (in Python run_code=True).",
        )


def _errors(findings: Any) -> list[Finding]:
    return [each for each in findings if each.severity is Severity.ERROR]


def _entry_path(submission: Submission) -> Path:
    path = entry_of(submission)
    if path is None or not path.is_file():
        raise UsageError(
            f"{submission.name} has no entry file{f': {path} does not exist' if path else ''}.",
            why="A submission is retrained from the entry that code.path names.",
            fix="Commit the entry file; run in the folder above speedruns/; or submit with speedrun run, or logs with --entry.",
        )
    return path


def _trained(path: Path, *, at: Workplace, on: str, tracks: Mapping[str, Track]) -> Submission:
    """Train the missing runs of an entry that keeps its rules; return its submission."""
    entry = read_entry(path)
    corpus, plan = prepare(entry.data, work_root=own_work_root()), entry_plan(entry, path=path)
    track = tracks.get(entry.track)
    _require_rules_kept(entry, plan, corpus=corpus, tracks=tracks)
    specs = entry_specs(entry, plan, corpus=corpus)
    pool = pool_of(on, Hardware(), runs=len(specs))
    train_with_progress(specs, corpus=corpus, label=entry.name, pool=pool, at=at)
    stored = [read_run(run_folder(at.runs_dir, spec)) for spec in specs]
    return submission_of(entry, stored, path=Path(os.path.relpath(path)), plan=plan, track=track)


def _require_rules_kept(entry: Entry, plan: RungPlan | OwnPlan, *, corpus: TokenCorpus, tracks: Mapping[str, Track]) -> None:
    claim = planned_claim(entry, plan, track=tracks.get(entry.track), corpus=corpus)
    if broken := _errors(claim_findings(claim, tracks)):
        raise RulesBroken(broken)
