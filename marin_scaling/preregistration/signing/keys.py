"""Signing keys from files, agents and security keys, or newly made."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.files import configuration_folder, write_secret
from marin_scaling.git import own_setting
from marin_scaling.git import setting as git_setting
from marin_scaling.preregistration.layout import PRINCIPAL
from marin_scaling.preregistration.signing.sshsig import (
    NAMESPACE,
    MalformedKeyError,
    PublicKey,
    make_signature,
    public_key_from_text,
    public_key_of,
    verify_signature,
)
from marin_scaling.untrusted_files import program


def sign_with_agent(content: bytes, *, key: PublicKey) -> bytes:
    """Return the armored signature over `content` by the agent's private half of `key`; `SigningError` without one."""
    with tempfile.TemporaryDirectory() as folder:
        public = Path(folder) / "key.pub"
        public.write_text(f"{key.text}\n", encoding="ascii")
        return sign_with_file(content, path=public, key=key)


def sign_with_program(content: bytes, *, program_path: str, key_file: Path | None, key: PublicKey) -> bytes:
    """Return the armored signature that git's `gpg.ssh.program` makes, called as git calls it: key and content in files."""
    with tempfile.TemporaryDirectory() as folder:
        public, signed = Path(folder) / "key.pub", Path(folder) / "content"
        public.write_text(f"{key.text}\n", encoding="ascii")
        signed.write_bytes(content)
        command = [program_path, "-Y", "sign", "-n", NAMESPACE, "-f", str(key_file or public), str(signed)]
        try:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as error:
            _refuse_signature(key, f"{program_path} (gpg.ssh.program) cannot be run ({(error.strerror or str(error)).lower()})")
        made = signed.with_name("content.sig")
        if done.returncode or not made.is_file():
            words = done.stderr.decode(errors="replace").strip().splitlines()
            said = words[-1] if words else f"it ended with status {done.returncode} and no signature"
            _refuse_signature(key, f"{program_path} (gpg.ssh.program): {said}")
        return _checked(made.read_bytes(), content=content, key=key, by=program_path)


def _checked(signature: bytes, *, content: bytes, key: PublicKey, by: str) -> bytes:
    """Return the signature if it is by that key over that content; else raise `SigningError`."""
    try:
        signer = verify_signature(signature, content=content, name=f"what {by} made")
    except VerificationError as error:
        _refuse_signature(key, error.what)
    if signer.wire != key.wire:
        _refuse_signature(key, f"{by} signed with another key, {signer.fingerprint}")
    return signature


def agent_holds(key: PublicKey) -> bool:
    """Return True if a running agent has the private half of `key`."""
    try:
        listed = subprocess.run([program("ssh-add"), "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return any(line.split()[:2] == key.text.split()[:2] for line in listed.stdout.splitlines())


def sign_with_file(content: bytes, *, path: Path, key: PublicKey) -> bytes:
    """Sign with `ssh-keygen` and a key file: a public one (agent), or the handle of a security key."""
    try:
        command = [program("ssh-keygen"), "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(path)]
        done = subprocess.run(command, input=content, capture_output=True, check=False)
    except OSError as error:
        _refuse_signature(key, f"ssh-keygen cannot be run ({(error.strerror or str(error)).lower()})")
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        _refuse_signature(key, words[-1] if words else f"ssh-keygen ended with status {done.returncode}")
    return _checked(done.stdout, content=content, key=key, by="ssh-keygen")


def _refuse_signature(key: PublicKey, reason: str) -> NoReturn:
    raise SigningError(
        f"The key {key.fingerprint} did not sign: {reason}.",
        why="Its private half is held by an agent or a security key, which OpenSSH's ssh-keygen asks.",
        fix="Start the agent and add the key (ssh-add), plug the security key in and touch it, or give another key with --key.",
    )


class NoSigningKeyError(SigningError):
    """Missing signing key: options, git's settings and our own file have none."""


Holder = Literal["file", "agent", "security key", "program of git's gpg.ssh.program"]
PASSPHRASE_VARIABLE = "MARIN_SCALE_KEY_PASSPHRASE"
_PUBLIC_KINDS = (b"ssh-", b"ecdsa-", b"sk-")


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """Key ready to sign, with its source and a message about it.

    `private_key` is None if only `ssh-keygen` can use it.
    """

    private_key: Any
    public_key: PublicKey
    path: Path
    note: str
    """Message naming the key, and whether it is new."""
    held_by: Holder = "file"
    program_path: str | None = None
    """The user's `gpg.ssh.program`, which signs in place of `ssh-keygen`."""

    def sign(self, content: bytes) -> bytes:
        """Return the armored signature over `content`; `SigningError` if an agent or a security key refuses."""
        if self.program_path is not None:
            key_file = self.path if self.path.is_file() else None
            return sign_with_program(content, program_path=self.program_path, key_file=key_file, key=self.public_key)
        if self.held_by == "agent":
            return sign_with_agent(content, key=self.public_key)
        if self.held_by == "security key":
            return sign_with_file(content, path=self.path, key=self.public_key)
        return make_signature(content, private_key=self.private_key)


def find_signing_key(
    option: Path | None = None, *, make: bool = False, environment: Mapping[str, str] | None = None
) -> SigningKey:
    """Return the key of `option`, else git's SSH signing key, else our own key.

    With `make`, a missing own key is made with mode 0600. `environment` replaces the process's variables. `SigningError`
    names an unusable file, or reports that there is no key.
    """
    variables = os.environ if environment is None else environment
    if option is not None:
        return load_signing_key(option, note="given with --key", environment=variables)
    if from_git := _key_of_git(variables):
        return from_git
    own = own_key_path(variables)
    if own.exists():
        return load_signing_key(own, note="made by marin-scale earlier", environment=variables)
    if not make:
        raise NoSigningKeyError(
            f"There is no signing key: no --key, no user.signingkey of git, no {own}.",
            why="Only a key that is listed in allowed_signers counts here.",
            fix="Name your key: --key FILE",
        )
    return make_signing_key(own)


def _key_of_git(environment: Mapping[str, str]) -> SigningKey | None:
    """Return git's signing key: a file, a public key in its settings, or the output of the user's `gpg.ssh.defaultKeyCommand`.

    Program and command are read from the user's and the machine's settings, never from a repository's.
    """
    if git_setting("gpg.format") != "ssh":
        return None
    signer, note = _own_program("gpg.ssh.program"), "git's user.signingkey"
    if from_git := _git_signing_key():
        public = from_git if from_git.suffix == ".pub" else from_git.with_name(from_git.name + ".pub")
        if signer and public.is_file():
            return _program_key(public.read_bytes(), path=from_git, signer=signer, note=note)
        return load_signing_key(from_git, note=note, environment=environment)
    literal = _git_literal_key()
    if literal is None and git_setting("user.signingkey") is None:
        literal, note = _default_key(), "git's gpg.ssh.defaultKeyCommand"
    if literal is None:
        return None
    if signer:
        return _program_key(literal.encode(), path=Path("git"), signer=signer, note=note)
    return _public_only(literal.encode(), path=Path("git"), held_by="agent", note=note)


def _program_key(raw: bytes, *, path: Path, signer: str, note: str) -> SigningKey:
    found = _public_only(raw, path=path, held_by="program of git's gpg.ssh.program", note=note)
    return replace(found, program_path=signer)


def _own_program(name: str) -> str | None:
    """Return the absolute path of a program in the user's git settings; a path relative to a folder is refused."""
    named = own_setting(name, "--type=path")
    if named is None:
        return None
    if os.path.isabs(named):
        return named
    if os.sep not in named:
        try:
            return program(named)
        except FileNotFoundError:
            pass
    raise SigningError(
        f"git's {name} is {named!r}, which is not an installed program.",
        why="A path relative to a folder could name a file of a stranger's repository.",
        fix=f"Give its absolute path (git config --global {name} /PATH), or another key with --key.",
    )


def _default_key() -> str | None:
    """Return the first key that the user's `gpg.ssh.defaultKeyCommand` prints; None without such a command."""
    command = own_setting("gpg.ssh.defaultKeyCommand")
    if command is None:
        return None
    try:
        first, *words = shlex.split(command)
        path = first if os.path.isabs(first) else program(first)
        done = subprocess.run(
            [path, *words], cwd=Path.home(), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        _refuse_command(command, str(error))
    printed = done.stdout.decode(errors="replace").partition("\n")[0].strip().removeprefix("key::")
    if done.returncode or not printed.encode().startswith(_PUBLIC_KINDS):
        _refuse_command(command, f"status {done.returncode}, and its first line is not a public key: {printed[:60]!r}")
    return printed


def _refuse_command(command: str, reason: str) -> NoReturn:
    raise SigningError(
        f"git's gpg.ssh.defaultKeyCommand, {command!r}, gives no key: {reason}.",
        why="git takes its signing key from that command.",
        fix="Correct the command, set git's user.signingkey, or give a key with --key.",
    )


def load_signing_key(path: Path, *, note: str, environment: Mapping[str, str] | None = None) -> SigningKey:
    """Return the private key in a file (OpenSSH or PEM); for a `.pub` file, the private key beside it."""
    private_path = path.with_suffix("") if path.suffix == ".pub" and path.with_suffix("").exists() else path
    try:
        raw = private_path.read_bytes()
    except OSError as error:
        _refuse(private_path, (error.strerror or str(error)).lower())
    if raw.startswith(_PUBLIC_KINDS):
        return _public_only(raw, path=private_path, held_by="agent", note=note)
    beside = private_path.with_name(private_path.name + ".pub")
    if beside.is_file() and beside.read_bytes().startswith(b"sk-"):
        return _public_only(beside.read_bytes(), path=private_path, held_by="security key", note=note)
    variables = os.environ if environment is None else environment
    if beside.is_file() and PASSPHRASE_VARIABLE not in variables and _is_locked(raw) and _agent_holds(beside):
        return _public_only(beside.read_bytes(), path=private_path, held_by="agent", note=note)
    private_key = _private_key(raw, path=private_path, passphrase=lambda: _passphrase(private_path, variables))
    try:
        public = public_key_of(private_key)
    except (MalformedKeyError, ValueError, UnsupportedAlgorithm) as error:  # a kind of key that OpenSSH does not sign with
        _refuse(private_path, str(error))
    return SigningKey(
        private_key=private_key,
        public_key=public,
        path=private_path,
        note=f"signing key {_shown(private_path)} ({note}), {public.fingerprint}",
    )


def _is_locked(raw: bytes) -> bool:
    """Return True if a private key is encrypted."""
    try:
        _loader(raw)(raw, None)
    except TypeError:  # how `cryptography` says so
        return True
    except (ValueError, UnsupportedAlgorithm, NotImplementedError):
        return False
    return False


def _agent_holds(public: Path) -> bool:
    try:
        return agent_holds(public_key_from_text(public.read_text(encoding="ascii", errors="replace")))
    except MalformedKeyError:
        return False


def _loader(raw: bytes) -> Callable[..., Any]:
    return serialization.load_ssh_private_key if b"OPENSSH PRIVATE KEY" in raw else serialization.load_pem_private_key


def _public_only(raw: bytes, *, path: Path, held_by: Holder, note: str) -> SigningKey:
    try:
        public = public_key_from_text(raw.decode("ascii", errors="replace"))
    except MalformedKeyError as error:
        _refuse(path, str(error))
    where = f"{_shown(path)} ({note}), whose private half the {held_by} holds"
    return SigningKey(
        private_key=None,
        public_key=public,
        path=path,
        held_by=held_by,
        note=f"signing key {where}, {public.fingerprint}",
    )


def make_signing_key(path: Path) -> SigningKey:
    """Make an Ed25519 key at `path` (mode 0600) and `path`.pub; an existing file is an error."""
    private_key = ed25519.Ed25519PrivateKey.generate()
    public = public_key_of(private_key)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    secret = private_key.private_bytes(encoding, form, serialization.NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(path, secret)
        path.with_name(path.name + ".pub").write_text(f"{public.text} marin-scaling\n", encoding="ascii")
    except OSError as error:
        raise SigningError(
            f"A signing key cannot be made at {path}: {(error.strerror or str(error)).lower()}.",
            why="A forecast is worth what its signature is worth, so none is registered without one.",
            fix="Make that folder writable, set XDG_CONFIG_HOME to another, or give a key of yours with --key.",
        ) from error
    note = f"new signing key {_shown(path)} (keep it private; share {path.name}.pub), {public.fingerprint}"
    return SigningKey(private_key=private_key, public_key=public, path=path, note=note)


def own_key_path(environment: Mapping[str, str]) -> Path:
    """Return the path of our own key: `$XDG_CONFIG_HOME/marin-scaling/signing_key`.

    >>> print(own_key_path({"XDG_CONFIG_HOME": "/home/ada/.config"}))
    /home/ada/.config/marin-scaling/signing_key
    """
    return configuration_folder(environment) / "signing_key"


def _shown(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def find_principal(option: str | None = None) -> str:
    """Return the name to sign as: `option` (--as), else git's user.email, else user@hostname."""
    principal = option or git_setting("user.email") or f"{_user_name()}@{socket.gethostname()}"
    if not re.fullmatch(PRINCIPAL, principal):
        raise SigningError(
            f"{principal!r} cannot be the name of a signer.",
            why="It stands in a list of signers, where spaces, quotes, commas and asterisks have a meaning of their own.",
            fix="Give a name like ada@example.org with --as.",
        )
    return principal


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without an entry in the system's list, as in many containers
        return f"user{os.getuid()}"


def _git_signing_key() -> Path | None:
    named = git_setting("user.signingkey", "--type=path")
    return Path(named) if named and Path(named).is_file() else None


def _git_literal_key() -> str | None:
    """Return a public key in git's settings, as `key::ssh-ed25519 AAAA…` or without the `key::`."""
    named = (git_setting("user.signingkey") or "").removeprefix("key::")
    return named if named.encode().startswith(_PUBLIC_KINDS) else None


def _private_key(raw: bytes, *, path: Path, passphrase: Callable[[], bytes]) -> Any:
    if b"BEGIN PUBLIC KEY" in raw or b"BEGIN SSH2 PUBLIC KEY" in raw:
        _refuse(path, "it holds a public key only, and signing needs the private one")
    load = _loader(raw)
    try:
        return load(raw, None)
    except TypeError:  # encrypted
        pass
    except (ValueError, UnsupportedAlgorithm, NotImplementedError) as error:
        _refuse(path, f"it is not a private key in the OpenSSH or PEM format ({error})")
    try:
        return load(raw, passphrase())
    except (ValueError, TypeError, UnsupportedAlgorithm, NotImplementedError) as error:
        _refuse(path, f"the passphrase does not open it ({error})")


def _passphrase(path: Path, environment: Mapping[str, str]) -> bytes:
    if PASSPHRASE_VARIABLE in environment:
        return environment[PASSPHRASE_VARIABLE].encode()
    if sys.stdin.isatty():
        return getpass.getpass(f"Passphrase of {path}: ").encode()
    raise SigningError(
        f"{path} is encrypted, and there is no terminal to ask for its passphrase.",
        why="The key stays closed until its owner opens it.",
        fix=f"Set {PASSPHRASE_VARIABLE}, run this on a terminal, or give another key with --key.",
    )


def _refuse(path: Path, reason: str) -> NoReturn:
    raise SigningError(
        f"{path} cannot be used as a signing key: {reason}.",
        why="A forecast is worth what its signature is worth, so none is registered without one.",
        fix="Give an Ed25519, ECDSA or RSA (2048 bits or more) private key with --key, or make one: ssh-keygen -t ed25519",
    )
