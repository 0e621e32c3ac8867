"""Errors for users: the fact, the reason where it cannot be seen, and the fix. The command line prints them without a traceback."""

from __future__ import annotations

import shlex
from typing import NoReturn, Self

from marin_scaling.limits import MESSAGE_CHARACTERS, MESSAGE_LINES
from marin_scaling.printable import printable, shortened


def refuse(what: str, *, fix: str) -> NoReturn:
    """Say what is wrong with a preregistration."""
    raise VerificationError(
        f"{what}.",
        why="A forecast counts only if it is unchanged, by whom it says, and about the run it says.",
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
        """The same error with the place where it was met in front."""
        return type(self)((f"{where}: {self.lines[0]}", *self.lines[1:]), why=self.why, fix=self.fix)

    def __str__(self) -> str:
        why = f"  why: {self.why}\n" if self.why else ""
        return f"{self.what}\n{why}  fix: {self.fix}"


class UsageError(MarinScalingError):
    """The command was called with options that do not fit together."""


class DocumentError(MarinScalingError):
    """A JSON document is not the canonical, finite, unambiguous form that may be hashed or signed."""


class StorageError(MarinScalingError):
    """A file or folder cannot be read or written (missing, read-only, full disk)."""


class LadderFileError(MarinScalingError):
    """A ladder file does not say a ladder that can be trained."""


class RecipeError(MarinScalingError):
    """A recipe is unknown, or cannot be expanded at the asked budget and width."""


class RecipeFailed(MarinScalingError):
    """A recipe of somebody else's raised what a recipe does not raise: it says nothing about a budget or a width."""


class DataError(MarinScalingError):
    """Training or validation data is missing, too small, or overlapping."""


class RunTableError(MarinScalingError):
    """A table of runs has a missing column or a cell that is not a usable number."""


class RecordError(MarinScalingError):
    """A spec or record in a run store is malformed, or is not the one its name says."""


class Interrupted(BaseException):
    """A training process was asked to end (SIGTERM), and has saved the state that its run was in."""


class TrainingFailed(MarinScalingError):
    """A run ended without a record; the rest of the ladder went on."""

    exit_status = 1


class ClusterError(MarinScalingError):
    """A cluster cannot be reached, or has not what a run is to be given."""


class FitRefused(MarinScalingError):
    """The runs cannot carry the law: too few, no spread in compute, or none usable."""


class MissingExtra(MarinScalingError):
    """An optional part of the installation is needed and absent."""


class SigningError(MarinScalingError):
    """A key cannot be read or made, or a signature cannot be written."""


class StampError(MarinScalingError):
    """A time-stamping authority cannot be reached, or its answer cannot be used."""


class StatementError(MarinScalingError):
    """A preregistration cannot be written as asked, or is not one."""


class SiteError(MarinScalingError):
    """The site cannot be built from its pages."""


class VerificationError(MarinScalingError):
    """A preregistration is not what it claims to be: the answer is no."""

    exit_status = 1


def _bounded(lines: tuple[str, ...]) -> list[str]:
    rest = len(lines) - MESSAGE_LINES
    return [*map(_line, lines[:MESSAGE_LINES]), *([f"and {rest} more lines"] if rest > 0 else [])]


def _line(text: str) -> str:
    return printable(shortened(text, MESSAGE_CHARACTERS))


def missing_extra(extra: str, *, needed_for: str) -> MissingExtra:
    """The error for a part of the installation that is not there.

    >>> missing_extra("train", needed_for="training a ladder").what
    'This installation has no "train" extra, which training a ladder needs.'
    """
    return MissingExtra(
        f'This installation has no "{extra}" extra, which {needed_for} needs.',
        why="The base installation fits, verifies and checks without it.",
        fix=f"pip install {shlex.quote(_source(extra))}",
    )


def _source(extra: str) -> str:
    """Return what pip installs this package from, with an extra: the folder or address of this installation (PEP 610)."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("marin-scaling").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if url.startswith("file://"):
        return f"{url2pathname(urlsplit(url).path)}[{extra}]"
    commit = origin.get("vcs_info", {}).get("commit_id", "")
    return f"marin-scaling[{extra}] @ git+{url}@{commit}" if commit else f".[{extra}]"


def first_line(error: Exception) -> str:
    """What an error of somebody else's says first, without its full stop; its kind where it says nothing.

    >>> first_line(ValueError("no such thing.\\nand more"))
    'no such thing'
    """
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
