"""What a reviewer is shown of a later forecast that a branch adds: the numbers beside the first's, and what is to be asked.

It was verified with the rest of its folder; nothing is verified or written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical
from marin_scaling.check.received import known_at
from marin_scaling.check.review import Reviewed
from marin_scaling.durable_files import read_bytes
from marin_scaling.limits import JOINED
from marin_scaling.preregistration.amendment import AMENDMENT_NAME, Amendment
from marin_scaling.preregistration.registry import OUTCOME_NAME
from marin_scaling.preregistration.statement import Statement, moment_text
from marin_scaling.printable import joined
from marin_scaling.publish.comment import escape
from marin_scaling.publish.markdown import table

_QUESTIONS = (
    "Has the run not ended? Where could one see it, and how many of its steps were done when this was made?",
    "Would the reason convince someone who knows only the first forecast?",
    "Are the runs that came in those that were planned, and is there a reason for each one that is gone?",
)


def amendment_parts(each: Reviewed, statement: Statement) -> Iterator[str]:
    """Of every amendment that is new: what it says beside the first forecast, what is doubtful, what a person has to ask."""
    for amendment in each.amendments:
        yield f"### {escape(amendment.name)}: the same run, forecast again"
        yield _sentence(amendment, statement, folder=each.folder)
        yield _beside_table(amendment, statement, folder=each.folder)
        yield "\n".join(f"- {remark}" for remark in _remarks(amendment, each, statement))
        yield "To be answered by a person:\n\n" + "\n".join(f"- [ ] {question}" for question in _QUESTIONS)


def _sentence(amendment: Amendment, statement: Statement, *, folder: Path) -> str:
    steps = _document(folder / "target.json")["train_steps"]
    return (
        f"**Verified**, signed by {escape(statement.predicate['registrant'])}, who says that {amendment.steps_seen} of {steps} "
        f"steps of the run had been seen. The first forecast keeps the verdict and every count. The reason that is given: "
        f"{escape(amendment.predicate['reason'])}"
    )


def _beside_table(amendment: Amendment, statement: Statement, *, folder: Path) -> str:
    """The first forecast and this one; by how much the median moved, in the metric, in nats, and in widths of the first."""
    first, later = statement.quantiles, amendment.amended.quantiles
    width, moved = first[0.95] - first[0.05], later[0.5] - first[0.5]
    nats = f"{moved * math.log(2):+.4f}" if statement.predicate["metric"]["name"] == "bits_per_byte" else ""
    rows = [
        _row("the first", statement, runs=_runs(folder), moved=["", "", ""]),
        _row(
            escape(amendment.name),
            amendment.amended,
            runs=_runs(folder / amendment.name, since=folder),
            moved=[f"{moved:+.4f}", nats, f"{moved / width:+.2f}"],
        ),
    ]
    unit = escape(statement.predicate["metric"]["unit"])
    header = [
        "forecast",
        f"median, {unit}",
        "90 % interval",
        "its width",
        "moved",
        "in nats per byte",
        "in widths of the first",
    ]
    return table([*header, "runs fitted"], rows, right=[1, 2, 3, 4, 5, 6])


def _row(name: str, statement: Statement, *, runs: str, moved: list[str]) -> list[str]:
    low, middle, high = (statement.quantiles[level] for level in (0.05, 0.5, 0.95))
    return [name, f"{middle:.4f}", f"{low:.4f} to {high:.4f}", f"{high - low:.4f}", *moved, runs]


def _remarks(amendment: Amendment, each: Reviewed, statement: Statement) -> Iterator[str]:
    """What a machine can say of how far it is to be trusted; doubts in bold."""
    name, first, later = amendment.name, statement.predicate, amendment.amended.predicate
    known = known_at(amendment.amended.created_at, f"{name}/{AMENDMENT_NAME}", folder=each.folder)
    yield (
        f"**its time and its steps are its registrant's words**: made at {escape(later['createdAt'])}; by that and its line in "
        f"the log it counts as given at {moment_text(known)}"
    )
    yield from (f"**{step.what}**: {escape(step.evidence)}" for step in each.steps if step.what == name and not step.compared)
    if each.is_new:
        yield "**it comes together with the first forecast**, so nobody saw that one alone"
    if OUTCOME_NAME in each.added:
        yield "**the outcome comes with it**, so nobody else could see it before the run had ended"
    _, gone, other = _compared(each.folder / name, each.folder)
    if gone or other:
        yield f"**of the first forecast's runs {gone} are not among its own, and {other} have other numbers there**"
    for key in ("law", "fixed", "seed"):
        if first["fit"][key] != later["fit"][key]:
            yield f"**another {key}**: {escape(later['fit'][key])}; the first had {escape(first['fit'][key])}"
    if later["fit"]["excluded"]:
        left_out = joined((f"{run['run']} ({run['why']})" for run in later["fit"]["excluded"]), separator="; ")
        yield f"left out of the fit: {escape(left_out)}"
    yield from (f"the fit warns: {escape(warning)}" for warning in later["fit"]["warnings"][:JOINED])


def _runs(place: Path, *, since: Path | None = None) -> str:
    count = str(len(_rows(place)))
    if since is None:
        return count
    new, gone, other = _compared(place, since)
    return f"{count} ({new} new, {gone} gone, {other} with other numbers)"


def _compared(place: Path, since: Path) -> tuple[int, int, int]:
    """How many runs of a ladder are new beside an earlier one, how many of that are gone, and how many have other numbers."""
    now, before = _rows(place), _rows(since)
    other = sum(now[name] != before[name] for name in now.keys() & before.keys())
    return len(now.keys() - before.keys()), len(before.keys() - now.keys()), other


def _rows(place: Path) -> dict[str, Any]:
    return {row["run"]: row for row in _document(place / "ladder.json")["rows"]}


def _document(path: Path) -> Any:
    return load_canonical(read_bytes(path), name=str(path))
