"""Fit L*(C) = E + A (C / C0)^-gamma with a free asymptote, by variable projection, for many reweighted data sets at once.

For a given gamma the best E and A are a linear least-squares problem in closed form (Golub and Pereyra 1973), so only gamma is
searched: on a grid, then on ever finer grids about the best cell. No start value, no local optimum, nothing random, and a
bootstrap of thousands of fits is a few matrix products. E and A are kept non-negative: a loss below zero means nothing, and a
loss that rises with compute is no frontier. The asymptote is never set by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marin_scaling.laws import Array, FrontierLaw

FRONTIER_UNKNOWNS = 3

GAMMA_BRACKET = (0.004, 4.0)
"""Where gamma is searched. Published exponents lie between 0.05 (Kaplan et al. 2020) and 0.2; the bracket is a factor of ten
wider or more on each side, and a fit at its edge is reported by its status."""

_GRID_POINTS = 121
_ZOOM_POINTS = 17
_BOOTSTRAP_ZOOMS = 3  # leaves gamma known to 1e-4 of itself, far below what resampling moves it
_POINT_ZOOMS = 6  # leaves gamma known to 1e-6 of itself; its last digits are where the slope of the squares is nought
_LAST_DIGITS = 1e-5  # share of gamma on either side of it where they are sought


@dataclass(frozen=True, kw_only=True)
class FrontierLaws:
    """Many laws: arrays of one length, with one reference compute."""

    E: Array
    A: Array
    gamma: Array
    reference_flops: float

    def losses(self, flops: Array) -> Array:
        """Loss of every law at every number of FLOPs: (law, flops)."""
        log_ratio = np.log(flops) - np.log(self.reference_flops)
        return np.asarray(self.E[:, None] + self.A[:, None] * np.exp(-self.gamma[:, None] * log_ratio))


def fit_frontier(flops: Array, *, loss: Array) -> FrontierLaw:
    """The least-squares law through optima (`flops`, `loss`), one entry a budget, at least three different budgets.

    >>> compute = np.array([1e18, 1e19, 1e20, 1e21])
    >>> law = fit_frontier(compute, loss=1.7 + 1.5 * (compute / 1e19) ** -0.1)
    >>> f"{law.E:.6f} {law.gamma:.6f}"
    '1.700000 0.100000'
    """
    laws = fit_frontiers(flops, losses=loss[None, :], weights=np.ones((1, len(loss))), zooms=_POINT_ZOOMS)
    log_ratio = np.log(flops) - np.log(laws.reference_flops)
    gamma = _last_digits(float(laws.gamma[0]), log_ratio, loss)
    asymptote, scale = _best_line(gamma, log_ratio, loss)
    return FrontierLaw(E=asymptote, A=scale, gamma=gamma, reference_flops=laws.reference_flops)


def _last_digits(gamma: float, log_ratio: Array, loss: Array) -> float:
    """The exponent where the slope of the squares is nought: the squares themselves are flat there and show half the digits."""
    from scipy.optimize import brentq

    def slope(candidate: float) -> float:
        asymptote, scale = _best_line(candidate, log_ratio, loss)
        term = np.exp(-candidate * log_ratio)
        return float(np.sum((loss - asymptote - scale * term) * term * log_ratio))

    low, high = (gamma * (1 + side * _LAST_DIGITS) for side in (-1, 1))
    if slope(low) * slope(high) >= 0:  # at the edge of the bracket, or of what E and A may be
        return gamma
    return float(brentq(slope, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))


def _best_line(gamma: float, log_ratio: Array, loss: Array) -> tuple[float, float]:
    """E and A for an exponent."""
    asymptote, scale, _ = _project(np.exp(-gamma * log_ratio)[None], loss[None], np.ones((1, len(loss))))
    return float(asymptote[0, 0]), float(scale[0, 0])


def fit_frontiers(flops: Array, *, losses: Array, weights: Array, zooms: int = _BOOTSTRAP_ZOOMS) -> FrontierLaws:
    """One law for each row of `losses` and `weights` (data set, budget), all on the same budgets `flops` (budget,)."""
    reference = float(np.exp(np.log(flops).mean()))
    log_ratio = np.log(flops) - np.log(reference)
    grid = np.geomspace(*GAMMA_BRACKET, _GRID_POINTS)
    gammas = np.broadcast_to(grid, (len(losses), _GRID_POINTS))
    step = np.log(grid[1] / grid[0])
    gamma = _best(gammas, _project(np.exp(-grid[:, None] * log_ratio), losses, weights)[2])
    for _ in range(zooms):
        gammas = gamma[:, None] * np.exp(np.linspace(-step, step, _ZOOM_POINTS))  # (data set, candidate)
        gammas = np.clip(gammas, *GAMMA_BRACKET)
        gamma = _best(gammas, _project(np.exp(-gammas[:, :, None] * log_ratio), losses, weights)[2])
        step *= 2 / (_ZOOM_POINTS - 1)
    asymptote, scale, _ = _project(np.exp(-gamma[:, None, None] * log_ratio), losses, weights)
    return FrontierLaws(E=asymptote[:, 0], A=scale[:, 0], gamma=gamma, reference_flops=reference)


def _best(gammas: Array, squares: Array) -> Array:
    return np.asarray(np.take_along_axis(gammas, squares.argmin(axis=1)[:, None], axis=1)[:, 0])


def _project(terms: Array, losses: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Best non-negative E and A for every data set and candidate, and the weighted sum of squares they leave.

    `terms` is (candidate, budget) or (data set, candidate, budget); the three results are (data set, candidate).
    """
    weights = weights / weights.sum(axis=1, keepdims=True)
    if terms.ndim == 2:
        mean_term, mean_square, mean_product = weights @ terms.T, weights @ terms.T**2, (weights * losses) @ terms.T
    else:
        mean_term = np.einsum("dcb,db->dc", terms, weights)
        mean_square = np.einsum("dcb,db->dc", terms**2, weights)
        mean_product = np.einsum("dcb,db->dc", terms, weights * losses)
    mean_loss = (weights * losses).sum(axis=1)[:, None]
    variance = np.maximum(mean_square - mean_term**2, np.finfo(float).tiny)
    scale = np.maximum((mean_product - mean_term * mean_loss) / variance, 0.0)
    asymptote = mean_loss - scale * mean_term
    below_zero = asymptote < 0
    scale = np.where(below_zero, mean_product / mean_square, scale)
    asymptote = np.where(below_zero, 0.0, asymptote)
    fitted = _fitted(asymptote, scale, terms)
    squares = np.einsum("dcb,db->dc", (losses[:, None, :] - fitted) ** 2, weights)
    return asymptote, scale, squares


def _fitted(asymptote: Array, scale: Array, terms: Array) -> Array:
    per_data_set = terms if terms.ndim == 3 else terms[None]
    return np.asarray(asymptote[:, :, None] + scale[:, :, None] * per_data_set)  # (data set, candidate, budget)
