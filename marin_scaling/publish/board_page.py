"""Pages of the speedrun: boards, submissions, and the figure, columns and data of the interactive board."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt

from marin_scaling.errors import MarinScalingError, Severity
from marin_scaling.markdown import Markdown, escape, link, malformed_section, page_name, web_link, without_root
from marin_scaling.printable import FORECASTS_DRAWN, LISTED, joined
from marin_scaling.publish.figures import (
    LAW_COLOUR,
    asset,
    chart_spec,
    figure,
    figure_files,
    picture_files,
    render,
    show_figure,
    show_pictures,
)
from marin_scaling.publish.submission_page import pages_of, recorded_curves, submission_page
from marin_scaling.speedrun.checks import Validated
from marin_scaling.speedrun.import_files import read_public_record
from marin_scaling.speedrun.judge import Judged, judge_all
from marin_scaling.speedrun.leaderboard import (
    FIRST_AXIS,
    SAME_COST,
    Board,
    BoardRow,
    HeldOut,
    Projection,
    Record,
    boards,
    front,
    gate_results,
    points,
    projections,
)
from marin_scaling.speedrun.submission import Submission, Submitted
from marin_scaling.speedrun.track import AXES, Track, axis_key
from marin_scaling.units import format_count, format_flops

_SIZE = {"width": 760, "height": 400}
_MOST = 300  # points, beyond those on the front; the best of them, as more are a cloud
_LABELS, _LABEL = 7, 24  # names across the figure, and how long one may be
_SAME = 1.5  # costs within this factor get room on both sides


def board_chart(board: Board) -> Any:
    """One panel: bits per byte against the cost on the first axis; entries whose cost is not known are not in it."""
    rows = [_point(row, cost) for row in board.rows if (cost := AXES[FIRST_AXIS](row.submission)) is not None]
    seen = _seen(rows)
    _label(seen)
    cut = f"; the {len(seen):,} best of {len(rows):,}" if len(seen) < len(rows) else ""
    title = f"Loss by {FIRST_AXIS}; no entry is below the steps{cut}"
    chart = board_figure().properties(title=title, datasets={"entries": seen})
    chart.encoding.x.title = FIRST_AXIS
    costs = [row["cost"] for row in seen]
    if max(costs) < _SAME * min(costs):
        chart.encoding.x.scale.domain = [min(costs) / 1.3, max(costs) * 1.3]
    return chart


def _point(row: BoardRow, cost: float) -> dict[str, Any]:
    each = row.submission
    is_front = FIRST_AXIS in row.on_front
    return {
        "name": each.name,
        "by": joined(author.name for author in each.authors),
        "cost": cost,
        "loss": each.bits_per_byte,
        "shown": True,
        "front": is_front,
        "place": TIED if FIRST_AXIS in row.tied else FRONT if is_front else BEATEN,
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


_COUNTS, _AMOUNTS = ("parameters", "trained tokens"), ("seconds", "US dollars", "chip-seconds")
_COSTS = dict.fromkeys(_COUNTS, "count") | dict.fromkeys(_AMOUNTS, "number")
_SHOWN_COSTS = ("model FLOPs", "parameters", "trained tokens", "chip-seconds")
COLUMNS: tuple[Column, ...] = (
    Column(key="name", label="submission", kind="text"),
    Column(key="authors", label="by", kind="text"),
    Column(key="bits_per_byte", label="bits per byte", kind="loss"),
    Column(key="standard_error", label="standard error", kind="loss", hidden=True),
    Column(key="seeds", label="seeds", kind="number", hidden=True),
    *(
        Column(key=axis_key(axis), label=axis, kind=_COSTS.get(axis, "power"), axis=True, hidden=axis not in _SHOWN_COSTS)
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
    others = {name: page for name in names if (page := _shown_page(pages[name])) != f"{name.replace('/', '~')}.html"}
    return f'{{"count":{len(names)},"columns":[{",".join(columns)}],"pages":{_compact(others)}}}'


def _shown_page(name: str) -> str:
    return name if name.startswith(("https://", "http://")) else f"{name.removesuffix('.md')}.html"


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


SUBMISSIONS_DIR = "speedruns"
_FOLDER, _RECORDS = "speedrun", "speedrun-records"
_SHOWN = 100  # rows in the page itself


@dataclass(frozen=True, kw_only=True)
class Speedruns:
    """Submissions of a repository with their findings and boards, or the reason why they cannot be read."""

    found: tuple[Submitted, ...] = ()
    validated: tuple[Validated, ...] = ()
    boards: tuple[Board, ...] = ()
    tracks: Mapping[str, Track] = field(default_factory=dict)
    fault: str = ""
    public: tuple[Path, ...] = ()
    """Files of public records."""

    @property
    def pages(self) -> dict[str, str]:
        """Markdown page of each submission, by name."""
        return pages_of(self.validated)


def read_speedruns(root: Path) -> Speedruns:
    """Read and validate the submissions in `speedruns/`; empty if the folder does not exist."""
    place = root / SUBMISSIONS_DIR
    public = tuple(sorted((place / "public").glob("*.csv"))[:LISTED])
    try:
        judged = judge_all(place, at=datetime.now(UTC)) if place.is_dir() else Judged()
    except MarinScalingError as error:
        return Speedruns(fault=without_root(str(error), root), public=public)
    standing = tuple(boards(judged.validated))
    return Speedruns(found=judged.found, validated=judged.validated, boards=standing, tracks=judged.tracks, public=public)


def speedrun_pages(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    """Return the board page, the submission pages, figures and data, by path below the generated pages."""
    return board_page(speedruns, root=root) | _submission_pages(speedruns, root=root) | _public_pages(speedruns, root=root)


def board_page(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    """Return the page of all boards with its figures and data, by path below the generated pages."""
    names = speedruns.pages
    malformed = [(str(each.place), each.refusal or "") for each in speedruns.found if each.submission is None]
    rows = [row.to_document() for board in speedruns.boards for row in board.rows]
    sections = [_section(board, speedruns.tracks.get(board.track), names) for board in speedruns.boards]
    page = render(
        "speedruns.md.j2",
        title="Speedrun",
        fault=speedruns.fault,
        found=speedruns.found,
        public=[link(path.stem, f"../{_RECORDS}/{page_name(path.stem)}.md") for path in speedruns.public],
        sections=sections,
        waiting=_waiting(speedruns),
        refused=_refused(speedruns.validated, names),
        malformed=malformed_section("submissions", malformed, root),
        count=len(rows),
    )
    files = {f"{_FOLDER}/index.md": page.encode()}
    for section in sections:
        files |= section["files"]
    if rows:
        document = json.dumps({"format_version": 1, "entries": rows}, indent=1, allow_nan=False) + "\n"
        files |= {f"{_FOLDER}/board.json": document.encode(), f"{_FOLDER}/board.csv": _csv(rows)}
        files |= {f"{_FOLDER}/{name}": content for name, content in live_board(speedruns.boards, pages=names).items()}
    return files


def _public_pages(speedruns: Speedruns, *, root: Path) -> dict[str, bytes]:
    """Return a page for each public record, with its figures and data; of one that cannot be read with the reason."""
    files: dict[str, bytes] = {}
    for path in speedruns.public:
        name, shown = page_name(path.stem), dict.fromkeys(("fault", "public", "section", "data"), "")
        try:
            public = read_public_board(path)
        except MarinScalingError as error:
            values: dict[str, Any] = shown | {"title": path.stem, "fault": without_root(str(error), root)}
        else:
            section, title = _public_section(public), f"Public record: {public.name}"
            values = shown | {"title": title, "public": public, "section": section, "data": f"{quote(name)}-data.js"}
            data = live_board([public.board], pages=public.logs)
            files |= section["files"] | {f"{_RECORDS}/{name}-data.js": data["board-data.js"]}
            files |= {f"{_FOLDER}/{each}": data[each] for each in PROGRAM}
        files[f"{_RECORDS}/{name}.md"] = render("public_board.md.j2", **values).encode()
    return files


_PROJECTED_TO_FLOPS = 1e22
"""Budget at which the scaling groups of a public record are compared: that of Marin's board."""


@dataclass(frozen=True, kw_only=True)
class PublicBoard:
    """A record's entries as a board. Nothing of them was checked here. `source` is the address of the figures."""

    name: str
    board: Board
    source: str
    groups: tuple[Projection, ...]

    @property
    def logs(self) -> dict[str, str]:
        """The address of each entry's log, by the entry's name."""
        return {row.submission.name: row.submission.seeds[0].log or self.source for row in self.board.rows}

    @property
    def repeated(self) -> int:
        """Number of entries whose run is that of another entry, by its log."""
        return len(self.logs) - len(set(self.logs.values()))


def read_public_board(path: Path) -> PublicBoard:
    """Return the board of one public record; `DocumentError` names line and key of what cannot stand there."""
    found, source = read_public_record(path)
    groups = projections(found, flops=_PROJECTED_TO_FLOPS)
    return PublicBoard(name=path.stem, board=_public_board(found, track=path.stem), source=source, groups=tuple(groups))


def _public_board(found: Sequence[Submission], *, track: str) -> Board:
    """Return the board by the figures as they are stated: a record has no shapes to recompute them from."""
    (checked,) = boards([Validated(submission=each, findings=()) for each in found])
    standing = {axis: front(points(found, axis=axis), same_cost=SAME_COST) for axis in AXES}
    names = {axis: {point.name for point in each} for axis, each in standing.items()}
    rows = [replace(row, on_front=tuple(axis for axis in AXES if row.submission.name in names[axis])) for row in checked.rows]
    return replace(checked, track=track, rows=tuple(rows))


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


_HEADER = ["entry", "by", "bits per byte", "parameters", "tokens", "model FLOPs", "chip-hours", "MFU", "place", "warnings"]


def _section(board: Board, track: Track | None, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the template's values for one board, and the files of its figures."""
    budget, submissions = None if track is None else track.projected_to_flops, [row.submission for row in board.rows]
    found = projections(submissions, flops=budget) if budget and board.rows else []
    place = f"{_FOLDER}/index.{board.track.replace('/', '~')}"
    links = {row.submission.name: link(row.submission.name, names[row.submission.name]) for row in board.rows}
    return {
        **_shown(board, place, page="index", links=links, found=found, flops=budget),
        "heading": Markdown("###"),
        "track": track,
        "gates": [each.row for each in gate_results(submissions, track)] if track and track.gates else [],
        "rules": [] if track is None else list(map(short_digests, track.rules())),
        "counted": f"accepted, {len(board.refused)} refused",
        "noise": "No submission has two seeds, so run-to-run noise is not known."
        if board.noise is None
        else f"Run-to-run noise: {board.noise:.4f} bits per byte (standard deviation over seeds).",
        "counting": [
            "Every derived figure was recomputed when this page was made; the page of an entry has the findings.",
            "Losses are compared with the records in runs/. An entry without a record is self-reported (no-record).",
        ],
        "records": [_record_row(each, links) for each in board.records[-_SHOWN:]],
    }


def _public_section(public: PublicBoard) -> dict[str, Any]:
    links = {name: web_link(name, log) for name, log in public.logs.items()}
    place = f"{_RECORDS}/{page_name(public.name)}"
    return {
        **_shown(public.board, place, page=page_name(public.name), links=links, found=public.groups, flops=_PROJECTED_TO_FLOPS),
        "heading": Markdown("##"),
        "gates": [],
        "counted": "entries",
        "noise": "No entry has two seeds, so run-to-run noise is not known.",
        "counting": [f"Entries with the log of another entry, which are the same run listed twice: {public.repeated}."],
        "records": [_record_row(each, links) for each in public.board.records[-_SHOWN:]],
    }


def _shown(
    board: Board,
    place: str,
    *,
    page: str,
    links: Mapping[str, Markdown],
    found: Sequence[Projection],
    flops: float | None,
) -> dict[str, Any]:
    """Return the values that boards of submissions and public records share; `place` is the path of the figures."""
    files, stem, ranked = dict[str, bytes](), place.rpartition("/")[2], [each for each in found if each.forecast]
    if board.rows:
        chart, title = board_chart(board), f"Speedrun {board.track}: loss by cost"
        files |= figure_files({"front": chart}, chart, page_stem=place, page=page, title=title)
    if ranked:
        files |= picture_files({"scaling": scaling_chart(ranked)}, page_stem=place)
    return {
        "board": board,
        "files": files,
        "on_front": sum(FIRST_AXIS in row.on_front for row in board.rows),
        "tied": sum(FIRST_AXIS in row.tied for row in board.rows),
        "mark": Markdown(f'<div data-board="{html.escape(board.track)}"></div>'),
        "figure": show_figure(stem, {"front": f"Bits per byte against {FIRST_AXIS}, with the front"}),
        "header": _HEADER,
        "rows": [_row(row, links) for row in board.rows[:_SHOWN]],
        "scaling": list(map(scaling_row, found)),
        "scaling_figure": show_pictures(stem, {"scaling": "Forecast of each scaling group with its interval"})
        if ranked
        else "",
        "flops": flops,
    }


_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def short_digests(text: str) -> str:
    """Return the text with the first twelve digits of each SHA-256.

    >>> short_digests("trained on the text with the digest " + "ab" * 32)
    'trained on the text with the digest abababababab…'
    """
    return _DIGEST.sub(r"\1…", text)


def _row(row: BoardRow, links: Mapping[str, Markdown]) -> list[str]:
    each = row.submission
    error = "" if each.standard_error is None else f" ± {each.standard_error:.4f}"
    marks = {row_values(row)["place"]: True, "record": row.record, "no record here": not row.validated.recorded}
    return [
        links[each.name],
        joined(author.name for author in each.authors),
        f"{each.bits_per_byte:.4f}{error}",
        format_count(each.model.params_total),
        "" if each.data.trained_tokens is None else format_count(each.data.trained_tokens),
        format_flops(each.comparable_flops),
        "" if each.chip_seconds is None else f"{each.chip_seconds / 3600:.3g}",
        "" if each.mfu is None else f"{each.mfu:.3f}",
        ", ".join(word for word, holds in marks.items() if word and holds),
        ", ".join(found.code for found in row.validated.findings if found.severity is Severity.WARNING),
    ]


def _record_row(record: Record, links: Mapping[str, Markdown]) -> list[str]:
    each = record.submission
    return [
        f"{record.at:%Y-%m-%d %H:%M}",
        links[each.name],
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
        [
            each.name,
            Markdown(f"**{escape(each.title)}.** {escape(each.description)}".rstrip()),
            short_digests("; ".join(each.rules())),
        ]
        for each in tracks
    ]


def _refused(validated: Sequence[Validated], names: Mapping[str, str]) -> list[list[str]]:
    return [
        [link(each.submission.name, names[each.submission.name]), found.code, found.message]
        for each in validated
        for found in each.findings
        if found.severity is Severity.ERROR
    ]


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()})
    return text.getvalue().encode()
