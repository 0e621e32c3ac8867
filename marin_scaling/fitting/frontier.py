"""Power laws of compute: through the best losses of budgets, with free or pinned asymptote, and through all runs.

The coupled surface ties the frontier's slope to the curvature of the bowls. The law through all runs takes from the surface
only how much a run loses for its size, and learns the frontier from the losses that are left, with their own asymptote and
exponent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.coupled_law import KAPPA, PRIOR_FREEDOM, Prior, Unknowns
from marin_scaling.fitting.fit import FitResult, FitStatus
from marin_scaling.fitting.importance_sampling import sample_posterior
from marin_scaling.fitting.law import FRONTIER_UNKNOWNS, Law, LawKind, LossDraws, Targets, left_out, refuse
from marin_scaling.fitting.optima import (
    Bowl,
    BowlShape,
    DrawnPoints,
    allocation_through,
    has_bowl,
    noise_variance,
    through_best_runs,
    through_bowls,
)
from marin_scaling.fitting.posterior import FittedRuns, SurfacePosterior, counted_sizes, relative_noise
from marin_scaling.laws import Array, FrontierLaw, frontier_loss
from marin_scaling.run.table import RunTable
from marin_scaling.units import format_number

if TYPE_CHECKING:
    import pandas as pd


GAMMA_BRACKET = (0.004, 4.0)
"""Bracket of the search for gamma. Published exponents lie between 0.05 (Kaplan et al. 2020) and 0.2. The bracket is wider by a
factor of at least ten on each side; the status reports a fit at its edge."""

_GRID_POINTS = 121
_ZOOM_POINTS = 17
_BOOTSTRAP_ZOOMS = 3  # gives gamma to a relative 1e-4, far below the effect of resampling
_POINT_ZOOMS = 6  # gives gamma to a relative 1e-6; the last digits follow from the zero of the slope of the squares
_LAST_DIGITS = 1e-5  # relative half-width of the search for this zero


@dataclass(frozen=True, kw_only=True)
class FrontierLaws:
    """Many laws: arrays of one length, with one reference compute."""

    E: Array
    A: Array
    gamma: Array
    reference_flops: float

    def losses(self, flops: Array) -> Array:
        """Return the loss of every law at every number of FLOPs: (law, flops)."""
        log_ratio = np.log(flops) - np.log(self.reference_flops)
        return np.asarray(self.E[:, None] + self.A[:, None] * np.exp(-self.gamma[:, None] * log_ratio))


def fit_frontier(flops: Array, *, loss: Array) -> FrontierLaw:
    """Fit the least-squares law to optima (`flops`, `loss`), one entry per budget, at least three different budgets.

    >>> compute = np.array([1e18, 1e19, 1e20, 1e21])
    >>> law = fit_frontier(compute, loss=1.7 + 1.5 * (compute / 1e19) ** -0.1)
    >>> f"{law.E:.6f} {law.gamma:.6f}"
    '1.700000 0.100000'
    """
    laws = fit_frontiers(flops, losses=loss[None, :], weights=np.ones((1, len(loss))), zooms=_POINT_ZOOMS)
    log_ratio = np.log(flops) - np.log(laws.reference_flops)
    gamma = _last_digits(float(laws.gamma[0]), log_ratio, loss)
    asymptote, scale = _best_line(gamma, log_ratio, loss)
    return FrontierLaw(E=asymptote, A=scale, gamma=gamma, reference_flops=laws.reference_flops)


def _last_digits(gamma: float, log_ratio: Array, loss: Array) -> float:
    """Return the exponent where the slope of the squares is zero, since the flat squares determine only half the digits."""
    from scipy.optimize import brentq

    def slope(candidate: float) -> float:
        asymptote, scale = _best_line(candidate, log_ratio, loss)
        term = np.exp(-candidate * log_ratio)
        return float(np.sum((loss - asymptote - scale * term) * term * log_ratio))

    low, high = (gamma * (1 + side * _LAST_DIGITS) for side in (-1, 1))
    if slope(low) * slope(high) >= 0:  # at the edge of the bracket, or of the allowed E and A
        return gamma
    return float(brentq(slope, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))


def _best_line(gamma: float, log_ratio: Array, loss: Array) -> tuple[float, float]:
    """Return E and A for an exponent."""
    asymptote, scale, _ = _project(np.exp(-gamma * log_ratio)[None], loss[None], np.ones((1, len(loss))))
    return float(asymptote[0, 0]), float(scale[0, 0])


def fit_frontiers(flops: Array, *, losses: Array, weights: Array, zooms: int = _BOOTSTRAP_ZOOMS) -> FrontierLaws:
    """Fit one law per row of `losses` and `weights` (data set, budget), all on the same budgets `flops` (budget,)."""
    reference = float(np.exp(np.log(flops).mean()))
    log_ratio = np.log(flops) - np.log(reference)
    grid = np.geomspace(*GAMMA_BRACKET, _GRID_POINTS)
    gammas = np.broadcast_to(grid, (len(losses), _GRID_POINTS))
    step = np.log(grid[1] / grid[0])
    gamma = _best(gammas, _project(np.exp(-grid[:, None] * log_ratio), losses, weights)[2])
    for _ in range(zooms):
        gammas = gamma[:, None] * np.exp(np.linspace(-step, step, _ZOOM_POINTS))  # (data set, candidate)
        gammas = np.clip(gammas, *GAMMA_BRACKET)
        gamma = _best(gammas, _project(np.exp(-gammas[:, :, None] * log_ratio), losses, weights)[2])
        step *= 2 / (_ZOOM_POINTS - 1)
    asymptote, scale, _ = _project(np.exp(-gamma[:, None, None] * log_ratio), losses, weights)
    return FrontierLaws(E=asymptote[:, 0], A=scale[:, 0], gamma=gamma, reference_flops=reference)


def _best(gammas: Array, squares: Array) -> Array:
    return np.asarray(np.take_along_axis(gammas, squares.argmin(axis=1)[:, None], axis=1)[:, 0])


def _project(terms: Array, losses: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return the best non-negative E and A for every data set and candidate, and the weighted sum of squared residuals.

    `terms` is (candidate, budget) or (data set, candidate, budget); the three results are (data set, candidate).
    """
    weights = weights / weights.sum(axis=1, keepdims=True)
    if terms.ndim == 2:
        mean_term, mean_square, mean_product = weights @ terms.T, weights @ terms.T**2, (weights * losses) @ terms.T
    else:
        mean_term = np.einsum("dcb,db->dc", terms, weights)
        mean_square = np.einsum("dcb,db->dc", terms**2, weights)
        mean_product = np.einsum("dcb,db->dc", terms, weights * losses)
    mean_loss = (weights * losses).sum(axis=1)[:, None]
    variance = np.maximum(mean_square - mean_term**2, np.finfo(float).tiny)
    scale = np.maximum((mean_product - mean_term * mean_loss) / variance, 0.0)
    asymptote = mean_loss - scale * mean_term
    below_zero = asymptote < 0
    scale = np.where(below_zero, mean_product / mean_square, scale)
    asymptote = np.where(below_zero, 0.0, asymptote)
    per_data_set = terms if terms.ndim == 3 else terms[None]
    fitted = asymptote[:, :, None] + scale[:, :, None] * per_data_set  # (data set, candidate, budget)
    squares = np.einsum("dcb,db->dc", (losses[:, None, :] - fitted) ** 2, weights)
    return asymptote, scale, squares


PINNED_UNKNOWNS = 2


def fit_pinned_frontier(flops: Array, *, loss: Array, asymptote: float) -> FrontierLaw:
    """Fit the straight line through (log C, log(L* - E)); arrays are (budget,), losses and `asymptote` in the same unit.

    The law's `reference_flops` is the geometric mean of the budgets. Gamma is negative if losses rise with compute.
    `FitRefused` if a loss is at or below the asymptote, or if all budgets are equal.

    >>> compute = np.array([2.00e19, 1.31e20, 7.16e20])  # three anchors of Marin's 67B, issue 6044
    >>> law = fit_pinned_frontier(compute, loss=np.array([3.2373, 2.9538, 2.7515]), asymptote=1.4)
    >>> f"{law.E + law.A * (1.19e23 / law.reference_flops) ** -law.gamma:.4f}"  # registered: 2.269
    '2.2692'
    """
    _require_room(loss, asymptote)
    _require_two_budgets(flops)
    laws = fit_pinned_frontiers(flops, losses=loss[None], weights=np.ones((1, len(loss))), asymptote=asymptote)
    return FrontierLaw(E=float(asymptote), A=float(laws.A[0]), gamma=float(laws.gamma[0]), reference_flops=laws.reference_flops)


def fit_pinned_frontiers(flops: Array, *, losses: Array, weights: Array, asymptote: float) -> FrontierLaws:
    """Fit one law per row of `losses` and `weights` (data set, budget), on the same budgets; all losses above `asymptote`."""
    log_flops, log_excess = np.log(flops), np.log(losses - asymptote)
    shares = weights / weights.sum(axis=1, keepdims=True)
    centred = log_flops - (shares @ log_flops)[:, None]
    spread = np.maximum((shares * centred**2).sum(axis=1), np.finfo(float).tiny)
    gamma = -(shares * centred * log_excess).sum(axis=1) / spread
    reference = float(log_flops.mean())
    log_scale = (shares * log_excess).sum(axis=1) + gamma * (shares @ log_flops - reference)
    return FrontierLaws(
        E=np.full(len(losses), float(asymptote)), A=np.exp(log_scale), gamma=gamma, reference_flops=float(np.exp(reference))
    )


def _require_room(loss: Array, asymptote: float) -> None:
    lowest = float(np.min(loss))
    if not lowest > asymptote:
        raise FitRefused(
            f"A loss of {lowest:g} is not above the pinned asymptote {asymptote:g}.",
            why="The asymptote is the loss that no compute removes.",
            fix=f"Pin it below {lowest:g}, or leave it free.",
        )


def _require_two_budgets(flops: Array) -> None:
    if len(np.unique(flops)) < 2:
        raise FitRefused(
            f"All {len(flops)} losses are at the same {format_number(float(flops[0]))} FLOPs; a slope needs two different "
            "budgets.",
            fix="Add a budget.",
        )


SEED_NOISE = 5e-4
"""Relative difference in loss between runs that differ only in their seed: standard deviations of 0.04 and 0.08 % among the
three seeds of Delphi's runs at 1e21 and 1e22 (runs/delphi/heldout.csv). It is the lower limit of the noise of runs."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Variances of the loss, with degrees of freedom: of one run, and of budgets beyond the noise of their runs.

    `budgets_scatter`: budgets scatter beyond the noise of their runs by more than chance would cause in 1 % of ladders.
    `at_floor`: the runs scatter less than seeds do, so their variance is that of `SEED_NOISE`.
    """

    run_variance: float
    run_freedom: int
    budget_variance: float
    budget_freedom: int
    budgets_scatter: bool
    at_floor: bool


def estimate_noise(
    bowls: list[Bowl], *, leverage: Array, residuals: Array, loss: Array, unknowns: int = FRONTIER_UNKNOWNS
) -> Noise:
    """Estimate the noise of optima of `loss` with `residuals` from a law of `unknowns` parameters; arrays are (budget,).

    `run_freedom` is 0 if no freedom is left to estimate noise, as for three budgets of three runs.
    """
    floor = (SEED_NOISE * float(loss.min())) ** 2
    seen, freedom = noise_variance(bowls)
    budget_freedom = len(residuals) - unknowns
    between = float(np.sum(residuals**2 / leverage))
    variance = max(seen, floor)
    excess = (
        _excess(residuals, variance=variance, leverage=leverage, freedom=budget_freedom) if freedom and budget_freedom else 0.0
    )
    if not excess:
        seen = (seen * freedom + between) / max(freedom + budget_freedom, 1)
        variance, freedom = max(seen, floor), freedom + budget_freedom
    return Noise(
        run_variance=variance,
        run_freedom=freedom,
        budget_variance=excess,
        budget_freedom=budget_freedom,
        budgets_scatter=bool(excess) and between > variance * _chi_squared_99(budget_freedom),
        at_floor=seen < floor,
    )


def _excess(residuals: Array, *, variance: float, leverage: Array, freedom: int) -> float:
    expected = variance * float(leverage.sum()) * freedom / len(residuals)
    return max(0.0, (float(residuals @ residuals) - expected) / freedom)


def _chi_squared_99(freedom: int) -> float:
    """Return the 99 % quantile of chi-squared by Wilson and Hilferty's cube (1931), within 1 % from one degree on."""
    ninth = 2 / (9 * freedom)
    return float(freedom * (1 - ninth + 2.3263 * ninth**0.5) ** 3)


_LEAST_POINTS = 3
_CLEAR = 3.0  # standard deviations by which every optimum must exceed a pinned asymptote


@dataclass(frozen=True, kw_only=True)
class FrontierOfBudgets(Law):
    """Frontier through the best loss of each budget, with its noise; `asymptote` is None unless pinned."""

    name: str
    frontier: FrontierLaw
    noise: Noise
    drawn: DrawnPoints
    asymptote: float | None
    formula: str = "E + A * (C / C0)^-gamma"
    knows_any_size: bool = False

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the least-squares fit."""
        law = self.frontier
        return {"E": law.E, "A": law.A, "gamma": law.gamma, "C0": law.reference_flops}

    def formula_losses(self, targets: Targets) -> Array:
        """Return the least-squares frontier at each target."""
        return frontier_loss(self.frontier, flops=targets.flops)

    def draws(self, targets: Targets, *, seed: int) -> LossDraws:
        """Draw losses of compute-optimal runs under laws refitted to resampled budgets."""
        drawn = resample(self, seed=seed)
        law = drawn.laws.losses(targets.flops)
        noise = np.broadcast_to(drawn.run_noise[:, None], law.shape)
        return LossDraws(losses=law + noise, causes={"noise": noise, "sampling": law})


def fit_frontier_runs(table: RunTable, *, kind: LawKind, seed: int, prior: Prior | None = None) -> FitResult:
    """Fit a table by a frontier law; `FitRefused` for too few budgets.

    If `isoflop-frontier` is requested but the table is not an isoFLOP grid, fit the best runs; `why_this_law` reports that.
    """
    asymptote = kind.number if kind.argument else None
    name, why = _choose(table.frame, asked=kind.name if asymptote is None else "isoflop-frontier")
    drawn = through_bowls(table.frame) if name == "isoflop-frontier" else through_best_runs(table.frame)
    unknowns = FRONTIER_UNKNOWNS if asymptote is None else PINNED_UNKNOWNS
    _refuse_few_points(drawn, table, name, unknowns=unknowns)
    flops, loss = drawn.column("flops"), drawn.column("loss")
    frontier = (
        fit_frontier(flops, loss=loss) if asymptote is None else fit_pinned_frontier(flops, loss=loss, asymptote=asymptote)
    )
    noise = _noise(drawn, residuals=loss - frontier_loss(frontier, flops=flops), table=table, unknowns=unknowns)
    if asymptote is not None:
        _refuse_losses_at(asymptote, drawn, noise, table)
    quiet = f"the runs scatter less than seeds do; {SEED_NOISE:.2%} of the loss is taken for their noise"
    return FitResult.of(
        table,
        FrontierOfBudgets(
            name=name if asymptote is None else kind.name, frontier=frontier, noise=noise, drawn=drawn, asymptote=asymptote
        ),
        kind=kind,
        seed=seed,
        prior=prior,
        drawn=drawn,
        allocation=allocation_through(drawn),
        applies=_statuses(drawn, frontier, noise, pinned=asymptote is not None),
        why=why,
        warnings=[quiet] if noise.at_floor else [],
    )


def _choose(frame: pd.DataFrame, *, asked: str) -> tuple[str, str]:
    if asked == "best-runs-frontier":
        return asked, "as asked"
    budgets = frame.groupby("budget_flops")
    bowls = sum(has_bowl(runs) for _, runs in budgets)
    if 2 * bowls > budgets.ngroups:
        return asked, f"{bowls} of {budgets.ngroups} budgets have runs of three sizes or more"
    return "best-runs-frontier", f"no isoFLOP grid: only {bowls} of {budgets.ngroups} budgets have runs of three sizes or more"


def _refuse_few_points(drawn: DrawnPoints, table: RunTable, name: str, *, unknowns: int) -> None:
    what = "budgets" if name == "isoflop-frontier" else "runs that no cheaper run beats"
    least = max(unknowns, _LEAST_POINTS)
    if len(drawn.points) < least:
        refuse(f"{table.source} has {len(drawn.points)} usable {what}; this law needs {least}.{left_out(table)}")


def _noise(drawn: DrawnPoints, *, residuals: Array, table: RunTable, unknowns: int) -> Noise:
    leverage, loss = drawn.column("leverage"), drawn.column("loss")
    noise = estimate_noise(list(drawn.bowls), leverage=leverage, residuals=residuals, loss=loss, unknowns=unknowns)
    if noise.run_freedom == 0:
        refuse(
            f"{table.source} has as many unknowns as numbers: {len(residuals)} budgets of three runs.{left_out(table)}",
            why="No residual would be left to estimate the uncertainty of the forecast.",
        )
    return noise


def _refuse_losses_at(asymptote: float, drawn: DrawnPoints, noise: Noise, table: RunTable) -> None:
    spread = np.sqrt(noise.run_variance * drawn.column("leverage") + noise.budget_variance)
    left = drawn.column("loss") - asymptote
    if (_CLEAR * spread > left).any():
        refuse(
            f"{table.source}: the lowest best loss lies {left.min():.3g} above the asymptote pinned at {asymptote:g}, and best "
            f"losses scatter by {spread.max():.2g}.",
            why="The loss above the asymptote is then mostly noise.",
            fix="Pin it lower, or leave it free: --law isoflop-frontier",
        )


def _statuses(drawn: DrawnPoints, law: FrontierLaw, noise: Noise, *, pinned: bool) -> dict[FitStatus, bool]:
    count = len(drawn.points)
    unclosed = sum(bowl.shape is not BowlShape.CLOSED for bowl in drawn.bowls)
    low, high = GAMMA_BRACKET
    return {
        FitStatus.NOT_FALLING: law.A == 0 or law.gamma <= 0,
        FitStatus.EXPONENT_AT_EDGE: not pinned and not low * 1.001 < law.gamma < high / 1.001,
        FitStatus.ONLY_THREE_BUDGETS: not pinned and count == FRONTIER_UNKNOWNS,
        FitStatus.BOWLS_NOT_CLOSED: 3 * unclosed >= max(len(drawn.bowls), 1),
        FitStatus.PINNED_ASYMPTOTE: pinned,
        FitStatus.ASYMPTOTE_AT_ZERO: not pinned and law.E == 0,
        FitStatus.BUDGETS_SCATTER: noise.budgets_scatter,
        FitStatus.NOT_A_GRID: not drawn.bowls,
        FitStatus.FEW_BUDGETS: count == (PINNED_UNKNOWNS if pinned else FRONTIER_UNKNOWNS) + 1,
    }


RESAMPLES = 2000
"""Number of resamples: 20 determine the 1 % quantile; 90 % intervals differ by about 2 % of their width between seeds."""
_FARTHEST_MOVE = 20.0  # log factor of the loss above a pinned asymptote, a limit that no accepted fit reaches


@dataclass(frozen=True, kw_only=True)
class Resamples:
    """Laws refitted to resampled ladders, and the noise of one new run under each: (resample,)."""

    laws: FrontierLaws
    run_noise: Array


def resample(law: FrontierOfBudgets, *, seed: int, count: int = RESAMPLES) -> Resamples:
    """Draw `count` resamples of a frontier law's fit; equal seeds give equal numbers."""
    generator, noise = np.random.default_rng(seed), law.noise
    flops, loss, leverage = (law.drawn.column(name) for name in ("flops", "loss", "leverage"))
    weights = generator.dirichlet(np.ones(len(flops)), size=count)
    run_variance = _drawn_variance(generator, noise.run_variance, noise.run_freedom, count)
    budget_variance = _drawn_variance(generator, noise.budget_variance, noise.budget_freedom, count)
    spread = np.sqrt(run_variance[:, None] * leverage + budget_variance[:, None])  # (resample, budget)
    moves = spread * generator.standard_normal(spread.shape)
    return Resamples(
        laws=_refitted(law.asymptote, flops, loss, moves, weights=weights),
        run_noise=np.sqrt(run_variance) * generator.standard_normal(count),
    )


def _refitted(asymptote: float | None, flops: Array, loss: Array, moves: Array, *, weights: Array) -> FrontierLaws:
    """Refit laws to shifted losses; with a pinned asymptote, shifts are relative to the loss above it."""
    if asymptote is None:
        return fit_frontiers(flops, losses=loss + moves, weights=weights)
    left = loss - asymptote
    moved = left * np.exp(np.clip(moves / left, -_FARTHEST_MOVE, _FARTHEST_MOVE))
    return fit_pinned_frontiers(flops, losses=asymptote + moved, weights=weights, asymptote=asymptote)


def _drawn_variance(generator: np.random.Generator, variance: float, freedom: int, count: int) -> Array:
    if freedom == 0:
        return np.zeros(count)
    return np.asarray(variance * freedom / generator.chisquare(freedom, size=count))


PENALTY_ERROR = 0.3
"""Standard deviation of the noise that a run's penalty adds, as a share of the penalty; 0.5 scores alike, 1 worse."""
_FREEDOM = 4.0  # of Student's t for runs, as for the surface
_DRAWS = 800
_LOSS, _SHARE, _EXPONENT, _SIGMA = range(4)


@dataclass(frozen=True, kw_only=True)
class FrontierPosterior:
    """Power law of compute through all runs, each moved to its optimum by the coupled surface.

    `unknowns` are equally weighted draws of log L0, logit(K / L0), log gamma and log sigma: (draw, unknown). A draw's loss of a
    compute-optimal run is E + K (C / C0)^-gamma with E = L0 - K; `middle_log_flops` is ln C0.
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
    return np.asarray(-0.5 * squares - 0.5 * (PRIOR_FREEDOM + 1) * np.log(1 + share * share / PRIOR_FREEDOM))
