"""What a registry asks of every forecast beyond a good signature, from the day on that it says."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from git_repository import branch_off
from registration_factory import CREATED_AT, make_registration, signing_key

from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.register import countersign
from marin_scaling.preregistration.registry import allow_signer, signers_path
from marin_scaling.preregistration.review.pull_request import base_step, signers_at
from marin_scaling.preregistration.verdict import verdicts_on
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import policy_steps, require_followable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A forecast of 2026-11-20 that nobody else has signed, and whose resolver is its registrant."""
    return make_registration(tmp_path).folder


def ask(folder: Path, *rules: str, since: str = "2026-11-20") -> list[VerifiedStep]:
    """Verify under these rules."""
    (folder.parent / "policy.yaml").write_text("\n".join([f"since: {since}", *rules]) + "\n")
    return policy_steps(verify_folder(folder, allowed_signers=signers_path(folder)))


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("reviewers: 1", r"policy\.yaml of this registry asks for 1 signature of reviewers, and .*tiny-target has 0"),
        ("stamps: 2", "asks for 2 time stamps, and of .*tiny-target 0 were read"),
        ("own_resolver: false", "asks for another resolver than the registrant, and ada@example.org is both"),
    ],
)
def test_a_forecast_that_does_not_follow_a_rule_is_refused(folder: Path, rule: str, reason: str) -> None:
    """With what is missing and how it is made good."""
    with pytest.raises(VerificationError, match=reason):
        ask(folder, rule)


@pytest.mark.parametrize("rule", ["reviewers: 1", "stamps: 2", "own_resolver: false"])
def test_a_forecast_from_before_the_rule_stays_sound(folder: Path, rule: str) -> None:
    """Its author could not know it."""
    (step,) = ask(folder, rule, since="2026-11-21")
    assert not step.compared
    assert step.evidence == "not applied, received 2026-11-20, before 2026-11-21"


def test_a_reviewers_signature_is_what_the_rule_asks_for(folder: Path) -> None:
    """One that may sign."""
    key = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([7] * 32)))
    allow_signer(folder.parent, principal="bob@example.org", key=key.public_key, at=CREATED_AT)
    countersign(folder, key=key, principal="bob@example.org")
    (step,) = ask(folder, "reviewers: 1")
    assert step.evidence == "policy.yaml of 2026-11-20: 1 reviewer of 1 asked, 0 stamps of 0 asked, resolved by ada@example.org"


def test_another_resolver_is_what_the_rule_asks_for(tmp_path: Path) -> None:
    """Whether or not they have a key."""
    folder = make_registration(tmp_path, promise=Promise(resolver="bob@example.org")).folder
    assert ask(folder, "own_resolver: false")[0].compared


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("reviewers: 1\n", "since: field required"),
        ("since: 2026-11-20\nreviewer: 1\n", r"policy\.yaml, line 2: reviewer: unknown key"),
        ("since: 2026-11-20\nreviewers: -1\n", r"policy\.yaml, line 2: reviewers: input should be greater than or equal to 0"),
        ("since: 2026-11-20\nstamps: 1\nstamps: 0\n", r"policy\.yaml, line 3: duplicate key stamps, first in line 2"),
        ("[]\n", "it is list"),
    ],
)
def test_a_policy_that_cannot_be_read_is_no_policy(folder: Path, text: str, reason: str) -> None:
    """Nothing passes for want of a rule that someone meant."""
    (folder.parent / "policy.yaml").write_text(text)
    with pytest.raises(VerificationError, match=reason):
        policy_steps(verify_folder(folder, allowed_signers=signers_path(folder)))


def test_a_rule_stands_in_nobodys_way_who_would_follow_it(folder: Path) -> None:
    """Whoever signs or stamps verifies first, and what is missing is what they bring."""
    (folder.parent / "policy.yaml").write_text("since: 2026-11-20\nreviewers: 1\nstamps: 1\n")
    assert verify_folder(folder, allowed_signers=signers_path(folder))


def test_a_target_is_not_checked_under_a_rule_that_its_forecast_does_not_follow(folder: Path) -> None:
    """Nor is its outcome written."""
    (folder.parent / "policy.yaml").write_text("since: 2026-11-20\nreviewers: 1\n")
    (verdict,) = verdicts_on([folder], runs_dir=folder.parent.parent / "runs", at=CREATED_AT)
    assert verdict.state == "refused"


def test_a_branch_cannot_loosen_the_rules_that_it_is_judged_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the base count, and a branch that changes them brings no forecast."""
    (folder.parent / "policy.yaml").write_text("since: 2026-11-20\nreviewers: 1\n")
    root = folder.parent.parent
    branch_off(root)
    monkeypatch.chdir(root)
    registry = Path("preregistrations")
    (registry / "policy.yaml").unlink()
    with signers_at("main", registry_dir=registry) as signers, pytest.raises(VerificationError, match="reviewers"):
        policy_steps(verify_folder(folder, allowed_signers=signers))
    (folder / "outcome.json").write_text("{}")
    with pytest.raises(VerificationError, match=r"policy\.yaml and 1 .*main"):
        base_step("main", registry_dir=registry)


@pytest.mark.parametrize(
    ("rule", "sealed", "reason"),
    [
        ("own_resolver: false", False, "requires another resolver than the registrant, but ada@example.org"),
        ("reviewers: 2", True, "requires 2 reviewer signatures"),
    ],
)
def test_what_could_never_follow_a_rule_is_refused_before_it_is_signed(
    tmp_path: Path, rule: str, sealed: bool, reason: str
) -> None:
    """Nothing that is signed is signed again; before the rule began it may."""
    asked = {"registrant": "ada@example.org", "resolver": "ada@example.org", "sealed": sealed}
    (tmp_path / "policy.yaml").write_text(f"since: 2026-11-20\n{rule}\n")
    with pytest.raises(SigningError, match=reason):
        require_followable(tmp_path, **asked, at=CREATED_AT)
    require_followable(tmp_path, **asked, at=CREATED_AT - timedelta(days=1))
    require_followable(tmp_path, **{**asked, "resolver": "carol@example.org", "sealed": False}, at=CREATED_AT)
