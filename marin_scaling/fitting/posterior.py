"""Posterior of the coupled law: its density, the model discrepancy, and draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from marin_scaling.fitting.coupled_law import (
    KAPPA,
    SIGMA,
    TAU,
    CoupledLaws,
    Prior,
    Unknowns,
    laws_of,
    log_losses_and_slopes,
    log_prior,
    log_prior_and_slope,
    number_slopes,
    prior_start,
)
from marin_scaling.fitting.importance_sampling import highest_point, sample_posterior
from marin_scaling.laws import Array

COMPUTE_LENGTH = 1.0
"""Correlation length of the discrepancy in decades of FLOPs; 1.5 and 0.7 score worse in back-tests over development suites."""
RATIO_LENGTH = 0.7
"""Correlation length in decades of tokens per parameter; 1.0 scores worse, 0.5 no better."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Coordinates of runs: log10 of FLOPs and of tokens per parameter, each (run,)."""

    log_flops: Array
    log_ratio: Array


@dataclass(frozen=True, kw_only=True)
class SmoothMisfit:
    """Model discrepancy: a Gaussian process over the runs, marginalized analytically. `scale` is 1 / sqrt of each run's
    relative noise variance, `values` and `vectors` the eigendecomposition of the scaled kernel. `returned` are factors of ln of
    the noise variance and of the discrepancy's, for runs that count less than they scatter (`weighted`)."""

    places: Places
    scale: Array
    values: Array
    vectors: Array
    returned: tuple[float, float] = (0.0, 0.0)

    def log_likelihood(self, residuals: Unknowns, *, noise_variance: Unknowns, misfit_variance: Unknowns) -> Unknowns:
        """Return the log density of residuals (draw, run) with variances (draw,), marginalized, up to a constant."""
        turned = (residuals * self.scale) @ self.vectors
        variance = misfit_variance[:, None] * self.values + noise_variance[:, None]
        of_noise, of_misfit = self.returned
        returned = of_noise * np.log(noise_variance) + of_misfit * np.log(misfit_variance)
        return np.asarray(0.5 * (returned - (turned * turned / variance + np.log(variance)).sum(axis=1)))

    def log_likelihood_slopes(
        self, residuals: Array, *, noise_variance: float, misfit_variance: float
    ) -> tuple[float, Array, float, float]:
        """Return the log density of residuals (run,) and its slopes in residuals (run,), noise variance, misfit variance."""
        turned = (residuals * self.scale) @ self.vectors
        variance = misfit_variance * self.values + noise_variance
        scaled = turned / variance
        by_variance = 0.5 * (scaled * scaled - 1 / variance)
        of_noise, of_misfit = self.returned
        returned = of_noise * np.log(noise_variance) + of_misfit * np.log(misfit_variance)
        value = 0.5 * float(returned - (turned * scaled + np.log(variance)).sum())
        in_noise = float(by_variance.sum()) + 0.5 * of_noise / noise_variance
        in_misfit = float(by_variance @ self.values) + 0.5 * of_misfit / misfit_variance
        return value, -self.scale * (self.vectors @ scaled), in_noise, in_misfit

    def weighted(self, weight: Array, *, noise_variance: float, misfit_variance: float) -> SmoothMisfit:
        """Return the process for runs that scatter only by `weight` (run,) times the variance given, at these variances.

        A run that counts less has a larger variance here than it scatters. Its surplus would lower the estimate of the noise:
        where n runs of equal scatter have weights w, the likelihood is highest at sum(w) / n of their variance. The surplus of
        the log determinant's slopes, taken at the variances given, is returned to it.
        """
        total = misfit_variance * self.values + noise_variance
        surplus = (1 - weight @ self.vectors**2) * noise_variance / total**2
        return replace(self, returned=(float(surplus.sum() * noise_variance), float(surplus @ self.values * misfit_variance)))

    def smooth_part(self, residuals: Array, *, noise_variance: float, misfit_variance: float) -> Array:
        """Return the part of residuals (run,) that is discrepancy, at the runs: (run,)."""
        turned = (residuals * self.scale) @ self.vectors / (misfit_variance * self.values + noise_variance)
        return np.asarray(misfit_variance * _kernel(self.places, self.places) @ (self.scale * (self.vectors @ turned)))

    def at(self, targets: Places, residuals: Array, *, noise_variance: Array, misfit_variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of the discrepancy at targets, each (draw, target), for residuals (draw, run)."""
        turned = (residuals * self.scale) @ self.vectors
        reach = (_kernel(self.places, targets) * self.scale[:, None]).T @ self.vectors  # (target, eigenvector)
        inverse = 1 / (misfit_variance[:, None] * self.values + noise_variance[:, None])
        mean = misfit_variance[:, None] * ((turned * inverse) @ reach.T)
        left = 1 - misfit_variance[:, None] * (inverse @ (reach * reach).T)
        return np.asarray(mean), np.asarray(misfit_variance[:, None] * np.maximum(left, 0.0))

    def mean_covariance(self, targets: Places, *, noise_variance: Array, misfit_variance: Array) -> Array:
        """Return the covariance of the discrepancy between targets, given the runs, as mean over variances (draw,)."""
        reach = (_kernel(self.places, targets) * self.scale[:, None]).T @ self.vectors  # (target, eigenvector)
        inverse = misfit_variance[:, None] ** 2 / (misfit_variance[:, None] * self.values + noise_variance[:, None])
        return np.asarray(misfit_variance.mean() * _kernel(targets, targets) - (reach * inverse.mean(axis=0)) @ reach.T)


def smooth_misfit(places: Places, *, relative_variance: Array) -> SmoothMisfit:
    """Return the process for runs whose noise variances are `relative_variance` (run,) times a common one.

    >>> places = Places(log_flops=np.array([18.0, 19.0]), log_ratio=np.array([1.0, 1.0]))
    >>> misfit = smooth_misfit(places, relative_variance=np.ones(2))
    >>> misfit.values.round(3)  # 1 minus and plus the correlation of two runs a decade apart, exp(-1/2)
    array([0.393, 1.607])
    """
    scale = 1 / np.sqrt(relative_variance)
    values, vectors = np.linalg.eigh(_kernel(places, places) * scale[:, None] * scale)
    return SmoothMisfit(places=places, scale=scale, values=np.maximum(values, 0.0), vectors=vectors)


def _kernel(first: Places, second: Places) -> Array:
    in_flops = (first.log_flops[:, None] - second.log_flops) / COMPUTE_LENGTH
    in_ratio = (first.log_ratio[:, None] - second.log_ratio) / RATIO_LENGTH
    return np.asarray(np.exp(-0.5 * (in_flops**2 + in_ratio**2)))


MOST_RUNS = 240
"""Largest number of runs; more are thinned, half of them evenly over the uppermost decade of compute, half over the rest."""
LEAST_NOISE = 0.0007
"""Smallest noise of runs as a share of the loss; seeds alone cause 0.0005 (`noise.SEED_NOISE`)."""
_WEIGHT_PER_DECADE = 0.5  # in ln: the weight of a run a decade below the largest is 0.6
_NOISE_PER_DECADE = 0.3  # in ln: its scatter is 1.3 times as large
NEAR_OPTIMUM = 0.4
"""Decades of tokens per parameter from the optimum within which runs have full weight; 0.1 to 0.4 score alike."""
_WEIGHT_PER_RATIO_DECADE, _NOISE_PER_RATIO_DECADE = 1.0, 1.0  # 0.5 and 0.5 score alike, 2 and 2 or 2 and 4 worse


@dataclass(frozen=True, kw_only=True)
class FittedRuns:
    """Runs for the posterior: each array (run,). `log_sparsity` is ln(total / active parameters) relative to its median, None
    if all models are dense or equally sparse; `params` are active parameters."""

    flops: Array
    params: Array
    tokens: Array
    loss: Array
    log_sparsity: Array | None = None

    def take(self, rows: NDArray[np.int64]) -> FittedRuns:
        """Return the runs of these rows."""
        sparsity = None if self.log_sparsity is None else self.log_sparsity[rows]
        return FittedRuns(
            flops=self.flops[rows],
            params=self.params[rows],
            tokens=self.tokens[rows],
            loss=self.loss[rows],
            log_sparsity=sparsity,
        )


@dataclass(frozen=True, kw_only=True)
class FittedTable:
    """Fitted runs, sorted and thinned, in the coordinates of the law; arrays are (run,).

    `variance` is the inverse of each run's weight in the likelihood, 1 for the largest budget's.
    """

    runs: FittedRuns
    middle_params: float
    middle_tokens: float
    variance: Array

    @cached_property
    def x(self) -> Array:
        """ln(N / N0)."""
        return np.asarray(np.log(self.runs.params / self.middle_params))

    @cached_property
    def y(self) -> Array:
        """ln(D / D0)."""
        return np.asarray(np.log(self.runs.tokens / self.middle_tokens))

    @cached_property
    def log_loss(self) -> Array:
        """Logarithm of each run's loss."""
        return np.asarray(np.log(self.runs.loss))

    @cached_property
    def middle_log_loss(self) -> float:
        """Log loss of the runs nearest to (N0, D0)."""
        nearest = np.argsort(self.x**2 + self.y**2, kind="stable")[: max(3, len(self.x) // 10)]
        return float(np.median(self.log_loss[nearest]))

    def residuals(self, unknowns: Unknowns, laws: CoupledLaws) -> Unknowns:
        """Return residuals of the log loss from the laws of the unknowns: (draw, run)."""
        return np.asarray(self.log_loss - laws.log_losses(counted_sizes(unknowns, self.x, self.runs.log_sparsity), self.y))


def fitted_table(runs: FittedRuns) -> FittedTable:
    """Return the runs relative to the middle of the larger ones, independent of row order and of the unit of size."""
    runs = runs.take(np.lexsort((runs.loss, runs.tokens, runs.params, -runs.flops)))
    runs = runs.take(_thinned(runs.flops))
    larger = runs.flops >= np.quantile(runs.flops, 0.6)
    middle_params, middle_tokens = (float(np.exp(np.median(np.log(each[larger])))) for each in (runs.params, runs.tokens))
    variance = relative_noise(np.log10(runs.flops.max() / runs.flops))
    return FittedTable(runs=runs, middle_params=middle_params, middle_tokens=middle_tokens, variance=variance)


@dataclass(frozen=True, kw_only=True)
class PosteriorDensity:
    """Log density of the unknowns, up to a constant, with the noise of `misfit`."""

    table: FittedTable
    prior: Prior
    misfit: SmoothMisfit

    def __call__(self, unknowns: Unknowns) -> Unknowns:
        """Return the log density at each row of unknowns: (draw,)."""
        laws = laws_of(unknowns)
        noise_variance, misfit_variance = variances(unknowns)
        likelihood = self.misfit.log_likelihood(
            self.table.residuals(unknowns, laws), noise_variance=noise_variance, misfit_variance=misfit_variance
        )
        return log_prior(unknowns, laws, self.prior, middle_log_loss=self.table.middle_log_loss) + likelihood

    def value_and_slope(self, point: Array) -> tuple[float, Array]:
        """Return the log density at one point (unknown,), and its slope (unknown,)."""
        table, law = self.table, laws_of(point[None])
        numbers = number_slopes(law)
        sizes = counted_sizes(point[None], table.x, table.runs.log_sparsity).reshape(-1)
        log_losses, in_numbers, in_size = log_losses_and_slopes(law, sizes, table.y)
        (noise_variance,), (misfit_variance,) = variances(point[None])
        likelihood, in_residuals, in_noise, in_misfit = self.misfit.log_likelihood_slopes(
            table.log_loss - log_losses, noise_variance=noise_variance, misfit_variance=misfit_variance
        )
        in_law = -(in_numbers @ in_residuals) @ numbers
        in_scatter = 2 * in_noise * (noise_variance - LEAST_NOISE**2), 2 * in_misfit * misfit_variance
        in_sparsity = () if table.runs.log_sparsity is None else (-in_residuals @ (in_size * table.runs.log_sparsity),)
        slope = np.array([*in_law, *in_scatter, *in_sparsity])
        middle = table.middle_log_loss
        prior, by_prior = log_prior_and_slope(point, law, self.prior, numbers=numbers, middle_log_loss=middle)
        return prior + likelihood, by_prior + slope


def variances(unknowns: Unknowns) -> tuple[Unknowns, Unknowns]:
    """Return variances of one run's log loss at the largest budget, and of the discrepancy: (draw,) each."""
    return np.asarray(np.exp(2 * unknowns[:, SIGMA]) + LEAST_NOISE**2), np.asarray(np.exp(2 * unknowns[:, TAU]))


def relative_noise(decades_below: Array) -> Array:
    """Return the variance with which a run so far below the largest counts, relative to that of the largest: (run,)."""
    return np.asarray(np.exp(_WEIGHT_PER_DECADE * decades_below) * (1 + _NOISE_PER_DECADE * decades_below) ** 2)


def places_of(runs: FittedRuns) -> Places:
    """Return the coordinates of runs for the discrepancy."""
    return Places(log_flops=np.log10(runs.flops), log_ratio=np.log10(runs.tokens / runs.params))


def counted_sizes(unknowns: Unknowns, x: Array, log_sparsity: Array | None) -> Unknowns:
    """Return ln(N / N0) with total parameters counted by each draw's kappa: (run,) or (draw, run)."""
    return x if log_sparsity is None else np.asarray(x + unknowns[:, KAPPA, None] * log_sparsity)


def _thinned(flops: Array) -> NDArray[np.int64]:
    """Return the rows to keep of a large table with sorted runs, the largest first."""
    rows = np.arange(len(flops))
    if len(rows) <= MOST_RUNS:
        return rows
    upper = int(np.sum(flops >= flops[0] / 10))
    above = min(upper, max(MOST_RUNS // 2, MOST_RUNS - (len(rows) - upper)))
    return np.concatenate([_spread(rows[:upper], above), _spread(rows[upper:], MOST_RUNS - above)])


def _spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.asarray(rows[np.linspace(0, len(rows) - 1, count).round().astype(int)])


DRAWS = 800
UPWARD = 1.1
"""Ratio of the scatter of runs above the law to that below."""
_STUDENT_FREEDOM = 4.0
_MOST_LEVERAGE = 0.9
_PASSES = 5
_QUIET = (np.log(0.001), np.log(0.04))


@dataclass(frozen=True, kw_only=True)
class SurfacePosterior:
    """Equally weighted draws of the unknowns (draw, unknown), the fitted runs, and the discrepancy process.

    `middle_params`, `middle_tokens`: N0 and D0. `worth`: effective sample size of the draws. `mode`: the unknowns of highest
    density, (unknown,). `prior`: the prior. `noise_growth`: how much of the variance with which runs count less is noise, from
    0 (all runs scatter alike) to 1.
    """

    unknowns: Array
    runs: FittedRuns
    misfit: SmoothMisfit
    middle_params: float
    middle_tokens: float
    worth: float
    mode: Array
    prior: Prior
    noise_growth: float

    @property
    def laws(self) -> CoupledLaws:
        """Laws of the draws."""
        return laws_of(self.unknowns)

    @property
    def noise(self) -> Array:
        """Standard deviation of one run's log loss at the largest budget, by draw: (draw,)."""
        return np.asarray(np.sqrt(variances(self.unknowns)[0]))

    def log_losses(self, *, params: Array, tokens: Array, log_sparsity: Array | None = None) -> Array:
        """Return the log loss of every drawn law, without discrepancy, at each target: (draw, target)."""
        x, y = np.log(params / self.middle_params), np.log(tokens / self.middle_tokens)
        return np.asarray(self.laws.log_losses(counted_sizes(self.unknowns, x, log_sparsity), y))

    def misfit_covariance(self, targets: Places) -> Array:
        """Return the posterior covariance of the discrepancy between targets, mean over draws: (target, target)."""
        noise_variance, misfit_variance = variances(self.unknowns[:: len(self.unknowns) // 400])
        return self.misfit.mean_covariance(targets, noise_variance=noise_variance, misfit_variance=misfit_variance)

    def misfit_at(self, targets: Places, log_losses: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of the discrepancy of every draw at targets: (draw, target) each.

        `log_losses` (draw, run) are those of another law at the runs; the default are the surface's.
        """
        runs = self.runs
        if log_losses is None:
            log_losses = self.log_losses(params=runs.params, tokens=runs.tokens, log_sparsity=runs.log_sparsity)
        noise_variance, misfit_variance = variances(self.unknowns)
        residuals = np.log(runs.loss) - log_losses
        return self.misfit.at(targets, residuals, noise_variance=noise_variance, misfit_variance=misfit_variance)


def fit_posterior(
    runs: FittedRuns, *, prior: Prior | None = None, seed: int = 0, downweight_outliers: bool = True
) -> SurfacePosterior:
    """Draw from the posterior; needs two or more runs with some spread in compute, all numbers positive and finite.

    >>> from marin_scaling.laws import SurfaceLaw, surface_loss
    >>> params, tokens = np.geomspace(1e7, 1e9, 12), np.geomspace(1e9, 1e10, 12)[[5, 9, 1, 7, 3, 11, 0, 10, 2, 8, 4, 6]]
    >>> loss = surface_loss(SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28), params=params, tokens=tokens)
    >>> fitted = fit_posterior(FittedRuns(flops=6 * params * tokens, params=params, tokens=tokens, loss=loss))
    >>> bool(np.abs(fitted.log_losses(params=params, tokens=tokens).mean(axis=0) - np.log(loss)).max() < 0.01)
    True
    """
    table, prior = fitted_table(runs), prior or Prior()
    misfit, point, noise_growth = _robust_mode(table, prior, downweight=downweight_outliers)
    density = PosteriorDensity(table=table, prior=prior, misfit=misfit)
    draws = sample_posterior(density, starts=point[None], seed=seed, rounds=7, value_and_slope=density.value_and_slope)
    return SurfacePosterior(
        unknowns=draws.equally_weighted(DRAWS),
        runs=table.runs,
        misfit=misfit,
        middle_params=table.middle_params,
        middle_tokens=table.middle_tokens,
        worth=draws.effective,
        mode=draws.mode,
        prior=prior,
        noise_growth=noise_growth,
    )


def _robust_mode(table: FittedTable, prior: Prior, *, downweight: bool) -> tuple[SmoothMisfit, Array, float]:
    """Return the discrepancy process with runs far from the optimum, and outliers, down-weighted as at the mode, that mode, and
    how much of the variance with which runs count less is noise.

    The optimum, the noise and the outliers are those of the mode of the pass before.
    """
    sparse = table.runs.log_sparsity is not None
    point = prior_start(prior, middle_log_loss=table.middle_log_loss, sparse=sparse)
    misfit = smooth_misfit(places_of(table.runs), relative_variance=table.variance)
    starts, covariance, growth = np.array([point, _smooth(point)]), None, 1.0
    for _ in range(_PASSES):
        density = PosteriorDensity(table=table, prior=prior, misfit=misfit)
        peak = highest_point(density, starts, value_and_slope=density.value_and_slope, covariance=covariance)
        point, starts, covariance = peak.point, peak.point[None], peak.covariance
        (noise,), (smooth,) = variances(point[None])
        residuals = table.residuals(point[None], laws_of(point[None]))[0]
        left = residuals - misfit.smooth_part(residuals, noise_variance=noise, misfit_variance=smooth)
        inverse_weight = table.variance * far_from_optimum(table, point)
        leverage = _leverage(table, point, covariance, noise * inverse_weight)
        growth = _noise_growth(left, inverse_weight, leverage)
        scatter = inverse_weight**growth
        outlying = _outlying(left, scatter * noise) if downweight else 1.0
        misfit = smooth_misfit(misfit.places, relative_variance=inverse_weight * outlying)
        misfit = misfit.weighted(scatter / inverse_weight, noise_variance=noise, misfit_variance=smooth)
    return misfit, point, growth


def far_from_optimum(table: FittedTable, point: Array) -> Array:
    """Return the factor of each run's noise variance by its distance from the optimum, as the law of `point` has it: (run,).

    Laws of few numbers fit the bottoms of bowls better than their walls, and forecasts are mostly of runs near the optimum.
    """
    sizes = counted_sizes(point[None], table.x, table.runs.log_sparsity).reshape(-1)
    product = sizes + table.y
    optimum = laws_of(point[None]).optimal_log_params(product)[0]
    decades = np.abs(table.y - sizes - (product - 2 * optimum)) / np.log(10)
    beyond = np.maximum(decades - NEAR_OPTIMUM, 0.0)
    return np.asarray(np.exp(_WEIGHT_PER_RATIO_DECADE * beyond) * (1 + _NOISE_PER_RATIO_DECADE * beyond) ** 2)


def _noise_growth(left: Array, inverse_weight: Array, leverage: Array) -> float:
    """Return the power of the inverse weights (run,) with which the variance of what the law leaves (run,) grows, in [0, 1].

    It is the mean of a posterior with a uniform prior, for Student's t with the scale that is most likely at each power.
    """
    squares, log_weight = left**2 / (1 - leverage), np.log(inverse_weight)
    powers = np.linspace(0.0, 1.0, 11)
    scaled = squares / np.exp(powers[:, None] * log_weight)  # (power, run)
    scale = np.maximum(np.median(scaled, axis=1), LEAST_NOISE**2)[:, None]
    for _ in range(10):
        scale = ((_STUDENT_FREEDOM + 1) * scaled / (_STUDENT_FREEDOM + scaled / scale)).mean(axis=1, keepdims=True)
    log_density = -0.5 * ((_STUDENT_FREEDOM + 1) * np.log1p(scaled / scale / _STUDENT_FREEDOM) + np.log(scale)).sum(axis=1)
    log_density -= 0.5 * powers * log_weight.sum()
    density = np.exp(log_density - log_density.max())
    return float(density @ powers / density.sum())


def _leverage(table: FittedTable, point: Array, covariance: Array, noise: Array) -> Array:
    """Return by what share of its noise variance `noise` the law of `point` follows each run, at most 0.9: (run,)."""
    law = laws_of(point[None])
    sizes = counted_sizes(point[None], table.x, table.runs.log_sparsity).reshape(-1)
    in_law = log_losses_and_slopes(law, sizes, table.y)[1].T @ number_slopes(law)  # (run, unknown)
    unknowns = in_law.shape[1]
    followed = (in_law @ covariance[:unknowns, :unknowns] * in_law).sum(axis=1)
    return np.asarray(np.clip(followed / noise, 0.0, _MOST_LEVERAGE))


def _outlying(left: Array, variance: Array) -> Array:
    """Return factors of `variance` (run,) with which a normal likelihood weighs what is left (run,) as Student's t would."""
    left = np.where(left > 0, left / UPWARD, left)
    return np.asarray((_STUDENT_FREEDOM + left**2 / variance) / (_STUDENT_FREEDOM + 1))


def _smooth(point: Array) -> Array:
    """Return the point with the scatter interpreted as smooth discrepancy: a second mode, of quiet runs and a biased law."""
    other = point.copy()
    other[SIGMA], other[TAU] = _QUIET
    return other
