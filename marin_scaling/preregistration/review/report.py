"""The review of a pull request as Markdown."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical
from marin_scaling.errors import MarinScalingError
from marin_scaling.files import read_bytes
from marin_scaling.forecast.forecast import choices_outside
from marin_scaling.markdown import cell, preformatted, table, without_root
from marin_scaling.markdown import escape as markdown_escape
from marin_scaling.preregistration.events.amendment import Amendment
from marin_scaling.preregistration.events.seal import read_seal
from marin_scaling.preregistration.format import ASSURANCE
from marin_scaling.preregistration.layout import (
    AMENDMENT_NAME,
    NOTICE_NAME,
    OUTCOME_NAME,
    POLICY_NAME,
    SEAL_NAME,
    SIGNERS_NAME,
    countersigners,
)
from marin_scaling.preregistration.log import CLOCKS_DIFFER, known_at, own_receipts
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.register import answering_spec, is_outside_run
from marin_scaling.preregistration.review.comment import escape, fault_parts, fitting
from marin_scaling.preregistration.review.pull_request import Review, Reviewed, rehearsals
from marin_scaling.preregistration.statement import Statement, moment_text
from marin_scaling.preregistration.track_record import KnownForecasts, record_text
from marin_scaling.preregistration.verdict import verdicts_on
from marin_scaling.printable import COMMENT_CHARACTERS, JOINED, LISTED, REVIEWED_NAMED, joined, shortened
from marin_scaling.run.store import is_finished
from marin_scaling.units import counted, format_flops, format_number
from marin_scaling.untrusted_files import is_present

_FAR = 100  # published practice went 333x beyond its ladder
_LONG_TERM = timedelta(days=365)
_OF_THE_VALUE = re.compile(
    r"\b(forecast\w*|predict\w*|values?|loss(es)?|intervals?|median|quantiles?|results?|outcomes?|miss(es|ed)?|bits)\b",
    re.IGNORECASE,
)
"""Words that suggest that a void condition depends on the run's value."""
_HALF = 0.5
_NAMED = 3  # runs of each reason


def remarks(each: Reviewed, statement: Statement, *, known: KnownForecasts) -> Iterator[str]:
    """Yield a line for each remark on a new forecast."""
    yield from of_void_conditions(statement)
    yield from _of_time(each, statement, at=known.at)
    yield from _of_term(statement)
    yield from _of_family(each, known=known)
    yield from _of_outcome(each, runs_dir=known.runs_dir, at=known.at)
    yield from _of_promise(statement)
    yield from _of_people(each, statement)
    yield from of_fit(each.folder, statement)


def _of_time(each: Reviewed, statement: Statement, *, at: datetime) -> Iterator[str]:
    said = {step.what: step for step in each.steps}
    if "stamp" in said and said["stamp"].compared:
        yield f"time: {escape(said['stamp'].evidence)}"
    else:
        yield "**its time is not stamped**: only the registrant and the merge vouch for it"
    yield from (
        f"**{step.what}**: {escape(step.evidence)}" for step in each.steps if not step.compared and step.what != "stamp"
    )
    if "sealed" in said:
        yield f"sealed before it was revealed: {escape(said['sealed'].evidence)}"
    elif at - statement.created_at > CLOCKS_DIFFER:
        days = (at - statement.created_at).days
        yield f"**its stated time is {days} days ago**; policy and keys are judged by the day of receipt"


def of_void_conditions(statement: Statement) -> Iterator[str]:
    """Yield every void condition, with a warning if its words refer to the run's value."""
    for condition in statement.predicate["resolution"]["voidIf"]:
        yield f"void if: {escape(condition)}"
        if words := sorted({match[0].lower() for match in _OF_THE_VALUE.finditer(condition)}):
            yield f"**that condition may depend on the value itself** ({escape(', '.join(words))}): a miss could be voided"


def _of_term(statement: Statement) -> Iterator[str]:
    if statement.due - statement.created_at > _LONG_TERM:
        days = (statement.due - statement.created_at).days
        yield f"**its run is due only after {days} days**, on {statement.due:%Y-%m-%d}; until then it can stay pending"


def _of_family(each: Reviewed, *, known: KnownForecasts) -> Iterator[str]:
    near = [(folder, other) for folder, other in known.families.get(each.folder.name, []) if folder.name != each.folder.name]
    if near:
        listed = joined((f"{folder.name}: {other.quantiles[_HALF]:.4f}" for folder, other in near), separator="; ")
        noun = "forecast" if len(near) == 1 else "forecasts"
        yield (
            f"**{len(near)} other {noun} of a similar run by this registrant** (parameters and tokens within 10 %): "
            f"{escape(listed)}. The family counts once, as its worst member"
        )


def _of_outcome(each: Reviewed, *, runs_dir: Path, at: datetime) -> Iterator[str]:
    """Yield remarks if a run or outcome reveals the promised value already."""
    if OUTCOME_NAME in each.added and not any(step.what == "sealed" for step in each.steps):
        yield "**its outcome comes with it**: no one else could see the forecast before the run"
    (verdict,) = verdicts_on([each.folder], runs_dir=runs_dir, at=at, receipts=each.receipts)
    if found := rehearsals(each.folder, runs_dir=runs_dir):
        listed = escape(joined(found))
        yield f"**runs of this target are recorded already**: {listed} (same model, data and steps; other data order)"
    if verdict.state is not State.PENDING:
        yield f"**the forecast is no longer open**: {escape(verdict.sentence)}"


def _of_promise(statement: Statement) -> Iterator[str]:
    predicate = statement.predicate
    if predicate["resolution"]["resolver"] == predicate["registrant"]:
        yield "**its resolver is its registrant**: the forecast cannot be voided"
    if predicate["forecast"]["extrapolation"] > _FAR:
        yield f"**it extrapolates more than {_FAR}x beyond its ladder**"


def _of_people(each: Reviewed, statement: Statement) -> Iterator[str]:
    """Yield a warning for each resolver and reviewer without a key."""
    resolver = statement.predicate["resolution"]["resolver"]
    for name in each.unlisted:
        role, task = ("resolver", "void the forecast") if name == resolver else ("reviewer", "sign it")
        yield f"**its {role} has no key in {SIGNERS_NAME}**: {escape(name)} cannot {task} until a key is merged"


def of_fit(folder: Path, statement: Statement) -> Iterator[str]:
    """Yield the fit's status, excluded runs and warnings, and remarks on backtest and sensitivity."""
    fitted = statement.predicate["fit"]
    document = _document(folder / "forecast.json")
    if not document.get("may_be_used", True):
        yield f"**the fit is marked as unusable**: {escape(document['status'])}"
    elif "status" in document:
        yield f"status of the fit: {escape(document['status'])}"
    yield from _of_runs(fitted)
    yield from of_backtest(fitted["backtest"])
    yield from of_other_choices(statement)


def _of_runs(fitted: Mapping[str, Any]) -> Iterator[str]:
    runs_by_reason: dict[str, list[str]] = {}
    for run in fitted["excluded"]:
        runs_by_reason.setdefault(run["why"], []).append(run["run"])
    for why, runs in [*runs_by_reason.items()][:JOINED]:
        yield f"excluded from the fit: {escape(f'{joined(runs, most=_NAMED)}: {why}')}"
    if more := sum(map(len, [*runs_by_reason.values()][JOINED:])):
        yield f"excluded from the fit: {more} more"
    yield from (f"warning of the fit: {escape(warning)}" for warning in fitted["warnings"][:JOINED])


def of_backtest(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the distances at which the backtest's 90 % intervals held at most half of the losses."""
    for row in rows:
        if row["inside90"] <= _HALF:
            direction = "high" if row["bias"] > 0 else "low"
            yield (
                f"**its backtest missed**: of {row['count']} forecasts at {row['nearest']:g}x and more beyond the fitted runs, "
                f"{row['inside90']:.0%} held the loss in their 90 % intervals; they were {abs(row['bias']):.1%} too {direction}"
            )


def of_other_choices(statement: Statement) -> Iterator[str]:
    """Yield medians of alternative fits that lie outside of the interval."""
    if outside := choices_outside(statement.predicate["forecast"]["sensitivity"], statement.quantiles):
        fact, _, listed = outside.partition(": ")
        yield f"**{fact}**: {escape(listed)}"


def remark_on_notices(each: Reviewed, *, runs_dir: Path) -> str:
    """Return a warning about later notices; empty if there is none."""
    known = is_present(each.folder / OUTCOME_NAME)
    known = known or (not is_outside_run(each.folder) and is_finished(runs_dir, answering_spec(each.folder)))
    if known and any(name.endswith(f"-void/{NOTICE_NAME}") for name in each.added):
        return "**It is voided after its value was known**: ask why the condition was not noticed before."
    return ""


def measured_table(statement: Statement) -> str:
    """Return a table of the promised run, its metric, and the fitted runs."""
    predicate = statement.predicate
    run, metric, recipe = predicate["targetRun"], predicate["metric"], predicate["recipe"]
    cost = f"{format_number(run['flops'], 4)} FLOPs ({run['flopsConvention']})"
    active = "" if run["paramsActive"] == run["paramsTotal"] else f" ({run['paramsActive']:,} active)"
    protocol = {name: value for name, value in metric["protocol"].items() if name != "metric"}
    rows = {
        "run": f"{run['ladder']}, recipe {run['recipe']}; {ASSURANCE[run.get('assurance', 'bound')]}",
        "shape": _named(run["shape"] or recipe.get("described", {})),
        "size": f"{run['paramsTotal']:,} parameters{active}, {run['tokens']:,} tokens, {cost}",
        "beyond the ladder": ", ".join(f"{name} {times:.4g}x" for name, times in recipe["beyondLadder"].items()),
        "text": recipe["data"]["source"] if statement.is_outside else _named(recipe["data"]),
        "metric": f"{metric['name']} in {metric['unit']}; {_named(protocol)}",
        "weights": metric["checkpointRule"],
        "fitted runs": predicate["fit"]["ladderRule"],
    }
    return "### Promised run\n\n" + table(["field", "as signed"], [[what, escape(said)] for what, said in rows.items() if said])


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()) if value is not None)


_AMENDMENT_QUESTIONS = (
    "Has the run not ended yet? Where can this be checked, and how many steps were done at this forecast?",
    "Is the reason convincing for someone who knows only the first forecast?",
    "Were the new runs planned, and is there a reason for each removed run?",
)


def amendment_parts(each: Reviewed, statement: Statement) -> Iterator[str]:
    """Yield, for each new amendment, its comparison with the first forecast, remarks and questions."""
    for amendment in each.amendments:
        yield f"### {escape(amendment.name)}: later forecast of the same run"
        yield _sentence(amendment, statement, folder=each.folder)
        yield _amended_table(amendment, statement, folder=each.folder)
        yield "\n".join(f"- {remark}" for remark in _remarks(amendment, each, statement))
        yield "Questions for a person:\n\n" + "\n".join(f"- [ ] {question}" for question in _AMENDMENT_QUESTIONS)


def _sentence(amendment: Amendment, statement: Statement, *, folder: Path) -> str:
    steps = _document(folder / "target.json")["train_steps"]
    return (
        f"**Verified**, signed by {escape(statement.predicate['registrant'])}, after {amendment.steps_seen} of {steps} "
        f"steps of the run, as claimed. The first forecast keeps the verdict and alone counts in the record. Reason: "
        f"{escape(amendment.predicate['reason'])}"
    )


def _amended_table(amendment: Amendment, statement: Statement, *, folder: Path) -> str:
    """Return the first forecast and the amendment, with the shift of the median in metric, nats and interval widths."""
    first, later = statement.quantiles, amendment.amended.quantiles
    width, moved = first[0.95] - first[0.05], later[0.5] - first[0.5]
    nats = f"{moved * math.log(2):+.4f}" if statement.predicate["metric"]["name"] == "bits_per_byte" else ""
    new, gone, other = _compared(folder / amendment.name, folder)
    runs = f"{len(_rows(folder / amendment.name))} ({new} new, {gone} gone, {other} with other numbers)"
    rows = [
        _row("the first", statement, runs=str(len(_rows(folder))), moved=["", "", ""]),
        _row(escape(amendment.name), amendment.amended, runs=runs, moved=[f"{moved:+.4f}", nats, f"{moved / width:+.2f}"]),
    ]
    unit = escape(statement.predicate["metric"]["unit"])
    header = ["forecast", f"median, {unit}", "90 % interval", "its width", "moved", "in nats per byte", "in widths"]
    return table([*header, "runs fitted"], rows, right=[1, 2, 3, 4, 5, 6])


def _row(name: str, statement: Statement, *, runs: str, moved: list[str]) -> list[str]:
    low, middle, high = (statement.quantiles[level] for level in (0.05, 0.5, 0.95))
    return [name, f"{middle:.4f}", f"{low:.4f} to {high:.4f}", f"{high - low:.4f}", *moved, runs]


def _remarks(amendment: Amendment, each: Reviewed, statement: Statement) -> Iterator[str]:
    """Yield remarks on an amendment, warnings in bold."""
    name, first, later = amendment.name, statement.predicate, amendment.amended.predicate
    known = known_at(
        amendment.amended.created_at, f"{name}/{AMENDMENT_NAME}", folder=each.folder, receipts=own_receipts(each.folder.parent)
    )
    yield (
        f"**time and steps are claims of the registrant**: made at {escape(later['createdAt'])}; with its line in the log it "
        f"counts from {moment_text(known)}"
    )
    yield from (f"**{step.what}**: {escape(step.evidence)}" for step in each.steps if step.what == name and not step.compared)
    if each.is_new:
        yield "**it comes together with the first forecast**: no one saw the first alone"
    if OUTCOME_NAME in each.added:
        yield "**the outcome comes with it**: no one else could see it before the run had ended"
    _, gone, other = _compared(each.folder / name, each.folder)
    if gone or other:
        yield f"**{gone} runs of the first forecast are missing, and {other} have other numbers**"
    for key in ("law", "fixed", "seed"):
        if first["fit"][key] != later["fit"][key]:
            yield f"**another {key}**: {escape(later['fit'][key])}; the first had {escape(first['fit'][key])}"
    yield from _of_runs(later["fit"])


def _compared(place: Path, since: Path) -> tuple[int, int, int]:
    """Return the numbers of runs that are new, gone, or have other values than in an earlier ladder."""
    now, before = _rows(place), _rows(since)
    other = sum(now[name] != before[name] for name in now.keys() & before.keys())
    return len(now.keys() - before.keys()), len(before.keys() - now.keys()), other


def _rows(place: Path) -> dict[tuple[str, int], Any]:
    """Return the fitted runs by name and number among those of the name, such as seeds."""
    seen = Counter[str]()
    found = {}
    for row in _document(place / "ladder.json")["rows"]:
        found[row["run"], seen[row["run"]]] = row
        seen[row["run"]] += 1
    return found


def _document(path: Path) -> Any:
    return load_canonical(read_bytes(path), name=str(path))


_QUESTIONS = (
    "Is the measurement unambiguous: metric, weights and text?",
    "Is the selection of the ladder's runs plausible, and each excluded run?",
    "Are all differences between target and ladder listed?",
    "Is the interval wide enough, given the sensitivity table?",
    "Are the void conditions fair?",
    "Has the run not started yet? Where can this be checked?",
)
_QUESTION = {
    False: "Will marin-scale run launch it, or does its launch carry the digest below?",
    True: "Does the named tracker belong to this lab, and can others read the log of its run?",
}
_SEALED_WORDS = (
    "Judge target, number and ladder when the forecast is revealed. Check now whether that day is soon enough, and whether "
    "this person has forecasts that were not revealed in time: each counts as missed."
)
_ALL = "`marin-scale review`"
_REASON = 6000  # of the registry's refusal, in characters
_LEAST_POINTS = 2


def review_text(review: Review, *, registry: Path, runs_dir: Path, at: datetime, most: int | None = COMMENT_CHARACTERS) -> str:
    """Return the review: all verdicts, then the details of each preregistration.

    Details beyond `most` characters are left out; the last line says so.
    """
    root, known = registry.absolute().parent, KnownForecasts(registry=registry, runs_dir=runs_dir, at=at)
    ordered, refused = sorted(review.reviewed, key=lambda each: each.refusal is None), review.refusal or ""
    head = [
        "# Review of preregistrations",
        *fault_parts(review.base_faults),
        refused and f"**Refused**, the registry as a whole:\n\n{preformatted(shortened(refused, _REASON))}",
        _verdicts(ordered),
        _trust(review),
        f"The registry: {escape(review.step.evidence)}." if review.step is not None and review.refusal is None else "",
        _would_refuse(review),
    ]
    details = [
        *(_lost(each, root=root) for each in review.would_refuse),
        *("\n\n".join(filter(None, _parts(each, known=known))) for each in ordered),
    ]
    kept, left = fitting("\n\n".join(filter(None, head)), details, most=most)
    if left:
        kept.append(
            f"**Too long for a comment**: {len(left)} of {len(details)} details are left out; all are printed by {_ALL}"
        )
    return "\n\n".join(kept) + "\n"


def _trust(review: Review) -> str:
    """Return the changes of trust, each with its warnings."""
    lines = [f"- {'' if step.compared else '**Warning**: '}{escape(step.evidence)}" for step in review.trust]
    return "Trusted after the merge:\n\n" + "\n".join(lines) if lines else ""


def _would_refuse(review: Review) -> str:
    if not review.would_refuse:
        return ""
    named = ", ".join(escape(each.id) for each in review.would_refuse[:JOINED])
    rest = len(review.would_refuse) - JOINED
    more = f" and {rest} more" if rest > 0 else ""
    since = any(POLICY_NAME in step.evidence for step in review.trust)
    hint = f" For a rule on new forecasts only, set `since` to today or later in {escape(POLICY_NAME)}." if since else ""
    return f"**Refused after the merge**: {counted(len(review.would_refuse), 'forecast')} of the base: {named}{more}.{hint}"


def _lost(verdict: Verdict, *, root: Path) -> str:
    return f"**{escape(verdict.id)}** would be refused after the merge:\n\n{preformatted(without_root(verdict.sentence, root))}"


def _verdicts(ordered: Sequence[Reviewed]) -> str:
    """Return a line for each preregistration, refused ones first."""
    if not ordered:
        return "No preregistration is added or changed."
    refused = sum(each.refusal is not None for each in ordered)
    lines = [f"- {_word(each)}: {escape(each.folder.name)}" for each in ordered[:REVIEWED_NAMED]]
    rest = len(ordered) - REVIEWED_NAMED
    more = [f"- and {rest} more"] if rest > 0 else []
    return "\n".join([f"Preregistrations: {len(ordered)}, of which refused: {refused}.", "", *lines, *more])


def _word(each: Reviewed) -> str:
    return "**refused**" if each.refusal is not None else "sealed" if each.statement is None else f"verified{_exception(each)}"


def _exception(each: Reviewed) -> str:
    """Return that the runs of the ladder, or their table, could not be compared, or ""."""
    missing = any(step.what == "ladder" and not step.compared for step in each.steps)
    return ", except the runs that it was fitted to, which are not here" if missing else ""


def _parts(each: Reviewed, *, known: KnownForecasts) -> Iterator[str]:
    yield f"## {escape(each.folder.name)}"
    if each.refusal is not None:
        yield f"**Refused**:\n\n{preformatted(each.refusal)}"
        return
    if each.statement is None:
        yield f"**Sealed**: {escape(each.steps[0].evidence)}. {_SEALED_WORDS}"
        by = read_seal(read_bytes(each.folder / SEAL_NAME), name=SEAL_NAME).by
        yield _record(by, known=known)
    elif each.is_new:
        yield from _forecast_parts(each, each.statement, known=known)
    else:
        (verdict,) = verdicts_on([each.folder], runs_dir=known.runs_dir, at=known.at, receipts=each.receipts)
        files = dict.fromkeys(name.partition("/")[0] for name in each.added)
        added = [*files, *(f"the run {run}, whose record is not signed" for run in each.runs)]
        also = [f"Added to it: {escape(', '.join(added))}."] if added else []
        also += [f"Restored: {escape(', '.join(each.restored))}."] if each.restored else []
        yield f"**Verified.** {' '.join(also)} Its state: {escape(verdict.sentence)}"
        yield remark_on_notices(each, runs_dir=known.runs_dir)
    if each.statement is not None:
        yield from amendment_parts(each, each.statement)
    rows = [[step.what, "ok" if step.compared else "--", escape(step.evidence)] for step in each.steps]
    yield f"<details><summary>Verified steps</summary>\n\n{table(['step', '', 'evidence'], rows)}\n\n</details>"


def _forecast_parts(each: Reviewed, statement: Statement, *, known: KnownForecasts) -> Iterator[str]:
    yield _verdict_line(
        statement, exception=_exception(each), reviewers=list(countersigners(path.name for path in each.folder.iterdir()))
    )
    yield "\n".join(f"- {remark}" for remark in remarks(each, statement, known=known))
    yield measured_table(statement)
    if statement.is_outside:
        yield f"The outcome will be read from: {escape(_named(_document(each.folder / 'target.json')['outcome']))}"
    yield _beside_table(each.folder, statement, known=known)
    yield _figure(each.folder, statement)
    yield doubts_section(statement, shown=escape, heading="###")
    yield promise_section(statement, shown=escape, heading="###")
    yield _record(statement.predicate["registrant"], known=known)
    questions = (*_QUESTIONS, _QUESTION[statement.is_outside])
    yield "### Questions for a person\n\n" + "\n".join(f"- [ ] {question}" for question in questions)
    yield f"Digest of the statement{'' if statement.is_outside else ', for the run spec'}: `{statement.sha256}`"


def _verdict_line(statement: Statement, *, exception: str, reviewers: Sequence[str]) -> str:
    quantiles, predicate = statement.quantiles, statement.predicate
    unit = escape(predicate["metric"]["unit"])
    signers = escape(predicate["registrant"] + "".join(f", reviewed by {each}" for each in reviewers))
    return (
        f"**Verified{exception}**, signed by {signers}: **{quantiles[0.5]:.4f} {unit}**, 90 % interval "
        f"{quantiles[0.05]:.4f} to {quantiles[0.95]:.4f}, at {format_flops(predicate['targetRun']['flops'])} FLOPs, "
        f"{predicate['forecast']['extrapolation']:.4g}x beyond the largest fitted run."
    )


def _beside_table(folder: Path, statement: Statement, *, known: KnownForecasts) -> str:
    """Return this forecast with its baseline and the earlier forecasts of its ladder."""
    quantiles, predicate = statement.quantiles, statement.predicate
    rows = [_beside_row("this forecast", statement, folder=folder, since=None, point=quantiles[_HALF])]
    baseline = predicate["scoring"]["baseline"]
    low, high = (baseline["quantiles"][level] for level in ("0.05", "0.95"))
    difference = f"{baseline['point'] / quantiles[_HALF] - 1:+.2%}"
    rows.append(["baseline", f"{baseline['point']:.4f}", difference, f"{high - low:.4f}", "", "", "", ""])
    others = [each for each in known.statements if _is_beside(each[1], statement)]
    for other, earlier in others[-LISTED:]:
        with contextlib.suppress(MarinScalingError):  # refused where it is verified
            rows.append(_beside_row(other.name, earlier, folder=other, since=folder, point=quantiles[_HALF]))
    header = ["forecast", "median", "difference", "width of 90 %", "asymptote", "law", "fitted runs", "FLOPs"]
    return "### Comparison\n\n" + table(header, rows, right=[1, 2, 3, 4])


def _is_beside(other: Statement, statement: Statement) -> bool:
    """Return True for another forecast of the same ladder's targets."""
    same_ladder = other.predicate["targetRun"]["ladder"] == statement.predicate["targetRun"]["ladder"]
    return bool(same_ladder) and other.sha256 != statement.sha256


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
    if since is None:
        return str(len(_rows(folder)))
    more, fewer, _ = _compared(since, folder)
    return f"{len(_rows(folder))} ({more} more in this forecast, {fewer} fewer)"


def _figure(folder: Path, statement: Statement) -> str:
    """Return the best run of each budget and the forecast as a Mermaid chart, which has no error bars."""
    best = _best_of_budgets(_document(folder / "ladder.json")["rows"])
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
    """Return text without characters that have a meaning in Mermaid."""
    return re.sub(r"[^A-Za-z0-9 /]", "", text[:40])


def _best_of_budgets(rows: Sequence[Mapping[str, Any]]) -> dict[float, float]:
    best: dict[float, float] = {}
    for row in rows:
        best[row["budget_flops"]] = min(row["loss"], best.get(row["budget_flops"], math.inf))
    return dict(sorted(best.items()))


def _record(registrant: str, *, known: KnownForecasts) -> str:
    """Return the registrant's track record."""
    text = "\n".join(record_text(record) for record in known.records if record.registrant == registrant)
    return f"### Track record of the registrant\n\n{preformatted(text)}"


Shown = Callable[[str], str]
"""Function from statement text to escaped Markdown."""


def doubts_section(statement: Statement, *, shown: Shown = cell, heading: str = "##") -> str:
    """Return the sensitivity table, the backtest and the baseline."""
    predicate = statement.predicate
    point, baseline = predicate["forecast"]["point"], predicate["scoring"]["baseline"]["point"]
    rows = [[shown(row["choice"]), *_beside(row["median"], point=point)] for row in predicate["forecast"]["sensitivity"]]
    rows.append(["baseline: a line through the best run of each budget, on logarithms", *_beside(baseline, point=point)])
    choices = table(["alternative", "median", "difference"], rows, right=[1, 2], most=LISTED, rest_in="statement.json")
    missing = "\n".join(
        f"- {shown(row['choice'])} could not be fitted: {shown(row['whyNone'])}"
        for row in predicate["forecast"]["sensitivity"][:LISTED]
        if row["median"] is None
    )
    tested = [
        [
            f"{row['nearest']:g}x to {row['farthest']:g}x" if row["farthest"] else f"{row['nearest']:g}x and more",
            str(row["count"]),
            f"{row['medianAbsoluteError']:.2%}",
            f"{row['bias']:+.2%}",
            f"{row['inside90']:.0%}",
        ]
        for row in predicate["fit"]["backtest"]
    ]
    header = ["beyond the runs", "forecasts", "error", "bias", "in 90 %"]
    backtest = f"Each budget of the ladder, forecast from the smaller ones:\n\n{table(header, tested, right=[1, 2, 3, 4])}"
    none = "No budget of the ladder can be forecast from smaller ones."
    parts = [f"{heading} Sensitivity and backtest", choices, missing, backtest if tested else none]
    return "\n\n".join(filter(None, parts))


def _beside(median: float | None, *, point: float) -> tuple[str, str]:
    return ("none", "") if median is None else (f"{median:.4f}", f"{median / point - 1:+.2%}")


def promise_section(statement: Statement, *, shown: Shown = markdown_escape, heading: str = "##") -> str:
    """Return the registrant's declarations, including empty ones."""
    predicate = statement.predicate
    resolution = predicate["resolution"]
    said = {
        "assumed": [_assumed(each) for each in predicate["assumptions"]],
        "differences from the ladder": predicate["recipe"]["knownDifferencesFromLadder"],
        "related runs whose losses were known": predicate["knowledge"]["relatedRunsSeen"],
        "void if": resolution["voidIf"],
        "reviewers": predicate["reviewers"],
        "resolved by": [resolution["resolver"]],
        "due": [resolution["due"]],
    }
    rows = [[what, "; ".join(map(shown, words)) or "not stated"] for what, words in said.items()]
    return f"{heading} Declarations\n\n{table(['field', 'declared'], rows)}"


def _assumed(assumption: Mapping[str, str]) -> str:
    otherwise = f" (if not: {assumption['ifFalse']})" if assumption["ifFalse"] else ""
    return f"{assumption['id']}: {assumption['text']}{otherwise}"
