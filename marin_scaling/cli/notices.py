"""`marin-scale withdraw`, `void`, `deviate`: what is said of a preregistration after it was made, signed, beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.reason import REASON, require_reason
from marin_scaling.cli.steps_seen import STEPS_SEEN, steps_said
from marin_scaling.regular_files import is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.notice import Kind

_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")
_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")
_KEY = typer.Option(None, "--key", help="SSH private key to sign with.")
_SIGNER = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email.")
_EVIDENCE = typer.Option(None, "--evidence", help="Where it can be seen.")


@app.command("withdraw")
def withdraw(
    which: str = _FOLDER,
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = _REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Take a forecast of your own back, before its run.

    It stays where it is and in every count, as withdrawn; once steps of its run have been seen, it counts as missed.

    Example: marin-scale withdraw 2026-11-21-quickstart --reason 'the run was cancelled'
    """
    _give(which, "withdraw", registry=registry, key=key, signer=signer, reason=reason, steps_seen=steps_seen)


@app.command("void")
def void(
    which: str = _FOLDER,
    because: str = typer.Option(..., "--because", metavar="CONDITION", help="A condition in the statement's own words."),
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    registry: Path = _REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """As its resolver, say that a condition came true under which a forecast is void.

    Only for conditions that the statement names, and only by a resolver who is not its registrant.

    Example: marin-scale void 2026-11-21-quickstart --because 'the text is withdrawn' --reason 'its owner took it down'
    """
    said: dict[str, Any] = {"condition": because, "evidence": evidence}
    _give(which, "void", registry=registry, key=key, signer=signer, reason=reason, **said)


@app.command("deviate")
def deviate(
    which: str = _FOLDER,
    from_step: int = typer.Option(..., "--from-step", min=0, help="From which step on the run differs."),
    reason: str = REASON,
    evidence: str | None = _EVIDENCE,
    registry: Path = _REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
) -> None:
    """Say that a run left the recipe that was promised, and from which step on.

    Anyone who may sign can say it. The forecast is scored all the same, and the notice stands beside its score.

    Example: marin-scale deviate 2026-11-21-quickstart --from-step 800 --reason 'the clipping was changed'
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
    from marin_scaling.check.authenticity import verify_folder
    from marin_scaling.check.verdict import verdicts_on
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.cli.which_registration import one_folder
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.notice import ENDING_KINDS, give_notice, require_not_ended
    from marin_scaling.preregistration.registry import OUTCOME_NAME, signers_path
    from marin_scaling.preregistration.signing_key import find_principal, find_signing_key

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
