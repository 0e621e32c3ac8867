"""Draw how often the intervals of forecasts held what came: of calibrated forecasts, as often as each says.

From where observed values fell in their forecast distributions. Leaves nothing out: a settled forecast without a value (its run
diverged, or never came) lies in no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from marin_scaling.check.track_record import exact_interval
from marin_scaling.publish.charts import LAW_COLOUR, POINT_COLOUR, styled

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
