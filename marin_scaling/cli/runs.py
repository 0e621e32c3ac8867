"""`marin-scale import`, `table`, `export` and `track`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.fit import TABLE, chosen_columns
from marin_scaling.cli.options import REGISTRY
from marin_scaling.units import counted

if TYPE_CHECKING:
    from marin_scaling.forecast.tracking import EarlierForecast, Tracked
    from marin_scaling.publish.model_card import CardSource, CarriedTokenizer, SignedForecast
    from marin_scaling.run.paths import Workplace
    from marin_scaling.run.spec import RunSpec
    from marin_scaling.run.store import StoredRun

_PLACES = typer.Argument(metavar="PLACE...", help="Files or folders that trackers wrote, or wandb:ENTITY/PROJECT.")
_OUT = typer.Option(metavar="TABLE", help="The table to write: .csv, .parquet or .jsonl.")
_COLUMN = typer.Option([], "--column", metavar="NAME=KEY", help="Where loss, flops, params or tokens stand in the tracker.")


def import_tables(places: list[str] = _PLACES, out: Path = _OUT, column: list[str] = _COLUMN) -> None:
    """Make a table of runs from what trackers wrote.

    From W&B's offline files and online projects, Levanter's JSON log, and Marin's tracker_metrics.jsonl. A run that lacks a
    number is named and left out. Then: marin-scale fit TABLE.

    Example: marin-scale import wandb:my-team/my-ladder --out runs.csv
    """
    from marin_scaling.run.table_io import write_table_file
    from marin_scaling.run.trackers import import_runs, read_tracked_runs

    found = import_runs([run for place in places for run in read_tracked_runs(place)], keys=chosen_columns(column))
    write_table_file(out, found.rows)
    for name, why in found.left_out:
        typer.echo(f"left out: {name}: {why}")
    typer.echo(f"{counted(len(found.rows), 'run')} in {out}; the loss is {found.loss_key}. Next: marin-scale fit {out}")


_TO = typer.Option(metavar="PLACE", help="A file (.parquet, .csv or .jsonl), or wandb:PROJECT.")


def write_table(table: Path = TABLE, to: str = _TO) -> None:
    """Write a ladder's runs as one table.

    To a file that marin-scale fit and everybody else reads, or to one run of a W&B project, as a table to sort and plot there.
    Every row goes, also of runs that diverged, with its source. Any table of runs may be given.

    Example: marin-scale table runs/quickstart --to runs.parquet
    """
    from marin_scaling.run.table import log_to_wandb, rows_of
    from marin_scaling.run.table_io import write_table_file
    from marin_scaling.run.trackers import ONLINE

    rows = rows_of(table)
    if to.startswith(ONLINE):
        seen = log_to_wandb(rows, project=to.removeprefix(ONLINE), name=table.stem, source=str(table))
        typer.echo(f"{counted(len(rows), 'run')} in a table of W&B: {seen}")
    else:
        write_table_file(Path(to), rows)
        typer.echo(f"{counted(len(rows), 'run')} in {to}. Next: marin-scale fit {to}")


_EXPORT_RUN = typer.Argument(metavar="RUN", help="A preregistration (its target), or the first digits of a run's digest.")
_EXPORT_TO = typer.Option(metavar="FOLDER", help="The folder to make.")


def export_run(run: str = _EXPORT_RUN, to: Path = _EXPORT_TO, registry: Path = REGISTRY) -> None:
    """Write a trained model in Hugging Face's format.

    With a model card: its data, cost and measured loss, and of a target the signed forecast and what came of it. A target's
    weights are kept when it is trained, those of a ladder's other runs with marin-scale ladder --keep-weights.

    Example: marin-scale export 2026-11-26-my-ladder --to my-model
    """
    from marin_scaling.cli.options import named_spec
    from marin_scaling.errors import missing_extra
    from marin_scaling.files import new_folder
    from marin_scaling.publish.model_card import CARD_NAME, model_card

    stored = _exportable(named_spec(run, registry=registry))
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="writing a model")
    from marin_scaling.train.weights import kept_weights, write_hugging_face

    weights = kept_weights(stored, _with_weights(stored))
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")  # all that is needed is here
    tokenizer, forecast = _tokenizer_of(stored.spec), _exported_forecast(stored.spec, registry=registry)
    card = model_card(stored, tokenizer=tokenizer, forecast=forecast, source=_source_of(stored.spec))
    with new_folder(to.absolute()) as folder:
        write_hugging_face(stored.spec, weights=weights, folder=folder, tokenizer=tokenizer.folder)
        (folder / CARD_NAME).write_text(card, encoding="utf-8")
    typer.echo(f"{to}: {', '.join(sorted(path.name for path in to.iterdir()))}")


def _with_weights(stored: StoredRun) -> Workplace:
    """Where the weights lie, once they were brought from where machines share runs, if they do."""
    from marin_scaling.train.session import hardware_of, workplace
    from marin_scaling.train.shared_storage import Exchange

    place = workplace(storage=hardware_of(stored.spec.ladder).storage)
    if place.storage is not None:
        Exchange(place).bring_weights(stored)
    return place


def _exportable(spec: RunSpec) -> StoredRun:
    """The recorded run of a spec; `UsageError` where it is not finished, diverged, or is no dense model."""
    from marin_scaling.errors import UsageError
    from marin_scaling.run.spec import ModelSpec
    from marin_scaling.run.store import is_finished, read_run, run_folder
    from marin_scaling.train.session import workplace

    folder = run_folder(workplace().runs_dir, spec)
    if not isinstance(spec.model, ModelSpec):
        raise UsageError(
            f"{spec.directory_name} is a mixture of experts ({spec.model.family}): Hugging Face's format has no such model.",
            why="Its routers, gates and shared expert would be lost, or would need code of ours to be loaded.",
            fix=f"Export a dense run. The weights of this one, if kept, lie in .marin-scaling/weights/{spec.directory_name}.",
        )
    if not is_finished(workplace().runs_dir, spec):
        raise UsageError(
            f"{spec.directory_name} is not finished: {folder} has no record.",
            why="Exported is what was trained to its end and measured.",
            fix=f"Train it: {'marin-scale run' if spec.role == 'target' else 'marin-scale ladder --keep-weights'}.",
        )
    stored = read_run(folder)
    if stored.record.loss is None:
        raise UsageError(
            f"{spec.directory_name} diverged: it ended without a loss, and its weights say nothing.",
            why="No weights of such a run are kept.",
            fix="Export another run.",
        )
    return stored


def _source_of(spec: RunSpec) -> CardSource:
    from marin_scaling.canonical_json import sha256_hex
    from marin_scaling.files import read_bytes
    from marin_scaling.publish.model_card import CardSource
    from marin_scaling.publish.new_repository import address_on_the_web
    from marin_scaling.untrusted_files import is_present

    ladder = Path("ladders") / f"{spec.ladder}.yaml"
    digest = sha256_hex(read_bytes(ladder)) if is_present(ladder) else None
    return CardSource(address=address_on_the_web(Path()), ladder_sha256=digest)


def _tokenizer_of(spec: RunSpec) -> CarriedTokenizer:
    """The run's tokenizer, with its folder where that is here and still has what the run was trained with."""
    from marin_scaling.data.tokenizer import load_tokenizer
    from marin_scaling.publish.model_card import CarriedTokenizer

    tokenizer = spec.data.tokenizer
    if tokenizer is None or not Path(tokenizer.name).is_dir():
        return CarriedTokenizer(spec=tokenizer, folder=None)
    is_the_same = load_tokenizer(tokenizer.name).identity.digest == tokenizer.digest
    return CarriedTokenizer(spec=tokenizer, folder=Path(tokenizer.name) if is_the_same else None)


def _exported_forecast(spec: RunSpec, *, registry: Path) -> SignedForecast | None:
    """The verified preregistration that the run carries, and its outcome; None where it carries none, or it is not here."""
    from marin_scaling.preregistration.registry import find_statement, signers_path
    from marin_scaling.preregistration.verify.authenticity import verify_folder
    from marin_scaling.publish.model_card import read_forecast
    from marin_scaling.run.paths import RUNS_DIR

    folder = find_statement(registry, sha256=spec.statement_sha256) if spec.statement_sha256 else None
    if folder is None:
        return None
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR)
    return read_forecast(folder, spec)


_RUN = typer.Argument(metavar="RUN", help="A preregistration (its target), the first digits of a run's digest, or a table.")


def track_run(
    run: str = _RUN,
    against: str = typer.Option(
        "", "--against", metavar="WHAT", help="A preregistration or a ladder file; default: the run's."
    ),
    steps: int | None = typer.Option(None, "--steps", metavar="N", min=1, help="As things stood after N steps."),
    registry: Path = REGISTRY,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Say where a run under way will end, or where one ended.

    From its training loss so far and the whole curves of the ladder's finished runs, with a 90 % interval, beside the forecast;
    and what looks wrong with its loss. RUN may be a table with columns step and loss, from anywhere: then --against names the
    preregistration whose target it is.

    Example: marin-scale track 2026-11-26-bytes-dense
    """
    from marin_scaling.forecast.tracking import tracked_document, tracked_text

    found = _tracked(run, against, steps=steps, registry=registry)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(tracked_document(found)), nl=False)
    else:
        typer.echo(tracked_text(found))


def _tracked(run: str, against: str, *, steps: int | None, registry: Path) -> Tracked:
    from marin_scaling.forecast.tracking import finished_curves, track_losses
    from marin_scaling.run.curves import loss_at_end, losses_so_far, read_curve, shares_so_far
    from marin_scaling.run.store import read_runs
    from marin_scaling.train.session import hardware_of, looked_at

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
    from marin_scaling.cli.options import named_spec, registration_folder
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.register import answering_spec

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
    from marin_scaling.cli.options import registration_folder
    from marin_scaling.errors import MarinScalingError
    from marin_scaling.fit.fit import fit
    from marin_scaling.forecast.forecast import Target, forecast_runs
    from marin_scaling.forecast.tracking import EarlierForecast
    from marin_scaling.preregistration.events.notice import ending_names
    from marin_scaling.preregistration.registry import read_registration
    from marin_scaling.run.table import read_run_table

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
    from marin_scaling.ladder.config import read_ladder_file
    from marin_scaling.run.paths import RUNS_DIR

    is_file = against.endswith((".yaml", ".yml"))
    return RUNS_DIR / (read_ladder_file(Path(against)).name if is_file else spec.ladder)
