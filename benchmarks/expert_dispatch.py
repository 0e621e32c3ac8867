"""Milliseconds that 2,048 tokens take through their 2 of 8 experts, by width: packed, ragged, and what only the chosen cost.

Value and gradient of one gated MLP an expert, with routing that is drawn at random; "chosen only" is one dense MLP as wide as
the experts that a token passes, which no routing can go below. One process on one core, JAX on the CPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from report import parser, publish

from marin_scaling.train.moe import _gated_mlp, _packed, _ragged

WIDTHS = (16, 32, 64, 128)
TOKENS, NUM_EXPERTS, CHOSEN, REPETITIONS = 2048, 8, 2, 20


def milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Median of some calls of value and gradient together, after the one that compiles."""
    compiled = jax.jit(jax.value_and_grad(lambda *each: jnp.sum(function(*each) ** 2), argnums=(0, 1)))
    jax.block_until_ready(compiled(*arguments))
    clock = [time.perf_counter()]
    for _ in range(REPETITIONS):
        jax.block_until_ready(compiled(*arguments))
        clock.append(time.perf_counter())
    return 1000 * float(median(np.diff(clock)))


def ways(width: int) -> dict[str, float]:
    """Milliseconds of each way at one width."""
    random = np.random.default_rng(0)
    tokens = jnp.asarray(random.normal(size=(TOKENS, width)), jnp.float32)
    matrices = jnp.asarray(random.normal(size=(3, NUM_EXPERTS, width, width)) / width**0.5, jnp.float32)
    experts = jnp.asarray(np.argsort(random.random((TOKENS, NUM_EXPERTS)), axis=1)[:, :CHOSEN])
    weights = jnp.ones((TOKENS, CHOSEN)) / CHOSEN

    def packed(tokens: Any, matrices: Any, experts: Any) -> Any:
        return _packed(tokens, experts, weights, tuple(matrices), _gated_mlp, room=2 * TOKENS * CHOSEN // NUM_EXPERTS)

    def ragged(tokens: Any, matrices: Any, experts: Any) -> Any:
        return _ragged(tokens, experts, weights, tuple(matrices), _gated_mlp)

    def dense(tokens: Any, matrices: Any, *, of: int) -> Any:
        gate, up, down = (jnp.concatenate(list(each[:of]), axis=axis) for each, axis in zip(matrices, (1, 1, 0), strict=True))
        return (jax.nn.silu(tokens @ gate) * (tokens @ up)) @ down

    return {
        "packed": milliseconds(packed, tokens, matrices, experts),
        "ragged": milliseconds(ragged, tokens, matrices, experts),
        "every expert": milliseconds(lambda tokens, matrices: dense(tokens, matrices, of=NUM_EXPERTS), tokens, matrices),
        "chosen only": milliseconds(lambda tokens, matrices: dense(tokens, matrices, of=CHOSEN), tokens, matrices),
    }


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # JAX counts cores when it first computes
    measured = {width: ways(width) for width in WIDTHS}
    publish(
        "Tokens through their experts on a CPU",
        columns=("width", *(f"{name}, ms" for name in measured[WIDTHS[0]])),
        rows=[[width, *(f"{each:.1f}" for each in found.values())] for width, found in measured.items()],
        packages=("jax", "jaxlib"),
        notes=[f"Median of {REPETITIONS} values with their gradients. A step packs where no expert has twice its even share."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
