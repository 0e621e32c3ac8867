"""What a branch brings to a registry, verified with the signers of the branch that it is to be merged into. Nothing is written.

A preregistration that is refused is kept, with the reason. How a reviewer is shown all of it is for `publish`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from marin_scaling.check.amendments import verified_amendments
from marin_scaling.check.authenticity import verify_folder
from marin_scaling.check.base_branch import (
    added_files,
    as_called_there,
    base_receipts,
    base_step,
    changes_trust,
    require_forecast_first,
    require_runs_kept,
    signers_at,
    trust_steps,
)
from marin_scaling.check.brought_runs import answering_run, brought_runs
from marin_scaling.check.history import log_step, require_whole
from marin_scaling.check.known_names import require_known_names
from marin_scaling.check.policy import policy_steps
from marin_scaling.check.received import Receipts, received_step
from marin_scaling.check.reproduction import verify_and_fit
from marin_scaling.check.state import State, Verdict
from marin_scaling.check.verdict import verdicts_on
from marin_scaling.check.verified_step import VerifiedStep
from marin_scaling.errors import DocumentError, MarinScalingError, VerificationError
from marin_scaling.preregistration.amendment import AMENDMENT_NAME, Amendment
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.registry import STATEMENT_NAME, read_registration, registration_folders
from marin_scaling.preregistration.seal import is_sealed
from marin_scaling.preregistration.statement import Statement
from marin_scaling.regular_files import require_regular_tree


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """One preregistration that a branch adds, or adds to: what was verified of it, or why it is refused."""

    folder: Path
    added: tuple[str, ...]
    """The names of the files in it that the base has not."""

    statement: Statement | None
    """None of one that is refused, or still sealed."""

    steps: tuple[VerifiedStep, ...] = ()
    runs: tuple[str, ...] = ()
    """The runs of its ladder that the base has not, as `LADDER/RUN`, where nothing else is added to it."""

    amendments: tuple[Amendment, ...] = ()
    """The later forecasts of the same run that the base has not."""

    refusal: str | None = None
    receipts: Receipts | None = None
    """When the base received the files of the registry."""

    @property
    def is_new(self) -> bool:
        """Whether the forecast itself is new, and not only something beside it."""
        return STATEMENT_NAME in self.added


@dataclass(frozen=True, kw_only=True)
class Review:
    """What a branch does to a registry as a whole (`step`, or `refusal`), and to each preregistration that it touches."""

    step: VerifiedStep | None
    refusal: str | None
    reviewed: tuple[Reviewed, ...]
    would_refuse: tuple[Verdict, ...] = ()
    """The forecasts of the base that its new signers, roots or policy would refuse."""

    trust: tuple[VerifiedStep, ...] = ()
    """What each change of the signers, the roots and the policy allows; not `compared` where it has a warning."""

    @property
    def sound(self) -> bool:
        """Whether nothing is refused."""
        return self.refusal is None and all(each.refusal is None for each in self.reviewed)


def review_branch(base: str, *, registry_dir: Path, runs_dir: Path) -> Review:
    """The review of the working tree as a branch to be merged into `base`; `UsageError` when git knows no such base."""
    require_regular_tree([registry_dir, runs_dir])
    step, refusal, trust = None, None, []
    try:
        step = base_step(base, registry_dir=registry_dir)
        require_runs_kept(base, registry_dir=registry_dir, runs_dir=runs_dir)
        require_known_names(registry_dir)
        require_whole(registry_dir, log=read_log(registry_dir))
        trust = trust_steps(base, registry_dir=registry_dir)
    except (DocumentError, VerificationError) as error:
        refusal = str(error)
    added, receipts = added_files(base, registry_dir=registry_dir), base_receipts(base, registry_dir=registry_dir)
    with signers_at(base, registry_dir=registry_dir) as signers:
        called = partial(as_called_there, signers=signers, base=base, registry_dir=registry_dir)
        reviewed = [
            _reviewed(
                folder, base=base, added=tuple(names), signers=signers, runs_dir=runs_dir, called=called, receipts=receipts
            )
            for folder, names in added.items()
        ]
        for folder, runs in brought_runs(base, registry_dir=registry_dir, runs_dir=runs_dir).items():
            if folder not in added:
                reviewed += _reviewed_for_runs(folder, runs=runs, signers=signers, runs_dir=runs_dir, called=called)
        would_refuse = _would_refuse(base, registry_dir=registry_dir, runs_dir=runs_dir, signers=signers)
    return Review(step=step, refusal=refusal, reviewed=tuple(reviewed), would_refuse=would_refuse, trust=tuple(trust))


def _would_refuse(base: str, *, registry_dir: Path, runs_dir: Path, signers: Path) -> tuple[Verdict, ...]:
    """What is sound by the trust of the base, and is not by that of the branch."""
    if not changes_trust(base, registry_dir=registry_dir):
        return ()
    folders, at = registration_folders(registry_dir), datetime.now(UTC)
    verdicts = verdicts_on(folders, runs_dir=runs_dir, at=at)
    before = verdicts_on(folders, runs_dir=runs_dir, at=at, allowed_signers=signers)
    pairs = zip(verdicts, before, strict=True)
    return tuple(now for now, then in pairs if now.state is State.REFUSED and then.state is not State.REFUSED)


def _reviewed_for_runs(
    folder: Path, *, runs: tuple[str, ...], signers: Path, runs_dir: Path, called: Callable[[str], str]
) -> list[Reviewed]:
    """Return the review of a forecast of the base that new runs settle or make refused; empty where they do neither."""
    try:
        steps = verify_folder(folder, allowed_signers=signers, runs_dir=runs_dir)
        run = answering_run(folder, runs_dir=runs_dir)
    except MarinScalingError as error:
        return [Reviewed(folder=folder, added=(), statement=None, refusal=called(str(error)))]
    if run not in runs:
        return []
    said = tuple(replace(step, evidence=called(step.evidence)) for step in steps)
    return [Reviewed(folder=folder, added=(), statement=read_registration(folder), steps=said, runs=(run,))]


def _reviewed(
    folder: Path,
    *,
    base: str,
    added: tuple[str, ...],
    signers: Path,
    runs_dir: Path,
    called: Callable[[str], str],
    receipts: Receipts,
) -> Reviewed:
    try:
        steps = verify_and_fit(folder, allowed_signers=signers, runs_dir=runs_dir, receipts=receipts)
        steps += policy_steps(folder, allowed_signers=signers, receipts=receipts)
        steps += [log_step(folder, log=read_log(folder.parent)), *received_step(folder, receipts=receipts)]
        require_forecast_first(base, folder, runs_dir=runs_dir)
        said = tuple(replace(step, evidence=called(step.evidence)) for step in steps)
        if is_sealed(folder):
            return Reviewed(folder=folder, added=added, statement=None, steps=said)
        statement = read_registration(folder)
        amendments = verified_amendments(folder, statement=statement, allowed_signers=signers, receipts=receipts)
        new = tuple(each for each in amendments if f"{each.name}/{AMENDMENT_NAME}" in added)
        return Reviewed(folder=folder, added=added, statement=statement, steps=said, amendments=new, receipts=receipts)
    except MarinScalingError as error:
        return Reviewed(folder=folder, added=added, statement=None, refusal=called(str(error)))
