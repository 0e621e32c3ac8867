"""The speedrun pages: a board for each track with its front, what was refused and why, and the boards as JSON and CSV.

From `speedruns/`, validated again. A malformed submission is listed with the reason and breaks nothing else. The page of one
submission is in `submission_page`.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from marin_scaling.errors import MarinScalingError
from marin_scaling.limits import LISTED
from marin_scaling.printable import joined
from marin_scaling.publish.board_chart import board_chart
from marin_scaling.publish.board_data import LIVE, live_board
from marin_scaling.publish.figures import figure_files, show_figure
from marin_scaling.publish.markdown import escape, link, malformed_section, page, preformatted, table, without_root
from marin_scaling.publish.scaling_section import scaling_section
from marin_scaling.publish.submission_curves import curves_of, recorded_curves
from marin_scaling.publish.submission_page import pages_of, submission_page
from marin_scaling.speedrun.board import FIRST_AXIS, Board, Entry, boards
from marin_scaling.speedrun.scaling import projections
from marin_scaling.speedrun.submission_file import Submitted, read_submissions
from marin_scaling.speedrun.track import TRACKS_DIR, Track, read_tracks
from marin_scaling.speedrun.validate import Validated, validate
from marin_scaling.units import format_count, format_flops

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
