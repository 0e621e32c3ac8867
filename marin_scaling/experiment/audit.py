"""Whether what experiments name is there, and their links are sound: from the files alone, nothing is fetched.

A preregistration, ladder or experiment that is not there is refused, and so is a setting that its own records contradict. What
may be a slip is a doubt. Whether a page on the web still answers is not known here. The form of a record is checked where it
is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from marin_scaling.canonical_json import leaves
from marin_scaling.experiment.experiment import Experiment, Outcome
from marin_scaling.preregistration.registry import registration_folders
from marin_scaling.printable import joined, quoted
from marin_scaling.speedrun.finding import Finding, doubt, refused

MOVED = {
    "crfm.stanford.edu": "Marin's pages left it; its data browser is not there any more",
    "img.shields.io": "it is a picture of a state, asked for anew by every reader",
}
"""Hosts from which Marin's links moved, and why an address there is doubted."""

_MOVED_OWNERS = {"stanford-crfm": "marin-community"}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What an experiment can name in a repository."""

    preregistrations: Collection[str]
    ladders: Collection[str]


def known_in(root: Path) -> Known:
    """The folders of the registry and of the run store below `root`."""
    runs = root / "runs"
    ladders = {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()
    registered = {each.name for each in registration_folders(root / "preregistrations")}
    return Known(preregistrations=registered, ladders=ladders)


def audit(experiments: Sequence[Experiment], *, known: Known, today: date | None = None) -> dict[str, list[Finding]]:
    """What was found, by the name of the experiment; an empty list where nothing was."""
    names = {each.name for each in experiments}
    issues, ring, latest = _by_issue(experiments), _in_a_ring(experiments), (today or date.today()) + timedelta(days=1)
    return {
        each.name: [
            *_named(each, names, known),
            *_links(each),
            *_alike(each, issues),
            *_said(each),
            *_in_order(each, ring, latest),
        ]
        for each in experiments
    }


def contradictions(each: Experiment, recorded: Mapping[str, Any], *, varying: Collection[str] = ()) -> Iterator[Finding]:
    """Settings of its own that its ladders' records have otherwise: `recorded` are those that all runs share, by dotted key."""
    for key, value in leaves(each.configuration) if each.configuration else ():
        found = [other for other in {*recorded, *varying} if f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.")]
        if found and not (key in recorded and recorded[key] == value):
            known = quoted(repr(recorded[key])) if key in recorded else f"more than one value of {quoted(min(found))}"
            said = f"it says {quoted(repr(value))}, the records of its ladders {known}; leave it out"
            yield refused("contradicted", f"configuration.{key}", said)


def _named(each: Experiment, names: Collection[str], known: Known) -> Iterator[Finding]:
    """What is named and is not there."""
    if each.preregistration is not None and each.preregistration not in known.preregistrations:
        meant = each.preregistration.removeprefix("preregistrations/")
        said = f"; write {meant}" if meant in known.preregistrations else ""
        yield refused("not-there", "preregistration", f"{each.preregistration} is no folder of preregistrations/{said}")
    for ladder in each.ladders:
        if ladder not in known.ladders:
            meant = ladder.removeprefix("runs/")
            said = f"; write {meant}" if meant in known.ladders else ""
            yield refused("not-there", "ladders", f"{ladder} is no folder of runs/{said}")
    if each.baseline is not None and (each.baseline not in names or each.baseline == each.name):
        yield refused("not-there", "baseline", f"{each.baseline} is no other experiment here")
    for name in each.supersedes:
        if name not in names or name == each.name:
            yield refused("not-there", "supersedes", f"{name} is no other experiment here")


def addresses(each: Experiment) -> Iterator[tuple[str, str]]:
    """Every address in its links, with the key under which it stands."""
    for key, value in each.links.model_dump(exclude_none=True).items():
        yield from ((f"links.{key}", address) for address in ([value] if isinstance(value, str) else value))


def _links(each: Experiment) -> Iterator[Finding]:
    of_code = [("code.repository", each.code.repository)] if each.code and each.code.repository else []
    for key, address in [*addresses(each), *of_code]:
        parts = urlsplit(address)
        owner = parts.path.split("/")[1] if parts.path.count("/") > 1 else ""
        if parts.hostname in MOVED:
            yield doubt("moved", key, f"{parts.hostname}: {MOVED[parts.hostname]}")
        if parts.hostname == "github.com" and owner in _MOVED_OWNERS:
            yield doubt("moved", key, f"github.com/{owner} is {_MOVED_OWNERS[owner]} now")
        if parts.scheme == "http":
            yield doubt("unencrypted", key, f"{address} is read without encryption")


def _in_order(each: Experiment, in_a_ring: Collection[str], latest: date) -> Iterator[Finding]:
    if each.name in in_a_ring:
        yield refused("ring", "supersedes", f"what {each.name} replaces replaces it")
    if each.date is not None and each.date > latest:
        yield doubt("date", "date", f"{each.date} is to come")


def _in_a_ring(experiments: Sequence[Experiment]) -> Collection[str]:
    """Experiments that replace, through others, themselves; one ring is named at a time."""
    try:
        TopologicalSorter({each.name: {*each.supersedes} - {each.name} for each in experiments}).prepare()
    except CycleError as error:
        return set(error.args[1])
    return ()


def _by_issue(experiments: Sequence[Experiment]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for each in experiments:
        if each.links.issue:
            found[each.links.issue].append(each.name)
    return found


def _alike(each: Experiment, issues: Mapping[str, list[str]]) -> Iterator[Finding]:
    others = [name for name in issues.get(each.links.issue or "", ()) if name != each.name]
    if others:
        yield doubt("same-issue", "links.issue", f"{joined(others)} has the same issue: one experiment twice?")


def _said(each: Experiment) -> Iterator[Finding]:
    """What a reader will ask of an experiment of one's own."""
    if each.source is not None:
        return
    if not (each.hypothesis or "").strip() and each.preregistration is None:
        yield doubt("no-hypothesis", "hypothesis", "nothing says what was expected before")
    if each.outcome not in (Outcome.IN_PROGRESS, Outcome.NOT_EVALUATED) and not (each.conclusion or "").strip():
        yield doubt("no-conclusion", "conclusion", "it came out, and nothing says what was learnt")
    if each.preregistration is None and not (each.ladders or each.metrics):
        yield doubt("no-figures", "metrics", "no figure and no run of it is named")
