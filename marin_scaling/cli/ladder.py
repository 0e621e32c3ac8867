"""Commands `marin-scale quickstart`, `init`, `recipe`, `ladder`, `status`, `advise` and `emit`."""

from __future__ import annotations

import os
import shlex
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marin_scaling.cli.verify import echo_wrapped
from marin_scaling.printable import wrapped
from marin_scaling.units import counted

if TYPE_CHECKING:
    from marin_scaling.preregistration.register import Registration
    from marin_scaling.recipe.base import Recipe
    from marin_scaling.run.plan import PlannedLadder
    from marin_scaling.train.session import TrainableLadder

_LADDER = typer.Argument(metavar="LADDER.yaml", help="Ladder file.")
_ONLY = typer.Option([], "--only", metavar="BUDGET[/WIDTH]", help="Only these runs; repeatable.")


_SWEEP = typer.Option(
    [],
    "--sweep",
    metavar="NAME=VALUES",
    help="Train each rung at learning_rate=0.5,1,2 times its own, or in batches of batch_size=8,16,32, into runs/LADDER-sweep.",
)


def ladder(
    ladder_path: Path = _LADDER,
    where: str = typer.Option("local", "--on", metavar="PLACE", help="Where to train: local, ray, or ray:ADDRESS."),
    only: list[str] = _ONLY,
    max_parallel: int | None = typer.Option(None, "--max-parallel", metavar="N", min=1, help="Train at most N runs at a time."),
    stop_after: str = typer.Option("", "--stop-after", metavar="TIME", help="Stop after 90s, 30m or 2h; rerun to resume."),
    keep_weights: bool = typer.Option(False, "--keep-weights", help="Keep the weights, for marin-scale export."),
    sweep: list[str] = _SWEEP,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the rungs and their cost; train nothing."),
    topology: str | None = typer.Option(
        None, "--compile-for", metavar="TPU", help="Compile for a TPU slice that is not here (v5p:2x2x4); train nothing."
    ),
    as_json: bool = typer.Option(False, "--json", help="With --dry-run or --compile-for, print only JSON."),
) -> None:
    """Train a ladder's rungs into runs/, here or on Ray.

    Interrupt it any time; rerun the command and it resumes. `marin-scale status FILE` shows progress.

    Example: marin-scale ladder ladders/quickstart.yaml --dry-run
    """
    from marin_scaling.errors import UsageError
    from marin_scaling.train.session import load_ladder

    loaded = load_ladder(ladder_path)
    loaded = loaded.swept(**_sweep(sweep)) if sweep else loaded
    if dry_run and topology is not None:
        raise UsageError("--dry-run and --compile-for exclude each other.", fix="Give one of them; --dry-run takes a second.")
    if as_json and not dry_run and topology is None:
        raise UsageError(
            "--json needs --dry-run or --compile-for.", fix=f"Use marin-scale ladder {ladder_path} --dry-run --json"
        )
    if topology is not None:
        _compile(loaded, topology, only, as_json=as_json)
        return
    if dry_run:
        _print_plan(loaded, only, as_json=as_json)
        return
    done = loaded.train(
        on=where,
        only=only,
        max_parallel=max_parallel,
        stop_after=stop_after,
        keep_weights=keep_weights,
        on_message=echo_wrapped,
    )
    if done.stopped:
        typer.echo(f"Stopped after {stop_after}. Rerun the command to resume.")
        return
    if done.diverged:
        typer.echo(
            f"warning: {counted(len(done.diverged), 'run')} diverged and will be left out of fits: {', '.join(done.diverged)}"
        )
    if len(done.specs) < (rungs := len(loaded.ladder.rungs)):
        typer.echo(f"The {len(done.specs)} selected runs of {rungs} are recorded in {done.runs_dir}.")
    else:
        ladder, runs = (shlex.quote(str(path)) for path in (ladder_path, done.runs_dir))
        typer.echo(f"All {rungs} runs are recorded in {done.runs_dir}.\nNext: marin-scale {'tune' if sweep else 'fit'} {runs}")
        if sweep:
            return
        commit = f"git add {ladder} {runs} && git commit -m 'Train the ladder {loaded.ladder.file.name}'"
        typer.echo(f"To preregister the target: {commit}\n  marin-scale preregister {ladder}")


def _sweep(choices: list[str]) -> dict[str, list[float]]:
    """Return the arguments of `swept` that the options give."""
    from marin_scaling.cli.fit import chosen_pairs
    from marin_scaling.errors import UsageError
    from marin_scaling.run.plan import SWEEP_LIKE, SWEPT
    from marin_scaling.run.table_io import number_in

    found = dict[str, list[float]]()
    for name, text in chosen_pairs(choices, option="--sweep", example="learning_rate=0.5,0.7,1,1.4,2").items():
        values = [number for part in text.split(",") if (number := number_in(part)) is not None]
        if name not in SWEPT or len(values) < len(text.split(",")):
            what = f"{name!r} cannot be swept" if name not in SWEPT else "not all values are numbers"
            why = "AdamH and MuonH, the optimizers of all recipes, have no weight decay." if name == "weight_decay" else ""
            raise UsageError(f"--sweep {name}={text}: {what}.", why=why, fix=SWEEP_LIKE)
        found[name] = values
    return found


def _print_plan(loaded: TrainableLadder, only: list[str], *, as_json: bool) -> None:
    from marin_scaling.ladder.plan import TARGET, forbids_training, ladder_document, ladder_table, plan_findings

    planned = loaded.plan(only)
    of_data = [finding for finding in loaded.data_findings() if not planned.is_sweep or finding.where != TARGET]
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        document = ladder_document(planned)
        findings = [*document["findings"], *(vars(finding) for finding in of_data)]
        typer.echo(dump_canonical({**document, "findings": findings}), nl=False)
    else:
        typer.echo("\n".join([ladder_table(planned), *(wrapped(finding.line) for finding in of_data)]))
    if any(map(forbids_training, [*plan_findings(planned), *of_data])):
        raise typer.Exit(1)


def _compile(loaded: TrainableLadder, topology: str, only: list[str], *, as_json: bool) -> None:
    compiled = loaded.compile_for(topology, only=only, on_message=partial(typer.echo, err=True))
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(compiled.document), nl=False)
    else:
        typer.echo(repr(compiled))
    if not compiled.fits:
        raise typer.Exit(1)


def status(ladder_path: Path = _LADDER) -> None:
    """Show state, steps and loss of a ladder's runs.

    The command also estimates the time left. Use it in another terminal during training, or afterwards.

    Example: marin-scale status ladders/quickstart.yaml
    """
    from marin_scaling.train.session import load_ladder, status_text

    loaded = load_ladder(ladder_path)
    states, why_only_begun = loaded.status()
    if why_only_begun:
        typer.echo(f"warning: only started runs are shown: {why_only_begun}")
    typer.echo(status_text(states, seconds_left=loaded.seconds_left(states)))
    if swept := loaded.sweep_status():
        typer.echo(f"\nSweep, runs/{loaded.ladder.file.name}-sweep:\n{status_text(swept)}")


_RUNS = typer.Argument(metavar="LADDER.yaml|TABLE", help="Ladder file with trained runs, or table of runs.")


def advise(
    path: Path = _RUNS,
    budget: str = typer.Option(..., "--budget", metavar="FLOPS", help="FLOPs for additional runs."),
    target: str = typer.Option("", "--target", metavar="FLOPS", help="Budget of the target; default: the ladder file's."),
) -> None:
    """Advise which runs narrow the target's forecast most.

    Example: marin-scale advise runs/delphi --target 1e23 --budget 1e21
    """
    from marin_scaling.forecast.next_runs import advice_text, advise_on
    from marin_scaling.units import parse_flops

    found = advise_on(path, allowance_flops=parse_flops(budget), target_flops=parse_flops(target) if target else None)
    typer.echo(advice_text(found))


def emit(ladder_path: Path = _LADDER, only: list[str] = _ONLY) -> None:
    """Write Levanter configurations and token caches of rungs.

    Levanter's own train_lm trains from these files. With --only target, the target is written, at the size that recipe show
    takes for its budget. Its run counts as an outside run: see preregister --table.

    Example: marin-scale emit ladders/quickstart.yaml
    """
    from marin_scaling.ladder.plan import TARGET
    from marin_scaling.train.session import load_ladder

    made = load_ladder(ladder_path).emit(only=only)
    is_new = "" if made.is_new else " already"
    typer.echo(f"Configurations of {counted(made.runs, 'run')} and their token caches are{is_new} in {made.folder}.")
    if only == [TARGET]:
        echo_wrapped("It is the target. First preregister it: marin-scale preregister --table RUNS.csv --target TARGET.yaml")
    typer.echo(f"Next: cd {made.folder} && {made.command}")


recipe_app = typer.Typer(help="Show the run that a recipe makes of a budget.", no_args_is_help=True, rich_markup_mode=None)

_RECIPE = typer.Argument(metavar="RECIPE", help="Name, recipe file (recipes/mine.yaml), or MODULE:CLASS.")
_OTHER = typer.Argument(metavar="OTHER", help="Second recipe.")
_BUDGET = typer.Option(..., "--budget", metavar="FLOPS", help="Training FLOPs of the run.")
_BUDGET_OR_NONE = typer.Option("", "--budget", metavar="FLOPS", help="Compare runs of this many training FLOPs.")
_WIDTH = typer.Option(
    None, "--width", metavar="N", help="Width; default: the recipe's, or the nearest to 20 tokens per parameter."
)


@recipe_app.command("list")
def list_recipes() -> None:
    """List all recipes, built-in and installed.

    Example: marin-scale recipe list
    """
    from marin_scaling.recipe.find import recipe_names

    typer.echo("\n".join(recipe_names()))


@recipe_app.command("show")
def show_recipe(
    recipe: str = _RECIPE,
    budget: str = _BUDGET,
    width: int | None = _WIDTH,
    batch: int | None = typer.Option(None, "--batch", metavar="N", min=1, help="Sequences per step; default: the recipe's."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Show every number of a run with formula and source.

    Example: marin-scale recipe show delphi --budget 1e20
    """
    from marin_scaling.recipe.find import recipe_document, recipe_text, usual_plan
    from marin_scaling.units import parse_flops

    found = _typed(recipe)
    plan = usual_plan(found, budget_flops=parse_flops(budget), hidden_dim=width, batch_size=batch)
    if as_json:
        from marin_scaling.canonical_json import dump_canonical

        typer.echo(dump_canonical(recipe_document(found, plan, batch_is_given=batch is not None)), nl=False)
    else:
        typer.echo(recipe_text(found, plan, batch_is_given=batch is not None))


@recipe_app.command("diff")
def diff_recipes(recipe: str = _RECIPE, other: str = _OTHER, budget: str = _BUDGET_OR_NONE, width: int | None = _WIDTH) -> None:
    """Show the constants and formulas that differ.

    With --budget, the numbers of one run of each recipe are compared too.

    Example: marin-scale recipe diff delphi recipes/mine.yaml --budget 1e20
    """
    from marin_scaling.recipe.find import difference_text, usual_plan
    from marin_scaling.units import parse_flops

    first, second = _typed(recipe), _typed(other)
    if not budget:
        typer.echo(difference_text(first, second))
        return
    budget_flops = parse_flops(budget)
    one = usual_plan(first, budget_flops=budget_flops, hidden_dim=width)
    two = usual_plan(second, budget_flops=budget_flops, hidden_dim=width)
    typer.echo(difference_text(first, second, (one, two)))


def _typed(name: str) -> Recipe:
    """Return a recipe named on the command line, which may be code; the base in a recipe file may not."""
    from marin_scaling.recipe.find import find_recipe, trust_recipe

    trust_recipe(name)
    return find_recipe(name)


_FOLDER = typer.Argument(Path("marin-quickstart"), metavar="FOLDER", help="Folder to work in; made if missing.")
_QUICKSTART = Path("ladders/quickstart.yaml")


def quickstart(folder: Path = _FOLDER) -> None:
    """Run all steps on small real runs: 3.5 to 8 minutes on 2 cores.

    The steps: train a ladder, forecast a target 5x beyond it, sign the forecast, train the target, check, build the site.
    The command needs the train extra, but no accelerator, account or network. Interrupt it any time; rerun the command and
    it resumes.

    Example: marin-scale quickstart
    """
    from marin_scaling.ladder.plan import ladder_table
    from marin_scaling.preregistration.register import answering_spec
    from marin_scaling.preregistration.verdict import check
    from marin_scaling.publish.build import make_user_repository
    from marin_scaling.run.plan import load_ladder
    from marin_scaling.train.session import pool_of, require_training, target_pool, train_with_progress

    require_training(for_what="the quickstart")
    began = time.monotonic()
    make_user_repository(folder)
    os.chdir(folder)
    planned = load_ladder(_QUICKSTART).bind()
    _say(1, "Plan the ladder", f"{_QUICKSTART}, on {planned.corpus.source}")
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
    return preregister(planned, on_message=echo_wrapped)


def _build_site() -> Path | None:
    """Return the site's first page, or None without the site extra."""
    from marin_scaling.errors import MissingExtra
    from marin_scaling.publish.build import build_site

    try:
        page = build_site(Path(), on_message=echo_wrapped)
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
    echo_wrapped(f"Finished in {format_duration(seconds)}; {share}. Ladders, runs and preregistrations are in {folder}/.")
    if page is not None:
        shown = folder / page.relative_to(Path.cwd())
        echo_wrapped(f"Open {shown} in a browser, or: cd {folder} && marin-scale site serve")
    typer.echo("Next: marin-scale fit YOUR_RUNS.csv --predict 1e21")


def _say(number: int, title: str, detail: str) -> None:
    echo_wrapped(f"\n[{number}/6] {title}: {detail}")


_INIT_FOLDER = typer.Argument(Path(), metavar="FOLDER", help="Folder of the repository.")


def init(folder: Path = _INIT_FOLDER) -> None:
    """Make a repository of your own for forecasts.

    The repository has folders for ladders, runs and preregistrations, an example ladder, a site and CI workflows.

    Existing files are kept; those that differ are named.

    Example: marin-scale init my-forecasts
    """
    from marin_scaling.publish.build import make_user_repository, tool_address

    repository = make_user_repository(folder)
    for path in repository.made:
        typer.echo(f"made {path}")
    for path in repository.kept:
        typer.echo(f"kept {path}, which differs")
    echo_wrapped("The workflows install marin-scaling from a repository variable; set it in the settings on GitHub:")
    typer.echo(f"  MARIN_SCALING={tool_address()}")  # one word, to be copied
    before = ("" if folder == Path() else f"cd {folder} && ") + ("" if (folder / ".git").exists() else "git init && ")
    typer.echo(f"Next: {before}marin-scale ladder ladders/quickstart.yaml --dry-run")
    typer.echo("Or forecast a run of another trainer:\n  marin-scale preregister --table RUNS.csv --target TARGET.yaml")
