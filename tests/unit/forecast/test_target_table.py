"""Tables of runs to forecast: what is read, what is refused with its place, what they become."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import RunTableError, StorageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast, forecast_runs, optimal_target
from marin_scaling.forecast.targets import WantedRun, target_runs
from marin_scaling.forecast.targets import read_targets as read_targets_like
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)


TABLE = simulate_ladder(SURFACE, budgets_flops=(1e18, 3e18, 1e19, 3e19, 1e20), sizes_per_budget=6, noise=0.002, seed=0)


@pytest.fixture(scope="module")
def result():
    return fit(TABLE)


def read_targets(path, **reading):
    """Read targets as a table that was read with these names and units."""
    return read_targets_like(path, like=replace(TABLE, **reading))


def written(folder, text, name="targets.csv"):
    (folder / name).write_text(text)
    return folder / name


def test_params_and_tokens_of_each_row_are_read_under_the_names_that_others_give(tmp_path):
    """N and D, or our own names, with the run's name, or its place in the file, and its measured loss."""
    ours = read_targets(written(tmp_path, "run,params,tokens,loss\na,1e9,2e10,2.5\nb,3e9,6e10,\n"))
    theirs = read_targets(written(tmp_path, "N,D\n1e9,2e10\n3000000000,6e10\n"))
    assert ours == (WantedRun(params=1e9, tokens=2e10, run="a", loss=2.5), WantedRun(params=3e9, tokens=6e10, run="b"))
    assert theirs == (WantedRun(params=1e9, tokens=2e10, run="line 2"), WantedRun(params=3e9, tokens=6e10, run="line 3"))


def test_names_and_units_are_those_of_the_fitted_table(tmp_path):
    """Columns that no alias knows, parameters in millions and perplexities, as the user stated for the runs."""
    mapping = {"params": "weights", "tokens": "seen", "loss": "score", "flops": "cost"}
    path = written(tmp_path, "weights,seen,score\n1000,2e10,12\n")
    (run,) = read_targets(path, column_mapping=mapping, units={"params": "millions", "loss": "perplexity"})
    assert (run.params, run.tokens, run.loss) == (1e9, 2e10, pytest.approx(np.log(12)))


def test_units_in_names_of_columns_are_read(tmp_path):
    """Sizes in billions and trillions; FLOPs in GFLOPs."""
    mapping = {"params": "params_B", "tokens": "tokens_T"}
    (run,) = read_targets(written(tmp_path, "params_B,tokens_T\n7,1.4\n"), column_mapping=mapping)
    assert (run.params, run.tokens) == (7e9, 1.4e12)
    (run,) = read_targets(written(tmp_path, "total_gflops\n1e12\n"))
    assert run.flops == 1e21


def test_a_loss_of_another_metric_is_not_compared(tmp_path):
    """Bits per byte are no nats per token."""
    text = "params,tokens,eval/bpb\n1e9,2e10,0.9\n"
    assert read_targets(written(tmp_path, text), metric="paloma_macro_loss_nats")[0].loss is None
    assert read_targets(written(tmp_path, text), metric="bits_per_byte")[0].loss == 0.9


def test_a_size_that_no_run_has_is_refused_with_its_place(tmp_path):
    """Parameters in billions under a name that does not say so."""
    with pytest.raises(RunTableError, match=r"line 2.* 7 parameters and 1\.4 tokens"):
        read_targets(written(tmp_path, "params,tokens\n7,1.4\n"))


def test_flops_and_one_size_give_the_other(result, tmp_path):
    """C = 6 N D in this table; the row is not taken for the compute-optimal run of its FLOPs."""
    targets = target_runs(result, read_targets(written(tmp_path, "flops,params,tokens\n1.2e20,1e9,\n1.2e20,,2e10\n")))
    for each in targets:
        assert (each.params, each.tokens) == (pytest.approx(1e9), pytest.approx(2e10))


def test_a_measured_loss_comes_with_its_error_and_place_in_the_interval(result):
    """In the forecast and its row; a run without one has none."""
    runs = (WantedRun(params=1e9, tokens=2e10, run="a", loss=1.0), WantedRun(params=1e9, tokens=2e10))
    wanted = runs
    known, unknown = forecast_runs(result, target_runs(result, wanted))
    assert (known.run, known.observed, known.inside_90) == ("a", 1.0, False)
    assert known.error == pytest.approx(known.median - 1)
    assert known.row["error"] == known.error
    assert (unknown.error, unknown.inside_90) == (None, None)
    assert "observed" not in unknown.row


def test_csv_parquet_and_json_lines_are_read_alike(tmp_path):
    """Values with types, and absent ones, as well as text."""
    frame = pd.DataFrame({"flops": [1e21, None], "params": [None, 1e9], "tokens": [None, 2e10]})
    frame.to_parquet(tmp_path / "targets.parquet")
    rows = [{"flops": 1e21}, {"params": 1e9, "tokens": 2e10}]
    files = [
        tmp_path / "targets.parquet",
        written(tmp_path, "flops,params,tokens\n1e21,,\n,1e9,2e10\n"),
        written(tmp_path, "\n".join(map(json.dumps, rows)), "targets.jsonl"),
    ]
    read = [read_targets(file) for file in files]
    numbers = [[replace(run, run="") for run in each] for each in read]
    assert numbers[0] == numbers[1] == numbers[2]
    assert [each.flops for each in read[0]] == [1e21, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("params,loss\n1e9,2\n", "has the columns params, loss: neither params and tokens nor flops"),
        ("params,tokens\n1e9,2e10\n1e9,\n", "line 3 has neither params and tokens nor flops"),
        ("params,tokens\n1e9,many\n", "line 2, column 'tokens' holds 'many', which is not a number"),
        ("N,D\n1e9,2e10\n-1e9,2e10\n", "line 3, column 'N' holds -1e9; it must be above zero"),
        ("flops\n1e21\ninf\n", "line 3, column 'flops' holds inf"),
        ("flops\n0\n", "line 2, column 'flops' holds 0; it must be above zero"),
        ("flops,params,tokens\n1e21,1e9,2e10\nx,1e9,2e10\n", "line 3, column 'flops' holds 'x', which is not a number"),
        ("params,tokens,active_params\n1e9,2e10,none\n", "line 2, column 'active_params' holds 'none'"),
        ("params,tokens\n1e9,5_0\n", "line 2, column 'tokens' holds '5_0', which is not a number"),
        ("params,tokens\n", "holds no runs"),
        ("", "is empty"),
        ("params,N,params\n1,2,3\n", "two columns are named 'params'"),
        ("N,parameters,tokens\n1,2,3\n", "'N' and 'parameters' could each be the column 'params'"),
    ],
)
def test_what_is_no_run_to_forecast_is_refused_with_its_place(tmp_path, text, message):
    """File, line and column, and what would do."""
    path = written(tmp_path, text)
    with pytest.raises(RunTableError) as refusal:
        read_targets(path)
    assert str(path) in refusal.value.what
    assert message in refusal.value.what
    assert refusal.value.fix


def test_a_missing_file_is_refused_as_such(tmp_path):
    """Not as an empty one."""
    with pytest.raises(StorageError, match=r"nosuch\.csv"):
        read_targets(tmp_path / "nosuch.csv")


def test_a_row_of_flops_alone_is_the_compute_optimal_run_of_that_budget(result, tmp_path):
    """The same forecast as of that budget."""
    targets = target_runs(result, read_targets(written(tmp_path, "flops\n1e21\n1e22\n")))
    assert [replace(each, run="") for each in targets] == [optimal_target(result, 1e21), optimal_target(result, 1e22)]
    assert forecast_runs(result, targets)[0].quantiles == forecast(result, flops=1e21).quantiles


def test_sizes_without_flops_cost_what_such_runs_cost_in_the_fitted_table(result, tmp_path):
    """6 N D here; FLOPs that are given are kept."""
    text = "params,tokens,flops\n1e9,2e10,\n1e9,2e10,1.3e20\n"
    first, second = target_runs(result, read_targets(written(tmp_path, text)))
    assert first.flops == pytest.approx(6 * 1e9 * 2e10)
    assert second.flops == 1.3e20
    assert (first.params, first.tokens, first.active_params) == (1e9, 2e10, 1e9)


def test_sparse_runs_cost_by_their_active_parameters(tmp_path):
    """A table with active_params: the target's total parameters are kept beside them."""
    runs = simulate_ladder(SURFACE, budgets_flops=(1e18, 1e19, 1e20), sizes_per_budget=4, noise=0.002, seed=0)
    sparse = fit(replace(runs, frame=runs.frame.assign(active_params=runs.frame["params"], params=8 * runs.frame["params"])))
    text = "params,tokens,active_params\n8e9,2e10,1e9\n"
    (target,) = target_runs(sparse, read_targets(written(tmp_path, text)))
    assert (target.params, target.active_params) == (8e9, 1e9)
    assert target.flops == pytest.approx(6 * 1e9 * 2e10)


def test_every_row_is_forecast_in_its_order(result, tmp_path):
    """Larger runs of one ratio have lower losses; a row twice has the same forecast twice."""
    targets = target_runs(result, read_targets(written(tmp_path, "params,tokens\n1e9,2e10\n4e9,8e10\n1e9,2e10\n")))
    found = forecast_runs(result, targets)
    assert [each.params for each in found] == [1e9, 4e9, 1e9]
    assert found[0].median > found[1].median
    assert found[0].quantiles == found[2].quantiles


def test_sizes_for_a_law_of_sparse_models_need_active_parameters():
    """FLOPs follow from the parameters that a token passes; a total alone would be taken for them."""
    dense = simulate_ladder(SURFACE, budgets_flops=(1e18, 3e18, 1e19, 3e19), sizes_per_budget=6, noise=0.002, seed=0)
    frame = dense.frame.assign(active_params=dense.frame["params"])
    sparse = fit(replace(dense, frame=frame.assign(params=8 * frame["params"])))
    total = WantedRun(flops=None, params=8e9, tokens=2e10, active_params=None)
    with pytest.raises(RunTableError, match="active_params"):
        target_runs(sparse, [total])
    assert target_runs(sparse, [replace(total, active_params=1e9)])
