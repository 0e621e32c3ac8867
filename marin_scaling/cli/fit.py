"""`marin-scale fit`: a law through a table of runs, and what it forecasts for a larger one."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app

TABLE = typer.Argument(metavar="TABLE", help="CSV, Parquet or JSONL file, a suite (runs/delphi) or a ladder's runs.")
_PREDICT = typer.Option([], "--predict", metavar="FLOPS", help="Forecast the best run of this compute; may be repeated.")
_PREDICT_RUNS = typer.Option(
    None, "--predict-runs", metavar="TARGETS", help="Forecast each run of a table with params and tokens, or flops, of each."
)
COLUMN = typer.Option([], "--column", metavar="OURS=THEIRS", help="Which column holds what, as in loss=eval/loss.")
KEEP = typer.Option([], "--keep", metavar="RUN", help="Keep a run whatever the audit finds; may be repeated.")
DROP = typer.Option([], "--drop", metavar="RUN", help="Leave a run out; may be repeated, and is recorded.")
LAW = typer.Option(
    "coupled-surface",
    "--law",
    metavar="LAW",
    help="coupled-surface; isoflop-frontier or best-runs-frontier, through the best of each budget; "
    "pinned-frontier@1.6, with an asymptote of your choice; additive-surface, "
    "tied-surface, interaction-surface or over-training.",
)
_PLOT = typer.Option(None, "--plot", metavar="FILE", help="Draw runs, law and forecast: .html, .svg, .png or .json.")


@app.command("fit")
def fit_table(
    table: Path = TABLE,
    predict: list[str] = _PREDICT,
    predict_runs: Path | None = _PREDICT_RUNS,
    column: list[str] = COLUMN,
    law: str = LAW,
    swept: str | None = typer.Option(
        None, "--swept", help="Of a swept table (three runs or more of many sizes) fit the best 30 % of each, or all."
    ),
    hangs_on: bool = typer.Option(False, "--sensitivity", help="Show what forecasts hang on: other laws, budgets left out."),
    plot: Path | None = _PLOT,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the draws behind the interval."),
) -> None:
    """Fit a scaling law to runs and forecast larger ones.

    Each forecast has a 90 % interval, a compute-optimal size, and what was left out.

    The table needs FLOPs, parameters, tokens and loss of each run; common column names are recognised, and said.

    Example: marin-scale fit runs/delphi --predict 1e23 --plot delphi.html
    """
    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.forecast.forecast import forecast_runs, optimal_target
    from marin_scaling.forecast.forecast_document import forecast_document, forecast_text
    from marin_scaling.forecast.sensitivity import sensitivity, sensitivity_text
    from marin_scaling.forecast.target_table import read_targets, target_runs
    from marin_scaling.run.run_table import read_run_table
    from marin_scaling.units import parse_flops

    budgets, columns = [parse_flops(text) for text in predict], chosen_columns(column)
    wanted = read_targets(predict_runs) if predict_runs else None
    runs = read_run_table(table, columns=columns, keep=keep, drop=drop)
    result = fit(runs, law=law, seed=seed, swept=swept or ("all" if wanted and wanted.swept else "best"))
    targets = [optimal_target(result, flops) for flops in budgets] + (target_runs(result, wanted) if wanted else [])
    forecasts = forecast_runs(result, targets)
    tables = [sensitivity(result, each) for each in forecasts] if hangs_on else []
    if plot is not None:
        from marin_scaling.publish.charts import law_chart, save_chart

        save_chart(law_chart(result, forecasts), plot)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(forecast_document(result, forecasts, sensitivities=tables)), nl=False)
    else:
        parts = [forecast_text(result, forecasts), *map(sensitivity_text, tables), *([f"Drawn: {plot}"] if plot else [])]
        typer.echo("\n\n".join(parts))


def chosen_columns(pairs: list[str]) -> dict[str, str]:
    """The choices of `--column`, as in {"loss": "eval/loss"}."""
    from marin_scaling.errors import UsageError

    chosen: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs) or ours in chosen:
            again = f"{ours!r} was chosen before, as {chosen.get(ours)!r}" if ours in chosen else "it is not OURS=THEIRS"
            raise UsageError(
                f"--column {pair!r} is not a choice of one column: {again}.",
                why="It says which column of the table holds one of ours.",
                fix="Write it like --column loss=eval/loss, once for each of ours.",
            )
        chosen[ours] = theirs
    return chosen
