"""Index of forecasts, with calibration and the public record."""

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
from marin_scaling.markdown import Markdown, cell, listed, web_link, without_root
from marin_scaling.preregistration.layout import RECORD_NAME
from marin_scaling.preregistration.public_record import Late, PublicForecast, PublicState, public_totals, read_public_record
from marin_scaling.preregistration.state import State
from marin_scaling.preregistration.track_record import TrackRecord, exact_interval, track_records
from marin_scaling.publish.figures import LAW_COLOUR, POINT_COLOUR, figure, picture_files, show_pictures
from marin_scaling.publish.forecast_page import ForecastPage
from marin_scaling.publish.render import render
from marin_scaling.units import format_flops
from marin_scaling.untrusted_files import is_present

NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
"""Nominal coverages of the central intervals."""

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
    charts = calibration_charts(levels, settled=settled) if settled else {}
    index = render(
        "forecasts.md.j2",
        title="Forecasts against outcomes",
        registry_fault=fault,
        rows=[each.index_row for each in ordered],
        counts=[f"{counts[state]} {state}" for state in _ORDER if counts[state] or state in _ALWAYS_COUNTED],
        records=list(map(_record_row, records)),
        pictures=show_pictures("index", _CAPTIONS) if charts else "",
        shares=[[f"{promised:.0%}", f"{held:.0%}", f"{low:.0%} to {high:.0%}"] for promised, held, low, high in shares],
        **_public_values(root),
    )
    return {"index.md": index.encode(), **picture_files(charts, page_stem="index")}


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
    path, none = root / "preregistrations" / RECORD_NAME, {"public": [], "fault": ""}
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
        "public": [_figures(each) for each in forecasts],
        "caveats": [[cell(each.run), cell(each.metric), cell(each.caveat)] for each in forecasts[:LISTED]],
        "totals": totals,
        **dict(zip(("scored", "opened", "empty"), (totals.states.get(state, 0) for state in PublicState), strict=True)),
        "late": sum(totals.late.values()),
        "part": totals.late.get(Late.PART, 0),
        "errors": [f"{value:.4f} {whose}" for whose, value in errors.items() if value is not None],
    }


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
