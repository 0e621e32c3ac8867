"""Slopes of the coupled law and of its prior in the unknowns, in closed form: what a search for the mode takes at every step.

The chain runs through logs, where it is nearly linear: unknowns, then ln of (L0, K, a, b, w, g), then log losses. Complex steps
through `coupled_law` give the same numbers at several times the cost; the tests hold both against each other.
Calculus only: no run, no likelihood, no search.
"""

from __future__ import annotations

import numpy as np

from marin_scaling.fit.coupled_law import LARGEST_POWER, CoupledLaws, Prior, log_exponents, means_and_deviations
from marin_scaling.laws import Array

_LOSS, _BY_PARAMS, _BY_TOKENS, _SHARE, _RATIO, _COUPLING = np.eye(6)
_TRADE = _BY_PARAMS - _BY_TOKENS + _RATIO
_NONE = np.zeros(6)
_ALWAYS = np.array([_LOSS, _LOSS, _BY_TOKENS - _RATIO - _COUPLING, _BY_TOKENS - _COUPLING, _TRADE, _COUPLING])
_BY_WEIGHT = np.array([_NONE, _NONE, _TRADE, _TRADE, -_TRADE, _NONE])
_BY_ASYMPTOTE = np.array([_NONE, _SHARE, -_SHARE, -_SHARE, _NONE, _NONE])


def number_slopes(law: CoupledLaws) -> Array:
    """Slopes of ln (L0, K, a, b, w, g) in the first six unknowns, of one law: (number, unknown).

    Linear in w and in E / L0, because a w g K / L0 and b (1 - w) g K / L0 are the slopes at the middle, which are unknowns.

    >>> from marin_scaling.fit.coupled_law import laws_of
    >>> point = np.array([np.log(3.0), np.log(0.08), np.log(0.08), 0.0, 0.0, 0.0, -5.0, -5.0])
    >>> number_slopes(laws_of(point[None]))[2].round(2)  # ln a: half by either slope at the middle, less the more is reducible
    array([ 0. ,  0.5,  0.5, -0.5, -0.5, -1. ])
    """
    return np.asarray(_ALWAYS + law.w[0] * _BY_WEIGHT + law.E[0] / law.L0[0] * _BY_ASYMPTOTE)


def log_losses_and_slopes(law: CoupledLaws, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Log losses of one law at runs (run,), their slopes in ln (L0, K, a, b, w, g) (number, run), and in ln(N / N0) (run,)."""
    loss, reducible, a, b, w, g = (float(each[0]) for each in (law.L0, law.K, law.a, law.b, law.w, law.g))
    in_x, in_y = (np.maximum(np.minimum(each, LARGEST_POWER), -LARGEST_POWER) for each in (-a * x, -b * y))
    by_params, by_tokens = np.exp(in_x), np.exp(in_y)
    u = w * by_params + (1 - w) * by_tokens
    removed = reducible * u**g
    losses = loss - reducible + removed
    falls = g * removed / losses
    columns = (
        loss / losses,
        (removed - reducible) / losses,
        falls * w * by_params / u * in_x,
        falls * (1 - w) * by_tokens / u * in_y,
        falls * w * (by_params - by_tokens) / u,
        falls * np.log(u),
    )
    return np.log(losses), np.array(columns), -falls * w * by_params / u * a


def log_prior_and_slope(
    point: Array, law: CoupledLaws, prior: Prior, *, numbers: Array, middle_log_loss: float
) -> tuple[float, Array]:
    """`coupled_law.log_prior` at one point, and its slope (unknown,); `numbers` are the law's `number_slopes`."""
    mean, deviation = means_and_deviations(prior, middle_log_loss=middle_log_loss, unknowns=len(point))
    away = (np.concatenate([point, log_exponents(law)[:, 0]]) - mean) / deviation
    pulls = away / deviation
    frontier = numbers[5] + numbers[2] + law.a[0] / (law.a[0] + law.b[0]) * _RATIO
    slope = -pulls[:-3]
    slope[:6] -= pulls[-3] * frontier + pulls[-2] * numbers[2] + pulls[-1] * numbers[3]
    return -0.5 * float(away @ away), slope
