"""A table of runs on its way out: its rows with numbers as numbers, into a file or into a table of Weights & Biases.

Every row and every column goes, also runs that a fit would leave out: it leaves them out again. Audits nothing.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_scaling.errors import UsageError, first_line, missing_extra
from marin_scaling.run.run_table import TEXTS, read_cells
from marin_scaling.run.table_cells import is_empty
from marin_scaling.run.table_columns import map_columns

Rows = Sequence[Mapping[str, Any]]
_EXACT = 2.0**53


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a table or run store, None where a cell is empty; `source` says of each where it stood, if nothing does yet.

    A column whose cells are all numbers, or nothing, has numbers, unless it is one of names and words (`run`, `seed`).
    """
    raw = read_cells(path)
    mapping = map_columns(raw.column_names(), chosen={}, name=raw.name, required=())
    words = {mapping[name] for name in TEXTS if name in mapping}
    columns = {name: _cells(raw.cells[name].tolist(), is_words=name in words) for name in raw.column_names()}
    columns.setdefault("source", [f"{raw.name}, {place}" for place in raw.places])
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _cells(cells: Sequence[Any], *, is_words: bool) -> list[Any]:
    found = [None if is_empty(cell) else cell for cell in cells]
    try:
        return found if is_words else [None if cell is None else _number(cell) for cell in found]
    except (TypeError, ValueError):
        return found


def _number(cell: Any) -> float | int:
    """Whole where it stands so and float64 holds it; FLOPs as whole numbers are too long for the integers of a file."""
    number = float(cell)
    if not math.isfinite(number) or isinstance(cell, bool) or "_" in str(cell):
        raise ValueError(cell)
    return int(cell) if str(cell).isdecimal() and number < _EXACT else number


def log_to_wandb(rows: Rows, *, project: str, name: str, source: str) -> str:
    """Log the rows as one table, `runs`, of one run of the project (PROJECT or ENTITY/PROJECT); where it is to be seen.

    `UsageError` when W&B cannot be reached.
    """
    if importlib.util.find_spec("wandb") is None:
        raise missing_extra("wandb", needed_for=f"a table in the project {project}")
    import wandb

    entity, _, short = project.rpartition("/")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    try:
        with wandb.init(
            project=short, entity=entity or None, name=name, job_type="table-of-runs", config={"source": source}
        ) as run:
            data = [[row.get(column) for column in columns] for row in rows]
            run.log({"runs": wandb.Table(columns=columns, data=data, allow_mixed_types=True)})
            return str(run.dir if run.offline else run.url)
    except Exception as error:  # no key, no network, no such project: whatever the client raises
        raise UsageError(
            f"The table cannot be logged to the W&B project {project}: {first_line(error)}.",
            why="It is written through W&B's own client.",
            fix="Log in (wandb login), check the project's name and the network, or set WANDB_MODE=offline.",
        ) from error
