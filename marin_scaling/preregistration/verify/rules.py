"""Rules of a registry for its preregistrations: its policy file, and agreement of log and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path

from pydantic import Field

from marin_scaling.canonical_json import has_digest, sha256_hex
from marin_scaling.errors import SigningError, VerificationError, refuse
from marin_scaling.files import read_bytes
from marin_scaling.git import restored_by, restoring, restoring_command
from marin_scaling.preregistration.events.notice import verified_notices
from marin_scaling.preregistration.events.seal import stamped_at
from marin_scaling.preregistration.layout import (
    AMENDMENT_NAME,
    LOG_NAME,
    NOTICE_NAME,
    OUTCOME_NAME,
    POLICY_NAME,
    ROOTS_NAME,
    SEAL_NAME,
    SIGNERS_NAME,
    amendment_names,
    countersigners,
    is_sealed,
    notice_names,
    seal_names,
    stamp_names,
)
from marin_scaling.preregistration.log import (
    Log,
    LogEntry,
    Receipts,
    Trust,
    effective_time,
    known_at,
    log_path,
    made_at,
    parse_log,
)
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.registry import (
    claimant,
    identity,
    is_outside_target,
    is_withdrawn_unrun,
    outside_runs,
    read_registration,
    registration_folders,
    signers_path,
)
from marin_scaling.preregistration.signing.allowed_signers import compared_name, listed_people
from marin_scaling.preregistration.statement import LONGEST_TERM, Statement, moment_text, parse_moment
from marin_scaling.preregistration.verify.authenticity import Verified, VerifiedSeal
from marin_scaling.strict_model import Part
from marin_scaling.units import counted
from marin_scaling.untrusted_files import is_present
from marin_scaling.yaml_config import read_part


class Policy(Part):
    """Rules of a registry."""

    since: date
    """First day of receipt (UTC) from which the rules apply."""
    reviewers: int = Field(default=0, ge=0)
    """Required signatures of others."""
    stamps: int = Field(default=0, ge=0)
    """Required time stamps of the registrant's signature."""
    due_days: int | None = Field(default=None, gt=0, le=LONGEST_TERM.days)
    """Longest time in days from a statement to its due date; default: four years, the format's limit."""
    own_resolver: bool = True
    """True if the registrant may also resolve the forecast."""


def read_policy(path: Path) -> Policy:
    """Read the rules in a file; `VerificationError` names line and key of a fault."""
    return read_part(
        path,
        Policy,
        noun="a policy",
        refused=lambda what: VerificationError(
            what,
            why="Every rule must be readable before it applies.",
            fix="Write keys as in the reference: since, reviewers, stamps, own_resolver, due_days.",
        ),
    )


def policy_steps(verified: Verified | VerifiedSeal, *, stamped: Path | None = None) -> list[VerifiedStep]:
    """Return the step that a preregistration follows the rules of its registry, or that they do not apply.

    `stamped` is the folder with the stamps if it is another one, as for sealed forecasts. `VerificationError` names the
    first broken rule.
    """
    if isinstance(verified, VerifiedSeal):  # it is judged when it is shown
        return []
    folder, statement, allowed_signers = verified.folder, verified.statement, verified.trust.allowed_signers
    path = allowed_signers.with_name(POLICY_NAME)
    _require_due(statement, most=LONGEST_TERM, rule="The format", folder=folder)
    if not is_present(path):
        return []

    policy = read_policy(path)
    received = _received(folder, made=statement.created_at, receipts=verified.trust.receipts)
    if received < datetime.combine(policy.since, time(), tzinfo=UTC):
        evidence = f"not applied, received {received:%Y-%m-%d}, before {policy.since}"
        return [VerifiedStep(what="policy", evidence=evidence, compared=False)]
    roots = allowed_signers.with_name(ROOTS_NAME)
    people, registrant = listed_people(allowed_signers), statement.predicate["registrant"]
    reviewers = people.count(countersigners(verified.files), besides=registrant)
    stamps = len(stamped_at(stamped or folder, made_at=statement.created_at, roots=roots))
    resolver = statement.predicate["resolution"]["resolver"]
    independent = not people.are_one(resolver, registrant)
    asked, stamps_asked = counted(policy.reviewers, "signature"), counted(policy.stamps, "time stamp")
    _require(reviewers >= policy.reviewers, f"{asked} of reviewers, and {folder} has {reviewers}")
    _require(stamps >= policy.stamps, f"{stamps_asked}, and of {folder} {stamps} were read")
    _require(policy.own_resolver or independent, f"another resolver than the registrant, and {resolver} is both in {folder}")
    if policy.due_days is not None:
        _require_due(statement, most=timedelta(days=policy.due_days), rule=f"{POLICY_NAME} of this registry", folder=folder)
    found = f"{counted(reviewers, 'reviewer')} of {policy.reviewers} asked, {counted(stamps, 'stamp')} of {policy.stamps} asked"
    evidence = f"{POLICY_NAME} of {policy.since}: {found}, resolved by {resolver}"
    return [VerifiedStep(what="policy", evidence=evidence)]


def _received(folder: Path, *, made: datetime, receipts: Receipts) -> datetime:
    """Return the time from which a policy applies: the log's, or that of a later commit."""
    commit = receipts.committed_at(folder)
    logged = effective_time(made, receipts.forecast_at(folder))
    return effective_time(logged, commit.at if commit else None)


def _require_due(statement: Statement, *, most: timedelta, rule: str, folder: Path) -> None:
    if statement.due - statement.created_at > most:
        days = (statement.due - statement.created_at).days
        refuse(
            f"{folder} is due at {moment_text(statement.due)}, {days} days after it was made; {rule} allows {most.days} days",
            fix="Register a forecast whose run is due earlier (promise.due in the ladder file): a run never due never misses.",
        )


def require_followable(
    registry_dir: Path, *, registrant: str, resolver: str, sealed: bool, at: datetime, due: datetime | None = None
) -> None:
    """Raise `SigningError` if a forecast that is about to be signed cannot follow the registry's rules."""
    path = registry_dir / POLICY_NAME
    if not is_present(path):
        return

    policy = read_policy(path)
    if at < datetime.combine(policy.since, time(), tzinfo=UTC):
        return
    why = "A forecast that breaks the policy is refused, and a signed forecast cannot be changed."
    if policy.due_days is not None and due is not None and due - at > timedelta(days=policy.due_days):
        raise SigningError(
            f"{path} allows {policy.due_days} days until a run is due, but this run would be due at {moment_text(due)}.",
            why=why,
            fix="Set an earlier day in the ladder file (promise: {due: YYYY-MM-DD}).",
        )
    if not policy.own_resolver and listed_people(registry_dir / SIGNERS_NAME).are_one(resolver, registrant):
        raise SigningError(
            f"{path} requires another resolver than the registrant, but {resolver} would be both.",
            why=why,
            fix="Name another resolver in the ladder file (promise: {resolver: NAME}).",
        )
    if sealed and policy.reviewers:
        raise SigningError(
            f"{path} requires {counted(policy.reviewers, 'reviewer signature')}, but a sealed forecast cannot be reviewed.",
            why=why,
            fix="Register the forecast openly, without --seal-until.",
        )


def _require(followed: bool, rule: str) -> None:
    if not followed:
        refuse(
            f"{POLICY_NAME} of this registry asks for {rule}",
            fix="Before registering, name another resolver (promise.resolver). Afterwards, get a stamp "
            "(marin-scale registry stamp) or the signature of a reviewer whose key is merged (marin-scale registry sign).",
        )


_CLOCKS_DIFFER = timedelta(minutes=10)
_AHEAD = timedelta(days=1)
"""Largest lead of a log entry's clock over ours. A wrong time zone is off by hours; an entry in the future would date all
later ones.
"""
_COME_IN = {"seal": "sealed", "register": "registered", "reveal": "revealed"}


def log_step(folder: Path, *, log: Log) -> VerifiedStep:
    """Check one preregistration against its registry's log; `VerificationError` if they differ.

    Without a log the step is not compared: nothing shows whether forecasts were removed.
    """
    if not log.entries:
        path = log_path(folder.parent)
        why = f"{path} is {'empty' if is_present(path) else 'not there'}: nothing shows that none was taken out"
        return VerifiedStep(what="log", evidence=why, compared=False)
    own = log.by_id.get(folder.name, [])
    with restored_by(lambda: restoring_command(log_path(folder.parent), fits=partial(_covers, folder))):
        _require_past(own, log_file=log_path(folder.parent))
        _require_order(own, folder=folder)
        _require_files(own, folder=folder)
    made, first = made_at(folder), own[0]
    if parse_moment(first.logged_at) + _CLOCKS_DIFFER < made:
        refuse(
            f"{folder} was made at {moment_text(made)} by its own word, and logged before, at {first.logged_at}",
            fix="Restore the log from version control.",
        )
    lines = ", ".join(f"{entry.kind} {entry.number + 1}" for entry in own)
    times = ", ".join(entry.logged_at for entry in own)
    evidence = f"lines {lines} of {len(log.entries)}, each chained to the one before; logged at {times}"
    return VerifiedStep(what="log", evidence=evidence)


def require_whole(registry_dir: Path, *, log: Log) -> None:
    """Raise `VerificationError` if the log names a missing preregistration, or has an entry in the future.

    Two forecasts of one target are refused as well.
    """
    _require_past(log.entries, log_file=log_path(registry_dir))
    folders = registration_folders(registry_dir)
    _require_one_for_each_target(folders, log=log)
    _require_own_runs(folders)
    there = {folder.name for folder in folders}
    for entry in log.entries:
        if entry.id not in there:
            where = f"{registry_dir / LOG_NAME}, line {entry.number + 1}"
            name, digest = next(iter(entry.files.items()))
            path = registry_dir / entry.id / name
            refuse(
                f"{registry_dir / entry.id} is missing, and {where}, says that it came in at {entry.logged_at}",
                fix=restoring(path, fits=partial(has_digest, digest=digest), whole=registry_dir / entry.id),
            )


def _require_one_for_each_target(folders: Sequence[Path], *, log: Log) -> None:
    """Refuse a second forecast of a target, and a second one by one registrant of a target that differs in labels only.

    A forecast that was withdrawn before its run, and before the other was made, is not counted.
    """
    seen: dict[str, list[Path]] = {}
    for folder in folders:
        path = folder / "target.json"
        earlier = seen.setdefault(identity(read_bytes(path)), []) if is_present(path) else []
        for first in earlier:
            if _was_withdrawn(first, before=folder, log=log) or _was_withdrawn(folder, before=first, log=log):
                continue
            target = read_bytes(path)
            is_same = target == read_bytes(first / "target.json") and not is_outside_target(target)
            if (is_same and not _could_not_know(first, folder)) or (not is_same and len(_registrants(first, folder)) == 1):
                refuse(
                    f"{folder} is for the same target as {first}",
                    fix="Keep the one that was registered first: of two forecasts for one run, one could be chosen after the "
                    "fact.",
                )
            if is_outside_target(target):
                _require_before_outcome(first, folder, log=log)
                _require_before_outcome(folder, first, log=log)
        earlier.append(folder)


def _require_own_runs(folders: Sequence[Path]) -> None:
    """Refuse a restart of an outside run under the id of a run whose outcome another forecast reads."""
    for folder in folders:
        promised, *restarts = outside_runs(folder) or [""]
        for run in restarts:
            if other := claimant(folder.parent, run=run, promised=promised):
                refuse(
                    f"{folder} declares its restart as the run {run.partition(': ')[2]}, whose outcome {other} reads",
                    fix="Remove the notice or the forecast that came later: one run cannot answer forecasts of two runs.",
                )


def _require_before_outcome(known: Path, folder: Path, *, log: Log) -> None:
    """Refuse a forecast that came into the log after another one of the same outside run had its outcome there."""
    outcomes = [entry.number for entry in log.by_id.get(known.name, ()) if OUTCOME_NAME in entry.files]
    entries = [entry.number for entry in log.by_id.get(folder.name, ())]
    if outcomes and entries and outcomes[0] < entries[0]:
        refuse(
            f"{folder} came into the log after the outcome of its run, which {known} has",
            fix="Remove it: a known loss cannot be forecast.",
        )


def _was_withdrawn(folder: Path, *, before: Path, log: Log) -> bool:
    """Return True if its registrant withdrew a forecast, signed and logged, without a run, before the other one was made."""
    if not is_withdrawn_unrun(folder):
        return False
    receipts = Receipts(log=log, now=datetime.now(UTC))
    statement = read_registration(folder)
    notices = verified_notices(
        folder, statement=statement, trust=Trust(allowed_signers=signers_path(folder), receipts=receipts)
    )
    made = effective_time(made_at(before), receipts.forecast_at(before))
    withdrawn = [
        known_at(each.at, f"{each.name}/{NOTICE_NAME}", folder=folder, receipts=receipts)
        for each in notices
        if each.kind == "withdraw"
    ]
    return bool(withdrawn) and withdrawn[0] <= made and not statement.is_overdue(at=withdrawn[0])


def _could_not_know(*folders: Path) -> bool:
    """Return True if two people forecast one run because one forecast was sealed."""
    return len(_registrants(*folders)) == len(folders) and any(is_present(folder / SEAL_NAME) for folder in folders)


def _registrants(*folders: Path) -> set[str]:
    return {compared_name(read_registration(folder).predicate["registrant"]) for folder in folders}


def _require_past(entries: Sequence[LogEntry], *, log_file: Path) -> None:
    now = datetime.now(UTC)
    for entry in entries:
        if parse_moment(entry.logged_at) > now + _AHEAD:
            refuse(
                f"{log_file}, line {entry.number + 1}, was logged at {entry.logged_at}, and here it is {moment_text(now)}",
                fix="Restore the log from version control; or, if the clock of this machine is wrong, set it.",
            )


def _require_order(own: Sequence[LogEntry], *, folder: Path) -> None:
    _require_once(own, folder=folder)
    kinds, expected = [entry.kind for entry in own], _openings(folder)
    if not kinds or kinds[0] != expected[0] or tuple(kind for kind in kinds if kind in _COME_IN) != expected:
        said, first = ", ".join(kinds) or "nothing", " and ".join(_COME_IN[kind] for kind in expected)
        refuse(
            f"{log_path(folder.parent)} says of {folder.name}: {said}; it must be {first} there first",
            fix="If you have just made it, add its line: marin-scale registry log. Else restore the log from version control.",
        )


def _openings(folder: Path) -> tuple[str, ...]:
    """Return the kinds of events by which a preregistration entered: open, or sealed and perhaps revealed."""
    if is_sealed(folder):
        return ("seal",)
    return ("seal", "register", "reveal") if is_present(folder / SEAL_NAME) else ("register",)


def _require_once(own: Sequence[LogEntry], *, folder: Path) -> None:
    seen: dict[str, LogEntry] = {}
    for entry in own:
        for name in entry.files:
            if name in seen:
                refuse(
                    f"{log_path(folder.parent)} has {folder.name}/{name} twice, in the lines {seen[name].number + 1} and "
                    f"{entry.number + 1}",
                    fix="Restore the log from version control: what came in once does not come in again.",
                )
            seen[name] = entry


def _covers(folder: Path, raw: bytes) -> bool:
    """Return True if these bytes are a log that records a preregistration with the digests of its files."""
    own = parse_log(raw, name=LOG_NAME).by_id.get(folder.name, ())
    files = [(folder / name, digest) for entry in own for name, digest in entry.files.items()]
    return bool(files) and all(is_present(path) and has_digest(read_bytes(path), digest=digest) for path, digest in files)


def _require_files(own: Sequence[LogEntry], *, folder: Path) -> None:
    logged: Mapping[str, LogEntry] = {name: entry for entry in own for name in entry.files}
    for name, entry in logged.items():
        path = folder / name
        found = sha256_hex(read_bytes(path)) if is_present(path) else "no file"
        if found != entry.files[name]:
            refuse(
                f"{path}: line {entry.number + 1} of the log has the digest {entry.files[name]}, and there is {found}",
                fix=restoring(path, fits=partial(has_digest, digest=entry.files[name])),
            )
    present = [path.name for path in folder.iterdir()]
    notices = [f"{name}/{NOTICE_NAME}" for name in notice_names(present)]
    notices += [f"{name}/{AMENDMENT_NAME}" for name in amendment_names(present)]
    for name in [
        *countersigners(present).values(),
        *({OUTCOME_NAME} & set(present)),
        *sorted(seal_names(present)),
        *notices,
        *stamp_names(present),
    ]:
        if name not in logged:
            refuse(f"{folder / name} is not in the log", fix="If you have just made it, add its line: marin-scale registry log")
