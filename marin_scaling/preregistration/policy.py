"""Policy file of a registry: requirements for forecasts beyond a valid signature."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pydantic import Field

from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.statement import LONGEST_TERM
from marin_scaling.strict_model import Part
from marin_scaling.yaml_config import read_part


class Policy(Part):
    """Rules of a registry."""

    since: date
    """First day of receipt (UTC) from which the rules apply."""
    reviewers: int = Field(default=0, ge=0)
    """Required signatures of others."""
    stamps: int = Field(default=0, ge=0)
    """Required time stamps of the registrant's signature."""
    due_days: int | None = Field(default=None, gt=0, le=LONGEST_TERM.days)
    """Longest time in days from a statement to its due date; default: four years, the format's limit."""
    own_resolver: bool = True
    """True if the registrant may also resolve the forecast."""


def read_policy(path: Path) -> Policy:
    """Read the rules in a file; `VerificationError` names line and key of a fault."""
    return read_part(
        path,
        Policy,
        noun="a policy",
        refused=lambda what: VerificationError(
            what,
            why="A rule that is not understood would be no rule.",
            fix="Write keys as in the reference: since, reviewers, stamps, own_resolver, due_days.",
        ),
    )
