"""A registration or key that is refused leaves nothing behind."""

import os
import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from registration_factory import forecast_document, make_registration, run_spec, store_ladder

from marin_scaling.errors import SigningError, StatementError
from marin_scaling.preregistration.signing.keys import load_signing_key, make_signing_key


def test_a_folder_that_is_there_adds_no_signer(tmp_path):
    """The same day and slug for another target, by another person: refused, and `allowed_signers` is as it was."""
    make_registration(tmp_path)
    signers = tmp_path / "preregistrations" / "allowed_signers"
    before = signers.read_bytes()
    other = run_spec(hidden_dim=128, train_steps=801, role="target")
    rows = store_ladder(tmp_path / "other")
    document = forecast_document(flops=other.flops)
    with pytest.raises(StatementError, match="2026-11-20-tiny-target"):
        make_registration(tmp_path, target=other, rows=rows, forecast=document, principal="mallory@example.org")
    assert signers.read_bytes() == before


KEYS = {"x25519": x25519.X25519PrivateKey.generate(), "secp256k1": ec.generate_private_key(ec.SECP256K1())}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_a_kind_of_key_that_cannot_sign_is_refused(tmp_path, key):
    """One message that names the file."""
    path = tmp_path / "key.pem"
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    with pytest.raises(SigningError, match=r"key\.pem"):
        load_signing_key(path, note="test")


def test_a_new_key_is_whole_and_its_owners_only(tmp_path):
    """Mode 0600, its public half beside it, and no temporary file."""
    make_signing_key(tmp_path / "signing_key")
    assert stat.S_IMODE(os.stat(tmp_path / "signing_key").st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["signing_key", "signing_key.pub"]
    before = (tmp_path / "signing_key.pub").read_bytes()
    with pytest.raises(SigningError):
        make_signing_key(tmp_path / "signing_key")
    assert (tmp_path / "signing_key.pub").read_bytes() == before
