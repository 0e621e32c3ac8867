"""A board to be worked with in the reader's browser: its data as a script beside the page, so that no server is needed.

The program (`templates/speedrun/board.js`) and its style are written beside them at every build, so that they fit each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import resources
from typing import Any

from marin_scaling.speedrun.board import Board
from marin_scaling.speedrun.track import AXES, axis_key

LIVE = '<link rel="stylesheet" href="board.css"><script src="board-data.js"></script><script src="board.js"></script>'
"""What a page ends with that has a board."""

_PROGRAM = ("board.js", "board.css")
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
    found = ",".join(f"{json.dumps(board.track)}:{_document(board, pages)}" for board in boards if board.entries)
    return f"window.marinScalingBoards = {{{found}}};\n".encode()


def _document(board: Board, pages: Mapping[str, str]) -> str:
    """The board's columns, each with its values as short as they can be said, and the pages that have other names."""
    documents = [entry.to_document() for entry in board.entries]
    columns = [_column(column, [_value(document[column.key], column.key) for document in documents]) for column in COLUMNS]
    names = [entry.submission.name for entry in board.entries]
    others = {name: _shown_page(pages[name]) for name in names if _shown_page(pages[name]) != _usual_page(name)}
    return f'{{"count":{len(names)},"columns":[{",".join(columns)}],"pages":{_compact(others)}}}'


def _shown_page(name: str) -> str:
    return f"{name.removesuffix('.md')}.html"


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
