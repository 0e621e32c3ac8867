"""Signed notices: withdrawal, void, deviation, correction of words, restart under another id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator

from marin_scaling.canonical_json import dump_canonical, load_canonical
from marin_scaling.errors import SigningError, VerificationError, refuse
from marin_scaling.files import publish_folder, read_bytes
from marin_scaling.preregistration.format import Principal
from marin_scaling.preregistration.layout import _NOTICE_FOLDER, NOTICE_NAME, NOTICE_SIGNATURE_NAME, OUTCOME_NAME, notice_names
from marin_scaling.preregistration.log import Receipts, Trust, known_at
from marin_scaling.preregistration.outcome import State, Verdict, VerifiedStep, verdict_of
from marin_scaling.preregistration.outside_format import RunName
from marin_scaling.preregistration.registry import (
    claimant,
    read_registration,
    read_subject_in,
    read_whole,
    run_key,
    signers_path,
)
from marin_scaling.preregistration.signing.allowed_signers import (
    fingerprint_at,
    listed_people,
    require_may_sign,
    require_signed,
)
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import (
    Statement,
    moment_text,
    parse_moment,
    require_sound_forecast,
    sorted_quantiles,
)
from marin_scaling.strict_model import SHA256, Day, Moment, One, Part, Positive, Reason, Steps, Text, check_document
from marin_scaling.units import format_count
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.signing.keys import SigningKey
    from marin_scaling.run.spec import RunSpec

Kind = Literal["withdraw", "void", "deviate", "correct", "restart"]
KINDS: tuple[Kind, ...] = ("withdraw", "void", "deviate", "correct", "restart")
ENDING_KINDS: tuple[Kind, ...] = ("withdraw", "void")
"""Kinds of notices that end a forecast."""


class _Notice(Part):
    format_version: One
    statement_sha256: SHA256
    """SHA-256 of the statement in the folder above"""
    by: Principal
    """the person who signs: the registrant withdraws, the resolver voids, either declares a restart, any signer a deviation"""
    at: Moment
    """time of signing, by that person's clock (UTC)"""
    reason: Reason
    """reason, in that person's words"""
    target_steps_seen: Steps
    """steps of the run's loss that person had seen, as claimed"""


class Withdrawal(_Notice):
    """A notice that withdraws a forecast."""

    kind: Literal["withdraw"]


class Void(_Notice):
    """A notice that a forecast is void."""

    kind: Literal["void"]
    condition: Text
    """the condition of the statement's `voidIf` that came true, word by word, only in `void`"""
    evidence: Text = ""
    """place of the evidence, not in `withdraw`"""


class Deviation(_Notice):
    """A notice that the run left its recipe."""

    kind: Literal["deviate"]
    from_step: Steps | None = None
    """the first step that differs, in `deviate`; the first step of the new id, in `restart`"""
    from_tokens: Positive | None = None
    """trained tokens from which it differs or the new id continues, if there is no `from_step`"""
    changed_on: Day | None = None
    """day of the change, only in `deviate`"""
    quantiles: dict[str, float] | None = None
    """23 quantiles by level of the registrant's forecast under this change, only in `deviate`; scored in a row of its own"""
    evidence: Text = ""
    """place of the evidence, not in `withdraw`"""


class Correction(_Notice):
    """A notice that corrects words of the statement that decide nothing."""

    kind: Literal["correct"]
    was: Reason
    """an assumption, a known difference or a related run, word by word as in the statement, only in `correct`"""
    reads: Reason
    """the corrected words, with the same numbers, only in `correct`"""


class Restart(_Notice):
    """A notice that an outside run continues under another id."""

    kind: Literal["restart"]
    continues: RunName
    """id of the run that stopped: the promised one, or that of the restart before, only in `restart`"""
    run: RunName
    """id under which the run continues, only in `restart`"""
    from_step: Steps | None = None
    """first step of the new id"""
    from_tokens: Positive | None = None
    """trained tokens from which the new id continues, if there is no `from_step`"""
    evidence: Text = ""
    """place of the evidence, not in `withdraw`"""


NoticeFile = Annotated[Withdrawal | Void | Deviation | Correction | Restart, Discriminator("kind")]
"""The content of `notice.json`."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Signed notice; `name` is its folder."""

    name: str
    document: Mapping[str, Any]
    received_at: datetime | None = None
    """Time from which a verified notice counts: its own, or that of its receipt if that is later."""

    @property
    def kind(self) -> str:
        """Kind of notice, one of `KINDS`."""
        return str(self.document["kind"])

    @property
    def sentence(self) -> str:
        """Author, time and reason; also the place of a deviation, the ids of a restart, both wordings of a correction."""
        since = f"{self.place}: " if self.kind in ("deviate", "restart") else ""
        if self.kind == "correct":
            since = f"{self.document['was']!r} should read {self.document['reads']!r}: "
        return f"by {self.document['by']} at {self.document['at']}: {since}{self.document['reason']}{self._forecast}"

    @property
    def _forecast(self) -> str:
        """Median and 90 % interval of the registrant's forecast under a deviation; empty without one."""
        if self.document.get("quantiles") is None:
            return ""
        quantiles = sorted_quantiles(self.document["quantiles"])
        low, median, high = (quantiles[level] for level in (0.05, 0.5, 0.95))
        return f"; forecast under this change: {median:.4f} ({low:.4f} to {high:.4f})"

    @property
    def place(self) -> str:
        """Step or tokens of a deviation or a restart, with the day of a deviation or the ids of a restart."""
        step, tokens = (self.document.get(key) for key in ("from_step", "from_tokens"))
        since = f"from step {step}" if tokens is None else f"from {format_count(tokens)} tokens"
        if self.kind == "restart":
            return f"{since}, {self.document['continues']} as {self.document['run']}"
        return f"{since} on {self.document['changed_on']}" if self.document.get("changed_on") else since

    @property
    def at(self) -> datetime:
        """Time of the notice as its author states it (UTC)."""
        return parse_moment(self.document["at"])


def give_notice(folder: Path, kind: Kind, *, key: SigningKey, principal: str, at: datetime, reason: str, **said: Any) -> Path:
    """Write a signed notice beside the statement in `folder`; return its folder.

    `said` are further keys of `NoticeFile`. `SigningError` if that person may not give this notice, `VerificationError` if
    `allowed_signers` does not list their key, `DocumentError` for invalid content.
    """
    statement, names = read_registration(folder), notice_names(path.name for path in folder.iterdir())
    _require_in_run(said, folder=folder)
    if kind == "restart":
        said["continues"] = _require_free_run(said["run"], folder=folder)
    name = f"notice-{len(names) + 1}-{kind}"
    document = {
        "format_version": 1,
        "kind": kind,
        "statement_sha256": statement.sha256,
        "by": principal,
        "at": moment_text(at),
        "reason": reason,
        "target_steps_seen": 0,
        **{key_said: value for key_said, value in said.items() if value is not None},
    }
    raw = dump_canonical(document)
    try:
        read_notice(raw, name=name, statement=statement)
    except VerificationError as error:
        raise SigningError(
            error.lines,
            why=error.why,
            fix="Nothing was written. The permitted author signs (--as NAME --key KEY) with words of the statement.",
        ) from error
    _require_new(document, folder=folder)
    require_may_sign(signers_path(folder), principal=principal, key=key.public_key, namespace=NAMESPACE, at=at)
    publish_folder(folder / name, {NOTICE_NAME: raw, NOTICE_SIGNATURE_NAME: key.sign(raw)})
    return folder / name


def ending_names(folder: Path) -> list[str]:
    """Return the notices in `folder` that withdrew or voided its forecast."""
    return [name for name in notice_names(path.name for path in folder.iterdir()) if name.endswith(ENDING_KINDS)]


def require_not_ended(folder: Path) -> None:
    """Raise `SigningError` if the forecast in `folder` was withdrawn or voided."""
    if ended := ending_names(folder):
        raise SigningError(
            f"{folder} has ended with {ended[0]}.",
            why="An ended forecast is neither amended nor answered by a run.",
            fix="Register a forecast of the next run.",
        )


def _require_free_run(run: str, *, folder: Path) -> str:
    """Return the run that is continued as `run`; `SigningError` if that id is taken by this or another forecast."""
    outcome = read_subject_in(folder, "target.json").get("outcome")
    if outcome is None:
        raise SigningError(
            f"{folder.name} forecasts a run of this tool, which resumes under its own id.",
            fix="If the run left its recipe: marin-scale registry deviate",
        )
    known = [outcome["run"], *(str(each.document["run"]) for each in _notices_in(folder, "restart"))]
    other = claimant(folder.parent, run=run_key(outcome, run=run), promised=run_key(outcome))
    if run in known or other:
        raise SigningError(
            f"{run} is the run of {other or folder}.",
            why="Each restart has an id of its own, and one run cannot answer forecasts of two runs.",
            fix="Name the id under which the run continues: --restarted-as ID",
        )
    return str(known[-1])


def _notices_in(folder: Path, kind: str) -> list[Notice]:
    """Return the notices of one kind in a verified folder."""
    statement, names = read_registration(folder), notice_names(path.name for path in folder.iterdir())
    raw = {name: read_bytes(folder / name / NOTICE_NAME) for name in names if name.endswith(f"-{kind}")}
    return [read_notice(content, name=name, statement=statement) for name, content in raw.items()]


_OF_SIGNATURE = ("by", "at", "target_steps_seen")
"""Keys of a notice that belong to its signature and not to its content."""


def _require_new(document: Mapping[str, Any], *, folder: Path) -> None:
    """Raise `SigningError` if a notice in `folder` has the same content."""
    for each in _notices_in(folder, document["kind"]):
        if all(document.get(key) == each.document.get(key) for key in {*document, *each.document} - {*_OF_SIGNATURE}):
            raise SigningError(
                f"{folder / each.name} has the same content, signed by {each.document['by']} at {each.document['at']}.",
                why="Nothing was written: each notice is shown with the score.",
                fix=f"See it: marin-scale verify {folder.name}. For another change, name its step, tokens or reason.",
            )


def _planned_steps(folder: Path) -> int | None:
    """Return the planned steps of an outside run whose curve was forecast, if they were stated."""
    steps: int | None = (read_subject_in(folder, "ladder.json").get("curves") or {}).get("train_steps")
    return steps


def _require_past(day: str) -> None:
    """Raise `SigningError` for a day that has begun nowhere; another text than a day is refused with the notice."""
    latest = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    if day[:1].isdigit() and day > latest:
        raise SigningError(
            f"--on {day}: the latest possible day is {latest}.",
            why="A notice tells of a change that was made.",
            fix="Sign it on the day of the change, or leave --on out.",
        )


def _require_in_run(said: Mapping[str, Any], *, folder: Path) -> None:
    target = read_subject_in(folder, "target.json")
    from_step, from_tokens = said.get("from_step") or 0, said.get("from_tokens") or 0
    _require_past(str(said.get("changed_on") or ""))
    steps, tokens = target.get("train_steps") or _planned_steps(folder), target.get("tokens")
    if tokens is not None and from_tokens >= tokens:
        raise SigningError(
            f"--from-tokens {from_tokens:g}: the run of {folder.name} has {tokens:g} tokens.",
            fix="Name the tokens that were trained before the change.",
        )
    if steps is not None and from_step >= steps:
        raise SigningError(
            f"--from-step {from_step}: the run of {folder.name} has {steps} steps, 0 to {steps - 1}.",
            why="A change or a restart is at a step of the run.",
            fix="Name the first step of the change or of the new id, counted from 0.",
        )


def read_notice(raw: bytes, *, name: str, statement: Statement) -> Notice:
    """Return the notice in the bytes of a `notice.json` about this statement; its signature is not checked.

    `VerificationError` for another statement, or an author who may not give it.
    """
    document = load_canonical(raw, name=name)
    check_document(document, NoticeFile, name=name)
    notice = Notice(name=Path(name).name if not name.endswith(NOTICE_NAME) else Path(name).parent.name, document=document)
    _require_place(notice, statement=statement, where=name)
    _require_right(notice, statement=statement, where=name)
    return notice


def _require_place(notice: Notice, *, statement: Statement, where: str) -> None:
    match = _NOTICE_FOLDER.fullmatch(notice.name)
    if match is None or match[2] != notice.kind:
        _refuse(where, f"it says {notice.kind!r}, and its folder is {notice.name}")
    if notice.document["statement_sha256"] != statement.sha256:
        _refuse(where, "it is about another statement")
    if notice.at < statement.created_at:
        _refuse(where, f"it was given at {notice.document['at']}, before the statement was made")


def _require_right(notice: Notice, *, statement: Statement, where: str) -> None:
    registrant, by = statement.predicate["registrant"], notice.document["by"]
    if notice.kind == "withdraw" and by != registrant:
        _refuse(where, f"{by} takes back what {registrant} promised")
    if notice.kind == "correct":
        _require_words_only(notice, registrant=registrant, statement=statement, where=where)
    if notice.kind == "restart":
        _require_restart(notice, statement=statement, where=where)
    if notice.kind == "deviate":
        _require_one_place(notice, where=where)
        if notice.document.get("quantiles") is not None:
            if by != registrant:
                _refuse(where, f"{by} forecasts the run of {registrant}")
            require_sound_forecast(conditional_statement(notice, statement))
    if notice.kind == "void":
        resolution = statement.predicate["resolution"]
        if by != resolution["resolver"] or by == registrant:
            _refuse(where, f"{by} is not its resolver, or is its registrant, too ({resolution['resolver']} resolves it)")
        if notice.document["condition"] not in resolution["voidIf"]:
            listed = "; ".join(resolution["voidIf"]) or "none"
            _refuse(where, f"{notice.document['condition']!r} is none of the conditions that the statement names: {listed}")


def _require_restart(notice: Notice, *, statement: Statement, where: str) -> None:
    """Refuse a restart by another person, of a run of this tool, or from no place or two."""
    registrant, resolver = statement.predicate["registrant"], statement.predicate["resolution"]["resolver"]
    if notice.document["by"] not in (registrant, resolver):
        _refuse(where, f"{notice.document['by']} is neither its registrant {registrant} nor its resolver {resolver}")
    if not statement.is_outside:
        _refuse(where, "a run of this tool has no other id")
    _require_one_place(notice, where=where)


def conditional_statement(notice: Notice, statement: Statement) -> Statement:
    """Return the statement with the forecast of a deviation instead."""
    quantiles = notice.document["quantiles"]
    forecast = {**statement.predicate["forecast"], "quantiles": quantiles, "point": sorted_quantiles(quantiles).get(0.5)}
    return replace(statement, document={**statement.document, "predicate": {**statement.predicate, "forecast": forecast}})


def _require_one_place(notice: Notice, *, where: str) -> None:
    given = [key for key in ("from_step", "from_tokens") if notice.document.get(key) is not None]
    if len(given) != 1:
        _refuse(where, f"it has {' and '.join(given) or 'neither from_step nor from_tokens'}, and one of the two is required")


def _require_words_only(notice: Notice, *, registrant: str, statement: Statement, where: str) -> None:
    """Refuse a correction of anything that decides an outcome: numbers, due date, resolver, void conditions."""
    was, reads, predicate = notice.document["was"], notice.document["reads"], statement.predicate
    if notice.document["by"] != registrant:
        _refuse(where, f"{notice.document['by']} corrects words of {registrant}")
    words = [
        *(each[key] for each in predicate["assumptions"] for key in ("text", "ifFalse")),
        *predicate["recipe"]["knownDifferencesFromLadder"],
        *predicate["knowledge"]["relatedRunsSeen"],
    ]
    if was not in words:
        _refuse(where, f"{was!r} is no assumption, known difference or related run of the statement")
    numbers = [Counter(_NUMBER.findall(text)) for text in (was, reads)]
    if was == reads or numbers[0] != numbers[1]:
        _refuse(where, f"it must change words and no number: {was!r}, {reads!r}")


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?")


def _refuse(where: str, reason: str) -> None:
    raise VerificationError(
        f"{where}: {reason}.",
        why="Each kind of notice has one permitted author and fixed conditions.",
        fix="Remove the notice, or let its permitted author sign it: marin-scale registry withdraw, void, deviate, correct or "
        "restart",
    )


def verified_notices(folder: Path, *, statement: Statement, trust: Trust) -> list[Notice]:
    """Return the notices about the statement in `folder`, in order; `VerificationError` names the first that is not sound."""
    names = notice_names(path.name for path in folder.iterdir())
    for number, name in enumerate(names, start=1):
        if not name.startswith(f"notice-{number}-"):
            refuse(f"{folder / name} is there, and number {number} is not", fix="Restore the missing one from version control.")
    found = [_verified(folder / name, statement=statement, trust=trust) for name in names]
    _require_lineage(restarts_of(found), folder=folder)
    return found


def restarts_of(notices: Sequence[Notice]) -> list[Notice]:
    """Return the restarts among these notices, in their order."""
    return [each for each in notices if each.kind == "restart"]


def _require_lineage(restarts: Sequence[Notice], *, folder: Path) -> None:
    """Require that each restart continues the one before, under an id that no earlier one had."""
    known = [read_subject_in(folder, "target.json")["outcome"]["run"]] if restarts else []
    for each in restarts:
        if each.document["continues"] != known[-1]:
            _refuse(str(folder / each.name), f"it continues {each.document['continues']}, and the run before it is {known[-1]}")
        if each.document["run"] in known:
            _refuse(str(folder / each.name), f"{each.document['run']} is an earlier run of the same forecast")
        known.append(each.document["run"])


def notice_steps(notices: Sequence[Notice], *, folder: Path) -> list[VerifiedStep]:
    """Return a step for each notice of `folder`."""
    keys = [fingerprint_at(folder / notice.name / NOTICE_SIGNATURE_NAME) for notice in notices]
    return [
        VerifiedStep(what=notice.kind, evidence=f"with {key}, {notice.sentence}")
        for notice, key in zip(notices, keys, strict=True)
    ]


def _verified(place: Path, *, statement: Statement, trust: Trust) -> Notice:
    files, path = read_whole(place, names=(NOTICE_NAME, NOTICE_SIGNATURE_NAME)), place / NOTICE_SIGNATURE_NAME
    raw, signature = files[NOTICE_NAME], files[NOTICE_SIGNATURE_NAME]
    notice = read_notice(raw, name=str(place / NOTICE_NAME), statement=statement)
    by = notice.document["by"]
    moments = [notice.at, known_at(notice.at, f"{place.name}/{NOTICE_NAME}", folder=place.parent, receipts=trust.receipts)]
    require_signed(raw, signature=signature, path=path, principal=by, moments=moments, allowed_signers=trust.allowed_signers)
    registrant = statement.predicate["registrant"]
    if notice.kind == "void" and listed_people(trust.allowed_signers).are_one(by, registrant):
        refuse(
            f"{place / NOTICE_NAME}: {by} and the registrant {registrant} are one person, "
            f"by the keys in {trust.allowed_signers}",
            fix="Remove the notice: only a resolver who is someone else finds a forecast void.",
        )
    return replace(notice, received_at=moments[1])


def ended_by(
    notices: Sequence[Notice],
    *,
    folder: Path,
    statement: Statement,
    spec: RunSpec | None,
    runs_dir: Path,
    receipts: Receipts,
) -> Verdict | None:
    """Return the verdict of a forecast that was withdrawn or voided; None for any other. `spec` is None for an outside run."""
    for notice in notices:
        said = notice.sentence
        if notice.kind == "void":
            return verdict_of(
                statement, state=State.VOID, sentence=f"void ({notice.document['condition']}), {said}", outcome=None
            )
        if notice.kind == "withdraw" and (
            late := _too_late(notice, folder=folder, statement=statement, spec=spec, runs=runs_dir, receipts=receipts)
        ):
            sentence = f"withdrawn after {late}, which counts as missed, {said}"
            return verdict_of(statement, state=State.WITHDRAWN_LATE, sentence=sentence, outcome=None)
        if notice.kind == "withdraw":
            return verdict_of(statement, state=State.WITHDRAWN, sentence=f"withdrawn before its run, {said}", outcome=None)
    return None


def _too_late(
    notice: Notice, *, folder: Path, statement: Statement, spec: RunSpec | None, runs: Path, receipts: Receipts
) -> str | None:
    """Return what had happened before a withdrawal, so that it counts as missed; None if nothing had."""
    at = known_at(notice.at, f"{notice.name}/{NOTICE_NAME}", folder=folder, receipts=receipts)
    if (
        notice.document["target_steps_seen"]
        or is_present(folder / OUTCOME_NAME)
        or (spec is not None and _had_begun(spec, runs=runs, at=at))
    ):
        return "its run began"
    return "it was due" if statement.is_overdue(at=at) else None


def _had_begun(spec: RunSpec, *, runs: Path, at: datetime) -> bool:
    from marin_scaling.run.store import is_finished, read_run, run_folder

    return is_finished(runs, spec) and parse_moment(read_run(run_folder(runs, spec)).record.started_at) <= at


def deviations(notices: Sequence[Notice], *, folder: Path, outcome: Mapping[str, Any] | None, receipts: Receipts) -> str:
    """Return the deviations of the run as text to append to its score, with those signed after its outcome; empty without."""
    checked = parse_moment(outcome["checked_at"]) if outcome else None
    known = checked and known_at(checked, OUTCOME_NAME, folder=folder, receipts=receipts)
    said = [
        f"{each.place} (signed {each.document['at'][:10]}{', after the outcome' * _is_after(each, known)}): "
        f"{each.document['reason']}"
        for each in notices
        if each.kind == "deviate"
    ]
    return f"; its run left the recipe {'; '.join(said)}" if said else ""


def _is_after(notice: Notice, moment: datetime | None) -> bool:
    return moment is not None and notice.received_at is not None and notice.received_at > moment


def restarts_text(notices: Sequence[Notice]) -> str:
    """Return the restarts of the run under other ids as text to append to a verdict; empty if there are none."""
    said = [f"{each.place}: {each.document['reason']}" for each in restarts_of(notices)]
    return f"; its run was restarted {'; '.join(said)}" if said else ""
