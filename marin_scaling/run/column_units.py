"""Units of a table: of FLOPs, parameters and tokens by FLOPs / (6 x parameters x tokens) and column names, and of losses.

Training N active parameters on D tokens takes about 6 N D FLOPs (Kaplan et al. 2020, section 2.1). Attention, embeddings and
recomputation move the ratio within `PLAUSIBLE`; a unit moves it by a known power of ten.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import Finding, RunTableError, UsageError, error, note, warning
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted
from marin_scaling.run.audit import (
    LEAST_RUNS_OF_SURFACE,
    drop_options,
    least_absolute_surface,
    name_some,
    quadratic_in,
)
from marin_scaling.run.columns import formula_of, unit_of_name
from marin_scaling.run.groups import evenly_spread
from marin_scaling.run.table_io import RawTable
from marin_scaling.units import format_number, says_perplexity

if TYPE_CHECKING:
    import pandas as pd


PLAUSIBLE = (0.3, 3.0)
"""Bounds of FLOPs / (6 N D): Marin's mixtures with 4,096 tokens of context reach 2.4, dense ladders lie within 0.98 to 1.45."""

FLOP_UNITS = {
    "GFLOPs": 1e9,
    "TFLOPs": 1e12,
    "PFLOPs": 1e15,
    "EFLOPs": 1e18,
    "ZFLOPs": 1e21,
    "PFLOP/s-days": 8.64e19,
    "TFLOP/s-days": 8.64e16,
    "MFLOPs": 1e6,
    "kFLOPs": 1e3,
}
COUNT_UNITS = {"thousands": 1e3, "millions": 1e6, "billions": 1e9, "trillions": 1e12}
LOSS_UNITS = {"perplexity": math.nan, "bits": math.log(2), "nats": 1.0}
"""Unit of a loss, and the factor that gives nats; NaN: its logarithm gives them."""
UNITS: dict[str, Mapping[str, float]] = {
    "flops": FLOP_UNITS,
    "params": COUNT_UNITS,
    "tokens": COUNT_UNITS,
    "loss": LOSS_UNITS,
}
_UNIT_OF_FACTOR = {role: {factor: unit for unit, factor in UNITS[role].items()} for role in ("flops", "params", "tokens")}

_OFF = 10.0
"""Median FLOPs / (6 N D) beyond this factor are refused: a unit, swapped columns, or experts that a token does not pass."""

_ROW_OFF = 30.0
"""A row this far off the plausible ones is in another unit; tables without faults spread by a factor of five at most."""

_SHOWN = 3
_SAME_COUNT = 0.01
_LEAST_UNNAMED_UNIT = 1e6  # a run can have done a thousandth of its tokens, and a millionth is less than a step
_SAME_BUDGET = 3.0

_PARAMS_RANGE, _TOKENS_RANGE = (100.0, 1e15), (1e4, 1e17)
"""Parameters and tokens of training runs, toy models to trillions: a choice of units that leaves these is none."""
_TOKENS_PER_PARAM_RANGE = (1e-4, 1e6)
"""Median tokens per parameter: 1.9 to 57 in 21 known tables; a count in millions or billions is off by 1e6 or more."""
_USUAL_PARAMS, _USUAL_TOKENS, _USUAL_TOKENS_PER_PARAM = (1e5, 1e13), (1e7, 1e15), (0.5, 2000.0)


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Unit of each column ("" for one by one)."""

    flops: str = ""
    params: str = ""
    tokens: str = ""

    @property
    def units(self) -> dict[str, str]:
        """The columns in another unit, with that unit."""
        named = {"flops": self.flops, "params": self.params, "tokens": self.tokens}
        return {column: unit for column, unit in named.items() if unit}

    def factor(self, column: str) -> float:
        """Return the number by which a column is multiplied."""
        return UNITS[column].get(getattr(self, column), 1.0)

    @property
    def ratio(self) -> float:
        """The factor by which the units multiply FLOPs / (6 N D)."""
        return self.factor("flops") / (self.factor("params") * self.factor("tokens"))

    def __str__(self) -> str:
        return " and ".join(f"{column} in {unit}" for column, unit in self.units.items())


def is_plausible(ratio: float | Array) -> NDArray[np.bool_]:
    """Return which ratios FLOPs / (6 N D) training can have."""
    return np.asarray((np.asarray(ratio) > PLAUSIBLE[0]) & (np.asarray(ratio) < PLAUSIBLE[1]))


def scales_by_name(names: Mapping[str, str], *, ratio: float | None, params: float, tokens: float) -> Scales | None:
    """Return the units that column names state and the numbers confirm; None if no choice, or more than one, is confirmed.

    `names` gives the table's names of `flops`, `params` and `tokens`; the numbers are those of the median run, with `ratio` for
    FLOPs / (6 N D), None if FLOPs are unknown. Any of the units in the names may be confirmed: a column `tokens_B` may hold
    tokens one by one.

    >>> scales_by_name({"flops": "total_gflops", "params": "N", "tokens": "D"}, ratio=1.1e-9, params=1e8, tokens=2e9)
    Scales(flops='GFLOPs', params='', tokens='')
    """
    factors = {role: unit_of_name(role, name) for role, name in names.items()}
    stated = Scales(**{role: _UNIT_OF_FACTOR[role].get(factor, "") for role, factor in factors.items()})
    for count in range(len(stated.units), -1, -1):
        kept = [Scales(**{c: stated.units[c] for c in chosen}) for chosen in itertools.combinations(stated.units, count)]
        confirmed = [each for each in kept if _fits(each, ratio=ratio, params=params, tokens=tokens)]
        if confirmed:
            return confirmed[0] if len(confirmed) == 1 else None
    return None


def scales_by_number(*, ratio: float, params: float, tokens: float) -> list[Scales]:
    """Return the units that make one run's FLOPs / (6 N D) plausible, the likeliest first.

    >>> [str(scales) for scales in scales_by_number(ratio=1.1e-9, params=1e8, tokens=2e9)][:1]
    ['flops in GFLOPs']
    """
    choices = itertools.product(("", *FLOP_UNITS), ("", *COUNT_UNITS), ("", *COUNT_UNITS))
    found = [Scales(flops=flops, params=n, tokens=d) for flops, n, d in choices]
    fitting = [each for each in found if each.units and _fits(each, ratio=ratio, params=params, tokens=tokens)]
    return sorted(fitting, key=lambda each: (not _is_usual(each, params=params, tokens=tokens), len(each.units)))


def _is_usual(scales: Scales, *, params: float, tokens: float) -> bool:
    params, tokens = params * scales.factor("params"), tokens * scales.factor("tokens")
    return (
        _USUAL_PARAMS[0] <= params <= _USUAL_PARAMS[1]
        and _USUAL_TOKENS[0] <= tokens <= _USUAL_TOKENS[1]
        and _USUAL_TOKENS_PER_PARAM[0] <= tokens / params <= _USUAL_TOKENS_PER_PARAM[1]
    )


def _fits(scales: Scales, *, ratio: float | None, params: float, tokens: float) -> bool:
    sized = has_sizes(params * scales.factor("params"), tokens * scales.factor("tokens"))
    return (ratio is None or bool(is_plausible(ratio * scales.ratio))) and sized


def has_sizes(params: float, tokens: float) -> bool:
    """Return True if a training run can have so many parameters and tokens.

    >>> has_sizes(28.5, 5.9), has_sizes(2.85e7, 5.9e9)
    (False, True)
    """
    return (
        _PARAMS_RANGE[0] <= params <= _PARAMS_RANGE[1]
        and _TOKENS_RANGE[0] <= tokens <= _TOKENS_RANGE[1]
        and _TOKENS_PER_PARAM_RANGE[0] <= tokens / params <= _TOKENS_PER_PARAM_RANGE[1]
    )


def rows_beyond_64_bits(flops: Array, params: Array, tokens: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows whose FLOPs are 6 N D modulo 2^64, and those that overflowed otherwise; all arrays are (run,).

    The numbers of the first kind prove that FLOPs were 6 N D. A row of the second kind has 6 N D above 2^63 and FLOPs below it
    that do not fit; it counts only if FLOPs of all smaller runs fit, and those of no other run above 2^63.

    >>> size, tokens = np.array([1e8, 1e9, 2e9]), np.array([1e9, 1e9, 2e9])
    >>> rows_beyond_64_bits(np.array([6e17, 6e18, 24e18 - 2.0**64]), size, tokens)
    (array([2]), array([], dtype=int64))
    """
    exact = 6 * params * tokens
    beyond = (exact > 2.0**63) & (params < 2.0**63) & (tokens < 2.0**63)
    left = (np.uint64(6) * _whole(params, beyond) * _whole(tokens, beyond)).astype(np.float64)
    wrong = beyond & (np.abs(flops - exact) > 1e-6 * exact)
    equal = wrong & (np.minimum(np.abs(flops - left), np.abs(flops - left + 2.0**64)) <= 1e-9 * exact)
    fits = (flops > PLAUSIBLE[0] * exact) & (flops < PLAUSIBLE[1] * exact)
    others = beyond & ~equal & ~fits & (np.abs(flops) < 2.0**63)
    small = fits[~beyond]
    return np.flatnonzero(equal), np.flatnonzero(others & (len(small) > 0) & bool(small.all()) & ~(beyond & fits).any())


def _whole(counts: Array, chosen: NDArray[np.bool_]) -> NDArray[np.uint64]:
    return np.round(np.where(chosen, counts, 0.0)).astype(np.uint64)


def unit_named(column: str, unit: str) -> str:
    """Return the unit of `UNITS` that a user means; `UsageError` lists those there are.

    >>> unit_named("flops", "gflops"), unit_named("tokens", "B")
    ('GFLOPs', 'billions')
    """
    known = UNITS[column]
    plain = unit.lower().rstrip("s")
    found = [each for each in known if each.lower().rstrip("s") == plain or (known is COUNT_UNITS and each[0] == plain[:1])]
    if len(found) != 1:
        raise UsageError(
            f"{unit!r} is not a unit of {column}.",
            fix=f"Choose one of {', '.join(known)}, as in --unit {column}={next(iter(known))}.",
        )
    return found[0]


def unit_of_tokens(name: str, count: float, whole: float) -> str:
    """Return the unit in which a log counts tokens, "" for one by one, from its last `count` and the `whole` number of the run.

    A count that agrees with the whole number within 1 % shows its unit from millions on. Any other count has the unit in its
    `name`, unless it would exceed the whole number.

    >>> unit_of_tokens("tokens", 186.2, 1.86e11), unit_of_tokens("tokens_B", 93.0, 1.86e11), unit_of_tokens("D", 93.0, 1.86e11)
    ('billions', 'billions', '')
    """
    named = unit_of_name("tokens", name)
    units = ((unit, factor) for unit, factor in COUNT_UNITS.items() if factor >= _LEAST_UNNAMED_UNIT)
    same = (unit for unit, factor in units if abs(count * factor / whole - 1) <= _SAME_COUNT)
    return next(same, _UNIT_OF_FACTOR["tokens"].get(named, "") if count * named <= (1 + _SAME_COUNT) * whole else "")


def convert_units(
    frame: pd.DataFrame, *, names: Mapping[str, str], units: Mapping[str, str], keep: Collection[str] = ()
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the table in FLOPs, parameters and tokens, and findings; an error among them says that no unit is certain.

    `names` gives the table's name of each column, `units` what the user states of some. Runs named in `keep` are not judged.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"run": ["a", "b"], "flops": [6e9, 7e9], "params": [1e9] * 2, "tokens": [1e9] * 2})
    >>> converted, found = convert_units(frame, names={"flops": "total_gflops"}, units={})
    >>> converted["flops"].tolist(), found[0].severity.value, found[0].where
    ([6e+18, 7e+18], 'note', 'total_gflops')
    """
    judged = ~frame["run"].isin(list(keep)).to_numpy()
    if not judged.any():
        return frame, []
    stated = Scales(**_size_units(units))
    frame, findings = _scaled(frame, stated, names) if stated.units else (frame, [])
    if not stated.units:
        scales = scales_by_name(names_of_sizes(frame, names), **_typical(frame[judged])) or Scales()
        frame, findings = _scaled(frame, scales, names)
    frame, others = _other_columns(frame, names)
    return frame, [*findings, *others, *_contradictions(frame[judged], names)]


def convert_target_units(frame: pd.DataFrame, *, names: Mapping[str, str], units: Mapping[str, str]) -> pd.DataFrame:
    """Return runs to forecast in FLOPs, parameters and tokens; cells may be NaN.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"flops": [float("nan")], "params": [7.0], "tokens": [1.4]})
    >>> convert_target_units(frame, names={"params": "params_B", "tokens": "tokens_T"}, units={})[["params", "tokens"]].values
    array([[7.0e+09, 1.4e+12]])
    """
    theirs, scales = names_of_sizes(frame, names), Scales(**_size_units(units))
    sized = frame.dropna(subset=[_size(frame), "tokens"])
    if not scales.units and sized.empty:
        factor = unit_of_name("flops", theirs["flops"])
        scales = Scales(flops=_UNIT_OF_FACTOR["flops"].get(factor, ""))
    elif not scales.units:
        whole = sized.dropna(subset=["flops"])
        typical = _typical(sized if whole.empty else whole)
        ratio = None if whole.empty else typical["ratio"]
        scales = scales_by_name(theirs, ratio=ratio, params=typical["params"], tokens=typical["tokens"]) or Scales()
    return _other_columns(_scaled(frame, scales, names)[0], names)[0]


def _size_units(units: Mapping[str, str]) -> dict[str, str]:
    return {column: unit_named(column, unit) for column, unit in units.items() if column in _UNIT_OF_FACTOR}


def stated_factors(units: Mapping[str, str]) -> dict[str, float]:
    """Return the factor of each stated unit of FLOPs, parameters (active ones too) and tokens.

    >>> stated_factors({"params": "millions", "loss": "bits"})
    {'params': 1000000.0, 'active_params': 1000000.0}
    """
    factors = {column: UNITS[column][unit] for column, unit in _size_units(units).items()}
    return factors | ({"active_params": factors["params"]} if "params" in factors else {})


def names_of_sizes(frame: pd.DataFrame, names: Mapping[str, str]) -> dict[str, str]:
    """Return the table's names of FLOPs, of the parameters that a token passes, and of tokens."""
    return {"flops": names.get("flops", ""), "params": names.get(_size(frame), ""), "tokens": names.get("tokens", "")}


def _size(frame: pd.DataFrame) -> str:
    return "active_params" if "active_params" in frame else "params"


def _ratio(frame: pd.DataFrame) -> Array:
    flops, params, tokens = (frame[name].to_numpy(dtype=np.float64) for name in ("flops", _size(frame), "tokens"))
    return np.asarray(flops / (6 * params * tokens))


def _typical(frame: pd.DataFrame) -> dict[str, float]:
    params, tokens = (float(frame[name].median()) for name in (_size(frame), "tokens"))
    return {"ratio": float(np.median(_ratio(frame))), "params": params, "tokens": tokens}


def _scaled(frame: pd.DataFrame, scales: Scales, names: Mapping[str, str]) -> tuple[pd.DataFrame, list[Finding]]:
    findings = []
    for role, unit in scales.units.items():
        column = _size(frame) if role == "params" else role
        frame = frame.assign(**{column: frame[column] * scales.factor(role)})
        findings.append(_converted(names.get(column, column), unit, scales.factor(role)))
    return frame, findings


def _converted(column: str, unit: str, factor: float) -> Finding:
    return note("converted-unit", column, f"column {column!r} holds {unit}: multiplied by {format_number(factor)}")


def _other_columns(frame: pd.DataFrame, names: Mapping[str, str]) -> tuple[pd.DataFrame, list[Finding]]:
    """Convert total parameters and nominal budgets, whose active parameters and FLOPs say what they have to be about."""
    findings = []
    if "active_params" in frame:
        factor = _unit_factor(COUNT_UNITS, float((frame["params"] / frame["active_params"]).median()), low=0.95, high=900.0)
        if factor:
            frame = frame.assign(params=frame["params"] * COUNT_UNITS[factor])
            findings.append(_converted(names.get("params", "params"), factor, COUNT_UNITS[factor]))
    if "budget_flops" in frame:
        off = float((frame["budget_flops"] / frame["flops"]).median())
        factor = _unit_factor(FLOP_UNITS, off, low=1 / _SAME_BUDGET, high=_SAME_BUDGET)
        if factor:
            frame = frame.assign(budget_flops=frame["budget_flops"] * FLOP_UNITS[factor])
            findings.append(_converted(names.get("budget_flops", "budget_flops"), factor, FLOP_UNITS[factor]))
    return frame, findings


def _unit_factor(units: Mapping[str, float], ratio: float, *, low: float, high: float) -> str:
    """Return the unit that brings a ratio between two bounds; "" if the ratio lies there, or none does."""
    if low <= ratio <= high:
        return ""
    return next((unit for unit, factor in units.items() if low <= ratio * factor <= high), "")


def _contradictions(frame: pd.DataFrame, names: Mapping[str, str]) -> list[Finding]:
    ratio, typical = _ratio(frame), _typical(frame)
    sound = (ratio > 1 / _OFF) & (ratio < _OFF)
    of_sound = _typical(frame[sound]) if sound.any() else typical
    if not sound.any() or not has_sizes(of_sound["params"], of_sound["tokens"]):
        return [_whole_table(frame, typical, names)]
    centre = float(np.median(ratio[sound]))
    off = np.abs(np.log(ratio / centre)) > np.log(_ROW_OFF)
    if off.any():
        return _rows(frame, ratio, off)
    median = typical["ratio"]
    if not 1 / _OFF < median < _OFF:
        return [_whole_table(frame, typical, names)]
    return []


def _whole_table(frame: pd.DataFrame, typical: Mapping[str, float], names: Mapping[str, str]) -> Finding:
    theirs = names_of_sizes(frame, names)
    of_formula = {role: "" for role, name in theirs.items() if formula_of(role, name)}
    candidates = [replace(each, **of_formula) for each in scales_by_number(**typical)]
    options = [f"{each} ({_unit_options(each)})" for each in candidates[:_SHOWN] if len(each.units) == len(candidates[0].units)]
    if 1e-3 < typical["ratio"] < 1 and "active_params" not in frame:
        options.append("experts that a token does not pass counted in params (--column active_params=NAME)")
    if not candidates:
        options.append("two columns swapped (--column params=NAME --column tokens=NAME)")
    columns = ", ".join(f"{role} from {name!r}" for role, name in theirs.items() if name)
    said = f"params {format_number(typical['params'], 3)} and tokens {format_number(typical['tokens'], 3)} in the median run"
    return error(
        "units",
        "flops",
        f"FLOPs are {typical['ratio']:,.2g} times 6 x params x tokens ({said}; {columns}), and there are "
        f"{typical['tokens'] / typical['params']:,.2g} tokens per parameter. Possible: {'; or '.join(options)}",
    )


def _unit_options(scales: Scales) -> str:
    return " ".join(f"--unit {column}={unit}" for column, unit in scales.units.items())


def _rows(frame: pd.DataFrame, ratio: Array, off: NDArray[np.bool_]) -> list[Finding]:
    """One error for each unit that some rows are in."""
    sizes = {"params": frame[_size(frame)].to_numpy(), "tokens": frame["tokens"].to_numpy(), "flops": frame["flops"].to_numpy()}
    groups: dict[str, list[int]] = {}
    for row in np.flatnonzero(off):
        params, tokens = (float(sizes[name][row]) for name in ("params", "tokens"))
        found = scales_by_number(ratio=float(ratio[row]), params=params, tokens=tokens)
        likely = [
            each
            for each in found
            if all(_among(values[row] * each.factor(name), values[~off]) for name, values in sizes.items())
        ]
        found = likely or found
        units = " or ".join(str(each) for each in found[:2] if len(each.units) == len(found[0].units))
        groups.setdefault(units, []).append(int(row))
    centre = float(np.median(ratio[~off]))
    return [_error_of_rows(frame, ratio, rows, unit, centre) for unit, rows in groups.items()]


def _among(value: float, others: Array) -> bool:
    return bool(others.min() / _ROW_OFF <= value <= others.max() * _ROW_OFF)


def _error_of_rows(frame: pd.DataFrame, ratio: Array, rows: Sequence[int], unit: str, centre: float) -> Finding:
    runs = [str(frame["run"].iloc[row]) for row in rows]
    named = ", ".join(runs[:_SHOWN]) + (f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else "")
    suspected = f"; their {unit}?" if unit else ""
    return error(
        "units",
        named,
        f"FLOPs are {float(np.median(ratio[list(rows)])):.2g} of 6 x params x tokens in {len(runs)} of {len(frame)} runs, and "
        f"{centre:.2g} in others: {named}{suspected}",
    )


def mend_overflow(raw: RawTable, mapping: Mapping[str, str], *, rows: Sequence[int]) -> tuple[RawTable, list[Finding]]:
    """Return a table with 6 N D for FLOPs that overflowed 64-bit integers, which may be negative, and the finding.

    FLOPs that are 6 N D modulo 2^64 to nine digits cannot be anything else; other overflows are an error.
    """
    import pandas as pd

    columns = {"flops": "flops", "params": "active_params" if "active_params" in mapping else "params", "tokens": "tokens"}
    cells = [pd.to_numeric(raw.cells[mapping[name]].iloc[list(rows)], errors="coerce") for name in columns.values()]
    frame = pd.DataFrame(dict(zip(columns, cells, strict=True))).dropna()
    flops, params, tokens = (frame[name].to_numpy(dtype=np.float64) for name in columns)
    equal, others = rows_beyond_64_bits(flops, params, tokens)
    if not len(equal) and not len(others):
        return raw, []
    findings = []
    if len(equal):
        message = (
            f"FLOPs of {len(equal)} runs are 6 x params x tokens modulo 2^64 (int64 overflow): 6 x params x tokens is used"
        )
        findings.append(warning("int64-overflow", mapping["flops"], message))
    if len(others):
        places = joined([raw.places[frame.index[row]] for row in others], most=_SHOWN)
        message = f"FLOPs of {len(others)} runs with 6 x params x tokens above 2^63 are too small (int64 overflow): {places}"
        findings.append(error("int64-overflow", mapping["flops"], message))
    changed = raw.cells.copy()
    changed[mapping["flops"]] = changed[mapping["flops"]].astype(object)
    changed.loc[frame.index[equal], mapping["flops"]] = (6 * params[equal] * tokens[equal]).tolist()
    return replace(raw, cells=changed), findings


_BITS_PER_NAT = 1 / math.log(2)
_LARGEST_LOSS = 12.6
"""ln of 300,000: a model that knows nothing of so large a vocabulary has this loss in nats per token."""
_LARGE_SHARE = 0.2

_CLEARER = 4.0
"""Two units count as found if they reduce the scatter about a smooth surface by this factor. Of the generated tables of
`benchmarks/audit_tables.py` those without a fault have at most 1.005, and 99 % of those with bits among nats more than 17."""
_GAP = 0.5
"""Least distance between the two kinds of runs on that surface, as a share of the step between the units."""
_SAME_STEP = 0.02
"""Two kinds of runs whose losses are 2 % more or less apart than two units are no two units."""
_MOST_CUTS = 32
_MOST_STEPS = 20
_ALIKE = math.log(1.5)
"""Logarithms of perplexities and losses of one table are so near each other, at least in the median."""


def audit_loss_unit(frame: pd.DataFrame, *, column: str, stated: str = "") -> list[Finding]:
    """Return an error if losses are perplexities, by name or level, or if some runs are in another unit than the others.

    `stated` is the user's word for the unit of the column; runs of another unit are found nevertheless.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"run": ["a", "b"], "loss": [34.0, 21.0]})
    >>> audit_loss_unit(frame, column="val_ppl")[0].code
    'loss-unit'
    """
    if mixed := _two_units(frame):
        return mixed
    if stated:
        return []
    loss = frame["loss"].to_numpy(dtype=np.float64)
    convert = "State the unit to take logarithms: --unit loss=perplexity"
    if says_perplexity(column):
        return [error("loss-unit", column, f"column {quoted(column)!r} holds perplexities, not losses. {convert}")]
    large = loss > _LARGEST_LOSS
    if large.sum() > max(1, _LARGE_SHARE * len(loss)):
        message = f"{large.sum()} of {len(loss)} losses exceed {_LARGEST_LOSS}, the logarithm of a vocabulary of 300,000"
        return [error("loss-unit", column, f"{message}: perplexities in column {quoted(column)!r}? {convert}")]
    return []


def loss_in_nats(frame: pd.DataFrame, unit: str, *, column: str) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the table with its losses, which are in `unit`, in nats, and a note; `RunTableError` for a perplexity below 1."""
    unit = unit_named("loss", unit)
    loss = frame["loss"].to_numpy(dtype=np.float64)
    if unit != "perplexity":
        how = "taken as nats" if unit == "nats" else "multiplied by ln 2"
        return frame.assign(loss=loss * LOSS_UNITS[unit]), [note("converted-unit", column, f"losses in {unit} were {how}")]
    if not (loss > 1).all():
        low = frame["run"][loss <= 1].iloc[0]
        raise RunTableError(
            f"column {column!r} holds {loss.min():g} for {low}, which is no perplexity.",
            why="A perplexity is the exponential of a loss above zero.",
            fix="Leave --unit loss=perplexity out, or fix the cell.",
        )
    message = "losses are the natural logarithms of the perplexities"
    return frame.assign(loss=np.log(loss)), [note("converted-unit", column, f"{message} in column {column!r}")]


def _two_units(frame: pd.DataFrame) -> list[Finding]:
    """Return an error that names the fewer runs of a table in two units of loss; none if one unit explains all."""
    loss = frame["loss"].to_numpy(dtype=np.float64)
    names = [str(name) for name in frame["run"]]
    if not (loss > 0).all():
        return []
    if len(loss) < LEAST_RUNS_OF_SURFACE:
        rows = _perplexities_by_level(loss)
    else:
        terms = quadratic_in(*(np.log10(frame[name].to_numpy(dtype=np.float64)) for name in ("flops", "params")))
        if (bits := _in_bits(frame, terms)).any():
            return [_mixed(names, bits, f"{_BITS_PER_NAT:.2f} = 1 / ln 2 times those of the others (bits and nats)")]
        rows = _perplexities(loss, terms) | _perplexities_by_level(loss)
    return [_mixed(names, rows, "perplexities and those of the others are not")] if rows.any() else []


def _mixed(names: Sequence[str], rows: NDArray[np.bool_], what: str) -> Finding:
    fewer = rows if 2 * rows.sum() <= len(rows) else ~rows
    named = name_some([names[row] for row in np.flatnonzero(fewer).tolist()])
    which = named if fewer is rows else f"all but {named}"
    message = f"two units of loss: losses of {rows.sum()} of {len(rows)} runs are {what}: {which}. Convert them in the file"
    return error("loss-unit", named, f"{message}. {drop_options(names, np.flatnonzero(fewer).tolist())}")


def _in_bits(frame: pd.DataFrame, terms: Array) -> NDArray[np.bool_]:
    """Return the runs whose log losses lie ln(1 / ln 2) above a smooth surface through the others: (run,)."""
    step, height = math.log(_BITS_PER_NAT), np.log(frame["loss"].to_numpy(dtype=np.float64))
    x, y = (np.log10(frame[name].to_numpy(dtype=np.float64)) for name in ("flops", "params"))
    first = height - least_absolute_surface(x, y, height)
    if not np.ptp(first):
        return np.zeros(len(height), dtype=bool)
    few = evenly_spread(len(height))
    starts = [values[few] > cut for values in (first, x, -x) for cut in _cuts(values[few])]
    settled = (_settled(height[few], terms[few], above, step=step) for above in starts)
    guess = min(settled, key=lambda each: each[0])[1] if starts else first[few] > step / 2
    beyond = height - terms @ (np.linalg.pinv(terms[few]) @ (height[few] - step * guess)) > step / 2
    whole = [_settled(height, terms, above, step=step) for above in (beyond, first > step / 2)]
    squares, above, off = min(whole, key=lambda each: each[0])
    if not _are_two(above) or off[above].min() - off[~above].max() < _GAP * step:
        return np.zeros(len(height), dtype=bool)
    plain = float(np.sum((height - terms @ (np.linalg.pinv(terms) @ height)) ** 2))
    fitted = np.linalg.lstsq(np.column_stack([terms, above]), height, rcond=None)[0][-1]
    is_step = abs(fitted - step) < _SAME_STEP and plain > _CLEARER**2 * squares
    return above if is_step else np.zeros(len(height), dtype=bool)


def _settled(height: Array, terms: Array, above: NDArray[np.bool_], *, step: float) -> tuple[float, NDArray[np.bool_], Array]:
    """Repeat: fit the surface, and take the runs above its middle step as shifted; return squares, these runs, and heights."""
    inverse = np.linalg.pinv(terms)  # (term, run)
    for _ in range(_MOST_STEPS):
        off = height - terms @ (inverse @ (height - step * above))
        before, above = above, off > step / 2
        if np.array_equal(before, above):
            break
    return float(np.sum((off - step * above) ** 2)), above, off


def _perplexities(loss: Array, terms: Array) -> NDArray[np.bool_]:
    """Return the runs above a cut whose logarithms go with the losses below it on one smooth surface: (run,)."""
    inverse = np.linalg.pinv(terms)  # (term, run)

    def squares(height: Array) -> float:
        return float(np.sum((height - terms @ (inverse @ height)) ** 2))

    cuts = [cut for cut in _cuts(loss) if cut >= 1]
    found = [loss > cut for cut in cuts]
    scatter = [squares(np.log(np.where(rows, np.log(np.maximum(loss, 1 + 1e-12)), loss))) for rows in found]
    best = int(np.argmin(scatter)) if found else 0
    clear = found and _are_two(found[best]) and squares(np.log(loss)) > _CLEARER**2 * scatter[best]
    return found[best] if clear else np.zeros(len(loss), dtype=bool)


def _perplexities_by_level(loss: Array) -> NDArray[np.bool_]:
    """Return the runs that exceed every loss, if their logarithms are about the losses of the others: (run,)."""
    large = loss > _LARGEST_LOSS
    if not _are_two(large):
        return np.zeros(len(loss), dtype=bool)
    apart = math.log(float(np.median(np.log(loss[large])) / np.median(loss[~large])))
    return large if abs(apart) < _ALIKE else np.zeros(len(loss), dtype=bool)


def _cuts(values: Array) -> Array:
    """Return values below the widest gaps, at most `_MOST_CUTS`: each parts the runs at itself."""
    order = np.unique(values)
    return np.asarray(order[:-1][np.argsort(-np.diff(order), kind="stable")[:_MOST_CUTS]])


def _are_two(rows: NDArray[np.bool_]) -> bool:
    return min(int(rows.sum()), int((~rows).sum())) >= 2
