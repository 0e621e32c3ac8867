"""`marin-scale verify`, `check` and `review`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.printable import printable

if TYPE_CHECKING:
    from marin_scaling.preregistration.state import VerifiedStep

REGISTRY = typer.Option(Path("preregistrations"), "--registry", help="Where preregistrations and allowed_signers lie.")
_WHICH = typer.Argument("all", metavar="FOLDER|all", help="A folder of the registry, by name or path, or all of them.")
_RUNS = typer.Option(Path("runs"), "--runs", help="The run store.")


def verify(
    which: str = _WHICH,
    registry: Path = REGISTRY,
    runs: Path = _RUNS,
    refit: bool = typer.Option(True, help="Fit each ladder again and compare what it gives (a second or two)."),
    base: str | None = typer.Option(
        None,
        "--base",
        metavar="REF",
        help="The branch to be merged into: nothing of it may have changed, and its signers count.",
    ),
) -> None:
    """Verify that preregistrations are what they claim to be.

    Unchanged, signed by whom they say, equal to what their ladder gives when it is fitted again, to their runs, and to the log.
    Exit status 1 when one of them is not. -- stands where something could not be compared here, with the reason.

    Example: marin-scale verify all
    """
    from marin_scaling.preregistration.verification import verify_registry

    status, count = 0, 0
    for result in verify_registry(which, registry=registry, runs_dir=runs, refit=refit, base=base):
        is_registry = result.folder == registry
        count += not is_registry
        typer.echo(result.folder if is_registry else printable(result.folder.name))
        print_steps(result.steps)
        if result.refusal is not None:
            status = 1
            typer.echo("  refused")
            typer.echo(f"error: {result.refusal}", err=True)
    if not count:
        _say_empty(registry)
    raise typer.Exit(status)


def print_steps(steps: Iterable[VerifiedStep]) -> None:
    """Print one line per step: what was checked, whether it could be, and the evidence."""
    for step in steps:
        typer.echo(f"  {step.what:<10} {'ok' if step.compared else '--'}  {step.evidence}")


def check(
    which: str = _WHICH,
    registry: Path = REGISTRY,
    runs: Path = _RUNS,
    strict: bool = typer.Option(False, "--strict", help="Exit with status 1 when a forecast was missed or is overdue."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Compare preregistered forecasts with their runs.

    Each outcome is written once, beside its statement. A forecast that is not run yet is pending, one whose time is over
    without a run is overdue, and one that missed is a result: all exit with status 0. With --strict a missed or overdue one
    exits with status 1. After all of them stands the record of each who registered any.

    Example: marin-scale check all --strict
    """
    import json
    from datetime import UTC, datetime

    from marin_scaling.preregistration.registry import find_folders
    from marin_scaling.preregistration.state import State
    from marin_scaling.preregistration.track_record import record_text, track_records
    from marin_scaling.preregistration.verdict import check_all
    from marin_scaling.untrusted_files import require_regular_tree

    require_regular_tree([registry, runs])
    folders = find_folders(which, registry_dir=registry)
    require_regular_tree(folder for folder in folders if folder.parent != registry)
    verdicts = check_all(folders, runs_dir=runs, checked_at=datetime.now(UTC))
    if as_json:
        typer.echo(json.dumps([verdict.to_document() for verdict in verdicts], indent=1))
    else:
        for verdict in verdicts:
            typer.echo(f"{printable(verdict.id)}  {verdict.sentence}")
        if not verdicts:
            _say_empty(registry)
        if which == "all" and verdicts:
            typer.echo("\n" + "\n".join(map(record_text, track_records(verdicts))))
    states = {verdict.state for verdict in verdicts}
    raise typer.Exit(
        1 if State.REFUSED in states or (strict and states & {State.MISSED, State.OVERDUE, State.WITHDRAWN_LATE}) else 0
    )


def _say_empty(registry: Path) -> None:
    typer.echo(f"{registry} holds no preregistrations yet.")


_BASE = typer.Option("origin/main", "--base", metavar="REF", help="The branch that it is to be merged into.")


def review(
    base: str = _BASE,
    registry: Path = REGISTRY,
    runs: Path = _RUNS,
    whole: bool = typer.Option(False, "--whole", help="All details, also more than a comment holds."),
) -> None:
    """Print the review of a branch that adds forecasts, as Markdown; in a terminal without its markup.

    What was verified with the base's signers, the forecast beside its baseline and the earlier ones, what it hangs on, its
    registrant's record, what is doubtful, and the questions that only a person can answer. Writes nothing. Exit status 1 when
    something is refused.

    Example: marin-scale review --base origin/main >> "$GITHUB_STEP_SUMMARY"
    """
    from datetime import UTC, datetime

    from marin_scaling.limits import COMMENT_CHARACTERS
    from marin_scaling.preregistration.review.comment import readable
    from marin_scaling.preregistration.review.pull_request import review_branch
    from marin_scaling.preregistration.review.report import review_text

    found = review_branch(base, registry_dir=registry, runs_dir=runs)
    most = None if whole else COMMENT_CHARACTERS
    text = review_text(found, registry=registry, runs_dir=runs, at=datetime.now(UTC), most=most)
    typer.echo(readable(text) if sys.stdout.isatty() else text, nl=False)
    raise typer.Exit(0 if found.sound else 1)
