"""List of allowed signers: names, their keys, and names that are one person."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NoReturn, TypeVar

from marin_scaling.errors import DocumentError, VerificationError
from marin_scaling.files import read_bytes, read_plain
from marin_scaling.preregistration.layout import (
    PRINCIPAL,
)
from marin_scaling.preregistration.signing.sshsig import (
    NAMESPACE,
    MalformedKeyError,
    PublicKey,
    parse_signature,
    public_key_from_text,
    verify_signature,
)
from marin_scaling.printable import SIGNERS_BYTES, joined
from marin_scaling.untrusted_files import is_present

Item = TypeVar("Item")
_TOKEN = re.compile(r'(?:[^ \t"]|"[^"]*")+')
_OPTION = re.compile(r'([a-z-]+)(?:="([^"]*)")?(?:,|$)')  # a value without quotes is none for OpenSSH
MAX_LINE_CHARACTERS = 16 * 1024
"""Length limit of a line, above the largest key with all options."""
MERGE_MARKS = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
"""Marks of unresolved git merges at the start of a line."""
_KEY_KINDS = ("ssh-", "ecdsa-", "sk-")
_TIME_FORMATS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


@dataclass(frozen=True, kw_only=True)
class AllowedSigner:
    """Line of the file: name, key, purposes and term."""

    principal: str
    namespaces: str | None
    valid_after: datetime | None
    valid_before: datetime | None
    key: PublicKey
    where: str
    """File and line, for errors and evidence."""

    def names(self, principal: str) -> bool:
        """Return True if this line has exactly this principal."""
        return self.principal == principal

    def names_space(self, namespace: str) -> bool:
        """Return True if the line allows this namespace, by name or by having no restriction."""
        return self.namespaces is None or _matches(self.namespaces, namespace)

    def refusal(self, *, namespace: str, at: datetime) -> str | None:
        """Return why this line does not allow its key for `namespace` at the time `at`; None if it does."""
        if not self.names_space(namespace):
            return f"{self.where} allows the key only for the namespaces {self.namespaces!r}"
        if self.valid_after and at < self.valid_after:
            return f"{self.where} allows the key only after {self.valid_after:%Y-%m-%dT%H:%M:%SZ}"
        if self.valid_before and at >= self.valid_before:
            return f"{self.where} allows the key only before {self.valid_before:%Y-%m-%dT%H:%M:%SZ}"
        return None


def read_allowed_signers(path: Path) -> tuple[AllowedSigner, ...]:
    """Return the lines of the file, in order; `DocumentError` names file and line of a fault."""
    return parse_allowed_signers(read_bytes(path), name=str(path))


@lru_cache(maxsize=4)
def parse_allowed_signers(raw: bytes, *, name: str) -> tuple[AllowedSigner, ...]:
    """Return the lines in these bytes; empty lines and lines starting with `#` are skipped.

    Results are cached, because every folder of a registry reads its signers.
    """
    if len(raw) > SIGNERS_BYTES:
        _refuse(name, f"it has {len(raw)} bytes, more than {SIGNERS_BYTES}")
    try:
        lines = raw.decode("utf-8").split("\n")  # as OpenSSH does: no other sign ends a line, or a comment could hide one
    except UnicodeDecodeError as error:
        _refuse(name, f"it is not UTF-8 text ({error})")
    numbered = [(number, line.removesuffix("\r").strip(" \t")) for number, line in enumerate(lines, start=1)]
    for number, line in numbered:
        if line[:7] in MERGE_MARKS:
            raise DocumentError(
                f"{name}, line {number}, is a mark of a merge that is not resolved.",
                why="The merge leaves open which lines count.",
                fix="Keep the lines of both sides that maintainers have merged, and remove the marks.",
            )
        if len(line) > MAX_LINE_CHARACTERS:
            _refuse(f"{name}, line {number}", f"it has {len(line)} characters, more than {MAX_LINE_CHARACTERS}")
        if not line.replace("\t", " ").isprintable():
            _refuse(f"{name}, line {number}", "it holds a sign that is not shown")
    parsed = [_parsed(line, where=f"{name}, line {number}") for number, line in numbered if line and not line.startswith("#")]
    found = tuple(each for each in parsed if each is not None)
    _require_one_spelling(found)
    return found


def _parsed(line: str, *, where: str) -> AllowedSigner | None:
    """Return the signer of a line; None for an unreadable line with the namespaces of other programs."""
    try:
        return _parse_line(line, where=where)
    except DocumentError:
        if _is_for_others(line):
            return None
        raise


def _is_for_others(line: str) -> bool:
    """Return True if a line names its namespaces, once, and ours is none of them: it lets nobody sign here."""
    options = [each for each in _words(line)[1:2] if not each.startswith(_KEY_KINDS)]
    named = re.findall(r'(?:^|,)namespaces="([^"]*)"(?=,|$)', options[0], flags=re.IGNORECASE) if options else []
    return len(named) == 1 and not _matches(named[0], NAMESPACE)


def compared_name(principal: str) -> str:
    """Return a name in the form in which names are compared, without case.

    >>> compared_name("Ada@Example.org")
    'ada@example.org'
    """
    return unicodedata.normalize("NFKC", principal).casefold()


def require_allowed(
    signers: Sequence[AllowedSigner], *, principal: str, key: PublicKey, namespace: str, at: datetime, source: str
) -> AllowedSigner:
    """Return the line that allows `principal` to sign with `key` for `namespace` at `at`; `VerificationError` without one."""
    candidates = [signer for signer in signers if signer.key.wire == key.wire and signer.names(principal)]
    refusals = [signer.refusal(namespace=namespace, at=at) for signer in candidates]
    for signer, refusal in zip(candidates, refusals, strict=True):
        if refusal is None:
            return signer
    missing = f"{source} has no such line" if signers else f"{source} is not there, or has no lines"
    if known := [signer.key.fingerprint for signer in signers if signer.names(principal)]:
        missing += f", but other keys of theirs: {joined(known)}"
    raise VerificationError(
        f"The key {key.fingerprint} may not sign for {principal}: {refusals[0] if refusals else missing}.",
        why="Anyone can make a key; only listed keys count.",
        fix="If you know that the key is theirs, add this line in a pull request of its own (else restore the file): "
        + signer_line(principal, key=key, namespace=namespace),
    )


def require_listed(path: Path, *, principal: str, key: PublicKey, namespace: str, at: datetime) -> AllowedSigner:
    """Return the allowing line of the `allowed_signers` at `path`; a missing file allows no one."""
    signers = read_allowed_signers(path) if is_present(path) else []
    return require_allowed(signers, principal=principal, key=key, namespace=namespace, at=at, source=str(path))


def require_may_sign(path: Path, *, principal: str, key: PublicKey, namespace: str, at: datetime) -> None:
    """Check like `require_listed` before signing; the error names the listed key of the name, or the owner of the key."""
    try:
        require_listed(path, principal=principal, key=key, namespace=namespace, at=at)
    except VerificationError as error:
        signers = read_allowed_signers(path) if is_present(path) else []
        listed = [each.key.fingerprint for each in signers if each.names(principal)]
        owners = [each.principal for each in signers if each.key.wire == key.wire]
        line = signer_line(principal, key=key, namespace=namespace)
        fix = f"Nothing was written. Ask a maintainer to add your line first: {line}"
        if listed:
            fix = f"Sign with a key that is listed for {principal}, {', '.join(listed)}: --key KEY"
        elif owners:
            fix = f"This key is that of {owners[0]}. {principal} needs another key, and a line for it in {path}: --key KEY"
        raise VerificationError(error.lines, why=error.why, fix=fix) from error


def signer_line(principal: str, *, key: PublicKey, namespace: str) -> str:
    """Return the line that allows a principal to sign with a key in one namespace, without a newline."""
    return f'{principal} namespaces="{namespace}" {key.text}'


def _parse_line(line: str, *, where: str) -> AllowedSigner:
    principal, *rest = _words(line) or [""]
    options_text = "" if not rest or rest[0].startswith(_KEY_KINDS) else rest.pop(0)
    if len(rest) < 2:
        _refuse(where, "it is not of the form: name@place [options] key-type base64")
    options = _options(options_text, where=where)
    try:
        key = public_key_from_text(" ".join(rest[:2]))
    except MalformedKeyError as error:
        _refuse(where, str(error))
    if not re.fullmatch(PRINCIPAL, principal):
        _refuse(where, f"{principal[:200]!r} is not one name of the form name@place: no pattern, no list, no quotes")
    return AllowedSigner(
        principal=principal,
        namespaces=options.get("namespaces"),
        valid_after=_time(options.get("valid-after"), where=where),
        valid_before=_time(options.get("valid-before"), where=where),
        key=key,
        where=where,
    )


def _require_one_spelling(signers: Sequence[AllowedSigner]) -> None:
    spelled: dict[str, AllowedSigner] = {}
    listed: dict[tuple[str, bytes], AllowedSigner] = {}
    for each in signers:
        first = spelled.setdefault(compared_name(each.principal), each)
        if first.principal != each.principal:
            _refuse(each.where, f"{each.principal} and {first.principal} ({first.where}) differ only in case")
        if (one := listed.setdefault((each.principal, each.key.wire), each)) is not each:
            _refuse(each.where, f"it has the key {each.key.fingerprint} of {each.principal} again, which {one.where} has")


def _words(line: str) -> list[str]:
    """Return the words up to an unclosed quote, as OpenSSH reads them."""
    words, end = [], 0
    for found in _TOKEN.finditer(line):
        if line[end : found.start()].strip(" \t"):
            break
        words.append(found[0])
        end = found.end()
    return words


def _options(text: str, *, where: str) -> dict[str, str]:
    options: dict[str, str] = {}
    if "".join(match[0] for match in _OPTION.finditer(text)) != text:
        _refuse(where, f"the options {text!r} cannot be read")
    for name, value in _OPTION.findall(text):
        if name not in {"namespaces", "valid-after", "valid-before"}:
            _refuse(where, f"the option {name!r} is not supported here")
        if name in options:
            _refuse(where, f"the option {name!r} stands twice")
        options[name] = value
    return options


def _time(text: str | None, *, where: str) -> datetime | None:
    if text is None:
        return None
    digits = text.removesuffix("Z")
    if not text.endswith("Z") or not (digits.isascii() and digits.isdecimal()) or len(digits) not in _TIME_FORMATS:
        _refuse(where, f"the time {text!r} is not of the form 20261231Z or 20261231235959Z (UTC)")
    try:
        return datetime.strptime(digits, _TIME_FORMATS[len(digits)]).replace(tzinfo=UTC)
    except ValueError as error:
        _refuse(where, f"the time {text!r} is no moment ({error})")


def _matches(patterns: str, text: str) -> bool:
    """Match OpenSSH's pattern lists: `*`, `?`, commas, and `!` for exclusions."""
    matched = False
    for pattern in patterns.split(","):
        if fnmatch.fnmatchcase(text, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _refuse(where: str, reason: str) -> NoReturn:
    raise DocumentError(
        f"{where}: {reason}.",
        why="A list of signers must be unambiguous.",
        fix='Write lines like: name@example.org namespaces="preregistration@marin-scaling" ssh-ed25519 AAAA…',
    )


@dataclass(frozen=True, kw_only=True)
class People:
    """People of a list of signers: `person_of` maps each compared name to one name per person."""

    person_of: Mapping[str, str]

    def of(self, name: str) -> str:
        """Return the name that represents a person; an unlisted name represents itself."""
        compared = compared_name(name)
        return self.person_of.get(compared, compared)

    def are_one(self, one: str, other: str) -> bool:
        """Return True if two names are of one person."""
        return self.of(one) == self.of(other)

    def count(self, names: Iterable[str], *, besides: str) -> int:
        """Return the number of people with these names, without `besides`."""
        return len({self.of(name) for name in names} - {self.of(besides)})


def listed_people(allowed_signers: Path) -> People:
    """Return the people of the `allowed_signers` at a path; without that file every name is a person."""
    return people_of(read_allowed_signers(allowed_signers) if is_present(allowed_signers) else ())


def people_of(signers: Iterable[AllowedSigner]) -> People:
    """Return the people of these lines."""
    return joined_people((each.principal, each.key.fingerprint) for each in signers)


def joined_people(pairs: Iterable[tuple[str, str]]) -> People:
    """Return the people of pairs of a name and a key.

    >>> people = joined_people([("ada@a", "key 1"), ("bob@b", "key 2"), ("carol@c", "key 1")])
    >>> people.are_one("ada@a", "Carol@c"), people.are_one("ada@a", "bob@b")
    (True, False)
    """
    leads_to: dict[str, str] = {}
    owner_of: dict[str, str] = {}
    for principal, key in pairs:
        name = compared_name(principal)
        owner = owner_of.setdefault(key, leads_to.setdefault(name, name))
        leads_to[representative(name, leads_to)] = representative(owner, leads_to)
    return People(person_of={name: representative(name, leads_to) for name in leads_to})


def representative(item: Item, leads_to: MutableMapping[Item, Item]) -> Item:
    """Return the end of a chain of items, and shorten the chain: many joined items take nearly linear time."""
    while leads_to[item] != item:
        leads_to[item] = leads_to[leads_to[item]]
        item = leads_to[item]
    return item


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


def fingerprint_at(path: Path) -> str:
    """Return the fingerprint of the key in a verified signature file."""
    return parse_signature(read_plain(path), name=str(path)).public_key.fingerprint
