"""The steps of a verification, and the states of a forecast with its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from marin_scaling.preregistration.families import Forecaster
from marin_scaling.preregistration.statement import Statement
from marin_scaling.printable import printable


class State(StrEnum):
    """What became of a forecast."""

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
    """The state of one preregistration, in one word, one sentence, and (unless pending) the outcome document."""

    id: str
    state: State
    sentence: str
    outcome: dict[str, Any] | None
    registrant: str | None = None
    """Who signed it; None of one that is refused, because then nobody did."""
    forecaster: Forecaster | None = None
    """Who made it, and of which run; None of one that is refused or sealed."""
    amendments: tuple[dict[str, Any], ...] = ()
    """Later forecasts of the same run, each with its scores; they count in no record."""

    def to_document(self) -> dict[str, Any]:
        """What `marin-scale check --json` prints."""
        said = {"id": self.id, "state": self.state.value, "sentence": self.sentence, "outcome": self.outcome}
        return {**said, "registrant": self.registrant, "amendments": list(self.amendments)}


def verdict_of(statement: Statement, *, state: State, sentence: str, outcome: dict[str, Any] | None) -> Verdict:
    """The verdict on an authentic statement."""
    predicate = statement.predicate
    return Verdict(id=predicate["id"], state=state, sentence=sentence, outcome=outcome, registrant=predicate["registrant"])


@dataclass(frozen=True, kw_only=True)
class VerifiedStep:
    """One thing that was checked and held: what, and the evidence; or, not `compared`, why it could not be checked here."""

    what: str
    evidence: str
    compared: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", printable(self.evidence))
