"""The notices beside a statement: each whole, signed by who may give it, numbered without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marin_scaling.check.people import listed_people
from marin_scaling.check.received import Receipts, known_at, own_receipts
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


def verified_notices(
    folder: Path, *, statement: Statement, allowed_signers: Path, receipts: Receipts | None = None
) -> list[Notice]:
    """The notices about the statement in `folder`, in order; `VerificationError` names the first that is not sound."""
    names = notice_names(path.name for path in folder.iterdir())
    for number, name in enumerate(names, start=1):
        if not name.startswith(f"notice-{number}-"):
            refuse(f"{folder / name} is there, and number {number} is not", fix="Restore the missing one from version control.")
    known = receipts or own_receipts(folder.parent)
    return [_verified(folder / name, statement=statement, allowed_signers=allowed_signers, receipts=known) for name in names]


def notice_steps(notices: Sequence[Notice], *, folder: Path) -> list[VerifiedStep]:
    """A step for each of `folder`."""
    keys = [fingerprint_at(folder / notice.name / NOTICE_SIGNATURE_NAME) for notice in notices]
    return [
        VerifiedStep(what=notice.kind, evidence=f"with {key}, {notice.sentence}")
        for notice, key in zip(notices, keys, strict=True)
    ]


def _verified(place: Path, *, statement: Statement, allowed_signers: Path, receipts: Receipts) -> Notice:
    files, path = read_whole(place, names=(NOTICE_NAME, NOTICE_SIGNATURE_NAME)), place / NOTICE_SIGNATURE_NAME
    raw, signature = files[NOTICE_NAME], files[NOTICE_SIGNATURE_NAME]
    notice = read_notice(raw, name=str(place / NOTICE_NAME), statement=statement)
    by = notice.document["by"]
    moments = [notice.at, known_at(notice.at, f"{place.name}/{NOTICE_NAME}", folder=place.parent, receipts=receipts)]
    require_signed(raw, signature=signature, path=path, principal=by, moments=moments, allowed_signers=allowed_signers)
    registrant = statement.predicate["registrant"]
    if notice.kind == "void" and listed_people(allowed_signers).are_one(by, registrant):
        refuse(
            f"{place / NOTICE_NAME}: {by} and the registrant {registrant} are one person, by the keys in {allowed_signers}",
            fix="Remove the notice: only a resolver who is someone else finds a forecast void.",
        )
    return notice
