"""Forecasts of a benchmark's accuracy as other programs read them (JSON) and as people read them (text, 100 columns).

Every number in the document is finite; what was not given is null. Computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from marin_scaling import __version__
from marin_scaling.fit.fit_result import FitResult
from marin_scaling.fit.sigmoid import FORMULA, Sigmoid
from marin_scaling.forecast.downstream import BAND_NOTES, DownstreamForecast
from marin_scaling.forecast.forecast_document import forecast_document
from marin_scaling.forecast.plain_text import wrapped
from marin_scaling.units import format_flops

_KNOWN_TO = 0.04  # of a 90 % interval's width, at least where the draws are worth 250
_ROUGH = 100.0  # independent draws, below which the ends of an interval are known to a sixth of its width at best
ASSUMES = "The interval assumes that both the law and the curve of these runs still hold for the target."


def downstream_document(
    result: FitResult, curve: Sigmoid, forecasts: Sequence[DownstreamForecast], *, metric: str, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The document that `marin-scale downstream --json` prints: both steps, and the accuracies."""
    return {
        "metric": metric,
        "soft_metric": result.column_mapping.get("loss", result.metric),
        "law": forecast_document(result, [each.soft for each in forecasts]),
        "curve": _curve_document(curve),
        "predictions": [_prediction(each) for each in forecasts],
        "band_notes": dict(BAND_NOTES),
        "warnings": _warnings(curve, notes),
        "tool": f"marin-scaling {__version__}",
    }


def downstream_text(
    result: FitResult, curve: Sigmoid, forecasts: Sequence[DownstreamForecast], *, metric: str, notes: Sequence[str] = ()
) -> str:
    """The same for a reader: the runs of both steps, the curve, the accuracies, doubts."""
    soft = result.column_mapping.get("loss", result.metric)
    parts = [
        _steps_text(result, curve, soft=soft, metric=metric),
        *(_forecast_text(each, soft=soft, metric=metric) for each in forecasts),
        _doubts_text(result, curve, notes),
    ]
    return "\n\n".join(parts)


def _curve_document(curve: Sigmoid) -> dict[str, Any]:
    return {
        "formula": FORMULA,
        "parameters": {name: getattr(curve, name) for name in ("low", "high", "slope", "middle")},
        "parameter_intervals": {name: list(ends) for name, ends in curve.intervals().items()},
        "r_squared": curve.r_squared,
        "residual": curve.residual,
        "chance": curve.chance,
        "questions": curve.questions,
        "runs": curve.runs,
        "soft_range": list(curve.soft_range),
    }


def _prediction(each: DownstreamForecast) -> dict[str, Any]:
    return {
        "flops": each.flops,
        "median": each.median,
        "quantiles": {f"{level:g}": value for level, value in each.quantiles.items()},
        "bands": dict(each.bands),
        "extrapolation": each.extrapolation,
        "status": each.status.value,
    }


def _warnings(curve: Sigmoid, notes: Sequence[str]) -> list[str]:
    unsure = f"the draws of the curve are rough: they are worth {curve.worth:.0f} independent ones"
    return [*notes, *([unsure] if curve.worth < _ROUGH else [])]


def _steps_text(result: FitResult, curve: Sigmoid, *, soft: str, metric: str) -> str:
    ends = curve.intervals()
    numbers = [f"{name} {getattr(curve, name):.4g} {_pair(ends[name])}" for name in ("high", "slope", "middle")]
    low = f"low {curve.low:.4g}" + (", pinned at chance" if curve.chance is not None else f" {_pair(ends['low'])}")
    counted = f", {curve.questions} questions" if curve.questions else ""
    return "\n".join(
        [
            wrapped(f"step one: {soft} against compute, {len(result.frame)} runs of {result.source}, law {result.law_name}"),
            wrapped(f"{len(result.excluded)} runs left out; {result.status.value}", "  "),
            wrapped(
                f"step two: {metric} against {soft}, {curve.runs} runs{counted}; R^2 {curve.r_squared:.3f}, scatter "
                f"{curve.residual:.4f}"
            ),
            f"  {metric} = {FORMULA.replace('soft', soft)}",
            wrapped(f"{low}, {', '.join(numbers)}: least squares, and 90 % intervals", "  "),
        ]
    )


def _pair(ends: tuple[float, float]) -> str:
    """With the digits that the draws bear: an end is known to about 4 % of the width, and differs by as much between seeds."""
    digits = max(0, math.floor(-math.log10(max(_KNOWN_TO * (ends[1] - ends[0]), 1e-6))))
    return f"[{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def _forecast_text(each: DownstreamForecast, *, soft: str, metric: str) -> str:
    (low, high), (soft_low, soft_high) = each.interval, each.soft.interval
    bands = ", ".join(f"{cause} ±{half:.3f}" for cause, half in each.bands.items())
    return "\n".join(
        [
            f"forecast at {format_flops(each.flops)} FLOPs ({each.extrapolation:.3g}x the largest run):",
            f"  {soft} {each.soft.median:.3f}, 90 % interval [{soft_low:.3f}, {soft_high:.3f}]",
            f"  {metric} {each.median:.3f}, 90 % interval [{low:.3f}, {high:.3f}]",
            f"  half-widths: {bands}",
            wrapped(f"status: {each.status.value}", "  "),
        ]
    )


def _doubts_text(result: FitResult, curve: Sigmoid, notes: Sequence[str]) -> str:
    doubts = [*result.warnings, *_warnings(curve, notes)]
    return "\n".join([*(wrapped(f"warning: {each}", "  ") for each in doubts), wrapped(ASSUMES)])
