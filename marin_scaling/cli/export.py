"""`marin-scale export`: a trained model in Hugging Face's format, with a card that says what it is and how it was forecast."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.app import app

if TYPE_CHECKING:
    from marin_scaling.publish.model_card import CardSource, CarriedTokenizer, SignedForecast
    from marin_scaling.run.run_spec import RunSpec
    from marin_scaling.run.run_store import StoredRun
    from marin_scaling.run.workplace import Workplace

_RUN = typer.Argument(metavar="RUN", help="A preregistration (its target), or the first digits of a run's digest.")
_TO = typer.Option(metavar="FOLDER", help="The folder to make.")
_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")


@app.command("export")
def export_run(run: str = _RUN, to: Path = _TO, registry: Path = _REGISTRY) -> None:
    """Write a trained model in Hugging Face's format.

    With a model card: its data, cost and measured loss, and of a target the signed forecast and what came of it. A target's
    weights are kept when it is trained, those of a ladder's other runs with marin-scale ladder --keep-weights.

    Example: marin-scale export 2026-11-22-my-ladder --to my-model
    """
    from marin_scaling.cli.which_run import named_spec
    from marin_scaling.durable_files import new_folder
    from marin_scaling.errors import missing_extra
    from marin_scaling.publish.model_card import CARD_NAME, model_card
    from marin_scaling.run.kept_weights import kept_weights

    stored = _exportable(named_spec(run, registry=registry))
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for="writing a model")
    weights = kept_weights(stored, _with_weights(stored))
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")  # all that is needed is here
    tokenizer, forecast = _tokenizer_of(stored.spec), _forecast_of(stored.spec, registry=registry)
    card = model_card(stored, tokenizer=tokenizer, forecast=forecast, source=_source_of(stored.spec))
    with new_folder(to.absolute()) as folder:
        from marin_scaling.run.hugging_face import write_hugging_face

        write_hugging_face(stored.spec, weights=weights, folder=folder, tokenizer=tokenizer.folder)
        (folder / CARD_NAME).write_text(card, encoding="utf-8")
    typer.echo(f"{to}: {', '.join(sorted(path.name for path in to.iterdir()))}")


def _with_weights(stored: StoredRun) -> Workplace:
    """Where the weights lie, once they were brought from where machines share runs, if they do."""
    from marin_scaling.cli.training import hardware_of, workplace
    from marin_scaling.run.exchange import Exchange

    place = workplace(storage=hardware_of(stored.spec.ladder).storage)
    if place.storage is not None:
        Exchange(place).bring_weights(stored)
    return place


def _exportable(spec: RunSpec) -> StoredRun:
    """The recorded run of a spec; `UsageError` where it is not finished, diverged, or is no dense model."""
    from marin_scaling.cli.training import workplace
    from marin_scaling.errors import UsageError
    from marin_scaling.run.run_spec import ModelSpec
    from marin_scaling.run.run_store import is_finished, read_run, run_folder

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
    from marin_scaling.durable_files import read_bytes
    from marin_scaling.publish.model_card import CardSource
    from marin_scaling.publish.repository_address import address_on_the_web
    from marin_scaling.regular_files import is_present

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


def _forecast_of(spec: RunSpec, *, registry: Path) -> SignedForecast | None:
    """The verified preregistration that the run carries, and its outcome; None where it carries none, or it is not here."""
    from marin_scaling.check.authenticity import verify_folder
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.preregistration.registry import find_statement, signers_path
    from marin_scaling.publish.model_card import read_forecast

    folder = find_statement(registry, sha256=spec.statement_sha256) if spec.statement_sha256 else None
    if folder is None:
        return None
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR)
    return read_forecast(folder, spec)
