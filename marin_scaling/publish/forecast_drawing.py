"""Draw what a preregistration says: the runs that were signed, the forecast with its intervals, and what was observed.

A still picture (SVG) from the signed files alone: it shows what was promised also where the runs are not here, and takes a
millisecond. The law, its band and figures to move about in are on the page of the ladder; nothing is fitted here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from xml.sax.saxutils import escape

from marin_scaling.forecast.forecast import Forecast
from marin_scaling.publish.charts import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, round_ticks
from marin_scaling.run.run_table import BUDGET_SPAN
from marin_scaling.units import format_flops

_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 130, 34, 48
_TICKS = 5
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


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Where a point lies in the picture."""

    flops: tuple[float, float]
    losses: tuple[float, float]

    def x(self, flops: float) -> float:
        low, high = map(math.log, self.flops)
        return _LEFT + (math.log(flops) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, loss: float) -> float:
        low, high = self.losses
        return _TOP + (high - loss) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


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
    frame = _frame(promised)
    parts = [*_axes(frame, promised), *_runs(frame, promised), *_forecast(frame, promised), *_observed(frame, promised)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="system-ui, -apple-system, \'Segoe UI\', \'DejaVu Sans\', sans-serif" font-size="11" role="img">'
    )
    ground = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""]).encode()


def _frame(promised: Promised) -> _Frame:
    flops, losses = [*(run["flops"] for run in promised.runs), promised.forecast.flops], promised.losses
    room = 0.05 * ((max(losses) - min(losses)) or 1.0)
    return _Frame(flops=(min(flops) / 1.5, max(flops) * 1.5), losses=(min(losses) - room, max(losses) + room))


def _axes(frame: _Frame, promised: Promised) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for flops in round_ticks(*frame.flops):
        yield _line(frame.x(flops), _TOP, frame.x(flops), bottom, colour="#e6e6e6")
        yield _text(frame.x(flops), bottom + 16, format_flops(flops), anchor="middle")
    for loss in _loss_ticks(*frame.losses):
        yield _line(_LEFT, frame.y(loss), right, frame.y(loss), colour="#e6e6e6")
        yield _text(_LEFT - 6, frame.y(loss) + 4, f"{loss:.4g}", anchor="end")
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}" fill="none" stroke="#cccccc"/>'
    yield _text((_LEFT + right) / 2, _HEIGHT - 10, "training compute (FLOPs)", anchor="middle")
    yield _text(_LEFT, _TOP - 12, f"{promised.axis}: the runs that were fitted, and what was forecast", weight=600)


def _loss_ticks(low: float, high: float) -> list[float]:
    """About `_TICKS` round numbers between two."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _runs(frame: _Frame, promised: Promised) -> Iterator[str]:
    for run in promised.runs:
        yield _circle(frame.x(run["flops"]), frame.y(run["loss"]), 2.6, fill="#999999", stroke="none")
    for run in promised.best:
        yield _circle(frame.x(run["flops"]), frame.y(run["loss"]), 4.6, fill="none", stroke=POINT_COLOUR)


def _forecast(frame: _Frame, promised: Promised) -> Iterator[str]:
    x, ahead = frame.x(promised.forecast.flops), promised.forecast
    for low, high, width in _BARS:
        yield _line(x, frame.y(ahead.quantiles[low]), x, frame.y(ahead.quantiles[high]), colour=LAW_COLOUR, width=width)
    y = frame.y(ahead.median)
    yield f'<path d="M{x:.1f},{y - 5:.1f}l5,5l-5,5l-5,-5z" fill="white" stroke="{LAW_COLOUR}" stroke-width="2"/>'
    above = promised.observed is None or ahead.median >= promised.observed
    yield _text(x + 14, y + (-4 if above else 12), f"forecast {ahead.median:.4f}", colour=LAW_COLOUR)


def _observed(frame: _Frame, promised: Promised) -> Iterator[str]:
    if promised.observed is None:
        return
    x, y = frame.x(promised.forecast.flops), frame.y(promised.observed)
    cross = f"M{x - 5:.1f},{y - 5:.1f}l10,10M{x + 5:.1f},{y - 5:.1f}l-10,10"
    yield f'<path d="{cross}" stroke="{OUTCOME_COLOUR}" stroke-width="2.5"/>'
    above = promised.observed > promised.forecast.median
    yield _text(x + 14, y + (-4 if above else 12), f"observed {promised.observed:.4f}", colour=OUTCOME_COLOUR)


def _line(x1: float, y1: float, x2: float, y2: float, *, colour: str, width: float = 1.0) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _circle(x: float, y: float, radius: float, *, fill: str, stroke: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.6"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#222222", weight: int = 400) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-weight="{weight}">{escape(words)}</text>'
