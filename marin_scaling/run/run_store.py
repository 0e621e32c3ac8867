"""The run store: `runs/<ladder>/<digest>/{spec,record,history}.json`, append-only.

A run's folder appears in one atomic step when the run is complete. Nothing is overwritten, and what is read is checked
against its name and digests. Checkpoints and logs never lie here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.durable_files import publish_folder, read_bytes
from marin_scaling.errors import RecordError
from marin_scaling.regular_files import is_present
from marin_scaling.run.run_record import History, RunRecord, read_history, read_record, record_matches
from marin_scaling.run.run_spec import DIRECTORY_DIGITS, RunSpec, read_spec

_RUN_FOLDER = re.compile(rf"[0-9a-f]{{{DIRECTORY_DIGITS}}}")


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A complete run: what was asked, what came of it, and where it lies."""

    spec: RunSpec
    record: RunRecord
    folder: Path

    def history(self) -> History:
        """The loss curve, checked against the record's digest."""
        path = self.folder / "history.json"
        raw = read_bytes(path)
        if sha256_hex(raw) != self.record.history_sha256:
            raise _not_what_it_says(path, "its digest is not the one in record.json")
        return read_history(raw, name=str(path))


def run_folder(runs_dir: Path, spec: RunSpec) -> Path:
    """Where the run of `spec` lies, or will lie."""
    return runs_dir / spec.ladder / spec.directory_name


def is_finished(runs_dir: Path, spec: RunSpec) -> bool:
    """Whether the store already holds the run of `spec`."""
    return is_present(run_folder(runs_dir, spec) / "record.json")


def add_run(runs_dir: Path, *, spec: RunSpec, record: RunRecord, history: History) -> Path:
    """Add a complete run to the store and return its folder; a run already there is an error."""
    folder = run_folder(runs_dir, spec)
    if not record_matches(spec, record):
        raise _not_what_it_says(folder / "record.json", "it is not the outcome of its spec")
    publish_folder(
        folder,
        {"spec.json": spec.to_bytes(), "record.json": record.to_bytes(), "history.json": history.to_bytes()},
    )
    return folder


def read_run(folder: Path) -> StoredRun:
    """The run in one folder of the store, checked against its name and its own digests."""
    spec = read_spec(read_bytes(folder / "spec.json"), name=str(folder / "spec.json"))
    record = read_record(read_bytes(folder / "record.json"), name=str(folder / "record.json"))
    if folder.name != spec.directory_name:
        raise _not_what_it_says(folder / "spec.json", "its digest is not the name of its folder")
    if not record_matches(spec, record):
        raise _not_what_it_says(folder / "record.json", "it is not the outcome of the spec beside it")
    return StoredRun(spec=spec, record=record, folder=folder)


def run_folders(ladder_dir: Path) -> list[Path]:
    """The folders of one ladder's complete runs (`runs/<ladder>`), by name; one that is being written is not yet among them."""
    return sorted(path for path in ladder_dir.iterdir() if _RUN_FOLDER.fullmatch(path.name)) if ladder_dir.is_dir() else []


def read_runs(ladder_dir: Path) -> list[StoredRun]:
    """All complete runs of one ladder (`runs/<ladder>`), sorted by cost and then by name."""
    return sorted(map(read_run, run_folders(ladder_dir)), key=lambda run: (run.spec.flops, run.spec.digest))


def _not_what_it_says(path: Path, reason: str) -> RecordError:
    return RecordError(
        f"{path}: {reason}.",
        why="The store is append-only; a changed or misplaced file would change a fit without a trace.",
        fix="Restore the folder from version control, or remove it and train the run again.",
    )
