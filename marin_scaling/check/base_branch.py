"""What a branch may do to a registry, as seen from the branch it is to be merged into: add, and nothing else.

Asks git, changes nothing. The list of signers that counts is the base branch's: a pull request cannot trust its own author.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime
from pathlib import Path

from marin_scaling.canonical_json import load_canonical
from marin_scaling.check.compared_trees import compared_trees, file_at
from marin_scaling.check.known_names import require_known_additions
from marin_scaling.check.policy import POLICY_NAME
from marin_scaling.check.public_record import RECORD_NAME, require_only_added
from marin_scaling.check.received import Receipts
from marin_scaling.check.trust_changes import trust_changes
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.durable_files import read_bytes
from marin_scaling.errors import MarinScalingError, UsageError
from marin_scaling.git import require_repository
from marin_scaling.preregistration.binding import answering_spec
from marin_scaling.preregistration.log import LOG_NAME, Log, extends, log_path, parse_log
from marin_scaling.preregistration.registry import (
    ATTRIBUTES,
    ATTRIBUTES_NAME,
    SIGNERS_NAME,
    STATEMENT_NAME,
    read_registration,
    registration_folders,
)
from marin_scaling.preregistration.seal import SEAL_NAME, is_sealed
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.preregistration.timestamp import ROOTS_NAME
from marin_scaling.regular_files import is_present
from marin_scaling.run.run_store import run_folder
from marin_scaling.units import counted

_MOST_NAMED = 64
"""The length of a base's name in the name of a file."""
_STATUS = {"A": "is new", "M": "changed", "T": "changed", "D": "was removed"}
_TRUST_NAMES = (SIGNERS_NAME, ROOTS_NAME, POLICY_NAME)
"""Whose signatures and time stamps count, and what is asked of all: never changed together with what they are to judge."""


@contextlib.contextmanager
def signers_at(base: str, *, registry_dir: Path) -> Iterator[Path]:
    """The `allowed_signers` of the base branch as a file, as long as it is needed; empty where the base has none.

    Beside it lie the base's `tsa_roots.pem` and `policy.yaml`, where it has these.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{SIGNERS_NAME} of {base.replace('/', '-')[:_MOST_NAMED]}"
        path.write_bytes(_file_at(base, registry_dir / SIGNERS_NAME) or b"")
        for name in _TRUST_NAMES[1:]:
            if (content := _file_at(base, registry_dir / name)) is not None:
                path.with_name(name).write_bytes(content)
        yield path


def as_called_there(text: str, *, signers: Path, base: str, registry_dir: Path) -> str:
    """A message in which the files of `signers_at` have the names that they have in the base branch."""
    text = text.replace(str(signers), f"{registry_dir / SIGNERS_NAME} of {base}").replace(
        signers.name, f"{SIGNERS_NAME} of {base}"
    )
    for name in _TRUST_NAMES[1:]:
        text = text.replace(str(signers.with_name(name)), f"{registry_dir / name} of {base}")
    return text


def is_uncommitted(folder: Path) -> bool:
    """Whether the commit that is checked out has not what lies in a folder as it is now; False where there is no git to ask."""
    try:
        return bool(compared_trees("HEAD", folder).changes())
    except UsageError:
        return False


def logged_there(base: str, *, registry_dir: Path) -> Log:
    """The log of a registry as `base` has it; empty where that has none, git knows no such base, or there is no git."""
    try:
        raw = _file_at(base, log_path(registry_dir)) or b""
    except UsageError:
        raw = b""
    return parse_log(raw, name=f"{log_path(registry_dir)} of {base}")


def added_files(base: str, *, registry_dir: Path) -> dict[Path, list[str]]:
    """Each preregistration that has files which `base` has not, with their names in it."""
    added = [path for path, status in _changes(base, registry_dir).items() if status == "A"]
    folders = registration_folders(registry_dir)
    found = {folder: sorted(str(path.relative_to(folder)) for path in added if folder in path.parents) for folder in folders}
    return {folder: names for folder, names in found.items() if names}


def changes_trust(base: str, *, registry_dir: Path) -> bool:
    """Whether a branch changes whose signatures and stamps count, or what is asked of all."""
    return any(registry_dir / name in _changes(base, registry_dir) for name in _TRUST_NAMES)


def base_step(base: str, *, registry_dir: Path) -> VerifiedStep:
    """What the working tree did to a registry since `base`: `VerificationError` unless it only added to it.

    A file that was there is as it was, the base's log is the beginning of this one, the public record only grew, and what the
    registry trusts and asks for (signers, roots, policy) does not change together with anything else. `UsageError` when git
    knows no such base.
    """
    trees = compared_trees(base, registry_dir)
    if not extends(_file_at(base, log_path(registry_dir)) or b"", _now(log_path(registry_dir))):
        refuse(
            f"{log_path(registry_dir)} does not begin with the log of {base}",
            fix=f"Merge {base} first (git merge {base}; of the log, keep its version), then: marin-scale log",
        )
    changes, record = trees.changes(), registry_dir / RECORD_NAME
    record_grew = _record_grew(base, record, status=changes.get(record))
    policies = [path for name in _TRUST_NAMES if (path := registry_dir / name) in changes]
    _require_only_added(changes, allowed={log_path(registry_dir), *policies, *([record] if record_grew else [])}, base=base)
    require_known_additions(changes, registry_dir=registry_dir)
    _require_own_attributes(changes, registry_dir=registry_dir)
    trees.require_committed(growing=log_path(registry_dir))
    added = {path for path, status in changes.items() if status == "A" and path.name not in (LOG_NAME, ATTRIBUTES_NAME)}
    others = len(added - set(policies)) + record_grew
    if policies and others:
        refuse(
            f"{policies[0]} and {others} other files of the registry changed since {base}",
            fix="Let a maintainer change what the registry trusts in a pull request of its own, and merge that one first. If "
            f"that is done already, {base} is old here: git fetch, and name the branch as it is there (--base origin/main).",
        )
    also = ", its public record only grew" if record_grew else ""
    if policies:
        for path in policies:
            trust_changes(path, before=_file_at(base, path), base=base)  # refused here where it could not be read once merged
        names = ", ".join(f"{path.name} {_STATUS[changes[path]]}" for path in policies)
        also += f", and {names}: it counts once it is merged"
    evidence = f"{base} is only added to: {counted(len(added), 'new file')}, its log is the beginning of ours{also}"
    return VerifiedStep(what="base", evidence=evidence)


def trust_steps(base: str, *, registry_dir: Path) -> list[VerifiedStep]:
    """Return a step for each change since `base` of what a registry trusts: what it allows now, with its warnings."""
    changes = _changes(base, registry_dir)
    paths = [registry_dir / name for name in _TRUST_NAMES if registry_dir / name in changes]
    found = [change for path in paths for change in trust_changes(path, before=_file_at(base, path), base=base)]
    return [VerifiedStep(what="trust", evidence=change.text, compared=not change.warnings) for change in found]


def base_receipts(base: str, *, registry_dir: Path) -> Receipts:
    """Return when files were received, by the log of `base`: what `base` does not have is received now."""
    new = {str(path.relative_to(registry_dir)) for path, status in _changes(base, registry_dir).items() if status == "A"}
    return Receipts(log=logged_there(base, registry_dir=registry_dir), now=datetime.now(UTC), new=new)


def require_forecast_first(base: str, folder: Path, *, runs_dir: Path) -> None:
    """`VerificationError` where `base` has the record of a run, and not yet the forecast that the run answers.

    Unlike `started_at`, which is the word of whoever trained, the content of the base branch cannot be written afterwards.
    """
    if is_sealed(folder) or any(_file_at(base, folder / name) is not None for name in (STATEMENT_NAME, SEAL_NAME)):
        return
    record = run_folder(runs_dir, answering_spec(folder)) / "record.json"
    raw = _file_at(base, record) if record.parent.is_dir() else None  # one that was taken out is refused elsewhere
    if raw is not None:
        began = load_canonical(raw, name=f"{record} of {base}").get("started_at", "an unknown time")
        refuse(
            f"{record} is in {base} already, of a run that began at {began}, and {base} receives {folder.name} only now, "
            f"{moment_text(datetime.now(UTC))}",
            fix="This forecast cannot be merged: its result was public first. Register the next one before its run.",
        )


def require_runs_kept(base: str, *, registry_dir: Path, runs_dir: Path) -> None:
    """`VerificationError` where a run of a ladder that a forecast of `base` rests on was changed or removed since.

    Without its runs a forecast's ladder is compared with nothing, and its outcome is only claimed.
    """
    held = {read_registration(folder).predicate["targetRun"]["ladder"] for folder in _readable(registry_dir)}
    if not require_repository().holds(runs_dir):
        return
    trees = compared_trees(base, runs_dir)
    for path, status in trees.changes().items():
        below = path.relative_to(runs_dir).parts if path.is_relative_to(runs_dir) else ()
        if status != "A" and len(below) > 1 and below[0] in held:
            refuse(
                f"{path} was {'removed' if status == 'D' else 'changed'} since {base}, and forecasts rest on that ladder",
                fix=f"Runs stay as they were recorded: git checkout {base} -- {path}",
            )
    trees.require_committed()


def _readable(registry_dir: Path) -> Iterator[Path]:
    """The folders with a statement; those without are sealed, or refused elsewhere."""
    for folder in registration_folders(registry_dir):
        with contextlib.suppress(MarinScalingError):
            read_registration(folder)
            yield folder


def _require_only_added(changes: Mapping[Path, str], *, allowed: Set[Path], base: str) -> None:
    for path, status in changes.items():
        if path.is_symlink():
            refuse(f"{path} is a link since {base}", fix="Put the file itself there: what a link leads to could be exchanged.")
        if status != "A" and path not in allowed:
            refuse(
                f"{path} was {'removed' if status == 'D' else 'changed'} since {base}",
                fix=f"Nothing in a registry is written again: merge {base} if it is newer, else git checkout {base} -- {path}",
            )


def _record_grew(base: str, record: Path, *, status: str | None) -> bool:
    """Whether the public record of the base has more in it now; also a new one is read, so that it can be read later."""
    if status in ("A", "M"):
        require_only_added(_file_at(base, record), read_bytes(record), name=str(record), base=base)
    return status == "M"


def _require_own_attributes(changes: Mapping[Path, str], *, registry_dir: Path) -> None:
    """Other attributes would let git check out other bytes than those that were signed."""
    path = registry_dir / ATTRIBUTES_NAME
    if path in changes and read_bytes(path) != ATTRIBUTES:
        refuse(f"{path} is not the one that keeps exact bytes", fix=f"Put this into it: {ATTRIBUTES.decode().strip()!r}")


def _changes(base: str, folder: Path) -> dict[Path, str]:
    """Path in the working tree to A, M or D, also for files that git does not know yet, or ignores."""
    return compared_trees(base, folder).changes()


def _file_at(base: str, path: Path) -> bytes | None:
    return file_at(base, path)


def _now(path: Path) -> bytes:
    return read_bytes(path) if is_present(path) else b""
