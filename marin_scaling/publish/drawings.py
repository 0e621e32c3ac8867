"""Curves of submissions, and static SVG drawings of forecasts, curves and steps."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.sax.saxutils import escape

from marin_scaling.canonical_json import load_strict
from marin_scaling.errors import MarinScalingError
from marin_scaling.experiment.experiment import Step
from marin_scaling.files import read_bytes
from marin_scaling.forecast.forecast import Forecast
from marin_scaling.publish.charts import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, round_ticks
from marin_scaling.run.store import read_run, run_folders
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.speedrun.submission import SeedResult, Submission
from marin_scaling.units import format_flops

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
GRID_COLOUR, FRAME_COLOUR = "#e6e6e6", "#cccccc"


def picture(parts: Iterable[str], *, width: int, height: int) -> bytes:
    """The whole, on white: it is shown in an <img>, where the page's colours do not reach.

    >>> picture([], width=10, height=5).count(b"<rect")
    1
    """
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" font-size="11" role="img">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""]).encode()


def line(x1: float, y1: float, x2: float, y2: float, *, colour: str, width: float = 1.0) -> str:
    """A straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def circle(x: float, y: float, radius: float, *, fill: str, stroke: str) -> str:
    """A circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.6"/>'


def words(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#222222", weight: int = 400) -> str:
    """A line of text.

    >>> words(1, 2, "a < b")
    '<text x="1.0" y="2.0" text-anchor="start" fill="#222222" font-weight="400">a &lt; b</text>'
    """
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-weight="{weight}">{plain(text)}</text>'


def plain(text: str) -> str:
    """Text for an SVG: nothing in it is markup, and no sign that XML does not know."""
    return escape(_NO_XML.sub("\ufffd", text))


def round_steps(low: float, high: float, *, about: int = 5) -> list[float]:
    """About so many round numbers between two.

    >>> round_steps(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


_ROOM = 0.05  # of the losses' range, above and below


@dataclass(frozen=True, kw_only=True)
class PlotArea:
    """Costs or steps from left to right, on a logarithmic scale where `is_log`, and losses from below."""

    width: int
    height: int
    across: tuple[float, float]
    losses: tuple[float, float]
    is_log: bool = False
    left: int = 64
    right: int = 130
    top: int = 34
    bottom: int = 48

    def x(self, value: float) -> float:
        """From the left edge of the picture."""
        low, high = map(self._scaled, self.across)
        return self.left + (self._scaled(value) - low) / (high - low) * (self.width - self.left - self.right)

    def y(self, loss: float) -> float:
        """From its upper edge."""
        low, high = self.losses
        return self.top + (high - loss) / (high - low) * (self.height - self.top - self.bottom)

    def axes(self, ticks: Iterable[float], *, label: Callable[[float], str], below: str, above: str) -> Iterator[str]:
        """Grid and frame, with a `label` at each of the `ticks` below, and what is drawn said `below` and `above` it."""
        bottom, right = self.height - self.bottom, self.width - self.right
        for tick in ticks:
            yield line(self.x(tick), self.top, self.x(tick), bottom, colour=GRID_COLOUR)
            yield words(self.x(tick), bottom + 16, label(tick), anchor="middle")
        for loss in round_steps(*self.losses):
            yield line(self.left, self.y(loss), right, self.y(loss), colour=GRID_COLOUR)
            yield words(self.left - 6, self.y(loss) + 4, f"{loss:.4g}", anchor="end")
        size = f'x="{self.left}" y="{self.top}" width="{right - self.left}" height="{bottom - self.top}"'
        yield f'<rect {size} fill="none" stroke="{FRAME_COLOUR}"/>'
        yield words((self.left + right) / 2, self.height - 10, below, anchor="middle")
        yield words(self.left, self.top - 12, above, weight=600)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.is_log else value


def with_room(losses: Sequence[float]) -> tuple[float, float]:
    """From somewhat below the lowest to somewhat above the highest.

    >>> with_room([2.0, 3.0])
    (1.95, 3.05)
    """
    room = _ROOM * ((max(losses) - min(losses)) or 1.0)
    return min(losses) - room, max(losses) + room


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
        seen = [run["loss"] for run in self.runs] + [*self.forecast.interval()]
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
    area = _forecast_area(promised)
    said = f"{promised.axis}: the runs that were fitted, and what was forecast"
    axes = area.axes(round_ticks(*area.across), label=format_flops, below="training compute (FLOPs)", above=said)
    parts = [*axes, *_runs(area, promised), *_forecast(area, promised), *_observed(area, promised)]
    return picture(parts, width=area.width, height=area.height)


def _forecast_area(promised: Promised) -> PlotArea:
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


MOST = 60
_WIDE, _HIGH, _ACROSS, _DOWN, _EDGE = 190, 46, 44, 14, 8
_LETTERS = 24
_STEP_COLORS = {"failed": "#d55e00", "running": "#e69f00", "waiting": "#999999", "reused": "#009e73"}


def steps_drawing(steps: Sequence[Step]) -> bytes:
    """The picture as SVG; empty where there are too few or too many steps for one.

    >>> drawn = steps_drawing([Step(name="text"), Step(name="train", inputs=("text",))])
    >>> drawn.count(b"<rect"), drawn.count(b"<path")
    (3, 1)
    """
    if not 2 <= len(steps) <= MOST:
        return b""
    columns = _columns(steps)
    places = {step.name: (depth, row) for depth, column in enumerate(columns) for row, step in enumerate(column)}
    width = 2 * _EDGE + len(columns) * _WIDE + (len(columns) - 1) * _ACROSS
    height = 2 * _EDGE + max(map(len, columns)) * (_HIGH + _DOWN) - _DOWN
    parts = [*_arrows(steps, places), *(part for step in steps for part in _box(step, places[step.name]))]
    return picture(parts, width=width, height=height)


def _columns(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps by how many must come before them, in a row."""
    inputs, depths = {step.name: step.inputs for step in steps}, dict[str, int]()
    for name in TopologicalSorter(inputs).static_order():
        depths[name] = max((depths[each] + 1 for each in inputs[name]), default=0)
    found: list[list[Step]] = [[] for _ in range(max(depths.values()) + 1)]
    for step in steps:
        found[depths[step.name]].append(step)
    return found


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    depth, row = place
    return _EDGE + depth * (_WIDE + _ACROSS), _EDGE + row * (_HIGH + _DOWN)


def _arrows(steps: Sequence[Step], places: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for step in steps:
        x, y = _corner(places[step.name])
        for name in dict.fromkeys(step.inputs):
            from_x, from_y = _corner(places[name])
            start, middle = (from_x + _WIDE, from_y + _HIGH // 2), _ACROSS // 2
            curve = f"C{start[0] + middle},{start[1]} {x - middle},{y + _HIGH // 2} {x},{y + _HIGH // 2}"
            yield f'<path d="M{start[0]},{start[1]}{curve}" fill="none" stroke="#999999"/>'


def _box(step: Step, place: tuple[int, int]) -> Iterator[str]:
    x, y = _corner(place)
    colour = _STEP_COLORS.get(step.status or "", "#0072b2")
    yield f"<g><title>{plain(f'{step.name}: {step.what}' if step.what else step.name)}</title>"
    yield f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="4" fill="white" stroke="{colour}" stroke-width="1.5"/>'
    yield f'<text x="{x + 8}" y="{y + 19}" fill="#222222" font-weight="600">{plain(_short(step.name))}</text>'
    yield f'<text x="{x + 8}" y="{y + 36}" fill="#444444">{plain(_short(_under(step)))}</text></g>'


def _under(step: Step) -> str:
    said = [step.status or "", duration(step.seconds)]
    return ", ".join(each for each in said if each) or (step.what or "")


def _short(words: str) -> str:
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"


def duration(seconds: float | None) -> str:
    """Seconds for a reader; empty where they are not known.

    >>> duration(93.4), duration(7200.0), duration(None)
    ('93 s', '2.0 h', '')
    """
    if seconds is None:
        return ""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_MOST_POINTS = 200
_HELD_OUT, _TRAINING = "bits per byte of the held-out text", "training loss, nats a token"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One seed's: losses by step, thinned to at most 200 means."""

    label: str
    axis: str
    points: Sequence[tuple[float, float]]


def recorded_curves(runs_dir: Path) -> dict[str, Path]:
    """The folders of the runs that are recorded here, by the digest of their curve."""
    return dict(_digests(runs_dir))


def _digests(runs_dir: Path) -> Iterator[tuple[str, Path]]:
    for path in (folder / "record.json" for ladder in sorted(runs_dir.glob("*/")) for folder in run_folders(ladder)):
        try:
            record = load_strict(read_bytes(path), name=str(path))
        except MarinScalingError:
            continue  # the page of its ladder says so
        if isinstance(record, dict) and isinstance(record.get("history_sha256"), str):
            yield record["history_sha256"], path.parent


def curves_of(submission: Submission, recorded: Mapping[str, Path]) -> list[Curve]:
    """The curves of its seeds, all on one axis: held-out losses where it states them, else recorded training losses."""
    stated = [
        _curve(seed, _HELD_OUT, [(at.step, at.bits_per_byte) for at in seed.curve]) for seed in submission.seeds if seed.curve
    ]
    return stated or [curve for seed in submission.seeds if (curve := _recorded(seed, recorded))]


def _recorded(seed: SeedResult, recorded: Mapping[str, Path]) -> Curve | None:
    folder = recorded.get(seed.log_sha256 or "")
    if folder is None:
        return None
    try:
        rows = read_run(folder).history().rows
    except MarinScalingError:
        return None  # the page of its ladder says what is wrong with it
    known = [(row.step, row.train_loss_nats_per_token) for row in rows if row.train_loss_nats_per_token is not None]
    return _curve(seed, _TRAINING, known)


def _curve(seed: SeedResult, axis: str, points: Sequence[tuple[float, float]]) -> Curve:
    label = "a seed" if seed.seed is None else f"seed {seed.seed}"
    return Curve(label=label, axis=axis, points=thinned(points))


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most 200 means over neighbours.

    >>> thinned([(0, 3.0), (1, 2.0)])
    [(0, 3.0), (1, 2.0)]
    """
    if len(points) <= _MOST_POINTS:
        return list(points)
    edges = [round(number * len(points) / _MOST_POINTS) for number in range(_MOST_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(edges)]
    return [(fmean(step for step, _ in group), fmean(loss for _, loss in group)) for group in groups]


_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def curve_drawing(curves: Sequence[Curve]) -> bytes:
    """The picture of the first six; empty where none has two points.

    >>> drawn = curve_drawing([Curve(label="seed 0", axis="loss", points=[(0, 3.0), (10, 2.0)])])
    >>> drawn.count(b"<polyline"), b"seed 0" in drawn
    (1, True)
    """
    drawn = [curve for curve in curves if len(curve.points) > 1][: len(_COLOURS)]
    if not drawn:
        return b""
    area = _area([point for curve in drawn for point in curve.points])
    axes = area.axes(round_steps(*area.across), label="{:,.0f}".format, below="step", above=drawn[0].axis)
    return picture([*axes, *_lines(area, drawn)], width=area.width, height=area.height)


def _area(points: Sequence[tuple[float, float]]) -> PlotArea:
    steps, losses = [step for step, _ in points], [loss for _, loss in points]
    across = (min(steps), max(max(steps), min(steps) + 1))
    return PlotArea(width=640, height=300, across=across, losses=with_room(losses), right=90)


def _lines(area: PlotArea, curves: Sequence[Curve]) -> Iterator[str]:
    for number, (curve, colour) in enumerate(zip(curves, _COLOURS, strict=False)):
        points = " ".join(f"{area.x(step):.1f},{area.y(loss):.1f}" for step, loss in curve.points)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        yield words(area.width - area.right + 8, area.top + 12 + 16 * number, curve.label, colour=colour)
