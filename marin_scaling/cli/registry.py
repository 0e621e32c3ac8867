"""Command `marin-scale registry`: sign, stamp, amend, withdraw, void, deviate, restart, reveal, log and import."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.cli.verify import REGISTRY, echo_wrapped, print_steps, push
from marin_scaling.printable import printable
from marin_scaling.units import counted

REASON = typer.Option(..., "--reason", metavar="TEXT", help="Reason, in one sentence.")


def commit_and_push() -> str:
    """Return the next step after a change of the registry, which ends with a push only where a remote exists."""
    return "commit and push" if push() else "commit"


def require_reason(reason: str) -> None:
    """Raise `UsageError` if the signed reason is empty or has more than one line."""
    from marin_scaling.errors import UsageError

    if not reason.strip() or len(reason.splitlines()) > 1:
        raise UsageError(
            f"--reason {reason!r} is not one line of text.",
            why="The reason is signed and published with the forecast.",
            fix="Write one line: --reason 'two more budgets were trained'",
        )


STEPS_SEEN = typer.Option(
    None,
    "--steps-seen",
    min=0,
    metavar="N",
    help="Steps of the target's loss that you have seen; default: 0 if the run has not started.",
)

if TYPE_CHECKING:
    from marin_scaling.preregistration.events.notice import Kind
    from marin_scaling.preregistration.log import LogEntry

registry_app = typer.Typer(
    help="Sign, stamp, amend, withdraw or reveal forecasts; import registries.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FOLDER = typer.Argument(metavar="FOLDER", help="Folder of the registry, by name or path.")
_KEY = typer.Option(None, "--key", metavar="FILE", readable=False, help="SSH private key to sign with.")
_SIGNER = typer.Option(None, "--as", metavar="NAME", help="Name to sign as, in allowed_signers; default: git's user.email.")
_FROM_TOKENS = typer.Option(None, "--from-tokens", metavar="N", min=1, help="Trained tokens, instead of --from-step.")
_CONDITIONAL = typer.Option(
    None, "--forecast", metavar="FILE", help="Forecast of the changed run, from fit --predict-runs TARGETS --json."
)
_EVIDENCE = typer.Option(None, "--evidence", metavar="TEXT", help="Place of the evidence.")


@registry_app.command("sign")
def sign(
    which: str = _FOLDER,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Sign someone else's preregistration as a reviewer.

    The preregistration is verified and refitted first, and each step is printed. Your key must be in allowed_signers.

    Example: marin-scale registry sign 2026-11-26-quickstart --as bob@example.org
    """
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.register import countersign
    from marin_scaling.preregistration.registry import one_folder, signers_path
    from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key
    from marin_scaling.preregistration.verify.refit import verify_and_fit
    from marin_scaling.run.store import RUNS_DIR

    folder = one_folder(which, registry=registry)
    print_steps(verify_and_fit(folder, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR).steps)
    signing_key, principal = find_signing_key(key), find_principal(signer)
    echo_wrapped(signing_key.note)
    echo_wrapped(f"Signed: {countersign(folder, key=signing_key, principal=principal)}")
    write_down(folder.parent, at=datetime.now(UTC))
    echo_wrapped(f"Next: {commit_and_push()} {folder.parent}")


@registry_app.command("stamp")
def stamp(
    which: str = _FOLDER,
    tsa: str = typer.Option(..., "--tsa", metavar="URL", help="Time-stamping authority (RFC 3161)."),
    registry: Path = REGISTRY,
) -> None:
    """Get a time stamp of a preregistration's signature.

    The time-stamping authority receives a digest of the signature. Its reply is verified against tsa_roots.pem of the
    registry and stored beside the signature. Use two authorities for an important run.

    Example: marin-scale registry stamp 2026-11-26-quickstart --tsa https://tsa.example/
    """
    from marin_scaling.files import read_bytes, write_once
    from marin_scaling.preregistration.events.seal import request_stamp, roots_path, stamped_signature
    from marin_scaling.preregistration.layout import stamp_names
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import one_folder, signers_path
    from marin_scaling.preregistration.statement import moment_text
    from marin_scaling.preregistration.verify.authenticity import require_registrant_at, verify_folder

    folder = one_folder(which, registry=registry, sealed=True)
    verify_folder(folder, allowed_signers=signers_path(folder))
    reply, moment = request_stamp(read_bytes(stamped_signature(folder)), url=tsa, roots=roots_path(folder))
    standing = stamp_names(each.name for each in folder.iterdir())
    if not standing:  # the key must have been allowed at the time of the first stamp
        require_registrant_at(folder, allowed_signers=signers_path(folder), at=moment)
    path = folder / f"stamp-{len(standing) + 1}.tsr"
    write_once(path, reply)
    write_down(folder.parent, at=datetime.now(UTC))
    echo_wrapped(f"{path}: the signature existed at {moment_text(moment)}")
    echo_wrapped(f"Next: {commit_and_push()} {folder.parent}")


@registry_app.command("amend")
def amend(
    which: str = _FOLDER,
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Sign a later forecast of the same run, before it ends.

    The ladder is fitted as it is now. The first forecast keeps its verdict and alone counts in the track record. The later
    forecast is verified, refitted and scored separately, with the number of steps you had seen.

    Example: marin-scale registry amend 2026-11-26-quickstart --reason 'two more budgets were trained'
    """
    from marin_scaling.preregistration.preregister import amend_forecast
    from marin_scaling.preregistration.registry import one_folder

    require_reason(reason)
    folder = one_folder(which, registry=registry)
    made = amend_forecast(folder, reason=reason, steps_seen=steps_seen, key=key, signer=signer, on_message=echo_wrapped)
    echo_wrapped(f"Signed: {made}")
    echo_wrapped(f"Next: {commit_and_push()} {folder.parent} before the run ends; the forecast counts from its time in the log")


@registry_app.command("withdraw")
def withdraw(
    which: str = _FOLDER,
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Withdraw a forecast of your own, before its run.

    The forecast stays in the registry and counts as withdrawn. After steps of its run have been seen, it counts as missed.

    Example: marin-scale registry withdraw 2026-11-26-quickstart --reason 'the run was cancelled'
    """
    _give(which, "withdraw", registry=registry, key=key, signer=signer, reason=reason, steps_seen=steps_seen)


@registry_app.command("void")
def void(
    which: str = _FOLDER,
    because: str = typer.Option(..., "--because", metavar="CONDITION", help="Condition, exactly as in the statement."),
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Sign that a condition for voiding a forecast is met.

    Only the resolver can sign this, only for conditions in the statement, and only if another person registered the
    forecast.

    Example: marin-scale registry void 2026-11-26-quickstart --because 'the text is withdrawn' --reason 'its owner took it
    down'
    """
    content: dict[str, Any] = {"condition": because, "evidence": evidence}
    _give(which, "void", registry=registry, key=key, signer=signer, reason=reason, **content)


@registry_app.command("deviate")
def deviate(
    which: str = _FOLDER,
    from_step: int | None = typer.Option(None, "--from-step", metavar="N", min=0, help="First step that deviates."),
    from_tokens: float | None = _FROM_TOKENS,
    changed_on: str | None = typer.Option(None, "--on", metavar="DAY", help="Day of the change, such as 2026-12-24."),
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    forecast: Path | None = _CONDITIONAL,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Sign that a run deviates from its promised recipe.

    Anyone in allowed_signers can sign this. The forecast is still scored, and the notice is shown with its score. The
    registrant can add a forecast of the changed run. That forecast is scored separately and counts in no record.

    Example: marin-scale registry deviate 2026-11-26-quickstart --from-step 800 --reason 'the clipping was changed'
    """
    content: dict[str, Any] = {"from_step": from_step, "from_tokens": from_tokens, "changed_on": changed_on}
    content |= {"evidence": evidence, "forecast": forecast, "steps_seen": steps_seen}
    _give(which, "deviate", registry=registry, key=key, signer=signer, reason=reason, **content)


@registry_app.command("restart")
def restart(
    which: str = _FOLDER,
    restarted_as: str = typer.Option(..., "--restarted-as", metavar="ID", help="Id under which the run continues."),
    from_step: int | None = typer.Option(None, "--from-step", metavar="N", min=0, help="First step of that id."),
    from_tokens: float | None = _FROM_TOKENS,
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Sign that an outside run continues under another id.

    The registrant or the resolver signs this before the run ends. `outcome` then joins the logs of all declared ids in their
    order.

    Example: marin-scale registry restart 2026-12-01-hero --restarted-as hero-2 --from-step 12000 --reason 'a node failed'
    """
    content: dict[str, Any] = {"run": restarted_as, "from_step": from_step, "from_tokens": from_tokens, "evidence": evidence}
    _give(which, "restart", registry=registry, key=key, signer=signer, reason=reason, **content)


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
    from marin_scaling.run.store import RUNS_DIR

    require_reason(reason)
    folder = one_folder(which, registry=registry)
    given = sign_notice(folder, kind, reason=reason, key=key, signer=signer, on_message=echo_wrapped, **content)
    echo_wrapped(f"Signed: {given}")
    if kind in ENDING_KINDS:
        echo_wrapped(verdicts_on([folder], runs_dir=RUNS_DIR, at=datetime.now(UTC))[0].sentence)
    echo_wrapped(f"Next: {commit_and_push()} {folder.parent}; the notice counts from its time in the log")


@registry_app.command("reveal")
def reveal(which: str = _FOLDER, registry: Path = REGISTRY) -> None:
    """Reveal a sealed forecast of your own.

    The files in .marin-scaling/sealed are verified, then moved beside the seal together with its salt. The forecast then
    counts from the time of its seal.

    Example: marin-scale registry reveal 2026-11-26-quickstart
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.events import seal
    from marin_scaling.preregistration.layout import is_sealed
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import one_folder, signers_path
    from marin_scaling.preregistration.verify.refit import verify_and_fit
    from marin_scaling.run.store import RUNS_DIR

    folder = one_folder(which, registry=registry, sealed=True)
    if not is_sealed(folder):
        raise UsageError(
            f"{folder.name} is not sealed.",
            why="Only sealed forecasts are revealed.",
            fix=f"Verify the open forecast: marin-scale verify {folder.name}",
        )
    whole = seal.whole_folder(folder)
    print_steps(verify_and_fit(whole, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR).steps)
    seal.reveal(folder)
    write_down(folder.parent, at=datetime.now(UTC))
    echo_wrapped(f"Revealed: {folder}\nNext: {commit_and_push()} {registry}, with the ladder file and its runs")


@registry_app.command("log")
def log(registry: Path = REGISTRY) -> None:
    """Add missing entries to the registry's log.

    preregister, sign and check add their own entries. After a merge conflict, keep the other branch's log and run this
    command.

    Example: marin-scale registry log
    """
    from marin_scaling.preregistration.log import log_path, read_log, write_down

    added = write_down(registry, at=datetime.now(UTC))
    for entry in added:
        echo_wrapped(f"added line {entry.number + 1}: {entry.kind} {entry.id}")
    if added:
        _warn_of_later_times(added, registry=registry)
    echo_wrapped(f"{log_path(registry)} has {len(read_log(registry).entries)} lines")


def _warn_of_later_times(added: Sequence[LogEntry], *, registry: Path) -> None:
    """Warn if entries of the committed log now have later times, from which amendments and notices count."""
    from marin_scaling.preregistration.log import log_path
    from marin_scaling.preregistration.review.pull_request import logged_there

    before = {(entry.id, *entry.files): entry for entry in logged_there("HEAD", registry_dir=registry).entries}
    again = [then for entry in added if (then := before.get((entry.id, *entry.files))) and then.logged_at != entry.logged_at]
    if again:
        echo_wrapped(
            f"warning: {len(again)} of the last commit's log now have later times, such as {again[0].id}, logged "
            f"at {again[0].logged_at}. If this is not the result of a merge, restore the log: "
            f"git checkout HEAD -- {log_path(registry)}"
        )


@registry_app.command("import")
def import_(
    address: str = typer.Argument(metavar="ADDRESS", help="Address or path of a repository with a registry."),
    commit: str = typer.Option(..., "--commit", metavar="ID", help="Commit to copy, with all 40 digits."),
    name: str | None = typer.Option(None, "--name", metavar="NAME", help="Name here; default: from the address."),
) -> None:
    """Import the forecasts of another repository, to compare them with your own.

    Its folder preregistrations is copied into registries/NAME and verified, except for refits. The index of the site shows
    its forecasts, and check all compares forecasts of one run. A later commit of the same repository replaces the copy.

    Example: marin-scale registry import https://example.org/lab/forecasts --commit 4f9c2d1e... --name lab
    """
    from marin_scaling.preregistration.imported import REGISTRIES, import_registry
    from marin_scaling.preregistration.outcome import State

    made = import_registry(address, commit=commit, name=name)
    for verdict in made.verdicts:
        echo_wrapped(f"{printable(verdict.id)}  {verdict.sentence}")
    refused = sum(verdict.state is State.REFUSED for verdict in made.verdicts)
    echo_wrapped(f"Imported {counted(len(made.verdicts), 'forecast')}, {refused} refused: {REGISTRIES / made.name}")
    echo_wrapped(f"Next: {commit_and_push()} {REGISTRIES / made.name}")
