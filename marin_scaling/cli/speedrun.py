"""`marin-scale speedrun`: submissions to the board, from Marin's files or one's own, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.cli.app import app
from marin_scaling.printable import quoted

if TYPE_CHECKING:
    from marin_scaling.speedrun.finding import Finding
    from marin_scaling.speedrun.validate import Validated

speedrun_app = typer.Typer(
    help="Submissions to the speedrun board: plan, train, submit, import, validate, train again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(speedrun_app, name="speedrun")

_FILES = typer.Argument(
    metavar="FILE...", help="speedrun_results.json of Marin's, in any of its shapes, or its board's runs.json."
)
_RUNS = typer.Argument(metavar="RUN...", help="First digits of each run's digest, its folder, or a preregistration.")
_TO = typer.Option(Path("speedruns"), "--to", metavar="FOLDER", help="Where a folder is made for each.")
_PLACE = typer.Argument(Path("speedruns"), metavar="PLACE", help="A submission.json, or a folder with any number of them.")


@speedrun_app.command("validate")
def validate(
    place: Path = _PLACE,
    notes: bool = typer.Option(False, "--notes", help="Also what is true and to be known: epochs, one seed, no tuning told."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Check submissions: each figure counted again from what it follows from, by their tracks' rules, beside each other.

    What cannot be so is refused, what should be looked at is a doubt. Offline, from the files alone. Exit status 1 when one is
    refused or malformed.

    Example: marin-scale speedrun validate speedruns
    """
    import json
    from datetime import UTC, datetime

    from marin_scaling.regular_files import require_regular_tree
    from marin_scaling.speedrun.finding import Weight
    from marin_scaling.speedrun.submission_file import read_submissions
    from marin_scaling.speedrun.track import read_tracks, tracks_folder
    from marin_scaling.speedrun.validate import validate as validated

    tracks = tracks_folder(place)
    require_regular_tree([place, tracks])
    found = read_submissions(place)
    malformed = {str(each.place): each.refusal for each in found if each.submission is None}
    submissions = [each.submission for each in found if each.submission]
    judged = validated(submissions, at=datetime.now(UTC), tracks=read_tracks(tracks))
    if as_json:
        typer.echo(json.dumps({"submissions": [_document(each) for each in judged], "malformed": malformed}, indent=1))
    else:
        for where, reason in malformed.items():
            typer.echo(f"{quoted(where, 400)}  malformed\n  {reason}")
        for each in judged:
            print_findings(each, shown=[one for one in each.findings if notes or one.weight is not Weight.NOTE])
        refused = sum(not each.accepted for each in judged)
        doubted = sum(each.weight is Weight.DOUBT for each in judged)
        accepted = len(judged) - refused
        typer.echo(
            f"{accepted} accepted ({doubted} of them with doubts), {refused} refused, {len(malformed)} malformed, "
            f"{len(found)} in all"
        )
    raise typer.Exit(0 if all(each.accepted for each in judged) and not malformed else 1)


@speedrun_app.command("import")
def import_files(
    files: list[Path] = _FILES,
    to: Path = _TO,
) -> None:
    """Make submissions from Marin's speedrun files.

    All six shapes that its results had, and the table of its old board. What they never said stays absent, with the reason.
    Nothing is judged: that is for validate.

    Example: marin-scale speedrun import experiments/speedrun/llama_75m/speedrun_results.json
    """
    from marin_scaling.speedrun.imported import import_file
    from marin_scaling.speedrun.submission_file import write_submission

    made = [write_submission(to, each) for path in files for each in import_file(path)]
    typer.echo(f"{len(made)} submissions in {to}. Next: marin-scale speedrun validate {to}")


@speedrun_app.command("submit")
def submit(
    runs: list[str] = _RUNS,
    name: str = typer.Option(..., "--name", help="On the board; the part before the last / is its scaling group."),
    track: str = typer.Option(..., "--track", help="For which track."),
    author: str = typer.Option(..., "--author", help="Who made it."),
    description: str = typer.Option("", "--description", help="What is new in it."),
    trials: int | None = typer.Option(None, "--trials", min=1, help="How many runs were made to choose its settings."),
    to: Path = _TO,
) -> None:
    """Make a submission from runs of yours: one recipe at one size, a run for each seed.

    All figures are those of the runs' records; what these do not keep stays absent, with the reason. It is validated before it
    is written.

    Example: marin-scale speedrun submit 22890dfc --name bytes/quickstart --track cpu --author Ada --trials 1
    """
    from datetime import UTC, datetime

    from pydantic import ValidationError

    from marin_scaling.cli.training import RUNS_DIR
    from marin_scaling.cli.which_run import named_spec
    from marin_scaling.errors import UsageError
    from marin_scaling.run.run_store import read_run, run_folder
    from marin_scaling.speedrun.from_runs import submission_from_runs
    from marin_scaling.speedrun.submission import Author
    from marin_scaling.speedrun.submission_file import explained, write_submission
    from marin_scaling.speedrun.validate import validate as validated

    stored = [read_run(run_folder(RUNS_DIR, named_spec(run, registry=Path("preregistrations")))) for run in runs]
    try:
        made = submission_from_runs(
            stored, name=name, track=track, author=Author(name=author), description=description, trials=trials
        )
    except ValidationError as error:
        raise UsageError(f"{explained(error)}.", why="It would break its page.", fix="Write it otherwise.") from error
    (judged,) = validated([made], at=datetime.now(UTC))
    print_findings(judged, shown=list(judged.findings))
    if not judged.accepted:
        raise typer.Exit(1)
    typer.echo(f"{write_submission(to, made)}. Next: marin-scale speedrun validate {to}")


def print_findings(validated: Validated, *, shown: list[Finding]) -> None:
    """The name of a submission and these findings, a line each; nothing where there is none."""
    if shown:
        typer.echo(f"{validated.submission.name}  {validated.weight}")
    for finding in shown:
        typer.echo(f"  {finding.weight:<8} {finding.key}: {finding.said}")


def _document(validated: Validated) -> dict[str, Any]:
    findings = [{"weight": each.weight, "rule": each.rule, "key": each.key, "said": each.said} for each in validated.findings]
    return {"name": validated.submission.name, "accepted": validated.accepted, "findings": findings}
