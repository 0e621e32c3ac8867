"""A run as its tracker logged it: settings, last values, and the history of some keys."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from marin_scaling.run.columns import spelled
from marin_scaling.run.numbers import number_in


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as logged: flat names ("throughput/total_tokens") to last values; `source` is its address or file.

    `id`, `project` and `started_at` (UTC) are the tracker's; "" and None where it does not say. `kind` is wandb, levanter,
    json, csv (any table), megatron or maxtext. `is_named` is False for a run with the name of its file. `last_steps` gives
    the step at which each name was logged last, where the log has steps, and `planned_steps` the number of all steps.
    """

    name: str
    source: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    state: str = ""
    id: str = ""
    project: str = ""
    started_at: datetime | None = None
    last_steps: Mapping[str, float] = field(default_factory=dict)
    kind: str = "levanter"
    is_named: bool = True
    planned_steps: int | None = None
    steps: Sequence[float] = field(default=(), repr=False)
    """All logged steps, rising, where the log has steps."""
    stopped: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Rows of a table after the last number of a name, if it had one more often before."""
    first: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """First value of each name, where the log has steps."""
    history: Sequence[tuple[float, Mapping[str, Any]]] = field(default=(), repr=False)
    """Steps with the values that were logged at them, in the log's order; only where a curve was asked for."""

    @property
    def ended_at(self) -> datetime | None:
        """Time of the last row (UTC); None if the log has none."""
        return max(filter(None, (moment_in(self.metrics.get(key)) for key in _ROW_KEYS)), default=None)


def joined_run(runs: Sequence[TrackedRun]) -> TrackedRun:
    """Return one run of the logs of its restarts."""
    return reduce(_continued, runs)


def start_of(run: TrackedRun) -> float:
    """Return the Unix time at which a run of a tracker began; 0 if that is not known."""
    return run.started_at.timestamp() if run.id and run.started_at else 0.0


def with_restarts(runs: Sequence[TrackedRun]) -> TrackedRun:
    """Return the last of the restarts of a run, in their order, with the values of all and the first start."""
    return replace(
        runs[-1],
        started_at=runs[0].started_at,
        config={key: value for run in runs for key, value in run.config.items()},
        metrics={key: value for run in runs for key, value in run.metrics.items()},
        last_steps={key: step for run in runs for key, step in run.last_steps.items()},
        history=[row for run in runs for row in run.history],
        steps=sorted({step for run in runs for step in run.steps}),
        first={key: value for run in reversed(runs) for key, value in run.first.items()},
    )


def _continued(before: TrackedRun, after: TrackedRun) -> TrackedRun:
    """Return a run with its restart under another id; the earlier log counts up to the first step of the later one."""
    cut = after.steps[0] if after.steps else -math.inf
    kept = {key: step for key, step in before.last_steps.items() if step < cut}
    return replace(
        after,
        started_at=before.started_at,
        project=after.project if before.project else "",
        is_named=before.is_named and after.is_named,
        metrics={**{key: before.metrics[key] for key in kept}, **after.metrics},
        last_steps={**kept, **after.last_steps},
        history=[*(row for row in before.history if row[0] < cut), *after.history],
    )


def is_nan(value: object) -> bool:
    """Return True for NaN and infinity, also as text: what trackers write for the loss of a run that diverged."""
    return str(value).strip().lower() in ("nan", "inf", "-inf", "infinity", "-infinity")


Keep = Collection[str]
"""Keys (as `spelled`) whose history is read, too."""


def kept_values(values: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    """Return the values of the keys whose history is kept."""
    return {key: value for key, value in values.items() if spelled(key) in keep}


class LoggedValues:
    """The values of a run by the spelling of their keys; metrics go before settings."""

    def __init__(self, run: TrackedRun) -> None:
        self.run = run
        self.exact: dict[str, Any] = {**run.config, **run.metrics}
        self._spelled = {spelled(key): key for key in (*run.config, *run.metrics)}

    def key(self, keys: Sequence[str]) -> str | None:
        """Return the run's own spelling of the first key that has a number."""
        return next((own for key in keys if (own := self.spelling(key)) and self.number(own) is not None), None)

    def spelling(self, key: str) -> str | None:
        """Return the key as the run has it, or the key of its last value where a tracker keeps a summary of several."""
        for each in (key, f"{key}/last"):
            own = each if each in self.exact else self._spelled.get(spelled(each))
            if own is not None:
                return own
        return None

    def number(self, key: str | None) -> float | None:
        """Return the number under a key, also where it is text; None if there is none."""
        value = self.exact.get(key or "")
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else number_in(value)
        return number if number is not None and abs(number) < float("inf") else None


_ROW_KEYS = ("timestamp", "_timestamp")
"""Columns that tell when a row was logged."""
START_KEYS = ("started_at", "start_time", "created_at", *_ROW_KEYS)
"""Columns that tell when a row was logged, or its run began; a run began at the earliest one or before."""
_MILLISECONDS = 1e11  # of Unix times: as seconds this is in the year 5138


def moment_in(value: object) -> datetime | None:
    """Return a time in ISO's format (UTC where it names no zone) or in Unix seconds or milliseconds; None for anything else."""
    try:
        if (number := number_in(value)) is not None:
            return datetime.fromtimestamp(number / (1000 if number > _MILLISECONDS else 1), UTC)
        found = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
