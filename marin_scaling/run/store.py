"""Records of finished runs, and the run store that holds them."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from marin_scaling.canonical_json import dump_canonical, load_strict, sha256_hex
from marin_scaling.errors import MarinScalingError, RecordError
from marin_scaling.files import publish_folder, read_bytes
from marin_scaling.limits import FIRST_YEAR, LAST_YEAR
from marin_scaling.run.spec import DIRECTORY_DIGITS, Document, RunSpec, _malformed, read_spec
from marin_scaling.untrusted_files import is_present


def end_of_run(started_at: str, *, wall_seconds: float, now: datetime) -> str:
    """Return `now`, or as many seconds after the beginning as the last process took, if that is later.

    >>> end_of_run("2026-11-21T10:00:00+00:00", wall_seconds=90.0, now=datetime(2026, 11, 1, tzinfo=UTC))
    '2026-11-21T10:01:30+00:00'
    """
    earliest = as_moment(started_at) + timedelta(seconds=wall_seconds)
    return max(now, earliest).isoformat(timespec="seconds")


def is_moment(written: bytes) -> bool:
    """Return True if these bytes are a time as it is written here.

    >>> is_moment(b"2026-11-21T10:00:00+00:00"), is_moment(b""), is_moment(b"2026-11-21T10:0\\0")
    (True, False, False)
    """
    try:
        return bool(as_moment(written.decode()))
    except ValueError:  # no UTF-8, too
        return False


def as_moment(text: str) -> datetime:
    """Return the time in a record, in UTC where it names no zone; `ValueError` if it is none."""
    moment = datetime.fromisoformat(text)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"{text} is no time from {FIRST_YEAR} to {LAST_YEAR}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Hardware(Document):
    """The machine a run was trained on, as far as it can be known."""

    platform: str
    """Operating system, processor, and what JAX ran on."""
    device_kind: str
    """What JAX calls the devices."""
    device_count: int
    """Devices that JAX used."""
    cpu_count: int
    """Processor cores that the process was allowed."""


class RunRecord(Document):
    """The outcome of one run: measured loss, cost, and where it came from."""

    format_version: Literal[1] = 1
    """Of this file."""
    spec_digest: str
    """SHA-256 of `spec.json`'s content; its first 16 digits name the folder."""
    status: Literal["finished", "diverged"]
    """Diverged: the training loss stopped being finite, or the run ended worse than it began and than by guessing."""
    metric: str
    """What `loss` is, as in the spec's evaluation."""
    loss: float | None = Field(default=None, gt=0)
    """The metric's value on the held-out data; None when the run diverged."""
    losses: dict[str, float] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Of each named held-out set, of which `loss` is the mean; left out where there is one without a name."""
    final_train_loss_nats_per_token: float | None = None
    """The last finite training loss."""
    flops: float = Field(gt=0)
    """Training FLOPs, forward and backward."""
    flops_convention: str
    """Which formula counted them."""
    params_total: int
    """Embeddings and output head included."""
    params_active: int
    """Those that a token passes through: all of them in a dense model."""
    params_non_embedding: int
    """Without embeddings and output head."""
    trained_tokens: int
    """Batch size times sequence length times steps."""
    seed: int
    """Seed of the weights, as in the spec."""
    wall_seconds: float = Field(ge=0)
    """Seconds of the process that finished the run; earlier, interrupted ones are not in it."""
    step_seconds: float = Field(ge=0)
    """Seconds of these spent in training steps after the first (which compiles)."""
    started_at: str
    """When the run was first begun (UTC, ISO 8601), also when it was interrupted since."""
    finished_at: str
    """When the record was written (UTC, ISO 8601)."""
    hardware: Hardware
    """The machine, below."""
    versions: dict[str, str]
    """Python and the packages that the numbers depend on."""
    git_commit: str | None = None
    """Checked out in the repository that the run was started in; null outside of one."""
    data_digest: str
    """Digest of the bytes that were there, equal to the spec's."""
    history_sha256: str
    """Digest of the loss curve beside the record."""
    statement_sha256: str | None = None
    """Digest of the preregistration that the run answers; null for a rung."""

    @model_validator(mode="after")
    def _loss_goes_with_status(self) -> RunRecord:
        if (self.loss is None) != (self.status == "diverged"):
            raise ValueError("a finished run has a loss and a diverged one has none")
        return self

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> RunRecord:
        if as_moment(self.finished_at) < as_moment(self.started_at):
            raise ValueError(f"it ended at {self.finished_at}, before it began at {self.started_at}")
        return self

    def to_bytes(self) -> bytes:
        """The content of `record.json`."""
        return dump_canonical(self.model_dump(mode="json"))


class HistoryRow(Document):
    """One logged step: training loss in nats per token (None when not finite)."""

    step: int
    """Number of the step, from 0."""
    train_loss_nats_per_token: float | None
    """Loss on that step's batch before its update, z-loss included; null when it was not finite."""


class History(Document):
    """The content of `history.json`: the loss curve, one row a logged step."""

    format_version: Literal[1] = 1
    """Of this file."""
    spec_digest: str
    """Whose curve it is."""
    rows: tuple[HistoryRow, ...]
    """Steps in order."""

    def to_bytes(self) -> bytes:
        """The content of `history.json`."""
        return dump_canonical(self.model_dump(mode="json"))


def read_record(raw: bytes, *, name: str) -> RunRecord:
    """The record in the bytes of a `record.json`; `name` is the file to speak of in errors."""
    try:
        return RunRecord.model_validate(load_strict(raw, name=name))
    except ValidationError as error:
        raise _malformed(name, error) from error


def read_history(raw: bytes, *, name: str) -> History:
    """The loss curve in the bytes of a `history.json`."""
    try:
        return History.model_validate(load_strict(raw, name=name))
    except ValidationError as error:
        raise _malformed(name, error) from error


def record_matches(spec: RunSpec, record: RunRecord) -> bool:
    """Whether a record is the outcome of this spec: digest, cost and data agree."""
    return (
        record.spec_digest == spec.digest
        and record.flops == spec.flops
        and record.trained_tokens == spec.trained_tokens
        and record.data_digest == spec.data.digest
        and record.statement_sha256 == spec.statement_sha256
    )


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


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A record and its folder in the store."""

    folder: Path
    record: RunRecord


def records_by_log(runs_dir: Path) -> dict[str, list[StoredRecord]]:
    """Return all readable records of a store by the digest of their loss curve; a damaged one is left to its ladder's page."""
    found: dict[str, list[StoredRecord]] = {}
    for folder in (folder for ladder in sorted(runs_dir.glob("*/")) for folder in run_folders(ladder)):
        with contextlib.suppress(MarinScalingError):
            path = folder / "record.json"
            record = read_record(read_bytes(path), name=str(path))
            found.setdefault(record.history_sha256, []).append(StoredRecord(folder=folder, record=record))
    return found


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
