"""The first page's results, and the figure of all forecasts as intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import pandas as pd

from marin_scaling.fitting.result import FitResult
from marin_scaling.forecast.forecast import Forecast
from marin_scaling.limits import FORECASTS_DRAWN, RUNS_DRAWN, TITLE_CHARACTERS
from marin_scaling.markdown import page_name
from marin_scaling.preregistration.public_record import PublicForecast
from marin_scaling.preregistration.state import State
from marin_scaling.printable import shortened
from marin_scaling.publish.charts import NARROW, NARROW_ROOM, WIDE, MeasuredOutcome, drawn_runs, law_panel
from marin_scaling.publish.figures import LAW_COLOUR, OUTCOME_COLOUR, figure, picture_files, show_wide
from marin_scaling.publish.ladder_page import FittedLadder, LadderPage, PromisedRun
from marin_scaling.publish.render import render
from marin_scaling.units import format_flops

HELD_COLOUR = "#007A5E"
"""Okabe and Ito's green, darker: a mark on white needs a contrast of three."""
_ROW = 21  # pixels
_CROSS = "M-1,-1L1,1M1,-1L-1,1"
_LABEL_PIXELS, _NARROW_LABEL_PIXELS = 230, 120


def reach_chart(
    result: FitResult, forecasts: Sequence[Forecast], outcomes: Sequence[MeasuredOutcome], *, is_narrow: bool = False
) -> Any:
    """One wide panel: runs, law with its band, and the forecasts and measured losses beyond the runs.

    Only the farthest forecast has its numbers beside it.
    """
    farthest = sorted(forecasts, key=lambda each: each.flops)[-1:]
    room = NARROW_ROOM if is_narrow else 0.2
    panel = law_panel(result, drawn_runs(result.frame, RUNS_DRAWN), forecasts, outcomes, labelled=farthest, room=room)
    size = NARROW if is_narrow else WIDE
    return figure(
        panel.properties(title="", **size), "Loss by training compute: small runs, their law with its band, and beyond"
    )


@dataclass(frozen=True, kw_only=True)
class DrawnForecast:
    """A forecast as a row of the interval chart. `ends` are those of its 90 % interval, `middle` those of its 50 % interval."""

    title: str
    point: float
    ends: tuple[float, float] | None = None
    middle: tuple[float, float] | None = None
    observed: float | None = None
    state: str = ""


def interval_chart(groups: Mapping[str, Sequence[DrawnForecast]], *, is_narrow: bool = False) -> Any:
    """A panel for each group: intervals and observed values, each in per cent of its forecast's median."""
    rows = {group: [_row(each) for each in forecasts] for group, forecasts in groups.items() if forecasts}
    values = [row[name] for each in rows.values() for row in each for name in _VALUES if row[name] is not None]
    low, high = min([*values, -0.01]), max([*values, 0.01])
    margin = 0.05 * (high - low)
    x = {"domain": [low - margin, high + margin], "nice": False}
    panels = [_panel(group, each, x=x, is_narrow=is_narrow) for group, each in rows.items()]
    if not panels:
        return None
    drawn = alt.vconcat(*panels, spacing=14).resolve_scale(x="shared", color="shared", shape="shared")
    return figure(drawn, "Every forecast's interval and the observed loss, in per cent of the forecast's median")


_VALUES = ("low", "high", "observed")


def _row(each: DrawnForecast) -> dict[str, Any]:
    off = {
        name: None if value is None else value / each.point - 1
        for name, value in zip(
            (*_VALUES[:2], "quarter", "three_quarters", "observed"),
            (*(each.ends or (None, None)), *(each.middle or (None, None)), each.observed),
            strict=True,
        )
    }
    said = "" if each.observed is None else _place(each)
    numbers = {"forecast": f"{each.point:.4f}", "measured": "" if each.observed is None else f"{each.observed:.4f}"}
    interval = "" if each.ends is None else "{:.4f} to {:.4f}".format(*each.ends)
    return {"title": each.title, "point": 0.0, "place": said, "state": each.state, "interval": interval, **numbers, **off}


def _place(each: DrawnForecast) -> str:
    if each.ends is None or each.observed is None:
        return "observed, no interval stated"
    return "observed, inside" if each.ends[0] <= each.observed <= each.ends[1] else "observed, outside"


_PLACES = {
    "observed, inside": (HELD_COLOUR, "circle"),
    "observed, outside": (OUTCOME_COLOUR, _CROSS),
    "observed, no interval stated": ("#595959", "diamond"),
}


def _panel(group: str, rows: Sequence[Mapping[str, Any]], *, x: Mapping[str, Any], is_narrow: bool) -> Any:
    frame = pd.DataFrame(rows)
    labels = _NARROW_LABEL_PIXELS if is_narrow else _LABEL_PIXELS
    axis = alt.Axis(labelLimit=labels, minExtent=labels, maxExtent=labels, title=None, ticks=False, domain=False, grid=False)
    y = alt.Y("title:N", sort=[row["title"] for row in rows], axis=axis)
    title = "loss relative to the forecast's median"
    ticks = alt.Axis(format="+.0%", title=title, tickCount=4 if is_narrow else 8)

    def at(name: str) -> Any:
        return alt.X(f"{name}:Q", scale=alt.Scale(**x), axis=ticks)

    base = alt.Chart(frame)
    tooltip = ["title", "forecast", "interval", "measured", "state"]
    places = list(_PLACES)
    colours, shapes = zip(*_PLACES.values(), strict=True)
    observed = base.transform_filter("isValid(datum.observed)").mark_point(size=64, strokeWidth=2.4, opacity=1, filled=False)
    legend = alt.Legend(title=None, orient="top", columns=1 if is_narrow else 3)
    layers = [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=3, color=LAW_COLOUR, opacity=0.55)
        .encode(x=at("low"), x2="high:Q", y=y, tooltip=tooltip),
        base.transform_filter("isValid(datum.quarter)")
        .mark_rule(strokeWidth=7, color=LAW_COLOUR, opacity=0.75)
        .encode(x=at("quarter"), x2="three_quarters:Q", y=y, tooltip=tooltip),
        base.mark_tick(thickness=2, size=13, color="#222222").encode(x=at("point"), y=y, tooltip=tooltip),
        observed.encode(
            x=at("observed"),
            y=y,
            tooltip=tooltip,
            color=alt.Color("place:N", scale=alt.Scale(domain=places, range=list(colours)), legend=legend),
            shape=alt.Shape("place:N", scale=alt.Scale(domain=places, range=list(shapes)), legend=legend),
        ),
    ]
    width = NARROW["width"] - 50 if is_narrow else WIDE["width"] - _LABEL_PIXELS + 60
    return alt.layer(*layers).properties(title=group, width=width, height=_ROW * len(frame))


def drawn_forecasts(promised: Sequence[PromisedRun], public: Sequence[PublicForecast]) -> dict[str, list[DrawnForecast]]:
    """Return the rows of the interval chart by group: forecasts signed here, and scored ones of the public record."""
    own = [
        DrawnForecast(
            title=f"{each.ladder}, {format_flops(each.forecast.flops)} FLOPs",
            point=each.forecast.median,
            ends=each.forecast.interval(),
            middle=each.forecast.interval(0.5),
            observed=each.observed,
            state=each.state,
        )
        for each in promised
    ]
    others = [
        DrawnForecast(title=each.run, point=each.forecast, ends=each.interval, observed=each.observed, state=each.state)
        for each in public
        if each.forecast is not None and each.observed is not None
    ]
    groups = {"Signed here": own, "Posted elsewhere, not verified here": others}
    return {group: _named_apart(rows[:FORECASTS_DRAWN]) for group, rows in groups.items() if rows}


def _named_apart(rows: Sequence[DrawnForecast]) -> list[DrawnForecast]:
    """Return the rows with titles of which no two are the same: equal ones would lie over each other."""
    seen: Counter[str] = Counter()
    named = []
    for each in rows:
        title = shortened(each.title, TITLE_CHARACTERS)
        seen[title] += 1
        named.append(replace(each, title=title if seen[title] == 1 else f"{title} ({seen[title]})"))
    return named


HOME_NAME = "home.snippet"
"""The part of the first page that `site/index.md` includes; no page of its own."""
_FOLDER = "home.figures"


def home_files(ladders: Sequence[LadderPage], promised: Sequence[PromisedRun], *, has_intervals: bool) -> dict[str, bytes]:
    """Return the part of the first page that shows results, and its figure of a law, by path.

    `has_intervals` says whether the index has a figure of all forecasts, which the first page shows too.
    """
    fitted, pictures, law = _farthest(ladders), dict[str, Any](), ""
    if fitted:
        ahead = fitted.result, fitted.forecasts, fitted.outcomes
        pictures = {"law": reach_chart(*ahead), "law-narrow": reach_chart(*ahead, is_narrow=True)}
        law = show_wide(f"generated/{_FOLDER}", "law", f"Runs of the ladder {fitted.name}, their law, and what it forecast")
    text = render(
        "home.md.j2",
        fitted=fitted,
        page=f"generated/ladders/{page_name(fitted.name)}.md" if fitted else "",
        law=law,
        intervals=show_wide("generated/index.figures", "intervals", "All forecasts as intervals") if has_intervals else "",
        numbers=[*_reach(fitted), *_settled(promised), *_runs(ladders)],
    )
    return {HOME_NAME: text.encode(), **picture_files(pictures, page_stem="home")}


def _farthest(ladders: Sequence[LadderPage]) -> FittedLadder | None:
    """Return the ladder whose law was tested farthest beyond its runs; without any such, that of the most runs."""
    known = [each.fitted for each in ladders if each.fitted and each.fitted.result.status.may_be_used]
    return max(known, key=lambda each: (_tested_reach(each), len(each.result.frame)), default=None)


def _tested_reach(each: FittedLadder) -> float:
    return max((outcome.flops for outcome in each.outcomes), default=0.0) / each.result.largest_flops


def _reach(fitted: FittedLadder | None) -> list[tuple[str, str]]:
    """Return the farthest forecast that can be compared with a measured loss."""
    if fitted is None or not fitted.outcomes or not fitted.forecasts:
        return []
    ahead = max(fitted.forecasts, key=lambda each: each.flops)
    measured = min(fitted.outcomes, key=lambda each: abs(each.flops - ahead.flops))
    off = ahead.median / measured.loss - 1
    words = f"the error at {ahead.extrapolation:.0f} times the compute of the largest fitted run: forecast {ahead.median:.4f}, "
    return [(f"{off:+.1%}", f"{words}measured {measured.loss:.4f}")]


def _settled(promised: Sequence[PromisedRun]) -> list[tuple[str, str]]:
    held, missed = (sum(each.state == state for each in promised) for state in (State.HELD, State.MISSED))
    if not promised:
        return []
    if not held + missed:
        return [(str(len(promised)), "signed forecasts, none of them settled yet")]
    return [(f"{held} of {held + missed}", "settled forecasts held: the loss lay in the signed 90 % interval")]


def _runs(ladders: Sequence[LadderPage]) -> list[tuple[str, str]]:
    counts = [len(each.fitted.result.frame) for each in ladders if each.fitted]
    if not counts:
        return []
    return [(f"{sum(counts):,}", f"small runs in {len(counts)} {'ladder' if len(counts) == 1 else 'ladders'}, all published")]
