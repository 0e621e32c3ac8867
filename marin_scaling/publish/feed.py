"""The Atom feed of a site: forecasts, outcomes and what else came into the log, and the speedrun's records; the newest first.

Times are those of the log and of the runs, so the same files give the same feed. A log that cannot be read gives no entries
here; why not is on the pages of its forecasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import MarinScalingError
from marin_scaling.markdown import page_name
from marin_scaling.preregistration.log import LogEntry, read_log
from marin_scaling.preregistration.state import State, Verdict
from marin_scaling.preregistration.statement import parse_moment
from marin_scaling.speedrun.leaderboard import Board, Record
from marin_scaling.units import format_flops

FEED_NAME = "feed.xml"
MOST_ENTRIES = 100
_ATOM = "http://www.w3.org/2005/Atom"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAID = {
    "seal": "sealed",
    "register": "forecast registered",
    "reveal": "forecast revealed",
    "review": "signed by a reviewer",
    "outcome": "outcome",
    "stamp": "stamped by a third party",
    "amend": "a later forecast of the same run",
    "notice": "a notice",
}


@dataclass(frozen=True, kw_only=True)
class FeedEntry:
    """One event: when it was, its page, a name that never changes, and what is said of it."""

    at: datetime
    key: str
    title: str
    summary: str
    page: str


def feed(root: Path, *, verdicts: Sequence[Verdict], boards: Sequence[Board], pages: Mapping[str, str]) -> bytes:
    """The feed's XML; `pages` are the Markdown pages of submissions, by name."""
    states = {verdict.id: verdict.state for verdict in verdicts}
    entries = [*_of_log(root, states), *(_of_record(each, pages) for board in boards for each in board.records)]
    return _xml(sorted(entries, key=lambda entry: (entry.at, entry.key), reverse=True)[:MOST_ENTRIES])


def _of_log(root: Path, states: Mapping[str, State]) -> Iterator[FeedEntry]:
    try:
        log = read_log(root / "preregistrations")
    except MarinScalingError:
        return
    for line in log.entries:
        if line.id in states:
            yield _of_line(line, states[line.id])


def _of_line(line: LogEntry, state: State) -> FeedEntry:
    return FeedEntry(
        at=parse_moment(line.logged_at),
        key=sha256_hex(line.line),
        title=f"{line.id}: {_SAID[line.kind]}",
        summary=f"It is now {state}.",
        page=f"preregistrations/{page_name(line.id)}.html",
    )


def _of_record(record: Record, pages: Mapping[str, str]) -> FeedEntry:
    each = record.submission
    cost = format_flops(each.compute.model_flops)
    return FeedEntry(
        at=record.at,
        key=sha256_hex(f"{each.track} {each.name} {record.at.isoformat()}".encode()),
        title=f"{each.name}: a record of {each.track}",
        summary=f"{each.bits_per_byte:.4f} bits per byte for {cost} model FLOPs",
        page=f"speedrun/{pages[each.name].removesuffix('.md')}.html",
    )


def _xml(entries: Sequence[FeedEntry]) -> bytes:
    ElementTree.register_namespace("", _ATOM)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed")
    _text(feed, "title", "Forecasts, outcomes and records")
    _text(feed, "subtitle", f"The newest {MOST_ENTRIES} at most; the pages have all.")
    _text(feed, "id", "urn:marin-scaling:feed")
    _text(feed, "updated", _moment(entries[0].at if entries else _EPOCH))
    _text(ElementTree.SubElement(feed, f"{{{_ATOM}}}author"), "name", "marin-scaling")
    for entry in entries:
        inner = ElementTree.SubElement(feed, f"{{{_ATOM}}}entry")
        _text(inner, "title", entry.title)
        _text(inner, "id", f"urn:sha256:{entry.key}")
        _text(inner, "updated", _moment(entry.at))
        _text(inner, "summary", entry.summary)
        ElementTree.SubElement(inner, f"{{{_ATOM}}}link", {"href": entry.page})
    ElementTree.indent(feed)
    made: bytes = ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _text(parent: ElementTree.Element, name: str, text: str) -> None:
    ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}").text = "".join(sign for sign in text if sign.isprintable())


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
