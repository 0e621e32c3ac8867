"""Columns of a run table: their names in other people's files, the unit that a name states, and formulas for missing ones."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

from marin_scaling.errors import Finding, RunTableError, error, note
from marin_scaling.printable import joined, quoted
from marin_scaling.run.table_io import RawTable, chart_series, is_empty, number_in, plain_number
from marin_scaling.units import METRICS


class Cells(Enum):
    """Kind of values in the cells of a column."""

    NUMBERS = "positive numbers, one in every row"
    NUMBERS_OR_NOTHING = "positive numbers, or empty"
    TEXTS = "texts"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a run table.

    `aliases` are the names that other files give the column (`spelled` compares them). A `signed` column is part of statements.
    A law goes through runs that have one value in a column with `one_value`, which is what messages call the column. `stored`
    gives the value of a stored run; the column is left out of a store's table where all values are `usual`. An empty cell of a
    column with `if_empty` takes that number, or the number of that other column.
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
    if_empty: str | float | None = None


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOSS_KEYS = (
    "eval/paloma/macro_loss",
    "eval/macro_bpb",
    "eval/bpb",
    "eval/macro_loss",
    "eval/loss",
    "bits_per_byte",
    "val_bpb",
    "eval/lm/c4_en-validation/CE loss",
    "eval/c4_en-validation/CrossEntropyLoss",
    "val_loss",
    "validation_loss",
)
"""Losses that trackers log, the preferred one first."""

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column(
            name="run",
            meaning="name of the run",
            aliases=("run_name", "run_id", "name", "display_name", "experiment_name", "model_name", "trainer/id", "id"),
            cells=Cells.TEXTS,
            signed=True,
            stored=lambda run: run.spec.digest,
        ),
        Column(
            name="flops",
            meaning="training FLOPs",
            aliases=_words(
                "train_flops training_flops total_flops train_flops_incl_lm_head compute C "
                "throughput/total_gflops total_gflops throughput/total_training_gflops total_training_gflops "
                "total_training_flops model_flops"
            ),
            required=True,
            signed=True,
            stored=lambda run: run.record.flops,
        ),
        Column(
            name="params",
            meaning="parameters, all of them",
            aliases=_words(
                "total_params params_total parameters num_params n_params N parameter_count num_parameters "
                "total_parameters model_params model_size"
            ),
            required=True,
            signed=True,
            stored=lambda run: run.record.params_total,
        ),
        Column(
            name="active_params",
            meaning="parameters that a token passes",
            aliases=_words(
                "params_active num_active_params active_parameters active_parameter_count active_param_count "
                "num_active_parameters n_active_params activated_params activated_parameters Na"
            ),
            signed=True,
            stored=lambda run: run.record.params_active,
            usual=lambda run: run.record.params_total,
            if_empty="params",
        ),
        Column(
            name="tokens",
            meaning="trained tokens",
            aliases=_words(
                "train_tokens trained_tokens total_tokens num_tokens n_tokens D throughput/total_tokens "
                "tokens_trained training_tokens tokens_seen total_training_tokens"
            ),
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
            if_empty=1.0,
        ),
        Column(
            name="loss",
            meaning="final loss, in the unit of the metric",
            aliases=("final_loss", "eval_loss", "val_loss", "validation_loss", "test_loss", *LOSS_KEYS),
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
            stored=lambda run: run.record.tokens_per_second(run.spec.train_steps),
        ),
        Column(
            name="mfu",
            meaning="model FLOPs a second over the hardware's peak; above 1 it is in percent",
            aliases=("mfu_percent", "throughput/mfu"),
            cells=Cells.NUMBERS_OR_NOTHING,
        ),
        Column(
            name="lm_head_flops",
            meaning="training FLOPs of the output head, 6 x width x vocabulary x tokens",
            cells=Cells.NUMBERS_OR_NOTHING,
            stored=lambda run: run.spec.lm_head_flops,
        ),
        Column(
            name="seed",
            meaning="seed of the run",
            aliases=("trainer/seed", "random_seed"),
            cells=Cells.TEXTS,
            stored=lambda run: str(run.spec.seed),
        ),
        Column(
            name="status",
            meaning="state of the run",
            aliases=("state", "trial_status", "run_state"),
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
"""Every column of a run table: readers, importers, stores, statements and the reference page follow this table."""

STEP_NAMES = ("step", "_step", "global_step", "trainer/global_step")
"""Names of a training step in the history of a run."""


def aliases_of(column: Column) -> tuple[str, ...]:
    """Return the names that a table may give a column; for the loss, also every name of a metric."""
    if column.name != "loss":
        return column.aliases
    metrics = (name for metric in METRICS.values() for name in (metric.name, *metric.aliases))
    return tuple(dict.fromkeys((*column.aliases, *metrics)))


def spelled(name: str) -> str:
    """Return a name without case and with one sign between words; one or two letters, as in formulas, stay as they are.

    >>> spelled("throughput/total_tokens"), spelled("Total Params"), spelled("trainer.seed"), spelled("N")
    ('throughput_total_tokens', 'total_params', 'trainer_seed', 'N')
    """
    return name if len(name) <= 2 else re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


_FLOP_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18, "z": 1e21}
_LONG_UNITS = {"kilo": "k", "mega": "m", "giga": "g", "tera": "t", "peta": "p", "exa": "e", "zetta": "z"}
_COUNT_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_FLOPS_IN_NAME = re.compile(rf"(?:^|_)({'|'.join(_LONG_UNITS)}|[kmgtpez]?)_?(?:flops?|f)(?:_?s)?(_?days?|_?hours?)?(?:_|$)")
_COUNT_IN_NAME = re.compile(r"_(k|m|b|t|thousand|million|billion|trillion)s?$")
_DURATIONS = {"day": 86_400.0, "hour": 3_600.0}


def unit_of_name(column: str, name: str) -> float:
    """Return the factor that a name states for FLOPs, parameters or tokens: 1 where the name states none.

    >>> [unit_of_name("flops", name) for name in ("throughput/total_gflops", "total_training_Gflops", "PFLOP-days", "flops")]
    [1000000000.0, 1000000000.0, 8.64e+19, 1.0]
    >>> unit_of_name("params", "params_M"), unit_of_name("tokens", "tokens (B)"), unit_of_name("tokens", "total_tokens")
    (1000000.0, 1000000000.0, 1.0)
    """
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if column in ("flops", "budget_flops"):
        found = [match for match in _FLOPS_IN_NAME.finditer(word) if match[1] or match[2]]
        if not found:
            return 1.0
        scale = _FLOP_UNITS[_LONG_UNITS.get(found[-1][1], found[-1][1])]
        return scale * _DURATIONS.get((found[-1][2] or "").strip("_").rstrip("s"), 1.0)
    match = _COUNT_IN_NAME.search(word) if column in ("params", "active_params", "tokens") else None
    return _COUNT_UNITS[match[1]] if match else 1.0


FORMULAS = {"flops": "6ND", "tokens": "flops/6N", "params": "flops/6D"}
"""Formula that the user may choose for a column that a table lacks, as in `--column flops=6ND`."""
_FORMULA_SPELLINGS = {
    "flops": {"6nd", "6n*d", "6*n*d", "6xnxd"},
    "tokens": {"flops/6n", "flops/(6n)", "c/6n", "c/(6n)", "flops/6/n", "c/6/n"},
    "params": {"flops/6d", "flops/(6d)", "c/6d", "c/(6d)", "flops/6/d", "c/6/d"},
}


def formula_of(column: str, source: str) -> str:
    """Return the formula that a choice of a column means, or "".

    >>> formula_of("flops", "6 N D"), formula_of("tokens", "C/(6N)"), formula_of("flops", "cost")
    ('6ND', 'flops/6N', '')
    """
    return FORMULAS[column] if source.lower().replace(" ", "") in _FORMULA_SPELLINGS.get(column, ()) else ""


def computed(column: str, values: Mapping[str, float | None]) -> float | None:
    """Return the column's value by its formula, None if a factor is missing; N are the active parameters if they are known."""
    flops, tokens = values.get("flops"), values.get("tokens")
    params = values.get("active_params") or values.get("params")
    if column == "flops":
        return 6 * params * tokens if params and tokens else None
    if column == "tokens":
        return flops / (6 * params) if flops and params else None
    return flops / (6 * tokens) if flops and tokens else None


def with_formulas(
    raw: RawTable, chosen: Mapping[str, str], *, factors: Mapping[str, float]
) -> tuple[RawTable, dict[str, str], list[Finding]]:
    """Return the table with the column of each chosen formula, the choices with its name, and findings.

    A column that the table lacks is named by its formula; of a column that it has, only empty cells are computed.
    `RunTableError` if no cell is empty and the formula gives other numbers. `factors` gives the unit of a column where the user
    stated it; units of other columns are those of their names. Computed cells are in the unit of their column.
    """
    import pandas as pd

    formulas = {ours: formula_of(ours, theirs) for ours, theirs in chosen.items() if theirs not in raw.column_names()}
    formulas = {ours: formula for ours, formula in formulas.items() if formula}
    if not formulas:
        return raw, dict(chosen), []
    _refuse_circle(formulas)
    others = {ours: theirs for ours, theirs in chosen.items() if ours not in formulas}
    needed = [each for each in ("flops", "params", "tokens") if each not in formulas]
    mapping = map_columns(raw, chosen=others, required=needed, computed=formulas)
    numbers = {
        name: _numbers(raw.cells[mapping[name]].tolist(), factor=factors.get(name, unit_of_name(name, mapping[name])))
        for name in ("flops", "params", "active_params", "tokens")
        if name in mapping and name not in formulas
    }
    cells, names, notes = raw.cells.copy(), dict[str, str](), list[Finding]()
    for ours, formula in formulas.items():
        given = mapping.get(ours, "")
        factor = factors.get(ours, unit_of_name(ours, given) if given else 1.0)
        rows = [computed(ours, {name: values[row] for name, values in numbers.items()}) for row in range(len(cells))]
        rows = [None if number is None else number / factor for number in rows]
        if given:
            found = cells[given].tolist()
            _refuse_replacement(raw, ours, formula, given, computed_cells=rows, has_empty=any(map(is_empty, found)))
            notes += _of_empty_cells(given, ours, formula, cells=found, computed_cells=rows)
            rows = [number if is_empty(cell) else cell for cell, number in zip(found, rows, strict=True)]
        names[ours] = given or formula
        cells[names[ours]] = pd.Series(rows, index=cells.index, dtype=object)
    return RawTable(name=raw.name, cells=cells, places=raw.places), {**others, **names}, notes


_SAME_VALUE = 1e-3
LEAST_COUNT_SHIFT = 0.08
"""Conventions differ by more (8 N D against 6 N D: 33 %); attention and rounding move the count of one size by less."""

_LEAST_UNIT = 3.0  # a larger factor is a unit, which the audit of units names


def _of_empty_cells(
    given: str, ours: str, formula: str, *, cells: Sequence[Any], computed_cells: Sequence[float | None]
) -> list[Finding]:
    """Return a note of empty cells that were computed, and an error if the formula does not count as the other cells do."""
    pairs = [(number_in(cell), number) for cell, number in zip(cells, computed_cells, strict=True) if not is_empty(cell)]
    ratios = [cell / number for cell, number in pairs if cell and number and cell > 0]
    if not (empty := len(cells) - len(pairs)):
        return []
    filled = f"{empty} empty cells of column {given!r} were computed as {formula}"
    factor = statistics.median(ratios) if ratios else 1.0
    if not LEAST_COUNT_SHIFT <= abs(math.log(factor)) < math.log(_LEAST_UNIT):
        return [note("computed-cells", given, f"{filled}; the others are kept")]
    step = f"{filled}; the {len(ratios)} given ones are {factor:.3g} times {formula} in the median: two ways to count"
    fix = f"Remove the column {given!r} to compute all, or leave those out: --skip-incomplete without --column {ours}={formula}"
    return [error("flop-count", given, f"{step}. {fix}")]


def _refuse_replacement(
    raw: RawTable, ours: str, formula: str, given: str, *, computed_cells: Sequence[float | None], has_empty: bool
) -> None:
    """Raise `RunTableError` if every cell of a column is given and a formula would replace some by other values."""
    pairs = [(number_in(cell), number) for cell, number in zip(raw.cells[given].tolist(), computed_cells, strict=True)]
    known = [(place, cell, number) for place, (cell, number) in zip(raw.places, pairs, strict=True) if cell and number]
    other = [each for each in known if abs(each[1] / each[2] - 1) > _SAME_VALUE]
    if has_empty or not other:
        return
    place, cell, number = other[0]
    raise RunTableError(
        f"{raw.name}: column {quoted(given)!r} holds {ours} in every row, and {formula} gives other numbers in {len(other)} of "
        f"them: {number:.4g} instead of {cell:.4g} in {place}.",
        why="A formula computes only cells that are empty.",
        fix=f"Leave --column {ours}={formula} out; or remove the column {quoted(given)!r} from the table to compute it.",
    )


def _numbers(cells: Sequence[Any], *, factor: float) -> list[float | None]:
    numbers = (None if is_empty(cell) else number_in(cell) for cell in cells)
    return [None if number is None else number * factor for number in numbers]


def _refuse_circle(formulas: Mapping[str, str]) -> None:
    if len(formulas) > 1:
        raise RunTableError(
            f"{' and '.join(f'{ours}={formula}' for ours, formula in formulas.items())}: each formula needs the other column.",
            why="One of FLOPs, parameters and tokens can be computed from the two others.",
            fix="Choose one formula, and name the column that holds the other quantity.",
        )


def map_columns(
    raw: RawTable, *, chosen: Mapping[str, str], required: Sequence[str] | None = None, computed: Collection[str] = ()
) -> dict[str, str]:
    """Map our column names to those of the table, for all columns that are there; `chosen` holds the user's choices.

    Our own name wins. Of several candidates, those with numbers win over labels, and equal columns need no choice. All other
    ambiguous columns, and all missing required ones, are one `RunTableError`.

    >>> import pandas as pd
    >>> cells = pd.DataFrame([["1e18", "1e8", "1e9", "3", ""]], columns=["C", "N", "D", "eval/loss", "notes"])
    >>> map_columns(RawTable(name="runs.csv", cells=cells, places=("line 2",)), chosen={})
    {'flops': 'C', 'params': 'N', 'tokens': 'D', 'loss': 'eval/loss'}
    """
    _check_chosen(raw, chosen)
    mapping, unclear = dict[str, str](), dict[str, list[str]]()
    for column in COLUMNS.values():
        found = [chosen[column.name]] if column.name in chosen else candidates(column, raw)
        if len(found) > 1:
            unclear[column.name] = found
        elif found:
            mapping[column.name] = found[0]
    if "flops" not in mapping and "flops" not in unclear and "flops" not in computed and "budget_flops" in mapping:
        mapping = {"flops": mapping["budget_flops"], **mapping}
    needed = [each.name for each in COLUMNS.values() if each.required] if required is None else required
    missing = [name for name in needed if name not in mapping and name not in unclear]
    if missing or unclear:
        _refuse_mapping(raw, mapping, missing, unclear)
    return mapping


def candidates(column: Column, raw: RawTable) -> list[str]:
    """Return the columns of the table that may hold one of ours: none, one, or several that differ."""
    names = raw.column_names()
    alike = [name for name in names if _key(name) == spelled(column.name)]
    exact = [column.name] if column.name in names else alike
    known = [spelled(alias) for alias in aliases_of(column)]
    others = [name for name in names if name not in exact and _key(name) in known]
    if column.cells is Cells.TEXTS:
        by_preference = sorted(others, key=lambda name: known.index(_key(name)))
        return exact[:1] or by_preference[:1] if column.name in ("run", "seed") else exact or others
    if exact and (not others or any(_holds_numbers(raw, name) for name in exact)):
        return _distinct(raw, exact)
    if len(found := [*exact, *others]) < 2:
        return found
    return _distinct(raw, [name for name in found if _holds_numbers(raw, name)] or found)


def _key(name: str) -> str:
    """Return the spelling of a name without the prefix of a summary in W&B."""
    return spelled(name).removeprefix("summary_")


def _holds_numbers(raw: RawTable, name: str) -> bool:
    """Return True if some cell is a plain number and none is a label such as 28M."""
    cells = [cell for cell in raw.cells[name].tolist() if not is_empty(cell)]
    return bool(cells) and all(plain_number(cell) is not None for cell in cells)


def _distinct(raw: RawTable, names: list[str]) -> list[str]:
    """Return the names, or the first alone if all these columns hold the same values."""
    if len(names) < 2:
        return names
    columns = [[plain_number(cell) if not is_empty(cell) else None for cell in raw.cells[name].tolist()] for name in names]
    return names[:1] if all(column == columns[0] for column in columns) else names


_SHOWN, _MOST_LOSSES = 12, 4
_HINTS = {
    "flops": ("flop", "compute", "cost"),
    "params": ("param", "size", "weights"),
    "tokens": ("token", "seen", "sample"),
    "loss": ("loss", "bpb", "nll", "entropy", "ppl", "perplexity", "bits", "score"),
}


def _refuse_mapping(
    raw: RawTable, mapping: Mapping[str, str], missing: Sequence[str], unclear: Mapping[str, Sequence[str]]
) -> NoReturn:
    if chart := chart_series(raw.column_names()):
        raise RunTableError(
            f"{raw.name} is a chart exported by W&B: {quoted(chart[0].metric)} by step of "
            f"{joined(dict.fromkeys(each.run for each in chart))}, not a table with a run in each row.",
            fix=f"Follow a run by its curve: marin-scale track {raw.name} --against PREREGISTRATION. For a fit, export the "
            "project's table of runs.",
        )
    lines, options = list[str](), list[str]()
    losses = _by_bias(unclear.get("loss", ()))
    for column, names in unclear.items():
        named = " and ".join(repr(quoted(each)) for each in names)
        lines.append(f"{raw.name}: {named} could each be the column {column!r}.")
        options.append(f"--column {_argument(column, (losses if column == 'loss' else names)[0])}")
    if missing:
        near = {column: _nearest(column, raw, mapping) for column in missing}
        if "loss" in near:
            losses = near["loss"] = _by_bias(near["loss"])
        named = ", ".join(map(repr, missing))
        has = joined(_most_telling(raw, near), most=_SHOWN)
        lines.append(f"{raw.name} has no column {named}, nor one that is known to mean it; it has: {has}.")
        options += [f"--column {_argument(column, names[0] if names else 'NAME')}" for column, names in near.items()]
    raise RunTableError(
        tuple(lines), fix=f"Name the columns: {' '.join(options)}{_other_losses(losses)}{_other_ways(raw, mapping, missing)}"
    )


_BIASES = {r"best|min": "best checkpoint, which is biased low", r"train|training": "training text, not held out"}


def _bias(name: str) -> str:
    """Return why a column is no final validation loss, by its name; "" if nothing speaks against it."""
    return next((why for word, why in _BIASES.items() if re.search(rf"(^|_)({word})(_|$)", spelled(name))), "")


def _by_bias(names: Sequence[str]) -> list[str]:
    """Return losses in the order of preference: final validation losses, training losses, those of the best checkpoint.

    >>> _by_bias(["val/loss_best", "train/loss", "my/val/loss"])
    ['my/val/loss', 'train/loss', 'val/loss_best']
    """
    return sorted(names, key=lambda name: ["", *reversed(_BIASES.values())].index(_bias(name)))


def _other_losses(names: Sequence[str]) -> str:
    """Return the further losses of a table, with what speaks against each."""
    others = [f"{name} ({why})" if (why := _bias(name)) else name for name in names[1:]]
    return f"; further losses: {joined(others, most=_MOST_LOSSES)}" if others else ""


def _argument(column: str, name: str) -> str:
    return shlex.quote(f"{column}={quoted(name)}")


def _most_telling(raw: RawTable, near: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the table's columns; of many, those that resemble a missing one come first."""
    names = raw.column_names()
    first = [name for found in near.values() for name in found] if len(names) > _SHOWN else []
    return list(dict.fromkeys([*first, *names]))


def _nearest(column: str, raw: RawTable, mapping: Mapping[str, str]) -> list[str]:
    """Return columns whose names resemble those of a missing column; the most similar one comes first."""
    free = {spelled(name): name for name in raw.column_names() if name not in mapping.values() and "batch" not in name.lower()}
    known = [spelled(alias) for alias in (column, *aliases_of(COLUMNS[column]))]
    hinted = [name for name in free if any(hint in name.lower() for hint in _HINTS.get(column, ()))]
    likeness = {name: max(difflib.SequenceMatcher(None, name, alias).ratio() for alias in known) for name in hinted}
    return [free[name] for name in sorted(hinted, key=lambda name: -likeness[name])]


def _other_ways(raw: RawTable, mapping: Mapping[str, str], missing: Sequence[str]) -> str:
    """Return the formula that fits the table's columns, and the importer where the rows are steps of a run."""
    others = {each: FORMULAS.keys() - {each} for each in missing if each in FORMULAS}
    formula = next((f"{each}={FORMULAS[each]}" for each, needed in others.items() if needed <= mapping.keys()), "")
    ways = [f"compute it from the other two: --column {formula}"] if formula else []
    if not formula and "flops" in missing:
        ways.append("if FLOPs are nowhere in the table, compute them: --column flops=6ND")
    if "params" in missing and (active := mapping.get("active_params")):
        ways.append(f"for a dense model the same column serves: --column {_argument('params', active)}")
    if missing and step_column(raw.column_names()):
        ways.append(f"where the rows are steps of runs, take the last of each: marin-scale import {raw.name} --out TABLE.csv")
    return "".join(f"; or {way}" for way in ways)


def step_column(names: Sequence[str]) -> str | None:
    """Return the column that counts training steps, or None."""
    steps = {spelled(name) for name in STEP_NAMES}
    return next((name for name in names if spelled(name) in steps), None)


def _check_chosen(raw: RawTable, chosen: Mapping[str, str]) -> None:
    faults, fixes = list[str](), list[str]()
    for column, source in chosen.items():
        if column not in COLUMNS:
            faults.append(f"{quoted(column)!r} is no column of a run table.")
            fixes.append(f"choose for one of: {', '.join(COLUMNS)}")
        elif source not in raw.column_names():
            faults.append(f"{raw.name} has no column {quoted(source)!r}; it has: {joined(raw.column_names(), most=_SHOWN)}.")
            fixes.append(f"name a column that holds it: --column {_argument(column, _choice_instead(raw, column, source))}")
    for source in dict.fromkeys(chosen.values()):
        columns = [ours for ours in chosen if chosen[ours] == source]
        if len(columns) > 1 and set(columns) != {"flops", "budget_flops"}:
            faults.append(f"The column {quoted(source)!r} is taken for {' and for '.join(columns)}.")
            fixes.append("name another column for one of them")
    if faults:
        fix = "; ".join(fixes)
        raise RunTableError(
            tuple(faults), why="Nothing is guessed about what a column means.", fix=f"{fix[:1].upper()}{fix[1:]}."
        )


def _choice_instead(raw: RawTable, column: str, source: str) -> str:
    """Return what to choose instead of a column that is not there: one with a near name, a formula, or NAME."""
    names = [name for name in raw.column_names() if COLUMNS[column].cells is Cells.TEXTS or _holds_numbers(raw, name)]
    near = difflib.get_close_matches(source, names, n=1)
    return near[0] if near else FORMULAS.get(column, "NAME")
