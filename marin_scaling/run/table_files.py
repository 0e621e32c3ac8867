"""Read the cells of a table of runs from CSV, Parquet or JSON lines, unchanged, with the place of every row.

Cells come back as they stand (text in CSV, values elsewhere), so that a wrong one can be quoted. What columns mean, and which
cells are usable numbers, is decided in `table_columns` and `run_table`.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling.durable_files import read_bytes, replace_file
from marin_scaling.errors import RunTableError
from marin_scaling.printable import printable
from marin_scaling.regular_files import MOST_TABLE_BYTES, is_present

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """The cells of a file and where each row stands: `places` has one phrase a row, such as "line 7"."""

    name: str
    cells: pd.DataFrame
    places: tuple[str, ...]

    def column_names(self) -> list[str]:
        """The columns as the file names them."""
        return [str(name) for name in self.cells.columns]


def read_table_file(path: Path) -> RawTable:
    """The cells of one file, by its suffix: .csv, .tsv, .parquet, .jsonl (also .ndjson); an empty file is an error."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None and not is_present(path):
        _refuse(f"{path} is not there.", fix="Name a table, or a folder of runs, as seen from the folder that you are in.")
    if reader is None:
        _refuse(
            f"{path}: files that end in {path.suffix or 'nothing'!r} are not read as tables of runs.",
            fix=f"Give a file that ends in {', '.join(_READERS)}, or a folder of runs.",
        )
    raw = read_bytes(path, most_bytes=MOST_TABLE_BYTES)
    if not raw.strip():
        _refuse(f"{path} is empty.", fix="Give a table with one run a row, below a line of column names.")
    table = reader(raw, str(path))
    table.cells.columns = _column_names(table)
    if table.cells.empty:
        _refuse(f"{path} holds no runs.", fix="Give a table with one run a row, below a line of column names.")
    return table


def write_table_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a table that `read_table_file` reads, in the format that the name ends in."""
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
    """Columns of whole numbers of which Parquet has no such long ones."""
    objects = [str(name) for name in frame if frame[name].dtype == object]
    return [name for name in objects if all(isinstance(each, int | float) for each in frame[name])]


def _column_names(table: RawTable) -> list[str]:
    names = [printable(name).strip() for name in table.column_names()]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        _refuse(f"{table.name}: two columns are named {twice[0]!r}.", fix="Give every column its own name.")
    return names


def _read_csv(raw: bytes, name: str, *, separator: str = ",") -> RawTable:
    import pandas as pd

    try:
        text = raw.decode("utf-8-sig")
        header = next((line for line in text.splitlines() if line.strip()), "")
        names = [name.strip() for name in header.split(separator)]
        if len(set(names)) < len(names):
            _refuse(f"{name}: a column name stands twice in its first line.", fix="Give every column its own name.")
        if len(names) == 1 and header.count(";") > 1:
            _refuse(
                f"{name}: its cells are separated by ';'.",
                fix="Save it with commas between cells and points in numbers (or with tabs, as .tsv).",
            )
        cells = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False, skip_blank_lines=False)
    except UnicodeDecodeError as error:
        _refuse(f"{name} is not text in UTF-8 (byte {error.start}).", fix="Save the table as CSV in UTF-8.")
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        _refuse(f"{name} is not a CSV table: {reason}.", fix="Every line needs as many cells as the first has column names.")
    if not isinstance(cells.index, pd.RangeIndex):  # pandas takes surplus cells at the start of every line for row names
        _refuse(
            f"{name}: its lines have more cells than the first has column names.",
            fix="Name every column, and write numbers with a point (3.5e9, not 3,5e9).",
        )
    places = tuple(f"line {number}" for number in range(2, len(cells) + 2))
    blank = cells.apply(lambda column: column.isna() | (column == "")).all(axis=1)
    kept = [place for place, is_blank in zip(places, blank, strict=True) if not is_blank]
    return RawTable(name=name, cells=cells[~blank].reset_index(drop=True), places=tuple(kept))


def _read_tsv(raw: bytes, name: str) -> RawTable:
    return _read_csv(raw, name, separator="\t")


def _read_parquet(raw: bytes, name: str) -> RawTable:
    import pandas as pd
    from pyarrow import ArrowInvalid

    try:
        cells = pd.read_parquet(io.BytesIO(raw)).reset_index(drop=True)
    except (ArrowInvalid, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        _refuse(f"{name} is not a Parquet table: {reason}.", fix="Write it again, or give a CSV file.")
    return RawTable(name=name, cells=cells, places=tuple(f"row {number}" for number in range(1, len(cells) + 1)))


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
    return RawTable(name=name, cells=cells, places=tuple(places))


def _json_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        _refuse(f"{where}: this is not a JSON object ({error}).", fix='Write one object a line, such as {"flops": 1e18, …}.')
    if not isinstance(row, dict):
        _refuse(f"{where}: this is not a JSON object.", fix='Write one object a line, such as {"flops": 1e18, …}.')
    return row


_READERS: dict[str, Callable[[bytes, str], RawTable]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
}


def _refuse(what: str, *, fix: str) -> NoReturn:
    raise RunTableError(what, why="A fit needs a table of runs: FLOPs, parameters, tokens and loss of each.", fix=fix)
