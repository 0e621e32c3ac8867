"""`marin-scale downstream`: a benchmark's accuracy at a larger compute, by way of a soft metric of the same runs."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.fit import COLUMN, DROP, KEEP, TABLE, chosen_columns

_SOFT = typer.Option(..., "--soft", metavar="COLUMN", help="The metric that falls: loss or bits per byte of the right answers.")
_METRIC = typer.Option(..., "--metric", metavar="COLUMN", help="The accuracy, a share from 0 to 1; empty where not scored.")
_PREDICT = typer.Option(..., "--predict", metavar="FLOPS", help="Forecast the best run of this compute; may be repeated.")
_POOL = typer.Option(None, "--pool", metavar="TABLE", help="More runs with both columns, of any recipe, for the curve alone.")
_CHANCE = typer.Option(None, "--chance", metavar="SHARE", help="The accuracy of guessing, such as 0.25; fitted unless given.")
_QUESTIONS = typer.Option(None, "--questions", min=1, help="How many questions the accuracy is a share of.")


@app.command("downstream")
def downstream(
    table: Path = TABLE,
    soft: str = _SOFT,
    metric: str = _METRIC,
    predict: list[str] = _PREDICT,
    pool: Path | None = _POOL,
    chance: float | None = _CHANCE,
    questions: int | None = _QUESTIONS,
    column: list[str] = COLUMN,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the draws behind the interval."),
) -> None:
    """Forecast a benchmark's accuracy, in two steps.

    A law gives the soft metric at the compute, a curve through scored runs the accuracy; the interval carries both.

    Example: marin-scale downstream runs.csv --soft arc_bpb --metric arc_accuracy --predict 1e22 --chance 0.25
    """
    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.fit.sigmoid import fit_sigmoid
    from marin_scaling.forecast.downstream import forecast_downstream
    from marin_scaling.forecast.downstream_document import downstream_document, downstream_text
    from marin_scaling.run.run_table import read_run_table
    from marin_scaling.run.scored_runs import read_pool, read_scores
    from marin_scaling.units import parse_flops

    budgets, columns = [parse_flops(text) for text in predict], chosen_columns([*column, f"loss={soft}"])
    runs = read_run_table(table, columns=columns, keep=keep, drop=drop)
    scored = read_scores(table, table=runs, metric=metric)
    scored = scored.with_pool(read_pool(pool, soft=soft, metric=metric)) if pool else scored
    result = fit(runs, seed=seed)
    curve = fit_sigmoid(scored.soft, accuracy=scored.accuracy, chance=chance, questions=questions, seed=seed)
    forecasts = [forecast_downstream(result, curve, flops=flops) for flops in budgets]
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        document = downstream_document(result, curve, forecasts, metric=metric, notes=scored.notes)
        typer.echo(dump_canonical(document), nl=False)
    else:
        typer.echo(downstream_text(result, curve, forecasts, metric=metric, notes=scored.notes))
