"""Commands `marin-scale quickstart` and `init`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.verify import echo_wrapped

if TYPE_CHECKING:
    from marin_scaling.preregistration.register import Registration
    from marin_scaling.run.plan import PlannedLadder

_FOLDER = typer.Argument(Path("marin-quickstart"), metavar="FOLDER", help="Folder to work in; made if missing.")
_LADDER = Path("ladders/quickstart.yaml")


def quickstart(folder: Path = _FOLDER) -> None:
    """Run all steps on small real runs: 4 to 8 minutes on 2 cores.

    The steps: train a ladder, forecast a target 5x beyond it, sign the forecast, train the target, check, build the site.
    The command needs the train extra, but no accelerator, account or network. Interrupt it any time; rerun the command and
    it resumes.

    Example: marin-scale quickstart
    """
    from marin_scaling.ladder.report import ladder_table
    from marin_scaling.preregistration.register import answering_spec
    from marin_scaling.preregistration.verdict import check
    from marin_scaling.publish.site_settings import make_user_repository
    from marin_scaling.run.plan import load_ladder
    from marin_scaling.train.session import pool_of, require_training, target_pool, train_with_progress

    require_training(for_what="the quickstart")
    began = time.monotonic()
    make_user_repository(folder)
    os.chdir(folder)
    planned = load_ladder(_LADDER).bind()
    _say(1, "Plan the ladder", f"{_LADDER}, on {planned.corpus.source}")
    typer.echo(ladder_table(planned.ladder))
    _say(2, "Train its rungs with Levanter", f"into {planned.runs_dir}")
    pool = pool_of("local", planned.ladder.file.hardware, runs=len(planned.specs))
    ladder_time = train_with_progress(planned.specs, corpus=planned.corpus, label="ladder", pool=pool)
    _say(3, "Fit the law, forecast the target, sign the forecast", "before the target is trained")
    registration = _register_once(planned)
    _say(4, "Train the target", "bound to the signed forecast from its first step")
    pool = target_pool("local", ladder=planned.ladder.file.name)
    target_time = train_with_progress([answering_spec(registration.folder)], corpus=planned.corpus, label="target", pool=pool)
    _say(5, "Check the forecast", str(registration.folder))
    verdict = check(registration)
    echo_wrapped(f"{verdict.id}  {verdict.sentence}")
    _say(6, "Build the site", "in .site/")
    page = _build_site()
    stepping = ladder_time.stepping_seconds + target_time.stepping_seconds
    _close(page, folder, result=verdict.sentence, seconds=time.monotonic() - began, stepping_seconds=stepping)


def _register_once(planned: PlannedLadder) -> Registration:
    """Return the existing registration of this ladder's target, or a new one."""
    from marin_scaling.preregistration.preregister import existing_registration, preregister

    existing = existing_registration(planned)
    if existing is not None:
        typer.echo(f"{existing.folder} is registered already; skipped.")
        return existing
    return preregister(planned, on_message=typer.echo)


def _build_site() -> Path | None:
    """Return the site's first page, or None without the site extra."""
    from marin_scaling.errors import MissingExtra
    from marin_scaling.publish.build import build_site

    try:
        page = build_site(Path(), on_message=typer.echo)
    except MissingExtra as error:
        typer.echo(f"warning: the site is not built. {error}")
        return None
    typer.echo(f"{len(list(page.parent.rglob('*.html')))} pages, with the forecast and its outcome")
    return page


def _close(page: Path | None, folder: Path, *, result: str, seconds: float, stepping_seconds: float) -> None:
    from marin_scaling.units import format_duration

    share = f"training steps: {stepping_seconds / seconds:.0%} of the time" if stepping_seconds else "nothing left to train"
    typer.echo()
    echo_wrapped(f"Your result: {result}")
    typer.echo(f"Finished in {format_duration(seconds)}; {share}. Ladders, runs and preregistrations are in {folder}/.")
    if page is not None:
        shown = folder / page.relative_to(Path.cwd())
        typer.echo(f"Open {shown} in a browser, or: cd {folder} && marin-scale site serve")
    typer.echo("Next: marin-scale fit YOUR_RUNS.csv --predict 1e21")


def _say(number: int, title: str, detail: str) -> None:
    typer.echo(f"\n[{number}/6] {title}: {detail}")


_INIT_FOLDER = typer.Argument(Path(), metavar="FOLDER", help="Folder of the repository.")


def init(folder: Path = _INIT_FOLDER) -> None:
    """Make a repository of your own for forecasts.

    The repository has folders for ladders, runs and preregistrations, an example ladder, a site and CI workflows.

    Existing files are kept; those that differ are named.

    Example: marin-scale init my-forecasts
    """
    from marin_scaling.publish.site_settings import make_user_repository, tool_address

    repository = make_user_repository(folder)
    for path in repository.made:
        typer.echo(f"made {path}")
    for path in repository.kept:
        typer.echo(f"kept {path}, which differs")
    typer.echo("The workflows install marin-scaling from a repository variable; set it in the settings on GitHub:")
    typer.echo(f"  MARIN_SCALING={tool_address()}")
    before = ("" if folder == Path() else f"cd {folder} && ") + ("" if (folder / ".git").exists() else "git init && ")
    typer.echo(f"Next: {before}marin-scale ladder ladders/quickstart.yaml --dry-run")
