"""The canonical form is unique, and everything ambiguous is refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.canonical_json import digest_of, dump_canonical, load_canonical, load_strict
from marin_scaling.errors import DocumentError

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


@given(documents)
def test_what_is_written_is_read_back(document: object) -> None:
    """Writing and reading change nothing, and the bytes read back are canonical."""
    assert load_canonical(dump_canonical(document), name="x") == document


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_key_order_never_changes_a_digest(document: dict[str, int]) -> None:
    """Equal documents have equal digests whichever way their keys were put in."""
    assert digest_of(document) == digest_of(dict(reversed(document.items())))


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1: 2, "1": 3}.keys()])
def test_what_has_no_json_form_is_not_written(value: object) -> None:
    """NaN, infinity and objects are refused, not written as something else."""
    with pytest.raises(DocumentError):
        dump_canonical({"value": value})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b"{" + b"".join(b'"%d":0,' % key for key in range(200_000)) + b'"199999":0}', "duplicate key '199999'"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "holds 1e999"),
        (b'{"a": -1' + b"0" * 308 + b"}", "holds an integer of 310 digits"),
        (b'{"a": [-1.5e400]}', "holds -1.5e400"),
        (b"\xff\xfe", "utf-8"),
        (b"[" * 100_000, "nested"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b"{", "Expecting"),
    ],
)
def test_ambiguous_bytes_are_refused_with_the_reason(raw: bytes, reason: str) -> None:
    """The error names the file and what is wrong with it."""
    with pytest.raises(DocumentError, match=reason) as caught:
        load_strict(raw, name="statement.json")
    assert "statement.json" in caught.value.what


@pytest.mark.parametrize("raw", [b'{"a":1}\n', b'{\r\n "a": 1\r\n}\r\n', b'{\n "a": 1\n}', b'{\n "b": 1,\n "a": 1\n}\n'])
def test_another_spelling_of_a_document_is_not_canonical(raw: bytes) -> None:
    """Other spacing, line ends, key order or a missing final newline are refused."""
    with pytest.raises(DocumentError, match="canonical"):
        load_canonical(raw, name="x")


@given(documents)
def test_the_bytes_are_those_of_the_standard_library(document: object) -> None:
    """Lists of scalars are encoded in another way."""
    expected = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    assert dump_canonical(document) == expected.encode() + b"\n"
