"""What a statement says, and what is refused before it is signed."""

import copy
import json

import pytest
from registration_factory import (
    CREATED_AT,
    PRINCIPAL,
    evidence,
    forecast_document,
    make_registration,
    store_ladder,
    target_spec,
)

from marin_scaling.canonical_json import dump_canonical, load_canonical
from marin_scaling.errors import DocumentError, StatementError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.format import LEVELS
from marin_scaling.preregistration.register import declared_fields, subject_files, tool_document
from marin_scaling.preregistration.statement import build_statement, read_statement, target_run_of


@pytest.fixture
def rows(tmp_path):
    return store_ladder(tmp_path / "runs")


def build(rows, forecast, target=None):
    declared = declared_fields(Promise(), registrant=PRINCIPAL, created_at=CREATED_AT, ladder_rule="all")
    return build_statement(
        subject_files(evidence(rows, forecast=forecast, target=target or target_spec())),
        registration_id="2026-11-20-tiny",
        registrant=PRINCIPAL,
        created_at=CREATED_AT,
        tool=tool_document(),
        declared=declared,
    )


def with_prediction(**changes):
    document = forecast_document()
    return {**document, "predictions": [{**document["predictions"][0], **changes}]}


def test_the_statement_says_what_the_target_and_the_forecast_say(rows):
    """Numbers are copied from the subjects, none is typed."""
    predicate, target = build(rows, forecast_document()).predicate, target_spec()
    assert predicate["targetRun"]["flops"] == target.flops
    assert predicate["targetRun"]["tokens"] == target.trained_tokens
    assert predicate["targetRun"]["paramsTotal"] == target.model.shape().params_total
    assert predicate["targetRun"]["flopsConvention"] == target.flops_convention
    assert predicate["metric"]["unit"] == "bits/byte"
    assert predicate["forecast"]["point"] == 2.5
    assert predicate["forecast"]["extrapolation"] == target.flops / max(row["flops"] for row in rows)
    assert predicate["scoring"]["reducibleE"] == 1.0
    assert predicate["createdAt"] == "2026-11-20T08:30:00Z"


def test_it_is_an_in_toto_statement_with_its_subjects(rows):
    """Other tools of the supply chain can read it."""
    document = build(rows, forecast_document()).document
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    names = ["evaluation.json", "forecast.json", "ladder.json", "recipe.json", "samples.json", "target.json"]
    assert [subject["name"] for subject in document["subject"]] == names
    assert document["predicateType"] == "urn:marin-scaling:preregistration:v1"


def test_the_target_is_derived_from_the_file_as_from_the_spec():
    """The light reading that `verify` uses counts what `RunSpec` counts."""
    target = target_spec()
    derived = target_run_of(json.loads(target.to_bytes()))
    assert derived["flops"] == target.flops
    assert derived["paramsActive"] == target.model.shape().params_active


def test_the_levels_are_the_23_of_the_forecast_hubs():
    """Fixed levels make weighted interval scores comparable."""
    assert len(LEVELS) == 23
    assert LEVELS[:3] == (0.01, 0.025, 0.05)
    assert LEVELS[-3:] == (0.95, 0.975, 0.99)
    assert all(abs(low + high - 1) < 1e-12 for low, high in zip(LEVELS, reversed(LEVELS), strict=True))


def test_reading_what_was_built_gives_the_same(rows):
    """Bytes in, the same bytes out."""
    statement = build(rows, forecast_document())
    assert read_statement(statement.raw, name="statement.json") == statement
    assert tuple(statement.quantiles) == LEVELS


def quantiles_with(**changes):
    return {**forecast_document()["predictions"][0]["quantiles"], **changes}


@pytest.mark.parametrize(
    ("forecast", "reason"),
    [
        (with_prediction(flops=1.0), "0 predictions at the target's"),
        ({**forecast_document(), "predictions": forecast_document()["predictions"] * 2}, "2 predictions"),
        ({**forecast_document(), "metric": "loss"}, "is about 'loss'"),
        (with_prediction(median=2.4), "point 2.4 is not its median 2.5"),
        (with_prediction(quantiles=quantiles_with(**{"0.55": 2.5})), "not above 2.5 at 0.5"),
        (with_prediction(quantiles=quantiles_with(**{"0.99": 8.5})), "outside 0 to 8 bits/byte"),
        (with_prediction(quantiles=quantiles_with(**{"0.01": -0.5})), "outside 0 to 8 bits/byte"),
        (with_prediction(quantiles={"0.05": 1.0, "0.5": 2.5, "0.95": 3.0}), "not the 23 fixed ones"),
        (with_prediction(quantiles=quantiles_with(half=2.5)), "not a number"),
    ],
)
def test_a_forecast_that_cannot_be_scored_is_refused(rows, forecast, reason):
    """Every refusal says which number is wrong."""
    with pytest.raises(StatementError, match=reason):
        build(rows, forecast)


@pytest.mark.parametrize("key", ["law", "predictions", "excluded", "metric", "parameters"])
def test_a_fit_document_without_a_needed_key_is_refused(rows, key):
    """A missing key is named, not a traceback."""
    document = {name: value for name, value in forecast_document().items() if name != key}
    with pytest.raises(DocumentError, match=key):
        build(rows, document)


def test_a_target_that_is_not_larger_than_its_ladder_is_refused(rows):
    """Inside the ladder there is nothing to forecast."""
    rows[0]["flops"] = target_spec().flops
    with pytest.raises(StatementError, match=" 4 "):
        build(rows, forecast_document())


def test_an_empty_ladder_is_refused():
    """A forecast from no runs is a guess."""
    with pytest.raises(StatementError, match=" 0 "):
        build([], forecast_document())


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("predicate", "forecast", "point"), 2.6, "not its median"),
        (("predicate", "forecast", "extrapolation"), 0.5, "extrapolation.*0.5"),
        (("predicate", "createdAt"), "2026-11-21T08:30:00Z", "does not start with the day"),
        (("predicate", "createdAt"), "2026-13-20T08:30:00Z", "createdAt.*2026-13-20"),
        (("predicate", "metric", "support"), [0.0, 99.0], "support"),
        (("predicate", "knowledge", "targetRunStepsSeen"), 100, "targetRunStepsSeen"),
        (("predicate", "scoring", "hit"), "always", "hit"),
        (("predicate", "registrant"), "everyone", "registrant"),
        (("predicateType",), "urn:other", "predicateType"),
        (("subject",), [], "subjects"),
        (("extra",), 1, "extra"),
    ],
)
def test_an_edited_statement_is_refused(rows, path, value, reason):
    """Even a signed one: what it means must hold together."""
    document = copy.deepcopy(build(rows, forecast_document()).document)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises((StatementError, DocumentError), match=reason):
        read_statement(dump_canonical(document), name="statement.json")


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw.replace(b"\n", b"\r\n"), lambda raw: raw + b"\n", lambda raw: raw.replace(b": ", b":")]
)
def test_bytes_in_another_form_are_refused(rows, spoil):
    """Only the canonical form is a statement."""
    with pytest.raises(DocumentError, match="canonical form"):
        read_statement(spoil(build(rows, forecast_document()).raw), name="statement.json")


def test_the_statement_in_the_folder_is_canonical(tmp_path):
    """What lies in the registry is what a person reads and a digest covers."""
    raw = (make_registration(tmp_path).folder / "statement.json").read_bytes()
    assert dump_canonical(load_canonical(raw, name="statement.json")) == raw
