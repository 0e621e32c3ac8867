"""The section of a forecast's page about later forecasts of the same run: when, after how much of it, and how they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marin_scaling.publish.markdown import escape, table

_WORDS = (
    "Later forecasts of the same run, by the same registrant. The first one is the promise: it has the verdict, and alone it "
    "counts in any record."
)


def amendments_section(scored: Sequence[Mapping[str, Any]]) -> str:
    """A row for each; empty where there is none."""
    if not scored:
        return ""
    header = ["amendment", "made", "after steps", "forecast", "90 % interval", "error", "CRPS"]
    return f"## Forecast again\n\n{_WORDS}\n\n{table(header, map(_row, scored), right=[2, 3, 4, 5, 6])}"


def _row(scored: Mapping[str, Any]) -> list[str]:
    scores, (low, high) = scored["scores"], scored["interval_90"]
    error = f"{scores['signed_error']:+.4f}" if scores else escape(scored["why_not_scored"])
    return [
        escape(scored["name"]),
        escape(scored["created_at"]),
        str(scored["steps_seen"]),
        f"{scored['point']:.4f}",
        f"{low:.4f} to {high:.4f}",
        error,
        f"{scores['crps']:.4f}" if scores else "",
    ]
