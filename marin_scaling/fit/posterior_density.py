"""The log density of the coupled law's unknowns given some runs, and its slope: what modes are sought on and draws weighed by.

The likelihood is that of `smooth_misfit`: log loss = law + smooth misfit + noise. Runs far below the largest budget count
less and are noisier; the whole counts for 25 runs at most, because even with the misfit taken out public ladders know less than
their number of runs suggests. Draws nothing and weighs no outliers: `posterior` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from marin_scaling.fit.coupled_law import KAPPA, SIGMA, TAU, CoupledLaws, Prior, Unknowns, laws_of, log_prior
from marin_scaling.fit.coupled_slopes import log_losses_and_slopes, log_prior_and_slope, number_slopes
from marin_scaling.fit.smooth_misfit import Places, SmoothMisfit
from marin_scaling.laws import Array

MOST_RUNS = 240
"""More runs than these are thinned: half of them spread evenly over the uppermost decade of compute, half over the rest."""
MOST_EFFECTIVE_RUNS = 25.0
"""What a table counts for at most; scores of back-tests with 12 to 60 are in the lab book."""
LEAST_NOISE = 0.0007
"""Of the loss: what even a quiet table's runs are taken to scatter; seeds alone make 0.0005 (`noise.SEED_NOISE`)."""
_WEIGHT_PER_DECADE = 0.5  # in ln: a run a decade below the largest counts for 0.6 of it
_NOISE_PER_DECADE = 0.3  # and scatters 1.3 times as much


@dataclass(frozen=True, kw_only=True)
class FittedRuns:
    """Runs as the posterior takes them: each array (run,). `log_sparsity` is ln(total / active parameters) about its median,
    None where all models are dense or equally sparse; `params` are the active ones then."""

    flops: Array
    params: Array
    tokens: Array
    loss: Array
    log_sparsity: Array | None = None

    def take(self, rows: NDArray[np.int64]) -> FittedRuns:
        """Some of the runs."""
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
    """The runs that are fitted, sorted and thinned, in the coordinates of the law; arrays are (run,).

    `variance`: of each one's noise, relative to that at the largest budget.
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
        """ln of each run's loss."""
        return np.asarray(np.log(self.runs.loss))

    @cached_property
    def middle_log_loss(self) -> float:
        """Of the runs next to (N0, D0)."""
        nearest = np.argsort(self.x**2 + self.y**2, kind="stable")[: max(3, len(self.x) // 10)]
        return float(np.median(self.log_loss[nearest]))

    @property
    def effective(self) -> float:
        """How many runs of the largest budget they count for."""
        return float((1 / self.variance).sum())

    def residuals(self, unknowns: Unknowns, laws: CoupledLaws) -> Unknowns:
        """Of the log loss, from the laws that the unknowns stand for: (draw, run)."""
        return np.asarray(self.log_loss - laws.log_losses(counted_sizes(unknowns, self.x, self.runs.log_sparsity), self.y))


def fitted_table(runs: FittedRuns) -> FittedTable:
    """The runs about the middle of the larger ones, the same for any order of rows and any unit of size."""
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

    @cached_property
    def _power(self) -> float:
        return min(1.0, MOST_EFFECTIVE_RUNS / self.table.effective)

    def __call__(self, unknowns: Unknowns) -> Unknowns:
        """At each row of unknowns: (draw,)."""
        laws = laws_of(unknowns)
        noise_variance, misfit_variance = variances(unknowns)
        likelihood = self.misfit.log_likelihood(
            self.table.residuals(unknowns, laws), noise_variance=noise_variance, misfit_variance=misfit_variance
        )
        return log_prior(unknowns, laws, self.prior, middle_log_loss=self.table.middle_log_loss) + self._power * likelihood

    def value_and_slope(self, point: Array) -> tuple[float, Array]:
        """At one point (unknown,): the density and its slope (unknown,)."""
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
        return prior + self._power * likelihood, by_prior + self._power * slope


def variances(unknowns: Unknowns) -> tuple[Unknowns, Unknowns]:
    """Of one run's log loss at the largest budget, and of the misfit: (draw,) each."""
    return np.asarray(np.exp(2 * unknowns[:, SIGMA]) + LEAST_NOISE**2), np.asarray(np.exp(2 * unknowns[:, TAU]))


def relative_noise(decades_below: Array) -> Array:
    """Variance of a run so far below the largest, as the likelihood takes it, over that of the largest: (run,)."""
    return np.asarray(np.exp(_WEIGHT_PER_DECADE * decades_below) * (1 + _NOISE_PER_DECADE * decades_below) ** 2)


def places_of(runs: FittedRuns) -> Places:
    """Where runs stand for the misfit."""
    return Places(log_flops=np.log10(runs.flops), log_ratio=np.log10(runs.tokens / runs.params))


def counted_sizes(unknowns: Unknowns, x: Array, log_sparsity: Array | None) -> Unknowns:
    """ln(N / N0) with total parameters counted as far as each draw has it: (run,) or (draw, run)."""
    return x if log_sparsity is None else np.asarray(x + unknowns[:, KAPPA, None] * log_sparsity)


def _thinned(flops: Array) -> NDArray[np.int64]:
    """Rows to keep of a large table whose runs are sorted, the largest first."""
    rows = np.arange(len(flops))
    if len(rows) <= MOST_RUNS:
        return rows
    upper = int(np.sum(flops >= flops[0] / 10))
    above = min(upper, max(MOST_RUNS // 2, MOST_RUNS - (len(rows) - upper)))
    return np.concatenate([_spread(rows[:upper], above), _spread(rows[upper:], MOST_RUNS - above)])


def _spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.asarray(rows[np.linspace(0, len(rows) - 1, count).round().astype(int)])
