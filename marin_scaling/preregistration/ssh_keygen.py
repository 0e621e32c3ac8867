"""Sign with OpenSSH's own `ssh-keygen`: for keys that an agent or a security key holds and that no program can read.

The signature is verified before it is handed on: an agent that signs with another key is found out here.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

from marin_scaling.child_process import program
from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.preregistration.ssh_keys import PublicKey
from marin_scaling.preregistration.sshsig import NAMESPACE, verify_signature


def sign_with_agent(content: bytes, *, key: PublicKey) -> bytes:
    """The armored signature over `content` by the agent's private half of `key`; `SigningError` when there is none."""
    with tempfile.TemporaryDirectory() as folder:
        public = Path(folder) / "key.pub"
        public.write_text(f"{key.text}\n", encoding="ascii")
        return sign_with_file(content, path=public, key=key)


def agent_holds(key: PublicKey) -> bool:
    """Whether a running agent has the private half of `key`; False where there is no agent."""
    try:
        listed = subprocess.run([program("ssh-add"), "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return any(line.split()[:2] == key.text.split()[:2] for line in listed.stdout.splitlines())


def sign_with_file(content: bytes, *, path: Path, key: PublicKey) -> bytes:
    """The same, with the key file that `ssh-keygen` is given: a public one (agent), or the handle of a security key."""
    try:
        command = [program("ssh-keygen"), "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(path)]
        done = subprocess.run(command, input=content, capture_output=True, check=False)
    except OSError as error:
        _refuse(key, f"ssh-keygen cannot be run ({(error.strerror or str(error)).lower()})")
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        _refuse(key, words[-1] if words else f"ssh-keygen ended with status {done.returncode}")
    try:
        signer = verify_signature(done.stdout, content=content, name="what ssh-keygen made")
    except VerificationError as error:
        _refuse(key, error.what)
    if signer.wire != key.wire:
        _refuse(key, f"ssh-keygen signed with another key, {signer.fingerprint}")
    return done.stdout


def _refuse(key: PublicKey, reason: str) -> NoReturn:
    raise SigningError(
        f"The key {key.fingerprint} did not sign: {reason}.",
        why="Its private half is held by an agent or a security key, which OpenSSH's ssh-keygen asks.",
        fix="Start the agent and add the key (ssh-add), plug the security key in and touch it, or give another key with --key.",
    )
