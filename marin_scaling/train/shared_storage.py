"""Shared storage for machines that train one ladder: checkpoints, records, leases."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from marin_scaling.data.corpus import MANIFEST_NAME, damaged_rows, data_folder, map_corpus
from marin_scaling.errors import MarinScalingError, RecordError, StorageError, first_line
from marin_scaling.files import claim, new_folder, read_own_bytes, replace_file
from marin_scaling.run.curves import forget_seal
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import (
    STARTED_NAME,
    WEIGHTS_MARKER,
    StoredRun,
    Workplace,
    add_run,
    checkpoints_root,
    curve_path,
    elsewhere_dir,
    is_finished,
    is_moment,
    read_run,
    run_folder,
    weights_dir,
    work_dir,
)


class SharedStorage:
    """Files under one address, by names with slashes; every failure is a `StorageError` with the file's name.

    >>> shared = SharedStorage("memory://example")
    >>> shared.write("runs/a/record.json", b"{}")
    >>> shared.read("runs/a/record.json"), shared.read("runs/b/record.json"), shared.names("runs")
    (b'{}', None, ['a'])
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        with self._errors("", "reached"):
            from fsspec.core import url_to_fs  # slow, and most ladders do not need it
            from fsspec.implementations.local import LocalFileSystem

            self._files, self._root = url_to_fs(self.address, use_listings_cache=False)
            self._is_here = isinstance(self._files, LocalFileSystem)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file; None if it is missing."""
        with self._errors(name, "read"):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, replacing an older one."""
        with self._errors(name, "written"):
            if self._is_here:
                replace_file(Path(self._path(name)), content)
            else:
                self._files.pipe_file(self._path(name), content)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; empty if it is missing."""
        with self._errors(folder, "read"):
            try:
                found = self._files.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
        return sorted(posixpath.basename(path.rstrip("/")) for path in found)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        with self._errors(name, "removed"), contextlib.suppress(FileNotFoundError):
            self._files.rm(self._path(name), recursive=True)

    def put_folder(self, local: Path, name: str, *, last: str, also: Sequence[Path] = ()) -> None:
        """Upload every file below `local`, and the files in `also`; the file called `last` comes after all others."""
        with self._errors(name, "written"):
            for path in sorted(path for path in local.rglob("*") if path.is_file() and path != local / last):
                self._put_file(path, f"{name}/{path.relative_to(local).as_posix()}")
            for path in also:
                self._put_file(path, f"{name}/{path.name}")
        self.write(f"{name}/{last}", read_own_bytes(local / last))

    def _put_file(self, local: Path, name: str) -> None:
        there = self._path(name)
        if self._is_here:  # object stores need no folders
            self._files.makedirs(posixpath.dirname(there), exist_ok=True)
        self._files.put_file(str(local), there)

    def get_folder(self, name: str, local: Path, *, last: str) -> bool:
        """Download a complete folder to `local` in one atomic step; return False if it is incomplete or missing."""
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
        except Exception as error:  # whatever a store's client raises: unknown protocol, no account, no network
            raise StorageError(
                f"{self.address}{'/' if name else ''}{name} cannot be {verb}: {first_line(error)}.",
                why="Machines share runs there (hardware.storage); files on this machine are unchanged.",
                fix="Check the address, the account and the network, then rerun the command.",
            ) from error


LEASE_SECONDS = 60.0
"""Seconds after which a lease expires unless renewed; clocks of machines must agree better than that."""
_RENEWALS = 4  # per duration of a lease
_SETTLING_SECONDS = 1.0  # for two processes that lease at once to see whose write was last
_POLL_SECONDS = 1.0
_RECORD, _CHECKPOINT, _LEASE = "record.json", "metadata.json", "lease.json"


class Exchange:
    """Exchange of runs between a workplace and its storage; `StorageError` if the storage cannot be reached."""

    def __init__(self, place: Workplace) -> None:
        assert place.storage is not None
        self._place, self._shared = place, SharedStorage(place.storage)
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    def require_writable(self) -> None:
        """Check that the storage is writable, before hours of work."""
        self._shared.write("probe", b"probe")

    def share_finished(self, specs: Sequence[RunSpec]) -> None:
        """Download runs that are finished only there, and upload those that are finished only here."""
        for spec in specs:
            there = f"runs/{spec.ladder}/{spec.directory_name}"
            if not is_finished(self._place.runs_dir, spec):
                self._bring_finished(spec, there)
            elif self._shared.read(f"{there}/{_RECORD}") is None:
                self._take_finished(spec, there)

    def _bring_finished(self, spec: RunSpec, there: str) -> None:
        """Download a finished run; `RecordError`, with the store unchanged, if it is invalid."""
        with self._own_folder() as brought:
            if not self._shared.get_folder(there, brought / spec.directory_name, last=_RECORD):
                return
            try:
                run = read_run(brought / spec.directory_name)
                add_run(self._place.runs_dir, spec=run.spec, record=run.record, history=run.history())
            except RecordError as error:
                raise RecordError(
                    f"{self._shared.address}/{there} is not a record of this run. {error.what}",
                    fix="Remove that folder there; a machine that has the run uploads it again, or it is trained again.",
                ) from error
            except StorageError:
                if not is_finished(self._place.runs_dir, spec):  # another process here was not faster
                    raise
        with claim(work_dir(spec, self._place)) as is_idle:
            if is_idle:
                shutil.rmtree(work_dir(spec, self._place), ignore_errors=True)

    def _take_finished(self, spec: RunSpec, there: str) -> None:
        """Upload a finished run, with its weights if kept, and remove its checkpoints there."""
        run = read_run(run_folder(self._place.runs_dir, spec))
        weights = weights_dir(spec.directory_name, self._place)
        if (weights / WEIGHTS_MARKER).exists():
            self._shared.put_folder(weights, _weights_of(run), last=WEIGHTS_MARKER)
        self._shared.put_folder(run.folder, there, last=_RECORD)
        self._shared.remove(f"work/{spec.directory_name}/states")

    def bring_weights(self, run: StoredRun) -> None:
        """Download the weights of a run unless they are here or missing there."""
        here = weights_dir(run.spec.directory_name, self._place)
        if not here.exists():
            self._shared.get_folder(_weights_of(run), here, last=WEIGHTS_MARKER)

    def take_data(self, digest: str) -> None:
        """Upload the tokens of this digest unless they are there."""
        folder = data_folder(digest, work_root=self._place.work_root)
        if self._shared.read(f"data/{folder.name}/{MANIFEST_NAME}") is None:
            self._shared.put_folder(folder, f"data/{folder.name}", last=MANIFEST_NAME)

    def bring_data(self, digest: str) -> None:
        """Download the tokens of this digest unless they are here; wait for another process that is downloading them."""
        folder = data_folder(digest, work_root=self._place.work_root)
        while not (folder / MANIFEST_NAME).exists():
            with claim(folder) as is_ours:
                if is_ours:
                    shutil.rmtree(folder, ignore_errors=True)
                    self._bring_data(folder)
                    return
            time.sleep(_POLL_SECONDS)

    def _bring_data(self, folder: Path) -> None:
        with self._own_folder() as brought:
            if not self._shared.get_folder(f"data/{folder.name}", brought / "data", last=MANIFEST_NAME):
                return
            if damaged := damaged_rows(map_corpus(brought / "data")):
                raise StorageError(
                    f"{self._shared.address}/data/{folder.name}: the tokens of {damaged[0]} were changed after the upload.",
                    fix="Remove that folder there, then rerun the command on the machine that has the text.",
                )
            (brought / "data").rename(folder)

    def bring_state(self, spec: RunSpec) -> None:
        """Download the latest checkpoint and curve if another machine is further than this one."""
        self.agree_when_begun(spec)
        here, states = work_dir(spec, self._place), self._states(spec)
        own = checkpoints_root(here) / spec.directory_name
        if not states or _step_of(states[-1]) <= max(map(_step_of, _complete_checkpoints(own)), default=-1):
            return
        with self._own_folder() as brought:
            is_whole = self._shared.get_folder(f"{_states(spec)}/{states[-1]}", brought / "state", last=_CHECKPOINT)
            if is_whole and (brought / "state" / curve_path(here).name).exists():
                shutil.rmtree(own, ignore_errors=True)  # a kill before the last line leaves no checkpoint
                own.mkdir(parents=True)
                forget_seal(curve_path(here))
                (brought / "state" / curve_path(here).name).replace(curve_path(here))
                (brought / "state").rename(own / f"step-{_step_of(states[-1])}")

    def take_state(self, spec: RunSpec) -> None:
        """Upload the newest checkpoint, if any, with the curve so far, and remove earlier ones."""
        here = work_dir(spec, self._place)
        own = checkpoints_root(here) / spec.directory_name
        newest = max(_complete_checkpoints(own), key=_step_of, default=None)
        if newest is None:
            return
        before, state = self._states(spec), f"{newest}-{self._holder}"
        also = [path for path in (curve_path(here),) if path.exists()]
        self._shared.put_folder(own / newest, f"{_states(spec)}/{state}", last=_CHECKPOINT, also=also)
        for old in before:
            if _step_of(old) < _step_of(newest):
                self._shared.remove(f"{_states(spec)}/{old}")

    def agree_when_begun(self, spec: RunSpec) -> None:
        """Agree on the earliest start of a run, here or elsewhere: a forecast must be older."""
        here, there = work_dir(spec, self._place) / STARTED_NAME, f"work/{spec.directory_name}/{STARTED_NAME}"
        known = [
            began
            for began in (read_own_bytes(here) if here.exists() else None, self._shared.read(there))
            if began and is_moment(began)
        ]
        if known:
            replace_file(here, min(known))
            self._shared.write(there, min(known))

    def bring_progress(self, specs: Sequence[RunSpec]) -> None:
        """Download, for display, the finished runs, and of others the curve at the latest checkpoint."""
        self.share_finished(specs)
        for spec in specs:
            shown = elsewhere_dir(spec, self._place)
            states = [] if is_finished(self._place.runs_dir, spec) else self._states(spec)
            path = curve_path(shown)
            found = self._shared.read(f"{_states(spec)}/{states[-1]}/{path.name}") if states else None
            if found is not None:
                replace_file(path, found)

    def is_leased(self, spec: RunSpec) -> bool:
        """Return True if another process, on any machine, trains the run."""
        lease = self._lease(spec)
        return lease is not None and lease["holder"] != self._holder and time.time() < lease["until"]

    @contextlib.contextmanager
    def lease(self, spec: RunSpec) -> Iterator[bool]:
        """Try to lease the run; yield whether that succeeded, and renew the lease until the end of the block."""
        if self.is_leased(spec):
            yield False
            return
        self._renew(spec)
        time.sleep(_SETTLING_SECONDS)
        if self.is_leased(spec):
            yield False
            return
        ended = threading.Event()
        renewing = threading.Thread(target=self._keep_renewing, args=(spec, ended), daemon=True)
        renewing.start()
        try:
            yield True
        finally:
            ended.set()
            renewing.join()
            with contextlib.suppress(StorageError):  # then the lease expires
                if not self.is_leased(spec):
                    self._shared.remove(f"work/{spec.directory_name}/{_LEASE}")

    def _keep_renewing(self, spec: RunSpec, ended: threading.Event) -> None:
        while not ended.wait(LEASE_SECONDS / _RENEWALS):
            with contextlib.suppress(StorageError):  # retried at the next renewal
                if not self.is_leased(spec):  # the lease expired, and another process took it
                    self._renew(spec)

    def _renew(self, spec: RunSpec) -> None:
        lease = {"holder": self._holder, "until": time.time() + LEASE_SECONDS}
        self._shared.write(f"work/{spec.directory_name}/{_LEASE}", json.dumps(lease).encode())

    def _lease(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the lease; None if it is missing or unreadable."""
        try:
            found = json.loads(self._shared.read(f"work/{spec.directory_name}/{_LEASE}") or b"")
            return {"holder": str(found["holder"]), "until": float(found["until"])}
        except (ValueError, KeyError, TypeError):
            return None

    def _states(self, spec: RunSpec) -> list[str]:
        """Return the names of complete checkpoints there, by step."""
        found = [name for name in self._shared.names(_states(spec)) if _step_of(name) >= 0]
        whole = [name for name in found if self._shared.read(f"{_states(spec)}/{name}/{_CHECKPOINT}") is not None]
        return sorted(whole, key=_step_of)

    @contextlib.contextmanager
    def _own_folder(self) -> Iterator[Path]:
        """Yield a folder of this machine that no other process uses, and remove it after the block."""
        folder = self._place.work_root / "brought" / secrets.token_hex(8)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _states(spec: RunSpec) -> str:
    return f"work/{spec.directory_name}/states"


def _weights_of(run: StoredRun) -> str:
    return f"weights/{run.spec.directory_name}-{run.record.history_sha256[:16]}"


def _complete_checkpoints(folder: Path) -> list[str]:
    return [path.parent.name for path in folder.glob(f"step-*/{_CHECKPOINT}")]


def _step_of(name: str) -> int:
    """Return the step in the name of a checkpoint; -1 if it has none.

    >>> _step_of("step-40-somewhere-12"), _step_of("notes")
    (40, -1)
    """
    found = re.match(r"step-(\d+)", name)
    return int(found[1]) if found else -1
