"""What `recipe show` prints is what a recipe does: each formula, evaluated, is the number beside it."""

import math
from dataclasses import replace
from typing import Any

import pytest

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.base import Recipe
from marin_scaling.recipe.find import RECIPES, recipe_document
from marin_scaling.recipe.model_shape import constants_of

MATHEMATICS = {"__builtins__": {}, "min": min, "max": max, "round": round, "log2": math.log2, "ceil": math.ceil, "range": range}
BUDGETS = {
    "quickstart": (3e10, 4.8e11),
    "quickstart-moe": (6e10, 4.8e11),
    "delphi": (3e18, 1.8e20, 1e22),
    "grug-moe": (3e17, 1e19, 1e22),
    "grug-moe-v16": (3e17, 1e19, 1e22),
}


def plans(recipe: Recipe) -> list[Any]:
    return [
        recipe.plan(budget_flops=budget, hidden_dim=width)
        for budget in BUDGETS[recipe.name]
        for width in recipe.widths_at(budget)
    ]


def decided(recipe: Recipe) -> list[Any]:
    """Widths, a narrow and a wide run, one in a given batch, and sizings; None where the recipe makes none."""
    found: list[Any] = [recipe.sizing(budget) for budget in BUDGETS[recipe.name] if hasattr(recipe, "sizing")]
    for budget in BUDGETS[recipe.name]:
        try:
            widths = recipe.widths_at(budget)
            ends = {min(widths), max(widths)} if widths else set()
            found.append([widths, *(recipe.plan(budget_flops=budget, hidden_dim=width).values() for width in sorted(ends))])
            found.append([recipe.plan(budget_flops=budget, hidden_dim=min(ends), batch_size=8).values()] if ends else [])
        except (RecipeError, ZeroDivisionError):
            found.append(None)
    return found


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_formula_gives_the_number_that_the_recipe_planned(recipe: Recipe) -> None:
    """To twelve digits, at every width of several budgets; plans with a halved batch say so instead."""
    constants = {each.name: each.value for each in constants_of(recipe)}
    for plan in plans(recipe):
        known = {**constants, **plan.values()}
        for name, formula in recipe.formulas.items():
            if name == "batch_size" and any("is halved" in doubt for doubt in plan.doubts):
                continue
            assert eval(formula.text, {**MATHEMATICS, **known}) == pytest.approx(known[name], rel=1e-12), name


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_where_a_batch_is_given_every_formula_that_is_shown_gives_the_number_beside_it(recipe: Recipe) -> None:
    """A number that follows from what was given, and not from its formula, is shown without one."""
    constants = {each.name: each.value for each in constants_of(recipe)}
    for plan in plans(recipe):
        for batch_size in (plan.batch_size // 2, 2 * plan.batch_size):
            try:
                given = recipe.plan(budget_flops=plan.budget_flops, hidden_dim=plan.shape.hidden_dim, batch_size=batch_size)
            except RecipeError:
                continue
            shown = recipe_document(recipe, given, batch_is_given=True)["numbers"]
            known = {**constants, **{each["name"]: each["value"] for each in shown}}
            for each in shown:
                if each["formula"]:
                    found = eval(each["formula"], {**MATHEMATICS, **known})
                    assert found == pytest.approx(each["value"], rel=1e-12), each["name"]
            assert next(each["source"] for each in shown if each["name"] == "batch_size").startswith("given")


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_number_of_a_plan_has_a_formula_or_is_a_constant(recipe: Recipe) -> None:
    """But for the two that a person gives: the budget and the width."""
    constants = {each.name: each.value for each in constants_of(recipe)}
    for name, value in plans(recipe)[0].values().items():
        if name not in (*recipe.formulas, "budget_flops", "hidden_dim"):
            assert constants[name] == value, name


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_constants_and_formulas_have_a_source(recipe: Recipe) -> None:
    """A number without a source cannot be argued with."""
    assert all(each.source for each in constants_of(recipe))
    assert all(formula.source for formula in recipe.formulas.values())


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_constant_decides_something(recipe: Recipe) -> None:
    """Some other value of it gives other widths, other numbers of a run, or none: no constant is left over."""
    as_it_is = decided(recipe)
    for each in constants_of(recipe):
        others = [type(each.value)(each.value * factor) for factor in (0.001, 0.5, 0.9, 1.08, 2, 1000)] if each.value else [0.1]
        possible = [other for other in others if other != each.value and other != 0]
        assert any(decided(replace(recipe, **{each.name: other})) != as_it_is for other in possible), each.name
