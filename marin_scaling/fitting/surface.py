"""Surfaces L(N, D): the additive one of Hoffmann et al. 2022 (eq. 10), and two other forms for the sensitivity table.

A grid of exponents finds basins; the log-Huber objective is then minimized from many starts, or for many weightings, at once.
The unknowns are the logarithms of E and of every term at the runs' mean sizes, then the exponents: (set, unknown). A step is
Levenberg-Marquardt's. Its curvature is that of the runs inside delta (the Gauss-Newton matrix of the objective), plus a damping
times that of iteratively reweighted least squares. The latter bounds Huber's function from above (Holland and Welsch 1977, doi
10.1080/03610927708827533), so that a step descends once the damping is large. All sets are computed together, as products of
small matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import product
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array, SurfaceLaw, surface_loss

ADDITIVE = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
"""Form E + A N^-alpha + B D^-beta: (term, axis, exponent), the powers of N and D in each term but E by the exponents."""
LEAST_SHARE = 1e-12
"""Share of the mean loss that replaces a coefficient of zero."""

_MOST_STEPS = 200  # the slowest of 4,000 resamples of all 240 Chinchilla points takes about 20
_FIRST_DAMPING, _DAMPING_DOWN, _DAMPING_UP = 0.1, 0.25, 8.0
_RIDGE = 1e-13  # of the curvature's trace: keeps a set with too few different runs solvable


@dataclass(frozen=True, kw_only=True)
class CentredRuns:
    """Logarithms of the runs' sizes relative to their means, and their losses: (run,).

    `means` (axis,) are those of log params and log tokens; `powers` (term, axis, exponent) is the form.
    """

    x: Array
    y: Array
    loss: Array
    log_loss: Array
    means: Array
    powers: Array

    @cached_property
    def logs(self) -> Array:
        """Logarithms of the sizes: (axis, run)."""
        return np.stack([self.x, self.y])

    @cached_property
    def slopes(self) -> Array:
        """Decrease of each term's logarithm per unit of each exponent: (term, exponent, run)."""
        return np.asarray(np.einsum("tae,ar->ter", self.powers, self.logs))


@dataclass(frozen=True, kw_only=True)
class Descended:
    """End of each set's descent: unknowns (set, unknown), objective (set,), and whether it converged."""

    theta: Array
    value: Array
    converged: NDArray[np.bool_]


def centred(params: Array, tokens: Array, loss: Array, *, powers: Array = ADDITIVE) -> CentredRuns:
    """Center runs (run,) for the descent; all numbers above zero."""
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
    """Minimize the sum with `weights` (set, run) from `starts` (set, unknown), until a step changes it by `least_gain`.

    >>> params, tokens = np.array([1e8, 1e8, 1e9, 1e9, 1e10, 1e10]), np.array([1e9, 1e11, 1e9, 1e10, 1e10, 1e11])
    >>> runs = centred(params, tokens, 1.7 + 400 * params**-0.34 + 1500 * tokens**-0.33)
    >>> found = descend(np.array([[0.0, 0.0, 0.0, 0.3, 0.3]]), runs, weights=np.ones((1, 6)), delta=1e-3, least_gain=1e-10)
    >>> np.exp(found.theta[0, 0]).round(4), found.theta[0, 3:].round(4)
    (np.float64(1.7), array([0.34, 0.33]))
    """
    with np.errstate(all="ignore"):  # the objective of a step too far is NaN, and the step is rejected
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
    """Return E, coefficients and exponents of a law, (number,), as unknowns; a zero becomes a tiny number.

    >>> runs = centred(np.array([1e8, 1e9]), np.array([1e9, 1e10]), np.array([3.0, 2.5]))
    >>> unknowns_of((1.7, 400.0, 1500.0, 0.34, 0.33), runs).round(3).tolist()
    [0.531, -0.663, 0.095, 0.34, 0.33]
    """
    coefficients, exponents = np.split(np.asarray(numbers, dtype=np.float64), [1 + len(runs.powers)])
    with np.errstate(divide="ignore"):
        at_centre = np.log(coefficients) - np.r_[0.0, runs.powers @ exponents @ runs.means]
    return np.concatenate([np.maximum(at_centre, np.log(LEAST_SHARE * runs.loss.mean())), exponents])


def numbers_of(theta: Array, runs: CentredRuns) -> Array:
    """Invert `unknowns_of` for many laws: (set, unknown); infinite for a coefficient that overflows."""
    at_centre, exponents = np.split(theta, [1 + len(runs.powers)], axis=1)
    fall = np.tensordot(exponents, runs.powers, axes=(1, 2)) @ runs.means  # (set, term)
    with np.errstate(over="ignore"):
        coefficients = np.exp(at_centre + np.pad(fall, ((0, 0), (1, 0))))
    return np.concatenate([coefficients, exponents], axis=1)


def objective(theta: Array, runs: CentredRuns, weights: Array, delta: float) -> Array:
    """Return the weighted sum over runs of Huber's function of the log residuals, for each set of unknowns: (set,)."""
    residuals = np.log(terms(theta, runs).sum(axis=1)) - runs.log_loss
    return np.asarray(np.einsum("sr,sr->s", weights, huber_function(residuals, delta)))


def terms(theta: Array, runs: CentredRuns) -> Array:
    """Return the terms of the loss, E first: (set, 1 + term, run)."""
    at_centre, exponents = np.split(theta, [1 + len(runs.powers)], axis=1)
    fall = np.tensordot(exponents, runs.powers, axes=(1, 2)) @ runs.logs  # (set, term, run)
    logarithms = np.repeat(at_centre[:, :, None], len(runs.x), axis=2)
    logarithms[:, 1:] -= fall
    with np.errstate(over="ignore"):  # the objective of a step too far is infinite, and the step is rejected
        return np.asarray(np.exp(logarithms))


def derivatives(parts: Array, runs: CentredRuns) -> Array:
    """Return derivatives by the unknowns of the sum of `parts` (set, 1 + term, run), the terms or multiples of them."""
    by_exponent = -sum(parts[:, 1 + term, None] * slopes for term, slopes in enumerate(runs.slopes))
    return np.concatenate([parts, by_exponent], axis=1)


def huber_function(residuals: Array, delta: float) -> Array:
    """Return half the square within `delta`, and its linear continuation outside, for each residual."""
    size = np.abs(residuals)
    inside = np.minimum(size, delta)
    return np.asarray(inside * (size - 0.5 * inside))


def _step(theta: Array, runs: CentredRuns, weights: Array, delta: float, damping: Array) -> Array:
    """Return the damped step of every set: (set, unknown)."""
    parts = terms(theta, runs)
    predicted = parts.sum(axis=1, keepdims=True)
    slopes = derivatives(parts / predicted, runs)  # of the log loss: (set, unknown, run)
    residuals = np.log(predicted[:, 0]) - runs.log_loss
    reweighted = weights * delta / np.maximum(np.abs(residuals), delta)
    curvature = weights * (np.abs(residuals) <= delta) + damping[:, None] * reweighted
    matrix = (slopes * curvature[:, None]) @ slopes.transpose(0, 2, 1)
    matrix += _RIDGE * np.trace(matrix, axis1=1, axis2=2)[:, None, None] * np.eye(len(theta[0]))
    return -np.linalg.solve(matrix, slopes @ (reweighted * residuals)[:, :, None])[:, :, 0]


SURFACE_UNKNOWNS = 5

MOST_RUNS = 5000
"""Largest number of runs; a fit with its bootstrap then takes about 12 s and 0.5 GB."""

EXPONENT_BRACKET = (0.02, 2.0)
"""Grid of exponents, a factor of four beyond published ones (0.08 to 0.5). Polishing may leave it."""

_GRID_POINTS = 28
_BASINS = 6
_LEAST_GAIN = 1e-15  # relative change of the objective in the last step
_POLISH_ROUNDS = 4
_LAD_STEPS = 60


class Objective(StrEnum):
    """Objective to minimize: log-Huber of Hoffmann et al. 2022, absolute log residuals, or squared residuals of the loss."""

    LOG_HUBER = "log-huber"
    LOG_ABSOLUTE = "log-absolute"
    SQUARES = "squares"


@dataclass(frozen=True, kw_only=True)
class SurfaceFit:
    """A surface and its objective: a sum over runs (for `SQUARES` of squared losses, else of log residuals)."""

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
    """Fit the surface with the least objective; arrays are (run,), at least six runs, all numbers above zero.

    `huber_delta` is in units of the log residual (Hoffmann et al. 2022, appendix D.3: 1e-3). `FitRefused` if the runs do not
    determine five numbers: too few runs, no spread in parameters or tokens, or an exponent that grows without bound.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e11, 5)))
    >>> fit = fit_surface(params=params, tokens=tokens, loss=1.69 + 406.4 * params**-0.34 + 410.7 * tokens**-0.28)
    >>> f"{fit.law.E:.5f} {fit.law.alpha:.5f} {fit.law.beta:.5f}"
    '1.69000 0.34000 0.28000'
    """
    require_spread(params, tokens, unknowns=SURFACE_UNKNOWNS)
    data = centred(params, tokens, loss)
    starts = _best_basins(data, huber_delta=huber_delta)
    if objective is Objective.SQUARES:
        value, best = min((_polish_squares(start, data) for start in starts), key=lambda found: found[0])
    else:
        value, best = polished_huber(starts, data, huber_delta)
        if objective is Objective.LOG_ABSOLUTE:
            value, best = _descend_absolute(best, data)
    return SurfaceFit(law=_law(best, data), objective=objective, value=value)


def require_spread(params: Array, tokens: Array, *, unknowns: int) -> None:
    """Raise `FitRefused` if runs (run,) do not determine `unknowns` numbers of a surface, or are more than `MOST_RUNS`."""
    if len(params) > MOST_RUNS:
        raise FitRefused(
            f"{len(params)} runs are more than a surface is fitted to ({MOST_RUNS}).",
            why="Every pair of exponents is tried on all runs, and memory grows with both.",
            fix="Leave runs out, or fit the coupled law, which takes any number.",
        )
    pairs = len(np.unique(np.stack([params, tokens]), axis=1).T)
    if min(len(np.unique(params)), len(np.unique(tokens))) < 3 or pairs <= unknowns:
        raise FitRefused(
            f"{pairs} different runs with {len(np.unique(params))} sizes and {len(np.unique(tokens))} numbers of tokens.",
            why=f"A surface of {unknowns} unknowns needs at least {unknowns + 1} runs, of three sizes and three lengths.",
            fix="Add runs of other sizes and lengths, or fit the frontier alone.",
        )


def _law(theta: Array, data: CentredRuns) -> SurfaceLaw:
    E, A, B, alpha, beta = finite_numbers(theta, data)
    return SurfaceLaw(E=E, A=A, B=B, alpha=alpha, beta=beta)


def finite_numbers(theta: Array, data: CentredRuns) -> list[float]:
    """Return E, coefficients and exponents of one law; `FitRefused` for a coefficient that overflows."""
    numbers = numbers_of(theta[None], data)[0]
    if not np.isfinite(numbers).all():
        raise endless_exponents(theta, data)
    return [float(number) for number in numbers]


def endless_exponents(theta: Array, data: CentredRuns) -> FitRefused:
    """Return the refusal for a law with an unbounded exponent."""
    exponents = theta[1 + len(data.powers) :]
    return FitRefused(
        f"The best exponents are {' and '.join(f'{each:.3g}' for each in exponents)}.",
        why="A term that falls so fast bends through a single run.",
        fix="Add runs, or fit the frontier alone.",
    )


def _best_basins(data: CentredRuns, *, huber_delta: float) -> list[Array]:
    """Return starts (log E, log A, log B, alpha, beta), the best of every basin of the grid first, at most `_BASINS`."""
    grid = np.geomspace(*EXPONENT_BRACKET, _GRID_POINTS)
    coefficients, values = _score_grid(grid, data, huber_delta=huber_delta)
    padded = np.pad(values, 1, constant_values=np.inf)
    around = [padded[1 + i : 1 + i + len(grid), 1 + j : 1 + j + len(grid)] for i in (-1, 0, 1) for j in (-1, 0, 1)]
    is_lowest = values <= np.min(around, axis=0)
    cells = np.argwhere(is_lowest)[np.argsort(values[is_lowest], kind="stable")][:_BASINS]
    return [np.array([*np.log(coefficients[i, j]), grid[i], grid[j]]) for i, j in cells]


def _score_grid(grid: Array, data: CentredRuns, *, huber_delta: float) -> tuple[Array, Array]:
    """Return E, A, B by relative least squares at every pair of exponents (alpha, beta, 3), and the log-Huber sum there.

    A coefficient that would be negative is set to a tiny number.
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


def polished_huber(starts: list[Array], data: CentredRuns, delta: float) -> tuple[float, Array]:
    """Return the lowest log-Huber sum, and its unknowns, of descents from all starts; `data` determines the form of the law.

    A descent that does not converge (along a valley) continues by BFGS; a start whose sum is NaN is left out.
    """
    ones = np.ones((len(starts), len(data.loss)))
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(objective(np.array(starts), data, ones, delta))
    ends = descend(np.array(starts)[finite], data, weights=ones[finite], delta=delta, least_gain=_LEAST_GAIN)
    found = [
        (float(value), theta) if arrived else minimised(lambda at: _huber(at, data, delta), theta)
        for theta, value, arrived in zip(ends.theta, ends.value, ends.converged, strict=True)
    ]
    return min(found, key=lambda each: each[0])


def _huber(theta: Array, data: CentredRuns, delta: float) -> tuple[float, Array]:
    """Return the sum of Huber's function of the log residuals, and its gradient (5,)."""
    predicted, slopes = _prediction(theta, data)
    residuals = np.log(predicted) - data.log_loss
    return float(huber_function(residuals, delta).sum()), np.asarray(slopes @ (np.clip(residuals, -delta, delta) / predicted))


def _squares(theta: Array, data: CentredRuns) -> tuple[float, Array]:
    predicted, slopes = _prediction(theta, data)
    residuals = predicted - data.loss
    return float(residuals @ residuals), np.asarray(2 * slopes @ residuals)


def _prediction(theta: Array, data: CentredRuns) -> tuple[Array, Array]:
    """Return the loss (run,), and its derivatives by the five unknowns (5, run)."""
    parts = terms(theta[None], data)
    return parts[0].sum(axis=0), derivatives(parts, data)[0]


def _polish_squares(start: Array, data: CentredRuns) -> tuple[float, Array]:
    return minimised(lambda theta: _squares(theta, data), start)


def minimised(objective: Callable[[Array], tuple[float, Array]], start: Array) -> tuple[float, Array]:
    """Return value and place of the minimum of an objective that also gives its gradient.

    BFGS restarts from its last point until nothing is gained; the objective is scaled to one at the start.
    """
    from scipy.optimize import minimize

    best, theta = objective(start)[0], start
    for _ in range(_POLISH_ROUNDS):
        scale = max(best, np.finfo(float).tiny)

        def scaled(point: Array, scale: float = scale) -> tuple[float, Array]:
            value, gradient = objective(np.clip(point, -700, 700))
            return value / scale, gradient / scale

        with np.errstate(over="ignore", invalid="ignore"):  # the objective of a trial far away is infinite
            found = minimize(scaled, theta, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 2000})
        gain, theta, best = best - found.fun * scale, found.x, min(best, found.fun * scale)
        if gain <= 1e-13 * scale:
            break
    return best, theta


def _descend_absolute(start: Array, data: CentredRuns) -> tuple[float, Array]:
    """Minimize absolute log residuals by linear programs in a shrinking box: exact at the vertex of five runs."""
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
    """Return the step within `radius` that minimizes the sum of absolute linearized residuals."""
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


@dataclass(frozen=True, kw_only=True)
class TiedSurface:
    """A surface with one exponent for parameters and tokens; E in the unit of the loss."""

    E: float
    A: float
    B: float
    alpha: float
    formula: ClassVar[str] = "E + A * N^-alpha + B * D^-alpha"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the loss for each number of parameters and trained tokens.

        >>> TiedSurface(E=1.7, A=1000.0, B=1500.0, alpha=0.34).predict([1e9], [1e11]).round(3)
        array([2.844])
        """
        additive = SurfaceLaw(E=self.E, A=self.A, B=self.B, alpha=self.alpha, beta=self.alpha)
        return surface_loss(additive, params=params, tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class InteractionSurface:
    """The additive surface with a product term; E in the unit of the loss."""

    E: float
    A: float
    B: float
    F: float
    alpha: float
    beta: float
    formula: ClassVar[str] = "E + A * N^-alpha + B * D^-beta + F * N^-alpha * D^-beta"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Return the loss for each number of parameters and trained tokens.

        >>> law = InteractionSurface(E=1.7, A=400.0, B=1500.0, F=1e5, alpha=0.34, beta=0.34)
        >>> law.predict([1e9], [1e11]).round(3)
        array([2.337])
        """
        by_size, by_tokens = (
            np.asarray(params, dtype=np.float64) ** -self.alpha,
            np.asarray(tokens, dtype=np.float64) ** -self.beta,
        )
        return np.asarray(self.E + self.A * by_size + self.B * by_tokens + self.F * by_size * by_tokens)


LawT = TypeVar("LawT")


@dataclass(frozen=True, kw_only=True)
class FormFit(Generic[LawT]):
    """A law and its log-Huber sum."""

    law: LawT
    value: float


TIED = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
INTERACTION = np.concatenate([ADDITIVE, ADDITIVE.sum(axis=0, keepdims=True)])  # the product has both powers
"""Form of the surface with a product term, like `ADDITIVE`: (term, axis, exponent)."""


def fit_tied_surface(*, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3) -> FormFit[TiedSurface]:
    """Fit the tied surface with the least log-Huber sum to runs (run,), at least five, all numbers above zero.

    `FitRefused` for too few runs, sizes or numbers of tokens.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e11, 5)))
    >>> fit = fit_tied_surface(params=params, tokens=tokens, loss=1.7 + 1000 * params**-0.34 + 1500 * tokens**-0.34)
    >>> f"{fit.law.E:.5f} {fit.law.alpha:.5f}"
    '1.70000 0.34000'
    """
    value, (E, A, B, alpha) = _fitted(TIED, params, tokens, loss, huber_delta)
    return FormFit(law=TiedSurface(E=E, A=A, B=B, alpha=alpha), value=value)


def fit_interaction_surface(
    *, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3
) -> FormFit[InteractionSurface]:
    """Fit the surface with a product term with the least log-Huber sum; at least seven runs, else as `fit_tied_surface`.

    Its search also starts at the additive optimum, so its sum is never above that.
    """
    additive = fit_surface(params=params, tokens=tokens, loss=loss, huber_delta=huber_delta).law
    start = np.array([additive.E, additive.A, additive.B, 0.0, additive.alpha, additive.beta])
    value, (E, A, B, F, alpha, beta) = _fitted(INTERACTION, params, tokens, loss, huber_delta, start)
    return FormFit(law=InteractionSurface(E=E, A=A, B=B, F=F, alpha=alpha, beta=beta), value=value)


def _fitted(
    powers: Array, params: Array, tokens: Array, loss: Array, delta: float, *starts: Array
) -> tuple[float, list[float]]:
    """Return the minimum of the objective and its numbers (E, coefficients, exponents); `starts` are such numbers."""
    terms, _, exponents = powers.shape
    require_spread(params, tokens, unknowns=1 + terms + exponents)
    runs = centred(params, tokens, loss, powers=powers)
    begun = [*_best_form_basins(runs, delta), *(unknowns_of(start, runs) for start in starts)]
    value, theta = polished_huber(begun, runs, delta)
    return value, finite_numbers(theta, runs)


def _best_form_basins(runs: CentredRuns, delta: float) -> list[Array]:
    """Return starts from the lowest cell of every basin of a grid over the exponents, the best first, at most `_BASINS`."""
    grid, count = np.geomspace(*EXPONENT_BRACKET, _GRID_POINTS), runs.powers.shape[2]
    cells = np.stack(np.meshgrid(*[grid] * count, indexing="ij"), axis=-1).reshape(-1, count)
    coefficients = np.array([_best_coefficients(cell, runs) for cell in cells])
    starts = np.concatenate([np.log(np.maximum(coefficients, LEAST_SHARE * float(runs.loss.mean()))), cells], axis=1)
    values: Array = objective(starts, runs, np.ones((1, len(runs.loss))), delta).reshape([_GRID_POINTS] * count)
    padded = np.pad(values, 1, constant_values=np.inf)
    around = [padded[tuple(slice(i, i + _GRID_POINTS) for i in shift)] for shift in product((0, 1, 2), repeat=count)]
    lowest = np.flatnonzero(values <= np.min(around, axis=0))
    return [starts[cell] for cell in sorted(lowest, key=lambda cell: values.flat[cell])[:_BASINS]]


def _best_coefficients(exponents: Array, runs: CentredRuns) -> Array:
    """Return non-negative E and coefficients that fit best by relative least squares at given exponents."""
    from scipy.optimize import nnls

    terms = np.exp(-(runs.powers @ exponents) @ runs.logs)
    design = np.concatenate([np.ones((1, len(runs.loss))), terms]) / runs.loss  # (term, run)
    return np.asarray(nnls(design.T, np.ones(len(runs.loss)))[0])
