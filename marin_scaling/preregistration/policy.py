"""The policy file of a registry: what it asks of every forecast beyond a good signature."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pydantic import Field

from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.statement import LONGEST_TERM
from marin_scaling.strict_model import Part
from marin_scaling.yaml_config import read_part


class Policy(Part):
    """The rules of a registry."""

    since: date
    """The first day (UTC) of receipt on which forecasts have to follow the rules."""
    reviewers: int = Field(default=0, ge=0)
    """How many others must have signed the statement, beside its registrant."""
    stamps: int = Field(default=0, ge=0)
    """How many time stamps must lie over the registrant's signature."""
    due_days: int | None = Field(default=None, gt=0, le=LONGEST_TERM.days)
    """How many days after a statement is made its run may be due; by default as many as the format allows, four years."""
    own_resolver: bool = True
    """Whether the registrant may be the one, too, who says how it came out."""


def read_policy(path: Path) -> Policy:
    """The rules in a file; `VerificationError` names line and key of what cannot be read."""
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
