"""Commits of the current branch that brought forecasts and the records of runs, each as the file is now.

Whoever makes a commit writes its time, so that these times only ever make a forecast younger.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from marin_scaling.check.received import Commit, Receipts, own_receipts
from marin_scaling.git import GitError, find_repository
from marin_scaling.preregistration.registry import STATEMENT_NAME
from marin_scaling.preregistration.seal import SEAL_NAME

_COMMIT = re.compile(rb"\x01(\d+)")
_WALK = ("log", "--first-parent", "--diff-merges=first-parent", "--diff-filter=AM", "--no-renames", "--name-only", "-z")


def receipts_with_history(folders: Iterable[Path], *, runs_dir: Path) -> dict[Path, Receipts]:
    """Return the receipts of each registry that holds one of `folders`, with the commits that brought its files."""
    return {registry: _with_history(registry, runs_dir=runs_dir) for registry in {folder.parent for folder in folders}}


def _with_history(registry_dir: Path, *, runs_dir: Path) -> Receipts:
    commits = last_commits(registry_dir, runs_dir)
    brought = _below(registry_dir, commits, names=(STATEMENT_NAME, SEAL_NAME))
    records = _below(runs_dir, commits, names=("record.json",))
    runs = {name.removesuffix("/record.json"): commit for name, commit in records.items()}
    return replace(own_receipts(registry_dir), commits=brought, runs=runs)


def _below(folder: Path, commits: Mapping[Path, Commit], *, names: Iterable[str]) -> dict[str, Commit]:
    """Return the commits of files with one of `names` below a folder, by their path in it."""
    absolute, wanted = Path(os.path.abspath(folder)), set(names)
    return {
        str(path.relative_to(absolute)): commit
        for path, commit in commits.items()
        if path.name in wanted and path.is_relative_to(absolute)
    }


def last_commits(*folders: Path) -> dict[Path, Commit]:
    """Return, for every file below `folders`, the last commit of the branch that added or changed it.

    Empty without git, outside of a repository, and in a shallow clone, whose oldest commit seems to bring everything.
    """
    try:
        repository = find_repository()
        places = [os.path.abspath(folder) for folder in folders if repository and repository.holds(folder)]
        if not places or repository is None or repository.ask("rev-parse", "--is-shallow-repository") != b"false\n":
            return {}
        raw = repository.ask(*_WALK, "--format=tformat:%x01%ct", "HEAD", "--", *places)
    except GitError:
        return {}
    found: dict[Path, Commit] = {}
    for age, at, name in _walk(raw):
        found.setdefault(repository.root / name, Commit(order=-age, at=at))
    return found


def _walk(raw: bytes) -> Iterator[tuple[int, datetime, str]]:
    """Yield the age in commits, the commit's time and the name of each file that git lists, the newest commit first."""
    age, at = 0, datetime.fromtimestamp(0, UTC)
    for word in raw.split(b"\0"):
        name = word.removeprefix(b"\n")
        if header := _COMMIT.fullmatch(name):  # no path from the root begins so: paths here begin with a folder's name
            age, at = age + 1, datetime.fromtimestamp(int(header[1]), UTC)
        elif name:
            yield age, at, os.fsdecode(name)
