"""Whether a seal is what it claims to be: signed by whom it says, not overdue, and opened by the statement that was sealed.

Of a forecast that is still sealed nothing else can be verified, and its steps say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from marin_scaling.check.known_names import is_unfinished, unfinished_name
from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.received import effective_time
from marin_scaling.check.signed_by import fingerprint_at, require_signed
from marin_scaling.check.state import State, Verdict
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.preregistration.seal import (
    OPENING_NAME,
    SEAL_FILES,
    SEAL_NAME,
    SEAL_SIGNATURE_NAME,
    Seal,
    read_opening,
    read_seal,
    require_opens,
    seal_names,
)
from marin_scaling.preregistration.statement import Statement
from marin_scaling.preregistration.timestamp import stamp_names


def verified_seal(folder: Path, *, allowed_signers: Path, at: datetime | None = None, received: datetime | None = None) -> Seal:
    """Return the seal in a folder, signed by a key that was allowed at `at`; else when it says it was made, and when received.

    `VerificationError` names what is wrong.
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
    """What can be said of a forecast that is still sealed; nothing but seal and stamps may lie there."""
    seal = verified_seal(folder, allowed_signers=allowed_signers)
    present = {path.name for path in folder.iterdir() if not is_unfinished(path, files={unfinished_name(path.name)} - {""})}
    for name in sorted(present - {*SEAL_FILES, *stamp_names(present)}):
        refuse(
            f"{folder / name} lies beside a seal, without the statement that was sealed",
            fix=f"If it is being revealed, go on: marin-scale reveal {folder.name}. Else remove it.",
        )
    evidence = (
        f"by {seal.by} with {fingerprint_at(folder / SEAL_SIGNATURE_NAME)} at {seal.document['at']}, "
        f"to be shown by {seal.document['reveal_by']}; not to be seen before"
    )
    return VerifiedStep(what="sealed", evidence=evidence, compared=False)


def opened_steps(
    statement: Statement, *, files: Mapping[str, bytes], folder: Path, allowed_signers: Path, received: datetime | None
) -> list[VerifiedStep]:
    """That the statement is the one that was sealed; no step where none was."""
    if not seal_names(files):
        return []
    for name in (SEAL_NAME, SEAL_SIGNATURE_NAME, OPENING_NAME):
        if name not in files:
            refuse(f"{folder / name} is missing", fix="Restore it from version control.")
    seal = verified_seal(folder, allowed_signers=allowed_signers, received=received)
    name = str(folder / OPENING_NAME)
    require_opens(seal, statement, salt=read_opening(files[OPENING_NAME], name=name), name=name)
    evidence = f"this statement, by {seal.by} at {seal.document['at']}, to be shown by {seal.document['reveal_by']}"
    return [VerifiedStep(what="sealed", evidence=evidence)]


def sealed_verdict(folder: Path, *, allowed_signers: Path, at: datetime) -> Verdict:
    """What became of a forecast that is still sealed: it waits, or it is overdue and counts as missed."""
    seal, name = verified_seal(folder, allowed_signers=allowed_signers), folder.name
    by = seal.document["reveal_by"]
    if at > seal.reveal_by:
        sentence = f"overdue: sealed by {seal.by}, to be shown by {by}, and not shown; until it is, it counts as missed"
        return Verdict(id=name, state=State.OVERDUE, sentence=sentence, outcome=None, registrant=seal.by)
    sentence = f"sealed by {seal.by} at {seal.document['at']}, to be shown by {by}"
    return Verdict(id=name, state=State.SEALED, sentence=sentence, outcome=None, registrant=seal.by)
