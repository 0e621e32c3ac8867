"""Read and write table files; read numbers as people write them, and name the place of bad cells in errors."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling.errors import Finding, RunTableError, note
from marin_scaling.files import read_bytes, replace_file
from marin_scaling.printable import joined, printable, quoted
from marin_scaling.units import counted, format_number
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present

if TYPE_CHECKING:
    import pandas as pd

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:([,'\u2019 \u00a0\u202f])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_DECIMAL = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:[eE][-+]?\d+)?\s*[kKmMbBgGtT]?")
_DOTTED = re.compile(r"[-+]?\d{1,3}(?:\.\d{3}){2,}")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)")
_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
_EITHER = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
"""Decimal signs: a file has one, which its unambiguous cells show."""
_LABEL = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+))\s*([kKmMbBgGtT])")
_LABEL_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def plain_number(cell: Any) -> float | None:
    """Return the number of a cell that is one, also with thousands separators; None for text, a label and NaN.

    >>> plain_number("6e18"), plain_number("28,490,000"), plain_number("28M"), plain_number("5_0")
    (6e+18, 28490000.0, None, None)
    """
    number = _float(cell)
    if number is None and isinstance(cell, str) and _THOUSANDS.fullmatch(cell.strip()) and not is_ambiguous(cell):
        number = float(re.sub(r"[,'\u2019\s]", "", cell.strip()))
    return number if number is not None and math.isfinite(number) else None


def number_in(cell: Any) -> float | None:
    """Return the number that a cell states, also as a label; None if it states none.

    >>> number_in("1.3B"), number_in("3,512"), number_in("high")
    (1300000000.0, None, None)
    """
    text = cell.strip() if isinstance(cell, str) else cell
    number = _float(text)
    number = number if number is not None and math.isfinite(number) else plain_number(text)
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
        if not self.found:
            return
        unclear = {key for key in self.found if key[1] == AMBIGUOUS}
        empty = {key for key in self.found if self._is_empty(key[0])}
        partly = {key: rows for key, rows in self.found.items() if key not in unclear | empty}
        rows = sorted({row for bad in partly.values() for row in bad})
        dropped = " ".join(f"--drop {shlex.quote(quoted(self.runs[row]))}" for row in rows[:_DROPPED])
        dropped += f", and so on for {len(rows) - _DROPPED} more" if len(rows) > _DROPPED else ""
        has_empty = any(what == EMPTY for _, what in partly)
        skip = "; --skip-incomplete leaves out all runs with an empty cell" if has_empty else ""
        fixes = [f"{self.fix} To leave runs out: {dropped}{skip}."] if partly else []
        fixes += [_ONE_SIGN] if unclear else []
        if empty:
            fixes.append("Fill the empty column, or choose another: --column OURS=THEIRS; of a mix, --metric or --weights.")
        raise RunTableError(tuple(self._lines()), why=self.why, fix=" ".join(fixes))

    def _is_empty(self, column: str) -> bool:
        return all(map(is_empty, self.raw.cells[column]))

    def _lines(self) -> Iterator[str]:
        for (column, what), rows in self.found.items():
            if self._is_empty(column):
                yield f"{self.raw.name}: column {column!r} is empty in all {len(self.raw.places)} rows."
                continue
            if what == AMBIGUOUS:
                yield self._either(column, rows)
                continue
            places = joined([self.raw.places[row] for row in rows], most=_PLACES)
            where = f"{self.raw.name}, {places}, column {column!r}"
            if len(rows) == 1:
                yield f"{where} {what}."
            else:
                named = joined([self.runs[row] for row in rows], most=_PLACES)
                yield f"{where}: {len(rows)} cells: each {what} ({named})."

    def _either(self, column: str, rows: Sequence[int]) -> str:
        """Return the line for the cells of a column whose comma may be either sign."""
        text = str(self.raw.cells[column].iloc[rows[0]]).strip()
        readings = f"{text.replace(',', '')} with a thousands separator, or {text.replace(',', '.')}?"
        where = f"{self.raw.name}, {self.raw.places[rows[0]]}, column {column!r}"
        return f"{where}: {counted(len(rows), 'cell')} like {text!r}: {readings}"


EMPTY = "is empty"
AMBIGUOUS = "holds a comma before three digits"
_ONE_SIGN = "Write numbers with decimal points and without thousands separators. If commas are decimal, you can also save "
_ONE_SIGN += "the table as CSV with semicolons between cells and a comma in each decimal number."
_PLACES, _DROPPED = 12, 12


def read_numbers(raw: RawTable, column: str, rows: Sequence[int], *, bad: BadCells) -> list[float]:
    """Return the positive numbers of a column; NaN, and an entry in `bad`, where a cell holds none."""
    cells = raw.cells[column].tolist()
    if (numbers := _all_plain([cells[row] for row in rows])) is not None:
        return numbers
    return [_usable(cells[row], column, row, bad=bad) for row in rows]


def _all_plain(cells: Sequence[Any]) -> list[float] | None:
    """Return the numbers of cells that all are usable ones without separators or labels, else None; fast for large tables."""
    if any(isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell) for cell in cells):
        return None
    try:
        numbers = [float(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if all(LEAST_NUMBER <= number <= LARGEST_NUMBER for number in numbers) else None


def _usable(cell: Any, column: str, row: int, *, bad: BadCells) -> float:
    number = number_in(cell)
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
        if is_ambiguous(cell):
            return AMBIGUOUS
        return f"holds {quoted(cell)!r}, which is not a number"
    if number <= 0:
        return f"holds {format_number(number)}; it must be above zero"
    if not LEAST_NUMBER <= number <= LARGEST_NUMBER:
        return f"holds {format_number(number)}; no run has such a number"
    return ""


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """Cells of a file, and `places`, a phrase such as "line 7" for each row."""

    name: str
    cells: pd.DataFrame
    places: tuple[str, ...]
    units_are_certain: bool = False
    """True for the records of a run store, in which this tool counted FLOPs, parameters and tokens."""
    swept: tuple[str, ...] = ()
    """Columns that are known to have been swept."""
    notes: tuple[Finding, ...] = ()
    """Notes on how cells were read."""

    def column_names(self) -> list[str]:
        """Names of the columns, as in the file."""
        return [str(name) for name in self.cells.columns]


def table_of_cells(name: str, cells: pd.DataFrame, places: tuple[str, ...], *, commas_are_decimal: bool = False) -> RawTable:
    """Return the table of cells as read, its numbers with decimal points."""
    cells, notes = with_decimal_points(cells, are_decimal=commas_are_decimal)
    return RawTable(name=name, cells=cells, places=places, notes=notes)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart that W&B exported: the column, the run and the metric that the column's name states."""

    column: str
    run: str
    metric: str


def chart_series(names: Sequence[str]) -> list[Series]:
    """Return the lines of a W&B chart export, whose columns are `Step`, `RUN - METRIC`, `RUN - METRIC__MIN` and `...__MAX`.

    >>> chart_series(["Step", "a - train/loss", "a - train/loss__MIN", "a - train/loss__MAX"])
    [Series(column='a - train/loss', run='a', metric='train/loss')]
    """
    lines = [name for name in names if f"{name}__MIN" in names and f"{name}__MAX" in names and " - " in name]
    parts = [(name, *name.rpartition(" - ")) for name in lines]
    return [Series(column=name, run=run, metric=metric) for name, run, _, metric in parts]


def read_table_file(path: Path) -> RawTable:
    """Return the cells of one file, by its suffix (`_READERS`, also with .gz); an empty file is an error."""
    ending = table_ending(path)
    reader = _READERS.get(ending)
    if reader is None and not is_present(path):
        _refuse(f"{path} is missing.", fix="Name a table, or a folder of runs, relative to the current folder.")
    if reader is None:
        _refuse(
            f"{path}: files that end in {ending or 'nothing'!r} are not tables of runs.",
            fix=f"Give a file that ends in {', '.join(_READERS)} (also with .gz), or a folder of runs.",
        )
    raw = _unpacked(read_bytes(path, most_bytes=MOST_TABLE_BYTES), path)
    if not raw.strip():
        _refuse(f"{path} is empty.", fix="Give a table with one run per row, below a line of column names.")
    table = reader(raw, str(path))
    table.cells.columns = _column_names(table)
    if table.cells.empty:
        _refuse(f"{path} holds no runs.", fix="Give a table with one run per row, below a line of column names.")
    return table


def table_ending(path: Path) -> str:
    """Return the ending that says how a table is written, without .gz.

    >>> table_ending(Path("runs.CSV")), table_ending(Path("runs.csv.gz"))
    ('.csv', '.csv')
    """
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def is_table_file(path: Path) -> bool:
    """Return True if `read_table_file` reads files of this name."""
    return table_ending(path) in _READERS


def _unpacked(raw: bytes, path: Path) -> bytes:
    """Return the content of a .gz file, of bounded size; of any other file, its bytes."""
    if path.suffix.lower() != ".gz":
        return raw
    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            content = stream.read(MOST_TABLE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        _refuse(f"{path} is not a whole gzip file: {error}.", fix="Copy it again from where it was written.")
    if len(content) > MOST_TABLE_BYTES:
        _refuse(f"{path} unpacks to more than {MOST_TABLE_BYTES} bytes.", fix="Give a smaller table.")
    return content


def write_table_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a table that `read_table_file` reads; the suffix chooses the format."""
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    buffer = io.BytesIO()
    if path.suffix == ".csv":
        frame.to_csv(buffer, index=False)
    elif path.suffix == ".parquet":
        frame.astype(dict.fromkeys(_beyond_64_bits(frame), "float64")).to_parquet(buffer, index=False)
    elif path.suffix in (".jsonl", ".ndjson"):
        buffer.write("".join(json.dumps(row, default=str) + "\n" for row in rows).encode())
    else:
        _refuse(f"{path}: tables are written as .csv, .parquet or .jsonl.", fix="Give it one of these endings.")
    replace_file(path, buffer.getvalue())


def _beyond_64_bits(frame: pd.DataFrame) -> list[str]:
    """Return the columns of integers that exceed Parquet's 64 bits."""
    objects = [str(name) for name in frame if frame[name].dtype == object]
    return [name for name in objects if all(isinstance(each, int | float) for each in frame[name])]


def _column_names(table: RawTable) -> list[str]:
    names = [printable(name).strip() for name in table.column_names()]
    _refuse_twins(table.name, names)
    return names


def _refuse_twins(table: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        _refuse(f"{table}: two columns are named {quoted(twice[0])!r}.", fix="Give every column its own name.")


def _read_csv(raw: bytes, name: str, *, separator: str = ",") -> RawTable:
    import pandas as pd

    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        header = next((line for line in text.splitlines() if line.strip()), "")
        if separator == "," and header.count(";") > header.count(","):  # where commas are decimal, semicolons part cells
            separator = ";"
        names = next(csv.reader([header], delimiter=separator), [])
        _refuse_twins(name, [each.strip() for each in names])
        cells = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False, skip_blank_lines=False)
    except UnicodeDecodeError as error:
        _refuse(f"{name} is not text in UTF-8 (byte {error.start}).", fix="Save the table as CSV in UTF-8.")
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        _refuse(f"{name} is not a CSV table: {reason}.", fix="Every line needs as many cells as the first has column names.")
    if not isinstance(cells.index, pd.RangeIndex):  # pandas reads surplus cells at the start of every line as row labels
        _refuse(
            f"{name}: its lines have more cells than the first has column names.",
            fix="Name every column, and write numbers with a point (3.5e9, not 3,5e9).",
        )
    places = tuple(f"line {number}" for number in range(2, len(cells) + 2))
    blank = cells.apply(lambda column: column.isna() | (column == "")).all(axis=1)
    kept = [place for place, is_blank in zip(places, blank, strict=True) if not is_blank]
    return table_of_cells(name, cells[~blank].reset_index(drop=True), tuple(kept), commas_are_decimal=separator == ";")


def _read_parquet(raw: bytes, name: str) -> RawTable:
    import pandas as pd
    from pyarrow import ArrowInvalid

    try:
        cells = pd.read_parquet(io.BytesIO(raw)).reset_index(drop=True)
    except (ArrowInvalid, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        _refuse(f"{name} is not a Parquet table: {reason}.", fix="Write it again, or give a CSV file.")
    return table_of_cells(name, cells, tuple(f"row {number}" for number in range(1, len(cells) + 1)))


def _read_json_lines(raw: bytes, name: str) -> RawTable:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    places: list[str] = []
    for number, line in enumerate(raw.splitlines(), start=1):
        if line.strip():
            rows.append(_json_object(line, f"{name}, line {number}"))
            places.append(f"line {number}")
    keys = dict.fromkeys(key for row in rows for key in row)
    cells = pd.DataFrame({n: pd.Series([row.get(key) for row in rows], dtype=object) for n, key in enumerate(keys)})
    cells.columns = [printable(key) for key in keys]
    return table_of_cells(name, cells, tuple(places))


def _json_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        _refuse(f"{where}: not a JSON object ({error}).", fix='Write one object per line, such as {"flops": 1e18, …}.')
    if not isinstance(row, dict):
        _refuse(f"{where}: not a JSON object.", fix='Write one object per line, such as {"flops": 1e18, …}.')
    return row


def _read_json(raw: bytes, name: str) -> RawTable:
    """Read results in one JSON document: a list of objects, objects by name, or columns; nested keys are joined by a slash."""
    import pandas as pd

    try:
        document = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        _refuse(f"{name} is not JSON: {error}.", fix="Write a list of objects, one for each run.")
    rows = [flat(row) for row in json_rows(document)]
    if not rows:
        _refuse(f"{name} is not a list of objects.", fix='Write a list of objects, such as [{"flops": 1e18, …}, …].')
    keys = _without_common_prefix(list(dict.fromkeys(key for row in rows for key in row)))
    cells = pd.DataFrame({n: pd.Series([row.get(key) for row in rows], dtype=object) for n, key in enumerate(keys)})
    cells.columns = list(keys.values())
    return table_of_cells(name, cells, tuple(f"entry {number}" for number in range(1, len(rows) + 1)))


def json_rows(document: Any) -> list[dict[str, Any]]:
    """Return the objects that stand for runs in a JSON document, each with the name under which it stood.

    >>> json_rows({"runs": [{"loss": 3.0}]}), json_rows({"a": {"loss": 3.0}, "b": {"loss": 2.9}})
    ([{'loss': 3.0}], [{'run': 'a', 'loss': 3.0}, {'run': 'b', 'loss': 2.9}])
    >>> json_rows({"flops": [1e18, 1e19], "loss": [3.0, 2.9]})
    [{'flops': 1e+18, 'loss': 3.0}, {'flops': 1e+19, 'loss': 2.9}]
    """
    if isinstance(document, list):
        return [each for each in document if isinstance(each, dict)]
    if not isinstance(document, dict) or not document:
        return []
    values = list(document.values())
    if {"columns", "data"} <= document.keys():  # pandas, orient="split"
        return [dict(zip(document["columns"], row, strict=False)) for row in document["data"] if isinstance(row, list)]
    if lists := [each for each in values if isinstance(each, list) and each and all(isinstance(row, dict) for row in each)]:
        return max(lists, key=len)
    if all(isinstance(each, list) for each in values) and len({len(each) for each in values}) == 1:
        return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]
    if len(values) > 1 and all(isinstance(each, dict) for each in values):
        if len({tuple(each) for each in values}) == 1 and all(str(key).isdigit() for key in values[0]):  # pandas, by column
            return [{name: column[key] for name, column in document.items()} for key in values[0]]
        return [{"run": name, **each} for name, each in document.items()]
    return [document]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested names by a slash.

    >>> flat({"eval": {"loss": 2.5}, "step": 3})
    {'eval/loss': 2.5, 'step': 3}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, Mapping) and value
        found.update(flat(value, f"{prefix}{name}/") if inner else {f"{prefix}{name}": value})
    return found


def _without_common_prefix(keys: Sequence[str]) -> dict[str, str]:
    """Return each key with the name to show: without an outer name that all keys share, as in run_info/loss."""
    first, slash, _ = keys[0].partition("/")
    shared = first + slash if slash and all(key.startswith(first + slash) for key in keys) else ""
    return {key: printable(key.removeprefix(shared)) for key in keys}


_READERS: dict[str, Callable[[bytes, str], RawTable]] = {
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, separator="\t"),
    ".parquet": _read_parquet,
    ".json": _read_json,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
}


def _refuse(what: str, *, fix: str) -> NoReturn:
    raise RunTableError(what, fix=fix)


LEAST_NUMBER, LARGEST_NUMBER = 1e-9, 1e50
"""Outside of these a cell is a mistake: 1e50 FLOPs are a thousand years of more power than the Sun gives."""

_EMPTY = ("", "nan", "<na>")  # as CSV and Parquet come to be read; JSON gives None


def cells_of_column(raw: RawTable, column: str) -> Iterator[tuple[Any, str]]:
    """Yield the cells of a column, each with a phrase for its place."""
    for cell, place in zip(raw.cells[column].tolist(), raw.places, strict=True):
        yield cell, f"{raw.name}, {place}, column {column!r}"


def is_empty(cell: Any) -> bool:
    """Return True if a cell is empty.

    >>> is_empty(" "), is_empty(float("nan")), is_empty(0)
    (True, True, False)
    """
    return cell is None or str(cell).strip().lower() in _EMPTY


def finite_number(cell: Any, *, where: str, why: str, fix: str) -> float:
    """Return the finite number in a cell, else raise `RunTableError` with the place `where`.

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
    """Return the positive, plausible number in a cell, else raise `RunTableError`."""
    number = finite_number(cell, where=where, why=why, fix=fix)
    if number <= 0:
        raise RunTableError(f"{where} holds {format_number(number)}; it must be above zero.", why=why, fix=fix)
    if not LEAST_NUMBER <= number <= LARGEST_NUMBER:
        raise RunTableError(f"{where} holds {format_number(number)}; no run has such a number.", why=why, fix=fix)
    return number


def _no_underscores(cell: Any) -> Any:
    """Refuse 5_0, which Python reads as fifty."""
    if isinstance(cell, str) and "_" in cell:
        raise ValueError(cell)
    return cell


def damaged(where: str, what: str) -> RunTableError:
    """Return the error for a file that was changed or cut off."""
    return RunTableError(
        f"{where}: {what}.",
        why="A changed number would go into a fit.",
        fix="Copy the file again from its source, or leave it out.",
    )


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
