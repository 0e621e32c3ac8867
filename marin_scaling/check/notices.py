"""The notices beside a statement: each whole, signed by who may give it, numbered without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.preregistration.allowed_signers import read_allowed_signers, require_allowed
from marin_scaling.preregistration.notice import (
    NOTICE_NAME,
    NOTICE_SIGNATURE_NAME,
    Notice,
    notice_names,
    read_notice,
)
from marin_scaling.preregistration.sshsig import NAMESPACE, verify_signature
from marin_scaling.preregistration.statement import Statement


def verified_notices(folder: Path, *, statement: Statement, allowed_signers: Path) -> list[Notice]:
    """The notices about the statement in `folder`, in order; `VerificationError` names the first that is not sound."""
    names = notice_names(path.name for path in folder.iterdir())
    for number, name in enumerate(names, start=1):
        if not name.startswith(f"notice-{number}-"):
            refuse(f"{folder / name} is there, and number {number} is not", fix="Restore the missing one from version control.")
    return [_verified(folder / name, statement=statement, allowed_signers=allowed_signers) for name in names]


def notice_steps(notices: Sequence[Notice]) -> list[VerifiedStep]:
    """A step for each."""
    return [VerifiedStep(what=notice.kind, evidence=notice.sentence) for notice in notices]


def _verified(place: Path, *, statement: Statement, allowed_signers: Path) -> Notice:
    present = sorted(path.name for path in place.iterdir()) if place.is_dir() and not place.is_symlink() else []
    if present != [NOTICE_NAME, NOTICE_SIGNATURE_NAME]:
        refuse(
            f"{place} holds {', '.join(present) or 'nothing'}, not {NOTICE_NAME} and {NOTICE_SIGNATURE_NAME}",
            fix="Restore it from version control.",
        )
    raw, signature = (read_plain(place / name) for name in present)
    notice = read_notice(raw, name=str(place / NOTICE_NAME), statement=statement)
    key = verify_signature(signature, content=raw, name=str(place / NOTICE_SIGNATURE_NAME))
    signers = read_allowed_signers(allowed_signers) if allowed_signers.exists() else []
    by, source = notice.document["by"], str(allowed_signers)
    require_allowed(signers, principal=by, key=key, namespace=NAMESPACE, at=notice.at, source=source)
    return notice
