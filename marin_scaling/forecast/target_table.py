"""A table of runs to forecast: `params` and `tokens` of each, or `flops` alone for the compute-optimal run of that budget.

Optional: `flops` beside sizes (else what such runs cost in the fitted table), `active_params` for sparse models, `run`.
Reads numbers; forecasts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from marin_scaling.errors import RunTableError
from marin_scaling.fit.swept_runs import is_swept
from marin_scaling.forecast.forecast import Target, optimal_target
from marin_scaling.run.table_columns import map_columns
from marin_scaling.run.table_files import RawTable, read_table_file

if TYPE_CHECKING:
    from marin_scaling.fit.fit_result import FitResult

_NUMBERS = ("flops", "params", "tokens", "active_params")


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """The numbers that a row gives; None where it gives none."""

    flops: float | None
    params: float | None
    tokens: float | None
    active_params: float | None


@dataclass(frozen=True, kw_only=True)
class WantedRuns:
    """All rows; `swept` when many of them are of one size and length, so that they are as the runs come and not the best."""

    runs: tuple[WantedRun, ...]
    swept: bool


def read_targets(path: Path) -> WantedRuns:
    """Read a CSV, Parquet or JSON-lines file; `RunTableError` names file, line and column of what is missing or no number."""
    raw = read_table_file(Path(path))
    columns = {name: column for name, column in _known_columns(raw).items() if name in _NUMBERS}
    if not ({"params", "tokens"} <= columns.keys() or "flops" in columns):
        _refuse(f"{raw.name} has the columns {', '.join(raw.column_names())}: neither params and tokens nor flops.")
    rows = [WantedRun(**_numbers(raw, columns, row)) for row in range(len(raw.cells))]
    sized = [row for row in rows if row.params and row.tokens]
    sizes = np.array([(row.params, row.tokens) for row in sized], dtype=np.float64).reshape(-1, 2)
    return WantedRuns(runs=tuple(rows), swept=len(sized) > 0 and is_swept(sizes[:, 0], sizes[:, 1]))


def target_runs(result: FitResult, wanted: WantedRuns) -> list[Target]:
    """The rows as targets of a fit."""
    return [_target(result, run) for run in wanted.runs]


def _target(result: FitResult, run: WantedRun) -> Target:
    if run.params is None or run.tokens is None:
        return optimal_target(result, run.flops or 0.0)
    active = run.active_params or run.params
    flops = run.flops or float(result.allocation.cost.at(np.array([active]))[0]) * active * run.tokens
    return Target(flops=flops, params=run.params, tokens=run.tokens, active_params=active)


def _known_columns(raw: RawTable) -> dict[str, str]:
    return map_columns(raw.column_names(), chosen={}, name=raw.name, required=())


def _numbers(raw: RawTable, columns: dict[str, str], row: int) -> dict[str, float | None]:
    found = {name: _number(raw, columns[name], row) if name in columns else None for name in _NUMBERS}
    if not (found["params"] and found["tokens"]) and not found["flops"]:
        _refuse(f"{raw.name}, {raw.places[row]} gives neither params and tokens nor flops.")
    return found


def _number(raw: RawTable, column: str, row: int) -> float | None:
    cell = raw.cells[column].iloc[row]
    if cell is None or not str(cell).strip() or str(cell) in ("nan", "<NA>"):
        return None
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = float("nan")
    if not (np.isfinite(number) and number > 0):
        _refuse(f"{raw.name}, {raw.places[row]}, column {column!r} holds {str(cell)[:60]!r}, no number above zero.")
    return number


def _refuse(what: str) -> NoReturn:
    raise RunTableError(
        what,
        why="A run is forecast from its parameters and tokens, or from its FLOPs as the compute-optimal run.",
        fix="Give every row params and tokens, or flops.",
    )
