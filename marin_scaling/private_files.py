"""Files and folders that only this user may write: secrets in the user's configuration folder, and private folders.

Programs that are loaded from a folder run with this user's rights. Whoever can write there can run code as this user.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from marin_scaling.durable_files import disk_errors
from marin_scaling.errors import StorageError

_SECRET_BYTES = 32
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def configuration_folder(environment: Mapping[str, str]) -> Path:
    """Return the tool's folder of settings and keys: `$XDG_CONFIG_HOME/marin-scaling`.

    >>> print(configuration_folder({"XDG_CONFIG_HOME": "/home/ada/.config"}))
    /home/ada/.config/marin-scaling
    """
    base = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config"
    return Path(base) / "marin-scaling"


def write_secret(path: Path, secret: bytes) -> None:
    """Write a whole new file that its owner only can read; `FileExistsError` if there is one."""
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
    """Return 32 random bytes from the configuration folder, made on first use with mode 0600.

    A file that another user owns, that others may read or that has another size is replaced. `OSError` or `RuntimeError` if
    no secret can be kept.
    """
    path = configuration_folder(environment) / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for _attempt in range(2):  # other processes may make it meanwhile
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
    """Make a folder, or take other users' right to write away; `StorageError` if it belongs to another user.

    A link is followed only to a folder that is private already, and not at all without `allow_link`.
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
            why="Another user can change the files there, and programs among them would run as this user.",
            fix=f"Remove {folder}, or take it over: chown {os.geteuid()} {folder} && chmod 700 {folder}",
        )
