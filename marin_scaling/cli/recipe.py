"""`marin-scale recipe`: which recipes there are, what one makes of a budget and why, how two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from marin_scaling.recipe.base import Recipe

recipe_app = typer.Typer(help="Show what a recipe makes of a budget, and why.", no_args_is_help=True, rich_markup_mode=None)

_RECIPE = typer.Argument(metavar="RECIPE", help="A name, a recipe file (recipes/mine.yaml), or MODULE:CLASS.")
_OTHER = typer.Argument(metavar="OTHER", help="Another one.")
_BUDGET = typer.Option(..., "--budget", metavar="FLOPS", help="Training FLOPs of the run.")
_BUDGET_OR_NONE = typer.Option("", "--budget", metavar="FLOPS", help="Training FLOPs of a run to compare as well.")
_WIDTH = typer.Option(
    None, "--width", help="Of the run; without it the recipe's usual one, or the nearest to 20 tokens per parameter."
)


@recipe_app.command("list")
def list_recipes() -> None:
    """Name the recipes there are, ours and installed ones.

    Example: marin-scale recipe list
    """
    from marin_scaling.recipe.find import recipe_names

    typer.echo("\n".join(recipe_names()))


@recipe_app.command("show")
def show_recipe(
    recipe: str = _RECIPE,
    budget: str = _BUDGET,
    width: int | None = _WIDTH,
    batch: int | None = typer.Option(None, "--batch", min=1, help="Sequences a step, in place of the recipe's own."),
    as_json: bool = typer.Option(False, "--json", help="Print only JSON."),
) -> None:
    """Print every number of the run that a recipe makes of a budget, with its formula and source.

    Example: marin-scale recipe show delphi --budget 1e20
    """
    from marin_scaling.recipe.report import recipe_document, recipe_text, usual_plan
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
    """Print the constants and formulas in which two recipes differ, and with a budget the numbers of one run of each.

    Example: marin-scale recipe diff delphi recipes/mine.yaml --budget 1e20
    """
    from marin_scaling.recipe.report import difference_text, usual_plan
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
    """Return the recipe of a name on the command line, which may be code; the base in a recipe file may not."""
    from marin_scaling.recipe.find import find_recipe, trust_recipe

    trust_recipe(name)
    return find_recipe(name)
