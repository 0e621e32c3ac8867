"""`marin-scale track`: where a run under way will end, whether that is on forecast, and what looks wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.app import app

if TYPE_CHECKING:
    from marin_scaling.forecast.tracking import EarlierForecast, Tracked
    from marin_scaling.run.run_spec import RunSpec

_RUN = typer.Argument(metavar="RUN", help="A preregistration (its target), the first digits of a run's digest, or a table.")
_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")


@app.command("track")
def track_run(
    run: str = _RUN,
    against: str = typer.Option(
        "", "--against", metavar="WHAT", help="A preregistration or a ladder file; default: the run's."
    ),
    steps: int | None = typer.Option(None, "--steps", metavar="N", min=1, help="As things stood after N steps."),
    registry: Path = _REGISTRY,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Say where a run under way will end, or where one ended.

    From its training loss so far and the whole curves of the ladder's finished runs, with a 90 % interval, beside the forecast;
    and what looks wrong with its loss. RUN may be a table with columns step and loss, from anywhere: then --against names the
    preregistration whose target it is.

    Example: marin-scale track 2026-11-22-bytes-dense
    """
    from marin_scaling.forecast.tracking_document import tracked_document, tracked_text

    found = _tracked(run, against, steps=steps, registry=registry)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(tracked_document(found)), nl=False)
    else:
        typer.echo(tracked_text(found))


def _tracked(run: str, against: str, *, steps: int | None, registry: Path) -> Tracked:
    from marin_scaling.cli.training import hardware_of, looked_at
    from marin_scaling.forecast.tracking import finished_curves, track_losses
    from marin_scaling.run.curve_files import loss_at_end, losses_so_far, read_curve, shares_so_far
    from marin_scaling.run.run_store import read_runs

    spec = _spec_of(run, against, registry=registry)
    is_table = Path(run).is_file()
    place = looked_at([spec], storage=None if is_table else hardware_of(spec.ladder).storage)
    losses = read_curve(Path(run), train_steps=spec.train_steps) if is_table else losses_so_far(spec, place)
    curves = finished_curves(read_runs(_ladder_of(spec, against)), without=spec.digest)
    forecast = _forecast_of(spec, against or run, registry=registry)
    if is_table or steps:
        return track_losses(losses[:steps], spec, curves, forecast=forecast)
    shares, ended_at = shares_so_far(spec, place), loss_at_end(spec, place)
    return track_losses(losses, spec, curves, forecast=forecast, ended_at=ended_at, expert_shares=shares)


def _spec_of(run: str, against: str, *, registry: Path) -> RunSpec:
    """The run that is meant; of a table, the target of the preregistration that it is tracked against."""
    from marin_scaling.cli.which_run import named_spec, registration_folder
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.binding import answering_spec

    if not Path(run).is_file():
        return named_spec(run, registry=registry)
    folder = registration_folder(against, registry=registry)
    if folder is None:
        unsaid = f"{against} does not say" if against else "nothing says"
        raise UsageError(
            f"{run} is a table of losses, and {unsaid} how many steps its run has.",
            why="Curves are compared at equal fractions of training done.",
            fix="Name the preregistration whose target it is: --against FOLDER.",
        )
    return answering_spec(folder)


def _forecast_of(spec: RunSpec, against: str, *, registry: Path) -> EarlierForecast:
    """What was signed of it; else what the ladder's finished runs say of a run of its size and length, or why they do not."""
    from marin_scaling.cli.which_run import registration_folder
    from marin_scaling.errors import MarinScalingError
    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.forecast.forecast import Target, forecast_runs
    from marin_scaling.forecast.tracking import EarlierForecast
    from marin_scaling.preregistration.notice import ending_names
    from marin_scaling.preregistration.registry import read_registration
    from marin_scaling.run.run_table import read_run_table

    folder = registration_folder(against, registry=registry)
    if folder is not None:
        ended = "".join(f"; it has its {name}" for name in ending_names(folder))
        return EarlierForecast(quantiles=read_registration(folder).quantiles, by=f"signed: {folder.name}{ended}")
    shape, ladder = spec.model.shape(), _ladder_of(spec, against)
    target = Target(flops=spec.flops, params=shape.params_total, tokens=spec.trained_tokens, active_params=shape.params_active)
    try:
        table = read_run_table(
            ladder, drop=[spec.digest] if spec.role == "rung" and (ladder / spec.directory_name).exists() else []
        )
        return EarlierForecast(
            quantiles=forecast_runs(fit(table), [target])[0].quantiles, by=f"law of the other runs in {ladder}"
        )
    except MarinScalingError as error:
        return EarlierForecast(quantiles=None, by=error.what)


def _ladder_of(spec: RunSpec, against: str) -> Path:
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.ladder.ladder_file import read_ladder_file

    is_file = against.endswith((".yaml", ".yml"))
    return RUNS_DIR / (read_ladder_file(Path(against)).name if is_file else spec.ladder)
