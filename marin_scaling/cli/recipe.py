"""Command `marin-scale recipe`: list recipes, show a run with its formulas, compare two recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from marin_scaling.recipe.base import Recipe

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
    """Show the constants and formulas that differ.

    With --budget, the numbers of one run of each recipe are compared too.

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
    """Return a recipe named on the command line, which may be code; the base in a recipe file may not."""
    from marin_scaling.recipe.find import find_recipe, trust_recipe

    trust_recipe(name)
    return find_recipe(name)
