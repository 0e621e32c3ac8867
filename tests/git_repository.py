"""A real git repository around a registry, and a branch of it: what a pull request is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WHO = {f"GIT_{role}_{what}": f"ada@{what}".lower() for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(root: Path, *arguments: str) -> None:
    """Run git there, with a name and without the person's own settings."""
    environment = os.environ | _WHO | {"GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, env=environment)


def commit(root: Path) -> None:
    """Everything as it is."""
    git(root, "add", "-A")
    git(root, "commit", "-qm", "next")


def branch_off(root: Path) -> None:
    """Make `root` a repository whose branch main is what lies there, and stand on a branch of it."""
    git(root, "init", "-q", "-b", "main")
    commit(root)
    git(root, "checkout", "-qb", "forecast")
