"""Steps of a verification, and state, verdict and outcome (`outcome.json`) of a preregistration.

The outcome is not signed: anyone can derive it from the statement and the run's record.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from marin_scaling.canonical_json import load_canonical
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.registry import Forecaster
from marin_scaling.preregistration.statement import Statement, agrees, sorted_quantiles
from marin_scaling.printable import printable
from marin_scaling.scoring import Scores, crps, score
from marin_scaling.strict_model import SHA256, Moment, One, Part, Positive, Text, check_document


class OutcomeScores(Part):
    """Scores of the forecast, as in `Scores`."""

    crps: float
    weighted_interval_score: float
    interval_score_90: float
    pit: float
    hit: bool
    signed_error: float
    per_cent_of_loss: float
    per_cent_of_reducible_loss: float | None


class BaselineScores(Part):
    """The baseline's score, and the forecast's skill against it."""

    crps: float
    skill: float | None


class OutcomeTool(Part):
    """The tool that derived the outcome."""

    name: Literal["marin-scaling"]
    version: Text


class OutcomeFile(Part):
    """The content of `outcome.json`."""

    format_version: One
    statement_sha256: SHA256
    run: SHA256
    record_sha256: SHA256
    status: Literal["finished", "diverged"]
    metric: Text
    value: Positive | None
    scores: OutcomeScores | None
    baseline: BaselineScores | None
    verdict: Literal["held", "missed"]
    checked_at: Moment
    tool: OutcomeTool


def outcome_document(
    statement: Statement, *, value: float | None, run: str, record_sha256: str, checked_at: datetime, tool_version: str
) -> dict[str, Any]:
    """Return the content of `outcome.json`; `value` None is a diverged run, which is a miss without scores."""
    scores = scores_of(statement, value=value)
    return {
        "format_version": 1,
        "baseline": against_baseline(statement, value=value),
        "statement_sha256": statement.sha256,
        "run": run,
        "record_sha256": record_sha256,
        "status": "diverged" if value is None else "finished",
        "metric": statement.predicate["metric"]["name"],
        "value": value,
        "scores": asdict(scores) if scores else None,
        "verdict": "held" if scores and scores.hit else "missed",
        "checked_at": f"{checked_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "tool": {"name": "marin-scaling", "version": tool_version},
    }


def scores_of(statement: Statement, *, value: float | None) -> Scores | None:
    """Return the scores of a statement against a value, by the statement's own rule; None without a value."""
    if value is None:
        return None
    return score(statement.quantiles, observed=value, asymptote=statement.predicate["scoring"]["reducibleE"])


def against_baseline(statement: Statement, *, value: float | None) -> dict[str, float | None] | None:
    """Return the baseline's score and the skill: 1 is perfect, 0 no better than the baseline."""
    if value is None:
        return None
    stated = sorted_quantiles(statement.predicate["scoring"]["baseline"]["quantiles"])
    baseline = crps(stated, observed=value)
    return {"crps": baseline, "skill": 1 - crps(statement.quantiles, observed=value) / baseline if baseline else None}


def read_outcome(raw: bytes, *, statement: Statement, run: str, name: str) -> dict[str, Any]:
    """Return the outcome in these bytes; refused unless it follows from `statement`, `run` and its value."""
    outcome: dict[str, Any] = load_canonical(raw, name=name)
    check_document(outcome, OutcomeFile, name=name)
    checked_at = datetime.fromisoformat(outcome["checked_at"])
    expected = outcome_document(
        statement,
        value=outcome["value"],
        run=run,
        record_sha256=outcome["record_sha256"],
        checked_at=checked_at,
        tool_version=outcome["tool"]["version"],
    )
    differing = [key for key in expected if not agrees(expected[key], outcome[key])]
    if differing:
        key, found, follows = _difference(differing[0], expected=expected, outcome=outcome)
        raise VerificationError(
            f"{name}: {key} is {found!r}, and from the statement and the value follows {follows!r}.",
            why="An outcome is derived from what was promised and what was measured; nothing in it may be chosen.",
            fix="Restore the file from version control.",
        )
    return outcome


def _difference(key: str, *, expected: dict[str, Any], outcome: dict[str, Any]) -> tuple[str, Any, Any]:
    """Return the key and both values of the first number that differs."""
    found, follows = outcome[key], expected[key]
    if isinstance(found, dict) and isinstance(follows, dict):
        inner = next(name for name in follows if not agrees(follows[name], found.get(name)))
        return f"{key}.{inner}", found.get(inner), follows[inner]
    return key, found, follows


class State(StrEnum):
    """State of a forecast."""

    SEALED = "sealed"
    PENDING = "pending"
    OVERDUE = "overdue"
    HELD = "held"
    MISSED = "missed"
    WITHDRAWN = "withdrawn"
    WITHDRAWN_LATE = "withdrawn late"
    VOID = "void"
    REFUSED = "refused"


_NOT_COMPARED = {
    State.SEALED: "the forecast is not revealed yet",
    State.PENDING: "its run has no outcome yet",
    State.OVERDUE: "its run has no outcome, and its due date is past",
    State.WITHDRAWN: "the forecast was withdrawn before its run",
    State.WITHDRAWN_LATE: "the forecast was withdrawn after its run began or was due",
    State.VOID: "the forecast is void",
    State.REFUSED: "the forecast does not verify",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """State of one preregistration, a sentence, and (unless pending) the outcome document."""

    id: str
    state: State
    sentence: str
    outcome: dict[str, Any] | None
    registrant: str | None = None
    """Registrant; None if the forecast is refused."""
    forecaster: Forecaster | None = None
    """Author and run; None if refused or sealed."""
    amendments: tuple[dict[str, Any], ...] = ()
    """Later forecasts of the same run with scores; they count in no track record."""
    warnings: tuple[str, ...] = ()
    """Parts of its run that were not checked, and times that contradict the promise, as in the sentence."""
    comparison: dict[str, Any] | None = None
    """Observed loss and the forecast with its 90 % interval; None without an outcome."""

    @property
    def status(self) -> str:
        """Text that the forecast was compared with its outcome, or the reason why not."""
        return f"not compared: {_NOT_COMPARED.get(self.state, self.state)}" if self.comparison is None else "compared"

    def to_document(self) -> dict[str, Any]:
        """Return the document of `marin-scale check --json`."""
        said = {"id": self.id, "state": self.state.value, "sentence": self.sentence, "outcome": self.outcome}
        seen = {"amendments": list(self.amendments), "warnings": list(self.warnings)}
        return {**said, "registrant": self.registrant, **seen, "comparison": self.comparison, "status": self.status}


def verdict_of(statement: Statement, *, state: State, sentence: str, outcome: dict[str, Any] | None) -> Verdict:
    """Return the verdict on an authentic statement."""
    predicate = statement.predicate
    return Verdict(
        id=predicate["id"],
        state=state,
        sentence=sentence,
        outcome=outcome,
        registrant=predicate["registrant"],
        comparison=None if outcome is None else _comparison(statement, observed=outcome["value"]),
    )


def _comparison(statement: Statement, *, observed: float | None) -> dict[str, Any]:
    """Return the observed loss, None for a diverged run, beside median and 90 % interval of the forecast."""
    low, median, high = (statement.quantiles[level] for level in (0.05, 0.5, 0.95))
    unit = statement.predicate["metric"]["unit"]
    return {"unit": unit, "observed": observed, "forecast": median, "low": low, "high": high}


@dataclass(frozen=True, kw_only=True)
class VerifiedStep:
    """Step of a verification: name and evidence; if not `compared`, the reason why it could not be checked here."""

    what: str
    evidence: str
    compared: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", printable(self.evidence))
