"""The bowl of one budget with one number more for its skew: loss is a cubic in log10 of trained tokens.

At constant compute a surface E + A N^-alpha + B D^-beta is E + P e^(alpha x) + Q e^(-beta x), x = log D, which is steeper on
the side of the larger exponent. A quadratic's bottom is pushed away from that side (arXiv 2603.22339); a cubic has the next
term of the series too. The two exponentials themselves would be exact, but only with exponents that one budget cannot tell:
with wrong ones (0.5 and 0.3 for Hoffmann's 0.34 and 0.28) they miss D* by more than the quadratic does.

Errors without noise, on nine runs evenly spaced in log D on Hoffmann's rounded surface at 1e19 FLOPs, from
`tests/unit/fit/test_asymmetric_bowl.py`:

    runs about the optimum             quadratic D*, L*     cubic D*, L*
    a quarter to 4 times               -1.4 %, -0.008 %     +0.0 %, -0.008 %
    a tenth to 10 times                -3.8 %, -0.062 %     +0.1 %, -0.059 %
    a half to 8 times (off centre)     +0.6 %, -0.055 %     +0.6 %, +0.005 %
    a tenth to 90 times (off centre)   -4.2 %, -1.141 %     +10.7 %, -0.070 %

So it mends D* where runs lie evenly about the optimum, and L* where they do not; very wide and uneven bowls stay wrong in D*.
With noise the fourth number costs: at 0.003 nats a run, D* of the first row is off by 1.7 % (root mean square) with the
quadratic and by 2.3 % with the cubic, of the second by 3.9 % and 1.4 %. On six of Delphi's seven budgets the cubic leaves
about a quarter to a fourteenth of the quadratic's squares. `marin_scaling.fit.isoflop` has the quadratic, as others publish it.
Arithmetic on arrays only; one budget at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array

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
