"""Pages of the speedrun: boards, submissions, and the data of the interactive board."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt

from marin_scaling.errors import MarinScalingError
from marin_scaling.findings import Severity
from marin_scaling.markdown import Markdown, escape, link, malformed_section, without_root
from marin_scaling.printable import joined
from marin_scaling.publish.figures import LAW_COLOUR, POINT_COLOUR, chart_spec, figure, figure_files, show_figure
from marin_scaling.publish.render import asset, render
from marin_scaling.publish.submission_page import pages_of, recorded_curves, submission_page
from marin_scaling.speedrun.checks import Validated
from marin_scaling.speedrun.judge import Judged, judge_all
from marin_scaling.speedrun.leaderboard import FIRST_AXIS, Board, BoardRow, Record, boards
from marin_scaling.speedrun.scaling import HeldOut, Projection, projections
from marin_scaling.speedrun.submission import Submitted
from marin_scaling.speedrun.track import AXES, Track, axis_key
from marin_scaling.units import format_count, format_flops

SUBMISSIONS_DIR = "speedruns"
_FOLDER = "speedrun"
_SHOWN = 100  # rows in the page itself
_SIZE = {"width": 620, "height": 360}
_MOST = 300  # points drawn besides the front: the best ones


def board_chart(board: Board, *, axis: str = FIRST_AXIS) -> Any:
    """Return the chart of bits per byte against the cost on `axis`. Entries whose cost is unknown are left out."""
    rows = [
        {
            "name": row.submission.name,
            "cost": cost,
            "loss": row.submission.bits_per_byte,
            "shown": True,
            "front": axis in row.on_front,
        }
        for row in board.rows
        if (cost := AXES[axis](row.submission)) is not None
    ]
    seen = _seen(rows)
    chart = board_figure().properties(title=_title(len(rows), len(seen), axis), datasets={"entries": seen})
    chart.encoding.x.title = axis
    return chart


def board_figure() -> Any:
    """Return the figure without data: the page's script adds name, cost, loss, front and shown (by the filter)."""
    loss = alt.Y("loss:Q", title="bits per byte", scale=alt.Scale(zero=False))
    cost = alt.X("cost:Q", scale=alt.Scale(type="log", nice=False, padding=12), axis=alt.Axis(format=".3~e"))
    entries = alt.Chart(alt.NamedData("entries"))
    steps = entries.mark_line(interpolate="step-after", color=LAW_COLOUR, strokeWidth=1.4).transform_filter("datum.front")
    points = entries.mark_circle(size=44).encode(
        opacity=alt.condition("datum.shown", alt.value(0.9), alt.value(0.15)), tooltip=["name:N", "cost:Q", "loss:Q"]
    )
    scale = alt.Scale(domain=["on the front", "beaten"], range=[LAW_COLOUR, POINT_COLOUR])
    points = points.transform_calculate(place="datum.front ? 'on the front' : 'beaten'").encode(
        color=alt.Color("place:N", title=None, scale=scale)
    )
    beaten = points.transform_filter("!datum.front")
    front = points.transform_filter("datum.front").properties(name="front")
    drawn = alt.layer(steps, beaten, front).encode(x=cost, y=loss)
    return figure(drawn.properties(**_SIZE), "Bits per byte of each submission by its cost, with the Pareto front")


def _title(count: int, drawn: int, axis: str) -> str:
    cut = f"; the {drawn:,} best of {count:,}" if drawn < count else ""
    return f"Loss by {axis}, with the Pareto front as steps{cut}"


def _seen(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows to draw: all on the front, and the best of the others."""
    beaten = sorted((row for row in rows if not row["front"]), key=lambda row: float(row["loss"]))
    return [*beaten[:_MOST], *(row for row in rows if row["front"])]


_PROGRAM = ("board.js", "board.css")
_TO_THE_MINUTE = len("2026-11-23T05:53")
_DIGITS, _LOSS_DIGITS = 6, 9  # more than the page shows; the files beside it have all digits


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of the board: key in filters and addresses, heading, kind of value, and whether it is a cost axis."""

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
    Column(key="tied", label="tied on", kind="text"),
    Column(key="beaten_by", label="beaten by", kind="text", hidden=True),
    Column(key="record", label="record", kind="yes"),
    Column(key="findings", label="findings", kind="text", hidden=True),
)


def live_board(boards: Sequence[Board], *, pages: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files beside the page: data, program and style; `pages` maps submission names to Markdown pages."""
    program = {name: asset(f"speedrun/{name}") for name in _PROGRAM}
    return {"board-data.js": _script(boards, pages), **program}


def _script(boards: Sequence[Board], pages: Mapping[str, str]) -> bytes:
    found = ",".join(f"{json.dumps(board.track)}:{_document(board, pages)}" for board in boards if board.rows)
    spec = json.dumps(chart_spec(board_figure()), separators=(",", ":"))
    return f"window.marinScalingBoards = {{{found}}};\nwindow.marinScalingFigure = {spec};\n".encode()


def _document(board: Board, pages: Mapping[str, str]) -> str:
    """Return the board's columns as compact JSON, with the pages whose file name differs from the usual one."""
    documents = [row.to_document() for row in board.rows]
    columns = [_column(column, [_value(document[column.key], column.key) for document in documents]) for column in COLUMNS]
    names = [row.submission.name for row in board.rows]
    others = {name: _shown_page(pages[name]) for name in names if _shown_page(pages[name]) != _usual_page(name)}
    return f'{{"count":{len(names)},"columns":[{",".join(columns)}],"pages":{_compact(others)}}}'


def _shown_page(name: str) -> str:
    return f"{name.removesuffix('.md')}.html"


def _usual_page(name: str) -> str:
    return f"{name.replace('/', '~')}.html"


def _column(column: Column, values: Sequence[Any]) -> str:
    """Return a column as JSON: one value if all are equal, indices into distinct values if most repeat, else all values.

    A column without any value is hidden by default.
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


@dataclass(frozen=True, kw_only=True)
class Speedruns:
    """Submissions of a repository with their findings and boards, or the reason why they cannot be read."""

    found: tuple[Submitted, ...] = ()
    validated: tuple[Validated, ...] = ()
    boards: tuple[Board, ...] = ()
    tracks: Mapping[str, Track] = field(default_factory=dict)
    fault: str = ""

    @property
    def pages(self) -> dict[str, str]:
        """Markdown page of each submission, by name."""
        return pages_of(self.validated)


def read_speedruns(root: Path) -> Speedruns:
    """Read and validate the submissions in `speedruns/`; empty if the folder does not exist."""
    place = root / SUBMISSIONS_DIR
    try:
        judged = judge_all(place, at=datetime.now(UTC)) if place.is_dir() else Judged()
    except MarinScalingError as error:
        return Speedruns(fault=without_root(str(error), root))
    boards_found = tuple(boards(judged.validated))
    return Speedruns(found=judged.found, validated=judged.validated, boards=boards_found, tracks=judged.tracks)


def speedrun_pages(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    """Return the board page, the submission pages, figures and data, by path below the generated pages."""
    return board_page(speedruns, root=root) | _submission_pages(speedruns, root=root)


def board_page(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    """Return the page of all boards with its figures and data, by path below the generated pages."""
    names, charts = speedruns.pages, {_stem(board): board_chart(board) for board in speedruns.boards if board.rows}
    malformed = [(str(each.place), each.refusal or "") for each in speedruns.found if each.submission is None]
    rows = [row.to_document() for board in speedruns.boards for row in board.rows]
    page = render(
        "speedruns.md.j2",
        title="Speedrun",
        fault=speedruns.fault,
        found=speedruns.found,
        sections=[_section(board, speedruns.tracks.get(board.track), names) for board in speedruns.boards],
        first_axis=FIRST_AXIS,
        waiting=_waiting(speedruns),
        refused=_refused(speedruns.validated, names),
        malformed=malformed_section("submissions", malformed, root),
        count=len(rows),
    )
    files = {f"{_FOLDER}/index.md": page.encode()}
    for stem, chart in charts.items():
        files |= figure_files({"front": chart}, chart, page_stem=f"{_FOLDER}/{stem}")
    if rows:
        files |= {f"{_FOLDER}/board.json": _json(rows), f"{_FOLDER}/board.csv": _csv(rows)}
        files |= {f"{_FOLDER}/{name}": content for name, content in live_board(speedruns.boards, pages=names).items()}
    return files


def _submission_pages(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    recorded = recorded_curves(root / "runs")
    submissions = {each.submission.name: each.submission for each in speedruns.validated}
    rows = {row.submission.name: row for board in speedruns.boards for row in board.rows}
    files: dict[str, bytes] = {}
    for each in speedruns.validated:
        lineage = each.submission.lineage
        files |= submission_page(
            each,
            entry=rows.get(each.submission.name) if each.accepted else None,
            parent=submissions.get(lineage.parent) if lineage and each.accepted else None,
            names=speedruns.pages,
            folder=_FOLDER,
            recorded=recorded,
        )
    return files


def _stem(board: Board) -> str:
    return f"index.{board.track.replace('/', '~')}"


def _section(board: Board, track: Track | None, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of one board for the template."""
    budget = None if track is None else track.projected_to_flops
    found = projections([row.submission for row in board.rows], flops=budget) if budget and board.rows else []
    return {
        "board": board,
        "track": track,
        "on_front": sum(FIRST_AXIS in row.on_front for row in board.rows),
        "mark": Markdown(f'<div data-board="{html.escape(board.track)}"></div>'),
        "figure": show_figure(_stem(board), {"front": f"Bits per byte against {FIRST_AXIS}, with the front"}),
        "rows": [_row(row, names) for row in board.rows[:_SHOWN]],
        "records": [_record_row(each, names) for each in board.records[-_SHOWN:]],
        "scaling": list(map(scaling_row, found)),
    }


def _row(row: BoardRow, names: Mapping[str, str]) -> list[str]:
    each = row.submission
    error = "" if each.standard_error is None else f" ± {each.standard_error:.4f}"
    warnings = [found.code for found in row.validated.findings if found.severity is Severity.WARNING]
    return [
        link(each.name, names[each.name]),
        joined(author.name for author in each.authors),
        f"{each.bits_per_byte:.4f}{error}",
        str(len(each.seeds)),
        format_flops(each.comparable_flops),
        format_count(each.model.params_total),
        "" if each.data.trained_tokens is None else format_count(each.data.trained_tokens),
        "" if each.chip_seconds is None else f"{each.chip_seconds / 3600:.3g}",
        "" if each.mfu is None else f"{each.mfu:.3f}",
        ", ".join([*(f"{axis} (tied)" if axis in row.tied else axis for axis in row.on_front), *_tied_behind(row)]),
        "yes" if row.record else "",
        ", ".join(warnings),
    ]


def _tied_behind(row: BoardRow) -> list[str]:
    return ["tied"] if row.tied and not row.on_front else []


def _record_row(record: Record, names: Mapping[str, str]) -> list[str]:
    each = record.submission
    return [
        f"{record.at:%Y-%m-%d %H:%M}",
        link(each.name, names[each.name]),
        f"{each.bits_per_byte:.4f}",
        format_flops(each.comparable_flops),
        f"{record.hypervolume:.4f}",
    ]


def scaling_row(each: Projection) -> list[str]:
    """Return the table row of a scaling group: ranks, sizes, forecast, held-out run and warnings."""
    ahead = each.forecast
    return [
        "none" if each.ranks is None else _ranks(*each.ranks),
        each.group,
        str(len(each.submissions)),
        format_flops(each.submissions[-1].compute.model_flops),
        "" if ahead is None else f"{ahead.median:.4f}",
        "" if ahead is None else f"{ahead.interval()[0]:.4f} to {ahead.interval()[1]:.4f}",
        _held_out(each.held_out),
        " ".join(filter(None, [each.warning, each.why_not])),
    ]


def _ranks(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best} to {worst}"


def _held_out(held: HeldOut | None) -> str:
    if held is None:
        return ""
    low, high = held.forecast.interval()
    inside = "inside" if low <= held.measured <= high else "outside"
    return f"{held.error:+.4f}, {inside} its interval"


def _waiting(speedruns: Speedruns) -> list[list[str]]:
    """Return the tracks without entries, with their rules."""
    entered = {board.track for board in speedruns.boards}
    tracks = [track for name, track in sorted(speedruns.tracks.items()) if name not in entered]
    return [
        [each.name, Markdown(f"**{escape(each.title)}.** {escape(each.description)}".rstrip()), "; ".join(each.rules())]
        for each in tracks
    ]


def _refused(validated: Sequence[Validated], names: Mapping[str, str]) -> list[list[str]]:
    return [
        [link(each.submission.name, names[each.submission.name]), found.code, found.message]
        for each in validated
        for found in each.findings
        if found.severity is Severity.ERROR
    ]


def _json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({"format_version": 1, "entries": rows}, indent=1, allow_nan=False).encode() + b"\n"


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()})
    return text.getvalue().encode()
