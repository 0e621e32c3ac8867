"""The page of a speedrun track."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from marin_scaling.errors import MarinScalingError
from marin_scaling.limits import LISTED
from marin_scaling.markdown import escape, link, malformed_section, page, preformatted, table, without_root
from marin_scaling.printable import joined
from marin_scaling.publish.charts import LAW_COLOUR, POINT_COLOUR, figure_files, show_figure, styled
from marin_scaling.publish.drawings import curves_of, recorded_curves
from marin_scaling.publish.submission_page import pages_of, submission_page
from marin_scaling.speedrun.checks import Validated, validate
from marin_scaling.speedrun.leaderboard import FIRST_AXIS, Board, Entry, boards
from marin_scaling.speedrun.scaling import HeldOut, Projection, projections
from marin_scaling.speedrun.submission import Submitted, read_submissions
from marin_scaling.speedrun.track import AXES, TRACKS_DIR, Track, axis_key, read_tracks
from marin_scaling.units import format_count, format_flops

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


_SCALING_WORDS = (
    "Each group is one recipe at several sizes. Its law is fitted by this project's engine and asked for a run of {budget} "
    "model FLOPs with as many tokens for each parameter as the group's largest run. Groups whose 90 % intervals overlap share "
    "ranks. Held out is the error of the group's largest run when it is forecast from the others."
)
_HEADER = ["rank", "group", "runs", "largest", "bits per byte then", "90 % interval", "held out", "to be known"]


def scaling_section(found: Sequence[Projection], *, track: str, flops: float) -> str:
    """A table of all groups, those without a forecast last, with the reason; empty without groups."""
    if not found:
        return ""
    words = _SCALING_WORDS.format(budget=format_flops(flops))
    return f"### Scaling of {escape(track)}\n\n{words}\n\n{table(_HEADER, list(map(_scaling_row, found)), right=[2, 3, 4])}"


def _scaling_row(each: Projection) -> list[str]:
    ahead = each.forecast
    return [
        "none" if each.ranks is None else _ranks(*each.ranks),
        escape(each.group),
        str(len(each.submissions)),
        format_flops(each.submissions[-1].compute.model_flops),
        "" if ahead is None else f"{ahead.median:.4f}",
        "" if ahead is None else f"{ahead.interval()[0]:.4f} to {ahead.interval()[1]:.4f}",
        _held_out(each.held_out),
        escape(" ".join(filter(None, [each.doubt, each.why_not]))),
    ]


def _ranks(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best} to {worst}"


def _held_out(held: HeldOut | None) -> str:
    if held is None:
        return ""
    low, high = held.forecast.interval()
    inside = "inside" if low <= held.measured <= high else "outside"
    return f"{held.error:+.4f}, {inside} its interval"


SUBMISSIONS_DIR = "speedruns"
_FOLDER = "speedrun"
_SHOWN = 100  # rows that the page itself holds
_NONE = (
    "There is no submission yet: `marin-scale speedrun submit RUN` makes one from a run, `marin-scale speedrun import` from "
    "Marin's files."
)
_WORDS = (
    "From the lowest loss on. An entry is on the front of an axis when no other is cheaper on it and as good, or as cheap and "
    "better. Every figure was counted again from what it follows from when this page was made; the page of an entry says what "
    "was found."
)


@dataclass(frozen=True, kw_only=True)
class Speedruns:
    """All submissions of a repository as they were found, what was found of them, and the boards; or why they are not read."""

    found: tuple[Submitted, ...] = ()
    validated: tuple[Validated, ...] = ()
    boards: tuple[Board, ...] = ()
    tracks: Mapping[str, Track] = field(default_factory=dict)
    fault: str = ""

    @property
    def pages(self) -> dict[str, str]:
        """The Markdown page of each submission, by name."""
        return pages_of(self.validated)


def read_speedruns(root: Path) -> Speedruns:
    """What lies in `speedruns/`, validated now; nothing where there is no such folder."""
    place = root / SUBMISSIONS_DIR
    try:
        found, tracks = read_submissions(place) if place.is_dir() else [], read_tracks(place / TRACKS_DIR)
    except MarinScalingError as error:
        return Speedruns(fault=without_root(str(error), root))
    validated = validate([each.submission for each in found if each.submission], at=datetime.now(UTC), tracks=tracks)
    return Speedruns(found=tuple(found), validated=tuple(validated), boards=tuple(boards(validated)), tracks=tracks)


def speedrun_pages(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    """All of them by path below the generated pages: `speedrun/index.md`, a page for each submission, figures, data."""
    if speedruns.fault:
        return {f"{_FOLDER}/index.md": page("Speedrun", preformatted(speedruns.fault)).encode()}
    names = speedruns.pages
    files: dict[str, bytes] = {}
    body = _body(speedruns, names, files, root=root) if speedruns.found else [_NONE, _waiting(speedruns)]
    files[f"{_FOLDER}/index.md"] = page("Speedrun", *body).encode()
    rows = [entry.to_document() for board in speedruns.boards for entry in board.entries]
    if rows:
        files |= {f"{_FOLDER}/board.json": _json(rows), f"{_FOLDER}/board.csv": _csv(rows)}
        files |= {f"{_FOLDER}/{name}": content for name, content in live_board(speedruns.boards, pages=names).items()}
    return files | _submission_pages(speedruns, names, root=root)


def _body(speedruns: Speedruns, names: Mapping[str, str], files: dict[str, bytes], *, root: Path) -> list[str]:
    """The parts of the page of all boards; their figures go into `files`."""
    tracks, found = speedruns.tracks, speedruns.found
    sections = [part for board in speedruns.boards for part in _board_section(board, tracks.get(board.track), names, files)]
    malformed = [(str(each.place), each.refusal or "") for each in found if each.submission is None]
    entries = sum(len(board.entries) for board in speedruns.boards)
    closing = [_downloads(entries), LIVE] if entries else []
    return [
        *sections,
        _waiting(speedruns),
        _refused(speedruns.validated, names),
        malformed_section("submissions", malformed, root),
        *closing,
    ]


def _submission_pages(speedruns: Speedruns, names: Mapping[str, str], *, root: Path) -> dict[str, bytes]:
    recorded = recorded_curves(root / "runs")
    parents = {each.submission.name: each.submission for each in speedruns.validated}
    files: dict[str, bytes] = {}
    for board in speedruns.boards:
        for entry in board.entries:
            parent = parents.get(_parent_name(entry))
            curves = curves_of(entry.submission, recorded)
            files |= submission_page(entry.validated, entry=entry, parent=parent, names=names, folder=_FOLDER, curves=curves)
        for each in board.refused:
            files |= submission_page(each, entry=None, parent=None, names=names, folder=_FOLDER)
    return files


def _board_section(board: Board, track: Track | None, names: Mapping[str, str], files: dict[str, bytes]) -> Iterator[str]:
    yield f"## {escape(board.track)}"
    if track is not None:
        yield f"**{escape(track.title)}.** {escape(track.description)}"
        yield "\n".join(f"- {escape(rule)}" for rule in track.rules())
    if not board.entries:
        yield "No submission of this track was accepted."
        return
    stem = f"index.{board.track.replace('/', '~')}"
    chart = board_chart(board)
    files |= figure_files({"front": chart}, chart, page_stem=f"{_FOLDER}/{stem}")
    standing = sum(FIRST_AXIS in entry.on_front for entry in board.entries)
    counted = f"{len(board.entries)} accepted, {standing} of them on the front of {FIRST_AXIS}, {len(board.refused)} refused"
    yield f"{counted}; {_noise_said(board.noise)}."
    yield f'<div data-board="{html.escape(board.track)}"></div>'
    yield show_figure(stem, {"front": f"Bits per byte against {FIRST_AXIS}, with the front"})
    yield _WORDS
    yield _table(board, names)
    yield _records(board, names)
    if track is not None and track.projected_to_flops is not None:
        found = projections([entry.submission for entry in board.entries], flops=track.projected_to_flops)
        yield scaling_section(found, track=board.track, flops=track.projected_to_flops)


def _waiting(speedruns: Speedruns) -> str:
    """The tracks that nobody has entered yet, with their rules; empty where there is none."""
    entered = {board.track for board in speedruns.boards}
    waiting = [track for name, track in sorted(speedruns.tracks.items()) if name not in entered]
    if not waiting:
        return ""
    rows = [
        [escape(each.name), f"**{escape(each.title)}.** {escape(each.description)}".rstrip(), escape("; ".join(each.rules()))]
        for each in waiting
    ]
    shown = table(["track", "what it is for", "rules"], rows, most=LISTED, rest_in="speedruns/tracks")
    return f"## Tracks without an entry yet\n\n{shown}"


def _parent_name(entry: Entry) -> str:
    lineage = entry.submission.lineage
    return "" if lineage is None else lineage.parent


def _records(board: Board, names: Mapping[str, str]) -> str:
    if not board.records:
        return ""
    rows = [
        [
            f"{each.at:%Y-%m-%d %H:%M}",
            link(each.submission.name, names[each.submission.name]),
            f"{each.submission.bits_per_byte:.4f}",
            format_flops(each.submission.compute.model_flops),
            f"{each.hypervolume:.4f}",
        ]
        for each in board.records[-_SHOWN:]
    ]
    words = (
        "Those that stood on the front when they ended, the youngest last. The area is what lies behind the front, up to the "
        "highest cost and loss of this board: decades of model FLOPs times bits per byte."
    )
    header = ["ended (UTC)", "submission", "bits per byte", "model FLOPs", "area"]
    return f"### Records of {escape(board.track)}\n\n{words}\n\n{table(header, rows, right=[2, 3, 4])}"


def _noise_said(noise: float | None) -> str:
    if noise is None:
        return "no submission has two seeds, so what is chance is not known"
    return f"one run differs from the next by {noise:.4f} bits per byte (standard deviation, pooled over seeds)"


def _table(board: Board, names: Mapping[str, str]) -> str:
    header = [
        "submission",
        "by",
        "bits per byte",
        "seeds",
        "model FLOPs",
        "parameters",
        "tokens",
        "chip-hours",
        "MFU",
        "on the front of",
        "record",
        "doubts",
    ]
    shown = board.entries[:_SHOWN]
    rest = len(board.entries) - len(shown)
    cut = f"\n\nThe first {len(shown)}; {rest} more are in the files below." if rest else ""
    return table(header, [_row(entry, names) for entry in shown], right=[2, 3, 4, 5, 6, 7, 8]) + cut


def _row(entry: Entry, names: Mapping[str, str]) -> list[str]:
    each = entry.submission
    error = "" if each.standard_error is None else f" ± {each.standard_error:.4f}"
    doubts = [finding.rule for finding in entry.validated.findings if finding.weight == "doubt"]
    return [
        link(each.name, names[each.name]),
        escape(joined(author.name for author in each.authors)),
        f"{each.bits_per_byte:.4f}{error}",
        str(len(each.seeds)),
        format_flops(each.compute.model_flops),
        format_count(each.model.params_total),
        "" if each.data.trained_tokens is None else format_count(each.data.trained_tokens),
        "" if each.chip_seconds is None else f"{each.chip_seconds / 3600:.3g}",
        "" if each.mfu is None else f"{each.mfu:.3f}",
        escape(", ".join(entry.on_front)) or ("tied" if entry.tied else ""),
        "yes" if entry.record else "",
        escape(", ".join(doubts)),
    ]


def _refused(validated: Sequence[Validated], names: Mapping[str, str]) -> str:
    rows = [
        [link(each.submission.name, names[each.submission.name]), escape(finding.rule), escape(finding.said)]
        for each in validated
        for finding in each.findings
        if finding.weight == "refused"
    ]
    if not rows:
        return ""
    words = "Not on the board, because something in them cannot be so. Nothing of them is taken away."
    shown = table(["submission", "rule", "what was found"], rows, most=LISTED, rest_in="marin-scale speedrun validate")
    return f"## Refused\n\n{words}\n\n{shown}"


def _downloads(entries: int) -> str:
    return f"{entries} entries as {link('JSON', 'board.json')} and {link('CSV', 'board.csv')}."


def _json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({"format_version": 1, "entries": rows}, indent=1, allow_nan=False).encode() + b"\n"


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()})
    return text.getvalue().encode()
