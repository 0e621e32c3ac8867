"""The published JSON Schemas are those of the code, and what is registered is of their kind; run this file to write them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from registration_factory import make_registration

from marin_scaling.preregistration.registry import registration_folders
from tools.docs.json_schema import schemas_beside, statement_schema

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "site" / "reference"
REGISTERED = [*registration_folders(ROOT / "preregistrations"), *ROOT.glob("tests/golden/preregistration-v*/2*")]


SCHEMA_FILE = PUBLISHED / "statement-1.schema.json"


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1) + "\n"


def test_the_schema_of_a_statement_is_published_as_it_is_checked() -> None:
    """It follows the code."""
    assert SCHEMA_FILE.read_text() == _text(statement_schema())


@pytest.mark.parametrize("name", schemas_beside())
def test_the_schema_of_each_file_beside_a_statement_is_published_as_it_is_checked(name: str) -> None:
    """Amendments, notices, seals and what opens them."""
    assert _beside_file(name).read_text() == _text(schemas_beside()[name])


@pytest.mark.parametrize("name", schemas_beside())
def test_each_file_beside_a_statement_is_of_its_published_schema_and_with_a_key_more_is_not(name: str) -> None:
    """By an independent validator; all those that are kept as bytes."""
    jsonschema = pytest.importorskip("jsonschema", reason="comes with the site extra")
    validator = jsonschema.Draft202012Validator(json.loads(_beside_file(name).read_text()))
    kept = sorted(ROOT.glob(f"tests/golden/*/2*/**/{name.partition('-')[0]}.json"))
    assert kept
    for path in kept:
        document = json.loads(path.read_bytes())
        validator.validate(document)
        assert not validator.is_valid({**document, "verdict": "held"})


def _beside_file(name: str) -> Path:
    return PUBLISHED / f"{name}.schema.json"


@pytest.mark.parametrize("folder", REGISTERED, ids=lambda folder: folder.name)
def test_every_registered_statement_is_of_its_published_schema(folder: Path) -> None:
    """By an independent validator."""
    jsonschema = pytest.importorskip("jsonschema", reason="comes with the site extra")
    statement = json.loads((folder / "statement.json").read_bytes())
    jsonschema.validate(statement, json.loads(SCHEMA_FILE.read_text()), jsonschema.Draft202012Validator)


def test_a_new_statement_is_of_that_schema_and_an_unknown_key_is_not(tmp_path: Path) -> None:
    """Both the validator's word."""
    jsonschema = pytest.importorskip("jsonschema", reason="comes with the site extra")
    validator = jsonschema.Draft202012Validator(statement_schema())
    statement = json.loads((make_registration(tmp_path).folder / "statement.json").read_bytes())
    assert validator.is_valid(statement)
    statement["predicate"]["forecast"]["pointIsh"] = 1
    assert not validator.is_valid(statement)


def test_every_field_that_a_person_reads_is_explained() -> None:
    """A number without its meaning could be read in two ways; fixed words explain themselves."""
    bare = _bare_fields(statement_schema())
    assert [path for path in bare if not path.startswith(("metric.unit", "scoring.baseline"))] == []


@pytest.mark.parametrize("name", schemas_beside())
def test_every_field_beside_a_statement_that_a_person_reads_is_explained(name: str) -> None:
    """As in a statement."""
    assert _bare_fields(schemas_beside()[name]) == []


def _bare_fields(schema: dict[str, Any]) -> list[str]:
    return [path.removeprefix("predicate.") for path, kind in _leaves(schema, schema.get("$defs", {}), "") if _is_bare(kind)]


def _leaves(schema: dict[str, Any], models: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for alternative in schema.get("oneOf", [schema]):
        model = models[alternative["$ref"].rpartition("/")[2]] if "$ref" in alternative else alternative
        for name, inner in model.get("properties", {}).items():
            where = f"{path}.{name}" if path else name
            if "$ref" in inner:
                yield from _leaves(inner, models, where)
            else:
                yield where, inner


def _is_bare(schema: dict[str, Any]) -> bool:
    fixed = schema.get("items", schema)
    return "description" not in schema and not {"enum", "const", "$ref"} & fixed.keys()


if __name__ == "__main__":
    SCHEMA_FILE.write_text(_text(statement_schema()))
    for name, schema in schemas_beside().items():
        _beside_file(name).write_text(_text(schema))
