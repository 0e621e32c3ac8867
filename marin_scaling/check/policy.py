"""Whether a forecast follows what its registry asks of all, beyond a good signature: `policy.yaml` beside the folders.

A policy never loosens anything, and binds only what is made after it: an old forecast does not become unsound because a rule is
new. It is read only where there is one.
"""

from __future__ import annotations

from datetime import UTC, datetime, time
from pathlib import Path

from marin_scaling.check.stamps import stamped_at
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.errors import SigningError
from marin_scaling.preregistration.countersignature import countersigners
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.seal import is_sealed
from marin_scaling.preregistration.timestamp import ROOTS_NAME
from marin_scaling.regular_files import is_present
from marin_scaling.units import counted

POLICY_NAME = "policy.yaml"


def policy_steps(folder: Path, *, allowed_signers: Path, stamped: Path | None = None) -> list[VerifiedStep]:
    """That an authentic preregistration follows the rules that lie beside `allowed_signers`; none where it need not.

    `stamped` is the folder with its stamps, where that is another: a sealed one has them beside its seal, in the registry.
    `VerificationError` names the first rule that it does not follow.
    """
    path = allowed_signers.with_name(POLICY_NAME)
    if not is_present(path) or is_sealed(folder):  # a sealed one is judged by it when it is shown
        return []
    from marin_scaling.preregistration.policy import read_policy

    policy, statement = read_policy(path), read_registration(folder)
    if statement.created_at < datetime.combine(policy.since, time(), tzinfo=UTC):
        return []
    roots = allowed_signers.with_name(ROOTS_NAME)
    reviewers = len(countersigners(each.name for each in folder.iterdir()))
    stamps = len(stamped_at(stamped or folder, made_at=statement.created_at, roots=roots))
    resolver = statement.predicate.get("resolution", {}).get("resolver")
    independent = resolver != statement.predicate["registrant"]
    asked, stamps_asked = counted(policy.reviewers, "signature"), counted(policy.stamps, "time stamp")
    _require(reviewers >= policy.reviewers, f"{asked} of reviewers, and {folder} has {reviewers}")
    _require(stamps >= policy.stamps, f"{stamps_asked}, and of {folder} {stamps} were read")
    _require(policy.own_resolver or independent, f"another resolver than the registrant, and {resolver} is both in {folder}")
    found = f"{counted(reviewers, 'reviewer')} of {policy.reviewers} asked, {counted(stamps, 'stamp')} of {policy.stamps} asked"
    evidence = f"{POLICY_NAME} of {policy.since}: {found}, resolved by {resolver}"
    return [VerifiedStep(what="policy", evidence=evidence)]


def require_followable(registry_dir: Path, *, registrant: str, resolver: str, sealed: bool, at: datetime) -> None:
    """`SigningError` where a forecast that is about to be signed could never follow the registry's rules."""
    path = registry_dir / POLICY_NAME
    if not is_present(path):
        return
    from marin_scaling.preregistration.policy import read_policy

    policy = read_policy(path)
    if at < datetime.combine(policy.since, time(), tzinfo=UTC):
        return
    why = "What does not follow it is refused for ever, and nothing that is signed is signed again."
    if not policy.own_resolver and resolver == registrant:
        raise SigningError(
            f"{path} asks for another resolver than the registrant, and {resolver} would be both.",
            why=why,
            fix="Name who says how it came out, in the ladder's file (promise: {resolver: NAME}).",
        )
    if sealed and policy.reviewers:
        raise SigningError(
            f"{path} asks for {counted(policy.reviewers, 'signature')} of reviewers before the run, and nobody else can sign "
            "what is sealed.",
            why=why,
            fix="Register it openly (without --seal-until).",
        )


def _require(followed: bool, rule: str) -> None:
    if not followed:
        refuse(
            f"{POLICY_NAME} of this registry asks for {rule}",
            fix="Let others sign it (marin-scale sign), have it stamped (marin-scale stamp), or name a resolver (promise:).",
        )
