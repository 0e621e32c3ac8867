"""A place that several machines share, at an address that fsspec knows (an object store, a folder): files and whole folders.

Of a folder one file is written last and stands for its being whole; a file of an object store appears whole. What lies there
and who may write it is in `exchange`.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path

from marin_scaling.durable_files import new_folder, read_own_bytes, replace_file
from marin_scaling.errors import MarinScalingError, StorageError, first_line


class SharedStorage:
    """Files under one address, by names with slashes; every failure is a `StorageError` that says which.

    >>> shared = SharedStorage("memory://example")
    >>> shared.write("runs/a/record.json", b"{}")
    >>> shared.read("runs/a/record.json"), shared.read("runs/b/record.json"), shared.names("runs")
    (b'{}', None, ['a'])
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        with self._errors("", "reached"):
            from fsspec.core import url_to_fs  # not at the top: it is slow, and most ladders need none
            from fsspec.implementations.local import LocalFileSystem

            self._files, self._root = url_to_fs(self.address, use_listings_cache=False)
            self._is_here = isinstance(self._files, LocalFileSystem)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None where there is none."""
        with self._errors(name, "read"):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, over an older one."""
        with self._errors(name, "written"):
            if self._is_here:
                replace_file(Path(self._path(name)), content)
            else:
                self._files.pipe_file(self._path(name), content)

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, sorted; nothing where there is none."""
        with self._errors(folder, "read"):
            try:
                found = self._files.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
        return sorted(posixpath.basename(path.rstrip("/")) for path in found)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if there is one."""
        with self._errors(name, "removed"), contextlib.suppress(FileNotFoundError):
            self._files.rm(self._path(name), recursive=True)

    def put_folder(self, local: Path, name: str, *, last: str, beside: Sequence[Path] = ()) -> None:
        """Copy every file below `local` there, and those `beside` it, the one called `last` after all others."""
        with self._errors(name, "written"):
            for path in sorted(path for path in local.rglob("*") if path.is_file() and path != local / last):
                self._put_file(path, f"{name}/{path.relative_to(local).as_posix()}")
            for path in beside:
                self._put_file(path, f"{name}/{path.name}")
        self.write(f"{name}/{last}", read_own_bytes(local / last))

    def _put_file(self, local: Path, name: str) -> None:
        there = self._path(name)
        if self._is_here:  # in an object store there are no folders to make
            self._files.makedirs(posixpath.dirname(there), exist_ok=True)
        self._files.put_file(str(local), there)

    def get_folder(self, name: str, local: Path, *, last: str) -> bool:
        """Let `local` appear with every file of a folder that is whole; False where it is not, or not there."""
        if self.read(f"{name}/{last}") is None:
            return False
        root = self._path(name)
        with new_folder(local) as temporary, self._errors(name, "read"):
            for path in self._files.find(root):
                here = temporary / posixpath.relpath(path, root)
                here.parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(path, str(here))
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextlib.contextmanager
    def _errors(self, name: str, verb: str) -> Iterator[None]:
        try:
            yield
        except MarinScalingError:
            raise
        except Exception as error:  # whatever the client of a store raises: no such protocol, no account, no network
            raise StorageError(
                f"{self.address}{'/' if name else ''}{name} cannot be {verb}: {first_line(error)}.",
                why="Machines that share runs meet there (hardware.storage); what lies on this machine stays as it is.",
                fix="Check the address, the account and the network, and type the same command again.",
            ) from error
