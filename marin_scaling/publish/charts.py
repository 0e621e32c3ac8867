"""Vega-Lite charts of runs, laws and forecasts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt
import numpy as np
import pandas as pd

from marin_scaling.errors import UsageError
from marin_scaling.files import replace_file
from marin_scaling.fitting.optima import has_bowl, size_column
from marin_scaling.fitting.result import FitResult
from marin_scaling.forecast.forecast import Forecast, forecast_runs, interval_along, targets_of
from marin_scaling.laws import Array
from marin_scaling.markdown import escape, link
from marin_scaling.units import format_flops, unit_of

LAW_COLOUR, OUTCOME_COLOUR, POINT_COLOUR = "#0072B2", "#D55E00", "#222222"
"""Blue and vermilion of Okabe and Ito's palette, and near black."""

PNG_SCALE = 2.0
_PANEL = {"width": 400, "height": 330}
_CURVE_POINTS = 60
_LABEL_ROOM = 0.32  # of the panel's width, right of the last point
_CROSS = "M-1,-1L1,1M1,-1L-1,1"
_LABELLED_BUDGETS = 12  # more than that, and the legend is a scale instead of a list


@dataclass(frozen=True, kw_only=True)
class MeasuredOutcome:
    """A measured loss to set beside the forecast; `label` is shown on hovering."""

    flops: float
    loss: float
    label: str = "outcome"


def law_chart(result: FitResult, forecasts: Sequence[Forecast], *, outcomes: Iterable[MeasuredOutcome] = ()) -> Any:
    """Two panels: loss against tokens by budget, with bowls; loss against FLOPs, with the law and what it forecasts."""
    panels = alt.hconcat(_runs_panel(result), _law_panel(result, forecasts, list(outcomes)), spacing=28)
    return styled(panels.resolve_scale(color="independent"))


def law_charts(result: FitResult, forecasts: Sequence[Forecast], *, outcomes: Iterable[MeasuredOutcome] = ()) -> dict[str, Any]:
    """The same two panels as charts of their own, "runs" and "law", for pages that set them beside or below each other."""
    runs = styled(_runs_panel(result)).configure_legend(orient="bottom", columns=4, titleFontWeight="normal")
    return {"runs": runs, "law": styled(_law_panel(result, forecasts, list(outcomes)))}


def residual_chart(result: FitResult) -> Any | None:
    """By how much each run lies off the law's median at its own size and length; None of laws that know no other sizes."""
    if result.is_frontier or not result.status.may_be_used:
        return None
    sizes = result.frame.assign(active_params=size_column(result.frame))
    medians = [each.median for each in forecast_runs(result, targets_of(sizes))]
    rows = sizes.assign(
        off=sizes["loss"] / medians - 1,
        ratio=sizes["tokens"] / sizes["active_params"],
        budget=[format_flops(flops) for flops in sizes["budget_flops"]],
    )[["run", "budget", "budget_flops", "ratio", "off", "loss"]]
    y = alt.Y("off:Q", title="observed over the law's median, less 1", axis=alt.Axis(format="+.2%"))
    points = alt.Chart(rows).mark_circle(size=36, opacity=0.9)
    tooltip = ["run", "budget", "loss", alt.Tooltip("off", format="+.2%")]
    zero = alt.Chart(pd.DataFrame({"off": [0.0]})).mark_rule(color=POINT_COLOUR, strokeWidth=1).encode(y=y)
    low, high = float(rows["ratio"].min()), float(rows["ratio"].max())
    scale = alt.Scale(type="log", nice=False, domain=[low / 1.1, high * 1.1])
    ratio = alt.X(
        "ratio:Q", title="tokens per parameter", scale=scale, axis=alt.Axis(values=round_ticks(low, high), format="~g")
    )
    drawn = alt.layer(zero, points.encode(x=ratio, y=y, color=_budget_colour(rows), tooltip=tooltip))
    chart = styled(drawn.properties(title="What the law leaves over", **_PANEL))
    return chart.configure_legend(orient="bottom", columns=4, titleFontWeight="normal")


def styled(chart: Any) -> Any:
    """A chart in the look of all figures."""
    return (
        chart.properties(background="white", padding=12)
        .configure(font="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif")
        .configure_axis(gridColor="#e6e6e6", labelFontSize=11, titleFontSize=12, titleFontWeight="normal", labelOverlap=True)
        .configure_legend(labelFontSize=11, titleFontSize=11, titleFontWeight="normal")
        .configure_title(fontSize=13, anchor="start", fontWeight=600, frame="group")
        .configure_view(stroke="#cccccc")
    )


def save_chart(chart: Any, path: Path) -> None:
    """Write a chart by its suffix, whole or not at all: .html (works without network), .svg, .png, .json (Vega-Lite)."""
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise UsageError(
            f"{path}: a figure cannot be written as {path.suffix or 'a file without suffix'!r}.",
            why="The suffix says the format.",
            fix=f"Use one of: {', '.join(_WRITERS)}.",
        )
    replace_file(path, chart_bytes(chart, suffix=suffix))


def chart_bytes(chart: Any, *, suffix: str) -> bytes:
    """The content of a figure file: ".html", ".svg", ".png" or ".json"."""
    return _WRITERS[suffix](chart)


def _runs_panel(result: FitResult) -> Any:
    frame = result.frame.assign(
        budget=[format_flops(flops) for flops in result.frame["budget_flops"]],
    )[["run", "budget", "budget_flops", "flops", "params", "tokens", "loss"]]
    colour = _budget_colour(frame)
    points = (
        alt.Chart(frame)
        .mark_circle(size=36, opacity=0.9)
        .encode(
            x=_tokens_axis(result),
            y=_loss_axis(result),
            color=colour,
            tooltip=["run", "budget", alt.Tooltip("params", format=".3s"), alt.Tooltip("tokens", format=".3s"), "loss"],
        )
    )
    layers = [points]
    if result.bowls:
        curves = _bowl_curves(result)
        layers.insert(
            0, alt.Chart(curves).mark_line(strokeWidth=1.5).encode(x=_tokens_axis(result), y=_loss_axis(result), color=colour)
        )
        layers.append(_optima_layer(result, x="tokens", axis=_tokens_axis(result)))
    title = "Runs, a bowl for each budget" if result.bowls else "Runs"
    return alt.layer(*layers).properties(title=title, **_PANEL)


def _law_panel(result: FitResult, forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome]) -> Any:
    curve = _law_curve(result, forecasts, outcomes)
    flops = curve["flops"].to_numpy()
    room = (flops.max() / flops.min()) ** _LABEL_ROOM if forecasts or outcomes else 1.0
    axis = _log_axis("flops", "training compute (FLOPs)", values=flops, room=room)
    loss = _loss_axis(result)
    band = alt.Chart(curve).mark_area(opacity=0.22, color=LAW_COLOUR)
    line = alt.Chart(curve).mark_line(color=LAW_COLOUR, strokeWidth=1.8)
    runs = alt.Chart(result.frame[["flops", "loss"]]).mark_circle(size=10, color="#999999", opacity=0.5)
    layers = [
        band.encode(x=axis, y=_loss_axis(result, column="low"), y2="high:Q"),
        line.encode(x=axis, y=loss),
        runs.encode(x=axis, y=loss),
        _optima_layer(result, x="flops", axis=axis),
        *_forecast_layers(result, forecasts, outcomes, axis=axis),
        *_outcome_layers(result, forecasts, outcomes, axis=axis),
    ]
    title = "Best loss for the compute; 90 % interval of a new run"
    return alt.layer(*layers).properties(title=title, **_PANEL)


def _forecast_layers(
    result: FitResult, forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome], *, axis: Any
) -> list[Any]:
    if not forecasts:
        return []
    rows = pd.DataFrame(
        [
            {"flops": each.flops, "loss": each.median, "low": low, "high": high}
            for each, (low, high) in ((each, each.interval()) for each in forecasts)
        ]
    )
    rows["what"] = [f"forecast {each.median:.4f}" for each in forecasts]
    measured = {each.flops: each.loss for each in outcomes}
    rows["lower"] = [each.median <= measured.get(each.flops, math.inf) for each in forecasts]
    base, loss, low = alt.Chart(rows), _loss_axis(result), _loss_axis(result, column="low")
    return [
        base.mark_rule(color=LAW_COLOUR, strokeWidth=2.5).encode(x=axis, y=low, y2="high:Q"),
        base.mark_point(shape="diamond", size=90, filled=True, color=LAW_COLOUR, opacity=1).encode(
            x=axis, y=loss, tooltip=["what", "flops", "loss", "low", "high"]
        ),
        *_words(rows, text="what", axis=axis, loss=loss, colour=LAW_COLOUR),
    ]


def _outcome_layers(
    result: FitResult, forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome], *, axis: Any
) -> list[Any]:
    if not outcomes:
        return []
    rows = pd.DataFrame([{"flops": each.flops, "loss": each.loss, "what": each.label} for each in outcomes])
    rows["text"] = [f"measured {each.loss:.4f}" for each in outcomes]
    medians = {each.flops: each.median for each in forecasts}
    rows["lower"] = [each.loss < medians.get(each.flops, -math.inf) for each in outcomes]
    base, loss = alt.Chart(rows), _loss_axis(result)
    crosses = base.mark_point(shape=_CROSS, size=70, strokeWidth=2.5, color=OUTCOME_COLOUR, opacity=1)
    return [
        crosses.encode(x=axis, y=loss, tooltip=["what", "flops", "loss"]),
        *_words(rows, text="text", axis=axis, loss=loss, colour=OUTCOME_COLOUR),
    ]


def _words(rows: pd.DataFrame, *, text: str, axis: Any, loss: Any, colour: str) -> list[Any]:
    """A label right of each point, where the falling law leaves room; of two for one run the higher loss stands higher."""
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
        x=axis, y=_loss_axis(result), tooltip=[alt.Tooltip(x, format=".3s"), alt.Tooltip("loss", format=".5g")]
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
    return _log_axis("tokens", "trained tokens", values=result.frame["tokens"].to_numpy())


def _log_axis(column: str, title: str, *, values: Array, room: float = 1.0) -> Any:
    low, high = float(values.min()), float(values.max())
    ticks = round_ticks(low, high)
    axis = alt.Axis(values=ticks, labelExpr="replace(format(datum.value, '.0e'), '+', '')")
    return alt.X(f"{column}:Q", title=title, scale=alt.Scale(type="log", nice=False, domain=[low, high * room]), axis=axis)


def round_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two: powers of ten over three decades or more, otherwise 1, 2 and 5 times them.

    >>> round_ticks(3e18, 5e21), round_ticks(1.5e9, 2e10)
    ([1e+19, 1e+20, 1e+21], [2000000000.0, 5000000000.0, 10000000000.0, 20000000000.0])
    """
    steps = (1,) if high >= 1000 * low else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _loss_axis(result: FitResult, *, column: str = "loss") -> Any:
    name, unit = result.metric.replace("_nats", "").replace("_", " "), unit_of(result.metric)
    return alt.Y(f"{column}:Q", title=f"{name} ({unit})" if unit else name, scale=alt.Scale(zero=False))


def _spec(chart: Any) -> dict[str, Any]:
    """The chart's Vega-Lite, however many runs it shows: Altair's limit of 5,000 rows is meant for notebooks."""
    with alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = chart.to_dict()
    return spec


def _html(chart: Any) -> bytes:
    import vl_convert

    spec = json.loads(json.dumps(_spec(chart)).replace("<", "<\\u200b"))  # no name may end the page's script
    text: str = vl_convert.vegalite_to_html(spec, bundle=True)
    return text.encode()


def _svg(chart: Any) -> bytes:
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(_spec(chart))
    return text.encode()


def _png(chart: Any) -> bytes:
    import vl_convert

    raw: bytes = vl_convert.vegalite_to_png(_spec(chart), scale=PNG_SCALE)
    return raw


def _json(chart: Any) -> bytes:
    return (json.dumps(_spec(chart), indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


_WRITERS: dict[str, Callable[[Any], bytes]] = {".html": _html, ".svg": _svg, ".png": _png, ".json": _json}


PLOTTER_NAME = "vega.js"
"""What draws the figures to move about in: once for all of them, at the root of the generated pages."""

_LIVE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Figure</title><script src="{plotter}"></script>
</head>
<body><div id="figure"></div>
<script type="application/json" id="drawn">{spec}</script>
<script>vegaEmbed("#figure", JSON.parse(document.getElementById("drawn").textContent), {{renderer: "svg"}});</script>
</body>
</html>
"""


def figure_files(panels: Mapping[str, Any], whole: Any, *, page_stem: str) -> dict[str, bytes]:
    """`PANEL.svg` for each panel, `whole.svg` and `interactive.html`, by path in a folder of the page's own.

    `page_stem` is the page's path without `.md`. The folder's name ends in `.figures`, so that no two pages share a file.
    """
    folder = f"{page_stem}.figures"
    files = {f"{folder}/{name}.svg": chart_bytes(panel, suffix=".svg") for name, panel in panels.items()}
    files[f"{folder}/whole.svg"] = chart_bytes(whole, suffix=".svg")
    return {**files, f"{folder}/interactive.html": _live(whole, plotter=f"{'../' * (folder.count('/') + 1)}{PLOTTER_NAME}")}


@cache
def plotter() -> bytes:
    """The program that `interactive.html` asks for: Vega and what it needs, from the installed vl-convert."""
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.encode()


def _live(chart: Any, *, plotter: str) -> bytes:
    spec = chart_bytes(chart, suffix=".json").decode().replace("<", "\\u003c")  # no name may end the page's script
    return _LIVE.format(plotter=plotter, spec=spec).encode()


def show_figure(page_name: str, captions: Mapping[str, str]) -> str:
    """The Markdown that shows the panels with what is to be seen on them, beside each other where there is room.

    `page_name` is the name of the page's file without `.md`; the figures lie beside it.
    """
    folder = f"{page_name}.figures"
    pictures = "\n".join(f"![{escape(caption)}]({quote(folder)}/{name}.svg)" for name, caption in captions.items())
    return f"{pictures}\n\n{link('The same figure, to move about in', f'{folder}/interactive.html')}"
