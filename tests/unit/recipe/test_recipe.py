"""A recipe meets its budget, and refuses what it cannot make."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.base import BUDGET_TOLERANCE
from marin_scaling.recipe.find import find_recipe
from marin_scaling.recipe.marin import DelphiRecipe
from marin_scaling.recipe.quickstart import QuickstartRecipe


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
    """The error says which widths there are."""
    with pytest.raises(RecipeError, match="no width 33") as caught:
        QuickstartRecipe().plan(budget_flops=1e11, hidden_dim=33)
    assert caught.value.fix == "Choose a width from 8 to 128, in steps of 4."


def test_an_unknown_recipe_is_refused() -> None:
    """The error lists the recipes there are."""
    with pytest.raises(RecipeError, match="recipe 'delfi'") as caught:
        find_recipe("delfi")
    assert "quickstart" in caught.value.fix


def test_sensible_widths_see_neither_two_few_tokens_for_each_parameter_nor_too_many() -> None:
    """2 to 250, at every budget of its ladder; the committed ladder's widths are among them."""
    recipe = QuickstartRecipe()
    for budget, named in ((3e10, (8, 12, 16, 24)), (4.8e11, (16, 24, 32, 48))):
        sensible = recipe.widths_at(budget)
        ratios = [recipe.plan(budget_flops=budget, hidden_dim=width).tokens_per_param for width in sensible]
        assert set(named) <= set(sensible)
        assert 2 <= min(ratios) <= max(ratios) <= 250
    assert recipe.widths_at(3e18) == ()


def test_a_schedule_longer_than_the_run_is_refused() -> None:
    """Half of the steps to warm up and nine tenths to decay."""
    with pytest.raises(RecipeError, match=r"warmup_fraction 0\.5 and decay_fraction 0\.9"):
        replace(QuickstartRecipe(), warmup_fraction=0.5, decay_fraction=0.9).plan(budget_flops=1e11, hidden_dim=16)


def test_a_model_without_a_head_is_refused() -> None:
    """Heads as wide as ten models."""
    with pytest.raises(RecipeError, match="num_heads is 0 at width 512"):
        replace(DelphiRecipe(), width_of_head=1024).shape(512)
