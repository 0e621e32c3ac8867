"""`marin-scale import`: a table of runs out of trackers' files, each run with its source."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.fit import chosen_columns
from marin_scaling.units import counted

_PLACES = typer.Argument(metavar="PLACE...", help="Files or folders that trackers wrote, or wandb:ENTITY/PROJECT.")
_OUT = typer.Option(metavar="TABLE", help="The table to write: .csv, .parquet or .jsonl.")
_COLUMN = typer.Option([], "--column", metavar="NAME=KEY", help="Where loss, flops, params or tokens stand in the tracker.")


@app.command("import")
def import_tables(places: list[str] = _PLACES, out: Path = _OUT, column: list[str] = _COLUMN) -> None:
    """Make a table of runs from what trackers wrote.

    From W&B's offline files and online projects, Levanter's JSON log, and Marin's tracker_metrics.jsonl. A run that lacks a
    number is named and left out. Then: marin-scale fit TABLE.

    Example: marin-scale import wandb:my-team/my-ladder --out runs.csv
    """
    from marin_scaling.run.import_runs import import_runs
    from marin_scaling.run.table_files import write_table_file
    from marin_scaling.run.tracker_logs import read_tracked_runs

    found = import_runs([run for place in places for run in read_tracked_runs(place)], keys=chosen_columns(column))
    write_table_file(out, found.rows)
    for name, why in found.left_out:
        typer.echo(f"left out: {name}: {why}")
    typer.echo(f"{counted(len(found.rows), 'run')} in {out}; the loss is {found.loss_key}. Next: marin-scale fit {out}")
