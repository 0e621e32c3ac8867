"""Draw what a preregistration says: the runs that were signed, the forecast with its intervals, and what was observed.

A still picture (SVG) from the signed files alone: it shows what was promised also where the runs are not here, and takes a
millisecond. The law, its band and figures to move about in are on the page of the ladder; nothing is fitted here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from marin_scaling.forecast.forecast import Forecast
from marin_scaling.publish.charts import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, round_ticks
from marin_scaling.publish.plot_area import PlotArea, with_room
from marin_scaling.publish.svg import circle, line, picture, words
from marin_scaling.run.run_table import BUDGET_SPAN
from marin_scaling.units import format_flops

_BARS = ((0.05, 0.95, 2.5), (0.25, 0.75, 6.0))
"""Intervals that are drawn: from, to, width of the bar."""


@dataclass(frozen=True, kw_only=True)
class Promised:
    """What is drawn: runs (`flops`, `loss`), the forecast, and the observed value if any."""

    runs: Sequence[Mapping[str, Any]]
    forecast: Forecast
    observed: float | None
    axis: str
    """The metric with its unit."""

    @property
    def losses(self) -> list[float]:
        """Every value that has to be seen."""
        seen = [run["loss"] for run in self.runs] + [*self.forecast.interval]
        return seen if self.observed is None else [*seen, self.observed]

    @property
    def best(self) -> list[Mapping[str, Any]]:
        """The runs that no run beats at as little compute, or nearly: of a ladder the best of each budget."""
        ordered = sorted(self.runs, key=lambda run: float(run["flops"]))
        flops, least = [run["flops"] for run in ordered], list(accumulate((run["loss"] for run in ordered), min))
        return [run for run in ordered if run["loss"] == least[bisect_right(flops, BUDGET_SPAN * run["flops"]) - 1]]


def promise_drawing(promised: Promised) -> bytes:
    """The picture as SVG.

    >>> runs = [{"flops": 1e9, "loss": 3.0}, {"flops": 1e10, "loss": 2.5}]
    >>> levels = {0.05: 2.0, 0.25: 2.1, 0.5: 2.2, 0.75: 2.3, 0.95: 2.4}
    >>> ahead = Forecast(flops=1e11, params=1e6, active_params=1e6, tokens=1e8, quantiles=levels, median=2.2, bands={},
    ...     band_notes={}, extrapolation=10.0, optimal=True, params_interval=None, mis_sizing=None)
    >>> drawn = promise_drawing(Promised(runs=runs, forecast=ahead, observed=None, axis="bits per byte"))
    >>> drawn.count(b"<circle"), b"forecast 2.2000" in drawn, b"observed" in drawn
    (4, True, False)
    """
    area = _area(promised)
    said = f"{promised.axis}: the runs that were fitted, and what was forecast"
    axes = area.axes(round_ticks(*area.across), label=format_flops, below="training compute (FLOPs)", above=said)
    parts = [*axes, *_runs(area, promised), *_forecast(area, promised), *_observed(area, promised)]
    return picture(parts, width=area.width, height=area.height)


def _area(promised: Promised) -> PlotArea:
    flops = [*(run["flops"] for run in promised.runs), promised.forecast.flops]
    across = (min(flops) / 1.5, max(flops) * 1.5)
    return PlotArea(width=640, height=380, across=across, losses=with_room(promised.losses), is_log=True)


def _runs(area: PlotArea, promised: Promised) -> Iterator[str]:
    for run in promised.runs:
        yield circle(area.x(run["flops"]), area.y(run["loss"]), 2.6, fill="#999999", stroke="none")
    for run in promised.best:
        yield circle(area.x(run["flops"]), area.y(run["loss"]), 4.6, fill="none", stroke=POINT_COLOUR)


def _forecast(area: PlotArea, promised: Promised) -> Iterator[str]:
    x, ahead = area.x(promised.forecast.flops), promised.forecast
    for low, high, width in _BARS:
        yield line(x, area.y(ahead.quantiles[low]), x, area.y(ahead.quantiles[high]), colour=LAW_COLOUR, width=width)
    y = area.y(ahead.median)
    yield f'<path d="M{x:.1f},{y - 5:.1f}l5,5l-5,5l-5,-5z" fill="white" stroke="{LAW_COLOUR}" stroke-width="2"/>'
    above = promised.observed is None or ahead.median >= promised.observed
    yield words(x + 14, y + (-4 if above else 12), f"forecast {ahead.median:.4f}", colour=LAW_COLOUR)


def _observed(area: PlotArea, promised: Promised) -> Iterator[str]:
    if promised.observed is None:
        return
    x, y = area.x(promised.forecast.flops), area.y(promised.observed)
    cross = f"M{x - 5:.1f},{y - 5:.1f}l10,10M{x + 5:.1f},{y - 5:.1f}l-10,10"
    yield f'<path d="{cross}" stroke="{OUTCOME_COLOUR}" stroke-width="2.5"/>'
    above = promised.observed > promised.forecast.median
    yield words(x + 14, y + (-4 if above else 12), f"observed {promised.observed:.4f}", colour=OUTCOME_COLOUR)
