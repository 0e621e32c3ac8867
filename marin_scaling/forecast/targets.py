"""Tables of runs to forecast, and the loss of a run compared with that of N*.

A row has `params` and `tokens`, or `flops` alone for the compute-optimal run of that budget.

Columns are read as in the fitted table: by the names and units that it has, by known names, or by units in names. Further
columns are `run`, `active_params` for sparse models, `flops` in addition to sizes (default: the cost of such runs in the fitted
table), `epochs` or `unique_tokens` for runs that repeat data, and the measured `loss`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from marin_scaling.errors import RunTableError
from marin_scaling.fitting.combined_law import sparsity_of
from marin_scaling.fitting.fit import FitResult
from marin_scaling.forecast.forecast import Forecast, Target, medians, optimal_target
from marin_scaling.printable import joined
from marin_scaling.run.column_units import convert_target_units, has_sizes, loss_in_nats
from marin_scaling.run.columns import map_columns, unit_of_name
from marin_scaling.run.table import UNIQUE_TOKENS, RunTable, cells_of_frame, column_texts, read_cells
from marin_scaling.run.table_io import BadCells, RawTable, is_empty, read_numbers
from marin_scaling.units import format_flops, format_number, metric_of_column

if TYPE_CHECKING:
    import pandas as pd


_OPTIONAL = ("active_params", "epochs", "unique_tokens")
_NUMBERS = ("flops", "params", "tokens", *_OPTIONAL, "loss")
_WHY = "A run is forecast from its parameters and tokens, or from its FLOPs as the compute-optimal run."
_FIX = "Name columns params and tokens, or flops, and give every row positive, finite numbers."


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """Numbers of a row, None if missing; `loss` is the measured one, and `run` the name or place in the table, or ""."""

    flops: float | None = None
    params: float | None = None
    tokens: float | None = None
    active_params: float | None = None
    epochs: float | None = None
    unique_tokens: float | None = None
    loss: float | None = None
    run: str = ""

    @property
    def repeated(self) -> float | None:
        """Number of unique tokens, None if all are new."""
        if self.unique_tokens or not (self.tokens and self.epochs and self.epochs > 1):
            return self.unique_tokens
        return self.tokens / self.epochs


def read_targets(path: Path, *, like: RunTable) -> tuple[WantedRun, ...]:
    """Read a table of runs to forecast as the fitted table `like` was read.

    `RunTableError` names file, line and column of a missing or invalid number.
    """
    raw = read_cells(Path(path))
    return _targets(raw, like, unnamed=raw.places)


def targets_of_frame(frame: pd.DataFrame, *, like: RunTable) -> tuple[WantedRun, ...]:
    """Read a table in memory; errors name the row by its label."""
    return _targets(cells_of_frame(frame), like, unnamed=[""] * len(frame))


def _targets(raw: RawTable, like: RunTable, *, unnamed: Sequence[str]) -> tuple[WantedRun, ...]:
    same = {ours: theirs for ours, theirs in like.column_mapping.items() if theirs in raw.column_names()}
    mapping = map_columns(raw, chosen=same, required=())
    if not ({"params", "tokens"} <= mapping.keys() or "flops" in mapping):
        _refuse(f"{raw.name} has the columns {joined(raw.column_names())}: neither params and tokens nor flops.")
    names = column_texts(raw, mapping["run"]) if "run" in mapping else [""] * len(unnamed)
    names = [name or place for name, place in zip(names, unnamed, strict=True)]
    units = {column: unit for column, unit in like.units.items() if same.keys() & {column, f"active_{column}"}}
    frame = convert_target_units(_frame(raw, mapping, names), names=mapping, units=units)
    frame = _with_losses(frame, mapping, like, unit=units.get("loss", ""))
    _require_sizes(raw, frame)
    rows = [{name: None if math.isnan(value) else float(value) for name, value in row.items()} for row in _rows(frame)]
    return tuple(WantedRun(run=name, **row) for name, row in zip(names, rows, strict=True))


def _frame(raw: RawTable, mapping: Mapping[str, str], names: Sequence[str]) -> pd.DataFrame:
    """Return the numbers of the rows, NaN where a cell is empty; an empty cell of `active_params` takes `params`."""
    import pandas as pd

    bad = BadCells(raw, [name or place for name, place in zip(names, raw.places, strict=True)], why=_WHY, fix=_FIX)
    columns = {name: _column(raw, mapping[name], bad=bad) for name in _NUMBERS if name in mapping}
    others = (name for name in raw.column_names() if name not in mapping.values() and UNIQUE_TOKENS.search(name))
    if unique := next(others, None):
        unit = unit_of_name("tokens", unique)
        columns["unique_tokens"] = [cell * unit for cell in _column(raw, unique, bad=bad)]
    bad.refuse()
    wanted = [name for name in _NUMBERS if name not in _OPTIONAL or name in columns]
    frame = pd.DataFrame(columns, columns=wanted, index=range(len(raw.places)), dtype="float64").assign(run=list(names))
    return frame.assign(active_params=frame["active_params"].fillna(frame["params"])) if "active_params" in frame else frame


def _with_losses(frame: pd.DataFrame, mapping: Mapping[str, str], like: RunTable, *, unit: str) -> pd.DataFrame:
    """Return the table with measured losses in the unit of the fit; without them if they are of another metric."""
    if "loss" not in mapping:
        return frame
    metric = metric_of_column(mapping["loss"])
    if metric not in (None, like.metric):
        return frame.assign(loss=math.nan)
    measured = frame.dropna(subset=["loss"])
    if unit and not measured.empty:
        frame.loc[measured.index, "loss"] = loss_in_nats(measured, unit, column=mapping["loss"])[0]["loss"]
    return frame


def _require_sizes(raw: RawTable, frame: pd.DataFrame) -> None:
    """Raise `RunTableError` for rows without numbers, and for sizes that no training run has."""
    faults = []
    for place, row in zip(raw.places, _rows(frame), strict=True):
        params, tokens = row.get("active_params", row["params"]), row["tokens"]
        if math.isnan(row["flops"]) and math.isnan(params + tokens):
            faults.append(f"{raw.name}, {place} has neither params and tokens nor flops.")
        elif params + tokens > 0 and not has_sizes(params, tokens):
            faults.append(
                f"{raw.name}, {place}: {format_number(params)} parameters and {format_number(tokens)} tokens are no training "
                "run's."
            )
    if faults:
        raise RunTableError(tuple(faults), fix=f"{_FIX} Write counts one by one (7e9) or with a letter (7B).")


def _rows(frame: pd.DataFrame) -> list[dict[str, float]]:
    columns = [name for name in _NUMBERS if name in frame]
    return [dict(zip(columns, row, strict=True)) for row in frame[columns].itertuples(index=False, name=None)]


def target_runs(result: FitResult, wanted: Sequence[WantedRun]) -> list[Target]:
    """Return the rows as targets of a fit.

    `RunTableError` for FLOPs that parameters and tokens contradict, and for rows of a sparse fit without active parameters.
    """
    _require_active(result, wanted)
    targets = [_target(result, run) for run in wanted]
    odd = [
        f"row {row}: {format_number(run.params, 3)} parameters and {format_number(run.tokens, 3)} tokens cost "
        f"{format_number(cost, 3)} FLOPs, not {format_flops(run.flops)}"
        for row, run in enumerate(wanted, start=1)
        if run.flops and run.params and run.tokens
        for cost in [_cost(result, run.active_params or run.params, run.tokens)]
        if not 1 / OFF_COST <= run.flops / cost <= OFF_COST
    ]
    if odd:
        raise RunTableError(
            tuple(odd),
            why="FLOPs follow from parameters and tokens, by the convention of the fitted table.",
            fix="Correct the unit or the count of these columns, or leave the column of FLOPs out.",
        )
    return targets


def _require_active(result: FitResult, wanted: Sequence[WantedRun]) -> None:
    sparsity = sparsity_of(result.frame)
    rows = [row for row, run in enumerate(wanted, start=1) if run.params and not run.active_params]
    if rows and sparsity > DENSE:
        named = f"row {rows[0]}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
        raise RunTableError(
            f"{named}: no active_params, and the fitted models have {sparsity:.3g} parameters for each active one.",
            why="Loss and FLOPs of a sparse model follow from the parameters that a token passes.",
            fix="Add a column active_params; for a dense model it equals params.",
        )


DENSE = 1.02
"""Ratio of total to active parameters up to which a fit is of dense models."""

OFF_COST = 2.0
"""Conventions differ by less; a unit, a slip or total for active parameters by more."""


def _cost(result: FitResult, params: float, tokens: float) -> float:
    return float(result.allocation.cost.at(np.array([params]))[0]) * params * tokens


def _target(result: FitResult, run: WantedRun) -> Target:
    if run.flops and not (run.params or run.tokens):
        return replace(optimal_target(result, run.flops, unique_tokens=run.repeated), run=run.run, observed=run.loss)
    active, tokens = run.active_params or run.params, run.tokens
    if not active:
        assert run.flops is not None  # `_require_sizes` found FLOPs beside the tokens
        active = _params_for(result, run.flops, tokens=tokens or 0.0)
    if not tokens:
        assert run.flops is not None
        tokens = result.allocation.tokens_for(run.flops, params=active)
    flops = run.flops or _cost(result, active, tokens)
    total = run.params or active * sparsity_of(result.frame)
    return Target(
        flops=flops,
        params=total,
        tokens=tokens,
        active_params=active,
        run=run.run,
        observed=run.loss,
        unique_tokens=run.repeated,
    )


def _params_for(result: FitResult, flops: float, *, tokens: float) -> float:
    """Return the parameters of a run of so many FLOPs and tokens."""
    params = flops / (6 * tokens)
    for _ in range(_STEPS):  # the cost per parameter and token changes slowly with the parameters
        params = flops / (float(result.allocation.cost.at(np.array([params]))[0]) * tokens)
    return params


_STEPS = 30


def _column(raw: RawTable, column: str, *, bad: BadCells) -> list[float]:
    """Return the numbers of a column, NaN if a cell is empty."""
    filled = [row for row, cell in enumerate(raw.cells[column].tolist()) if not is_empty(cell)]
    values = dict(zip(filled, read_numbers(raw, column, filled, bad=bad), strict=True))
    return [values.get(row, math.nan) for row in range(len(raw.places))]


def _refuse(what: str) -> NoReturn:
    raise RunTableError(what, fix=_FIX)


def above_optimum(result: FitResult, forecasts: Sequence[Forecast]) -> list[float | None]:
    """Return the relative increase of each forecast over that of N* for the same FLOPs, as the runs count them.

    None for N* itself, for runs that identify no N*, and for a law that knows no sizes.
    """
    known = result.allocation.identified and result.law.knows_any_size
    given = [each for each in forecasts if known and not each.optimal]
    if not given:
        return [None] * len(forecasts)
    optima = [optimal_target(result, flops_as_in_runs(result, each)) for each in given]
    losses = medians(result, [*optima, *(each.target for each in given)]).reshape(2, -1)
    rise = iter((losses[1] / losses[0] - 1).tolist())
    return [next(rise) if known and not each.optimal else None for each in forecasts]


def flops_as_in_runs(result: FitResult, forecast: Forecast) -> float:
    """Return the training FLOPs of a forecast's size and tokens by the count of the fitted runs."""
    per_param_and_token = float(result.allocation.cost.at(np.array([forecast.active_params]))[0])
    return per_param_and_token * forecast.active_params * forecast.tokens
