"""`marin-scale ladder`, `status`, `advise` and `emit`."""

from __future__ import annotations

from pathlib import Path

import typer

_LADDER = typer.Argument(metavar="LADDER.yaml", help="The ladder file.")
_ONLY = typer.Option([], "--only", metavar="BUDGET[/WIDTH]", help="Only these runs of the ladder; may be repeated.")


def ladder(
    ladder_path: Path = _LADDER,
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
    only: list[str] = _ONLY,
    max_parallel: int | None = typer.Option(None, "--max-parallel", metavar="N", min=1, help="Train at most N at a time."),
    stop_after: str = typer.Option("", "--stop-after", metavar="TIME", help="Stop after 90s, 30m or 2h; resume later."),
    keep_weights: bool = typer.Option(False, "--keep-weights", help="Keep the trained models, for marin-scale export."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the rungs and what they cost; train nothing."),
) -> None:
    """Train the rungs of a ladder into runs/, here or on a Ray cluster.

    Interrupt it any time; rerun the command and it resumes. `marin-scale status FILE` shows progress.

    Example: marin-scale ladder ladders/quickstart.yaml --dry-run
    """
    from marin_scaling.train.session import load_ladder

    loaded = load_ladder(ladder_path)
    if dry_run:
        from marin_scaling.ladder.report import ladder_table

        typer.echo("\n".join([ladder_table(loaded.plan(only)), *(finding.line for finding in loaded.data_findings())]))
        return
    done = loaded.train(
        on=where,
        only=only,
        max_parallel=max_parallel,
        stop_after=stop_after,
        keep_weights=keep_weights,
        on_message=typer.echo,
    )
    if done.stopped:
        typer.echo(f"Stopped after {stop_after}. Rerun the command to resume.")
        return
    if done.diverged:
        typer.echo(f"note: {len(done.diverged)} of them diverged, and a fit leaves them out: {', '.join(done.diverged)}")
    if len(done.specs) < (rungs := len(loaded.ladder.rungs)):
        typer.echo(f"{len(done.specs)} of the ladder's {rungs} runs were asked for, and are recorded.")
    else:
        typer.echo(f"All {rungs} runs are recorded in {done.runs_dir}. Next: marin-scale fit {done.runs_dir}")


def status(ladder_path: Path = _LADDER) -> None:
    """Show how far a ladder is: the state, steps and loss of each run, and the time left.

    From another terminal while it is trained, or afterwards.

    Example: marin-scale status ladders/quickstart.yaml
    """
    from marin_scaling.train.session import load_ladder
    from marin_scaling.train.status import status_text

    states, why_only_begun = load_ladder(ladder_path).status()
    if why_only_begun:
        typer.echo(f"note: shown are the runs that were begun. {why_only_begun}")
    typer.echo(status_text(states))


_RUNS = typer.Argument(metavar="LADDER.yaml|TABLE", help="A ladder file whose runs are trained, or a table of runs.")


def advise(
    path: Path = _RUNS,
    budget: str = typer.Option(..., "--budget", metavar="FLOPS", help="FLOPs to spend on further runs."),
    target: str = typer.Option("", "--target", metavar="FLOPS", help="The target; default: the ladder file's."),
) -> None:
    """Advise which runs to add, to narrow the forecast of the target most; train nothing.

    Example: marin-scale advise runs/delphi --target 1e23 --budget 1e21
    """
    from marin_scaling.forecast.next_runs import advice_text, advise_on
    from marin_scaling.units import parse_flops

    found = advise_on(path, allowance_flops=parse_flops(budget), target_flops=parse_flops(target) if target else None)
    typer.echo(advice_text(found))


def emit(ladder_path: Path = _LADDER, only: list[str] = _ONLY) -> None:
    """Write a configuration and token caches for Levanter's own train_lm, for each rung; train nothing.

    Example: marin-scale emit ladders/quickstart.yaml
    """
    from marin_scaling.train.session import load_ladder

    made = load_ladder(ladder_path).emit(only=only)
    runs = f"{made.runs} runs" if made.runs > 1 else "one run"
    typer.echo(f"Files for {runs}, and their tokens, are in {made.folder}{'' if made.is_new else ' already'}. For example:")
    typer.echo(f"  cd {made.folder} && {made.command}")
