"""Files of a registry as a verifier reads them: no link, no device, and nothing so large that reading it would be an attack."""

from __future__ import annotations

import stat
from pathlib import Path

from marin_scaling.canonical_json import MAX_DOCUMENT_BYTES
from marin_scaling.check.verified_step import refuse
from marin_scaling.durable_files import read_bytes


def read_plain(path: Path, *, most_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The bytes of a plain file of sensible size; `VerificationError` says what else is there."""
    if not path.is_symlink() and not path.exists():
        refuse(f"{path} is missing", fix="Restore it from version control.")
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        refuse(
            f"{path} is not a plain file (a link, a folder or a device)", fix="Restore the file itself from version control."
        )
    if status.st_size > most_bytes:
        refuse(f"{path} has {status.st_size} bytes, more than {most_bytes}", fix="Restore the file from version control.")
    return read_bytes(path)
