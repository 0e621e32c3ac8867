"""What a machine can say of how far a forecast is to be trusted, for its reviewer; doubts in bold. Nothing is verified here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical
from marin_scaling.check.families import near_forecasts
from marin_scaling.check.received import CLOCKS_DIFFER
from marin_scaling.check.rehearsals import rehearsals
from marin_scaling.check.review import Reviewed
from marin_scaling.check.state import State
from marin_scaling.check.verdict import verdicts_on
from marin_scaling.durable_files import read_bytes
from marin_scaling.limits import JOINED
from marin_scaling.preregistration.binding import answering_spec
from marin_scaling.preregistration.notice import NOTICE_NAME
from marin_scaling.preregistration.registry import OUTCOME_NAME
from marin_scaling.preregistration.statement import Statement
from marin_scaling.printable import joined
from marin_scaling.publish.comment import escape
from marin_scaling.publish.markdown import table
from marin_scaling.regular_files import is_present
from marin_scaling.run.run_store import is_finished

_FAR = 100  # times beyond the ladder; the published practice went 333 times beyond it
_LONG_TERM = timedelta(days=365)
_OF_THE_VALUE = re.compile(
    r"\b(forecast\w*|predict\w*|values?|loss(es)?|intervals?|median|quantiles?|results?|outcomes?|miss(es|ed)?|bits)\b",
    re.IGNORECASE,
)
"""Words by which a void condition may hang on the run's value, which would let a miss be taken back."""
_HALF = 0.5


def remarks(each: Reviewed, statement: Statement, *, runs_dir: Path, at: datetime) -> Iterator[str]:
    """Yield a line for each."""
    yield from of_void_conditions(statement)
    yield from _of_time(each, statement, at=at)
    yield from _of_term(statement)
    yield from _of_family(each, statement)
    yield from _of_outcome(each, runs_dir=runs_dir, at=at)
    yield from _of_promise(statement)
    yield from of_fit(each.folder, statement)


def _of_time(each: Reviewed, statement: Statement, *, at: datetime) -> Iterator[str]:
    said = {step.what: step for step in each.steps}
    if "stamp" in said and said["stamp"].compared:
        yield f"its time: {escape(said['stamp'].evidence)}"
    else:
        yield "**its time is its registrant's word**, and that of whoever merges it"
    yield from (
        f"**{step.what}**: {escape(step.evidence)}" for step in each.steps if not step.compared and step.what != "stamp"
    )
    if "sealed" in said:
        yield f"it was sealed before it was shown: {escape(said['sealed'].evidence)}"
    elif at - statement.created_at > CLOCKS_DIFFER:
        days = (at - statement.created_at).days
        yield f"**it says that it was made {days} days ago**; policy and keys are judged by the day of its receipt"


def of_void_conditions(statement: Statement) -> Iterator[str]:
    """Yield every void condition in full, and a warning for one whose words speak of the run's value: no tool can judge it."""
    for condition in statement.predicate.get("resolution", {}).get("voidIf", ()):
        yield f"it is void if: {escape(condition)}"
        if words := sorted({match[0].lower() for match in _OF_THE_VALUE.finditer(condition)}):
            yield f"**that condition may depend on the value itself** ({escape(', '.join(words))}): a miss could be taken back"


def _of_term(statement: Statement) -> Iterator[str]:
    if statement.due is not None and statement.due - statement.created_at > _LONG_TERM:
        days = (statement.due - statement.created_at).days
        yield f"**its run is due only after {days} days**, on {statement.due:%Y-%m-%d}; until then it is pending without a run"


def _of_family(each: Reviewed, statement: Statement) -> Iterator[str]:
    near = list(near_forecasts(each.folder, statement, registry=each.folder.parent))
    if near:
        listed = "; ".join(f"{folder.name}: {other.quantiles[_HALF]:.4f}" for folder, other in near)
        noun = "forecast" if len(near) == 1 else "forecasts"
        yield (
            f"**{len(near)} other {noun} of nearly this run by this registrant** (parameters and tokens within 10 %): "
            f"{escape(listed)}. They count as one, as the worst of them"
        )


def _of_outcome(each: Reviewed, *, runs_dir: Path, at: datetime) -> Iterator[str]:
    """Whether what is promised is known already, by a run or an outcome that is here."""
    if OUTCOME_NAME in each.added and not any(step.what == "sealed" for step in each.steps):
        yield "**its outcome comes with it**, so nobody else could see the forecast before the run"
    (verdict,) = verdicts_on([each.folder], runs_dir=runs_dir, at=at, receipts=each.receipts)
    if found := rehearsals(each.folder, runs_dir=runs_dir):
        listed = escape(joined(found))
        yield f"**runs of this target are recorded already**: {listed} (same model, data and steps, other order of the data)"
    if verdict.state is not State.PENDING:
        yield f"**it is no open forecast any more**: {escape(verdict.sentence)}"


def _of_promise(statement: Statement) -> Iterator[str]:
    predicate = statement.predicate
    if predicate.get("resolution", {}).get("resolver") == predicate["registrant"]:
        yield "**its resolver is its registrant**, so nobody can find it void"
    if predicate["forecast"]["extrapolation"] > _FAR:
        yield f"**it reaches more than {_FAR} times beyond its ladder**"


def of_fit(folder: Path, statement: Statement) -> Iterator[str]:
    """What the fit says of itself, what it left out, and what its numbers hang on."""
    fitted = statement.predicate["fit"]
    document = load_canonical(read_bytes(folder / "forecast.json"), name=str(folder / "forecast.json"))
    if not document.get("may_be_used", True):
        yield f"**the fit says of itself that it may not be used**: {escape(document['status'])}"
    elif "status" in document:
        yield f"the fit says of itself: {escape(document['status'])}"
    if fitted["excluded"]:
        left_out = joined((f"{run['run']} ({run['why']})" for run in fitted["excluded"]), separator="; ")
        yield f"left out of the fit: {escape(left_out)}"
    yield from (f"the fit warns: {escape(warning)}" for warning in fitted.get("warnings", ())[:JOINED])
    yield from of_backtest(fitted.get("backtest", ()))
    yield from of_other_choices(statement)


def of_backtest(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The distances at which forecasts from the ladder's own smaller budgets missed half of the larger runs, or more."""
    for row in rows:
        if row["inside90"] <= _HALF:
            direction = "high" if row["bias"] > 0 else "low"
            yield (
                f"**its own back-test missed**: of {row['count']} runs, {row['nearest']:g} times and more beyond those that "
                f"were fitted, {row['inside90']:.0%} lay in their 90 % intervals; "
                f"forecast {abs(row['bias']):.1%} too {direction}"
            )


def of_other_choices(statement: Statement) -> Iterator[str]:
    """Medians that a careful person could have got as well, and that the interval leaves out."""
    low, high = statement.quantiles[0.05], statement.quantiles[0.95]
    choices = [row for row in statement.predicate["forecast"].get("sensitivity", ()) if row["median"] is not None]
    outside = [row for row in choices if not low <= row["median"] <= high]
    if outside:
        listed = joined((f"{row['choice']}: {row['median']:.4f}" for row in outside), separator="; ")
        yield f"**{len(outside)} of {len(choices)} other choices lie outside its 90 % interval**: {escape(listed)}"


def remark_on_notices(each: Reviewed, *, runs_dir: Path) -> str:
    """What is doubtful of notices that come later; empty where nothing is."""
    known = is_present(each.folder / OUTCOME_NAME) or is_finished(runs_dir, answering_spec(each.folder))
    if known and any(name.endswith(f"-void/{NOTICE_NAME}") for name in each.added):
        return "**It is found void after its value was known**: ask why the condition was not seen before."
    return ""


def measured_table(statement: Statement) -> str:
    """Which run is promised, what is measured of it, and which runs were taken: what a reader has to agree to first."""
    predicate = statement.predicate
    run, metric, recipe = predicate["targetRun"], predicate["metric"], predicate.get("recipe", {})
    cost = f"{run['flops']:.6g} FLOPs ({run['flopsConvention']})"
    protocol = {name: value for name, value in metric.get("protocol", {}).items() if name != "metric"}
    rows = {
        "run": f"{run['ladder']}, recipe {run['recipe']}" if "recipe" in run else run["ladder"],
        "shape": _named(run.get("shape", {})),
        "size": f"{run['paramsTotal']:,} parameters, {run['tokens']:,} tokens, {cost}",
        "beyond the ladder": ", ".join(f"{name} {times:.4g}x" for name, times in recipe.get("beyondLadder", {}).items()),
        "text": _named(recipe.get("data", {})),
        "metric": f"{metric['name']} in {metric['unit']}; {_named(protocol)}",
        "of which weights": metric.get("checkpointRule", ""),
        "runs that were fitted": predicate["fit"].get("ladderRule", ""),
    }
    return "### What is promised\n\n" + table(
        ["what", "as signed"], [[what, escape(said)] for what, said in rows.items() if said]
    )


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))
