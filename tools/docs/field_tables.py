"""Tables of the documentation that are made from the code's own schemas, so that they cannot fall behind it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from marin_scaling.markdown import table
from marin_scaling.run.columns import COLUMNS, aliases_of
from marin_scaling.strict_model import IN_WORDS, LARGEST_INTEGER, OneOf

_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    NoneType: "null",
    bool: "true or false",
    Any: "any value",
    datetime: "time in UTC",
}
_SIGNS = {
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
    "min_length": "length at least",
    "max_length": "length at most",
    "multiple_of": "multiple of",
    "pattern": "like",
}


def field_table(model: type[BaseModel]) -> str:
    """Key, type, default and meaning of every field of a file's model; the meaning is the docstring below the field."""
    rows = [
        [f"`{name}`", _type_name(info.annotation, info.metadata), _default(info), " ".join((info.description or "").split())]
        for name, info in model.model_fields.items()
    ]
    return table(["key", "type", "default", "meaning"], rows)


def summary(model: type[BaseModel]) -> str:
    """What the model says of itself, in a sentence."""
    return inspect.cleandoc(model.__doc__ or "").split("\n\n")[0]


def document_table(*models: type[BaseModel]) -> str:
    """Every key of a document by its path, with its type and meaning; `[]` is each item of a list.

    Several models are alternatives; keys that some of them lack may be missing.
    """
    rows: dict[str, list[str]] = {}
    for model in models:
        rows = {path: row for path, *row in _rows(model, "")} | rows
    ordered = sorted(rows, key=list({path: 0 for model in models for path, *_ in _rows(model, "")}).index)
    if not any(meaning for _, meaning in rows.values()):
        return table(["key", "type"], [[f"`{path}`", rows[path][0]] for path in ordered])
    return table(["key", "type", "meaning"], [[f"`{path}`", *rows[path]] for path in ordered])


def names_table() -> str:
    """Columns of a run table: their meaning, and the names that are recognized for them."""
    rows = [
        [f"`{each.name}`", each.meaning, "yes" if each.required else "", ", ".join(f"`{name}`" for name in aliases_of(each))]
        for each in COLUMNS.values()
    ]
    return table(["column", "meaning", "required", "also recognized as"], rows)


def _rows(model: type[BaseModel], below: str) -> Iterator[tuple[str, str, str]]:
    for name, info in model.model_fields.items():
        path = f"{below}{info.alias or name}"
        inner, listed, nullable = _model_in(info.annotation)
        meaning = " ".join((info.description or "").split())
        if inner is None or meaning or nullable:
            kind = (
                ("list" if listed else "object") + ", or null" * nullable
                if inner
                else _type_name(info.annotation, info.metadata)
            )
            yield path, kind + ("" if info.is_required() else "; may be missing"), meaning
        if inner is not None:
            yield from _rows(inner, f"{path}[]." if listed else f"{path}.")


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool, bool]:
    """Return the model that an annotation holds, and whether in a list and whether null may stand for it."""
    arguments = get_args(annotation)
    if get_origin(annotation) is UnionType and NoneType in arguments:
        return (*_model_in(arguments[0])[:2], True)
    if get_origin(annotation) is list:
        return _model_in(arguments[0])[0], True, False
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return (annotation if is_model else None), False, False


def _type_name(annotation: Any, limits: Iterable[object] = ()) -> str:
    """A field's type in the words of a file's reader.

    >>> _type_name(tuple[Literal["a", 1], ...] | None), _type_name(dict[str, float])
    ('list of `"a"` or `1`, or null', 'object of number')
    """
    inner = get_args(annotation)
    if named := list(filter(None, map(_text_name, limits))):
        return ", ".join([named[0], *filter(None, map(_limit, limits))])
    match get_origin(annotation) or annotation:
        case kind if kind is Annotated:
            return _type_name(inner[0], inner[1:])
        case kind if kind is Literal:
            name = " or ".join(f"`{json.dumps(value)}`" for value in inner)
        case kind if kind is Union or kind is UnionType:
            name = ", or ".join(_type_name(each) for each in inner)
        case kind if kind in (tuple, list):
            name = f"list of {_type_name(inner[0])}"
        case kind if kind is dict:
            name = f"object of {_type_name(inner[1])}"
        case kind if isinstance(kind, type):
            name = "object (below)" if issubclass(kind, BaseModel) else _WORDS.get(kind, kind.__name__)
        case _:
            name = "any value"
    said = [_limit(each) for limit in limits for each in (limit.metadata if isinstance(limit, FieldInfo) else [limit])]
    return ", ".join([name, *filter(None, said)])


def _text_name(metadata: object) -> str:
    """Return the name of a kind of text: its constants, or the words of its pattern."""
    if isinstance(metadata, OneOf):
        return " or ".join(f"`{json.dumps(value)}`" for value in metadata.values)
    return IN_WORDS.get(getattr(metadata, "pattern", ""), "").removeprefix("a ").removeprefix("an ")


def _limit(metadata: object) -> str:
    """A constraint as a reader knows it.

    >>> import annotated_types
    >>> _limit(annotated_types.Gt(0)), _limit(annotated_types.MinLen(1))
    ('> 0', 'length at least 1')
    """
    found = {key: getattr(metadata, key, None) for key in _SIGNS}
    unbounded = {"ge": -LARGEST_INTEGER, "le": LARGEST_INTEGER, "max_length": 10_000}
    found = {key: limit for key, limit in found.items() if limit is not None and limit != unbounded.get(key)}
    found = {key: limit for key, limit in found.items() if key != "pattern" or limit not in IN_WORDS}
    said = {key: f"`{limit}`" if key == "pattern" else limit for key, limit in found.items()}
    return " and ".join(f"{_SIGNS[key]} {limit}".replace("e+", "e") for key, limit in said.items())


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default_factory is not None:
        return f"`{json.dumps(info.get_default(call_default_factory=True))}`"
    return "" if isinstance(info.default, BaseModel) else f"`{json.dumps(info.default)}`"
