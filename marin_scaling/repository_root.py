"""The root of a repository: the folder that holds `.git`, found by its name alone.

Git never checks out anything called `.git`, so no pull request can lay a root. The search starts at the current directory or
at a folder that the caller trusts, never at a data folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

GIT_NAME = ".git"


def repository_root(start: Path | None = None) -> Path | None:
    """Return the nearest folder at or above `start` (the current directory) that holds `.git`; None if there is none.

    `.git` is a folder, or a regular file in a linked worktree or a submodule.
    """
    found = nearest_with((GIT_NAME,), start=start or Path.cwd())
    return Path(found) if found is not None else None


def nearest_with(names: Sequence[str], *, start: str | Path) -> str | None:
    """Return the nearest folder at or above `start` that holds one of these names; None if there is none.

    >>> nearest_with(["no such name"], start=".") is None
    True
    """
    place = os.path.abspath(start)
    while not any(os.path.exists(os.path.join(place, name)) for name in names):
        above = os.path.dirname(place)
        if above == place:
            return None
        place = above
    return place
