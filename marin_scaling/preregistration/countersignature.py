"""Signatures of others over a statement: a reviewer signs the same bytes as the registrant, with a key of their own.

One file a person, `statement.json.NAME.sig`, beside the registrant's. Who may sign is for `allowed_signers` to say; nobody is
added to it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from marin_scaling.durable_files import read_bytes, write_once
from marin_scaling.errors import SigningError
from marin_scaling.preregistration.allowed_signers import require_may_sign
from marin_scaling.preregistration.registry import SIGNATURE_NAME, STATEMENT_NAME, read_registration, signers_path
from marin_scaling.preregistration.sshsig import NAMESPACE, verify_signature
from marin_scaling.preregistration.statement_format import PRINCIPAL
from marin_scaling.regular_files import is_present

if TYPE_CHECKING:
    from marin_scaling.preregistration.signing_key import SigningKey
    from marin_scaling.preregistration.statement import Statement

_NAME = re.compile(rf"{re.escape(STATEMENT_NAME)}\.({PRINCIPAL.pattern})\.sig")


def countersignature_name(principal: str) -> str:
    """The file of someone's signature.

    >>> countersignature_name("bob@example.org")
    'statement.json.bob@example.org.sig'
    """
    return f"{STATEMENT_NAME}.{principal}.sig"


def countersigners(names: Iterable[str]) -> dict[str, str]:
    """Of the names of files those that are signatures of others, by principal.

    >>> countersigners(["statement.json.sig", "statement.json.bob@example.org.sig"])
    {'bob@example.org': 'statement.json.bob@example.org.sig'}
    """
    found = ((name, _NAME.fullmatch(name)) for name in sorted(names))
    return {match[1]: name for name, match in found if match}


def countersign(folder: Path, *, key: SigningKey, principal: str) -> Path:
    """Sign the statement in `folder` as someone else than its registrant; returns the file, which is never written over.

    `SigningError` for the registrant; `VerificationError` when `allowed_signers` does not let that name sign with that key.
    """
    statement = read_registration(folder)
    if principal == statement.predicate["registrant"]:
        raise SigningError(
            f"{principal} is the registrant of {folder.name} and has signed it already.",
            why="A second signature is worth something when it is someone else's.",
            fix="Let a reviewer sign, with a key of their own: marin-scale sign --as NAME --key KEY",
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
    """`SigningError` where the same key has signed under another name: it would be one signature, and the forecast refused."""
    for name in (SIGNATURE_NAME, *countersigners(each.name for each in folder.iterdir()).values()):
        known = verify_signature(read_bytes(folder / name), content=statement.raw, name=str(folder / name))
        if known.wire == key.public_key.wire:
            raise SigningError(
                f"{folder / name} was made with this key, {known.fingerprint}.",
                why="Two names with one key are one signer.",
                fix="Nothing was written. Let someone else sign, with a key of their own.",
            )
