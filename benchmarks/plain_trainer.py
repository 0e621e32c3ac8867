"""Dense models and their optimizer in plain JAX, Equinox and Optax: the yardstick of `step_time.py` and `gpu_ladder.py`.

Qwen3's shape (RMSNorm, RoPE, queries and keys normed, gated MLP, untied head), next-token loss with z-loss, AdamH on matrices
and Adam on embedding and norms, one compiled step whose rates are inputs. Draws its own weights, so losses agree in size only.
Precision and sequences at a time are the spec's; flash attention is JAX's own, on a GPU cuDNN's. On a GPU, buffers are donated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from marin_scaling.run.spec import RunSpec

_ROPE_BASE, _NORM_EPSILON = 10_000.0, 1e-5


class Block(eqx.Module):
    """Attention and MLP, each after a norm."""

    norms: jax.Array
    head_norms: jax.Array
    query: jax.Array
    key: jax.Array
    value: jax.Array
    out: jax.Array
    gate: jax.Array
    up: jax.Array
    down: jax.Array

    def __call__(self, x: Any, rotate: Callable[[Any], Any], attend: Callable[..., Any], heads: int) -> Any:
        """The residual stream (batch, position, width) after this layer."""
        batch, length, width = x.shape
        normed = normalised(x) * self.norms[0]
        query, key, value = ((normed @ each).reshape(batch, length, heads, -1) for each in (self.query, self.key, self.value))
        query, key = (rotate(normalised(each) * scale) for each, scale in zip((query, key), self.head_norms, strict=True))
        x = x + attend(query, key, value).reshape(batch, length, width) @ self.out
        normed = normalised(x) * self.norms[1]
        return x + (jax.nn.silu(normed @ self.gate) * (normed @ self.up)) @ self.down


class Model(eqx.Module):
    """Embedding, blocks, norm, head."""

    embedding: jax.Array
    blocks: list[Block]
    norm: jax.Array
    head: jax.Array


def normalised(x: Any) -> Any:
    """Divide by the root mean square, in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + _NORM_EPSILON)).astype(x.dtype)


def attention_of(spec: RunSpec, *, fused: bool) -> Callable[..., Any]:
    """Return causal attention over (batch, position, head, width): a table of scores, or JAX's own if the spec says flash."""
    length = spec.model.seq_len
    if spec.compute.attention == "flash":
        fused = fused and jax.default_backend() == "gpu" and spec.compute.precision == "bfloat16"
        return partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn" if fused else "xla")
    mask = jnp.tril(jnp.ones((length, length), bool))

    def attend(query: Any, key: Any, value: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
        shares = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", shares, value)

    return attend


def initial_model(spec: RunSpec) -> Model:
    """Weights from a normal distribution of standard deviation .02."""
    shape, random = spec.model.shape(), np.random.default_rng(spec.seed)
    width, inner = shape.hidden_dim, shape.intermediate_dim

    def drawn(*sizes: int) -> jax.Array:
        return jnp.asarray(np.float32(0.02) * random.standard_normal(sizes, np.float32))

    blocks = [
        Block(
            norms=jnp.ones((2, width)),
            head_norms=jnp.ones((2, width // shape.num_heads)),
            **{name: drawn(width, width) for name in ("query", "key", "value", "out")},
            gate=drawn(width, inner),
            up=drawn(width, inner),
            down=drawn(inner, width),
        )
        for _ in range(shape.num_layers)
    ]
    return Model(drawn(shape.vocab_size, width), blocks, jnp.ones(width), drawn(width, shape.vocab_size))


def parameter_count(model: Model) -> int:
    """Numbers in the model."""
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def _donated() -> tuple[int, ...]:
    return (0, 1) if jax.default_backend() == "gpu" else ()


def gradients_of(loss_of: Callable[..., Any], model: Model, tokens: Any, *, at_once: int) -> Any:
    """Return the loss and its gradients, means over parts of the batch of `at_once` sequences."""
    parts = tokens.reshape(-1, at_once, tokens.shape[1])
    if len(parts) == 1:
        return jax.value_and_grad(loss_of)(model, tokens)

    def added(so_far: Any, part: Any) -> Any:
        found = jax.value_and_grad(loss_of)(model, part)
        return jax.tree.map(lambda total, each: total + each / len(parts), so_far, found), None

    return jax.lax.scan(added, (jnp.zeros(()), jax.tree.map(jnp.zeros_like, model)), parts)[0]


def plain_step(spec: RunSpec, *, fused: bool = True) -> tuple[Model, Callable[[NDArray[np.int32], float, float], float]]:
    """The model as it begins, and a function that does one step at the given rates (matrices, the rest); gives the loss.

    Without `fused`, a GPU computes attention without cuDNN.
    """
    shape, optimizer = spec.model.shape(), spec.optimizer
    precision, attend = jnp.dtype(spec.compute.precision), attention_of(spec, fused=fused)
    at_once = min(spec.batch_size, spec.compute.sequences_at_a_time or spec.batch_size)
    angles = np.outer(np.arange(shape.seq_len), _ROPE_BASE ** -(np.arange(0, shape.head_dim, 2) / shape.head_dim))
    cosine, sine = (jnp.asarray(table, precision)[None, :, None] for table in (np.cos(angles), np.sin(angles)))
    model = initial_model(spec)
    is_matrix = jax.tree.map(lambda _: False, model)
    names = ("query", "key", "value", "out", "gate", "up", "down")
    matrices = [lambda tree, n=n: [getattr(block, n) for block in tree.blocks] for n in names]
    for place in (*matrices, lambda tree: [tree.head]):
        is_matrix = eqx.tree_at(place, is_matrix, replace_fn=lambda _: True)
    adam = optax.scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.epsilon)

    def rotate(x: Any) -> Any:
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    def loss_of(model: Model, tokens: Any) -> Any:
        model = jax.tree.map(lambda each: each.astype(precision), model)
        x = model.embedding[tokens]
        for block in model.blocks:
            x = block(x, rotate, attend, shape.num_heads)
        logits = (normalised(x) * model.norm @ model.head)[:, :-1].astype(jnp.float32)
        log_sums = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
        return jnp.mean(log_sums - chosen + optimizer.z_loss_weight * log_sums**2)

    def clipped(gradients: Model) -> Model:
        groups = [eqx.filter(gradients, which) for which in (is_matrix, jax.tree.map(lambda yes: not yes, is_matrix))]
        scales = [jnp.minimum(1.0, optimizer.max_grad_norm / optax.global_norm(group)) for group in groups]
        return jax.tree.map(lambda each, yes: each * (scales[0] if yes else scales[1]), gradients, is_matrix)

    def moved(weight: Any, update: Any, yes: bool, rate: Any, adam_rate: Any) -> Any:
        if not yes:
            return weight - adam_rate * update
        norm = jnp.linalg.norm(weight)
        new = weight - rate * update * norm / jnp.maximum(jnp.linalg.norm(update), 1e-10)
        return new * norm / jnp.linalg.norm(new)

    @partial(jax.jit, donate_argnums=_donated())
    def step(model: Model, state: Any, tokens: Any, rate: Any, adam_rate: Any) -> Any:
        loss, gradients = gradients_of(loss_of, model, tokens, at_once=at_once)
        updates, state = adam.update(clipped(gradients), state)
        return jax.tree.map(lambda w, u, yes: moved(w, u, yes, rate, adam_rate), model, updates, is_matrix), state, loss

    held = [model, adam.init(model)]

    def advance(tokens: NDArray[np.int32], rate: float, adam_rate: float) -> float:
        held[0], held[1], loss = step(held[0], held[1], tokens, np.float32(rate), np.float32(adam_rate))
        return float(loss)

    return model, advance
