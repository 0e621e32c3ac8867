"""Commands `marin-scale experiment` and `marin-scale site`: import and validate experiments, build and serve the site."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.verify import echo_wrapped
from marin_scaling.printable import joined

if TYPE_CHECKING:
    from marin_scaling.experiment.experiment import Experiment

experiment_app = typer.Typer(
    help="Begin, import and validate experiments and their outcomes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FILE = typer.Argument(metavar="FILE", help="Marin's digest (.csv, .jsonl), report list (.md) or executor record (.json).")
_TO = typer.Option(..., "--to", metavar="FILE.jsonl", help="File to write, such as experiments/marin.jsonl.")
_NAMED = 10
_LADDERS = typer.Option([], "--ladder", metavar="FILE.yaml", help="Ladder that the experiment trains; repeatable.")
_FILTERS = typer.Option([], "--filter", metavar="FOLDER", help="Folder that data filter wrote; repeatable.")
_FOLDER = typer.Argument(metavar="EXPERIMENT", help="Folder of an experiment.")
_PLACE = typer.Argument(Path("experiments"), metavar="PLACE", help="Folder or file of experiments, chains or comparisons.")


@experiment_app.command("import")
def import_file(file: Path = _FILE, to: Path = _TO) -> None:
    """Import experiments from one of Marin's files.

    The import replaces the file at --to. Values that the source lacks stay absent; credentials in web addresses are removed
    and reported. A file with own experiments is refused, and manual changes to imported ones are lost: use one file per
    source.

    Example: marin-scale experiment import agent-moe-experiments.jsonl --to experiments/agent-moe.jsonl
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.experiment.experiment import write_experiments
    from marin_scaling.experiment.import_marin import import_experiments
    from marin_scaling.units import counted

    if to.suffix != ".jsonl":
        raise UsageError(
            f"--to {to} does not end in .jsonl.",
            why="The file has one line per experiment.",
            fix=f"Use --to {to.with_suffix('.jsonl')}",
        )
    before = _imported_before(to, file=file)
    imported = import_experiments(file)
    write_experiments(to, imported.experiments)
    for note in imported.notes:
        typer.echo(f"note: {note}")
    now = {each.name: each for each in imported.experiments}
    changed = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    gone = sorted(before.keys() - now.keys())
    for label, names in (("changed", changed), ("removed", gone)):
        if names:
            typer.echo(f"{label}: {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}")
    counts = f"{len(now.keys() - before.keys())} new, {len(changed)} changed, {len(gone)} removed"
    place = "" if to.absolute().is_relative_to(Path("experiments").absolute()) else f" {to}"
    typer.echo(f"{counted(len(now), 'experiment')} in {to}: {counts}.\nNext: marin-scale experiment validate{place}")


def _imported_before(to: Path, *, file: Path) -> dict[str, Experiment]:
    """Return the experiments of a file that will be replaced, by name; `UsageError` for the source or own experiments."""
    from marin_scaling.errors import UsageError
    from marin_scaling.experiment.experiment import read_experiments

    if not to.exists():
        return {}
    is_source = file.exists() and to.samefile(file)
    found = [] if is_source else read_experiments(to)
    own = [each.place for each in found if each.experiment is None or each.experiment.source is None]
    if own or is_source:
        raise UsageError(
            f"{to} is the source itself." if is_source else f"{to} has an experiment that was not imported: {own[0]}.",
            why="An import replaces the whole file.",
            fix="Use another file: --to experiments/OTHER.jsonl",
        )
    return {each.experiment.name: each.experiment for each in found if each.experiment}


@experiment_app.command("new")
def new(
    name: str = typer.Argument(metavar="NAME", help="Folder of the experiment in experiments/."),
    title: str = typer.Option(..., "--title", help="Subject, in one line."),
    hypothesis: str = typer.Option(..., "--hypothesis", help="Expectation that a measurement can refute."),
    ladders: list[Path] = _LADDERS,
    filters: list[Path] = _FILTERS,
    open_it: bool = typer.Option(False, "--open", help="Open the issue with GitHub's gh, and write down its address."),
) -> None:
    """Begin an experiment: write its file, and the texts of its issue and pull request.

    Example: marin-scale experiment new filtered --title "Filtered text" --hypothesis "It lowers the loss" --ladder
    ladders/base.yaml --ladder ladders/filtered.yaml
    """
    from marin_scaling.experiment.texts import ISSUE_NAME, new_experiment, open_issue

    folder = new_experiment(name, title=title, hypothesis=hypothesis, ladders=ladders, filters=filters)
    typer.echo("\n".join(str(path) for path in sorted(folder.iterdir())))
    if open_it:
        typer.echo(f"issue: {open_issue(folder)}")
    else:
        typer.echo(f"Next: gh issue create --title {shlex.quote(title)} --body-file {folder / ISSUE_NAME}, or paste this file.")


@experiment_app.command("text")
def text(folder: Path = _FOLDER) -> None:
    """Write the text of an experiment's pull request again, with the results of its recorded runs.

    Example: marin-scale experiment text experiments/filtered
    """
    from marin_scaling.experiment.texts import write_pull_request

    path = write_pull_request(folder)
    typer.echo(f"{path}\nNext: gh pr create --body-file {path}, or paste this file.")


@experiment_app.command("validate")
def validate(
    place: Path = _PLACE,
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Check experiments, speedup chains and compared texts.

    Format, references and links are checked. Missing references and contradictions with records are errors; possible mistakes
    are warnings. A web address with credentials is malformed. No address is loaded. Exit status 1 if an experiment has an error
    or is malformed.

    Example: marin-scale experiment validate
    """
    import json

    from marin_scaling.publish.experiment_pages import validate_experiments

    found = validate_experiments(place)
    typer.echo(json.dumps(found.document(), indent=1, default=str) if as_json else str(found))
    raise typer.Exit(1 if found.is_refused else 0)


site_app = typer.Typer(help="Build or serve the site of a repository.", no_args_is_help=True, rich_markup_mode=None)


@site_app.command("build")
def build() -> None:
    """Build the site of this repository into .site/.

    The pages show ladders, forecasts, outcomes, speedruns and experiments. The site works offline, without a server.

    Example: marin-scale site build
    """
    from marin_scaling.publish.build import build_site, registry_fault

    page = build_site(Path(), on_message=echo_wrapped)
    if fault := registry_fault(Path()):
        typer.echo(f"warning: the registry is refused, as its page shows: {fault}", err=True)
    if unsound := _unsound_experiments():
        typer.echo(f"warning: unsound experiments: {joined(unsound)}; for details run marin-scale experiment validate")
    pages = len(list(page.parent.rglob("*.html")))
    echo_wrapped(f"{pages} pages. Open {page.relative_to(Path.cwd())} in a browser, or: marin-scale site serve")


def _unsound_experiments() -> list[str]:
    """Return the names of refused experiments and the places of malformed ones."""
    from marin_scaling.errors import Severity
    from marin_scaling.experiment.checks import all_findings
    from marin_scaling.experiment.experiment import EXPERIMENTS_DIR, read_experiments

    found = read_experiments(Path(EXPERIMENTS_DIR)) if Path(EXPERIMENTS_DIR).is_dir() else []
    findings = all_findings([each.experiment for each in found if each.experiment], root=Path())
    refused = [name for name, each in findings.items() if any(one.severity is Severity.ERROR for one in each)]
    return [*refused, *(each.place for each in found if each.experiment is None)]


@site_app.command("serve")
def serve(
    port: int = typer.Option(8000, "--port", min=0, max=65535, metavar="N", help="Port on this machine; 0 takes a free one."),
) -> None:
    """Build the site and serve it on this machine until Ctrl-C.

    Example: marin-scale site serve --port 8001
    """
    from marin_scaling.publish.build import build_site, serve_site

    with serve_site(build_site(Path(), on_message=echo_wrapped).parent, port=port) as server:
        typer.echo(f"http://127.0.0.1:{server.server_port}/ serves the site until Ctrl-C.")
        server.serve_forever()
