"""What machines that share runs exchange at `hardware.storage`: finished runs, the state of those under way, data and weights.

    runs/LADDER/RUN/      a run store like the one here; record.json is written last
    work/RUN/             of a run under way: when it began, its loss curve, its newest checkpoint, and who trains it
    data/DIGEST/          the tokens that runs are trained on
    weights/RUN/          models that are kept

The files of this machine are what every command reads: here they are only brought and taken. Who trains a run says so in a
lease that it renews; one that is not renewed lapses. Two machines that take a lapsed lease in the same second may both train
the run, which costs time and nothing else: the first record stands.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from marin_scaling.claim import claim
from marin_scaling.data.token_corpus import MANIFEST_NAME, data_folder
from marin_scaling.durable_files import read_bytes, replace_file
from marin_scaling.errors import StorageError
from marin_scaling.run.loss_curve import recorded_losses
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.run_store import add_run, is_finished, read_run, run_folder
from marin_scaling.run.shared_storage import SharedStorage
from marin_scaling.run.workplace import (
    STARTED_NAME,
    WEIGHTS_MARKER,
    Workplace,
    checkpoints_root,
    curve_path,
    shares_path,
    weights_dir,
    work_dir,
)

LEASE_SECONDS = 60.0
"""After which a lease that was not renewed has lapsed; the clocks of machines have to agree better than that."""
_RENEWALS = 4  # in that time
_SETTLING_SECONDS = 1.0  # in which two that take a lease at once see who wrote last
_POLL_SECONDS = 1.0
_RECORD, _CHECKPOINT, _LEASE = "record.json", "metadata.json", "lease.json"


class Exchange:
    """Between a workplace and the storage that it names; `StorageError` where that cannot be reached."""

    def __init__(self, place: Workplace) -> None:
        assert place.storage is not None
        self._place, self._shared = place, SharedStorage(place.storage)

    def share_finished(self, specs: Sequence[RunSpec]) -> None:
        """Bring those of the runs that are finished there and not here, and take those that are finished here and not there."""
        for spec in specs:
            there = f"runs/{spec.ladder}/{spec.directory_name}"
            if not is_finished(self._place.runs_dir, spec):
                self._bring_finished(spec, there)
            elif self._shared.read(f"{there}/{_RECORD}") is None:
                self._shared.put_folder(run_folder(self._place.runs_dir, spec), there, last=_RECORD)

    def _bring_finished(self, spec: RunSpec, there: str) -> None:
        """`RecordError` where it is not what it says; the store then holds nothing of it."""
        brought = self._place.work_root / "brought" / spec.directory_name
        shutil.rmtree(brought, ignore_errors=True)
        if self._shared.get_folder(there, brought, last=_RECORD):
            run = read_run(brought)
            add_run(self._place.runs_dir, spec=run.spec, record=run.record, history=run.history())
            shutil.rmtree(brought)

    def take_data(self, digest: str) -> None:
        """The tokens of this digest, unless they are there."""
        folder = data_folder(digest, work_root=self._place.work_root)
        if self._shared.read(f"data/{folder.name}/{MANIFEST_NAME}") is None:
            self._shared.put_folder(folder, f"data/{folder.name}", last=MANIFEST_NAME)

    def bring_data(self, digest: str) -> None:
        """The tokens of this digest, unless they are here; where another process is bringing them, once it has."""
        folder = data_folder(digest, work_root=self._place.work_root)
        while not (folder / MANIFEST_NAME).exists():
            with claim(folder) as is_ours:
                if is_ours:
                    shutil.rmtree(folder, ignore_errors=True)
                    self._shared.get_folder(f"data/{folder.name}", folder, last=MANIFEST_NAME)
                    return
            time.sleep(_POLL_SECONDS)

    def bring_work(self, spec: RunSpec) -> None:
        """When the run was first begun; and its state where another machine saved a later one than was saved here."""
        there, here = f"work/{spec.directory_name}", work_dir(spec, self._place)
        began = self._shared.read(f"{there}/{STARTED_NAME}")
        if began is not None:
            replace_file(here / STARTED_NAME, began)
        saved, own = self._saved_steps(spec), checkpoints_root(here) / spec.directory_name
        if not saved or saved[-1] <= max(_complete_steps(own), default=-1):
            return
        curve, newest = self._shared.read(f"{there}/{curve_path(here).name}"), f"step-{saved[-1]}"
        shutil.rmtree(own / newest, ignore_errors=True)  # it is not whole
        self._shared.get_folder(f"{there}/checkpoints/{newest}", own / newest, last=_CHECKPOINT)
        replace_file(curve_path(here), curve or b"")

    def take_work(self, spec: RunSpec) -> None:
        """When the run was begun, its curve so far, and its newest checkpoint in the place of older ones."""
        there, here = f"work/{spec.directory_name}", work_dir(spec, self._place)
        for path in (path for path in here.iterdir() if path.is_file()):
            self._shared.write(f"{there}/{path.name}", read_bytes(path))
        before, own = self._saved_steps(spec), checkpoints_root(here) / spec.directory_name
        steps = _complete_steps(own)
        if steps and steps[-1] not in before:
            newest = f"step-{steps[-1]}"
            self._shared.put_folder(own / newest, f"{there}/checkpoints/{newest}", last=_CHECKPOINT)
            for old in before:
                self._shared.remove(f"{there}/checkpoints/step-{old}")

    def forget_work(self, spec: RunSpec) -> None:
        """Of a run that is recorded."""
        self._shared.remove(f"work/{spec.directory_name}")

    def bring_progress(self, specs: Sequence[RunSpec]) -> None:
        """To look at: the runs that are finished, and of others the curve so far where it is longer there than here."""
        self.share_finished(specs)
        for spec in specs:
            here, there = work_dir(spec, self._place), f"work/{spec.directory_name}"
            curve = self._shared.read(f"{there}/{curve_path(here).name}")
            if curve is not None and curve.count(b"\n") > len(recorded_losses(curve_path(here))):
                replace_file(curve_path(here), curve)
                replace_file(shares_path(here), self._shared.read(f"{there}/{shares_path(here).name}") or b"[]")

    def take_weights(self, run: str) -> None:
        """The kept model of the run of this name."""
        self._shared.put_folder(weights_dir(run, self._place), f"weights/{run}", last=WEIGHTS_MARKER)

    def bring_weights(self, run: str) -> None:
        """The same, unless it is here, or not there either."""
        if not weights_dir(run, self._place).exists():
            self._shared.get_folder(f"weights/{run}", weights_dir(run, self._place), last=WEIGHTS_MARKER)

    def is_leased(self, spec: RunSpec) -> bool:
        """Whether a process on some machine trains the run."""
        lease = self._lease(spec)
        return lease is not None and time.time() < lease["until"]

    @contextlib.contextmanager
    def lease(self, spec: RunSpec) -> Iterator[bool]:
        """Whether this process now holds the run; what it holds it renews until the end of the block."""
        if self.is_leased(spec):
            yield False
            return
        holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._renew(spec, holder)
        time.sleep(_SETTLING_SECONDS)
        lease = self._lease(spec)
        if lease is None or lease["holder"] != holder:
            yield False
            return
        ended = threading.Event()
        renewing = threading.Thread(target=self._keep_renewing, args=(spec, holder, ended), daemon=True)
        renewing.start()
        try:
            yield True
        finally:
            ended.set()
            renewing.join()
            self._shared.remove(f"work/{spec.directory_name}/{_LEASE}")

    def _keep_renewing(self, spec: RunSpec, holder: str, ended: threading.Event) -> None:
        while not ended.wait(LEASE_SECONDS / _RENEWALS):
            with contextlib.suppress(StorageError):  # the next time it may be reached again
                self._renew(spec, holder)

    def _renew(self, spec: RunSpec, holder: str) -> None:
        lease = {"holder": holder, "until": time.time() + LEASE_SECONDS}
        self._shared.write(f"work/{spec.directory_name}/{_LEASE}", json.dumps(lease).encode())

    def _lease(self, spec: RunSpec) -> dict[str, Any] | None:
        found = self._shared.read(f"work/{spec.directory_name}/{_LEASE}")
        return None if found is None else dict(json.loads(found))

    def _saved_steps(self, spec: RunSpec) -> list[int]:
        """The steps of the checkpoints that are whole there, ascending."""
        folder = f"work/{spec.directory_name}/checkpoints"
        steps = _steps(self._shared.names(folder))
        return [step for step in steps if self._shared.read(f"{folder}/step-{step}/{_CHECKPOINT}") is not None]


def _complete_steps(folder: Path) -> list[int]:
    return _steps(path.parent.name for path in folder.glob(f"*/{_CHECKPOINT}"))


def _steps(names: Iterable[str]) -> list[int]:
    found = (name.removeprefix("step-") for name in names if name.startswith("step-"))
    return sorted(int(step) for step in found if step.isdecimal())
