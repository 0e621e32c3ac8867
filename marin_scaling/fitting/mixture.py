"""Laws of a loss over data mixtures, compared by cross-validation, and the best mix under limits.

Each law is a Gaussian process over mixtures: linear in the weights, the exponential law of Ye et al. (2024, arXiv:2403.16952),
or smooth in square roots of the weights, whose distances are those of Hellinger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array

FOLDS = 10
LEAST_MIXTURES, MOST_MIXTURES = 10, 3000
"""Mixtures that a law needs, one for each fold, and mixtures whose covariance is factored in seconds."""

_LEARNING = 200
"""Mixtures that determine the hyperparameters; a law goes through all of them. More cost their third power in time: held-out
folds of RegMix's training mixtures are ranked with a correlation of 0.990 in the mean with 200, and 0.991 with 256."""

_LEAST_WEIGHT = 1e-3
"""Weight added below the square root, so that slopes stay finite at zero; tables often round weights to it."""

_LEVEL = 100.0
"""Prior variance of a law's level, in variances of the loss: wide."""

_PRIOR = {"linear": (1.0, 2.0), "smooth": (1.0, 1.5), "noise": (0.02, 2.0), "gap": (1.0, 1.5)}
_SCALE_SPREAD = 2.0
"""Medians of the hyperparameters and standard deviations of their logarithms, in units of the loss's spread. They are wide: two
standard deviations are a factor of 20 or more either way. The inverse squared length of a domain has the median 2 / domains."""

_LEAST_NOISE, _ROUNDING, _IMPOSSIBLE = 1e-7, 1e-13, 1e10
_WAVES = 512
"""Random waves that stand for the smooth part of a draw (Rahimi & Recht 2007)."""
_NINETY_PERCENT = 1.645
_RANK_SD = 1.03
"""Standard deviation of the arc tangent of a rank correlation, times sqrt(n - 3) (Fieller et al. 1957)."""
DECIMALS = 10_000
"""Parts of a rounded weight, which has four decimals."""


class Family(Enum):
    """Family of laws, the simplest first; the value is its name in tables."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    SMOOTH = "smooth"

    @property
    def formula(self) -> str:
        """Formula of the loss L in the weights w."""
        return {
            "linear": "L = c + sum t_i w_i",
            "exponential": "L = c + k exp(sum t_i w_i)",
            "smooth": "L = a Gaussian process over sqrt(w_i)",
        }[self.value]

    def features(self, weights: Array) -> Array:
        """Return the coordinates of mixtures: (mix, domain)."""
        return np.sqrt(weights + _LEAST_WEIGHT) if self is Family.SMOOTH else weights

    def steps(self, weights: Array) -> Array:
        """Return the derivative of each coordinate by its weight."""
        return 0.5 / np.sqrt(weights + _LEAST_WEIGHT) if self is Family.SMOOTH else np.ones_like(weights)


@dataclass(frozen=True, kw_only=True)
class _Kernel:
    """Covariance of transformed losses: level, linear and smooth part, and noise; `gap` is that of the lowest loss to c."""

    family: Family
    scales: Array
    linear: float
    smooth: float
    noise: float
    gap: float

    @classmethod
    def of(cls, family: Family, logs: Array) -> _Kernel:
        """Return the kernel with these logarithms of hyperparameters."""
        *scales, linear, noise, last = np.exp(logs).tolist()
        smooth, gap = (last if family is each else 0.0 for each in (Family.SMOOTH, Family.EXPONENTIAL))
        return cls(family=family, scales=np.array(scales), linear=linear, smooth=smooth, noise=noise, gap=gap)

    def transformed(self, heights: Array) -> Array:
        """Return what the process describes, from losses above a reference in units of their spread."""
        return np.log(heights + self.gap) if self.family is Family.EXPONENTIAL else heights

    def restored(self, values: Array) -> Array:
        """Return the losses, in the same units, of transformed ones."""
        return np.exp(values) - self.gap if self.family is Family.EXPONENTIAL else values

    def parts(self, x: Array, others: Array) -> tuple[Array, Array]:
        """Return scaled products and the smooth part of the covariance: (x, other) each."""
        scaled = x * self.scales
        products = scaled @ others.T
        if not self.smooth:
            return products, np.zeros_like(products)
        squares = (scaled * x).sum(1)[:, None] + (others**2 @ self.scales)[None] - 2 * products
        return products, self.smooth * np.exp(-np.maximum(squares, 0.0) / 2)

    def between(self, x: Array, others: Array) -> Array:
        """Return the covariance without noise: (x, other)."""
        products, smooth = self.parts(x, others)
        return _LEVEL + self.linear * products + smooth

    def own(self, x: Array) -> Array:
        """Return the variance without noise at each x."""
        return _LEVEL + self.linear * (x**2 @ self.scales) + self.smooth


def _misfit(logs: Array, family: Family, x: Array, heights: Array, prior: tuple[Array, Array]) -> tuple[float, Array]:
    """Return the negative log posterior of the logarithms of hyperparameters, and its slope."""
    from scipy.linalg import cholesky
    from scipy.linalg.lapack import dpotri

    kernel = _Kernel.of(family, logs)
    z = kernel.transformed(heights)
    products, smooth = kernel.parts(x, x)
    try:
        root = cholesky(_LEVEL + kernel.linear * products + smooth + kernel.noise * np.eye(len(x)), lower=True)
    except np.linalg.LinAlgError:  # extreme hyperparameters, which rounding makes singular
        return _IMPOSSIBLE, np.zeros_like(logs)
    lower = np.tril(dpotri(root, lower=True)[0])
    inverse = lower + np.tril(lower, -1).T
    duals = inverse @ z
    value = z @ duals / 2 + np.log(np.diag(root)).sum()
    slack = inverse - np.outer(duals, duals)  # the slope is half the trace of its product with that of the covariance
    bent = slack * smooth
    by_scale = kernel.linear * (x * (slack @ x)).sum(0) - bent.sum(1) @ x**2 + (x * (bent @ x)).sum(0)
    last = bent.sum() / 2
    if family is Family.EXPONENTIAL:
        value += z.sum()  # the density of a loss is that of its logarithm over its height above c
        last = ((duals + 1) * kernel.gap / np.exp(z)).sum()
    slope = np.array([*(kernel.scales / 2 * by_scale), kernel.linear * (slack * products).sum() / 2, 0.0, last])
    slope[-2] = kernel.noise * np.trace(slack) / 2
    off = (logs - prior[0]) / prior[1]
    return float(value + off @ off / 2), slope + off / prior[1]


def _learned(family: Family, x: Array, heights: Array) -> _Kernel:
    """Return the most probable hyperparameters."""
    from scipy.optimize import minimize

    domains = x.shape[1]
    last = "gap" if family is Family.EXPONENTIAL else "smooth"
    named = [_PRIOR[name] for name in ("linear", "noise", last)]
    middle = np.log([*[2 / domains] * domains, *(median for median, _ in named)])
    spread = np.array([*[_SCALE_SPREAD] * domains, *(each for _, each in named)])
    bounds = [(a - 4 * b, a + 4 * b) for a, b in zip(middle.tolist(), spread.tolist(), strict=True)]
    bounds[-2] = (math.log(_LEAST_NOISE), bounds[-2][1])
    arguments = (family, x, heights, (middle, spread))
    found = minimize(_misfit, middle, args=arguments, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
    return _Kernel.of(family, found.x)


@dataclass(frozen=True, kw_only=True)
class MixtureLaw:
    """Law of one loss over mixtures, conditioned on all of `x`, (mix, domain).

    Losses are `base` + `spread` times the process's values. `inflation` multiplies variances, so that nine in ten held-out
    losses lie in their 90 % intervals; it is at least 1.
    """

    kernel: _Kernel
    unit: float
    x: Array = field(repr=False)
    z: Array = field(repr=False)
    base: float
    spread: float
    inflation: float = 1.0

    @property
    def family(self) -> Family:
        """Family of the law."""
        return self.kernel.family

    @cached_property
    def _root(self) -> Array:
        covariance = self.kernel.between(self.x, self.x)
        noise = self.kernel.noise + _ROUNDING * float(np.trace(covariance))
        return np.asarray(np.linalg.cholesky(covariance + noise * np.eye(len(self.x))))

    def solved(self, values: Array) -> Array:
        """Return the inverse covariance of the observed losses times values: (mix, ...)."""
        from scipy.linalg import cho_solve

        return np.asarray(cho_solve((self._root, True), values))

    @cached_property
    def middle(self) -> Paths:
        """Median of the law, as one path without random waves."""
        width = self.x.shape[1]
        prior = np.zeros((1 + width, 1))
        return Paths(self, np.zeros((width, 0)), np.zeros(0), prior, np.reshape(self.solved(self.z), (-1, 1)))

    def coordinates(self, weights: Array) -> Array:
        """Return scaled features of mixtures: (mix, domain)."""
        return self.family.features(weights) / self.unit

    def _process(self, weights: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the process at mixtures, with the noise of a run."""
        from scipy.linalg import solve_triangular

        x = self.coordinates(weights)
        known = solve_triangular(self._root, self.kernel.between(self.x, x), lower=True)
        variance = np.maximum(self.kernel.own(x) - (known**2).sum(0), 0.0) + self.kernel.noise
        return self.middle.values(weights)[:, 0], np.sqrt(self.inflation * variance)

    def losses(self, values: Array) -> Array:
        """Return the losses of values of the process."""
        return self.base + self.spread * self.kernel.restored(values)

    def interval(self, weights: Array) -> Array:
        """Return 5 %, 50 % and 95 % quantiles of the losses of runs with these mixtures: (3, mix)."""
        mean, sd = self._process(weights)
        return self.losses(mean + np.multiply.outer((-_NINETY_PERCENT, 0.0, _NINETY_PERCENT), sd))

    def deviations(self, weights: Array, losses: Array) -> Array:
        """Return the distance of observed losses from the median in standard deviations: (mix,)."""
        mean, sd = self._process(weights)
        with np.errstate(divide="ignore", invalid="ignore"):  # a loss below the asymptote c is infinitely far
            z = self.kernel.transformed((losses - self.base) / self.spread)
        return np.where(np.isnan(z), np.inf, np.abs(z - mean) / sd)

    def paths(self, count: int, generator: np.random.Generator) -> Paths:
        """Draw laws as functions of the mix, by pathwise conditioning (Wilson et al. 2020, arXiv:2002.09309)."""
        kernel, width = self.kernel, self.x.shape[1]
        waves = generator.standard_normal((width, _WAVES if kernel.smooth else 0)) * np.sqrt(kernel.scales)[:, None]
        phases = generator.uniform(0, 2 * math.pi, waves.shape[1:])
        prior = generator.standard_normal((1 + width + waves.shape[1], count))
        bare = Paths(self, waves, phases, prior, np.zeros((len(self.x), count)))
        noise = math.sqrt(kernel.noise) * generator.standard_normal((len(self.x), count))
        centre, wide = self.middle.update, math.sqrt(self.inflation)
        update = self.solved(self.z[:, None] - bare.basis(self.x) @ prior - noise)
        return replace(bare, prior=wide * prior, update=centre + wide * (update - centre))


@dataclass(frozen=True)
class Paths:
    """Functions of the mix, the median or draws of a law: sums of waves and of covariances with the tried mixtures."""

    law: MixtureLaw
    waves: Array
    phases: Array
    prior: Array
    update: Array

    def basis(self, x: Array) -> Array:
        """Return the values of the prior's functions at coordinates: (mix, function)."""
        linear, height = self._heights
        return np.hstack([np.full((len(x), 1), math.sqrt(_LEVEL)), linear * x, height * np.cos(x @ self.waves + self.phases)])

    @property
    def _heights(self) -> tuple[Array, float]:
        kernel = self.law.kernel
        return np.sqrt(kernel.linear * kernel.scales), math.sqrt(2 * kernel.smooth / max(1, len(self.phases)))

    def values(self, weights: Array) -> Array:
        """Return the process at mixtures: (mix, path)."""
        x = self.law.coordinates(weights)
        return self.basis(x) @ self.prior + self.law.kernel.between(x, self.law.x) @ self.update

    def losses(self, weights: Array) -> Array:
        """Return the losses at mixtures, without the noise of a run: (mix, path)."""
        return self.law.losses(self.values(weights))

    def with_slope(self, weights: Array, path: int) -> tuple[float, Array]:
        """Return the loss of one mix, (domain,), by one path, and its derivatives by the weights."""
        law, kernel = self.law, self.law.kernel
        x, prior, update = law.coordinates(weights), self.prior[:, path], self.update[:, path]
        products, smooth = (each[0] for each in kernel.parts(x[None], law.x))
        linear, height = self._heights
        value = float(self.basis(x[None])[0] @ prior + (_LEVEL + kernel.linear * products + smooth) @ update)
        slope = linear * prior[1 : 1 + len(x)]
        slope = slope - height * self.waves @ (np.sin(x @ self.waves + self.phases) * prior[1 + len(x) :])
        near = smooth * update
        slope += kernel.scales * (kernel.linear * (law.x.T @ update) - x * near.sum() + law.x.T @ near)
        steep = math.exp(value) if law.family is Family.EXPONENTIAL else 1.0
        loss = float(law.losses(np.array(value)))
        return loss, law.spread * steep * slope * law.family.steps(weights) / law.unit


def fit_law(family: Family, weights: Array, losses: Array, *, generator: np.random.Generator) -> MixtureLaw:
    """Fit a law of one family to losses, (mix,), of mixtures, (mix, domain).

    >>> generator = np.random.default_rng(0)
    >>> weights = generator.dirichlet([1.0, 1.0, 1.0], size=30)
    >>> law = fit_law(Family.LINEAR, weights, weights @ [3.0, 2.0, 4.0], generator=generator)
    >>> law.interval(np.array([[0.2, 0.5, 0.3]])).round(2)[1].tolist()
    [2.8]
    """
    features = family.features(weights)
    unit, spread = float(features.std(0).mean()), float(losses.std())
    base = float(losses.min() if family is Family.EXPONENTIAL else losses.mean())
    heights, x = (losses - base) / spread, features / unit
    some = generator.permutation(len(x))[:_LEARNING]
    kernel = _learned(family, x[some], heights[some])
    return MixtureLaw(kernel=kernel, unit=unit, x=x, z=kernel.transformed(heights), base=base, spread=spread)


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """Ten-fold cross-validation of a family: medians of held-out losses, and deviations in standard deviations: (mix,)."""

    family: Family
    medians: Array = field(repr=False)
    deviations: Array = field(repr=False)
    squared_error: float

    @property
    def inside(self) -> float:
        """Share of held-out losses in their 90 % intervals."""
        return float(np.mean(self.deviations <= _NINETY_PERCENT))

    @property
    def inflation(self) -> float:
        """Factor of variances with which nine in ten held-out losses lie in their intervals; from 1 to 100.

        The quantile is that of conformal prediction, a little above 0.9 for few mixtures (Vovk et al. 2005).
        """
        count = len(self.deviations)
        farthest = np.sort(self.deviations)[min(math.ceil(0.9 * (count + 1)), count) - 1]
        return min(max(1.0, float(farthest) / _NINETY_PERCENT), 10.0) ** 2


def folds_of(weights: Array, *, seed: int) -> Array:
    """Return the fold of each mix, from 0 to 9; equal mixtures share one, so that none is predicted from its twin."""
    _, first, group = np.unique(weights, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))[group.ravel()]  # of the rows, whatever the order of the columns
    return np.asarray(np.random.default_rng([seed, 1]).permutation(len(first))[order] % FOLDS)


def cross_validate(family: Family, weights: Array, losses: Array, folds: Array, *, seed: int) -> CrossValidation:
    """Predict each fold from the others, with hyperparameters learned from the others."""
    medians, deviations = np.empty_like(losses), np.empty_like(losses)
    for fold in np.unique(folds).tolist():
        held, generator = folds == fold, np.random.default_rng([seed, 2, fold])
        law = fit_law(family, weights[~held], losses[~held], generator=generator)
        medians[held], deviations[held] = law.interval(weights[held])[1], law.deviations(weights[held], losses[held])
    return CrossValidation(
        family=family, medians=medians, deviations=deviations, squared_error=float(np.mean((medians - losses) ** 2))
    )


def fit_best_law(weights: Array, losses: Array, *, seed: int = 0) -> tuple[MixtureLaw, tuple[CrossValidation, ...]]:
    """Fit the family with the least cross-validated squared error; also return the cross-validation of each family.

    `FitRefused` for fewer than ten different mixtures, more than 3,000, or equal losses.

    >>> weights = np.random.default_rng(0).dirichlet([1.0, 1.0], size=40)
    >>> law, tried = fit_best_law(weights, 2 + np.exp(1 - 3 * weights[:, 0]))
    >>> law.family.value, [each.family.value for each in tried]
    ('exponential', ['linear', 'exponential', 'smooth'])
    """
    _require_enough(weights, losses)
    folds = folds_of(weights, seed=seed)
    tried = tuple(cross_validate(family, weights, losses, folds, seed=seed) for family in Family)
    best = min(tried, key=lambda each: each.squared_error)
    law = fit_law(best.family, weights, losses, generator=np.random.default_rng([seed, 3]))
    return replace(law, inflation=best.inflation), tried


def _require_enough(weights: Array, losses: Array) -> None:
    different = len(np.unique(weights, axis=0))
    if different < LEAST_MIXTURES:
        raise FitRefused(
            f"{different} different mixtures; a law needs {LEAST_MIXTURES}.",
            fix="Train more mixtures; a few for each domain are a start.",
        )
    if len(weights) > MOST_MIXTURES:
        raise FitRefused(
            f"{len(weights)} mixtures; a law takes at most {MOST_MIXTURES}.", fix="Choose rows: --where COLUMN=VALUE"
        )
    if np.ptp(losses) <= 1e-9 * np.abs(losses).max():
        raise FitRefused(f"The loss is {losses[0]:g} in all {len(losses)} mixtures.", fix="Choose another loss: --metric NAME")


Objective = Callable[[Array], tuple[float, Array]]
"""Function of a mix, (domain,), that gives a loss and its slope."""


def nearest_mix(weights: Array, caps: Array) -> Array:
    """Return the mix nearest to weights with no weight above its cap; caps must add up to one or more.

    >>> nearest_mix(np.array([0.8, 0.2, 0.0]), np.array([0.5, 1.0, 1.0])).round(3).tolist()
    [0.5, 0.35, 0.15]
    """
    from scipy.optimize import brentq

    def excess(shift: float) -> float:
        return float(np.clip(weights + shift, 0.0, caps).sum()) - 1

    if excess(1.0) <= 0:  # the caps add up to one
        return np.asarray(caps / caps.sum())
    return np.asarray(np.clip(weights + brentq(excess, -1.0, 1.0, xtol=1e-14), 0.0, caps))


def best_mix(objective: Objective, caps: Array, starts: Sequence[Array], *, unit: float) -> Array:
    """Return the mix of the least objective under caps, by sequential quadratic programming from several starts.

    `unit` is a difference of the objective that matters, such as its spread over the tried mixtures.
    """
    from scipy.optimize import minimize

    def scaled(weights: Array) -> tuple[float, Array]:
        value, slope = objective(np.maximum(weights, 0.0))
        return value / unit, slope / unit

    ones = np.ones(len(caps))
    whole: Any = {"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": lambda _: ones}
    bounds = [(0.0, cap) for cap in caps.tolist()]
    mixes = [nearest_mix(start, caps) for start in starts]
    found = [
        minimize(
            scaled, mix, jac=True, method="SLSQP", bounds=bounds, constraints=[whole], options={"maxiter": 200, "ftol": 1e-8}
        ).x
        for mix in mixes
    ]
    return min([nearest_mix(each, caps) for each in found] + mixes, key=lambda mix: scaled(mix)[0])


def rounded_mix(mix: Array, caps: Array) -> Array:
    """Return weights of four decimals that add up to one, below their caps where these allow it."""
    exact = mix * DECIMALS
    units = np.floor(exact + 1e-9)
    has_room = (units + 1) / DECIMALS <= caps + 1e-12
    order = np.lexsort((units - exact, ~has_room))  # domains with room first, then the largest remainders
    units[order[: round(DECIMALS - units.sum())]] += 1
    return np.asarray(units / DECIMALS)


def hellinger(mixes: Array, others: Array) -> Array:
    """Return distances from 0 (equal) to 1 (nothing in common): (mix, other)."""
    return np.asarray(np.sqrt(np.maximum(1 - np.sqrt(mixes) @ np.sqrt(others).T, 0.0)))


def rank_correlation(predicted: Array, observed: Array) -> tuple[float, float, float]:
    """Return Spearman's rank correlation and its 90 % interval."""
    from scipy.stats import spearmanr

    rank = 0.0 if np.ptp(predicted) == 0 else float(spearmanr(predicted, observed).statistic)
    middle = math.atanh(min(max(rank, -0.999999), 0.999999))
    off = _NINETY_PERCENT * _RANK_SD / math.sqrt(max(len(observed) - 3, 1))
    return rank, math.tanh(middle - off), math.tanh(middle + off)
