"""Constants and formulas of a recipe with their sources: what `marin-scale recipe show` prints beside every number.

A formula is written as a Python expression over the recipe's constants and the numbers decided before it. It is there to be
read; tests evaluate each one and hold it against what the recipe does.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple


class Formula(NamedTuple):
    """An expression and where it comes from."""

    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A number that a recipe has fixed, and where it comes from."""

    name: str
    value: float
    source: str


def constant(value: Any, source: str, *, zero: bool = False, most: float | None = None, below: float | None = None) -> Any:
    """A field of a recipe with its value and the source of it.

    A recipe file may set it to any positive number up to `most` or below `below`, and to `zero` where that says so.

    >>> @dataclass(frozen=True)
    ... class Small:
    ...     vocab_size: int = constant(256, "bytes")
    >>> constants_of(Small())
    (Constant(name='vocab_size', value=256, source='bytes'),)
    """
    return field(default=value, metadata={"source": source, "zero": zero, "most": most, "below": below})


def constants_of(recipe: Any) -> tuple[Constant, ...]:
    """The constants of a recipe, as it has them; one that differs from the recipe's own is said to be overridden.

    None of a class that is no dataclass: its numbers are its own business.
    """
    if not is_dataclass(recipe):
        return ()
    return tuple(
        Constant(name=each.name, value=getattr(recipe, each.name), source=_source(each, getattr(recipe, each.name)))
        for each in fields(recipe)
        if "source" in each.metadata
    )


def _source(each: Field[Any], value: Any) -> str:
    return str(each.metadata["source"]) if value == each.default else f"overridden; {each.default} in the recipe itself"
