"""`marin-scale init`: a repository of one's own for ladders, runs and preregistrations."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app

_FOLDER = typer.Argument(Path(), metavar="FOLDER", help="Where to make it; default: here.")


@app.command("init")
def init(folder: Path = _FOLDER) -> None:
    """Make a repository of your own for forecasts.

    It has folders for ladders, runs and preregistrations, an example ladder, a site and a CI workflow.

    Files that are there already stay as they are; those that differ are named.

    Example: marin-scale init my-forecasts
    """
    from marin_scaling.publish.user_repository import make_user_repository

    repository = make_user_repository(folder)
    for path in repository.made:
        typer.echo(f"made {path}")
    for path in repository.kept:
        typer.echo(f"kept {path} as it is")
    typer.echo(f"Next: {'' if folder == Path() else f'cd {folder} && '}marin-scale ladder ladders/quickstart.yaml --dry-run")
