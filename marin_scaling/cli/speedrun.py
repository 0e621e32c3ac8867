"""`marin-scale speedrun`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.printable import quoted

if TYPE_CHECKING:
    from marin_scaling.findings import Finding
    from marin_scaling.speedrun.checks import Validated
    from marin_scaling.speedrun.hardware import Machine
    from marin_scaling.speedrun.submission import Submission

speedrun_app = typer.Typer(
    help="Submissions to the speedrun board: plan, train, submit, import, validate, train again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

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

    A submission with an error is refused; a warning is to be looked at. Works offline, from the files alone. Exit status 1 if
    one is refused or malformed.

    Example: marin-scale speedrun validate speedruns
    """
    import json
    from datetime import UTC, datetime

    from marin_scaling.findings import Severity
    from marin_scaling.speedrun.checks import validate as validated
    from marin_scaling.speedrun.submission import read_submissions
    from marin_scaling.speedrun.track import read_tracks, tracks_folder
    from marin_scaling.untrusted_files import require_regular_tree

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
            print_findings(each, shown=[one for one in each.findings if notes or one.severity is not Severity.NOTE])
        refused = sum(not each.accepted for each in judged)
        doubted = sum(each.severity is Severity.WARNING for each in judged)
        accepted = len(judged) - refused
        typer.echo(
            f"{accepted} accepted ({doubted} of them with warnings), {refused} refused, {len(malformed)} malformed, "
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
    from marin_scaling.speedrun.import_marin import import_file
    from marin_scaling.speedrun.submission import write_submission

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

    from marin_scaling.errors import UsageError
    from marin_scaling.preregistration.tracked_run import named_spec
    from marin_scaling.run.paths import RUNS_DIR
    from marin_scaling.run.store import read_run, run_folder
    from marin_scaling.speedrun.checks import validate as validated
    from marin_scaling.speedrun.from_runs import submission_from_runs
    from marin_scaling.speedrun.submission import Author, explained, write_submission

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
        typer.echo(f"{validated.submission.name}  {validated.severity}")
    for finding in shown:
        typer.echo(f"  {finding.severity:<8} {finding.where}: {finding.message}")


def _document(validated: Validated) -> dict[str, Any]:
    return {
        "name": validated.submission.name,
        "accepted": validated.accepted,
        "findings": [vars(each) for each in validated.findings],
    }


_ENTRY = typer.Argument(metavar="ENTRY.yaml", help="What is to be trained and submitted.")
_TRAIN_PLACE = typer.Argument(
    Path("speedruns"), metavar="PLACE", help="A submission.json, or a folder with any number of them."
)
_TRAIN_TO = typer.Option(Path("speedruns"), "--to", metavar="FOLDER", help="Where a folder is made for the submission.")
_WHERE = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS.")


@speedrun_app.command("info")
def info(
    entry_path: Path = _ENTRY,
    hardware: str = typer.Option("", "--hardware", metavar="NAME", help="A chip (h100) or a slice (v5p-32), to tell the time."),
    count: int = typer.Option(1, "--count", min=1, help="How many of them."),
    price: float | None = typer.Option(None, "--price", min=0, help="US dollars for one chip and hour, to tell the cost."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Say what an entry will be and cost; train nothing.

    Configuration, sizes, the FLOPs that the board counts, and time and cost on a machine at an MFU from .5 to .2.
    Exit status 1 when it breaks a limit of its track already.

    Example: marin-scale speedrun info speedruns/entries/baseline.yaml --hardware h100
    """
    import json

    from marin_scaling.speedrun.entry import entry_plan, read_entry, run_info, run_info_text
    from marin_scaling.speedrun.track import read_tracks, tracks_folder

    entry = read_entry(entry_path)
    found = run_info(
        entry,
        entry_plan(entry),
        machine=_machine(hardware, count) if hardware else None,
        track=read_tracks(tracks_folder(entry_path)).get(entry.track),
        price_per_chip_hour=price,
    )
    typer.echo(json.dumps(found, indent=1) if as_json else run_info_text(found))
    raise typer.Exit(1 if found["over_the_limit"] else 0)


@speedrun_app.command("run")
def run(
    entry_path: Path = _ENTRY,
    to: Path = _TRAIN_TO,
    where: str = _WHERE,
) -> None:
    """Train an entry, a run for each seed, and make its submission.

    Interrupted and typed again, it goes on where it was. The submission is validated before it is written.

    Example: marin-scale speedrun run speedruns/entries/baseline.yaml
    """
    from datetime import UTC, datetime

    from marin_scaling.run.paths import RUNS_DIR, workplace
    from marin_scaling.speedrun.checks import validate
    from marin_scaling.speedrun.submission import read_submissions, write_submission
    from marin_scaling.speedrun.track import read_tracks, tracks_folder

    made = _trained(entry_path, runs_dir=RUNS_DIR, work_root=workplace().work_root, where=where)
    standing = [each.submission for each in read_submissions(to) if each.submission] if to.is_dir() else []
    *_, judged = validate([*standing, made], at=datetime.now(UTC), tracks=read_tracks(tracks_folder(to)))
    print_findings(judged, shown=list(judged.findings))
    if not judged.accepted:
        raise typer.Exit(1)
    typer.echo(f"{made.bits_per_byte:.4f} bits per byte, the mean of {len(made.seeds)}")
    typer.echo(f"{write_submission(to, made)}. Next: marin-scale speedrun validate {to}")


@speedrun_app.command("confirm")
def confirm(place: Path = _TRAIN_PLACE, where: str = _WHERE) -> None:
    """Train submissions again from their entries, and compare.

    Of a folder those whose track says that its entries are trained again; or the one that is named. The runs are new ones,
    apart from the store, and are not kept. Exit status 1 when one does not come out again.

    Example: marin-scale speedrun confirm speedruns/cpu/baseline/submission.json
    """
    import tempfile

    from marin_scaling.run.paths import own_work_root
    from marin_scaling.speedrun.from_runs import confirmation
    from marin_scaling.speedrun.submission import read_submission, read_submissions
    from marin_scaling.speedrun.track import read_tracks, tracks_folder

    if place.is_dir() and not (place / "submission.json").is_file():
        asked = {name for name, track in read_tracks(tracks_folder(place)).items() if track.retrained_by_ci}
        claimed = [each.submission for each in read_submissions(place) if each.submission and each.submission.track in asked]
    else:
        claimed = [read_submission(place)]
    if not claimed:
        typer.echo(f"No submission in {place} is of a track with retrained_by_ci: true. To train one again, name it.")
    outcomes = []
    for each in claimed:
        entry_path = _entry_of(each)
        work_root = own_work_root()
        work_root.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work_root, prefix="again-") as folder:
            root = Path(folder).absolute()
            again = _trained(entry_path, runs_dir=root / "runs", work_root=root, where=where)
        outcomes.append(confirmation(each, again))
        typer.echo(outcomes[-1].sentence)
    raise typer.Exit(0 if all(outcome.confirmed for outcome in outcomes) else 1)


def _entry_of(submission: Submission) -> Path:
    from marin_scaling.errors import UsageError

    path = submission.code.path if submission.code else None
    if path is None or not Path(path).is_file():
        raise UsageError(
            f"{submission.name} has no entry here{f': {path}' if path else ''}.",
            why="It is trained again from its entry, the file that code.path names.",
            fix="Submit it with marin-scale speedrun run, and stand in the folder above speedruns/.",
        )
    return Path(path)


def _trained(entry_path: Path, *, runs_dir: Path, work_root: Path, where: str) -> Submission:
    """The submission of an entry, after what the store does not hold is trained."""
    from marin_scaling.data.prepare import prepare
    from marin_scaling.ladder.config import Hardware
    from marin_scaling.run.paths import Workplace, own_work_root
    from marin_scaling.run.store import read_run, run_folder
    from marin_scaling.speedrun.entry import entry_specs, read_entry, submission_of
    from marin_scaling.train.session import pool_of, train_with_progress

    entry = read_entry(entry_path)
    corpus = prepare(entry.data, work_root=own_work_root())
    specs = entry_specs(entry, corpus=corpus)
    pool = pool_of(where, Hardware(), runs=len(specs))
    place = Workplace(runs_dir=runs_dir.absolute(), work_root=work_root)
    train_with_progress(specs, corpus=corpus, label=entry.name, pool=pool, at=place)
    return submission_of(entry, [read_run(run_folder(runs_dir, spec)) for spec in specs], path=entry_path)


def _machine(name: str, count: int) -> Machine:
    from marin_scaling.errors import UsageError
    from marin_scaling.speedrun.hardware import ACCELERATORS, machine

    found = machine(name, count=count)
    if found is None:
        raise UsageError(
            f"--hardware {name}: the hardware table has no such chip.",
            why="Time is told from a chip's peak, and nothing is guessed for what is not listed.",
            fix=f"Name one of {', '.join(ACCELERATORS)}, or a slice like v5p-32.",
        )
    return found
