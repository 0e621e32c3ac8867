"""Draw a board: every entry by what it cost and how good it is, and the front that nobody beats as steps."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from marin_scaling.publish.charts import LAW_COLOUR, POINT_COLOUR, styled
from marin_scaling.speedrun.board import FIRST_AXIS, Board
from marin_scaling.speedrun.track import AXES

_SIZE = {"width": 620, "height": 360}
_MOST = 300  # points, beyond those on the front; the best of them, as more are a cloud


def board_chart(board: Board, *, axis: str = FIRST_AXIS) -> Any:
    """One panel: bits per byte against the cost on `axis`; entries whose cost is not known are not in it."""
    rows = pd.DataFrame(
        [
            {
                "name": entry.submission.name,
                "cost": cost,
                "loss": entry.submission.bits_per_byte,
                "place": "on the front" if axis in entry.on_front else "beaten",
            }
            for entry in board.entries
            if (cost := AXES[axis](entry.submission)) is not None
        ]
    )
    cost = alt.X("cost:Q", title=axis, scale=alt.Scale(type="log", nice=False, padding=12), axis=alt.Axis(format=".1~e"))
    loss = alt.Y("loss:Q", title="bits per byte", scale=alt.Scale(zero=False))
    colour = alt.Color(
        "place:N",
        title=None,
        scale=alt.Scale(domain=["on the front", "beaten"], range=[LAW_COLOUR, POINT_COLOUR]),
        legend=alt.Legend(orient="top-right"),
    )
    every = alt.Chart(_seen(rows)).mark_circle(size=44, opacity=0.85)
    standing = rows[rows["place"] == "on the front"].sort_values("cost")
    steps = alt.Chart(standing).mark_line(interpolate="step-after", color=LAW_COLOUR, strokeWidth=1.4)
    layers = [
        steps.encode(x=cost, y=loss),
        every.encode(x=cost, y=loss, color=colour, tooltip=["name", "cost", "loss", "place"]),
    ]
    return styled(alt.layer(*layers).properties(title=_title(len(rows), len(_seen(rows)), axis), **_SIZE))


def _title(count: int, drawn: int, axis: str) -> str:
    cut = f"; the {drawn:,} best of {count:,}" if drawn < count else ""
    return f"What {axis} bought; the steps are what nobody beats{cut}"


def _seen(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that are drawn: all on the front, and of the others the best."""
    beaten = rows[rows["place"] == "beaten"]
    return rows.drop(index=beaten.sort_values("loss").index[_MOST:])
