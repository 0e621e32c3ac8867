"""The loss against size at one budget: symmetric and skewed bowls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array

QUADRATIC_UNKNOWNS = 3


class BowlShape(Enum):
    """Whether a budget's runs show their optimum; the value is what a reader is told."""

    CLOSED = ""
    EDGE = "the bowl's bottom lies outside its runs: lowest run taken; add sizes on that side"
    OPEN = "the runs show no bowl: lowest run taken; add sizes"


@dataclass(frozen=True, kw_only=True)
class Bowl:
    """The quadratic of one budget and its optimum.

    `a`, `b`, `c` are the published coefficients in x = log10(tokens). `leverage` is the variance of `optimal_loss` in units of
    one run's variance. For a bowl that is not closed the optimum is the lowest run itself (leverage 1).
    """

    flops: float
    a: float
    b: float
    c: float
    optimal_tokens: float
    optimal_params: float
    optimal_loss: float
    leverage: float
    run_count: int
    residual_sum_of_squares: float
    shape: BowlShape

    @property
    def degrees_of_freedom(self) -> int:
        """Runs left to say how far runs scatter about the bowl."""
        return self.run_count - QUADRATIC_UNKNOWNS

    def loss_at(self, tokens: Array) -> Array:
        """The quadratic's loss at numbers of tokens."""
        x = np.log10(tokens)
        return np.asarray(self.a * x**2 + self.b * x + self.c)


def fit_bowl(flops: Array, *, params: Array, tokens: Array, loss: Array) -> Bowl:
    """Fit the runs of one budget; each array has one entry a run, at least three different numbers of tokens among them.

    >>> tokens = 10.0 ** np.array([9.0, 9.5, 10.0, 10.5])
    >>> budget = np.full(4, 6e19)
    >>> bowl = fit_bowl(budget, params=budget / 6 / tokens, tokens=tokens, loss=3 + 0.5 * (np.log10(tokens) - 9.7) ** 2)
    >>> f"{bowl.optimal_loss:.6f} {bowl.optimal_tokens:.4g} {bowl.optimal_params:.4g}"
    '3.000000 5.012e+09 1.995e+09'
    """
    centre = np.log10(tokens).mean()
    x = np.log10(tokens) - centre
    design = np.stack([x**2, x, np.ones_like(x)], axis=1)  # (run, coefficient)
    scaled, triangle = np.linalg.qr(design)
    a, slope, level = np.linalg.solve(triangle, scaled.T @ loss)
    residuals = loss - design @ np.array([a, slope, level])
    shape = _shape(a, slope, x)
    vertex = -slope / (2 * a) if shape is BowlShape.CLOSED else x[np.argmin(loss)]
    at_vertex = np.array([vertex**2, vertex, 1.0])  # d L* / d (a, b, c): the vertex's own shift cancels to first order
    closed = shape is BowlShape.CLOSED
    return Bowl(
        flops=float(np.exp(np.log(flops).mean())),
        a=float(a),
        b=float(slope - 2 * a * centre),
        c=float(level - slope * centre + a * centre**2),
        optimal_tokens=float(10 ** (vertex + centre)),
        optimal_params=float(10 ** _line_through(x, np.log10(params), at=vertex)) if closed else float(params[np.argmin(loss)]),
        optimal_loss=float(at_vertex @ np.array([a, slope, level])) if closed else float(loss.min()),
        leverage=float(np.sum(np.linalg.solve(triangle.T, at_vertex) ** 2)) if closed else 1.0,
        run_count=len(loss),
        residual_sum_of_squares=float(residuals @ residuals),
        shape=shape,
    )


def noise_variance(bowls: list[Bowl]) -> tuple[float, int]:
    """Variance of one run about its bowl, pooled over budgets, and its degrees of freedom; (0.0, 0) when there are none."""
    freedom = sum(bowl.degrees_of_freedom for bowl in bowls)
    squares = sum(bowl.residual_sum_of_squares for bowl in bowls if bowl.degrees_of_freedom)
    return (squares / freedom, freedom) if freedom else (0.0, 0)


def _shape(a: float, slope: float, x: Array) -> BowlShape:
    rise_over_range = a * np.ptp(x) ** 2
    if rise_over_range <= 0:
        return BowlShape.OPEN
    return BowlShape.CLOSED if x.min() <= -slope / (2 * a) <= x.max() else BowlShape.EDGE


def _line_through(x: Array, y: Array, *, at: float) -> float:
    x_mean, y_mean = x.mean(), y.mean()
    return float(y_mean + (at - x_mean) * ((x - x_mean) @ (y - y_mean)) / ((x - x_mean) @ (x - x_mean)))


CUBIC_UNKNOWNS = 4


class SkewedBowlShape(Enum):
    """Whether the optimum may be used; the value is what a reader is told. But for `CLOSED` the lowest run stands for it."""

    CLOSED = "Usable: the cubic has its bottom among the runs, and no other turn there."
    BENT_TWICE = "Not usable: the cubic turns twice among the runs, which no surface does; take the quadratic, or add runs."
    EDGE = "Not usable: the cubic's bottom lies outside the runs; add sizes on that side."
    OPEN = "Not usable: the cubic has no bottom; add sizes."


@dataclass(frozen=True, kw_only=True)
class SkewedBowl:
    """The optimum of one budget; `leverage` is the variance of `optimal_loss` in units of one run's.

    `skew` is the third-order over the second-order coefficient there, per decade of tokens: positive where the bowl is steeper
    towards more tokens (fewer parameters), None where there is no optimum.
    """

    optimal_tokens: float
    optimal_loss: float
    skew: float | None
    leverage: float
    run_count: int
    residual_sum_of_squares: float
    shape: SkewedBowlShape


def fit_asymmetric_bowl(*, tokens: Array, loss: Array) -> SkewedBowl:
    """The cubic through the runs of one budget, by ordinary least squares; arrays are (run,).

    `FitRefused` with fewer than four different numbers of tokens. At constant compute N* follows from D*.

    >>> tokens = 10.0 ** np.array([9.0, 9.4, 9.8, 10.2, 10.6])
    >>> x = np.log10(tokens) - 9.7
    >>> bowl = fit_asymmetric_bowl(tokens=tokens, loss=3 + 0.5 * x**2 + 0.1 * x**3)
    >>> f"{bowl.optimal_loss:.6f} {bowl.optimal_tokens:.4g} {bowl.skew:.3f} {bowl.shape.name}"
    '3.000000 5.012e+09 0.200 CLOSED'
    """
    _require_four(tokens)
    centre = np.log10(tokens).mean()
    x = np.log10(tokens) - centre
    design = np.stack([np.ones_like(x), x, x**2, x**3], axis=1)  # (run, coefficient)
    scaled, triangle = np.linalg.qr(design)
    coefficients = np.linalg.solve(triangle, scaled.T @ loss)
    residuals = loss - design @ coefficients
    shape, bottom = _bottom(coefficients, x)
    closed = shape is SkewedBowlShape.CLOSED
    at = bottom if closed else float(x[np.argmin(loss)])
    row = np.array([1.0, at, at**2, at**3])  # d L* / d coefficients: the bottom's own shift cancels to first order
    return SkewedBowl(
        optimal_tokens=float(10 ** (at + centre)),
        optimal_loss=float(row @ coefficients) if closed else float(loss.min()),
        skew=float(coefficients[3] / (coefficients[2] + 3 * coefficients[3] * at)) if closed else None,
        leverage=float(np.sum(np.linalg.solve(triangle.T, row) ** 2)) if closed else 1.0,
        run_count=len(loss),
        residual_sum_of_squares=float(residuals @ residuals),
        shape=shape,
    )


def _bottom(coefficients: Array, x: Array) -> tuple[SkewedBowlShape, float]:
    """The minimum of c1 x + c2 x^2 + c3 x^3, in the form that stays exact as c3 goes to zero, and what is wrong with it."""
    _, c1, c2, c3 = (float(each) for each in coefficients)
    discriminant = c2**2 - 3 * c3 * c1
    steepness = c2 + np.sqrt(max(discriminant, 0.0))
    if discriminant <= 0 or steepness <= 0:
        return SkewedBowlShape.OPEN, np.nan
    bottom = -c1 / steepness
    top = -2 * c2 / (3 * c3) - bottom if c3 else np.inf
    if c2 + 3 * c3 * np.clip(bottom, x.min(), x.max()) <= 0:  # the runs next to it lie on a hill
        return SkewedBowlShape.OPEN, bottom
    if not x.min() <= bottom <= x.max():
        return SkewedBowlShape.EDGE, bottom
    return (SkewedBowlShape.BENT_TWICE if x.min() < top < x.max() else SkewedBowlShape.CLOSED), bottom


def _require_four(tokens: Array) -> None:
    if (different := len(np.unique(tokens))) < CUBIC_UNKNOWNS:
        raise FitRefused(
            f"{different} different numbers of tokens at one budget.",
            why=f"A cubic has {CUBIC_UNKNOWNS} unknowns.",
            fix="Add sizes, or fit the quadratic, which needs three.",
        )
