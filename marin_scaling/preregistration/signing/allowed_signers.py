"""The list of allowed signers: who may sign with which key, and which names are one person."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar

from marin_scaling.errors import DocumentError, VerificationError
from marin_scaling.files import read_bytes
from marin_scaling.limits import SIGNERS_BYTES
from marin_scaling.preregistration.layout import PRINCIPAL
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, MalformedKeyError, PublicKey, public_key_from_text
from marin_scaling.untrusted_files import is_present

Item = TypeVar("Item")
_TOKEN = re.compile(r'(?:[^ \t"]|"[^"]*")+')
_OPTION = re.compile(r'([a-z-]+)(?:="([^"]*)")?(?:,|$)')  # a value without quotes is none for OpenSSH
MAX_LINE_CHARACTERS = 16 * 1024
"""More than the largest key with all its options needs."""
MERGE_MARKS = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
"""How lines begin that git writes where two branches changed one place."""
_KEY_KINDS = ("ssh-", "ecdsa-", "sk-")
_TIME_FORMATS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


@dataclass(frozen=True, kw_only=True)
class AllowedSigner:
    """One line of the file: who may sign with which key, for what, and when."""

    principal: str
    namespaces: str | None
    valid_after: datetime | None
    valid_before: datetime | None
    key: PublicKey
    where: str
    """File and line, to speak of in errors and evidence."""

    def names(self, principal: str) -> bool:
        """Return True if this line is of a principal, to the letter."""
        return self.principal == principal

    def names_space(self, namespace: str) -> bool:
        """Whether the line lets its key sign for a purpose: one that it names, or any where it names none."""
        return self.namespaces is None or _matches(self.namespaces, namespace)

    def refusal(self, *, namespace: str, at: datetime) -> str | None:
        """Why this line does not allow its key for `namespace` at the time `at`, or None when it does."""
        if not self.names_space(namespace):
            return f"{self.where} allows the key only for the namespaces {self.namespaces!r}"
        if self.valid_after and at < self.valid_after:
            return f"{self.where} allows the key only after {self.valid_after:%Y-%m-%dT%H:%M:%SZ}"
        if self.valid_before and at >= self.valid_before:
            return f"{self.where} allows the key only before {self.valid_before:%Y-%m-%dT%H:%M:%SZ}"
        return None


def read_allowed_signers(path: Path) -> list[AllowedSigner]:
    """The lines of the file, in order; `DocumentError` names the file and line that cannot be read."""
    return parse_allowed_signers(read_bytes(path), name=str(path))


def parse_allowed_signers(raw: bytes, *, name: str) -> list[AllowedSigner]:
    """The lines in the bytes of an `allowed_signers` file; empty lines and lines starting with `#` are skipped."""
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
                why="Nobody can say which of the two lists counts.",
                fix="Keep the lines of both sides that maintainers have merged, and take the marks out.",
            )
        if len(line) > MAX_LINE_CHARACTERS:
            _refuse(f"{name}, line {number}", f"it has {len(line)} characters, more than {MAX_LINE_CHARACTERS}")
        if not line.replace("\t", " ").isprintable():
            _refuse(f"{name}, line {number}", "it holds a sign that is not shown")
    parsed = [_parsed(line, where=f"{name}, line {number}") for number, line in numbered if line and not line.startswith("#")]
    found = [each for each in parsed if each is not None]
    _require_one_spelling(found)
    return found


def _parsed(line: str, *, where: str) -> AllowedSigner | None:
    """The signer of a line; None of a line that cannot be read here, and whose namespaces are those of other programs."""
    try:
        return _parse_line(line, where=where)
    except DocumentError:
        if _is_for_others(line):
            return None
        raise


def _is_for_others(line: str) -> bool:
    """True if a line names the namespaces that it allows, once, and ours is none of them, so that it lets nobody sign here."""
    options = [each for each in _words(line)[1:2] if not each.startswith(_KEY_KINDS)]
    named = re.findall(r'(?:^|,)namespaces="([^"]*)"(?=,|$)', options[0], flags=re.IGNORECASE) if options else []
    return len(named) == 1 and not _matches(named[0], NAMESPACE)


def compared_name(principal: str) -> str:
    """Return a name as names are compared: `Ada@example.org` is nobody else than `ada@example.org`.

    >>> compared_name("Ada@Example.org")
    'ada@example.org'
    """
    return unicodedata.normalize("NFKC", principal).casefold()


def require_allowed(
    signers: list[AllowedSigner], *, principal: str, key: PublicKey, namespace: str, at: datetime, source: str
) -> AllowedSigner:
    """The line that allows `principal` to sign with `key` for `namespace` at `at`; `VerificationError` when there is none."""
    candidates = [signer for signer in signers if signer.key.wire == key.wire and signer.names(principal)]
    refusals = [signer.refusal(namespace=namespace, at=at) for signer in candidates]
    for signer, refusal in zip(candidates, refusals, strict=True):
        if refusal is None:
            return signer
    missing = f"{source} has no such line" if signers else f"{source} is not there, or has no lines"
    raise VerificationError(
        f"The key {key.fingerprint} may not sign for {principal}: {refusals[0] if refusals else missing}.",
        why="Anyone can make a key; only a name that the registry knows makes a signature mean something.",
        fix="Restore that file from version control; or, if you know from elsewhere that the key is theirs, add the line: "
        + signer_line(principal, key=key, namespace=namespace),
    )


def require_listed(path: Path, *, principal: str, key: PublicKey, namespace: str, at: datetime) -> AllowedSigner:
    """The same of the `allowed_signers` at `path`; a file that is not there allows nobody."""
    signers = read_allowed_signers(path) if is_present(path) else []
    return require_allowed(signers, principal=principal, key=key, namespace=namespace, at=at, source=str(path))


def require_may_sign(path: Path, *, principal: str, key: PublicKey, namespace: str, at: datetime) -> None:
    """As `require_listed`, for who is about to sign: with the key that is listed for that name, where there is one."""
    try:
        require_listed(path, principal=principal, key=key, namespace=namespace, at=at)
    except VerificationError as error:
        listed = (
            [each.key.fingerprint for each in read_allowed_signers(path) if each.names(principal)] if is_present(path) else []
        )
        line = signer_line(principal, key=key, namespace=namespace)
        known = f"{principal} is listed with {', '.join(listed)}: sign with that key (--key KEY)."
        other = known if listed else f"Nothing was written. Let a maintainer add your line first: {line}"
        raise VerificationError(error.lines, why=error.why, fix=other) from error


def signer_line(principal: str, *, key: PublicKey, namespace: str) -> str:
    """The line that lets a principal sign with a key in one namespace, without a final newline."""
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
    """Up to a quote that nothing closes, as OpenSSH reads them; in a comment there may be one."""
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
    """OpenSSH's pattern lists: `*`, `?`, commas, and `!` for what must not match."""
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
        why="A list of signers that is read in two ways would trust two sets of people.",
        fix='Write lines like: name@example.org namespaces="preregistration@marin-scaling" ssh-ed25519 AAAA…',
    )


@dataclass(frozen=True, kw_only=True)
class People:
    """The people of a list of signers: `person_of` maps each name, as it is compared, to a name that stands for the person."""

    person_of: Mapping[str, str]

    def of(self, name: str) -> str:
        """Return the name that stands for a person; a name that is not listed stands for itself."""
        compared = compared_name(name)
        return self.person_of.get(compared, compared)

    def are_one(self, one: str, other: str) -> bool:
        """Return True if two names are of one person."""
        return self.of(one) == self.of(other)

    def count(self, names: Iterable[str], *, besides: str) -> int:
        """Return how many people these names are, without one of them."""
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
