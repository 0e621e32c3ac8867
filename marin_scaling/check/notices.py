"""The notices beside a statement: each whole, signed by who may give it, numbered without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marin_scaling.check.signed_by import fingerprint_at, read_whole, require_signed
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.preregistration.notice import (
    NOTICE_NAME,
    NOTICE_SIGNATURE_NAME,
    Notice,
    notice_names,
    read_notice,
)
from marin_scaling.preregistration.statement import Statement


def verified_notices(folder: Path, *, statement: Statement, allowed_signers: Path) -> list[Notice]:
    """The notices about the statement in `folder`, in order; `VerificationError` names the first that is not sound."""
    names = notice_names(path.name for path in folder.iterdir())
    for number, name in enumerate(names, start=1):
        if not name.startswith(f"notice-{number}-"):
            refuse(f"{folder / name} is there, and number {number} is not", fix="Restore the missing one from version control.")
    return [_verified(folder / name, statement=statement, allowed_signers=allowed_signers) for name in names]


def notice_steps(notices: Sequence[Notice], *, folder: Path) -> list[VerifiedStep]:
    """A step for each of `folder`."""
    keys = [fingerprint_at(folder / notice.name / NOTICE_SIGNATURE_NAME) for notice in notices]
    return [
        VerifiedStep(what=notice.kind, evidence=f"with {key}, {notice.sentence}")
        for notice, key in zip(notices, keys, strict=True)
    ]


def _verified(place: Path, *, statement: Statement, allowed_signers: Path) -> Notice:
    files, path = read_whole(place, names=(NOTICE_NAME, NOTICE_SIGNATURE_NAME)), place / NOTICE_SIGNATURE_NAME
    raw, signature = files[NOTICE_NAME], files[NOTICE_SIGNATURE_NAME]
    notice = read_notice(raw, name=str(place / NOTICE_NAME), statement=statement)
    by = notice.document["by"]
    require_signed(raw, signature=signature, path=path, principal=by, at=notice.at, allowed_signers=allowed_signers)
    return notice
