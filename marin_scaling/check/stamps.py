"""The time stamps beside a signature: each by an authority that the registry trusts, none older than the statement."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from marin_scaling.check.plain_file import read_plain
from marin_scaling.check.verified_step import VerifiedStep, refuse
from marin_scaling.durable_files import read_bytes
from marin_scaling.preregistration.registry import SIGNATURE_NAME
from marin_scaling.preregistration.seal import SEAL_NAME, SEAL_SIGNATURE_NAME
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.preregistration.timestamp import ROOTS_NAME, can_read_stamps, read_stamp, stamp_names
from marin_scaling.regular_files import is_present

_CLOCKS_DIFFER = timedelta(minutes=10)


def stamped_signature(folder: Path) -> Path:
    """The signature that came first, which a third party's stamps are over: that of the seal, else of the statement."""
    return folder / (SEAL_SIGNATURE_NAME if is_present(folder / SEAL_NAME) else SIGNATURE_NAME)


def stamped_at(folder: Path, *, made_at: datetime, roots: Path) -> list[datetime]:
    """The times of all stamps over a registrant's signature; `VerificationError` names the first that is none.

    Empty where there is none, or where they cannot be read here.
    """
    names = stamp_names(path.name for path in folder.iterdir())
    if not names or not can_read_stamps() or not is_present(roots):
        return []
    signature = read_plain(stamped_signature(folder))
    moments = [
        read_stamp(read_bytes(folder / name), signature=signature, roots=roots, name=str(folder / name)) for name in names
    ]
    for name, moment in zip(names, moments, strict=True):
        if moment + _CLOCKS_DIFFER < made_at:
            refuse(
                f"{folder / name} is of {moment_text(moment)}, before the statement of {moment_text(made_at)}",
                fix="Restore the file from version control; a signature cannot be stamped before it is made.",
            )
    return moments


def stamp_step(folder: Path, *, moments: list[datetime], roots: Path) -> list[VerifiedStep]:
    """What the stamps show, or why they show nothing here; no step where there is no stamp."""
    names = stamp_names(path.name for path in folder.iterdir())
    if not names:
        return []
    if moments:
        times, name = ", ".join(map(moment_text, moments)), stamped_signature(folder).name
        evidence = f"{name} was there at {times}, by {len(names)} authorities of {roots.name}"
        return [VerifiedStep(what="stamp", evidence=evidence)]
    why = "the extra timestamp is not installed" if is_present(roots) else f"{roots} is not there"
    return [VerifiedStep(what="stamp", evidence=f"{len(names)} not read: {why}", compared=False)]


def roots_path(folder: Path) -> Path:
    """The root certificates that speak for a preregistration: those beside its folder."""
    return folder.absolute().parent / ROOTS_NAME
