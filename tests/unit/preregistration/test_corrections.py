"""A signed correction changes words of a statement that decide nothing, and no number."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import CREATED_AT, DUE, PRINCIPAL, make_registration, signing_key

from marin_scaling.errors import SigningError
from marin_scaling.ladder.config import Assumption, Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import allow_signer, signers_path
from marin_scaling.preregistration.verify.authenticity import verify_folder

ASSUMPTION, DIFFERENCE = "the tokenzier of 256 bytes stays", "4 times the bacth"


@pytest.fixture
def registration(tmp_path: Path) -> Registration:
    """A forecast with two mistyped texts and a condition."""
    assumption = Assumption(text=ASSUMPTION, if_false="not comparable")
    promise = Promise(due=DUE, assumptions=(assumption,), known_differences=(DIFFERENCE,), void_if=("the text is gnoe",))
    return make_registration(tmp_path, promise=promise)


def correct(registration: Registration, was: str, reads: str, **said: Any) -> Path:
    """Its registrant corrects a text."""
    known = {"key": signing_key(), "principal": PRINCIPAL, "at": CREATED_AT + timedelta(hours=1), "reason": "mistyped"}
    return give_notice(registration.folder, "correct", was=was, reads=reads, **known | said)


@pytest.mark.parametrize(
    ("was", "reads"),
    [
        (ASSUMPTION, "the tokenizer of 256 bytes stays"),
        ("not comparable", "bits are not comparable"),
        (DIFFERENCE, "4 times the batch"),
    ],
)
def test_words_are_corrected_and_verification_shows_both(registration: Registration, was: str, reads: str) -> None:
    """The statement stays as it is."""
    before = (registration.folder / "statement.json").read_bytes()
    correct(registration, was, reads)
    verified = verify_folder(registration.folder, allowed_signers=signers_path(registration.folder))
    (step,) = [each for each in verified.steps if each.what == "correct"]
    assert was in step.evidence
    assert reads in step.evidence
    assert (registration.folder / "statement.json").read_bytes() == before


@pytest.mark.parametrize(
    ("was", "reads"),
    [
        (ASSUMPTION, "the tokenizer of 257 bytes stays"),
        (ASSUMPTION, "the tokenizer stays"),
        (DIFFERENCE, "8 times the batch"),
        (ASSUMPTION, ASSUMPTION),
        ("words that stand nowhere", "other words"),
        ("the text is gnoe", "the text is gone"),
        (PRINCIPAL, "eve@example.org"),
    ],
)
def test_what_decides_an_outcome_is_not_corrected(registration: Registration, was: str, reads: str) -> None:
    """Numbers, conditions and people: for these a forecast is withdrawn before its run and registered again."""
    with pytest.raises(SigningError):
        correct(registration, was, reads)
    assert not list(registration.folder.glob("notice-*"))


def test_only_the_registrant_corrects(registration: Registration) -> None:
    """Another signer's words are their own."""
    key = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([5] * 32)))
    allow_signer(registration.folder.parent, principal="bob@example.org", key=key.public_key, at=CREATED_AT)
    with pytest.raises(SigningError):
        correct(registration, DIFFERENCE, "4 times the batch", key=key, principal="bob@example.org")
