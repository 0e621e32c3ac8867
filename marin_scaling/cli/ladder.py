"""`marin-scale ladder`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.errors import UsageError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marin_scaling.ladder.plan import Ladder
    from marin_scaling.run.plan import PlannedLadder
    from marin_scaling.run.spec import RunSpec

_LADDER = typer.Argument(metavar="LADDER.yaml|status", help="The ladder file (with --advise also a table of runs), or status.")
_SECOND = typer.Argument(None, metavar="LADDER.yaml", help="With status: the ladder file.")
_ONLY = typer.Option([], "--only", metavar="BUDGET[/WIDTH]", help="Train these runs of it; may be given again.")


def ladder(
    ladder_path: Path = _LADDER,
    second: Path | None = _SECOND,
    advise: str = typer.Option("", "--advise", metavar="FLOPS", help="Say which runs to add for so many FLOPs; train nothing."),
    target: str = typer.Option("", "--target", metavar="FLOPS", help="With --advise: the target, if not the ladder file's."),
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
    only: list[str] = _ONLY,
    max_parallel: int | None = typer.Option(None, "--max-parallel", metavar="N", min=1, help="Train at most N at a time."),
    stop_after: str = typer.Option("", "--stop-after", metavar="TIME", help="Stop after 90s, 30m or 2h; go on later."),
    keep_weights: bool = typer.Option(False, "--keep-weights", help="Keep the trained models, for marin-scale export."),
    emit: str = typer.Option("", "--emit", metavar="levanter", help="Write files for Levanter's own train_lm; train nothing."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the rungs and what they cost; train nothing."),
) -> None:
    """Train the rungs of a ladder into runs/, here or on a Ray cluster.

    Interrupted at any moment and typed again, it goes on where it was. `ladder status FILE` says how far it is.

    Example: marin-scale ladder ladders/quickstart.yaml --dry-run
    """
    if second is not None:
        _print_status(ladder_path, second)
        return
    if advise:
        _print_advice(ladder_path, allowance=advise, target=target)
        return
    if dry_run:
        _print_plan(ladder_path)
        return
    if emit:
        emit_files(ladder_path, trainer=emit, only=only)
        return
    _train(ladder_path, where=where, only=only, max_parallel=max_parallel, stop_after=stop_after, keep_weights=keep_weights)


def _print_plan(ladder_path: Path) -> None:
    """The table, and where the data do not allow it to be trained, why."""
    from marin_scaling.errors import DataError
    from marin_scaling.ladder.report import ladder_table
    from marin_scaling.train.session import NotTokenized, bind_prepared, expand

    expanded = expand(ladder_path)
    typer.echo(ladder_table(expanded))
    try:
        doubts = _data_doubts(bind_prepared(expanded, ladder_path))
    except NotTokenized as error:
        doubts = [f"{error.what} Whether it is enough, and how often runs see it, is said once it is, before training begins."]
    except DataError as error:
        doubts = [f"as things are, it cannot be trained. {error.what}"]
    for doubt in doubts:
        typer.echo(f"note: {doubt}")


def _data_doubts(planned: PlannedLadder) -> list[str]:
    from marin_scaling.run.plan import data_doubts, target_doubts

    return [*data_doubts(planned.specs), *target_doubts(planned.ladder.file, corpus=planned.corpus)]


def _train(
    ladder_path: Path, *, where: str, only: list[str], max_parallel: int | None, stop_after: str, keep_weights: bool
) -> None:
    from marin_scaling.ladder.report import ladder_table
    from marin_scaling.train.session import TimeIsUp, at_most, bind, chosen, expand, pool_of, train_with_progress, use_tracker

    expanded = expand(ladder_path)
    file, limit = expanded.file, at_most(stop_after)
    use_tracker(file)
    pool = pool_of(where, file.hardware, runs=len(expanded.rungs), max_parallel=max_parallel)
    planned = bind(expanded, ladder_path)
    specs = chosen(planned.specs, only)
    typer.echo("\n".join([ladder_table(planned.ladder), *(f"note: {doubt}" for doubt in _data_doubts(planned))]))
    try:
        with limit:
            train_with_progress(
                specs,
                corpus=planned.corpus,
                label=f"ladder {file.name}",
                pool=pool,
                storage=file.hardware.storage,
                keep_weights=keep_weights,
            )
    except TimeIsUp:
        typer.echo(f"Stopped after {stop_after}. Type the same command again: it goes on where it was.")
        return
    if diverged := _diverged(specs, planned.runs_dir.parent):
        typer.echo(f"note: {len(diverged)} of them diverged, and a fit leaves them out: {', '.join(diverged)}")
    if len(specs) < len(planned.specs):
        typer.echo(f"{len(specs)} of the ladder's {len(planned.specs)} runs were asked for, and are recorded.")
    else:
        typer.echo(f"All {len(specs)} runs are recorded in {planned.runs_dir}. Next: marin-scale fit {planned.runs_dir}")


def _diverged(specs: Sequence[RunSpec], runs_dir: Path) -> list[str]:
    """BUDGET/WIDTH of each recorded run that ended without a loss."""
    from marin_scaling.run.store import read_run, run_folder

    return [spec.rung_name for spec in specs if read_run(run_folder(runs_dir, spec)).record.loss is None]


def _print_status(word: Path, ladder_path: Path) -> None:
    from marin_scaling.errors import DataError, UsageError
    from marin_scaling.train.session import bind_prepared, expand, looked_at, workplace
    from marin_scaling.train.status import begun_specs, status_text

    if str(word) != "status":
        raise UsageError(
            f"marin-scale ladder takes one ladder file, and was given {word} and {ladder_path}.",
            why="Ladders are trained one at a time.",
            fix="Name one; or: marin-scale ladder status FILE",
        )
    expanded = expand(ladder_path)
    try:
        specs = bind_prepared(expanded, ladder_path).specs
    except DataError as error:
        specs = begun_specs(expanded.file.name, workplace())
        typer.echo(f"note: shown are the runs that were begun. {error.what}")
    typer.echo(status_text(specs, looked_at(specs, storage=expanded.file.hardware.storage)))


def _print_advice(path: Path, *, allowance: str, target: str) -> None:
    from marin_scaling.fit.fit import fit
    from marin_scaling.forecast.next_runs import advice_text, advise
    from marin_scaling.run.table import read_run_table
    from marin_scaling.units import parse_flops

    (runs, target_flops), allowance_flops = _runs_and_target(path, target), parse_flops(allowance)
    found = advise(fit(read_run_table(runs)), target_flops=target_flops, allowance_flops=allowance_flops)
    typer.echo(advice_text(found))


def _runs_and_target(path: Path, target: str) -> tuple[Path, float]:
    """Where the runs so far lie, and the target's FLOPs: as typed, else as the ladder file says."""
    from marin_scaling.errors import UsageError
    from marin_scaling.ladder.config import read_ladder_file
    from marin_scaling.run.paths import RUNS_DIR
    from marin_scaling.units import parse_flops

    if path.suffix in (".yaml", ".yml"):
        file = read_ladder_file(path)
        return RUNS_DIR / file.name, parse_flops(target) if target else file.target.budget_flops
    if not target:
        raise UsageError(
            f"{path} is a table of runs and names no target.", why="Advice is for one target.", fix="Add --target FLOPS."
        )
    return path, parse_flops(target)


_EMITTED = Path("emitted")  # a folder `levanter` would be taken for the package where Python looks into the current folder


def emit_files(ladder_path: Path, *, trainer: str, only: list[str]) -> None:
    """Write them, and say how one is used."""
    from marin_scaling.train.session import bind, chosen, expand

    expanded = expand(ladder_path)
    _require_emittable(expanded, ladder_path, trainer=trainer)
    planned = bind(expanded, ladder_path)
    specs, folder = chosen(planned.specs, only), _EMITTED / expanded.file.name
    from marin_scaling.train.levanter_yaml import COMMAND, emit_levanter, file_name

    is_new = emit_levanter(specs, corpus=planned.corpus, folder=folder)
    runs = f"{len(specs)} runs" if len(specs) > 1 else "one run"
    typer.echo(f"Files for {runs}, and their tokens, are in {folder}{'' if is_new else ' already'}. For example:")
    typer.echo(f"  cd {folder} && {COMMAND} {file_name(specs[0])}")


def _require_emittable(ladder: Ladder, ladder_path: Path, *, trainer: str) -> None:
    """`UsageError` where `--emit` names another trainer than Levanter's, or one that does not know the ladder's models."""
    from marin_scaling.recipe.model_shape import MoeShape

    if trainer != "levanter":
        raise UsageError(
            f"--emit {trainer}: files are written for Levanter's train_lm.",
            why="No other is known.",
            fix="Use --emit levanter.",
        )
    if any(isinstance(rung.plan.shape, MoeShape) for rung in ladder.rungs):
        raise UsageError(
            f"{ladder_path}: --emit levanter: its recipe {ladder.file.recipe!r} makes mixtures of experts.",
            why="Levanter's own command knows neither this model nor the training of its routers.",
            fix=f"Train it here: marin-scale ladder {ladder_path}, or with --on ray; or emit a ladder of dense models.",
        )
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="writing files for Levanter")
