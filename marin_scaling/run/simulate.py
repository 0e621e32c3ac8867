"""Simulated runs, with losses drawn from a stated surface, for tests, planning and tutorials.

The `source` of a simulated table and the name of each of its runs begin with "simulated".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marin_scaling.laws import SurfaceLaw, optimal_params, surface_loss
from marin_scaling.run.table import RunTable

FLOPS_PER_PARAM_TOKEN = 6.0
"""FLOPs per parameter and token, C = 6 N D (Kaplan et al. 2020)."""


def simulate_ladder(
    law: SurfaceLaw,
    *,
    budgets_flops: Sequence[float],
    sizes_per_budget: int,
    noise: float,
    seed: int,
    size_range: float = 10.0,
    metric: str = "loss",
) -> RunTable:
    """Simulate an isoFLOP ladder with losses drawn from `law`, each times 1 + `noise` x a normal deviate.

    Sizes are spaced evenly in the logarithm over a factor `size_range` around each budget's optimum.

    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19], sizes_per_budget=3, noise=0.0, seed=0)
    >>> table.frame[["flops", "loss"]].iloc[[1, 4]].round(3).to_dict("list")
    {'flops': [1e+18, 1e+19], 'loss': [3.535, 2.986]}
    """
    import pandas as pd

    budget = np.repeat(np.asarray(budgets_flops, dtype=np.float64), sizes_per_budget)
    offsets = np.geomspace(size_range**-0.5, size_range**0.5, sizes_per_budget) if sizes_per_budget > 1 else np.ones(1)
    optimum = np.array([optimal_params(law, flops=each) for each in budget])
    params = optimum * np.tile(offsets, len(budgets_flops))
    tokens = budget / FLOPS_PER_PARAM_TOKEN / params
    deviates = np.random.default_rng(seed).standard_normal(len(budget))
    frame = pd.DataFrame(
        {
            "run": [f"simulated-{number}" for number in range(len(budget))],
            "flops": budget,
            "params": params,
            "tokens": tokens,
            "loss": surface_loss(law, params=params, tokens=tokens) * (1 + noise * deviates),
            "budget_flops": budget,
        }
    )
    return RunTable(frame=frame, excluded=(), warnings=(), column_mapping={}, source=f"simulated (seed {seed})", metric=metric)
