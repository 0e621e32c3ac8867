"""What a folder holds in a base branch, in the commit that is checked out and in the working tree, compared byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from marin_scaling.check.verified_step import refuse
from marin_scaling.check.working_tree import without_modes, working_tree
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import UsageError
from marin_scaling.git import GitError, Repository, TreeEntry, require_repository
from marin_scaling.preregistration.log import extends
from marin_scaling.regular_files import shown

_SHA256_DIGITS = 64


class ComparedTrees:
    """The files of one folder in three places, by their paths from the root of the repository."""

    def __init__(self, repository: Repository, folder: Path, *, base: str) -> None:
        self._repository, self._folder = repository, folder
        head = repository.head()
        self._base = repository.tree(base, folder)
        self._head = repository.tree(head, folder) if head else {}
        self._now = working_tree(folder, repository=repository, is_sha256=len(base) == _SHA256_DIGITS)
        if repository.setting("core.fileMode", "--type=bool") == "false":
            self._base, self._head, self._now = map(without_modes, (self._base, self._head, self._now))

    def changes(self) -> dict[Path, str]:
        """Return what was added (A), removed (D) or modified (M) since the base, in the commit or the working tree.

        A change of the commit counts also where the working tree hides it: attributes can check out the base's bytes.
        """
        found = _differences(self._base, self._head) | _differences(self._base, self._now)
        return {self._path(name): status for name, status in found.items()}

    def require_committed(self, *, growing: Path | None = None) -> None:
        """`VerificationError` where a file that the commit changes is another one in the working tree.

        A `growing` file may go on after the commit's content.
        """
        for name in _differences(self._base, self._head):
            entry, path = self._head.get(name), self._path(name)
            if self._now.get(name) == entry:
                continue
            if path == growing and entry and name in self._now and extends(self._repository.content(entry), read_bytes(path)):
                continue
            refuse(
                f"{shown(path)} differs between the working tree and the commit that is checked out",
                fix=f"Commit it, or restore it (git checkout -- {shown(path)}). If git sees no change, an attribute in a "
                ".gitattributes file rewrites it: remove that attribute.",
            )

    def _path(self, name: Path) -> Path:
        return self._folder / name.relative_to(self._repository.path_from_root(self._folder))


def compared_trees(base: str, folder: Path) -> ComparedTrees:
    """Return the comparison of a folder with the base; `UsageError` when git knows no such base, or the folder is elsewhere."""
    repository, commit = _at(base, folder)
    return ComparedTrees(repository, folder, base=commit)


def file_at(base: str, path: Path) -> bytes | None:
    """Return the bytes of a regular file of the base; None where it has none there."""
    repository, commit = _at(base, path)
    entry = repository.tree(commit, path).get(repository.path_from_root(path))
    return repository.content(entry) if entry and entry.is_regular else None


def _differences(before: Mapping[Path, TreeEntry], after: Mapping[Path, TreeEntry]) -> dict[Path, str]:
    return {
        name: "A" if name not in before else "D" if name not in after else "M"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _at(base: str, path: Path) -> tuple[Repository, str]:
    try:
        repository = require_repository()
        repository.path_from_root(path)
        return repository, repository.commit_id(base)
    except GitError as error:
        raise UsageError(
            f"git cannot compare {shown(path)} with {base!r}: {error.reason}.",
            why="What a branch changed is seen against the branch that it is to be merged into.",
            fix="Name a branch or commit that is here (git fetch origin main; --base origin/main), in a git repository.",
        ) from error
