"""A run as it stands, as people read of it and as programs do. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_scaling.forecast.forecast_document import unit_of
from marin_scaling.forecast.tracking import Tracked


def tracked_text(found: Tracked) -> str:
    """A few lines for a reader."""
    now = (
        "" if found.train_loss_nats_per_token is None else f", training loss {found.train_loss_nats_per_token:.4f} nats a token"
    )
    lines = [f"{found.run}: step {found.steps_done} of {found.train_steps} ({found.steps_done / found.train_steps:.0%}){now}"]
    if found.ended_at is not None:
        lines.append(f"it ended at {found.ended_at:.4f} {unit_of(found.metric)}")
    elif found.tracking is None:
        lines.append(f"where it will end is not said: {found.why_not}")
    else:
        end = _quantiles(found.tracking.quantiles, found.metric)
        went = f"as the curves of {found.tracking.curves} finished runs went"
        lines.append(
            f"it would end at {end}, if it went {went}" if found.tracking.is_unlike else f"it will end at {end}, {went}"
        )
    said = found.forecast.quantiles
    lines.append(
        f"no forecast to compare with: {found.forecast.by}"
        if said is None
        else f"forecast {_quantiles(said, found.metric)} ({found.forecast.by})"
    )
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
        "usual_train_loss_nats_per_token": None if found.tracking is None else list(found.tracking.usual_train_loss),
        "metric": found.metric,
        "ended_at": found.ended_at,
        "expected": None if found.tracking is None else _levels(found.tracking.quantiles),
        "curves": None if found.tracking is None else found.tracking.curves,
        "why_not": found.why_not or None,
        "forecast": None if found.forecast.quantiles is None else _levels(found.forecast.quantiles),
        "forecast_by": found.forecast.by,
        "verdict": found.verdict or None,
        "faults": list(found.faults),
    }


def _quantiles(quantiles: Mapping[float, float], metric: str) -> str:
    return f"{quantiles[0.5]:.4f} {unit_of(metric)}, 90 % interval {quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}"


def _levels(quantiles: Mapping[float, float]) -> dict[str, float]:
    return {f"{level:g}": value for level, value in quantiles.items()}
