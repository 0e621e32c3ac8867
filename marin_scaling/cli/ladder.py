"""`marin-scale ladder`: plan a ladder, and train every rung of it that is not trained yet."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app

_LADDER = typer.Argument(metavar="LADDER.yaml", help="The ladder file (with --advise also a table of runs).")


@app.command("ladder")
def ladder(
    ladder_path: Path = _LADDER,
    advise: str = typer.Option("", "--advise", metavar="FLOPS", help="Say which runs to add for so many FLOPs; train nothing."),
    target: str = typer.Option("", "--target", metavar="FLOPS", help="With --advise: the target, if not the ladder file's."),
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the rungs and what they cost; train nothing."),
) -> None:
    """Train the rungs of a ladder into runs/, here or on a Ray cluster.

    Interrupted at any moment and typed again, it goes on where it was.

    Example: marin-scale ladder ladders/quickstart.yaml --dry-run
    """
    if advise:
        _print_advice(ladder_path, allowance=advise, target=target)
        return
    from marin_scaling.cli.training import bind, expand, pool_of, train_with_progress
    from marin_scaling.errors import DataError
    from marin_scaling.ladder.ladder import ladder_table

    expanded = expand(ladder_path)
    try:
        planned = bind(expanded, ladder_path)
    except DataError as error:
        if not dry_run:
            raise
        typer.echo(f"{ladder_table(expanded)}\nnote: with these data it cannot be trained. {error.what}")
        return
    typer.echo(ladder_table(expanded))
    if not dry_run:
        file = expanded.file
        pool = pool_of(where, file.hardware)
        train_with_progress(planned.specs, corpus=planned.corpus, label=f"ladder {file.name}", pool=pool)
        typer.echo(
            f"All {len(planned.specs)} runs are recorded in {planned.runs_dir}. Next: marin-scale fit {planned.runs_dir}"
        )


def _print_advice(path: Path, *, allowance: str, target: str) -> None:
    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.forecast.advise import advice_text, advise
    from marin_scaling.run.run_table import read_run_table
    from marin_scaling.units import parse_flops

    (runs, target_flops), allowance_flops = _runs_and_target(path, target), parse_flops(allowance)
    found = advise(fit(read_run_table(runs)), target_flops=target_flops, allowance_flops=allowance_flops)
    typer.echo(advice_text(found))


def _runs_and_target(path: Path, target: str) -> tuple[Path, float]:
    """Where the runs so far lie, and the target's FLOPs: as typed, else as the ladder file says."""
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.errors import UsageError
    from marin_scaling.ladder.ladder_file import read_ladder_file
    from marin_scaling.units import parse_flops

    if path.suffix in (".yaml", ".yml"):
        file = read_ladder_file(path)
        return RUNS_DIR / file.name, parse_flops(target) if target else file.target.budget_flops
    if not target:
        raise UsageError(
            f"{path} is a table of runs and names no target.", why="Advice is for one target.", fix="Add --target FLOPS."
        )
    return path, parse_flops(target)
