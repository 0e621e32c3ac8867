"""Changes of a branch to a registry, compared with its base branch."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from marin_scaling.canonical_json import load_canonical
from marin_scaling.errors import DocumentError, MarinScalingError, StatementError, UsageError, VerificationError, refuse
from marin_scaling.files import read_bytes
from marin_scaling.git import checkout_command, require_repository, restoring
from marin_scaling.preregistration.events.amendment import Amendment
from marin_scaling.preregistration.ladder_records import RUN_FILES, contradicts_forecasts
from marin_scaling.preregistration.layout import (
    AMENDMENT_NAME,
    ATTRIBUTES,
    ATTRIBUTES_NAME,
    LOG_NAME,
    POLICY_NAME,
    RECORD_NAME,
    ROOTS_NAME,
    SEAL_NAME,
    SIGNERS_NAME,
    STATEMENT_NAME,
    is_sealed,
    require_known_additions,
    require_known_names,
)
from marin_scaling.preregistration.log import Log, Receipts, extends, is_whole_log, log_path, parse_log, read_log, received_step
from marin_scaling.preregistration.outcome import State, Verdict, VerifiedStep
from marin_scaling.preregistration.public_record import require_only_added
from marin_scaling.preregistration.register import answering_spec, is_outside_run
from marin_scaling.preregistration.registry import identity, read_registration, registration_folders, signature_faults
from marin_scaling.preregistration.review.changes import (
    BaseFault,
    base_faults,
    compared_trees,
    file_at,
    first_received,
    log_at,
    trust_changes,
)
from marin_scaling.preregistration.signing.allowed_signers import read_allowed_signers
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import Statement, moment_text
from marin_scaling.preregistration.verdict import verdicts_on
from marin_scaling.preregistration.verify.authenticity import VerifiedSeal, verify_folder
from marin_scaling.preregistration.verify.refit import verify_and_fit
from marin_scaling.preregistration.verify.rules import log_step, policy_steps, require_whole
from marin_scaling.printable import FAULTS_NAMED, joined
from marin_scaling.run.store import run_folder, run_folders
from marin_scaling.units import counted
from marin_scaling.untrusted_files import UnsafeTreeError, is_present, require_regular_tree, shown

_MOST_NAMED = 64
"""Longest name of a base in a file name."""
_STATUS = {"A": "is new", "M": "was changed", "T": "was changed", "D": "was removed"}
_TRUST_NAMES = (SIGNERS_NAME, ROOTS_NAME, POLICY_NAME)
"""Files that define trust and rules: they never change together with what they judge."""


@contextlib.contextmanager
def signers_at(base: str, *, registry_dir: Path) -> Iterator[Path]:
    """Yield the base branch's `allowed_signers` as a temporary file; empty if the base has none.

    The base's `tsa_roots.pem` and `policy.yaml` lie beside it, if they exist.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{SIGNERS_NAME} of {base.replace('/', '-')[:_MOST_NAMED]}"
        path.write_bytes(file_at(base, registry_dir / SIGNERS_NAME) or b"")
        for name in _TRUST_NAMES[1:]:
            if (content := file_at(base, registry_dir / name)) is not None:
                path.with_name(name).write_bytes(content)
        yield path


def as_called_there(text: str, *, signers: Path, base: str, registry_dir: Path) -> str:
    """Return a message with the names that the files of `signers_at` have in the base branch."""
    text = text.replace(str(signers), f"{registry_dir / SIGNERS_NAME} of {base}").replace(
        signers.name, f"{SIGNERS_NAME} of {base}"
    )
    for name in _TRUST_NAMES[1:]:
        text = text.replace(str(signers.with_name(name)), f"{registry_dir / name} of {base}")
    return text


def is_uncommitted(folder: Path) -> bool:
    """Return True if the folder has uncommitted changes; False without git."""
    try:
        return bool(compared_trees("HEAD", folder).changes())
    except UsageError:
        return False


def logged_there(base: str, *, registry_dir: Path) -> Log:
    """Return the log of a registry in `base`, as `log_at`; empty without a log, such a base, or git."""
    try:
        raw = log_at(base, log_path(registry_dir))
    except UsageError:
        raw = b""
    return parse_log(raw, name=f"{log_path(registry_dir)} of {base}")


def added_files(base: str, *, registry_dir: Path) -> dict[Path, list[str]]:
    """Return each preregistration with files that `base` lacks, and their names."""
    added = [path for path, status in _changes(base, registry_dir).items() if status == "A"]
    folders = registration_folders(registry_dir)
    found = {folder: sorted(str(path.relative_to(folder)) for path in added if folder in path.parents) for folder in folders}
    return {folder: names for folder, names in found.items() if names}


def changes_trust(base: str, *, registry_dir: Path) -> bool:
    """Return True if a branch changes signers, roots or policy."""
    return any(registry_dir / name in _changes(base, registry_dir) for name in _TRUST_NAMES)


def base_step(base: str, *, registry_dir: Path) -> VerifiedStep:
    """Check the branch like `_base_step`; a refusal starts with the signed files that were changed after signing."""
    try:
        return _base_step(base, registry_dir=registry_dir)
    except VerificationError as error:
        if not (faults := signature_faults(registration_folders(registry_dir))):
            raise
        lines = [line for fault in faults for line in fault.lines]
        fixes = [fault.fix for fault in faults[:FAULTS_NAMED]]
        raise VerificationError((*lines, *error.lines), fix=" ".join(fixes)) from error


def _base_step(base: str, *, registry_dir: Path) -> VerifiedStep:
    """Check that the working tree only added files to the registry since `base`; else raise `VerificationError`.

    Existing files are unchanged, or restored to the bytes that the log of `base` records. The log starts with the base's
    log, and the public record only grew. Signers, roots and policy never change together with anything else. `UsageError`
    if git knows no such base.
    """
    trees, faults = compared_trees(base, registry_dir), faults_of_base(base, registry_dir=registry_dir)
    log_file = log_path(registry_dir)
    log = log_at(base, log_file)
    is_broken = log != (file_at(base, log_file) or b"")
    if not extends(log, _now(log_file)):
        usual = f"If {base} is newer, merge it. Else take its log: git checkout {base} -- {log_file}. "
        refuse(
            f"{log_file} does not begin with the {'last whole log' if is_broken else 'log'} of {base}",
            fix=restoring(log_file, fits=is_whole_log) if is_broken else f"{usual}Then: marin-scale registry log",
        )
    changes, record = trees.changes(), registry_dir / RECORD_NAME
    record_grew = _record_grew(base, record, status=changes.get(record))
    policies = [path for name in _TRUST_NAMES if (path := registry_dir / name) in changes]
    restored = [fault.path for fault in faults if fault.restored and changes[fault.path] == "M"]
    allowed = {log_file, *policies, *restored, *([record] if record_grew else [])}
    _require_only_added(changes, allowed=allowed, base=base, registry_dir=registry_dir, faults=faults)
    require_known_additions(changes, registry_dir=registry_dir)
    _require_own_attributes(changes, registry_dir=registry_dir)
    trees.require_committed(growing=log_file)
    added = {path for path, status in changes.items() if status == "A" and path.name not in (LOG_NAME, ATTRIBUTES_NAME)}
    others = len(added - set(policies)) + len(restored) + record_grew
    if policies and others:
        refuse(
            f"{policies[0]} and {others} other files of the registry changed since {base}",
            fix=f"First merge a pull request that changes only {policies[0].name}, then this one. If that is merged already, "
            f"{base} is outdated here: git fetch, then --base origin/main",
        )
    also = ", its broken log was restored" if is_broken else ""
    also += ", its public record only grew" if record_grew else ""
    if restored:
        names = joined((str(path.relative_to(registry_dir)) for path in restored), most=FAULTS_NAMED)
        also += f", restored to the bytes that this log records: {names}"
    if policies:
        for path in policies:
            trust_changes(path, before=file_at(base, path), base=base)  # refused here where it could not be read once merged
        names = ", ".join(f"{path.name} {_STATUS[changes[path]]}" for path in policies)
        also += f", and {names}: it counts once it is merged"
    evidence = f"{counted(len(added), 'new file')} since {base}, whose log is the beginning of ours{also}"
    return VerifiedStep(what="base", evidence=evidence)


def faults_of_base(base: str, *, registry_dir: Path) -> list[BaseFault]:
    """Return the files of a registry that changed in `base` after its own log recorded them."""
    return base_faults(base, registry_dir, log=logged_there(base, registry_dir=registry_dir))


def trust_steps(base: str, *, registry_dir: Path) -> list[VerifiedStep]:
    """Return a step for each change since `base` of what a registry trusts: what it allows now, with its warnings."""
    changes = _changes(base, registry_dir)
    paths = [registry_dir / name for name in _TRUST_NAMES if registry_dir / name in changes]
    found = [change for path in paths for change in trust_changes(path, before=file_at(base, path), base=base)]
    return [VerifiedStep(what="trust", evidence=change.text, compared=not change.warnings) for change in found]


def base_receipts(base: str, *, registry_dir: Path) -> Receipts:
    """Return when files were received, by the log of `base`: what `base` does not have is received now."""
    new = {str(path.relative_to(registry_dir)) for path, status in _changes(base, registry_dir).items() if status == "A"}
    return Receipts(log=logged_there(base, registry_dir=registry_dir), now=datetime.now(UTC), new=new)


def require_forecast_first(base: str, folder: Path, *, runs_dir: Path) -> None:
    """Raise `VerificationError` if `base` has the record of a run but not yet its forecast.

    Unlike `started_at`, which is a claim, the content of the base branch cannot be written afterwards.
    """
    if is_sealed(folder) or any(file_at(base, folder / name) is not None for name in (STATEMENT_NAME, SEAL_NAME)):
        return
    if folder.name in logged_there(base, registry_dir=folder.parent).by_id:
        return  # the base had it, and its log records the digest
    if is_outside_run(folder):
        return  # no record of it is in a run store
    record = run_folder(runs_dir, answering_spec(folder)) / "record.json"
    raw = file_at(base, record) if record.parent.is_dir() else None  # one that was taken out is refused elsewhere
    if raw is not None:
        began = load_canonical(raw, name=f"{record} of {base}").get("started_at", "an unknown time")
        refuse(
            f"{record} is in {base} already, of a run that began at {began}, and {base} receives {folder.name} only now, "
            f"{moment_text(datetime.now(UTC))}",
            fix="This forecast cannot be merged: its result was public first. Register the next one before its run.",
        )


def runs_steps(base: str, *, registry_dir: Path, runs_dir: Path) -> list[VerifiedStep]:
    """Raise `VerificationError` if a run of a forecast's ladder was changed or removed since `base`.

    Without its runs, a forecast's ladder is not compared, and its outcome is only claimed. A run that contradicts a forecast
    in `base` may return to the bytes that `base` received first; this is a step.
    """
    held = {ladder for _, ladder in _ladders(registry_dir)}
    if not require_repository().holds(runs_dir):
        return []
    trees = compared_trees(base, runs_dir)
    wrong = {
        path: "removed" if status == "D" else "changed"
        for path, status in trees.changes().items()
        if status != "A" and len(below := path.relative_to(runs_dir).parts) > 1 and below[0] in held
    }
    faults = [path for path in list(wrong)[:FAULTS_NAMED] if _contradicts(base, path, registry_dir=registry_dir)]
    first = {path: first_received(base, path) for path in faults}
    restored = [path for path, (_, content) in first.items() if not path.is_symlink() and _now(path) == content]
    if wrong := {path: fault for path, fault in wrong.items() if path not in restored}:
        named = joined([f"{path} was {fault}" for path, fault in wrong.items()], most=FAULTS_NAMED)
        commands = [checkout_command(commit, [path]) for path, (commit, _) in first.items() if path in wrong]
        if kept := [path for path in wrong if path not in first]:
            commands.append(checkout_command(base, _folders_of(kept)))
        refuse(
            f"{named} since {base}, and forecasts rest on that ladder",
            fix=f"Runs stay as they were recorded: {' && '.join(commands)}",
        )
    trees.require_committed()
    evidence = f"restored to the bytes that {base} received first: {joined(map(str, restored), most=FAULTS_NAMED)}"
    return [VerifiedStep(what="runs", evidence=evidence)] if restored else []


def _contradicts(base: str, path: Path, *, registry_dir: Path) -> bool:
    """Return True if the run of a file contradicts a forecast in the base, whose log records it."""
    files = {name: file_at(base, path.with_name(name)) or b"" for name in RUN_FILES}
    known = [registry_dir / name for name in logged_there(base, registry_dir=registry_dir).by_id]
    return path.name in RUN_FILES and contradicts_forecasts(path.parent, files, forecasts=known)


def _ladders(registry_dir: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders with a readable statement, with its ladder; others are sealed, or refused elsewhere."""
    for folder in registration_folders(registry_dir):
        with contextlib.suppress(MarinScalingError):
            yield folder, read_registration(folder).predicate["targetRun"]["ladder"]


def _require_only_added(
    changes: Mapping[Path, str], *, allowed: Set[Path], base: str, registry_dir: Path, faults: Iterable[BaseFault]
) -> None:
    wrong = {
        path: "is a link" if path.is_symlink() else _STATUS[status]
        for path, status in changes.items()
        if path.is_symlink() or (status != "A" and path not in allowed)
    }
    if wrong:
        listed = joined([f"{path.relative_to(registry_dir)} {fault}" for path, fault in wrong.items()], most=FAULTS_NAMED)
        added = [path for path in wrong if changes[path] == "A"]
        fixes = [f"Remove {joined(map(shown, added))}."] if added else []
        fixes += [fault.fix for fault in faults if fault.path in wrong][:FAULTS_NAMED]
        if kept := wrong.keys() - {*added, *(fault.path for fault in faults)}:
            restore = checkout_command(base, _folders_of(path for path in wrong if path in kept))
            fixes.append(f"Files of a registry never change. If {base} is newer, merge it; else {restore}")
        refuse(f"{registry_dir}: {listed} since {base}", fix=" ".join(fixes))


def _folders_of(paths: Iterable[Path]) -> list[Path]:
    """Return the first paths, with the folder in place of several files of one folder."""
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    found = [folder if len(files) > 1 else files[0] for folder, files in by_folder.items()]
    return found[:FAULTS_NAMED]


def _record_grew(base: str, record: Path, *, status: str | None) -> bool:
    """Return True if the public record has more content than the base's; a new record is read as well."""
    if status in ("A", "M"):
        require_only_added(file_at(base, record), read_bytes(record), name=str(record), base=base)
    return status == "M"


def _require_own_attributes(changes: Mapping[Path, str], *, registry_dir: Path) -> None:
    """Refuse other git attributes, which could let git check out other bytes than the signed ones."""
    path = registry_dir / ATTRIBUTES_NAME
    if path in changes and read_bytes(path) != ATTRIBUTES:
        refuse(f"{path} is not the one that keeps exact bytes", fix=f"Put this into it: {ATTRIBUTES.decode().strip()!r}")


def _changes(base: str, folder: Path) -> dict[Path, str]:
    """Return the changed paths with A, M or D, also for untracked and ignored files."""
    return compared_trees(base, folder).changes()


def _now(path: Path) -> bytes:
    return read_bytes(path) if is_present(path) else b""


def brought_runs(base: str, *, registry_dir: Path, runs_dir: Path) -> dict[Path, tuple[str, ...]]:
    """Return each readable preregistration whose ladder has runs that `base` has not, with these runs as `LADDER/RUN`."""
    if not require_repository().holds(runs_dir):
        return {}
    new = sorted({path.relative_to(runs_dir).parts[:2] for path in compared_trees(base, runs_dir).changes()})
    brought: dict[str, list[str]] = {}
    for ladder, *run in new:
        brought.setdefault(ladder, []).extend(f"{ladder}/{name}" for name in run)
    ladders = _ladders(registry_dir) if brought else ()
    return {folder: tuple(brought[ladder]) for folder, ladder in ladders if ladder in brought}


def answering_run(folder: Path, *, runs_dir: Path) -> str:
    """Return the run that answers a preregistration, as `LADDER/RUN`; empty for an outside run."""
    if is_outside_run(folder):
        return ""
    return str(run_folder(runs_dir, answering_spec(folder)).relative_to(runs_dir))


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """Preregistration that a branch adds or adds to, with the verified steps or the refusal."""

    folder: Path
    added: tuple[str, ...]
    """Names of its files that the base lacks."""

    restored: tuple[str, ...] = ()
    """Names of its files that changed in the base after its log recorded them, and that the branch restores."""

    statement: Statement | None
    """Statement; None if refused or still sealed."""

    steps: tuple[VerifiedStep, ...] = ()
    runs: tuple[str, ...] = ()
    """Runs of its ladder that the base lacks, as `LADDER/RUN`, if nothing else is added."""

    amendments: tuple[Amendment, ...] = ()
    """Later forecasts of the same run that the base lacks."""

    unlisted: tuple[str, ...] = ()
    """Resolver and reviewers of the statement who have no key in the base."""

    refusal: str | None = None
    receipts: Receipts | None = None
    """Times at which the base received the registry's files."""

    @property
    def is_new(self) -> bool:
        """True if the forecast itself is new."""
        return STATEMENT_NAME in self.added


@dataclass(frozen=True, kw_only=True)
class Review:
    """Changes of a branch to a registry as a whole (`step`, or `refusal`), and to each preregistration."""

    step: VerifiedStep | None
    refusal: str | None
    reviewed: tuple[Reviewed, ...]
    would_refuse: tuple[Verdict, ...] = ()
    """Forecasts of the base that the new signers, roots or policy would refuse."""

    trust: tuple[VerifiedStep, ...] = ()
    """Changes of signers, roots and policy; not `compared` with a warning."""

    base_faults: tuple[BaseFault, ...] = ()
    """Files that changed in the base after its log recorded them."""

    @property
    def sound(self) -> bool:
        """True if nothing is refused now or after the merge."""
        refused = self.refusal is not None or any(each.refusal is not None for each in self.reviewed)
        return not refused and not self.would_refuse and all(fault.restored for fault in self.base_faults)


def review_branch(base: str, *, registry_dir: Path, runs_dir: Path) -> Review:
    """Return the review of the working tree as a branch to merge into `base`; `UsageError` if git knows no such base."""
    try:
        require_regular_tree([registry_dir, runs_dir])
    except UnsafeTreeError as error:
        return Review(step=None, refusal=str(error), reviewed=())
    faults, step, refusal, trust = faults_of_base(base, registry_dir=registry_dir), None, None, []
    try:
        step = base_step(base, registry_dir=registry_dir)
        for each in runs_steps(base, registry_dir=registry_dir, runs_dir=runs_dir):
            step = replace(step, evidence=f"{step.evidence}; runs {each.evidence}")
        require_known_names(registry_dir)
        require_whole(registry_dir, log=read_log(registry_dir))
        trust = trust_steps(base, registry_dir=registry_dir)
    except (DocumentError, StatementError, VerificationError) as error:
        refusal = str(error)
    added, receipts = added_files(base, registry_dir=registry_dir), base_receipts(base, registry_dir=registry_dir)
    restored: dict[Path, list[str]] = {}
    for name in (fault.path.relative_to(registry_dir) for fault in faults if fault.restored):
        restored.setdefault(registry_dir / name.parts[0], []).append(str(Path(*name.parts[1:])))
    with signers_at(base, registry_dir=registry_dir) as signers:
        called = partial(as_called_there, signers=signers, base=base, registry_dir=registry_dir)
        review = partial(_reviewed, base=base, signers=signers, runs_dir=runs_dir, called=called, receipts=receipts)
        folders = sorted({*added, *restored})
        reviewed = [
            review(folder, added=tuple(added.get(folder, ())), restored=tuple(restored.get(folder, ()))) for folder in folders
        ]
        for folder, runs in brought_runs(base, registry_dir=registry_dir, runs_dir=runs_dir).items():
            if folder not in folders:
                reviewed += _reviewed_for_runs(folder, runs=runs, signers=signers, runs_dir=runs_dir, called=called)
        tabled = [each for each in with_changed_tables(base, registry_dir=registry_dir) if each not in folders]
        reviewed += [review(folder, added=(), restored=()) for folder in tabled]
        would_refuse = _would_refuse(base, registry_dir=registry_dir, runs_dir=runs_dir, signers=signers)
    return Review(
        step=step,
        refusal=refusal,
        reviewed=tuple(reviewed),
        would_refuse=would_refuse,
        trust=tuple(trust),
        base_faults=tuple(faults),
    )


def with_changed_tables(base: str, *, registry_dir: Path) -> list[Path]:
    """Return the forecasts of outside runs whose signed tables differ from those in `base`."""
    found = []
    for folder in registration_folders(registry_dir):
        with contextlib.suppress(MarinScalingError):  # sealed, or refused elsewhere
            ladder = load_canonical(read_bytes(folder / "ladder.json"), name="ladder.json")
            sources = [ladder.get(name) or {} for name in ("source", "curves")]
            paths = [registry_dir.parent / each["path"] for each in sources if "path" in each]
            if any(compared_trees(base, path).changes() for path in paths):
                found.append(folder)
    return found


def _would_refuse(base: str, *, registry_dir: Path, runs_dir: Path, signers: Path) -> tuple[Verdict, ...]:
    """Return forecasts that the base's trust accepts and the branch's trust refuses."""
    if not changes_trust(base, registry_dir=registry_dir):
        return ()
    folders, at = registration_folders(registry_dir), datetime.now(UTC)
    verdicts = verdicts_on(folders, runs_dir=runs_dir, at=at)
    before = verdicts_on(folders, runs_dir=runs_dir, at=at, allowed_signers=signers)
    pairs = zip(verdicts, before, strict=True)
    return tuple(now for now, then in pairs if now.state is State.REFUSED and then.state is not State.REFUSED)


def _reviewed_for_runs(
    folder: Path, *, runs: tuple[str, ...], signers: Path, runs_dir: Path, called: Callable[[str], str]
) -> list[Reviewed]:
    """Return the review of a base forecast that new runs settle or contradict; empty if they do neither."""
    try:
        found = verify_folder(folder, allowed_signers=signers, runs_dir=runs_dir)
        run = answering_run(folder, runs_dir=runs_dir)
    except MarinScalingError as error:
        return [Reviewed(folder=folder, added=(), statement=None, refusal=called(str(error)))]
    if run not in runs or isinstance(found, VerifiedSeal):
        return []
    said = tuple(replace(step, evidence=called(step.evidence)) for step in found.steps)
    return [Reviewed(folder=folder, added=(), statement=found.statement, steps=said, runs=(run,))]


def _reviewed(
    folder: Path,
    *,
    base: str,
    added: tuple[str, ...],
    restored: tuple[str, ...],
    signers: Path,
    runs_dir: Path,
    called: Callable[[str], str],
    receipts: Receipts,
) -> Reviewed:
    try:
        found = verify_and_fit(folder, allowed_signers=signers, runs_dir=runs_dir, receipts=receipts)
        steps = [*found.steps, *policy_steps(found)]
        steps += [log_step(folder, log=read_log(folder.parent)), *received_step(folder, receipts=receipts)]
        require_forecast_first(base, folder, runs_dir=runs_dir)
        said = tuple(replace(step, evidence=called(step.evidence)) for step in steps)
        if isinstance(found, VerifiedSeal):
            return Reviewed(folder=folder, added=added, restored=restored, statement=None, steps=said)
        new = tuple(each for each in found.amendments if f"{each.name}/{AMENDMENT_NAME}" in added)
        return Reviewed(
            folder=folder,
            added=added,
            restored=restored,
            statement=found.statement,
            steps=said,
            amendments=new,
            unlisted=_unlisted(found.statement, signers=signers),
            receipts=receipts,
        )
    except MarinScalingError as error:
        return Reviewed(folder=folder, added=added, statement=None, refusal=called(str(error)))


def _unlisted(statement: Statement, *, signers: Path) -> tuple[str, ...]:
    """Return the resolver and reviewers of a statement who have no key that may sign now."""
    now = datetime.now(UTC)
    able = {each.principal for each in read_allowed_signers(signers) if each.refusal(namespace=NAMESPACE, at=now) is None}
    named = (statement.predicate["resolution"]["resolver"], *statement.predicate["reviewers"])
    return tuple(name for name in dict.fromkeys(named) if name not in able)


def rehearsals(folder: Path, *, runs_dir: Path) -> list[str]:
    """Return the recorded runs that differ from the target of a forecast in labels only, as `LADDER/RUN`.

    The run that answers the forecast is none of them.
    """
    wanted, own = identity(read_bytes(folder / "target.json")), answering_run(folder, runs_dir=runs_dir)
    ladders = sorted(path for path in runs_dir.iterdir() if path.is_dir()) if runs_dir.is_dir() else []
    found = []
    for run in (run for ladder in ladders for run in run_folders(ladder)):
        name = str(run.relative_to(runs_dir))
        with contextlib.suppress(MarinScalingError):  # refused where its ladder is verified
            if name != own and is_present(run / "record.json") and identity(read_bytes(run / "spec.json")) == wanted:
                found.append(name)
    return found
