"""Compiled programs on disk, each with a keyed digest that is checked before the program is loaded.

To load a compiled program is to run native code, and a program with one wrong byte computes other losses. A file is used only
if this user's training wrote exactly these bytes under this name. The key lies in the user's configuration folder, so a
program that a pull request or another user put there is removed. Implements JAX's interface of a cache; imports no JAX.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from marin_scaling.errors import StorageError
from marin_scaling.files import kept_secret, make_private, replace_file

KEY_NAME = "compiled_programs.key"
"""In the configuration folder: the key of the digests."""
ENDING = "-cache"
"""Of a program's file, as in JAX's own cache."""
_DIGEST_BYTES = 32
_MOST_BYTES = 2**32
_DOMAIN = b"marin-scaling compiled program 1"


class SealedPrograms:
    """The programs in one folder, by JAX's name of each; nothing here raises, because a program can be compiled again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     programs = SealedPrograms(Path(name), key=b"secret", on_note=print)
    ...     programs.put("step", b"code")
    ...     found = programs.get("step")
    ...     (Path(name) / "other-cache").write_bytes((Path(name) / "step-cache").read_bytes())
    ...     found, programs.get("other") # doctest: +ELLIPSIS
    36
    .../other-cache is not a program that this user's training wrote; removed, and compiled again.
    (b'code', None)
    """

    def __init__(self, folder: Path, *, key: bytes, on_note: Callable[[str], None]) -> None:
        self._path, self._key, self._on_note = folder, key, on_note  # JAX reads _path
        self._has_noted = False

    def get(self, key: str) -> bytes | None:
        """Return the program of this name; None if there is none, or if it was removed because it is not what was written."""
        path = self._file(key)
        try:
            content = _plain_content(path)
        except FileNotFoundError:
            return None
        except OSError:  # a link, or a file that cannot be read
            content = b""
        digest, program = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hmac.compare_digest(digest, self._digest(key, program)):
            return program
        self._remove(path)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keep a program with its digest, over an older one."""
        with contextlib.suppress(StorageError):
            replace_file(self._file(key), self._digest(key, value) + value)

    def _file(self, name: str) -> Path:
        return self._path / f"{name}{ENDING}"

    def _digest(self, name: str, program: bytes) -> bytes:
        return hmac.digest(self._key, b"\0".join([_DOMAIN, name.encode(), hashlib.sha256(program).digest()]), "sha256")

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if not self._has_noted:
            self._on_note(f"{path} is not a program that this user's training wrote; removed, and compiled again.")
        self._has_noted = True


def sealed_programs(folder: Path, *, on_note: Callable[[str], None]) -> SealedPrograms | None:
    """Return the programs in `folder`, made private to this user; None, with a note, if the folder cannot be.

    Where no key can be kept, the key is this process's own: other processes compile again.
    """
    try:
        make_private(folder)
    except StorageError as error:
        on_note(f"compiled programs are not kept. {error.what}")
        return None
    try:
        key = kept_secret(KEY_NAME, environment=os.environ)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        on_note(f"other processes cannot load what this one compiles: no key can be kept ({error}).")
        key = secrets.token_bytes(_DIGEST_BYTES)
    return SealedPrograms(folder, key=key, on_note=on_note)


def _plain_content(path: Path) -> bytes:
    """Return the bytes of a regular file; nothing if it is not one, or is too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return b""
        return file.readall()
