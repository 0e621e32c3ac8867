"""Tables with several runs of each size and length that differ in something else, as when a learning rate is swept.

The best runs of each cell (one size, one number of tokens) say what the size can do; the others say how far off a badly tuned
run is. A forecast of a tuned run needs the former: `best_of_cells` keeps the best 30 % of each cell and names the rest. Runs
that the table tells apart by their seed alone are no sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marin_scaling.run.audit import Exclusion

if TYPE_CHECKING:
    import pandas as pd

_LENGTHS_PER_E_FOLD = 100  # numbers of tokens within 1 % are one length: a swept batch rounds them differently
_LEAST_CELLS = 5
_LEAST_RUNS = 3  # in a cell, for it to be swept
_LEAST_SHARE = 0.3  # of cells that are swept, for the table to be
KEPT_SHARE = 0.3


def is_swept(params: NDArray[np.float64], tokens: NDArray[np.float64], *, seeds: list[str] | None = None) -> bool:
    """Whether a table of so many parameters and tokens (run,) has three runs or more in a third of its cells.

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
    """The number of each run's cell, one size and one length: (run,)."""
    keys = np.stack([params, np.round(np.log(tokens) * _LENGTHS_PER_E_FOLD)])
    return np.asarray(np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1))


def best_of_cells(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[Exclusion, ...]]:
    """The best runs of each cell of a swept table, at least one, and the others as exclusions; `frame` itself if not swept."""
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
