"""A fit and its forecasts as a JSON document and as text."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from registration_factory import make_registration, run_spec, store_ladder, store_run, target_spec

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.forecast.backtest import backtest, backtest_doubts, backtest_of_fit
from marin_scaling.forecast.forecast import forecast, sensitivity
from marin_scaling.forecast.report import forecast_document, forecast_text
from marin_scaling.forecast.targets import above_optimum
from marin_scaling.laws import SurfaceLaw
from marin_scaling.preregistration.format import SUBJECTS
from marin_scaling.printable import TABLE_WIDTH
from marin_scaling.run.table import read_run_table, simulate_ladder
from marin_scaling.strict_model import check_document

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


@pytest.fixture(scope="module")
def delphi():
    result = fit(read_run_table(DELPHI), seed=3)
    return result, [forecast(result, flops=1e22), forecast(result, flops=1e23)]


def test_the_document_has_the_keys_that_scripts_rely_on(delphi):
    """The contract of `marin-scale fit --json`; its numbers are finite, so it can be written and signed."""
    document = json.loads(dump_canonical(forecast_document(*delphi)))
    keys = {"law", "predictions", "excluded", "warnings", "parameters", "optima", "status", "column_mapping", "metric", "tool"}
    assert keys | {"seed"} <= document.keys()
    assert document["seed"] == 3
    prediction = document["predictions"][1]
    assert {"flops", "params", "tokens", "median", "quantiles", "bands", "extrapolation"} <= prediction.keys()
    assert (len(prediction["quantiles"]), prediction["quantiles"]["0.5"]) == (23, prediction["median"])
    assert prediction["bands"].keys() == {"noise", "sampling", "form", "shift"}
    assert all(half > 0 for half in prediction["bands"].values())
    assert prediction["band_notes"].keys() == prediction["bands"].keys()
    assert document["prior"]["coupling"] == {"mean": -0.4, "deviation": 0.7}


@pytest.mark.parametrize("law", ["coupled-surface", "all-runs-frontier"])
def test_the_median_of_each_averaged_law_is_its_own_forecast(delphi, law):
    """Fitted alone, at the same size."""
    _, (_, ahead) = delphi
    assert ahead.by_law[law] == pytest.approx(forecast(fit(read_run_table(DELPHI), seed=3, law=law), flops=1e23).median)
    assert min(ahead.by_law.values()) < ahead.median < max(ahead.by_law.values())


def test_the_frontier_has_twice_the_weight_of_the_surface(delphi):
    """In the printed report, and in the median: medians of sums are close to sums of medians."""
    result, (_, ahead) = delphi
    printed = " ".join(forecast_text(result, [ahead]).split())
    assert re.search(r"coupled-surface 2\.\d{4} \(weight 33%\), all-runs-frontier 2\.\d{4} \(weight 67%\)", printed)
    weighted = (ahead.by_law["coupled-surface"] + 2 * ahead.by_law["all-runs-frontier"]) / 3
    assert ahead.median == pytest.approx(weighted, rel=0.001)


def test_laws_that_disagree_beyond_the_interval_lower_the_status(delphi):
    """One of the two medians is moved below its lower end."""
    result, (near, far) = delphi
    apart = replace(far, by_law={**far.by_law, "all-runs-frontier": far.interval()[0] - 0.01})
    assert forecast_document(result, [near, far])["status"] == FitStatus.USABLE.value
    document = forecast_document(result, [near, apart])
    assert document["status"] == FitStatus.LAWS_DISAGREE.value
    assert any("the laws disagree" in each and "1e23" in each for each in document["warnings"])


def test_an_optimum_far_from_every_run_is_not_usable_and_a_given_size_is_to_be_used_with_care(delphi):
    """The runs have 0.1 to 817 tokens per parameter: 8,000 is within ten times, 9,000 is not."""
    result, (near, _) = delphi
    within, beyond = (replace(near, tokens=ratio * near.active_params) for ratio in (8e3, 9e3))
    assert forecast_document(result, [within])["status"] == FitStatus.USABLE.value
    assert forecast_document(result, [beyond])["status"] == FitStatus.IMPLAUSIBLE.value
    assert forecast_document(result, [replace(within, optimal=False)])["status"] == FitStatus.USABLE.value
    assert forecast_document(result, [replace(beyond, optimal=False)])["status"] == FitStatus.FAR_SIZE.value


def test_a_sparsity_that_no_run_has_is_a_warning():
    """Runs with four times their active parameters, a target with eight times, and one with four."""
    table = simulate_ladder(SURFACE, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    runs = table.frame.assign(active_params=table.frame["params"], params=4 * table.frame["params"])
    result = fit(replace(table, frame=runs))
    same = forecast(result, flops=1e21)
    other = replace(same, params=2 * same.params)
    assert not any("total / active" in each for each in forecast_document(result, [same])["warnings"])
    assert any("are 8, those of the runs 4 to 4" in each for each in forecast_document(result, [other])["warnings"])


def test_a_forecast_beyond_the_reach_of_the_back_test_names_both_distances(delphi):
    """Delphi's back-test reaches 16.7x; 3.33x is within, 333x beyond, and the status stays as it is."""
    result, (near, far) = delphi
    tested = backtest_of_fit(result)
    within = forecast(result, flops=1e21)
    assert not any("back-test" in each for each in forecast_document(result, [within], tested=tested)["warnings"])
    document = forecast_document(result, [near, far], tested=tested)
    (found,) = [each for each in document["warnings"] if "back-test" in each]
    assert "333x" in found
    assert "16.7x" in found
    assert document["status"] == FitStatus.USABLE.value


def test_a_frontier_law_says_what_it_does_not_estimate():
    """Null with a note, in the document as in the text."""
    result = fit(read_run_table(DELPHI), law="isoflop-frontier")
    document = json.loads(dump_canonical(forecast_document(result, [forecast(result, flops=1e23)])))
    assert document["predictions"][0]["bands"]["form"] is None
    assert "not estimated" in document["predictions"][0]["band_notes"]["form"]
    assert document["prior"] is None
    assert "not estimated: form, shift" in forecast_text(result, [forecast(result, flops=1e23)])


def test_the_document_is_of_the_shape_that_a_preregistration_carries(delphi):
    """Checked by the same function that reads a forecast.json."""
    result, made = delphi
    stated = [sensitivity(result, each) for each in made]
    document = forecast_document(result, made, sensitivities=stated, tested=backtest_of_fit(result))
    check_document(json.loads(dump_canonical(document)), SUBJECTS["forecast.json"], name="forecast.json")


def test_the_back_test_and_its_doubts_stand_in_the_document():
    """What misses is among the warnings, with the scores by distance beside it."""
    table = read_run_table(DELPHI.parent / "bytes-moe")
    result, tested = fit(table), backtest(table)
    document = json.loads(dump_canonical(forecast_document(result, [forecast(result, flops=1e12)], tested=tested)))
    assert backtest_doubts(tested)[0] in document["warnings"]
    assert document["status"] == FitStatus.BACKTEST_MISSED.value
    assert result.status.value in document["warnings"], "the status of the fit is not lost behind a worse one"
    assert [row["count"] for row in document["backtest"]] == [4]
    assert "backtest" not in forecast_document(result, [])


def test_a_ladder_in_the_store_can_be_fitted_forecast_and_preregistered(tmp_path):
    """The whole road to a signed statement; a diverged rung is listed in it as left out."""
    store_ladder(tmp_path / "runs")
    diverged = run_spec(hidden_dim=48)
    store_run(tmp_path / "runs", spec=diverged, loss=None)
    table = read_run_table(tmp_path / "runs" / "tiny")
    result = fit(table)
    stated = forecast(result, flops=target_spec().flops)
    document = forecast_document(result, [stated], sensitivities=[sensitivity(result, stated)], tested=backtest(table))
    registration = make_registration(tmp_path, rows=result.rows, forecast=document)
    assert registration.statement.predicate["forecast"]["point"] == document["predictions"][0]["median"]
    assert registration.statement.predicate["fit"]["excluded"] == [{"run": diverged.digest, "why": "it diverged (status)"}]


def test_the_text_says_what_a_reader_must_know(delphi):
    """Runs, optima, free asymptote, interval, sizes, distance, status; apart from paths no line wider than 80 columns."""
    text = forecast_text(*delphi)
    for phrase in (
        "81 runs used, 0 left out",
        "optimum of each budget",
        "law: combined",
        "L = E + K * (w * (N / N0)^-a + (1 - w) * (D / D0)^-b)^g",
        "formula at the estimates above: 2.",
        "forecast at 1e23 FLOPs (333x the largest budget)",
        "90 % interval [",
        "tokens per parameter",
        "half-widths: noise ±",
        "by law: coupled-surface 2.",
        "status: Usable",
    ):
        assert phrase in text
    assert max(len(line.replace(str(DELPHI), "")) for line in text.splitlines()) <= TABLE_WIDTH


def test_more_than_three_runs_of_a_table_are_one_table_with_their_errors(delphi):
    """The name, the measured loss and its place in the interval; a summary counts the runs inside."""
    result, (near, _) = delphi
    runs = [replace(near, run=f"a-run-with-a-long-name-{n}", observed=near.median * (1 + 0.1 * n)) for n in range(4)]
    text = forecast_text(result, runs)
    assert "forecasts of 4 runs" in text
    assert "observed: 1 of 4 runs" in text
    assert "forecast at" not in text
    assert max(map(len, text.replace(str(DELPHI), "").splitlines())) <= TABLE_WIDTH
    document = forecast_document(result, runs[1:2])["predictions"][0]
    assert (document["run"], document["inside_90"]) == ("a-run-with-a-long-name-1", False)
    assert document["error"] == pytest.approx(1 / 1.1 - 1)


def test_a_given_size_is_compared_with_the_optimum_for_its_flops(delphi):
    """Half of N*: its forecast is above the optimum's, by the stated cost of half N*."""
    result, (near, _) = delphi
    half = forecast(result, flops=near.flops, params=near.params / 2, tokens=near.tokens * 2)
    document = forecast_document(result, [half])["predictions"][0]
    assert document["optimal_params"] == pytest.approx(near.params)
    assert document["above_optimum"] == pytest.approx(near.mis_sizing[0], rel=0.05)
    assert "the optimum for these FLOPs is N*" in " ".join(forecast_text(result, [half]).split())


def test_a_ladder_at_one_ratio_is_forecast_along_it():
    """Twenty tokens per parameter at ten times the largest run; no optimum is claimed, in the text or the document."""
    flops = [120 * params**2 for params in (1e8, 2e8, 4e8, 8e8, 1.6e9, 3.2e9)]
    table = simulate_ladder(SURFACE, budgets_flops=flops, sizes_per_budget=1, noise=0.001, seed=0)
    params = (table.frame["flops"] / 120) ** 0.5
    losses = SURFACE.E + SURFACE.A * params**-SURFACE.alpha + SURFACE.B * (20 * params) ** -SURFACE.beta
    result = fit(replace(table, frame=table.frame.assign(params=params, tokens=20 * params, loss=losses)))
    ahead = forecast(result, flops=10 * flops[-1])
    assert ahead.tokens_per_param == pytest.approx(20)
    assert (ahead.optimal, ahead.params_interval, ahead.mis_sizing) == (False, None, None)
    assert "N* is not identified" in " ".join(forecast_text(result, [ahead]).split())
    assert forecast_document(result, [ahead])["allocation"]["identified"] is False


def test_a_budget_without_an_optimum_is_named_with_the_reason():
    """Two sizes have no bowl; the law takes their runs all the same."""
    table = read_run_table(DELPHI)
    smallest = table.frame["budget_flops"].min()
    few = table.frame[table.frame["budget_flops"] == smallest].index[2:]
    text = forecast_text(fit(replace(table, frame=table.frame.drop(index=few))), [])
    assert "none at 3e18 (2 runs)" in text
    assert "none at" not in forecast_text(fit(table), [])


def test_what_was_left_out_is_listed_with_its_reason_and_renamed_columns_are_said(tmp_path):
    """Nothing disappears silently."""
    lines = [f"{6e18 * 3**n},{1e8},{1e10 * 3**n},{2 + 3.0**-n}," for n in range(6)]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["C,N,D,eval/loss,status", *lines, "1e19,1e8,1e10,nan,diverged"]) + "\n")
    text = forecast_text(fit(read_run_table(path)), [])
    assert "line 8: it diverged (status)" in text
    assert "columns: C as flops, N as params, D as tokens, eval/loss as loss" in text


def test_the_back_test_counts_forecasts_and_not_runs(delphi):
    """A run that is forecast from several budgets counts as often."""
    result, forecasts = delphi
    tested = backtest_of_fit(result)
    inside = sum(point.inside(0.05, 0.95) for point in tested.points)
    assert f"{inside} of {len(tested.points)} forecasts" in forecast_text(result, forecasts, tested)
    assert len({point.run for point in tested.points}) < len(tested.points)


@pytest.mark.parametrize("times", [0.25, 4])
def test_the_loss_of_a_given_size_is_compared_with_that_of_the_optimum(delphi, times):
    """At the same FLOPs: away from the optimum it is above."""
    result, (_, ahead) = delphi
    given = forecast(result, flops=ahead.flops, params=ahead.params * times, tokens=ahead.tokens / times)
    [above] = above_optimum(result, [given])
    assert above > 0
    assert f"{above:.2%} above that of N*" in " ".join(forecast_text(result, [given]).split())
