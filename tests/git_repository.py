"""A real git repository for tests, without the person's own settings."""

import os
import subprocess
from pathlib import Path

_WHO = {f"GIT_{role}_{what}": f"ada@{what}".lower() for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(root: Path, *arguments: str) -> None:
    """Run git there."""
    environment = os.environ | _WHO | {"GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, env=environment)


def commit_all(root: Path) -> None:
    """Everything as it is."""
    git(root, "add", "-A")
    git(root, "commit", "-qm", "next")


def branch_off(root: Path) -> None:
    """All that is there becomes the branch main, and we stand on a branch of it."""
    git(root, "init", "-q", "-b", "main")
    commit_all(root)
    git(root, "checkout", "-qb", "forecast")
