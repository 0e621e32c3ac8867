"""Canonical JSON (`indent=1`, sorted keys, ASCII, shortest floats, one final newline), and digests of it.

Equal documents have equal bytes, and a person reads exactly what is hashed or signed. NaN, infinities, duplicate keys and
bytes in any other form are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from marin_scaling.errors import DocumentError

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
_MOST_DIGITS = 308  # of an integer, sign included, so that it is below the largest float


def dump_canonical(document: Any) -> bytes:
    r"""Return the canonical bytes of a document.

    >>> dump_canonical({"b": 1.0, "a": [1]})
    b'{\n "a": [\n  1\n ],\n "b": 1.0\n}\n'
    """
    try:
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DocumentError(
            f"This document cannot be written as JSON: {error}.",
            why="NaN, infinities and objects have no unambiguous form that can be hashed or signed.",
            fix="Leave the value out, and explain its absence in another field.",
        ) from error
    return text.encode("ascii") + b"\n"


def load_strict(raw: bytes, *, name: str) -> Any:
    """Parse `raw`; refuse ambiguous content: duplicate keys, NaN, not UTF-8, too deep, too large.

    Errors name the file `name`.

    >>> load_strict(b'{"a": 1}', name="x.json")
    {'a': 1}
    """
    if len(raw) > MAX_DOCUMENT_BYTES:
        _refuse(name, f"it has {len(raw)} bytes, more than {MAX_DOCUMENT_BYTES}")
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=lambda pairs: _unique(pairs, name),
            parse_constant=lambda constant: _refuse(name, f"it holds {constant}"),
            parse_float=lambda number: _finite(number, name),
            parse_int=lambda digits: _countable(digits, name),
        )
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        _refuse(name, str(error))
    except RecursionError:
        _refuse(name, "it is nested too deeply")


def load_canonical(raw: bytes, *, name: str) -> Any:
    """Parse `raw`; refuse bytes that differ from the canonical form.

    >>> load_canonical(dump_canonical({"a": 1}), name="x.json")
    {'a': 1}
    """
    document = load_strict(raw, name=name)
    try:
        canonical = dump_canonical(document)
    except DocumentError as error:  # a number too large for a float is parsed as infinity
        _refuse(name, str(error.__cause__))
    if canonical != raw:
        _refuse(
            name,
            "its bytes are not the canonical form in which it was written, so it was edited (indent 1, sorted keys, ASCII, "
            "shortest numbers, one final newline)",
        )
    return document


def sha256_hex(raw: bytes) -> str:
    """Return the SHA-256 digest of bytes, in hexadecimal.

    >>> sha256_hex(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(raw).hexdigest()


def has_digest(raw: bytes, *, digest: str) -> bool:
    """Return True if bytes have this SHA-256 digest."""
    return sha256_hex(raw) == digest


def digest_of(document: Any) -> str:
    """Return the SHA-256 digest of a document's canonical bytes, which does not depend on the order of keys.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    return sha256_hex(dump_canonical(document))


def leaves(value: Any, *, below: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested document with their dotted keys.

    >>> dict(leaves({"a": {"b": 1}, "c": [1, 2]}))
    {'a.b': 1, 'c': [1, 2]}
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, below=f"{below}.{key}" if below else str(key))
    else:
        yield below, value


def _finite(number: str, name: str) -> float:
    value = float(number)
    if math.isinf(value):
        _refuse(name, f"it holds {number}, which is too large for a float")
    return value


def _countable(digits: str, name: str) -> int:
    """Return an integer that a float can hold."""
    if len(digits) > _MOST_DIGITS:
        _refuse(name, f"it holds an integer of {len(digits)} digits, more than {_MOST_DIGITS}")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        _refuse(name, f"duplicate key {repeated!r} in one object")
    return document


def _refuse(name: str, reason: str) -> NoReturn:
    raise DocumentError(
        f"{name} is not a valid document: {reason}.",
        why="A digest is meaningful only if all readers see the same content in the same bytes.",
        fix="Restore the file from version control, or rerun the command that wrote it.",
    )
