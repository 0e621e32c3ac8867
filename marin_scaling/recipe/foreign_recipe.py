"""A recipe of somebody else's, guarded: whatever goes wrong in its methods is said as a fault of the recipe, with its name.

Knows what each method of the interface gives; whether the numbers are sensible is the recipe's own business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from marin_scaling.errors import RecipeError, RecipeFailed
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.recipe.recipe import Recipe
from marin_scaling.recipe.run_plan import RungPlan


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
