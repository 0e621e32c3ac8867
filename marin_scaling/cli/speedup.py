"""`marin-scale speedup`: what a changed recipe saves in compute and in time."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.fit import COLUMN, chosen_columns

_BASELINE = typer.Argument(metavar="BASELINE", help="Runs of the recipe to compare with, as for marin-scale fit.")
_VARIANT = typer.Argument(metavar="VARIANT", help="Runs of the changed recipe.")


@app.command("speedup")
def speedup_tables(
    baseline: Path = _BASELINE,
    variant: Path = _VARIANT,
    convention: str = typer.Option("own", "--convention", help="own: the baseline's fitted law; marin: E and alpha pinned."),
    column: list[str] = COLUMN,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Compare two recipes by the compute that one saves.

    At each budget: how many times more compute the baseline needs for the variant's loss, with a 90 % interval; a tie where it
    holds 1. With a column tokens_per_second in both tables, in wall-clock time, too.

    Example: marin-scale speedup baseline.csv variant.csv
    """
    from marin_scaling.forecast.speedup import compare_recipes
    from marin_scaling.forecast.speedup_document import speedup_document, speedup_text
    from marin_scaling.run.run_table import read_run_table

    columns = chosen_columns(column)
    ours, theirs = (read_run_table(path, columns=columns) for path in (baseline, variant))
    report = compare_recipes(ours, theirs, convention=convention)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(speedup_document(report, baseline=ours, variant=theirs)), nl=False)
    else:
        typer.echo(speedup_text(report, baseline=ours, variant=theirs))
