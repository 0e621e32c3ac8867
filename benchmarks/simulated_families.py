"""Ladders from known laws, in the form that is fitted and outside it, to see how forecasts fail where the form is wrong.

Each table holds a ladder and, as its largest runs, targets up to 300x beyond. Every law and ladder is drawn anew from a seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from marin_scaling.laws import Array
from marin_scaling.run.table import RunTable

Loss = Callable[[Array, Array], Array]

FACTORS = np.array([3.2, 10.0, 33.0, 100.0, 330.0])


def _additive(generator: np.random.Generator, coupling: float = 1.0) -> Loss:
    alpha, beta = generator.uniform(0.25, 0.5, size=2)
    floor, reducible = generator.uniform(0.8, 2.2), generator.uniform(0.8, 1.7)
    share = beta / (alpha + beta)
    n0, d0 = 3e8, 6e9  # 20 tokens a parameter at 1e19 FLOPs

    def loss(params: Array, tokens: Array) -> Array:
        return floor + reducible * (share * (params / n0) ** -alpha + (1 - share) * (tokens / d0) ** -beta) ** coupling

    return loss


def _coupled(generator: np.random.Generator) -> Loss:
    return _additive(generator, coupling=generator.uniform(0.4, 0.8))


def _small_models_worse(generator: np.random.Generator) -> Loss:
    law, size, power = _additive(generator), generator.uniform(0.02, 0.1), generator.uniform(0.4, 1.0)
    return lambda params, tokens: law(params, tokens) * (1 + size * (params / 3e7) ** -power)


def _third_term(generator: np.random.Generator) -> Loss:
    law, size, power = _additive(generator), generator.uniform(0.1, 0.4), generator.uniform(0.05, 0.15)
    return lambda params, tokens: 0.85 * law(params, tokens) + size * (params * tokens / 1.8e18) ** -power


def _bend(generator: np.random.Generator) -> Loss:
    law, slope = _additive(generator), generator.uniform(-0.03, 0.03)
    return lambda params, tokens: law(params, tokens) * (1 + (6 * params * tokens / 3e19) ** 2) ** (slope / 2)


def _tuned_in_the_middle(generator: np.random.Generator) -> Loss:
    law, size, best = _additive(generator), generator.uniform(0.002, 0.008), generator.uniform(18.5, 20.5)
    return lambda params, tokens: law(params, tokens) * (1 + size * (np.log10(6 * params * tokens) - best) ** 2)


FAMILIES: dict[str, Callable[[np.random.Generator], Loss]] = {
    "additive (a special case of ours)": _additive,
    "coupled (ours)": _coupled,
    "small models worse": _small_models_worse,
    "a third power of compute": _third_term,
    "a bend at 3e19": _bend,
    "tuned in the middle only": _tuned_in_the_middle,
}


def simulated_tables(count: int) -> dict[str, RunTable]:
    """`count` ladders of each family: 6 budgets from 1e18 to 1e20, 7 sizes each, 0.3 % noise of Student's t."""
    found = {}
    for place, (name, family) in enumerate(FAMILIES.items()):
        for number in range(count):
            generator = np.random.default_rng([place, number])
            found[f"{name} #{number}"] = _ladder(family(generator), generator, name)
    return found


def _ladder(law: Loss, generator: np.random.Generator, name: str) -> RunTable:
    budgets = np.concatenate([np.repeat(np.geomspace(1e18, 1e20, 6), 7), 1e20 * FACTORS])
    ratio = 20 * np.concatenate([np.tile(np.geomspace(1 / 6, 6, 7), 6), np.exp(0.7 * generator.standard_normal(len(FACTORS)))])
    params = np.sqrt(budgets / 6 / ratio)
    tokens = params * ratio
    noise = np.exp(0.003 * generator.standard_t(5, size=len(budgets)))
    frame = pd.DataFrame({"flops": budgets, "params": params, "tokens": tokens, "loss": law(params, tokens) * noise})
    frame = frame.assign(run=[f"{name} {row}" for row in frame.index], budget_flops=budgets)
    return RunTable(frame=frame, source=name, metric="loss")
