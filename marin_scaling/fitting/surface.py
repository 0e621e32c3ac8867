"""Surfaces L(N, D) of fixed form: additive, tied, interaction, over-training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.huber import (
    ADDITIVE,
    LEAST_SHARE,
    CentredRuns,
    centred,
    derivatives,
    descend,
    huber_function,
    numbers_of,
    objective,
    terms,
    unknowns_of,
)
from marin_scaling.laws import Array, SurfaceLaw, surface_loss


@dataclass(frozen=True, kw_only=True)
class SurfaceDraws:
    """Surfaces refitted to resampled runs: `unknowns` (set, unknown) about the middle of `runs`.

    `residuals` (run,): log residuals of the surface of all runs, scaled up for the unknowns that were fitted to them.
    """

    unknowns: Array
    runs: CentredRuns
    residuals: Array

    def losses(self, *, params: Array, tokens: Array) -> Array:
        """Loss of every surface at targets (target,): (set, target)."""
        x, y = np.log([params, tokens]) - self.runs.means[:, None]
        return np.asarray(terms(self.unknowns, replace(self.runs, x=x, y=y)).sum(axis=1))


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
    """`FitRefused` when runs (run,) cannot tell `unknowns` numbers of a surface apart, or are more than `MOST_RUNS`."""
    if len(params) > MOST_RUNS:
        raise FitRefused(
            f"{len(params)} runs are more than a surface is fitted to ({MOST_RUNS}).",
            why="Every pair of exponents is tried on all of them, and memory grows with both.",
            fix="Leave runs out, or fit the coupled law, which takes any number.",
        )
    pairs = len(np.unique(np.stack([params, tokens]), axis=1).T)
    if min(len(np.unique(params)), len(np.unique(tokens))) < 3 or pairs <= unknowns:
        raise FitRefused(
            f"{pairs} different runs with {len(np.unique(params))} sizes and {len(np.unique(tokens))} numbers of tokens.",
            why=f"The surface has {unknowns} unknowns; it needs {unknowns + 1} runs or more, of three sizes and three lengths.",
            fix="Add runs of other sizes and lengths, or fit the frontier alone.",
        )


def _law(theta: Array, data: CentredRuns) -> SurfaceLaw:
    E, A, B, alpha, beta = finite_numbers(theta, data)
    return SurfaceLaw(E=E, A=A, B=B, alpha=alpha, beta=beta)


def finite_numbers(theta: Array, data: CentredRuns) -> list[float]:
    """E, coefficients and exponents of one law; `FitRefused` where no coefficient can be written down."""
    numbers = numbers_of(theta[None], data)[0]
    if not np.isfinite(numbers).all():
        raise endless_exponents(theta, data)
    return [float(number) for number in numbers]


def endless_exponents(theta: Array, data: CentredRuns) -> FitRefused:
    """The refusal for a law with a term that has no bound."""
    exponents = theta[1 + len(data.powers) :]
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


def polished_huber(starts: list[Array], data: CentredRuns, delta: float) -> tuple[float, Array]:
    """The lowest log-Huber sum, and where, that a descent from any start ends at; the form of the law is that of `data`.

    One that does not arrive (along a valley) goes on by BFGS; a start whose sum is no number is left out.
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
    return minimised(lambda theta: _squares(theta, data), start)


def minimised(objective: Callable[[Array], tuple[float, Array]], start: Array) -> tuple[float, Array]:
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


FLOPS_PER_PARAM_TOKEN = 6.0  # Kaplan et al. 2020; Gadre's C


@dataclass(frozen=True, kw_only=True)
class TiedSurface:
    """One exponent for parameters and tokens; E in the unit of the loss."""

    E: float
    A: float
    B: float
    alpha: float
    formula: ClassVar[str] = "E + A * N^-alpha + B * D^-alpha"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Loss of models of each size after each number of trained tokens.

        >>> TiedSurface(E=1.7, A=1000.0, B=1500.0, alpha=0.34).predict([1e9], [1e11]).round(3)
        array([2.844])
        """
        additive = SurfaceLaw(E=self.E, A=self.A, B=self.B, alpha=self.alpha, beta=self.alpha)
        return surface_loss(additive, params=params, tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class OverTrainingLaw:
    """Loss by compute and by tokens a parameter; E in the unit of the loss."""

    E: float
    a: float
    b: float
    eta: float
    formula: ClassVar[str] = "E + (a * M^eta + b * M^-eta) * C^-eta, M = D / N, C = 6 * N * D"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Loss of models of each size after each number of trained tokens, with C = 6 N D.

        >>> law = OverTrainingLaw(E=1.7, a=150.0, b=200.0, eta=0.12)
        >>> law.predict([1e9, 1e9], [2e10, 64e10]).round(3)  # 20 and 640 tokens a parameter
        array([3.081, 2.774])
        """
        sizes, horizons = np.asarray(params, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
        ratio, flops = horizons / sizes, FLOPS_PER_PARAM_TOKEN * sizes * horizons
        return np.asarray(self.E + (self.a * ratio**self.eta + self.b * ratio**-self.eta) * flops**-self.eta)

    @property
    def optimal_tokens_per_param(self) -> float:
        """The ratio at which compute buys the lowest loss, the same at every budget: where a M^eta = b M^-eta."""
        return float((self.b / self.a) ** (1 / (2 * self.eta)))


@dataclass(frozen=True, kw_only=True)
class InteractionSurface:
    """The additive surface and a product term; E in the unit of the loss."""

    E: float
    A: float
    B: float
    F: float
    alpha: float
    beta: float
    formula: ClassVar[str] = "E + A * N^-alpha + B * D^-beta + F * N^-alpha * D^-beta"

    def predict(self, params: ArrayLike, tokens: ArrayLike) -> Array:
        """Loss of models of each size after each number of trained tokens.

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
    """A law and the log-Huber sum that it leaves."""

    law: LawT
    value: float


TIED = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
INTERACTION = np.concatenate([ADDITIVE, ADDITIVE.sum(axis=0, keepdims=True)])  # the product has both powers
"""As `log_huber.ADDITIVE`: (term, axis, exponent)."""


def fit_tied_surface(*, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3) -> FormFit[TiedSurface]:
    """The tied surface with the least log-Huber sum through runs (run,), at least five, all numbers above zero.

    `FitRefused` when there are too few runs, sizes or numbers of tokens.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 5), np.geomspace(1e9, 1e11, 5)))
    >>> fit = fit_tied_surface(params=params, tokens=tokens, loss=1.7 + 1000 * params**-0.34 + 1500 * tokens**-0.34)
    >>> f"{fit.law.E:.5f} {fit.law.alpha:.5f}"
    '1.70000 0.34000'
    """
    value, (E, A, B, alpha) = _fitted(TIED, params, tokens, loss, huber_delta)
    return FormFit(law=TiedSurface(E=E, A=A, B=B, alpha=alpha), value=value)


def fit_over_training(*, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3) -> FormFit[OverTrainingLaw]:
    """Gadre's over-training law with the least log-Huber sum: `fit_tied_surface` in its own letters."""
    tied = fit_tied_surface(params=params, tokens=tokens, loss=loss, huber_delta=huber_delta)
    eta = tied.law.alpha / 2  # N^2 = C / (6 M) and D^2 = C M / 6
    scale = FLOPS_PER_PARAM_TOKEN**eta
    return FormFit(law=OverTrainingLaw(E=tied.law.E, a=scale * tied.law.A, b=scale * tied.law.B, eta=eta), value=tied.value)


def fit_interaction_surface(
    *, params: Array, tokens: Array, loss: Array, huber_delta: float = 1e-3
) -> FormFit[InteractionSurface]:
    """The surface with a product term that leaves the least log-Huber sum; at least seven runs, else as `fit_tied_surface`.

    Its search also starts at the additive optimum, so it never ends above it.
    """
    additive = fit_surface(params=params, tokens=tokens, loss=loss, huber_delta=huber_delta).law
    start = np.array([additive.E, additive.A, additive.B, 0.0, additive.alpha, additive.beta])
    value, (E, A, B, F, alpha, beta) = _fitted(INTERACTION, params, tokens, loss, huber_delta, start)
    return FormFit(law=InteractionSurface(E=E, A=A, B=B, F=F, alpha=alpha, beta=beta), value=value)


def _fitted(
    powers: Array, params: Array, tokens: Array, loss: Array, delta: float, *starts: Array
) -> tuple[float, list[float]]:
    """The objective and the numbers of a form (E, coefficients, exponents) where it is least; `starts` are such numbers."""
    terms, _, exponents = powers.shape
    require_spread(params, tokens, unknowns=1 + terms + exponents)
    runs = centred(params, tokens, loss, powers=powers)
    begun = [*_best_form_basins(runs, delta), *(unknowns_of(start, runs) for start in starts)]
    value, theta = polished_huber(begun, runs, delta)
    return value, finite_numbers(theta, runs)


def _best_form_basins(runs: CentredRuns, delta: float) -> list[Array]:
    """Starts from the lowest cell of every basin of a grid over the exponents, the best first, at most `_BASINS`."""
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
    """E and coefficients, none below zero, that fit best by relative least squares at given exponents."""
    from scipy.optimize import nnls

    terms = np.exp(-(runs.powers @ exponents) @ runs.logs)
    design = np.concatenate([np.ones((1, len(runs.loss))), terms]) / runs.loss  # (term, run)
    return np.asarray(nnls(design.T, np.ones(len(runs.loss)))[0])
