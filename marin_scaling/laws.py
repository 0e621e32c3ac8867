"""Frontier and surface laws as functions of arrays.

Frontier   L*(C) = E + A (C / C0)^-gamma             lowest loss at C FLOPs (Kaplan et al. 2020 with an asymptote)
Surface    L(N, D) = E + A N^-alpha + B D^-beta      Hoffmann et al. 2022, eq. 10

E is the irreducible loss, N the parameters, D the trained tokens, L the loss in the unit of the runs. C0 is a reference
within the data, so that A, the loss above E at C0 FLOPs, never overflows.

Both are laws of new tokens. Repeated tokens count as fewer new ones: `effective_tokens` (Muennighoff et al. 2023, eq. 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FARTHEST_CHECKED = 333.4
"""Farthest extrapolation of a public forecast that was compared with its run: Delphi, 3e20 to 1e23 FLOPs."""


@dataclass(frozen=True, kw_only=True)
class FrontierLaw:
    """L*(C) = E + A (C / reference_flops)^-gamma; E and A in the unit of the loss."""

    E: float
    A: float
    gamma: float
    reference_flops: float


@dataclass(frozen=True, kw_only=True)
class SurfaceLaw:
    """L(N, D) = E + A N^-alpha + B D^-beta; E in the unit of the loss."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float


def frontier_loss(law: FrontierLaw, *, flops: ArrayLike) -> Array:
    """Return the loss on the frontier at each number of training FLOPs.

    >>> law = FrontierLaw(E=1.7, A=1.5, gamma=0.1, reference_flops=1e19)
    >>> frontier_loss(law, flops=[1e19, 1e29]).round(3)
    array([3.2 , 1.85])
    """
    log_ratio = np.log(np.asarray(flops, dtype=np.float64)) - np.log(law.reference_flops)  # a ratio could overflow
    return np.asarray(law.E + law.A * np.exp(-law.gamma * log_ratio), dtype=np.float64)


def surface_loss(law: SurfaceLaw, *, params: ArrayLike, tokens: ArrayLike) -> Array:
    """Return the loss for each number of parameters and trained tokens.

    >>> chinchilla = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> surface_loss(chinchilla, params=[70e9], tokens=[1.4e12]).round(2)
    array([1.94])
    """
    sizes, horizons = np.asarray(params, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    return np.asarray(law.E + law.A * sizes**-law.alpha + law.B * horizons**-law.beta, dtype=np.float64)


def surface_frontier(law: SurfaceLaw, *, flops_per_param_token: float = 6.0) -> FrontierLaw:
    """Return the frontier of a surface if a run costs `flops_per_param_token` x N x D FLOPs (6 by Kaplan et al. 2020).

    Along the optimum both terms fall as C^-gamma with gamma = alpha beta / (alpha + beta): Hoffmann et al. 2022, eq. 4.

    >>> surface_frontier(SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)).gamma.__round__(4)
    0.1535
    """
    reference = flops_per_param_token * 1e18
    params = optimal_params(law, flops=reference, flops_per_param_token=flops_per_param_token)
    tokens = reference / flops_per_param_token / params
    excess = float(surface_loss(law, params=params, tokens=tokens)) - law.E
    gamma = law.alpha * law.beta / (law.alpha + law.beta)
    return FrontierLaw(E=law.E, A=excess, gamma=gamma, reference_flops=reference)


def optimal_params(law: SurfaceLaw, *, flops: float, flops_per_param_token: float = 6.0) -> float:
    """Return the compute-optimal number of parameters at `flops`: Hoffmann et al. 2022, eq. 4.

    >>> f"{optimal_params(SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28), flops=5.76e23):.3g}"
    '3.22e+10'
    """
    balance = (law.alpha * law.A / (law.beta * law.B)) ** (1 / (law.alpha + law.beta))
    return float(balance * (flops / flops_per_param_token) ** (law.beta / (law.alpha + law.beta)))


REPETITIONS = 15.387756
"""R*_D, fitted by Muennighoff et al. (2023, appendix A) to 182 runs of up to 500 epochs: after so many repetitions, a further
one is worth 1/e of the first."""


def effective_tokens(tokens: ArrayLike, *, unique_tokens: ArrayLike) -> Array:
    """Return the number of new tokens that are worth as much as `tokens` trained on `unique_tokens` different ones.

    With U unique tokens and R = D / U - 1 repetitions, D' = U + U R* (1 - exp(-R / R*)).

    >>> effective_tokens([1e9, 4e9, 16e9, 1e12], unique_tokens=1e9) / 1e9  # four epochs are worth 3.7, infinitely many 16.4
    array([ 1.        ,  3.72567312, 10.58245698, 16.387756  ])
    """
    trained, unique = np.asarray(tokens, dtype=np.float64), np.asarray(unique_tokens, dtype=np.float64)
    repetitions = np.maximum(trained / unique - 1, 0.0)
    worth = unique * (1 + REPETITIONS * -np.expm1(-repetitions / REPETITIONS))
    return np.asarray(np.where(repetitions > 0, worth, trained))
