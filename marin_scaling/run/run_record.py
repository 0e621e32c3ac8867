"""RunRecord: what came of one run. Written once, when the run is complete, never changed.

A file format (`record.json`), therefore a strict pydantic model. A diverged run has a status and no loss, so that no NaN
enters a file. The loss history lies beside it (`history.json`), bound by its digest.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError, model_validator

from marin_scaling.canonical_json import dump_canonical, load_strict
from marin_scaling.run.run_spec import Document, RunSpec, _malformed


class Hardware(Document):
    """The machine a run was trained on, as far as it can be known."""

    platform: str
    device_kind: str
    device_count: int
    cpu_count: int


class RunRecord(Document):
    """The outcome of one run: measured loss, cost, and where it came from."""

    format_version: Literal[1] = 1
    spec_digest: str
    status: Literal["finished", "diverged"]
    metric: str
    loss: float | None = Field(default=None, gt=0)
    """The metric's value on the held-out data; None when the run diverged."""
    final_train_loss_nats_per_token: float | None = None
    flops: float = Field(gt=0)
    flops_convention: str
    params_total: int
    params_active: int
    params_non_embedding: int
    trained_tokens: int
    seed: int
    wall_seconds: float
    """Seconds of the process that finished the run; earlier, interrupted ones are not in it."""
    step_seconds: float
    """Seconds of these spent in training steps after the first (which compiles)."""
    started_at: str
    """When the run was first begun (UTC, ISO 8601), also when it was interrupted since."""
    finished_at: str
    hardware: Hardware
    versions: dict[str, str]
    git_commit: str | None = None
    data_digest: str
    history_sha256: str
    statement_sha256: str | None = None

    @model_validator(mode="after")
    def _loss_goes_with_status(self) -> RunRecord:
        if (self.loss is None) != (self.status == "diverged"):
            raise ValueError("a finished run has a loss and a diverged one has none")
        return self

    def to_bytes(self) -> bytes:
        """The content of `record.json`."""
        return dump_canonical(self.model_dump(mode="json"))


class HistoryRow(Document):
    """One logged step: training loss in nats per token (None when not finite)."""

    step: int
    train_loss_nats_per_token: float | None


class History(Document):
    """The content of `history.json`: the loss curve, one row a logged step."""

    format_version: Literal[1] = 1
    spec_digest: str
    rows: tuple[HistoryRow, ...]

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
