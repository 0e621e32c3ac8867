"""The command line: every command by name. Importing this module must stay cheap, so that `--help` starts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from marin_scaling.cli import events, experiment, fit, ladder, preregister, quickstart, recipe, runs, site, speedrun, verify

_KINDS: dict[Any, Callable[[Any], Any]] = {str: str, Path: Path, list[str]: str, bool: bool}
_RULES = ("exists", "writable", "resolve_path", "allow_dash", "path_type", "parser", "envvar")


class PlainGroup(TyperGroup):
    """Typer's group of commands, whose own parameters and whose commands' are taken as typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's parameters, `--help` among them."""
        return _as_typed(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _as_typed(command.get_params(ctx))
        return command


@dataclass(frozen=True, kw_only=True)
class _AsTyped:
    """Stands where Typer keeps its adapter; `coerce` is what it calls."""

    kind: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG002  # Typer's signature
        if value is None:
            return () if param.multiple else None
        return [self.kind(item) for item in value] if isinstance(value, list | tuple) else self.kind(value)


def _as_typed(parameters: Iterable[Any]) -> list[Any]:
    parameters = list(parameters)
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        kind = _KINDS.get(described.annotation) if described else None
        if described and kind and not _has_rule(described.parameter_info):
            parameter._runtime_param = _AsTyped(kind=kind)
    return parameters


def _has_rule(info: Any) -> bool:
    return any(getattr(info, rule, None) for rule in _RULES) or not (info.file_okay and info.dir_okay)


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
        from marin_scaling.recipe import find as catalogue

        catalogue.trust_recipe(name)
    if version:
        from marin_scaling import __version__

        typer.echo(__version__)
        raise typer.Exit


# In the order in which `--help` lists them.
app.command("quickstart")(quickstart.quickstart)
app.command("init")(quickstart.init)
app.add_typer(recipe.recipe_app, name="recipe")
app.command("ladder")(ladder.ladder)
app.command("track")(runs.track_run)
app.command("export")(runs.export_run)
app.command("import")(runs.import_tables)
app.command("table")(runs.write_table)
app.command("fit")(fit.fit_table)
app.command("speedup")(fit.speedup_tables)
app.command("backtest")(fit.backtest_table)
app.command("downstream")(fit.downstream)
app.command("preregister")(preregister.preregister)
app.command("sign")(preregister.sign)
app.command("stamp")(preregister.stamp)
app.command("run")(preregister.run)
app.command("verify")(verify.verify)
app.command("check")(verify.check)
app.command("amend")(events.amend)
app.command("withdraw")(events.withdraw)
app.command("void")(events.void)
app.command("deviate")(events.deviate)
app.command("reveal")(events.reveal)
app.command("review")(verify.review)
app.command("log")(verify.log)
app.add_typer(speedrun.speedrun_app, name="speedrun")
app.add_typer(experiment.experiment_app, name="experiment")
app.add_typer(site.site_app, name="site")
