"""`marin-scale amend`: forecast a preregistered run again, from its ladder as it is now, beside the first forecast."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from marin_scaling.cli.app import app
from marin_scaling.cli.reason import REASON, require_reason
from marin_scaling.cli.steps_seen import STEPS_SEEN, steps_said

_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")
_KEY = typer.Option(None, "--key", help="SSH private key to sign with.")


@app.command("amend")
def amend(
    which: str = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path."),
    reason: str = REASON,
    steps_seen: int | None = STEPS_SEEN,
    registry: Path = _REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = typer.Option(None, "--as", help="Who signs, as in allowed_signers; default: git's user.email."),
) -> None:
    """Forecast a run of yours again, from its ladder as it is now, before the run has ended.

    The first forecast keeps the verdict and every count. This one is signed, verified and fitted again like it, and scored in a
    row of its own, with how many steps of the run you had seen.

    Example: marin-scale amend 2026-11-21-quickstart --reason 'two more budgets were trained'
    """
    from marin_scaling.check.authenticity import verify_folder
    from marin_scaling.cli.target_forecast import forecast_again, require_whole_ladder, target_in
    from marin_scaling.cli.training import plan
    from marin_scaling.cli.which_registration import one_folder
    from marin_scaling.preregistration import amend as amendments
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path
    from marin_scaling.preregistration.signing_key import find_principal, find_signing_key

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
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.errors import SigningError
    from marin_scaling.preregistration.binding import answering_spec
    from marin_scaling.run.run_store import is_finished, run_folder

    answer = answering_spec(folder)
    if is_finished(RUNS_DIR, answer):
        raise SigningError(
            f"{run_folder(RUNS_DIR, answer)} has the run that {folder.name} is about.",
            why="What is known cannot be forecast.",
            fix=f"See how the forecast did: marin-scale check {folder.name}",
        )
