"""How far runs scatter about their bowls, and budgets about the law: what an interval is made of.

Two variances of the loss, each with its degrees of freedom. Runs: the squares that bowls leave. Budgets: what the optima
scatter about the law beyond what their own runs explain, by the method of moments of random-effects analysis (DerSimonian and
Laird 1986); when there is nothing beyond, the optima's scatter is pooled with that of the runs. Arithmetic on arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marin_scaling.fit.frontier import FRONTIER_UNKNOWNS
from marin_scaling.fit.isoflop import Bowl, noise_variance
from marin_scaling.laws import Array

SEED_NOISE = 5e-4
"""Share of the loss by which runs that differ only in their seed differ: standard deviations of 0.04 and 0.08 % among the three
seeds of Delphi's runs at 1e21 and 1e22 (runs/delphi/heldout.csv). Runs that scatter less are assumed to have been lucky."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Scatter of one run, and what budgets scatter beyond it, as variances of the loss with their degrees of freedom.

    `budgets_scatter`: beyond the noise of their runs more than chance would do in one of a hundred ladders.
    `at_floor`: the runs scatter less than seeds do, and `SEED_NOISE` stands for their variance.
    """

    run_variance: float
    run_freedom: int
    budget_variance: float
    budget_freedom: int
    budgets_scatter: bool
    at_floor: bool


def estimate_noise(
    bowls: list[Bowl], *, leverage: Array, residuals: Array, loss: Array, unknowns: int = FRONTIER_UNKNOWNS
) -> Noise:
    """The noise behind optima of `loss` that lie `residuals` off a law of `unknowns` numbers; arrays are (budget,).

    `run_freedom` is 0 when nothing is left to tell noise by: three budgets of three runs.
    """
    floor = (SEED_NOISE * float(loss.min())) ** 2
    seen, freedom = noise_variance(bowls)
    budget_freedom = len(residuals) - unknowns
    between = float(np.sum(residuals**2 / leverage))
    variance = max(seen, floor)
    excess = (
        _excess(residuals, variance=variance, leverage=leverage, freedom=budget_freedom) if freedom and budget_freedom else 0.0
    )
    if not excess:
        seen = (seen * freedom + between) / max(freedom + budget_freedom, 1)
        variance, freedom = max(seen, floor), freedom + budget_freedom
    return Noise(
        run_variance=variance,
        run_freedom=freedom,
        budget_variance=excess,
        budget_freedom=budget_freedom,
        budgets_scatter=bool(excess) and between > variance * _chi_squared_99(budget_freedom),
        at_floor=seen < floor,
    )


def _excess(residuals: Array, *, variance: float, leverage: Array, freedom: int) -> float:
    expected = variance * float(leverage.sum()) * freedom / len(residuals)
    return max(0.0, (float(residuals @ residuals) - expected) / freedom)


def _chi_squared_99(freedom: int) -> float:
    """The 99 % quantile of the chi-squared distribution by Wilson and Hilferty's cube (1931), within 1 % from one degree on."""
    ninth = 2 / (9 * freedom)
    return float(freedom * (1 - ninth + 2.3263 * ninth**0.5) ** 3)
