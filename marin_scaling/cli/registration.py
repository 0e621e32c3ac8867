"""`marin-scale preregister` and `marin-scale run`: sign a forecast of a ladder's target, then train that target."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.app import app

if TYPE_CHECKING:
    from marin_scaling.cli.training import PlannedLadder
    from marin_scaling.data.token_corpus import TokenCorpus
    from marin_scaling.ladder.ladder_file import Promise
    from marin_scaling.preregistration.preregister import Evidence, Registration
    from marin_scaling.run.run_spec import DataSpec, RunSpec

_LADDER = typer.Argument(metavar="LADDER.yaml", help="The ladder file whose target is forecast.")
_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")
_KEY = typer.Option(None, "--key", help="SSH private key to sign with; one is made when you have none.")
_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")


@app.command("preregister")
def preregister(
    ladder_path: Path = _LADDER,
    registry: Path = _REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(
        None, "--as", help="Who signs, as in allowed_signers; default: git's user.email, else user@host."
    ),
    slug: str | None = typer.Option(None, "--slug", help="Name of the folder after the date; default: the ladder's name."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the forecast and what is left unsaid; sign nothing."),
) -> None:
    """Forecast a ladder's target and sign the forecast.

    Fits the ladder's runs and registers the forecast before the target is trained.

    Example: marin-scale preregister ladders/quickstart.yaml
    """
    from marin_scaling.cli.training import plan

    planned = plan(ladder_path)
    if dry_run:
        _require_whole_ladder(planned)
        forecast_target(planned)
        typer.echo(f"Nothing is signed. To sign it: marin-scale preregister {ladder_path}")
        return
    registration = register_forecast(planned, registry=registry, key=key, signer=signer, slug=slug)
    typer.echo(
        f"Next: commit and push {registry}, so that others see it first; then: marin-scale run {registration.folder.name}"
    )


@app.command("sign")
def sign(
    which: str = _FOLDER,
    registry: Path = _REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email."),
) -> None:
    """Sign a preregistration of someone else, as its reviewer.

    It is verified first, its fit made again, and every line printed: what you sign is what held on your machine. Your key has
    to stand in allowed_signers.

    Example: marin-scale sign 2026-11-21-quickstart --as bob@example.org
    """
    from marin_scaling.check.reproduction import verify_and_fit
    from marin_scaling.cli.preregistration import print_steps
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.cli.which_registration import one_folder
    from marin_scaling.preregistration.countersignature import countersign
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.signing_key import find_principal, find_signing_key

    folder = one_folder(which, registry=registry)
    print_steps(verify_and_fit(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR))
    signing_key, principal = find_signing_key(key), find_principal(signer)
    typer.echo(signing_key.note)
    typer.echo(f"Signed: {countersign(folder, key=signing_key, principal=principal)}")
    write_down(folder.parent, at=datetime.now(UTC))


@app.command("stamp")
def stamp(
    which: str = _FOLDER,
    tsa: str = typer.Option(..., "--tsa", metavar="URL", help="The time-stamping authority to ask (RFC 3161)."),
    registry: Path = _REGISTRY,
) -> None:
    """Have a third party say when a preregistration's signature was there.

    The authority sees a digest of the signature. Its answer is verified against tsa_roots.pem beside the registrations and kept
    beside the signature. Ask two, for a run that matters.

    Example: marin-scale stamp 2026-11-21-quickstart --tsa https://tsa.example/
    """
    from marin_scaling.check.authenticity import verify_folder
    from marin_scaling.check.signatures import require_signer_at
    from marin_scaling.check.stamps import roots_path
    from marin_scaling.cli.which_registration import one_folder
    from marin_scaling.durable_files import read_bytes, write_once
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import SIGNATURE_NAME, read_registration, signers_path
    from marin_scaling.preregistration.statement import moment_text
    from marin_scaling.preregistration.timestamp import request_stamp, stamp_names

    folder = one_folder(which, registry=registry)
    verify_folder(folder, allowed_signers=signers_path(folder))
    statement, signature, signers = read_registration(folder), read_bytes(folder / SIGNATURE_NAME), signers_path(folder)
    reply, moment = request_stamp(signature, url=tsa, roots=roots_path(folder))
    standing = stamp_names(each.name for each in folder.iterdir())
    if not standing:  # the first one says when the key had to be allowed
        require_signer_at(statement, signature, path=folder / SIGNATURE_NAME, allowed_signers=signers, at=moment)
    path = folder / f"stamp-{len(standing) + 1}.tsr"
    write_once(path, reply)
    write_down(folder.parent, at=datetime.now(UTC))
    typer.echo(f"{path}: the signature was there at {moment_text(moment)}")


@app.command("run")
def run(
    which: str = _FOLDER,
    registry: Path = _REGISTRY,
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
) -> None:
    """Train the target of a preregistration, bound to it.

    The preregistration is verified first. The statement's digest is in the run's spec from its first step. Here the run has all
    cores and GPUs of the machine; on a Ray cluster what the ladder's file gives a run.

    Example: marin-scale run 2026-11-21-quickstart
    """
    from marin_scaling.check.authenticity import verify_folder
    from marin_scaling.check.policy import policy_steps
    from marin_scaling.cli.training import RUNS_DIR, hardware_of, target_pool, train_with_progress
    from marin_scaling.cli.which_registration import one_folder
    from marin_scaling.preregistration.binding import bound_spec
    from marin_scaling.preregistration.registry import read_registration, signers_path

    folder = one_folder(which, registry=registry)
    unbound = _target_in(folder)
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR)
    policy_steps(folder, allowed_signers=signers_path(folder))
    target = bound_spec(unbound, statement=read_registration(folder).raw)
    pool, storage = target_pool(where, ladder=target.ladder), hardware_of(target.ladder).storage
    train_with_progress([target], corpus=_corpus_of(target), label="target", pool=pool, storage=storage)
    typer.echo(f"Next: marin-scale check {which}")


def _corpus_of(target: RunSpec) -> TokenCorpus:
    """The target's data as they are here: of the standard library, kept from its ladder, or as its ladder's file names them."""
    from marin_scaling.cli.training import WORK_ROOT
    from marin_scaling.data.prepare import prepare
    from marin_scaling.data.standard_library import standard_library_corpus
    from marin_scaling.data.token_corpus import data_folder, find_corpus
    from marin_scaling.ladder.ladder_file import STANDARD_LIBRARY, read_ladder_file

    if target.data.source == STANDARD_LIBRARY:
        return standard_library_corpus()
    kept = find_corpus(data_folder(target.data.digest, work_root=WORK_ROOT))
    if kept is not None:
        return replace(kept, source=target.data.source)
    return prepare(read_ladder_file(Path("ladders") / f"{target.ladder}.yaml").data, work_root=WORK_ROOT)


def standing_forecast(planned: PlannedLadder, *, registry: Path) -> Registration | None:
    """The forecast of this ladder's target, on this data, that is registered already; None when there is none."""
    from marin_scaling.preregistration.preregister import standing_registration
    from marin_scaling.preregistration.registry import registration_folders

    for folder in registration_folders(registry):
        spec = _target_in(folder)
        if (spec.ladder, spec.data, spec.budget_flops) == _identity(planned):
            return standing_registration(spec, registry_dir=registry)
    return None


def _target_in(folder: Path) -> RunSpec:
    from marin_scaling.durable_files import read_bytes
    from marin_scaling.run.run_spec import read_spec

    return read_spec(read_bytes(folder / "target.json"), name=str(folder / "target.json"))


def _identity(planned: PlannedLadder) -> tuple[str, DataSpec, float]:
    file = planned.ladder.file
    return file.name, planned.specs[0].data, file.target.budget_flops


def _require_whole_ladder(planned: PlannedLadder) -> None:
    """All rungs must be recorded, and trained and measured as the target would be."""
    _require_one_text(planned)
    _require_trained(planned)


def _require_one_text(planned: PlannedLadder) -> None:
    """The rungs that are fitted and the target must be trained on one text and measured in one way."""
    from marin_scaling.errors import DataError
    from marin_scaling.run.run_store import read_runs

    here = planned.specs[0]
    for stored in read_runs(planned.runs_dir):
        for what, theirs, ours in (
            ("data", stored.spec.data, here.data),
            ("evaluation", stored.spec.evaluation, here.evaluation),
        ):
            if stored.spec.role == "rung" and theirs != ours:
                raise DataError(
                    f"{stored.folder} has other {what} than the target would have here: {theirs} and {ours}.",
                    why="Runs on other text, or measured in another way, say nothing of this target.",
                    fix="Use the Python that trained them, or train the ladder anew under another name.",
                )


def _require_trained(planned: PlannedLadder) -> None:
    """A forecast from part of a ladder would not say so, and could be chosen among many: every rung must be recorded."""
    from marin_scaling.errors import UsageError
    from marin_scaling.run.run_store import is_finished

    missing = [spec for spec in planned.specs if not is_finished(planned.runs_dir.parent, spec)]
    if missing:
        first = ", ".join(f"width {spec.model.hidden_dim} at {spec.budget_flops:g} FLOPs" for spec in missing[:3])
        raise UsageError(
            f"{len(missing)} of {len(planned.specs)} rungs of the ladder {planned.ladder.file.name!r} are not trained yet: "
            f"{first}{' and more' if len(missing) > 3 else ''}.",
            why="A forecast rests on the whole ladder, so that nobody can choose the runs that suit.",
            fix=f"Train them: marin-scale ladder ladders/{planned.ladder.file.name}.yaml; or take them out of the ladder file.",
        )


def _unsaid(promise: Promise) -> list[str]:
    """What a reader of the statement will miss."""
    if not promise.left_out:
        return []
    return [f"the ladder file's promise: says nothing of {', '.join(promise.left_out)}; nor will the statement"]


def _target_line(target: RunSpec) -> str:
    from marin_scaling.units import format_count, format_flops

    return (
        f"target: width {target.model.hidden_dim}, {format_count(target.model.shape().params_total)} parameters, "
        f"{format_count(target.trained_tokens)} tokens, {format_flops(target.flops)} FLOPs: the width nearest to N*"
    )


def register_forecast(
    planned: PlannedLadder,
    *,
    registry: Path,
    key: Path | None = None,
    signer: str | None = None,
    slug: str | None = None,
) -> Registration:
    """Forecast a ladder's target, sign and register the forecast; prints what it finds and does."""
    from marin_scaling.preregistration.preregister import preregister_target
    from marin_scaling.preregistration.signing_key import find_principal, find_signing_key

    _require_whole_ladder(planned)
    signing_key, principal = find_signing_key(key), find_principal(signer)
    registration = preregister_target(
        forecast_target(planned),
        registry_dir=registry,
        key=signing_key,
        principal=principal,
        slug=slug or planned.ladder.file.name,
        created_at=datetime.now(UTC),
        promise=planned.ladder.file.promise,
    )
    for note in registration.notes:
        typer.echo(note)
    typer.echo(f"Signed and registered: {registration.folder}")
    return registration


def forecast_target(planned: PlannedLadder) -> Evidence:
    """Fit the ladder's finished rungs and forecast its target; prints both, and what the ladder file does not say of it."""
    from marin_scaling.fit.fit_runs import fit
    from marin_scaling.forecast.backtest import backtest, backtest_doubts
    from marin_scaling.forecast.forecast import forecast, samples
    from marin_scaling.forecast.forecast_document import forecast_document, forecast_text
    from marin_scaling.forecast.plain_text import wrapped
    from marin_scaling.forecast.sensitivity import sensitivity, sensitivity_text
    from marin_scaling.ladder.ladder import plan_target
    from marin_scaling.preregistration.preregister import Evidence
    from marin_scaling.recipe.catalogue import find_recipe
    from marin_scaling.recipe.recipe_text import recipe_document
    from marin_scaling.run.plan_specs import target_spec
    from marin_scaling.run.run_table import read_run_table

    runs = read_run_table(planned.runs_dir)
    result, tested = fit(runs), backtest(runs)
    file = planned.ladder.file
    optimum = forecast(result, flops=file.target.budget_flops)
    plan = plan_target(file, compute_optimal_params=optimum.active_params)
    target = target_spec(file, plan, corpus=planned.corpus)
    prediction = forecast(result, flops=target.flops)
    typer.echo(forecast_text(result, [prediction]) + "\n")
    hangs_on = sensitivity(result, prediction)
    typer.echo(sensitivity_text(hangs_on) + "\n")
    doubts = (*plan.doubts, *backtest_doubts(tested), *_unsaid(file.promise))
    typer.echo("\n".join([_target_line(target), *(wrapped(f"note: {doubt}") for doubt in doubts)]))
    return Evidence(
        rows=result.rows,
        forecast=forecast_document(result, [prediction], sensitivities=[hangs_on], tested=tested),
        losses=samples(result, flops=target.flops).tolist(),
        recipe=recipe_document(find_recipe(file.recipe), plan),
        target=target,
    )
