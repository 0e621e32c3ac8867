"""Records of finished runs, the run store that holds them, and the paths of runs and of the work on them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.errors import MarinScalingError, RecordError, UsageError
from marin_scaling.files import publish_folder, read_bytes, read_own_bytes
from marin_scaling.git import GitError, find_repository
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.printable import FIRST_YEAR, LAST_YEAR
from marin_scaling.run.spec import DIRECTORY_DIGITS, RunSpec, parse_part, read_spec
from marin_scaling.strict_model import Part
from marin_scaling.untrusted_files import is_present, require_no_link

RUNS_DIR = Path("runs")
WORK_ROOT = Path(".marin-scaling")


STARTED_NAME = "started_at"
"""File in a run's working folder with the time at which the run began."""
WEIGHTS_MARKER = "weights.json"
"""File in a folder of kept weights, written last, that names their run."""


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """The run store, and a working folder for checkpoints, caches and logs, which is safe to delete when idle.

    The weights of a target are kept there; with `keep_weights`, those of every run. Other machines find this work at
    `storage`, if it is given (`shared_storage`). `git_commit` is given for processes of a cluster, which work outside of the
    repository; other processes look it up. `mesh` is that of the ladder file, for training processes.
    """

    runs_dir: Path
    work_root: Path
    keep_weights: bool = False
    storage: str | None = None
    git_commit: str | None = None
    mesh: Mesh = ONE_AXIS


def spec_path(spec: RunSpec, place: Workplace) -> Path:
    """Return the path of a run's spec, which training processes read."""
    return place.work_root / "specs" / f"{spec.directory_name}.json"


def known_specs(place: Workplace, *, digits: str = "") -> list[RunSpec]:
    """Return the specs of runs recorded or begun here, sorted by digest; only those whose digest begins with `digits`."""
    recorded = ((path, read_bytes(path)) for path in place.runs_dir.glob(f"*/{digits}*/spec.json"))
    begun = ((path, read_own_bytes(path)) for path in place.work_root.glob(f"specs/{digits}*.json"))
    specs = {spec.digest: spec for spec in (read_spec(raw, name=str(path)) for path, raw in (*recorded, *begun))}
    return [specs[digest] for digest in sorted(specs)]


def work_dir(spec: RunSpec, place: Workplace) -> Path:
    """Return the working folder of an unfinished run."""
    return place.work_root / "work" / spec.directory_name


def compiled_dir(place: Workplace) -> Path:
    """Return the folder in which processes share compiled programs."""
    return place.work_root / "compiled"


def elsewhere_dir(spec: RunSpec, place: Workplace) -> Path:
    """Return the local copy of another machine's unfinished run, for `ladder status`."""
    return place.work_root / "elsewhere" / spec.directory_name


def curve_path(folder: Path) -> Path:
    """Return the path of the loss curve in a run's working folder."""
    return folder / "loss_curve.jsonl"


def checkpoints_root(folder: Path) -> Path:
    """Return Levanter's checkpoint folder in a run's working folder; Levanter adds a folder named after the run."""
    return folder / "checkpoints"


def trunk_dir(spec: RunSpec, place: Workplace) -> Path:
    """Return the folder in which runs that share this run's trunk leave checkpoints for each other, by number of steps."""
    return place.work_root / "trunks" / spec.trunk_digest[:DIRECTORY_DIGITS]


def weights_dir(run: str, place: Workplace) -> Path:
    """Return the folder of a run's trained model."""
    return place.work_root / "weights" / run


def require_untracked_work_root(root: Path, tracked: Sequence[Path]) -> None:
    """Raise `UsageError` if the working folder is a link, or if git tracks files in it: its content must be this machine's own.

    Runs resume from and train on what is in it. `tracked` are the files below `root` that git tracks.
    """
    if root.is_symlink():
        raise UsageError(
            f"{root} is a link to {os.readlink(root)}.",
            why="Checkpoints, tokens and compiled programs would be read from there.",
            fix=f"Remove the link (rm {root}). For more space keep the whole repository on a larger disk.",
        )
    if tracked:
        raise UsageError(
            f"Git tracks {len(tracked)} files below {root}, including {tracked[0].name!r}.",
            why="Checkpoints, tokens and weights must be this machine's own.",
            fix=f"Remove them from the repository and the disk: git rm -r --cached {root.name} && rm -r {root.name}",
        )


def workplace(*, storage: str | None = None) -> Workplace:
    """Return this repository's run store and folder for the work; `storage` as in the ladder's file."""
    return Workplace(runs_dir=RUNS_DIR.absolute(), work_root=own_work_root().absolute(), storage=storage)


def own_work_root() -> Path:
    """Return the folder for the work; `UsageError` if git tracks files in it, or if it or the run store is a link."""
    tracked: list[Path] = []
    with contextlib.suppress(GitError):  # a repository of another user
        if repository := find_repository():
            tracked = repository.tracked(WORK_ROOT)
    require_untracked_work_root(WORK_ROOT, tracked)
    require_no_link(RUNS_DIR)
    return WORK_ROOT


def end_of_run(started_at: str, *, wall_seconds: float, now: datetime) -> str:
    """Return `now`, or the start plus the last process's `wall_seconds` if that is later.

    >>> end_of_run("2026-11-21T10:00:00+00:00", wall_seconds=90.0, now=datetime(2026, 11, 1, tzinfo=UTC))
    '2026-11-21T10:01:30+00:00'
    """
    earliest = as_moment(started_at) + timedelta(seconds=wall_seconds)
    return max(now, earliest).isoformat(timespec="seconds")


def is_moment(written: bytes) -> bool:
    """Return True if these bytes are a time in the format of records.

    >>> is_moment(b"2026-11-21T10:00:00+00:00"), is_moment(b""), is_moment(b"2026-11-21T10:0\\0")
    (True, False, False)
    """
    try:
        return bool(as_moment(written.decode()))
    except ValueError:  # includes invalid UTF-8
        return False


def as_moment(text: str) -> datetime:
    """Return the time in a record, in UTC if it names no zone; `ValueError` if it is not a time."""
    moment = datetime.fromisoformat(text)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"{text} is not a time from {FIRST_YEAR} to {LAST_YEAR}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Hardware(Part):
    """The machine that a run was trained on, as far as known."""

    platform: str
    """Operating system, processor, and JAX backend."""
    device_kind: str
    """Kind of device, as JAX names it."""
    device_count: int
    """Number of devices that JAX used."""
    cpu_count: int
    """Number of processor cores available to the process."""
    mesh: Mesh | None = Field(default=None, exclude_if=lambda mesh: mesh is None)
    """Axes over which the devices were spread; left out if all were spread over `data`."""


class Trunk(Part):
    """The beginning of another run of the same width, rates and data, which a run continues."""

    spec_digest: str
    """SHA-256 of the spec of the run that trained the last of these steps."""
    steps: int = Field(gt=0)
    """Number of these steps."""


class RunRecord(Part):
    """Outcome of one run: measured loss, cost and provenance."""

    format_version: Literal[1] = 1
    """Version of this file format."""
    spec_digest: str
    """SHA-256 of the content of `spec.json`; the first 16 digits name the folder."""
    status: Literal["finished", "diverged"]
    """Diverged: the training loss was not finite, or the final loss is above the initial one and above uniform guessing."""
    metric: str
    """Name of the metric, as in the spec."""
    loss: float | None = Field(default=None, gt=0)
    """Value of the metric on held-out data; None if the run diverged."""
    losses: dict[str, float] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Loss of each named held-out set, of which `loss` is the mean; left out for a single set without a name."""
    final_train_loss_nats_per_token: float | None = None
    """Last finite training loss."""
    flops: float = Field(gt=0)
    """Training FLOPs, forward and backward."""
    flops_convention: str
    """Name of the formula that counted `flops`."""
    params_total: int
    """Parameters with embeddings and output head."""
    params_active: int
    """Parameters that a token passes through; all of them in a dense model."""
    params_non_embedding: int
    """Parameters without embeddings and output head."""
    trained_tokens: int
    """Batch size times sequence length times steps."""
    seed: int
    """Seed of the weights, as in the spec."""
    wall_seconds: float = Field(ge=0)
    """Seconds of the process that finished the run, without earlier, interrupted ones."""
    step_seconds: float = Field(ge=0)
    """Seconds of these in training steps after the first, which compiles."""
    started_at: str
    """Time at which the run first began (UTC, ISO 8601), before any interruption."""
    finished_at: str
    """Time at which the record was written (UTC, ISO 8601)."""
    hardware: Hardware
    """Machine of the last process."""
    versions: dict[str, str]
    """Versions of Python and of packages that influence the numbers."""
    layers: Literal["unrolled", "scanned"] = Field(default="unrolled", exclude_if=lambda layers: layers == "unrolled")
    """Scanned: one layer was compiled and repeated, which changes the rounding of losses. Left out if `unrolled`."""
    trunk: Trunk | None = Field(default=None, exclude_if=lambda trunk: trunk is None)
    """Beginning that the run took from another; `flops` and `trained_tokens` count these steps, too. Left out
    if it trained all steps itself."""
    git_commit: str | None = None
    """Commit checked out in the repository in which the run started; null outside of one."""
    data_digest: str
    """Digest of the data used, equal to the spec's."""
    history_sha256: str
    """Digest of `history.json` next to the record."""
    statement_sha256: str | None = None
    """Digest of the preregistration that the run answers; null for a rung."""

    @model_validator(mode="after")
    def _loss_goes_with_status(self) -> RunRecord:
        if (self.loss is None) != (self.status == "diverged"):
            raise ValueError("a finished run needs a loss, and a diverged one must not have it")
        return self

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> RunRecord:
        if as_moment(self.finished_at) < as_moment(self.started_at):
            raise ValueError(f"it ended at {self.finished_at}, before it began at {self.started_at}")
        return self

    @property
    def was_interrupted(self) -> bool:
        """True if earlier processes trained part of the run, whose seconds the record lacks."""
        seconds = (as_moment(self.finished_at) - as_moment(self.started_at)).total_seconds()
        return seconds > self.wall_seconds + 2  # both times are whole seconds

    def tokens_per_second(self, train_steps: int) -> float | None:
        """Return the tokens a second in the steps that the run trained itself; None if the record lacks their seconds."""
        if self.was_interrupted or not self.step_seconds:
            return None
        shared = self.trunk.steps / train_steps if self.trunk else 0.0
        return self.trained_tokens * (1 - shared) / self.step_seconds

    def to_bytes(self) -> bytes:
        """Return the content of `record.json`."""
        return dump_canonical(self.model_dump(mode="json"))


class HistoryRow(Part):
    """Training loss of one logged step, in nats per token; None if not finite."""

    step: int
    """Number of the step, from 0."""
    train_loss_nats_per_token: float | None
    """Loss on the step's batch before the update, z-loss included; null if not finite."""
    gradient_norm: float | None = Field(default=None, ge=0, exclude_if=lambda norm: norm is None)
    """Norm of all gradients of the step before clipping, z-loss included, without routers' biases; left out if not recorded or
    not finite."""
    router_entropy_nats: tuple[float, ...] = Field(default=(), exclude_if=lambda values: not values)
    """Mixtures, at measured steps: entropy in nats of the mean routing probabilities of the step's batch, by layer."""
    expert_shares: tuple[tuple[float, ...], ...] = Field(default=(), exclude_if=lambda values: not values)
    """Mixtures, at measured steps: each expert's share of the choices of the step's batch, by layer and expert."""

    @model_validator(mode="after")
    def _routing_is_whole(self) -> HistoryRow:
        layers = self.expert_shares
        if len(layers) != len(self.router_entropy_nats) or any(len(each) != len(layers[0]) or len(each) < 2 for each in layers):
            raise ValueError("a routing has an entropy for each layer, and a share for each of two experts or more")
        if any(not 0 <= share <= 1 for each in layers for share in each):
            raise ValueError("the shares of experts lie between 0 and 1")
        return self


class History(Part):
    """Content of `history.json`: the loss curve, one row per logged step."""

    format_version: Literal[1] = 1
    """Version of this file format."""
    spec_digest: str
    """Digest of the spec of the run."""
    rows: tuple[HistoryRow, ...]
    """Rows in order of steps."""

    def to_bytes(self) -> bytes:
        """Return the content of `history.json`."""
        return dump_canonical(self.model_dump(mode="json"))


def read_record(raw: bytes, *, name: str) -> RunRecord:
    """Parse the bytes of a `record.json`; errors name the file `name`."""
    return parse_part(RunRecord, raw, name=name)


def read_history(raw: bytes, *, name: str) -> History:
    """Parse the bytes of a `history.json`; errors name the file `name`."""
    return parse_part(History, raw, name=name)


def record_matches(spec: RunSpec, record: RunRecord) -> bool:
    """Return True if digest, cost, data and trunk of a record agree with this spec."""
    return (
        record.spec_digest == spec.digest
        and record.flops == spec.flops
        and record.trained_tokens == spec.trained_tokens
        and record.data_digest == spec.data.digest
        and record.statement_sha256 == spec.statement_sha256
        and (record.trunk is None or (spec.shared_trunk and record.trunk.steps <= spec.steps_before_decay))
    )


_RUN_FOLDER = re.compile(rf"[0-9a-f]{{{DIRECTORY_DIGITS}}}")


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A complete run: spec, record and folder."""

    spec: RunSpec
    record: RunRecord
    folder: Path

    def history(self) -> History:
        """Return the loss curve, checked against the record's digest."""
        path = self.folder / "history.json"
        raw = read_bytes(path)
        if sha256_hex(raw) != self.record.history_sha256:
            raise _not_what_it_says(path, "its digest is not the one in record.json")
        return read_history(raw, name=str(path))


def run_folder(runs_dir: Path, spec: RunSpec) -> Path:
    """Return the folder for the run of `spec`."""
    return runs_dir / spec.ladder / spec.directory_name


def is_finished(runs_dir: Path, spec: RunSpec) -> bool:
    """Return True if the store holds the run of `spec`."""
    return is_present(run_folder(runs_dir, spec) / "record.json")


def add_run(runs_dir: Path, *, spec: RunSpec, record: RunRecord, history: History) -> Path:
    """Add a complete run to the store and return its folder; raise if the run exists."""
    folder = run_folder(runs_dir, spec)
    if not record_matches(spec, record):
        raise _not_what_it_says(folder / "record.json", "it does not match its spec")
    publish_folder(
        folder,
        {"spec.json": spec.to_bytes(), "record.json": record.to_bytes(), "history.json": history.to_bytes()},
    )
    return folder


def read_run(folder: Path) -> StoredRun:
    """Read the run in one folder of the store, and check its name and digests."""
    spec = read_spec(read_bytes(folder / "spec.json"), name=str(folder / "spec.json"))
    record = read_record(read_bytes(folder / "record.json"), name=str(folder / "record.json"))
    if folder.name != spec.directory_name:
        raise _not_what_it_says(folder / "spec.json", "its digest is not the name of its folder")
    if not record_matches(spec, record):
        raise _not_what_it_says(folder / "record.json", "it does not match its spec")
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
    """Return the folders of one ladder's complete runs (`runs/<ladder>`), by name, without those being written."""
    return sorted(path for path in ladder_dir.iterdir() if _RUN_FOLDER.fullmatch(path.name)) if ladder_dir.is_dir() else []


def read_runs(ladder_dir: Path) -> list[StoredRun]:
    """Read all complete runs of one ladder (`runs/<ladder>`), sorted by cost, then by name."""
    return sorted(map(read_run, run_folders(ladder_dir)), key=lambda run: (run.spec.flops, run.spec.digest))


def _not_what_it_says(path: Path, reason: str) -> RecordError:
    return RecordError(
        f"{path}: {reason}.",
        why="A changed or misplaced file would change a fit without a trace.",
        fix="Restore the folder from version control, or remove it and rerun the training.",
    )
