"""Which of its runs a training process takes next, so that no two of them compile one step, or at once what could wait.

Runs of one shape share their programs. Beside JAX's cache of them lies a file for each shape: the kernel keeps it locked
while a first run compiles its step, and unlocks it when that process dies; once it has anything in it, the step is compiled.
It knows nothing of JAX's version or the device: where these have changed, processes compile anew, perhaps the same. All of
this saves time only, so where there are no such files or locks, runs go on without. Claiming a run is not its business.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from marin_scaling.errors import Interrupted
from marin_scaling.run.spec import RunSpec

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
