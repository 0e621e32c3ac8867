"""Numbers in the cells of tables as people write them, and all cells of a table that hold none in one error."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_scaling.errors import RunTableError
from marin_scaling.printable import joined, quoted
from marin_scaling.run.table_io import LARGEST_NUMBER, LEAST_NUMBER, RawTable
from marin_scaling.units import format_number

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:([,'\u2019 \u00a0\u202f])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_ONE_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
_LABEL = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+))\s*([kKmMbBgGtT])")
_LABEL_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def plain_number(cell: Any) -> float | None:
    """Return the number of a cell that is one, also with thousands separators; None for text, a label and NaN.

    >>> plain_number("6e18"), plain_number("28,490,000"), plain_number("28M"), plain_number("5_0")
    (6e+18, 28490000.0, None, None)
    """
    number = _float(cell)
    if number is None and isinstance(cell, str) and _THOUSANDS.fullmatch(cell.strip()) and not _is_ambiguous(cell.strip()):
        number = float(re.sub(r"[,'\u2019\s]", "", cell.strip()))
    return number if number is not None and math.isfinite(number) else None


def number_in(cell: Any, *, decimal_comma: bool = False) -> float | None:
    """Return the number that a cell states, also as a label or, on request, with a decimal comma; None if it states none.

    >>> number_in("1.3B"), number_in("3,54", decimal_comma=True), number_in("3,512"), number_in("high")
    (1300000000.0, 3.54, None, None)
    """
    text = cell.strip() if isinstance(cell, str) else cell
    if decimal_comma and isinstance(text, str) and _ONE_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    number = plain_number(text)
    if number is None and isinstance(text, str) and (label := _LABEL.fullmatch(text)):
        return float(label[1]) * _LABEL_UNITS[label[2].lower()]
    return number


def _float(cell: Any) -> float | None:
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):  # Python reads 5_0 as fifty; in a table it is a slip
        return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_ambiguous(text: str) -> bool:
    """Return True for 3,512 and the like: thousands or a decimal comma."""
    return text.count(",") == 1 and "." not in text and not text.lstrip("+-").startswith("0")


def has_decimal_commas(cells: Sequence[Any]) -> bool:
    """Return True if the cells of a column have decimal commas and nothing else could be meant.

    >>> has_decimal_commas(["3,5", "3,512"]), has_decimal_commas(["3,512", "28,490,000"]), has_decimal_commas(["3,512"])
    (True, False, False)
    """
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and "," in cell]
    if not texts or not all(_ONE_COMMA.fullmatch(text) for text in texts):
        return False
    return any(not _THOUSANDS.fullmatch(text) or text.lstrip("+-").startswith("0") for text in texts)


@dataclass
class BadCells:
    """Cells of a table that hold no usable number, collected over its columns and raised as one error."""

    raw: RawTable
    runs: Sequence[str]
    why: str
    fix: str
    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, column: str, what: str, row: int) -> None:
        """Record a cell of a column and what is wrong with it."""
        self.found.setdefault((column, what), []).append(row)

    def refuse(self) -> None:
        """Raise `RunTableError` if any cell was recorded: a line for each column and cause, with all places."""
        if self.found:
            rows = sorted({row for bad in self.found.values() for row in bad})
            dropped = " ".join(f"--drop {shlex.quote(quoted(self.runs[row]))}" for row in rows[:_DROPPED])
            dropped += f", and so on for {len(rows) - _DROPPED} more" if len(rows) > _DROPPED else ""
            has_empty = any(what == EMPTY for _, what in self.found)
            skip = "; --skip-incomplete leaves out all runs with an empty cell" if has_empty else ""
            raise RunTableError(tuple(self._lines()), why=self.why, fix=f"{self.fix} To leave runs out: {dropped}{skip}.")

    def _lines(self) -> Iterator[str]:
        for (column, what), rows in self.found.items():
            places = joined([self.raw.places[row] for row in rows], most=_PLACES)
            where = f"{self.raw.name}, {places}, column {column!r}"
            if len(rows) == 1:
                yield f"{where} {what}."
            else:
                named = joined([self.runs[row] for row in rows], most=_PLACES)
                yield f"{where}: {len(rows)} cells: each {what} ({named})."


EMPTY = "is empty"
_PLACES, _DROPPED = 12, 12


def read_numbers(raw: RawTable, column: str, rows: Sequence[int], *, bad: BadCells) -> list[float]:
    """Return the positive numbers of a column; NaN, and an entry in `bad`, where a cell holds none."""
    cells = raw.cells[column].tolist()
    if (numbers := _all_plain([cells[row] for row in rows])) is not None:
        return numbers
    decimal_comma = has_decimal_commas(cells)
    return [_usable(cells[row], column, row, bad=bad, decimal_comma=decimal_comma) for row in rows]


def _all_plain(cells: Sequence[Any]) -> list[float] | None:
    """Return the numbers of cells that all are usable ones without separators or labels, else None; fast for large tables."""
    if any(isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell) for cell in cells):
        return None
    try:
        numbers = [float(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if all(LEAST_NUMBER <= number <= LARGEST_NUMBER for number in numbers) else None


def _usable(cell: Any, column: str, row: int, *, bad: BadCells, decimal_comma: bool) -> float:
    number = number_in(cell, decimal_comma=decimal_comma)
    what = _fault(cell, number)
    if what or number is None:
        bad.add(column, what, row)
        return math.nan
    return number


def _fault(cell: Any, number: float | None) -> str:
    if number is None:
        if cell is None or not str(cell).strip():
            return EMPTY
        if (value := _float(cell)) is not None:
            return f"holds {value}"
        if isinstance(cell, str) and _ONE_COMMA.fullmatch(cell.strip()):
            text = cell.strip()
            return f"holds {quoted(text)!r}: {text.replace(',', '')} with a thousands separator, or {text.replace(',', '.')}?"
        return f"holds {quoted(cell)!r}, which is not a number"
    if number <= 0:
        return f"holds {format_number(number)}; it must be above zero"
    if not LEAST_NUMBER <= number <= LARGEST_NUMBER:
        return f"holds {format_number(number)}; no run has such a number"
    return ""
