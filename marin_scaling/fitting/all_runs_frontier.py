"""A power law of compute through all runs, each moved to its optimum by the coupled surface: the second law of the forecast.

The surface ties the frontier's slope to the curvature of the bowls; this law takes from the surface only how much a run loses
for its size, and learns the frontier from the losses that are left, with their own asymptote and exponent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marin_scaling.fitting.coupled_law import KAPPA, SHARE_FREEDOM, Prior, Unknowns
from marin_scaling.fitting.importance_sampling import sample_posterior
from marin_scaling.fitting.posterior import (
    FittedRuns,
    SurfacePosterior,
    counted_sizes,
    relative_noise,
)
from marin_scaling.laws import Array

PENALTY_ERROR = 0.3
"""Standard deviation of the noise that a run's penalty adds, as a share of the penalty; 0.5 scores alike, 1 worse."""
_FREEDOM = 4.0  # of Student's t for runs, as for the surface
_DRAWS = 800
_LOSS, _SHARE, _EXPONENT, _SIGMA = range(4)


@dataclass(frozen=True, kw_only=True)
class FrontierPosterior:
    """Equally weighted draws of log L0, logit(K / L0), log gamma and log sigma: (draw, unknown).

    A draw's loss of a compute-optimal run is E + K (C / C0)^-gamma with E = L0 - K; `middle_log_flops` is ln C0.
    """

    unknowns: Array
    surface: SurfacePosterior
    middle_log_flops: float

    @property
    def noise(self) -> Array:
        """Standard deviation of one run's log loss at the largest budget, by draw: (draw,)."""
        return np.asarray(np.exp(self.unknowns[:, _SIGMA]))

    @property
    def parameters(self) -> dict[str, Array]:
        """Draws of E, K and gamma: (draw,) each."""
        loss = np.exp(self.unknowns[:, _LOSS])
        reducible = loss / (1 + np.exp(-self.unknowns[:, _SHARE]))
        return {"E": loss - reducible, "K": reducible, "gamma": np.exp(self.unknowns[:, _EXPONENT])}

    def log_losses(self, *, flops: Array, params: Array, tokens: Array, log_sparsity: Array | None = None) -> Array:
        """Return the log loss of every drawn law at each target: (draw, target); `params` are active ones."""
        runs = FittedRuns(flops=flops, params=params, tokens=tokens, loss=np.ones_like(flops), log_sparsity=log_sparsity)
        distance = _log_flops(runs, self.surface) - self.middle_log_flops
        return np.asarray(_log_frontier(self.unknowns, distance) + penalties(self.surface, runs))


def fit_frontier_posterior(surface: SurfacePosterior, *, seed: int = 0) -> FrontierPosterior:
    """Draw from the posterior of the frontier through the runs of a surface's posterior.

    >>> from marin_scaling.fitting.posterior import fit_posterior
    >>> params = np.tile([1e8, 2e8, 4e8], 5) * np.repeat(np.geomspace(1, 10, 5), 3)
    >>> flops = np.repeat(np.geomspace(1e18, 1e20, 5), 3)
    >>> loss = 1.7 + 1.5 * (flops / 1e19) ** -0.12 + 0.02 * np.tile([-1, 0, 1], 5) ** 2
    >>> surface = fit_posterior(FittedRuns(flops=flops, params=params, tokens=flops / 6 / params, loss=loss))
    >>> gamma = fit_frontier_posterior(surface).parameters["gamma"]
    >>> bool(0.05 < np.median(gamma) < 0.2)
    True
    """
    runs, prior = surface.runs, surface.prior
    log_flops = _log_flops(runs, surface)
    middle = float(np.median(log_flops[runs.flops >= np.quantile(runs.flops, 0.6)]))
    lost = penalties(surface, runs)
    median = np.median(lost, axis=0)
    moved, distance = np.log(runs.loss) - median, log_flops - middle
    added = (PENALTY_ERROR * median) ** 2 + lost.var(axis=0)
    relative = relative_noise(np.log10(runs.flops.max() / runs.flops))
    scatter = relative**surface.noise_growth
    near = np.argsort(np.abs(distance), kind="stable")[: max(3, len(distance) // 10)]
    start = np.array([np.median(moved[near]), prior.reducible_share.mean, prior.frontier_exponent.mean, prior.noise.mean])

    def log_density(unknowns: Unknowns) -> Unknowns:
        variance = np.exp(2 * unknowns[:, _SIGMA])[:, None] * scatter + added
        residuals = moved - _log_frontier(unknowns, distance)
        likelihood = -0.5 * (_FREEDOM + 1) * np.log(1 + residuals * residuals / (_FREEDOM * variance)) - 0.5 * np.log(variance)
        return np.asarray(likelihood @ (scatter / relative) + _log_prior(unknowns, prior, log_loss=start[_LOSS]))

    draws = sample_posterior(log_density, starts=start[None], seed=seed)
    return FrontierPosterior(unknowns=draws.equally_weighted(_DRAWS), surface=surface, middle_log_flops=middle)


def penalties(surface: SurfacePosterior, runs: FittedRuns) -> Array:
    """Return by how much each run's log loss is above that of the optimal run of the same N D, by each surface: (draw, run)."""
    x = counted_sizes(surface.unknowns, np.log(runs.params / surface.middle_params), runs.log_sparsity)
    y = np.log(runs.tokens / surface.middle_tokens)
    laws, product = surface.laws, np.broadcast_to(x, (len(surface.unknowns), len(y))) + y
    optimal = laws.optimal_log_params(product)
    return np.asarray(laws.log_losses(x, y) - laws.log_losses(optimal, product - optimal))


def _log_flops(runs: FittedRuns, surface: SurfacePosterior) -> Array:
    """Return ln of the FLOPs that a dense model as good would have cost: (run,)."""
    if runs.log_sparsity is None:
        return np.asarray(np.log(runs.flops))
    return np.asarray(np.log(runs.flops) + np.median(surface.unknowns[:, KAPPA]) * runs.log_sparsity)


def _log_frontier(unknowns: Unknowns, distance: Array) -> Unknowns:
    """Return log losses at ln(C / C0): (draw, target)."""
    reducible = 1 / (1 + np.exp(-unknowns[:, _SHARE]))[:, None]
    falling = np.exp(-np.exp(unknowns[:, _EXPONENT])[:, None] * distance)
    return np.asarray(unknowns[:, _LOSS, None] + np.log(1 - reducible + reducible * falling))


def _log_prior(unknowns: Unknowns, prior: Prior, *, log_loss: float) -> Unknowns:
    share = (unknowns[:, _SHARE] - prior.reducible_share.mean) / prior.reducible_share.deviation
    squares = ((unknowns[:, _LOSS] - log_loss) / 0.3) ** 2
    for column, each in ((_EXPONENT, prior.frontier_exponent), (_SIGMA, prior.noise)):
        squares = squares + ((unknowns[:, column] - each.mean) / each.deviation) ** 2
    return np.asarray(-0.5 * squares - 0.5 * (SHARE_FREEDOM + 1) * np.log(1 + share * share / SHARE_FREEDOM))
