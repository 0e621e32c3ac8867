"""Runs with two metrics of one benchmark: a soft one that falls (a loss, bits per byte) and the accuracy that is asked about.

Reads the accuracies that stand beside the runs of a table, and pools of runs of other recipes, which need no compute. An
accuracy is a share from 0 to 1; an empty cell means that the run was not scored, and is counted. Fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from marin_scaling.errors import RunTableError
from marin_scaling.laws import Array
from marin_scaling.printable import printable
from marin_scaling.regular_files import is_present
from marin_scaling.run.run_table import RunTable
from marin_scaling.run.table_cells import cells_of_column, finite_number, is_empty
from marin_scaling.run.table_files import RawTable, read_table_file

_WHY = "A curve of accuracy runs between chance and 1; nothing is dropped silently."
_FIX = "Mend the cell (per cent divided by 100), or leave it empty where the run was not scored."


@dataclass(frozen=True, kw_only=True)
class ScoredRuns:
    """`soft` and `accuracy` of runs that have both, (run,) each; `notes` say what else was found, in sentences."""

    soft: Array
    accuracy: Array
    notes: tuple[str, ...] = ()

    def with_pool(self, pool: ScoredRuns) -> ScoredRuns:
        """These and those of another table; a run that stands in both, with equal numbers, counts once, and that is said.

        >>> mine = ScoredRuns(soft=np.array([0.8, 0.7]), accuracy=np.array([0.3, 0.4]))
        >>> pool = ScoredRuns(soft=np.array([0.7, 0.5]), accuracy=np.array([0.4, 0.7]))
        >>> both = mine.with_pool(pool)
        >>> both.soft.tolist(), both.notes
        ([0.8, 0.7, 0.5], ('1 run stands in both tables and counts once',))
        """
        mine = set(zip(self.soft.tolist(), self.accuracy.tolist(), strict=True))
        pairs = zip(pool.soft.tolist(), pool.accuracy.tolist(), strict=True)
        other = np.array([pair not in mine for pair in pairs], dtype=bool)
        twice = int(np.sum(~other))
        words = "run stands in both tables and counts" if twice == 1 else "runs stand in both tables and count"
        said = (f"{twice} {words} once",) if twice else ()
        return ScoredRuns(
            soft=np.concatenate([self.soft, pool.soft[other]]),
            accuracy=np.concatenate([self.accuracy, pool.accuracy[other]]),
            notes=tuple(dict.fromkeys([*self.notes, *pool.notes, *said])),
        )


def read_scores(path: Path, *, table: RunTable, metric: str) -> ScoredRuns:
    """Accuracies, from column `metric` of the file that `table` was read from, of the runs that the table kept.

    The soft metric is the table's loss. `RunTableError` when there is no such column, a cell is no share, or two rows of one
    name and soft metric differ; `StorageError` when the file cannot be read.
    """
    raw = _raw_table(path)
    names = _run_names(raw, table.column_mapping)
    cells = zip(names, _numbers(raw, table.column_mapping["loss"]), _shares(raw, metric), strict=True)
    scores: dict[tuple[str, float], float] = {}
    for name, soft, share in cells:
        if not np.array_equal(scores.setdefault((name, soft), share), share, equal_nan=True):
            _refuse_twins(raw, name, metric)
    of_runs = zip(table.frame["run"], table.frame["loss"], strict=True)
    return _scored(
        table.frame["loss"].to_numpy(dtype=np.float64), [scores[key] for key in of_runs], source=raw.name, metric=metric
    )


def read_pool(path: Path, *, soft: str, metric: str) -> ScoredRuns:
    """Runs of any recipe that have both columns; rows without one of them are left out and counted. Errors as `read_scores`."""
    raw = _raw_table(path)
    return _scored(np.array(_numbers(raw, soft)), _shares(raw, metric), source=raw.name, metric=metric)


def _scored(soft: Array, shares: Sequence[float], *, source: str, metric: str) -> ScoredRuns:
    accuracy = np.array(shares, dtype=np.float64)
    both = np.isfinite(soft) & np.isfinite(accuracy)
    missing = int(np.sum(~both))
    said = f"{source}: {missing} of {len(both)} runs have no {metric}; they take no part in the curve of accuracy"
    return ScoredRuns(soft=soft[both], accuracy=accuracy[both], notes=(said,) if missing else ())


def _raw_table(path: Path) -> RawTable:
    path = Path(path)
    if path.is_dir() and not is_present(path / "runs.csv"):
        raise RunTableError(
            f"{path} is a folder without runs.csv.",
            why="Stored runs hold no benchmark: its two columns have to stand in a table.",
            fix="Give a CSV, Parquet or JSONL file with FLOPs, parameters, tokens and both columns.",
        )
    return read_table_file(path / "runs.csv" if path.is_dir() else path)


def _run_names(raw: RawTable, mapping: Mapping[str, str]) -> list[str]:
    """The name of each row as the run table has it."""
    if "run" not in mapping:
        return list(raw.places)
    cells = raw.cells[mapping["run"]]
    return ["" if absent else printable(str(cell)) for cell, absent in zip(cells.tolist(), cells.isna(), strict=True)]


def _numbers(raw: RawTable, column: str) -> list[float]:
    """Cells as numbers, NaN where empty."""
    return [_number(cell, where=where) for cell, where in _placed(raw, column)]


def _shares(raw: RawTable, column: str) -> list[float]:
    """Cells as shares from 0 to 1, NaN where empty."""
    return [_share(cell, where=where) for cell, where in _placed(raw, column)]


def _placed(raw: RawTable, column: str) -> Iterator[tuple[Any, str]]:
    _require_column(raw, column)
    return cells_of_column(raw, column)


def _require_column(raw: RawTable, column: str) -> None:
    if column not in raw.column_names():
        raise RunTableError(
            f"{raw.name} has no column {column!r}; it has: {', '.join(raw.column_names())}.",
            why="Nothing is guessed about which metric is meant.",
            fix="Name the columns: --soft COLUMN for the loss or bits per byte, --metric COLUMN for the accuracy.",
        )


def _number(cell: Any, *, where: str) -> float:
    return math.nan if is_empty(cell) else finite_number(cell, where=where, why=_WHY, fix=_FIX)


def _share(cell: Any, *, where: str) -> float:
    number = _number(cell, where=where)
    if number < 0 or number > 1:
        raise RunTableError(f"{where} holds {number:g}; an accuracy is a share from 0 to 1.", why=_WHY, fix=_FIX)
    return number


def _refuse_twins(raw: RawTable, name: str, metric: str) -> NoReturn:
    raise RunTableError(
        f"{raw.name}: rows named {name!r} have one soft metric and different cells in {metric!r}.",
        why="Which accuracy belongs to which run cannot be told.",
        fix="Give every row its own name in the column `run`.",
    )
