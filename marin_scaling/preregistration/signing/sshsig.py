"""SSH public keys and SSHSIG signatures."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import textwrap
from dataclasses import dataclass
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.preregistration.signing import sshsig as hardware_keys

ED25519 = b"sk-ssh-ed25519@openssh.com"
ECDSA = b"sk-ecdsa-sha2-nistp256@openssh.com"
KINDS = (ED25519, ECDSA)
TRAILER_BYTES = 5  # a byte of flags, and a counter of four
_TOUCHED = 0x01


@dataclass(frozen=True, kw_only=True)
class SecurityKey:
    """Public half of a security key, and its application (usually `ssh:`)."""

    public: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
    application: bytes

    def verify(self, raw: bytes, *, content: bytes, trailer: bytes) -> None:
        """Raise `InvalidSignature` unless the device signed `content` with this trailer; ECDSA signatures are DER here."""
        signed = hashlib.sha256(self.application).digest() + trailer + hashlib.sha256(content).digest()
        if isinstance(self.public, ed25519.Ed25519PublicKey):
            self.public.verify(raw, signed)
        else:
            self.public.verify(raw, signed, ec.ECDSA(hashes.SHA256()))


def was_touched(trailer: bytes) -> bool:
    """Return True if the device reports a touch by a person."""
    return len(trailer) == TRAILER_BYTES and bool(trailer[0] & _TOUCHED)


MINIMUM_RSA_BITS = 2048  # as OpenSSH and NIST SP 800-131A: 1024-bit keys are no longer a proof
_RSA_HASHES: dict[bytes, hashes.HashAlgorithm] = {b"rsa-sha2-512": hashes.SHA512(), b"rsa-sha2-256": hashes.SHA256()}
_CURVE_HASHES: dict[bytes, hashes.HashAlgorithm] = {  # RFC 5656, section 6.2.1
    b"ecdsa-sha2-nistp256": hashes.SHA256(),
    b"ecdsa-sha2-nistp384": hashes.SHA384(),
    b"ecdsa-sha2-nistp521": hashes.SHA512(),
}


class MalformedKeyError(ValueError):
    """Bytes that are not a supported key or signature; the caller names the file."""


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """Public key: kind (`ssh-ed25519`), wire form and key object."""

    kind: bytes
    wire: bytes
    key: Any

    @property
    def text(self) -> str:
        """Kind and base64, as in a `.pub` file, without a comment."""
        return f"{self.kind.decode()} {base64.b64encode(self.wire).decode()}"

    @property
    def fingerprint(self) -> str:
        """Fingerprint in the format of `ssh-keygen -l`."""
        digest = hashes.Hash(hashes.SHA256())
        digest.update(self.wire)
        return "SHA256:" + base64.b64encode(digest.finalize()).decode().rstrip("=")


def ssh_string(content: bytes) -> bytes:
    r"""Return the length in four bytes, then the content.

    >>> ssh_string(b"ab")
    b'\x00\x00\x00\x02ab'
    """
    return struct.pack(">I", len(content)) + content


def take_string(raw: bytes) -> tuple[bytes, bytes]:
    r"""Return the first string in `raw`, and the rest; `MalformedKeyError` if `raw` is too short.

    >>> take_string(b"\x00\x00\x00\x02abc")
    (b'ab', b'c')
    """
    if len(raw) < 4 or len(raw) < 4 + (length := struct.unpack(">I", raw[:4])[0]):
        raise MalformedKeyError("it is cut short")
    return raw[4 : 4 + length], raw[4 + length :]


def public_key_from_wire(wire: bytes) -> PublicKey:
    """Return the public key of a wire blob; `MalformedKeyError` for other kinds, short RSA keys and broken bytes."""
    kind, rest = take_string(wire)
    if kind in hardware_keys.KINDS:
        return PublicKey(kind=kind, wire=wire, key=_security_key(kind, rest))
    if kind not in {b"ssh-ed25519", b"ssh-rsa", *_CURVE_HASHES}:
        raise MalformedKeyError(
            f"its key is of the kind {kind[:40]!r}; Ed25519, RSA, ECDSA on a NIST curve and security keys are known"
        )
    try:
        key = serialization.load_ssh_public_key(kind + b" " + base64.b64encode(wire))
    except (ValueError, UnsupportedAlgorithm, NotImplementedError) as error:  # the last: compressed points of curves
        raise MalformedKeyError(f"its key cannot be read ({error})") from error
    public = public_key_of(key)
    if public.wire != wire:
        raise MalformedKeyError("its key is not written in the one canonical way")
    return public


def _security_key(kind: bytes, rest: bytes) -> SecurityKey:
    if kind == hardware_keys.ECDSA:
        curve, rest = take_string(rest)
        if curve != b"nistp256":
            raise MalformedKeyError(f"its key is on the curve {curve[:40]!r}, not nistp256")
    point, rest = take_string(rest)
    application, rest = take_string(rest)
    if rest:
        raise MalformedKeyError("bytes follow its key")
    try:
        if kind == hardware_keys.ECDSA:
            return SecurityKey(public=_uncompressed_point(point), application=application)
        return SecurityKey(public=ed25519.Ed25519PublicKey.from_public_bytes(point), application=application)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise MalformedKeyError(f"its key cannot be read ({error})") from error


def _uncompressed_point(point: bytes) -> ec.EllipticCurvePublicKey:
    if not point.startswith(b"\x04"):
        raise MalformedKeyError("its key is not written in the one canonical way")
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


def public_key_from_text(text: str) -> PublicKey:
    """Return the public key of a line like `ssh-ed25519 AAAA… comment`; `MalformedKeyError` for other text."""
    kind, encoded, *_ = [*text.split(None, 2), "", ""]
    try:
        public = public_key_from_wire(base64.b64decode(encoded.encode(), validate=True))
    except binascii.Error as error:
        raise MalformedKeyError("its key is not base64") from error
    if public.kind.decode() != kind:
        raise MalformedKeyError(f"it says {kind!r} and holds a key of the kind {public.kind.decode()!r}")
    return public


def public_key_of(key: Any) -> PublicKey:
    """Return the `PublicKey` of a public or private key object; `MalformedKeyError` for an RSA key that is too short."""
    public = key.public_key() if hasattr(key, "public_key") else key
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < MINIMUM_RSA_BITS:
        raise MalformedKeyError(f"its RSA key has {public.key_size} bits, fewer than {MINIMUM_RSA_BITS}")
    kind, encoded = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).split(b" ")[:2]
    return PublicKey(kind=kind, wire=base64.b64decode(encoded), key=public)


def sign_bytes(private_key: Any, content: bytes) -> bytes:
    """Return the signature blob (algorithm, signature) over `content`; RSA uses SHA-512, like `ssh-keygen -Y sign`."""
    if isinstance(private_key, ed25519.Ed25519PrivateKey):
        return ssh_string(b"ssh-ed25519") + ssh_string(private_key.sign(content))
    if isinstance(private_key, rsa.RSAPrivateKey):
        signature = private_key.sign(content, padding.PKCS1v15(), hashes.SHA512())
        return ssh_string(b"rsa-sha2-512") + ssh_string(signature)
    if isinstance(private_key, ec.EllipticCurvePrivateKey):
        kind = public_key_of(private_key).kind
        r, s = decode_dss_signature(private_key.sign(content, ec.ECDSA(_CURVE_HASHES[kind])))
        return ssh_string(kind) + ssh_string(_mpint(r) + _mpint(s))
    raise SigningError(
        f"A key of the kind {type(private_key).__name__} cannot sign here.",
        why="Ed25519, RSA and ECDSA keys are supported, those that every OpenSSH can verify.",
        fix="Make one: ssh-keygen -t ed25519 -f my_key, and give it with --key my_key.",
    )


def signature_is_valid(public: PublicKey, *, signature: bytes, content: bytes) -> bool:
    """Return True if a signature blob is this key's over `content`; `MalformedKeyError` for another kind of signature."""
    algorithm, rest = take_string(signature)
    raw, rest = take_string(rest)
    is_hardware = public.kind in hardware_keys.KINDS
    if is_hardware and not hardware_keys.was_touched(rest):
        raise MalformedKeyError("its security key was not touched, or its flags and counter are missing")
    if rest and not is_hardware:
        raise MalformedKeyError("bytes follow the signature")
    try:
        _verify(public, algorithm=algorithm, raw=raw, content=content, trailer=rest)
    except InvalidSignature:
        return False
    return True


def _verify(public: PublicKey, *, algorithm: bytes, raw: bytes, content: bytes, trailer: bytes) -> None:
    if public.kind in hardware_keys.KINDS and algorithm == public.kind:
        signature = _ecdsa_as_der(raw) if algorithm == hardware_keys.ECDSA else raw
        public.key.verify(signature, content=content, trailer=trailer)
    elif public.kind == b"ssh-rsa" and algorithm in _RSA_HASHES:
        public.key.verify(raw, content, padding.PKCS1v15(), _RSA_HASHES[algorithm])
    elif public.kind == b"ssh-ed25519" == algorithm:
        public.key.verify(raw, content)
    elif public.kind in _CURVE_HASHES and algorithm == public.kind:
        public.key.verify(_ecdsa_as_der(raw), content, ec.ECDSA(_CURVE_HASHES[public.kind]))
    else:
        raise MalformedKeyError(f"the algorithm {algorithm[:40]!r} is not one for a key of the kind {public.kind.decode()!r}")


def _ecdsa_as_der(raw: bytes) -> bytes:
    first, rest = take_string(raw)
    second, rest = take_string(rest)
    r, s = int.from_bytes(first, "big"), int.from_bytes(second, "big")
    if _mpint(r) + _mpint(s) != raw:
        raise MalformedKeyError("its ECDSA signature is not written in the one canonical way")
    return encode_dss_signature(r, s)


def _mpint(number: int) -> bytes:
    return ssh_string(number.to_bytes(number.bit_length() // 8 + 1, "big")) if number else ssh_string(b"")


NAMESPACE = "preregistration@marin-scaling"
MAX_SIGNATURE_BYTES = 16 * 1024
"""Size limit of signature files, above an RSA key of 16384 bits; larger files are refused unread."""

_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
_LINE = 70  # characters of base64 a line, as ssh-keygen writes them


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Parts of a signature file."""

    public_key: PublicKey
    namespace: str
    hash_name: bytes
    signature: bytes


def make_signature(content: bytes, *, private_key: Any, namespace: str = NAMESPACE) -> bytes:
    """Return the armored signature over `content`, with SHA-512, by a private key object of `cryptography`."""
    public = public_key_of(private_key)
    signature = sign_bytes(private_key, _signed_bytes(content, namespace=namespace, hash_name=b"sha512"))
    return armor(Signature(public_key=public, namespace=namespace, hash_name=b"sha512", signature=signature))


def armor(signature: Signature) -> bytes:
    """Return the canonical armored form of a signature."""
    fields = (signature.public_key.wire, signature.namespace.encode(), b"", signature.hash_name, signature.signature)
    blob = _MAGIC + struct.pack(">I", _VERSION) + b"".join(ssh_string(field) for field in fields)
    lines = textwrap.wrap(base64.b64encode(blob).decode(), _LINE)
    return _BEGIN + "".join(f"{line}\n" for line in lines).encode() + _END


def parse_signature(armored: bytes, *, name: str) -> Signature:
    """Return the signature in a `.sig` file; `VerificationError` unless it has exactly the form of `armor`.

    `name` is the file, for errors.
    """
    try:
        signature = _parse(armored)
    except (MalformedKeyError, binascii.Error, UnicodeDecodeError) as error:
        _refuse(name, str(error))
    if armor(signature) != armored:
        _refuse(name, "it is not written in the one canonical way (it was edited or re-wrapped)")
    return signature


def verify_signature(armored: bytes, *, content: bytes, name: str, namespace: str = NAMESPACE) -> PublicKey:
    """Return the key that signed exactly these bytes for this namespace; `VerificationError` without one."""
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
