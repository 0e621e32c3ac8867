"""`marin-scale preregister`, `sign`, `stamp` and `run`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.options import REGISTRY
from marin_scaling.preregistration.target_forecast import forecast_target, require_declared, require_whole_ladder, target_in

if TYPE_CHECKING:
    from marin_scaling.data.corpus import TokenCorpus
    from marin_scaling.preregistration.register import Registration
    from marin_scaling.run.plan import PlannedLadder
    from marin_scaling.run.spec import DataSpec, RunSpec

_LADDER = typer.Argument(metavar="LADDER.yaml", help="The ladder file whose target is forecast.")
_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")
_SEAL_UNTIL = typer.Option(
    None, "--seal-until", metavar="DAY", help="Show only a digest until you reveal it, by this day (YYYY-MM-DD)."
)
_KEY = typer.Option(None, "--key", help="SSH private key to sign with; one is made when you have none.")


def preregister(
    ladder_path: Path = _LADDER,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(
        None, "--as", help="Who signs, as in allowed_signers; default: git's user.email, else user@host."
    ),
    slug: str | None = typer.Option(None, "--slug", help="Name of the folder after the date; default: the ladder's name."),
    seal_until: str | None = _SEAL_UNTIL,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the forecast and what is left unsaid; sign nothing."),
) -> None:
    """Forecast a ladder's target and sign the forecast.

    Fits the ladder's runs and registers the forecast before the target is trained.

    With --seal-until it is signed now and shown later (marin-scale reveal); one that is not shown by then counts as missed.

    Example: marin-scale preregister ladders/quickstart.yaml
    """
    from marin_scaling.preregistration.events.seal import SEALED_DIR
    from marin_scaling.preregistration.signing.keys import find_principal
    from marin_scaling.train.session import plan

    reveal_by = _end_of(seal_until) if seal_until else None
    planned = plan(ladder_path)
    due = planned.ladder.file.promise.due
    if reveal_by and due and due < reveal_by.date():
        typer.echo(f"note: the run is due on {due}, and the forecast has to be shown only on {reveal_by.date()}")
    if dry_run:
        require_whole_ladder(planned)
        _require_followable(planned, registry=registry, principal=find_principal(signer), sealed=reveal_by is not None)
        forecast_target(planned)
        typer.echo(f"Nothing is signed. To sign it: marin-scale preregister {ladder_path}")
        return
    registration = register_forecast(planned, registry=registry, key=key, signer=signer, slug=slug, reveal_by=reveal_by)
    if seal_until:
        typer.echo(
            f"All of it lies in {SEALED_DIR / registration.folder.name}, and only there: keep a copy. What is not revealed by "
            f"{seal_until} counts as missed. To reveal it: marin-scale reveal {registration.folder.name}"
        )
    if registration.added_signer:
        typer.echo(
            "That key is new here. Where others review, its line comes first, in a pull request of its own: "
            "a review believes only keys that are merged"
        )
    runs, file = planned.runs_dir, ladder_path
    others = (
        f"without {runs} and {file}, which give the number away"
        if seal_until
        else f"with {runs} and {file}, which it is checked against"
    )
    typer.echo(
        f"Next: commit and push {registry} ({others}), so that others see it first; then: "
        f"marin-scale run {registration.folder.name}"
    )


def sign(
    which: str = _FOLDER,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email."),
) -> None:
    """Sign a preregistration of someone else, as its reviewer.

    It is verified first, its fit made again, and every line printed: what you sign is what held on your machine. Your key has
    to stand in allowed_signers.

    Example: marin-scale sign 2026-11-26-quickstart --as bob@example.org
    """
    from marin_scaling.cli.options import one_folder
    from marin_scaling.cli.verify import print_steps
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key
    from marin_scaling.preregistration.signing.signatures import countersign
    from marin_scaling.preregistration.verify.refit import verify_and_fit
    from marin_scaling.run.paths import RUNS_DIR

    folder = one_folder(which, registry=registry)
    print_steps(verify_and_fit(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR))
    signing_key, principal = find_signing_key(key), find_principal(signer)
    typer.echo(signing_key.note)
    typer.echo(f"Signed: {countersign(folder, key=signing_key, principal=principal)}")
    write_down(folder.parent, at=datetime.now(UTC))
    typer.echo(f"Next: commit and push what is new in {folder.parent}")


def stamp(
    which: str = _FOLDER,
    tsa: str = typer.Option(..., "--tsa", metavar="URL", help="The time-stamping authority to ask (RFC 3161)."),
    registry: Path = REGISTRY,
) -> None:
    """Have a third party say when a preregistration's signature was there.

    The authority sees a digest of the signature. Its answer is verified against tsa_roots.pem beside the registrations and kept
    beside the signature. Ask two, for a run that matters.

    Example: marin-scale stamp 2026-11-26-quickstart --tsa https://tsa.example/
    """
    from marin_scaling.cli.options import one_folder
    from marin_scaling.files import read_bytes, write_once
    from marin_scaling.preregistration.events.timestamp import request_stamp, roots_path, stamped_signature
    from marin_scaling.preregistration.layout import stamp_names
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.statement import moment_text
    from marin_scaling.preregistration.verify.authenticity import require_registrant_at, verify_folder

    folder = one_folder(which, registry=registry, sealed=True)
    verify_folder(folder, allowed_signers=signers_path(folder))
    reply, moment = request_stamp(read_bytes(stamped_signature(folder)), url=tsa, roots=roots_path(folder))
    standing = stamp_names(each.name for each in folder.iterdir())
    if not standing:  # the first one says when the key had to be allowed
        require_registrant_at(folder, allowed_signers=signers_path(folder), at=moment)
    path = folder / f"stamp-{len(standing) + 1}.tsr"
    write_once(path, reply)
    write_down(folder.parent, at=datetime.now(UTC))
    typer.echo(f"{path}: the signature was there at {moment_text(moment)}")
    typer.echo(f"Next: commit and push what is new in {folder.parent}")


def run(
    which: str = _FOLDER,
    registry: Path = REGISTRY,
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
) -> None:
    """Train the target of a preregistration, bound to it.

    The preregistration is verified first. The statement's digest is in the run's spec from its first step. Here the run has all
    cores and GPUs of the machine; on a Ray cluster what the ladder's file gives a run.

    Example: marin-scale run 2026-11-26-quickstart
    """
    from marin_scaling.cli.options import one_folder
    from marin_scaling.preregistration.events.notice import require_not_ended
    from marin_scaling.preregistration.events.seal import whole_folder
    from marin_scaling.preregistration.history import log_step
    from marin_scaling.preregistration.log import read_log
    from marin_scaling.preregistration.register import answering_spec
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.review.pull_request import is_uncommitted
    from marin_scaling.preregistration.verify.authenticity import verify_folder
    from marin_scaling.preregistration.verify.policy import policy_steps
    from marin_scaling.run.paths import RUNS_DIR
    from marin_scaling.train.session import file_of, hardware_of, target_pool, train_with_progress, use_tracker

    folder = one_folder(which, registry=registry, sealed=True)
    whole, signers = whole_folder(folder), signers_path(folder)
    verify_folder(whole, allowed_signers=signers, runs_dir=RUNS_DIR)
    if whole != folder:
        verify_folder(folder, allowed_signers=signers)
    require_not_ended(folder)
    log_step(folder, log=read_log(folder.parent))
    policy_steps(whole, allowed_signers=signers, stamped=folder)
    if is_uncommitted(folder):
        typer.echo(
            f"note: {folder} is not committed as it is: until it is pushed, nobody else can see that it came before its run"
        )
    target = answering_spec(whole)
    use_tracker(file_of(target.ladder))
    pool, storage = target_pool(where, ladder=target.ladder), hardware_of(target.ladder).storage
    train_with_progress([target], corpus=_corpus_of(target), label="target", pool=pool, storage=storage)
    typer.echo(f"Next: marin-scale {'check' if whole == folder else 'reveal'} {which}")


def _corpus_of(target: RunSpec) -> TokenCorpus:
    """The target's data as they are here: of the standard library, kept from its ladder, or as its ladder's file names them."""
    from marin_scaling.data.corpus import data_folder, find_corpus
    from marin_scaling.data.documents import standard_library_corpus
    from marin_scaling.data.prepare import prepare
    from marin_scaling.ladder.config import STANDARD_LIBRARY, read_ladder_file
    from marin_scaling.train.session import own_work_root

    if target.data.source == STANDARD_LIBRARY:
        return standard_library_corpus()
    work_root = own_work_root()
    kept = find_corpus(data_folder(target.data.digest, work_root=work_root))
    if kept is not None:
        return replace(kept, source=target.data.source)
    return prepare(read_ladder_file(Path("ladders") / f"{target.ladder}.yaml").data, work_root=work_root)


def standing_forecast(planned: PlannedLadder, *, registry: Path) -> Registration | None:
    """The forecast of this ladder's target, on this data, that is registered already; None when there is none."""
    from marin_scaling.preregistration.layout import is_sealed
    from marin_scaling.preregistration.register import standing_registration
    from marin_scaling.preregistration.registry import registration_folders

    for folder in filterfalse(is_sealed, registration_folders(registry)):
        spec = target_in(folder)
        if (spec.ladder, spec.data, spec.budget_flops) == _identity(planned):
            return standing_registration(spec, registry_dir=registry)
    return None


def _identity(planned: PlannedLadder) -> tuple[str, DataSpec, float]:
    file = planned.ladder.file
    return file.name, planned.specs[0].data, file.target.budget_flops


def register_forecast(
    planned: PlannedLadder,
    *,
    registry: Path,
    key: Path | None = None,
    signer: str | None = None,
    slug: str | None = None,
    reveal_by: datetime | None = None,
) -> Registration:
    """Forecast a ladder's target, sign and register the forecast (or its seal); prints what it finds and does."""
    from marin_scaling.preregistration.register import preregister_target
    from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key

    require_whole_ladder(planned)
    principal = find_principal(signer)
    _require_followable(planned, registry=registry, principal=principal, sealed=reveal_by is not None)
    signing_key = find_signing_key(key)
    evidence = forecast_target(planned)
    require_declared(evidence, planned)
    registration = preregister_target(
        evidence,
        registry_dir=registry,
        key=signing_key,
        principal=principal,
        slug=slug or planned.ladder.file.name,
        created_at=datetime.now(UTC),
        promise=planned.ladder.file.promise,
        reveal_by=reveal_by,
    )
    for note in filter(None, (registration.key_note, registration.added_signer)):
        typer.echo(note)
    typer.echo(f"Signed and {'sealed' if reveal_by else 'registered'}: {registration.folder}")
    return registration


def _require_followable(planned: PlannedLadder, *, registry: Path, principal: str, sealed: bool) -> None:
    from marin_scaling.preregistration.register import USUAL_TERM
    from marin_scaling.preregistration.verify.policy import require_followable

    resolver = planned.ladder.file.promise.resolver or principal
    now, day = datetime.now(UTC), planned.ladder.file.promise.due
    due = datetime.combine(day, time(23, 59, 59), tzinfo=UTC) if day else now + USUAL_TERM
    require_followable(registry, registrant=principal, resolver=resolver, sealed=sealed, at=now, due=due)


def _end_of(day: str) -> datetime:
    """The last second of a day (UTC); `UsageError` before anything is fitted, where a seal cannot last until then."""
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.events.seal import LONGEST_SEAL

    now, end = datetime.now(UTC), _last_second(day)
    if end is None or not now < end <= now + LONGEST_SEAL:
        raise UsageError(
            f"--seal-until {day}: a forecast is sealed until a later day, within four years.",
            why="What is sealed has to be shown some day, or it is no forecast.",
            fix=f"Choose a day after today, within four years, and write it like {now + timedelta(days=90):%Y-%m-%d}.",
        )
    return end


def _last_second(day: str) -> datetime | None:
    try:
        return datetime.combine(datetime.strptime(day, "%Y-%m-%d"), time(23, 59, 59), tzinfo=UTC)
    except ValueError:
        return None
