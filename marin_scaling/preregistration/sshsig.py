"""SSHSIG: detached signatures over the exact bytes of a file, as `ssh-keygen -Y sign` writes and `-Y verify` reads them.

Format: PROTOCOL.sshsig of OpenSSH. The namespace is part of what is signed, so that a signature of a git commit or a login can
never pass for one of a forecast. Whether the signing key is allowed to speak is `allowed_signers`' business.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import textwrap
from dataclasses import dataclass
from typing import Any, NoReturn

from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.ssh_keys import (
    MalformedKeyError,
    PublicKey,
    public_key_from_wire,
    public_key_of,
    sign_bytes,
    signature_is_valid,
    ssh_string,
    take_string,
)

NAMESPACE = "preregistration@marin-scaling"
MAX_SIGNATURE_BYTES = 16 * 1024
"""More than an RSA key of 16384 bits needs; longer files are refused unread."""

_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
_LINE = 70  # characters of base64 a line, as ssh-keygen writes them


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parts of a signature file."""

    public_key: PublicKey
    namespace: str
    hash_name: bytes
    signature: bytes


def make_signature(content: bytes, *, private_key: Any, namespace: str = NAMESPACE) -> bytes:
    """The armored signature file over `content`, with SHA-512, by a private key object of `cryptography`."""
    public = public_key_of(private_key)
    signature = sign_bytes(private_key, _signed_bytes(content, namespace=namespace, hash_name=b"sha512"))
    return armor(Signature(public_key=public, namespace=namespace, hash_name=b"sha512", signature=signature))


def armor(signature: Signature) -> bytes:
    """The one armored form of a signature."""
    fields = (signature.public_key.wire, signature.namespace.encode(), b"", signature.hash_name, signature.signature)
    blob = _MAGIC + struct.pack(">I", _VERSION) + b"".join(ssh_string(field) for field in fields)
    lines = textwrap.wrap(base64.b64encode(blob).decode(), _LINE)
    return _BEGIN + "".join(f"{line}\n" for line in lines).encode() + _END


def parse_signature(armored: bytes, *, name: str) -> Signature:
    """The signature in the bytes of a `.sig` file; `VerificationError` unless it is exactly the form that `armor` writes.

    `name` is the file to speak of in errors.
    """
    try:
        signature = _parse(armored)
    except (MalformedKeyError, binascii.Error, UnicodeDecodeError) as error:
        _refuse(name, str(error))
    if armor(signature) != armored:
        _refuse(name, "it is not written in the one canonical way (it was edited or re-wrapped)")
    return signature


def verify_signature(armored: bytes, *, content: bytes, name: str, namespace: str = NAMESPACE) -> PublicKey:
    """The key that signed exactly these bytes for this namespace; `VerificationError` when there is none."""
    signature = parse_signature(armored, name=name)
    if signature.namespace != namespace:
        _refuse(name, f"it was made for the namespace {signature.namespace!r}, not {namespace!r}")
    signed = _signed_bytes(content, namespace=namespace, hash_name=signature.hash_name)
    try:
        valid = signature_is_valid(signature.public_key, signature=signature.signature, content=signed)
    except MalformedKeyError as error:
        _refuse(name, str(error))
    if not valid:
        _refuse(name, f"the key {signature.public_key.fingerprint} did not sign these bytes")
    return signature.public_key


def _parse(armored: bytes) -> Signature:
    if len(armored) > MAX_SIGNATURE_BYTES:
        raise MalformedKeyError(f"it has {len(armored)} bytes, more than {MAX_SIGNATURE_BYTES}")
    if not (armored.startswith(_BEGIN) and armored.endswith(_END)):
        raise MalformedKeyError("it has no BEGIN and END SSH SIGNATURE lines")
    blob = base64.b64decode(armored[len(_BEGIN) : -len(_END)].replace(b"\n", b""), validate=True)
    if blob[: len(_MAGIC)] != _MAGIC or blob[len(_MAGIC) : len(_MAGIC) + 4] != struct.pack(">I", _VERSION):
        raise MalformedKeyError(f"it is not an SSHSIG of version {_VERSION}")
    wire, rest = take_string(blob[len(_MAGIC) + 4 :])
    namespace, rest = take_string(rest)
    reserved, rest = take_string(rest)
    hash_name, rest = take_string(rest)
    signature, rest = take_string(rest)
    if rest or reserved:
        raise MalformedKeyError("it holds bytes that its format does not know")
    if hash_name not in _HASHES:
        raise MalformedKeyError(f"it uses the hash {hash_name[:40]!r}; only sha256 and sha512 are accepted")
    public = public_key_from_wire(wire)
    return Signature(public_key=public, namespace=namespace.decode(), hash_name=hash_name, signature=signature)


def _signed_bytes(content: bytes, *, namespace: str, hash_name: bytes) -> bytes:
    digest = _HASHES[hash_name](content).digest()
    return _MAGIC + b"".join(ssh_string(field) for field in (namespace.encode(), b"", hash_name, digest))


def _refuse(name: str, reason: str) -> NoReturn:
    raise VerificationError(
        f"{name} is not a valid signature: {reason}.",
        why="Only a signature by a known key over the exact bytes shows who made this forecast, and that it is unchanged.",
        fix="Restore the file from version control; if it never was valid, register the forecast anew, before its run.",
    )
