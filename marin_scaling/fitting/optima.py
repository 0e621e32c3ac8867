"""The best loss at each budget of a table: bottoms of bowls where budgets have them, or the runs that no cheaper run beats.

What the frontier law is fitted through, and what figures and tables show of a fit. Also the compute-optimal sizes that bowls
give. No law is fitted here, and nothing is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fitting.bowl import QUADRATIC_UNKNOWNS, Bowl, BowlShape, fit_bowl
from marin_scaling.laws import Array
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """The best loss at one budget, as the law sees it. `leverage` is its variance in units of one run's variance."""

    flops: float
    params: float
    tokens: float
    loss: float
    leverage: float
    run_count: int
    note: str


def size_column(frame: pd.DataFrame) -> Array:
    """Active parameters where the table has them, else parameters: (run,)."""
    return frame["active_params" if "active_params" in frame else "params"].to_numpy(dtype=np.float64)


_SIZES = ("params", "tokens", "loss")


@dataclass(frozen=True, kw_only=True)
class DrawnPoints:
    """The points, the bowls they are bottoms of, the runs they rest on, and the runs that gave none."""

    points: tuple[FrontierPoint, ...]
    bowls: tuple[Bowl, ...]
    frame: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    warnings: tuple[str, ...] = ()

    def column(self, name: str) -> Array:
        """One number of every point: (point,)."""
        return np.array([getattr(point, name) for point in self.points], dtype=np.float64)


def has_bowl(runs: pd.DataFrame) -> bool:
    """Whether the runs of one budget can have a bowl: three sizes or more, at one cost."""
    sizes = np.unique(np.round(np.log10(runs["tokens"].to_numpy()), 3))  # closer than 0.2 % is the same size
    return len(sizes) >= QUADRATIC_UNKNOWNS and bool(runs["flops"].max() <= BUDGET_SPAN * runs["flops"].min())


def through_bowls(frame: pd.DataFrame) -> DrawnPoints:
    """A point for each budget that has a bowl; the runs of the others are excluded, with the reason."""
    bowls, used, excluded = [], [], []
    for budget, runs in frame.groupby("budget_flops"):
        if has_bowl(runs):
            bowls.append(fit_bowl(*_arrays(runs, "flops"), **dict(zip(_SIZES, _arrays(runs, *_SIZES), strict=True))))
            used.append(runs.index)
        else:
            why = f"its budget of {format_flops(float(budget))} FLOPs has runs of fewer than three sizes"  # type: ignore[arg-type]
            excluded += [Exclusion(run=str(run), why=why) for run in runs["run"]]
    points = tuple(_point_of(bowl) for bowl in bowls)
    kept = frame.loc[sorted(np.concatenate(used))] if used else frame.iloc[:0]
    return DrawnPoints(points=points, bowls=tuple(bowls), frame=kept, excluded=tuple(excluded), warnings=_bowl_warnings(bowls))


def _arrays(runs: pd.DataFrame, *names: str) -> list[Array]:
    return [runs[name].to_numpy(dtype=np.float64) for name in names]


def _point_of(bowl: Bowl) -> FrontierPoint:
    return FrontierPoint(
        flops=bowl.flops,
        params=bowl.optimal_params,
        tokens=bowl.optimal_tokens,
        loss=bowl.optimal_loss,
        leverage=bowl.leverage,
        run_count=bowl.run_count,
        note=bowl.shape.value,
    )


def _bowl_warnings(bowls: list[Bowl]) -> tuple[str, ...]:
    return tuple(
        f"at {format_flops(bowl.flops)} FLOPs {bowl.shape.value}" for bowl in bowls if bowl.shape is not BowlShape.CLOSED
    )


def through_best_runs(frame: pd.DataFrame) -> DrawnPoints:
    """Points are the runs with a lower loss than every run that costs no more: the others bound the law from above only."""
    ordered = frame.sort_values(["flops", "loss"], kind="stable")
    loss = ordered["loss"].to_numpy()
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(loss)[:-1]])
    best = ordered[loss < best_before]
    points = tuple(
        FrontierPoint(flops=flops, params=params, tokens=tokens, loss=value, leverage=1.0, run_count=1, note="")
        for flops, params, tokens, value in best[["flops", *_SIZES]].itertuples(index=False, name=None)
    )
    note = f"the law goes through {len(best)} of {len(frame)} runs; a run that costs no more beats each of the others"
    return DrawnPoints(points=points, bowls=(), frame=frame, excluded=(), warnings=(note,) if len(best) < len(frame) else ())


def all_runs_drawn(frame: pd.DataFrame) -> DrawnPoints:
    """Points through bowls where most budgets have them, else the best runs; no run is set aside, for laws that take all."""
    budgets = frame.groupby("budget_flops")
    if 2 * sum(has_bowl(runs) for _, runs in budgets) <= budgets.ngroups:
        drawn = through_best_runs(frame)
        return DrawnPoints(points=drawn.points, bowls=(), frame=frame, excluded=())
    drawn = through_bowls(frame)
    return DrawnPoints(points=drawn.points, bowls=drawn.bowls, frame=frame, excluded=(), warnings=drawn.warnings)


def loss_rises(drawn: DrawnPoints) -> bool:
    """Whether the best loss does not fall with compute over all runs."""
    frame = drawn.frame
    best = frame.groupby("budget_flops")[["flops", "loss"]].min() if drawn.bowls else frame[["flops", "loss"]]
    return bool(np.polyfit(np.log(best["flops"] / best["flops"].mean()), best["loss"], 1)[0] >= 0)
