"""Compare a folder's files byte by byte between base branch, log, commit and working tree."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from marin_scaling.canonical_json import has_digest, sha256_hex
from marin_scaling.errors import MarinScalingError, UsageError, refuse
from marin_scaling.files import read_bytes, read_plain
from marin_scaling.git import GitError, Repository, TreeEntry, require_repository, restoring
from marin_scaling.preregistration.layout import STATEMENT_NAME
from marin_scaling.preregistration.log import Log, extends, is_whole_log
from marin_scaling.preregistration.statement import read_statement
from marin_scaling.untrusted_files import GIT_NAME, MOST_TABLE_BYTES, shown

_LINK, _PROGRAM, _FILE, _OTHER = "120000", "100755", "100644", "000000"


def working_tree(folder: Path, *, repository: Repository, is_sha256: bool) -> dict[Path, TreeEntry]:
    """Return every file at or below `folder` by its path from the root, also ignored, hidden and temporary ones."""
    return {repository.path_from_root(path): _entry(path, is_sha256=is_sha256) for path in _files(folder, root=repository.root)}


def without_modes(entries: Mapping[Path, TreeEntry]) -> dict[Path, TreeEntry]:
    """Return the files without executable bits, for disks that do not keep them."""
    return {path: replace(entry, mode=_FILE) if entry.mode == _PROGRAM else entry for path, entry in entries.items()}


def _files(folder: Path, *, root: Path) -> Iterator[Path]:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        yield folder
        return
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        path = folder / entry.name
        if entry.name == GIT_NAME and path.absolute() == root / GIT_NAME:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(path, root=root)
        else:
            yield path


def _entry(path: Path, *, is_sha256: bool) -> TreeEntry:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return TreeEntry(mode=_LINK, id=blob_id(os.fsencode(os.readlink(path)), is_sha256=is_sha256))
    if not stat.S_ISREG(mode):
        return TreeEntry(mode=_OTHER, id="")
    content = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    return TreeEntry(mode=_PROGRAM if mode & stat.S_IXUSR else _FILE, id=blob_id(content, is_sha256=is_sha256))


def blob_id(content: bytes, *, is_sha256: bool = False) -> str:
    """Return git's id of a file with this content.

    >>> blob_id(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    digest = hashlib.sha256() if is_sha256 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.hexdigest()


_SHA256_DIGITS = 64


class ComparedTrees:
    """Files of one folder in three places, by their paths from the root of the repository."""

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
        """Raise `VerificationError` if a file that the commit changes differs in the working tree.

        The `growing` file may extend the commit's content.
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
    """Return the comparison of a folder with the base; `UsageError` if git knows no such base, or the folder is elsewhere."""
    repository, commit = _at(base, folder)
    return ComparedTrees(repository, folder, base=commit)


def file_at(base: str, path: Path) -> bytes | None:
    """Return the bytes of a regular file of the base; None if it has none there."""
    repository, commit = _at(base, path)
    entry = repository.tree(commit, path).get(repository.path_from_root(path))
    return repository.content(entry) if entry and entry.is_regular else None


@dataclass(frozen=True, kw_only=True)
class BaseFault:
    """File of the base with other bytes than the base's log records, or than a recorded statement promises."""

    path: Path
    digest: str
    """SHA-256 of the recorded bytes."""
    restored: bool
    """True if the branch has the recorded bytes."""

    @property
    def fix(self) -> str:
        """Sentence with the command that restores the recorded bytes."""
        return restoring(self.path, fits=partial(has_digest, digest=self.digest))


def base_faults(base: str, registry_dir: Path, *, log: Log) -> list[BaseFault]:
    """Return the files of a registry that changed in `base` after its `log` recorded them; missing files included."""
    changed, found = compared_trees(base, registry_dir).changes(), []
    for folder in (registry_dir / name for name in log.by_id):
        for name, digest in _recorded_digests(folder, log=log).items():
            path = folder / name
            now = _digest_of_file(path)
            raw = file_at(base, path) if path in changed else None
            before = now if path not in changed else None if raw is None else sha256_hex(raw)
            if before != digest:
                found.append(BaseFault(path=path, digest=digest, restored=now == digest))
    return found


def _recorded_digests(folder: Path, *, log: Log) -> dict[str, str]:
    """Return the digests of a preregistration's files by the log, and by its statement if that is the recorded one."""
    digests = {name: digest for entry in log.by_id[folder.name] for name, digest in entry.files.items()}
    with contextlib.suppress(MarinScalingError):
        raw = read_plain(folder / STATEMENT_NAME)
        if sha256_hex(raw) == digests.get(STATEMENT_NAME):
            digests |= read_statement(raw, name=STATEMENT_NAME).subjects
    return digests


def _digest_of_file(path: Path) -> str | None:
    try:
        return sha256_hex(read_plain(path))
    except MarinScalingError:
        return None


def log_at(base: str, path: Path) -> bytes:
    """Return the log of the base; if its lines are broken there, the newest whole log that the base had."""
    raw = file_at(base, path) or b""
    if not raw or is_whole_log(raw):
        return raw
    repository, commit = _at(base, path)
    return next((content for _, content in repository.versions(path, branch=commit) if is_whole_log(content)), raw)


def first_received(base: str, path: Path) -> tuple[str, bytes]:
    """Return the commit with which the base received a file first, and its content there."""
    repository, commit = _at(base, path)
    return repository.first_version(path, branch=commit)


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
            fix=error.fix,
        ) from error
