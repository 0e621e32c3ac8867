"""Read runs whose hyperparameters or data mixtures were varied: the tables of `marin-scale tune` and `marin-scale mix`.

Unlike a run table, these need no FLOPs, and their size may be a width. They need columns that a run table ignores.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, Unpack

import numpy as np

from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.laws import Array
from marin_scaling.printable import joined, printable, quoted
from marin_scaling.run.audit import Exclusion, excluded_by_status, require_names
from marin_scaling.run.cells import NEARNESS, numbers_in
from marin_scaling.run.columns import COLUMNS, aliases_of, map_columns, spelled, unit_of_name
from marin_scaling.run.groups import GroupShift, choice_of, shifts_of_best, values_named
from marin_scaling.run.table import cells_of_frame, column_texts, elsewhere, incomplete, one_meaning, read_cells
from marin_scaling.run.table_io import EMPTY, BadCells, RawTable, is_empty, number_in, read_numbers
from marin_scaling.units import counted, format_number

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
    require_names(texts, drop=choices.get("drop", ()))
    left_out = elsewhere(raw, choices.get("where") or {}) | _unfinished(raw, mapping)
    left_out |= {row: "it was dropped as asked" for row, name in enumerate(texts) if name in choices.get("drop", ())}
    if choices.get("skip_incomplete"):
        needed = [name for name in (*SIZES, "tokens", "loss", *HYPERPARAMETERS) if name in mapping]
        left_out |= incomplete(raw, mapping, needed=needed, excluded=left_out)
    rows = [row for row in range(len(texts)) if row not in left_out]
    if not rows:
        raise RunTableError(f"{raw.name}: no run is finished.", fix="Give runs that reached their last step.")
    frame = _numbers(raw, mapping, texts, rows=rows)
    sizes = [name for name in SIZES if name in frame]
    varied = size or next((name for name in sizes if _varies(frame[name])), sizes[0])
    frame = _with_cells(frame.assign(size=frame[varied]).drop(columns=sizes))
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
        raise RunTableError((*error.lines, *faults), fix=f"{error.fix}. {fix}" if faults else error.fix) from error
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

    sizes = [name for name in SIZES if name in mapping]
    whole = [name for name in sizes if not _has_gaps(raw, mapping[name], rows)]
    names = [*(whole or sizes), *(name for name in ("tokens", "loss", *HYPERPARAMETERS) if name in mapping)]
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


_SAME_SIZE, _NEAR_ONE = 1.05, 0.02
"""Largest ratio of sizes that rounding explains, and the error of a sum that still shows weights."""
_PIECES = re.compile(r"[^A-Za-z0-9]")
_LOSS = re.compile(r"(?:^|_)(loss|bpb|bits_per_byte)(?:_|$)")


@dataclass(frozen=True, kw_only=True)
class MixtureTable:
    """Mixtures and their losses: `weights` (mix, domain) add up to one, `losses` are (mix, loss).

    `domains` and `names` of losses are sorted; `columns` maps each to its column. `notes` tell of rounding, and
    `excluded` gives the reason for each row that was left out.
    """

    domains: tuple[str, ...]
    names: tuple[str, ...]
    weights: Array = field(repr=False)
    losses: Array = field(repr=False)
    columns: Mapping[str, str] = field(repr=False)
    source: str
    notes: tuple[str, ...]
    excluded: Mapping[str, str]

    @cached_property
    def different(self) -> Array:
        """The different mixtures: (mix, domain)."""
        return np.unique(self.weights, axis=0)


def read_mixtures(
    table: pd.DataFrame | Path | str,
    *,
    weights: Collection[str] = (),
    metrics: Collection[str] = (),
    where: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
    skip_incomplete: bool = False,
) -> MixtureTable:
    """Read a table with one mix per row: columns of weights that add up to one (or 100), and of losses.

    `weights` and `metrics` name the columns, also by patterns such as "weight_*". `RunTableError` lists all rows whose weights
    do not add up, and all cells without a number.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"web": [0.25, 0.5, 0.9], "code": [0.75, 0.5, 0.1], "loss": [3.0, 2.9, 3.1]})
    >>> found = read_mixtures(frame)
    >>> found.domains, found.names
    (('code', 'web'), ('loss',))
    """
    raw = read_cells(Path(table)) if isinstance(table, Path | str) else cells_of_frame(table)
    shares = _matching(raw, weights, option="--weights") if weights else _weight_columns(raw)
    losses = _matching(raw, metrics, option="--metric") if metrics else _loss_columns(raw, shares)
    _require_two(raw, shares, losses)
    names = _row_names(raw)
    require_names([*names, *raw.places], drop=drop)
    left_out = elsewhere(raw, where or {})
    left_out |= {row: "it was dropped as asked" for row, name in enumerate(names) if {name, raw.places[row]} & set(drop)}
    if skip_incomplete:
        columns = [*shares, *losses]
        left_out |= incomplete(raw, {name: name for name in columns}, needed=columns, excluded=left_out)
    rows = [row for row in range(len(names)) if row not in left_out]
    if not rows:
        raise RunTableError(f"{raw.name}: none of {len(names)} rows is left.", fix="Give fewer of --where and --drop.")
    bad = BadCells(
        raw, names, why="A law needs every weight and loss of a mix; nothing is dropped silently.", fix="Fix the cells."
    )
    values = np.array([read_numbers(raw, name, rows, bad=bad) for name in losses]).T
    mixes = np.array([_shares(raw, name, rows, bad=bad) for name in shares]).T
    bad.refuse()
    _require_one_size(raw, rows, but={*shares, *losses})
    mixes, notes = _adding_up(raw, mixes, rows)
    domains, metrics = _without_affix(shares), _without_affix(losses)
    domains, mixes, unused = _tried(raw, domains, mixes)
    ignored = [name for name in raw.column_names() if name not in {*shares, *losses}]
    notes += (f"neither weights nor losses: {joined(ignored)}",) if ignored else ()
    by_domain, by_loss = np.argsort(domains), np.argsort(metrics)
    return MixtureTable(
        domains=tuple(domains[place] for place in by_domain),
        names=tuple(metrics[place] for place in by_loss),
        weights=mixes[:, by_domain],
        losses=values[:, by_loss],
        columns=dict(zip((*_without_affix(shares), *metrics), (*shares, *losses), strict=True)),
        source=printable(raw.name),
        notes=(*notes, *unused),
        excluded={names[row]: why for row, why in sorted(left_out.items())},
    )


def _row_names(raw: RawTable) -> list[str]:
    known = {spelled(name) for name in ("run", *COLUMNS["run"].aliases)}
    column = next((name for name in raw.column_names() if spelled(name) in known), None)
    texts = column_texts(raw, column) if column else [""] * len(raw.places)
    return [text or place for text, place in zip(texts, raw.places, strict=True)]


def _matching(raw: RawTable, patterns: Collection[str], *, option: str) -> list[str]:
    """Return the columns that names or patterns choose; `RunTableError` for all that choose none."""
    names = raw.column_names()
    if absent := [each for each in patterns if not any(name == each or fnmatchcase(name, each) for name in names)]:
        nearest = difflib.get_close_matches(absent[0], names, n=1, cutoff=0.0)[0]
        raise RunTableError(
            tuple(f"{raw.name} has no column {quoted(each)!r}." for each in absent),
            fix=f"Choose one of {joined(names)}: {option} {shlex.quote(quoted(nearest))}",
        )
    return [name for name in names if any(name == each or fnmatchcase(name, each) for each in patterns)]


def _weight_columns(raw: RawTable) -> list[str]:
    """Return the columns whose cells are zero or more and add up to one, or 100, in most rows.

    Columns with one beginning or one ending of their names are tried first, then columns next to each other.
    """
    numbers = {name: column for name in raw.column_names() if (column := _numbers_or_none(raw, name)) is not None}
    groups: dict[tuple[int, str], list[str]] = {}
    for name in numbers:
        for side, piece in ((0, _PIECES.split(name)[0]), (1, _PIECES.split(name)[-1])):
            groups.setdefault((side, piece), []).append(name)
    found = {tuple(names): _off_sum(sum(numbers[name] for name in names)) for names in groups.values() if len(names) > 1}
    found = {names: off for names, off in found.items() if off < _NEAR_ONE} or _neighbors(numbers)
    ranks = {names: (round(off, 3), -len(names)) for names, off in found.items()}
    largest = [names for names, rank in ranks.items() if rank == min(ranks.values())]
    if len(largest) != 1:
        listed = [f"These columns add up to one: {joined(names)}." for names in largest]
        raise RunTableError(
            (f"{raw.name}: {len(largest) or 'no'} groups of columns have weights that add up to 1 or 100.", *listed),
            fix=f"Name them: --weights NAME, or a pattern such as --weights 'weight_*'; it has {joined(raw.column_names())}.",
        )
    return list(largest[0])


def _numbers_or_none(raw: RawTable, column: str) -> Array | None:
    """Return the numbers of a column, zero for cells without one; None if most have none or are negative."""
    read = [number_in(cell) for cell in raw.cells[column].tolist()]
    usable = sum(number is not None and number >= 0 for number in read)
    return np.array([number or 0.0 for number in read]) if 2 * usable > len(read) else None


def _neighbors(numbers: Mapping[str, Array]) -> dict[tuple[str, ...], float]:
    """Return columns next to each other that add up to one, with the error of their sums."""
    names = list(numbers)
    sums = np.cumsum([np.zeros(len(numbers[names[0]])), *numbers.values()], axis=0) if names else np.zeros((1, 0))
    ends = [(first, last) for first in range(len(names)) for last in range(first + 2, len(names) + 1)]
    found = {tuple(names[first:last]): _off_sum(sums[last] - sums[first]) for first, last in ends}
    return {names: off for names, off in found.items() if off < _NEAR_ONE}


def _off_sum(sums: Any) -> float:
    """Return the median difference of sums from one, or of percentages from 100, relative to it."""
    return min(float(np.median(np.abs(sums / whole - 1))) for whole in (1, 100))


def _loss_columns(raw: RawTable, shares: Collection[str]) -> list[str]:
    """Return the columns whose names say loss or bits per byte; `RunTableError` for none, or both."""
    kinds = {name: found[1] for name in raw.column_names() if name not in shares and (found := _LOSS.search(spelled(name)))}
    if len({kind == "loss" for kind in kinds.values()}) == 1:
        return list(kinds)
    fix = "Name the losses, of one unit: --metric NAME, or a pattern such as --metric 'loss_*'; it has"
    raise RunTableError(
        f"{raw.name} has columns of {' and '.join(sorted(set(kinds.values()))) or 'no loss'}.",
        fix=f"{fix} {joined(name for name in raw.column_names() if name not in shares)}.",
    )


def _require_two(raw: RawTable, shares: Collection[str], losses: Collection[str]) -> None:
    if len(shares) < 2:
        raise RunTableError(
            f"{raw.name} has {len(shares)} column of weights; a mix has 2 or more.", fix="Name them: --weights NAME"
        )
    if both := sorted({*shares} & {*losses}):
        raise RunTableError(f"{raw.name}: {joined(both)} would be weights and losses.", fix="Choose by --weights and --metric.")


def _shares(raw: RawTable, column: str, rows: Sequence[int], *, bad: BadCells) -> list[float]:
    cells = raw.cells[column].tolist()
    found = list[float]()
    for row in rows:
        number = number_in(cells[row])
        if number is None or not 0 <= number < math.inf:
            holds = f"holds {quoted(cells[row])!r}, which is not a weight of zero or more"
            bad.add(column, EMPTY if is_empty(cells[row]) else holds, row)
        found.append(math.nan if number is None else number)
    return found


def _require_one_size(raw: RawTable, rows: Sequence[int], *, but: Collection[str]) -> None:
    """Raise `RunTableError` if a column of FLOPs, parameters or tokens varies: a law over mixtures is of one size."""
    known = {spelled(alias) for name in ("flops", "params", "tokens") for alias in (name, *aliases_of(COLUMNS[name]))}
    for name in (each for each in raw.column_names() if spelled(each) in known and each not in but):
        cells = [number_in(raw.cells[name].tolist()[row]) for row in rows]
        sizes = [cell for cell in cells if cell is not None and cell > 0]
        if sizes and max(sizes) / min(sizes) > _SAME_SIZE:
            low, high = (format_number(end) for end in (min(sizes), max(sizes)))
            raise RunTableError(
                f"{raw.name}: column {quoted(name)!r} holds {low} to {high}.",
                why="Losses of mixtures are compared at one size and number of tokens.",
                fix=f"Choose one: --where {shlex.quote(quoted(f'{name}={high}'))}",
            )


def _adding_up(raw: RawTable, mixes: Array, rows: Sequence[int]) -> tuple[Array, tuple[str, ...]]:
    """Return weights that add up to one, and a note if rounded ones were normalized; `RunTableError` for all other rows."""
    whole = 100.0 if float(np.median(mixes.sum(1))) > 50 else 1.0
    shares = mixes / whole
    decimals = next((each for each in range(1, 9) if np.allclose(shares, shares.round(each), rtol=0, atol=1e-10)), 9)
    most = min(max(1e-5, mixes.shape[1] * 0.5 * 10.0**-decimals), 0.1) + 1e-9  # every weight rounded the same way
    sums = shares.sum(1)
    if (off := np.flatnonzero(np.abs(sums - 1) > most)).size:
        raise RunTableError(
            tuple(
                f"{raw.name}, {raw.places[rows[row]]}: the weights add up to {whole * sums[row]:.6g}, not {whole:g}."
                for row in off.tolist()
            ),
            why=f"Rounding of {mixes.shape[1]} weights explains a difference of {whole * most:.2g}.",
            fix=f"Fix the weights, or leave rows out: --drop {shlex.quote(quoted(raw.places[rows[int(off[0])]]))}",
        )
    rounded = int(np.sum(np.abs(sums - 1) > 1e-6))
    span = f"{sums.min():.4g} to {sums.max():.4g}"
    notes = (f"rounded weights add up to {span}: {counted(rounded, 'mixture')} normalized",) if rounded else ()
    return np.asarray(shares / sums[:, None]), notes


def _tried(raw: RawTable, domains: Sequence[str], mixes: Array) -> tuple[list[str], Array, tuple[str, ...]]:
    """Return the domains that some row has, their weights, and a note on the others; `RunTableError` for constant weights."""
    is_used = mixes.max(0) > 0
    if constant := [
        name for name, column, used in zip(domains, mixes.T, is_used, strict=True) if used and np.ptp(column) < 1e-9
    ]:
        raise RunTableError(
            f"{raw.name}: the weight of {joined(constant)} is the same in all {len(mixes)} rows.",
            why="No law tells what such a weight does.",
            fix="Vary the weight.",
        )
    unused = [name for name, used in zip(domains, is_used, strict=True) if not used]
    notes = (f"left out, because no row has any: {joined(unused)}",) if unused else ()
    return [name for name, used in zip(domains, is_used, strict=True) if used], mixes[:, is_used], notes


def _without_affix(names: Sequence[str]) -> list[str]:
    """Return names without the first or last word that all share.

    >>> _without_affix(["weight_web", "weight_pile_cc"]), _without_affix(["a_loss", "b/loss"]), _without_affix(["loss"])
    (['web', 'pile_cc'], ['a', 'b'], ['loss'])
    """
    starts, ends = {_PIECES.split(name)[0] for name in names}, {_PIECES.split(name)[-1] for name in names}
    short = list(names)
    if len(names) > 1 and len(starts) == 1:
        short = [name[len(next(iter(starts))) + 1 :] for name in names]
    elif len(names) > 1 and len(ends) == 1:
        short = [name[: -len(next(iter(ends))) - 1] for name in names]
    return short if all(short) and len(set(short)) == len(names) else list(names)
