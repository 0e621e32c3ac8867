"""Proofs of a date: seals, which commit to a forecast and reveal it later, and RFC 3161 time stamps over a signature."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.errors import StampError, StatementError, StorageError, UsageError, VerificationError, missing_extra, refuse
from marin_scaling.files import hide_from_git, publish_folder, read_bytes, read_plain, write_once
from marin_scaling.preregistration.format import Principal, RegistrationId
from marin_scaling.preregistration.layout import (
    OPENING_NAME,
    ROOTS_NAME,
    SEAL_FILES,
    SEAL_NAME,
    SEAL_SIGNATURE_NAME,
    SIGNATURE_NAME,
    STATEMENT_NAME,
    is_sealed,
    stamp_names,
)
from marin_scaling.preregistration.outcome import VerifiedStep
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
    from rfc3161_client import Verifier

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


MAX_REPLY_BYTES = 64 * 1024
_SECONDS = 30.0
_QUERY, _REPLY = "application/timestamp-query", "application/timestamp-reply"


def can_read_stamps() -> bool:
    """Return True if the extra is installed."""
    return importlib.util.find_spec("rfc3161_client") is not None


def request_stamp(signature: bytes, *, url: str, roots: Path) -> tuple[bytes, datetime]:
    """Return an authority's reply over a signature, verified against `roots`, and its time (UTC).

    `StampError` if the authority does not answer, refuses, or is not trusted by these roots.
    """
    _require_extra()
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    asked = TimestampRequestBuilder().data(signature).hash_algorithm(HashAlgorithm.SHA512).nonce(nonce=True)
    request = asked.cert_request(cert_request=True).build()
    reply = _post(url, request.as_bytes())
    try:
        return reply, read_stamp(reply, signature=signature, roots=roots, name=f"the answer of {url}", nonce=request.nonce)
    except VerificationError as error:
        raise StampError(
            error.what, why=error.why, fix=f"Ask another authority, or add its root certificate to {roots}."
        ) from error


def read_stamp(reply: bytes, *, signature: bytes, roots: Path, name: str, nonce: int | None = None) -> datetime:
    """Return the time (UTC) at which a trusted authority saw a signature; `VerificationError` if none did."""
    _require_extra()
    import rfc3161_client

    if len(reply) > MAX_REPLY_BYTES:
        _refuse_stamp(name, f"it has {len(reply)} bytes, more than {MAX_REPLY_BYTES}")
    try:
        stamp = rfc3161_client.decode_timestamp_response(reply)
        _verifier(roots, nonce=nonce).verify_message(stamp, signature)
        return stamp.tst_info.gen_time.astimezone(UTC)
    except rfc3161_client.VerificationError as error:
        _refuse_stamp(name, str(error).rstrip("."))
    except (ValueError, TypeError, OverflowError) as error:
        _refuse_stamp(name, f"it is no answer of a time-stamping authority ({error})")


def _verifier(roots: Path, *, nonce: int | None) -> Verifier:
    from cryptography import x509
    from rfc3161_client import VerifierBuilder

    builder = VerifierBuilder()
    if nonce is not None:
        builder = builder.nonce(nonce)
    for certificate in x509.load_pem_x509_certificates(read_bytes(roots)):
        builder = builder.add_root_certificate(certificate)
    return builder.build()


def _post(url: str, body: bytes) -> bytes:
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise StampError(
            f"{url} is no web address.", why="Authorities answer over HTTP.", fix="Give one like https://tsa.example/"
        )
    request = urllib.request.Request(url, data=body, headers={"Content-Type": _QUERY, "Accept": _REPLY})
    try:
        with urllib.request.build_opener(_no_redirects()).open(request, timeout=_SECONDS) as answer:
            return bytes(answer.read(MAX_REPLY_BYTES + 1))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise StampError(
            f"{url} did not answer: {reason}.",
            why="A stamp is another party's word on the time, and has to come from there.",
            fix="Try again, or another authority; nothing was written.",
        ) from error


def _no_redirects() -> Any:
    """Return a urllib handler that refuses redirects to other places or protocols."""
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_arguments: Any, **_options: Any) -> None:
            return None

    return NoRedirects()


def _require_extra() -> None:
    if not can_read_stamps():
        raise missing_extra("timestamp", needed_for="time stamps of a third party")


def _refuse_stamp(name: str, reason: str) -> NoReturn:
    raise VerificationError(
        f"{name} is no time stamp over this signature: {reason}.",
        why="It must be signed by an authority that the registry trusts, over exactly this signature.",
        fix="Restore the file from version control; or ask for another, of today: marin-scale registry stamp",
    )


_CLOCKS_DIFFER = timedelta(minutes=10)


def stamped_signature(folder: Path) -> Path:
    """Return the first signature, which is stamped: the seal's if there is one, else the statement's."""
    return folder / (SEAL_SIGNATURE_NAME if is_present(folder / SEAL_NAME) else SIGNATURE_NAME)


def stamped_at(folder: Path, *, made_at: datetime, roots: Path) -> list[datetime]:
    """Return the times of all stamps of a registrant's signature; `VerificationError` names the first invalid one.

    The list is empty without stamps, or if they cannot be read here.
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
    """Return a step with the stamps, or with the reason why they cannot be read; no step without stamps."""
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
    """Return the root certificates of a preregistration's registry."""
    return folder.absolute().parent / ROOTS_NAME
