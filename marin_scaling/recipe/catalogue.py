"""Find a recipe by what a ladder file calls it."""

from __future__ import annotations

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.delphi import DelphiRecipe
from marin_scaling.recipe.quickstart import QuickstartRecipe
from marin_scaling.recipe.recipe import Recipe

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (QuickstartRecipe(), DelphiRecipe())}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name; `RecipeError` names those there are."""
    if name not in RECIPES:
        raise RecipeError(
            f"There is no recipe {name!r}.",
            why="The recipe turns a budget into a model, a batch and learning rates.",
            fix=f"Use one of: {', '.join(sorted(RECIPES))}.",
        )
    return RECIPES[name]
