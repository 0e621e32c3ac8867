"""A target forecast from its ladder's runs, told to the reader: what `preregister` signs, and `amend` signs again.

Every rung has to be there, trained on one text, so that nobody can choose the runs that suit. Nothing is signed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from marin_scaling.fit.result import FitResult
    from marin_scaling.forecast.backtest import Backtest
    from marin_scaling.ladder.config import Promise
    from marin_scaling.preregistration.register import Evidence
    from marin_scaling.run.plan import PlannedLadder
    from marin_scaling.run.spec import RunSpec


def target_in(folder: Path) -> RunSpec:
    """The target of a preregistration, not yet bound to it."""
    from marin_scaling.files import read_bytes
    from marin_scaling.run.spec import read_spec

    return read_spec(read_bytes(folder / "target.json"), name=str(folder / "target.json"))


def require_whole_ladder(planned: PlannedLadder) -> None:
    """All rungs must be recorded, and trained and measured as the target would be."""
    _require_one_text(planned)
    _require_trained(planned)


def _require_one_text(planned: PlannedLadder) -> None:
    """The rungs that are fitted and the target must be trained on one text and measured in one way."""
    from marin_scaling.errors import DataError
    from marin_scaling.run.store import read_runs

    here = planned.specs[0]
    for stored in read_runs(planned.runs_dir):
        for what, theirs, ours in (
            ("data", stored.spec.data, here.data),
            ("evaluation", stored.spec.evaluation, here.evaluation),
        ):
            if stored.spec.role == "rung" and theirs != ours:
                raise DataError(
                    f"{stored.folder} has other {what} than the target would have here: {theirs} and {ours}.",
                    why="Runs on other text, or measured in another way, say nothing of this target.",
                    fix="Use the Python that trained them, or train the ladder anew under another name.",
                )


def _require_trained(planned: PlannedLadder) -> None:
    """A forecast from part of a ladder would not say so, and could be chosen among many: every rung must be recorded."""
    from marin_scaling.errors import UsageError
    from marin_scaling.run.store import is_finished

    missing = [spec for spec in planned.specs if not is_finished(planned.runs_dir.parent, spec)]
    if missing:
        first = ", ".join(f"width {spec.model.hidden_dim} at {spec.budget_flops:g} FLOPs" for spec in missing[:3])
        raise UsageError(
            f"{len(missing)} of {len(planned.specs)} rungs of the ladder {planned.ladder.file.name!r} are not trained yet: "
            f"{first}{' and more' if len(missing) > 3 else ''}.",
            why="A forecast rests on the whole ladder, so that nobody can choose the runs that suit.",
            fix=f"Train them: marin-scale ladder ladders/{planned.ladder.file.name}.yaml; or take them out of the ladder file.",
        )


def forecast_target(planned: PlannedLadder) -> Evidence:
    """Fit the ladder's finished rungs and forecast its target; prints both, and what the ladder file does not say of it."""
    from marin_scaling.fit.fit import fit
    from marin_scaling.forecast.backtest import backtest_doubts, backtest_of_fit
    from marin_scaling.forecast.forecast import forecast
    from marin_scaling.forecast.report import wrapped
    from marin_scaling.ladder.plan import plan_target
    from marin_scaling.preregistration.register import Evidence
    from marin_scaling.recipe.find import find_recipe
    from marin_scaling.recipe.report import recipe_document
    from marin_scaling.run.plan import target_spec
    from marin_scaling.run.table import read_run_table

    result = fit(read_run_table(planned.runs_dir))
    tested = backtest_of_fit(result)
    file = planned.ladder.file
    optimum = forecast(result, flops=file.target.budget_flops)
    plan = plan_target(file, compute_optimal_params=optimum.active_params)
    target = target_spec(file, plan, corpus=planned.corpus)
    document, losses = _told(result, tested, flops=target.flops)
    doubts = (*plan.doubts, *backtest_doubts(tested), *_unsaid(file.promise))
    typer.echo("\n".join([_target_line(target), *(wrapped(f"note: {doubt}") for doubt in doubts)]))
    recipe = recipe_document(find_recipe(file.recipe), plan, batch_is_given=file.target.batch_size is not None)
    return Evidence(rows=result.rows, forecast=document, losses=losses, recipe=recipe, target=target)


def require_declared(evidence: Evidence, planned: PlannedLadder) -> None:
    """A constant that is another in the target than in all rungs has to stand in the promise: `verify` would refuse it."""
    import json

    from marin_scaling.errors import StatementError
    from marin_scaling.preregistration.statement import undeclared_differences

    target, *rungs = (json.loads(spec.to_bytes()) for spec in (evidence.target, *planned.specs))
    declared = planned.ladder.file.promise.known_differences
    undeclared = undeclared_differences(rungs, target=target, recipe=evidence.recipe, declared=declared)
    if undeclared:
        raise StatementError(
            f"ladders/{planned.ladder.file.name}.yaml: promise.known_differences does not name {undeclared[0]}.",
            why="Runs of another recipe say less of the target than their law does.",
            fix="Train the target as the ladder was trained, or name the difference there.",
        )


def forecast_again(runs_dir: Path, *, flops: float) -> tuple[list[dict[str, Any]], dict[str, Any], list[float]]:
    """The rows of a ladder's runs as they are now, the document of their fit with a forecast at `flops`, and its losses."""
    from marin_scaling.fit.fit import fit
    from marin_scaling.forecast.backtest import backtest_doubts, backtest_of_fit
    from marin_scaling.forecast.report import wrapped
    from marin_scaling.run.table import read_run_table

    result = fit(read_run_table(runs_dir))
    tested = backtest_of_fit(result)
    document, losses = _told(result, tested, flops=flops)
    for doubt in backtest_doubts(tested):
        typer.echo(wrapped(f"note: {doubt}"))
    return list(result.rows), document, losses


def _told(result: FitResult, tested: Backtest, *, flops: float) -> tuple[dict[str, Any], list[float]]:
    """The forecast at `flops`, printed with what it hangs on; returns its document, and losses that are equally likely."""
    from marin_scaling.forecast.forecast import forecast, samples
    from marin_scaling.forecast.report import forecast_document, forecast_text
    from marin_scaling.forecast.sensitivity import sensitivity, sensitivity_text

    prediction = forecast(result, flops=flops)
    typer.echo(forecast_text(result, [prediction]) + "\n")
    hangs_on = sensitivity(result, prediction)
    typer.echo(sensitivity_text(hangs_on) + "\n")
    document = forecast_document(result, [prediction], sensitivities=[hangs_on], tested=tested)
    return document, samples(result, flops=flops).tolist()


def _unsaid(promise: Promise) -> list[str]:
    """What a reader of the statement will miss."""
    if not promise.left_out:
        return []
    return [f"the ladder file's promise: says nothing of {', '.join(promise.left_out)}; nor will the statement"]


def _target_line(target: RunSpec) -> str:
    from marin_scaling.units import format_count, format_flops

    return (
        f"target: width {target.model.hidden_dim}, {format_count(target.model.shape().params_total)} parameters, "
        f"{format_count(target.trained_tokens)} tokens, {format_flops(target.flops)} FLOPs: the width nearest to N*"
    )
