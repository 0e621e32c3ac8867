"""Security keys (FIDO), of the kinds `sk-ssh-ed25519@openssh.com` and `sk-ecdsa-sha2-nistp256@openssh.com`; verification only.

Such a key signs the digest of its application's name, a byte of flags, a counter, and the digest of the message (PROTOCOL.u2f
of OpenSSH). A signature that was made without a touch is refused. Signing is the device's business, through `ssh-keygen`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

ED25519 = b"sk-ssh-ed25519@openssh.com"
ECDSA = b"sk-ecdsa-sha2-nistp256@openssh.com"
KINDS = (ED25519, ECDSA)
TRAILER_BYTES = 5  # a byte of flags, and a counter of four
_TOUCHED = 0x01


@dataclass(frozen=True, kw_only=True)
class SecurityKey:
    """The public half, and the application for which the device made it (usually `ssh:`)."""

    public: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
    application: bytes

    def verify(self, raw: bytes, *, content: bytes, trailer: bytes) -> None:
        """`InvalidSignature` unless the device signed `content` with these flags and counter; ECDSA signatures are DER here."""
        signed = hashlib.sha256(self.application).digest() + trailer + hashlib.sha256(content).digest()
        if isinstance(self.public, ed25519.Ed25519PublicKey):
            self.public.verify(raw, signed)
        else:
            self.public.verify(raw, signed, ec.ECDSA(hashes.SHA256()))


def was_touched(trailer: bytes) -> bool:
    """Whether a person was there: the flag that the device sets when it is touched."""
    return len(trailer) == TRAILER_BYTES and bool(trailer[0] & _TOUCHED)
