"""By how much a law of few numbers is smoothly wrong about a table: a Gaussian process over the runs, integrated out.

Residuals of a surface are not independent: neighbouring runs lie off it together. Taken as independent, eighty runs pretend to
know an exponent that seven budgets know. So the log loss is law + tau f + noise, where f varies over about a decade of compute
and two thirds of a decade of tokens per parameter (Rasmussen and Williams 2006, eq. 5.8 for the likelihood, 2.25 for f).

The noise's relative variances are given, so one eigen-decomposition serves every sigma and tau: a likelihood costs n^2.
Linear algebra only: knows no law and no prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marin_scaling.fitting.coupled_law import Unknowns
from marin_scaling.laws import Array

COMPUTE_LENGTH = 1.0
"""Decades of FLOPs over which a misfit persists. Back-tests over the development suites: 1.5 and 0.7 are worse."""
RATIO_LENGTH = 0.7
"""Decades of tokens per parameter over which it persists; 1.0 is worse, 0.5 no better."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs stand: log10 of FLOPs and of tokens per parameter, each (run,)."""

    log_flops: Array
    log_ratio: Array


@dataclass(frozen=True, kw_only=True)
class SmoothMisfit:
    """The process at some runs: `scale` is 1 / sqrt of each run's relative noise variance, `values` and `vectors` the
    eigen-decomposition of the scaled kernel."""

    places: Places
    scale: Array
    values: Array
    vectors: Array

    def log_likelihood(self, residuals: Unknowns, *, noise_variance: Unknowns, misfit_variance: Unknowns) -> Unknowns:
        """Log density of residuals (draw, run) with variances (draw,), the process integrated out, up to a constant."""
        turned = (residuals * self.scale) @ self.vectors
        variance = misfit_variance[:, None] * self.values + noise_variance[:, None]
        return np.asarray(-0.5 * (turned * turned / variance + np.log(variance)).sum(axis=1))

    def log_likelihood_slopes(
        self, residuals: Array, *, noise_variance: float, misfit_variance: float
    ) -> tuple[float, Array, float, float]:
        """The same for one set of residuals (run,), with slopes: in them (run,), in the noise's and the misfit's variance."""
        turned = (residuals * self.scale) @ self.vectors
        variance = misfit_variance * self.values + noise_variance
        scaled = turned / variance
        by_variance = 0.5 * (scaled * scaled - 1 / variance)
        value = -0.5 * float((turned * scaled + np.log(variance)).sum())
        return value, -self.scale * (self.vectors @ scaled), float(by_variance.sum()), float(by_variance @ self.values)

    def smooth_part(self, residuals: Array, *, noise_variance: float, misfit_variance: float) -> Array:
        """What of one set of residuals (run,) is misfit, at the runs themselves: (run,)."""
        turned = (residuals * self.scale) @ self.vectors / (misfit_variance * self.values + noise_variance)
        return np.asarray(misfit_variance * _kernel(self.places, self.places) @ (self.scale * (self.vectors @ turned)))

    def at(self, targets: Places, residuals: Array, *, noise_variance: Array, misfit_variance: Array) -> tuple[Array, Array]:
        """Mean and variance of the misfit at targets, each (draw, target), for residuals (draw, run)."""
        turned = (residuals * self.scale) @ self.vectors
        reach = (_kernel(self.places, targets) * self.scale[:, None]).T @ self.vectors  # (target, eigenvector)
        inverse = 1 / (misfit_variance[:, None] * self.values + noise_variance[:, None])
        mean = misfit_variance[:, None] * ((turned * inverse) @ reach.T)
        left = 1 - misfit_variance[:, None] * (inverse @ (reach * reach).T)
        return np.asarray(mean), np.asarray(misfit_variance[:, None] * np.maximum(left, 0.0))

    def mean_covariance(self, targets: Places, *, noise_variance: Array, misfit_variance: Array) -> Array:
        """Covariance of the misfit between targets, given the runs, as the mean over variances (draw,): (target, target)."""
        reach = (_kernel(self.places, targets) * self.scale[:, None]).T @ self.vectors  # (target, eigenvector)
        inverse = misfit_variance[:, None] ** 2 / (misfit_variance[:, None] * self.values + noise_variance[:, None])
        return np.asarray(misfit_variance.mean() * _kernel(targets, targets) - (reach * inverse.mean(axis=0)) @ reach.T)


def smooth_misfit(places: Places, *, relative_variance: Array) -> SmoothMisfit:
    """The process at runs whose noise variances are `relative_variance` (run,) times a common one.

    >>> places = Places(log_flops=np.array([18.0, 19.0]), log_ratio=np.array([1.0, 1.0]))
    >>> misfit = smooth_misfit(places, relative_variance=np.ones(2))
    >>> misfit.values.round(3)  # 1 minus and plus what two runs a decade apart share, exp(-1/2)
    array([0.393, 1.607])
    """
    scale = 1 / np.sqrt(relative_variance)
    values, vectors = np.linalg.eigh(_kernel(places, places) * scale[:, None] * scale)
    return SmoothMisfit(places=places, scale=scale, values=np.maximum(values, 0.0), vectors=vectors)


def _kernel(first: Places, second: Places) -> Array:
    in_flops = (first.log_flops[:, None] - second.log_flops) / COMPUTE_LENGTH
    in_ratio = (first.log_ratio[:, None] - second.log_ratio) / RATIO_LENGTH
    return np.asarray(np.exp(-0.5 * (in_flops**2 + in_ratio**2)))
