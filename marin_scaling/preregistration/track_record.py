"""Track record of each registrant: counts, coverage, calibration and skill.

Missing runs count as missed. Forecasts of similar runs by one person are a family, which counts once, as its worst member. A
family is settled when one member is outside of its interval, or when all are settled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from marin_scaling.preregistration.families import families, family_numbers, readable_forecasts
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.registry import registration_folders
from marin_scaling.preregistration.statement import Statement
from marin_scaling.preregistration.verdict import verdicts_on

_ANONYMOUS = "not authentic"
_SETTLED = (State.HELD, State.MISSED, State.OVERDUE, State.WITHDRAWN_LATE)
_USUAL = (State.PENDING, State.OVERDUE, State.HELD, State.MISSED, State.REFUSED)
_PIT_BINS = 5
_CENTRAL_HALF = (0.25, 0.75)


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """All forecasts of one registrant.

    `counts` are by state; `settled` counts settled `families`, of which `inside_90` and `inside_50` lie in their intervals.
    Diverged and overdue runs lie outside. `pit` has the outermost level of each settled family with values, `skills` its
    lowest skill.
    """

    registrant: str
    counts: Mapping[State, int]
    families: int
    settled: int
    inside_90: int
    inside_50: int
    pit: tuple[float, ...]
    skills: tuple[float, ...]

    @property
    def families_text(self) -> str:
        """Number of families, and of settled ones."""
        noun = "family" if self.families == 1 else "families"
        return f"{self.families} {noun} of nearly the same run, {self.settled} of them settled"

    @property
    def states(self) -> str:
        """Counts by state, including zeros for the usual states."""
        shown = [state for state in State if state in _USUAL or self.counts.get(state)]
        return ", ".join(f"{self.counts.get(state, 0)} {state}" for state in shown)

    @property
    def pit_histogram(self) -> tuple[int, ...]:
        """Number of values in each fifth of [0, 1]; uniform for calibrated forecasts."""
        bins = Counter(min(int(value * _PIT_BINS), _PIT_BINS - 1) for value in self.pit)
        return tuple(bins[number] for number in range(_PIT_BINS))


def track_records(verdicts: Sequence[Verdict]) -> list[TrackRecord]:
    """Return a record for each registrant, by name; refused forecasts belong to no one."""
    names = sorted({verdict.registrant or _ANONYMOUS for verdict in verdicts})
    families: dict[int, list[Verdict]] = {}
    for verdict, number in zip(verdicts, family_numbers([each.forecaster for each in verdicts]), strict=True):
        families.setdefault(number, []).append(verdict)
    return [_record(name, _with_member(name, families.values())) for name in names]


def _with_member(name: str, families: Iterable[Sequence[Verdict]]) -> list[Sequence[Verdict]]:
    """Return the families in which a registrant has a forecast, whole: one person may have registered under two names."""
    return [family for family in families if any((each.registrant or _ANONYMOUS) == name for each in family)]


@dataclass(frozen=True, kw_only=True)
class KnownForecasts:
    """Forecasts of a registry, read and judged once per review."""

    registry: Path
    runs_dir: Path
    at: datetime

    @cached_property
    def statements(self) -> list[tuple[Path, Statement]]:
        """Readable forecasts with their folders."""
        return list(readable_forecasts(self.registry))

    @cached_property
    def families(self) -> dict[str, list[tuple[Path, Statement]]]:
        """Family of each forecast, by folder name."""
        return families(self.statements)

    @cached_property
    def records(self) -> list[TrackRecord]:
        """Record of each registrant."""
        return track_records(verdicts_on(registration_folders(self.registry), runs_dir=self.runs_dir, at=self.at))


def record_text(record: TrackRecord) -> str:
    """Return the record as text."""
    registered = sum(record.counts.values())
    alike = f" in {record.families_text}" if record.families < registered else ""
    lines = [f"{record.registrant}: {registered} registered{alike}: {record.states}"]
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
    """Return the exact central interval of a share (Clopper & Pearson 1934).

    >>> low, high = exact_interval(9, 10)
    >>> round(low, 3), round(high, 4)
    (0.555, 0.9975)
    """
    from scipy.stats import binomtest

    interval = binomtest(hits, count).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def _record(name: str, families: Sequence[Sequence[Verdict]]) -> TrackRecord:
    settled = [[each for each in family if each.state in _SETTLED] for family in families if _is_settled(family)]
    own = [verdict for family in families for verdict in family if (verdict.registrant or _ANONYMOUS) == name]
    levels = [[scores["pit"] for each in family if (scores := _scores(each))] for family in settled]
    skills = [[skill for each in family if (skill := _skill(each)) is not None] for family in settled]
    return TrackRecord(
        registrant=name,
        counts=Counter(verdict.state for verdict in own),
        families=len(families),
        settled=len(settled),
        inside_90=sum(all(map(_hit, family)) for family in settled),
        inside_50=sum(all(map(_is_central, family)) for family in settled),
        pit=tuple(max(each, key=lambda level: abs(level - 0.5)) for each in levels if each),
        skills=tuple(min(each) for each in skills if each),
    )


def _is_settled(family: Sequence[Verdict]) -> bool:
    """Return True if no further member can change a family's result; withdrawn, void and refused ones do not count."""
    members = [each for each in family if each.state not in (State.WITHDRAWN, State.VOID, State.REFUSED)]
    done = [each for each in members if each.state in _SETTLED]
    return bool(done) and (len(done) == len(members) or not all(_hit(each) for each in done))


def _scores(verdict: Verdict) -> Mapping[str, Any] | None:
    scores: Mapping[str, Any] | None = verdict.outcome["scores"] if verdict.outcome else None
    return scores


def _hit(verdict: Verdict) -> bool:
    scores = _scores(verdict)
    return bool(scores and scores["hit"])


def _is_central(verdict: Verdict) -> bool:
    scores = _scores(verdict)
    return bool(scores and _CENTRAL_HALF[0] <= scores["pit"] <= _CENTRAL_HALF[1])


def _skill(verdict: Verdict) -> float | None:
    skill: float | None = ((verdict.outcome or {}).get("baseline") or {}).get("skill")
    return skill if _scores(verdict) else None
