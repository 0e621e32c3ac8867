"""`marin-scale review`: what a reviewer of a pull request has to know of the forecasts in it."""

from __future__ import annotations

from pathlib import Path

import typer

from marin_scaling.cli.app import app

_BASE = typer.Option("origin/main", "--base", metavar="REF", help="The branch that it is to be merged into.")
_REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations lie.")
_RUNS = typer.Option(Path("runs"), "--runs", help="The run store.")


@app.command("review")
def review(
    base: str = _BASE,
    registry: Path = _REGISTRY,
    runs: Path = _RUNS,
    whole: bool = typer.Option(False, "--whole", help="All details, also more than a comment holds."),
) -> None:
    """Print the review of a branch that adds forecasts, as Markdown.

    What was verified with the base's signers, the forecast beside its baseline and the earlier ones, what it hangs on, its
    registrant's record, what is doubtful, and the questions that only a person can answer. Writes nothing. Exit status 1 when
    something is refused.

    Example: marin-scale review --base origin/main >> "$GITHUB_STEP_SUMMARY"
    """
    from datetime import UTC, datetime

    from marin_scaling.check.review import review_branch
    from marin_scaling.limits import COMMENT_CHARACTERS
    from marin_scaling.publish.review_text import review_text

    found = review_branch(base, registry_dir=registry, runs_dir=runs)
    most = None if whole else COMMENT_CHARACTERS
    typer.echo(review_text(found, registry=registry, runs_dir=runs, at=datetime.now(UTC), most=most), nl=False)
    raise typer.Exit(0 if found.sound else 1)
