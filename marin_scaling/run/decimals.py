"""Decimal sign of a table: a file has one, which its unambiguous cells show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import Finding, note
from marin_scaling.printable import joined, quoted

if TYPE_CHECKING:
    import pandas as pd

_DECIMAL = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:[eE][-+]?\d+)?\s*[kKmMbBgGtT]?")
_DOTTED = re.compile(r"[-+]?\d{1,3}(?:\.\d{3}){2,}")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)")
_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
_EITHER = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")


def is_ambiguous(cell: Any) -> bool:
    """Return True for 3,512 and the like: thousands or a decimal comma."""
    return isinstance(cell, str) and bool(_EITHER.fullmatch(cell.strip()))


def with_decimal_points(cells: pd.DataFrame, *, are_decimal: bool = False) -> tuple[pd.DataFrame, tuple[Finding, ...]]:
    """Return the cells with decimal points for decimal commas, and a note of the columns that had commas.

    A column with unambiguous cells decides for itself; other columns follow the file. `are_decimal` is one more sign that
    commas are decimal. Cells such as 3,512 stay as they are in a file with both conventions.

    >>> import pandas as pd
    >>> with_decimal_points(pd.DataFrame({"tokens": ["4,305"], "params": ["156,5"]}))[0].iloc[0].tolist()
    ['4.305', '156.5']
    """
    columns = [_texts(cells.iloc[:, at]) for at in range(cells.shape[1])]
    shown = [_shown(texts) for texts in columns]
    of_file = _sign_of_file(columns, set().union(*shown, "," if are_decimal else ""))
    signs = {at: _only(own) if own else of_file for at, own in enumerate(shown) if any("," in text for text in columns[at])}
    written = {at: {text: new for text in columns[at] if (new := _rewritten(text, sign)) != text} for at, sign in signs.items()}
    written = {at: texts for at, texts in written.items() if texts}
    result = cells.copy() if written else cells
    for at, texts in written.items():
        result.isetitem(at, [texts.get(cell, cell) if isinstance(cell, str) else cell for cell in cells.iloc[:, at]])
    found = {sign: [at for at in written if signs[at] == sign] for sign in ",."}
    return result, tuple(_note(cells, at, sign, next(iter(written[at[0]].items()))) for sign, at in found.items() if at)


def _note(cells: pd.DataFrame, columns: Sequence[int], sign: str, example: tuple[str, str]) -> Finding:
    names = joined([str(cells.columns[at]) for at in columns])
    meaning = "decimal commas" if sign == "," else "thousands separators"
    return note("commas", names, f"commas were read as {meaning} in {names}: {quoted(example[0])} is {quoted(example[1])}")


def _texts(column: pd.Series[Any]) -> list[str]:
    """Return the different texts of a column that may be numbers."""
    cells = column.tolist() if column.dtype.kind not in "biufc" else []
    return [cell for cell in dict.fromkeys(each for each in cells if isinstance(each, str)) if "," in cell or "." in cell]


def _shown(texts: Sequence[str]) -> set[str]:
    """Return the decimal signs that the cells of a column show by a comma."""
    kinds = ((",", _DECIMAL), (".", _GROUPED))
    return {sign for text in texts for sign, kind in kinds if kind.fullmatch(text.strip()) and not is_ambiguous(text)}


def _only(signs: set[str]) -> str:
    return next(iter(signs)) if len(signs) == 1 else ""


def _sign_of_file(columns: Sequence[Sequence[str]], shown: set[str]) -> str:
    """Return the one sign of a file; "" if its cells show none, or both."""
    has_points = any(_POINT.fullmatch(text.strip()) for texts in columns for text in texts)
    return "" if has_points and "," in shown else _only(shown)


def _rewritten(text: str, sign: str) -> str:
    """Return a number with a decimal point.

    >>> _rewritten("4,305", ","), _rewritten("4,305", "."), _rewritten("1.234,5", ","), _rewritten("4,305", "")
    ('4.305', '4305', '1234.5', '4,305')
    """
    if sign == "," and (_DECIMAL.fullmatch(text.strip()) or _DOTTED.fullmatch(text.strip())):
        return text.replace(".", "").replace(",", ".")
    return text.replace(",", "") if sign == "." and is_ambiguous(text) else text
