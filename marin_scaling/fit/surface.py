"""Fit the additive surface L(N, D) = E + A N^-alpha + B D^-beta (Hoffmann et al. 2022, eq. 10) by one of three objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fit.huber import (
    LEAST_SHARE,
    CentredRuns,
    centred,
    derivatives,
    descend,
    huber_function,
    numbers_of,
    objective,
    terms,
)
from marin_scaling.laws import Array, SurfaceLaw

SURFACE_UNKNOWNS = 5

MOST_RUNS = 5000
"""A fit with its bootstrap then takes about 12 s and 0.5 GB."""

EXPONENT_BRACKET = (0.02, 2.0)
"""Where starts are sought: a factor of four beyond the exponents published so far (0.08 to 0.5). Polishing may leave it."""

_GRID_POINTS = 28
_BASINS = 6
_LEAST_GAIN = 1e-15  # of the objective: a descent's last step changes no more
_POLISH_ROUNDS = 4
_LAD_STEPS = 60


class Objective(StrEnum):
    """What is made least: log-Huber of Hoffmann et al. 2022, absolute log residuals, or squares of the loss itself."""

    LOG_HUBER = "log-huber"
    LOG_ABSOLUTE = "log-absolute"
    SQUARES = "squares"


@dataclass(frozen=True, kw_only=True)
class SurfaceFit:
    """A surface and the value of its objective: a sum over runs (for `SQUARES` of squared losses, else of log residuals)."""

    law: SurfaceLaw
    objective: Objective
    value: float


def fit_surface(
    *,
    params: Array,
    tokens: Array,
    loss: Array,
    objective: Objective = Objective.LOG_HUBER,
    huber_delta: float = 1e-3,
) -> SurfaceFit:
    """The surface with the least objective through runs; arrays are (run,), at least six runs, all numbers above zero.

    `huber_delta` is in units of the log residual (Hoffmann et al. 2022, appendix D.3: 1e-3). `FitRefused` when five numbers
    cannot be told apart: too few runs, no spread in parameters or tokens, or an exponent that grows without end.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e11, 5)))
    >>> fit = fit_surface(params=params, tokens=tokens, loss=1.69 + 406.4 * params**-0.34 + 410.7 * tokens**-0.28)
    >>> f"{fit.law.E:.5f} {fit.law.alpha:.5f} {fit.law.beta:.5f}"
    '1.69000 0.34000 0.28000'
    """
    _require_spread(params, tokens)
    data = centred(params, tokens, loss)
    starts = _best_basins(data, huber_delta=huber_delta)
    if objective is Objective.SQUARES:
        value, best = min((_polish_squares(start, data) for start in starts), key=lambda found: found[0])
    else:
        value, best = _polished_huber(starts, data, huber_delta)
        if objective is Objective.LOG_ABSOLUTE:
            value, best = _descend_absolute(best, data)
    return SurfaceFit(law=_law(best, data), objective=objective, value=value)


def _require_spread(params: Array, tokens: Array) -> None:
    if len(params) > MOST_RUNS:
        raise FitRefused(
            f"{len(params)} runs are more than a surface is fitted to ({MOST_RUNS}).",
            why="Every pair of exponents is tried on all of them, and memory grows with both.",
            fix="Leave runs out, or fit the coupled law, which takes any number.",
        )
    pairs = len(np.unique(np.stack([params, tokens]), axis=1).T)
    if min(len(np.unique(params)), len(np.unique(tokens))) < 3 or pairs <= SURFACE_UNKNOWNS:
        raise FitRefused(
            f"{pairs} different runs with {len(np.unique(params))} sizes and {len(np.unique(tokens))} numbers of tokens.",
            why="The surface has 5 unknowns; it needs 6 runs or more, of three sizes and three lengths.",
            fix="Add runs of other sizes and lengths, or fit the frontier alone.",
        )


def _law(theta: Array, data: CentredRuns) -> SurfaceLaw:
    numbers = numbers_of(theta[None], data)[0]
    if not np.isfinite(numbers).all():
        raise endless_exponents(theta)
    E, A, B, alpha, beta = (float(number) for number in numbers)
    return SurfaceLaw(E=E, A=A, B=B, alpha=alpha, beta=beta)


def endless_exponents(theta: Array) -> FitRefused:
    """The refusal for a law with a term that has no bound."""
    exponents = theta[3:]
    return FitRefused(
        f"The best exponents are {' and '.join(f'{each:.3g}' for each in exponents)}.",
        why="A term that falls so fast bends through a single run and says nothing of others.",
        fix="Add runs, or fit the frontier alone.",
    )


def _best_basins(data: CentredRuns, *, huber_delta: float) -> list[Array]:
    """Starts (log E, log A, log B, alpha, beta), the best of every basin of the grid first, at most `_BASINS`."""
    grid = np.geomspace(*EXPONENT_BRACKET, _GRID_POINTS)
    coefficients, values = _score_grid(grid, data, huber_delta=huber_delta)
    padded = np.pad(values, 1, constant_values=np.inf)
    around = [padded[1 + i : 1 + i + len(grid), 1 + j : 1 + j + len(grid)] for i in (-1, 0, 1) for j in (-1, 0, 1)]
    is_lowest = values <= np.min(around, axis=0)
    cells = np.argwhere(is_lowest)[np.argsort(values[is_lowest], kind="stable")][:_BASINS]
    return [np.array([*np.log(coefficients[i, j]), grid[i], grid[j]]) for i, j in cells]


def _score_grid(grid: Array, data: CentredRuns, *, huber_delta: float) -> tuple[Array, Array]:
    """E, A, B by relative least squares at every pair of exponents (alpha, beta, 3), and the log-Huber sum there.

    A coefficient that would be negative is set to next to nothing.
    """
    sizes, horizons = np.exp(-np.outer(grid, data.x)), np.exp(-np.outer(grid, data.y))  # (exponent, run)
    weight, points = data.loss**-2, len(grid)
    gram, right = np.empty((points, points, 3, 3)), np.empty((points, points, 3))
    gram[..., 0, 0] = weight.sum()
    gram[..., 0, 1] = gram[..., 1, 0] = (sizes @ weight)[:, None]
    gram[..., 0, 2] = gram[..., 2, 0] = (horizons @ weight)[None, :]
    gram[..., 1, 1] = (sizes**2 @ weight)[:, None]
    gram[..., 2, 2] = (horizons**2 @ weight)[None, :]
    gram[..., 1, 2] = gram[..., 2, 1] = (sizes * weight) @ horizons.T
    right[..., 0] = (1 / data.loss).sum()
    right[..., 1], right[..., 2] = (sizes @ (1 / data.loss))[:, None], (horizons @ (1 / data.loss))[None, :]
    found = np.linalg.pinv(gram, hermitian=True) @ right[..., None]
    coefficients = np.maximum(found[..., 0], LEAST_SHARE * float(data.loss.mean()))
    predicted = (
        coefficients[..., 0, None]
        + coefficients[..., 1, None] * sizes[:, None, :]
        + coefficients[..., 2, None] * horizons[None, :, :]
    )
    return coefficients, huber_function(np.log(predicted) - data.log_loss, huber_delta).sum(axis=-1)


def _polished_huber(starts: list[Array], data: CentredRuns, delta: float) -> tuple[float, Array]:
    """The lowest log-Huber sum, and where, that a descent from any start ends at.

    One that does not arrive (along a valley) goes on by BFGS; a start whose sum is no number is left out.
    """
    ones = np.ones((len(starts), len(data.loss)))
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(objective(np.array(starts), data, ones, delta))
    ends = descend(np.array(starts)[finite], data, weights=ones[finite], delta=delta, least_gain=_LEAST_GAIN)
    found = [
        (float(value), theta) if arrived else _minimised(lambda at: _huber(at, data, delta), theta)
        for theta, value, arrived in zip(ends.theta, ends.value, ends.converged, strict=True)
    ]
    return min(found, key=lambda each: each[0])


def _huber(theta: Array, data: CentredRuns, delta: float) -> tuple[float, Array]:
    """Sum of Huber's function of the log residuals, and its gradient (5,)."""
    predicted, slopes = _prediction(theta, data)
    residuals = np.log(predicted) - data.log_loss
    return float(huber_function(residuals, delta).sum()), np.asarray(slopes @ (np.clip(residuals, -delta, delta) / predicted))


def _squares(theta: Array, data: CentredRuns) -> tuple[float, Array]:
    predicted, slopes = _prediction(theta, data)
    residuals = predicted - data.loss
    return float(residuals @ residuals), np.asarray(2 * slopes @ residuals)


def _prediction(theta: Array, data: CentredRuns) -> tuple[Array, Array]:
    """The loss (run,), and its derivatives by the five numbers (5, run)."""
    parts = terms(theta[None], data)
    return parts[0].sum(axis=0), derivatives(parts, data)[0]


def _polish_squares(start: Array, data: CentredRuns) -> tuple[float, Array]:
    return _minimised(lambda theta: _squares(theta, data), start)


def _minimised(objective: Callable[[Array], tuple[float, Array]], start: Array) -> tuple[float, Array]:
    """Value and place of the minimum of an objective that gives its gradient too.

    BFGS, begun anew from where it ended until nothing is gained; the objective is scaled to one at the start.
    """
    from scipy.optimize import minimize

    best, theta = objective(start)[0], start
    for _ in range(_POLISH_ROUNDS):
        scale = max(best, np.finfo(float).tiny)

        def scaled(point: Array, scale: float = scale) -> tuple[float, Array]:
            value, gradient = objective(np.clip(point, -700, 700))
            return value / scale, gradient / scale

        with np.errstate(over="ignore", invalid="ignore"):  # a trial far away is infinite, and not taken
            found = minimize(scaled, theta, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000})
        gain, theta, best = best - found.fun * scale, found.x, min(best, found.fun * scale)
        if gain <= 1e-13 * scale:
            break
    return best, theta


def _descend_absolute(start: Array, data: CentredRuns) -> tuple[float, Array]:
    """Least absolute log residuals by linear programmes in a shrinking box: exact at the vertex where five runs are met."""
    theta, value, radius = start, _absolute(start, data), 0.1
    for _ in range(_LAD_STEPS):
        step = _linear_programme(theta, data, radius)
        moved = _absolute(theta + step, data)
        if moved < value:
            theta, value, radius = theta + step, moved, radius * 2
        else:
            radius /= 4
        if radius < 1e-14:
            break
    return value, theta


def _absolute(theta: Array, data: CentredRuns) -> float:
    return float(np.abs(np.log(_prediction(theta, data)[0]) - data.log_loss).sum())


def _linear_programme(theta: Array, data: CentredRuns, radius: float) -> Array:
    """The step within `radius` that makes the sum of absolute linearised residuals least."""
    from scipy.optimize import linprog

    predicted, derivative = _prediction(theta, data)
    slopes = (derivative / predicted).T  # (run, 5)
    residuals = np.log(predicted) - data.log_loss
    runs = len(residuals)
    found = linprog(
        np.r_[np.zeros(5), np.ones(2 * runs)],
        A_eq=np.hstack([slopes, -np.eye(runs), np.eye(runs)]),
        b_eq=-residuals,
        bounds=[(-radius, radius)] * 5 + [(0, None)] * (2 * runs),
        method="highs",
    )
    return np.asarray(found.x[:5] if found.x is not None else np.zeros(5))
