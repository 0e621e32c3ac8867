"""A mixture of experts from its records to a verified preregistration: active parameters and the FLOP count go along."""

import json

import pytest
from registration_factory import forecast_document, make_registration, run_spec, store_run

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import DocumentError, VerificationError
from marin_scaling.fitting.fit import fit
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.statement import read_subject, target_run_of
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.recipe.model_shape import WITHOUT_LM_HEAD
from marin_scaling.run.spec import MoeModelSpec, RunSpec, read_spec
from marin_scaling.run.store import read_runs
from marin_scaling.run.table import read_run_table

EXPERTS = {"num_experts": 8, "experts_per_token": 2, "shared_intermediate_dim": 32, "norm_gate_rank": 4}


def sparse(**changes) -> RunSpec:
    """The factory's run as a mixture."""
    dense = run_spec(**changes)
    sizes = {**dense.model.model_dump(exclude={"family"}), **EXPERTS, "intermediate_dim": 32}
    return dense.model_copy(update={"model": MoeModelSpec(**sizes)})


@pytest.fixture
def rows(tmp_path):
    """Four rungs in a store, and what a fit of them passes on."""
    for hidden_dim, steps in ((32, 100), (32, 200), (64, 100), (64, 200)):
        spec = sparse(hidden_dim=hidden_dim, train_steps=steps)
        store_run(tmp_path / "runs", spec=spec, loss=1.0 + 100 * spec.flops**-0.2)
    table = read_run_table(tmp_path / "runs" / "tiny")
    columns = ["run", "budget_flops", "flops", "params", "tokens", "loss", "active_params"]
    return table.frame[columns].to_dict("records")


def target() -> RunSpec:
    return sparse(hidden_dim=128, train_steps=800, role="target")


def register(tmp_path, rows):
    forecast = forecast_document(flops=target().flops)
    return make_registration(tmp_path, rows=rows, target=target(), forecast=forecast)


def test_a_store_of_mixtures_is_a_table_with_active_parameters(tmp_path, rows):
    """Those of the records, fewer than all; their FLOPs say that they are counted without the head."""
    by_run = {stored.spec.digest: stored.record for stored in read_runs(tmp_path / "runs" / "tiny")}
    assert all(row["active_params"] == by_run[row["run"]].params_active < row["params"] for row in rows)
    assert {record.flops_convention for record in by_run.values()} == {WITHOUT_LM_HEAD}


def test_a_spec_of_a_mixture_is_read_as_it_was_written():
    """And the dense one beside it keeps the keys it had before there were mixtures."""
    assert read_spec(target().to_bytes(), name="spec.json") == target()
    assert "router_z_loss_weight" not in json.loads(run_spec().to_bytes())["optimizer"]


def test_a_fit_hands_on_the_active_parameters_of_its_runs(tmp_path, rows):
    """Without them the forecast could not be made again from what is signed."""
    result = fit(read_run_table(tmp_path / "runs" / "tiny"))
    assert {row["active_params"] for row in result.rows} == {row["active_params"] for row in rows}


def test_the_statement_counts_a_mixture_as_its_spec_does():
    """Total and active parameters, FLOPs and their convention."""
    said, spec = target_run_of(json.loads(target().to_bytes())), target()
    shape = spec.model.shape()
    assert (said["flops"], said["flopsConvention"]) == (spec.flops, WITHOUT_LM_HEAD)
    assert (said["paramsTotal"], said["paramsActive"]) == (shape.params_total, shape.params_active)
    assert said["paramsActive"] < said["paramsTotal"]


def test_a_preregistration_of_a_mixture_verifies(tmp_path, rows):
    """The signed ladder has the active parameters, and they are held against the records."""
    registration = register(tmp_path, rows)
    signers = signers_path(registration.folder)
    assert verify_folder(registration.folder, allowed_signers=signers, runs_dir=tmp_path / "runs")
    ladder = json.loads((registration.folder / "ladder.json").read_bytes())
    assert [row["active_params"] for row in ladder["rows"]] == [row["active_params"] for row in rows]


@pytest.mark.parametrize("active", [{"active_params": 1}, {}], ids=["wrong", "missing"])
def test_active_parameters_that_no_record_has_are_refused(tmp_path, rows, active):
    """Also where they were wrong, or left out, already when they were signed."""
    without = {key: value for key, value in rows[0].items() if key != "active_params"}
    registration = register(tmp_path, [{**without, **active}, *rows[1:]])
    signers = signers_path(registration.folder)
    with pytest.raises(VerificationError, match="active_params"):
        verify_folder(registration.folder, allowed_signers=signers, runs_dir=tmp_path / "runs")


@pytest.mark.parametrize(
    ("change", "place"), [({"family": "llama"}, "family.*llama|llama.*family"), ({"num_experts": 0}, "model.num_experts")]
)
def test_a_target_of_another_family_or_size_is_refused(tmp_path, rows, change, place):
    """By the file and the key."""
    document = json.loads(target().to_bytes())
    raw = dump_canonical({**document, "model": {**document["model"], **change}})
    with pytest.raises(DocumentError, match=place):
        read_subject(raw, name="target.json", path="target.json")
