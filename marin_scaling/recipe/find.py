"""Find a recipe by name: built-in, from a recipe file, or as MODULE:CLASS; and describe it as text and document."""

from __future__ import annotations

import importlib
import math
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from functools import wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import Field as Key
from pydantic import field_validator

from marin_scaling.errors import RecipeError, RecipeFailed
from marin_scaling.recipe.base import Recipe, RungPlan
from marin_scaling.recipe.marin import DelphiRecipe, GrugMoeRecipe, GrugMoeV16Recipe
from marin_scaling.recipe.model_shape import ModelShape, constants_of
from marin_scaling.recipe.quickstart import QuickstartMoeRecipe, QuickstartRecipe
from marin_scaling.strict_model import SLUG_PATTERN, Part
from marin_scaling.units import counted, format_flops, format_number
from marin_scaling.untrusted_files import is_present
from marin_scaling.yaml_config import read_yaml

_FARTHEST_WHOLE = 1000.0  # ratio to the recipe's own value; a larger one is a typo
_FARTHEST = 1e9


class RecipeFile(Part):
    """A recipe file: a base recipe with other constants."""

    name: str = Key(pattern=SLUG_PATTERN)
    """Name of the recipe in its runs; the file is NAME.yaml."""
    base: str
    """Recipe that provides formulas and other constants: a name, MODULE:CLASS, or another file in the same folder."""
    constants: dict[str, float] = Key(min_length=1)
    """New values of the base's constants, which `marin-scale recipe show BASE` lists."""

    @field_validator("constants", mode="before")
    @classmethod
    def _no_truth_values(cls, constants: Any) -> Any:
        for name, value in constants.items() if isinstance(constants, dict) else ():
            if isinstance(value, bool):
                raise ValueError(f"{name} is {str(value).lower()}, not a number")
        return constants


def read_recipe_file(path: Path) -> RecipeFile:
    """Read a recipe file; `RecipeError` lists file, line and key of each fault."""
    return read_yaml(path, RecipeFile, noun="a recipe", refused=_refused)


def overridden(base: Any, file: RecipeFile, *, path: Path) -> Any:
    """Return `base` with the constants of `file`; `RecipeError` for unknown constants and invalid values."""
    if not is_dataclass(base) or isinstance(base, type):
        raise _refused(f"{path}: base: {file.base} is not a dataclass, so it has no constants to override.")
    known = {each.name: each for each in fields(base) if "source" in each.metadata}
    values: dict[str, float] = {}
    for name, value in file.constants.items():
        if name not in known:
            raise _refused(f"{path}: constants.{name}: unknown constant of recipe {file.base!r}; known: {', '.join(known)}.")
        values[name] = _possible(path, known[name], value)
    return replace(base, name=file.name, **values)


def _possible(path: Path, constant: Field[Any], value: float) -> float:
    """Return the value, as an integer for an integer constant, or raise `RecipeError` if the constant does not allow it."""
    own: Any = constant.default
    zero, most, below, signed = (constant.metadata[name] for name in ("zero", "most", "below", "signed"))
    farthest = _FARTHEST_WHOLE if isinstance(own, int) else _FARTHEST
    faults = {
        "below 0" if zero else "not above 0": not signed and (value < 0 or (value == 0 and not zero)),
        f"below -{most}": signed and value < -most,
        f"more than {most}": most is not None and value > most,
        f"not below {below}": below is not None and value >= below,
        f"not an integer, unlike the recipe's {own}": isinstance(own, int) and value != int(value),
        f"more than {format_number(farthest)} times off the recipe's own, {format_number(own)}": bool(own and value)
        and not 1 / farthest <= abs(value / own) <= farthest,
    }
    for fault, holds in faults.items():
        if holds:
            raise _refused(f"{path}: constants.{constant.name}: {format_number(value)} is {fault}.")
    return int(value) if isinstance(own, int) else value


def _refused(what: str | tuple[str, ...]) -> RecipeError:
    return RecipeError(
        what,
        fix="Fix the file: name, base, and constants of the base with their new values.",
    )


def guarded(recipe: Recipe, name: str) -> Recipe:
    """Return the object as a subclass whose methods raise only `RecipeError` and `RecipeFailed`.

    A subclass, unlike a wrapper, stays a dataclass whose constants a recipe file can override.
    """
    kind = type(recipe)
    methods = {
        method: _guarded(getattr(kind, method), gives, f"{name!r}: its method {method}")
        for method, gives in _GIVES.items()
        if callable(getattr(kind, method, None))
    }
    object.__setattr__(recipe, "__class__", type(kind.__name__, (kind,), {"__slots__": (), **methods}))
    return recipe


def _guarded(method: Callable[..., Any], gives: Callable[[Any], Any], what: str) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return gives(method(*arguments, **options))
        except (RecipeError, RecipeFailed):
            raise
        except Exception as error:
            raise RecipeFailed(
                f"{what} failed: {type(error).__name__}: {error}.",
                fix="Fix the class; it should raise marin_scaling.errors.RecipeError for an impossible budget or width.",
            ) from error

    return call


def _widths(found: Any) -> tuple[int, ...]:
    return tuple(int(width) for width in found)


def _of_kind(kind: type) -> Callable[[Any], Any]:
    def check(found: Any) -> Any:
        if not isinstance(found, kind):
            raise TypeError(f"it returns {type(found).__name__} instead of {kind.__name__}")
        return found

    return check


_GIVES: dict[str, Callable[[Any], Any]] = {
    "widths": _widths,
    "widths_at": _widths,
    "usual_width": int,
    "shape": _of_kind(ModelShape),
    "plan": _of_kind(RungPlan),
}
"""Types of the interface's results, by method."""


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
RECIPE_FILES = (".yaml", ".yml")
"""Endings of recipe files."""
_DEEPEST = 8  # levels of recipe files; more indicates a cycle


_TRUSTED: set[str] = set()


def trust_recipe(name: str) -> None:
    """Allow this process to run the code at MODULE:CLASS, or to read a recipe file outside of the current folder."""
    _TRUSTED.add(name)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name, MODULE:CLASS, or path of a .yaml file; `RecipeError` lists the known names.

    `RecipeError` for a MODULE:CLASS, also as the base of a file, without an earlier call of `trust_recipe`.

    >>> find_recipe("delphi").shape(512).num_layers
    6
    """
    return _find(name, depth=0)


def recipe_names() -> list[str]:
    """Return the names of built-in and installed recipes."""
    return sorted({*RECIPES, *entry_points(group=ENTRY_POINTS).names})


def _find(name: str, *, depth: int) -> Recipe:
    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(RECIPE_FILES):
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
        f"Unknown recipe {name!r}.",
        fix=f"Use one of: {', '.join(recipe_names())}; or MODULE:CLASS, or a recipe file like recipes/mine.yaml.",
    )


def _from_file(path: Path, *, depth: int) -> Recipe:

    if depth >= _DEEPEST:
        raise RecipeError(
            f"{path}: base: recipe files form a cycle, or more than {_DEEPEST} levels.",
            fix=f"Set the base of one of them to a recipe: {', '.join(recipe_names())}.",
        )
    file = read_recipe_file(path)
    if file.name in recipe_names():
        raise RecipeError(
            f"{path}: name: {file.name!r} is the name of another recipe.",
            why="Records identify a recipe by its name.",
            fix="Rename the file and the recipe in it.",
        )
    found: Recipe = overridden(_base(file.base, path, depth=depth + 1), file, path=path)
    return found


def _base(name: str, path: Path, *, depth: int) -> Recipe:
    """Return the base of the recipe file at `path`: a file in the same folder, or a recipe by name."""
    sibling = path.parent / name
    if name.endswith(RECIPE_FILES) and is_present(sibling):
        _require_inside(name)
        return _from_file(sibling, depth=depth)
    return _find(name, depth=depth)


def _require_inside(name: str) -> None:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise RecipeError(
            f"The recipe file {name} is outside of the current folder.",
            why="A file of a pull request could name any file of this machine, whose content would be shown.",
            fix=f"Copy it into recipes/, or allow it: {_trusting(name)}",
        )


def _imported(module: str, attribute: str) -> Any:
    """Import a module of the current folder from source; compiled files and libraries are not what the user has read."""
    prefix = sys.pycache_prefix
    with tempfile.TemporaryDirectory() as empty:
        sys.path.insert(0, str(Path.cwd()))
        sys.pycache_prefix = empty
        try:
            found = importlib.import_module(module)
        finally:
            sys.path.pop(0)
            sys.pycache_prefix = prefix
    origin = str(getattr(found, "__file__", None))
    if Path(origin).is_relative_to(Path.cwd()) and not origin.endswith(".py"):
        raise ImportError(f"{origin} is not Python source")
    return getattr(found, attribute)


def _checked(name: str, load: Callable[[], Any]) -> Recipe:
    """Load and check a user's recipe; any exception in it becomes an error about the recipe."""
    try:
        found: Recipe = load()()
    except Exception as error:
        raise _no_recipe(name, f"{type(error).__name__}: {error}") from error
    missing = [each for each in _INTERFACE if not hasattr(found, each)]
    if missing:
        raise _no_recipe(name, f"it lacks {', '.join(missing)}")
    return guarded(found, name)


def _untrusted(name: str) -> RecipeError:
    return RecipeError(
        f"The recipe {name!r} is Python code that a file names, and was not run.",
        why="A file of a pull request could run any code as you."
        + (f" You trusted another: {', '.join(sorted(_TRUSTED))}." if _TRUSTED else ""),
        fix=f"Read that code, then allow it: {_trusting(name)}",
    )


def _trusting(name: str) -> str:
    return f"marin-scale --trust-recipe {shlex.quote(name)} COMMAND"


def _no_recipe(name: str, reason: str) -> RecipeError:
    return RecipeError(
        f"{name!r} is not a usable recipe: {reason}.",
        fix="Write a class without constructor arguments that has "
        f"{', '.join(_INTERFACE)}; marin_scaling/recipe/quickstart.py is a complete example.",
    )


USUAL_TOKENS_PER_PARAM = 20.0
"""Tokens per parameter of the width to show (rule of thumb of Hoffmann et al. 2022); a fit chooses better."""
_WIDTH = 80
_NAME = 24
_NARROWEST = 30
_GIVEN = {"budget_flops": "given", "hidden_dim": "given; the width of a target follows from the fit"}
_BATCH_GIVEN = "given, in place of the recipe's own"
_OWN_STEPS = "as with the recipe's own batch: what the budget pays for in whole steps of that"


def usual_plan(
    recipe: Recipe, *, budget_flops: float, hidden_dim: int | None = None, batch_size: int | None = None
) -> RungPlan:
    """Plan the run of this budget at the given width, the recipe's usual width, or the one nearest `USUAL_TOKENS_PER_PARAM`.

    A recipe may have a method `usual_width(budget_flops)`. `RecipeError` if there is no width.
    """
    if hidden_dim is not None:
        return recipe.plan(budget_flops=budget_flops, hidden_dim=hidden_dim, batch_size=batch_size)
    widths = recipe.widths_at(budget_flops)
    if not widths:
        raise RecipeError(
            f"The recipe {recipe.name!r} makes no run of {format_flops(budget_flops)} FLOPs.",
            why="No width has both a batch that the learning rates were tuned for and a sensible number of tokens.",
            fix="Choose another budget, or a width: --width",
        )
    if hasattr(recipe, "usual_width"):
        widths = (recipe.usual_width(budget_flops),)
    plans = [recipe.plan(budget_flops=budget_flops, hidden_dim=width, batch_size=batch_size) for width in widths]
    return min(plans, key=lambda plan: abs(math.log(plan.tokens_per_param / USUAL_TOKENS_PER_PARAM)))


def recipe_document(recipe: Recipe, plan: RungPlan, *, batch_is_given: bool = False) -> dict[str, Any]:
    """Return every number of one run by name, with formula and source, and the recipe's constants."""
    return {
        "recipe": recipe.name,
        "optimizer": plan.optimizer,
        "constant_norm": plan.constant_norm,
        "widths": list(recipe.widths_at(plan.budget_flops)),
        "numbers": [
            {"name": name, "value": value, "formula": formula, "source": source}
            for name, value, formula, source in _numbers(recipe, plan, batch_is_given)
        ],
        "constants": [{"name": each.name, "value": each.value, "source": each.source} for each in constants_of(recipe)],
        "doubts": list(plan.doubts),
    }


def recipe_text(recipe: Recipe, plan: RungPlan, *, batch_is_given: bool = False) -> str:
    """Format a run for a terminal, with numbered sources below."""
    widths, numbers = recipe.widths_at(plan.budget_flops), _numbers(recipe, plan, batch_is_given)
    among = (
        f"sensible there: {counted(len(widths), 'width')}, {widths[0]} to {widths[-1]}" if widths else "no width is sensible"
    )
    head = (
        f"recipe {recipe.name}: {format_flops(plan.budget_flops)} FLOPs at width {plan.shape.hidden_dim}, "
        f"{plan.tokens_per_param:.3g} tokens per parameter, optimizer {plan.optimizer}, which keeps the norm of each "
        f"{plan.constant_norm} ({among})"
    )
    rest = [(each.name, each.value, "", each.source) for each in constants_of(recipe) if each.name not in plan.values()]
    cited = list(dict.fromkeys(source for *_, source in (*numbers, *rest) if source))
    parts = {
        "": [_entry(number, cited) for number in numbers],
        "other constants:": [_entry(constant, cited) for constant in rest],
        "sources:": [f"  [{place}] {source}" for place, source in enumerate(cited, start=1)],
    }
    blocks = ["\n".join([name, *lines]).lstrip("\n") for name, lines in parts.items()]
    doubts = [f"warning: {doubt}" for doubt in plan.doubts]
    return "\n\n".join([textwrap.fill(head, _WIDTH), *doubts, *blocks])


def difference_text(first: Recipe, second: Recipe, plans: tuple[RungPlan, RungPlan] | None = None) -> str:
    """Format constants and formulas that differ between two recipes, and numbers of one run of each if given."""
    constants = [{each.name: each.value for each in constants_of(recipe)} for recipe in (first, second)]
    formulas = [{name: formula.text for name, formula in recipe.formulas.items()} for recipe in (first, second)]
    parts = {"constants": _differences(*constants), "formulas": _differences(*formulas)}
    if plans is not None:
        numbers = [{"optimizer": plan.optimizer, "constant_norm": plan.constant_norm, **plan.values()} for plan in plans]
        runs = " against ".join(f"width {plan.shape.hidden_dim}" for plan in plans)
        parts[f"numbers at {format_flops(plans[0].budget_flops)} FLOPs, {runs}"] = _differences(*numbers)
    if not any(parts.values()):
        return f"{first.name} and {second.name} do not differ."
    differences = [f"{name}:\n" + "\n".join(rows) for name, rows in parts.items() if rows]
    return "\n\n".join([f"{first.name} against {second.name}", *differences])


def _numbers(recipe: Recipe, plan: RungPlan, batch_is_given: bool) -> list[tuple[str, float, str, str]]:
    """Return name, value, formula and source of each number; given numbers have no formula."""
    constants = {each.name: each.source for each in constants_of(recipe)}
    given = _GIVEN | ({"batch_size": _BATCH_GIVEN} if batch_is_given else {})
    given |= {"planned_tokens": _OWN_STEPS} if plan.wanted_tokens is not None else {}
    found = {name: formula for name, formula in recipe.formulas.items() if name not in given}
    return [
        (name, value, *found.get(name, ("", given.get(name) or constants.get(name, "the recipe's own"))))
        for name, value in plan.values().items()
    ]


def _entry(number: tuple[str, float, str, str], cited: list[str]) -> str:
    name, value, formula, source = number
    head = f"  {name:<{_NAME}} {_number(value):>14}  "
    cited_formula = f"{formula} [{cited.index(source) + 1}]".strip()
    lines = textwrap.wrap(cited_formula, max(_WIDTH - len(head), _NARROWEST))
    return "\n".join([f"{head}{lines[0]}", *(" " * len(head) + line for line in lines[1:])])


def _number(value: float) -> str:
    """Format integers in full, and other numbers with enough digits to distinguish two plans."""
    return f"{value}" if isinstance(value, int) else format_number(value)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys([*first, *second])
    rows = []
    for name in names:
        one, other = first.get(name, "-"), second.get(name, "-")
        if one != other:
            rows.append(_difference(name, one, other))
    return rows


def _difference(name: str, one: Any, other: Any) -> str:
    """Format two numbers side by side, or two formulas below each other."""
    if max(len(str(one)), len(str(other))) > _WIDTH - 2 * _NAME:
        return f"  {name}\n    {one}\n    {other}"
    one, other = (each if isinstance(each, str) else _number(each) for each in (one, other))
    return f"  {name:<{_NAME}} {one:>14}  {other}"
