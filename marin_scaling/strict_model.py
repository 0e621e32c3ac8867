"""Strict pydantic models of files: their base, the types of their values, and every fault of a document in words."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from marin_scaling.errors import DocumentError
from marin_scaling.printable import FAULTS_NAMED, UNKNOWN_KEYS_NAMED, VALUE_CHARACTERS, quoted


class Part(BaseModel):
    """Part of a file: frozen, finite, unknown keys refused; the string below a key is its meaning."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def _whole(value: Any) -> Any:
    """Refuse `true` and `1.0` where `Literal[1]` would take them for 1."""
    if type(value) is not int:
        raise ValueError("must be a whole number")
    return value


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


@dataclass(frozen=True)
class OneOf:
    """Metadata of a text that is one of some constants."""

    values: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return the schema that pydantic builds for `Literal`."""
        return core_schema.literal_schema(list(self.values))


_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_SHA256 = "^[0-9a-f]{64}$"
_FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"
_DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
COMMIT_PATTERN = "^[0-9a-f]{40}$"
LINE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]*$"
WORDS_PATTERN = r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]*$"
LINK_PATTERN = r"^https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$"
IN_WORDS = {
    _LINE: "one line of text",
    _SHA256: "a SHA-256 digest, 64 hexadecimal digits",
    _FILE_NAME: "a name of at most 100 letters, digits and ._-",
    _MOMENT: "a time in UTC, like 2026-11-20T08:30:00Z",
    _DAY: "a day, like 2026-11-20",
    COMMIT_PATTERN: "a commit, 40 hexadecimal digits",
    LINE_PATTERN: "one line of text without hidden characters",
    WORDS_PATTERN: "text without hidden characters",
    LINK_PATTERN: "an address that begins with http:// or https://, of RFC 3986's signs",
    NAME_PATTERN: "a name of letters, digits and ._+-, its parts apart by /",
}
"""Patterns in words, for errors and reference pages."""
IN_ERRORS = dict(IN_WORDS)
"""Patterns in words for errors; the words of those that `in_words` adds are less exact than the reference pages are."""


def in_words(pattern: str, words: str) -> str:
    """Return a pattern after adding to `IN_ERRORS` what it allows."""
    IN_ERRORS[pattern] = words
    return pattern


SLUG_PATTERN = in_words("^[a-z0-9][a-z0-9-]{0,63}$", "a name of at most 64 lower-case letters, digits and -")
PERSON_PATTERN = in_words("^[A-Za-z0-9._+-]+@[A-Za-z0-9._-]+$", "an address, like ada@example.org")
Text = Annotated[str, StringConstraints(max_length=10_000, pattern=_LINE)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=10_000, pattern=_LINE)]
SHA256 = Annotated[str, StringConstraints(pattern=_SHA256)]
FileName = Annotated[str, StringConstraints(pattern=_FILE_NAME)]
Moment = Annotated[str, StringConstraints(pattern=_MOMENT), AfterValidator(_moment)]
Day = Annotated[str, StringConstraints(pattern=_DAY), AfterValidator(_moment)]
LARGEST_INTEGER = 2**64
Whole = Annotated[int, Field(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
Steps = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Count = Annotated[int, Field(gt=0, le=LARGEST_INTEGER)]
Positive = Annotated[float, Field(gt=0)]
Zero = Annotated[Literal[0], BeforeValidator(_whole)]
One = Annotated[Literal[1], BeforeValidator(_whole)]


def in_camel_case(name: str) -> str:
    """Return the key of a statement for the name of a field.

    >>> in_camel_case("inside_90"), in_camel_case("crps")
    ('inside90', 'crps')
    """
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class Open(Part):
    """A document that may have further keys."""

    model_config = ConfigDict(extra="ignore")


class Camel(Part):
    """A part of a statement, whose keys are in camel case."""

    model_config = ConfigDict(alias_generator=in_camel_case)


_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Control characters, line ends, direction marks, invisible joiners and letters, lone surrogates. A fixed list: Python's own
Unicode tables differ between versions."""


def check_document(document: Any, model: Any, *, name: str) -> None:
    """Raise `DocumentError` for a document that does not fit this model, or holds hidden characters.

    The error lists the key and value of every fault.

    >>> check_document({"a": 1}, dict[str, Count], name="x.json")
    >>> check_document({"a": True, "b": 0}, dict[str, Count], name="x.json")
    Traceback (most recent call last):
    ...
    marin_scaling.errors.DocumentError: x.json: a: input should be a valid integer (is True).
           x.json: b: input should be greater than 0 (is 0).
      why: Such a document could be read in two ways.
      fix: Restore the file from version control, or rerun the command that wrote it.
    """
    faults = [
        f"{quoted(at or 'document')} holds U+{ord(sign):04X}, a hidden character"
        for at, sign in islice(_hidden(document, "") if _may_hide(document) else (), FAULTS_NAMED)
    ]
    try:
        _adapter(model).validate_python(document, strict=True)
    except ValidationError as error:
        faults += [each.message for each in faults_of(error, document)]
    if faults:
        raise DocumentError(
            tuple(f"{name}: {fault}." for fault in faults),
            why="Such a document could be read in two ways.",
            fix="Restore the file from version control, or rerun the command that wrote it.",
        )


_adapter = functools.cache(TypeAdapter)
_MOST_FAULTS = 100_000
"""Faults of a document above which they are only counted; each takes some memory."""


class Fault(NamedTuple):
    """A wrong key: its place as pydantic gives it, and a message that begins with the key."""

    place: tuple[int | str, ...]
    message: str


def faults_of(
    error: ValidationError,
    document: Any = None,
    *,
    whole: str = "document",
    keys: Collection[str] = (),
    with_values: bool = True,
    most: int = FAULTS_NAMED,
) -> list[Fault]:
    """Return the first faults of a document, unknown keys before others, one per key, and one with the number of further ones.

    At most `most` keys are named. A value that fits no alternative is one fault, and so is an empty list with a wrong item.
    `whole` names the document itself, and `keys` are all known keys, to suggest one for an unknown key. Values are left out
    (not `with_values`) if the file may hold secrets.
    """
    if error.error_count() > _MOST_FAULTS:
        return [Fault((), f"{error.error_count()} keys are wrong")]
    by_key: dict[tuple[str, ...], list[Any]] = {}
    for fault in error.errors(include_url=False):
        by_key.setdefault(_key_of(fault["loc"], document), []).append(fault)
    above = {key[:count] for key in by_key for count in range(1, len(key))}
    wrong = [(key, alike) for key, alike in by_key.items() if key not in above or alike[0]["type"] != "too_short"]
    unknown = [each for each in wrong if _is_unknown(each[1][0])][:UNKNOWN_KEYS_NAMED]
    named = [*unknown, *(each for each in wrong if not _is_unknown(each[1][0]))][:most]
    rest = len(wrong) - len(named)
    return [
        *(
            Fault(alike[0]["loc"], f"{quoted('.'.join(key) or whole)}: {_reasons(alike, keys, with_values=with_values)}")
            for key, alike in named
        ),
        *([Fault((), f"{rest} more keys are wrong")] if rest > 0 else []),
    ]


def fault_text(error: ValidationError, document: Any = None, *, with_values: bool = True) -> str:
    """Return the faults of a document in one line."""
    return "; ".join(each.message for each in faults_of(error, document, with_values=with_values))


def _key_of(place: Sequence[int | str], document: Any) -> tuple[str, ...]:
    """Return the path to a key, as in rungs, 1, budget_flops, without pydantic's names of alternatives."""
    if document is None:
        return tuple(str(step) for step in place if isinstance(step, int) or step.isidentifier())
    key, value, last = list[str](), document, len(place) - 1
    for number, step in enumerate(place):
        if isinstance(value, list) and isinstance(step, int):
            key, value = [*key, str(step)], value[step] if step < len(value) else None
        elif isinstance(value, dict) and (step in value or number == last):
            key, value = [*key, str(step)], value.get(step)
    return tuple(key)


_REASONS = {
    "too_short": "must not be empty",
    "tuple_type": "must be a list, such as [a, b]",
    "list_type": "must be a list, such as [a, b]",
    "dict_type": "must be a mapping of keys",
    "model_type": "must be a mapping of keys",
    **dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), "must be a day, such as 2026-11-23"),
}
_REASON_CHARACTERS = 300


def _is_unknown(fault: Any) -> bool:
    return bool(fault["type"] == "extra_forbidden")


def _reasons(faults: Sequence[Any], keys: Collection[str], *, with_values: bool) -> str:
    reasons = " or ".join(dict.fromkeys(_reason(fault, keys) for fault in faults))
    value, is_there = faults[0]["input"], faults[0]["type"] not in ("missing", "extra_forbidden")
    is_one = isinstance(value, str | float | int | None)
    return f"{reasons} (is {quoted(repr(value))})" if with_values and is_there and is_one else reasons


def _reason(fault: Any, keys: Collection[str]) -> str:
    if _is_unknown(fault):
        key = str(fault["loc"][-1])
        near = difflib.get_close_matches(key[:VALUE_CHARACTERS], {*keys} - {key}, n=1)  # not a key of another section
        return "unknown key" + (f"; did you mean '{near[0]}'?" if near else "")
    if fault["type"] in _REASONS:
        return _REASONS[fault["type"]]
    if fault["type"] == "string_type":
        return "must be text; put it in quotes" if isinstance(fault["input"], int | float | date) else "must be text"
    if fault["type"] == "string_pattern_mismatch" and fault["ctx"]["pattern"] in IN_ERRORS:
        return f"must be {IN_ERRORS[fault['ctx']['pattern']]}"
    message = quoted(str(fault["msg"]).removeprefix("Value error, "), _REASON_CHARACTERS)
    return message[:1].lower() + message[1:]


def _may_hide(document: Any) -> bool:
    """Return False if no text of a document can hold a hidden character, which JSON in ASCII escapes but for U+007F."""
    try:
        written = json.dumps(document, default=str)
    except (TypeError, ValueError, RecursionError):  # no JSON
        return True
    return "\\" in written or "\x7f" in written


def _hidden(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield each place, keys included, at which a character is hidden, with that character."""
    if isinstance(value, str) and (found := _HIDDEN.search(value)):
        yield where, found[0]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hidden(item, f"{where}.{index}" if where else str(index))
    elif isinstance(value, dict):
        for key, item in value.items():
            at = f"{where}.{key}" if where else str(key)
            yield from _hidden(key, at)
            yield from _hidden(item, at)
