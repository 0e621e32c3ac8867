"""`marin-scale amend`, `withdraw`, `void`, `deviate` and `reveal`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.cli.options import REASON, REGISTRY, STEPS_SEEN, require_reason, steps_said
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.events.notice import Kind

_KEY = typer.Option(None, "--key", help="SSH private key to sign with.")


def amend(
    which: str = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path."),
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email."),
) -> None:
    """Forecast a run of yours again, from its ladder as it is now, before the run has ended.

    The first forecast keeps the verdict and every count. This one is signed, verified and fitted again like it, and scored in a
    row of its own, with how many steps of the run you had seen.

    Example: marin-scale amend 2026-11-26-quickstart --reason 'two more budgets were trained'
    """
    from marin_scaling.cli.options import one_folder
    from marin_scaling.preregistration.events import amendment as amendments
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key
    from marin_scaling.preregistration.target_forecast import forecast_again, require_whole_ladder, target_in
    from marin_scaling.preregistration.verify.authenticity import verify_folder
    from marin_scaling.train.session import plan

    require_reason(reason)
    folder = one_folder(which, registry=registry)
    verify_folder(folder, allowed_signers=signers_path(folder))
    target = target_in(folder)
    amendments.require_open(folder)
    _require_not_run(folder)
    seen = steps_said(steps_seen, folder=folder)
    planned = plan(Path("ladders") / f"{target.ladder}.yaml")
    require_whole_ladder(planned)
    signing_key, principal, now = find_signing_key(key), find_principal(signer), datetime.now(UTC)
    rows, document, losses = forecast_again(planned.runs_dir, flops=target.flops)
    made = amendments.amend(
        folder,
        rows=rows,
        forecast=document,
        losses=losses,
        key=signing_key,
        principal=principal,
        at=now,
        reason=reason,
        steps_seen=seen,
    )
    write_down(folder.parent, at=now)
    typer.echo(f"{signing_key.note}\nSigned: {made}")
    typer.echo("Next: commit and push it before the run ends; it counts from the moment that its line in the log says")


def _require_not_run(folder: Path) -> None:
    from marin_scaling.errors import SigningError
    from marin_scaling.preregistration.register import answering_spec
    from marin_scaling.run.paths import RUNS_DIR
    from marin_scaling.run.store import is_finished, run_folder

    answer = answering_spec(folder)
    if is_finished(RUNS_DIR, answer):
        raise SigningError(
            f"{run_folder(RUNS_DIR, answer)} has the run that {folder.name} is about.",
            why="What is known cannot be forecast.",
            fix=f"See how the forecast did: marin-scale check {folder.name}",
        )


_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")
_SIGNER = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email.")
_EVIDENCE = typer.Option(None, "--evidence", help="Where it can be seen.")


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

    Example: marin-scale withdraw 2026-11-26-quickstart --reason 'the run was cancelled'
    """
    _give(which, "withdraw", registry=registry, key=key, signer=signer, reason=reason, steps_seen=steps_seen)


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

    Example: marin-scale void 2026-11-26-quickstart --because 'the text is withdrawn' --reason 'its owner took it down'
    """
    said: dict[str, Any] = {"condition": because, "evidence": evidence}
    _give(which, "void", registry=registry, key=key, signer=signer, reason=reason, **said)


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

    Example: marin-scale deviate 2026-11-26-quickstart --from-step 800 --reason 'the clipping was changed'
    """
    said: dict[str, Any] = {"from_step": from_step, "evidence": evidence}
    _give(which, "deviate", registry=registry, key=key, signer=signer, reason=reason, **said)


def _give(
    which: str,
    kind: Kind,
    *,
    registry: Path,
    key: Path | None,
    signer: str | None,
    reason: str,
    steps_seen: int | None = None,
    **said: Any,
) -> None:
    from marin_scaling.cli.options import one_folder
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.events.notice import ENDING_KINDS, give_notice, require_not_ended
    from marin_scaling.preregistration.layout import OUTCOME_NAME
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key
    from marin_scaling.preregistration.verdict import verdicts_on
    from marin_scaling.preregistration.verify.authenticity import verify_folder
    from marin_scaling.run.paths import RUNS_DIR

    require_reason(reason)
    folder = one_folder(which, registry=registry)
    verify_folder(folder, allowed_signers=signers_path(folder))
    if kind == "withdraw" and is_present(folder / OUTCOME_NAME):
        raise UsageError(
            f"{folder.name} has its outcome.",
            why="What is known is not taken back: it would count as missed, and its score would be gone.",
            fix="Leave it as it is, and forecast better next time.",
        )
    if kind in ENDING_KINDS:
        require_not_ended(folder)
    seen = steps_said(steps_seen, folder=folder) if kind == "withdraw" else 0
    signing_key, principal, now = find_signing_key(key), find_principal(signer), datetime.now(UTC)
    given = give_notice(
        folder, kind, key=signing_key, principal=principal, at=now, reason=reason, target_steps_seen=seen, **said
    )
    write_down(folder.parent, at=now)
    typer.echo(f"{signing_key.note}\nSigned: {given}")
    if kind in ENDING_KINDS:
        typer.echo(verdicts_on([folder], runs_dir=RUNS_DIR, at=now)[0].sentence)
    typer.echo(f"Next: commit and push what is new in {folder.parent}; it counts from its line in the log")


_SEALED_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")


def reveal(which: str = _SEALED_FOLDER, registry: Path = REGISTRY) -> None:
    """Show a forecast of yours that was sealed.

    Its files are verified as they lie in .marin-scaling/sealed, then put beside the seal, with the salt that opens it. From
    then on it is a preregistration like any other, as old as its seal.

    Example: marin-scale reveal 2026-11-26-quickstart
    """
    from marin_scaling.cli.options import one_folder
    from marin_scaling.cli.verify import print_steps
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.events import seal
    from marin_scaling.preregistration.layout import is_sealed
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
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
    print_steps(verify_and_fit(whole, allowed_signers=signers_path(folder), runs_dir=RUNS_DIR))
    seal.reveal(folder)
    write_down(folder.parent, at=datetime.now(UTC))
    typer.echo(f"Revealed: {folder}. Next: commit and push {registry}, with the ladder's file and its runs, if these waited")
