"""The delphi recipe gives back Marin's published suite from its budgets: every shape, batch, step count and rate."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.base import BUDGET_TOLERANCE
from marin_scaling.recipe.marin import DelphiRecipe

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
RECIPE = DelphiRecipe()
LARGE = {"1e21": 1e21, "1e22": 1e22, "1e23": 1e23}

# Hyperparameters of the released models (model cards of marin-community/delphi-*): batch, tokens, matrix and Adam learning
# rate, beta2, epsilon; then the budget and width of the run. Four were trained on up to 0.5 % fewer tokens than the sweep's.
RELEASED = [
    (8, 1_223_393_280, 0.00275999, 0.00033155, 0.9999, 3.66e-08, 3e18, 1024),
    (16, 2_889_875_456, 0.0030114618, 0.0003043116, 0.9999, 3.988e-08, 9e18, 1152),
    (16, 3_598_909_440, 0.0028206104, 0.0002728526, 0.9999, 4.448e-08, 1.8e19, 1408),
    (32, 4_982_571_008, 0.0036221807, 0.0003285714, 0.9999, 3.694e-08, 3e19, 1536),
    (64, 10_528_489_472, 0.0040890708, 0.0003191861, 0.9999, 3.802e-08, 9e19, 1792),
    (64, 14_782_824_448, 0.0036948762, 0.0002695687, 0.9999, 4.502e-08, 1.8e20, 2048),
    (128, 18_617_466_880, 0.0048782215, 0.0003399608, 0.99980001, 3.57e-08, 3e20, 2304),
    (512, 46_256_881_664, 0.007425, 0.0004314, 0.9992, 2.81e-08, 1e21, 2560),
    (1024, 160_369_213_440, 0.0072318, 0.00032762, 0.9984012, 3.704e-08, 1e22, 3840),
]


def rows(name: str) -> list[dict[str, str]]:
    with open(DELPHI / name, newline="") as file:
        return list(csv.DictReader(file))


def published(row: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(float(row[key])) for key in ("num_layers", "batch_size", "train_steps", "tokens", "params"))


@pytest.mark.parametrize("row", rows("runs.csv"), ids=lambda row: row["run"])
def test_each_of_the_81_rungs_follows_from_its_budget_and_width(row: dict[str, str]) -> None:
    """Depth, batch, steps, tokens and parameters exactly; FLOPs to 1e-12."""
    plan = RECIPE.plan(budget_flops=float(row["budget_flops"]), hidden_dim=int(row["hidden_dim"]))
    found = (plan.shape.num_layers, plan.batch_size, plan.train_steps, plan.trained_tokens, plan.shape.params_total)
    assert found == published(row)
    assert plan.flops == pytest.approx(float(row["flops"]), rel=1e-12)
    assert plan.doubts == ()


@pytest.mark.parametrize("row", rows("heldout.csv"), ids=lambda row: row["run"])
def test_each_large_run_follows_from_its_budget_width_and_batch(row: dict[str, str]) -> None:
    """Batches of 512, 1024 and 2048 were chosen for the hardware; all else is the recipe's, exactly."""
    budget = LARGE[row["run"].split("-")[1]]
    plan = RECIPE.plan(budget_flops=budget, hidden_dim=int(row["hidden_dim"]), batch_size=int(row["batch_size"]))
    found = (plan.shape.num_layers, plan.batch_size, plan.train_steps, plan.trained_tokens, plan.shape.params_total)
    assert found == published(row)
    assert plan.flops == pytest.approx(float(row["flops"]), rel=1e-12)


@pytest.mark.parametrize(("batch", "tokens", "rate", "adam", "beta2", "epsilon", "budget", "width"), RELEASED)
def test_the_released_models_rates_follow_from_batch_and_tokens(
    batch: int, tokens: int, rate: float, adam: float, beta2: float, epsilon: float, budget: float, width: int
) -> None:
    """To 0.3 %, as published to three or more digits: from the trained tokens, and from the budget alone."""
    by_tokens = RECIPE.transfer(batch_size=batch, tokens=tokens)
    by_budget = RECIPE.plan(budget_flops=budget, hidden_dim=width, batch_size=batch if budget > 3e20 else None).hyperparameters
    for found in (by_tokens, by_budget):
        assert found.learning_rate == pytest.approx(rate, rel=3e-3)
        assert found.adam_learning_rate == pytest.approx(adam, rel=3e-3)
        assert found.beta2 == pytest.approx(beta2, rel=1e-6)
        assert found.epsilon == pytest.approx(epsilon, rel=3e-3)


def test_the_widths_at_each_budget_are_those_of_the_sweep() -> None:
    """The 81 runs less the three that saw more than 250 tokens per parameter, which Marin left out later: 78."""
    swept: dict[float, set[int]] = {}
    for row in rows("runs.csv"):
        if float(row["tokens"]) <= 250 * float(row["params"]):
            swept.setdefault(float(row["budget_flops"]), set()).add(int(row["hidden_dim"]))
    assert sum(map(len, swept.values())) == 78
    assert {budget: set(RECIPE.widths_at(budget)) for budget in swept} == swept


@given(st.floats(1e18, 1e25), st.integers(4, 80))
def test_a_planned_run_costs_its_budget_within_the_tuned_rates(budget_flops: float, heads: int) -> None:
    """To 1 %, with no rate at or above its cap but at the smallest batch; or it is refused."""
    try:
        plan = RECIPE.plan(budget_flops=budget_flops, hidden_dim=128 * heads)
    except RecipeError:
        return
    assert plan.flops == pytest.approx(budget_flops, rel=BUDGET_TOLERANCE)
    assert plan.batch_size & (plan.batch_size - 1) == 0
    assert plan.hyperparameters.learning_rate < RECIPE.max_learning_rate or plan.batch_size == RECIPE.min_batch_size


def test_a_batch_that_would_cap_a_rate_is_halved_and_it_is_said() -> None:
    """Small models at large budgets: the rule asks for a batch whose learning rate was never tuned."""
    plan = RECIPE.plan(budget_flops=3e22, hidden_dim=2048)
    assert plan.doubts == (f"batch 16384 is halved to {plan.batch_size}, so that no learning rate or beta2 reaches its bound",)
    twice = RECIPE.uncapped_learning_rate(batch_size=2 * plan.batch_size, tokens=plan.planned_tokens)
    assert plan.hyperparameters.learning_rate < 0.01 <= twice


def test_a_batch_from_outside_is_doubted_where_the_rates_were_not_tuned_for_it() -> None:
    """Too large, so that a rate is capped; and too small."""
    large = RECIPE.plan(budget_flops=1e23, hidden_dim=5376, batch_size=65_536).doubts
    small = RECIPE.plan(budget_flops=3e18, hidden_dim=1024, batch_size=4).doubts
    assert large == (
        "learning rates were tuned for batches of 8 to 8192, not 65536",
        "learning_rate at the cap of 0.01",
    )
    assert small == ("learning rates were tuned for batches of 8 to 8192, not 4",)


def test_halving_stops_above_the_least_batch_and_the_cap_is_said() -> None:
    """A least batch of 3 is no power of two, and a rate tuned ten times too high is capped at any batch."""
    hot = replace(RECIPE, min_batch_size=3, tuned_learning_rate=0.09)
    plan = hot.plan(budget_flops=3e18, hidden_dim=1024)
    assert plan.batch_size == 4
    assert plan.doubts[-1] == "learning_rate at the cap of 0.01"


def test_what_the_recipe_cannot_make_is_refused_with_the_numbers() -> None:
    """Half a head, and a budget that pays for no batch."""
    with pytest.raises(RecipeError, match="no width 600"):
        RECIPE.shape(600)
    with pytest.raises(RecipeError, match=r"1e18 FLOPs at width 2048 pay .* tokens, a batch of 1\."):
        RECIPE.plan(budget_flops=1e18, hidden_dim=2048)
