"""Steps of a verification, and states of a forecast with its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from marin_scaling.preregistration.families import Forecaster
from marin_scaling.preregistration.statement import Statement
from marin_scaling.printable import printable


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

    def to_document(self) -> dict[str, Any]:
        """Return the document of `marin-scale check --json`."""
        said = {"id": self.id, "state": self.state.value, "sentence": self.sentence, "outcome": self.outcome}
        return {**said, "registrant": self.registrant, "amendments": list(self.amendments)}


def verdict_of(statement: Statement, *, state: State, sentence: str, outcome: dict[str, Any] | None) -> Verdict:
    """Return the verdict on an authentic statement."""
    predicate = statement.predicate
    return Verdict(id=predicate["id"], state=state, sentence=sentence, outcome=outcome, registrant=predicate["registrant"])


@dataclass(frozen=True, kw_only=True)
class VerifiedStep:
    """Step of a verification: name and evidence; if not `compared`, the reason why it could not be checked here."""

    what: str
    evidence: str
    compared: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", printable(self.evidence))
