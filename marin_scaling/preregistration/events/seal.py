"""Seals: commit to a forecast now, reveal it later."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.errors import StatementError, StorageError, UsageError, VerificationError
from marin_scaling.files import hide_from_git, publish_folder, read_bytes, write_once
from marin_scaling.preregistration.format import Principal, RegistrationId
from marin_scaling.preregistration.layout import (
    OPENING_NAME,
    SEAL_FILES,
    SEAL_NAME,
    SEAL_SIGNATURE_NAME,
    STATEMENT_NAME,
    is_sealed,
)
from marin_scaling.preregistration.registry import (
    find_registration,
    find_twin,
    publish_registration,
    read_registration,
    require_free,
)
from marin_scaling.preregistration.statement import LONGEST_TERM, Statement, moment_text, parse_moment
from marin_scaling.strict_model import SHA256, Moment, One, Part, check_document
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.signing.keys import SigningKey

SEALED_DIR = Path(".marin-scaling/sealed")
"""Folder of one's own sealed forecasts, below the root of the repository."""

LONGEST_SEAL = LONGEST_TERM
"""Longest term of a seal: four years, as at the Open Science Framework."""


class SealFile(Part):
    """The content of `seal.json`."""

    format_version: One
    kind: Literal["seal"]
    id: RegistrationId
    """name of the folder, and the `id` of the statement"""
    by: Principal
    """the person who signs: the registrant of the statement, as in `allowed_signers`"""
    at: Moment
    """time of sealing, by the registrant's clock (UTC); not before the statement was made"""
    commitment: SHA256
    """SHA-256 of the 32 bytes of the salt, followed by the bytes of `statement.json`"""
    reveal_by: Moment
    """deadline for revealing it (UTC), at most four years after `at`; after that it counts as missed"""


class Opening(Part):
    """The content of `opening.json`."""

    format_version: One
    salt: SHA256
    """32 random bytes in hexadecimal, without which nobody can guess statements"""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """Content of a seal, and the signed bytes."""

    raw: bytes
    document: Mapping[str, Any]

    @property
    def by(self) -> str:
        """Author of the seal."""
        return str(self.document["by"])

    @property
    def at(self) -> datetime:
        """Time of sealing as its author states it (UTC)."""
        return parse_moment(self.document["at"])

    @property
    def reveal_by(self) -> datetime:
        """Deadline for revealing the forecast (UTC)."""
        return parse_moment(self.document["reveal_by"])


def commitment(statement: bytes, *, salt: str) -> str:
    """Return the public digest of a sealed statement: SHA-256 over the 32 bytes of the salt and the statement's bytes.

    >>> commitment(b"{}\\n", salt="00" * 32)[:16]
    'e2e53fdad3219f48'
    """
    return sha256_hex(bytes.fromhex(salt) + statement)


def seal_files(statement: Statement, *, key: SigningKey, at: datetime, reveal_by: datetime) -> dict[str, bytes]:
    """Return the bytes of `seal.json`, its signature and `opening.json`; `StatementError` for an invalid term."""
    salt, predicate = secrets.token_hex(32), statement.predicate
    document = {
        "format_version": 1,
        "kind": "seal",
        "id": predicate["id"],
        "by": predicate["registrant"],
        "at": moment_text(at),
        "commitment": commitment(statement.raw, salt=salt),
        "reveal_by": moment_text(reveal_by),
    }
    raw = dump_canonical(document)
    try:
        read_seal(raw, name=SEAL_NAME)
    except VerificationError as error:
        raise StatementError(error.lines, why=error.why, fix="Choose a day after today, within four years.") from error
    opening = dump_canonical({"format_version": 1, "salt": salt})
    return {SEAL_NAME: raw, SEAL_SIGNATURE_NAME: key.sign(raw), OPENING_NAME: opening}


def read_seal(raw: bytes, *, name: str) -> Seal:
    """Return the seal in these bytes; `DocumentError` or `VerificationError` names the fault."""
    document = load_canonical(raw, name=name)
    check_document(document, SealFile, name=name)
    seal = Seal(raw=raw, document=document)
    if not timedelta(0) < seal.reveal_by - seal.at <= LONGEST_SEAL:
        _refuse(name, f"sealed at {document['at']} until {document['reveal_by']}, which is no term of up to four years")
    return seal


def read_opening(raw: bytes, *, name: str) -> str:
    """Return the salt in the bytes of an `opening.json`, in hexadecimal."""
    document = load_canonical(raw, name=name)
    check_document(document, Opening, name=name)
    return str(document["salt"])


def require_opens(seal: Seal, statement: Statement, *, salt: str, name: str) -> None:
    """Raise `VerificationError` unless this is the sealed statement, by its registrant and not made after its seal."""
    predicate = statement.predicate
    if commitment(statement.raw, salt=salt) != seal.document["commitment"]:
        _refuse(name, "salt and statement do not give the digest that was sealed: another forecast was sealed")
    if (seal.document["id"], seal.by) != (predicate["id"], predicate["registrant"]):
        _refuse(name, f"{seal.by} sealed {seal.document['id']}, and it opens {predicate['id']} of {predicate['registrant']}")
    if seal.at < statement.created_at:
        _refuse(name, f"it was sealed at {seal.document['at']}, before the statement of {predicate['createdAt']} was made")


def register_sealed(registry_dir: Path, *, files: Mapping[str, bytes], sealed: Mapping[str, bytes], name: str) -> Path:
    """Store the files of a forecast outside of version control, then publish its seal; return the seal's folder.

    `sealed` is the result of `seal_files`. `StatementError` if this target has an open forecast already.
    """
    folder = registry_dir / name
    private = private_folder(folder)
    if standing := find_registration(registry_dir, target=files["target.json"]):
        _refuse_second(standing, registry_dir=registry_dir)
    require_free(folder)
    hide_from_git(private.parent)
    publish_folder(private, {**files, **sealed})
    publish_registration(folder, {each: sealed[each] for each in SEAL_FILES})
    return folder


def require_none_sealed(registry_dir: Path, *, target: bytes, by: str) -> None:
    """Raise `StatementError` if the same person has sealed another forecast of this target here."""
    standing = find_twin(private_folder(registry_dir / "any").parent, target=target, registrant=by)
    if standing:
        _refuse_second(standing, registry_dir=registry_dir)


def _refuse_second(standing: Path, *, registry_dir: Path) -> NoReturn:
    fix = f"Keep the first, {standing.name}, or forecast another target."
    if not is_present(registry_dir / standing.name):
        fix = f"If its sealing was interrupted, so that its seal was never shown, remove {standing} and seal again."
    raise StatementError(
        f"{standing} already forecasts this target.",
        why="With two forecasts of one run, the better one could be picked afterwards.",
        fix=fix,
    )


def private_folder(folder: Path) -> Path:
    """Return the folder with all files of one's own sealed forecast, for its folder in the registry."""
    return folder.absolute().parent.parent / SEALED_DIR / folder.name


def whole_folder(folder: Path) -> Path:
    """Return the folder with all files of a forecast; for one's own sealed forecast the private one.

    `UsageError` for someone else's sealed forecast, `StorageError` if the private folder has another seal.
    """
    if not is_sealed(folder):
        return folder
    private = private_folder(folder)
    if not is_present(private / SEAL_NAME):
        raise UsageError(
            f"{folder} is sealed, and {private} does not exist here.",
            why="Only the registrant has the sealed statement.",
            fix="Work on the machine that sealed it, or copy that folder here.",
        )
    for name in SEAL_FILES:
        if read_bytes(private / name) != read_bytes(folder / name):
            raise StorageError(
                f"{private / name} differs from {folder / name}.",
                why="A seal reveals only the files it was made from.",
                fix="Restore both: the one from your copy, the other from version control.",
            )
    return private


def reveal(folder: Path) -> list[str]:
    """Copy the files of a sealed forecast beside its seal; return their names. A rerun after a crash resumes.

    The statement comes last: until then the forecast is still sealed. `StatementError` if the same person has an open
    forecast of this target.
    """
    private = whole_folder(folder)
    _require_only_one(private, registry_dir=folder.parent)
    names = sorted((path.name for path in private.iterdir()), key=lambda name: (name == STATEMENT_NAME, name))
    for name in names:
        content, path = read_bytes(private / name), folder / name
        if not is_present(path):
            write_once(path, content)
        elif read_bytes(path) != content:
            raise StorageError(
                f"{path} exists and differs from {private / name}.",
                why="Existing files are not overwritten.",
                fix=f"Move {path} away.",
            )
    return names


def _require_only_one(private: Path, *, registry_dir: Path) -> None:
    by = read_registration(private).predicate["registrant"]
    standing = find_twin(registry_dir, target=read_bytes(private / "target.json"), registrant=by)
    if standing and standing.name != private.name:
        raise StatementError(
            f"{standing} forecasts the same target, also by {by}.",
            why="With two forecasts of one run, the better one could be picked afterwards.",
            fix="Leave the forecast sealed; it counts as missed after its day.",
        )


def _refuse(name: str, reason: str) -> NoReturn:
    raise VerificationError(
        f"{name}: {reason}.",
        why="A seal commits to one statement, which alone opens it.",
        fix="Restore seal, opening and statement from version control, or from the copy that was kept.",
    )
