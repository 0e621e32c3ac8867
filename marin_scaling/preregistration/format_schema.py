"""Schemas of documents as values, checked by one function.

`marin-scale verify` must start within 0.3 s, so these schemas do not use pydantic. The owner of a document checks relations
between fields.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from marin_scaling.errors import DocumentError
from marin_scaling.printable import quoted


@dataclass(frozen=True, kw_only=True)
class Text:
    """String that matches `pattern` completely, with ASCII digits. The default is one line without control characters."""

    pattern: str = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,10000}"


@dataclass(frozen=True, kw_only=True)
class Number:
    """Finite number; `above` is an exclusive bound, `least` an inclusive one."""

    whole: bool = False
    above: float = -math.inf
    least: float = -math.inf


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of several values."""

    of: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class ListOf:
    """List of items of one shape."""

    item: Shape


@dataclass(frozen=True, kw_only=True)
class MapOf:
    """Object with any keys and values of one shape."""

    value: Shape


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """Object with at least these keys, each with its own shape; other keys are allowed."""

    keys: Mapping[str, Shape]


@dataclass(frozen=True, kw_only=True)
class ByKind:
    """Object of one of several shapes, selected by the value of `key`."""

    key: str
    shapes: Mapping[str, Shape]


@dataclass(frozen=True, kw_only=True)
class Nullable:
    """Null, or a value of one shape."""

    value: Shape


@dataclass(frozen=True, kw_only=True)
class MayLack:
    """Optional key with a value of one shape."""

    value: Shape


@dataclass(frozen=True, kw_only=True)
class Means:
    """Value of one shape with its meaning, for the documentation and the JSON Schema."""

    value: Shape
    what: str


@dataclass(frozen=True, kw_only=True)
class Anything:
    """Any JSON value."""


Shape = Text | Number | Choice | ListOf | MapOf | AtLeast | ByKind | Nullable | MayLack | Means | Anything | Mapping[str, Any]
"""Schema of a value; a mapping is an object with exactly these keys."""

SHA256 = Text(pattern="[0-9a-f]{64}")
FILE_NAME = Text(pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LARGEST_WHOLE = 2**64
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Invisible characters: controls, line ends, direction marks, joiners, blank letters, lone surrogates.

The list is fixed because Unicode tables differ between Python versions.
"""
MOMENT = Text(pattern=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


def check_shape(document: Any, shape: Shape, *, name: str) -> None:
    """Raise `DocumentError` with file, key and value for another shape or an invisible character.

    >>> check_shape({"a": 1}, {"a": Number(above=0)}, name="x.json")
    >>> check_shape({"a": "1"}, {"a": Number()}, name="x.json")
    Traceback (most recent call last):
    ...
    marin_scaling.errors.DocumentError: x.json: a: '1' is not a finite number.
      why: A field that is missing, unknown or of another kind would be read in two ways.
      fix: Restore the file from version control, or write it again with the command that made it.
    """
    _require_shown(document, name=name, at="")
    _check(document, shape, name=name, at="")


def _check(document: Any, shape: Shape, *, name: str, at: str) -> None:
    if isinstance(shape, Text):
        _check_text(document, shape, name=name, at=at)
    elif isinstance(shape, Number):
        _check_number(document, shape, name=name, at=at)
    elif isinstance(shape, Mapping):
        _check_object(document, shape, name=name, at=at)
    elif isinstance(shape, Choice) and not any(type(document) is type(value) and document == value for value in shape.of):
        _refuse(name, at, f"{_short(document)} is none of {', '.join(map(repr, shape.of))}")
    elif isinstance(shape, ListOf):
        _check_items(document, shape, name=name, at=at)
    elif isinstance(shape, MapOf):
        _check_values(document, shape, name=name, at=at)
    elif isinstance(shape, AtLeast):
        _check_at_least(document, shape, name=name, at=at)
    elif isinstance(shape, ByKind):
        _check_by_kind(document, shape, name=name, at=at)
    elif isinstance(shape, MayLack | Means) or (isinstance(shape, Nullable) and document is not None):
        _check(document, shape.value, name=name, at=at)


def _check_text(document: Any, shape: Text, *, name: str, at: str) -> None:
    if not (isinstance(document, str) and _compiled(shape.pattern).fullmatch(document)):
        _refuse(name, at, f"{_short(document)} is not text as it should stand here")


def _require_shown(document: Any, *, name: str, at: str) -> None:
    """Refuse invisible characters, also in keys and in values of any shape."""
    if isinstance(document, str) and (hidden := _HIDDEN.search(document)):
        _refuse(name, at, f"it holds U+{ord(hidden[0]):04X}, a sign that is not shown or turns what stands around it")
    elif isinstance(document, list):
        for index, item in enumerate(document):
            _require_shown(item, name=name, at=f"{at}[{index}]")
    elif isinstance(document, dict):
        for key, value in document.items():
            _require_shown(key, name=name, at=_join(at, key))
            _require_shown(value, name=name, at=_join(at, key))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _check_object(document: Any, shape: Mapping[str, Any], *, name: str, at: str) -> None:
    if not isinstance(document, dict):
        _refuse(name, at, f"{_short(document)} is not an object")
    if document.keys() != shape.keys():
        _check_keys(document, shape, name=name, at=at)
    for key, value in document.items():
        _check(value, shape[key], name=name, at=_join(at, key))


def _check_keys(document: Mapping[str, Any], shape: Mapping[str, Any], *, name: str, at: str) -> None:
    for key in sorted(shape.keys() - document.keys()):
        if not isinstance(shape[key], MayLack):
            _refuse(name, _join(at, key), "it is missing")
    for key in sorted(document.keys() - shape.keys()):
        _refuse(name, _join(at, key), "this key is not known")


def _check_at_least(document: Any, shape: AtLeast, *, name: str, at: str) -> None:
    known = {key: value for key, value in document.items() if key in shape.keys} if isinstance(document, dict) else document
    _check_object(known, shape.keys, name=name, at=at)


def _check_by_kind(document: Any, shape: ByKind, *, name: str, at: str) -> None:
    kind: Any = document.get(shape.key) if isinstance(document, dict) else None
    _check(kind, Choice(of=tuple(shape.shapes)), name=name, at=_join(at, shape.key))
    _check(document, shape.shapes[kind], name=name, at=at)


def _check_number(document: Any, shape: Number, *, name: str, at: str) -> None:
    kinds = int if shape.whole else (int, float)
    if isinstance(document, bool) or not isinstance(document, kinds) or not _is_finite(document):
        _refuse(name, at, f"{_short(document)} is not a {'whole' if shape.whole else 'finite'} number")
    if shape.whole and abs(document) > _LARGEST_WHOLE:
        _refuse(name, at, f"{_short(document)} is beyond 64 bits")
    if document <= shape.above:
        _refuse(name, at, f"{_short(document)} is not above {shape.above:g}")
    if document < shape.least:
        _refuse(name, at, f"{_short(document)} is below {shape.least:g}")


def _check_items(document: Any, shape: ListOf, *, name: str, at: str) -> None:
    if not isinstance(document, list):
        _refuse(name, at, f"{_short(document)} is not a list")
    for index, item in enumerate(document):
        _check(item, shape.item, name=name, at=f"{at}[{index}]")


def _check_values(document: Any, shape: MapOf, *, name: str, at: str) -> None:
    if not isinstance(document, dict):
        _refuse(name, at, f"{_short(document)} is not an object")
    for key, value in document.items():
        _check(value, shape.value, name=name, at=_join(at, key))


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(name: str, at: str, reason: str) -> NoReturn:
    raise DocumentError(
        f"{name}: {quoted(at) or 'document'}: {reason}.",
        why="A field that is missing, unknown or of another kind would be read in two ways.",
        fix="Restore the file from version control, or write it again with the command that made it.",
    )
