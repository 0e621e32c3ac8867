"""Fit frontier laws to a run table, and resample them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fitting.allocation import allocation_through
from marin_scaling.fitting.frontier import (
    FRONTIER_UNKNOWNS,
    GAMMA_BRACKET,
    PINNED_UNKNOWNS,
    SEED_NOISE,
    FrontierLaws,
    Noise,
    estimate_noise,
    fit_frontier,
    fit_frontiers,
    fit_pinned_frontier,
    fit_pinned_frontiers,
)
from marin_scaling.fitting.law import Law, LawKind, LossDraws, Targets
from marin_scaling.fitting.optima import BowlShape, DrawnPoints, has_bowl, through_best_runs, through_bowls
from marin_scaling.fitting.refusals import left_out, refuse
from marin_scaling.fitting.result import FitResult, FitStatus
from marin_scaling.laws import Array, FrontierLaw, frontier_loss

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.fitting.coupled_law import Prior
    from marin_scaling.run.table import RunTable

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

    def new_run_losses(self, flops: Array) -> Array:
        """Return the losses of a new compute-optimal run at every budget: (resample, flops)."""
        return np.asarray(self.laws.losses(flops) + self.run_noise[:, None])


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
