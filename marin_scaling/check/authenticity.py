"""Whether a preregistration is what it claims to be: every step says what was checked and by which evidence, or raises.

Needs the folder and the list of signers; with a run store at hand it also compares the ladder's rows with the runs. The time in
a statement is its registrant's word, unless there is a stamp. The fit is run again in `reproduction`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.check.amendments import amendment_steps, verified_amendments
from marin_scaling.check.known_names import is_unfinished, unfinished_name
from marin_scaling.check.ladder_records import holds_runs, ladder_step, require_declared, require_record
from marin_scaling.check.notices import notice_steps, verified_notices
from marin_scaling.check.outcome import read_outcome
from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.received import Receipts, effective_time, own_receipts
from marin_scaling.check.sealed import opened_steps, sealed_step, verified_seal
from marin_scaling.check.signatures import require_registrant_at, signature_steps
from marin_scaling.check.stamps import stamp_step, stamped_at
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.errors import DocumentError, MarinScalingError, VerificationError
from marin_scaling.preregistration.amendment import amendment_names
from marin_scaling.preregistration.binding import bound_digest
from marin_scaling.preregistration.countersignature import countersigners
from marin_scaling.preregistration.derivation import agrees, derived_fields, require_samples_of
from marin_scaling.preregistration.notice import notice_names
from marin_scaling.preregistration.registry import OUTCOME_NAME, SIGNATURE_NAME, STATEMENT_NAME
from marin_scaling.preregistration.seal import is_sealed, seal_names
from marin_scaling.preregistration.statement import Statement, moment_text, read_statement, read_subject
from marin_scaling.preregistration.timestamp import ROOTS_NAME, stamp_names
from marin_scaling.preregistration.versions import VERSION_0_1, VERSION_0_1_ENDED, FormatVersion
from marin_scaling.units import format_count, format_flops

_RESTORE = "Restore the file from version control: nothing in a registered one may be written again."


@dataclass(frozen=True, kw_only=True)
class _Opened:
    folder: Path
    files: Mapping[str, bytes]
    statement: Statement
    subjects: Mapping[str, Any]

    def path(self, name: str) -> str:
        return str(self.folder / name)


def verify_folder(
    folder: Path, *, allowed_signers: Path, runs_dir: Path | None = None, receipts: Receipts | None = None
) -> list[VerifiedStep]:
    """All steps that show a preregistration authentic, in order; `VerificationError` names the first thing that is wrong.

    `runs_dir` is the run store, used when it holds the ladder; without it the ladder is only what was signed. Beside
    `allowed_signers` may lie `tsa_roots.pem`. `receipts` say when files were received, by default as the log beside the folder
    has it. Whether a registry asks for more than that is seen in `policy`.
    """
    roots = allowed_signers.with_name(ROOTS_NAME)
    with _refusals(folder):
        _require_plain_folder(folder)
        receipts = receipts or own_receipts(folder.parent)
        if is_sealed(folder):
            return _sealed_steps(folder, allowed_signers=allowed_signers, receipts=receipts)
        statement = read_statement(read_plain(folder / STATEMENT_NAME), name=str(folder / STATEMENT_NAME))
        files = {**_read_files(folder, version=statement.version), STATEMENT_NAME: statement.raw}
        _check_digests(statement, files=files, folder=folder)
        subjects = {
            name: read_subject(files[name], name=name, path=str(folder / name), version=statement.version)
            for name in statement.version.subject_names
        }
        moments = stamped_at(folder, made_at=statement.created_at, roots=roots)
        received = None if moments else receipts.forecast_at(folder)
        _require_format_of_its_time(statement, received=receipts.forecast_at(folder), folder=folder)
        opened = _Opened(folder=folder, files=files, statement=statement, subjects=subjects)
        steps = [
            _statement_step(opened),
            _subjects_step(opened),
            *signature_steps(
                statement, files=files, folder=folder, allowed_signers=allowed_signers, receipts=receipts, stamped=bool(moments)
            ),
            *opened_steps(statement, files=files, folder=folder, allowed_signers=allowed_signers, received=received),
            _derivation_step(opened),
            _binding_step(opened),
        ]
        steps += [_ladder_step(opened, runs_dir=runs_dir)] if runs_dir is not None else []
        steps += [_outcome_step(opened, runs_dir=runs_dir)] if OUTCOME_NAME in files else []
        if moments:
            require_registrant_at(folder, allowed_signers=allowed_signers, at=min(moments))
        steps += stamp_step(folder, moments=moments, roots=roots)
        amendments = verified_amendments(folder, statement=statement, allowed_signers=allowed_signers, receipts=receipts)
        steps += amendment_steps(amendments, folder=folder, runs_dir=runs_dir)
        notices = verified_notices(folder, statement=statement, allowed_signers=allowed_signers, receipts=receipts)
        steps += notice_steps(notices, folder=folder)
    return steps


def _sealed_steps(folder: Path, *, allowed_signers: Path, receipts: Receipts) -> list[VerifiedStep]:
    step, roots = sealed_step(folder, allowed_signers=allowed_signers), allowed_signers.with_name(ROOTS_NAME)
    seal = verified_seal(folder, allowed_signers=allowed_signers)
    moments = stamped_at(folder, made_at=seal.at, roots=roots)
    if not moments:
        verified_seal(folder, allowed_signers=allowed_signers, received=receipts.forecast_at(folder))
    if moments:
        require_registrant_at(folder, allowed_signers=allowed_signers, at=min(moments))
    return [step, *stamp_step(folder, moments=moments, roots=roots)]


def _require_format_of_its_time(statement: Statement, *, received: datetime | None, folder: Path) -> None:
    """Refuse a statement in the first format that was received after that format ended, whatever date it says."""
    if statement.version is VERSION_0_1 and effective_time(statement.created_at, received) >= VERSION_0_1_ENDED:
        refuse(
            f"{folder} is in format {VERSION_0_1.number}, which ended on {VERSION_0_1_ENDED:%Y-%m-%d}, and was received "
            f"{moment_text(effective_time(statement.created_at, received))}",
            fix="Register with the newest format: marin-scale preregister",
        )


def _require_plain_folder(folder: Path) -> None:
    if folder.is_symlink() or not folder.is_dir():
        refuse(f"{folder} is not a plain folder", fix="Name a folder of the registry.")


def _read_files(folder: Path, *, version: FormatVersion) -> dict[str, bytes]:
    required = {STATEMENT_NAME, SIGNATURE_NAME, *version.subject_names}
    present = {path.name: path for path in folder.iterdir() if not _is_unfinished(path, required=required)}
    for name in sorted(required - present.keys()):
        refuse(f"{folder / name} is missing", fix="Restore it from version control.")
    for name in sorted(present.keys() - required - _added_later(present)):
        refuse(
            f"{folder / name} does not belong to a preregistration",
            fix="Move it elsewhere: what is not signed must not lie here.",
        )
    return {name: read_plain(path) for name, path in sorted(present.items()) if name not in _folders(present)}


def _added_later(names: Iterable[str]) -> set[str]:
    """Which of these names are of what may come in beside a statement after it was made."""
    present = set(names)
    outcome = {OUTCOME_NAME} & present
    return outcome | {*countersigners(present).values(), *stamp_names(present), *seal_names(present), *_folders(present)}


def _folders(names: Iterable[str]) -> set[str]:
    return {*notice_names(names), *amendment_names(names)}


def _is_unfinished(path: Path, *, required: Set[str]) -> bool:
    """Whether a command that was interrupted left it while it added or revealed something: it is never read."""
    inner = [unfinished_name(path.name)]
    return is_unfinished(path, files={*required, *_added_later(inner)} - _folders(inner), folders=_folders(inner))


def _check_digests(statement: Statement, *, files: Mapping[str, bytes], folder: Path) -> None:
    for name, promised in statement.subjects.items():
        found = sha256_hex(files[name])
        if found != promised:
            refuse(
                f"{folder / name} has the digest {found}, and the statement promises {promised}",
                fix="Restore the file from version control.",
            )


def _statement_step(opened: _Opened) -> VerifiedStep:
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


def _subjects_step(opened: _Opened) -> VerifiedStep:
    evidence = ", ".join(f"{name} {digest[:12]}" for name, digest in opened.statement.subjects.items())
    return VerifiedStep(what="subjects", evidence=evidence)


def _derivation_step(opened: _Opened) -> VerifiedStep:
    predicate = opened.statement.predicate
    derived = derived_fields(opened.subjects, version=opened.statement.version)
    for part, fields in derived.items():
        for key, value in fields.items():
            if not agrees(value, predicate[part][key]):
                refuse(
                    f"{opened.path(STATEMENT_NAME)}: {part}.{key} is {predicate[part][key]!r}, and its subjects say {value!r}",
                    fix="Nothing can be mended in a signed statement; register the forecast that was made, before its run.",
                )
    if "samples.json" in opened.subjects:
        require_samples_of(opened.subjects["samples.json"]["losses"], opened.statement.quantiles)
    rows = opened.subjects["ladder.json"]["rows"]
    evidence = f"equal to forecast.json; {len(rows)} runs, target {predicate['forecast']['extrapolation']:.4g}x the largest"
    return VerifiedStep(what="forecast", evidence=evidence)


def _binding_step(opened: _Opened) -> VerifiedStep:
    target = opened.subjects["target.json"]
    digest = bound_digest(target, statement=opened.statement.raw)
    return VerifiedStep(
        what="run", evidence=f"only {target['ladder']}/{digest[:16]} can answer it; its seed follows from the statement"
    )


def _ladder_step(opened: _Opened, *, runs_dir: Path) -> VerifiedStep:
    ladder, where = opened.subjects["ladder.json"], opened.path("ladder.json")
    step = ladder_step(opened.statement, ladder=ladder, where=where, runs_dir=runs_dir)
    require_declared(opened.statement, opened.subjects, where=opened.path(STATEMENT_NAME), runs_dir=runs_dir)
    return step


def _outcome_step(opened: _Opened, *, runs_dir: Path | None) -> VerifiedStep:
    run = bound_digest(opened.subjects["target.json"], statement=opened.statement.raw)
    outcome = read_outcome(opened.files[OUTCOME_NAME], statement=opened.statement, run=run, name=opened.path(OUTCOME_NAME))
    value = "diverged" if outcome["value"] is None else f"{outcome['value']:.6g} {opened.statement.predicate['metric']['unit']}"
    ladder_dir = (runs_dir or Path()) / opened.subjects["target.json"]["ladder"]
    if runs_dir is None or not holds_runs(ladder_dir):
        evidence = f"{outcome['verdict']}: {value}, so it is claimed; its run is not here"
        return VerifiedStep(what="outcome", evidence=evidence, compared=False)
    require_record(ladder_dir / run[:16], outcome=outcome, where=opened.path(OUTCOME_NAME))
    return VerifiedStep(what="outcome", evidence=f"{outcome['verdict']}: {value}, as its run's record says (not signed)")


@contextlib.contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """A file that cannot be read as what it should be is a "no", not bad input: it was sound when it was registered."""
    try:
        yield
    except VerificationError:
        raise
    except MarinScalingError as error:
        fix = _RESTORE if isinstance(error, DocumentError) else error.fix
        raise VerificationError(error.what, why=error.why, fix=fix) from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        refuse(f"a file in {folder} holds what no preregistration does ({error})", fix="Restore it from version control.")
