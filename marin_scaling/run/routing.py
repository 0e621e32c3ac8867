"""Routing of tokens to experts: which, how much, and how the bias balances them. Plain arrays; the model is in `moe_model`.

Quantile balancing (openathena.ai/blog/quantile-balancing; Marin, experiments/grug/moe/model.py): a token passes the experts
with the highest logit plus bias; after each step an expert's bias is set so that, on the tokens of that step, just its even
share of tokens would have chosen it. There is no balancing loss. Tests hold each formula against NumPy.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

ROUTED_WEIGHT_SUM = 2.5
"""What the weights of a token's experts sum to (Marin, experiments/grug/moe/model.py)."""


class Routing(NamedTuple):
    """For each token its experts and their weights, both of shape (token, choice), and the bias of the next step (expert,)."""

    experts: Array
    weights: Array
    next_bias: Array


def route(logits: Array, bias: Array, *, experts_per_token: int) -> Routing:
    """Route by logits of shape (token, expert) in float32 and the bias of shape (expert,).

    The bias decides who is chosen and has no part in the weights: those are sigmoids of the logits, scaled to sum to 2.5.
    """
    biased = jax.lax.stop_gradient(logits + bias)
    highest, chosen = jax.lax.top_k(biased, experts_per_token + 1)
    experts = chosen[:, :-1]
    gates = jax.nn.sigmoid(jnp.take_along_axis(logits, experts, axis=-1))
    weights = gates * (ROUTED_WEIGHT_SUM / jnp.sum(gates, axis=-1, keepdims=True))
    next_bias = balancing_bias(jax.lax.stop_gradient(logits), threshold=highest[:, -1], experts_per_token=experts_per_token)
    return Routing(experts=experts, weights=weights, next_bias=next_bias)


def balancing_bias(logits: Array, *, threshold: Array, experts_per_token: int) -> Array:
    """The bias (expert,) with which a share experts_per_token / experts of the tokens would exceed their `threshold` (token,).

    `threshold` is the biased logit of the first expert that a token did not choose.
    """
    share = experts_per_token / logits.shape[-1]
    return -jnp.quantile(logits - threshold[:, None], 1 - share, axis=0)


@jax.custom_vjp  # type: ignore[untyped-decorator]
def with_auxiliary_loss(value: Array, auxiliary_loss: Array) -> Array:  # noqa: ARG001
    """`value` unchanged, where the gradient of the training loss is as if `auxiliary_loss`, a scalar, had been added to it.

    So a layer can add to the loss without handing it through the model; the loss that is reported does not contain it.
    """
    return value


def _forward(value: Array, _auxiliary_loss: Array) -> tuple[Array, None]:
    return value, None


def _backward(_: None, gradient: Array) -> tuple[Array, Array]:
    return gradient, jnp.ones((), jnp.float32)


with_auxiliary_loss.defvjp(_forward, _backward)


def router_loss(logits: Array, bias: Array, next_bias: Array, *, z_loss_weight: float) -> Array:
    """What a router adds to the loss: its z-loss, and half the squared distance of its bias to the one of the next step.

    The gradient of that second part is just the distance, so that a step of gradient descent with rate 1 sets the bias.
    """
    z_loss = jnp.mean(jnp.square(jax.nn.logsumexp(logits, axis=-1))) if z_loss_weight else 0.0
    distance = bias - jax.lax.stop_gradient(next_bias)
    return z_loss_weight * z_loss + 0.5 * jnp.sum(jnp.square(distance))
