"""Errors for users: the fact, a reason where it cannot be seen, and the fix; and findings of checks.

The command line prints no traceback.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, Self

from marin_scaling.printable import MESSAGE_CHARACTERS, MESSAGE_LINES, printable, quoted, shortened


def refuse(what: str, *, fix: str) -> NoReturn:
    """Raise `VerificationError` about a preregistration."""
    raise VerificationError(
        f"{what}.",
        why="A forecast counts only if its content, author and run are those of its signed statement.",
        fix=fix,
    )


_CONTINUED = "\n       "


class MarinScalingError(Exception):
    """Base of all errors for users; `exit_status` is 1 if the answer is no, 2 for bad input.

    `what` is one line, or a tuple of lines; `why` is left out where the fact explains itself. Lines are printable and of
    bounded length.

    >>> print(MarinScalingError("runs.csv is empty.", fix="Give a table with one run per row."))
    runs.csv is empty.
      fix: Give a table with one run per row.
    """

    exit_status = 2

    def __init__(self, what: str | tuple[str, ...], *, why: str = "", fix: str) -> None:
        self.lines = tuple(_bounded((what,) if isinstance(what, str) else what))
        self.what = _CONTINUED.join(self.lines)
        self.why, self.fix = _line(why), _line(fix)
        super().__init__(self.what)

    def at(self, where: str) -> Self:
        """Return this error with its place in front."""
        return type(self)((f"{where}: {self.lines[0]}", *self.lines[1:]), why=self.why, fix=self.fix)

    def __str__(self) -> str:
        why = f"  why: {self.why}\n" if self.why else ""
        return f"{self.what}\n{why}  fix: {self.fix}"


class UsageError(MarinScalingError):
    """Options of a command that do not fit together."""


class DocumentError(MarinScalingError):
    """A JSON document that is not canonical, finite and unambiguous, and so cannot be hashed or signed."""


class StorageError(MarinScalingError):
    """A file or folder that cannot be read or written (missing, read-only, full disk)."""


class LadderFileError(MarinScalingError):
    """A ladder file that does not describe a trainable ladder."""


class RecipeError(MarinScalingError):
    """An unknown recipe, or one that makes no run at the given budget and width."""


class RecipeFailed(MarinScalingError):
    """An unexpected exception in a user's recipe."""


class DataError(MarinScalingError):
    """Training or validation data that are missing, too small, or overlapping."""


class RunTableError(MarinScalingError):
    """A table of runs with a missing column or an invalid cell."""


class RecordError(MarinScalingError):
    """A spec or record in a run store that is malformed or does not match its name."""


class Interrupted(BaseException):
    """SIGTERM ended a training process, which has saved a checkpoint of its run."""


class TrainingFailed(MarinScalingError):
    """A run that ended without a record, while the rest of the ladder continued."""

    exit_status = 1


class ClusterError(MarinScalingError):
    """A cluster that cannot be reached, or lacks the resources of a run."""


class FitRefused(MarinScalingError):
    """Runs that do not determine the law: too few, no spread in compute, or none usable."""


class MissingExtra(MarinScalingError):
    """A missing optional part of the installation."""


class SigningError(MarinScalingError):
    """A key that cannot be read or created, or a signature that cannot be written."""


class StampError(MarinScalingError):
    """A time-stamping authority that cannot be reached, or whose answer is invalid."""


class StatementError(MarinScalingError):
    """A preregistration that is invalid or cannot be written."""


class SiteError(MarinScalingError):
    """Pages from which the site cannot be built."""


class VerificationError(MarinScalingError):
    """A preregistration that is not what it claims to be: the answer is no."""

    exit_status = 1


def _bounded(lines: tuple[str, ...]) -> list[str]:
    rest = len(lines) - MESSAGE_LINES
    return [*map(_line, lines[:MESSAGE_LINES]), *([f"and {rest} more lines"] if rest > 0 else [])]


def _line(text: str) -> str:
    return printable(shortened(text, MESSAGE_CHARACTERS))


def missing_extra(extra: str, *, needed_for: str) -> MissingExtra:
    """Return the error for a missing optional part of the installation.

    >>> missing_extra("train", needed_for="training a ladder").what
    'This installation has no "train" extra, which training a ladder needs.'
    """
    return MissingExtra(
        f'This installation has no "{extra}" extra, which {needed_for} needs.',
        fix=f"pip install {shlex.quote(_source(extra))}",
    )


def _source(extra: str) -> str:
    """Return the requirement for pip, with an extra: the folder or address of this installation."""
    folder, address = installed_from()
    if folder is not None:
        return f"{folder}[{extra}]"
    return f"marin-scaling[{extra}] @ {address}" if address else f".[{extra}]"


def installed_from() -> tuple[str | None, str]:
    """Return the folder and the git address, with commit, that pip installed this package from, as far as known (PEP 610)."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("marin-scaling").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url, commit = str(origin.get("url", "")), origin.get("vcs_info", {}).get("commit_id", "")
    folder = url2pathname(urlsplit(url).path) if url.startswith("file://") else None
    return folder, f"git+{url}@{commit}" if commit else ""


def first_line(error: Exception) -> str:
    """Return the first line of another library's error without its full stop, or its type if it has no text.

    >>> first_line(ValueError("no such thing.\\nand more"))
    'no such thing'
    """
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


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
