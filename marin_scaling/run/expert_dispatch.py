"""Sending tokens through their experts: every token reaches all of its experts, whatever the load.

Sorted by expert, tokens meet each expert's matrices in one ragged product (XLA's `ragged_dot`), as in Levanter's own mixtures.
On a CPU that costs more than passing every token through every expert (`benchmarks/expert_dispatch.py`); there tokens are
packed into one buffer an expert, twice as long as an even share, and only a step whose fullest expert has more takes the ragged
way. Plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

_BUFFER_SHARES = 2
"""Length of an expert's buffer on a CPU, in even shares of the tokens."""

ExpertMlp = Callable[[Array, Callable[[Array, Array], Array]], Array]
"""From tokens and a product (tokens, matrices) -> tokens to what the experts make of the tokens."""


def through_experts(tokens: Array, experts: Array, weights: Array, *, num_experts: int, mlp: ExpertMlp) -> Array:
    """What its experts make of each token, weighted and summed: shape (token, embed).

    `tokens` has shape (token, embed), `experts` and `weights` (token, choice). `mlp` is given tokens and the product with
    which to multiply them by a matrix of each expert, of shape (expert, in, out).
    """
    if jax.default_backend() != "cpu":
        return _ragged(tokens, experts, weights, num_experts, mlp)
    room = min(-(-_BUFFER_SHARES * experts.size // num_experts), len(tokens))
    fullest = jnp.max(jnp.bincount(experts.reshape(-1), length=num_experts))
    return jax.lax.cond(
        fullest <= room,
        lambda: _packed(tokens, experts, weights, num_experts, mlp, room=room),
        lambda: _ragged(tokens, experts, weights, num_experts, mlp),
    )


def _ragged(tokens: Array, experts: Array, weights: Array, num_experts: int, mlp: ExpertMlp) -> Array:
    flat = experts.reshape(-1)
    order = jnp.argsort(flat)
    loads = jnp.bincount(flat, length=num_experts)
    made = mlp(tokens[order // experts.shape[1]], lambda each, matrices: jax.lax.ragged_dot(each, matrices, loads))
    return _weighted_sum(made[jnp.argsort(order)], weights)


def _packed(tokens: Array, experts: Array, weights: Array, num_experts: int, mlp: ExpertMlp, *, room: int) -> Array:
    flat = experts.reshape(-1)
    is_its = jax.nn.one_hot(flat, num_experts, dtype=jnp.int32)  # (token and choice, expert)
    place = jnp.sum(jnp.cumsum(is_its, axis=0) * is_its, axis=1) - 1  # which of its expert's tokens each one is
    slot = flat * room + place
    source = jnp.full(num_experts * room, len(tokens)).at[slot].set(jnp.arange(flat.size) // experts.shape[1])
    padded = jnp.concatenate([tokens, jnp.zeros_like(tokens[:1])])  # an empty slot holds zeros
    made = mlp(padded[source].reshape(num_experts, room, -1), lambda each, matrices: jnp.einsum("eti,eio->eto", each, matrices))
    return _weighted_sum(made.reshape(num_experts * room, -1)[slot], weights)


def _weighted_sum(made: Array, weights: Array) -> Array:
    return jnp.einsum("tke,tk->te", made.reshape(*weights.shape, -1), weights.astype(made.dtype))
