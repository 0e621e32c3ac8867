"""`marin-scale reveal`: show a forecast that was sealed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from marin_scaling.cli.app import app

_FOLDER = typer.Argument(metavar="FOLDER", help="A folder of the registry, by name or path.")
_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")


@app.command("reveal")
def reveal(which: str = _FOLDER, registry: Path = _REGISTRY) -> None:
    """Show a forecast of yours that was sealed.

    Its files are verified as they lie in .marin-scaling/sealed, then put beside the seal, with the salt that opens it. From
    then on it is a preregistration like any other, as old as its seal.

    Example: marin-scale reveal 2026-11-21-quickstart
    """
    from marin_scaling.check.reproduction import verify_and_fit
    from marin_scaling.cli.preregistration import print_steps
    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.cli.which_registration import one_folder
    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration import seal
    from marin_scaling.preregistration.log import write_down
    from marin_scaling.preregistration.registry import signers_path

    folder = one_folder(which, registry=registry, sealed=True)
    if not seal.is_sealed(folder):
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
