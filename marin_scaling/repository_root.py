"""The root of a repository: the folder that holds `.git`, found by its name alone.

Git never checks out anything called `.git`, so no pull request can lay a root. The search starts at the current directory or
at a folder that the caller trusts, never at a data folder.
"""

from __future__ import annotations

import os
from pathlib import Path

GIT_NAME = ".git"


def repository_root(start: Path | None = None) -> Path | None:
    """Return the nearest folder at or above `start` (the current directory) that holds `.git`; None if there is none.

    `.git` is a folder, or a regular file in a linked worktree or a submodule.
    """
    here = Path(os.path.abspath(start or Path.cwd()))
    return next((folder for folder in (here, *here.parents) if _holds_git(folder)), None)


def _holds_git(folder: Path) -> bool:
    path = folder / GIT_NAME
    return path.is_dir() or path.is_file()
