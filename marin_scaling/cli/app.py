"""The table of commands. Importing this module must stay cheap: `marin-scale --help` starts in a few tenths of a second."""

from __future__ import annotations

import typer

from marin_scaling.cli.plain_parameters import PlainGroup

app = typer.Typer(
    name="marin-scale",
    cls=PlainGroup,
    help="Forecast large training runs from ladders of small ones: sign the forecast first, check it after.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_TRUST = typer.Option(
    [], "--trust-recipe", metavar="MODULE:CLASS", help="Run this Python class where a file names it as its recipe."
)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    trust_recipe: list[str] = _TRUST,
) -> None:
    for name in trust_recipe:
        from marin_scaling.recipe import catalogue

        catalogue.trust_recipe(name)
    if version:
        from marin_scaling import __version__

        typer.echo(__version__)
        raise typer.Exit


# Last, because each of these modules registers its commands with the app above.
# In the order in which `--help` lists them.
# isort: off
from marin_scaling.cli import quickstart, init  # noqa: E402,F401
from marin_scaling.cli import recipe, ladder, track, export, imported, table  # noqa: E402,F401
from marin_scaling.cli import fit, speedup, backtest, downstream  # noqa: E402,F401
from marin_scaling.cli import registration, preregistration, amendment, notices, sealed, review, log  # noqa: E402,F401
from marin_scaling.cli import speedrun, speedrun_training, experiment, site  # noqa: E402,F401
