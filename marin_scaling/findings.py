"""Findings of checks of run tables, plans, submissions, experiments and reviews."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from marin_scaling.limits import MESSAGE_CHARACTERS
from marin_scaling.printable import quoted


class Severity(StrEnum):
    """Severity of a finding, the worst first."""

    ERROR = "error"
    """Cannot be true: refused until fixed."""
    WARNING = "warning"
    """Possible, but needs a look."""
    NOTE = "note"
    """True, and relevant to readers who compare."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence about one object: `code` is a short name for pages and filters, `where` the key or run.

    >>> warning("mfu", "seeds.training_seconds", "MFU is 0.01").severity
    <Severity.WARNING: 'warning'>
    """

    severity: Severity
    code: str
    where: str
    message: str

    @property
    def line(self) -> str:
        """The finding as a line of a terminal.

        >>> warning("far-target", "target", "400x the largest rung").line
        'warning: target: 400x the largest rung'
        """
        return f"{self.severity}: {self.where}: {self.message}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", quoted(self.where))
        object.__setattr__(self, "message", quoted(self.message, MESSAGE_CHARACTERS))


def error(code: str, where: str, message: str) -> Finding:
    """Return a finding that refuses the object."""
    return Finding(severity=Severity.ERROR, code=code, where=where, message=message)


def warning(code: str, where: str, message: str) -> Finding:
    """Return a finding that needs a look."""
    return Finding(severity=Severity.WARNING, code=code, where=where, message=message)


def note(code: str, where: str, message: str) -> Finding:
    """Return a finding for information."""
    return Finding(severity=Severity.NOTE, code=code, where=where, message=message)
