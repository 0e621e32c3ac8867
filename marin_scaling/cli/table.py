"""`marin-scale table`: a table of runs on its way out, into a file or to Weights & Biases."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.fit import TABLE
from marin_scaling.units import counted

_TO = typer.Option(metavar="PLACE", help="A file (.parquet, .csv or .jsonl), or wandb:PROJECT.")


@app.command("table")
def write_table(table: Path = TABLE, to: str = _TO) -> None:
    """Write a ladder's runs as one table.

    To a file that marin-scale fit and everybody else reads, or to one run of a W&B project, as a table to sort and plot there.
    Every row goes, also of runs that diverged, with its source. Any table of runs may be given.

    Example: marin-scale table runs/quickstart --to runs.parquet
    """
    from marin_scaling.run.table_files import write_table_file
    from marin_scaling.run.table_out import log_to_wandb, rows_of
    from marin_scaling.run.tracker_logs import ONLINE

    rows = rows_of(table)
    if to.startswith(ONLINE):
        seen = log_to_wandb(rows, project=to.removeprefix(ONLINE), name=table.stem, source=str(table))
        typer.echo(f"{counted(len(rows), 'run')} in a table of W&B: {seen}")
    else:
        write_table_file(Path(to), rows)
        typer.echo(f"{counted(len(rows), 'run')} in {to}. Next: marin-scale fit {to}")
