"""`marin-scale speedrun info|run|confirm`: what an entry will cost, its runs, and a submission trained again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.speedrun import print_findings, speedrun_app

if TYPE_CHECKING:
    from marin_scaling.speedrun.hardware import Machine
    from marin_scaling.speedrun.submission import Submission

_ENTRY = typer.Argument(metavar="ENTRY.yaml", help="What is to be trained and submitted.")
_PLACE = typer.Argument(Path("speedruns"), metavar="PLACE", help="A submission.json, or a folder with any number of them.")
_TO = typer.Option(Path("speedruns"), "--to", metavar="FOLDER", help="Where a folder is made for the submission.")
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

    from marin_scaling.speedrun.entry import entry_plan, read_entry
    from marin_scaling.speedrun.run_info import run_info, run_info_text
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
    to: Path = _TO,
    where: str = _WHERE,
) -> None:
    """Train an entry, a run for each seed, and make its submission.

    Interrupted and typed again, it goes on where it was. The submission is validated before it is written.

    Example: marin-scale speedrun run speedruns/entries/baseline.yaml
    """
    from datetime import UTC, datetime

    from marin_scaling.cli.training import RUNS_DIR, workplace
    from marin_scaling.speedrun.submission_file import read_submissions, write_submission
    from marin_scaling.speedrun.track import read_tracks, tracks_folder
    from marin_scaling.speedrun.validate import validate

    made = _trained(entry_path, runs_dir=RUNS_DIR, work_root=workplace().work_root, where=where)
    standing = [each.submission for each in read_submissions(to) if each.submission] if to.is_dir() else []
    *_, judged = validate([*standing, made], at=datetime.now(UTC), tracks=read_tracks(tracks_folder(to)))
    print_findings(judged, shown=list(judged.findings))
    if not judged.accepted:
        raise typer.Exit(1)
    typer.echo(f"{made.bits_per_byte:.4f} bits per byte, the mean of {len(made.seeds)}")
    typer.echo(f"{write_submission(to, made)}. Next: marin-scale speedrun validate {to}")


@speedrun_app.command("confirm")
def confirm(place: Path = _PLACE, where: str = _WHERE) -> None:
    """Train submissions again from their entries, and compare.

    Of a folder those whose track says that its entries are trained again; or the one that is named. The runs are new ones,
    apart from the store, and are not kept. Exit status 1 when one does not come out again.

    Example: marin-scale speedrun confirm speedruns/cpu/baseline/submission.json
    """
    import tempfile

    from marin_scaling.cli.training import own_work_root
    from marin_scaling.speedrun.confirmation import confirmation
    from marin_scaling.speedrun.submission_file import read_submission, read_submissions
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
    from marin_scaling.cli.training import own_work_root, pool_of, train_with_progress
    from marin_scaling.data.prepare import prepare
    from marin_scaling.ladder.ladder_file import Hardware
    from marin_scaling.run.run_store import read_run, run_folder
    from marin_scaling.run.workplace import Workplace
    from marin_scaling.speedrun.entry import entry_specs, read_entry, submission_of

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
