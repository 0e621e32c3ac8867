"""The interactive board: its figure, its columns, and the data of both in a script beside the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import altair as alt

from marin_scaling.printable import FORECASTS_DRAWN, joined
from marin_scaling.publish.figures import LAW_COLOUR, asset, chart_spec, figure
from marin_scaling.speedrun.leaderboard import FIRST_AXIS, Board, BoardRow, Projection
from marin_scaling.speedrun.track import AXES, axis_key

_SIZE = {"width": 760, "height": 400}
_MOST = 300  # points, beyond those on the front; the best of them, as more are a cloud
_LABELS, _LABEL = 7, 24  # names across the figure, and how long one may be
_SAME = 1.5  # costs within this factor get room on both sides


def board_chart(board: Board, *, axis: str = FIRST_AXIS) -> Any:
    """One panel: bits per byte against the cost on `axis`; entries whose cost is not known are not in it."""
    rows = [_point(row, cost, axis) for row in board.rows if (cost := AXES[axis](row.submission)) is not None]
    seen = _seen(rows)
    _label(seen)
    chart = board_figure().properties(title=_title(len(rows), len(seen), axis), datasets={"entries": seen})
    chart.encoding.x.title = axis
    costs = [row["cost"] for row in seen]
    if max(costs) < _SAME * min(costs):
        chart.encoding.x.scale.domain = [min(costs) / 1.3, max(costs) * 1.3]
    return chart


def _point(row: BoardRow, cost: float, axis: str) -> dict[str, Any]:
    each = row.submission
    is_front = axis in row.on_front
    return {
        "name": each.name,
        "by": joined(author.name for author in each.authors),
        "cost": cost,
        "loss": each.bits_per_byte,
        "shown": True,
        "front": is_front,
        "place": TIED if axis in row.tied else FRONT if is_front else BEATEN,
        "label": "",
    }


FRONT, TIED, BEATEN = "on the front", "tied at the front", "beaten"
"""Places of an entry. Chance does not tell a tied one from an entry of the front, or from the next one there."""


def _label(rows: Sequence[dict[str, Any]]) -> None:
    """Give entries on the front their names, so far apart that names do not lie over each other."""
    front = sorted((row for row in rows if row["front"]), key=lambda row: float(row["cost"]))
    gap = math.log(front[-1]["cost"] / front[0]["cost"]) / _LABELS if front else 0.0
    last = -math.inf
    for row in front:
        if math.log(row["cost"]) >= last + gap:
            name = row["name"]
            row["label"], last = name if len(name) <= _LABEL else f"…{name[1 - _LABEL :]}", math.log(row["cost"])


def board_figure() -> Any:
    """Return the figure without its data, which the page's script fills in."""
    loss = alt.Y("loss:Q", title="bits per byte", scale=alt.Scale(zero=False))
    cost = alt.X("cost:Q", scale=alt.Scale(type="log", nice=False, padding=16), axis=alt.Axis(format=".3~e"))
    entries = alt.Chart(alt.NamedData("entries"))
    steps = entries.mark_line(interpolate="step-after", color=LAW_COLOUR, strokeWidth=1.4).transform_filter("datum.front")
    places = [FRONT, TIED, BEATEN]
    points = entries.mark_point(size=52, filled=True).encode(
        opacity=alt.condition("datum.shown", alt.value(0.95), alt.value(0.15)),
        tooltip=[*(f"{name}:N" for name in ("name", "by", "place")), "cost:Q", "loss:Q"],
        color=alt.Color("place:N", title=None, scale=alt.Scale(domain=places, range=[LAW_COLOUR, "#B45F00", "#8A8A8A"])),
        shape=alt.Shape("place:N", title=None, scale=alt.Scale(domain=places, range=["circle", "diamond", "circle"])),
    )
    labels = entries.mark_text(align="left", baseline="bottom", dx=5, dy=-5, limit=150, fontSize=10.5, color="#222222")
    drawn = alt.layer(
        steps,
        points.transform_filter("!datum.front"),
        points.transform_filter("datum.front").properties(name="front"),
        labels.transform_filter("datum.label && datum.shown").encode(text="label:N"),
    )
    return figure(drawn.encode(x=cost, y=loss).properties(**_SIZE), "Bits per byte of each entry by its cost, with the front")


def scaling_chart(groups: Sequence[Projection]) -> Any:
    """Return the forecast of each scaling group with its 90 % interval, the best first."""
    rows = [
        {"group": each.group, "loss": ahead.median, "low": low, "high": high}
        for each in groups[:FORECASTS_DRAWN]
        if (ahead := each.forecast)
        for low, high in [ahead.interval()]
    ]
    order = [row["group"] for row in rows]
    y = alt.Y("group:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, minExtent=260, ticks=False, domain=False))
    base = alt.Chart(alt.Data(values=rows)).encode(y=y, tooltip=["group:N", "loss:Q", "low:Q", "high:Q"])
    x = {"title": "forecast, bits per byte", "scale": alt.Scale(zero=False)}
    drawn = alt.layer(
        base.mark_rule(strokeWidth=3, color=LAW_COLOUR, opacity=0.55).encode(x=alt.X("low:Q", **x), x2="high:Q"),
        base.mark_point(size=50, filled=True, color=LAW_COLOUR, opacity=1).encode(x=alt.X("loss:Q", **x)),
    )
    return figure(drawn.properties(width=500, height=21 * len(rows)), "Forecast of each scaling group, with its 90 % interval")


def _title(count: int, drawn: int, axis: str) -> str:
    cut = f"; the {drawn:,} best of {count:,}" if drawn < count else ""
    return f"Loss by {axis}; no entry is below the steps{cut}"


def _seen(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that are drawn: all on the front, and of the others the best."""
    beaten = sorted((row for row in rows if not row["front"]), key=lambda row: float(row["loss"]))
    return [*beaten[:_MOST], *(row for row in rows if row["front"])]


PROGRAM = ("board.js", "board.css")
_TO_THE_MINUTE = len("2026-11-23T05:53")
_DIGITS, _LOSS_DIGITS = 6, 9  # of numbers: more than are shown; the files beside the page have all


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: its name in filters and addresses, its heading, how its values are shown, and whether it is an axis of cost."""

    key: str
    label: str
    kind: str
    axis: bool = False
    hidden: bool = False


_COSTS = {
    "parameters": "count",
    "trained tokens": "count",
    "seconds": "number",
    "US dollars": "number",
    "chip-seconds": "number",
}
_SHOWN_COSTS = ("model FLOPs", "parameters", "trained tokens", "chip-seconds")
COLUMNS: tuple[Column, ...] = (
    Column(key="name", label="submission", kind="text"),
    Column(key="authors", label="by", kind="text"),
    Column(key="bits_per_byte", label="bits per byte", kind="loss"),
    Column(key="standard_error", label="standard error", kind="loss", hidden=True),
    Column(key="seeds", label="seeds", kind="number", hidden=True),
    *(
        Column(
            key=axis_key(axis),
            label=axis,
            kind=_COSTS.get(axis, "power"),
            axis=True,
            hidden=axis not in _SHOWN_COSTS,
        )
        for axis in AXES
    ),
    Column(key="mfu", label="MFU", kind="number"),
    Column(key="epochs", label="epochs", kind="number", hidden=True),
    Column(key="hardware", label="hardware", kind="text", hidden=True),
    Column(key="finished_at", label="ended", kind="text", hidden=True),
    Column(key="verification", label="verification", kind="text", hidden=True),
    Column(key="place", label="place", kind="text"),
    Column(key="on_front", label="on the front of", kind="text", hidden=True),
    Column(key="tied", label="tied on", kind="text", hidden=True),
    Column(key="beaten_by", label="beaten by", kind="text", hidden=True),
    Column(key="record", label="record", kind="yes"),
    Column(key="findings", label="findings", kind="text", hidden=True),
)


def live_board(boards: Sequence[Board], *, pages: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files beside a page: data, program and style; `pages` are the pages of submissions, by name.

    A page is a Markdown page of the site or an address on the web.
    """
    program = {each: asset(f"speedrun/{each}") for each in PROGRAM}
    return {"board-data.js": _script(boards, pages), **program}


def _script(boards: Sequence[Board], pages: Mapping[str, str]) -> bytes:
    found = ",".join(f"{json.dumps(board.track)}:{_document(board, pages)}" for board in boards if board.rows)
    spec = json.dumps(chart_spec(board_figure()), separators=(",", ":"))
    return f"window.marinScalingBoards = {{{found}}};\nwindow.marinScalingFigure = {spec};\n".encode()


def row_values(row: BoardRow) -> dict[str, Any]:
    """Return what the interactive board knows of an entry: its document and its place on the first axis."""
    places = {"front": FIRST_AXIS in row.on_front, "tied": FIRST_AXIS in row.tied}
    document: dict[str, Any] = row.to_document()
    return document | {"place": ", ".join(word for word, holds in places.items() if holds)}


def _document(board: Board, pages: Mapping[str, str]) -> str:
    """Return the board's columns, each with its values as short as they can be said, and the pages that have other names."""
    documents = [row_values(row) for row in board.rows]
    columns = [_column(column, [_value(document[column.key], column.key) for document in documents]) for column in COLUMNS]
    names = [row.submission.name for row in board.rows]
    others = {name: _shown_page(pages[name]) for name in names if _shown_page(pages[name]) != _usual_page(name)}
    return f'{{"count":{len(names)},"columns":[{",".join(columns)}],"pages":{_compact(others)}}}'


def _shown_page(name: str) -> str:
    return name if name.startswith(("https://", "http://")) else f"{name.removesuffix('.md')}.html"


def _usual_page(name: str) -> str:
    return f"{name.replace('/', '~')}.html"


def _column(column: Column, values: Sequence[Any]) -> str:
    """One value for all, values by their number where most come again, else the values.

    A column in which no entry says anything is not shown until it is asked for.
    """
    is_empty = all(value in (None, "", False) for value in values)
    head = _compact(asdict(replace(column, hidden=column.hidden or is_empty)))[:-1]
    words, said = list(dict.fromkeys(values)), partial(_said, digits=_LOSS_DIGITS if column.kind == "loss" else _DIGITS)
    if len(words) == 1:
        return f'{head},"same":{said(words[0])}}}'
    if 2 * len(words) <= len(values):
        places = {word: place for place, word in enumerate(words)}
        return f'{head},"words":[{",".join(map(said, words))}],"at":{_compact([places[value] for value in values])}}}'
    return f'{head},"values":[{",".join(map(said, values))}]}}'


def _said(value: Any, *, digits: int) -> str:
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else "null"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _value(value: Any, key: str) -> Any:
    if key == "finished_at" and value is not None:
        return str(value)[:_TO_THE_MINUTE].replace("T", " ")
    return ", ".join(value) if isinstance(value, list) else value
