"""Adaptive importance sampling of a posterior: weighted draws and their effective sample size.

Quasi-Newton steps with exact slopes find the highest mode (complex-step derivatives, Squire and Trapp 1998, unless the caller
has cheaper ones). Student distributions cover it and the draws found so far, and every draw is weighted against the mixture of
all of them (adaptive multiple importance sampling, Cornuet et al. 2012). There is no burn-in; equal seeds give equal draws. The
method suits smooth densities of about ten unknowns whose mass lies in one region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling.laws import Array

LogDensity = Callable[[NDArray[Any]], NDArray[Any]]
"""Function from (point, unknown) to (point,), analytic: the imaginary part for a small imaginary step is a slope."""

ValueAndSlope = Callable[[Array], tuple[float, Array]]
"""Function from (unknown,) to the log density and its slope (unknown,)."""

_STEP = 1e-30
_HESSIAN_STEP = 1e-4
_FREEDOM = 5.0  # of the Student proposals, whose tails are heavier than the posterior's
_INFLATION = 1.2
_LEAST_CURVATURE = 1.0  # priors have unit scale or less, so a flatter direction is numerical
_LEAST_EFFECTIVE = 60.0
_MORE_ROUNDS = 6
_ENOUGH = 250.0  # independent draws, which give the ends of a 90 % interval to about 4 % of its width


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Weighted draws: `points` (draw, unknown), `weights` (draw,) that sum to one, and the highest point found."""

    points: Array
    weights: Array
    mode: Array

    @property
    def effective(self) -> float:
        """Effective sample size (Kish 1965)."""
        return float(1 / np.sum(self.weights**2))

    def equally_weighted(self, count: int) -> Array:
        """Return `count` draws with equal weights, by systematic resampling: (draw, unknown)."""
        positions = (np.arange(count) + 0.5) / count
        return np.asarray(self.points[np.minimum(np.searchsorted(np.cumsum(self.weights), positions), len(self.weights) - 1)])


@dataclass(frozen=True, kw_only=True)
class _Student:
    """Multivariate Student distribution: `centre` (unknown,), and `root`, the Cholesky root of its scale matrix."""

    centre: Array
    root: Array

    @cached_property
    def _inverse_root(self) -> Array:
        return np.asarray(np.linalg.inv(self.root), dtype=np.float64)

    def draw(self, count: int, generator: np.random.Generator) -> Array:
        radius = np.sqrt(_FREEDOM / generator.chisquare(_FREEDOM, count))
        return np.asarray(self.centre + (generator.standard_normal((count, len(self.centre))) @ self.root.T) * radius[:, None])

    def log_density(self, points: Array) -> Array:
        """Return the log density, up to a constant that all proposals of one dimension share."""
        scaled = (points - self.centre) @ self._inverse_root.T
        squares = np.einsum("ij,ij->i", scaled, scaled)
        return np.asarray(
            -0.5 * (_FREEDOM + len(self.centre)) * np.log1p(squares / _FREEDOM) - np.log(np.diag(self.root)).sum()
        )


@dataclass(frozen=True, kw_only=True)
class _Mixture:
    """All draws so far and their proposals, one per batch: points (draw, unknown), log densities of the target there, and
    `under` (batch, draw), the log densities of every proposal."""

    points: Array
    values: Array
    under: Array
    counts: tuple[int, ...] = ()
    proposals: tuple[_Student, ...] = ()

    def with_batch(self, proposal: _Student, points: Array, values: Array) -> _Mixture:
        """Return the mixture with one more batch; no density is computed twice."""
        proposals = (*self.proposals, proposal)
        older = np.concatenate([self.under, proposal.log_density(self.points)[None]])
        newer = np.array([each.log_density(points) for each in proposals])
        return _Mixture(
            points=np.concatenate([self.points, points]),
            values=np.concatenate([self.values, values]),
            under=np.concatenate([older, newer], axis=1),
            counts=(*self.counts, len(points)),
            proposals=proposals,
        )

    @property
    def weights(self) -> Array:
        """Return the weight of each draw against the mixture of all proposals, with sum one: (draw,)."""
        shares = np.array(self.counts) / sum(self.counts)
        return _normalised(self.values - _log_sum(self.under + np.log(shares)[:, None]))


def sample_posterior(
    log_density: LogDensity,
    *,
    starts: Array,
    seed: int,
    draws: int = 1500,
    rounds: int = 6,
    value_and_slope: ValueAndSlope | None = None,
) -> Draws:
    """Draw from the density proportional to exp(`log_density`); `starts` (start, unknown) are starts of searches for modes.

    Each of `rounds` draws half of `draws`, the last round all; up to `_MORE_ROUNDS` follow if the effective sample size is low.

    >>> density = lambda points: -0.5 * (points[:, 0] ** 2 + (points[:, 1] - points[:, 0]) ** 2)
    >>> found = sample_posterior(density, starts=np.ones((1, 2)), seed=0)
    >>> bool(found.effective > 1000), float(np.abs(found.weights @ found.points).max().round(1))
    (True, 0.0)
    """
    generator = np.random.default_rng(seed)
    slope = value_and_slope or _complex_steps(log_density)
    with np.errstate(all="ignore"):
        mode = highest_point(log_density, starts, value_and_slope=slope).point
        proposal = _laplace(slope, mode)
        mixture = _Mixture(points=mode[None][:0], values=mode[:0], under=np.empty((0, 0)))
        for number in range(rounds + _MORE_ROUNDS):
            points = proposal.draw(draws // 2 if number < rounds - 1 else draws, generator)
            mixture = mixture.with_batch(proposal, points, _values(log_density, points))
            found = Draws(points=mixture.points, weights=mixture.weights, mode=mode)
            if number >= rounds - 1 and found.effective >= _ENOUGH:
                break
            proposal = _matched(found.points, np.log(found.weights))
    return found


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Highest point found (unknown,), and the covariance about it as the quasi-Newton steps estimated it."""

    point: Array
    covariance: Array


def highest_point(
    log_density: LogDensity,
    starts: Array,
    *,
    value_and_slope: ValueAndSlope | None = None,
    covariance: Array | None = None,
) -> Peak:
    """Return the highest point that quasi-Newton steps reach from any of the starts (start, unknown), to 1e-3 in the slope.

    `covariance` of a similar peak speeds up the search. Searches that leave the domain of the density are ignored; if all do,
    the result is the highest start.
    """
    from scipy.optimize import minimize

    falling = _falling(value_and_slope or _complex_steps(log_density))
    identity = np.eye(starts.shape[1])
    options = {"gtol": 1e-3, "hess_inv0": covariance if covariance is not None and _positive(covariance) else identity}
    with np.errstate(all="ignore"):
        ends = [minimize(falling, start, jac=True, method="BFGS", options=options) for start in starts]
        points = np.array([*starts, *(end.x for end in ends)])
        best = int(np.argmax(_values(log_density, points)))
    learned = identity if best < len(starts) else ends[best - len(starts)].hess_inv
    return Peak(point=points[best], covariance=(learned + learned.T) / 2)


def _positive(covariance: Array) -> bool:
    """Return True if a matrix is finite and positive definite."""
    return bool(np.isfinite(covariance).all() and np.linalg.eigvalsh(covariance)[0] > 0)


def _complex_steps(log_density: LogDensity) -> ValueAndSlope:
    def value_and_slope(point: Array) -> tuple[float, Array]:
        values = log_density(point + 1j * _STEP * np.eye(len(point)))
        return float(values[0].real), values.imag / _STEP

    return value_and_slope


def _falling(value_and_slope: ValueAndSlope) -> ValueAndSlope:
    """Return the function with value and slope negated, for minimizers."""

    def turned(point: Array) -> tuple[float, Array]:
        value, slope = value_and_slope(point)
        return -value, -slope

    return turned


def _laplace(value_and_slope: ValueAndSlope, mode: Array) -> _Student:
    """Return the proposal with the curvature of the density at its mode."""
    steps = _HESSIAN_STEP * np.eye(len(mode))
    ahead, behind = (np.array([value_and_slope(mode + sign * step)[1] for step in steps]) for sign in (1, -1))
    hessian = (behind - ahead) / (2 * _HESSIAN_STEP)
    curvature, axes = np.linalg.eigh((hessian + hessian.T) / 2)
    covariance = (axes / np.maximum(curvature, _LEAST_CURVATURE)) @ axes.T
    return _Student(centre=mode, root=_root(_INFLATION * covariance))


def _values(log_density: LogDensity, points: Array) -> Array:
    values = np.asarray(log_density(points))
    return np.where(np.isfinite(values), values, -np.inf)


def _log_sum(logs: Array) -> Array:
    highest = logs.max(axis=0)
    return np.asarray(highest + np.log(np.exp(logs - highest).sum(axis=0)))


def _normalised(logs: Array) -> Array:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _matched(points: Array, logs: Array) -> _Student:
    """Return the proposal with mean and covariance of the draws, with weights flattened until enough of them count."""
    weights = _normalised(logs)
    for power in (0.5, 0.3, 0.2, 0.1, 0.05):
        if 1 / np.sum(weights**2) >= _LEAST_EFFECTIVE:
            break
        weights = _normalised(power * logs)
    centre = weights @ points
    away = points - centre
    covariance = (away * weights[:, None]).T @ away
    return _Student(centre=centre, root=_root(_INFLATION * covariance + 1e-12 * np.eye(len(centre))))


def _root(covariance: Array) -> Array:
    return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
