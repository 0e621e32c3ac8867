"""Command `marin-scale speedrun`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from marin_scaling.printable import joined, quoted, wrapped, wrapped_lines
from marin_scaling.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marin_scaling.accelerators import Machine
    from marin_scaling.errors import Finding
    from marin_scaling.speedrun.checks import Validated
    from marin_scaling.speedrun.entry import Entry
    from marin_scaling.speedrun.submission import Submission
    from marin_scaling.speedrun.track import Track

speedrun_app = typer.Typer(
    help="Plan, train, submit, validate and confirm entries.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FILES = typer.Argument(metavar="FILE...", help="Marin's speedrun_results.json in any format, or its board's runs.json.")
_RUNS = typer.Argument(
    metavar="RUN...",
    help="First digits of a run's digest, its folder, or a preregistration. For runs of Levanter elsewhere: their log files "
    "or folders, or wandb:ENTITY/PROJECT.",
)
_TO = typer.Option(Path("speedruns"), "--to", metavar="FOLDER", help="Folder of submissions.")
_BASE = typer.Option(
    None, "--base", metavar="BRANCH", help="Branch whose submissions count as the originals of copies; default: main."
)
_PEAK = typer.Option(None, "--peak", min=1, metavar="FLOPS", help="Dense FLOP/s of one chip, for a chip without a table entry.")
_CONFIG = typer.Option(None, "--config", metavar="FILE", help="Levanter's configuration file, for settings that the logs lack.")
_LOGGED_ENTRY = typer.Option(
    None, "--entry", metavar="ENTRY.yaml", help="Entry of logged runs, with which they can be trained again; it has all names."
)
_PLACE = typer.Argument(Path("speedruns"), metavar="PLACE", help="A submission.json, or a folder of submissions.")


@speedrun_app.command("validate")
def validate(
    place: Path = _PLACE,
    base: str | None = _BASE,
    notes: bool = typer.Option(False, "--notes", help="Also print notes: epochs, single seeds, unknown tuning."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Check submissions: figures, track rules, run records, duplicates.

    A submission with an error is refused; one with warnings is accepted. The check works offline. Exit status 1 if a
    submission is refused or malformed.

    Example: marin-scale speedrun validate speedruns
    """
    import json
    from datetime import UTC, datetime

    from marin_scaling.errors import Severity
    from marin_scaling.speedrun.judge import judge_all
    from marin_scaling.speedrun.track import tracks_folder
    from marin_scaling.untrusted_files import require_regular_tree

    require_regular_tree([place, tracks_folder(place)])
    all_found = judge_all(place, at=datetime.now(UTC), base=base)
    found, judged = all_found.found, all_found.validated
    malformed = {str(each.place): each.refusal or "" for each in found if each.submission is None}
    if all_found.warning:
        typer.echo(f"warning: --base: {all_found.warning}", err=True)
    if as_json:
        document = {"submissions": [_document(each) for each in judged], "malformed": malformed}
        typer.echo(json.dumps(document | {"warnings": [all_found.warning] if all_found.warning else []}, indent=1))
    else:
        for where, reason in malformed.items():
            typer.echo(f"{quoted(where, 400)}  malformed\n{wrapped(reason, '  ')}")
        for each in judged:
            print_findings(each, shown=[one for one in each.findings if notes or one.severity is not Severity.NOTE])
        refused = sum(not each.accepted for each in judged)
        warned = sum(each.severity is Severity.WARNING for each in judged)
        accepted = len(judged) - refused
        typer.echo(
            f"{counted(len(found), 'submission')}: {accepted} accepted ({warned} with warnings), {refused} refused, "
            f"{len(malformed)} malformed"
        )
    raise typer.Exit(0 if all(each.accepted for each in judged) and not malformed else 1)


@speedrun_app.command("import")
def import_files(
    files: list[Path] = _FILES,
    to: Path = _TO,
) -> None:
    """Make submissions from Marin's speedrun files.

    Supported are six formats of speedrun_results.json and the old board's table. Missing values stay absent, with the
    reason. A file that cannot be imported is skipped; then the exit status is 1. The import does not validate.

    Example: marin-scale speedrun import experiments/speedrun/llama_75m/speedrun_results.json
    """
    from marin_scaling.errors import MarinScalingError
    from marin_scaling.speedrun.import_files import import_file
    from marin_scaling.speedrun.submission import write_submission

    made, skipped = 0, 0
    for path in files:
        try:
            imported = import_file(path)
        except MarinScalingError as error:
            typer.echo(f"skipped {error}", err=True)
            skipped += 1
            continue
        for problem in imported.problems:
            typer.echo(f"skipped {problem}", err=True)
            skipped += 1
        for each in imported.submissions:
            try:
                write_submission(to, each)
                made += 1
            except MarinScalingError as error:
                typer.echo(f"skipped {quoted(str(path), 400)}: {error}", err=True)
                skipped += 1
    told = f", {skipped} skipped" if skipped else ""
    following = f"\nNext: marin-scale speedrun validate {shlex.quote(str(to))}" if made else ""
    typer.echo(f"{counted(made, 'submission')} in {to}{told}.{following}")
    raise typer.Exit(1 if skipped else 0)


@speedrun_app.command("submit")
def submit(
    runs: list[str] = _RUNS,
    name: str | None = typer.Option(
        None, "--name", metavar="GROUP/NAME", help="Name on the board; the part before the last / is the scaling group."
    ),
    track: str | None = typer.Option(None, "--track", metavar="NAME", help="Track, a file in speedruns/tracks/."),
    author: str | None = typer.Option(None, "--author", metavar="NAME", help="Author, who trained the runs."),
    description: str = typer.Option("", "--description", metavar="TEXT", help="What is new."),
    trials: int | None = typer.Option(
        None, "--trials", metavar="N", min=1, help="Number of runs made to choose the settings, including these."
    ),
    entry: Path | None = _LOGGED_ENTRY,
    data: str | None = typer.Option(None, "--data", metavar="NAME", help="Training text of logs that do not name one."),
    config: Path | None = _CONFIG,
    peak: float | None = _PEAK,
    to: Path = _TO,
) -> None:
    """Make a submission from your runs, one per seed.

    All figures come from the runs' records or logs; missing ones stay absent, with the reason. The submission is validated
    before it is written. Exit status 1 if it is refused. Logs with --entry can be confirmed; the entry names model and
    optimizer by Levanter's names, and its code is run to count.

    Example: marin-scale speedrun submit 22890dfc --name ada/wide --track cpu-bytes --author Ada --trials 4
    """
    from marin_scaling.run.trackers import links_among
    from marin_scaling.speedrun.entry import entry_files, read_entry
    from marin_scaling.speedrun.submit import stored_folders, submit_runs

    for place in links_among(runs):
        typer.echo(f"skipped {place}: a link into another given place", err=True)
    made = submit_runs(
        runs,
        name=name,
        track=track,
        author=author,
        description=description,
        trials=trials,
        entry=entry,
        data=data,
        config=config,
        peak_flops_per_second=peak,
        to=to,
    )
    read = read_entry(entry) if entry else None
    beside = [entry, *entry_files(read, entry, root=Path())] if entry and read else []
    _write_judged(made, to=to, sources=[*stored_folders(runs), *beside], entry=read)


def _write_judged(made: Submission, *, to: Path, sources: Sequence[Path], entry: Entry | None = None) -> None:
    """Write a valid submission and name the files to commit with it; exit with status 1 for a refused one."""
    from datetime import UTC, datetime

    from marin_scaling.speedrun.judge import judge_new
    from marin_scaling.speedrun.submission import write_submission

    judged = judge_new(made, to=to, at=datetime.now(UTC))
    print_findings(judged, shown=list(judged.findings))
    if not judged.accepted:
        typer.echo("Nothing was written.")
        raise typer.Exit(1)
    path = write_submission(to, made)
    _print_next(path, files=[path.parent, *sources], name=made.name, entry=entry)


def _print_next(path: Path, *, files: Sequence[Path], name: str, entry: Entry | None) -> None:
    """Print how a written submission is proposed and confirmed."""
    typer.echo(f"Submission: {path}\nNext: commit it, push a branch to your fork, and open a pull request:")
    typer.echo(f"  git add {shlex.join(map(str, files))}\n  git commit -m {shlex.quote(f'Submit {name}')}")
    if entry is not None:
        option = " --run-code" if entry.code else ""
        typer.echo(f"Others confirm it with:\n  marin-scale speedrun confirm {shlex.quote(str(path))}{option}")
        if texts := entry.data.local_places:
            typer.echo(wrapped(f"They need {joined(texts)}: commit these, or use places that others reach.", "", hang=2))


def print_findings(validated: Validated, *, shown: list[Finding]) -> None:
    """Print the name of a submission and these findings, if there are any."""
    if shown:
        typer.echo(f"{validated.submission.name}  {validated.severity}")
    for finding in shown:
        typer.echo(wrapped(f"{finding.severity:<8} {finding.where}: {finding.message}", "  ", hang=9))


def _document(validated: Validated) -> dict[str, Any]:
    return {
        "name": validated.submission.name,
        "accepted": validated.accepted,
        "findings": [vars(each) for each in validated.findings],
    }


_ENTRY = typer.Argument(metavar="ENTRY.yaml", help="Entry to train and submit.")
_WHERE = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS.")


@speedrun_app.command("new")
def new(
    name: str = typer.Argument(metavar="NAME", help="Name on the board, as in ada/gated."),
    track: str = typer.Option(..., "--track", metavar="NAME", help="Track, a file in speedruns/tracks/."),
    author: str = typer.Option(..., "--author", metavar="NAME", help="Author of the entry."),
) -> None:
    """Write an entry with a model and an optimizer of its own, to change.

    The entry is a Llama with gated attention, and trains in about two minutes on two CPU cores.

    Example: marin-scale speedrun new ada/gated --track cpu-5e11 --author Ada
    """
    from marin_scaling.speedrun.entry import write_starter
    from marin_scaling.speedrun.track import SPEEDRUNS_DIR

    path = write_starter(Path(SPEEDRUNS_DIR), name=name, track=track, author=author)
    typer.echo(f"Entry: {path}\nIts classes: {path.parent / 'model.py'}")
    typer.echo(f"Next: marin-scale speedrun info {shlex.quote(str(path))}")


@speedrun_app.command("info")
def info(
    entry_path: Path = _ENTRY,
    hardware: str = typer.Option("", "--hardware", metavar="NAME", help="Chip (h100) or slice (v5p-32) for the time estimate."),
    count: int = typer.Option(1, "--count", metavar="N", min=1, help="Number of chips or slices."),
    peak: float | None = _PEAK,
    price: float | None = typer.Option(
        None, "--price", metavar="USD", min=0, help="US dollars per chip-hour for the cost estimate."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Show size, FLOPs, time and cost of an entry; train nothing.

    FLOPs are those that the board counts; time and cost are for an MFU from 0.5 to 0.2. Exit status 1 if the entry breaks a
    rule of its track.

    Example: marin-scale speedrun info speedruns/entries/dense-20.yaml --hardware h100
    """
    import json

    from marin_scaling.errors import Severity
    from marin_scaling.speedrun.entry import run_info_text
    from marin_scaling.speedrun.train_entry import plan_entry

    on = _machine(hardware, count, peak=peak) if hardware else None
    found = plan_entry(entry_path, machine=on, price_per_chip_hour=price)
    typer.echo(json.dumps(found, indent=1) if as_json else run_info_text(found))
    raise typer.Exit(1 if any(each["severity"] is Severity.ERROR for each in found["findings"]) else 0)


@speedrun_app.command("run")
def run(
    entry_path: Path = _ENTRY,
    to: Path = _TO,
    where: str = _WHERE,
) -> None:
    """Train an entry, one run per seed, and submit it.

    Interrupt it any time; rerun the command and it resumes. The track's rules are checked before training.

    Example: marin-scale speedrun run speedruns/entries/dense-20.yaml
    """
    from marin_scaling.run.store import RUNS_DIR, records_by_log, run_folders
    from marin_scaling.speedrun.entry import entry_files, read_entry
    from marin_scaling.speedrun.train_entry import train_entry

    made, entry = train_entry(entry_path, on=where, to=to), read_entry(entry_path)
    recorded = records_by_log(RUNS_DIR)
    folders = sorted({each.folder for seed in made.seeds for each in recorded.get(seed.log_sha256 or "", ())})
    if folders == sorted(run_folders(RUNS_DIR / entry.runs_folder)):
        folders = [RUNS_DIR / entry.runs_folder]
    typer.echo(f"{made.bits_per_byte:.4f} bits per byte, the mean of {counted(len(made.seeds), 'seed')}")
    _write_judged(made, to=to, sources=[*folders, entry_path, *entry_files(entry, entry_path, root=Path())], entry=entry)


@speedrun_app.command("confirm")
def confirm(
    place: Path = _PLACE,
    base: str | None = _BASE,
    retrain_all: bool = typer.Option(False, "--all", help="Also retrain the submissions that do not differ from the base."),
    runs_code: bool = typer.Option(
        False, "--run-code", help="Also retrain entries with Python code of their own, which you read."
    ),
    where: str = _WHERE,
    by: str | None = typer.Option(
        None, "--by", metavar="NAME", help="Store each confirmation as made by this person or workflow, in confirmation.json."
    ),
) -> None:
    """Retrain submissions from their entries and compare each seed.

    PLACE is a submission, or a folder. In a folder, the submissions of tracks with retrained_by_ci: true are retrained if
    their file, confirmation, entry, recipe file or track differs from the base branch. A submission is confirmed if every
    seed is within the track's retraining_tolerance of its retrained loss, and the mean within the tolerance over the root of
    the number of seeds. Of logged runs only the means are compared, and may also differ by the noise of their seeds. The new
    runs are not kept; --by stores a confirmation for the board. An entry with Python code of its own needs --run-code: its
    code runs on this machine, with your permissions. Exit status 1 if a submission is not confirmed.

    Example: marin-scale speedrun confirm speedruns/ada/dense-20/submission.json
    """
    from datetime import UTC, datetime

    from marin_scaling.speedrun.submission import SUBMISSION_NAME, read_submission, write_confirmation
    from marin_scaling.speedrun.track import read_tracks, tracks_folder
    from marin_scaling.speedrun.train_entry import CodeNotRun, RulesBroken, confirm_entry

    tracks = read_tracks(tracks_folder(place))
    file = place / SUBMISSION_NAME if place.is_dir() else place
    if file.is_file():
        claimed = {file: read_submission(file)}
    else:
        claimed = _to_retrain(place, base=base, tracks=tracks, retrain_all=retrain_all)
    confirmed = True
    for path, each in claimed.items():
        try:
            outcome = confirm_entry(each, tracks=tracks, on=where, run_code=runs_code)
        except (CodeNotRun, RulesBroken) as error:
            typer.echo(wrapped_lines(f"{each.name}  NOT confirmed: {error}"))
            confirmed = False
            continue
        typer.echo(outcome.sentence)
        if by and outcome.confirmed:
            typer.echo(f"Stored: {write_confirmation(path, outcome.retrained, by=by, at=datetime.now(UTC))}")
        confirmed &= outcome.confirmed
    raise typer.Exit(0 if confirmed else 1)


def _to_retrain(place: Path, *, base: str | None, tracks: Mapping[str, Track], retrain_all: bool) -> dict[Path, Submission]:
    """Return the submissions of retrained tracks that differ from the base branch, or all, by file; print their number."""
    from marin_scaling.speedrun.judge import NO_BASE, base_of, changed_entries
    from marin_scaling.speedrun.submission import read_submissions

    asked = {name for name, track in tracks.items() if track.retrained_by_ci}
    found = [each for each in read_submissions(place) if each.submission and each.submission.track in asked]
    repository, commit = (None, None) if retrain_all else base_of(place, base)
    if not found:
        typer.echo(f"No submission in {place} has a track with retrained_by_ci: true. To retrain one, give its path.")
    elif repository and commit:
        changed = changed_entries(found, place=place, repository=repository, base=commit)
        against = f"{base or 'the main branch'} ({commit[:12]})"
        typer.echo(f"{len(changed)} of {counted(len(found), 'retrained submission')} changed since {against}.")
        found = changed
    elif repository:
        typer.echo(f"warning: --base: {NO_BASE}. Retraining every submission.", err=True)
    return {each.place: each.submission for each in found if each.submission}


def _machine(name: str, count: int, *, peak: float | None) -> Machine:
    import difflib

    from marin_scaling.accelerators import ACCELERATORS, machine
    from marin_scaling.errors import UsageError

    found = machine(name, count=count, peak_flops_per_second=peak)
    if found is None and name.strip().lower() == "cpu":
        raise UsageError(
            "--hardware cpu: the peak of a CPU is not in the hardware table.",
            fix="State cores and the peak of one in FLOP/s: --hardware cpu --count 8 --peak 96e9 (3 GHz x 32 with AVX2)",
        )
    if found is None:
        near = joined(difflib.get_close_matches(name.lower(), ACCELERATORS, n=3), separator=" or ")
        raise UsageError(
            f"--hardware {name}: unknown chip{f'; did you mean {near}?' if near else '.'}",
            fix=f"Name a chip of the table in site/reference/submission-files.md, a slice like v5p-32, or state the chip's "
            f"dense peak in FLOP/s: --hardware {shlex.quote(name)} --peak 71e12",
        )
    return found
