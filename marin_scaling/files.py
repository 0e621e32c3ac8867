"""Atomic file writes, folder locks and strict reads of regular files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from marin_scaling.errors import StorageError, refuse
from marin_scaling.untrusted_files import MOST_BYTES, is_present, read_linked_file, read_regular_file, shown


def read_bytes(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file of bounded size with no link in its path; `StorageError` if there is none."""
    with disk_errors(path, "read"):
        return read_regular_file(path, most_bytes=most_bytes)


def read_own_bytes(path: Path) -> bytes:
    """Return the bytes of a file that this machine wrote; its folder may be a link to another disk."""
    with disk_errors(path, "read"):
        return read_linked_file(path)


def write_once(path: Path, content: bytes) -> None:
    """Write a new file atomically; raise if it exists."""
    with disk_errors(path, "written"):
        temporary = _write_temporary(path, content)
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, replacing an older one (for progress and generated pages, not for records)."""
    with disk_errors(path, "written"):
        temporary = _write_temporary(path, content)
        try:
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def hide_from_git(folder: Path) -> None:
    """Write a `.gitignore` into a folder of this machine's own, which keeps its content out of commits."""
    replace_file(folder / ".gitignore", b"*\n")


def publish_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Create `folder` with all `files` in one atomic step; raise if it exists."""
    with new_folder(folder) as temporary:
        for name, content in files.items():
            (temporary / name).write_bytes(content)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` if the block succeeds, and removed if it fails.

    `StorageError` if `folder` exists and is not empty.
    """
    with disk_errors(folder, "written"):
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise FileExistsError(17, "it exists, is not empty, and is never overwritten", str(folder))
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
    """Flush every file below `folder` to disk, including those of other programs."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def require_writable(folder: Path) -> None:
    """Create `folder` if missing and test that it is writable, before hours of work."""
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
    """Convert an `OSError` in this block to a `StorageError`: `path` cannot be `verb` ("read" or "written")."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"{shown(path)} cannot be {verb}: {reason[0].lower() + reason[1:]}.",
            why="Earlier content is unchanged; no file is half-written." if verb == "written" else "",
            fix=_FIXES.get(error.errno or 0, "Check the path, and that the folder may be read and written."),
        ) from error


_FIXES = {
    2: "Check the path with `ls`.",
    13: "Get permission to that folder, or choose another folder with the command's options.",
    17: "Use the existing one, or choose another name.",
    20: "A part of the path is a file instead of a folder; check the path.",
    21: "The path is a folder; name a file in it.",
    27: "Raise the limit on file sizes (`ulimit -f`), or write elsewhere.",
    28: "Free some space on that disk, then rerun the command; it resumes.",
    30: "The file system is read-only; work in a writable folder.",
}


@contextlib.contextmanager
def claim(work_dir: Path) -> Iterator[bool]:
    """Try to claim `work_dir` for this process until the end of the block; yield whether that succeeded."""
    work_dir.mkdir(parents=True, exist_ok=True)
    with open(work_dir.with_suffix(".lock"), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block for the same folder; must not be nested."""
    with disk_errors(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_plain(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file of bounded size, else raise `VerificationError`."""
    if not is_present(path):
        refuse(f"{shown(path)} is missing", fix="Restore it from version control.")
    try:
        return read_bytes(path, most_bytes=most_bytes)
    except StorageError as error:
        refuse(error.what.removesuffix("."), fix="Restore the file itself from version control.")


_SECRET_BYTES = 32
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def configuration_folder(environment: Mapping[str, str]) -> Path:
    """Return the tool's folder for settings and keys: `$XDG_CONFIG_HOME/marin-scaling`.

    >>> print(configuration_folder({"XDG_CONFIG_HOME": "/home/ada/.config"}))
    /home/ada/.config/marin-scaling
    """
    base = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config"
    return Path(base) / "marin-scaling"


def write_secret(path: Path, secret: bytes) -> None:
    """Write a new file that only its owner can read; `FileExistsError` if it exists."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink()


def kept_secret(name: str, *, environment: Mapping[str, str]) -> bytes:
    """Return 32 random bytes from the configuration folder, created on first use with mode 0600.

    A file is replaced if another user owns it, if others may read it, or if it has another size. `OSError` or
    `RuntimeError` if no secret can be kept.
    """
    path = configuration_folder(environment) / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for _attempt in range(2):  # another process may create it at the same time
        if (secret := _read_secret(path)) is not None:
            return secret
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with contextlib.suppress(FileExistsError):
            write_secret(path, secrets.token_bytes(_SECRET_BYTES))
    secret = _read_secret(path)
    if secret is None:
        raise OSError(f"{path} cannot be kept secret")
    return secret


def _read_secret(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OF_OTHERS:
            return None
        secret = file.read(_SECRET_BYTES + 1)
    return secret if len(secret) == _SECRET_BYTES else None


def make_private(folder: Path, *, allow_link: bool = True) -> None:
    """Create a folder, or remove other users' write permission; `StorageError` if it belongs to another user.

    A link is followed only with `allow_link`, and only to a folder that is private already.
    """
    with disk_errors(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if allow_link else os.O_NOFOLLOW))
        try:
            found = os.fstat(descriptor)
            if found.st_uid == os.geteuid() and found.st_mode & _WRITABLE_BY_OTHERS and not folder.is_symlink():
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)
                found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        raise StorageError(
            f"{folder} is of user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}; this is user {os.geteuid()}.",
            why="Another user could change programs in it that would run as you.",
            fix=f"Remove {folder}, or take it over: chown {os.geteuid()} {folder} && chmod 700 {folder}",
        )
