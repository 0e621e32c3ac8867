"""One cell of a table as a number: what counts as empty, and what is refused with its place.

A reader says in its own words why a cell is refused; what makes a number is the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from marin_scaling.errors import RunTableError
from marin_scaling.printable import quoted
from marin_scaling.run.table_files import RawTable

LEAST_NUMBER, LARGEST_NUMBER = 1e-9, 1e50
"""Outside of these a cell is a mistake: 1e50 FLOPs are a thousand years of more power than the Sun gives."""

_EMPTY = ("", "nan", "<na>")  # as CSV and Parquet come to be read; JSON gives None


def cells_of_column(raw: RawTable, column: str, *, rows: Sequence[int] | None = None) -> Iterator[tuple[Any, str]]:
    """The cells of some rows, or of all, each with the phrase that says where it stands."""
    cells = raw.cells[column].tolist()
    for row in range(len(cells)) if rows is None else rows:
        yield cells[row], f"{raw.name}, {raw.places[row]}, column {column!r}"


def is_empty(cell: Any) -> bool:
    """Whether a cell holds nothing.

    >>> is_empty(" "), is_empty(float("nan")), is_empty(0)
    (True, True, False)
    """
    return cell is None or str(cell).strip().lower() in _EMPTY


def finite_number(cell: Any, *, where: str, why: str, fix: str) -> float:
    """The number in a cell; `RunTableError` with `where` it stands when it holds none, or one that is not finite.

    >>> finite_number("6e18", where="runs.csv, line 2, column 'flops'", why="", fix="")
    6e+18
    """
    try:
        number = float(_no_underscores(cell))
    except (TypeError, ValueError, OverflowError):
        if cell is None or not str(cell).strip():
            raise RunTableError(f"{where} is empty.", why=why, fix=fix) from None
        raise RunTableError(f"{where} holds {quoted(cell)!r}, which is not a number.", why=why, fix=fix) from None
    if not math.isfinite(number):
        raise RunTableError(f"{where} holds {number}.", why=why, fix=fix)
    return number


def positive_number(cell: Any, *, where: str, why: str, fix: str) -> float:
    """A finite number above zero that some run could have; `RunTableError` otherwise."""
    number = finite_number(cell, where=where, why=why, fix=fix)
    if number <= 0:
        raise RunTableError(f"{where} holds {number:g}; it must be above zero.", why=why, fix=fix)
    if not LEAST_NUMBER <= number <= LARGEST_NUMBER:
        raise RunTableError(f"{where} holds {number:g}; no run has such a number.", why=why, fix=fix)
    return number


def _no_underscores(cell: Any) -> Any:
    """Python reads 5_0 as fifty; in a table it is a slip."""
    if isinstance(cell, str) and "_" in cell:
        raise ValueError(cell)
    return cell
