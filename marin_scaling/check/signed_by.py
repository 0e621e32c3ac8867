"""Documents that someone signed: of a folder exactly the files that belong to it, and a signature that speaks for a name.

Notices, amendments, seals and statements are all signed so. What they say is read elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.verified_step import refuse
from marin_scaling.preregistration.allowed_signers import AllowedSigner, require_listed
from marin_scaling.preregistration.ssh_keys import PublicKey
from marin_scaling.preregistration.sshsig import NAMESPACE, parse_signature, verify_signature


def read_whole(place: Path, *, names: Sequence[str]) -> dict[str, bytes]:
    """The files of a folder by name; `VerificationError` where it is no plain folder, or holds other files than `names`."""
    present = sorted(path.name for path in place.iterdir()) if place.is_dir() and not place.is_symlink() else []
    if present != sorted(names):
        *first, last = sorted(names)
        refuse(
            f"{place} holds {', '.join(present) or 'nothing'}, not {', '.join(first)} and {last}",
            fix="Restore it from version control.",
        )
    return {name: read_plain(place / name) for name in present}


def require_signed(
    content: bytes, *, signature: bytes, path: Path, principal: str, moments: Iterable[datetime], allowed_signers: Path
) -> tuple[PublicKey, AllowedSigner]:
    """Return the key that signed `content`, and the line that lets `principal` sign with it at every one of `moments`.

    `moments` are the time that the document says, and the time at which it was received: whoever finds a key that was given up
    could write an older date. `path` is that of the signature, for errors; `VerificationError` where it is none, or by someone
    else.
    """
    key = verify_signature(signature, content=content, name=str(path))
    for moment in sorted(set(moments)):
        line = require_listed(allowed_signers, principal=principal, key=key, namespace=NAMESPACE, at=moment)
    return key, line


def fingerprint_at(path: Path) -> str:
    """The fingerprint of the key in a signature file that was verified before."""
    return parse_signature(read_plain(path), name=str(path)).public_key.fingerprint
