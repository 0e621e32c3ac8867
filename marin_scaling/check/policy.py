"""What a registry asks of every forecast beyond a good signature: `policy.yaml` beside the folders, written by its maintainers.

It never loosens anything, and binds only what is made after it: an old forecast does not become unsound because a rule is new.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from pathlib import Path

from pydantic import Field

from marin_scaling.check.stamps import stamped_at
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.countersignature import countersigners
from marin_scaling.preregistration.registry import SIGNATURE_NAME, read_registration
from marin_scaling.preregistration.timestamp import ROOTS_NAME
from marin_scaling.yaml_documents import Part, read_part

POLICY_NAME = "policy.yaml"


class Policy(Part):
    """The rules of a registry."""

    since: date
    """The day (UTC) from which on statements have to follow them."""
    reviewers: int = Field(default=0, ge=0)
    """How many others must have signed the statement, beside its registrant."""
    stamps: int = Field(default=0, ge=0)
    """How many time stamps must lie over the registrant's signature."""
    own_resolver: bool = True
    """Whether the registrant may be the one, too, who says how it came out."""


def read_policy(path: Path) -> Policy | None:
    """The rules in a file; None where there is no file. `VerificationError` names line and key of what cannot be read."""
    if not path.is_file():
        return None
    return read_part(
        path,
        Policy,
        noun="a policy",
        refused=lambda what: VerificationError(
            what,
            why="A rule that is not understood would be no rule.",
            fix="Write keys as in the reference: since, reviewers, stamps, own_resolver.",
        ),
    )


def policy_steps(folder: Path, *, allowed_signers: Path) -> list[VerifiedStep]:
    """That an authentic preregistration follows the rules that lie beside `allowed_signers`; none where it need not.

    `VerificationError` names the first rule that it does not follow.
    """
    path, statement = allowed_signers.with_name(POLICY_NAME), read_registration(folder)
    policy = read_policy(path)
    if policy is None or statement.created_at < datetime.combine(policy.since, time(), tzinfo=UTC):
        return []
    signature, roots = read_bytes(folder / SIGNATURE_NAME), allowed_signers.with_name(ROOTS_NAME)
    reviewers = len(countersigners(each.name for each in folder.iterdir()))
    stamps = len(stamped_at(folder, statement=statement, signature=signature, roots=roots))
    resolver = statement.predicate.get("resolution", {}).get("resolver")
    independent = resolver != statement.predicate["registrant"]
    _require(reviewers >= policy.reviewers, f"{policy.reviewers} reviewers' signatures, and {folder} has {reviewers}")
    _require(stamps >= policy.stamps, f"{policy.stamps} time stamps, and of {folder} {stamps} were read")
    _require(policy.own_resolver or independent, f"another resolver than the registrant, and {resolver} is both in {folder}")
    evidence = f"{POLICY_NAME} of {policy.since}: {reviewers} reviewers, {stamps} stamps, resolved by {resolver}"
    return [VerifiedStep(what="policy", evidence=evidence)]


def _require(followed: bool, rule: str) -> None:
    if not followed:
        refuse(
            f"{POLICY_NAME} of this registry asks for {rule}",
            fix="Let others sign it (marin-scale sign), have it stamped (marin-scale stamp), or name a resolver (promise:).",
        )
