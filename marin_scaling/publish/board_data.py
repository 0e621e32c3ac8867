"""A board to be worked with in the reader's browser: its data as a script beside the page, so that no server is needed.

The program (`templates/speedrun/board.js`) and its style are written beside them at every build, so that they fit each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any

from marin_scaling.speedrun.board import Board, Entry
from marin_scaling.speedrun.track import AXES, axis_key

LIVE = '<link rel="stylesheet" href="board.css"><script src="board-data.js"></script><script src="board.js"></script>'
"""What a page ends with that has a board."""

_PROGRAM = ("board.js", "board.css")


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
    Column(key="on_front", label="on the front of", kind="text"),
    Column(key="beaten_by", label="beaten by", kind="text", hidden=True),
    Column(key="record", label="record", kind="yes"),
    Column(key="findings", label="findings", kind="text", hidden=True),
)


def live_board(boards: Sequence[Board], *, pages: Mapping[str, str]) -> dict[str, bytes]:
    """The files beside the page: data, program and style; `pages` are the Markdown pages of submissions, by name."""
    templates = resources.files("marin_scaling.publish").joinpath("templates", "speedrun")
    program = {name: templates.joinpath(name).read_bytes() for name in _PROGRAM}
    return {"board-data.js": _script(boards, pages), **program}


def _script(boards: Sequence[Board], pages: Mapping[str, str]) -> bytes:
    found = {board.track: _document(board, pages) for board in boards if board.entries}
    return f"window.marinScalingBoards = {json.dumps(found, separators=(',', ':'), allow_nan=False)};\n".encode()


def _document(board: Board, pages: Mapping[str, str]) -> dict[str, Any]:
    rows = [_row(entry) for entry in board.entries]
    shown = {entry.submission.name: f"{pages[entry.submission.name].removesuffix('.md')}.html" for entry in board.entries}
    columns = [replace(each, hidden=each.hidden or _is_empty(rows, place)) for place, each in enumerate(COLUMNS)]
    return {"columns": [asdict(column) for column in columns], "rows": rows, "pages": shown}


def _is_empty(rows: Sequence[Sequence[Any]], place: int) -> bool:
    """Whether no entry says anything in a column: then it is not shown until it is asked for."""
    return all(row[place] in (None, "", False) for row in rows)


def _row(entry: Entry) -> list[Any]:
    document = entry.to_document()
    return [_value(document[column.key]) for column in COLUMNS]


def _value(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value
