"""The published JSON Schema of submissions is that of the code, and a real submission follows it."""

import json
from pathlib import Path

import jsonschema
from submission_factory import submission

from marin_scaling.speedrun.submission import submission_schema, to_bytes

PUBLISHED = Path(__file__).parents[2] / "site" / "reference" / "submission-1.schema.json"


def test_the_published_schema_is_that_of_the_code() -> None:
    """Version 1 of a format that a release has carried never changes; before, this file is written again with it."""
    assert json.loads(PUBLISHED.read_text()) == submission_schema()


def test_a_submission_follows_the_published_schema() -> None:
    """By an independent validator."""
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    validator.validate(json.loads(to_bytes(submission())))
    assert not validator.is_valid({"schema_version": 1})
