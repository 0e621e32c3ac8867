"""Pages of the speedrun: boards, submissions, and the data of the interactive board."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from marin_scaling.errors import MarinScalingError, Severity
from marin_scaling.forecast.speedup_conventions import Speedup
from marin_scaling.markdown import Markdown, escape, link, malformed_section, page_name, web_link, without_root
from marin_scaling.printable import LISTED, joined
from marin_scaling.publish.figures import figure_files, picture_files, render, show_figure, show_pictures
from marin_scaling.publish.interactive_board import PROGRAM, board_chart, live_board, row_values, scaling_chart
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
from marin_scaling.speedrun.track import AXES, Track
from marin_scaling.units import format_count, format_flops

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
        files |= {f"{_FOLDER}/board.json": _json(rows), f"{_FOLDER}/board.csv": _csv(rows)}
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
    budget = None if track is None else track.projected_to_flops
    found = projections([row.submission for row in board.rows], flops=budget) if budget and board.rows else []
    place = f"{_FOLDER}/index.{board.track.replace('/', '~')}"
    links = {row.submission.name: link(row.submission.name, names[row.submission.name]) for row in board.rows}
    return {
        **_shown(board, place, page="index", links=links, found=found, flops=budget),
        "heading": Markdown("###"),
        "track": track,
        "gates": [] if track is None or not track.gates else gate_rows([row.submission for row in board.rows], track),
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


def gate_rows(submissions: Sequence[Submission], track: Track) -> list[list[str]]:
    """Return the table rows of all groups at all gates: group, gate, result, speedups with intervals, what is missing."""
    return [
        [each.group, str(each.gate), each.result, "; ".join(map(_speed, each.speedups)), each.why_not]
        for each in gate_results(submissions, track)
    ]


def _speed(speedup: Speedup | None) -> str:
    if speedup is None:
        return "none"
    low, high = speedup.interval
    value = "above all bounds" if speedup.value is None else f"{speedup.value:.3g}"
    return f"{value} [{low:.3g}, {'' if high is None else f'{high:.3g}'}]"


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


def _json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({"format_version": 1, "entries": rows}, indent=1, allow_nan=False).encode() + b"\n"


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()})
    return text.getvalue().encode()
