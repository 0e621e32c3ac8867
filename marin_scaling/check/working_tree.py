"""The files of a working tree as git would name them: each with its mode and the id of its exact bytes.

Git itself is not asked: attributes, filters, ignore rules and index flags can hide a change, and come with a pull request.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from marin_scaling.durable_files import read_bytes
from marin_scaling.git import Repository, TreeEntry
from marin_scaling.regular_files import MOST_TABLE_BYTES
from marin_scaling.repository_root import GIT_NAME

_LINK, _PROGRAM, _FILE, _OTHER = "120000", "100755", "100644", "000000"


def working_tree(folder: Path, *, repository: Repository, is_sha256: bool) -> dict[Path, TreeEntry]:
    """Return every file at or below `folder` by its path from the root, also ignored, hidden and temporary ones."""
    return {repository.path_from_root(path): _entry(path, is_sha256=is_sha256) for path in _files(folder, root=repository.root)}


def without_modes(entries: Mapping[Path, TreeEntry]) -> dict[Path, TreeEntry]:
    """Return the same files, none of them a program: for a disk that does not keep which files are."""
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
