"""Files that appear whole or not at all, once: the store's and the registry's way to write.

Nothing is ever half-written (temporary name, fsync, then one atomic step) and nothing is overwritten by `write_once`
or `publish_folder`. Errors of the disk become `StorageError` with the path in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from marin_scaling.errors import StorageError
from marin_scaling.regular_files import MOST_BYTES, read_linked_file, read_regular_file, shown


def read_bytes(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file of bounded size that is reached over no link.

    `StorageError` names a file that is missing, unreadable, or something else.
    """
    with disk_errors(path, "read"):
        return read_regular_file(path, most_bytes=most_bytes)


def read_own_bytes(path: Path) -> bytes:
    """Return the bytes of a file that this machine wrote for itself; its folder may be a link to another disk."""
    with disk_errors(path, "read"):
        return read_linked_file(path)


def write_once(path: Path, content: bytes) -> None:
    """Write a new file atomically; a file already there is an error, never overwritten."""
    with disk_errors(path, "written"):
        temporary = _write_temporary(path, content)
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, over an older one if there is one (for progress and generated pages, not for records)."""
    with disk_errors(path, "written"):
        temporary = _write_temporary(path, content)
        try:
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def publish_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` appear with all `files` in it, in one atomic step; a folder already there is an error."""
    with new_folder(folder) as temporary:
        for name, content in files.items():
            (temporary / name).write_bytes(content)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill in this block, which appears as `folder` when the block ends well, and else not at all.

    `StorageError` when `folder` is there already, unless it is empty.
    """
    with disk_errors(folder, "written"):
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise FileExistsError(17, "it is already there and not empty, and is never overwritten", str(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_name(folder)
        try:
            temporary.mkdir()
            yield temporary
            sync_folder(temporary)
            os.rename(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Let every file below `folder` reach the disk, whoever wrote it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def require_writable(folder: Path) -> None:
    """Make `folder` where there is none and try that it can be written: before hours of work, not after."""
    with disk_errors(folder, "written"):
        _write_temporary(folder / "probe", b"probe").unlink()


def _write_temporary(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        _write_synced(temporary, content)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{path.name}.{os.urandom(4).hex()}.tmp"


def _write_synced(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def disk_errors(path: Path, verb: str) -> Iterator[None]:
    """Errors of the disk in this block become a `StorageError` about `path`, which could not be "read" or "written"."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"{shown(path)} cannot be {verb}: {reason[0].lower() + reason[1:]}.",
            why=_WHYS[verb],
            fix=_FIXES.get(error.errno or 0, "Check the path, and that the folder may be read and written."),
        ) from error


_WHYS = {
    "read": "What stands there is needed to go on; nothing was written.",
    "written": "Nothing was left half-written; what was there before is untouched.",
}
_FIXES = {
    2: "Check the path; `ls` its folder.",
    13: "Give yourself permission to that folder, or choose another with the command's options.",
    17: "Use the one that is there, or choose another name.",
    20: "A part of that path is a file, not a folder: check the path.",
    21: "That is a folder: name a file in it.",
    27: "A limit on the size of files forbids it (`ulimit -f`): raise it, or write elsewhere.",
    28: "Free some space on that disk and run the same command again; it goes on where it was.",
    30: "That file system is read-only: work in a folder that can be written.",
}
