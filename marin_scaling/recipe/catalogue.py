"""Find a recipe by what a ladder file calls it: one of ours, an installed one, a class by its import path, or a recipe file.

Packages offer recipes under the entry-point group `marin_scaling.recipes`; MODULE:CLASS may lie in the working directory. A
ladder file of a pull request can name any MODULE:CLASS, so only the names that a person typed are imported.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.delphi import DelphiRecipe
from marin_scaling.recipe.foreign_recipe import guarded
from marin_scaling.recipe.grug_moe import GrugMoeRecipe, GrugMoeV16Recipe
from marin_scaling.recipe.quickstart import QuickstartRecipe
from marin_scaling.recipe.quickstart_moe import QuickstartMoeRecipe
from marin_scaling.recipe.recipe import Recipe
from marin_scaling.regular_files import is_present

ENTRY_POINTS = "marin_scaling.recipes"
_OURS: tuple[Recipe, ...] = (
    QuickstartRecipe(),
    QuickstartMoeRecipe(),
    DelphiRecipe(),
    GrugMoeRecipe(),
    GrugMoeV16Recipe(),
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _OURS}
_INTERFACE = ("name", "formulas", "widths", "widths_at", "shape", "plan")
_FILES = (".yaml", ".yml")
_DEEPEST = 8  # recipe files on recipe files; more is a circle


_TRUSTED: set[str] = set()


def trust_recipe(name: str) -> None:
    """Allow this process to run the code at MODULE:CLASS, or to read a recipe file outside of the current folder."""
    _TRUSTED.add(name)


def find_recipe(name: str) -> Recipe:
    """The recipe called `name`: a name, MODULE:CLASS, or the path of a .yaml file; `RecipeError` names those there are.

    `RecipeError` for a MODULE:CLASS, also as the base of a file, that `trust_recipe` was not called with.

    >>> find_recipe("delphi").shape(512).num_layers
    6
    """
    return _find(name, depth=0)


def recipe_names() -> list[str]:
    """Names of our recipes and of installed ones."""
    return sorted({*RECIPES, *entry_points(group=ENTRY_POINTS).names})


def _find(name: str, *, depth: int) -> Recipe:
    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(_FILES):
        if name not in _TRUSTED:
            _require_inside(name)
        return _from_file(Path(name), depth=depth)
    if ":" in name:
        if name not in _TRUSTED:
            raise _untrusted(name)
        return _checked(name, lambda: _imported(*name.split(":", 1)))
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in offered:
        return _checked(name, offered[name].load)
    raise RecipeError(
        f"There is no recipe {name!r}.",
        why="The recipe turns a budget into a model, a batch and learning rates.",
        fix=f"Use one of: {', '.join(recipe_names())}; or MODULE:CLASS, or a recipe file like recipes/mine.yaml.",
    )


def _from_file(path: Path, *, depth: int) -> Recipe:
    from marin_scaling.recipe.recipe_file import overridden, read_recipe_file

    if depth >= _DEEPEST:
        raise RecipeError(
            f"{path}: base: recipe files name each other in a circle, or more than {_DEEPEST} deep.",
            why="Each takes its formulas from its base, and none has any.",
            fix=f"Let one of them name a recipe: {', '.join(recipe_names())}.",
        )
    file = read_recipe_file(path)
    if file.name in recipe_names():
        raise RecipeError(
            f"{path}: name: {file.name!r} is the name of another recipe.",
            why="Records of runs name their recipe, and two would be told apart by nothing.",
            fix="Give the file and the recipe in it another name.",
        )
    found: Recipe = overridden(_base(file.base, path, depth=depth + 1), file, path=path)
    return found


def _base(name: str, path: Path, *, depth: int) -> Recipe:
    """The base of the recipe file at `path`: a file beside it, else what the name stands for."""
    beside = path.parent / name
    if name.endswith(_FILES) and is_present(beside):
        _require_inside(name)
        return _from_file(beside, depth=depth)
    return _find(name, depth=depth)


def _require_inside(name: str) -> None:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise RecipeError(
            f"The recipe file {name} lies outside of the folder from which it is named.",
            why="A file of a pull request could name any file of this machine, whose content would be shown.",
            fix=f"Copy it into recipes/, or name it yourself: marin-scale --trust-recipe {shlex.quote(name)} ...",
        )


def _imported(module: str, attribute: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    finally:
        sys.path.pop(0)


def _checked(name: str, load: Callable[[], Any]) -> Recipe:
    """The recipe that a class of somebody else's makes; whatever goes wrong in it is said as a fault of the recipe."""
    try:
        found: Recipe = load()()
    except Exception as error:
        raise _no_recipe(name, f"{type(error).__name__}: {error}") from error
    missing = [each for each in _INTERFACE if not hasattr(found, each)]
    if missing:
        raise _no_recipe(name, f"it has no {', '.join(missing)}")
    return guarded(found, name)


def _untrusted(name: str) -> RecipeError:
    return RecipeError(
        f"The recipe {name!r} is Python code that a file names, and it was not run.",
        why="A file of a pull request could run any code as you.",
        fix=f"Read that code, then name it yourself: marin-scale --trust-recipe {shlex.quote(name)} ...",
    )


def _no_recipe(name: str, reason: str) -> RecipeError:
    return RecipeError(
        f"{name!r} is not a recipe that can be used: {reason}.",
        why="A recipe of your own is a class that is made without arguments and has the interface of marin_scaling's Recipe.",
        fix=f"Give it {', '.join(_INTERFACE)}; marin_scaling/recipe/quickstart.py is a complete example.",
    )
