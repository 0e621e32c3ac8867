"""Read runs whose hyperparameters were swept: the table of `marin-scale tune`.

Unlike a run table it needs no FLOPs, and its size may be a width. It needs the hyperparameters, which a run table ignores.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypedDict, Unpack

import numpy as np

from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.printable import joined, printable, quoted
from marin_scaling.run.audit import Exclusion, excluded_by_status
from marin_scaling.run.cells import NEARNESS, numbers_in
from marin_scaling.run.columns import COLUMNS, map_columns, spelled, unit_of_name
from marin_scaling.run.groups import GroupShift, choice_of, shifts_of_best, values_named
from marin_scaling.run.table import cells_of_frame, column_texts, elsewhere, incomplete, one_meaning, read_cells
from marin_scaling.run.table_io import BadCells, RawTable, is_empty, number_in, read_numbers
from marin_scaling.units import format_number

if TYPE_CHECKING:
    import pandas as pd

HYPERPARAMETERS = {
    "learning_rate": ("lr", "peak_lr", "max_lr", "peak_learning_rate", "max_learning_rate", "optimizer/learning_rate"),
    "weight_decay": ("wd", "optimizer/weight_decay", "lambda"),
    "batch_size": (
        "bs",
        "batch",
        "batch_size_seqs",
        "batch_size_sequences",
        "global_batch_size",
        "train_batch_size",
        "batch_size_tokens",
        "batch_tokens",
        "trainer/train_batch_size",
    ),
}
"""Hyperparameters with a law, and the names that tables give them; a law of one may depend on those after it."""

SIZES = ("width", "active_params", "params")
"""Columns that may be the size of a law, the preferred one first."""

_WIDTHS = ("hidden_dim", "hidden_size", "d_model", "model_dim", "n_embd", "hidden", "dim", "model/hidden_dim")
_ENDINGS = {"learning_rate": ("_lr", "_learning_rate"), "batch_size": ("_batch_size", "_bs"), "weight_decay": ("_wd",)}
_COMPLETE = ("complete", "completed", "finished", "is_complete", "is_finished", "done")
_FALSE = {"0", "0.0", "false", "no"}
_FIX = "Fix the cells."
_WHY = "A law of an optimum needs a number of each run; nothing is dropped silently."
_LEAST_TOKENS = 1e4
_MOST_TEXTS = 9
_TWIN_EXCESS = 0.02
"""Excess of the loss over that of a run of the same settings from which on a run failed; seeds differ by less."""

_SMALLEST_SPREAD = math.log(1.05)
"""Least range of the logarithm of a size that counts as varied: rounding moves a size by less."""


@dataclass(frozen=True, kw_only=True)
class SweptRuns:
    """Runs with their hyperparameters.

    `frame` has one row per run: `run` (text), `size`, `tokens`, `loss` (float64; no loss where each row is an optimum),
    and the columns of `HYPERPARAMETERS` that the table has. `others` holds its further columns, in the same rows. `size`
    names the column of sizes: width, active_params or params. `metric` is that of the loss.
    """

    frame: pd.DataFrame
    others: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    column_mapping: Mapping[str, str]
    source: str
    size: str
    metric: str

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of the hyperparameters that the table has."""
        return tuple(name for name in HYPERPARAMETERS if name in self.frame)


class SweepChoices(TypedDict, total=False):
    """Choices of the user about a table of swept runs; each may be left out."""

    columns: Mapping[str, str] | None
    """The table's name of our column, as in {"learning_rate": "adam_lr"}."""
    where: Mapping[str, str] | None
    """Value of a column that the chosen runs have."""
    drop: Collection[str]
    """Runs to leave out."""
    skip_incomplete: bool
    """True if runs with an empty cell are left out."""
    size: str
    """One of `SIZES`; default: the first that varies."""
    are_optima: bool
    """True if each row holds the optimum of a cell, and needs no loss."""


def read_swept_runs(runs: pd.DataFrame | Path | str, **choices: Unpack[SweepChoices]) -> SweptRuns:
    """Read a table of swept runs, or the store's folder of a swept ladder.

    `RunTableError` lists all missing columns, and all cells without a number.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"d_model": [512, 512], "D": [1e9, 1e9], "adam_lr": [1e-3, 2e-3], "loss": [3.1, 3.0]})
    >>> found = read_swept_runs(frame)
    >>> found.size, found.hyperparameters, found.column_mapping["learning_rate"]
    ('width', ('learning_rate',), 'adam_lr')
    """
    size, are_optima = choices.get("size", ""), choices.get("are_optima", False)
    if size and size not in SIZES:
        raise UsageError(f"Unknown size {quoted(size)!r}.", fix=f"Choose one of {', '.join(SIZES)}.")
    raw = read_cells(Path(runs)) if isinstance(runs, Path | str) else cells_of_frame(runs)
    mapping = _mapped(raw, choices.get("columns") or {}, size=size, are_optima=are_optima)
    texts = column_texts(raw, mapping["run"]) if "run" in mapping else list(raw.places)
    left_out = elsewhere(raw, choices.get("where") or {}) | _unfinished(raw, mapping)
    left_out |= {row: "it was dropped as asked" for row, name in enumerate(texts) if name in choices.get("drop", ())}
    if choices.get("skip_incomplete"):
        needed = [name for name in (*SIZES, "tokens", "loss", *HYPERPARAMETERS) if name in mapping]
        left_out |= incomplete(raw, mapping, needed=needed, excluded=left_out)
    rows = [row for row in range(len(texts)) if row not in left_out]
    if not rows:
        raise RunTableError(f"{raw.name}: no run is finished.", fix="Give runs that reached their last step.")
    frame = _numbers(raw, mapping, texts, rows=rows)
    varied = size or next((name for name in SIZES if name in frame and _varies(frame[name])), _first_size(frame))
    frame = _with_cells(frame.assign(size=frame[varied]).drop(columns=[name for name in SIZES if name in frame]))
    _require_tokens(raw, mapping, frame)
    others = [name for name in raw.column_names() if name not in mapping.values()]
    return SweptRuns(
        frame=frame,
        others=raw.cells[others].iloc[rows].reset_index(drop=True),
        excluded=tuple(Exclusion(run=texts[row], why=why) for row, why in sorted(left_out.items())),
        column_mapping=mapping,
        source=printable(raw.name),
        size=varied,
        metric="" if are_optima else one_meaning(raw, _texts(raw, mapping), mapping, rows=rows),
    )


def _mapped(raw: RawTable, chosen: Mapping[str, str], *, size: str, are_optima: bool) -> dict[str, str]:
    """Return the table's name of each of our columns; `RunTableError` for all that are missing or unclear."""
    ours = {**HYPERPARAMETERS, "width": _WIDTHS}
    if unknown := [name for name in chosen if name not in (*ours, *COLUMNS)]:
        known = ", ".join((*ours, *COLUMNS))
        raise UsageError(f"{quoted(unknown[0])!r} is not a column of ours.", fix=f"Choose one of {known}.")
    found = {name: [chosen[name]] if name in chosen else _named(raw, name, aliases) for name, aliases in ours.items()}
    absent = [names[0] for names in found.values() if names and names[0] not in raw.column_names()]
    faults = [f"{raw.name} has no column {quoted(name)!r}." for name in absent]
    faults += [
        f"{raw.name}: {joined(each)} could each be the column {name!r}." for name, each in found.items() if len(each) > 1
    ]
    if not any(found[name] for name in HYPERPARAMETERS):
        faults.append(f"{raw.name} has no column of {', '.join(HYPERPARAMETERS)}, nor one that is known to mean one.")
    fix = "Name the column: --column learning_rate=NAME"
    needed = ("tokens",) if are_optima else ("tokens", "loss")
    if are_optima and not found["learning_rate"] and not chosen.keys() & HYPERPARAMETERS.keys():
        faults.append(f"{raw.name} has no column of optimal learning rates.")
    try:
        mapping = map_columns(raw, chosen={name: of for name, of in chosen.items() if name in COLUMNS}, required=needed)
    except RunTableError as error:
        raise RunTableError((*error.lines, *faults), fix=f"{error.fix}; {fix}" if faults else error.fix) from error
    mapping |= {name: names[0] for name, names in found.items() if names}
    if not mapping.keys() & ({size} if size else set(SIZES)):
        faults.append(f"{raw.name} has no column {size or ' or '.join(SIZES)}.")
    if faults:
        raise RunTableError((*faults, f"It has: {joined(raw.column_names())}."), fix=f"{fix} (or {size or 'width'}=NAME).")
    return mapping


def _named(raw: RawTable, name: str, aliases: Sequence[str]) -> list[str]:
    """Return the columns that may be one of ours: by name, by alias, or by the ending of their name."""
    names = raw.column_names()
    for wanted in ({spelled(name)}, {spelled(alias) for alias in aliases}):
        if found := [each for each in names if spelled(each) in wanted]:
            return found
    return [each for each in names if spelled(each).endswith(_ENDINGS.get(name, ("\0",)))]


def _unfinished(raw: RawTable, mapping: Mapping[str, str]) -> dict[int, str]:
    """Return the rows of runs that did not end, with the reason: a column of completeness decides, else the status."""
    flag = next((name for name in raw.column_names() if spelled(name) in _COMPLETE), None)
    if flag:
        cells = raw.cells[flag].tolist()
        return {row: f"its {quoted(flag)} is {cell}" for row, cell in enumerate(cells) if str(cell).strip().lower() in _FALSE}
    if "status" not in mapping:
        return {}
    statuses = column_texts(raw, mapping["status"])
    return {row: why for row, status in enumerate(statuses) if status and (why := excluded_by_status(status))}


def _numbers(raw: RawTable, mapping: Mapping[str, str], texts: Sequence[str], *, rows: list[int]) -> pd.DataFrame:
    import pandas as pd

    names = [name for name in (*SIZES, "tokens", "loss", *HYPERPARAMETERS) if name in mapping]
    names = [name for name in names if not (name in SIZES and _has_gaps(raw, mapping[name], rows) and len(names) > 1)]
    bad = BadCells(raw, texts, why=_WHY, fix=_FIX)
    columns = {name: read_numbers(raw, mapping[name], rows, bad=bad) for name in names}
    bad.refuse()
    frame = pd.DataFrame(columns, dtype="float64").assign(run=[texts[row] for row in rows])
    for name in ("params", "active_params", "tokens"):
        if name in frame:
            frame[name] *= unit_of_name(name, mapping[name])
    return frame


def _require_tokens(raw: RawTable, mapping: Mapping[str, str], frame: pd.DataFrame) -> None:
    low, high = float(frame["tokens"].min()), float(frame["tokens"].max())
    if high < _LEAST_TOKENS:
        raise RunTableError(
            f"{raw.name}: column {quoted(mapping['tokens'])!r} holds {format_number(low)} to {format_number(high)}, no tokens.",
            fix="Name the column of tokens: --column tokens=NAME",
        )


def other_settings(runs: SweptRuns) -> list[str]:
    """Return the table's further columns, without other names of the swept values, such as multipliers of a rate."""
    keys, without_first = (["size", "tokens", *runs.hyperparameters[start:]] for start in (0, 1))

    def is_another_name(name: str) -> bool:
        frame = runs.frame.assign(_other=runs.others[name].astype(str))
        pairs = len(frame[[*keys, "_other"]].drop_duplicates())
        return pairs == len(frame[keys].drop_duplicates()) == len(frame[[*without_first, "_other"]].drop_duplicates())

    return [str(name) for name in runs.others.columns if not is_another_name(str(name))]


def require_equal_losses(runs: SweptRuns) -> None:
    """Raise `RunTableError` if the best losses of a column's values differ at equal size, tokens and other hyperparameters."""
    given = ["size", "tokens", *runs.hyperparameters[1:]]
    coordinates = [np.log(runs.frame[name].to_numpy(dtype=np.float64)) for name in given]
    cells = runs.frame.groupby(given).ngroup().to_numpy().astype(np.int64)
    shifts = shifts_of_best(runs.frame["loss"], runs.others[other_settings(runs)], cells=cells, coordinates=coordinates)
    if shifts:
        found = f"the best loss of {quoted(shifts[0].high)!r} lies {math.expm1(shifts[0].shift):.1%} above that of"
        refuse_kinds(runs, shifts[0], found)


def refuse_kinds(runs: SweptRuns, shift: GroupShift, found: str) -> NoReturn:
    """Raise `RunTableError` about a column whose values differ."""
    raise RunTableError(
        f"{runs.source}: column {quoted(shift.column)!r} sets kinds of runs apart: {found} {quoted(shift.low)!r} at equal size "
        f"and tokens ({values_named(shift)}).",
        why="An optimum needs runs that differ only in what was swept.",
        fix=f"Tune one kind: {choice_of(shift)}",
    )


def texts_by_cell(runs: SweptRuns) -> list[str]:
    """Return warnings of columns of texts that are equal within cells and not between them, and do not only name sizes.

    Such a column may hold kinds of runs, whose difference cannot be told from that of their sizes.
    """
    found = list[str]()
    cells = [runs.frame["size"], runs.frame["tokens"]]
    for name in runs.others.columns:
        values = runs.others[name].astype(str)
        is_of_size = int(values.groupby(runs.frame["size"]).nunique().max()) == 1
        most = runs.frame["size"].nunique() if is_of_size else runs.frame.groupby(["size", "tokens"]).ngroups
        is_equal_in_cells = int(values.groupby(cells).nunique().max()) == 1
        if is_equal_in_cells and 1 < values.nunique() < min(most, _MOST_TEXTS) and numbers_in(sorted(set(values))) is None:
            named = joined(sorted(set(values)), most=4)
            choice = shlex.quote(quoted(f"{name}={values.mode()[0]}"))
            found.append(
                f"column {quoted(str(name))!r} changes from cell to cell ({named}): one kind is chosen by --where {choice}"
            )
    return found


def without_failed(runs: SweptRuns) -> SweptRuns:
    """Return the runs without those that others of the same settings beat by more than noise, which are excluded."""
    settings = ["size", "tokens", *runs.hyperparameters]
    best = runs.frame.groupby(settings)["loss"].transform("min")
    above = (runs.frame["loss"] / best - 1).to_numpy()
    failed = np.flatnonzero(above > _TWIN_EXCESS).tolist()
    reasons = {place: f"another run of its settings has a loss {above[place]:.1%} lower" for place in failed}
    return replace(
        runs,
        frame=runs.frame.drop(index=failed).reset_index(drop=True),
        others=runs.others.drop(index=failed).reset_index(drop=True),
        excluded=(*runs.excluded, *(Exclusion(run=str(runs.frame["run"][row]), why=why) for row, why in reasons.items())),
    )


def _with_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with sizes and tokens that are equal in a cell: the mean of those that whole batches set apart."""
    for name, nearness in (("size", NEARNESS["params"]), ("tokens", NEARNESS["tokens"])):
        ordered = frame[name].sort_values()
        steps = np.diff(np.log(ordered.to_numpy()), prepend=-np.inf) > nearness
        levels = ordered.groupby(np.cumsum(steps)).transform("mean")
        frame = frame.assign(**{name: levels})
    return frame


def _texts(raw: RawTable, mapping: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: column_texts(raw, mapping[name]) for name, each in COLUMNS.items() if each.one_value and name in mapping}


def _has_gaps(raw: RawTable, column: str, rows: Sequence[int]) -> bool:
    cells = raw.cells[column].tolist()
    return any(is_empty(cells[row]) for row in rows)


def _varies(values: pd.Series[float]) -> bool:
    return bool(math.log(values.max() / values.min()) > _SMALLEST_SPREAD)


def _first_size(frame: pd.DataFrame) -> str:
    return next(name for name in SIZES if name in frame)


def parse_target(text: str, *, known: Sequence[str]) -> dict[str, float]:
    """Return the numbers of a target such as "width=2048, tokens=1e11, batch_size=512".

    `UsageError` for an unknown name, or a value that is not a positive number.

    >>> parse_target("width=2048,tokens=100B", known=["width", "tokens"])
    {'width': 2048.0, 'tokens': 100000000000.0}
    """
    found: dict[str, float] = {}
    for part in filter(None, text.replace(",", " ").split()):
        name, equals, value = part.partition("=")
        number = number_in(value)
        if not equals or name not in known or name in found or number is None or not 0 < number < math.inf:
            reason = f"{name!r} is unknown" if name not in known else f"{value!r} is not a positive number"
            reason = f"{name!r} occurs twice" if name in found else reason
            example = " ".join(f"{each}=NUMBER" for each in known[:2])
            raise UsageError(f"Target {part!r}: {reason}.", fix=f"Write it like --predict {shlex.quote(example)}.")
        found[name] = number
    if missing := [name for name in known[:2] if name not in found]:
        raise UsageError(
            f"Target {text!r} has no {' and no '.join(missing)}.",
            fix=f"Add {' '.join(f'{name}={format_number(1e9)}' for name in missing)}, with your numbers.",
        )
    return found
