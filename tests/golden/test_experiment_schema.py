"""The published JSON Schema of experiments is that of the code, and this repository's own experiments follow it."""

import json
from pathlib import Path

import jsonschema
import yaml

from marin_scaling.experiment.experiment import Experiment

ROOT = Path(__file__).parents[2]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PUBLISHED = ROOT / "site" / "reference" / "experiment-1.schema.json"


def test_the_published_schema_is_that_of_the_code() -> None:
    """Version 1 of a format that a release has carried never changes; before, this file is written again with it."""
    assert json.loads(PUBLISHED.read_text()) == {"$schema": DIALECT} | Experiment.model_json_schema()


def test_own_and_imported_experiments_follow_the_published_schema() -> None:
    """By an independent validator, as they lie in their files."""
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    lines = (ROOT / "experiments" / "marin-agent-moe.jsonl").read_text().splitlines()
    own = [
        json.dumps(yaml.safe_load(path.read_text()), default=str) for path in (ROOT / "experiments").glob("*/experiment.yaml")
    ]
    assert len(own) >= 4
    for text in [*lines, *own]:
        validator.validate(json.loads(text))
    assert not validator.is_valid({"name": "x", "title": "y", "outcome": "great"})
