"""Tables of runs to forecast: `params` and `tokens` of each, or `flops` alone for the compute-optimal run of that budget.

Optional columns are `run`, `active_params` for sparse models, `flops` in addition to sizes (default: the cost of such runs in
the fitted table), and `epochs` or `unique_tokens` for runs that repeat data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from marin_scaling.errors import RunTableError
from marin_scaling.fitting.combined_law import sparsity_of
from marin_scaling.forecast.forecast import Target, optimal_target
from marin_scaling.run.cells import has_many_per_cell
from marin_scaling.run.columns import map_columns, unit_of_name
from marin_scaling.run.numbers import BadCells, read_numbers
from marin_scaling.run.table import UNIQUE_TOKENS
from marin_scaling.run.table_io import RawTable, is_empty, read_table_file

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.fitting.result import FitResult

_NUMBERS = ("flops", "params", "tokens", "active_params", "epochs")
_WHY = "A run is forecast from its parameters and tokens, or from its FLOPs as the compute-optimal run."
_FIX = "Name columns params and tokens, or flops, and give every row positive, finite numbers, counted one by one."


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """Numbers of a row; None if missing."""

    flops: float | None = None
    params: float | None = None
    tokens: float | None = None
    active_params: float | None = None
    epochs: float | None = None
    unique_tokens: float | None = None

    @property
    def repeated(self) -> float | None:
        """Number of unique tokens, None if all are new."""
        if self.unique_tokens or not (self.tokens and self.epochs and self.epochs > 1):
            return self.unique_tokens
        return self.tokens / self.epochs


@dataclass(frozen=True, kw_only=True)
class WantedRuns:
    """All rows; `swept` if many of them share a size and length, so that they include runs that are not the best."""

    runs: tuple[WantedRun, ...]
    swept: bool


def read_targets(path: Path) -> WantedRuns:
    """Read a CSV, Parquet or JSON-lines file; `RunTableError` names file, line and column of a missing or invalid number."""
    return _targets(read_table_file(Path(path)))


def targets_of_frame(frame: pd.DataFrame) -> WantedRuns:
    """Read a table in memory; errors name the row by its label."""
    places = tuple(f"row {label}" for label in frame.index)
    return _targets(RawTable(name="DataFrame", cells=frame.rename(columns=str).astype(object), places=places))


def _targets(raw: RawTable) -> WantedRuns:
    import pandas as pd

    mapping = map_columns(raw, chosen={}, required=())
    bad = BadCells(raw, raw.places, why=_WHY, fix=_FIX)
    columns = {name: _column(raw, mapping[name], bad=bad) for name in _NUMBERS if name in mapping}
    others = (name for name in raw.column_names() if name not in mapping.values() and UNIQUE_TOKENS.search(name))
    if unique := next(others, None):
        unit = unit_of_name("tokens", unique)
        columns["unique_tokens"] = [cell and cell * unit for cell in _column(raw, unique, bad=bad)]
    bad.refuse()
    if not ({"params", "tokens"} <= columns.keys() or "flops" in columns):
        _refuse(f"{raw.name} has the columns {', '.join(raw.column_names())}: neither params and tokens nor flops.")
    rows = [
        _wanted({name: values[row] for name, values in columns.items()}, where=f"{raw.name}, {place}")
        for row, place in enumerate(raw.places)
    ]
    sized = [row for row in rows if row.params and row.tokens]
    cells = [(row.params, row.tokens, row.repeated or row.tokens) for row in sized]
    sizes = pd.DataFrame(cells, columns=["params", "tokens", "unique"], dtype=np.float64)
    sizes = sizes.assign(epochs=sizes["tokens"] / sizes.pop("unique"))
    return WantedRuns(runs=tuple(rows), swept=has_many_per_cell(sizes))


def target_runs(result: FitResult, wanted: WantedRuns) -> list[Target]:
    """Return the rows as targets of a fit.

    `RunTableError` for FLOPs that parameters and tokens contradict, and for rows of a sparse fit without active parameters.
    """
    _require_active(result, wanted)
    targets = [_target(result, run) for run in wanted.runs]
    odd = [
        f"row {row}: {run.params:.3g} parameters and {run.tokens:.3g} tokens cost {cost:.3g} FLOPs, not {run.flops:.3g}"
        for row, run in enumerate(wanted.runs, start=1)
        if run.flops and run.params and run.tokens
        for cost in [_cost(result, run.active_params or run.params, run.tokens)]
        if not 1 / _OFF_COST <= run.flops / cost <= _OFF_COST
    ]
    if odd:
        raise RunTableError(
            tuple(odd),
            why="FLOPs follow from parameters and tokens, by the convention of the fitted table.",
            fix="Correct the unit or the count of these columns, or leave the column of FLOPs out.",
        )
    return targets


def _require_active(result: FitResult, wanted: WantedRuns) -> None:
    sparsity = sparsity_of(result.frame)
    rows = [row for row, run in enumerate(wanted.runs, start=1) if run.params and run.tokens and not run.active_params]
    if rows and sparsity > _DENSE:
        named = f"row {rows[0]}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
        raise RunTableError(
            f"{named}: no active_params, and the fitted models have {sparsity:.3g} parameters for each active one.",
            why="Loss and FLOPs of a sparse model follow from the parameters that a token passes.",
            fix="Add a column active_params; for a dense model it equals params.",
        )


_DENSE = 1.02
"""Ratio of total to active parameters up to which a fit is of dense models."""

_OFF_COST = 2.0
"""Conventions differ by less; a unit, a slip or total for active parameters by more."""


def _cost(result: FitResult, params: float, tokens: float) -> float:
    return float(result.allocation.cost.at(np.array([params]))[0]) * params * tokens


def _target(result: FitResult, run: WantedRun) -> Target:
    if run.params is None or run.tokens is None:
        assert run.flops is not None  # checked by `_wanted`
        return optimal_target(result, run.flops, unique_tokens=run.repeated)
    active = run.active_params or run.params
    flops = run.flops or _cost(result, active, run.tokens)
    return Target(flops=flops, params=run.params, tokens=run.tokens, active_params=active, unique_tokens=run.repeated)


def _wanted(numbers: Mapping[str, float | None], *, where: str) -> WantedRun:
    run = WantedRun(**numbers)
    if not (run.params and run.tokens) and not run.flops:
        _refuse(f"{where} has neither params and tokens nor flops.")
    return run


def _column(raw: RawTable, column: str, *, bad: BadCells) -> list[float | None]:
    """Return the numbers of a column, None if a cell is empty."""
    filled = [row for row, cell in enumerate(raw.cells[column].tolist()) if not is_empty(cell)]
    values = dict(zip(filled, read_numbers(raw, column, filled, bad=bad), strict=True))
    return [values.get(row) for row in range(len(raw.places))]


def _refuse(what: str) -> NoReturn:
    raise RunTableError(what, fix=_FIX)
