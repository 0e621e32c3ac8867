"""Times at which a registry received its files, which no author of a file can write.

The log of the base branch says them; a file that the base does not have was received now. Without a base the registry's own log
counts, and the first commits that brought a file are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from marin_scaling.check.verified_step import VerifiedStep
from marin_scaling.durable_files import read_bytes
from marin_scaling.preregistration.log import Log, read_log
from marin_scaling.preregistration.registry import STATEMENT_NAME, read_registration
from marin_scaling.preregistration.seal import SEAL_NAME, read_seal
from marin_scaling.preregistration.statement import moment_text, parse_moment
from marin_scaling.regular_files import is_present

CLOCKS_DIFFER = timedelta(days=1)
"""Largest difference between two honest clocks: one that keeps local time as UTC is off by hours."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit of the current branch: its place in the branch (an older one has a lower number), and its time."""

    order: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """The log that counts, and what is known of files that it does not name.

    `new` holds the files (`ID/NAME`) that the base branch does not have; None without a base. `commits` maps such files to the
    commit that brought them as they are, `runs` does so for records (`LADDER/RUN`); both are empty without a history.
    """

    log: Log
    now: datetime
    new: Set[str] | None = None
    commits: Mapping[str, Commit] = field(default_factory=dict)
    runs: Mapping[str, Commit] = field(default_factory=dict)

    def forecast_at(self, folder: Path) -> datetime | None:
        """Return when the forecast in a folder was received: its seal, or its statement; None where nothing shows it."""
        entries = self.log.by_id.get(folder.name, ())
        if entries:
            return parse_moment(entries[0].logged_at)
        is_new = bool(self.log.entries) if self.new is None else f"{folder.name}/{first_file(folder)}" in self.new
        return self.now if is_new else None

    def file_at(self, name: str, *, folder: Path) -> datetime | None:
        """Return when a file beside a statement was received; None where nothing shows it."""
        times = [parse_moment(entry.logged_at) for entry in self.log.by_id.get(folder.name, ()) if name in entry.files]
        if times:
            return times[0]
        return self.now if self.new is not None and f"{folder.name}/{name}" in self.new else None

    def committed_at(self, folder: Path) -> Commit | None:
        """Return the commit that brought the forecast; None where no history is known."""
        return self.commits.get(f"{folder.name}/{first_file(folder)}")


def own_receipts(registry_dir: Path) -> Receipts:
    """Return the receipts of a registry by its own log."""
    return Receipts(log=read_log(registry_dir), now=datetime.now(UTC))


def first_file(folder: Path) -> str:
    """Return the file that fixes a forecast: the seal where there is one, else the statement."""
    return SEAL_NAME if is_present(folder / SEAL_NAME) else STATEMENT_NAME


def made_at(folder: Path) -> datetime:
    """Return when a forecast was made, by its registrant's word: when it was sealed, or its statement's time (UTC)."""
    path = folder / SEAL_NAME
    return read_seal(read_bytes(path), name=str(path)).at if is_present(path) else read_registration(folder).created_at


def effective_time(said: datetime, received: datetime | None) -> datetime:
    """Return the time from which a rule counts: what its subject says, but not before the registry received it."""
    return said if received is None else max(said, received)


def known_at(said: datetime, name: str, *, folder: Path, receipts: Receipts | None = None) -> datetime:
    """Return when a file beside a statement was given: by its own word, but not before it was received.

    Else it could be given after a look at the run.
    """
    return effective_time(said, (receipts or own_receipts(folder.parent)).file_at(name, folder=folder))


def received_step(folder: Path, *, receipts: Receipts) -> list[VerifiedStep]:
    """Return a step that warns of a forecast that says it is more than a day older than its receipt; none where it does not."""
    made, received, committed = made_at(folder), receipts.forecast_at(folder), receipts.committed_at(folder)
    late = []
    if received is not None and received - made > CLOCKS_DIFFER:
        late.append(
            f"received {moment_text(received)}, {_days(received - made)} after the time that it says, {moment_text(made)}"
        )
    if committed is not None and committed.at - (received or made) > CLOCKS_DIFFER:
        gap, since = _days(committed.at - (received or made)), "its line in the log" if received else "that time"
        late.append(f"the commit that brought it is of {moment_text(committed.at)}, {gap} after {since}")
    return [VerifiedStep(what="received", evidence="; ".join(late), compared=False)] if late else []


def _days(gap: timedelta) -> str:
    return f"{gap / timedelta(days=1):.1f} days"
