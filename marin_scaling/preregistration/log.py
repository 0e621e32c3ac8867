"""Log of a registry: a hash chain with one line per event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

from marin_scaling.canonical_json import load_strict, sha256_hex
from marin_scaling.errors import DocumentError, VerificationError
from marin_scaling.files import alone_in, read_bytes, replace_file
from marin_scaling.preregistration.format import RegistrationId
from marin_scaling.preregistration.layout import (
    AMENDMENT_FILES,
    LOG_NAME,
    NOTICE_NAME,
    NOTICE_SIGNATURE_NAME,
    OPENING_NAME,
    OUTCOME_NAME,
    SEAL_FILES,
    SIGNATURE_NAME,
    STATEMENT_NAME,
    amendment_names,
    countersigners,
    is_sealed,
    notice_names,
    stamp_names,
)
from marin_scaling.preregistration.registry import registration_folders
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
    "outcome": lambda present: [(OUTCOME_NAME,)] if OUTCOME_NAME in present else [],
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
    return parse_log(read_bytes(path) if is_present(path) else b"", name=str(path))


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
                _refuse(str(folder), f"{', '.join(names)} differ from what {log_path(registry_dir)} says of them")
    return added


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
