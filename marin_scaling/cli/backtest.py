"""`marin-scale backtest`: how well the smaller budgets of a table would have forecast its larger ones."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.fit import COLUMN, DROP, KEEP, LAW, TABLE, chosen_columns


@app.command("backtest")
def backtest_table(
    table: Path = TABLE,
    column: list[str] = COLUMN,
    law: str = LAW,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON, with every run that was forecast."),
    keep: list[str] = KEEP,
    drop: list[str] = DROP,
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the draws behind the intervals."),
) -> None:
    """Forecast each budget of a table from the smaller ones, and score the forecasts.

    The table by distance says how far beyond its runs such a ladder may be trusted.

    Example: marin-scale backtest runs/delphi
    """
    from marin_scaling.forecast.backtest import backtest, backtest_document, backtest_text
    from marin_scaling.run.run_table import read_run_table

    result = backtest(read_run_table(table, columns=chosen_columns(column), keep=keep, drop=drop), law=law, seed=seed)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(backtest_document(result)), nl=False)
    else:
        typer.echo(backtest_text(result))
