"""Units of FLOPs, parameters and tokens, read from FLOPs / (6 x parameters x tokens) and confirmed by column names.

Training N active parameters on D tokens takes about 6 N D FLOPs (Kaplan et al. 2020, section 2.1). Attention, embeddings and
recomputation move the ratio within `PLAUSIBLE`; a unit moves it by a known power of ten.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin_scaling.laws import Array

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
UNITS: dict[str, Mapping[str, float]] = {"flops": FLOP_UNITS, "params": COUNT_UNITS, "tokens": COUNT_UNITS}

_FLOP_WORD = r"[-_ ]?(flops?(/?s)?|f)"
_FLOP_NAMES = {
    rf"t(era)?{_FLOP_WORD}[-_ ]?days?": "TFLOP/s-days",
    rf"p(eta)?{_FLOP_WORD}[-_ ]?days?": "PFLOP/s-days",
    r"g(iga)?[-_ ]?flops?": "GFLOPs",
    r"t(era)?[-_ ]?flops?": "TFLOPs",
    r"p(eta)?[-_ ]?flops?": "PFLOPs",
    r"e(xa)?[-_ ]?flops?": "EFLOPs",
    r"z(etta)?[-_ ]?flops?": "ZFLOPs",
    r"m(ega)?[-_ ]?flops?": "MFLOPs",
}
"""Part of a column's name, and the unit that it means; days come first because PFLOP-days holds PFLOP."""
_COUNT_NAMES = {
    r"millions?|[mM](illion)?s?|mil|mio": "millions",
    r"billions?|[bB](illion)?s?|[gG]iga|G|bn|Bn": "billions",
    r"thousands?|[kK]": "thousands",
    r"trillions?|T": "trillions",
}
"""A word of a column's name, in full, and the unit that it means."""

_PARAMS_RANGE, _TOKENS_RANGE = (100.0, 1e15), (1e4, 1e17)
"""Parameters and tokens of training runs, toy models to trillions: a choice of units that leaves these is none."""
_USUAL_PARAMS, _USUAL_TOKENS = (1e5, 1e13), (1e7, 1e15)


def named_flop_unit(column: str) -> str:
    """Return the unit of FLOPs in a column's name, or an empty text.

    >>> named_flop_unit("throughput/total_gflops"), named_flop_unit("PFLOP-days"), named_flop_unit("train_flops")
    ('GFLOPs', 'PFLOP/s-days', '')
    """
    power = re.search(r"1e(\d+)", column, re.IGNORECASE)
    if power:
        return next((unit for unit, factor in FLOP_UNITS.items() if factor == float(power[0])), "")
    for pattern, unit in _FLOP_NAMES.items():
        if re.search(rf"(?<![a-z]){pattern}(?![a-z])", column, re.IGNORECASE):
            return unit
    return ""


def named_count_unit(column: str) -> str:
    """Return the unit of a count in a column's name, or an empty text.

    >>> named_count_unit("params_M"), named_count_unit("tokens (billions)"), named_count_unit("params"), named_count_unit("N")
    ('millions', 'billions', '', '')
    """
    power = re.search(r"1e(\d+)", column, re.IGNORECASE)
    if power:
        return next((unit for unit, factor in COUNT_UNITS.items() if factor == float(power[0])), "")
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)
    for word in words[1:] if len(words) > 1 else ():
        for pattern, unit in _COUNT_NAMES.items():
            if re.fullmatch(pattern, word):
                return unit
    return ""


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


def scales_by_name(names: Mapping[str, str], *, ratio: float, params: float, tokens: float) -> Scales | None:
    """Return the units that column names state and the numbers confirm; None if no choice, or more than one, is confirmed.

    `names` gives the table's names of `flops`, `params` and `tokens`; the numbers are those of the median run, with `ratio` for
    FLOPs / (6 N D). Any of the units in the names may be confirmed: a column `tokens_B` may hold tokens one by one.

    >>> scales_by_name({"flops": "total_gflops", "params": "N", "tokens": "D"}, ratio=1.1e-9, params=1e8, tokens=2e9)
    Scales(flops='GFLOPs', params='', tokens='')
    """
    stated = Scales(
        flops=named_flop_unit(names.get("flops", "")),
        params=named_count_unit(names.get("params", "")),
        tokens=named_count_unit(names.get("tokens", "")),
    )
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
    return (
        _USUAL_PARAMS[0] <= params * scales.factor("params") <= _USUAL_PARAMS[1]
        and _USUAL_TOKENS[0] <= tokens * scales.factor("tokens") <= _USUAL_TOKENS[1]
    )


def _fits(scales: Scales, *, ratio: float, params: float, tokens: float) -> bool:
    sized = has_sizes(params * scales.factor("params"), tokens * scales.factor("tokens"))
    return bool(is_plausible(ratio * scales.ratio)) and sized


def has_sizes(params: float, tokens: float) -> bool:
    """Return True if a training run can have so many parameters and tokens.

    >>> has_sizes(28.5, 5.9), has_sizes(2.85e7, 5.9e9)
    (False, True)
    """
    return _PARAMS_RANGE[0] <= params <= _PARAMS_RANGE[1] and _TOKENS_RANGE[0] <= tokens <= _TOKENS_RANGE[1]


def rows_beyond_64_bits(flops: Array, params: Array, tokens: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows whose FLOPs are 6 N D modulo 2^64, and those that overflowed otherwise; all arrays are (run,).

    The numbers of the first kind prove that FLOPs were 6 N D. A row of the second kind has 6 N D above 2^63 and FLOPs below it
    that do not fit; it counts only if FLOPs of all smaller runs fit.

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
    return np.flatnonzero(equal), np.flatnonzero(others & (len(small) > 0) & bool(small.all()))


def _whole(counts: Array, chosen: NDArray[np.bool_]) -> NDArray[np.uint64]:
    return np.round(np.where(chosen, counts, 0.0)).astype(np.uint64)
