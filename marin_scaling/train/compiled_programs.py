"""Cache of compiled programs on disk, with a keyed digest of each, and locks so that one process compiles for all.

Loading a compiled program runs native code, and one wrong byte changes losses. A program is loaded only if this user's training
wrote exactly these bytes under this name; others, for example from a pull request, are deleted. The key is in the user's
configuration folder. Implements JAX's interface of a cache; imports no JAX.

Each model shape has a lock file in the folder. A process holds it while its first run compiles the step, and then writes into
it. The locks only save time: training works without them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from marin_scaling.errors import Interrupted, StorageError
from marin_scaling.files import kept_secret, make_private, replace_file
from marin_scaling.run.spec import RunSpec

KEY_NAME = "compiled_programs.key"
"""Name of the key of the digests in the configuration folder."""
ENDING = "-cache"
"""Suffix of a program's file, as in JAX's own cache."""
_DIGEST_BYTES = 32
_MOST_BYTES = 2**32
_DOMAIN = b"marin-scaling compiled program 1"


class SealedPrograms:
    """Programs in one folder, by JAX's name of each. Methods never raise, because a program can be compiled again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     programs = SealedPrograms(Path(name), key=b"secret", on_note=print)
    ...     programs.put("step", b"code")
    ...     found = programs.get("step")
    ...     (Path(name) / "other-cache").write_bytes((Path(name) / "step-cache").read_bytes())
    ...     found, programs.get("other") # doctest: +ELLIPSIS
    36
    .../other-cache is not a program that this user's training wrote; deleted, to be compiled again.
    (b'code', None)
    """

    def __init__(self, folder: Path, *, key: bytes, on_note: Callable[[str], None]) -> None:
        self._path, self._key, self._on_note = folder, key, on_note  # JAX reads _path
        self._has_noted = False

    def get(self, key: str) -> bytes | None:
        """Return the program of this name; None if it is missing, or was deleted because its digest is wrong."""
        path = self._file(key)
        try:
            content = _plain_content(path)
        except FileNotFoundError:
            return None
        except OSError:  # a link, or an unreadable file
            content = b""
        digest, program = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hmac.compare_digest(digest, self._digest(key, program)):
            return program
        self._remove(path)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Write a program with its digest, replacing an older one."""
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
            self._on_note(f"{path} is not a program that this user's training wrote; deleted, to be compiled again.")
        self._has_noted = True


def sealed_programs(folder: Path, *, on_note: Callable[[str], None]) -> SealedPrograms | None:
    """Return the programs in `folder`, made private to this user; None, with a note, if that fails.

    If no key can be stored, this process uses its own, and other processes compile again.
    """
    try:
        make_private(folder)
    except StorageError as error:
        on_note(f"compiled programs are not cached. {error.what}")
        return None
    try:
        key = kept_secret(KEY_NAME, environment=os.environ)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        on_note(f"other processes cannot load what this one compiles, because no key can be stored: {error}.")
        key = secrets.token_bytes(_DIGEST_BYTES)
    return SealedPrograms(folder, key=key, on_note=on_note)


def _plain_content(path: Path) -> bytes:
    """Return the bytes of a regular file; empty for anything else, or if it is too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return b""
        return file.readall()


_POLL_SECONDS = 0.1
_TOLD_AFTER, _MOST_POLLS = 20, 6000
_PREFIX, _DIGITS = "shape-", 16
_IS_COMPILED = b"compiled\n"


def in_turns(specs: Sequence[RunSpec], compiled: Path) -> Iterator[RunSpec]:
    """Yield `specs` in order, but while another process compiles, yield first a run with cached programs.

    Runs of a new shape follow, and last those whose programs are being compiled.
    """
    left = list(specs)
    while left:
        yield left.pop(_next(left, compiled))


def _next(specs: Sequence[RunSpec], compiled: Path) -> int:
    busy = {file for file in compiled.glob(f"{_PREFIX}*") if _is_being_compiled(file)}
    if not busy:
        return 0
    files = [_shape_file(spec, compiled) for spec in specs]
    ready = (number for number, file in enumerate(files) if _is_compiled(file))
    new = (number for number, file in enumerate(files) if file not in busy)
    return next(ready, next(new, 0))


@contextlib.contextmanager
def compiling_once(
    spec: RunSpec, compiled: Path, *, wait: Callable[[float], bool], on_note: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Compile the step of a run at the beginning of the block, unless cached; call the yielded function once that is done.

    The block begins when no other process compiles that step, or after ten minutes. Until then `wait` is called with
    seconds; if it returns True, `Interrupted` is raised. `on_note` reports the wait.
    """
    shape = _shape_file(spec, compiled)
    lock = None if _is_compiled(shape) else _opened(shape)
    if lock is None:
        yield lambda: None
        return
    with lock:
        _wait_for(lock, shape, wait=wait, on_note=on_note)
        if _is_compiled(shape):
            lock.close()  # waiting processes can load the step now
        yield lambda: _release(lock)


def _wait_for(lock: IO[bytes], shape: Path, *, wait: Callable[[float], bool], on_note: Callable[[str], None]) -> None:
    for poll in range(_MOST_POLLS):
        if _is_compiled(shape) or _takes(lock, fcntl.LOCK_EX):
            return
        if poll == _TOLD_AFTER:
            on_note("another process compiles the same step; waiting for it.")
        if wait(_POLL_SECONDS):
            raise Interrupted


def _release(lock: IO[bytes]) -> None:
    if not lock.closed:
        with contextlib.suppress(OSError), lock:
            lock.write(_IS_COMPILED)


def _shape_file(spec: RunSpec, compiled: Path) -> Path:
    return compiled / f"{_PREFIX}{spec.program_digest[:_DIGITS]}"


def _is_compiled(shape: Path) -> bool:
    with contextlib.suppress(OSError):
        return shape.stat().st_size > 0
    return False


def _is_being_compiled(shape: Path) -> bool:
    with contextlib.suppress(OSError), open(shape, "rb", opener=_without_links) as file:
        return not _takes(file, fcntl.LOCK_SH) and not _is_compiled(shape)
    return False


def _opened(shape: Path) -> IO[bytes] | None:
    """Open a lock file for reading and writing, which locks on network file systems need; None if that fails."""
    with contextlib.suppress(OSError):
        shape.parent.mkdir(parents=True, exist_ok=True)
        return open(shape, "ab+", buffering=0, opener=_without_links)
    return None


def _without_links(path: str, flags: int) -> int:
    """Open a path without following links, which another user or a pull request may have put there, or blocking on a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _takes(file: IO[bytes], kind: int) -> bool:
    """Try to lock a file; return True on success, or if the file system has no locks."""
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
