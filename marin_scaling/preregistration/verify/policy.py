"""Policy file of a registry, and the check of a forecast against it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from pydantic import Field

from marin_scaling.errors import SigningError, VerificationError, refuse
from marin_scaling.preregistration.events.timestamp import stamped_at
from marin_scaling.preregistration.layout import POLICY_NAME, ROOTS_NAME, SIGNERS_NAME, countersigners
from marin_scaling.preregistration.receipts import Receipts, effective_time
from marin_scaling.preregistration.signing.allowed_signers import listed_people
from marin_scaling.preregistration.state import VerifiedStep
from marin_scaling.preregistration.statement import LONGEST_TERM, Statement, moment_text
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
