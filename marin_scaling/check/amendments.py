"""The amendments beside a statement: each whole, signed by its registrant, from runs that are as it says; and how they did.

They are scored by the original's rule, in rows of their own, and count in nobody's record: the first forecast is the promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical
from marin_scaling.check.ladder_records import ladder_step
from marin_scaling.check.notices import verified_notices
from marin_scaling.check.outcome import scores_of
from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.received import Receipts, known_at, own_receipts
from marin_scaling.check.signed_by import fingerprint_at, read_whole, require_signed
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.preregistration.amendment import (
    AMENDMENT_FILES,
    AMENDMENT_NAME,
    AMENDMENT_SIGNATURE_NAME,
    Amendment,
    amendment_names,
    read_amendment,
)
from marin_scaling.preregistration.notice import ENDING_KINDS, NOTICE_NAME
from marin_scaling.preregistration.registry import OUTCOME_NAME
from marin_scaling.preregistration.statement import Statement, moment_text, parse_moment, read_subject
from marin_scaling.regular_files import is_present


def verified_amendments(
    folder: Path, *, statement: Statement, allowed_signers: Path, receipts: Receipts | None = None
) -> list[Amendment]:
    """The amendments of the statement in `folder`, in order; `VerificationError` names the first that is not sound."""
    names = amendment_names(path.name for path in folder.iterdir())
    for number, name in enumerate(names, start=1):
        if name != f"amend-{number}":
            refuse(f"{folder / name} is there, and number {number} is not", fix="Restore the missing one from version control.")
    known = receipts or own_receipts(folder.parent)
    found = [_verified(folder / name, statement=statement, allowed_signers=allowed_signers, receipts=known) for name in names]
    for one, other in pairwise(found):
        if other.amended.created_at <= one.amended.created_at:
            refuse(f"{folder / other.name} is not younger than {one.name}", fix="Restore both from version control.")
        if other.steps_seen < one.steps_seen:
            refuse(
                f"{folder / other.name} says that {other.steps_seen} steps of the run had been seen, and {one.name} before it "
                f"{one.steps_seen}",
                fix="What was seen stays seen: restore both from version control, or make the later one again.",
            )
    for what, at in _endings(folder, statement=statement, allowed_signers=allowed_signers, receipts=known) if found else ():
        _require_before(found, folder=folder, what=what, at=at, receipts=known)
    return found


def amendment_steps(amendments: Sequence[Amendment], *, folder: Path, runs_dir: Path | None) -> list[VerifiedStep]:
    """A step for each, and one for its ladder, where there is a run store to compare it with."""
    return [step for each in amendments for step in _steps(each, folder=folder / each.name, runs_dir=runs_dir)]


def scored_amendments(
    amendments: Sequence[Amendment],
    *,
    folder: Path,
    value: float | None,
    finished_at: datetime | None,
    receipts: Receipts | None = None,
) -> list[dict[str, Any]]:
    """How each did against the value of the run; not scored where it came after the run's end, or the run diverged."""
    known = receipts or own_receipts(folder.parent)
    return [_scored(each, folder=folder, value=value, finished_at=finished_at, receipts=known) for each in amendments]


def amendments_text(scored: Sequence[Mapping[str, Any]]) -> str:
    """The same for a reader, to stand behind the verdict."""
    return "".join(_text(each) for each in scored)


def _verified(place: Path, *, statement: Statement, allowed_signers: Path, receipts: Receipts) -> Amendment:
    files, path = read_whole(place, names=AMENDMENT_FILES), place.parent / "target.json"
    target = read_subject(read_plain(path), name=path.name, path=str(path), version=statement.version)
    amendment = read_amendment(files, place=place, original=statement, target=target)
    require_signed(
        files[AMENDMENT_NAME],
        signature=files[AMENDMENT_SIGNATURE_NAME],
        path=place / AMENDMENT_SIGNATURE_NAME,
        principal=statement.predicate["registrant"],
        moments=[amendment.amended.created_at, _given_at(amendment, folder=place.parent, receipts=receipts)],
        allowed_signers=allowed_signers,
    )
    return amendment


def _endings(
    folder: Path, *, statement: Statement, allowed_signers: Path, receipts: Receipts
) -> Iterator[tuple[str, datetime]]:
    """What ended the forecast, after which nothing is forecast of that run, and when it was known at the latest."""
    for notice in verified_notices(folder, statement=statement, allowed_signers=allowed_signers, receipts=receipts):
        if notice.kind in ENDING_KINDS:
            yield notice.name, known_at(notice.at, f"{notice.name}/{NOTICE_NAME}", folder=folder, receipts=receipts)
    for checked_at in _checked_at(folder):
        yield OUTCOME_NAME, known_at(checked_at, OUTCOME_NAME, folder=folder, receipts=receipts)


def _require_before(amendments: Sequence[Amendment], *, folder: Path, what: str, at: datetime, receipts: Receipts) -> None:
    for each in amendments:
        given = _given_at(each, folder=folder, receipts=receipts)
        if given > at:
            refuse(
                f"{folder / each.name} was given at {moment_text(given)}, after {what} of {moment_text(at)}",
                fix="Take it out, if it is not merged: what has ended is not forecast again.",
            )


def _given_at(amendment: Amendment, *, folder: Path, receipts: Receipts) -> datetime:
    name = f"{amendment.name}/{AMENDMENT_NAME}"
    return known_at(amendment.amended.created_at, name, folder=folder, receipts=receipts)


def _checked_at(folder: Path) -> list[datetime]:
    """When the outcome was written, by its own word; empty where there is none."""
    path = folder / OUTCOME_NAME
    return [parse_moment(load_canonical(read_plain(path), name=str(path))["checked_at"])] if is_present(path) else []


def _steps(amendment: Amendment, *, folder: Path, runs_dir: Path | None) -> Iterator[VerifiedStep]:
    predicate = amendment.predicate
    key = fingerprint_at(folder / AMENDMENT_SIGNATURE_NAME)
    said = f"by {predicate['registrant']} with {key} at {predicate['createdAt']}, after {amendment.steps_seen} steps"
    yield VerifiedStep(what=amendment.name, evidence=f"{said}: {predicate['reason']}")
    if runs_dir is not None:
        path = folder / "ladder.json"
        ladder = read_subject(read_plain(path), name=path.name, path=str(path))
        yield replace(ladder_step(amendment.amended, ladder=ladder, where=str(path), runs_dir=runs_dir), what="its ladder")


def _scored(
    amendment: Amendment, *, folder: Path, value: float | None, finished_at: datetime | None, receipts: Receipts
) -> dict[str, Any]:
    amended, ended_at = amendment.amended, _ended_at(folder, finished_at=finished_at, receipts=receipts)
    given_at = _given_at(amendment, folder=folder, receipts=receipts)
    too_late = ended_at is not None and given_at >= ended_at
    scores = None if too_late else scores_of(amended, value=value)
    no_value = "the run has not ended" if ended_at is None else "the run has no value"
    return {
        "name": amendment.name,
        "created_at": amendment.predicate["createdAt"],
        "given_at": moment_text(given_at),
        "reason": amendment.predicate["reason"],
        "steps_seen": amendment.steps_seen,
        "point": amended.quantiles[0.5],
        "interval_90": [amended.quantiles[0.05], amended.quantiles[0.95]],
        "scores": asdict(scores) if scores else None,
        "why_not_scored": "it came after the run had ended" if too_late else "" if scores else no_value,
    }


def _ended_at(folder: Path, *, finished_at: datetime | None, receipts: Receipts) -> datetime | None:
    """When the run had ended at the latest: by its record, or, where that is not here, when its outcome was first known."""
    checked = _checked_at(folder)
    known = [finished_at, *checked, receipts.file_at(OUTCOME_NAME, folder=folder) if checked else None]
    return min([each for each in known if each is not None], default=None)


def _text(scored: Mapping[str, Any]) -> str:
    low, high = scored["interval_90"]
    said = f"; {scored['name']} after {scored['steps_seen']} steps: {scored['point']:.4f} ({low:.4f} to {high:.4f}), "
    scores = scored["scores"]
    if scores is None:
        return f"{said}not scored: {scored['why_not_scored']}"
    hit = "in" if scores["hit"] else "outside"
    return f"{said}error {scores['signed_error']:+.4f}, CRPS {scores['crps']:.4f}, {hit} its interval"
