"""Figure of tuned hyperparameters: losses of the swept runs with their parabolas, and the optima with their law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from marin_scaling.fitting.tuning import Optimum, TuningLaw, error_inflation
from marin_scaling.forecast.tuning import TunedTarget, TunedValue, Tuning
from marin_scaling.laws import Array
from marin_scaling.publish.charts import axis_title, log_axis, loss_axis, round_ticks
from marin_scaling.publish.figures import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, figure, tooltips
from marin_scaling.run.tuning_runs import HYPERPARAMETERS
from marin_scaling.units import format_count, format_number, unit_of

_PANEL = {"width": 290, "height": 220}
_LAW_PANEL = {"width": 640, "height": 300}
_CURVE_POINTS = 40
_MOST_SIZES = 8
"""Sizes that are drawn; of more, as many evenly chosen ones."""
_NINETY_PERCENT = 1.645
_ROOM, _LEAST_TICKS = 1.15, 3


def tuning_chart(tuning: Tuning, targets: Sequence[TunedTarget] = ()) -> Any:
    """Return the figure of a sweep: for each hyperparameter, a panel of runs per size, and a panel of the law.

    A panel of runs has the loss against the hyperparameter, a parabola for each number of tokens, and its minimum. Where other
    hyperparameters vary within a cell, their best values are drawn. The law's panel has the optima, the median of the law and
    the 90 % interval of a new cell's optimum. Triangles are optima beyond the swept values.
    """
    rows = [row for name in tuning.laws for row in _rows(tuning, name, targets)]
    return figure(
        alt.vconcat(*rows, spacing=24).resolve_scale(color="independent"),
        f"Optimal {' and '.join(tuning.laws)} of each cell, and the law through them with its 90 % interval",
    )


def _rows(tuning: Tuning, name: str, targets: Sequence[TunedTarget]) -> Iterator[Any]:
    drawn = _best_slices(tuning.optima[name])
    if tuning.runs.metric:
        sizes = sorted({each.size for each in drawn})
        chosen = [sizes[at] for at in np.linspace(0, len(sizes) - 1, min(len(sizes), _MOST_SIZES)).round().astype(int)]
        runs = _losses(tuning, name)
        tokens = [each.tokens for each in drawn]
        panels = [_panel_of_runs(tuning, name, [each for each in drawn if each.size == size], runs, tokens) for size in chosen]
        yield alt.concat(*panels, columns=2, spacing=20)
    yield _panel_of_law(tuning, name, drawn, targets)


def _best_slices(optima: Sequence[Optimum]) -> list[Optimum]:
    """Return the optimum of each cell, at the best values of the other hyperparameters."""
    best = dict[tuple[float, float], Optimum]()
    for each in sorted(optima, key=lambda each: (bool(each.border), each.loss)):
        best.setdefault((each.size, each.tokens), each)
    return sorted(best.values(), key=lambda each: (each.size, each.tokens))


def _losses(tuning: Tuning, name: str) -> pd.DataFrame:
    """Return the losses that the parabolas of a hyperparameter went through: those of runs, or minima over another one."""
    before = [each for each in HYPERPARAMETERS if each in tuning.optima]
    at = before.index(name)
    if not at:
        return tuning.runs.frame
    rows = [each for each in tuning.optima[before[at - 1]] if not each.border]
    return pd.DataFrame([{"size": each.size, "tokens": each.tokens, "loss": each.loss, **each.given} for each in rows])


def _panel_of_runs(
    tuning: Tuning, name: str, optima: Sequence[Optimum], runs: pd.DataFrame, tokens: Sequence[float]
) -> alt.LayerChart:
    """Return the losses of one size; `tokens` are those of all panels, which share their colors."""
    points = pd.concat([_runs_of(each, name, runs) for each in optima])
    curves = pd.DataFrame([row for each in optima for row in _parabola(each, points)], columns=["value", "loss", "tokens"])
    marks = pd.DataFrame(
        [{"value": each.value, "loss": each.loss, "tokens": each.tokens, "border": each.border} for each in optima]
    )
    x = _across(name, np.array([*points["value"], *marks["value"]]))
    metric = tuning.runs.column_mapping["loss"] if tuning.runs.metric == "loss" else tuning.runs.metric
    y, colour = loss_axis(axis_title(metric, unit=unit_of(metric))), _colour("tokens", tokens, is_ordinal=True)
    layers = [
        alt.Chart(curves).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, detail="tokens:Q"),
        alt.Chart(points)
        .mark_circle(size=30, opacity=0.9)
        .encode(x=x, y=y, color=colour, tooltip=tooltips("value", "loss", "tokens")),
        *_marked(marks, x, y, {"lowest": "triangle-left", "highest": "triangle-right"}, by_size={}),
    ]
    return alt.layer(*layers).properties(title=f"{tuning.runs.size} {_count(optima[0].size)}", **_PANEL)


def _runs_of(each: Optimum, name: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean loss at each value of the hyperparameter, as the parabola has it."""
    same = {"size": each.size, "tokens": each.tokens, **each.given}
    found = runs[np.logical_and.reduce([runs[key] == value for key, value in same.items()])]
    means = found.groupby(name)["loss"].mean()
    return pd.DataFrame({"value": means.index, "loss": means.to_numpy(), "tokens": each.tokens})


def _parabola(each: Optimum, points: pd.DataFrame) -> Iterator[tuple[float, float, float]]:
    """Yield the curve between the swept values, up to the highest loss of the panel; none for an optimum at the border."""
    if each.border:
        return
    for value in np.geomspace(*each.span, _CURVE_POINTS).tolist():
        loss = each.loss * (1 + each.excess(math.log(value)))
        if loss <= points["loss"].max():
            yield value, loss, each.tokens


Point = Mapping[str, float]
"""Values of all terms of a law at a cell or target."""


def _panel_of_law(tuning: Tuning, name: str, optima: Sequence[Optimum], targets: Sequence[TunedTarget]) -> alt.LayerChart:
    """Return the optima against tokens, a line for each size; against the size where no size has two numbers of tokens."""
    law, sizes = tuning.laws[name], [each.size for each in optima]
    along = "tokens" if len(set(sizes)) < len(sizes) else "size"
    wanted = [_point_of(tuning, each) for each in targets]
    curves = pd.concat([_band(tuning, law, path, along) for path in _paths(law, optima, wanted, along)])
    marks = pd.DataFrame([_mark(each, along) for each in optima])
    diamonds = pd.DataFrame([_diamond(each[name], point, along) for each, point in zip(targets, wanted, strict=True)])
    x = log_axis("x", "tokens" if along == "tokens" else tuning.runs.size, values=curves["x"].to_numpy(), room=_ROOM)
    ends = np.concatenate([curves[["low", "high"]].to_numpy().ravel(), marks["value"]])
    y, low = (_upright(column, name, ends) for column in ("value", "low"))
    colour = _colour("size", [*sizes, *(each["size"] for each in wanted)], title=tuning.runs.size, is_ordinal=True)
    by_size = {"color": colour} if along == "tokens" else {}
    layers = [
        alt.Chart(curves).mark_area(opacity=0.15).encode(x=x, y=low, y2="high:Q", detail="path:N", **by_size),
        alt.Chart(curves).mark_line(strokeWidth=1.6).encode(x=x, y=y, detail="path:N", **by_size),
        *_marked(marks, x, y, {"lowest": "triangle-down", "highest": "triangle-up"}, low=low, by_size=by_size),
    ]
    if targets:
        target = alt.Chart(diamonds)
        layers += [
            target.mark_rule(color=LAW_COLOUR, strokeWidth=2.5).encode(x=x, y=low, y2="high:Q"),
            target.mark_point(
                shape="diamond", size=90, filled=True, fill="white", stroke=LAW_COLOUR, strokeWidth=2, opacity=1
            ).encode(x=x, y=y, tooltip=tooltips("value", "low", "high", "size", "tokens")),
        ]
    own = "".join(f", at each cell's {_words(term)}" for term in law.terms if term not in ("size", "tokens"))
    return alt.layer(*layers).properties(
        title=f"Optimal {_words(name)}{own}; law with 90 % interval of a new cell", **_LAW_PANEL
    )


def _point_of(tuning: Tuning, target: TunedTarget) -> Point:
    named = {("size" if name == tuning.runs.size else name): value for name, value in target.point.items()}
    return named | {each.name: each.value for each in target.values}


def _paths(law: TuningLaw, optima: Sequence[Optimum], targets: Sequence[Point], along: str) -> Iterator[list[Point]]:
    """Yield the points that the law's lines go through: a line for each size and target, or one through all sizes."""
    cells = [{term: each.at(term) for term in law.terms} for each in optima]
    if along == "size":
        yield sorted([*cells, *targets], key=lambda each: each["size"])
        return
    for _, of_size in itertools.groupby(cells, key=lambda each: each["size"]):
        yield list(of_size)
    fewest = min(each["tokens"] for each in cells)
    yield from ([{**each, "tokens": min(fewest, each["tokens"])}, each] for each in targets)


def _band(tuning: Tuning, law: TuningLaw, path: Sequence[Point], along: str) -> pd.DataFrame:
    """Return the law's median along a path and the 90 % interval of a new cell; other terms are interpolated in logarithms."""
    places = np.log([each[along] for each in path])
    logs = {term: np.log([each[term] for each in path]) for term in law.terms}
    inflation = error_inflation(tuning.transfers[law.name])
    rows = []
    for place in np.linspace(places.min(), places.max(), _CURVE_POINTS):
        point = {term: math.exp(np.interp(place, places, values)) for term, values in logs.items()}
        cell = law.new_cell(point, np.random.default_rng([tuning.seed, 3]), inflation=inflation)
        low, high = np.exp(np.quantile(cell, (0.05, 0.95))).tolist()
        value = math.exp(float(np.median(law.at(point))))
        rows.append({"x": math.exp(place), "value": value, "low": low, "high": high})
    return pd.DataFrame(rows).assign(path=str(path), size=path[-1]["size"])


def _mark(each: Optimum, along: str) -> dict[str, Any]:
    off = 0.0 if each.border else _NINETY_PERCENT * each.log_sd
    return {
        "x": each.tokens if along == "tokens" else each.size,
        "value": each.value,
        "low": each.value * math.exp(-off),
        "high": each.value * math.exp(off),
        "size": each.size,
        "tokens": each.tokens,
        "border": each.border,
    }


def _diamond(each: TunedValue, point: Point, along: str) -> dict[str, float]:
    low, high = each.interval
    return {"x": point[along], "value": each.value, "low": low, "high": high, "size": point["size"], "tokens": point["tokens"]}


def _marked(
    marks: pd.DataFrame, x: Any, y: Any, borders: Mapping[str, str], *, low: Any | None = None, by_size: Mapping[str, Any]
) -> Iterator[alt.Chart]:
    """Yield the optima as circles, with their intervals if `low` is given, and those beyond the swept values as triangles."""
    seen = tooltips("value", *(column for column in ("loss", "size", "tokens") if column in marks))
    inside = alt.Chart(marks[marks["border"] == ""])
    if low is not None:
        yield inside.mark_rule(strokeWidth=1.2).encode(x=x, y=low, y2="high:Q", **by_size)
    yield inside.mark_point(shape="circle", size=60, strokeWidth=1.6, fill="white", opacity=1, color=POINT_COLOUR).encode(
        x=x, y=y, tooltip=seen, **by_size
    )
    for side, shape in borders.items():
        beyond = alt.Chart(marks[marks["border"] == side])
        if (marks["border"] == side).any():
            yield beyond.mark_point(shape=shape, size=80, color=OUTCOME_COLOUR, filled=True, opacity=1).encode(
                x=x, y=y, tooltip=seen
            )


_COUNTS = "datum.value >= 1e6 ? replace(format(datum.value, '.3~s'), 'G', 'B') : format(datum.value, '~r')"
_SHORT = "replace(format(datum.value, '~s'), 'G', 'B')"


def _colour(column: str, values: Collection[float], *, title: str = "", is_ordinal: bool = False) -> Any:
    if is_ordinal and len(set(values)) <= _MOST_SIZES:
        scale = alt.Scale(scheme="viridis", domain=sorted(set(values)))
        legend = alt.Legend(labelExpr=_COUNTS, symbolOpacity=1)
        return alt.Color(f"{column}:O", title=title or column, scale=scale, legend=legend)
    scale = alt.Scale(type="log", scheme="viridis", domain=[min(values), max(values)])
    legend = alt.Legend(type="gradient", labelExpr=_SHORT, values=round_ticks(min(values), max(values)), gradientLength=280)
    return alt.Color(f"{column}:Q", title=title or column, scale=scale, legend=legend)


def _across(name: str, values: Array) -> Any:
    scale, axis = _logarithmic(values)
    return alt.X("value:Q", title=_words(name), scale=scale, axis=axis)


def _upright(column: str, name: str, values: Array) -> Any:
    scale, axis = _logarithmic(values)
    return alt.Y(f"{column}:Q", title=f"optimal {_words(name)}", scale=scale, axis=axis)


def _logarithmic(values: Array) -> tuple[alt.Scale, alt.Axis]:
    """Return the scale of values with some room at both ends, and an axis with round ticks, three or more."""
    low, high = float(values.min()) / _ROOM, float(values.max()) * _ROOM
    ticks = round_ticks(low, high)
    if len(ticks) < _LEAST_TICKS:
        step = 10.0 ** math.floor(math.log10(low))
        ticks = [tick for tick in np.arange(1, 100) * step if low <= tick <= high]
    return alt.Scale(type="log", nice=False, domain=[low, high]), alt.Axis(
        values=[float(f"{each:.3g}") for each in ticks], format="~g"
    )


def _count(number: float) -> str:
    return format_count(number) if number >= 1e6 else format_number(number, 4)


def _words(name: str) -> str:
    return name.replace("_", " ")
