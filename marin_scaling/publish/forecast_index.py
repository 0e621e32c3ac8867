"""Index of forecasts, with calibration and the public record, and the results for the first page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import altair as alt
import pandas as pd

from marin_scaling.errors import MarinScalingError
from marin_scaling.fitting.fit import FitResult
from marin_scaling.forecast.forecast import Forecast
from marin_scaling.markdown import Markdown, cell, listed, page_name, web_link, without_root
from marin_scaling.preregistration.imported import REGISTRIES, ImportedRegistry, imported_registries
from marin_scaling.preregistration.layout import RECORD_NAME
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.public_record import Late, PublicForecast, PublicState, public_totals, read_public_record
from marin_scaling.preregistration.track_record import (
    ComparedForecast,
    TrackRecord,
    exact_interval,
    several_of_one_run,
    track_records,
)
from marin_scaling.printable import FORECASTS_DRAWN, JOINED, LISTED, RUNS_DRAWN, TITLE_CHARACTERS, shortened
from marin_scaling.publish.charts import CROSS, NARROW, NARROW_ROOM, WIDE, MeasuredOutcome, drawn_runs, law_panel
from marin_scaling.publish.figures import (
    LAW_COLOUR,
    OUTCOME_COLOUR,
    POINT_COLOUR,
    figure,
    figure_files,
    picture_files,
    render,
    show_pictures,
    show_wide,
    state_chip,
    tooltips,
)
from marin_scaling.publish.forecast_page import ForecastPage
from marin_scaling.publish.ladder_page import FittedLadder, LadderPage, PromisedRun, observed_outcomes
from marin_scaling.units import format_flops
from marin_scaling.untrusted_files import is_present

NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
"""Nominal coverages of the central intervals."""

CALIBRATED_FROM = 8
"""Settled forecasts that a calibration plot takes: of fewer its intervals span nearly everything."""

INTERVALS = "index.figures/intervals.svg"
"""The figure of all forecasts, where there is one."""

_SIZE = {"width": 360, "height": 300}
_BINS = 10


def held_shares(levels: Sequence[float], *, settled: int) -> list[tuple[float, float, float, float]]:
    """Return, for each nominal coverage, the measured coverage of `settled` forecasts and its exact 95 % interval.

    `levels` are the PIT values, 0 to 1. Settled forecasts without one count in `settled` only.

    >>> [(promised, held) for promised, held, _, _ in held_shares([0.5, 0.93], settled=4)][-2:]
    [(0.9, 0.5), (0.98, 0.5)]
    >>> held_shares([0.5, 0.93], settled=4)[0][:2]
    (0.1, 0.25)
    """
    counted = [(promised, sum(abs(2 * level - 1) <= promised for level in levels)) for promised in NOMINAL]
    return [(promised, inside / settled, *exact_interval(inside, settled)) for promised, inside in counted]


def calibration_charts(levels: Sequence[float], *, settled: int) -> dict[str, Any]:
    """Return two charts: "held", nominal against measured coverage, and "levels", the PIT histogram."""
    charts = {"held": _held(levels, settled=settled), "levels": _levels(levels)}
    return {name: figure(chart, _CAPTIONS[name]) for name, chart in charts.items()}


def _held(levels: Sequence[float], *, settled: int) -> Any:
    rows = pd.DataFrame(held_shares(levels, settled=settled), columns=["promised", "held", "low", "high"])
    axis = alt.Axis(format="%")
    x = alt.X("promised:Q", title="share that the central interval promises", scale=alt.Scale(domain=[0, 1]), axis=axis)
    y = alt.Y("held:Q", title="share that it held", scale=alt.Scale(domain=[0, 1]), axis=axis)
    ideal = alt.Chart(pd.DataFrame({"promised": [0.0, 1.0], "held": [0.0, 1.0]})).mark_line(
        color=POINT_COLOUR, strokeDash=[5, 4], strokeWidth=1
    )
    base = alt.Chart(rows)
    sure = base.mark_rule(color=LAW_COLOUR, strokeWidth=1.6).encode(
        x=x, y=alt.Y("low:Q", title="share that it held"), y2=alt.Y2("high:Q")
    )
    points = base.mark_point(size=60, filled=True, color=LAW_COLOUR, opacity=1).encode(
        x=x, y=y, tooltip=[alt.Tooltip(name, format=".0%") for name in rows.columns]
    )
    title = f"Promised and held, {settled} settled; exact 95 % intervals"
    return alt.layer(ideal.encode(x=x, y=y), sure, points).properties(title=title, **_SIZE)


def _levels(levels: Sequence[float]) -> Any:
    counts = [0] * _BINS
    for level in levels:
        counts[min(int(level * _BINS), _BINS - 1)] += 1
    rows = pd.DataFrame({"low": [bin / _BINS for bin in range(_BINS)], "values": counts})
    rows["high"] = rows["low"] + 1 / _BINS
    x = alt.X("low:Q", title="where the value fell in its forecast", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    y = alt.Y("values:Q", title="values", axis=alt.Axis(values=_whole_ticks(max(counts)), format="d"))
    bars = (
        alt.Chart(rows)
        .mark_bar(color=LAW_COLOUR, stroke="white")
        .encode(x=x, x2=alt.X2("high:Q"), y=y, y2=alt.Y2Datum(0), tooltip=tooltips("low", "high", "values"))
    )
    even = alt.Chart(pd.DataFrame({"values": [len(levels) / _BINS]})).mark_rule(
        color=POINT_COLOUR, strokeDash=[5, 4], strokeWidth=1
    )
    return alt.layer(bars, even.encode(y=y)).properties(title="Observed values by tenths of their forecasts", **_SIZE)


def _whole_ticks(most: int) -> list[int]:
    """Return at most eleven whole-number ticks.

    >>> _whole_ticks(2), _whole_ticks(35)
    ([0, 1, 2], [0, 4, 8, 12, 16, 20, 24, 28, 32])
    """
    return list(range(0, most + 1, 1 + most // _BINS))


_ALWAYS_COUNTED = (State.REFUSED, State.OVERDUE, State.MISSED, State.HELD, State.PENDING)
_ORDER = (*_ALWAYS_COUNTED, State.SEALED, State.WITHDRAWN_LATE, State.VOID, State.WITHDRAWN)
_LISTED_SHARES = (0.5, 0.8, 0.9, 0.98)
_CAPTIONS = {
    "held": "How often intervals held what came, by the share that they promise",
    "levels": "Where observed values fell in their forecasts",
}


def forecasts_index(pages: Sequence[ForecastPage], *, root: Path, fault: str = "") -> dict[str, bytes]:
    """Return `index.md` and its figures: all preregistrations, their registrants' records and the public record.

    `fault` is the reason why the registry as a whole is refused; the page starts with it.
    """
    counts = Counter(each.verdict.state for each in pages)
    ordered = sorted(pages, key=lambda each: (_ORDER.index(each.verdict.state), each.verdict.id))
    records = track_records([each.verdict for each in pages])
    levels, settled = [level for record in records for level in record.pit], sum(record.settled for record in records)
    shares = [row for row in held_shares(levels, settled=settled) if row[0] in _LISTED_SHARES] if settled else []
    is_many = settled >= CALIBRATED_FROM
    charts = calibration_charts(levels, settled=settled) if is_many else {}
    values = _public_values(root) | _imported_values(root, [each.verdict for each in pages])
    groups = drawn_forecasts([each.promised for each in ordered if each.promised], values.pop("forecasts"))
    names = {"intervals": False, "intervals-narrow": True} if groups else {}
    intervals = {name: interval_chart(groups, is_narrow=is_narrow) for name, is_narrow in names.items()}
    index = render(
        "forecasts.md.j2",
        title="Forecasts against outcomes",
        registry_fault=fault,
        rows=[each.index_row for each in ordered],
        counts=[f"{counts[state]} {state}" for state in _ORDER if counts[state] or state in _ALWAYS_COUNTED],
        records=list(map(_record_row, records)),
        intervals=show_wide("index.figures", "intervals", _ALL) if intervals else "",
        pictures=show_pictures("index", _CAPTIONS) if charts else "",
        settled=settled,
        calibrated_from=CALIBRATED_FROM,
        shares=[[f"{promised:.0%}", f"{held:.0%}", f"{low:.0%} to {high:.0%}"] for promised, held, low, high in shares],
        **values,
    )
    files = {"index.md": index.encode(), **picture_files(charts, page_stem="index")}
    if intervals:
        files |= figure_files(intervals, intervals["intervals"], page_stem="index", page="index", title=_ALL)
    return files


_ALL = "All forecasts: 90 % intervals around the median, and measured losses"


def _record_row(record: TrackRecord) -> list[str]:
    return [
        record.registrant,
        str(sum(record.counts.values())),
        record.states,
        str(record.families),
        str(record.settled),
        _coverage(record.inside_90, record.settled),
        _coverage(record.inside_50, record.settled),
        " ".join(map(str, record.pit_histogram)) if record.pit else "",
        f"{mean(record.skills):+.2f} (of {len(record.skills)})" if record.skills else "no baseline",
    ]


def _coverage(inside: int, settled: int) -> str:
    if not settled:
        return ""
    low, high = exact_interval(inside, settled)
    return f"{inside} of {settled}: {inside / settled:.0%} ({low:.0%} to {high:.0%})"


def _public_values(root: Path) -> dict[str, Any]:
    """Return the template's values for the public record; `fault` is the reason if it cannot be read."""
    path, none = root / "preregistrations" / RECORD_NAME, {"public": [], "fault": "", "forecasts": []}
    if not is_present(path):
        return none
    try:
        forecasts = read_public_record(path)
    except MarinScalingError as error:
        return none | {"fault": without_root(str(error), root)}
    totals = public_totals(forecasts)
    errors = {
        f"over the {totals.states.get(PublicState.SCORED, 0)} scored": totals.mean_absolute_error,
        "over those known to be posted after their run began": totals.mean_absolute_error_late,
        "over the others": totals.mean_absolute_error_of_others,
    }
    return none | {
        "forecasts": forecasts,
        "public": [_figures(each) for each in forecasts],
        "caveats": [[cell(each.run), cell(each.metric), cell(each.caveat)] for each in forecasts[:LISTED]],
        "totals": totals,
        **dict(zip(("scored", "opened", "empty"), (totals.states.get(state, 0) for state in PublicState), strict=True)),
        "late": sum(totals.late.values()),
        "part": totals.late.get(Late.PART, 0),
        "errors": [f"{value:.4f} {whose}" for whose, value in errors.items() if value is not None],
    }


def _imported_values(root: Path, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the template's values for imported registries, and for runs with several forecasts."""
    try:
        imported, fault = imported_registries(root / REGISTRIES), ""
    except MarinScalingError as error:
        imported, fault = [], without_root(str(error), root)
    several = several_of_one_run(root / "preregistrations", verdicts, imported)
    return {
        "imported": [row for each in imported for row in _imported_rows(each)],
        "import_fault": fault,
        "several": [_compared_row(each) for each in several],
    }


def _imported_rows(registry: ImportedRegistry) -> list[list[str]]:
    place, rows = registry.source.address, []
    source = web_link(registry.name, place) if place.startswith("https://") else cell(f"{registry.name}: {place}")
    for verdict in registry.verdicts:
        observed = (verdict.outcome or {}).get("value")
        rows.append(
            [
                Markdown(f"{source} at `{registry.source.commit[:12]}`"),
                cell(verdict.id),
                cell(verdict.registrant or ""),
                "" if observed is None else f"{observed:.4f}",
                state_chip(verdict.state),
            ]
        )
    return rows


def _compared_row(row: ComparedForecast) -> list[str]:
    return [
        cell(row.run),
        cell(row.registrant),
        cell(row.registry),
        cell(row.law),
        f"{row.forecast:.4f}",
        f"{row.low:.4f} to {row.high:.4f}",
        "" if row.observed is None else f"{row.observed:.4f} {row.unit}",
        "" if row.crps is None else f"{row.crps:.4f}",
        "" if row.skill is None else f"{row.skill:+.2f}",
        cell(row.note),
    ]


def _figures(forecast: PublicForecast) -> list[str]:
    scores = forecast.scores
    reducible = scores.per_cent_of_reducible_loss if scores else None
    first, *further = forecast.registered_where
    posts = [web_link(f"(post {number})", where) for number, where in enumerate(further, 2)]
    return [
        Markdown(f"{web_link(forecast.run, first)} {listed(posts, separator=' ', most=JOINED)}".rstrip()),
        _posted(forecast),
        format_flops(forecast.target_flops) if forecast.target_flops else "",
        f"{forecast.forecast:g}" if forecast.forecast else "none",
        _interval(forecast),
        _observed(forecast),
        f"{scores.signed_error:+.4f}" if scores else "",
        Markdown(f"{scores.per_cent_of_loss:+.2f}&nbsp;%" if scores else ""),
        Markdown(f"{reducible:+.2f}&nbsp;%" if reducible is not None else ""),
    ]


def _posted(forecast: PublicForecast) -> str:
    when = forecast.registered_date.replace("/", " and ") or "no date"
    return f"{when}, {forecast.late}" if forecast.late else when


def _interval(forecast: PublicForecast) -> str:
    if forecast.interval is None:
        return "none"
    verdict = {None: "", True: ", held", False: ", missed"}[forecast.held]
    return f"{forecast.interval[0]:g} to {forecast.interval[1]:g}{verdict}"


def _observed(forecast: PublicForecast) -> str:
    if forecast.state is PublicState.SCORED:
        return f"{forecast.observed:g}"
    return "no value yet" if forecast.state is PublicState.OPEN else ""


HELD_COLOUR = "#007A5E"
"""Okabe and Ito's green, darker: a mark on white needs a contrast of three."""
_ROW = 21  # pixels
_WHOLE_PER_CENT = 0.08  # width of an axis whose ticks need no decimals
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
    """Return a panel for each group: intervals and observed values, each in per cent of its forecast's median."""
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
    "observed, outside": (OUTCOME_COLOUR, CROSS),
    "observed, no interval stated": ("#595959", "diamond"),
}


def _panel(group: str, rows: Sequence[Mapping[str, Any]], *, x: Mapping[str, Any], is_narrow: bool) -> Any:
    frame = pd.DataFrame(rows)
    labels = _NARROW_LABEL_PIXELS if is_narrow else _LABEL_PIXELS
    axis = alt.Axis(labelLimit=labels, minExtent=labels, maxExtent=labels, title=None, ticks=False, domain=False, grid=False)
    y = alt.Y("title:N", sort=[row["title"] for row in rows], axis=axis)
    title = "loss relative to the forecast's median"
    low, high = x["domain"]
    ticks = alt.Axis(format="+.0%" if high - low > _WHOLE_PER_CENT else "+.1%", title=title, tickCount=4 if is_narrow else 8)

    def at(name: str) -> Any:
        return alt.X(f"{name}:Q", scale=alt.Scale(**x), axis=ticks)

    base = alt.Chart(frame)
    tooltip = tooltips("title", "forecast", "interval", "measured", "state")
    places = list(_PLACES)
    colours, shapes = zip(*_PLACES.values(), strict=True)
    observed = base.transform_filter("isValid(datum.observed)").mark_point(size=64, strokeWidth=2.4, opacity=1, filled=False)
    legend = alt.Legend(title=None, orient="top", columns=1 if is_narrow else 3)
    layers = [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=3, color=LAW_COLOUR, opacity=0.55)
        .encode(x=at("low"), x2=alt.X2("high:Q"), y=y, tooltip=tooltip),
        base.transform_filter("isValid(datum.quarter)")
        .mark_rule(strokeWidth=7, color=LAW_COLOUR, opacity=0.75)
        .encode(x=at("quarter"), x2=alt.X2("three_quarters:Q"), y=y, tooltip=tooltip),
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
    known = [_with_promised(each.fitted, promised) for each in ladders if each.fitted]
    fitted, pictures, law = _farthest(known), dict[str, Any](), ""
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


def _with_promised(fitted: FittedLadder, promised: Sequence[PromisedRun]) -> FittedLadder:
    """Return a ladder with the last forecast that was signed from it, and what was observed."""
    latest = [each for each in promised if each.ladder == fitted.name][-1:]
    forecasts = [*fitted.forecasts, *(each.forecast for each in latest)]
    return replace(fitted, forecasts=forecasts, outcomes=[*fitted.outcomes, *observed_outcomes(latest)])


def _farthest(ladders: Sequence[FittedLadder]) -> FittedLadder | None:
    """Return the ladder whose law was tested farthest beyond its runs; without any such, that of the most runs."""
    usable = [each for each in ladders if each.result.status.may_be_used]

    def reach(each: FittedLadder) -> float:
        return max((outcome.flops for outcome in each.outcomes), default=0.0) / each.result.largest_flops

    return max(usable, key=lambda each: (reach(each), len(each.result.frame)), default=None)


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
        return [(str(len(promised)), f"signed {'forecast' if len(promised) == 1 else 'forecasts'}, none settled yet")]
    return [(f"{held} of {held + missed}", "settled forecasts held: the loss lay in the signed 90 % interval")]


def _runs(ladders: Sequence[LadderPage]) -> list[tuple[str, str]]:
    counts = [len(each.fitted.result.frame) for each in ladders if each.fitted]
    if not counts:
        return []
    return [(f"{sum(counts):,}", f"small runs in {len(counts)} {'ladder' if len(counts) == 1 else 'ladders'}, all published")]
