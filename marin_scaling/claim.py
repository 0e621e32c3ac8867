"""One at a time: a file lock that the kernel drops when its holder dies, so that no crash leaves a run or its data claimed.

Held by the process that works. Locks work between processes of one machine; other machines are the launcher's business.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


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
