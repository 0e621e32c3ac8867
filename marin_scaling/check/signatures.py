"""Who signed a statement: its registrant, and others beside them, each with a key of their own that `allowed_signers` knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.received import Receipts, effective_time, known_at
from marin_scaling.check.sealed import verified_seal
from marin_scaling.check.signed_by import require_signed
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.preregistration.countersignature import countersigners
from marin_scaling.preregistration.registry import SIGNATURE_NAME, read_registration
from marin_scaling.preregistration.seal import SEAL_NAME, is_sealed
from marin_scaling.preregistration.ssh_keys import PublicKey
from marin_scaling.preregistration.statement import Statement
from marin_scaling.regular_files import is_present


def signature_steps(
    statement: Statement, *, files: Mapping[str, bytes], folder: Path, allowed_signers: Path, receipts: Receipts, stamped: bool
) -> list[VerifiedStep]:
    """The registrant's signature, then one step for each other signer, and one for reviewers who have not signed.

    `VerificationError` for a signature that is none, a key that is not allowed to speak for that name when the statement
    was made and when its signature was received, or one key that signed under two names. A stamp says instead when the
    registrant's signature was received; a reviewer's has no time of its own.
    """
    names = {statement.predicate["registrant"]: SIGNATURE_NAME, **countersigners(files)}
    if names[statement.predicate["registrant"]] != SIGNATURE_NAME:
        refuse(f"{folder / names[statement.predicate['registrant']]} is a second signature of the registrant", fix="Remove it.")
    keys: dict[str, PublicKey] = {}
    steps = []
    for principal, name in names.items():
        moments = _moments(statement, name, folder=folder, receipts=receipts, stamped=stamped)
        key, where = _signer(
            statement, files[name], principal=principal, path=folder / name, allowed_signers=allowed_signers, moments=moments
        )
        for other, known in keys.items():
            if known.wire == key.wire:
                refuse(
                    f"{folder / name}: {principal} and {other} signed with one key, {key.fingerprint}",
                    fix="Let someone else sign, with a key of their own.",
                )
        keys[principal] = key
        what = "signature" if name == SIGNATURE_NAME else "review"
        steps.append(VerifiedStep(what=what, evidence=f"{principal} with {key.fingerprint}, allowed by {where}"))
    missing = [reviewer for reviewer in statement.predicate.get("reviewers", ()) if reviewer not in keys]
    if missing:
        steps.append(VerifiedStep(what="review", evidence=f"not signed by {', '.join(missing)} so far", compared=False))
    return steps


def require_registrant_at(folder: Path, *, allowed_signers: Path, at: datetime) -> None:
    """`VerificationError` unless the registrant's key was allowed at `at`, when a third party saw the signature.

    Else whoever finds a key that has expired, or was given up, could sign with an older date.
    """
    if is_present(folder / SEAL_NAME):
        verified_seal(folder, allowed_signers=allowed_signers, at=at)
    if is_sealed(folder):
        return
    statement, path = read_registration(folder), folder / SIGNATURE_NAME
    by = statement.predicate["registrant"]
    _signer(statement, read_plain(path), principal=by, path=path, allowed_signers=allowed_signers, moments=[at])


def _moments(statement: Statement, name: str, *, folder: Path, receipts: Receipts, stamped: bool) -> list[datetime]:
    """Return when the key behind a signature file must have been allowed."""
    if name != SIGNATURE_NAME:
        return [known_at(statement.created_at, name, folder=folder, receipts=receipts)]
    received = None if stamped else receipts.forecast_at(folder)
    return [statement.created_at, effective_time(statement.created_at, received)]


def _signer(
    statement: Statement,
    signature: bytes,
    *,
    principal: str,
    path: Path,
    allowed_signers: Path,
    moments: Iterable[datetime],
) -> tuple[PublicKey, str]:
    """Return the key that signed for a name, and the line that allows it at these moments."""
    key, allowed = require_signed(
        statement.raw,
        signature=signature,
        path=path,
        principal=principal,
        moments=moments,
        allowed_signers=allowed_signers,
    )
    return key, Path(allowed.where).name
