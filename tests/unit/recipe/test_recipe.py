"""A recipe meets its budget, transfers its constants by the published rules, and refuses what it cannot make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.hyperparameters import TunedAt, transfer
from marin_scaling.recipe.recipe import BUDGET_TOLERANCE, QuickstartRecipe, find_recipe

DELPHI = TunedAt(
    batch_size=64,
    tokens=2_500_000_000,
    learning_rate=0.00630,
    adam_learning_rate=0.000656,
    beta2=0.9999,
    epsilon=1.85e-8,
    max_learning_rate=0.01,
)


@pytest.mark.parametrize(
    ("batch_size", "tokens", "learning_rate", "adam_learning_rate", "epsilon"),
    [  # published hyperparameters of Delphi's models (Marin's model registry): 3e18, 9e18, 2e19
        (8, 1_223_393_280, 0.00275999, 0.00033155, 3.66e-8),
        (16, 2_889_875_456, 0.0030114618, 0.0003043116, 3.988e-8),
        (16, 3_598_909_440, 0.0028206104, 0.0002728526, 4.448e-8),
    ],
)
def test_the_transfer_rules_give_delphis_published_rates(
    batch_size: int, tokens: int, learning_rate: float, adam_learning_rate: float, epsilon: float
) -> None:
    """To 0.3 %: the published rates were computed from the planned token count, not from the one that was trained."""
    found = transfer(DELPHI, batch_size=batch_size, tokens=tokens)
    assert found.learning_rate == pytest.approx(learning_rate, rel=3e-3)
    assert found.adam_learning_rate == pytest.approx(adam_learning_rate, rel=3e-3)
    assert found.epsilon == pytest.approx(epsilon, rel=3e-3)
    assert found.beta2 == 0.9999


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
