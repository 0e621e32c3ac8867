"""What a machine can say of how far a forecast is to be trusted, for its reviewer; doubts in bold. Nothing is verified here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical
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
from marin_scaling.run.run_store import is_finished

_FAR = 100  # times beyond the ladder; the published practice went 333 times beyond it
_OLD = timedelta(days=14)
_HALF = 0.5


def remarks(each: Reviewed, statement: Statement, *, runs_dir: Path, at: datetime) -> Iterator[str]:
    """A line for each."""
    yield from _of_time(each, statement, at=at)
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
    elif at - statement.created_at > _OLD:
        days = (at - statement.created_at).days
        yield f"**it says that it was made {days} days ago**; a key that has expired since would still pass"


def _of_outcome(each: Reviewed, *, runs_dir: Path, at: datetime) -> Iterator[str]:
    """Whether what is promised is known already, by a run or an outcome that is here."""
    if OUTCOME_NAME in each.added and not any(step.what == "sealed" for step in each.steps):
        yield "**its outcome comes with it**, so nobody else could see the forecast before the run"
    (verdict,) = verdicts_on([each.folder], runs_dir=runs_dir, at=at)
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
    known = (each.folder / OUTCOME_NAME).exists() or is_finished(runs_dir, answering_spec(each.folder))
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
