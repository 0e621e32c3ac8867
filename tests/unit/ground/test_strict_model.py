"""Strict models of documents: every fault is named with its file, key and value."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Discriminator

from marin_scaling.errors import DocumentError
from marin_scaling.experiment.experiment import Experiment
from marin_scaling.ladder.config import LadderFile
from marin_scaling.preregistration.format import Predicate
from marin_scaling.preregistration.outside import TargetFile
from marin_scaling.printable import FAULTS_NAMED
from marin_scaling.publish.chain_page import ChainFile, ComparisonFile
from marin_scaling.recipe.find import RecipeFile
from marin_scaling.speedrun.submission import Submission
from marin_scaling.strict_model import (
    IN_ERRORS,
    SHA256,
    Camel,
    Count,
    FileName,
    Moment,
    One,
    OneOf,
    Open,
    Part,
    Text,
    check_document,
)


class Row(Part):
    """A row."""

    run: Text
    tokens: Count = 1


class Dense(Part):
    """One alternative."""

    family: Literal["dense"]
    width: float


class Sparse(Part):
    """The other alternative."""

    family: Literal["sparse"]
    experts: int


class Further(Open):
    """It may have further keys."""

    a: float


class Document(Camel):
    """Every kind of value once."""

    format_version: One
    name: FileName
    count: Count
    value: float | None
    hit: bool
    rule: Annotated[str, OneOf(("a rule",))]
    rows: list[Row]
    by_level: dict[str, float]
    further: Further
    model: Annotated[Dense | Sparse, Discriminator("family")]
    made_at: Moment
    digest: SHA256


SOUND: dict[str, Any] = {
    "formatVersion": 1,
    "name": "ada",
    "count": 3,
    "value": None,
    "hit": True,
    "rule": "a rule",
    "rows": [{"run": "r"}, {"run": "s", "tokens": 2}],
    "byLevel": {"0.5": 1.0, "0.9": 2},
    "further": {"a": 1, "more": "x"},
    "model": {"family": "sparse", "experts": 1},
    "madeAt": "2026-11-20T08:30:00Z",
    "digest": "0" * 64,
}


def _patterns(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set[str]()
        return own.union(*map(_patterns, schema.values()))
    return set[str]().union(*map(_patterns, schema)) if isinstance(schema, list) else set()


@pytest.mark.parametrize(
    "model", [LadderFile, RecipeFile, ChainFile, ComparisonFile, TargetFile, Predicate, Submission, Experiment]
)
def test_every_pattern_of_a_file_is_explained_in_words(model: type[Part]) -> None:
    """So that no error prints a regular expression."""
    found = _patterns(model.model_json_schema())
    assert found
    assert found <= IN_ERRORS.keys()


def test_a_sound_document_passes() -> None:
    """Integers pass as numbers, and keys with a default may be missing."""
    check_document(SOUND, Document, name="x.json")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"formatVersion": True}, "formatVersion"),
        ({"formatVersion": 1.0}, "formatVersion"),
        ({"formatVersion": 2}, "formatVersion"),
        ({"name": "a/b"}, "name"),
        ({"name": "ada\n"}, "name"),
        ({"name": 3}, "name"),
        ({"count": 0}, "count"),
        ({"count": 1.0}, "count"),
        ({"count": True}, "count"),
        ({"count": 2**64 + 1}, "count"),
        ({"value": "1"}, "value"),
        ({"value": True}, "value"),
        ({"value": 10**400}, "value"),
        ({"value": float("nan")}, "value"),
        ({"value": float("inf")}, "value"),
        ({"hit": 1}, "hit"),
        ({"rule": "another"}, "rule"),
        ({"rows": {}}, "rows"),
        ({"rows": [{"run": "r"}, {}]}, "rows.1.run"),
        ({"rows": [{"run": "r", "x": 1}]}, "rows.0.x"),
        ({"rows": [{"run": "r" * 10_001}]}, "rows.0.run"),
        ({"rows": [{"run": "r", "tokens": None}]}, "rows.0.tokens"),
        ({"rows": [3]}, "rows.0"),
        ({"byLevel": [1]}, "byLevel"),
        ({"byLevel": {"0.5": "1"}}, "byLevel.0.5"),
        ({"further": {}}, "further.a"),
        ({"further": 3}, "further"),
        ({"model": 3}, "model"),
        ({"model": {"family": "r"}}, "model"),
        ({"model": {"family": "dense", "experts": 1}}, "model.width"),
        ({"model": {"family": "dense", "width": True}}, "model.width"),
        ({"madeAt": "2026-02-30T08:30:00Z"}, "madeAt"),
        ({"madeAt": "２026-11-20T08:30:00Z"}, "madeAt"),
        ({"madeAt": "2026-11-20T08:30:00"}, "madeAt"),
        ({"digest": "0" * 63 + "G"}, "digest"),
        ({"new": 1}, "new"),
        ({"format_version": 1}, "format_version"),
    ],
)
def test_a_fault_is_named_with_its_place(change: dict[str, Any], place: str) -> None:
    """File and key stand at the start of a line."""
    with pytest.raises(DocumentError) as caught:
        check_document({**SOUND, **change}, Document, name="x.json")
    assert [line for line in caught.value.lines if line.startswith(f"x.json: {place}: ")], caught.value.lines


def test_all_faults_are_named_at_once_with_their_values() -> None:
    """Nobody has to fix one key to hear of the next."""
    wrong = {**SOUND, "count": -7, "hit": "maybe", "new": 1} | {"byLevel": {"0.5": "low"}}
    with pytest.raises(DocumentError) as caught:
        check_document(wrong, Document, name="x.json")
    assert {line.split(": ")[1] for line in caught.value.lines} == {"count", "hit", "new", "byLevel.0.5"}
    for value in ("-7", "maybe", "low"):
        assert any(value in line for line in caught.value.lines)


@pytest.mark.parametrize("sign", ["\x1b", "\u202e", "\u200b", "\ud800", "\u3164", "\U000e0041"])
@pytest.mark.parametrize("hide", [lambda sign: {f"a{sign}": 1}, lambda sign: {"a": [f"b{sign}"]}])
def test_a_character_that_nobody_sees_is_refused_anywhere(hide: Any, sign: str) -> None:
    """Also in keys, and where any value is allowed."""
    with pytest.raises(DocumentError, match=f"U\\+{ord(sign):04X}"):
        check_document(hide(sign), dict[str, Any], name="x.json")


@pytest.mark.parametrize("count", [FAULTS_NAMED + 1, 50_000])
def test_of_many_faults_the_message_is_short(count: int) -> None:
    """The others are counted."""
    with pytest.raises(DocumentError) as caught:
        check_document([True] * count, list[float], name="x.json")
    assert len(caught.value.lines) <= FAULTS_NAMED + 1
    assert str(count - FAULTS_NAMED) in caught.value.lines[-1]


def test_a_document_that_is_no_object_is_refused() -> None:
    """The outermost value has no key."""
    with pytest.raises(DocumentError, match=r"x\.json: document: "):
        check_document([], Document, name="x.json")
