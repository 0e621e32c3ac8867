"""Schemas of what a forecast of an outside run says more: its target, its table of runs, and their curves."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.strict_model import (
    LINE_PATTERN,
    NAME_PATTERN,
    SHA256,
    Count,
    FileName,
    One,
    Part,
    Positive,
    Reason,
    Text,
)


class ReadingOfTable(Part):
    """Choices with which a table was read, as in `marin-scale fit`; each may be missing."""

    columns: dict[str, Text] = Field(default_factory=dict)
    units: dict[str, Text] = Field(default_factory=dict)
    where: dict[str, Text] = Field(default_factory=dict)
    keep: list[Text] = Field(default_factory=list)
    drop: list[Text] = Field(default_factory=list)
    allow: list[Text] = Field(default_factory=list)
    skip_incomplete: bool = False


TABLE_ENDINGS = (".csv", ".tsv")
"""Endings of a signed table: reviewers read it as text, and `verify` unpacks nothing."""


def _is_text_table(path: str) -> str:
    if not path.endswith(TABLE_ENDINGS):
        raise ValueError(f"must end in {' or '.join(TABLE_ENDINGS)}")
    return path


class TableSource(Part):
    """Table from which the runs were read."""

    path: Annotated[str, StringConstraints(max_length=400, pattern=NAME_PATTERN), AfterValidator(_is_text_table)]
    """path in the repository"""
    sha256: SHA256
    """digest of the file"""
    choices: ReadingOfTable
    """choices with which it was read"""


RunName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=LINE_PATTERN)]
"""Id or name of a run in its tracker, or a key of its log."""


class CurveOfRun(Part):
    """Losses of one fitted run at every 5 % of its training, from 5 % on; null where the table has none."""

    run: RunName
    losses: Annotated[list[Positive | None], Field(min_length=20, max_length=20)]


_Share = Annotated[float, Field(ge=0, le=1)]


class ScheduleOfRuns(Part):
    """Learning rate by the share of a run: it rises for `warmup`, stays at its peak, and falls to `floor` in `decay`."""

    shape: Literal["linear", "cosine", "sqrt"] = "linear"
    """form of the decay: linear, cosine, or 1 minus the root of the share"""
    warmup: _Share = 0.0
    """share of the run in which the rate rises"""
    decay: _Share | None = None
    """share of the run, its last one, in which the rate falls; default: everything after the warm-up"""
    floor: _Share = 0.0
    """rate after the decay, as a share of the peak"""

    @model_validator(mode="after")
    def _is_one_run(self) -> Self:
        if self.warmup + (self.decay or 0.0) > 1:
            raise ValueError(f"warmup {self.warmup:g} and decay {self.decay:g} are together more than the run")
        return self


class CurvesSource(Part):
    """Table of the runs' loss curves, with a row for each run and step, and the same loss of the target."""

    path: Annotated[str, StringConstraints(max_length=400, pattern=NAME_PATTERN), AfterValidator(_is_text_table)]
    """path in the repository, a .csv or .tsv file"""
    columns: dict[Literal["run", "loss", "fraction", "tokens", "step"], Text] = Field(default_factory=dict)
    """the table's own names of columns"""
    key: RunName | None = None
    """key of this loss in the log of the target; default: that of the outcome"""
    train_steps: Count | None = None
    """planned steps of the target; default: its progress is counted in tokens"""
    complete: list[RunName] = Field(default_factory=list)
    """runs of the table without a final loss, which is estimated from their curves"""
    schedule: ScheduleOfRuns | None = Field(default=None, exclude_if=lambda schedule: schedule is None)
    """learning rate of the target, if that of the runs is another one"""
    runs_schedule: ScheduleOfRuns | None = Field(default=None, exclude_if=lambda schedule: schedule is None)
    """learning rate of all runs of the table, whose losses are then converted"""

    @model_validator(mode="after")
    def _has_both_schedules(self) -> Self:
        if (self.schedule is None) != (self.runs_schedule is None):
            raise ValueError("schedule and runs_schedule are given together: that of the target, and that of the table's runs")
        return self


class Curves(CurvesSource):
    """Loss curves of the fitted runs, from which the curve of the target is forecast."""

    sha256: SHA256
    """digest of the file"""
    runs: list[CurveOfRun]


class RecordedCurves(Part):
    """Training losses of a ladder's recorded rungs, from which the curve of its target is forecast."""

    loss: Literal["train_loss_nats_per_token"]
    """loss of the curves"""
    runs: list[CurveOfRun]


class CurveRow(Part):
    """Forecast of the loss at one share of the run."""

    fraction: Annotated[float, Field(gt=0, le=1)]
    quantiles: dict[str, Positive]


OUTSIDE: Literal["outside"] = "outside"
"""Role, and recipe, of a run that another trainer trains."""


class OutcomeSource(Part):
    """Source of the outcome of an outside run."""

    tracker: Literal["wandb", "levanter", "json", "csv", "megatron", "maxtext"]
    """kind of the log"""
    project: Text
    """project or folder of the tracker, as a reader finds it"""
    run: RunName
    """id or name of the run there"""
    key: RunName
    """key of the metric in the log"""
    tokens_key: RunName | None = None
    """key of the trained tokens in the log; default: a usual one"""


class OutsideEvaluation(Part):
    """Measurement of an outside run's metric, in words."""

    metric: Text
    described: Reason


class OutsideTarget(Part):
    """The content of `target.json` for a run that another trainer trains."""

    format_version: One
    ladder: FileName
    role: Literal["outside"]
    recipe: Literal["outside"]
    budget_flops: Positive
    flops: Positive
    flops_convention: Reason
    params: Count
    active_params: Count
    tokens: Count
    data: dict[str, Any]
    evaluation: OutsideEvaluation
    described: dict[str, Text]
    outcome: OutcomeSource

    def to_bytes(self) -> bytes:
        """Return the exact content of `target.json`."""
        return dump_canonical(self.model_dump(mode="json"))
