"""Compiled programs on disk: each checked by a keyed digest before it is loaded, and compiled once by all processes.

To load a compiled program is to run native code, and a program with one wrong byte computes other losses. A file is used only
if this user's training wrote exactly these bytes under this name. The key lies in the user's configuration folder, so a
program that a pull request or another user put there is removed. Implements JAX's interface of a cache; imports no JAX.

Beside the programs lies a lock file for each model shape. A process holds its lock while a first run compiles the step; the
file has content once the step is compiled. The locks only save time: where there are none, runs go on without.
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


_POLL_SECONDS = 0.1
_TOLD_AFTER, _MOST_POLLS = 20, 6000
_PREFIX, _DIGITS = "shape-", 16
_IS_COMPILED = b"compiled\n"


def in_turns(specs: Sequence[RunSpec], compiled: Path) -> Iterator[RunSpec]:
    """`specs` in their order, but while another process compiles, first one whose programs are in the folder `compiled`.

    Then one of a shape that is new, and last those that need what is being compiled.
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
    """A block whose beginning compiles the step of a run, if it is new; what it gives is called once that is done.

    It begins when no other process compiles that step, or after ten minutes all the same. Until then `wait` is called with
    seconds, and `Interrupted` raised where it returns True. `on_note` is told what is waited for.
    """
    shape = _shape_file(spec, compiled)
    lock = None if _is_compiled(shape) else _opened(shape)
    if lock is None:
        yield lambda: None
        return
    with lock:
        _wait_for(lock, shape, wait=wait, on_note=on_note)
        if _is_compiled(shape):
            lock.close()  # others who waited load it now, too
        yield lambda: _release(lock)


def _wait_for(lock: IO[bytes], shape: Path, *, wait: Callable[[float], bool], on_note: Callable[[str], None]) -> None:
    for poll in range(_MOST_POLLS):
        if _is_compiled(shape) or _takes(lock, fcntl.LOCK_EX):
            return
        if poll == _TOLD_AFTER:
            on_note("another process compiles the same step, and is waited for.")
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
    """To be locked, for which it is open for both reading and writing: over a network the kernel asks for that."""
    with contextlib.suppress(OSError):
        shape.parent.mkdir(parents=True, exist_ok=True)
        return open(shape, "ab+", buffering=0, opener=_without_links)
    return None


def _without_links(path: str, flags: int) -> int:
    """Open no link, which another user or a pull request may have put there, and wait for no writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _takes(file: IO[bytes], kind: int) -> bool:
    """Whether no other process holds it; True where the file system has no locks."""
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
