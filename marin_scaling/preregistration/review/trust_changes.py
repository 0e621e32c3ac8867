"""Changes of a registry's signers, policy or roots, with warnings.

Two files are compared; nothing is verified here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from marin_scaling.errors import DocumentError, MarinScalingError, VerificationError, refuse
from marin_scaling.files import read_bytes
from marin_scaling.preregistration.layout import POLICY_NAME, SIGNERS_NAME
from marin_scaling.preregistration.signing.allowed_signers import (
    AllowedSigner,
    compared_name,
    parse_allowed_signers,
    read_allowed_signers,
)
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import LONGEST_TERM, moment_text
from marin_scaling.preregistration.verify.rules import Policy, read_policy
from marin_scaling.printable import SIGNERS_CHANGED, printable
from marin_scaling.untrusted_files import is_present

_LOOKS_LIKE = (("0", "o"), ("1", "l"), ("i", "l"), ("rn", "m"), ("vv", "w"), ("5", "s"), ("-", ""), ("_", ""), (".", ""))
"""Characters that look alike, in lower case."""
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class TrustChange:
    """One change: a sentence on its effect, and warnings."""

    sentence: str
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Sentence with its warnings."""
        return "; warning: ".join([self.sentence, *self.warnings])


def trust_changes(path: Path, *, before: bytes | None, base: str) -> list[TrustChange]:
    """Return every change of a trusted file from the bytes of `base` to the current file.

    `VerificationError` for a missing list of signers or unreadable content.
    """
    if path.name == SIGNERS_NAME:
        found = list(_signer_changes(path, before=before, base=base))
    elif path.name == POLICY_NAME:
        found = list(_policy_changes(path, before=before))
    else:
        found = list(_root_changes(path, before=before, base=base))
    return found or [TrustChange(sentence=f"{path.name} changed in comments, order or spaces only")]


def _signer_changes(path: Path, *, before: bytes | None, base: str) -> Iterator[TrustChange]:
    if not is_present(path):
        refuse(
            f"{path} was removed since {base}: no forecast of the registry could be verified any more",
            fix=f"Restore it (git checkout {base} -- {path}); a key that ends is given valid-before, not taken out.",
        )
    try:
        signers = read_allowed_signers(path)
    except DocumentError as error:  # readable before, so the answer is no
        raise VerificationError(error.lines, why=error.why, fix=error.fix) from error
    try:
        old = parse_allowed_signers(before or b"", name=f"{path} of {base}")
    except MarinScalingError as error:
        old = ()
        yield TrustChange(sentence=f"{path.name} of {base} cannot be read, so every line counts as new", warnings=(error.what,))
    was = {(each.principal, each.key.wire): each for each in old}
    now = {(each.principal, each.key.wire): each for each in signers}
    changed = sorted(pair for pair in was.keys() | now.keys() if _options(was.get(pair)) != _options(now.get(pair)))
    if len(changed) > SIGNERS_CHANGED:
        refuse(
            f"{len(changed)} lines of {path} changed since {base}; a review covers at most {SIGNERS_CHANGED}",
            fix="Split the change over several pull requests.",
        )
    for pair in changed:
        if pair not in was:
            warnings = tuple(_warnings_of_new(now[pair], listed=[*signers, *old]))
            yield TrustChange(sentence=f"{_line(now[pair])}, new: {_allows(now[pair])}", warnings=warnings)
        elif pair not in now:
            each = was[pair]
            sentence = f"{path.name}, removed: {each.principal} with {each.key.fingerprint}, which {_allows(each)}"
            yield TrustChange(sentence=sentence, warnings=("what this key has signed is refused from then on",))
        else:
            sentence = f"{_line(now[pair])}, changed: {_allows(now[pair])}; before, it {_allows(was[pair])}"
            yield TrustChange(sentence=sentence, warnings=tuple(_widened(was[pair], now[pair])))


def _line(each: AllowedSigner) -> str:
    return f"{Path(each.where).name}, {each.principal} with {each.key.fingerprint}"


def _options(each: AllowedSigner | None) -> tuple[Any, ...] | None:
    """Return what a line allows; None if there is no line."""
    return (each.namespaces, each.valid_after, each.valid_before) if each else None


def _allows(each: AllowedSigner) -> str:
    purposes = "for any purpose" if each.namespaces is None else f"for {each.namespaces!r}"
    if not each.names_space(NAMESPACE):
        return f"may sign {purposes}, and so no forecast"
    start = f" from {moment_text(each.valid_after)}" if each.valid_after else ""
    end = f" until {moment_text(each.valid_before)}" if each.valid_before else " without an end"
    return f"may sign forecasts as {each.principal}{start}{end}, {purposes}"


def _warnings_of_new(each: AllowedSigner, *, listed: Sequence[AllowedSigner]) -> Iterator[str]:
    own = [other for other in listed if other.principal == each.principal]
    keys = sorted({other.key.fingerprint for other in own} - {each.key.fingerprint})
    names = sorted({other.principal for other in listed if other.key.wire == each.key.wire} - {each.principal})
    alike = sorted({other.principal for other in listed if look_alike(other.principal, each.principal)})
    if not each.names_space(NAMESPACE):
        yield f"this line may not sign here: it has other namespaces than {NAMESPACE}"
    if keys:
        yield f"{each.principal} has another key: {', '.join(keys)}"
    else:
        yield f"this is the first key of {each.principal}: anyone who signs with it speaks in that name"
    if names:
        yield f"one key for two names: {each.principal} and {', '.join(names)} count as one person"
    if alike:
        yield f"{each.principal} looks like {', '.join(alike)}"
    if _is_wide(each.namespaces):
        yield "its namespaces are not limited to forecasts"


def _widened(was: AllowedSigner, now: AllowedSigner) -> Iterator[str]:
    for what, old, new in (
        ("end", was.valid_before or _LAST, now.valid_before or _LAST),
        ("start", now.valid_after or _FIRST, was.valid_after or _FIRST),
    ):
        if new > old:
            moved = "later" if what == "end" else "earlier"
            gone = (now.valid_before if what == "end" else now.valid_after) is None
            ended = what == "end" and old < datetime.now(UTC)
            again = ": a key that was given up counts again" if ended else ""
            yield f"the {what} of this key was {'removed' if gone else f'moved {moved}'}{again}"
    if now.namespaces != was.namespaces and was.namespaces is not None and not _is_within(now.namespaces, was.namespaces):
        yield "its namespaces are wider"


def _is_wide(namespaces: str | None) -> bool:
    return namespaces is None or any(mark in namespaces for mark in "*?")


def _is_within(now: str | None, was: str) -> bool:
    return now is not None and set(now.split(",")) <= set(was.split(","))


def look_alike(one: str, other: str) -> bool:
    """Return True if two different names are easily taken for one another.

    >>> look_alike("ada@example.org", "ada@examp1e.org"), look_alike("ada@example.org", "bob@example.org")
    (True, False)
    """
    first, second = compared_name(one), compared_name(other)
    return one != other and (first == second or _skeleton(first) == _skeleton(second) or _one_edit(first, second))


def _skeleton(name: str) -> str:
    for seen, taken_for in _LOOKS_LIKE:
        name = name.replace(seen, taken_for)
    return name


def _one_edit(one: str, other: str) -> bool:
    """Return True if one sign was changed, added, removed, or exchanged with the next."""
    short, long = sorted((one, other), key=len)
    start = next((place for place, pair in enumerate(zip(short, long, strict=False)) if pair[0] != pair[1]), len(short))
    if len(short) == len(long):
        swapped = long[:start] + long[start : start + 2][::-1] + long[start + 2 :]
        return short[start + 1 :] == long[start + 1 :] or short == swapped
    return len(long) - len(short) == 1 and short[start:] == long[start + 1 :]


def _policy_changes(path: Path, *, before: bytes | None) -> Iterator[TrustChange]:
    was, now = _old_policy(before), read_policy(path) if is_present(path) else None
    if now is None and before is not None:
        yield TrustChange(
            sentence=f"{path.name}, removed: nothing is asked of a forecast beyond its signature", warnings=("looser",)
        )
    old, new = _rules(was), _rules(now)
    for rule in old:
        if old[rule] != new[rule]:
            said = f"{path.name}, {rule}: {_shown(old[rule])} -> {_shown(new[rule])}"
            looser = _is_looser(rule, old[rule], new[rule], removed=now is None)
            yield TrustChange(sentence=said if looser else f"{said} (stricter)", warnings=("looser",) * looser)
    if now is not None and now.since > datetime.now(UTC).date():
        yield TrustChange(
            sentence=f"{path.name} binds nothing before {now.since}", warnings=("forecasts of today need not follow it",)
        )


def _old_policy(raw: bytes | None) -> Policy | None:
    if raw is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / POLICY_NAME
        path.write_bytes(raw)
        try:
            return read_policy(path)
        except MarinScalingError:
            return None


def _rules(policy: Policy | None) -> Mapping[str, Any]:
    """Return what is asked, by rule; the default of every rule where there is no policy, which begins on no day."""
    found = (policy or Policy(since=date.max)).model_dump()
    return {**found, "due_days": found["due_days"] or LONGEST_TERM.days}


def _shown(value: Any) -> str:
    return "none" if value == date.max else str(value).lower() if isinstance(value, bool) else str(value)


def _is_looser(rule: str, was: Any, now: Any, *, removed: bool) -> bool:
    if removed:
        return True
    return bool(now < was) if rule in ("reviewers", "stamps") else bool(now > was)


def _root_changes(path: Path, *, before: bytes | None, base: str) -> Iterator[TrustChange]:
    was = _certificates(before, name=f"{path} of {base}", may_fail=True)
    now = _certificates(read_bytes(path) if is_present(path) else None, name=str(path))
    for fingerprint, subject in now.items():
        if fingerprint not in was:
            warning = "from then on this authority says when signatures were there"
            yield TrustChange(sentence=f"{path.name}, new: {subject}, SHA-256 {fingerprint}", warnings=(warning,))
    for fingerprint, subject in was.items():
        if fingerprint not in now:
            warning = "stamps of this authority are refused from then on"
            yield TrustChange(sentence=f"{path.name}, removed: {subject}, SHA-256 {fingerprint}", warnings=(warning,))


def _certificates(raw: bytes | None, *, name: str, may_fail: bool = False) -> dict[str, str]:
    """Return the subjects of certificates by fingerprint."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    try:
        found: Iterable[x509.Certificate] = x509.load_pem_x509_certificates(raw) if raw else ()
        return {each.fingerprint(hashes.SHA256()).hex(): printable(each.subject.rfc4514_string()) for each in found}
    except ValueError as error:
        if may_fail:
            return {}
        refuse(
            f"{name} holds no certificates that can be read ({error})",
            fix="Put PEM certificates of authorities there, or remove it.",
        )
