"""Vega-Lite charts of runs, laws and forecasts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from marin_scaling.experiment.experiment import Step
from marin_scaling.fitting.fit import FitResult
from marin_scaling.fitting.optima import has_bowl, size_column
from marin_scaling.forecast.forecast import Forecast, forecast_runs, interval_along, targets_of
from marin_scaling.laws import Array
from marin_scaling.printable import RUNS_DRAWN
from marin_scaling.publish.figures import LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR, figure, tooltips
from marin_scaling.run.store import HistoryRow
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.units import format_duration, format_flops, unit_of

PANEL = {"width": 400, "height": 330}
WIDE, NARROW = {"width": 660, "height": 380}, {"width": 250, "height": 300}
"""Sizes of panels in pixels: beside another, alone on a page, and alone on a telephone."""
_CURVE_POINTS = 60
_LABEL_ROOM, NARROW_ROOM = 0.32, 0.55
"""Shares of a panel's width for the numbers right of the last point."""
CROSS = "M-1,-1L1,1M1,-1L-1,1"
_LABELLED_BUDGETS = 12  # with more budgets the legend is a color scale


@dataclass(frozen=True, kw_only=True)
class MeasuredOutcome:
    """Measured loss to plot beside the forecast; `label` is shown on hover."""

    flops: float
    loss: float
    label: str = "outcome"


def outcomes_of(forecasts: Iterable[Forecast]) -> list[MeasuredOutcome]:
    """Return the measured losses of forecasts that have one."""
    measured = [each for each in forecasts if each.observed is not None]
    return [MeasuredOutcome(flops=each.flops, loss=each.observed or 0.0, label=each.run or "observed") for each in measured]


def law_charts(
    result: FitResult,
    forecasts: Sequence[Forecast],
    *,
    outcomes: Iterable[MeasuredOutcome] = (),
    most_runs: int | None = None,
) -> dict[str, Any]:
    """Return the charts "runs" (loss against tokens by budget, with bowls), "law" (loss against FLOPs, with the law and its
    forecasts), and "whole", which has both panels.

    `most_runs` limits the number of drawn runs, evenly by cost.
    """
    drawn = drawn_runs(result.frame, most_runs)
    runs, law = _runs_panel(result, drawn), law_panel(result, drawn, forecasts, list(outcomes))
    whole = alt.hconcat(runs, law, spacing=28).resolve_scale(color="independent")
    return {
        "runs": figure(runs, "Loss of each run by its trained tokens"),
        "law": figure(law, "Loss by training compute: the law with its 90 % interval, and forecasts"),
        "whole": figure(whole, "Runs of a ladder; the law through them and its forecasts"),
    }


def law_chart(result: FitResult, forecasts: Sequence[Forecast], *, outcomes: Iterable[MeasuredOutcome] = ()) -> Any:
    """Return both panels of `law_charts` in one chart, with all runs."""
    return law_charts(result, forecasts, outcomes=outcomes)["whole"]


def residual_chart(result: FitResult) -> Any | None:
    """Return each run's relative residual from the law's median; None for laws without a size dependence."""
    if not result.law.knows_any_size or not result.status.may_be_used:
        return None
    frame = drawn_runs(result.frame, RUNS_DRAWN)
    sizes = frame.assign(active_params=size_column(frame))
    medians = [each.median for each in forecast_runs(result, targets_of(sizes))]
    rows = sizes.assign(
        off=sizes["loss"] / medians - 1,
        ratio=sizes["tokens"] / sizes["active_params"],
        budget=[format_flops(flops) for flops in sizes["budget_flops"]],
    )[["run", "budget", "budget_flops", "ratio", "off", "loss"]]
    y = alt.Y("off:Q", title="loss / median of the law - 1", axis=alt.Axis(format="+.2%"))
    points = alt.Chart(rows).mark_circle(size=36, opacity=0.9)
    tooltip = [*tooltips("run", "budget", "loss"), alt.Tooltip("off", format="+.2%")]
    zero = alt.Chart(pd.DataFrame({"off": [0.0]})).mark_rule(color=POINT_COLOUR, strokeWidth=1).encode(y=y)
    low, high = float(rows["ratio"].min()), float(rows["ratio"].max())
    scale = alt.Scale(type="log", nice=False, domain=[low / 1.1, high * 1.1])
    ratio = alt.X(
        "ratio:Q", title="tokens per parameter", scale=scale, axis=alt.Axis(values=round_ticks(low, high), format="~g")
    )
    drawn = alt.layer(zero, points.encode(x=ratio, y=y, color=_budget_colour(rows), tooltip=tooltip))
    return figure(drawn.properties(title="Residuals", **PANEL), "Relative residual of each run by its tokens per parameter")


def drawn_runs(frame: pd.DataFrame, most: int | None) -> pd.DataFrame:
    """Return at most so many runs, evenly by cost."""
    every = -(-len(frame) // most) if most else 1
    return frame.sort_values("flops").iloc[::every] if every > 1 else frame


def _runs_panel(result: FitResult, drawn: pd.DataFrame) -> Any:
    frame = drawn.assign(budget=[format_flops(flops) for flops in drawn["budget_flops"]])[
        ["run", "budget", "budget_flops", "flops", "params", "tokens", "loss"]
    ]
    colour = _budget_colour(frame)
    points = (
        alt.Chart(frame)
        .mark_circle(size=36, opacity=0.9)
        .encode(
            x=_tokens_axis(result),
            y=loss_axis(_metric_title(result)),
            color=colour,
            tooltip=["run", "budget", alt.Tooltip("params", format=".3s"), alt.Tooltip("tokens", format=".3s"), "loss"],
        )
    )
    layers = [points]
    if result.bowls:
        curves = _bowl_curves(result)
        layers.insert(
            0,
            alt.Chart(curves)
            .mark_line(strokeWidth=1.5)
            .encode(x=_tokens_axis(result), y=loss_axis(_metric_title(result)), color=colour),
        )
        layers.append(_optima_layer(result, x="tokens", axis=_tokens_axis(result)))
    title = "Runs, a bowl for each budget" if result.bowls else "Runs"
    return alt.layer(*layers).properties(title=title, **PANEL)


def law_panel(
    result: FitResult,
    drawn: pd.DataFrame,
    forecasts: Sequence[Forecast],
    outcomes: Sequence[MeasuredOutcome],
    *,
    labelled: Sequence[Forecast] | None = None,
    room: float = _LABEL_ROOM,
) -> alt.LayerChart:
    """Return loss against FLOPs: `drawn` runs, law and band, forecasts and outcomes.

    The `labelled` forecasts, or all, have their numbers written next to them. `room` is the share of the width for numbers.
    """
    curve = _law_curve(result, forecasts, outcomes)
    flops = curve["flops"].to_numpy()
    factor = (flops.max() / flops.min()) ** room if forecasts or outcomes else 1.0
    axis = log_axis("flops", "training compute (FLOPs)", values=flops, room=factor)
    loss = loss_axis(_metric_title(result))
    named = {each.flops for each in labelled or ()}
    if labelled is None:
        span = float(curve["high"].max() - curve["low"].min())
        named = _with_room(forecasts, outcomes, width=math.log(flops.max() * factor / flops.min()), height=span)
    band = alt.Chart(curve).mark_area(opacity=0.22, color=LAW_COLOUR)
    line = alt.Chart(curve).mark_line(color=LAW_COLOUR, strokeWidth=1.8)
    runs = alt.Chart(drawn[["flops", "loss"]]).mark_circle(size=10, color="#999999", opacity=0.5)
    layers = [
        band.encode(x=axis, y=loss_axis(_metric_title(result), column="low"), y2=alt.Y2("high:Q")),
        line.encode(x=axis, y=loss),
        runs.encode(x=axis, y=loss),
        _optima_layer(result, x="flops", axis=axis),
        *_forecast_layers(forecasts, outcomes, axis=axis, title=_metric_title(result), named=named),
        *_outcome_layers(forecasts, outcomes, axis=axis, title=_metric_title(result), named=named),
        *_end_of_runs(result, flops, axis=axis),
    ]
    title = "Best loss for the compute; 90 % interval of a new run"
    return alt.layer(*layers).properties(title=title, **PANEL)


_LETTER, _LINE, _LABEL_LETTERS = 7.0, 15.0, 15  # pixels of a letter and a line, letters of a label


def _with_room(
    forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome], *, width: float, height: float
) -> set[float]:
    """Return the FLOPs whose numbers are written: measured ones first, then the largest, unless they cover another number.

    `width` and `height` of the panel are in ln FLOPs and in loss.
    """
    measured = {each.flops for each in outcomes}
    points = {each.flops: each.loss for each in outcomes} | {each.flops: each.median for each in forecasts}
    kept = dict[float, tuple[float, float, int]]()
    for flops in sorted(points, key=lambda each: (each in measured, each), reverse=True):
        x, y = math.log(flops) / width * PANEL["width"], points[flops] / height * PANEL["height"]
        lines = 2 if flops in measured else 1
        if all(abs(u - x) > _LETTER * _LABEL_LETTERS or abs(v - y) > _LINE * max(lines, more) for u, v, more in kept.values()):
            kept[flops] = (x, y, lines)
    return set(kept)


def _end_of_runs(result: FitResult, flops: Array, *, axis: Any) -> list[Any]:
    """Return a dashed line at the largest fitted run, where the law is drawn beyond it."""
    if flops.max() < 2 * result.largest_flops:
        return []
    at = alt.Chart(pd.DataFrame([{"flops": result.largest_flops, "words": "largest fitted run"}]))
    rule = at.mark_rule(color="#767676", strokeDash=[4, 4], strokeWidth=1).encode(x=axis)
    words = at.mark_text(color="#595959", align="left", baseline="top", dx=5, dy=4, fontStyle="italic")
    return [rule, words.encode(x=axis, y=alt.value(0), text="words:N")]


def _forecast_layers(
    forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome], *, axis: Any, title: str, named: Collection[float]
) -> list[Any]:
    if not forecasts:
        return []
    levels = {"low": 0.05, "high": 0.95, "quarter": 0.25, "three_quarters": 0.75}
    rows = pd.DataFrame(
        [
            {"flops": each.flops, "loss": each.median} | {name: each.quantiles[level] for name, level in levels.items()}
            for each in forecasts
        ]
    )
    rows["what"] = [f"forecast {each.median:.4f}" for each in forecasts]
    measured = {each.flops: each.loss for each in outcomes}
    rows["lower"] = [each.median <= measured.get(each.flops, math.inf) for each in forecasts]
    base, loss = alt.Chart(rows), loss_axis(title)
    bars = (("low", "high", 2.5), ("quarter", "three_quarters", 6.0))
    return [
        *(
            base.mark_rule(color=LAW_COLOUR, strokeWidth=width).encode(
                x=axis, y=loss_axis(title, column=low), y2=alt.Y2(f"{high}:Q")
            )
            for low, high, width in bars
        ),
        base.mark_point(
            shape="diamond", size=90, filled=True, fill="white", stroke=LAW_COLOUR, strokeWidth=2, opacity=1
        ).encode(x=axis, y=loss, tooltip=tooltips("what", "flops", "loss", "low", "high")),
        *_words(rows[rows["flops"].isin(named)], text="what", axis=axis, loss=loss, colour=LAW_COLOUR),
    ]


def _outcome_layers(
    forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome], *, axis: Any, title: str, named: Collection[float]
) -> list[Any]:
    if not outcomes:
        return []
    rows = pd.DataFrame([{"flops": each.flops, "loss": each.loss, "what": each.label} for each in outcomes])
    rows["text"] = [f"observed {each.loss:.4f}" for each in outcomes]
    medians = {each.flops: each.median for each in forecasts}
    rows["lower"] = [each.loss < medians.get(each.flops, -math.inf) for each in outcomes]
    base, loss = alt.Chart(rows), loss_axis(title)
    crosses = base.mark_point(shape=CROSS, size=70, strokeWidth=2.5, color=OUTCOME_COLOUR, opacity=1)
    return [
        crosses.encode(x=axis, y=loss, tooltip=tooltips("what", "flops", "loss")),
        *_words(rows[rows["flops"].isin(named)], text="text", axis=axis, loss=loss, colour=OUTCOME_COLOUR),
    ]


def _words(rows: pd.DataFrame, *, text: str, axis: Any, loss: Any, colour: str) -> list[Any]:
    """Return labels right of the points, where the falling law leaves room; the higher loss has the higher label."""
    rows = rows.drop_duplicates("flops")
    return [
        alt.Chart(rows[rows["lower"] == lower])
        .mark_text(align="left", dx=9, dy=5 if lower else -9, color=colour)
        .encode(x=axis, y=loss, text=f"{text}:N")
        for lower in (True, False)
        if (rows["lower"] == lower).any()
    ]


def _optima_layer(result: FitResult, *, x: str, axis: Any) -> Any:
    rows = pd.DataFrame([{"flops": each.flops, "tokens": each.tokens, "loss": each.loss} for each in result.points])
    points = alt.Chart(rows).mark_point(shape="circle", size=60, color=POINT_COLOUR, strokeWidth=1.6, fill="white", opacity=1)
    return points.encode(
        x=axis, y=loss_axis(_metric_title(result)), tooltip=[alt.Tooltip(x, format=".3s"), alt.Tooltip("loss", format=".5g")]
    )


def _bowl_curves(result: FitResult) -> pd.DataFrame:
    parts = []
    budgets = [(budget, runs) for budget, runs in result.frame.groupby("budget_flops") if has_bowl(runs)]
    for bowl, (budget, runs) in zip(result.bowls, budgets, strict=True):
        tokens = np.geomspace(runs["tokens"].min(), runs["tokens"].max(), _CURVE_POINTS)
        label = format_flops(float(budget))  # type: ignore[arg-type]
        parts.append(pd.DataFrame({"budget": label, "budget_flops": budget, "tokens": tokens, "loss": bowl.loss_at(tokens)}))
    return pd.concat(parts, ignore_index=True)


def _law_curve(result: FitResult, forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome]) -> pd.DataFrame:
    ends = [point.flops for point in result.points]
    ends += [each.flops for each in forecasts] + [each.flops for each in outcomes]
    flops = np.geomspace(min(ends) / 1.3, max(ends) * 1.6, _CURVE_POINTS)
    low, median, high = interval_along(result, flops=flops)
    return pd.DataFrame({"flops": flops, "low": low, "loss": median, "high": high})


def _budget_colour(frame: pd.DataFrame) -> Any:
    budgets = frame.drop_duplicates("budget").sort_values("budget_flops")["budget"].tolist()
    if len(budgets) <= _LABELLED_BUDGETS:
        scale = alt.Scale(scheme="viridis", domain=budgets)
        return alt.Color("budget:O", title="budget (FLOPs)", sort=budgets, scale=scale)
    return alt.Color(
        "budget_flops:Q", title="FLOPs", scale=alt.Scale(type="log", scheme="viridis"), legend=alt.Legend(format=".0e")
    )


def _tokens_axis(result: FitResult) -> Any:
    return log_axis("tokens", "trained tokens", values=result.frame["tokens"].to_numpy())


def log_axis(column: str, title: str, *, values: Array, room: float = 1.0) -> Any:
    """Return a logarithmic horizontal axis with round ticks, from the smallest value to `room` times the largest."""
    low, high = float(values.min()), float(values.max())
    ticks = round_ticks(low, high)
    axis = alt.Axis(values=ticks, labelExpr="replace(format(datum.value, '.0e'), '+', '')")
    return alt.X(f"{column}:Q", title=title, scale=alt.Scale(type="log", nice=False, domain=[low, high * room]), axis=axis)


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two: powers of ten over three decades or more, otherwise 1, 2 and 5 times them.

    >>> round_ticks(3e18, 5e21), round_ticks(1.5e9, 2e10)
    ([1e+19, 1e+20, 1e+21], [2000000000.0, 5000000000.0, 10000000000.0, 20000000000.0])
    """
    steps = (1,) if high >= 1000 * low else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _metric_title(result: FitResult) -> str:
    return axis_title(result.metric, unit=unit_of(result.metric))


def axis_title(metric: str, *, unit: str) -> str:
    """Return the title of a loss axis: the metric in words, and its unit where the words do not say it.

    >>> axis_title("paloma_macro_loss_nats", unit="nats/token"), axis_title("bits_per_byte", unit="bits/byte")
    ('paloma macro loss (nats/token)', 'bits per byte')
    """
    name = metric.replace("_nats", "").replace("_", " ")
    return f"{name} ({unit})" if unit and unit != name.replace(" per ", "/") else name


def loss_axis(title: str, *, column: str = "loss") -> Any:
    """Return a vertical axis of losses, which need not begin at zero."""
    return alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=False))


def forecast_chart(
    runs: Sequence[Mapping[str, Any]],
    forecast: Forecast,
    *,
    observed: float | None,
    metric: str,
    law: FitResult | None,
    is_narrow: bool = False,
) -> Any:
    """Return the chart of the fitted `runs` ("flops" and "loss"), their law, the signed forecast and the outcome.

    `metric` is the title of the loss axis, with its unit. Without a `law`, runs, forecast and outcome are drawn.
    """
    outcomes = [] if observed is None else [MeasuredOutcome(flops=forecast.flops, loss=observed)]
    room = NARROW_ROOM if is_narrow else _LABEL_ROOM
    if law is not None:
        layers = law_panel(law, law.frame, [forecast], outcomes, room=room)
    else:
        layers = _without_law(runs, forecast, outcomes, metric=metric, room=room)
    drawn = layers.properties(title="Runs, law, forecast and outcome", **(NARROW if is_narrow else WIDE))
    return figure(drawn, f"{metric} by training compute: the fitted runs, the signed forecast, and the outcome if it is known")


def _without_law(
    runs: Sequence[Mapping[str, Any]], forecast: Forecast, outcomes: Sequence[MeasuredOutcome], *, metric: str, room: float
) -> alt.LayerChart:
    rows = pd.DataFrame([{"flops": run["flops"], "loss": run["loss"]} for run in runs])
    flops = np.array([rows["flops"].min() / 1.4, *rows["flops"], forecast.flops])
    axis = log_axis("flops", "training compute (FLOPs)", values=flops, room=(flops.max() / flops.min()) ** room)
    best = alt.Chart(rows.loc[_best_rows(rows)]).mark_point(size=60, color=POINT_COLOUR, strokeWidth=1.6, opacity=1)
    return alt.layer(
        alt.Chart(rows).mark_circle(size=20, color="#999999", opacity=1).encode(x=axis, y=loss_axis(metric)),
        best.encode(x=axis, y=loss_axis(metric)),
        *_forecast_layers([forecast], outcomes, axis=axis, title=metric, named=[forecast.flops]),
        *_outcome_layers([forecast], outcomes, axis=axis, title=metric, named=[forecast.flops]),
    )


def _best_rows(rows: pd.DataFrame) -> list[Any]:
    """Return labels of the runs that no run of similar or less compute beats: the best of each budget in a ladder."""
    ordered = rows.sort_values("flops")
    flops, lowest = ordered["flops"].tolist(), list(accumulate(ordered["loss"], min))
    at_most = [lowest[bisect_right(flops, BUDGET_SPAN * each) - 1] for each in flops]
    return ordered.index[ordered["loss"] == at_most].tolist()


_CURVE_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def curve_chart(curves: Mapping[str, Sequence[tuple[float, float]]], *, metric: str) -> Any | None:
    """Return loss by step, one line per curve; None if no curve has two points. At most six curves are drawn."""
    drawn = [(label, points) for label, points in curves.items() if len(points) > 1][: len(_CURVE_COLOURS)]
    if not drawn:
        return None
    rows = pd.DataFrame([{"curve": label, "step": step, "loss": loss} for label, points in drawn for step, loss in points])
    scale = alt.Scale(domain=[label for label, _ in drawn], range=_CURVE_COLOURS[: len(drawn)])
    lines = alt.Chart(rows).mark_line(strokeWidth=1.3, clip=True)
    encoded = lines.encode(
        x=alt.X("step:Q", title="step", scale=alt.Scale(nice=False)),
        y=loss_axis(metric),
        color=alt.Color("curve:N", title=None, scale=scale),
    )
    return figure(encoded.properties(width=540, height=240), f"{metric} by step, a line for each seed")


def band_chart(rows: Sequence[Mapping[str, Any]], seen: Sequence[float | None], *, metric: str, is_narrow: bool = False) -> Any:
    """Return the forecast of a curve (rows of `curve` in `forecast.json`) with its 50 and 90 % bands, and the losses seen.

    `metric` is the title of the loss axis.
    """
    frame = pd.DataFrame([{"done": row["fraction"], **row["quantiles"]} for row in rows])
    points = [{"done": row["fraction"], "loss": loss} for row, loss in zip(rows, seen, strict=True) if loss is not None]
    done = alt.X("done:Q", title="share of the run", axis=alt.Axis(format="%"))
    frame = frame.rename(columns={"0.05": "low", "0.25": "quarter", "0.5": "loss", "0.75": "three_quarters", "0.95": "high"})
    base = alt.Chart(frame)
    bands = (("low", "high", 0.18), ("quarter", "three_quarters", 0.3))
    layers = [
        base.mark_area(color=LAW_COLOUR, opacity=opacity).encode(
            x=done, y=loss_axis(metric, column=low), y2=alt.Y2(f"{high}:Q")
        )
        for low, high, opacity in bands
    ]
    line = base.mark_line(color=LAW_COLOUR, strokeWidth=1.6)
    layers.append(line.encode(x=done, y=loss_axis(metric), tooltip=tooltips("done", "low", "loss", "high")))
    if points:
        crosses = alt.Chart(pd.DataFrame(points)).mark_point(
            shape=CROSS, size=50, strokeWidth=2, color=OUTCOME_COLOUR, opacity=1
        )
        layers.append(crosses.encode(x=done, y=loss_axis(metric), tooltip=tooltips("done", "loss")))
    drawn = alt.layer(*layers).properties(title="Forecast of the whole curve", **(NARROW if is_narrow else WIDE))
    return figure(drawn, f"{metric} by share of the run: the signed 50 and 90 % bands, and the losses of the run where known")


_SMALL = {"width": 210, "height": 130}
_ACROSS_PAGE = 3
"""Size of a small panel, and how many are beside each other."""
MOST_PANELS = 6
_MOST_EXPERTS_DRAWN, _MOST_POINTS = 16, 300


def norms_chart(runs: Mapping[str, Sequence[HistoryRow]], *, tokens_per_step: Mapping[str, int]) -> Any:
    """Return the gradient norms of runs by trained tokens, a small panel for each run; both axes are logarithmic."""
    rows = [
        {"run": name, "tokens": (row.step + 1) * tokens_per_step[name], "norm": row.gradient_norm}
        for name, each in runs.items()
        for row in _highest([row for row in each if row.gradient_norm])
    ]
    logarithmic = alt.Scale(type="log", nice=False)
    drawn = alt.Chart(pd.DataFrame(rows)).mark_line(color=LAW_COLOUR, strokeWidth=1, clip=True)
    panels = drawn.encode(
        x=alt.X("tokens:Q", title="trained tokens", scale=logarithmic, axis=alt.Axis(format="~s", tickCount=4)),
        y=alt.Y("norm:Q", title="gradient norm", scale=logarithmic, axis=alt.Axis(format="~g", tickCount=4)),
        facet=alt.Facet("run:N", title=None, columns=_ACROSS_PAGE, sort=list(runs)),
    )
    return figure(panels.properties(**_SMALL), "Norm of all gradients before clipping by trained tokens, a panel for each run")


def loads_chart(runs: Mapping[str, Sequence[HistoryRow]]) -> Any:
    """Return the loads of experts by batch in even shares, a row for each run and a small panel for each of its layers.

    Of many layers and experts, some are drawn, evenly by their number.
    """
    rows = [
        {"run": name, "layer": f"layer {layer}", "expert": expert, "batch": row.step + 1, "load": share * len(shares)}
        for name, each in runs.items()
        for _, row in _some([row for row in each if row.expert_shares], _MOST_POINTS)
        for layer, shares in _some(row.expert_shares, MOST_PANELS)
        for expert, share in _some(shares, _MOST_EXPERTS_DRAWN)
    ]
    batch = alt.X("batch:Q", title="batch", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(tickCount=5))
    load = alt.Y("load:Q", title="load / even share", scale=alt.Scale(domainMin=0))
    frame, base = pd.DataFrame(rows), alt.Chart()
    colour = alt.Color("expert:O", title="expert", scale=alt.Scale(scheme="viridis"))
    line = base.mark_line(strokeWidth=1.2).encode(x=batch, y=load, color=colour)
    even = base.transform_filter((alt.datum.batch == 1) & (alt.datum.expert == 0)).mark_rule(
        color=POINT_COLOUR, strokeDash=[3, 3]
    )
    layers = list(dict.fromkeys(frame["layer"]))
    panels = alt.layer(line, even.encode(y=alt.datum(1)), data=frame).properties(**_SMALL)
    faceted = panels.facet(
        row=alt.Row("run:N", title=None, sort=list(runs)), column=alt.Column("layer:N", title=None, sort=layers)
    )
    return figure(faceted, "Loads of experts by batch, in even shares: a row for each run, a panel for each layer")


def _highest(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return at most `_MOST_POINTS` rows: of equally many steps each, the one with the largest norm."""
    every = max(1, -(-len(rows) // _MOST_POINTS))
    parts = (rows[first : first + every] for first in range(0, len(rows), every))
    return [max(part, key=lambda row: row.gradient_norm or 0.0) for part in parts]


def _some(values: Sequence[Any], most: int) -> list[tuple[int, Any]]:
    """Return at most so many values with their numbers, evenly."""
    every = max(1, -(-len(values) // most))
    return list(enumerate(values))[::every]


MOST_STEPS = 60
_WIDE, _HIGH, _ACROSS, _DOWN = 190, 46, 44, 14
_LETTERS = 24
_STEP_COLOURS = {"failed": "#d55e00", "running": "#e69f00", "waiting": "#999999", "reused": "#009e73"}


def steps_chart(steps: Sequence[Step]) -> Any | None:
    """Return a box for each step, left to right, with lines from its inputs; None for fewer than 2 or more than 60."""
    if not 2 <= len(steps) <= MOST_STEPS:
        return None
    corners = _corners(steps)
    rows = pd.DataFrame([_box(step, *corners[step.name]) for step in steps])
    ends = [(corners[name], corners[step.name]) for step in steps for name in dict.fromkeys(step.inputs)]
    arrows = pd.DataFrame(
        [{"x": a + _WIDE, "y": b + _HIGH / 2, "x2": c, "y2": d + _HIGH / 2} for (a, b), (c, d) in ends],
        columns=["x", "y", "x2", "y2"],
    )
    width, height = int(rows["x2"].max()) + 1, int(rows["y2"].max()) + 1
    place = {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, width])),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[height, 0])),
    }
    ends_at = {"x2": "x2:Q", "y2": "y2:Q"}
    boxes, words = alt.Chart(rows), {"align": "left", "baseline": "alphabetic", "dx": 8}
    layers = [
        alt.Chart(arrows).mark_rule(color="#999999").encode(**place, **ends_at),
        boxes.mark_rect(cornerRadius=4, fill="white", strokeWidth=1.5, opacity=1).encode(
            **place, **ends_at, stroke=alt.Stroke("colour:N", scale=None), description="what:N", tooltip="what:N"
        ),
        boxes.mark_text(**words, dy=19, fontWeight=600, color="#222222").encode(**place, text="name:N"),
        boxes.mark_text(**words, dy=36, color="#444444").encode(**place, text="state:N"),
    ]
    drawn = alt.layer(*layers).properties(width=width, height=height, view=alt.ViewBackground(stroke=None))
    return figure(drawn, "Steps from left to right, each after its inputs")


def _corners(steps: Sequence[Step]) -> dict[str, tuple[int, int]]:
    """Return the upper left corner of each step's box; the column is the number of steps that must come before."""
    inputs, depths = {step.name: step.inputs for step in steps}, dict[str, int]()
    for name in TopologicalSorter(inputs).static_order():
        depths[name] = max((depths[each] + 1 for each in inputs[name]), default=0)
    rows = dict.fromkeys(depths.values(), 0)
    found = {}
    for step in steps:
        depth = depths[step.name]
        found[step.name] = depth * (_WIDE + _ACROSS), rows[depth] * (_HIGH + _DOWN)
        rows[depth] += 1
    return found


def _box(step: Step, x: int, y: int) -> dict[str, Any]:
    state = (
        ", ".join(filter(None, [step.status, "" if step.seconds is None else format_duration(step.seconds)])) or step.what or ""
    )
    return {
        "x": x,
        "y": y,
        "x2": x + _WIDE,
        "y2": y + _HIGH,
        "name": _short(step.name),
        "state": _short(state),
        "what": f"{step.name}: {step.what}" if step.what else step.name,
        "colour": _STEP_COLOURS.get(step.status or "", "#0072b2"),
    }


def _short(words: str) -> str:
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}…"
