"""What a validation says of a submission: a sentence about one key, and whether it refuses it, casts doubt, or is a note."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from marin_scaling.limits import MESSAGE_CHARACTERS
from marin_scaling.printable import quoted


class Weight(StrEnum):
    """How much a finding weighs."""

    REFUSED = "refused"
    """It cannot be so: not on the board until it is mended."""
    DOUBT = "doubt"
    """It can be so, and should be looked at: on the board with a mark."""
    NOTE = "note"
    """True, and to be known by who compares."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence about one submission. `rule` is its short name, for pages and filters; `key` is where to look."""

    weight: Weight
    rule: str
    key: str
    said: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", quoted(self.key))
        object.__setattr__(self, "said", quoted(self.said, MESSAGE_CHARACTERS))


def refused(rule: str, key: str, said: str) -> Finding:
    """It cannot be so."""
    return Finding(weight=Weight.REFUSED, rule=rule, key=key, said=said)


def doubt(rule: str, key: str, said: str) -> Finding:
    """It should be looked at."""
    return Finding(weight=Weight.DOUBT, rule=rule, key=key, said=said)


def note(rule: str, key: str, said: str) -> Finding:
    """It should be known."""
    return Finding(weight=Weight.NOTE, rule=rule, key=key, said=said)
