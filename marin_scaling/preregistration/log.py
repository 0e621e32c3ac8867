"""Log of a registry, a hash chain with one line per event, and the times at which the registry received its files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

from marin_scaling.canonical_json import has_digest, load_strict, sha256_hex
from marin_scaling.errors import DocumentError, MarinScalingError, VerificationError
from marin_scaling.files import alone_in, read_bytes, replace_file
from marin_scaling.git import GitError, find_repository, restored_by, restoring_command
from marin_scaling.preregistration.events.seal import read_seal
from marin_scaling.preregistration.format import RegistrationId
from marin_scaling.preregistration.layout import (
    AMENDMENT_FILES,
    LOG_NAME,
    NOTICE_NAME,
    NOTICE_SIGNATURE_NAME,
    OPENING_NAME,
    OUTCOME_NAME,
    SEAL_FILES,
    SEAL_NAME,
    SIGNATURE_NAME,
    STATEMENT_NAME,
    amendment_names,
    countersigners,
    is_sealed,
    notice_names,
    observation_files,
    stamp_names,
)
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.registry import read_registration, registration_folders
from marin_scaling.preregistration.signing.allowed_signers import MERGE_MARKS
from marin_scaling.preregistration.statement import moment_text, parse_moment
from marin_scaling.strict_model import SHA256, Moment, OneOf, Part, Steps, check_document
from marin_scaling.untrusted_files import is_present

FIRST_PREVIOUS = "0" * 64
"""Previous digest in the first line."""
_COMPACT = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":"))
MAX_LINE_BYTES = 64 * 1024
_FILES_OF: Mapping[str, Callable[[Iterable[str]], list[tuple[str, ...]]]] = {
    "seal": lambda present: [SEAL_FILES] if set(SEAL_FILES) <= set(present) else [],
    "register": lambda present: [(STATEMENT_NAME, SIGNATURE_NAME)] if {STATEMENT_NAME, SIGNATURE_NAME} <= set(present) else [],
    "reveal": lambda present: [(OPENING_NAME,)] if OPENING_NAME in present else [],
    "review": lambda present: [(name,) for name in countersigners(present).values()],
    "outcome": lambda present: [(OUTCOME_NAME, *observation_files(present))] if OUTCOME_NAME in present else [],
    "stamp": lambda present: [(name,) for name in stamp_names(present)],
    "amend": lambda present: [tuple(f"{name}/{file}" for file in AMENDMENT_FILES) for name in amendment_names(present)],
    "notice": lambda present: [(f"{name}/{NOTICE_NAME}", f"{name}/{NOTICE_SIGNATURE_NAME}") for name in notice_names(present)],
}
"""Events that a folder's file names show, each with its files."""


class LogLine(Part):
    """A line of `log.jsonl`."""

    seq: Steps
    prev: SHA256
    type: Annotated[str, OneOf(tuple(_FILES_OF))]
    id: RegistrationId
    files: dict[str, SHA256]
    logged_at: Moment


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """Line of the log: event, preregistration and digests of its files."""

    number: int
    previous: str
    kind: str
    id: str
    files: Mapping[str, str]
    logged_at: str
    line: bytes
    """Line without its end; the next line contains its digest."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """All lines, in order."""

    entries: tuple[LogEntry, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Sequence[LogEntry]]:
        """Lines of each preregistration."""
        found: dict[str, list[LogEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.id, []).append(entry)
        return found


def log_path(registry_dir: Path) -> Path:
    """Return the path of a registry's log."""
    return registry_dir / LOG_NAME


def read_log(registry_dir: Path) -> Log:
    """Return all lines of a registry's log; empty without one. `VerificationError` names the first wrong line."""
    path = log_path(registry_dir)
    if path.is_symlink():
        _refuse(str(path), "it is a link: what it leads to could be exchanged")
    with restored_by(lambda: restoring_command(path, fits=is_whole_log)):
        return parse_log(read_bytes(path) if is_present(path) else b"", name=str(path))


def is_whole_log(raw: bytes) -> bool:
    """Return True if these bytes are a log with at least one line, and its chain holds."""
    try:
        return bool(parse_log(raw, name=LOG_NAME).entries)
    except MarinScalingError:
        return False


@lru_cache(maxsize=4)
def parse_log(raw: bytes, *, name: str) -> Log:
    """Return the lines in the bytes of a log: canonical, numbered from 0, each with the digest of the one before.

    Results are cached, because every folder of a registry reads its log.
    """
    if raw and not raw.endswith(b"\n"):
        _refuse(name, "its last line has no end")
    entries: list[LogEntry] = []
    for number, line in enumerate(raw.split(b"\n")[:-1]):
        if line[:7].decode("latin-1") in MERGE_MARKS:
            raise VerificationError(
                f"{name}, line {number + 1}, is a mark of a merge that is not resolved.",
                why="Two branches added lines, and each line names the one before, so that only one of them keeps its own.",
                fix=f"Take the log of the branch that you merge into (git checkout BRANCH -- {name}); "
                "then: marin-scale registry log",
            )
        try:
            entries.append(_entry(line, after=entries[-1] if entries else None, name=f"{name}, line {number + 1}"))
        except DocumentError as error:  # it was sound when it was written, so this is a "no"
            raise VerificationError(error.lines, why=error.why, fix=error.fix) from error
    return Log(entries=tuple(entries))


def extends(base: bytes, head: bytes) -> bool:
    r"""Return True if the log `head` starts with the log `base`.

    >>> extends(b"a\n", b"a\nb\n"), extends(b"a\n", b"b\n")
    (True, False)
    """
    return head.startswith(base) and (not base or base.endswith(b"\n"))


def write_down(registry_dir: Path, *, at: datetime) -> list[LogEntry]:
    """Add missing lines to a registry's log; return the new ones.

    A rerun after a crash or a merge adds only what is missing. `VerificationError` if a file differs from its logged digest.
    """
    if not registry_dir.is_dir():
        return []
    with alone_in(registry_dir):
        log = read_log(registry_dir)
        added = missing_lines(registry_dir, log=log, at=at)
        if added:
            replace_file(log_path(registry_dir), b"".join(entry.line + b"\n" for entry in (*log.entries, *added)))
    return added


def missing_lines(registry_dir: Path, *, log: Log, at: datetime) -> list[LogEntry]:
    """Return the lines that `write_down` would add, with the same refusals; write nothing."""
    entries = list(log.entries)
    known = {(entry.kind, entry.id, name): digest for entry in entries for name, digest in entry.files.items()}
    added: list[LogEntry] = []
    for folder in registration_folders(registry_dir):
        for kind, names in _events(folder):
            digests = {name: sha256_hex(read_bytes(folder / name)) for name in names}
            standing = {name: known.get((kind, folder.name, name)) for name in names}
            if all(digest is None for digest in standing.values()):
                added.append(_next(entries + added, kind=kind, folder=folder, files=digests, at=at))
            elif standing != digests:
                with restored_by(partial(restoring_logged, folder)):
                    _refuse(str(folder), f"{', '.join(names)} differ from what {log_path(registry_dir)} says of them")
    return added


def restoring_logged(folder: Path) -> str:
    """Return the command that restores the first file that changed after it was logged; empty without one."""
    for entry in read_log(folder.parent).by_id.get(folder.name, ()):
        for path, digest in ((folder / name, digest) for name, digest in entry.files.items()):
            if not is_present(path) or not has_digest(read_bytes(path), digest=digest):
                return restoring_command(path, fits=partial(has_digest, digest=digest))
    return ""


def _events(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    present = {path.name for path in folder.iterdir()}
    if {STATEMENT_NAME, SIGNATURE_NAME} <= present or is_sealed(folder):
        for kind, files_of in _FILES_OF.items():
            yield from ((kind, names) for names in files_of(present))


def _next(entries: Sequence[LogEntry], *, kind: str, folder: Path, files: Mapping[str, str], at: datetime) -> LogEntry:
    previous = sha256_hex(entries[-1].line) if entries else FIRST_PREVIOUS
    times = [moment_text(at), *(entry.logged_at for entry in entries[-1:])]
    latest = max(times, key=parse_moment)  # not the first where a clock was set back
    document = {"seq": len(entries), "prev": previous, "type": kind, "id": folder.name, "files": files, "logged_at": latest}
    return read_line(_canonical(document), name=f"the next line of {log_path(folder.parent)}")


def _entry(line: bytes, *, after: LogEntry | None, name: str) -> LogEntry:
    entry = read_line(line, name=name)
    number, previous = (0, FIRST_PREVIOUS) if after is None else (after.number + 1, sha256_hex(after.line))
    if entry.number != number:
        _refuse(name, f"it says that it is number {entry.number}, and it is number {number}")
    if entry.previous != previous:
        _refuse(name, "it does not name the digest of the line before: one of the two was changed, added or taken out")
    if after is not None and parse_moment(entry.logged_at) < parse_moment(after.logged_at):
        _refuse(name, f"it was logged at {entry.logged_at}, before the line above it ({after.logged_at})")
    return entry


def read_line(line: bytes, *, name: str) -> LogEntry:
    """Return one line without its end; `VerificationError` or `DocumentError` names the fault, with `name`."""
    if len(line) > MAX_LINE_BYTES:
        _refuse(name, f"it has {len(line)} bytes, more than {MAX_LINE_BYTES}")
    document = load_strict(line, name=name)
    check_document(document, LogLine, name=name)
    if _canonical(document) != line:
        _refuse(name, "it is not written in the one canonical way")
    if not _belong(document["files"], kind=document["type"]):
        _refuse(name, f"{', '.join(document['files']) or 'no file'} is not what a line of the type {document['type']!r} names")
    return LogEntry(
        number=document["seq"],
        previous=document["prev"],
        kind=document["type"],
        id=document["id"],
        files=document["files"],
        logged_at=document["logged_at"],
        line=line,
    )


def _belong(names: Iterable[str], *, kind: str) -> bool:
    """Return True if these are exactly the files of one event of this kind."""
    listed = sorted(names)
    return [listed] == [sorted(files) for files in _FILES_OF[kind]({name.partition("/")[0] for name in listed})]


def _canonical(document: Mapping[str, Any]) -> bytes:
    return _COMPACT.encode(document).encode("ascii")


def _refuse(name: str, reason: str) -> NoReturn:
    raise VerificationError(
        f"{name}: {reason}.",
        why="The log shows that nothing was taken out of the registry or exchanged; it only ever grows at its end.",
        fix="Restore it from version control; lines that your branch added are made again by: marin-scale registry log",
    )


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


def line_times(name: str, *, folder: Path) -> list[datetime]:
    """Return the times at which a file entered the log; empty if the log does not name it."""
    own = read_log(folder.parent).by_id.get(folder.name, ())
    return [parse_moment(entry.logged_at) for entry in own if name in entry.files]
