"""Track record of each registrant: counts, coverage, calibration and skill; and several forecasts of one run, compared.

Missing runs count as missed. Forecasts of similar runs by one person are a family, which counts once, as its worst member. A
family is settled when one member is outside of its interval, or when all are settled.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from marin_scaling.files import read_bytes
from marin_scaling.preregistration.events.observation import ended_at
from marin_scaling.preregistration.imported import REGISTRIES, ImportedRegistry, imported_registries
from marin_scaling.preregistration.log import own_receipts
from marin_scaling.preregistration.outcome import State, Verdict, against_baseline, scores_of
from marin_scaling.preregistration.registry import (
    REGISTRY,
    families,
    family_numbers,
    identity,
    is_outside_target,
    read_registration,
    readable_forecasts,
    registration_folders,
)
from marin_scaling.preregistration.statement import Statement, moment_text, parse_moment
from marin_scaling.preregistration.verdict import verdicts_on
from marin_scaling.printable import printable
from marin_scaling.units import format_flops
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    import pandas as pd

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


OWN = "here"
"""Name of this repository's own registry in a comparison."""
_COMPARED = (State.PENDING, State.OVERDUE, State.HELD, State.MISSED)
_SAME_SIZE = 0.01
"""Relative difference of tokens and parameters within which two promised runs are one, as for an outcome from a log."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """An authentic forecast and its verdict."""

    registry: str
    folder: Path
    statement: Statement
    target: bytes
    verdict: Verdict

    @property
    def unit(self) -> str:
        """Unit of its losses."""
        return str(self.statement.predicate["metric"]["unit"])

    @property
    def received(self) -> datetime:
        """Time at which its registry received the forecast, or that of the statement if no log tells."""
        return own_receipts(self.folder.parent).forecast_at(self.folder) or self.statement.created_at

    @property
    def known_at(self) -> datetime | None:
        """Time from which its outcome could be known: the end of the run, or the time of the outcome; None without one."""
        outcome = self.verdict.outcome
        return (ended_at(self.folder) or parse_moment(outcome["checked_at"])) if outcome else None

    @property
    def value(self) -> float | None:
        """Observed value of its own outcome; None without one, or if the run diverged."""
        return (self.verdict.outcome or {}).get("value")

    def is_of(self, other: _Known) -> bool:
        """Return True if both promise a run of the same size."""
        sizes = ((each.statement.predicate["targetRun"][key] for each in (self, other)) for key in ("tokens", "paramsTotal"))
        return all(math.isclose(*pair, rel_tol=_SAME_SIZE) for pair in sizes)


@dataclass(frozen=True, kw_only=True)
class ComparedForecast:
    """One of several forecasts of a run's metric. Losses are in `unit`; scores are None until an outcome is known."""

    run: str
    unit: str
    registry: str
    """Name of the imported registry; "here" for this repository's own."""
    id: str
    registrant: str
    law: str
    """Name of the fitted law."""
    registered_at: str
    forecast: float
    low: float
    high: float
    """Ends of the 90 % interval."""
    state: State
    observed: float | None
    crps: float | None
    skill: float | None
    """1 for a perfect forecast, 0 for one no better than the baseline of its statement."""
    note: str
    """Reason for which it is not scored or not comparable; empty if there is none."""


def compare_forecasts(registry: Path | str = REGISTRY, *, registries: Path | str = REGISTRIES) -> pd.DataFrame:
    """Return the forecasts of all runs that have several, in this registry and the imported ones: `ComparedForecast`'s columns.

    Rows are sorted by run, then CRPS. Forecasts that are refused, sealed, withdrawn or void do not count.
    """
    import pandas as pd

    own, now = Path(registry), datetime.now(UTC)
    verdicts = verdicts_on(registration_folders(own), runs_dir=own.parent / "runs", at=now)
    rows = [asdict(each) for each in several_of_one_run(own, verdicts, imported_registries(registries))]
    return pd.DataFrame(rows, columns=[each.name for each in fields(ComparedForecast)])


def several_of_one_run(
    registry: Path, verdicts: Sequence[Verdict], imported: Sequence[ImportedRegistry]
) -> list[ComparedForecast]:
    """Return the forecasts of `compare_forecasts`, from verdicts that are known; a forecast in two registries counts once."""
    runs: dict[tuple[str, str], list[_Known]] = {}
    places = [(OWN, registry, verdicts), *((each.name, each.folder, each.verdicts) for each in imported)]
    for each in (known for place in places for known in _authentic(*place)):
        of_run = runs.setdefault((identity(each.target), each.unit), [])
        if all(each.statement.sha256 != other.statement.sha256 for other in of_run):  # a copy is no second forecast
            of_run.append(each)
    several = [each for each in runs.values() if len(each) > 1]
    return [row for each in several for row in sorted(_compared(each), key=_by_score)]


def _authentic(name: str, registry: Path, verdicts: Sequence[Verdict]) -> Iterator[_Known]:
    """Yield the forecasts of a registry that are compared."""
    for verdict in verdicts:
        folder = registry / verdict.id
        if verdict.state in _COMPARED and is_present(folder / "target.json"):
            target = read_bytes(folder / "target.json")
            yield _Known(registry=name, folder=folder, statement=read_registration(folder), target=target, verdict=verdict)


def _by_score(row: ComparedForecast) -> tuple[bool, float, str]:
    return row.crps is None, row.crps or 0.0, row.registered_at


def _compared(forecasts: Sequence[_Known]) -> Iterator[ComparedForecast]:
    """Yield the forecasts of one run."""
    run, unit = _run_name(forecasts[0].target), forecasts[0].unit
    settled = [each for each in forecasts if each.verdict.outcome]
    for each in forecasts:
        statement, (value, note) = each.statement, _observed(each, settled)
        scores = scores_of(statement, value=value)
        yield ComparedForecast(
            run=run,
            unit=unit,
            registry=each.registry,
            id=each.verdict.id,
            registrant=str(each.verdict.registrant),
            law=str(statement.predicate["fit"]["law"]).partition(":")[0],
            registered_at=moment_text(each.received),
            forecast=statement.quantiles[0.5],
            low=statement.quantiles[0.05],
            high=statement.quantiles[0.95],
            state=each.verdict.state,
            observed=value,
            crps=scores.crps if scores else None,
            skill=(against_baseline(statement, value=value) or {}).get("skill"),
            note=note,
        )


def _observed(forecast: _Known, settled: Sequence[_Known]) -> tuple[float | None, str]:
    """Return the value that scores a forecast, with a note: one outcome scores all of its size that were signed before it."""
    first = min((at for each in settled if (at := each.known_at)), default=None)
    if first is not None and forecast.received > first:
        return None, f"signed after the outcome of {moment_text(first)}"
    values = [each.value for each in settled]
    if any(value != values[0] for value in values):
        said = (f"{each.registry} {'diverged' if each.value is None else f'{each.value:.4f}'}" for each in settled)
        return forecast.value, f"the registries disagree: {', '.join(said)}"
    if forecast.verdict.outcome or not settled:
        return forecast.value, ""
    return (values[0], "") if forecast.is_of(settled[0]) else (None, "another size was promised")


def _run_name(target: bytes) -> str:
    """Return the name of a verified `target.json`'s run for people: its tracker's, or that of its ladder with its FLOPs."""
    document = json.loads(target)
    if is_outside_target(target):
        source = document["outcome"]
        return f"{source['run']} of {source['project']}, {source['key']}"
    return f"{document['ladder']}, {format_flops(document['budget_flops'])} FLOPs"


def comparison_text(rows: Sequence[ComparedForecast]) -> str:
    """Return the forecasts of `several_of_one_run` as text of at most 80 columns; empty without any."""
    lines: list[str] = []
    for run, group in groupby(rows, key=lambda row: row.run):
        forecasts = list(group)
        observed = {f"{row.observed:.4f} {row.unit}" for row in forecasts if row.observed is not None}
        said = f"observed {' and '.join(sorted(observed))}" if observed else "not observed yet"
        lines += ["", f"{len(forecasts)} forecasts of {printable(run)}: {said}"]
        lines += ["  forecast  90 % interval      CRPS   skill  state     registrant, registry"]
        has_laws = len({row.law for row in forecasts}) > 1
        lines += [f"  {_row_text(row)}{f', {printable(row.law)}' * has_laws}" for row in forecasts]
    return "\n".join(lines)


def _row_text(row: ComparedForecast) -> str:
    crps = "" if row.crps is None else f"{row.crps:.4f}"
    skill = "" if row.skill is None else f"{row.skill:+.2f}"
    who = printable(f"{row.registrant}, {row.registry}")
    note = f"; {row.note}" if row.note else ""
    return f"{row.forecast:<8.4f}  {row.low:.4f} to {row.high:.4f}  {crps:>6}  {skill:>6}  {row.state:<8}  {who}{note}"
