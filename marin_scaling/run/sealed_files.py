"""Whether the files of a folder are still those that were put there, by a digest that is kept beside it.

Formats of arrays notice when a file is missing or short, and take a changed byte for a number. Knows nothing of what the files
are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from marin_scaling.canonical_json import digest_of
from marin_scaling.durable_files import read_own_bytes, replace_file

SEAL_ENDING = ".sha256"
"""Of the file with the digest, which is called like the folder, after a dot."""


def seal(folder: Path) -> None:
    """Keep the digest of all files in a folder beside it, in place of those of folders that are no more.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name) / "step-7"
    ...     folder.mkdir()
    ...     _ = (folder / "arrays").write_bytes(b"1")
    ...     before, _, kept = is_intact(folder), seal(folder), is_intact(folder)
    ...     _ = (folder / "arrays").write_bytes(b"2")
    ...     before, kept, is_intact(folder)
    (True, True, False)
    """
    replace_file(_seal_of(folder), digest_of_files(folder).encode("ascii"))
    for other in folder.parent.glob(f".*{SEAL_ENDING}"):
        if not folder.with_name(other.name[1:].removesuffix(SEAL_ENDING)).exists():
            other.unlink(missing_ok=True)


def is_intact(folder: Path) -> bool:
    """Whether the files are those that were sealed; true of a folder that was not."""
    kept = _seal_of(folder)
    return not kept.exists() or read_own_bytes(kept) == digest_of_files(folder).encode("ascii")


def digest_of_files(folder: Path, *, without: str = "") -> str:
    """Of the names and contents of all files in a folder, but for one name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != without)
    return digest_of({path.relative_to(folder).as_posix(): _digest_of_file(path) for path in paths})


def _seal_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{SEAL_ENDING}")


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
