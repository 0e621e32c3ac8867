"""Files of a registry as a verifier reads them: one that is no regular file of sensible size is a "no", not bad input."""

from __future__ import annotations

from pathlib import Path

from marin_scaling.check.verified_step import refuse
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import StorageError
from marin_scaling.regular_files import MOST_BYTES, is_present, shown


def read_plain(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file of sensible size; `VerificationError` says what else is there."""
    if not is_present(path):
        refuse(f"{shown(path)} is missing", fix="Restore it from version control.")
    try:
        return read_bytes(path, most_bytes=most_bytes)
    except StorageError as error:
        refuse(error.what.removesuffix("."), fix="Restore the file itself from version control.")
