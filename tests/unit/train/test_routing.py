"""Routing: each formula against NumPy, what quantile balancing promises, and that no token loses an expert."""

import numpy as np
import pytest

pytest.importorskip("jax", reason="the train extra is not installed")

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_scaling.train.moe import _packed, _ragged, balancing_bias, route, router_loss, through_experts, with_auxiliary_loss

pytestmark = pytest.mark.train

SIZES = [(2, 1, 20), (5, 3, 41), (9, 4, 33)]
"""Experts, of which so many are chosen, and tokens; few, because each is compiled."""
ROUTE = jax.jit(route, static_argnames="experts_per_token")
BIAS = jax.jit(balancing_bias, static_argnames="experts_per_token")


def drawn(num_experts: int, tokens: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(tokens, num_experts)).astype(np.float32), random.normal(size=num_experts).astype(np.float32)


@given(st.sampled_from(SIZES), st.integers(0, 2**31))
@settings(max_examples=25)
def test_a_token_goes_to_the_highest_biased_logits(size: tuple[int, int, int], seed: int) -> None:
    """Their weights are sigmoids of the plain logits, times what makes them sum to 2.5."""
    num_experts, chosen, tokens = size
    logits, bias = drawn(num_experts, tokens, seed)
    found = ROUTE(jnp.asarray(logits), jnp.asarray(bias), experts_per_token=chosen)
    for token in range(tokens):
        expected = np.argsort(-(logits[token] + bias), kind="stable")[:chosen]
        gates = 1 / (1 + np.exp(-logits[token][expected]))
        assert np.asarray(found.experts[token]).tolist() == expected.tolist()
        assert np.asarray(found.weights[token]) == pytest.approx(2.5 * gates / gates.sum(), rel=1e-5)


@given(st.sampled_from(SIZES), st.integers(0, 2**31))
@settings(max_examples=25)
def test_with_the_next_bias_each_expert_would_have_passed_its_share(size: tuple[int, int, int], seed: int) -> None:
    """An even load, to one token, lies between the tokens that have it above their threshold and those that have it there."""
    num_experts, chosen, tokens = size
    logits, bias = drawn(num_experts, tokens, seed)
    threshold = np.sort(logits + bias, axis=1)[:, num_experts - 1 - chosen]
    found = np.asarray(BIAS(jnp.asarray(logits), threshold=jnp.asarray(threshold), experts_per_token=chosen))
    distance, even = logits + found - threshold[:, None], tokens * chosen / num_experts
    assert ((distance > 1e-5).sum(axis=0) <= even + 1).all()
    assert ((distance > -1e-5).sum(axis=0) >= even - 1).all()


def test_quantile_balancing_evens_out_a_skewed_router() -> None:
    """Of eight experts that differ by many deviations, the fullest comes from four even shares to 1.1 in ten steps."""
    random = np.random.default_rng(0)
    skew, bias, fullest = np.linspace(-3, 3, 8), jnp.zeros(8), []
    for _ in range(10):
        logits = jnp.asarray(random.normal(size=(4096, 8)) + skew, jnp.float32)
        routing = ROUTE(logits, bias, experts_per_token=2)
        fullest.append(np.bincount(np.asarray(routing.experts).ravel(), minlength=8).max() / (4096 * 2 / 8))
        bias = routing.next_bias
    assert fullest[0] > 3
    assert fullest[-1] < 1.1


def test_an_auxiliary_loss_is_in_the_gradient_and_not_in_the_value() -> None:
    """Gradients are those of the sum, whatever is done with the value afterwards."""

    def aside(x: jax.Array) -> jax.Array:
        return 3.0 * with_auxiliary_loss(x**2, jnp.sum(jnp.sin(x))).sum()

    def added(x: jax.Array) -> jax.Array:
        return 3.0 * (x**2).sum() + jnp.sum(jnp.sin(x))

    x = jnp.asarray([0.3, -1.2])
    assert aside(x) == 3.0 * (x**2).sum()
    assert jax.grad(aside)(x) == pytest.approx(jax.grad(added)(x))


def test_a_step_of_rate_one_down_the_routers_loss_sets_its_bias() -> None:
    """Exactly what the next bias is, because the gradient is the distance to it."""
    logits, bias = (jnp.asarray(each) for each in drawn(6, 40, 1))
    target = route(logits, bias, experts_per_token=2).next_bias
    gradient = jax.grad(lambda bias: router_loss(logits, bias, target, z_loss_weight=0.1))(bias)
    assert np.asarray(bias - gradient) == pytest.approx(np.asarray(target), abs=1e-6)


def test_the_routers_z_loss_is_the_mean_square_of_its_log_normalizers() -> None:
    """In NumPy: what the loss has more with a weight than without."""
    logits, bias = drawn(6, 40, 1)
    losses = [
        float(router_loss(jnp.asarray(logits), jnp.asarray(bias), jnp.zeros(6), z_loss_weight=weight)) for weight in (0.0, 0.1)
    ]
    assert losses[1] - losses[0] == pytest.approx(0.1 * np.mean(np.log(np.exp(logits).sum(axis=1)) ** 2), rel=1e-4)


@pytest.mark.parametrize("skew", [0.0, 50.0], ids=["even", "all-to-two"])
def test_every_token_reaches_its_experts_whatever_the_load(skew: float) -> None:
    """Also when all tokens choose the same two of eight, more than a buffer holds: NumPy, token by token."""
    random = np.random.default_rng(2)
    tokens, matrices = random.normal(size=(64, 5)), random.normal(size=(8, 5, 5))
    logits = random.normal(size=(64, 8)) + skew * (np.arange(8) < 2)
    routing = route(jnp.asarray(logits, jnp.float32), jnp.zeros(8), experts_per_token=2)
    found = through_experts(
        jnp.asarray(tokens, jnp.float32),
        routing.experts,
        routing.weights,
        jnp.asarray(matrices, jnp.float32),
        mlp=lambda each, every, product: jnp.tanh(product(each, every)),
    )
    for row, experts, weights, made in zip(tokens, *map(np.asarray, (routing.experts, routing.weights, found)), strict=True):
        expected = sum(weight * np.tanh(row @ matrices[expert]) for expert, weight in zip(experts, weights, strict=True))
        assert made == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_packed_and_the_ragged_way_agree_with_their_gradients() -> None:
    """To float32, values and gradients alike; accelerators take the one, CPUs mostly the other."""
    random = np.random.default_rng(3)
    tokens, matrices = (jnp.asarray(random.normal(size=size), jnp.float32) for size in ((64, 5), (8, 5, 5)))
    routing = route(jnp.asarray(random.normal(size=(64, 8)), jnp.float32), jnp.zeros(8), experts_per_token=2)

    def made(way, tokens, matrices):
        mlp = lambda each, every, product: jnp.tanh(product(each, every))  # noqa: E731
        return jnp.sum(way(tokens, routing.experts, routing.weights, matrices, mlp) ** 2)

    ways = (_ragged, lambda *arguments: _packed(*arguments, room=64))
    values = [jax.value_and_grad(made, argnums=(1, 2))(way, tokens, matrices) for way in ways]
    for one, other in zip(*map(jax.tree.leaves, values), strict=True):
        assert np.asarray(one) == pytest.approx(np.asarray(other), rel=1e-4, abs=1e-5)
