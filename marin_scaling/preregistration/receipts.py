"""Times at which a registry received its files, by its log and by the branch's commits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from marin_scaling.files import read_bytes
from marin_scaling.git import GitError, find_repository
from marin_scaling.preregistration.events.seal import read_seal
from marin_scaling.preregistration.layout import SEAL_NAME, STATEMENT_NAME
from marin_scaling.preregistration.log import Log, read_log
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.state import VerifiedStep
from marin_scaling.preregistration.statement import moment_text, parse_moment
from marin_scaling.untrusted_files import is_present

CLOCKS_DIFFER = timedelta(days=1)
"""Largest difference between two honest clocks; a wrong time zone is off by hours."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Commit of the current branch: its order (older ones are lower) and its time."""

    order: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Receipts:
    """The log that counts, with times of files that it does not name.

    `new` holds the files (`ID/NAME`) that the base branch lacks; None without a base. `commits` maps these files, and `runs`
    records (`LADDER/RUN`), to the commit that added them; both are empty without a history.
    """

    log: Log
    now: datetime
    new: Set[str] | None = None
    commits: Mapping[str, Commit] = field(default_factory=dict)
    runs: Mapping[str, Commit] = field(default_factory=dict)

    def forecast_at(self, folder: Path) -> datetime | None:
        """Return when the forecast in a folder was received: its seal, or its statement; None if nothing shows it."""
        entries = self.log.by_id.get(folder.name, ())
        if entries:
            return parse_moment(entries[0].logged_at)
        is_new = bool(self.log.entries) if self.new is None else f"{folder.name}/{first_file(folder)}" in self.new
        return self.now if is_new else None

    def file_at(self, name: str, *, folder: Path) -> datetime | None:
        """Return when a file beside a statement was received; None if nothing shows it."""
        times = [parse_moment(entry.logged_at) for entry in self.log.by_id.get(folder.name, ()) if name in entry.files]
        if times:
            return times[0]
        return self.now if self.new is not None and f"{folder.name}/{name}" in self.new else None

    def committed_at(self, folder: Path) -> Commit | None:
        """Return the commit that brought the forecast; None if no history is known."""
        return self.commits.get(f"{folder.name}/{first_file(folder)}")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Signers (with `tsa_roots.pem` and `policy.yaml` beside them) and receipts that a registration is verified against."""

    allowed_signers: Path
    receipts: Receipts


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


def known_at(said: datetime, name: str, *, folder: Path, receipts: Receipts) -> datetime:
    """Return when a file beside a statement was given: by its own word, but not before it was received.

    Else it could be given after a look at the run.
    """
    return effective_time(said, receipts.file_at(name, folder=folder))


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


_COMMIT = re.compile(rb"\x01(\d+)")
_WALK = ("log", "--first-parent", "--diff-merges=first-parent", "--diff-filter=AM", "--no-renames", "--name-only", "-z")


def receipts_with_history(folders: Iterable[Path], *, runs_dir: Path) -> dict[Path, Receipts]:
    """Return the receipts of each registry that holds one of `folders`, with the commits that brought its files."""
    return {registry: _with_history(registry, runs_dir=runs_dir) for registry in {folder.parent for folder in folders}}


def _with_history(registry_dir: Path, *, runs_dir: Path) -> Receipts:
    commits = last_commits(registry_dir, runs_dir)
    brought = _below(registry_dir, commits, names=(STATEMENT_NAME, SEAL_NAME))
    records = _below(runs_dir, commits, names=("record.json",))
    runs = {name.removesuffix("/record.json"): commit for name, commit in records.items()}
    return replace(own_receipts(registry_dir), commits=brought, runs=runs)


def _below(folder: Path, commits: Mapping[Path, Commit], *, names: Iterable[str]) -> dict[str, Commit]:
    """Return the commits of files with one of `names` below a folder, by their path in it."""
    absolute, wanted = Path(os.path.abspath(folder)), set(names)
    return {
        str(path.relative_to(absolute)): commit
        for path, commit in commits.items()
        if path.name in wanted and path.is_relative_to(absolute)
    }


def last_commits(*folders: Path) -> dict[Path, Commit]:
    """Return, for every file below `folders`, the last commit of the branch that added or changed it.

    Empty without git, outside of a repository, and in a shallow clone, whose oldest commit seems to bring everything.
    """
    try:
        repository = find_repository()
        places = [os.path.abspath(folder) for folder in folders if repository and repository.holds(folder)]
        if not places or repository is None or repository.ask("rev-parse", "--is-shallow-repository") != b"false\n":
            return {}
        raw = repository.ask(*_WALK, "--format=tformat:%x01%ct", "HEAD", "--", *places)
    except GitError:
        return {}
    found: dict[Path, Commit] = {}
    for age, at, name in _walk(raw):
        found.setdefault(repository.root / name, Commit(order=-age, at=at))
    return found


def _walk(raw: bytes) -> Iterator[tuple[int, datetime, str]]:
    """Yield the age in commits, the commit's time and the name of each file that git lists, the newest commit first."""
    age, at = 0, datetime.fromtimestamp(0, UTC)
    for word in raw.split(b"\0"):
        name = word.removeprefix(b"\n")
        if header := _COMMIT.fullmatch(name):  # no path from the root begins so: paths here begin with a folder's name
            age, at = age + 1, datetime.fromtimestamp(int(header[1]), UTC)
        elif name:
            yield age, at, os.fsdecode(name)
