"""Shapes of documents: what is missing, unknown or of another kind is named with its place."""

import pytest

from marin_scaling.errors import DocumentError
from marin_scaling.preregistration.format_schema import (
    AtLeast,
    ByKind,
    Choice,
    ListOf,
    MapOf,
    MayLack,
    Nullable,
    Number,
    Text,
    check_shape,
)

SHAPE = {
    "name": Text(pattern="[a-z]+"),
    "day": Text(pattern=r"\d\d"),
    "count": Number(whole=True, above=0),
    "value": Nullable(value=Number()),
    "kind": Choice(of=(True, "x")),
    "rows": ListOf(item={"run": Text()}),
    "by_level": MapOf(value=Number()),
    "open": AtLeast(keys={"a": Number()}),
    "maybe": MayLack(value=Number()),
    "model": ByKind(key="family", shapes={"p": {"family": Text(), "a": Number()}, "q": {"family": Text(), "b": Number()}}),
}
SOUND = {
    "name": "ada",
    "day": "20",
    "count": 3,
    "value": None,
    "kind": True,
    "rows": [{"run": "r"}],
    "by_level": {"0.5": 1.0},
    "open": {"a": 1, "more": "x"},
    "model": {"family": "q", "b": 1},
}


def test_a_sound_document_passes():
    """Every kind of shape once."""
    check_shape(SOUND, SHAPE, name="x.json")
    check_shape({**SOUND, "maybe": 1}, SHAPE, name="x.json")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": "Ada"}, "name"),
        ({"name": 3}, "name"),
        ({"day": "２٠"}, "day"),
        ({"count": 0}, "count"),
        ({"count": 1.5}, "count"),
        ({"count": True}, "count"),
        ({"value": "1"}, "value"),
        ({"value": 10**400}, "value"),
        ({"kind": 1}, "kind"),
        ({"kind": "y"}, "kind"),
        ({"rows": {}}, "rows"),
        ({"rows": [{"run": "r"}, {}]}, r"rows\[1\].run"),
        ({"rows": [{"run": "r", "x": 1}]}, r"rows\[0\].x"),
        ({"rows": [3]}, r"rows\[0\]"),
        ({"by_level": [1]}, "by_level"),
        ({"by_level": {"0.5": "1"}}, "by_level.0.5"),
        ({"open": {}}, "open.a"),
        ({"open": 3}, "open"),
        ({"maybe": None}, "maybe"),
        ({"model": 3}, "model.family"),
        ({"model": {"family": "r"}}, "model.family"),
        ({"model": {"family": "p", "b": 1}}, "model.a"),
        ({"new": 1}, "new"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change, place):
    """File and key stand in the message."""
    with pytest.raises(DocumentError, match=rf"^x.json: {place}: "):
        check_shape({**SOUND, **change}, SHAPE, name="x.json")


def test_a_document_that_is_no_object_is_refused():
    """The outermost value has no key, so it is called the document."""
    with pytest.raises(DocumentError, match=r"^x.json: document: \[\] is not an object"):
        check_shape([], SHAPE, name="x.json")
