"""Refuse tables that determine no law; select tuned runs from sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.frontier import FRONTIER_UNKNOWNS
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.table import RunTable


def refuse_hopeless(table: RunTable) -> None:
    """Raise `FitRefused` for runs that determine no law."""
    frame = table.frame
    if len(frame) <= FRONTIER_UNKNOWNS:
        plural = "" if len(frame) == 1 else "s"
        refuse(
            f"{table.source} has {len(frame)} usable run{plural}; the law has {FRONTIER_UNKNOWNS} unknowns.{left_out(table)}"
        )
    if frame["flops"].max() < BUDGET_SPAN * frame["flops"].min():
        refuse(
            f"{table.source}: all {len(frame)} runs cost about {format_flops(frame['flops'].max())} FLOPs.",
            why="A single budget cannot show how loss falls with compute.",
        )
    if frame["loss"].nunique() == 1:
        refuse(
            f"{table.source}: all {len(frame)} runs have the same loss, {frame['loss'].iloc[0]:g}.",
            why="A constant loss cannot be extrapolated.",
            fix="Check the column that was read as the loss: --column loss=NAME",
        )


def left_out(table: RunTable) -> str:
    """Return a sentence with the first three runs that were left out, for a refusal."""
    named = "; ".join(f"{each.run}: {each.why}" for each in table.excluded[:3])
    more = f"; and {len(table.excluded) - 3} more" if len(table.excluded) > 3 else ""
    return f" Left out were {named}{more}." if table.excluded else ""


def refuse(
    what: str,
    *,
    why: str = "With as many unknowns as numbers, any law would fit.",
    fix: str = "Add runs at other budgets: at least four budgets, a factor of two or more apart, four sizes at each.",
) -> NoReturn:
    """Raise `FitRefused` for a table that is too small."""
    raise FitRefused(what, why=why, fix=fix)


_LENGTHS_PER_E_FOLD = 100  # tokens within 1 % are one length, since batches round them differently
_LEAST_CELLS = 5
_LEAST_RUNS = 3  # in a swept cell
_LEAST_SHARE = 0.3  # of swept cells in a swept table
KEPT_SHARE = 0.3


def is_swept(params: NDArray[np.float64], tokens: NDArray[np.float64], *, seeds: list[str] | None = None) -> bool:
    """Return True if at least 30 % of a table's cells, one size and length each, have at least three runs.

    >>> sizes = np.repeat([1e7, 2e7, 4e7, 8e7, 1.6e8], 4)
    >>> is_swept(sizes, 20 * sizes), is_swept(sizes, 20 * sizes, seeds=["0", "1", "2", "3"] * 5)
    (True, False)
    """
    cells = cells_of(params, tokens)
    counts = np.bincount(cells)
    if len(counts) < _LEAST_CELLS or np.mean(counts >= _LEAST_RUNS) <= _LEAST_SHARE:
        return False
    return seeds is None or len(set(zip(cells.tolist(), seeds, strict=True))) < len(cells)


def cells_of(params: NDArray[np.float64], tokens: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of each run's cell, one size and one length: (run,)."""
    keys = np.stack([params, np.round(np.log(tokens) * _LENGTHS_PER_E_FOLD)])
    return np.asarray(np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1))


def best_of_cells(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Exclusion, ...]]:
    """Return the best runs of each cell of a swept table, and the others as exclusions; `frame` itself if not swept."""
    params, tokens = (frame[name].to_numpy(dtype=np.float64) for name in ("params", "tokens"))
    seeds = frame["seed"].tolist() if "seed" in frame else None
    if not is_swept(params, tokens, seeds=seeds):
        return frame, ()
    by_cell = frame["loss"].groupby(cells_of(params, tokens))
    better, runs = by_cell.rank(method="first").to_numpy() - 1, by_cell.transform("size").to_numpy()
    kept = better < KEPT_SHARE * runs
    excluded = tuple(
        Exclusion(
            run=str(run),
            why=f"swept: {int(before)} of the {int(count)} runs of its size and tokens are lower (--swept all keeps it)",
        )
        for run, before, count in zip(frame["run"][~kept], better[~kept], runs[~kept], strict=True)
    )
    return frame[kept].reset_index(drop=True), excluded
