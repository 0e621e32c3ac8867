"""`marin-scale ladder`: plan a ladder, and train every rung of it that is not trained yet."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app

_LADDER = typer.Argument(metavar="LADDER.yaml", help="The ladder file.")


@app.command("ladder")
def ladder(
    ladder_path: Path = _LADDER,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the rungs and what they cost; train nothing."),
) -> None:
    """Train the rungs of a ladder into runs/, on this machine.

    Interrupted at any moment and typed again, it goes on where it was.

    Example: marin-scale ladder ladders/quickstart.yaml --dry-run
    """
    from marin_scaling.cli.training import plan, train_with_progress
    from marin_scaling.ladder.ladder import ladder_table

    planned = plan(ladder_path)
    typer.echo(ladder_table(planned.ladder))
    if not dry_run:
        file = planned.ladder.file
        at_a_time = file.hardware.runs_at_a_time
        train_with_progress(planned.specs, corpus=planned.corpus, label=f"ladder {file.name}", runs_at_a_time=at_a_time)
        typer.echo(
            f"All {len(planned.specs)} runs are recorded in {planned.runs_dir}. Next: marin-scale fit {planned.runs_dir}"
        )
