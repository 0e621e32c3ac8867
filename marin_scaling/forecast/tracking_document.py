"""A run under way beside its forecast: where it will end, on forecast or off it, and what looks wrong; as text and document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.forecast.forecast_document import unit_of
from marin_scaling.forecast.tracking import FinishedCurve, Tracking, curve_of, track
from marin_scaling.run.curve_faults import curve_faults
from marin_scaling.run.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class EarlierForecast:
    """What was forecast of the run, quantile level to metric, and by what."""

    quantiles: Mapping[float, float]
    by: str


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """A run under way: which, how far, where it will end or why that is not said, what was forecast, and what looks wrong."""

    run: str
    steps_done: int
    train_steps: int
    train_loss_nats_per_token: float | None
    metric: str
    tracking: Tracking | None
    why_not: str
    forecast: EarlierForecast | None
    faults: Sequence[str]

    @property
    def verdict(self) -> str:
        """On forecast, or off it; empty where one of the two is missing."""
        if self.tracking is None or self.forecast is None:
            return ""
        return verdict(self.tracking.quantiles, self.forecast.quantiles)


def track_losses(
    losses: Sequence[float | None], spec: RunSpec, curves: Sequence[FinishedCurve], *, forecast: EarlierForecast | None
) -> Tracked:
    """All that is to be said of the run of `spec` after these training losses (None: no number)."""
    finite = [loss for loss in losses if loss is not None]
    tracking, why_not = None, "its loss is no number any more."
    if len(finite) == len(losses):
        tracking, why_not = _tracking(finite, spec, curves)
    decay_steps = round(spec.optimizer.decay_fraction * spec.train_steps)
    return Tracked(
        run=spec.directory_name,
        steps_done=len(losses),
        train_steps=spec.train_steps,
        train_loss_nats_per_token=float(np.mean(finite[-max(1, len(finite) // 20) :])) if finite else None,
        metric=spec.evaluation.metric,
        tracking=tracking,
        why_not=why_not,
        forecast=forecast,
        faults=curve_faults(losses, train_steps=spec.train_steps, decay_steps=decay_steps),
    )


def _tracking(losses: Sequence[float], spec: RunSpec, curves: Sequence[FinishedCurve]) -> tuple[Tracking | None, str]:
    try:
        return track(curve_of(losses, spec), curves), ""
    except FitRefused as refusal:
        return None, refusal.what


def verdict(expected: Mapping[float, float], forecast: Mapping[float, float]) -> str:
    """Where the run will end beside its forecast, by the two 90 % intervals and the run's median.

    >>> verdict({0.05: 2.0, 0.5: 2.1, 0.95: 2.2}, {0.05: 2.05, 0.95: 2.3})
    'on forecast'
    >>> verdict({0.05: 2.2, 0.5: 2.4, 0.95: 2.5}, {0.05: 2.05, 0.95: 2.3})
    'may end above its forecast'
    >>> verdict({0.05: 1.8, 0.5: 1.9, 0.95: 2.0}, {0.05: 2.05, 0.95: 2.3})
    'off forecast: below'
    """
    if forecast[0.05] <= expected[0.5] <= forecast[0.95]:
        return "on forecast"
    side = "above" if expected[0.5] > forecast[0.95] else "below"
    apart = expected[0.05] > forecast[0.95] or expected[0.95] < forecast[0.05]
    return f"off forecast: {side}" if apart else f"may end {side} its forecast"


def tracked_text(found: Tracked) -> str:
    """A few lines for a reader."""
    now = (
        "" if found.train_loss_nats_per_token is None else f", training loss {found.train_loss_nats_per_token:.4f} nats a token"
    )
    lines = [f"{found.run}: step {found.steps_done} of {found.train_steps} ({found.steps_done / found.train_steps:.0%}){now}"]
    if found.tracking is None:
        lines.append(f"where it will end is not said: {found.why_not}")
    else:
        said = _quantiles(found.tracking.quantiles, found.metric)
        lines.append(f"it will end at {said}, as the curves of {found.tracking.curves} finished runs went")
    if found.forecast is not None:
        lines.append(f"forecast {_quantiles(found.forecast.quantiles, found.metric)} ({found.forecast.by})")
    lines += [found.verdict] if found.verdict else []
    lines += [f"warning: {fault}" for fault in found.faults]
    return "\n".join(lines)


def tracked_document(found: Tracked) -> dict[str, Any]:
    """The same as a document."""
    return {
        "run": found.run,
        "steps_done": found.steps_done,
        "train_steps": found.train_steps,
        "train_loss_nats_per_token": found.train_loss_nats_per_token,
        "metric": found.metric,
        "expected": None if found.tracking is None else _levels(found.tracking.quantiles),
        "curves": None if found.tracking is None else found.tracking.curves,
        "why_not": found.why_not or None,
        "forecast": None if found.forecast is None else _levels(found.forecast.quantiles),
        "forecast_by": None if found.forecast is None else found.forecast.by,
        "verdict": found.verdict or None,
        "faults": list(found.faults),
    }


def _quantiles(quantiles: Mapping[float, float], metric: str) -> str:
    return f"{quantiles[0.5]:.4f} {unit_of(metric)}, 90 % interval {quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}"


def _levels(quantiles: Mapping[float, float]) -> dict[str, float]:
    return {f"{level:g}": value for level, value in quantiles.items()}
