"""Verify that a preregistration is authentic: files, digests, signatures, derivation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import has_digest, sha256_hex
from marin_scaling.errors import DocumentError, MarinScalingError, VerificationError, refuse
from marin_scaling.files import read_plain
from marin_scaling.git import restored_by, restoring
from marin_scaling.preregistration.events.amendment import (
    Amendment,
    amendment_steps,
    conditional_forecasts,
    verified_amendments,
)
from marin_scaling.preregistration.events.notice import Notice, notice_steps, restarts_of, verified_notices
from marin_scaling.preregistration.events.observation import observation_step, verified_observation
from marin_scaling.preregistration.events.seal import Seal, read_opening, read_seal, require_opens, stamp_step, stamped_at
from marin_scaling.preregistration.format import SUBJECT_FILES
from marin_scaling.preregistration.ladder_records import (
    holds_runs,
    ladder_step,
    require_declared,
    require_record,
    table_step,
)
from marin_scaling.preregistration.layout import (
    OBSERVATION_DIR,
    OBSERVATION_NAME,
    OPENING_NAME,
    OUTCOME_NAME,
    ROOTS_NAME,
    SEAL_FILES,
    SEAL_NAME,
    SEAL_SIGNATURE_NAME,
    SIGNATURE_NAME,
    STATEMENT_NAME,
    amendment_names,
    countersigners,
    is_sealed,
    is_unfinished,
    notice_names,
    seal_names,
    stamp_names,
    unfinished_name,
)
from marin_scaling.preregistration.log import Receipts, Trust, effective_time, known_at, own_receipts, restoring_logged
from marin_scaling.preregistration.outcome import State, Verdict, VerifiedStep, read_outcome
from marin_scaling.preregistration.registry import read_registration, require_unchanged
from marin_scaling.preregistration.signing.allowed_signers import fingerprint_at, require_signed
from marin_scaling.preregistration.signing.sshsig import PublicKey
from marin_scaling.preregistration.statement import (
    Statement,
    agrees,
    bound_digest,
    derived_fields,
    read_statement,
    read_subject,
    require_samples_of,
)
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import is_present


def verified_seal(folder: Path, *, allowed_signers: Path, at: datetime | None = None, received: datetime | None = None) -> Seal:
    """Return the seal in a folder, signed by a key allowed at `at`; default: at its own time and at receipt.

    `VerificationError` names the fault.
    """
    raw = read_plain(folder / SEAL_NAME)
    seal = read_seal(raw, name=str(folder / SEAL_NAME))
    if seal.document["id"] != folder.resolve().name:
        refuse(
            f"{folder / SEAL_NAME} is the seal of {seal.document['id']}, not that of its folder",
            fix="Give the folder its own name back.",
        )
    path = folder / SEAL_SIGNATURE_NAME
    moments = [at] if at else [seal.at, effective_time(seal.at, received)]
    signature = read_plain(path)
    require_signed(raw, signature=signature, path=path, principal=seal.by, moments=moments, allowed_signers=allowed_signers)
    return seal


def sealed_step(folder: Path, *, allowed_signers: Path) -> VerifiedStep:
    """Return the step of a sealed forecast; its folder may have only seal and stamps."""
    seal = verified_seal(folder, allowed_signers=allowed_signers)
    present = {path.name for path in folder.iterdir() if not is_unfinished(path, files={unfinished_name(path.name)} - {""})}
    for name in sorted(present - {*SEAL_FILES, *stamp_names(present)}):
        refuse(
            f"{folder / name} is in a sealed folder without a statement",
            fix=f"To finish revealing, rerun: marin-scale registry reveal {folder.name}. Else remove the file.",
        )
    evidence = (
        f"by {seal.by} with {fingerprint_at(folder / SEAL_SIGNATURE_NAME)} at {seal.document['at']}, "
        f"to be shown by {seal.document['reveal_by']}; not to be seen before"
    )
    return VerifiedStep(what="sealed", evidence=evidence, compared=False)


def opened_steps(
    statement: Statement, *, files: Mapping[str, bytes], folder: Path, allowed_signers: Path, received: datetime | None
) -> list[VerifiedStep]:
    """Check that the statement is the sealed one; no step without a seal."""
    if not seal_names(files):
        return []
    for name in (SEAL_NAME, SEAL_SIGNATURE_NAME, OPENING_NAME):
        if name not in files:
            refuse(f"{folder / name} is missing", fix=restoring(folder / name))
    seal = verified_seal(folder, allowed_signers=allowed_signers, received=received)
    name = str(folder / OPENING_NAME)
    require_opens(seal, statement, salt=read_opening(files[OPENING_NAME], name=name), name=name)
    evidence = f"this statement, by {seal.by} at {seal.document['at']}, to be shown by {seal.document['reveal_by']}"
    return [VerifiedStep(what="sealed", evidence=evidence)]


def sealed_verdict(sealed: VerifiedSeal, *, at: datetime) -> Verdict:
    """Return the verdict on a sealed forecast: sealed, or overdue, which counts as missed."""
    seal, name = sealed.seal, sealed.folder.name
    by = seal.document["reveal_by"]
    if at > seal.reveal_by:
        sentence = f"overdue: sealed by {seal.by}, to be shown by {by}, and not shown; until it is, it counts as missed"
        return Verdict(id=name, state=State.OVERDUE, sentence=sentence, outcome=None, registrant=seal.by)
    sentence = f"sealed by {seal.by} at {seal.document['at']}, to be shown by {by}"
    return Verdict(id=name, state=State.SEALED, sentence=sentence, outcome=None, registrant=seal.by)


def signature_steps(
    statement: Statement, *, files: Mapping[str, bytes], folder: Path, allowed_signers: Path, receipts: Receipts, stamped: bool
) -> list[VerifiedStep]:
    """Return the steps of the registrant's signature, of each reviewer's, and of missing reviewers.

    `VerificationError` for an invalid signature, a key that was not allowed at the statement's time and at receipt, or one
    key under two names. A stamp replaces the time of receipt for the registrant; a reviewer's signature has no time of its
    own.
    """
    names = {statement.predicate["registrant"]: SIGNATURE_NAME, **countersigners(files)}
    if names[statement.predicate["registrant"]] != SIGNATURE_NAME:
        refuse(f"{folder / names[statement.predicate['registrant']]} is a second signature of the registrant", fix="Remove it.")
    keys: dict[str, PublicKey] = {}
    steps = []
    for principal, name in names.items():
        moments = _moments(statement, name, folder=folder, receipts=receipts, stamped=stamped)
        key, allowed = require_signed(
            statement.raw,
            signature=files[name],
            path=folder / name,
            principal=principal,
            moments=moments,
            allowed_signers=allowed_signers,
        )
        for other, known in keys.items():
            if known.wire == key.wire:
                refuse(
                    f"{folder / name}: {principal} and {other} signed with one key, {key.fingerprint}",
                    fix="Let someone else sign, with a key of their own.",
                )
        keys[principal] = key
        what = "signature" if name == SIGNATURE_NAME else "review"
        steps.append(
            VerifiedStep(what=what, evidence=f"{principal} with {key.fingerprint}, allowed by {Path(allowed.where).name}")
        )
    missing = [reviewer for reviewer in statement.predicate["reviewers"] if reviewer not in keys]
    if missing:
        steps.append(VerifiedStep(what="review", evidence=f"not signed by {', '.join(missing)} so far", compared=False))
    return steps


def require_registrant_at(folder: Path, *, allowed_signers: Path, at: datetime) -> None:
    """Raise `VerificationError` unless the registrant's key was allowed at `at`, the time of a stamp.

    Otherwise an expired or stolen key could sign with an earlier date.
    """
    if is_present(folder / SEAL_NAME):
        verified_seal(folder, allowed_signers=allowed_signers, at=at)
    if is_sealed(folder):
        return
    statement, path = read_registration(folder), folder / SIGNATURE_NAME
    by, raw = statement.predicate["registrant"], read_plain(path)
    require_signed(statement.raw, signature=raw, path=path, principal=by, moments=[at], allowed_signers=allowed_signers)


def _moments(statement: Statement, name: str, *, folder: Path, receipts: Receipts, stamped: bool) -> list[datetime]:
    """Return the times at which the key of a signature file must have been allowed."""
    if name != SIGNATURE_NAME:
        return [known_at(statement.created_at, name, folder=folder, receipts=receipts)]
    received = None if stamped else receipts.forecast_at(folder)
    return [statement.created_at, effective_time(statement.created_at, received)]


_RESTORE = "Restore the file from version control: nothing in a registered one may be written again."


@dataclass(frozen=True, kw_only=True)
class OpenedRegistration:
    """Registered forecast, read once: exact bytes, statement, and content of its subjects.

    The bytes match the statement's digests; nothing else is verified.
    """

    folder: Path
    files: Mapping[str, bytes]
    statement: Statement
    subjects: Mapping[str, Any]

    def path(self, name: str) -> str:
        """Return the path of one of its files, for errors."""
        return str(self.folder / name)

    @property
    def run_digest(self) -> str:
        """Digest of the spec of the run that answers it."""
        return bound_digest(self.subjects["target.json"], statement=self.statement.raw)


@dataclass(frozen=True, kw_only=True)
class Verified(OpenedRegistration):
    """Registration whose steps all held, with its later events; made only by `verify_folder`.

    `stamped` are the times of its stamps, `outcome` the content of `outcome.json`.
    """

    steps: tuple[VerifiedStep, ...]
    trust: Trust
    stamped: tuple[datetime, ...]
    notices: tuple[Notice, ...]
    amendments: tuple[Amendment, ...]
    outcome: Mapping[str, Any] | None

    @property
    def later_forecasts(self) -> list[Amendment]:
        """Later forecasts of the same run: the amendments, then those of notices, which are conditional on a deviation."""
        return [*self.amendments, *conditional_forecasts(self.notices, statement=self.statement)]


@dataclass(frozen=True, kw_only=True)
class VerifiedSeal:
    """Sealed forecast: its seal and the verified steps."""

    folder: Path
    seal: Seal
    steps: tuple[VerifiedStep, ...]


def open_registration(folder: Path) -> OpenedRegistration:
    """Read an open or revealed registration; `VerificationError` or `DocumentError` names the first fault."""
    statement = read_statement(read_plain(folder / STATEMENT_NAME), name=str(folder / STATEMENT_NAME))
    files = {**_read_files(folder), STATEMENT_NAME: statement.raw}
    _check_digests(statement, files=files, folder=folder)
    subjects = {name: read_subject(files[name], name=name, path=str(folder / name)) for name in SUBJECT_FILES}
    return OpenedRegistration(folder=folder, files=files, statement=statement, subjects=subjects)


def verify_folder(
    folder: Path, *, allowed_signers: Path, runs_dir: Path | None = None, receipts: Receipts | None = None
) -> Verified | VerifiedSeal:
    """Verify that a preregistration is authentic; `VerificationError` names the first fault.

    `runs_dir` is the run store; without it the ladder is not compared with records. `tsa_roots.pem` is read beside
    `allowed_signers`. `receipts` default to the log beside the folder. `rules` has those of a registry.
    """
    with _refusals(folder):
        _require_plain_folder(folder)
        require_unchanged(folder)
        trust = Trust(allowed_signers=allowed_signers, receipts=receipts or own_receipts(folder.parent))
        if is_sealed(folder):
            return _verified_seal(folder, trust=trust)
        return _verified(open_registration(folder), trust=trust, runs_dir=runs_dir)


def _verified(opened: OpenedRegistration, *, trust: Trust, runs_dir: Path | None) -> Verified:
    folder, statement, signers = opened.folder, opened.statement, trust.allowed_signers
    roots = signers.with_name(ROOTS_NAME)
    stamped = stamped_at(folder, made_at=statement.created_at, roots=roots)
    received = None if stamped else trust.receipts.forecast_at(folder)
    steps = [
        _statement_step(opened),
        _subjects_step(opened),
        *signature_steps(
            statement,
            files=opened.files,
            folder=folder,
            allowed_signers=signers,
            receipts=trust.receipts,
            stamped=bool(stamped),
        ),
        *opened_steps(statement, files=opened.files, folder=folder, allowed_signers=signers, received=received),
        _derivation_step(opened),
        _binding_step(opened),
    ]
    steps += [_ladder_step(opened, runs_dir=runs_dir)] if runs_dir is not None else []
    outcome, notices = _outcome_of(opened), verified_notices(folder, statement=statement, trust=trust)
    if statement.is_outside:
        steps += _observation_steps(opened, outcome, notices=notices, trust=trust)
    elif outcome is not None:
        steps.append(_outcome_step(opened, outcome, runs_dir=runs_dir))
    if stamped:
        require_registrant_at(folder, allowed_signers=signers, at=min(stamped))
    steps += stamp_step(folder, moments=stamped, roots=roots)
    target = opened.subjects["target.json"]
    amendments = verified_amendments(folder, statement=statement, target=target, notices=notices, trust=trust)
    steps += [*amendment_steps(amendments, folder=folder, runs_dir=runs_dir), *notice_steps(notices, folder=folder)]
    return Verified(
        **vars(opened),
        steps=tuple(steps),
        trust=trust,
        stamped=tuple(stamped),
        notices=tuple(notices),
        amendments=tuple(amendments),
        outcome=outcome,
    )


def _verified_seal(folder: Path, *, trust: Trust) -> VerifiedSeal:
    step, roots = sealed_step(folder, allowed_signers=trust.allowed_signers), trust.allowed_signers.with_name(ROOTS_NAME)
    seal = verified_seal(folder, allowed_signers=trust.allowed_signers)
    stamped = stamped_at(folder, made_at=seal.at, roots=roots)
    if stamped:
        require_registrant_at(folder, allowed_signers=trust.allowed_signers, at=min(stamped))
    else:
        verified_seal(folder, allowed_signers=trust.allowed_signers, received=trust.receipts.forecast_at(folder))
    return VerifiedSeal(folder=folder, seal=seal, steps=(step, *stamp_step(folder, moments=stamped, roots=roots)))


def _require_plain_folder(folder: Path) -> None:
    if folder.is_symlink() or not folder.is_dir():
        refuse(f"{folder} is not a plain folder", fix="Name a folder of the registry.")


def _read_files(folder: Path) -> dict[str, bytes]:
    required = {STATEMENT_NAME, SIGNATURE_NAME, *SUBJECT_FILES}
    present = {path.name: path for path in folder.iterdir() if not _is_unfinished(path, required=required)}
    for name in sorted(required - present.keys()):
        refuse(f"{folder / name} is missing", fix=restoring(folder / name))
    for name in sorted(present.keys() - required - _added_later(present)):
        refuse(
            f"{folder / name} does not belong to a preregistration",
            fix="Move it elsewhere: what is not signed must not lie here.",
        )
    return {name: read_plain(path) for name, path in sorted(present.items()) if name not in _folders(present)}


def _added_later(names: Iterable[str]) -> set[str]:
    """Return those of these names that may be added after a statement was made."""
    present = set(names)
    outcome = {OUTCOME_NAME} & present
    return outcome | {*countersigners(present).values(), *stamp_names(present), *seal_names(present), *_folders(present)}


def _folders(names: Iterable[str]) -> set[str]:
    return {*notice_names(names), *amendment_names(names), *({OBSERVATION_DIR} & set(names))}


def _is_unfinished(path: Path, *, required: Set[str]) -> bool:
    """Return True for the remains of an interrupted command, which are never read."""
    inner = [unfinished_name(path.name)]
    return is_unfinished(path, files={*required, *_added_later(inner)} - _folders(inner), folders=_folders(inner))


def _check_digests(statement: Statement, *, files: Mapping[str, bytes], folder: Path) -> None:
    for name, promised in statement.subjects.items():
        found = sha256_hex(files[name])
        if found != promised:
            refuse(
                f"{folder / name} was changed after signing: it has the digest {found}, and the statement promises {promised}",
                fix=restoring(folder / name, fits=partial(has_digest, digest=promised)),
            )


def _statement_step(opened: OpenedRegistration) -> VerifiedStep:
    if opened.statement.predicate["id"] != opened.folder.resolve().name:
        refuse(
            f"{opened.path(STATEMENT_NAME)} is the statement {opened.statement.predicate['id']}, not that of its folder",
            fix="Give the folder its own name back.",
        )
    run = opened.statement.predicate["targetRun"]
    evidence = (
        f"canonical, {format_count(run['paramsTotal'])} parameters on {format_count(run['tokens'])} tokens, "
        f"{format_flops(run['flops'])} FLOPs, sha256 {opened.statement.sha256[:16]}"
    )
    return VerifiedStep(what="statement", evidence=evidence)


def _subjects_step(opened: OpenedRegistration) -> VerifiedStep:
    evidence = f"{len(opened.statement.subjects)} files match the digests in the statement"
    return VerifiedStep(what="subjects", evidence=evidence)


def _derivation_step(opened: OpenedRegistration) -> VerifiedStep:
    predicate = opened.statement.predicate
    derived = derived_fields(opened.subjects)
    for part, fields in derived.items():
        for key, value in fields.items():
            if not agrees(value, predicate[part][key]):
                refuse(
                    f"{opened.path(STATEMENT_NAME)}: {part}.{key} is {predicate[part][key]!r}, and its subjects say {value!r}",
                    fix="A signed statement cannot be corrected; register the actual forecast before its run.",
                )
    require_samples_of(opened.subjects["samples.json"]["losses"], opened.statement.quantiles)
    rows = opened.subjects["ladder.json"]["rows"]
    evidence = f"equal to forecast.json; {len(rows)} runs, target {predicate['forecast']['extrapolation']:.4g}x the largest"
    return VerifiedStep(what="forecast", evidence=evidence)


def _binding_step(opened: OpenedRegistration) -> VerifiedStep:
    if opened.statement.is_outside:
        source = opened.subjects["target.json"]["outcome"]
        evidence = f"tracked: {source['key']} of the run {source['run']} of {source['project']}; another trainer trains it"
        return VerifiedStep(what="run", evidence=evidence, compared=False)
    run = f"{opened.subjects['target.json']['ladder']}/{opened.run_digest[:16]}"
    return VerifiedStep(what="run", evidence=f"only {run} can answer it; its seed follows from the statement")


def _ladder_step(opened: OpenedRegistration, *, runs_dir: Path) -> VerifiedStep:
    ladder, where = opened.subjects["ladder.json"], opened.path("ladder.json")
    if opened.statement.is_outside:
        return table_step(ladder, where=where, root=opened.folder.absolute().parent.parent)
    step = ladder_step(opened.statement, ladder=ladder, where=where, runs_dir=runs_dir)
    require_declared(opened.statement, opened.subjects, where=opened.path(STATEMENT_NAME), runs_dir=runs_dir)
    return step


def _outcome_of(opened: OpenedRegistration) -> dict[str, Any] | None:
    if OUTCOME_NAME not in opened.files:
        return None
    raw, name = opened.files[OUTCOME_NAME], opened.path(OUTCOME_NAME)
    return read_outcome(raw, statement=opened.statement, run=opened.run_digest, name=name)


def _observation_steps(
    opened: OpenedRegistration, outcome: Mapping[str, Any] | None, *, notices: Sequence[Notice], trust: Trust
) -> list[VerifiedStep]:
    """Check the signed reading of an outside run's log, and that the outcome follows from it; no step before the outcome."""
    folder = opened.folder
    if outcome is None:
        return []
    if not is_present(folder / OBSERVATION_DIR):
        refuse(
            f"{opened.path(OUTCOME_NAME)} tells an outcome, and the folder {OBSERVATION_DIR} is missing",
            fix=_RESTORE,
        )
    target = opened.subjects["target.json"]
    restarts = restarts_of(notices)
    observed = verified_observation(folder, statement=opened.statement, target=target, restarts=restarts, trust=trust)
    found = sha256_hex(read_plain(folder / OBSERVATION_DIR / OBSERVATION_NAME))
    for key, expected in (("value", observed["value"]), ("record_sha256", found)):
        if outcome[key] != expected:
            refuse(
                f"{opened.path(OUTCOME_NAME)}: {key} is {outcome[key]!r}, and {OBSERVATION_DIR}/{OBSERVATION_NAME} says "
                f"{expected!r}",
                fix=_RESTORE,
            )
    return [observation_step(folder, observed, unit=opened.statement.predicate["metric"]["unit"])]


def _outcome_step(opened: OpenedRegistration, outcome: Mapping[str, Any], *, runs_dir: Path | None) -> VerifiedStep:
    value = "diverged" if outcome["value"] is None else f"{outcome['value']:.6g} {opened.statement.predicate['metric']['unit']}"
    ladder_dir = (runs_dir or Path()) / opened.subjects["target.json"]["ladder"]
    if runs_dir is None or not holds_runs(ladder_dir):
        evidence = f"{outcome['verdict']}: {value}, so it is claimed; its run is not here"
        return VerifiedStep(what="outcome", evidence=evidence, compared=False)
    require_record(ladder_dir / opened.run_digest[:16], outcome=outcome, where=opened.path(OUTCOME_NAME))
    return VerifiedStep(what="outcome", evidence=f"{outcome['verdict']}: {value}, as its run's record says (not signed)")


@contextlib.contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """Turn unreadable files into refusals: they were valid when they were registered."""
    with restored_by(partial(restoring_logged, folder)):
        try:
            yield
        except VerificationError:
            raise
        except MarinScalingError as error:
            fix = _RESTORE if isinstance(error, DocumentError) else error.fix
            raise VerificationError(error.lines, why=error.why, fix=fix) from error
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            refuse(f"a file in {folder} holds what no preregistration does ({error})", fix="Restore it from version control.")
