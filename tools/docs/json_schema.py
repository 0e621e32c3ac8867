"""JSON Schemas of the files of a preregistration, for editors and other people's programs; made from the shapes we check with.

A schema allows a little more than is accepted: what the fields must mean together is checked by `statement` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from marin_scaling.preregistration.events.amendment import AMENDMENT_SHAPE
from marin_scaling.preregistration.events.notice import NOTICE_SHAPE
from marin_scaling.preregistration.events.seal import OPENING_SHAPE, SEAL_SHAPE
from marin_scaling.preregistration.format import STATEMENT_SHAPE
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

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OTHERS: Mapping[str, tuple[str, Mapping[str, Shape]]] = {
    "amendment": ("1", AMENDMENT_SHAPE),
    "notice": ("1", NOTICE_SHAPE),
    "opening": ("1", OPENING_SHAPE),
    "seal": ("1", SEAL_SHAPE),
}


def statement_schema() -> dict[str, Any]:
    """Return the schema of `statement.json`.

    >>> statement_schema()["title"]
    'marin-scaling preregistration 1'
    """
    return {"$schema": _DIALECT, "title": "marin-scaling preregistration 1"} | schema_of(STATEMENT_SHAPE)


def schemas_beside() -> dict[str, dict[str, Any]]:
    """Those of the files that stand beside a statement, by name and version.

    >>> list(schemas_beside())
    ['amendment-1', 'notice-1', 'opening-1', 'seal-1']
    """
    return {
        f"{name}-{version}": {"$schema": _DIALECT, "title": f"marin-scaling {name} {version}"} | schema_of(shape)
        for name, (version, shape) in _OTHERS.items()
    }


def schema_of(shape: Shape) -> dict[str, Any]:
    """The schema of one shape.

    >>> schema_of(Number(above=0))
    {'type': 'number', 'exclusiveMinimum': 0}
    """
    if isinstance(shape, Mapping):
        return _object(shape, closed=True)
    if isinstance(shape, AtLeast):
        return _object(shape.keys, closed=False)
    if isinstance(shape, Means):
        return {"description": shape.what} | schema_of(shape.value)
    if isinstance(shape, MayLack):
        return schema_of(shape.value)
    if isinstance(shape, Nullable):
        return {"anyOf": [{"type": "null"}, schema_of(shape.value)]}
    if isinstance(shape, ListOf):
        return {"type": "array", "items": schema_of(shape.item)}
    if isinstance(shape, MapOf):
        return {"type": "object", "additionalProperties": schema_of(shape.value)}
    return _value(shape)


def _value(shape: Shape) -> dict[str, Any]:
    if isinstance(shape, Text):
        return {"type": "string", "pattern": f"^{shape.pattern}$"}
    if isinstance(shape, Choice):
        return {"enum": list(shape.of)}
    if isinstance(shape, Number):
        bounds = {"exclusiveMinimum": shape.above, "minimum": shape.least}
        kept = {name: bound for name, bound in bounds.items() if not math.isinf(bound)}
        return {"type": "integer" if shape.whole else "number", **kept}
    if isinstance(shape, ByKind):
        return {"oneOf": [schema_of({**kind, shape.key: Choice(of=(name,))}) for name, kind in _kinds(shape).items()]}
    return {}


def _object(keys: Mapping[str, Any], *, closed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema_of(shape) for name, shape in keys.items()},
        "required": sorted(name for name, shape in keys.items() if not isinstance(shape, MayLack)),
    }
    return found | ({"additionalProperties": False} if closed else {})


def _kinds(shape: ByKind) -> dict[str, dict[str, Any]]:
    return {name: dict(kind) for name, kind in shape.shapes.items() if isinstance(kind, Mapping)}
