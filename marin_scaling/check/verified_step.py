"""What a verification consists of: steps that held, each with its evidence, and the refusal of the first that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from marin_scaling.errors import VerificationError
from marin_scaling.printable import printable


@dataclass(frozen=True, kw_only=True)
class VerifiedStep:
    """One thing that was checked and held: what, and the evidence; or, not `compared`, why it could not be checked here."""

    what: str
    evidence: str
    compared: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", printable(self.evidence))


def refuse(what: str, *, fix: str) -> NoReturn:
    """Say what is wrong with a preregistration."""
    raise VerificationError(
        f"{what}.",
        why="A forecast counts only if it is unchanged, by whom it says, and about the run it says.",
        fix=fix,
    )
