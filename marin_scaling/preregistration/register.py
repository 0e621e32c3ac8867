"""Register a forecast: evidence, statement, signature, folder, log line; later, a reviewer's signature."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.errors import SigningError, StatementError, UsageError
from marin_scaling.files import alone_in, read_bytes, write_once
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.seal import register_sealed, require_none_sealed, seal_files
from marin_scaling.preregistration.format import is_outside
from marin_scaling.preregistration.layout import SIGNATURE_NAME, STATEMENT_NAME, countersignature_name, countersigners
from marin_scaling.preregistration.log import log_path, missing_lines, read_log, write_down
from marin_scaling.preregistration.outside_format import OutsideTarget
from marin_scaling.preregistration.registry import (
    allow_signer,
    find_registration,
    read_registration,
    read_subject_in,
    register,
    registration_id,
    require_free,
    require_unforecast,
    signers_path,
    standing_forecast,
)
from marin_scaling.preregistration.signing.allowed_signers import require_may_sign
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, verify_signature
from marin_scaling.preregistration.statement import (
    Statement,
    binding,
    build_statement,
    moment_text,
    read_subject,
    thinned,
)
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from marin_scaling.run.spec import RunSpec

_LIBRARIES = ("numpy", "scipy", "pandas")


def tool_document() -> dict[str, Any]:
    """Return the statement's description of this software."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    return {"name": "marin-scaling", "version": __version__, "versions": versions}


def unbound_spec(target: RunSpec) -> RunSpec:
    """Return the target as in `target.json`: without a statement, and with data order 0."""
    return target.model_copy(update={"statement_sha256": None, "data_order_seed": 0})


def bound_spec(target: RunSpec, *, statement: bytes) -> RunSpec:
    """Return the spec of the run that answers `statement` (its exact bytes).

    `StatementError` if `target` is not a target, or is bound to another statement.
    """
    if target.role != "target" or target.statement_sha256 not in (None, sha256_hex(statement)):
        raise StatementError(
            f"A run with role {target.role!r} and statement {target.statement_sha256} cannot answer this statement.",
            why="A run answers only the statement in its spec.",
            fix="Use the spec in target.json of the same folder.",
        )
    return target.model_copy(update=binding(statement))


def answering_spec(folder: Path) -> RunSpec:
    """Return the spec of the run that answers the preregistration in `folder`."""
    from marin_scaling.run.spec import read_spec

    path = folder / "target.json"
    if is_outside_run(folder):
        raise UsageError(
            f"{folder.name} forecasts an outside run, which its own trainer trains.",
            fix=f"Record its outcome from its log: marin-scale outcome {folder.name} --log PATH. Follow it while it trains: "
            f"marin-scale track {folder.name} --log PATH",
        )
    return bound_spec(read_spec(read_bytes(path), name=str(path)), statement=read_bytes(folder / "statement.json"))


def is_outside_run(folder: Path) -> bool:
    """Return True if the preregistration in `folder` forecasts a run of another trainer."""
    return is_outside(read_subject_in(folder, "target.json"))


USUAL_TERM = timedelta(days=180)
"""Default time from the statement to its due date."""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """Registered forecast: its folder, its statement, and the spec of its run."""

    folder: Path
    statement: Statement
    target: RunSpec | None
    """Spec of the run that answers it; None for an outside run."""

    key_note: str | None = None
    """Message about the signing key; None if the registration existed already."""

    added_signer: str | None = None
    """Message about the line added to allowed_signers; None if the key was listed already."""

    def __repr__(self) -> str:
        return f"Registration({self.folder}, by {self.statement.predicate['registrant']}, sha256 {self.statement.sha256})"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that a forecast is registered with.

    `rows` are the fitted runs (`run`: digest, `budget_flops`, `flops`, `params`, `tokens`, `loss`). `forecast` is the
    document of `marin-scale fit --json --sensitivity` with a prediction at the target's exact FLOPs. `losses` are equally
    likely losses of the target in the metric's unit (draw,), `recipe` the target's numbers with formulas and sources.
    """

    rows: Sequence[Mapping[str, Any]]
    forecast: Mapping[str, Any]
    losses: Sequence[float]
    recipe: Mapping[str, Any]
    target: RunSpec | OutsideTarget
    source: Mapping[str, Any] | None = None
    """Table of the runs, as in `ladder.json`; None for the records of a ladder."""
    curves: Mapping[str, Any] | None = None
    """Curves of the runs, as in `ladder.json`, if the curve of the target is forecast."""


def preregister_target(
    evidence: Evidence,
    *,
    registry_dir: Path,
    key: SigningKey,
    principal: str,
    slug: str,
    created_at: datetime,
    promise: Promise,
    ladder_rule: str | None = None,
    reveal_by: datetime | None = None,
) -> Registration:
    """Sign and register a forecast; only `Registration.target` answers it.

    `promise` has the registrant's declarations, `ladder_rule` the rule by which runs were selected; with `reveal_by` the
    forecast is sealed. Nothing is written on refusal (`StatementError`, `SigningError`, `StorageError`).
    """
    missing_lines(registry_dir, log=read_log(registry_dir), at=created_at)  # report a broken log before writing
    files, target = subject_files(evidence), evidence.target
    statement = statement_about(
        files,
        target=target,
        slug=slug,
        principal=principal,
        created_at=created_at,
        promise=promise,
        ladder_rule=ladder_rule,
    )
    signature = key.sign(statement.raw)
    sealed = {} if reveal_by is None else seal_files(statement, key=key, at=created_at, reveal_by=reveal_by)
    files, added = {**files, STATEMENT_NAME: statement.raw, SIGNATURE_NAME: signature}, None
    with alone_in(registry_dir):  # of two concurrent registrations, the second sees the first
        _require_new_to_the_log(registry_dir, name=statement.predicate["id"])
        require_none_sealed(registry_dir, target=files["target.json"], by=principal)
        if not _will_be_refused(
            registry_dir, target=files["target.json"], statement=statement
        ):  # add no signer for a refused forecast
            added = allow_signer(registry_dir, principal=principal, key=key.public_key, at=statement.created_at)
        if reveal_by is None:
            folder = register(registry_dir, slug=slug, created_at=created_at, files=files)
        else:
            folder = register_sealed(registry_dir, files=files, sealed=sealed, name=statement.predicate["id"])
    write_down(registry_dir, at=created_at)
    bound = None if isinstance(target, OutsideTarget) else bound_spec(unbound_spec(target), statement=statement.raw)
    return Registration(folder=folder, statement=statement, target=bound, key_note=key.note, added_signer=added)


def require_signable(evidence: Evidence, *, registry_dir: Path, principal: str, slug: str, promise: Promise) -> None:
    """Raise the error with which `preregister_target` would refuse this forecast now; write nothing."""
    now = datetime.now(UTC)
    files = subject_files(evidence)
    statement = statement_about(files, target=evidence.target, slug=slug, principal=principal, created_at=now, promise=promise)
    _require_new_to_the_log(registry_dir, name=statement.predicate["id"])
    require_none_sealed(registry_dir, target=files["target.json"], by=principal)
    require_unforecast(registry_dir, target=files["target.json"], registrant=principal)
    require_free(registry_dir / statement.predicate["id"])


def statement_about(
    files: Mapping[str, bytes],
    *,
    target: RunSpec | OutsideTarget,
    slug: str,
    principal: str,
    created_at: datetime,
    promise: Promise,
    ladder_rule: str | None = None,
) -> Statement:
    """Return the statement about these subject files; write nothing."""
    rule = ladder_rule or usual_ladder_rule(target.ladder)
    return build_statement(
        files,
        registration_id=registration_id(slug, created_at=created_at),
        registrant=principal,
        created_at=created_at,
        tool=tool_document(),
        declared=declared_fields(promise, registrant=principal, created_at=created_at, ladder_rule=rule),
    )


def usual_ladder_rule(ladder: str) -> str:
    """Return the default rule for selecting runs."""
    return f"all finished rungs of runs/{ladder}, except those listed as excluded"


def _require_new_to_the_log(registry_dir: Path, *, name: str) -> None:
    """Raise `StatementError` if the log has a forecast of this name without a folder: the new one could not be logged."""
    lines, folder, log = read_log(registry_dir).by_id.get(name, ()), registry_dir / name, log_path(registry_dir)
    if lines and not is_present(folder):
        raise StatementError(
            f"{log}, line {lines[0].number + 1}, has {name} since {lines[0].logged_at}, but its folder is missing.",
            why="Registered forecasts are not removed. Nothing was written.",
            fix=f"Restore the folder (git checkout -- {folder}), or use another name: --slug NAME. "
            f"If neither was ever committed, restore the log: git checkout -- {log}",
        )


def _will_be_refused(registry_dir: Path, *, target: bytes, statement: Statement) -> bool:
    standing = standing_forecast(registry_dir, target=target, registrant=statement.predicate["registrant"])
    return standing is not None or is_present(registry_dir / statement.predicate["id"])


def standing_registration(target: RunSpec, *, registry_dir: Path) -> Registration | None:
    """Return the existing preregistration of this target, or None; used to resume after an interruption."""
    folder = find_registration(registry_dir, target=unbound_spec(target).to_bytes())
    if folder is None:
        return None
    statement = read_registration(folder)
    bound = bound_spec(unbound_spec(target), statement=statement.raw)
    return Registration(folder=folder, statement=statement, target=bound)


def declared_fields(promise: Promise, *, registrant: str, created_at: datetime, ladder_rule: str) -> dict[str, Any]:
    """Return the registrant's declarations, grouped as in the predicate."""
    due = datetime.combine(promise.due, time(23, 59, 59), tzinfo=UTC) if promise.due else created_at + USUAL_TERM
    assumptions = enumerate(promise.assumptions, start=1)
    return {
        "reviewers": list(promise.reviewers),
        "targetRun": {"uid": secrets.token_hex(16), "tolerance": {"flops": 0.0, "tokens": 0.0}},
        "recipe": {"knownDifferencesFromLadder": list(promise.known_differences)},
        "fit": {"ladderRule": ladder_rule},
        "assumptions": [{"id": f"A{number}", "text": each.text, "ifFalse": each.if_false} for number, each in assumptions],
        "knowledge": {"relatedRunsSeen": list(promise.related_runs_seen)},
        "resolution": {"resolver": promise.resolver or registrant, "due": moment_text(due), "voidIf": list(promise.void_if)},
    }


def subject_files(evidence: Evidence) -> dict[str, bytes]:
    """Return the canonical bytes of the files that a statement names by digest."""
    target, raw_forecast = evidence.target, dump_canonical(evidence.forecast)
    metric = read_subject(raw_forecast, name="forecast.json", path="forecast.json")["metric"]
    spec = (target if isinstance(target, OutsideTarget) else unbound_spec(target)).to_bytes()
    measured = read_subject(spec, name="target.json", path="target.json")
    documents = {
        "evaluation.json": {"format_version": 1, "evaluation": measured["evaluation"], "data": measured["data"]},
        "ladder.json": ladder_document(
            evidence.rows, ladder=target.ladder, metric=metric, source=evidence.source, curves=evidence.curves
        ),
        "recipe.json": evidence.recipe,
        "samples.json": {"format_version": 1, "metric": metric, "flops": target.flops, "losses": thinned(evidence.losses)},
    }
    files = {name: dump_canonical(document) for name, document in documents.items()}
    return {**files, "forecast.json": raw_forecast, "target.json": spec}


def ladder_document(
    rows: Sequence[Mapping[str, Any]],
    *,
    ladder: str,
    metric: str,
    source: Mapping[str, Any] | None = None,
    curves: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of `ladder.json`: the exact fitted runs, and their table and curves, if any."""
    document = {"format_version": 1, "ladder": ladder, "metric": metric, "rows": [ladder_row(row) for row in rows]}
    return document | {name: value for name, value in (("source", source), ("curves", curves)) if value is not None}


def ladder_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fitted run as a row of `ladder.json`."""
    names = [name for name in ("params", "active_params", "tokens") if name in row]
    counts = {name: int(row[name]) if float(row[name]).is_integer() else float(row[name]) for name in names}
    measures = {name: float(row[name]) for name in ("budget_flops", "flops", "loss", "epochs") if name in row}
    return {"run": str(row["run"]), **measures, **counts}


def countersign(folder: Path, *, key: SigningKey, principal: str) -> Path:
    """Sign the statement in `folder` as a reviewer; return the file, which is never overwritten.

    `SigningError` for the registrant; `VerificationError` if `allowed_signers` does not list the name with that key.
    """
    statement = read_registration(folder)
    if principal == statement.predicate["registrant"]:
        raise SigningError(
            f"{principal} is the registrant of {folder.name} and has signed it already.",
            why="A second signature is worth something when it is someone else's.",
            fix="Let a reviewer sign, with a key of their own: marin-scale registry sign --as NAME --key KEY",
        )
    path, at = signers_path(folder), max(statement.created_at, datetime.now(UTC))
    require_may_sign(path, principal=principal, key=key.public_key, namespace=NAMESPACE, at=at)
    signed = folder / countersignature_name(principal)
    if is_present(signed):
        raise SigningError(
            f"{principal} has signed {folder.name} already: {signed.name}.",
            why="One signature says all that a second one would.",
            fix=f"See what it says: marin-scale verify {folder.name}",
        )
    _require_own_key(folder, statement, key=key)
    write_once(signed, key.sign(statement.raw))
    return signed


def _require_own_key(folder: Path, statement: Statement, *, key: SigningKey) -> None:
    """Raise `SigningError` if the same key has signed under another name."""
    for name in (SIGNATURE_NAME, *countersigners(each.name for each in folder.iterdir()).values()):
        known = verify_signature(read_bytes(folder / name), content=statement.raw, name=str(folder / name))
        if known.wire == key.public_key.wire:
            raise SigningError(
                f"{folder / name} was made with this key, {known.fingerprint}.",
                why="Two names with one key are one signer.",
                fix="Nothing was written. Let someone else sign, with a key of their own.",
            )
