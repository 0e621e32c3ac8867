"""From draws of a speedup to what is said of it: an interval, a p-value, a verdict, and the verdict after Holm's correction.

Draws are of the logarithm of the speedup, (draw,), and may be infinite where no compute would do. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from marin_scaling.laws import Array

INTERVAL = 0.9

LARGEST_SPEEDUP = 1e6
"""Beyond it nothing is said but that there is no end: no two recipes that anybody compares are so far apart."""


class Verdict(Enum):
    """What an interval says of a variant."""

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """So many times faster than the baseline, with a 90 % interval.

    `value`, or the interval's upper end, is None where it would be above `LARGEST_SPEEDUP`: the baseline's law comes down to
    such a loss with more compute than anybody has, or never.
    `p_value` is two-sided, of no difference. `verdict` is a tie where the interval holds 1; `verdict_after_holm` is what is
    left of it when all budgets of a comparison are looked at together.
    """

    value: float | None
    interval: tuple[float, float | None]
    p_value: float
    verdict: Verdict
    verdict_after_holm: Verdict


def speedups(logs: Sequence[float], draws: Sequence[Array]) -> list[Speedup]:
    """A family of comparisons that Holm's correction looks at together."""
    p_values = [_p_value(each) for each in draws]
    return [
        _speedup(value, each, p_value=p_value, adjusted=adjusted)
        for value, each, p_value, adjusted in zip(logs, draws, p_values, holm(p_values), strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted so that all may be held against one level (Holm 1979); true under any dependence between them.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(each) for each in adjusted]


def _speedup(log_value: float, draws: Array, *, p_value: float, adjusted: float) -> Speedup:
    low, high = _ends(draws)
    verdict = Verdict.FASTER if low > 0 else Verdict.SLOWER if high < 0 else Verdict.TIE
    return Speedup(
        value=_unless_endless(log_value),
        interval=(min(math.exp(min(low, 700.0)), LARGEST_SPEEDUP), _unless_endless(high)),
        p_value=p_value,
        verdict=verdict,
        verdict_after_holm=verdict if adjusted <= 1 - INTERVAL else Verdict.TIE,
    )


def _ends(draws: Array) -> tuple[float, float]:
    """The interval of draws that may be infinite, as order statistics: `np.quantile` gives NaN beside infinities."""
    tail, ordered = round(len(draws) * (1 - INTERVAL) / 2), np.sort(draws)
    return float(ordered[tail - 1]), float(ordered[-tail])


def _unless_endless(log_value: float) -> float | None:
    return math.exp(log_value) if log_value <= math.log(LARGEST_SPEEDUP) else None


def _p_value(draws: Array) -> float:
    """Two-sided: twice the share of draws on the rarer side of no difference, which is never taken to be zero."""
    rarer = min(int(np.sum(draws <= 0)), int(np.sum(draws >= 0)))
    return min(1.0, 2 * (rarer + 1) / (len(draws) + 1))
