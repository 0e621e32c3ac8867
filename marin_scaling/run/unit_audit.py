"""Convert the units of a run table's FLOPs, parameters and tokens; report contradictions to 6 N D."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import UsageError
from marin_scaling.findings import Finding, error, note, warning
from marin_scaling.laws import Array
from marin_scaling.run.size_units import (
    COUNT_UNITS,
    FLOP_UNITS,
    UNITS,
    Scales,
    has_sizes,
    rows_beyond_64_bits,
    scales_by_name,
    scales_by_number,
)

if TYPE_CHECKING:
    import pandas as pd

_OFF = 10.0
"""Median FLOPs / (6 N D) beyond this factor are refused: a unit, swapped columns, or experts that a token does not pass."""

_ROW_OFF = 30.0
"""A row this far off the plausible ones is in another unit; tables without faults spread by a factor of five at most."""

_SHOWN = 3
_SAME_BUDGET = 3.0


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
            why="A conversion needs a known factor.",
            fix=f"Choose one of {', '.join(known)}, as in --unit {column}={next(iter(known))}.",
        )
    return found[0]


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
    stated = Scales(**{column: unit_named(column, unit) for column, unit in units.items() if column in UNITS})
    frame, findings = _scaled(frame, stated, names) if stated.units else (frame, [])
    if not stated.units:
        scales = scales_by_name(names_of_sizes(frame, names), **_typical(frame[judged])) or Scales()
        frame, findings = _scaled(frame, scales, names)
    frame, others = _other_columns(frame, names)
    return frame, [*findings, *others, *_contradictions(frame[judged], names)]


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
    return note("converted-unit", column, f"column {column!r} holds {unit}: multiplied by {factor:g}")


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
    if not sound.any() or not has_sizes(typical["params"], typical["tokens"]):
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
    candidates = scales_by_number(**typical)
    options = [f"{each} ({_unit_options(each)})" for each in candidates[:_SHOWN] if len(each.units) == len(candidates[0].units)]
    if 1e-3 < typical["ratio"] < 1 and "active_params" not in frame:
        options.append("experts that a token does not pass counted in params (--column active_params=NAME)")
    if not candidates:
        options.append("two columns swapped (--column params=NAME --column tokens=NAME)")
    columns = ", ".join(f"{role} from {name!r}" for role, name in names_of_sizes(frame, names).items() if name)
    said = f"params {typical['params']:.3g} and tokens {typical['tokens']:.3g} in the median run"
    return error(
        "units",
        "flops",
        f"FLOPs are {typical['ratio']:.2g} of 6 x params x tokens in the median run ({said}; {columns}), and training costs "
        f"about 1. Possible: {'; or '.join(options)}",
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


def mend_overflow(frame: pd.DataFrame) -> tuple[Array, list[Finding]]:
    """Return the FLOPs of a table, with 6 N D where 64-bit integers overflowed, and the finding that says so.

    FLOPs that are 6 N D modulo 2^64 to nine digits cannot be anything else; other overflows are an error.
    """
    flops, params, tokens = (frame[name].to_numpy(dtype=np.float64) for name in ("flops", "params", "tokens"))
    equal, others = rows_beyond_64_bits(flops, params, tokens)
    findings = []
    if len(equal):
        message = (
            f"FLOPs of {len(equal)} runs are 6 x params x tokens modulo 2^64 (int64 overflow); 6 x params x tokens was used"
        )
        findings.append(warning("int64-overflow", "flops", message))
    if len(others):
        runs = ", ".join(str(frame["run"].iloc[row]) for row in others[:_SHOWN])
        message = f"FLOPs of {len(others)} runs with 6 x params x tokens above 2^63 are too small (int64 overflow): {runs}"
        findings.append(error("int64-overflow", "flops", message))
    mended = flops.copy()
    mended[equal] = 6 * params[equal] * tokens[equal]
    return mended, findings
