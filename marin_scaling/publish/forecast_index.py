"""The index of forecasts, with calibration and the public record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import altair as alt
import pandas as pd

from marin_scaling.errors import MarinScalingError
from marin_scaling.limits import JOINED, LISTED
from marin_scaling.markdown import cell, escape, listed, page, preformatted, table, web_link, without_root
from marin_scaling.preregistration.layout import RECORD_NAME
from marin_scaling.preregistration.public_record import Late, PublicForecast, PublicState, public_totals, read_public_record
from marin_scaling.preregistration.state import State
from marin_scaling.preregistration.track_record import TrackRecord, exact_interval, track_records
from marin_scaling.publish.charts import LAW_COLOUR, POINT_COLOUR, styled
from marin_scaling.publish.forecast_page import ForecastPage
from marin_scaling.units import format_flops
from marin_scaling.untrusted_files import is_present

NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
"""Shares that the central intervals promise."""

_SIZE = {"width": 360, "height": 300}
_BINS = 10


def held_shares(levels: Sequence[float], *, settled: int) -> list[tuple[float, float, float, float]]:
    """For each promised share: it, the share of `settled` forecasts whose value lay inside, and its exact 95 % interval.

    `levels` are where the values fell in their forecasts, 0 to 1; those without one are in `settled` alone.

    >>> [(promised, held) for promised, held, _, _ in held_shares([0.5, 0.93], settled=4)][-2:]
    [(0.9, 0.5), (0.98, 0.5)]
    >>> held_shares([0.5, 0.93], settled=4)[0][:2]
    (0.1, 0.25)
    """
    counted = [(promised, sum(abs(2 * level - 1) <= promised for level in levels)) for promised in NOMINAL]
    return [(promised, inside / settled, *exact_interval(inside, settled)) for promised, inside in counted]


def calibration_charts(levels: Sequence[float], *, settled: int) -> dict[str, Any]:
    """Two charts: "held", promised against held shares, and "levels", where values fell in their forecasts."""
    return {"held": styled(_held(levels, settled=settled)), "levels": styled(_levels(levels))}


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
        x=x, y=alt.Y("low:Q", title="share that it held"), y2="high:Q"
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
        .encode(x=x, x2="high:Q", y=y, y2=alt.Y2Datum(0), tooltip=["low", "high", "values"])
    )
    even = alt.Chart(pd.DataFrame({"values": [len(levels) / _BINS]})).mark_rule(
        color=POINT_COLOUR, strokeDash=[5, 4], strokeWidth=1
    )
    return alt.layer(bars, even.encode(y=y)).properties(title="Observed values by tenths of their forecasts", **_SIZE)


def _whole_ticks(most: int) -> list[int]:
    """Counts to be marked on an axis: at most eleven, all of them whole.

    >>> _whole_ticks(2), _whole_ticks(35)
    ([0, 1, 2], [0, 4, 8, 12, 16, 20, 24, 28, 32])
    """
    return list(range(0, most + 1, 1 + most // _BINS))


_TITLE = "## Beside this registry: imported forecasts"
_WORDS = (
    "**Imported, and not verified here.** These forecasts were posted elsewhere, or signed in a format that is no longer read; "
    "`preregistrations/public-record.csv` has them, and none counts in anyone's record. A forecast that was stated without an "
    "interval has no coverage. The error is forecast minus observed: in nats per token, in per cent of the observed loss, and "
    "in per cent of what lies above the asymptote of the law behind the forecast."
)
_FIGURES = [
    "run and post",
    "posted",
    "FLOPs",
    "forecast",
    "90 % interval",
    "observed",
    "error",
    "of the loss",
    "of the reducible loss",
]
_CAVEATS = ["run", "metric", "caveat"]


def public_section(root: Path) -> str:
    """The forecasts of a repository's public record; empty where it has none, the reason where it cannot be read."""
    path = root / "preregistrations" / RECORD_NAME
    if not is_present(path):
        return ""
    try:
        forecasts = read_public_record(path)
    except MarinScalingError as error:
        return f"{_TITLE}\n\n{preformatted(without_root(str(error), root))}"
    first, rest_in = forecasts[:LISTED], f"preregistrations/{RECORD_NAME}"
    figures = table(_FIGURES, [_figures(each) for each in forecasts], right=[2, 3, 4, 5, 6, 7, 8], most=LISTED, rest_in=rest_in)
    caveats = table(_CAVEATS, [[cell(each.run), cell(each.metric), cell(each.caveat)] for each in first])
    return "\n\n".join([_TITLE, _WORDS, _totals(forecasts), figures, "To be read with these caveats:", caveats])


def _totals(forecasts: Sequence[PublicForecast]) -> str:
    totals = public_totals(forecasts)
    scored, opened, empty = (totals.states.get(state, 0) for state in PublicState)
    late, part = sum(totals.late.values()), totals.late.get(Late.PART, 0)
    counted = (
        f"{totals.registered} registered: {scored + opened} with a number, of which {scored} scored and {opened} open; "
        f"{empty} empty. Known to be posted after their run began: {late}, of which {part} only in part."
    )
    errors = {
        f"over the {scored} scored": totals.mean_absolute_error,
        "over those known to be posted after their run began": totals.mean_absolute_error_late,
        "over the others": totals.mean_absolute_error_of_others,
    }
    means = [f"{value:.4f} {whose}" for whose, value in errors.items() if value is not None]
    return f"{counted} Mean absolute error in nats per token, which is the CRPS of a point: {', '.join(means) or 'none yet'}."


def _figures(forecast: PublicForecast) -> list[str]:
    scores = forecast.scores
    reducible = scores.per_cent_of_reducible_loss if scores else None
    return [
        _links(forecast),
        escape(_posted(forecast)),
        format_flops(forecast.target_flops) if forecast.target_flops else "",
        f"{forecast.forecast:g}" if forecast.forecast else "none",
        _interval(forecast),
        _observed(forecast),
        f"{scores.signed_error:+.4f}" if scores else "",
        f"{scores.per_cent_of_loss:+.2f}&nbsp;%" if scores else "",
        f"{reducible:+.2f}&nbsp;%" if reducible is not None else "",
    ]


def _links(forecast: PublicForecast) -> str:
    """The run's words lead to its post; a further post has a number."""
    first, *further = forecast.registered_where
    posts = [web_link(f"(post {number})", where) for number, where in enumerate(further, 2)]
    return f"{web_link(forecast.run, first)} {listed(posts, separator=' ', most=JOINED)}".rstrip()


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


_ALWAYS_COUNTED = (State.REFUSED, State.OVERDUE, State.MISSED, State.HELD, State.PENDING)
_ORDER = (*_ALWAYS_COUNTED, State.SEALED, State.WITHDRAWN_LATE, State.VOID, State.WITHDRAWN)
_RECORD_WORDS = (
    "A forecast is settled when it is held, missed, overdue or taken back too late; the last two, and a run that diverged, lie "
    "in no interval. Forecasts by one person of nearly the same run (parameters and tokens within 10 %) are a family. A family "
    "counts once, as its worst member: it is settled when one of them lies outside, or when all are settled. In brackets: the "
    "exact 95 % interval of the share; with few forecasts it is wide. Of calibrated forecasts "
    "90 % lie in their 90 % intervals and half in their 50 % intervals, and about as many observed values lie in each fifth of "
    "the forecast distribution, from the lowest to the highest. Skill is 1 for a perfect forecast, 0 for one no better than "
    "the registered baseline."
)

_LISTED_SHARES = (0.5, 0.8, 0.9, 0.98)
_CALIBRATION_WORDS = (
    "All registrants together. Points on the dashed line would be calibrated: below it intervals are too narrow, above it too "
    "wide. A forecast whose run diverged or never came lies in no interval."
)
_FEED = "New forecasts, outcomes and records as an [Atom feed](feed.xml)."


def forecasts_index(pages: Sequence[ForecastPage], *, root: Path) -> dict[str, bytes]:
    """All preregistrations, the records of those who made them, and the public record beside them: `index.md`, its figures."""
    none = "Nothing is preregistered yet: `marin-scale preregister ladders/NAME.yaml` makes the first."
    drawn, files = _calibration(pages)
    own = [_counted(pages), _listed(pages), _records(pages), drawn] if pages else [none]
    return {"index.md": page("Forecasts against outcomes", *own, _FEED, public_section(root)).encode(), **files}


def _counted(pages: Sequence[ForecastPage]) -> str:
    counts = Counter(each.verdict.state for each in pages)
    said = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state] or state in _ALWAYS_COUNTED)
    return f"{len(pages)} preregistered: {said}. None is left out; those that failed come first."


def _listed(pages: Sequence[ForecastPage]) -> str:
    header = ["preregistration", "target FLOPs", "beyond the ladder", "forecast", "90 % interval", "observed", "error", "state"]
    ordered = sorted(pages, key=lambda each: (_ORDER.index(each.verdict.state), each.verdict.id))
    return table(header, [each.index_row for each in ordered], right=[1, 2, 3, 4, 5, 6])


def _records(pages: Sequence[ForecastPage]) -> str:
    header = [
        "registrant",
        "registered",
        "of these",
        "families",
        "settled",
        "in their 90 % intervals",
        "in their 50 % intervals",
        "observed values by fifths",
        "mean skill",
    ]
    rows = [_record_row(record) for record in track_records([each.verdict for each in pages])]
    return f"## The record of each registrant\n\n{table(header, rows, right=[1, 3, 4])}\n\n{_RECORD_WORDS}"


def _calibration(pages: Sequence[ForecastPage]) -> tuple[str, dict[str, bytes]]:
    """The figure of all settled forecasts and its files; nothing where none is settled."""
    records = track_records([each.verdict for each in pages])
    levels, settled = [level for record in records for level in record.pit], sum(record.settled for record in records)
    if not settled:
        return "", {}
    from marin_scaling.publish.charts import chart_bytes

    names = {
        "held": "How often intervals held what came, by the share that they promise",
        "levels": "Where observed values fell in their forecasts",
    }
    charts = calibration_charts(levels, settled=settled)
    files = {f"index.figures/{name}.svg": chart_bytes(chart, suffix=".svg") for name, chart in charts.items()}
    shown = [row for row in held_shares(levels, settled=settled) if row[0] in _LISTED_SHARES]
    rows = [[f"{promised:.0%}", f"{held:.0%}", f"{low:.0%} to {high:.0%}"] for promised, held, low, high in shown]
    pictures = "\n".join(f"![{caption}](index.figures/{name}.svg)" for name, caption in names.items())
    listed = table(["central interval", "held", "exact 95 % interval of the share"], rows, right=[0, 1])
    return f"## Calibration\n\n{pictures}\n\n{listed}\n\n{_CALIBRATION_WORDS}", files


def _record_row(record: TrackRecord) -> list[str]:
    return [
        escape(record.registrant),
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
