"""Make a preregistration: statement, signature, folder, in that order; refuse what could not be checked later.

Takes the fitted rows, the forecast document and the target's spec as they are. Fits nothing and trains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical
from marin_scaling.preregistration.binding import bound_spec, unbound_spec
from marin_scaling.preregistration.registry import (
    SIGNATURE_NAME,
    STATEMENT_NAME,
    allow_signer,
    find_registration,
    read_registration,
    register,
    registration_id,
)
from marin_scaling.preregistration.signing_key import SigningKey
from marin_scaling.preregistration.sshsig import make_signature
from marin_scaling.preregistration.statement import Statement, build_statement, ladder_document, read_subject

if TYPE_CHECKING:
    from marin_scaling.run.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A preregistration that stands: where, what it says, and the spec of the run that answers it."""

    folder: Path
    statement: Statement
    target: RunSpec
    notes: tuple[str, ...]
    """Lines for the reader: the key that signed, and a signer that was added."""


def preregister_target(
    rows: Sequence[Mapping[str, Any]],
    *,
    forecast: Mapping[str, Any],
    target: RunSpec,
    registry_dir: Path,
    key: SigningKey,
    principal: str,
    slug: str,
    created_at: datetime,
    ladder_rule: str | None = None,
) -> Registration:
    """Register, signed, what `forecast` says of `target`; train `Registration.target` afterwards, and nothing else answers it.

    `rows` are the runs that were fitted (`run`: digest, `flops`, `params`, `tokens`, `loss`), `forecast` is the document of
    `marin-scale fit --json` with a prediction at exactly the target's FLOPs, `ladder_rule` says which runs were taken.
    Nothing is written when something is refused (`StatementError`, `SigningError`, `StorageError`).
    """
    files = subject_files(rows, forecast=forecast, target=target)
    statement = build_statement(
        files,
        registration_id=registration_id(slug, created_at=created_at),
        registrant=principal,
        created_at=created_at,
        tool_version=__version__,
        ladder_rule=ladder_rule or f"all finished rungs of runs/{target.ladder}, except those listed as excluded",
    )
    signature = make_signature(statement.raw, private_key=key.private_key)
    added = None
    if not _will_be_refused(registry_dir, target=files["target.json"], statement=statement):  # then no signer is added for it
        added = allow_signer(registry_dir, principal=principal, key=key.public_key, at=statement.created_at)
    files = {**files, STATEMENT_NAME: statement.raw, SIGNATURE_NAME: signature}
    folder = register(registry_dir, slug=slug, created_at=created_at, files=files)
    notes = (key.note, *([added] if added else []))
    return Registration(
        folder=folder, statement=statement, target=bound_spec(unbound_spec(target), statement=statement.raw), notes=notes
    )


def _will_be_refused(registry_dir: Path, *, target: bytes, statement: Statement) -> bool:
    return bool(find_registration(registry_dir, target=target)) or (registry_dir / statement.predicate["id"]).exists()


def standing_registration(target: RunSpec, *, registry_dir: Path) -> Registration | None:
    """The preregistration for this target that stands already, or None: what to go on with after an interruption."""
    folder = find_registration(registry_dir, target=unbound_spec(target).to_bytes())
    if folder is None:
        return None
    statement = read_registration(folder)
    return Registration(
        folder=folder, statement=statement, target=bound_spec(unbound_spec(target), statement=statement.raw), notes=()
    )


def subject_files(rows: Sequence[Mapping[str, Any]], *, forecast: Mapping[str, Any], target: RunSpec) -> dict[str, bytes]:
    """The canonical bytes of `ladder.json`, `forecast.json` and `target.json`."""
    raw_forecast = dump_canonical(forecast)
    metric = read_subject(raw_forecast, name="forecast.json", path="forecast.json")["metric"]
    return {
        "ladder.json": dump_canonical(ladder_document(rows, ladder=target.ladder, metric=metric)),
        "forecast.json": raw_forecast,
        "target.json": unbound_spec(target).to_bytes(),
    }
