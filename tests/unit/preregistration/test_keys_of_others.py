"""Keys that no program can read: an agent signs, a security key signs, and stock OpenSSH agrees with what we verify."""

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.preregistration.signing.keys import find_signing_key, load_signing_key
from marin_scaling.preregistration.signing.sshsig import (
    NAMESPACE,
    Signature,
    armor,
    public_key_from_wire,
    ssh_string,
    verify_signature,
)

MESSAGE = b"what is promised\n"
pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen of OpenSSH is not installed")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real ssh-agent that holds a key whose file is gone but for its public half."""
    said = subprocess.run(["ssh-agent", "-s", "-a", str(tmp_path / "agent")], capture_output=True, text=True, check=True).stdout
    pid = int(said.split("SSH_AGENT_PID=")[1].split(";")[0])
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key)], check=True)
    subprocess.run(["ssh-add", "-q", str(key)], check=True)
    key.unlink()
    yield key.with_suffix(".pub")
    os.kill(pid, signal.SIGTERM)


def test_an_agent_signs_for_the_public_half(agent: Path) -> None:
    """Nobody needs the private key on the machine where forecasts are made."""
    key = load_signing_key(agent, note="given with --key")
    assert "whose private half the agent holds" in key.note
    signer = verify_signature(key.sign(MESSAGE), content=MESSAGE, name="m.sig")
    assert signer.wire == key.public_key.wire


@pytest.mark.parametrize("suffix", ["", ".pub"])
def test_an_agent_opens_an_encrypted_key_that_lies_here(agent: Path, tmp_path: Path, suffix: str) -> None:
    """Nobody is asked for a passphrase that the agent has heard already; another locked key is asked for."""
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(locked)], check=True)
    subprocess.run(["ssh-add", "-q", str(locked)], check=True)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(locked)], check=True)
    key = load_signing_key(tmp_path / f"locked{suffix}", note="given with --key", environment={})
    assert "whose private half the agent holds" in key.note
    assert verify_signature(key.sign(MESSAGE), content=MESSAGE, name="m.sig").wire == key.public_key.wire
    subprocess.run(["ssh-add", "-q", "-D"], check=True)
    with pytest.raises(SigningError, match="is encrypted, and there is no terminal"):
        load_signing_key(tmp_path / f"locked{suffix}", note="given with --key", environment={})


@pytest.mark.parametrize("prefix", ["key::", ""])
def test_a_key_that_stands_in_gits_settings_is_the_agents(
    agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """As password managers set it up."""
    (tmp_path / "gitconfig").write_text(f'[gpg]\nformat = ssh\n[user]\nsigningkey = "{prefix}{agent.read_text().strip()}"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.chdir(tmp_path)
    key = find_signing_key()
    assert verify_signature(key.sign(MESSAGE), content=MESSAGE, name="m.sig").wire == key.public_key.wire


def test_without_the_agent_it_is_said_what_is_missing(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public half alone signs nothing."""
    key = load_signing_key(agent, note="given with --key")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    with pytest.raises(SigningError, match="did not sign"):
        key.sign(MESSAGE)


def mpint(number: int) -> bytes:
    """An integer as SSH writes it."""
    return ssh_string(number.to_bytes(number.bit_length() // 8 + 1, "big"))


class Device:
    """What a security key does, with the key in memory: it signs as PROTOCOL.u2f says."""

    def __init__(self, kind: str) -> None:
        self.kind = kind.encode()
        self.private: Any = (
            ed25519.Ed25519PrivateKey.generate() if "ed25519" in kind else ec.generate_private_key(ec.SECP256R1())
        )

    @property
    def wire(self) -> bytes:
        """Kind, point, application."""
        if "ed25519" in self.kind.decode():
            return ssh_string(self.kind) + ssh_string(self.private.public_key().public_bytes_raw()) + ssh_string(b"ssh:")
        numbers = self.private.public_key().public_numbers()
        point = b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
        return ssh_string(self.kind) + ssh_string(b"nistp256") + ssh_string(point) + ssh_string(b"ssh:")

    def sign(self, content: bytes, *, flags: int = 1, counter: int = 7) -> bytes:
        """The armored signature of a device that sets these flags."""
        signed = b"SSHSIG" + b"".join(
            ssh_string(field) for field in (NAMESPACE.encode(), b"", b"sha512", hashlib.sha512(content).digest())
        )
        trailer = bytes([flags]) + counter.to_bytes(4, "big")
        message = hashlib.sha256(b"ssh:").digest() + trailer + hashlib.sha256(signed).digest()
        if "ed25519" in self.kind.decode():
            raw = self.private.sign(message)
        else:
            raw = b"".join(map(mpint, decode_dss_signature(self.private.sign(message, ec.ECDSA(hashes.SHA256())))))
        blob = ssh_string(self.kind) + ssh_string(raw) + trailer
        public = public_key_from_wire(self.wire)
        return armor(Signature(public_key=public, namespace=NAMESPACE, hash_name=b"sha512", signature=blob))


@pytest.fixture(params=["sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"])
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.param)


def ssh_keygen_accepts(device: Device, armored: bytes, content: bytes, folder: Path) -> bool:
    """What stock OpenSSH says of it."""
    public = public_key_from_wire(device.wire)
    (folder / "signers").write_text(f'ada@example.org namespaces="{NAMESPACE}" {public.text}\n')
    (folder / "m.sig").write_bytes(armored)
    command = ["ssh-keygen", "-Y", "verify", "-f", folder / "signers", "-I", "ada@example.org", "-n", NAMESPACE]
    command += ["-s", folder / "m.sig"]
    return subprocess.run(list(map(str, command)), input=content, capture_output=True, check=False).returncode == 0


def test_what_a_security_key_signs_is_accepted_by_us_and_by_openssh(device: Device, tmp_path: Path) -> None:
    """The device is in memory here, its signatures are not told from a real one's."""
    armored = device.sign(MESSAGE)
    assert verify_signature(armored, content=MESSAGE, name="m.sig").wire == device.wire
    assert ssh_keygen_accepts(device, armored, MESSAGE, tmp_path)
    assert not ssh_keygen_accepts(device, armored, MESSAGE + b"x", tmp_path)


def test_other_bytes_another_counter_and_an_untouched_key_are_refused(device: Device) -> None:
    """A device that signs while nobody is there shows nothing of a person."""
    armored = device.sign(MESSAGE)
    with pytest.raises(VerificationError, match="did not sign these bytes"):
        verify_signature(armored, content=MESSAGE + b"x", name="m.sig")
    with pytest.raises(VerificationError, match="was not touched"):
        verify_signature(device.sign(MESSAGE, flags=0), content=MESSAGE, name="m.sig")


def test_the_handle_of_a_security_key_is_known_by_the_public_half_beside_it(device: Device, tmp_path: Path) -> None:
    """Without the device it does not sign, and says so."""
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "id.pub").write_text(public_key_from_wire(device.wire).text + "\n")
    key = load_signing_key(tmp_path / "id", note="given with --key")
    assert key.held_by == "security key"
    with pytest.raises(SigningError, match="plug the security key in"):
        key.sign(MESSAGE)
