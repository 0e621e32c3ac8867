"""Fit frontier laws to a run table, and resample them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fitting.allocation import allocation_through
from marin_scaling.fitting.bowl import BowlShape
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
    pinned_asymptote,
)
from marin_scaling.fitting.optima import DrawnPoints, has_bowl, through_best_runs, through_bowls
from marin_scaling.fitting.refusals import left_out, refuse
from marin_scaling.fitting.result import FitResult, FitStatus
from marin_scaling.laws import Array, FrontierLaw, frontier_loss

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.table import RunTable

_LEAST_POINTS = 3
_CLEAR = 3.0  # standard deviations that every optimum has to lie above a pinned asymptote
FORMULA = "E + A * (C / C0)^-gamma"


def fit_frontier_runs(table: RunTable, *, law: str, seed: int) -> FitResult:
    """Fit a table by the law of that name; `FitRefused` when too few budgets carry it.

    When `law` is `isoflop-frontier` and the table is no isoFLOP grid, the best runs are taken, and `why_this_law` says so.
    """
    asymptote = pinned_asymptote(law)
    name, why = _choose(table.frame, asked=law if asymptote is None else "isoflop-frontier")
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
    statuses = _statuses(drawn, frontier, noise, pinned=asymptote is not None)
    return FitResult(
        law_name=name if asymptote is None else law,
        formula=FORMULA,
        why_this_law=why,
        law=frontier,
        posterior=None,
        parameters={"E": frontier.E, "A": frontier.A, "gamma": frontier.gamma, "C0": frontier.reference_flops},
        points=drawn.points,
        bowls=drawn.bowls,
        noise=noise,
        allocation=allocation_through(drawn),
        status=statuses[0],
        warnings=(*table.warnings, *drawn.warnings, *_doubts(noise, statuses)),
        frame=drawn.frame,
        excluded=(*table.excluded, *drawn.excluded),
        column_mapping=table.column_mapping,
        source=table.source,
        metric=table.metric,
        seed=seed,
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
            why="Nothing would be left to say how far the forecast may be off.",
        )
    return noise


def _refuse_losses_at(asymptote: float, drawn: DrawnPoints, noise: Noise, table: RunTable) -> None:
    spread = np.sqrt(noise.run_variance * drawn.column("leverage") + noise.budget_variance)
    left = drawn.column("loss") - asymptote
    if (_CLEAR * spread > left).any():
        refuse(
            f"{table.source}: the lowest best loss lies {left.min():.3g} above the asymptote pinned at {asymptote:g}, and best "
            f"losses scatter by {spread.max():.2g}.",
            why="What is left above the asymptote is then noise, and its logarithm says nothing.",
            fix="Pin it lower, or leave it free: --law isoflop-frontier",
        )


def _statuses(drawn: DrawnPoints, law: FrontierLaw, noise: Noise, *, pinned: bool) -> list[FitStatus]:
    """All statuses that apply, worst first."""
    count = len(drawn.points)
    unclosed = sum(bowl.shape is not BowlShape.CLOSED for bowl in drawn.bowls)
    low, high = GAMMA_BRACKET
    applies = {
        FitStatus.NOT_FALLING: law.A == 0 or law.gamma <= 0,
        FitStatus.EXPONENT_AT_EDGE: not pinned and not low * 1.001 < law.gamma < high / 1.001,
        FitStatus.ONLY_THREE_BUDGETS: not pinned and count == FRONTIER_UNKNOWNS,
        FitStatus.BOWLS_NOT_CLOSED: 3 * unclosed >= max(len(drawn.bowls), 1),
        FitStatus.PINNED_ASYMPTOTE: pinned,
        FitStatus.ASYMPTOTE_AT_ZERO: not pinned and law.E == 0,
        FitStatus.BUDGETS_SCATTER: noise.budgets_scatter,
        FitStatus.NOT_A_GRID: not drawn.bowls,
        FitStatus.FEW_BUDGETS: count == (PINNED_UNKNOWNS if pinned else FRONTIER_UNKNOWNS) + 1,
        FitStatus.USABLE: True,
    }
    return [status for status in FitStatus if applies.get(status)]


def _doubts(noise: Noise, statuses: list[FitStatus]) -> list[str]:
    """What is to be said beside the worst status: the others, and a floor under the noise."""
    others = [status.value for status in statuses[1:] if status is not FitStatus.USABLE]
    quiet = f"the runs scatter less than seeds do; {SEED_NOISE:.2%} of the loss is taken for their noise"
    return [*others, *([quiet] if noise.at_floor else [])]


RESAMPLES = 2000
"""The 1 % quantile then rests on 20 resamples; 90 % intervals differ by about 2 % of their width between seeds."""
_FARTHEST_MOVE = 20.0  # e^20 of what is left above a pinned asymptote: no fit that came so near to it gets here


@dataclass(frozen=True, kw_only=True)
class Resamples:
    """Laws refitted to resampled ladders, and the noise of one new run under each: (resample,)."""

    laws: FrontierLaws
    run_noise: Array

    def new_run_losses(self, flops: Array) -> Array:
        """Loss that a new compute-optimal run could show at every budget: (resample, flops)."""
        return np.asarray(self.laws.losses(flops) + self.run_noise[:, None])


def resample(result: FitResult, *, seed: int, count: int = RESAMPLES) -> Resamples:
    """Draw `count` resamples of a frontier law's fit; equal seeds give equal numbers."""
    if result.noise is None:
        raise TypeError(f"{result.law_name} has a posterior: draw from that")
    generator = np.random.default_rng(seed)
    flops = np.array([point.flops for point in result.points])
    loss = np.array([point.loss for point in result.points])
    leverage = np.array([point.leverage for point in result.points])
    weights = generator.dirichlet(np.ones(len(flops)), size=count)
    noise = result.noise
    run_variance = _drawn_variance(generator, noise.run_variance, noise.run_freedom, count)
    budget_variance = _drawn_variance(generator, noise.budget_variance, noise.budget_freedom, count)
    spread = np.sqrt(run_variance[:, None] * leverage + budget_variance[:, None])  # (resample, budget)
    moves = spread * generator.standard_normal(spread.shape)
    return Resamples(
        laws=_refitted(result, flops, loss, moves, weights=weights),
        run_noise=np.sqrt(run_variance) * generator.standard_normal(count),
    )


def _refitted(result: FitResult, flops: Array, loss: Array, moves: Array, *, weights: Array) -> FrontierLaws:
    """The law of `result` through moved losses; above a pinned asymptote they move by shares of what is left above it."""
    asymptote = pinned_asymptote(result.law_name)
    if asymptote is None:
        return fit_frontiers(flops, losses=loss + moves, weights=weights)
    left = loss - asymptote
    moved = left * np.exp(np.clip(moves / left, -_FARTHEST_MOVE, _FARTHEST_MOVE))
    return fit_pinned_frontiers(flops, losses=asymptote + moved, weights=weights, asymptote=asymptote)


def _drawn_variance(generator: np.random.Generator, variance: float, freedom: int, count: int) -> Array:
    if freedom == 0:
        return np.zeros(count)
    return np.asarray(variance * freedom / generator.chisquare(freedom, size=count))
