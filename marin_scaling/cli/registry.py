"""`marin-scale registry`: sign, stamp, amend, withdraw, void, deviate, reveal and log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.cli.verify import REGISTRY, print_steps

REASON = typer.Option(..., "--reason", help="Why, in a sentence.")


def require_reason(reason: str) -> None:
    """`UsageError` where the reason for what is signed has no words in it, or more than one line."""
    from marin_scaling.errors import UsageError

    if not reason.strip() or len(reason.splitlines()) > 1:
        raise UsageError(
            f"--reason {reason!r} is no sentence.",
            why="It is signed, and stands beside the forecast for ever.",
            fix="Say it in one line: --reason 'two more budgets were trained'",
        )


STEPS_SEEN = typer.Option(
    None,
    "--steps-seen",
    min=0,
    help="How many steps of the target's loss you have seen; default: none, where it has not begun.",
)

if TYPE_CHECKING:
    from marin_scaling.preregistration.events.notice import Kind
    from marin_scaling.preregistration.log import LogEntry

registry_app = typer.Typer(
    help="Sign, stamp, amend, withdraw or reveal registered forecasts, and keep their log.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")
_KEY = typer.Option(None, "--key", readable=False, help="SSH private key to sign with.")
_SIGNER = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email.")
_EVIDENCE = typer.Option(None, "--evidence", help="Where it can be seen.")


@registry_app.command("sign")
def sign(
    which: str = _FOLDER,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Sign a preregistration of someone else, as its reviewer.

    It is verified first, its fit made again, and every line printed: what you sign is what held on your machine. Your key has
    to stand in allowed_signers.

    Example: marin-scale registry sign 2026-11-26-quickstart --as bob@example.org
    """
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import one_folder, signers_path
    from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key
    from marin_scaling.preregistration.signing.signatures import countersign
    from marin_scaling.preregistration.verify.refit import verify_and_fit
    from marin_scaling.run.paths import RUNS_DIR

    folder = one_folder(which, registry=registry)
    print_steps(verify_and_fit(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR).steps)
    signing_key, principal = find_signing_key(key), find_principal(signer)
    typer.echo(signing_key.note)
    typer.echo(f"Signed: {countersign(folder, key=signing_key, principal=principal)}")
    write_down(folder.parent, at=datetime.now(UTC))
    typer.echo(f"Next: commit and push what is new in {folder.parent}")


@registry_app.command("stamp")
def stamp(
    which: str = _FOLDER,
    tsa: str = typer.Option(..., "--tsa", metavar="URL", help="The time-stamping authority to ask (RFC 3161)."),
    registry: Path = REGISTRY,
) -> None:
    """Have a third party say when a preregistration's signature was there.

    The authority sees a digest of the signature. Its answer is verified against tsa_roots.pem beside the registrations and kept
    beside the signature. Ask two, for a run that matters.

    Example: marin-scale registry stamp 2026-11-26-quickstart --tsa https://tsa.example/
    """
    from marin_scaling.files import read_bytes, write_once
    from marin_scaling.preregistration.events.timestamp import request_stamp, roots_path, stamped_signature
    from marin_scaling.preregistration.layout import stamp_names
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import one_folder, signers_path
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


@registry_app.command("amend")
def amend(
    which: str = _FOLDER,
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Forecast a run of yours again, from its ladder as it is now, before the run has ended.

    The first forecast keeps the verdict and every count. This one is signed, verified and fitted again like it, and scored in a
    row of its own, with how many steps of the run you had seen.

    Example: marin-scale registry amend 2026-11-26-quickstart --reason 'two more budgets were trained'
    """
    from marin_scaling.preregistration.preregister import amend_forecast
    from marin_scaling.preregistration.registry import one_folder

    require_reason(reason)
    folder = one_folder(which, registry=registry)
    made = amend_forecast(folder, reason=reason, steps_seen=steps_seen, key=key, signer=signer, on_message=typer.echo)
    typer.echo(f"Signed: {made}")
    typer.echo("Next: commit and push it before the run ends; it counts from the moment that its line in the log says")


@registry_app.command("withdraw")
def withdraw(
    which: str = _FOLDER,
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Take a forecast of your own back, before its run.

    It stays where it is and in every count, as withdrawn; once steps of its run have been seen, it counts as missed.

    Example: marin-scale registry withdraw 2026-11-26-quickstart --reason 'the run was cancelled'
    """
    _give(which, "withdraw", registry=registry, key=key, signer=signer, reason=reason, steps_seen=steps_seen)


@registry_app.command("void")
def void(
    which: str = _FOLDER,
    because: str = typer.Option(..., "--because", metavar="CONDITION", help="A condition in the statement's own words."),
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """As its resolver, say that a condition came true under which a forecast is void.

    Only for conditions that the statement names, and only by a resolver who is not its registrant.

    Example: marin-scale registry void 2026-11-26-quickstart --because 'the text is withdrawn' --reason 'its owner took it down'
    """
    content: dict[str, Any] = {"condition": because, "evidence": evidence}
    _give(which, "void", registry=registry, key=key, signer=signer, reason=reason, **content)


@registry_app.command("deviate")
def deviate(
    which: str = _FOLDER,
    from_step: int = typer.Option(..., "--from-step", min=0, help="From which step on the run differs."),
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Say that a run left the recipe that was promised, and from which step on.

    Anyone who may sign can say it. The forecast is scored all the same, and the notice stands beside its score.

    Example: marin-scale registry deviate 2026-11-26-quickstart --from-step 800 --reason 'the clipping was changed'
    """
    content: dict[str, Any] = {"from_step": from_step, "evidence": evidence}
    _give(which, "deviate", registry=registry, key=key, signer=signer, reason=reason, **content)


@registry_app.command("correct")
def correct(
    which: str = _FOLDER,
    was: str = typer.Option(..., "--was", metavar="TEXT", help="Words of the statement, exactly."),
    reads: str = typer.Option(..., "--reads", metavar="TEXT", help="The corrected words, with the same numbers."),
    reason: str = REASON,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Correct the wording of an assumption, a known difference or a related run of your own forecast.

    The statement stays as it is; verify shows the signed correction with it. To correct a resolver, a date or a condition,
    withdraw the forecast before its run and register it again.

    Example: marin-scale registry correct 2026-11-26-quickstart --was 'anohter corpus' --reads 'another corpus' --reason 'typo'
    """
    content: dict[str, Any] = {"was": was, "reads": reads}
    _give(which, "correct", registry=registry, key=key, signer=signer, reason=reason, **content)


def _give(
    which: str,
    kind: Kind,
    *,
    registry: Path,
    key: Path | None,
    signer: str | None,
    reason: str,
    **content: Any,
) -> None:
    from marin_scaling.preregistration.events.notice import ENDING_KINDS
    from marin_scaling.preregistration.preregister import sign_notice
    from marin_scaling.preregistration.registry import one_folder
    from marin_scaling.preregistration.verdict import verdicts_on
    from marin_scaling.run.paths import RUNS_DIR

    require_reason(reason)
    folder = one_folder(which, registry=registry)
    given = sign_notice(folder, kind, reason=reason, key=key, signer=signer, on_message=typer.echo, **content)
    typer.echo(f"Signed: {given}")
    if kind in ENDING_KINDS:
        typer.echo(verdicts_on([folder], runs_dir=RUNS_DIR, at=datetime.now(UTC))[0].sentence)
    typer.echo(f"Next: commit and push what is new in {folder.parent}; it counts from its line in the log")


@registry_app.command("reveal")
def reveal(which: str = _FOLDER, registry: Path = REGISTRY) -> None:
    """Show a forecast of yours that was sealed.

    Its files are verified as they lie in .marin-scaling/sealed, then put beside the seal, with the salt that opens it. From
    then on it is a preregistration like any other, as old as its seal.

    Example: marin-scale registry reveal 2026-11-26-quickstart
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.events import seal
    from marin_scaling.preregistration.layout import is_sealed
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import one_folder, signers_path
    from marin_scaling.preregistration.verify.refit import verify_and_fit
    from marin_scaling.run.paths import RUNS_DIR

    folder = one_folder(which, registry=registry, sealed=True)
    if not is_sealed(folder):
        raise UsageError(
            f"{folder.name} is not sealed.",
            why="All of it is there already.",
            fix=f"Verify it: marin-scale verify {folder.name}",
        )
    whole = seal.whole_folder(folder)
    print_steps(verify_and_fit(whole, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR).steps)
    seal.reveal(folder)
    write_down(folder.parent, at=datetime.now(UTC))
    typer.echo(f"Revealed: {folder}. Next: commit and push {registry}, with the ladder's file and its runs, if these waited")


@registry_app.command("log")
def log(registry: Path = REGISTRY) -> None:
    """Add missing entries to the registry's log.

    preregister, sign and check add their own entries. After a merge, take the other branch's log as it is and run this.

    Example: marin-scale registry log
    """
    from marin_scaling.preregistration.log import log_path, read_log, write_down

    added = write_down(registry, at=datetime.now(UTC))
    for entry in added:
        typer.echo(f"line {entry.number + 1}: {entry.kind} {entry.id}")
    if added:
        _warn_of_later_times(added, registry=registry)
    typer.echo(f"{log_path(registry)} has {len(read_log(registry).entries)} lines")


def _warn_of_later_times(added: Sequence[LogEntry], *, registry: Path) -> None:
    """A log that was cut is written anew with the time of today, by which amendments and notices count."""
    from marin_scaling.preregistration.log import log_path
    from marin_scaling.preregistration.review.pull_request import logged_there
    from marin_scaling.units import counted

    before = {(entry.id, *entry.files): entry for entry in logged_there("HEAD", registry_dir=registry).entries}
    again = [then for entry in added if (then := before.get((entry.id, *entry.files))) and then.logged_at != entry.logged_at]
    if again:
        typer.echo(
            f"note: {counted(len(again), 'line')} of these stood in the log of your last commit, {again[0].id} since "
            f"{again[0].logged_at}. From now on they count as of today. If that log was lost, and not given up in a merge: "
            f"git checkout HEAD -- {log_path(registry)}"
        )
