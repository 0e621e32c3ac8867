"""Which of its runs a training process takes next, so that no two of them compile one program, or at once what could wait.

Runs of one shape share their programs. Beside JAX's cache of them lies a file for each shape, which the kernel keeps locked
while a first run of it compiles, and unlocks when that process dies. Other machines have caches of their own. Claiming a run
is not its business.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from marin_scaling.durable_files import disk_errors
from marin_scaling.errors import Interrupted
from marin_scaling.run.run_spec import RunSpec

_POLL_SECONDS = 0.1
_PREFIX, _DIGITS = "shape-", 16


def in_turns(specs: Sequence[RunSpec], compiled: Path) -> Iterator[RunSpec]:
    """`specs` in their order, but while another process compiles, first one whose programs are in the folder `compiled`.

    Then one of a shape that is new, and last those that need what is being compiled.
    """
    left = list(specs)
    while left:
        yield left.pop(_next(left, compiled))


def _next(specs: Sequence[RunSpec], compiled: Path) -> int:
    busy = {shape for shape in compiled.glob(f"{_PREFIX}*") if _is_locked(shape)}
    if not busy:
        return 0
    places = [_place(spec, compiled) for spec in specs]
    ready = (number for number, place in enumerate(places) if place not in busy and place.exists())
    new = (number for number, place in enumerate(places) if place not in busy)
    return next(ready, next(new, 0))


@contextlib.contextmanager
def compiling_once(spec: RunSpec, compiled: Path, *, wait: Callable[[float], bool]) -> Iterator[Callable[[], None]]:
    """A block in which the programs of a run are compiled, if they are new, and a call that says that they are, before its end.

    Begins when no other process compiles them; until then `wait` is called with seconds, and `Interrupted` raised where it
    returns True.
    """
    with contextlib.ExitStack() as stack:
        place = _place(spec, compiled)
        if not place.exists() or _is_locked(place):
            lock = stack.enter_context(_opened(place))
            while not _is_taken(lock, fcntl.LOCK_EX):
                if wait(_POLL_SECONDS):
                    raise Interrupted
        yield stack.close


def _place(spec: RunSpec, compiled: Path) -> Path:
    return compiled / f"{_PREFIX}{spec.program_digest[:_DIGITS]}"


def _is_locked(place: Path) -> bool:
    if not place.exists():
        return False
    with _opened(place) as file:
        return not _is_taken(file, fcntl.LOCK_SH)


def _opened(place: Path) -> IO[str]:
    with disk_errors(place, "written"):
        place.parent.mkdir(parents=True, exist_ok=True)
        return open(place, "a", encoding="ascii")


def _is_taken(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
