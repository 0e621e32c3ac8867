"""The format of a submission: what is missing says why, what is derived follows, what cannot be shown does not come in."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from submission_factory import SECONDS, changed, submission, submission_document

from marin_scaling.errors import DocumentError, MarinScalingError
from marin_scaling.speedrun.submission import (
    Submission,
    parse_submission,
    read_submission,
    read_submissions,
    submission_schema,
    to_bytes,
    write_submission,
)


def test_a_submission_is_the_same_after_it_was_written_and_read() -> None:
    """And its bytes are canonical."""
    raw = to_bytes(submission())
    assert parse_submission(raw, name="x") == submission()
    assert to_bytes(parse_submission(raw, name="x")) == raw


def test_what_is_missing_says_why() -> None:
    """A part that is not there needs a reason, for all of it or for each key."""
    document = submission_document()
    del document["code"], document["data"]["digest"]
    with pytest.raises(ValidationError, match=r"code, data\.digest"):
        Submission.model_validate(document)
    found = Submission.model_validate(document | {"absent": {"code": "not kept", "data.digest": "never computed"}})
    assert found.code is None


def test_an_author_cannot_state_a_level_of_verification() -> None:
    """It comes from a stored confirmation alone."""
    for claim in ({"level": "reproduced-by-ci"}, {"level": "self-reported", "by": "a workflow"}):
        with pytest.raises(ValidationError, match="verification"):
            submission(verification=claim)


def test_what_one_seed_lacks_is_said_once_for_all() -> None:
    """Seeds are one list."""
    document = submission_document()
    del document["seeds"][1]["log"]
    with pytest.raises(ValidationError, match=r" seeds\.log;"):
        Submission.model_validate(document)


@pytest.mark.parametrize("key", ["code", "data.digest", "no.such", "seeds.curve"])
def test_a_reason_for_what_is_there_is_refused(key: str) -> None:
    """Else a reason could stay when the value came."""
    with pytest.raises(ValidationError, match=key):
        submission(absent={key: "not kept"})


def test_derived_quantities_follow_from_what_is_stated() -> None:
    """Means over seeds, chip-seconds, MFU, epochs, and the group that is scaled."""
    found = submission()
    assert found.bits_per_byte == pytest.approx(1.175)
    assert found.standard_error == pytest.approx(0.005)
    assert found.chip_seconds == 16 * SECONDS
    assert found.mfu == pytest.approx(found.compute.model_flops / (16 * SECONDS * 459e12))
    assert found.epochs == pytest.approx(0.2599944192)
    assert found.group == "llama"


def test_a_single_seed_has_no_standard_error() -> None:
    """Not zero."""
    assert submission(seeds=submission_document()["seeds"][:1]).standard_error is None


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("name", "../x", "a name of letters"),
        ("name", "a//b", "a name of letters"),
        ("authors__url", "javascript:alert(1)", "an address that begins"),
        ("seeds__log", "ftp://example.org", "an address that begins"),
        ("seeds__log", "https://example.org/a|b", "an address that begins"),
        ("seeds__log", "https://example.org/a\\", "an address that begins"),
        ("seeds__log", "https://example.org/\u200b", "an address that begins"),
        ("authors__name", "Ada\nBob", "one line of text"),
        ("authors__name", "Ada\u202eBob", "one line of text"),
        ("description", "so\u2066 it is", "hidden characters"),
        ("code__commit", "main", "a commit"),
        ("authors__name", "A" * 501, "at most 500"),
    ],
)
def test_what_cannot_be_shown_safely_does_not_come_in(path: str, value: str, said: str) -> None:
    """Paths, scripts, invisible characters; the message names the allowed form."""
    document = submission_document()
    *above, key = path.split("__")
    part: Any = document
    for name in above:
        part = part[name][0] if isinstance(part[name], list) else part[name]
    part[key] = value
    with pytest.raises(DocumentError, match=said):
        parse_submission(json.dumps(document).encode(), name="x")


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"null", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_submission_are_refused_with_the_files_name(raw: bytes) -> None:
    """No traceback."""
    with pytest.raises(DocumentError, match=r"mine\.json"):
        parse_submission(raw, name="mine.json")


def test_a_number_that_is_too_large_in_a_configuration_is_refused() -> None:
    """Where any value may stand; else the page of all submissions could not be written."""
    document = submission_document()
    document["model"]["config"] = {"rate": "large"}
    with pytest.raises(DocumentError, match="1e999"):
        parse_submission(json.dumps(document).replace('"large"', "1e999").encode(), name="x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_no_value_at_all_ends_in_a_traceback(value: Any) -> None:
    """Whatever stands in a key."""
    for key in ("seeds", "model", "absent", "name"):
        with contextlib.suppress(MarinScalingError):
            parse_submission(json.dumps(submission_document() | {key: value}).encode(), name="x")


def test_a_time_that_no_run_can_have_is_refused() -> None:
    """Products of it with anything would be no numbers, on every page."""
    document = submission_document()
    document["seeds"][0]["training_seconds"] = 1e308
    with pytest.raises(DocumentError, match=r"seeds\.0\.training_seconds: .*1e\+308"):
        parse_submission(json.dumps(document).encode(), name="x")


def test_a_submission_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """Each has a folder of its own, by its name."""
    path = write_submission(tmp_path, submission())
    assert path == tmp_path / "llama/130m/submission.json"
    with pytest.raises(MarinScalingError, match="exists"):
        write_submission(tmp_path, changed(description="another"))
    assert read_submission(path.parent) == submission()


def test_a_malformed_one_among_others_is_kept_with_its_reason(tmp_path: Path) -> None:
    """It breaks nobody else's place."""
    write_submission(tmp_path, submission())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/submission.json").write_text("{")
    bad, good = read_submissions(tmp_path)
    assert "bad/submission.json" in str(bad.refusal)
    assert good.submission == submission()


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    """Not taken for an empty board."""
    with pytest.raises(MarinScalingError, match="cannot be read"):
        read_submissions(tmp_path / "none")


def test_the_schema_describes_every_key() -> None:
    """For editors and other people's programs."""
    schema = submission_schema()
    parts = [schema, *schema["$defs"].values()]
    silent = [
        f"{part.get('title')}.{key}"
        for part in parts
        for key, told in part.get("properties", {}).items()
        if "description" not in told and "$ref" not in str(told)
    ]
    assert silent == []
