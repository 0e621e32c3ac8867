"""Strict pydantic models of files: their base, the types of their values, and every fault of a document in words."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

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
from marin_scaling.limits import FAULTS_NAMED
from marin_scaling.printable import quoted


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
IN_WORDS = {
    _LINE: "one line of text",
    _SHA256: "SHA-256 digest, 64 hexadecimal digits",
    _FILE_NAME: "name of at most 100 letters, digits and ._-",
    _MOMENT: "time in UTC, like 2026-11-20T08:30:00Z",
}
"""Patterns in words, for errors and reference pages."""
Text = Annotated[str, StringConstraints(max_length=10_000, pattern=_LINE)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=10_000, pattern=_LINE)]
SHA256 = Annotated[str, StringConstraints(pattern=_SHA256)]
FileName = Annotated[str, StringConstraints(pattern=_FILE_NAME)]
Moment = Annotated[str, StringConstraints(pattern=_MOMENT), AfterValidator(_moment)]
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


_MOST_FAULTS = 1000
"""Faults of a document above which they are only counted."""


def check_document(document: Any, model: Any, *, name: str) -> None:
    """Raise `DocumentError` for a document that does not fit this model, or holds hidden characters.

    The error lists the key and value of every fault.

    >>> check_document({"a": 1}, dict[str, Count], name="x.json")
    >>> check_document({"a": True, "b": 0}, dict[str, Count], name="x.json")
    Traceback (most recent call last):
    ...
    marin_scaling.errors.DocumentError: x.json: a is True: input should be a valid integer.
           x.json: b is 0: input should be greater than 0.
      why: Such a document could be read in two ways.
      fix: Restore the file from version control, or rerun the command that wrote it.
    """
    faults = [
        f"{quoted(at or 'document')} holds U+{ord(sign):04X}, a hidden character"
        for at, sign in islice(_hidden(document, ""), FAULTS_NAMED)
    ]
    try:
        _adapter(model).validate_python(document, strict=True)
    except ValidationError as error:
        faults += faults_of(error, document)
    if faults:
        raise DocumentError(
            tuple(f"{name}: {fault}." for fault in faults),
            why="Such a document could be read in two ways.",
            fix="Restore the file from version control, or rerun the command that wrote it.",
        )


_adapter = functools.cache(TypeAdapter)


def faults_of(error: ValidationError, document: Any) -> list[str]:
    """Return the first faults of a document with their keys and values, and the number of further faults."""
    if error.error_count() > _MOST_FAULTS:
        return [f"it has {error.error_count()} faults"]
    faults = error.errors(include_url=False)
    rest = len(faults) - FAULTS_NAMED
    return [*(_fault(each, document) for each in faults[:FAULTS_NAMED]), *([f"{rest} more faults"] if rest > 0 else [])]


def _fault(fault: Any, document: Any) -> str:
    """Return the key, the value and the fault, without pydantic's names of alternatives."""
    where, value, last = "", document, len(fault["loc"]) - 1
    for number, step in enumerate(fault["loc"]):
        if isinstance(value, list) and isinstance(step, int):
            where, value = f"{where}[{step}]", value[step]
        elif isinstance(value, dict) and (step in value or number == last):
            where, value = f"{where}.{step}" if where else str(step), value.get(step)
    if fault["type"] == "missing":
        return f"{quoted(where)} is missing"
    if fault["type"] == "extra_forbidden":
        return f"{quoted(where)} is an unknown key"
    if fault["type"] == "string_pattern_mismatch" and fault["ctx"]["pattern"] in IN_WORDS:
        return f"{quoted(where)} is {quoted(repr(fault['input']))}, not a {IN_WORDS[fault['ctx']['pattern']]}"
    reason = str(fault["msg"]).removeprefix("Value error, ")
    return f"{quoted(where or 'document')} is {quoted(repr(fault['input']))}: {reason[:1].lower()}{reason[1:]}"


def _hidden(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield each place, keys included, at which a character is hidden, with that character."""
    if isinstance(value, str) and (found := _HIDDEN.search(value)):
        yield where, found[0]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hidden(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            at = f"{where}.{key}" if where else str(key)
            yield from _hidden(key, at)
            yield from _hidden(item, at)
