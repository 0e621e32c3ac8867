"""Amendments: later forecasts of a registered run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from marin_scaling.canonical_json import dump_canonical, has_digest, load_canonical, sha256_hex
from marin_scaling.errors import SigningError, VerificationError, refuse
from marin_scaling.files import publish_folder, read_bytes, read_plain
from marin_scaling.git import restoring
from marin_scaling.preregistration.events.notice import ENDING_KINDS, Notice, conditional_statement, require_not_ended
from marin_scaling.preregistration.format import STATEMENT_TYPE, Digest, Fit, Forecast, Principal, Tool
from marin_scaling.preregistration.ladder_records import ladder_step
from marin_scaling.preregistration.layout import (
    AMENDMENT_FILES,
    AMENDMENT_NAME,
    AMENDMENT_SIGNATURE_NAME,
    NOTICE_NAME,
    OUTCOME_NAME,
    SUBJECT_NAMES,
    amendment_names,
)
from marin_scaling.preregistration.log import Receipts, Trust, known_at
from marin_scaling.preregistration.outcome import VerifiedStep, scores_of
from marin_scaling.preregistration.register import ladder_document, tool_document, usual_ladder_rule
from marin_scaling.preregistration.registry import read_registration, read_subject_in, read_whole, signers_path
from marin_scaling.preregistration.signing.allowed_signers import fingerprint_at, require_may_sign, require_signed
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import (
    Statement,
    agrees,
    amended_fields,
    moment_text,
    parse_moment,
    read_subject,
    require_samples_of,
    require_sound_forecast,
    thinned,
)
from marin_scaling.strict_model import SHA256, Camel, Moment, OneOf, Part, Reason, Steps, check_document
from marin_scaling.untrusted_files import is_present

AMENDMENT_TYPE = "urn:marin-scaling:amendment:v1"


class AmendedSubject(Part):
    """A file beside the amendment, by digest."""

    name: Annotated[str, OneOf(SUBJECT_NAMES)]
    digest: Digest


class StepsSeen(Camel):
    """Steps of the run that the registrant had seen."""

    target_run_steps_seen: Steps
    """steps of the run's loss that the registrant had seen, as claimed; fewer than the run has"""


class AmendmentPredicate(Camel):
    """Content of an amendment."""

    kind: Literal["amend"]
    """a later forecast of a run that has one"""
    supersedes: SHA256
    """SHA-256 of the statement in the folder above"""
    registrant: Principal
    """the person who signs: the registrant of that statement"""
    created_at: Moment
    """time of creation, by the registrant's clock (UTC)"""
    reason: Reason
    """reason, in the registrant's words"""
    tool: Tool
    knowledge: StepsSeen
    forecast: Forecast
    fit: Fit


class AmendmentFile(Part):
    """The content of `amendment.json`."""

    type: Annotated[str, OneOf((STATEMENT_TYPE,))] = Field(alias="_type")
    subject: list[AmendedSubject]
    predicate_type: Annotated[str, OneOf((AMENDMENT_TYPE,))] = Field(alias="predicateType")
    predicate: AmendmentPredicate


_MADE_ANEW = ("createdAt", "tool", "forecast", "fit")


@dataclass(frozen=True, kw_only=True)
class Amendment:
    """Later forecast: name of its folder, content of its files, and the original statement with this forecast instead."""

    name: str
    predicate: Mapping[str, Any]
    subjects: Mapping[str, Any]
    amended: Statement
    given_at: datetime | None = None
    """Time from which a conditional forecast counts; None for an amendment, whose time is that of its file."""

    @property
    def steps_seen(self) -> int:
        """Steps of the target's loss that the registrant had seen, as claimed."""
        return int(self.predicate["knowledge"]["targetRunStepsSeen"])


def read_amendment(files: Mapping[str, bytes], *, place: Path, original: Statement, target: Mapping[str, Any]) -> Amendment:
    """Return the amendment in these files (name to bytes) of the folder `place`; its signature is not checked.

    `VerificationError` or `StatementError` for another statement, another person, or contradicting files.
    """
    where = str(place / AMENDMENT_NAME)
    document = load_canonical(files[AMENDMENT_NAME], name=where)
    check_document(document, AmendmentFile, name=where)
    predicate = document["predicate"]
    _require_about(predicate, original=original, target=target, where=where)
    _require_digests(document["subject"], files, place=place)
    subjects = {name: read_subject(files[name], name=name, path=str(place / name)) for name in SUBJECT_NAMES}
    view = {**original.predicate, **{key: predicate[key] for key in _MADE_ANEW}}
    amended = Statement(raw=files[AMENDMENT_NAME], document={**document, "predicate": view})
    require_sound_forecast(amended)
    for part, fields in amended_fields({**subjects, "target.json": target}).items():
        for key, value in fields.items():
            if not agrees(value, predicate[part][key]):
                _refuse(where, f"{part}.{key} is {predicate[part][key]!r}, and its files say {value!r}")
    require_samples_of(subjects["samples.json"]["losses"], amended.quantiles)
    return Amendment(name=place.name, predicate=predicate, subjects=subjects, amended=amended)


def _require_about(predicate: Mapping[str, Any], *, original: Statement, target: Mapping[str, Any], where: str) -> None:
    if predicate["supersedes"] != original.sha256:
        _refuse(where, "it amends another statement")
    if predicate["registrant"] != original.predicate["registrant"]:
        _refuse(where, f"{predicate['registrant']} amends what {original.predicate['registrant']} promised")
    if parse_moment(predicate["createdAt"]) <= original.created_at:
        _refuse(where, f"it was made at {predicate['createdAt']}, not after the statement that it amends")
    seen = predicate["knowledge"]["targetRunStepsSeen"]
    if seen >= target["train_steps"]:
        _refuse(where, f"{seen} steps of the target had been seen, and it has {target['train_steps']}")


def _require_digests(subjects: Sequence[Mapping[str, Any]], files: Mapping[str, bytes], *, place: Path) -> None:
    where = str(place / AMENDMENT_NAME)
    promised = {subject["name"]: subject["digest"]["sha256"] for subject in subjects}
    if tuple(sorted(promised)) != SUBJECT_NAMES or len(subjects) != len(SUBJECT_NAMES):
        _refuse(where, f"its files are {sorted(promised)}, not {list(SUBJECT_NAMES)}")
    for name, digest in promised.items():
        if (found := sha256_hex(files[name])) != digest:
            refuse(
                f"{place / name} was changed after signing: it has the digest {found}, and {AMENDMENT_NAME} promises {digest}",
                fix=restoring(place / name, fits=partial(has_digest, digest=digest)),
            )


def _refuse(where: str, reason: str) -> None:
    raise VerificationError(
        f"{where}: {reason}.",
        why="Only the registrant can forecast the same run again, and only before it ends.",
        fix="Restore the file from version control, or make another: marin-scale registry amend",
    )


def amend(
    folder: Path,
    *,
    rows: Sequence[Mapping[str, Any]],
    forecast: Mapping[str, Any],
    losses: Sequence[float],
    key: SigningKey,
    principal: str,
    at: datetime,
    reason: str,
    steps_seen: int,
) -> Path:
    """Write a signed amendment beside the statement in `folder`; return its folder.

    `rows`, `forecast` and `losses` as in `Evidence`. `SigningError` after the run's end or for another person than the
    registrant, `StatementError` if the files have no forecast of that target.
    """
    require_open(folder)
    original, target = read_registration(folder), read_subject_in(folder, "target.json")
    documents = _documents(rows, forecast, losses, original=original)
    files = {name: dump_canonical(document) for name, document in documents.items()}
    said = {
        "kind": "amend",
        "supersedes": original.sha256,
        "registrant": principal,
        "createdAt": moment_text(at),
        "reason": reason,
        "knowledge": {"targetRunStepsSeen": steps_seen},
    }
    raw = _statement(said, {**documents, "target.json": target}, files=files)
    earlier = amendment_names(each.name for each in folder.iterdir())
    _require_another(files["forecast.json"], standing=folder / earlier[-1] if earlier else folder)
    if earlier:
        _require_no_fewer_seen(steps_seen, standing=folder / earlier[-1])
    place = folder / f"amend-{len(earlier) + 1}"
    try:
        read_amendment({**files, AMENDMENT_NAME: raw}, place=place, original=original, target=target)
    except VerificationError as error:
        raise SigningError(
            error.lines,
            why=error.why,
            fix="Nothing was written. Sign as the registrant, before the run ends: --as NAME --key KEY",
        ) from error
    require_may_sign(signers_path(folder), principal=principal, key=key.public_key, namespace=NAMESPACE, at=at)
    publish_folder(place, {**files, AMENDMENT_NAME: raw, AMENDMENT_SIGNATURE_NAME: key.sign(raw)})
    return place


def require_open(folder: Path) -> None:
    """Raise `SigningError` if the forecast in `folder` has an outcome, or was withdrawn or voided."""
    require_not_ended(folder)
    if is_present(folder / OUTCOME_NAME):
        raise SigningError(
            f"{folder} has an outcome.", why="A known loss cannot be forecast.", fix="Register a forecast of the next run."
        )


def _require_another(forecast: bytes, *, standing: Path) -> None:
    """Raise `SigningError` if the forecast equals the standing one."""
    if read_bytes(standing / "forecast.json") == forecast:
        raise SigningError(
            f"The forecast would equal {standing} in every number.",
            why="A later forecast needs new runs or a new version.",
            fix="Add budgets to the ladder file and train them first.",
        )


def _require_no_fewer_seen(steps_seen: int, *, standing: Path) -> None:
    """Raise `SigningError` if fewer steps are claimed as seen than in the earlier amendment."""
    path = standing / AMENDMENT_NAME
    then = load_canonical(read_bytes(path), name=str(path))["predicate"]["knowledge"]["targetRunStepsSeen"]
    if steps_seen < then:
        raise SigningError(
            f"--steps-seen {steps_seen} is less than the {then} steps of {standing.name}.",
            why="The number of seen steps cannot decrease.",
            fix=f"Use --steps-seen {then} or more.",
        )


def _documents(
    rows: Sequence[Mapping[str, Any]], forecast: Mapping[str, Any], losses: Sequence[float], *, original: Statement
) -> dict[str, Any]:
    run, metric = original.predicate["targetRun"], forecast["metric"]
    samples = {"format_version": 1, "metric": metric, "flops": run["flops"], "losses": thinned(losses)}
    ladder = ladder_document(rows, ladder=run["ladder"], metric=metric)
    return {"forecast.json": dict(forecast), "ladder.json": ladder, "samples.json": samples}


def _statement(said: Mapping[str, Any], documents: Mapping[str, Any], *, files: Mapping[str, bytes]) -> bytes:
    fields = amended_fields(documents)
    fields["fit"]["ladderRule"] = usual_ladder_rule(documents["ladder.json"]["ladder"])
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in SUBJECT_NAMES],
        "predicateType": AMENDMENT_TYPE,
        "predicate": {**said, "tool": tool_document(), **fields},
    }
    return dump_canonical(statement)


def verified_amendments(
    folder: Path, *, statement: Statement, target: Mapping[str, Any], notices: Sequence[Notice], trust: Trust
) -> list[Amendment]:
    """Return the amendments of the statement in `folder`, in order; `VerificationError` names the first that is not sound."""
    names = amendment_names(path.name for path in folder.iterdir())
    for number, name in enumerate(names, start=1):
        if name != f"amend-{number}":
            refuse(f"{folder / name} is there, and number {number} is not", fix="Restore the missing one from version control.")
    found = [_verified(folder / name, statement=statement, target=target, trust=trust) for name in names]
    for one, other in pairwise(found):
        if other.amended.created_at <= one.amended.created_at:
            refuse(f"{folder / other.name} is not younger than {one.name}", fix="Restore both from version control.")
        if other.steps_seen < one.steps_seen:
            refuse(
                f"{folder / other.name} says that {other.steps_seen} steps of the run had been seen, and {one.name} before it "
                f"{one.steps_seen}",
                fix="What was seen stays seen: restore both from version control, or make the later one again.",
            )
    for what, at in _endings(folder, notices=notices, receipts=trust.receipts) if found else ():
        _require_before(found, folder=folder, what=what, at=at, receipts=trust.receipts)
    return found


def amendment_steps(amendments: Sequence[Amendment], *, folder: Path, runs_dir: Path | None) -> list[VerifiedStep]:
    """Return a step for each amendment, and one for its ladder if there is a run store."""
    return [step for each in amendments for step in _steps(each, folder=folder / each.name, runs_dir=runs_dir)]


def scored_amendments(
    amendments: Sequence[Amendment],
    *,
    folder: Path,
    value: float | None,
    finished_at: datetime | None,
    receipts: Receipts,
) -> list[dict[str, Any]]:
    """Return each amendment's scores; none for an amendment after the run's end or for a diverged run."""
    ended_at = _ended_at(folder, finished_at=finished_at, receipts=receipts) if amendments else None
    return [_scored(each, folder=folder, value=value, ended_at=ended_at, receipts=receipts) for each in amendments]


def conditional_forecasts(notices: Sequence[Notice], *, statement: Statement) -> list[Amendment]:
    """Return the forecasts in verified notices of deviations, to be scored like amendments."""
    return [
        Amendment(
            name=f"conditional on {each.name}",
            predicate={
                "createdAt": each.document["at"],
                "reason": f"{each.place}: {each.document['reason']}",
                "knowledge": {"targetRunStepsSeen": each.document["target_steps_seen"]},
            },
            subjects={},
            amended=conditional_statement(each, statement),
            given_at=each.received_at or each.at,
        )
        for each in notices
        if each.document.get("quantiles") is not None
    ]


def amendments_text(scored: Sequence[Mapping[str, Any]]) -> str:
    """Return the scored amendments as text to append to a verdict."""
    return "".join(_text(each) for each in scored)


def _verified(place: Path, *, statement: Statement, target: Mapping[str, Any], trust: Trust) -> Amendment:
    files = read_whole(place, names=AMENDMENT_FILES)
    amendment = read_amendment(files, place=place, original=statement, target=target)
    require_signed(
        files[AMENDMENT_NAME],
        signature=files[AMENDMENT_SIGNATURE_NAME],
        path=place / AMENDMENT_SIGNATURE_NAME,
        principal=statement.predicate["registrant"],
        moments=[amendment.amended.created_at, _given_at(amendment, folder=place.parent, receipts=trust.receipts)],
        allowed_signers=trust.allowed_signers,
    )
    return amendment


def _endings(folder: Path, *, notices: Sequence[Notice], receipts: Receipts) -> Iterator[tuple[str, datetime]]:
    """Yield the events that ended the forecast, with the latest time at which they were known."""
    for notice in notices:
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
    if amendment.given_at is not None:
        return amendment.given_at
    return known_at(amendment.amended.created_at, name, folder=folder, receipts=receipts)


def _checked_at(folder: Path) -> list[datetime]:
    """Return the time of the outcome as stated in its file; empty without an outcome."""
    path = folder / OUTCOME_NAME
    return [parse_moment(load_canonical(read_plain(path), name=str(path))["checked_at"])] if is_present(path) else []


def _steps(amendment: Amendment, *, folder: Path, runs_dir: Path | None) -> Iterator[VerifiedStep]:
    predicate = amendment.predicate
    key = fingerprint_at(folder / AMENDMENT_SIGNATURE_NAME)
    said = f"by {predicate['registrant']} with {key} at {predicate['createdAt']}, after {amendment.steps_seen} steps"
    yield VerifiedStep(what=amendment.name, evidence=f"{said}: {predicate['reason']}")
    if runs_dir is not None:
        ladder, where = amendment.subjects["ladder.json"], str(folder / "ladder.json")
        yield replace(ladder_step(amendment.amended, ladder=ladder, where=where, runs_dir=runs_dir), what="its ladder")


def _scored(
    amendment: Amendment, *, folder: Path, value: float | None, ended_at: datetime | None, receipts: Receipts
) -> dict[str, Any]:
    amended, given_at = amendment.amended, _given_at(amendment, folder=folder, receipts=receipts)
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
    """Return the latest time of the run's end: from its record, else from the first sign of its outcome."""
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
