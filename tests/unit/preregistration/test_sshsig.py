"""Signatures agree with ssh-keygen both ways, and nothing else is accepted."""

import base64
import io
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.preregistration.signing.keys import load_signing_key
from marin_scaling.preregistration.signing.sshsig import (
    NAMESPACE,
    MalformedKeyError,
    PublicKey,
    Signature,
    armor,
    make_signature,
    parse_signature,
    public_key_from_text,
    public_key_from_wire,
    public_key_of,
    sign_bytes,
    ssh_string,
    verify_signature,
)

MESSAGE = b'{\n "a": 1\n}\n'
KINDS = {
    "ed25519": ["-t", "ed25519"],
    "rsa": ["-t", "rsa", "-b", "3072"],
    "ecdsa256": ["-t", "ecdsa"],
    "ecdsa521": ["-t", "ecdsa", "-b", "521"],
}
needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen of OpenSSH is not installed")


def keygen(*arguments, **options):
    return subprocess.run(["ssh-keygen", *map(str, arguments)], capture_output=True, check=False, **options)


@pytest.fixture(params=KINDS)
def key_file(request, tmp_path):
    path = tmp_path / request.param
    assert keygen("-q", *KINDS[request.param], "-N", "", "-C", "ada", "-f", path).returncode == 0
    return path


@pytest.fixture
def ed25519_key():
    return ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@needs_ssh_keygen
def test_ssh_keygen_accepts_our_signatures(key_file, tmp_path):
    """A stranger verifies with stock OpenSSH, without this tool."""
    key = load_signing_key(key_file, note="test")
    (tmp_path / "signers").write_text(f'ada@example.org namespaces="{NAMESPACE}" {key.public_key.text}\n')
    (tmp_path / "m.sig").write_bytes(make_signature(MESSAGE, private_key=key.private_key))
    arguments = ("-Y", "verify", "-f", tmp_path / "signers", "-I", "ada@example.org", "-n", NAMESPACE, "-s", tmp_path / "m.sig")
    assert keygen(*arguments, input=MESSAGE).returncode == 0
    assert keygen(*arguments, input=MESSAGE + b"\n").returncode != 0


@needs_ssh_keygen
def test_we_accept_the_signatures_of_ssh_keygen(key_file, tmp_path):
    """Who prefers to sign with ssh-keygen may."""
    (tmp_path / "m").write_bytes(MESSAGE)
    for hash_name in ("sha512", "sha256"):
        (tmp_path / "m.sig").unlink(missing_ok=True)
        assert (
            keygen("-Y", "sign", "-O", f"hashalg={hash_name}", "-f", key_file, "-n", NAMESPACE, tmp_path / "m").returncode == 0
        )
        key = verify_signature((tmp_path / "m.sig").read_bytes(), content=MESSAGE, name="m.sig")
        assert key.text == " ".join((tmp_path / f"{key_file.name}.pub").read_text().split()[:2])


@needs_ssh_keygen
def test_deterministic_signatures_are_byte_for_byte_those_of_ssh_keygen(tmp_path):
    """Ed25519 and RSA signatures have no choice in them, so two programs write the same file."""
    for kind in ("ed25519", "rsa"):
        path = tmp_path / kind
        keygen("-q", *KINDS[kind], "-N", "", "-f", path)
        (tmp_path / "m").write_bytes(MESSAGE)
        keygen("-Y", "sign", "-f", path, "-n", NAMESPACE, tmp_path / "m")
        theirs = (tmp_path / "m.sig").read_bytes()
        (tmp_path / "m.sig").unlink()
        assert make_signature(MESSAGE, private_key=load_signing_key(path, note="test").private_key) == theirs


@needs_ssh_keygen
def test_the_fingerprint_is_the_one_that_ssh_keygen_prints(key_file):
    """A reader compares fingerprints by eye, so they must be the familiar ones."""
    printed = keygen("-l", "-f", key_file).stdout.decode()
    assert load_signing_key(key_file, note="test").public_key.fingerprint in printed


def test_other_bytes_are_refused(ed25519_key):
    """One byte more is another file."""
    with pytest.raises(VerificationError, match="did not sign these bytes"):
        verify_signature(make_signature(MESSAGE, private_key=ed25519_key), content=MESSAGE + b" ", name="m.sig")


@pytest.mark.parametrize("hash_name", [b"sha1", b"md5", b"", b"SHA512"])
def test_a_downgraded_or_unknown_hash_is_refused(ed25519_key, hash_name):
    """Only SHA-256 and SHA-512 may stand between the file and the signature."""
    made = parse_signature(make_signature(MESSAGE, private_key=ed25519_key), name="m.sig")
    forged = Signature(public_key=made.public_key, namespace=NAMESPACE, hash_name=hash_name, signature=made.signature)
    with pytest.raises(VerificationError, match=r"sha256.*sha512"):
        verify_signature(armor(forged), content=MESSAGE, name="m.sig")


def test_every_truncation_is_refused(ed25519_key):
    """A file cut at any place is no signature."""
    signature = make_signature(MESSAGE, private_key=ed25519_key)
    for length in range(len(signature)):
        with pytest.raises(VerificationError):
            verify_signature(signature[:length], content=MESSAGE, name="m.sig")


def test_every_truncated_blob_in_good_armor_is_refused(ed25519_key):
    """Cut inside the base64 and wrapped again, it is still refused, without a traceback."""
    body = make_signature(MESSAGE, private_key=ed25519_key).split(b"-----")[2].replace(b"\n", b"")
    blob = base64.b64decode(body)
    for length in range(len(blob)):
        lines = base64.b64encode(blob[:length])
        armored = b"-----BEGIN SSH SIGNATURE-----\n" + lines + b"\n-----END SSH SIGNATURE-----\n"
        with pytest.raises(VerificationError):
            verify_signature(armored, content=MESSAGE, name="m.sig")


def test_short_rsa_keys_neither_sign_nor_verify():
    """RSA of 1024 bits can be broken, so it proves nothing."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(MalformedKeyError, match="1024 bits"):
        make_signature(MESSAGE, private_key=weak)
    numbers = weak.public_key().public_numbers()
    modulus = numbers.n.to_bytes(numbers.n.bit_length() // 8 + 1, "big")
    wire = ssh_string(b"ssh-rsa") + ssh_string(b"\x01\x00\x01") + ssh_string(modulus)
    public = PublicKey(kind=b"ssh-rsa", wire=wire, key=weak.public_key())
    forged = Signature(public_key=public, namespace=NAMESPACE, hash_name=b"sha512", signature=sign_bytes(weak, MESSAGE))
    with pytest.raises(VerificationError, match="1024 bits"):
        verify_signature(armor(forged), content=MESSAGE, name="m.sig")


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())])
def test_ecdsa_signatures_verify(key):
    """Round trip on the curves that hash differently."""
    assert (
        verify_signature(make_signature(MESSAGE, private_key=key), content=MESSAGE, name="m.sig").wire
        == public_key_of(key).wire
    )


def test_a_compressed_point_of_a_curve_is_refused():
    """A second way to write the same key would be a second signature file; no traceback either."""
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    wire = ssh_string(b"ecdsa-sha2-nistp256") + ssh_string(b"nistp256") + ssh_string(point)
    with pytest.raises(MalformedKeyError, match="cannot be read"):
        public_key_from_wire(wire)


def test_a_key_of_an_unknown_kind_cannot_sign():
    """X25519 keys agree on secrets and sign nothing."""
    with pytest.raises(SigningError, match="cannot sign"):
        sign_bytes(object(), MESSAGE)


def test_a_key_line_that_says_another_kind_is_refused(ed25519_key):
    """Kind and content of a line must agree."""
    text = public_key_of(ed25519_key).text.replace("ssh-ed25519", "ssh-rsa", 1)
    with pytest.raises(MalformedKeyError, match="ssh-rsa"):
        public_key_from_text(text)


@needs_ssh_keygen
def test_an_encrypted_key_opens_with_its_passphrase_only(tmp_path, monkeypatch):
    """The passphrase comes from a variable; without one and without a terminal the error says so."""
    path = tmp_path / "key"
    keygen("-q", "-t", "ed25519", "-N", "correct horse", "-f", path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    key = load_signing_key(path, note="test", environment={"MARIN_SCALE_KEY_PASSPHRASE": "correct horse"})
    assert key.public_key.text in (tmp_path / "key.pub").read_text()
    with pytest.raises(SigningError, match="passphrase"):
        load_signing_key(path, note="test", environment={"MARIN_SCALE_KEY_PASSPHRASE": "wrong"})
    with pytest.raises(SigningError, match="terminal"):
        load_signing_key(path, note="test", environment={})


def test_a_pem_key_signs_as_well(tmp_path, ed25519_key):
    """Keys of OpenSSL's format are read, too."""
    form, clear = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(ed25519_key.private_bytes(serialization.Encoding.PEM, form, clear))
    assert load_signing_key(tmp_path / "key.pem", note="test").public_key.wire == public_key_of(ed25519_key).wire
