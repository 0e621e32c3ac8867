"""RunRecord: what came of one run. Written once, when the run is complete, never changed.

A file format (`record.json`), therefore a strict pydantic model. A diverged run has a status and no loss, so that no NaN
enters a file. The loss history lies beside it (`history.json`), bound by its digest.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError, model_validator

from marin_scaling.canonical_json import dump_canonical, load_strict
from marin_scaling.run.run_spec import Document, RunSpec, _malformed
from marin_scaling.run.run_times import as_moment


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
    wall_seconds: float
    """Seconds of the process that finished the run; earlier, interrupted ones are not in it."""
    step_seconds: float
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
