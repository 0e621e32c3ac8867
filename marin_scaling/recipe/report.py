"""Output of `marin-scale recipe`: every number of a run with formula and source, and differences between recipes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.base import Recipe, RungPlan
from marin_scaling.recipe.formulas import constants_of
from marin_scaling.units import counted, format_flops, format_number

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
