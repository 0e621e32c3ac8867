"""What a table of runs shows at each budget: its loss, how far runs scatter there, and how many model FLOPs a second they did.

The loss is the bottom of the bowl, else that of the best size; seeds are averaged. Arithmetic on the frame of a run table: no
law across budgets is fitted here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fit.frontier_points import has_bowl
from marin_scaling.fit.isoflop import Bowl, BowlShape, fit_bowl
from marin_scaling.fit.swept_runs import cells_of
from marin_scaling.run.run_table import BUDGET_SPAN

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class MeasuredLoss:
    """The loss that a table shows for one budget or size.

    `leverage` is its variance in units of one run's; `squares` and their `freedom` say how far runs scatter there.
    `flops_per_second` are model FLOPs, None without a column `tokens_per_second`. `note` is a doubt, or empty.
    """

    flops: float
    params: float
    loss: float
    leverage: float
    squares: float
    freedom: int
    flops_per_second: float | None
    note: str


def measure(frame: pd.DataFrame) -> list[MeasuredLoss]:
    """The loss at each budget of a run table's frame, cheapest first: bottom of the bowl, else the best size, seeds averaged.

    >>> import pandas as pd
    >>> run = {"flops": 6e18, "params": 1e9, "tokens": 1e9, "budget_flops": 6e18}
    >>> seeds = pd.DataFrame([run | {"seed": "0", "loss": 3.1}, run | {"seed": "1", "loss": 3.3}])
    >>> [(point.loss, point.leverage, point.freedom) for point in measure(seeds)]
    [(3.2, 0.5, 1)]
    """
    return [_measure_budget(runs) for _, runs in frame.groupby("budget_flops")]


def partner(point: MeasuredLoss, others: Sequence[MeasuredLoss]) -> MeasuredLoss | None:
    """The other table's nearest budget, None when it is farther than runs of one budget may be."""
    nearest = min(others, key=lambda other: abs(math.log(other.flops / point.flops)))
    return nearest if abs(math.log(nearest.flops / point.flops)) <= math.log(BUDGET_SPAN) else None


def _measure_budget(runs: pd.DataFrame) -> MeasuredLoss:
    flops, params, tokens, loss = (runs[name].to_numpy(dtype=np.float64) for name in ("flops", "params", "tokens", "loss"))
    cells = [_measure_cell(cell) for _, cell in runs.groupby(cells_of(params, tokens))]
    best = min(cells, key=lambda cell: cell.loss)
    if not has_bowl(runs):
        return replace(best, squares=sum(each.squares for each in cells), freedom=sum(each.freedom for each in cells))
    bowl = fit_bowl(flops, params=params, tokens=tokens, loss=loss)
    bottom = _bottom(bowl, cells) if bowl.shape is BowlShape.CLOSED else best
    squares = bowl.residual_sum_of_squares if bowl.degrees_of_freedom else 0.0
    return replace(bottom, squares=squares, freedom=bowl.degrees_of_freedom, note=bowl.shape.value)


def _bottom(bowl: Bowl, cells: Sequence[MeasuredLoss]) -> MeasuredLoss:
    """The optimum, which runs as fast as the size next to it."""
    nearest = min(cells, key=lambda cell: abs(math.log(cell.params / bowl.optimal_params)))
    return replace(nearest, flops=bowl.flops, params=bowl.optimal_params, loss=bowl.optimal_loss, leverage=bowl.leverage)


def _measure_cell(cell: pd.DataFrame) -> MeasuredLoss:
    loss, count = cell["loss"].to_numpy(dtype=np.float64), len(cell)
    seeds = "seed" in cell and cell["seed"].nunique() == count
    alike = f"{count} runs of one size that no column `seed` tells apart: the lowest was taken"
    return MeasuredLoss(
        flops=float(np.exp(np.log(cell["flops"].to_numpy(dtype=np.float64)).mean())),
        params=float(cell["params"].iloc[0]),
        loss=float(loss.mean() if seeds else loss.min()),
        leverage=1 / count if seeds else 1.0,
        squares=float(np.sum((loss - loss.mean()) ** 2)) if seeds else 0.0,
        freedom=count - 1 if seeds else 0,
        flops_per_second=_flops_per_second(cell),
        note=alike if count > 1 and not seeds else "",
    )


def _flops_per_second(cell: pd.DataFrame) -> float | None:
    if "tokens_per_second" not in cell:
        return None
    rates = (cell["tokens_per_second"] * cell["flops"] / cell["tokens"]).dropna()
    return float(rates.mean()) if len(rates) else None
