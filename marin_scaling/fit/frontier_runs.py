"""Fit the frontier law L*(C) = E + A (C / C0)^-gamma through the best loss at each budget of a table.

`isoflop-frontier`: a bowl at each budget, then the law through their bottoms. `best-runs-frontier`: for tables that are no
isoFLOP grid, the law through the runs that no cheaper run beats. Both have a free asymptote; `pinned-frontier@1.6` takes the
points that suit the table and somebody's asymptote. All know compute-optimal runs only; the
default law of the project uses all runs (`coupled_runs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fit.allocation import allocation_through
from marin_scaling.fit.fit_result import FitResult, FitStatus
from marin_scaling.fit.frontier import FRONTIER_UNKNOWNS, GAMMA_BRACKET, fit_frontier
from marin_scaling.fit.frontier_points import DrawnPoints, has_bowl, through_best_runs, through_bowls
from marin_scaling.fit.isoflop import BowlShape
from marin_scaling.fit.noise import SEED_NOISE, Noise, estimate_noise
from marin_scaling.fit.pinned_frontier import PINNED_UNKNOWNS, fit_pinned_frontier, pinned_asymptote
from marin_scaling.fit.refusals import left_out, refuse
from marin_scaling.laws import Array, FrontierLaw, frontier_loss

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.run_table import RunTable

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
