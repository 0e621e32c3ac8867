"""Read and write table files; recognize columns; parse cells and name their place in errors."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling.errors import RunTableError
from marin_scaling.files import read_bytes, replace_file
from marin_scaling.printable import printable, quoted
from marin_scaling.units import METRICS
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """Cells of a file, and `places`, a phrase such as "line 7" for each row."""

    name: str
    cells: pd.DataFrame
    places: tuple[str, ...]

    def column_names(self) -> list[str]:
        """Names of the columns, as in the file."""
        return [str(name) for name in self.cells.columns]


def read_table_file(path: Path) -> RawTable:
    """Read one file by its suffix: .csv, .tsv, .parquet, .jsonl (also .ndjson); raise if it is empty."""
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
    if not isinstance(cells.index, pd.RangeIndex):  # pandas reads surplus cells at the start of every line as row labels
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


LEAST_NUMBER, LARGEST_NUMBER = 1e-9, 1e50
"""Range of plausible numbers; a value outside is a mistake."""

_EMPTY = ("", "nan", "<na>")  # as read from CSV and Parquet; JSON gives None


def cells_of_column(raw: RawTable, column: str, *, rows: Sequence[int] | None = None) -> Iterator[tuple[Any, str]]:
    """Yield the cells of some or all rows, each with a phrase for its place."""
    cells = raw.cells[column].tolist()
    for row in range(len(cells)) if rows is None else rows:
        yield cells[row], f"{raw.name}, {raw.places[row]}, column {column!r}"


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
        raise RunTableError(f"{where} holds {number:g}; it must be above zero.", why=why, fix=fix)
    if not LEAST_NUMBER <= number <= LARGEST_NUMBER:
        raise RunTableError(f"{where} holds {number:g}; no run has such a number.", why=why, fix=fix)
    return number


def _no_underscores(cell: Any) -> Any:
    """Refuse 5_0, which Python reads as fifty."""
    if isinstance(cell, str) and "_" in cell:
        raise ValueError(cell)
    return cell


class Cells(Enum):
    """Kind of a column's cells."""

    NUMBERS = "positive numbers, one in every row"
    NUMBERS_OR_NOTHING = "positive numbers, or empty"
    TEXTS = "texts"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a run table.

    `aliases` are other names for it in use; case matters for letters only. A `signed` column is part of statements. A law
    needs runs with a single value in a column with `one_value`, which is its name in messages. `stored` returns the value
    of a stored run; a store's table leaves the column out if all values are `usual`.
    """

    name: str
    meaning: str
    aliases: tuple[str, ...] = ()
    cells: Cells = Cells.NUMBERS
    required: bool = False
    signed: bool = False
    fitted: bool = True
    one_value: str = ""
    stored: Callable[[Any], Any] | None = None
    usual: Callable[[Any], Any] | None = None


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column(
            name="run",
            meaning="name of the run",
            aliases=("run_name", "run_id", "name"),
            cells=Cells.TEXTS,
            signed=True,
            stored=lambda run: run.spec.digest,
        ),
        Column(
            name="flops",
            meaning="training FLOPs",
            aliases=("train_flops", "training_flops", "total_flops", "train_flops_incl_lm_head", "compute", "C"),
            required=True,
            signed=True,
            stored=lambda run: run.record.flops,
        ),
        Column(
            name="params",
            meaning="parameters, all of them",
            aliases=("total_params", "params_total", "parameters", "num_params", "n_params", "N"),
            required=True,
            signed=True,
            stored=lambda run: run.record.params_total,
        ),
        Column(
            name="active_params",
            meaning="parameters that a token passes",
            aliases=("params_active", "num_active_params", "active_parameters"),
            signed=True,
            stored=lambda run: run.record.params_active,
            usual=lambda run: run.record.params_total,
        ),
        Column(
            name="tokens",
            meaning="trained tokens",
            aliases=("train_tokens", "trained_tokens", "total_tokens", "num_tokens", "n_tokens", "D"),
            required=True,
            signed=True,
            stored=lambda run: run.record.trained_tokens,
        ),
        Column(
            name="epochs",
            meaning="how often each token was seen",
            aliases=("num_epochs",),
            signed=True,
            stored=lambda run: run.spec.times_seen,
            usual=lambda _: 1,
        ),
        Column(
            name="loss",
            meaning="final loss, in the unit of the metric",
            aliases=("final_loss", "eval_loss", "eval/loss", "val_loss", "validation_loss"),
            required=True,
            signed=True,
            stored=lambda run: run.record.loss,
        ),
        Column(
            name="budget_flops",
            meaning="nominal FLOPs of the isoFLOP group",
            aliases=("budget_nominal_flops", "nominal_flops", "flops_budget"),
            signed=True,
            stored=lambda run: run.spec.budget_flops,
        ),
        Column(
            name="tokens_per_second",
            meaning="training throughput",
            aliases=("tps", "throughput/tokens_per_second"),
            cells=Cells.NUMBERS_OR_NOTHING,
        ),
        Column(name="seed", meaning="seed of the run", cells=Cells.TEXTS, stored=lambda run: str(run.spec.seed)),
        Column(
            name="status",
            meaning="state of the run",
            aliases=("state",),
            cells=Cells.TEXTS,
            fitted=False,
            stored=lambda run: run.record.status,
        ),
        Column(
            name="metric",
            meaning="name of the metric",
            cells=Cells.TEXTS,
            fitted=False,
            one_value="metric",
            stored=lambda run: run.record.metric,
        ),
        Column(name="suite", meaning="suite that the run belongs to", cells=Cells.TEXTS),
        Column(
            name="flops_convention",
            meaning="how FLOPs were counted",
            cells=Cells.TEXTS,
            one_value="FLOP convention",
            stored=lambda run: run.record.flops_convention,
        ),
        Column(
            name="evaluation",
            meaning="held-out text and protocol",
            cells=Cells.TEXTS,
            one_value="evaluation",
            stored=lambda run: run.spec.measured_on,
        ),
        Column(
            name="eval_length",
            meaning="tokens of an evaluated window",
            aliases=("eval_seq_len", "eval_sequence_length", "eval_context"),
            cells=Cells.TEXTS,
            fitted=False,
            one_value="evaluation length",
        ),
        Column(
            name="cooldown",
            meaning="whether the learning rate was decayed",
            aliases=("cooled", "cool_down", "decayed", "annealed"),
            cells=Cells.TEXTS,
            fitted=False,
            one_value="cool-down",
        ),
    )
}
"""Columns of a run table, for reading, stores, statements and the reference page."""


def aliases_of(column: Column) -> tuple[str, ...]:
    """Return other names of a column; for the loss, all names of a metric too."""
    if column.name != "loss":
        return column.aliases
    return (*column.aliases, *(name for metric in METRICS.values() for name in (metric.name, *metric.aliases)))


def map_columns(
    found: Sequence[str], *, chosen: Mapping[str, str], name: str, required: Sequence[str] | None = None
) -> dict[str, str]:
    """Map our column names to those of the table `name`; `chosen` holds the user's choices.

    Our own name has precedence; two other candidates for one column, or a missing required column, are errors.

    >>> map_columns(["C", "N", "D", "eval/loss", "notes"], chosen={}, name="runs.csv")
    {'flops': 'C', 'params': 'N', 'tokens': 'D', 'loss': 'eval/loss'}
    """
    _check_chosen(found, chosen, name)
    mapping = {}
    for column in COLUMNS:
        source = chosen.get(column) or _find(column, found, name)
        if source is not None:
            mapping[column] = source
    needed = [each.name for each in COLUMNS.values() if each.required] if required is None else required
    missing = [column for column in needed if column not in mapping]
    if missing:
        _refuse_columns(
            f"{name} has no column {missing[0]!r}, nor one that is known to mean it; it has: {', '.join(found)}.",
            fix=f"Name the column that holds it: --column {missing[0]}=NAME",
        )
    return mapping


def _find(column: str, found: Sequence[str], name: str) -> str | None:
    if column in found:
        return column
    own = [other for other in found if _same_name(other, column)]
    candidates = own or [other for other in found if any(_same_name(other, known) for known in aliases_of(COLUMNS[column]))]
    if len(candidates) > 1:
        _refuse_columns(
            f"{name}: {' and '.join(repr(each) for each in candidates)} could each be the column {column!r}.",
            fix=f"Choose one: --column {column}={candidates[0]}",
        )
    return candidates[0] if candidates else None


def _same_name(found: str, known: str) -> bool:
    return found == known if len(known) == 1 else found.lower() == known.lower()


def _check_chosen(found: Sequence[str], chosen: Mapping[str, str], name: str) -> None:
    for column, source in chosen.items():
        if column not in COLUMNS:
            _refuse_columns(f"{column!r} is no column of a run table.", fix=f"Choose for one of: {', '.join(COLUMNS)}.")
        if source not in found:
            _refuse_columns(
                f"{name} has no column {source!r}; it has: {', '.join(found)}.",
                fix=f"Name one of these: --column {column}={found[0]}",
            )
    for source, columns in _taken(chosen).items():
        if len(columns) > 1:
            _refuse_columns(
                f"The column {source!r} is taken for {' and for '.join(columns)}.", fix="Name another column for one of them."
            )


def _taken(chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """Return our columns that were chosen for each column of the table."""
    return {source: [ours for ours in chosen if chosen[ours] == source] for source in chosen.values()}


def _refuse_columns(what: str, *, fix: str) -> NoReturn:
    raise RunTableError(what, why="Nothing is guessed about what a column means.", fix=fix)
