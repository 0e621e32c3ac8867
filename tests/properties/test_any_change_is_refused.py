"""Whatever byte of a registration is changed, verify refuses it with an error meant for a reader."""

import base64
import functools
import shutil
import tempfile
import textwrap
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from registration_factory import make_registration, signing_key

from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.format import SUBJECT_FILES
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.signing.sshsig import make_signature, verify_signature
from marin_scaling.preregistration.verify.authenticity import verify_folder

NAMES = ("statement.json", "statement.json.sig", *SUBJECT_FILES)
MESSAGE = b"what is promised"


@functools.cache
def registration_files():
    root = Path(tempfile.mkdtemp())
    try:
        folder = make_registration(root).folder
        return {name: (folder / name).read_bytes() for name in NAMES}, signers_path(folder).read_bytes(), folder.name
    finally:
        shutil.rmtree(root)


@functools.cache
def signatures():
    ecdsa = ec.generate_private_key(ec.SECP256R1())
    slow = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return [make_signature(MESSAGE, private_key=key) for key in (signing_key().private_key, ecdsa, slow)]


def armored_again(blob):
    lines = textwrap.wrap(base64.b64encode(blob).decode(), 70)
    return (
        "-----BEGIN SSH SIGNATURE-----\n" + "".join(f"{line}\n" for line in lines) + "-----END SSH SIGNATURE-----\n"
    ).encode()


def verify_with(name, content):
    files, signers, folder_name = registration_files()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / folder_name
        folder.mkdir()
        (Path(root) / "allowed_signers").write_bytes(signers)
        for other, original in files.items():
            (folder / other).write_bytes(content if other == name else original)
        return verify_folder(folder, allowed_signers=Path(root) / "allowed_signers")


def test_unchanged_it_verifies():
    """The ground of the tests below: without a change, no refusal."""
    assert verify_with("target.json", registration_files()[0]["target.json"])


@examples(300, pull_request=60)
@given(st.sampled_from(NAMES), st.data())
def test_any_flipped_byte_is_refused(name, data):
    """No byte of any file is free."""
    content = bytearray(registration_files()[0][name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(VerificationError):
        verify_with(name, bytes(content))


@examples(200, pull_request=40)
@given(st.sampled_from(NAMES), st.data())
def test_any_cut_or_insertion_is_refused(name, data):
    """Nor can bytes be taken out or put in."""
    original = registration_files()[0][name]
    start = data.draw(st.integers(0, len(original)))
    end = data.draw(st.integers(start, min(len(original), start + 40)))
    changed = original[:start] + data.draw(st.binary(max_size=20)) + original[end:]
    if changed != original:
        with pytest.raises(VerificationError):
            verify_with(name, changed)


@examples(500, pull_request=100)
@given(st.data())
def test_a_mutated_signature_is_never_accepted(data):
    """Flips, swaps of parts, repetitions: a refusal each time, and no other error."""
    original = signatures()[data.draw(st.integers(0, 2))]
    inside = data.draw(st.booleans())  # change the blob and wrap it well, or change the file
    blob = base64.b64decode(original.split(b"-----")[2].replace(b"\n", b""))
    mutated = bytearray(blob if inside else original)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        mutated[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    changed = armored_again(bytes(mutated)) if inside else bytes(mutated)
    if changed != original:
        with pytest.raises(VerificationError):
            verify_signature(changed, content=MESSAGE, name="m.sig")


@given(st.binary(max_size=400))
def test_random_bytes_are_no_signature(raw):
    """Whatever they are."""
    with pytest.raises(VerificationError):
        verify_signature(raw, content=MESSAGE, name="m.sig")
