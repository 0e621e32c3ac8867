"""A folder that one test process makes and all others of the session read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(name: str, make: Callable[[Path], object], *, factory: pytest.TempPathFactory) -> Path:
    """Return the session's folder `name`; the first process to ask makes it, the others wait. None may write into it."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once"
    place.mkdir(exist_ok=True)
    with open(place / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = place / f"{name}.made"
        if not state.exists():
            state.write_text("failed")
            make(place / name)
            state.write_text("made")
        if state.read_text() == "failed":
            pytest.fail(f"{name} could not be made; the first test that asked for it says why")
    return place / name
