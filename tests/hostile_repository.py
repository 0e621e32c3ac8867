"""What a pull request can lay in a repository against those who verify it: git's own files, links, and programs that tell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from git_repository import commit, git


def telling_program(folder: Path) -> tuple[Path, Path]:
    """A program, and the file that it makes when anybody runs it; both lie outside of any repository."""
    program, mark = folder / "stranger.sh", folder / "a-program-ran"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    return program, mark


def forged_copy(root: Path, place: Path) -> Path:
    """A repository in which all that lies in `root` was on main all the time."""
    shutil.copytree(root, place, ignore=shutil.ignore_patterns(".git"))
    git(place, "init", "-q", "-b", "main")
    commit(place)
    git(place, "gc", "-q")
    return place


def lay_repository(place: Path, *, forged: Path, program: Path) -> None:
    """Make a data folder a bare repository in git's eyes, with the branches of `forged` and a monitor of the stranger's."""
    head = subprocess.run(["git", "rev-parse", "main"], cwd=forged, check=True, capture_output=True, text=True).stdout
    shutil.copytree(forged / ".git" / "objects", place / "objects", dirs_exist_ok=True)
    for ref in ("heads/main", "remotes/origin/main"):
        path = place / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head)
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / "config").write_text(
        f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {place}\n\tfsmonitor = "{program}"\n'
    )
    shutil.copy(forged / ".git" / "index", place / "index")
