"""Find a recipe by name: built-in, from a recipe file, or as MODULE:CLASS."""

from __future__ import annotations

import importlib
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass, replace
from functools import wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import Field as Key
from pydantic import field_validator

from marin_scaling.errors import RecipeError, RecipeFailed
from marin_scaling.recipe.base import Recipe, RungPlan
from marin_scaling.recipe.delphi import DelphiRecipe
from marin_scaling.recipe.grug_moe import GrugMoeRecipe, GrugMoeV16Recipe
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.recipe.quickstart import QuickstartMoeRecipe, QuickstartRecipe
from marin_scaling.strict_model import Part
from marin_scaling.untrusted_files import is_present
from marin_scaling.yaml_config import read_yaml

_FARTHEST_WHOLE = 1000.0  # times the recipe's own: what lies farther off is a slip of the hand
_FARTHEST = 1e9


class RecipeFile(Part):
    """A recipe as written down."""

    name: str = Key(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    """What runs of it are called by; the file is NAME.yaml."""
    base: str
    """The recipe whose formulas and other constants are taken: a name, MODULE:CLASS, or another file beside this one."""
    constants: dict[str, float] = Key(min_length=1)
    """Constants of the base and their new values; `marin-scale recipe show BASE` lists them."""

    @field_validator("constants", mode="before")
    @classmethod
    def _no_truth_values(cls, constants: Any) -> Any:
        for name, value in constants.items() if isinstance(constants, dict) else ():
            if isinstance(value, bool):
                raise ValueError(f"{name} is {str(value).lower()}, not a number")
        return constants


def read_recipe_file(path: Path) -> RecipeFile:
    """The recipe in a YAML file; `RecipeError` says file, line and key of what is wrong."""
    return read_yaml(path, RecipeFile, noun="a recipe", refused=_refused)


def overridden(base: Any, file: RecipeFile, *, path: Path) -> Any:
    """`base` with the constants of `file`; `RecipeError` names a constant that it does not have or that cannot be that."""
    if not is_dataclass(base) or isinstance(base, type):
        raise _refused(f"{path}: base: {file.base} has no constants to override; it is no dataclass.")
    known = {each.name: each for each in fields(base) if "source" in each.metadata}
    values: dict[str, float] = {}
    for name, value in file.constants.items():
        if name not in known:
            raise _refused(f"{path}: constants.{name}: the recipe {file.base!r} has no such constant ({', '.join(known)}).")
        values[name] = _possible(path, known[name], value)
    return replace(base, name=file.name, **values)


def _possible(path: Path, constant: Field[Any], value: float) -> float:
    """The value, as a whole number where the constant is one; `RecipeError` where the constant cannot be that."""
    own: Any = constant.default
    zero, most, below = (constant.metadata[name] for name in ("zero", "most", "below"))
    farthest = _FARTHEST_WHOLE if isinstance(own, int) else _FARTHEST
    faults = {
        "not 0 or more" if zero else "not more than 0": value < 0 or (value == 0 and not zero),
        f"more than {most}": most is not None and value > most,
        f"not below {below}": below is not None and value >= below,
        f"no whole number, as {own} is": isinstance(own, int) and value != int(value),
        f"more than {farthest:g} times off the recipe's own, {own:g}": bool(own and value)
        and not 1 / farthest <= value / own <= farthest,
    }
    for fault, holds in faults.items():
        if holds:
            raise _refused(f"{path}: constants.{constant.name}: {value:g} is {fault}.")
    return int(value) if isinstance(own, int) else value


def _refused(what: str | tuple[str, ...]) -> RecipeError:
    return RecipeError(
        what,
        why="A recipe is written down and checked before anything is planned with it.",
        fix="Correct the file: name, base, and constants of the base with their new values.",
    )


def guarded(recipe: Recipe, name: str) -> Recipe:
    """The same object, of a subclass whose methods raise nothing but `RecipeError` and `RecipeFailed`.

    A subclass and no wrapper, so that it stays a dataclass whose constants a recipe file can override.
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
                why="Without it there is no run to plan.",
                fix="Mend the class; where a budget or width makes no run, let it raise marin_scaling.errors.RecipeError.",
            ) from error

    return call


def _widths(found: Any) -> tuple[int, ...]:
    return tuple(int(width) for width in found)


def _width(found: Any) -> int:
    return int(found)


def _of_kind(kind: type) -> Callable[[Any], Any]:
    def check(found: Any) -> Any:
        if not isinstance(found, kind):
            raise TypeError(f"it gives a {type(found).__name__}, not a {kind.__name__}")
        return found

    return check


_GIVES: dict[str, Callable[[Any], Any]] = {
    "widths": _widths,
    "widths_at": _widths,
    "usual_width": _width,
    "shape": _of_kind(ModelShape),
    "plan": _of_kind(RungPlan),
}
"""What the methods of the interface give, by name."""


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
            fix=f"Copy it into recipes/, or name it yourself, before the command: {_trusting(name)}",
        )


def _imported(module: str, attribute: str) -> Any:
    """Import from the current folder, from source: compiled files and libraries beside it are not what the user has read."""
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
        why="A file of a pull request could run any code as you."
        + (f" You trusted another: {', '.join(sorted(_TRUSTED))}." if _TRUSTED else ""),
        fix=f"Read that code, then name it yourself, before the command: {_trusting(name)}",
    )


def _trusting(name: str) -> str:
    return f"marin-scale --trust-recipe {shlex.quote(name)} COMMAND"


def _no_recipe(name: str, reason: str) -> RecipeError:
    return RecipeError(
        f"{name!r} is not a recipe that can be used: {reason}.",
        why="A recipe of your own is a class that is made without arguments and has the interface of marin_scaling's Recipe.",
        fix=f"Give it {', '.join(_INTERFACE)}; marin_scaling/recipe/quickstart.py is a complete example.",
    )
