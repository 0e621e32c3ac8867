"""Draw from a posterior by adaptive importance sampling: weighted draws, and how many they are worth.

The highest mode is found by quasi-Newton steps with exact gradients (complex-step derivatives, Squire and Trapp 1998), Student
distributions are laid over it and over what was found so far, and every draw is weighted against the mixture of all of them
(adaptive multiple importance sampling, Cornuet et al. 2012). No chain has to forget a start; equal seeds give equal draws.
Suits smooth densities of about ten unknowns whose mass lies in one region; knows nothing of what the unknowns mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling.laws import Array

LogDensity = Callable[[NDArray[Any]], NDArray[Any]]
"""(point, unknown) to (point,), real or complex: analytic, so that the imaginary part of a small imaginary step is a slope."""

_STEP = 1e-30
_HESSIAN_STEP = 1e-4
_FREEDOM = 5.0  # of the Student proposals: tails that are heavier than the posterior's
_INFLATION = 1.2
_LEAST_CURVATURE = 1.0  # priors have unit scale or less, so a flatter direction is numerical
_LEAST_EFFECTIVE = 60.0
_MORE_ROUNDS = 6
_ENOUGH = 250.0  # independent draws: the ends of a 90 % interval are then known to about 4 % of its width


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Weighted draws: `points` (draw, unknown), `weights` (draw,) that sum to one, and the highest point found."""

    points: Array
    weights: Array
    mode: Array

    @property
    def effective(self) -> float:
        """How many equally weighted, independent draws they are worth (Kish 1965)."""
        return float(1 / np.sum(self.weights**2))

    def equally_weighted(self, count: int) -> Array:
        """`count` draws with equal weights, by systematic resampling: (draw, unknown)."""
        positions = (np.arange(count) + 0.5) / count
        return np.asarray(self.points[np.minimum(np.searchsorted(np.cumsum(self.weights), positions), len(self.weights) - 1)])


@dataclass(frozen=True, kw_only=True)
class _Student:
    """A multivariate Student distribution: `centre` (unknown,), `root` the Cholesky root of its scale matrix."""

    centre: Array
    root: Array

    def draw(self, count: int, generator: np.random.Generator) -> Array:
        radius = np.sqrt(_FREEDOM / generator.chisquare(_FREEDOM, count))
        return np.asarray(self.centre + (generator.standard_normal((count, len(self.centre))) @ self.root.T) * radius[:, None])

    def log_density(self, points: Array) -> Array:
        """Up to a constant that all proposals of one dimension share."""
        scaled = np.linalg.solve(self.root, (points - self.centre).T)
        squares = np.sum(scaled * scaled, axis=0)
        return np.asarray(
            -0.5 * (_FREEDOM + len(self.centre)) * np.log1p(squares / _FREEDOM) - np.log(np.diag(self.root)).sum()
        )


def sample_posterior(log_density: LogDensity, *, starts: Array, seed: int, draws: int = 1500, rounds: int = 6) -> Draws:
    """Draw from the density proportional to exp(`log_density`); `starts` (start, unknown) are where modes are sought.

    Each of `rounds` draws half of `draws`, the last all of them; up to `_MORE_ROUNDS` follow while the draws are worth little.

    >>> density = lambda points: -0.5 * (points[:, 0] ** 2 + (points[:, 1] - points[:, 0]) ** 2)
    >>> found = sample_posterior(density, starts=np.ones((1, 2)), seed=0)
    >>> bool(found.effective > 1000), float(np.abs(found.weights @ found.points).max().round(1))
    (True, 0.0)
    """
    generator = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        mode = highest_point(log_density, starts)
        proposals, points, values = [_laplace(log_density, mode)], [], []
        for number in range(rounds + _MORE_ROUNDS):
            points.append(proposals[-1].draw(draws // 2 if number < rounds - 1 else draws, generator))
            values.append(_values(log_density, points[-1]))
            found = Draws(
                points=np.concatenate(points), weights=_normalised(_log_weights(points, values, proposals)), mode=mode
            )
            if number >= rounds - 1 and found.effective >= _ENOUGH:
                break
            proposals.append(_matched(found.points, np.log(found.weights)))
    return found


def highest_point(log_density: LogDensity, starts: Array) -> Array:
    """The highest point that quasi-Newton steps reach from any of the starts (start, unknown), to 1e-3 in the gradient.

    Steps that run off to where the density is no number count for nothing; then it is the highest start.
    """
    from scipy.optimize import minimize

    with np.errstate(all="ignore"):
        ends = [minimize(_falling(log_density), start, jac=True, method="BFGS", options={"gtol": 1e-3}).x for start in starts]
        points = np.array([*starts, *ends])
        return np.asarray(points[np.argmax(_values(log_density, points))])


def _falling(log_density: LogDensity) -> Callable[[Array], tuple[float, Array]]:
    """Minus the density and its gradient, as minimisers want it."""

    def value_and_gradient(point: Array) -> tuple[float, Array]:
        values = log_density(point + 1j * _STEP * np.eye(len(point)))
        return -float(values[0].real), -values.imag / _STEP

    return value_and_gradient


def _laplace(log_density: LogDensity, mode: Array) -> _Student:
    """The proposal with the curvature of the density at its mode."""
    gradient = _falling(log_density)
    steps = _HESSIAN_STEP * np.eye(len(mode))
    hessian = np.array([(gradient(mode + step)[1] - gradient(mode - step)[1]) / (2 * _HESSIAN_STEP) for step in steps])
    curvature, axes = np.linalg.eigh((hessian + hessian.T) / 2)
    covariance = (axes / np.maximum(curvature, _LEAST_CURVATURE)) @ axes.T
    return _Student(centre=mode, root=_root(_INFLATION * covariance))


def _values(log_density: LogDensity, points: Array) -> Array:
    values = np.asarray(log_density(points))
    return np.where(np.isfinite(values), values, -np.inf)


def _log_weights(points: list[Array], values: list[Array], proposals: list[_Student]) -> Array:
    """Log weights of all draws so far, each against the mixture of the proposals that all of them came from."""
    shares = np.array([len(each) for each in points]) / sum(len(each) for each in points)
    logs = np.array([proposal.log_density(np.concatenate(points)) for proposal in proposals])  # (proposal, draw)
    return np.asarray(np.concatenate(values) - _log_sum(logs + np.log(shares)[:, None]))


def _log_sum(logs: Array) -> Array:
    highest = logs.max(axis=0)
    return np.asarray(highest + np.log(np.exp(logs - highest).sum(axis=0)))


def _normalised(logs: Array) -> Array:
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _matched(points: Array, logs: Array) -> _Student:
    """The proposal with the mean and covariance of the draws, their weights flattened until enough of them count."""
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
