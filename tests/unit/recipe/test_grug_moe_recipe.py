"""The grug-moe recipes give back Marin's published mixtures of experts: sizes, FLOPs by both counts, batches and rates."""

import math

import pytest

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.marin import GrugMoeRecipe, GrugMoeV16Recipe
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, WITHOUT_LM_HEAD, MoeShape, flops_convention, forward_flops_per_token

MAY, V16 = GrugMoeRecipe(), GrugMoeV16Recipe()

# Marin #4447, sizing table: budget, active and total parameters and tokens in 1e9 as written there, width, depth.
SIZING = [
    (1e21, "1.7", "14", "104", 2400, 24),
    (1e22, "5.4", "43", "329", 3520, 35),
    (1e23, "17.2", "137", "1.0e3", 5170, 50),
    (1e24, "54.3", "434", "3.3e3", 7590, 71),
    (1e25, "171.7", "1.4e3", "10.4e3", 11150, 102),
]
# Compute-optimal baselines (Marin, experiments/grug/moe/README.md and #6074): FLOPs without the head, width, depth, tokens.
BASELINES = [
    (V16, 2.19e17, 512, 6, 8.37e8),
    (V16, 1.7e18, 768, 8, 2.71e9),
    (V16, 9e18, 1024, 11, 6.63e9),
    (V16, 2.83e19, 1280, 13, 1.24e10),
    (MAY, 3.82e17, 512, 6, 1.44e9),
    (MAY, 2.81e18, 768, 8, 4.42e9),
    (MAY, 1.16e19, 1024, 11, 8.43e9),
    (MAY, 3.46e19, 1280, 13, 1.5e10),
]
# Batches and steps of May's four (#6074). The recipe's own formula gives 128 for width 768, where 64 was taken.
BATCHES = [(3.82e17, 512, 32, 10980), (2.81e18, 768, 64, 16875), (1.16e19, 1024, 128, 16080), (3.46e19, 1280, 256, 14325)]


def half_of_the_last_digit(written: str) -> float:
    digits, _, exponent = written.partition("e")
    return float(10 ** (int(exponent or 0) - len(digits.partition(".")[2])) / 2)


@pytest.mark.parametrize("row", SIZING, ids=lambda row: f"{row[0]:g}")
def test_the_sizing_table_follows_from_its_two_laws(row: tuple[float, str, str, str, int, int]) -> None:
    """Each of its numbers, rounded as it was published; widths to ten."""
    budget, *published, width, depth = row
    found = V16.sizing(budget)
    for value, written in zip((found.params_active, found.params_total, found.tokens), published, strict=True):
        assert value / 1e9 == pytest.approx(float(written), abs=half_of_the_last_digit(written) * 1.001)
    assert round(found.hidden_dim, -1) == width
    assert found.num_layers == depth


@pytest.mark.parametrize("row", BASELINES, ids=lambda row: f"{row[0].name}-{row[2]}")
def test_the_compute_optimal_baselines_cost_what_was_published(row: tuple[GrugMoeRecipe, float, int, int, float]) -> None:
    """FLOPs without the output head to half a percent, at the published tokens; depth exactly."""
    recipe, budget, width, depth, tokens = row
    shape = recipe.shape(width)
    assert shape.num_layers == depth
    assert 3 * forward_flops_per_token(shape) * tokens == pytest.approx(budget, rel=0.005)
    assert recipe.plan(budget_flops=budget, hidden_dim=width).trained_tokens == pytest.approx(tokens, rel=0.006)


@pytest.mark.parametrize("row", BATCHES, ids=lambda row: f"{row[1]}")
def test_batches_and_steps_of_the_may_baselines(row: tuple[float, int, int, int]) -> None:
    """Three batches follow; the fourth is twice the published one. Steps at the published batch agree to half a percent."""
    budget, width, batch, steps = row
    own, given = (MAY.plan(budget_flops=budget, hidden_dim=width, batch_size=size) for size in (None, batch))
    assert own.batch_size == (128 if width == 768 else batch)
    assert given.train_steps == pytest.approx(steps, rel=0.005)


def test_the_run_of_1e23_flops_has_its_published_sizes() -> None:
    """129.1B parameters (ours: 129.2), 15.9B of them active (Marin #4697)."""
    shape = MoeShape(
        hidden_dim=5120,
        intermediate_dim=2560,
        num_layers=48,
        num_heads=40,
        num_kv_heads=10,
        vocab_size=128_256,
        seq_len=4096,
        num_experts=64,
        experts_per_token=4,
        shared_intermediate_dim=5120,
        norm_gate_rank=128,
    )
    assert shape.params_total == pytest.approx(129.1e9, rel=1e-3)
    assert round(shape.params_active / 1e9, 1) == 15.9


def test_the_67b_run_has_its_published_sizes() -> None:
    """26 layers of width 2560 follow; 67B parameters, 2B active outside the embeddings (Marin #6044; Levanter's snowball)."""
    shape = MAY.shape(2560)
    assert (shape.num_layers, shape.num_heads, shape.num_kv_heads, shape.intermediate_dim) == (26, 20, 5, 1280)
    assert round(shape.params_total / 1e9) == 67
    assert round((shape.params_active - 2 * shape.vocab_size * shape.hidden_dim) / 1e9) == 2


def test_the_count_with_the_head_is_what_the_tracker_showed() -> None:
    """W&B's counter has 1.13e21 for the run of width 2560 that is 1e21 without the head (Marin, dial_moe summary)."""
    plan = V16.plan(budget_flops=1e21, hidden_dim=2560)
    assert plan.values()["flops_with_lm_head"] == pytest.approx(1.13e21, rel=0.002)


def test_each_kind_of_model_has_its_convention() -> None:
    """Mixtures without the head; and the two differ by the head alone."""
    shape = MAY.shape(1024)
    assert flops_convention(shape) == WITHOUT_LM_HEAD
    difference = forward_flops_per_token(shape, convention=WITH_LM_HEAD) - forward_flops_per_token(shape)
    assert difference == 2 * 1024 * 128_256


def test_the_hero_runs_rates_follow_from_the_same_form() -> None:
    """Marin's August constants (#7856) in May's formula give the published rates of the 535B run (#8435)."""
    august = GrugMoeRecipe(adam_rate_factor=0.087571, rate_token_exponent=0.3461, rate_width_exponent=0.3448)
    found = august.rates(batch_tokens=11264 * 4096, tokens=390_139 * 11264 * 4096, hidden_dim=6144)
    assert found.learning_rate == pytest.approx(0.003291, rel=1e-3)
    assert found.adam_learning_rate == pytest.approx(0.000759, rel=1e-3)
    assert found.epsilon == pytest.approx(6.04e-15, rel=1e-3)
    assert (round(found.beta1, 2), found.beta2) == (0.91, 0.95)


def test_matrix_rates_of_may_are_18_31_by_sequences() -> None:
    """The published form of the same rule: 18.31 T^-.395 H^-.15 sqrt(B) with B in sequences of 4096 (#5951)."""
    found = MAY.rates(batch_tokens=64 * 4096, tokens=4e9, hidden_dim=768)
    assert found.learning_rate == pytest.approx(18.31 * 4e9**-0.395 * 768**-0.15 * math.sqrt(64), rel=1e-3)


@pytest.mark.train
def test_levanters_count_of_the_same_shape_agrees() -> None:
    """Ours is Levanter's formula for experts, a shared one and a router, without the head."""
    utils = pytest.importorskip("levanter.utils.flop_utils", reason="Levanter is not installed (extra: train)")
    shape = V16.shape(1536)
    levanters = utils.lm_flops_per_token(
        hidden_dim=shape.hidden_dim,
        intermediate_dim=shape.intermediate_dim,
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        num_heads=shape.num_heads,
        seq_len=shape.seq_len,
        vocab_size=shape.vocab_size,
        glu=True,
        num_experts=shape.num_experts,
        num_shared_experts=1,
        num_experts_per_tok=shape.experts_per_token,
        shared_intermediate_dim=shape.shared_intermediate_dim,
    )
    assert forward_flops_per_token(shape, convention=WITH_LM_HEAD) == levanters


@pytest.mark.parametrize("constants", [{"num_experts": 4}, {"experts_per_token": 300}])
def test_a_router_without_a_choice_is_refused(constants: dict[str, int]) -> None:
    """It balances by the first expert that is not chosen."""
    with pytest.raises(RecipeError, match="experts are chosen"):
        GrugMoeRecipe(**constants).shape(512)


def test_a_budget_too_small_for_any_width_has_none() -> None:
    """Then the ladder says so, and nothing is planned."""
    assert MAY.widths_at(1e12) == ()
