"""The reader of every file that a pull request can change: regular files only, no links, bounded size.

A current folder may hold a stranger's pull request, so other programs are not started from it either.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from marin_scaling.errors import StorageError, VerificationError
from marin_scaling.printable import NAME_BYTES

GIT_NAME = ".git"


def repository_root(start: Path | None = None) -> Path | None:
    """Return the nearest folder at or above `start` (default: the current directory) with a `.git`; None if there is none.

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


DATA_FOLDERS = ("preregistrations", "registries", "runs", "ladders", "speedruns", "experiments", "recipes", "site")
SITE_SETTINGS = "mkdocs.yml"
WORK_FOLDER = ".marin-scaling"
"""Folder of a repository for local work, which git ignores."""
_ROOT_MARKS = (SITE_SETTINGS, *DATA_FOLDERS)
MOST_BYTES = 64 * 1024 * 1024
MOST_TABLE_BYTES = 1024 * 1024 * 1024
"""Bytes of a table of runs or a tracker's log, which may have a million rows."""

_MOST_ENTRIES = 2_000_000
_MOST_DEPTH = 32
_MOST_NAMED = 20
_GIT_NAMES = {GIT_NAME, "git~1"}
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that a terminal obeys or hides: control and format characters (also bidirectional), line separators, and
surrogates, by which Python represents bytes that are not UTF-8."""


class UnsafeFileError(StorageError):
    """A path to anything but a regular file of bounded size with a plain name, or a path with a link."""


class UnsafeTreeError(VerificationError):
    """A folder with links, devices, or names that systems read differently."""


def read_regular_file(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file that has no link in its path below the root.

    `UnsafeFileError` for anything else at the path; `OSError` if it is missing or unreadable.
    """
    _require_no_link(path, root=trusted_root(path))
    return _read(path, most_bytes=most_bytes, flags=os.O_NOFOLLOW)


def read_linked_file(path: Path) -> bytes:
    """Return the bytes of a regular file of any size, also through links; only for files that no pull request can change."""
    return _read(path, most_bytes=None, flags=0)


def is_present(path: Path) -> bool:
    """Return True if anything is at `path`, including a dangling link."""
    return os.path.lexists(path)


def require_regular_tree(folders: Iterable[Path]) -> None:
    """Raise `UnsafeTreeError` for anything but regular files and folders with plain names, at or below these folders.

    A folder may be absent. All parts of a folder's path below the root are checked too.
    """
    found: list[str] = []
    for folder in folders:
        found += [reason for reason in _faults(folder) if reason not in found]
    if found:
        more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
        raise UnsafeTreeError(
            "\n       ".join([*found[:_MOST_NAMED], *more]) + ".",
            why="Such a name can lead out of the repository, or denote another file on another system.",
            fix="Replace each by a regular file with a plain name. For more space keep the whole repository on a larger disk.",
        )


def shown(path: Path | str) -> str:
    """Return a path as printable text; invalid UTF-8 and hidden characters become escapes.

    >>> shown("a\\nb"), shown(os.fsdecode(b"\\xff.txt"))
    ('a\\\\nb', '\\\\xff.txt')
    """
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(sign.encode("unicode_escape").decode() if _is_unseen(sign) else sign for sign in text)


def folded(name: str) -> str:
    """Return a name as compared by systems that ignore case, composition of accents, or dots and spaces at the end.

    >>> folded("Stra\\u00dfe") == folded("STRASSE"), folded("runs. ")
    (True, 'runs')
    """
    plain = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    return plain.rstrip(". ") or plain


def _is_git_name(name: str) -> bool:
    """Return True if some system reads a name as `.git`: in another case, in the short form, or with a stream's name."""
    return folded(name.partition(":")[0]) in _GIT_NAMES


def _read(path: Path, *, most_bytes: int | None, flags: int) -> bytes:
    status = os.lstat(path) if flags & os.O_NOFOLLOW else os.stat(path)
    _require_regular(path, status)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _require_regular(path, found)
        if most_bytes is not None and found.st_size > most_bytes:
            _refuse(path, f"has {found.st_size} bytes, more than {most_bytes}")
        content = file.read() if most_bytes is None else file.read(most_bytes + 1)
    if most_bytes is not None and len(content) > most_bytes:
        _refuse(path, f"has more than {most_bytes} bytes")
    return content


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, _kind(status.st_mode))


def trusted_root(path: Path) -> str:
    """Return the folder below which no part of `path` may be a link.

    For a path in the current directory's repository it is the root of that repository (without git: the nearest folder with
    data folders). For other paths it is the root of the path's repository, or else the path's folder.
    """
    absolute, here = os.path.abspath(path), os.getcwd()
    root = nearest_with((GIT_NAME,), start=here) or nearest_with(_ROOT_MARKS, start=here) or here
    for own in (os.path.join(root, WORK_FOLDER), root):
        if _is_below(absolute, own):
            return own
    folder = os.path.dirname(absolute)
    other = nearest_with((GIT_NAME,), start=folder)
    return folder if other is None or os.path.islink(other) else other


def _is_below(absolute: str, root: str) -> bool:
    return absolute == root or absolute.startswith(root.rstrip(os.sep) + os.sep)


def _parts_below(path: Path, root: str) -> Iterator[tuple[str, str]]:
    """Yield each part of a path below the root, with its full path."""
    place = root
    for part in os.path.abspath(path)[len(root) :].split(os.sep):
        if part:
            place = os.path.join(place, part)
            yield part, place


def require_no_link(path: Path) -> None:
    """Raise `UnsafeFileError` if a part of a path below the root is a link; parts may be missing."""
    _require_no_link(path, root=trusted_root(path))


def _require_no_link(path: Path, *, root: str) -> None:
    absolute = os.path.abspath(path)
    for part, place in _parts_below(path, root):
        if reason := _name_fault(part):
            _refuse(path, reason)
        if os.path.islink(place):
            _refuse(path, "is a link" if place == absolute else f"is reached through a link, {shown(place)}")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise UnsafeFileError(
        f"{shown(path)} {reason}.",
        why="Anything but a regular file of bounded size can lead out of the repository.",
        fix="Put a regular file there, or restore it from version control. "
        "For more space keep the whole repository on a larger disk.",
    )


def _faults(folder: Path) -> Iterator[str]:
    root = trusted_root(folder)
    for part, place in _parts_below(folder, root):
        if not os.path.lexists(place):
            return
        if fault := _name_fault(part) or _link_fault(place) or _twin_fault(place):
            yield f"{shown(os.path.relpath(place))} {fault}"
            return
    if not (os.path.isdir(folder) or folder.suffix):  # files named on the command line have a suffix
        yield f"{shown(folder)} is not a folder"
        return
    yield from _faults_below(folder, root=root)


def _faults_below(folder: Path, *, root: str) -> Iterator[str]:
    waiting, count = [(str(folder), 0)], 0
    while waiting:
        place, depth = waiting.pop()
        names: dict[str, str] = {}
        for entry in _entries(place):
            count += 1
            if entry.name == GIT_NAME and os.path.abspath(place) == root:
                continue
            if _is_git_name(entry.name):
                yield f"{shown(entry.path)} is a nested repository"
                continue
            twin = names.setdefault(folded(entry.name), entry.name)
            mode = entry.stat(follow_symlinks=False).st_mode
            reason = _name_fault(entry.name) or (f"is the same name as {shown(twin)}" if twin != entry.name else "")
            if reason or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield f"{shown(entry.path)} {reason or _kind(mode)}"
            elif stat.S_ISDIR(mode):
                waiting.append((entry.path, depth + 1))
        if count > _MOST_ENTRIES or depth > _MOST_DEPTH:
            yield f"{shown(folder)} holds more than {_MOST_ENTRIES} names, or folders more than {_MOST_DEPTH} deep"
            return


def _entries(place: str) -> list[os.DirEntry[str]]:
    if not os.path.isdir(place):
        return []
    with os.scandir(place) as found:
        return sorted(found, key=lambda entry: entry.name)


def _link_fault(place: str) -> str:
    mode = os.lstat(place).st_mode
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else _kind(mode)


def _twin_fault(place: str) -> str:
    folder, own = os.path.split(place)
    twins = [name for name in os.listdir(folder) if name != own and folded(name) == folded(own)]
    return f"is the same name as {shown(twins[0])}" if twins else ""


def _name_fault(name: str) -> str:
    """Return why a name is not plain; empty if it is plain."""
    if len(name) * 4 > NAME_BYTES and (count := len(os.fsencode(name))) > NAME_BYTES:
        return f"has a name of {count} bytes, more than {NAME_BYTES}"
    if name.isascii() and name.isprintable():
        return ""
    if any("\udc80" <= sign <= "\udcff" for sign in name):
        return "has a name that is not UTF-8"
    return "has a name with hidden characters" if any(map(_is_unseen, name)) else ""


def _is_unseen(sign: str) -> bool:
    return unicodedata.category(sign) in _UNSEEN


def _kind(mode: int) -> str:
    names = {stat.S_IFLNK: "is a link", stat.S_IFDIR: "is a folder", stat.S_IFIFO: "is a pipe", stat.S_IFSOCK: "is a socket"}
    return names.get(stat.S_IFMT(mode), "is a device")


_SEARCHED = ("PATH", "PYTHONPATH")


def program(name: str) -> str:
    """Return the absolute path of an installed program; `FileNotFoundError` if there is none.

    A relative or empty entry of PATH means the current folder, and is skipped.
    """
    found = shutil.which(name, path=_absolute(os.environ.get("PATH", os.defpath)))
    if found is None:
        raise FileNotFoundError(2, "not installed", name)
    return found


def python_module(name: str) -> list[str]:
    """Return the command that runs a module of this Python; -P keeps the current folder out of the modules' path."""
    return [sys.executable, "-P", "-m", name]


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a Python process: search paths without relative entries, and -P for its own children.

    >>> child_environment({"PYTHONPATH": ":/lib/a:b", "HOME": "/root"})
    {'PYTHONPATH': '/lib/a', 'HOME': '/root', 'PYTHONSAFEPATH': '1'}
    """
    searched = {name: _absolute(environment[name]) for name in _SEARCHED if name in environment}
    return {**environment, **searched, "PYTHONSAFEPATH": "1"}


def _absolute(path: str) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))
