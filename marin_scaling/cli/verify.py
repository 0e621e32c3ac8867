"""Commands `marin-scale verify`, `check` and `review`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.printable import printable, quoted, wrapped_error, wrapped_lines

if TYPE_CHECKING:
    from marin_scaling.preregistration.outcome import VerifiedStep
    from marin_scaling.preregistration.verification import Result

REGISTRY = typer.Option(
    Path("preregistrations"), "--registry", metavar="FOLDER", help="Folder of preregistrations and allowed_signers."
)
_WHICH = typer.Argument("all", metavar="FOLDER|all", help="Folder of the registry, by name or path, or all.")
_RUNS = typer.Option(Path("runs"), "--runs", metavar="FOLDER", help="Run store.")


def echo_wrapped(text: str, *, indent: int = 2) -> None:
    """Print a text, its wide lines wrapped with their further lines indented."""
    typer.echo(wrapped_lines(text, hang=indent))


def push() -> str:
    """Return the end of a command that commits: a push where the repository has a remote."""
    from marin_scaling.git import remote_address

    return " && git push" if remote_address(Path.cwd()) else ""


def verify(
    which: str = _WHICH,
    registry: Path = REGISTRY,
    runs: Path = _RUNS,
    refit: bool = typer.Option(True, help="Refit each ladder and compare the forecast (seconds)."),
    base: str | None = typer.Option(
        None,
        "--base",
        metavar="REF",
        help="Branch to merge into: its registry must be unchanged, and its signers count.",
    ),
) -> None:
    """Verify signatures, fits, runs and log of forecasts.

    Each step prints ok, or -- and the reason if it cannot be checked here. Exit status 1 if a preregistration is refused.

    Example: marin-scale verify all
    """
    from marin_scaling.git import asked_once
    from marin_scaling.preregistration.verification import verify_registry

    with asked_once():
        raise typer.Exit(
            _print_results(verify_registry(which, registry=registry, runs_dir=runs, refit=refit, base=base), registry)
        )


def _print_results(results: Iterable[Result], registry: Path) -> int:
    """Print the results of a verification, and return the exit status."""
    status, count = 0, 0
    for result in results:
        is_registry = result.folder == registry
        count += not is_registry
        typer.echo(result.folder if is_registry else printable(result.folder.name))
        print_steps(result.steps)
        if result.refusal is not None:
            status = 1
            typer.echo("  refused")
            typer.echo(wrapped_error(result.refusal), err=True)
    if not count:
        _say_empty(registry)
    return status


def print_steps(steps: Iterable[VerifiedStep]) -> None:
    """Print one line per step: name, whether it was checked, and the evidence."""
    for step in steps:
        echo_wrapped(f"  {step.what:<10} {'ok' if step.compared else '--'}  {step.evidence}", indent=17)


def check(
    which: str = _WHICH,
    registry: Path = REGISTRY,
    runs: Path = _RUNS,
    strict: bool = typer.Option(False, "--strict", help="Exit with status 1 if a forecast missed or is overdue."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Compare preregistered forecasts with their runs.

    Each outcome is written once, beside its statement. A forecast is pending until its run exists, and overdue after its due
    date. Pending, overdue and missed forecasts exit with status 0; with --strict, overdue and missed ones exit with status
    1. The last lines are the track record of each registrant, and forecasts of one run side by side, imported ones included.

    Example: marin-scale check all --strict
    """
    import json
    from datetime import UTC, datetime

    from marin_scaling.preregistration.imported import REGISTRIES, imported_registries
    from marin_scaling.preregistration.layout import OUTCOME_NAME
    from marin_scaling.preregistration.outcome import State
    from marin_scaling.preregistration.registry import find_folders
    from marin_scaling.preregistration.track_record import comparison_text, record_text, several_of_one_run, track_records
    from marin_scaling.preregistration.verdict import check_all
    from marin_scaling.untrusted_files import is_present, require_regular_tree

    require_regular_tree([registry, runs])
    folders = find_folders(which, registry_dir=registry)
    require_regular_tree(folder for folder in folders if folder.parent != registry)
    before = {folder for folder in folders if is_present(folder / OUTCOME_NAME)}
    verdicts = check_all(folders, runs_dir=runs, checked_at=datetime.now(UTC))
    if as_json:
        typer.echo(json.dumps([verdict.to_document() for verdict in verdicts], indent=1))
    else:
        for verdict in verdicts:
            echo_wrapped(f"{printable(verdict.id)}  {verdict.sentence}")
        if not verdicts:
            _say_empty(registry)
        if which == "all" and verdicts:
            typer.echo()
            for line in "\n".join(map(record_text, track_records(verdicts))).splitlines():
                echo_wrapped(line, indent=4)
            several = several_of_one_run(registry, verdicts, imported_registries(registry.parent / REGISTRIES))
            for line in comparison_text(several).splitlines():
                echo_wrapped(line, indent=4)
        if written := [folder.name for folder in folders if folder not in before and is_present(folder / OUTCOME_NAME)]:
            files, subject = shlex.join(map(str, (registry, runs))), shlex.quote(f"Check {', '.join(written)}")
            echo_wrapped(f"Next: git add {files} && git commit -m {subject}{push()}")
    states = {verdict.state for verdict in verdicts}
    raise typer.Exit(
        1 if State.REFUSED in states or (strict and states & {State.MISSED, State.OVERDUE, State.WITHDRAWN_LATE}) else 0
    )


_LOG = typer.Option(
    ..., "--log", metavar="PATH", help="Log of the run: a file or folder of a tracker, or wandb:ENTITY/PROJECT; repeatable."
)
_TRACKED = typer.Argument(metavar="FOLDER", help="Preregistration of an outside run, by name or path.")
_KEY = typer.Option(None, "--key", metavar="FILE", readable=False, help="SSH private key to sign with; default: yours.")
_DIVERGED = typer.Option(False, "--diverged", help="State that the run diverged, a miss: its log has no loss at the end.")
_SIGNER = typer.Option(None, "--as", metavar="NAME", help="Name to sign as: the registrant's or the resolver's.")


def outcome(
    which: str = _TRACKED,
    log: list[str] = _LOG,
    registry: Path = REGISTRY,
    key: Path | None = _KEY,
    signer: str | None = _SIGNER,
    diverged: bool = _DIVERGED,
) -> None:
    """Record the outcome of an outside run from its log.

    The log must be that of the run, project and key that the statement names, with its tokens, and finished. Your signature
    covers the value and the digests of the files. Keep the files: others can compare them with the digests.

    Example: marin-scale outcome 2026-12-01-hero --log wandb/run-20261201-hero
    """
    from marin_scaling.preregistration.outside import record_outcome

    verdict = record_outcome(which, *log, registry=registry, key=key, signer=signer, diverged=diverged, on_message=echo_wrapped)
    echo_wrapped(f"{printable(verdict.id)}  {verdict.sentence}")
    echo_wrapped(f"Next: git add {shlex.quote(str(registry))} && git commit -m {shlex.quote(f'Check {verdict.id}')}{push()}")


def _say_empty(registry: Path) -> None:
    echo_wrapped(f"{registry} has no preregistrations. To register one: marin-scale preregister LADDER.yaml")


def _merge(base: str) -> str:
    """Return how to merge the branch that is checked out."""
    from marin_scaling.git import current_branch, remote_address

    branch = current_branch(Path.cwd())
    if remote_address(Path.cwd()) or branch in (None, base):
        return "merge its pull request on the forge"
    return f"git switch {shlex.quote(quoted(base))} && git merge {shlex.quote(quoted(branch))}"


_BASE = typer.Option(
    None, "--base", metavar="REF", help="Branch to merge into; default: origin/main, or main in a repository without a remote."
)


def review(
    base: str | None = _BASE,
    registry: Path = REGISTRY,
    runs: Path = _RUNS,
    markdown: bool = typer.Option(False, "--markdown", help="Print Markdown, cut to fit a comment."),
    whole: bool = typer.Option(False, "--whole", help="Print all details also with --markdown."),
) -> None:
    """Review a branch that adds forecasts, as a report.

    The report has the verified steps, the forecast with its baseline and earlier forecasts, the registrant's track record,
    warnings, and questions for a person. Exit status 1 if something is refused.

    Example: marin-scale review --base origin/main
    """
    from datetime import UTC, datetime

    from marin_scaling.git import asked_once, remote_address
    from marin_scaling.preregistration.review.comment import readable
    from marin_scaling.preregistration.review.pull_request import review_branch
    from marin_scaling.preregistration.review.report import review_text
    from marin_scaling.printable import COMMENT_CHARACTERS

    most = COMMENT_CHARACTERS if markdown and not whole else None
    with asked_once():
        base = base or ("origin/main" if remote_address(Path.cwd()) else "main")
        found = review_branch(base, registry_dir=registry, runs_dir=runs)
        text = review_text(found, registry=registry, runs_dir=runs, at=datetime.now(UTC), most=most)
    typer.echo(text if markdown else readable(text), nl=False)
    if found.sound and not markdown and (names := [each.folder.name for each in found.reviewed if each.is_new]):
        echo_wrapped(
            f"Next: sign a forecast that you support, then merge:\n  marin-scale registry sign {names[0]}\n  {_merge(base)}"
        )
    raise typer.Exit(0 if found.sound else 1)
