"""Descent of the log-Huber objective of a surface E + sum of c N^-p D^-q from many starts, or for many weightings, in step.

The unknowns are the logarithms of E and of every term at the runs' mean sizes, then the exponents: (set, unknown); the powers p
and q of a term are linear in the exponents, and how is all that is known of a form. A step is Levenberg-Marquardt's: the
curvature is that of the runs inside delta (the Gauss-Newton matrix of the objective) plus a damping times that of iteratively
reweighted least squares, which bounds Huber's function from above (Holland and Welsch 1977, doi 10.1080/03610927708827533), so
that a step descends once the damping is large. All sets go together, as products of small matrices.

Local: nothing here knows whether there is a lower basin. Arithmetic on arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marin_scaling.laws import Array

ADDITIVE = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
"""E + A N^-alpha + B D^-beta: (term, axis, exponent), the powers of N and D in each term but E by the exponents."""
LEAST_SHARE = 1e-12
"""Of the mean loss: what stands for a coefficient that the data would set to zero."""

_MOST_STEPS = 200  # from the optimum of all 240 Chinchilla points the slowest of 4,000 resamples takes about 20
_FIRST_DAMPING, _DAMPING_DOWN, _DAMPING_UP = 0.1, 0.25, 8.0
_RIDGE = 1e-13  # of the curvature's trace: keeps a set of too few different runs solvable


@dataclass(frozen=True, kw_only=True)
class CentredRuns:
    """Logarithms of the runs' sizes about their means, and their losses: (run,).

    `means` (axis,): of log params and log tokens; `powers` (term, axis, exponent): the form.
    """

    x: Array
    y: Array
    loss: Array
    log_loss: Array
    means: Array
    powers: Array

    @cached_property
    def logs(self) -> Array:
        """(axis, run)."""
        return np.stack([self.x, self.y])

    @cached_property
    def slopes(self) -> Array:
        """By how much the logarithm of each term falls with each exponent: (term, exponent, run)."""
        return np.asarray(np.einsum("tae,ar->ter", self.powers, self.logs))


@dataclass(frozen=True, kw_only=True)
class Descended:
    """Where each set ended: unknowns (set, unknown), objective (set,), and whether nothing more could be gained there."""

    theta: Array
    value: Array
    converged: NDArray[np.bool_]


def centred(params: Array, tokens: Array, loss: Array, *, powers: Array = ADDITIVE) -> CentredRuns:
    """Runs (run,) as the descent wants them; all numbers above zero."""
    x, y = np.log(params), np.log(tokens)
    return CentredRuns(
        x=x - x.mean(),
        y=y - y.mean(),
        loss=loss,
        log_loss=np.log(loss),
        means=np.array([x.mean(), y.mean()]),
        powers=powers,
    )


def descend(starts: Array, runs: CentredRuns, *, weights: Array, delta: float, least_gain: float) -> Descended:
    """From `starts` (set, unknown) downhill on the sum with `weights` (set, run), until a step changes `least_gain` of it.

    >>> params, tokens = np.array([1e8, 1e8, 1e9, 1e9, 1e10, 1e10]), np.array([1e9, 1e11, 1e9, 1e10, 1e10, 1e11])
    >>> runs = centred(params, tokens, 1.7 + 400 * params**-0.34 + 1500 * tokens**-0.33)
    >>> found = descend(np.array([[0.0, 0.0, 0.0, 0.3, 0.3]]), runs, weights=np.ones((1, 6)), delta=1e-3, least_gain=1e-10)
    >>> np.exp(found.theta[0, 0]).round(4), found.theta[0, 3:].round(4)
    (np.float64(1.7), array([0.34, 0.33]))
    """
    with np.errstate(all="ignore"):  # a step too far has an objective that is no number, and is not taken
        return _descend(starts, runs, weights, delta, least_gain)


def _descend(starts: Array, runs: CentredRuns, weights: Array, delta: float, least_gain: float) -> Descended:
    theta, value = starts.copy(), objective(starts, runs, weights, delta)
    damping, active = np.full(len(starts), _FIRST_DAMPING), np.arange(len(starts))
    for _ in range(_MOST_STEPS):
        moved = theta[active] + _step(theta[active], runs, weights[active], delta, damping[active])
        after = objective(moved, runs, weights[active], delta)
        gain = value[active] - after
        is_lower, is_last = gain > 0, np.abs(gain) <= least_gain * value[active]
        theta[active[is_lower]], value[active[is_lower]] = moved[is_lower], after[is_lower]
        damping[active] *= np.where(is_lower, _DAMPING_DOWN, _DAMPING_UP)
        active = active[~is_last]
        if not len(active):
            break
    return Descended(theta=theta, value=value, converged=~np.isin(np.arange(len(starts)), active))


def unknowns_of(numbers: ArrayLike, runs: CentredRuns) -> Array:
    """E, coefficients and exponents of a law, (number,), as the descent has them; a zero becomes next to nothing.

    >>> runs = centred(np.array([1e8, 1e9]), np.array([1e9, 1e10]), np.array([3.0, 2.5]))
    >>> unknowns_of((1.7, 400.0, 1500.0, 0.34, 0.33), runs).round(3).tolist()
    [0.531, -0.663, 0.095, 0.34, 0.33]
    """
    coefficients, exponents = np.split(np.asarray(numbers, dtype=np.float64), [1 + len(runs.powers)])
    with np.errstate(divide="ignore"):
        at_centre = np.log(coefficients) - np.r_[0.0, runs.powers @ exponents @ runs.means]
    return np.concatenate([np.maximum(at_centre, np.log(LEAST_SHARE * runs.loss.mean())), exponents])


def numbers_of(theta: Array, runs: CentredRuns) -> Array:
    """The other way round, of many laws: (set, unknown); infinite where a coefficient is too large to be written down."""
    at_centre, exponents = np.split(theta, [1 + len(runs.powers)], axis=1)
    fall = np.tensordot(exponents, runs.powers, axes=(1, 2)) @ runs.means  # (set, term)
    with np.errstate(over="ignore"):
        coefficients = np.exp(at_centre + np.pad(fall, ((0, 0), (1, 0))))
    return np.concatenate([coefficients, exponents], axis=1)


def objective(theta: Array, runs: CentredRuns, weights: Array, delta: float) -> Array:
    """Weighted sum over runs of Huber's function of the log residuals, of each set of unknowns: (set,)."""
    residuals = np.log(terms(theta, runs).sum(axis=1)) - runs.log_loss
    return np.asarray(np.einsum("sr,sr->s", weights, huber_function(residuals, delta)))


def terms(theta: Array, runs: CentredRuns) -> Array:
    """The terms of the loss, E first: (set, 1 + term, run)."""
    at_centre, exponents = np.split(theta, [1 + len(runs.powers)], axis=1)
    fall = np.tensordot(exponents, runs.powers, axes=(1, 2)) @ runs.logs  # (set, term, run)
    logarithms = np.repeat(at_centre[:, :, None], len(runs.x), axis=2)
    logarithms[:, 1:] -= fall
    with np.errstate(over="ignore"):  # a step too far: its objective is infinite, and it is not taken
        return np.asarray(np.exp(logarithms))


def derivatives(parts: Array, runs: CentredRuns) -> Array:
    """Derivatives by the unknowns of the sum of `parts` (set, 1 + term, run), which are the terms, or multiples of them."""
    by_exponent = -sum(parts[:, 1 + term, None] * slopes for term, slopes in enumerate(runs.slopes))
    return np.concatenate([parts, by_exponent], axis=1)


def huber_function(residuals: Array, delta: float) -> Array:
    """Half the square within `delta`, and straight on from there, for each residual."""
    size = np.abs(residuals)
    inside = np.minimum(size, delta)
    return np.asarray(inside * (size - 0.5 * inside))


def _step(theta: Array, runs: CentredRuns, weights: Array, delta: float, damping: Array) -> Array:
    """The damped step of every set: (set, unknown)."""
    parts = terms(theta, runs)
    predicted = parts.sum(axis=1, keepdims=True)
    slopes = derivatives(parts / predicted, runs)  # of the log loss: (set, unknown, run)
    residuals = np.log(predicted[:, 0]) - runs.log_loss
    reweighted = weights * delta / np.maximum(np.abs(residuals), delta)
    curvature = weights * (np.abs(residuals) <= delta) + damping[:, None] * reweighted
    matrix = (slopes * curvature[:, None]) @ slopes.transpose(0, 2, 1)
    matrix += _RIDGE * np.trace(matrix, axis1=1, axis2=2)[:, None, None] * np.eye(len(theta[0]))
    return -np.linalg.solve(matrix, slopes @ (reweighted * residuals)[:, :, None])[:, :, 0]
