"""Read, check and audit run tables, from files and from the run store."""

from __future__ import annotations

import importlib.util
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import (
    Finding,
    RunTableError,
    Severity,
    StorageError,
    UsageError,
    first_line,
    missing_extra,
    note,
    warning,
)
from marin_scaling.laws import SurfaceLaw, optimal_params, surface_loss
from marin_scaling.printable import TEXT_CHARACTERS, joined, printable, quoted
from marin_scaling.run.audit import Exclusion, audit_runs, audit_words
from marin_scaling.run.cells import ONE_EPOCH, Sweep, audit_repeats, find_checkpoints, find_sweep
from marin_scaling.run.column_units import audit_loss_unit, convert_units, loss_in_nats, mend_overflow, stated_factors
from marin_scaling.run.columns import COLUMNS, Cells, Column, map_columns, unit_of_name, with_formulas
from marin_scaling.run.groups import audit_kinds
from marin_scaling.run.table_io import BadCells, RawTable, is_empty, number_in, read_numbers, read_table_file, table_of_cells
from marin_scaling.units import counted, metric_of_column
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.spec import RunSpec
    from marin_scaling.run.store import StoredRun

BUDGET_RATIO = 1.1
"""Ratio of sorted FLOPs at which a new budget begins. Marin rounds budgets to powers of 1.1."""

BUDGET_SPAN = 1.25
"""Largest ratio of FLOPs within one budget; it changes the loss by a few percent."""


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Usable runs, and the runs left out.

    `frame` has one row per run: `run` (text), `flops`, `params`, `tokens`, `loss`, `budget_flops` (float64), and where the
    table has them `active_params`, `epochs`, `tokens_per_second`, `mfu`, `lm_head_flops` (float64), `seed`, `suite`,
    `flops_convention`, `evaluation` (text). Only the last three numbers may be NaN: they are, where a cell is empty.
    `column_mapping` gives the table's own name of each column, and `units` the user's unit of some. `findings` are those of the
    audit that affect the status of a fit; their messages are in `warnings`. `sweep` names the columns that distinguish runs of
    one size and length.
    """

    frame: pd.DataFrame
    source: str
    metric: str
    excluded: tuple[Exclusion, ...] = ()
    warnings: tuple[str, ...] = ()
    column_mapping: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    sweep: Sweep | None = None
    units: Mapping[str, str] = field(default_factory=dict)


ALLOWED = ("units", "int64-overflow", "loss-unit", "groups", "flop-count", "swapped")
"""Codes of the errors that a user may take for warnings."""


class ReadingChoices(TypedDict, total=False):
    """Choices of the user about a run table; each may be left out."""

    columns: Mapping[str, str]
    """The table's name of our column, as in `{"loss": "eval/loss"}`, or a formula, as in `{"flops": "6ND"}`."""
    units: Mapping[str, str]
    """Unit of a column, as in `{"flops": "GFLOPs"}`."""
    where: Mapping[str, str]
    """Value of a column that the chosen runs have, as in `{"dataset": "web"}`."""
    keep: Collection[str]
    """Runs that stay, whatever the audit finds; the table records them."""
    drop: Collection[str]
    """Runs to leave out; the table records them."""
    allow: Collection[str]
    """Codes of errors of the audit that become warnings."""
    skip_incomplete: bool
    """True if runs with an empty cell are left out."""


def signed_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the signed columns of each run of a table, which are all that a fit uses of it."""
    columns = [name for name, column in COLUMNS.items() if column.signed and name in frame]
    return [dict(zip(columns, row, strict=True)) for row in frame[columns].itertuples(index=False, name=None)]


def read_run_table(path: Path, **choices: Unpack[ReadingChoices]) -> RunTable:
    """Read and audit a table of runs: a file, a suite, or a run store.

    `StorageError` if `path` cannot be read, `RunTableError` (file, line, column) if it is not a table of usable runs.
    """
    return _from_cells(read_cells(Path(path)), choices)


def read_cells(path: Path) -> RawTable:
    """Read all cells of a table of runs from a file, a suite, or a run store with one row per rung."""
    if not path.is_dir():
        return read_table_file(path)
    if is_present(path / "runs.csv"):
        return read_table_file(path / "runs.csv")
    return _stored_cells(path)


def table_of_frame(frame: pd.DataFrame, *, source: str = "DataFrame", **choices: Unpack[ReadingChoices]) -> RunTable:
    """Audit a table of runs in memory, as `read_run_table` does with a file; errors name a row by its label."""
    return _from_cells(cells_of_frame(frame, source=source), choices)


def cells_of_frame(frame: pd.DataFrame, *, source: str = "DataFrame") -> RawTable:
    """Return the cells of a table in memory; errors name a row by its label."""
    places = tuple(f"row {label}" for label in frame.index)
    return table_of_cells(source, frame.rename(columns=str).astype(object), places)


def _instead_of(folder: Path) -> str:
    """Return the fix for a folder without runs: the ladders in it, if it has some."""
    from marin_scaling.run.store import run_folders

    ladders = sorted(path.name for path in folder.glob("*/") if run_folders(path) or is_present(path / "runs.csv"))
    if ladders:
        return f"Name one of the ladders in it: {', '.join(str(folder / name) for name in ladders)}."
    return "Train the ladder first (marin-scale ladder FILE), or give another folder or table."


def _stored_cells(folder: Path) -> RawTable:
    import pandas as pd

    from marin_scaling.run.store import read_runs

    runs = [stored for stored in read_runs(folder) if stored.spec.role == "rung"]
    if not runs:
        raise StorageError(
            f"{folder} holds no runs: neither runs.csv nor folders of finished rungs.",
            fix=_instead_of(folder),
        )
    _require_one_kind(folder, runs)
    columns = {
        name: [column.stored(stored) for stored in runs]
        for name, column in COLUMNS.items()
        if column.stored and not (column.usual and all(column.stored(each) == column.usual(each) for each in runs))
    }
    swept = _swept_columns(runs) if len({(run.spec.rung_name, run.spec.seed) for run in runs}) < len(runs) else {}
    columns |= swept
    sources = [str(stored.folder) for stored in runs]
    cells = pd.DataFrame({**columns, "source": sources}).astype({"loss": object})
    places = tuple(stored.folder.name for stored in runs)
    varied = tuple(name for name, values in swept.items() if name != "width" and len(set(values)) > 1)
    return RawTable(name=str(folder), cells=cells, places=places, units_are_certain=True, swept=varied)


def _swept_columns(runs: Sequence[StoredRun]) -> dict[str, list[Any]]:
    """Return the hyperparameters that `marin-scale ladder --sweep` varies, and the width, of each run."""
    return {
        "learning_rate": [run.spec.optimizer.learning_rate for run in runs],
        "batch_size": [run.spec.batch_size for run in runs],
        "width": [run.spec.model.hidden_dim for run in runs],
    }


def _require_one_kind(folder: Path, runs: Sequence[StoredRun]) -> None:
    """Raise `RunTableError` unless all runs have the recipe, data, evaluation and computation of the first."""
    for of_what, value_of in _ONE_OF_EACH.items():
        first = value_of(runs[0].spec)
        for other in runs[1:]:
            if (value := value_of(other.spec)) != first:
                raise RunTableError(
                    f"{folder}: {runs[0].folder.name} and {other.folder.name} differ in their {of_what}: {first} and {value}.",
                    why="A law needs runs that differ only in size and tokens.",
                    fix="Move the others to a ladder of another name (train them from a file of that name), or remove them.",
                )


_ONE_OF_EACH: dict[str, Callable[[RunSpec], str]] = {
    "recipe": lambda spec: spec.recipe,
    "data": lambda spec: f"digest {spec.data.digest}",
    "evaluation": lambda spec: ", ".join(f"{key} {value}" for key, value in spec.evaluation),
    "compute": lambda spec: ", ".join(f"{key} {value}" for key, value in spec.compute),
}


def _from_cells(raw: RawTable, choices: ReadingChoices) -> RunTable:
    for code in (allow := choices.get("allow", ())):
        if code not in ALLOWED:
            raise UsageError(
                f"{code!r} is not the code of an error.",
                fix=f"Choose one of {', '.join(ALLOWED)}: --allow {_nearest(code, ALLOWED)}",
            )
    keep, of_cells = choices.get("keep", ()), raw.notes
    raw, columns, computed = with_formulas(raw, choices.get("columns", {}), factors=stated_factors(choices.get("units", {})))
    mapping = map_columns(raw, chosen=columns)
    texts = {name: column_texts(raw, mapping[name]) for name in _columns(Cells.TEXTS, mapping)}
    runs = texts.get("run") or list(raw.places)
    words = audit_words(runs, texts, keep=keep, drop=choices.get("drop", ()))
    left_out = words.reasons | elsewhere(raw, choices.get("where", {}))
    if choices.get("skip_incomplete"):
        needed = [name for name in _columns(Cells.NUMBERS, mapping) if COLUMNS[name].if_empty is None]
        left_out |= incomplete(raw, mapping, needed=needed, excluded=left_out)
    rows = [row for row in range(len(runs)) if row not in left_out]
    raw, overflow = mend_overflow(raw, mapping, rows=rows)
    frame = _frame(raw, mapping, texts | {"run": runs}, rows=rows)
    frame, of_units = _in_our_units(raw, frame, mapping, overflow=overflow, choices=choices)
    others = _other_cells(raw, mapping, rows=rows)
    is_chosen = "run" in choices.get("columns", {})
    earlier, unclear = find_checkpoints(
        frame, others, column=mapping.get("run", ""), is_chosen=is_chosen, size=mapping["params"]
    )
    earlier = {position: why for position, why in earlier.items() if runs[rows[position]] not in keep}
    left_out |= {rows[position]: why for position, why in earlier.items()}
    rows = [row for position, row in enumerate(rows) if position not in earlier]
    frame, others = (each.drop(index=list(earlier)).reset_index(drop=True) for each in (frame, others))
    frame, grouping = _with_budgets(_with_epochs(frame, others))
    audit = audit_runs(frame, keep=keep)
    found = {rows[position]: why for position, why in audit.reasons.items()}
    frame = frame.drop(index=list(audit.reasons)).reset_index(drop=True)
    others = others.drop(index=list(audit.reasons)).reset_index(drop=True)
    sweep = Sweep(swept=raw.swept) if raw.swept else find_sweep(frame, others)
    kinds = audit_kinds(frame, others, sweep=sweep)
    if any(each.code == "flop-count" for each in computed):  # the formula is the cause of a step
        kinds = [each for each in kinds if each.code != "flop-count"]
    if not (frame.empty or kinds or sweep.is_in(frame)):
        kinds = audit_repeats(frame)
    of_runs = [each for each in audit.findings if not (each.code == "swapped" and raw.units_are_certain)]
    findings = [
        warning(each.code, each.where, each.message) if each.code in allow else each
        for each in (*of_cells, *computed, *of_units, *kinds, *of_runs, *unclear, *grouping)
    ]
    if "seed" not in frame and sweep.are_replicates:
        frame = frame.assign(seed=others[[*sweep.replicated]].astype(str).agg(" ".join, axis=1))
    if sweep.swept and sweep.replicated:
        frame = frame.assign(setting=others[[*sweep.swept]].astype(str).agg(" ".join, axis=1))
    return RunTable(
        frame=frame,
        excluded=tuple(Exclusion(run=runs[row], why=why) for row, why in sorted((left_out | found).items())),
        warnings=(*(each.message for each in findings), *_nominal_flops(mapping), *words.doubts, *audit.doubts),
        findings=tuple(findings),
        sweep=sweep,
        column_mapping=mapping,
        units=choices.get("units", {}),
        source=printable(raw.name),
        metric=one_meaning(raw, texts, mapping, rows=[row for row in rows if runs[row] not in keep] or rows),
    )


def _in_our_units(
    raw: RawTable, frame: pd.DataFrame, mapping: Mapping[str, str], *, overflow: list[Finding], choices: ReadingChoices
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the table in FLOPs, counts and nats, with findings; `RunTableError` for errors that are not allowed."""
    units, keep, findings = choices.get("units", {}), choices.get("keep", ()), overflow
    if units or not raw.units_are_certain:
        frame, converted = convert_units(frame, names=mapping, units=units, keep=keep)
        findings = [*findings, *converted]
    judged, stated = frame[~frame["run"].isin(list(keep))].reset_index(drop=True), units.get("loss", "")
    findings = [*findings, *audit_loss_unit(judged, column=mapping["loss"], stated=stated)]
    _refuse_errors(raw.name, [each for each in findings if each.code not in choices.get("allow", ())])
    if stated:
        _refuse_bits_per_byte(mapping["loss"], stated)
        frame, converted = loss_in_nats(frame, stated, column=mapping["loss"])
        findings = [*findings, *converted]
    return frame, findings


def _refuse_bits_per_byte(column: str, unit: str) -> None:
    if metric_of_column(column) == "bits_per_byte":
        raise RunTableError(
            f"column {quoted(column)!r} holds bits per byte, and --unit loss={unit} was given.",
            why="They become nats per token only with the bytes of a token, which no column has.",
            fix=f"Leave --unit loss={unit} out: bits per byte are fitted as they are.",
        )


def elsewhere(raw: RawTable, where: Mapping[str, str]) -> dict[int, str]:
    """Return the reason to leave out each run whose columns have other values than those asked for."""
    reasons: dict[int, str] = {}
    for column, value in where.items():
        if column not in raw.column_names():
            raise RunTableError(
                f"{raw.name} has no column {column!r}; it has: {joined(raw.column_names())}.",
                fix=f"Choose one of its columns: --where {shlex.quote(f'{_nearest(column, raw.column_names())}=VALUE')}",
            )
        texts = column_texts(raw, column)
        others = [row for row, text in enumerate(texts) if not _is_value(text, value)]
        if len(others) == len(texts):
            raise RunTableError(
                f"{raw.name}: no run has {value!r} in column {column!r}; it holds {joined(sorted(set(texts)))}.",
                fix=f"Choose a value of the column: --where {shlex.quote(quoted(f'{column}={_nearest(value, texts)}'))}",
            )
        reasons |= {row: f"its {column} is {quoted(texts[row])!r}" for row in others}
    return reasons


def _is_value(text: str, value: str) -> bool:
    """Return True if a cell is the value asked for: the same text or number, or matched by a pattern with `*` or `?`.

    >>> _is_value("1.0", "1"), _is_value("llama-7b", "llama*"), _is_value("Llama", "llama*")
    (True, True, False)
    """
    number = number_in(value)
    return text == value or fnmatchcase(text, value) or (number is not None and number_in(text) == number)


def _nearest(value: str, texts: Sequence[str]) -> str:
    folded = {text.casefold(): text for text in texts}
    return folded[next(iter(get_close_matches(value.casefold(), folded, n=1, cutoff=0.0)), next(iter(folded)))]


def _refuse_errors(name: str, findings: Sequence[Finding]) -> None:
    errors = tuple(f"{name}: {each.message}" for each in findings if each.severity is Severity.ERROR)
    codes = [each.code for each in findings if each.severity is Severity.ERROR]
    if errors:
        unit = "State a unit as above, fix" if any("--unit" in each for each in errors) else "Fix"
        raise RunTableError(
            errors,
            fix=f"{unit} the cells, or leave runs out (--drop RUN). To go on with a warning: "
            f"{' '.join(f'--allow {code}' for code in dict.fromkeys(codes))}",
        )


UNIQUE_TOKENS = re.compile(r"(unique|distinct|dataset|corpus|data)[^a-z]*tokens", re.IGNORECASE)


def _with_epochs(frame: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Return the table with epochs from its column of unique tokens, where it has no column of epochs."""
    column = next((name for name in others.columns if UNIQUE_TOKENS.search(str(name))), None)
    if column is None or "epochs" in frame:
        return frame
    unique = np.array([number_in(cell) or math.nan for cell in others[column]]) * unit_of_name("tokens", str(column))
    epochs = frame["tokens"].to_numpy() / unique
    if not np.isfinite(epochs).all() or (epochs <= ONE_EPOCH).all() or (epochs < 1e-3).any():
        return frame
    return frame.assign(epochs=np.maximum(epochs, 1.0))


def _other_cells(raw: RawTable, mapping: Mapping[str, str], *, rows: Sequence[int]) -> pd.DataFrame:
    """Return the columns that hold none of a run's numbers or its name: what may tell kinds of runs apart, a row a run."""
    taken = {theirs for ours, theirs in mapping.items() if ours == "run" or COLUMNS[ours].cells is not Cells.TEXTS}
    return raw.cells[[name for name in raw.cells.columns if name not in taken]].iloc[list(rows)].reset_index(drop=True)


def incomplete(
    raw: RawTable, mapping: Mapping[str, str], *, needed: Collection[str], excluded: Mapping[int, str]
) -> dict[int, str]:
    """Return the reason to leave out each run with an empty cell in a column that needs a number."""
    reasons: dict[int, str] = {}
    for name in needed:
        for row, cell in enumerate(raw.cells[mapping[name]].tolist()):
            if row not in excluded and row not in reasons and is_empty(cell):
                reasons[row] = f"its {name} is empty"
    return reasons


def _nominal_flops(mapping: Mapping[str, str]) -> list[str]:
    """Return a warning if the nominal budgets of the table stand for FLOPs."""
    if mapping["flops"] != mapping.get("budget_flops"):
        return []
    return [f"no column flops: each run is taken to cost its nominal budget (column {mapping['flops']!r})"]


def _frame(raw: RawTable, mapping: Mapping[str, str], texts: Mapping[str, list[str]], *, rows: Sequence[int]) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {
        name: [texts[name][row] for row in rows] for name, column in COLUMNS.items() if name in texts and column.fitted
    }
    bad = BadCells(raw, texts["run"], why=_WHY, fix=_FIX)
    for name in (*_columns(Cells.NUMBERS, mapping), *_columns(Cells.NUMBERS_OR_NOTHING, mapping)):
        columns[name] = _numbers(raw, mapping[name], COLUMNS[name], rows, bad=bad, others=columns)
    bad.refuse()
    return pd.DataFrame(columns)


_WHY = "FLOPs, parameters, tokens and loss of a run are positive, finite numbers; no run is dropped silently."
_FIX = "Fix the cells; a diverged run may stay if a column `status` says diverged, and a throughput may be empty."


def _numbers(
    raw: RawTable, theirs: str, column: Column, rows: Sequence[int], *, bad: BadCells, others: Mapping[str, Sequence[Any]]
) -> list[float]:
    """Return a column's numbers, one for each of `rows`; empty cells take what the column allows for them."""
    may_be_empty = column.cells is Cells.NUMBERS_OR_NOTHING or column.if_empty is not None
    cells = raw.cells[theirs].tolist() if may_be_empty else []
    empty = {row for row in rows if is_empty(cells[row])} if may_be_empty else set()
    filled = [row for row in rows if row not in empty]
    values = dict(zip(filled, read_numbers(raw, theirs, filled, bad=bad), strict=True))
    if isinstance(column.if_empty, str):
        values |= {row: others[column.if_empty][at] for at, row in enumerate(rows) if row in empty}
    elif column.if_empty is not None:
        values |= dict.fromkeys(empty, column.if_empty)
    return [values.get(row, math.nan) for row in rows]


def _columns(cells: Cells, mapping: Mapping[str, str]) -> list[str]:
    """Return the columns of a table whose cells are of this kind."""
    return [name for name, column in COLUMNS.items() if column.cells is cells and name in mapping]


def _with_budgets(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Finding]]:
    if "budget_flops" in frame or frame.empty:
        return frame, []
    order = np.argsort(frame["flops"].to_numpy(), kind="stable")
    logs = np.log(frame["flops"].to_numpy()[order])
    group = _groups(logs)
    means = np.exp(np.bincount(group, weights=logs) / np.bincount(group))
    budgets = np.empty(len(frame))
    budgets[order] = means[group]
    grouped = f"no column budget_flops: the runs were taken as {counted(len(means), 'budget')}, a new one wherever"
    message = f"{grouped} sorted FLOPs rise by more than {BUDGET_RATIO - 1:.0%}"
    return frame.assign(budget_flops=budgets), [note("budgets", "flops", message)]


def _groups(logs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of each run's budget, for sorted logarithms of FLOPs."""
    gaps = np.flatnonzero(np.diff(logs) > math.log(BUDGET_RATIO)) + 1
    starts, at = [0], 0
    while at < len(logs):
        too_wide = int(np.searchsorted(logs, logs[at] + math.log(BUDGET_SPAN), side="right"))
        next_gap = int(np.searchsorted(gaps, at, side="right"))
        at = min(too_wide, int(gaps[next_gap]) if next_gap < len(gaps) else len(logs))
        starts.append(at)
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def column_texts(raw: RawTable, column: str) -> list[str]:
    """Return the texts of a column, printable and of bounded length, "" for an empty cell."""
    cells = raw.cells[column]
    texts = ["" if absent else printable(str(cell)) for cell, absent in zip(cells.tolist(), cells.isna(), strict=True)]
    long = next((row for row, text in enumerate(texts) if len(text) > TEXT_CHARACTERS), None)
    if long is not None:
        count = f"{len(texts[long])} characters, more than {TEXT_CHARACTERS}"
        raise RunTableError(
            f"{raw.name}, {raw.places[long]}, column {column!r} holds {count}.",
            fix="Shorten the name.",
        )
    return texts


def one_meaning(raw: RawTable, texts: Mapping[str, list[str]], mapping: Mapping[str, str], *, rows: Sequence[int]) -> str:
    """Return the metric of these rows; `RunTableError` unless losses and FLOPs are comparable."""
    metric = metric_of_column(mapping["loss"]) or "loss"
    for name, column in COLUMNS.items():
        values = sorted({texts[name][row] for row in rows if texts[name][row]}) if column.one_value and name in texts else []
        if len(values) > 1:
            raise RunTableError(
                f"{raw.name}: the column {mapping[name]!r} holds {' and '.join(map(repr, values[:3]))}.",
                why=f"A law needs runs with the same {column.one_value}.",
                fix="Fit them separately: a table for each, or --drop RUN for every run of one of them.",
            )
        if name == "metric" and values:
            metric = values[0]
    return metric


Rows = Sequence[Mapping[str, Any]]
_EXACT = 2.0**53


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table or run store, None where a cell is empty; add a `source` with each row's place if missing.

    A column is numeric if all cells are numbers or empty, except `run` and `seed`.
    """
    raw = read_cells(path)
    mapping = map_columns(raw, chosen={}, required=())
    words = {mapping[name] for name in _columns(Cells.TEXTS, mapping)}
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
    """Return an integer if it is written as one and float64 holds it; FLOPs exceed the integers of a file."""
    number = float(cell)
    if not math.isfinite(number) or isinstance(cell, bool) or "_" in str(cell):
        raise ValueError(cell)
    return int(cell) if str(cell).isdecimal() and number < _EXACT else number


def log_to_wandb(rows: Rows, *, project: str, name: str, source: str) -> str:
    """Log the rows as table `runs` of one W&B run in the project (PROJECT or ENTITY/PROJECT); return its address.

    `UsageError` if W&B cannot be reached.
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
    except Exception as error:  # whatever the client raises: no key, no network, no such project
        raise UsageError(
            f"The table cannot be logged to the W&B project {project}: {first_line(error)}.",
            fix="Log in (wandb login), check the project's name and the network, or set WANDB_MODE=offline.",
        ) from error


def simulate_ladder(
    law: SurfaceLaw,
    *,
    budgets_flops: Sequence[float],
    sizes_per_budget: int,
    noise: float,
    seed: int,
    size_range: float = 10.0,
    metric: str = "loss",
) -> RunTable:
    """Simulate an isoFLOP ladder with losses drawn from `law`, each times 1 + `noise` x a normal deviate.

    Sizes are spaced evenly in the logarithm over a factor `size_range` around each budget's optimum. The names of table and
    runs begin with "simulated".

    >>> from marin_scaling.laws import SurfaceLaw
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19], sizes_per_budget=3, noise=0.0, seed=0)
    >>> table.frame[["flops", "loss"]].iloc[[1, 4]].round(3).to_dict("list")
    {'flops': [1e+18, 1e+19], 'loss': [3.535, 2.986]}
    """
    import pandas as pd

    budget = np.repeat(np.asarray(budgets_flops, dtype=np.float64), sizes_per_budget)
    offsets = np.geomspace(size_range**-0.5, size_range**0.5, sizes_per_budget) if sizes_per_budget > 1 else np.ones(1)
    optimum = np.array([optimal_params(law, flops=each) for each in budget])
    params = optimum * np.tile(offsets, len(budgets_flops))
    tokens = budget / 6 / params  # C = 6 N D (Kaplan et al. 2020)
    deviates = np.random.default_rng(seed).standard_normal(len(budget))
    frame = pd.DataFrame(
        {
            "run": [f"simulated-{number}" for number in range(len(budget))],
            "flops": budget,
            "params": params,
            "tokens": tokens,
            "loss": surface_loss(law, params=params, tokens=tokens) * (1 + noise * deviates),
            "budget_flops": budget,
        }
    )
    return RunTable(frame=frame, source=f"simulated (seed {seed})", metric=metric)
