"""What the runs of a table say about the coupled law: draws from its posterior, and the misfit that goes with each draw.

Outliers lose weight as under Student's t with 4 degrees of freedom (iteratively reweighted at the mode, Lange et al. 1989),
high ones more slowly: badly tuned runs lie above a law, none below. `posterior_density` says what is drawn from, `importance`
draws; nothing here knows what is to be forecast, so that one posterior serves every target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marin_scaling.fit.coupled_law import SIGMA, TAU, CoupledLaws, Prior, laws_of, prior_start
from marin_scaling.fit.importance import highest_point, sample_posterior
from marin_scaling.fit.posterior_density import (
    MOST_EFFECTIVE_RUNS,
    FittedRuns,
    FittedTable,
    PosteriorDensity,
    counted_sizes,
    fitted_table,
    places_of,
    variances,
)
from marin_scaling.fit.smooth_misfit import Places, SmoothMisfit, smooth_misfit
from marin_scaling.laws import Array

DRAWS = 800
UPWARD = 1.1
"""How much farther above the law than below it runs scatter."""
_STUDENT_FREEDOM = 4.0
_REWEIGHTINGS = 5
_QUIET = (np.log(0.001), np.log(0.04))


@dataclass(frozen=True, kw_only=True)
class SurfacePosterior:
    """Equally weighted draws of the unknowns (draw, unknown), the runs they rest on, and the misfit process there.

    `middle_params`, `middle_tokens`: N0 and D0. `effective_runs`: what the likelihood counts for. `worth`: how many independent
    draws stand behind the draws. `mode`: the unknowns of highest density, (unknown,). `prior`: what was held likely before.
    """

    unknowns: Array
    runs: FittedRuns
    misfit: SmoothMisfit
    middle_params: float
    middle_tokens: float
    effective_runs: float
    worth: float
    mode: Array
    prior: Prior

    @property
    def laws(self) -> CoupledLaws:
        """The laws of the draws."""
        return laws_of(self.unknowns)

    @property
    def noise(self) -> Array:
        """Standard deviation of one run's log loss at the largest budget, by draw: (draw,)."""
        return np.asarray(np.sqrt(variances(self.unknowns)[0]))

    def log_losses(self, *, params: Array, tokens: Array, log_sparsity: Array | None = None) -> Array:
        """Log loss of every drawn law, without misfit, at each target: (draw, target)."""
        x, y = np.log(params / self.middle_params), np.log(tokens / self.middle_tokens)
        return np.asarray(self.laws.log_losses(counted_sizes(self.unknowns, x, log_sparsity), y))

    def misfit_covariance(self, targets: Places) -> Array:
        """Covariance of the misfit between targets that the runs leave open, mean over draws: (target, target)."""
        noise_variance, misfit_variance = variances(self.unknowns[:: len(self.unknowns) // 50])
        return self.misfit.mean_covariance(targets, noise_variance=noise_variance, misfit_variance=misfit_variance)

    def misfit_at(self, targets: Places) -> tuple[Array, Array]:
        """Mean and variance of what every draw leaves unexplained at targets: (draw, target) each."""
        residuals = np.log(self.runs.loss) - self.log_losses(
            params=self.runs.params, tokens=self.runs.tokens, log_sparsity=self.runs.log_sparsity
        )
        noise_variance, misfit_variance = variances(self.unknowns)
        return self.misfit.at(targets, residuals, noise_variance=noise_variance, misfit_variance=misfit_variance)


def fit_posterior(
    runs: FittedRuns, *, prior: Prior | None = None, seed: int = 0, downweight_outliers: bool = True
) -> SurfacePosterior:
    """Draw from the posterior; at least two runs with some spread in compute, all numbers positive and finite.

    >>> from marin_scaling.laws import SurfaceLaw, surface_loss
    >>> params, tokens = np.geomspace(1e7, 1e9, 12), np.geomspace(1e9, 1e10, 12)[[5, 9, 1, 7, 3, 11, 0, 10, 2, 8, 4, 6]]
    >>> loss = surface_loss(SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28), params=params, tokens=tokens)
    >>> fitted = fit_posterior(FittedRuns(flops=6 * params * tokens, params=params, tokens=tokens, loss=loss))
    >>> bool(np.abs(fitted.log_losses(params=params, tokens=tokens).mean(axis=0) - np.log(loss)).max() < 0.01)
    True
    """
    table, prior = fitted_table(runs), prior or Prior()
    misfit, point = _robust_mode(table, prior, passes=_REWEIGHTINGS if downweight_outliers else 0)
    density = PosteriorDensity(table=table, prior=prior, misfit=misfit)
    draws = sample_posterior(density, starts=point[None], seed=seed, rounds=7, value_and_slope=density.value_and_slope)
    return SurfacePosterior(
        unknowns=draws.equally_weighted(DRAWS),
        runs=table.runs,
        misfit=misfit,
        middle_params=table.middle_params,
        middle_tokens=table.middle_tokens,
        effective_runs=min(table.effective, MOST_EFFECTIVE_RUNS),
        worth=draws.effective,
        mode=draws.mode,
        prior=prior,
    )


def _robust_mode(table: FittedTable, prior: Prior, *, passes: int) -> tuple[SmoothMisfit, Array]:
    """The misfit process with outliers down-weighted as they are at the mode, and that mode: (unknown,)."""
    sparse = table.runs.log_sparsity is not None
    point = prior_start(prior, middle_log_loss=table.middle_log_loss, sparse=sparse)
    misfit = smooth_misfit(places_of(table.runs), relative_variance=table.variance)
    starts, covariance = np.array([point, _smooth(point)]), None
    for _ in range(passes):
        density = PosteriorDensity(table=table, prior=prior, misfit=misfit)
        peak = highest_point(density, starts, value_and_slope=density.value_and_slope, covariance=covariance)
        point, starts, covariance = peak.point, peak.point[None], peak.covariance
        residuals = table.residuals(point[None], laws_of(point[None]))[0]
        weighed = _reweighted(misfit, point, residuals=residuals, variance=table.variance)
        misfit = smooth_misfit(misfit.places, relative_variance=weighed)
    return misfit, point


def _reweighted(misfit: SmoothMisfit, point: Array, *, residuals: Array, variance: Array) -> Array:
    """Relative noise variances under which a normal likelihood weighs each run as Student's t would."""
    (noise,), (smooth,) = variances(point[None])
    left = residuals - misfit.smooth_part(residuals, noise_variance=noise, misfit_variance=smooth)
    left = np.where(left > 0, left / UPWARD, left)
    return np.asarray(variance * (_STUDENT_FREEDOM + left**2 / (variance * noise)) / (_STUDENT_FREEDOM + 1))


def _smooth(point: Array) -> Array:
    """The point with the scatter about the law taken for smooth misfit: another mode, of quiet runs and a law that is off."""
    other = point.copy()
    other[SIGMA], other[TAU] = _QUIET
    return other
