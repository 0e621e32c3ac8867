"""What more compute would buy by a ladder's law: a table of a few budgets, and a slider over many where scripts run.

Every number is a forecast of this project's engine, made when the page is; the program beside the page only shows them.
"""

from __future__ import annotations

import html
import json
from importlib import resources

from marin_scaling.errors import FitRefused
from marin_scaling.fit.fit_result import FitResult
from marin_scaling.forecast.forecast import Forecast, forecast_runs, optimal_target
from marin_scaling.publish.markdown import table
from marin_scaling.units import format_count, format_flops

PROGRAM_NAME = "law.js"

_STEPS_A_DECADE = 8
_REACHES = (3, 2, 1)
"""Decades beyond the largest budget: as far as the law says something."""


def law_program() -> bytes:
    """The program of the slider."""
    return resources.files("marin_scaling.publish").joinpath("templates", "law", PROGRAM_NAME).read_bytes()


def law_section(result: FitResult) -> str:
    """The section; empty where the law may not be used."""
    ahead = _ahead(result) if result.status.may_be_used else []
    if not ahead:
        return ""
    start = max(number for number, each in enumerate(ahead) if each.extrapolation <= 1 + 1e-9)
    rows = [_row(each) for each in ahead[start::_STEPS_A_DECADE]]
    header = ["budget (FLOPs)", "beyond the largest", "loss", "90 % interval", "parameters N*", "tokens D*"]
    words = (
        "Of compute-optimal runs of this recipe, by the law through all runs that are here now. The interval assumes that "
        "recipe and law still hold there."
    )
    slider = f'<div data-law="{html.escape(_document(ahead, result, start=start + _STEPS_A_DECADE))}"></div>'
    listed = table(header, rows, right=[0, 1, 2, 3, 4, 5])
    return f'## What more compute would buy\n\n{slider}\n\n{listed}\n\n{words}\n\n<script src="{PROGRAM_NAME}"></script>'


def _ahead(result: FitResult) -> list[Forecast]:
    """Forecasts from the smallest budget on, in equal steps of the logarithm that meet the largest."""
    largest, smallest = result.largest_flops, min(point.flops for point in result.points)
    for decades in _REACHES:
        steps = range(-_STEPS_A_DECADE * 9, _STEPS_A_DECADE * decades + 1)
        budgets = [flops for step in steps if (flops := largest * 10 ** (step / _STEPS_A_DECADE)) >= 0.999 * smallest]
        try:
            return forecast_runs(result, [optimal_target(result, flops) for flops in budgets])
        except FitRefused:
            continue
    return []


def _row(each: Forecast) -> list[str]:
    low, high = each.interval
    return [
        format_flops(each.flops),
        f"{each.extrapolation:.4g}x",
        f"{each.median:.4f}",
        f"{low:.4f} to {high:.4f}",
        format_count(each.active_params),
        format_count(each.tokens),
    ]


def _document(ahead: list[Forecast], result: FitResult, *, start: int) -> str:
    """The forecasts as the program reads them: flops, 5 %, 50 %, 95 %, parameters, tokens."""
    points = [
        [
            float(f"{value:.6g}")
            for value in (each.flops, each.interval[0], each.median, each.interval[1], each.active_params, each.tokens)
        ]
        for each in ahead
    ]
    return json.dumps({"largest": result.largest_flops, "start": min(start, len(points) - 1), "points": points})
