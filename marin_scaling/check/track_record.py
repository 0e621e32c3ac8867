"""How the forecasts of each registrant have done, all of them: the denominator first, then coverage, calibration and skill.

What was promised and is not there counts as missed, so that nobody looks better by leaving a run out. With few forecasts the
figures say little, and the exact interval says how little.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from marin_scaling.check.state import State, Verdict

_ANONYMOUS = "nobody (not authentic)"
_SETTLED = (State.HELD, State.MISSED, State.OVERDUE, State.WITHDRAWN_LATE)
_USUAL = (State.PENDING, State.OVERDUE, State.HELD, State.MISSED, State.REFUSED)
_PIT_BINS = 5
_CENTRAL_HALF = (0.25, 0.75)


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """All forecasts of one registrant.

    `counts` by state; `inside_90` and `inside_50` of `settled` forecasts, a diverged or overdue run outside of both; `pit` the
    levels at which observed values fell; `skills` of those that had a baseline.
    """

    registrant: str
    counts: Mapping[State, int]
    inside_90: int
    inside_50: int
    pit: tuple[float, ...]
    skills: tuple[float, ...]

    @property
    def settled(self) -> int:
        """How many are held, missed, overdue or taken back too late."""
        return sum(self.counts.get(state, 0) for state in _SETTLED)

    @property
    def states(self) -> str:
        """How many are what, the usual states also where there is none."""
        shown = [state for state in State if state in _USUAL or self.counts.get(state)]
        return ", ".join(f"{self.counts.get(state, 0)} {state}" for state in shown)

    @property
    def pit_histogram(self) -> tuple[int, ...]:
        """How many values fell into each fifth of [0, 1]; of calibrated forecasts about as many in each."""
        bins = Counter(min(int(value * _PIT_BINS), _PIT_BINS - 1) for value in self.pit)
        return tuple(bins[number] for number in range(_PIT_BINS))


def track_records(verdicts: Sequence[Verdict]) -> list[TrackRecord]:
    """A record for each registrant, by name; those that are refused are under nobody's."""
    names = sorted({verdict.registrant or _ANONYMOUS for verdict in verdicts})
    return [_record(name, [each for each in verdicts if (each.registrant or _ANONYMOUS) == name]) for name in names]


def record_text(record: TrackRecord) -> str:
    """The record for a reader."""
    lines = [f"{record.registrant}: {sum(record.counts.values())} registered: {record.states}"]
    if record.settled:
        low, high = exact_interval(record.inside_90, record.settled)
        lines.append(
            f"  in their 90 % intervals {record.inside_90} of {record.settled} (exact 95 % interval of the share "
            f"{low:.0%} to {high:.0%}), in their 50 % intervals {record.inside_50}"
        )
    if record.pit:
        histogram = " ".join(map(str, record.pit_histogram))
        skill = f"; mean skill {mean(record.skills):+.2f} over {len(record.skills)} with a baseline" if record.skills else ""
        lines.append(f"  observed values by fifths of their forecasts: {histogram}{skill}")
    return "\n".join(lines)


def exact_interval(hits: int, count: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The central interval for a share, of Clopper & Pearson (1934): it covers at least as often as it says.

    >>> low, high = exact_interval(9, 10)
    >>> round(low, 3), round(high, 4)
    (0.555, 0.9975)
    """
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _crossing(lambda share: _at_least(hits, count, share) - tail)
    high = 1.0 if hits == count else _crossing(lambda share: tail - (1 - _at_least(hits + 1, count, share)))
    return low, high


def _record(name: str, verdicts: Sequence[Verdict]) -> TrackRecord:
    outcomes = [verdict.outcome for verdict in verdicts if verdict.outcome and verdict.outcome["scores"]]
    pit = tuple(outcome["scores"]["pit"] for outcome in outcomes)
    skills = [(outcome.get("baseline") or {}).get("skill") for outcome in outcomes]
    return TrackRecord(
        registrant=name,
        counts=Counter(verdict.state for verdict in verdicts),
        inside_90=sum(outcome["scores"]["hit"] for outcome in outcomes),
        inside_50=sum(_CENTRAL_HALF[0] <= value <= _CENTRAL_HALF[1] for value in pit),
        pit=pit,
        skills=tuple(skill for skill in skills if skill is not None),
    )


def _at_least(hits: int, count: int, share: float) -> float:
    """Probability of so many hits or more."""
    return math.fsum(_probability(each, count, share) for each in range(hits, count + 1))


def _probability(hits: int, count: int, share: float) -> float:
    if share in (0.0, 1.0):
        return float(hits == count * share)
    logarithm = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    return math.exp(logarithm + hits * math.log(share) + (count - hits) * math.log1p(-share))


def _crossing(rising: Callable[[float], float]) -> float:
    """Where a rising function of a share is zero, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
