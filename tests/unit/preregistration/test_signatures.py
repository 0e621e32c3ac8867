"""Others sign beside the registrant: each with a key of their own, and nobody for someone else."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import CREATED_AT, DUE, PRINCIPAL, make_registration, signing_key
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.register import countersign
from marin_scaling.preregistration.registry import allow_signer, signers_path
from marin_scaling.preregistration.signing.keys import SigningKey, make_signing_key
from marin_scaling.preregistration.verify.authenticity import verify_folder

BOB = "bob@example.org"


def key_of(number: int) -> SigningKey:
    """The key of someone else."""
    return signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A preregistration that Bob is asked to sign, and may."""
    folder = make_registration(tmp_path, promise=Promise(due=DUE, reviewers=(BOB,))).folder
    allow_signer(folder.parent, principal=BOB, key=key_of(2).public_key, at=CREATED_AT)
    return folder


def review_steps(folder: Path) -> list[tuple[bool, str]]:
    """What is said of the reviewers."""
    steps = verify_folder(folder, allowed_signers=signers_path(folder)).steps
    return [(step.compared, step.evidence) for step in steps if step.what == "review"]


def test_a_reviewer_who_has_not_signed_is_named(folder: Path) -> None:
    """The preregistration is sound so far; what is missing is said."""
    assert review_steps(folder) == [(False, f"not signed by {BOB} so far")]


def test_a_reviewers_signature_is_a_step_of_its_own(folder: Path) -> None:
    """With name, key and the line that allows it."""
    countersign(folder, key=key_of(2), principal=BOB)
    [(compared, evidence)] = review_steps(folder)
    assert compared
    assert evidence == f"{BOB} with {key_of(2).public_key.fingerprint}, allowed by allowed_signers, line 2"


def test_nobody_signs_twice(folder: Path) -> None:
    """A signature is never written over."""
    path = countersign(folder, key=key_of(2), principal=BOB)
    first = path.read_bytes()
    with pytest.raises(SigningError, match=r"bob@example\.org"):
        countersign(folder, key=key_of(2), principal=BOB)
    assert path.read_bytes() == first


def test_the_registrant_is_no_reviewer(folder: Path) -> None:
    """By the command; a file of that name is an attack of its own."""
    with pytest.raises(SigningError, match="is the registrant"):
        countersign(folder, key=signing_key(), principal=PRINCIPAL)


def test_one_key_does_not_sign_for_two(folder: Path) -> None:
    """The forecast would be refused from then on; nothing is written. Nor is a key listed under a second name."""
    signers = signers_path(folder)
    signers.write_text(signers.read_text() + signers.read_text().splitlines()[0].replace(PRINCIPAL, "carol@example.org") + "\n")
    with pytest.raises(SigningError, match=r"statement\.json\.sig"):
        countersign(folder, key=signing_key(), principal="carol@example.org")
    assert review_steps(folder) == [(False, f"not signed by {BOB} so far")]
    before = signers.read_bytes()
    with pytest.raises(SigningError, match=r"bob@example\.org.*bobby@example\.org"):
        allow_signer(folder.parent, principal="bobby@example.org", key=key_of(2).public_key, at=CREATED_AT)
    assert signers.read_bytes() == before


def test_who_is_not_on_the_list_does_not_sign(folder: Path) -> None:
    """Nothing is written, and nobody is added."""
    with pytest.raises(VerificationError, match=r"mallory@example\.org"):
        countersign(folder, key=key_of(3), principal="mallory@example.org")
    assert review_steps(folder) == [(False, f"not signed by {BOB} so far")]


def test_the_command_verifies_prints_and_signs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reviewer types, with a key from a file."""
    monkeypatch.chdir(tmp_path)
    key = make_signing_key(tmp_path / "carol")
    allow_signer(folder.parent, principal="carol@example.org", key=key.public_key, at=CREATED_AT)
    said = CliRunner().invoke(
        app, ["registry", "sign", folder.name, "--key", str(tmp_path / "carol"), "--as", "carol@example.org"]
    )
    assert said.exit_code == 0, said.output
    assert "  signature  ok  ada@example.org with SHA256:" in said.stdout
    assert said.stdout.splitlines()[-2] == f"Signed: preregistrations/{folder.name}/statement.json.carol@example.org.sig"
    assert any(compared and "carol@example.org" in evidence for compared, evidence in review_steps(folder))
