"""A recipe meets its budget, and refuses what it cannot make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.quickstart import QuickstartRecipe
from marin_scaling.recipe.run_plan import BUDGET_TOLERANCE


@given(st.floats(1e11, 1e14), st.sampled_from(QuickstartRecipe().widths()))
def test_a_planned_run_costs_its_budget(budget_flops: float, hidden_dim: int) -> None:
    """To 1 %, or it is refused."""
    try:
        plan = QuickstartRecipe().plan(budget_flops=budget_flops, hidden_dim=hidden_dim)
    except RecipeError:
        return
    assert plan.flops == pytest.approx(budget_flops, rel=BUDGET_TOLERANCE)


def test_a_budget_too_small_for_a_step_is_refused() -> None:
    """The error says how many steps the budget pays for."""
    with pytest.raises(RecipeError, match=r"0\.0 steps at width 64"):
        QuickstartRecipe().plan(budget_flops=1e6, hidden_dim=64)


def test_a_width_that_the_recipe_cannot_make_is_refused() -> None:
    """The error lists the widths there are."""
    with pytest.raises(RecipeError, match="no width 33") as caught:
        QuickstartRecipe().plan(budget_flops=1e11, hidden_dim=33)
    assert "32" in caught.value.fix


def test_an_unknown_recipe_is_refused() -> None:
    """The error lists the recipes there are."""
    with pytest.raises(RecipeError, match="no recipe 'delfi'") as caught:
        find_recipe("delfi")
    assert "quickstart" in caught.value.fix
