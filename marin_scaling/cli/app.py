"""Command line application with all commands. This module imports fast, so that `--help` starts at once."""

from __future__ import annotations

from typing import Any, cast

import typer
from typer.core import TyperGroup

from marin_scaling.cli import fit, ladder, preregister, publish, registry, runs, speedrun, verify

PLAN, FIT, REGISTER, PUBLISH = "Plan and train", "Fit and forecast", "Preregister and verify", "Publish"


class Panels(TyperGroup):
    """Group whose `--help` lists commands by panel (`rich_help_panel`), without the start-up time of Rich."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # Typer's signature
        """Write one section per panel, with the commands in the order in which they were registered."""
        width, named = max(map(len, self.commands)), cast("dict[str, Any]", self.commands).items()
        for panel in (PLAN, FIT, REGISTER, PUBLISH):
            with formatter.section(panel):
                commands = [(name, each) for name, each in named if each.rich_help_panel == panel]
                limit = formatter.width - 6 - width
                formatter.write_dl([(f"{name:<{width}}", each.get_short_help_str(limit)) for name, each in commands])


app = typer.Typer(
    name="marin-scale",
    cls=Panels,
    help="Forecast large training runs from ladders of small ones; sign each forecast before its run and check it after.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_TRUST = typer.Option([], "--trust-recipe", metavar="MODULE:CLASS", help="Allow this Python class as a recipe in files.")


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    trust_recipe: list[str] = _TRUST,
) -> None:
    for name in trust_recipe:
        from marin_scaling.recipe import find as catalogue

        catalogue.trust_recipe(name)
    if version:
        from marin_scaling import __version__

        typer.echo(__version__)
        raise typer.Exit


# `--help` lists commands in this order.
app.command("quickstart", rich_help_panel=PLAN)(ladder.quickstart)
app.command("init", rich_help_panel=PLAN)(ladder.init)
app.add_typer(ladder.recipe_app, name="recipe", rich_help_panel=PLAN)
app.command("ladder", rich_help_panel=PLAN)(ladder.ladder)
app.command("status", rich_help_panel=PLAN)(ladder.status)
app.command("advise", rich_help_panel=PLAN)(ladder.advise)
app.command("emit", rich_help_panel=PLAN)(ladder.emit)
app.command("track", rich_help_panel=PLAN)(runs.track_run)
app.command("export", rich_help_panel=PLAN)(runs.export_run)
app.command("import", rich_help_panel=FIT)(runs.import_tables)
app.command("table", rich_help_panel=FIT)(runs.write_table)
app.command("fit", rich_help_panel=FIT)(fit.fit_table)
app.command("backtest", rich_help_panel=FIT)(fit.backtest_table)
app.command("tune", rich_help_panel=FIT)(fit.tune_table)
app.command("mix", rich_help_panel=FIT)(fit.mix_table)
app.command("speedup", rich_help_panel=FIT)(fit.speedup_tables)
app.command("downstream", rich_help_panel=FIT)(fit.downstream)
app.add_typer(runs.data_app, name="data", rich_help_panel=FIT)
app.command("preregister", rich_help_panel=REGISTER)(preregister.preregister)
app.command("run", rich_help_panel=REGISTER)(preregister.run)
app.command("verify", rich_help_panel=REGISTER)(verify.verify)
app.command("check", rich_help_panel=REGISTER)(verify.check)
app.command("outcome", rich_help_panel=REGISTER)(verify.outcome)
app.command("review", rich_help_panel=REGISTER)(verify.review)
app.add_typer(registry.registry_app, name="registry", rich_help_panel=REGISTER)
app.add_typer(publish.site_app, name="site", rich_help_panel=PUBLISH)
app.add_typer(speedrun.speedrun_app, name="speedrun", rich_help_panel=PUBLISH)
app.add_typer(publish.experiment_app, name="experiment", rich_help_panel=PUBLISH)
