"""Tables of the documentation that are made from the code's own schemas, so that they cannot fall behind it."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from marin_scaling.markdown import table
from marin_scaling.preregistration.format_schema import (
    AtLeast,
    ByKind,
    Choice,
    ListOf,
    MapOf,
    MayLack,
    Means,
    Nullable,
    Number,
    Shape,
    Text,
)
from marin_scaling.run.columns import COLUMNS, aliases_of

_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    NoneType: "null",
    bool: "true or false",
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


def shape_table(shape: Shape) -> str:
    """Every key of a document whose shape is said by `document_shape`, with what may stand there; `[]` is each of a list.

    A column for what it means, where the shape says that of any.
    """
    leaves = list(_leaves(shape, ""))
    rows = [[f"`{path}`", _allowed(kind), _meaning(kind)] for path, kind in leaves]
    if not any(meaning for _, _, meaning in rows):
        return table(["key", "what may stand there"], [row[:2] for row in rows])
    return table(["key", "what may stand there", "meaning"], rows)


def names_table() -> str:
    """Columns of a run table: their meaning, and the names that are recognized for them."""
    rows = [
        [f"`{each.name}`", each.meaning, "yes" if each.required else "", ", ".join(f"`{name}`" for name in aliases_of(each))]
        for each in COLUMNS.values()
    ]
    return table(["column", "meaning", "required", "also recognized as"], rows)


def _leaves(shape: Shape, path: str) -> Iterator[tuple[str, Shape]]:
    keys = shape.keys if isinstance(shape, AtLeast) else shape
    if isinstance(keys, Mapping):
        for key, inner in keys.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(shape, Means) and isinstance(shape.value, ListOf) and isinstance(shape.value.item, Mapping):
        yield path, shape
        yield from _leaves(shape.value, path)
    elif isinstance(shape, ListOf):
        yield from _leaves(shape.item, f"{path}[]")
    elif isinstance(shape, ByKind):
        yield f"{path}.{shape.key}", Choice(of=tuple(shape.shapes))
        yield from _of_some_kinds(shape, path)
    elif isinstance(shape, Nullable) and isinstance(shape.value, Mapping):
        yield path, shape
        yield from _leaves(shape.value, path)
    else:
        yield path, shape


def _of_some_kinds(shape: ByKind, path: str) -> Iterator[tuple[str, Shape]]:
    """The keys of all kinds; those that a kind does not have may be missing."""
    of_kinds = [dict(_leaves(each, path)) for each in shape.shapes.values()]
    for key in dict.fromkeys(key for each in of_kinds for key in each):
        found = next(each[key] for each in of_kinds if key in each)
        if key != f"{path}.{shape.key}":
            yield key, found if all(key in each for each in of_kinds) else MayLack(value=found)


def _meaning(shape: Shape) -> str:
    if isinstance(shape, MayLack):
        return _meaning(shape.value)
    return shape.what if isinstance(shape, Means) else ""


def _allowed(shape: Shape) -> str:
    """What may stand at a key, in words.

    >>> _allowed(Nullable(value=Number(whole=True, above=0))), _allowed(Choice(of=("held", "missed")))
    ('null, or whole number above 0', '`"held"` or `"missed"`')
    """
    match shape:
        case Means():
            return _allowed(shape.value)
        case ListOf():
            return "list" if isinstance(shape.item, Mapping) else f"list of {_allowed(shape.item)}"
        case Nullable():
            return f"null, or {_allowed(shape.value)}"
        case MayLack():
            return f"may be missing; {_allowed(shape.value)}"
        case Choice():
            return " or ".join(f"`{json.dumps(value)}`" for value in shape.of)
        case Number():
            return f"{'whole ' * shape.whole}number{_bound(shape)}"
        case Text():
            return "text of one line" if shape == Text() else f"text like `{shape.pattern}`".replace("|", "\\|")
        case MapOf():
            return f"object of {_allowed(shape.value)}"
        case _:
            return "keys below" if isinstance(shape, Mapping) else "any value"


def _bound(shape: Number) -> str:
    if math.isfinite(shape.above):
        return f" above {shape.above:g}"
    return f", at least {shape.least:g}" if math.isfinite(shape.least) else ""


def _type_name(annotation: Any, limits: Iterable[object] = ()) -> str:
    """A field's type in the words of a file's reader.

    >>> _type_name(tuple[Literal["a", 1], ...] | None), _type_name(dict[str, float])
    ('list of `"a"` or `1`, or null', 'object of number')
    """
    inner = get_args(annotation)
    match get_origin(annotation) or annotation:
        case kind if kind is Annotated:
            return _type_name(inner[0], inner[1:])
        case kind if kind is Literal:
            name = " or ".join(f"`{json.dumps(value)}`" for value in inner)
        case kind if kind is Union or kind is UnionType:
            name = ", or ".join(_type_name(each) for each in inner)
        case kind if kind is tuple:
            name = f"list of {_type_name(inner[0])}"
        case kind if kind is dict:
            name = f"object of {_type_name(inner[1])}"
        case kind if isinstance(kind, type):
            name = "object (below)" if issubclass(kind, BaseModel) else _WORDS.get(kind, kind.__name__)
        case _:
            name = "any value"
    said = [_limit(each) for limit in limits for each in (limit.metadata if isinstance(limit, FieldInfo) else [limit])]
    return ", ".join([name, *filter(None, said)])


def _limit(metadata: object) -> str:
    """A constraint as a reader knows it.

    >>> import annotated_types
    >>> _limit(annotated_types.Gt(0)), _limit(annotated_types.MinLen(1))
    ('> 0', 'length at least 1')
    """
    found = {key: getattr(metadata, key, None) for key in _SIGNS}
    said = {key: f"`{limit}`" if key == "pattern" else limit for key, limit in found.items() if limit is not None}
    return " and ".join(f"{_SIGNS[key]} {limit}" for key, limit in said.items())


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "must be given"
    if info.default_factory is not None:
        return f"`{json.dumps(info.get_default(call_default_factory=True))}`"
    return "" if isinstance(info.default, BaseModel) else f"`{json.dumps(info.default)}`"
