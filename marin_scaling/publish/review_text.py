"""The review of a pull request in Markdown, for whoever merges it: what held, what is doubtful, what only a person can judge.

Made for forges that draw `mermaid` blocks. A forecast that is refused is shown with the reason and without its numbers, and no
text from its files can break out of its cell. Nothing is verified or written here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical
from marin_scaling.check.review import Review, Reviewed
from marin_scaling.check.state import Verdict
from marin_scaling.check.track_record import record_text, track_records
from marin_scaling.check.verdict import verdicts_on
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import MarinScalingError
from marin_scaling.limits import COMMENT_CHARACTERS, JOINED, REVIEWED_NAMED
from marin_scaling.preregistration.countersignature import countersigners
from marin_scaling.preregistration.registry import read_registration, registration_folders
from marin_scaling.preregistration.seal import SEAL_NAME, read_seal
from marin_scaling.preregistration.statement import Statement
from marin_scaling.printable import shortened
from marin_scaling.publish.amendment_review import amendment_parts
from marin_scaling.publish.comment import escape, fitting
from marin_scaling.publish.forecast_sections import doubts_section, promise_section
from marin_scaling.publish.markdown import preformatted, table, without_root
from marin_scaling.publish.review_remarks import measured_table, remark_on_notices, remarks
from marin_scaling.units import format_flops

_QUESTIONS = (
    "Is it beyond doubt what is measured: which metric, of which weights, on which text?",
    "Is the rule by which runs of the ladder were taken plausible, and each one that was left out?",
    "Is everything listed in which the target differs from the ladder?",
    "Is the interval wide enough beside what the number hangs on?",
    "Are the conditions fair under which it is void?",
    "Has the run not begun? Where could one see it?",
    "Is it launched with marin-scale run, or carries its launch the digest below?",
)
_SEALED_WORDS = (
    "Its target, number and ladder are to be judged when it is revealed. Ask now whether that day is soon enough, and whether "
    "this person has others that were not revealed in time: each of those counts as missed."
)
_WHOSE_WORDS = (
    "A run of the pull request's own workflow wrote this text, so whoever opened the pull request could have changed it. To be "
    "sure, run `marin-scale review` in a checkout of your own. Text like `this` is that of its files."
)
_ALL = "`marin-scale review --whole`"
_REASON = 6000  # of the registry's refusal, in characters
_LEAST_POINTS = 2
_HALF = 0.5


def review_text(review: Review, *, registry: Path, runs_dir: Path, at: datetime, most: int | None = COMMENT_CHARACTERS) -> str:
    """The review: all verdicts, then the details of each preregistration.

    Details that do not fit into `most` characters are left out, which the last line says.
    """
    root = registry.absolute().parent
    ordered = sorted(review.reviewed, key=lambda each: each.refusal is None)
    head = [
        "# Review of preregistrations",
        _WHOSE_WORDS,
        _verdicts(ordered),
        _trust(review),
        _registry_line(review),
        _would_refuse(review),
    ]
    details = [
        *(_lost(each, root=root) for each in review.would_refuse),
        *("\n\n".join(filter(None, _parts(each, registry=registry, runs_dir=runs_dir, at=at))) for each in ordered),
    ]
    kept, left = fitting("\n\n".join(filter(None, head)), details, most=most)
    if left:
        kept.append(f"**Too long for a comment**: {len(left)} of {len(details)} details are left out. All of them: {_ALL}")
    return "\n\n".join(kept) + "\n"


def _registry_line(review: Review) -> str:
    if review.step is None or review.refusal is not None:
        return f"**Refused**, the registry as a whole:\n\n{preformatted(shortened(review.refusal or '', _REASON))}"
    return f"The registry: {escape(review.step.evidence)}."


def _trust(review: Review) -> str:
    """What the registry trusts from then on, each change with its warnings."""
    lines = [f"- {'' if step.compared else '**Warning**: '}{escape(step.evidence)}" for step in review.trust]
    return "What is trusted from then on:\n\n" + "\n".join(lines) if lines else ""


def _would_refuse(review: Review) -> str:
    if not review.would_refuse:
        return ""
    named = ", ".join(escape(each.id) for each in review.would_refuse[:JOINED])
    rest = len(review.would_refuse) - JOINED
    more = f" and {rest} more" if rest > 0 else ""
    return f"**{len(review.would_refuse)} forecasts of the base would be refused from then on**: {named}{more}."


def _lost(verdict: Verdict, *, root: Path) -> str:
    return f"**{escape(verdict.id)}** would be refused from then on:\n\n{preformatted(without_root(verdict.sentence, root))}"


def _verdicts(ordered: Sequence[Reviewed]) -> str:
    """A line for each preregistration, refused ones first."""
    if not ordered:
        return "It adds to no preregistration, and adds none."
    refused = sum(each.refusal is not None for each in ordered)
    lines = [f"- {_word(each)}: {escape(each.folder.name)}" for each in ordered[:REVIEWED_NAMED]]
    rest = len(ordered) - REVIEWED_NAMED
    more = [f"- and {rest} more"] if rest > 0 else []
    return "\n".join([f"Preregistrations: {len(ordered)}, of which refused: {refused}.", "", *lines, *more])


def _word(each: Reviewed) -> str:
    return "**refused**" if each.refusal is not None else "sealed" if each.statement is None else "verified"


def _parts(each: Reviewed, *, registry: Path, runs_dir: Path, at: datetime) -> Iterator[str]:
    yield f"## {escape(each.folder.name)}"
    if each.refusal is not None:
        yield f"**Refused**, so nothing of it is shown:\n\n{preformatted(each.refusal)}"
        return
    if each.statement is None:
        yield f"**Sealed**: {escape(each.steps[0].evidence)}. {_SEALED_WORDS}"
        by = read_seal(read_bytes(each.folder / SEAL_NAME), name=SEAL_NAME).by
        yield _record(by, registry=registry, runs_dir=runs_dir, at=at)
    elif each.is_new:
        yield from _forecast_parts(each, each.statement, registry=registry, runs_dir=runs_dir, at=at)
    else:
        (verdict,) = verdicts_on([each.folder], runs_dir=runs_dir, at=at, receipts=each.receipts)
        files = dict.fromkeys(name.partition("/")[0] for name in each.added)
        added = [*files, *(f"the run {run}, whose record nobody signed" for run in each.runs)]
        yield f"**Verified.** Added to it: {escape(', '.join(added))}. It is now {escape(verdict.sentence)}"
        yield remark_on_notices(each, runs_dir=runs_dir)
    if each.statement is not None:
        yield from amendment_parts(each, each.statement)
    rows = [[step.what, "ok" if step.compared else "--", escape(step.evidence)] for step in each.steps]
    yield f"<details><summary>All that was verified</summary>\n\n{table(['step', '', 'evidence'], rows)}\n\n</details>"


def _forecast_parts(each: Reviewed, statement: Statement, *, registry: Path, runs_dir: Path, at: datetime) -> Iterator[str]:
    yield _verdict_line(statement, reviewers=list(countersigners(path.name for path in each.folder.iterdir())))
    yield "\n".join(f"- {remark}" for remark in remarks(each, statement, runs_dir=runs_dir, at=at))
    yield measured_table(statement)
    yield _beside_table(each.folder, statement, registry=registry)
    yield _figure(each.folder, statement)
    yield doubts_section(statement, shown=escape, heading="###")
    yield promise_section(statement, shown=escape, heading="###")
    yield _record(statement.predicate["registrant"], registry=registry, runs_dir=runs_dir, at=at)
    yield "### To be answered by a person\n\n" + "\n".join(f"- [ ] {question}" for question in _QUESTIONS)
    yield f"Digest of the statement, which the run carries from its first step: `{statement.sha256}`"


def _verdict_line(statement: Statement, *, reviewers: Sequence[str]) -> str:
    quantiles, predicate = statement.quantiles, statement.predicate
    unit = escape(predicate["metric"]["unit"])
    signers = escape(predicate["registrant"] + "".join(f", reviewed by {each}" for each in reviewers))
    return (
        f"**Verified**, signed by {signers}: **{quantiles[0.5]:.4f} {unit}**, 90 % interval "
        f"{quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}, at {format_flops(predicate['targetRun']['flops'])} FLOPs, "
        f"{predicate['forecast']['extrapolation']:.4g} times beyond the largest run that was fitted."
    )


def _beside_table(folder: Path, statement: Statement, *, registry: Path) -> str:
    """This forecast beside its baseline and the earlier ones of its ladder: what changed since."""
    quantiles, predicate = statement.quantiles, statement.predicate
    rows = [_beside_row("this one", statement, folder=folder, since=None, point=quantiles[_HALF])]
    if baseline := predicate["scoring"].get("baseline"):
        low, high = (baseline["quantiles"][level] for level in ("0.05", "0.95"))
        beside = f"{baseline['point'] / quantiles[_HALF] - 1:+.2%}"
        rows.append(["its baseline", f"{baseline['point']:.4f}", beside, f"{high - low:.4f}", "", "", "", ""])
    for other, earlier in _earlier(statement, registry=registry):
        rows.append(_beside_row(other.name, earlier, folder=other, since=folder, point=quantiles[_HALF]))
    header = ["forecast", "median", "beside this", "width of 90 %", "asymptote", "law", "runs fitted", "FLOPs"]
    return "### Beside others\n\n" + table(header, rows, right=[1, 2, 3, 4])


def _earlier(statement: Statement, *, registry: Path) -> Iterator[tuple[Path, Statement]]:
    """The other forecasts of the same ladder's targets."""
    for folder in registration_folders(registry):
        try:
            other = read_registration(folder)
        except MarinScalingError:
            continue  # the registry's own verification says so
        same = other.predicate["targetRun"]["ladder"] == statement.predicate["targetRun"]["ladder"]
        if same and other.sha256 != statement.sha256:
            yield folder, other


def _beside_row(name: str, statement: Statement, *, folder: Path, since: Path | None, point: float) -> list[str]:
    quantiles, predicate = statement.quantiles, statement.predicate
    asymptote = predicate["fit"]["parameters"].get("E")
    return [
        escape(name),
        f"{quantiles[_HALF]:.4f}",
        f"{quantiles[_HALF] / point - 1:+.2%}",
        f"{quantiles[0.95] - quantiles[0.05]:.4f}",
        "" if asymptote is None else f"{asymptote:.4f}",
        escape(str(predicate["fit"]["law"]).partition(":")[0]),
        _runs(folder, since=since),
        format_flops(predicate["targetRun"]["flops"]),
    ]


def _runs(folder: Path, *, since: Path | None) -> str:
    own = {row["run"] for row in _ladder_rows(folder)}
    if since is None:
        return str(len(own))
    ours = {row["run"] for row in _ladder_rows(since)}
    return f"{len(own)} ({len(ours - own)} more here, {len(own - ours)} not here)"


def _ladder_rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load_canonical(read_bytes(folder / "ladder.json"), name=str(folder / "ladder.json"))["rows"]
    return rows


def _figure(folder: Path, statement: Statement) -> str:
    """The best run of each budget and the forecast, as a chart that the forge draws itself; it knows no error bars.

    None of the first format, whose ladders do not say their budgets.
    """
    best = _best_of_budgets(_ladder_rows(folder))
    if len(best) < _LEAST_POINTS:
        return ""
    labels = ", ".join(f'"{format_flops(flops)}"' for flops in [*best, statement.predicate["targetRun"]["flops"]])
    lines = [[*best.values(), statement.quantiles[level]] for level in (_HALF, 0.05, 0.95)]
    low, high = math.floor(10 * min(map(min, lines))) / 10, math.ceil(10 * max(map(max, lines))) / 10
    drawn = "\n".join(f"  line [{', '.join(f'{value:.4f}' for value in line)}]" for line in lines)
    return (
        "```mermaid\nxychart-beta\n"
        f'  title "best run of each budget; median, 5 % and 95 % of the forecast"\n  x-axis "training FLOPs" [{labels}]\n'
        f'  y-axis "{_plain(statement.predicate["metric"]["unit"])}" {low:g} --> {high:g}\n{drawn}\n```'
    )


def _plain(text: str) -> str:
    """Words for a chart of the forge's, which has a language of its own."""
    return re.sub(r"[^A-Za-z0-9 /]", "", text[:40])


def _best_of_budgets(rows: Sequence[Mapping[str, Any]]) -> dict[float, float]:
    best: dict[float, float] = {}
    for row in rows:
        if budget := row.get("budget_flops"):
            best[budget] = min(row["loss"], best.get(budget, math.inf))
    return dict(sorted(best.items()))


def _record(registrant: str, *, registry: Path, runs_dir: Path, at: datetime) -> str:
    """How this registrant's forecasts have done, all of them."""
    records = track_records(verdicts_on(registration_folders(registry), runs_dir=runs_dir, at=at))
    text = "\n".join(record_text(record) for record in records if record.registrant == registrant)
    return f"### The registrant's record\n\n{preformatted(text)}"
