"""Signatures of the registrant and of reviewers beside a statement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from marin_scaling.errors import MarinScalingError, SigningError, VerificationError, refuse
from marin_scaling.files import read_bytes, read_plain, write_once
from marin_scaling.git import NOT_COMMITTED, restoring_command
from marin_scaling.preregistration.layout import (
    AMENDMENT_NAME,
    NOTICE_NAME,
    SEAL_NAME,
    SIGNATURE_NAME,
    STATEMENT_NAME,
    amendment_names,
    countersignature_name,
    countersigners,
    notice_names,
)
from marin_scaling.preregistration.registry import read_registration, signers_path
from marin_scaling.preregistration.signing.allowed_signers import AllowedSigner, require_listed, require_may_sign
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, PublicKey, parse_signature, verify_signature
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.signing.keys import SigningKey
    from marin_scaling.preregistration.statement import Statement


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


def read_whole(place: Path, *, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a folder by name; `VerificationError` unless it is a plain folder with exactly `names`."""
    present = sorted(path.name for path in place.iterdir()) if place.is_dir() and not place.is_symlink() else []
    if present != sorted(names):
        *first, last = sorted(names)
        refuse(
            f"{place} holds {', '.join(present) or 'nothing'}, not {', '.join(first)} and {last}",
            fix="Restore it from version control.",
        )
    return {name: read_plain(place / name) for name in present}


def require_signed(
    content: bytes, *, signature: bytes, path: Path, principal: str, moments: Iterable[datetime], allowed_signers: Path
) -> tuple[PublicKey, AllowedSigner]:
    """Return the key that signed `content`, and the line that allows `principal` to use it at all `moments`.

    `moments` are the document's own time and the time of receipt: a stolen old key could backdate the former. `path` is the
    signature's, for errors; `VerificationError` for an invalid signature or another signer.
    """
    key = verify_signature(signature, content=content, name=str(path))
    for moment in sorted(set(moments)):
        line = require_listed(allowed_signers, principal=principal, key=key, namespace=NAMESPACE, at=moment)
    return key, line


def require_unchanged(folder: Path) -> None:
    """Raise `VerificationError` if a signed file of a preregistration does not fit its signature; nothing of it is parsed.

    Missing and unreadable files are left to the later steps. The error names the commit that has the signed bytes.
    """
    for path in _signed_files(folder):
        signature = path.with_name(f"{path.name}.sig")
        with contextlib.suppress(MarinScalingError):
            raw, armored = read_plain(path), read_plain(signature)
            if (fault := _fault(raw, signature=armored, path=signature)) is not None:
                break
    else:
        return
    raise _changed(path, signature, raw=raw, armored=armored, fault=fault)


def signature_faults(folders: Iterable[Path]) -> list[VerificationError]:
    """Return the first fault of `require_unchanged` of each folder that has one."""
    found = []
    for folder in folders:
        try:
            require_unchanged(folder)
        except VerificationError as error:
            found.append(error)
    return found


def _signed_files(folder: Path) -> Iterator[Path]:
    names = [path.name for path in folder.iterdir()]
    yield from (folder / STATEMENT_NAME, folder / SEAL_NAME)
    yield from (folder / name / NOTICE_NAME for name in notice_names(names))
    yield from (folder / name / AMENDMENT_NAME for name in amendment_names(names))


def _fault(content: bytes, *, signature: bytes, path: Path) -> VerificationError | None:
    try:
        verify_signature(signature, content=content, name=str(path))
    except VerificationError as error:
        return error
    return None


def _changed(path: Path, signature: Path, *, raw: bytes, armored: bytes, fault: VerificationError) -> VerificationError:
    """Return the refusal of a signed file, or of its signature, with the command that restores the one that was changed."""
    for changed, fits in (
        (path, lambda content: _fault(content, signature=armored, path=signature) is None),
        (signature, lambda content: _fault(raw, signature=content, path=signature) is None),
    ):
        if command := restoring_command(changed, fits=fits):
            fix = f"Restore the signed bytes: {command}"
            return VerificationError((f"{changed} was changed after signing.", *fault.lines), fix=fix)
    what = f"{path} or its signature was changed after signing."
    return VerificationError((what, *fault.lines), fix=NOT_COMMITTED)


def fingerprint_at(path: Path) -> str:
    """Return the fingerprint of the key in a verified signature file."""
    return parse_signature(read_plain(path), name=str(path)).public_key.fingerprint
