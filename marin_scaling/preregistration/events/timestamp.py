"""RFC 3161 time stamps over a registrant's signature."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marin_scaling.errors import StampError, VerificationError, missing_extra, refuse
from marin_scaling.files import read_bytes, read_plain
from marin_scaling.preregistration.layout import ROOTS_NAME, SEAL_NAME, SEAL_SIGNATURE_NAME, SIGNATURE_NAME, stamp_names
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.untrusted_files import is_present

if TYPE_CHECKING:
    from rfc3161_client import Verifier

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
        _refuse(name, f"it has {len(reply)} bytes, more than {MAX_REPLY_BYTES}")
    try:
        stamp = rfc3161_client.decode_timestamp_response(reply)
        _verifier(roots, nonce=nonce).verify_message(stamp, signature)
        return stamp.tst_info.gen_time.astimezone(UTC)
    except rfc3161_client.VerificationError as error:
        _refuse(name, str(error).rstrip("."))
    except (ValueError, TypeError, OverflowError) as error:
        _refuse(name, f"it is no answer of a time-stamping authority ({error})")


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


def _refuse(name: str, reason: str) -> NoReturn:
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
