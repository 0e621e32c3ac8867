"""One at a time: a file lock that the kernel drops when its holder dies, so that no crash leaves a run or its data claimed.

Held by the process that works. Locks work between processes of one machine; other machines are the launcher's business.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from marin_scaling.durable_files import disk_errors


@contextlib.contextmanager
def claim(work_dir: Path) -> Iterator[bool]:
    """Whether this process now holds the work whose folder is `work_dir`; released at the end of the block."""
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
    """Write into a folder while no other process does that asks so, too; waits for its turn. Not to be nested."""
    with disk_errors(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
