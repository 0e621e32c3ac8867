"""`marin-scale downstream`, as a person types it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import FitRefused, RunTableError, UsageError
from marin_scaling.forecast.accuracy_curve import sigmoid_accuracy
from marin_scaling.forecast.forecast import LEVELS
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)


def scored(soft: np.ndarray, *, seed: int = 0) -> np.ndarray:
    truth = sigmoid_accuracy(soft, low=0.25, high=0.9, slope=4.0, middle=2.6)
    return np.clip(truth + np.random.default_rng(seed).normal(0, 0.01, len(soft)), 0, 1)


def frame() -> pd.DataFrame:
    table = simulate_ladder(SURFACE, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=6, noise=0.002, seed=0).frame
    return table.rename(columns={"loss": "arc_bpb"}).assign(arc=scored(table["loss"].to_numpy()))


@pytest.fixture
def table(tmp_path) -> Path:
    return write(tmp_path / "runs.csv", frame())


def write(path: Path, cells: pd.DataFrame) -> Path:
    cells.to_csv(path, index=False)
    return path


def marin_scale(table, *arguments, soft="arc_bpb", metric="arc", predict="1e21"):
    words = ["downstream", table, "--soft", soft, "--metric", metric, "--predict", predict, *arguments]
    return CliRunner().invoke(app, list(map(str, words)))


def document(*arguments, **columns):
    done = marin_scale(*arguments, "--json", **columns)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_prints_both_steps_and_an_interval_that_holds_what_the_laws_give(table):
    """The known surface has 2.333 at 1e21, and the known curve 0.734 there."""
    done = marin_scale(table, "--chance", "0.25")
    assert done.exit_code == 0, done.output
    for said in (
        "step one: arc_bpb against compute",
        "step two: arc against arc_bpb",
        "pinned at chance",
        "half-widths: soft metric",
    ):
        assert said in done.stdout
    low, high = map(float, done.stdout.split("  arc 0")[1].split("[")[1].split("]")[0].split(","))
    assert low < 0.734 < high


def test_the_document_has_23_quantiles_and_both_steps(table):
    """Every number is finite: the writer refuses others."""
    found = document(table, "--chance", "0.25", "--questions", "2000")
    (prediction,) = found["predictions"]
    assert list(prediction["quantiles"]) == [f"{level:g}" for level in LEVELS]
    assert set(prediction["bands"]) == {"soft metric", "sigmoid", "form", "residual"}
    assert (found["metric"], found["soft_metric"], found["curve"]["questions"]) == ("arc", "arc_bpb", 2000)
    assert found["law"]["predictions"][0]["flops"] == prediction["flops"] == 1e21


def test_the_runs_of_a_table_are_forecast_at_their_own_sizes(table, tmp_path):
    """Two over-trained runs with names, and no run at all."""
    targets = write(tmp_path / "targets.csv", pd.DataFrame({"run": ["a", "b"], "params": [7e8, 1e9], "tokens": [2e11, 2e11]}))
    words = ["downstream", table, "--soft", "arc_bpb", "--metric", "arc", "--chance", "0.25"]
    done = CliRunner().invoke(app, list(map(str, [*words, "--predict-runs", targets, "--json"])))
    assert done.exit_code == 0, done.output
    predictions = json.loads(done.stdout)["predictions"]
    assert [(each["run"], each["params"], each["tokens"]) for each in predictions] == [("a", 7e8, 2e11), ("b", 1e9, 2e11)]
    assert predictions[0]["median"] < predictions[1]["median"]
    with pytest.raises(UsageError, match="--predict"):
        CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def test_rows_without_an_accuracy_are_used_in_step_one_only_and_that_is_said(table):
    """Five of eighteen."""
    cells = frame()
    cells.loc[:4, "arc"] = np.nan
    found = document(write(table, cells), "--chance", "0.25")
    assert (found["law"]["runs_used"], found["curve"]["runs"]) == (18, 13)
    assert any("5 of 18 runs have no arc" in each for each in found["warnings"])


def test_a_pool_needs_no_compute_and_runs_that_stand_in_both_count_once(table, tmp_path):
    """Ten others, and the ladder's own, beside rows of other benchmarks."""
    soft = np.linspace(2.0, 3.0, 10)
    others = pd.DataFrame({"arc_bpb": soft, "arc": scored(soft, seed=1)})
    pool = write(tmp_path / "pool.csv", pd.concat([frame()[["arc_bpb", "arc"]], others, pd.DataFrame({"arc_bpb": [1.9]})]))
    found = document(table, "--pool", pool, "--chance", "0.25")
    assert (found["law"]["runs_used"], found["curve"]["runs"]) == (18, 28)
    assert any("18 runs are in both tables" in each for each in found["warnings"])
    assert any("1 of 29 runs have no arc" in each for each in found["warnings"])


def test_accuracies_belong_to_their_runs_in_any_order_without_names_and_with_runs_dropped(table):
    """Line numbers stand for the names; one run is diverged, and takes its accuracy with it."""
    cells = frame().drop(columns="run").assign(status="finished")
    cells.loc[3, ["status", "arc"]] = "diverged", 0.99
    turned = cells.iloc[::-1]
    first, second = (document(write(table, each), "--chance", "0.25") for each in (cells, turned))
    assert first["curve"]["runs"] == second["curve"]["runs"] == 17
    assert first["curve"]["parameters"] == pytest.approx(second["curve"]["parameters"], rel=1e-6)
    assert first["curve"]["r_squared"] > 0.95


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_parquet_and_json_lines_say_the_same_as_csv(table, tmp_path, suffix):
    """An empty cell is null there."""
    cells = frame()
    cells.loc[0, "arc"] = np.nan
    path = tmp_path / f"runs{suffix}"
    cells.to_parquet(path) if suffix == ".parquet" else cells.to_json(path, orient="records", lines=True, double_precision=15)
    csv = document(write(table, cells), "--chance", "0.25")
    assert document(path, "--chance", "0.25")["curve"]["parameters"] == pytest.approx(csv["curve"]["parameters"], rel=1e-6)


@pytest.mark.parametrize(
    ("place", "cell", "said"),
    [
        ("arc", 63.2, "line 2, column 'arc' holds 63.2"),
        ("arc", "good", "line 2, column 'arc' holds 'good', which is not a number"),
        ("arc", "inf", "line 2, column 'arc' holds inf"),
        ("arc_bpb", -2.0, "line 2, column 'arc_bpb' holds -2; it must be above zero"),
    ],
)
def test_a_cell_that_is_no_such_number_is_named(table, place, cell, said):
    """File, line, column, and what stands there."""
    cells = frame().astype({place: object})
    cells.loc[0, place] = cell
    refusal = marin_scale(write(table, cells)).exception
    assert isinstance(refusal, RunTableError)
    assert said in refusal.what
    assert refusal.fix


@pytest.mark.parametrize(
    ("arguments", "columns", "error", "said"),
    [
        ((), {"metric": "mmlu"}, RunTableError, "has no column 'mmlu'; it has: run, flops"),
        ((), {"soft": "mmlu_bpb"}, RunTableError, "has no column 'mmlu_bpb'"),
        (("--chance", "25"), {}, UsageError, "25 is not an accuracy"),
        (("--column", "loss=arc_bpb"), {}, UsageError, "arc_bpb"),
        ((), {"predict": "much"}, UsageError, "'much' is not a"),
        ((), {"predict": "1e60"}, FitRefused, "no forecast at 1e60 FLOPs"),
    ],
)
def test_what_cannot_be_meant_is_refused(table, arguments, columns, error, said):
    """Columns that are not there, impossible chance, a budget beyond all measure."""
    refusal = marin_scale(table, *arguments, **columns).exception
    assert isinstance(refusal, error)
    assert said in refusal.what


def test_two_rows_of_one_name_with_other_accuracies_are_refused(table):
    """Which of them belongs to the run cannot be told."""
    cells = frame()
    twin = cells.iloc[[0]].assign(arc=0.9)
    refusal = marin_scale(write(table, pd.concat([cells, twin]))).exception
    assert isinstance(refusal, RunTableError)
    assert "rows named 'simulated-0'" in refusal.what


def test_noise_in_place_of_accuracies_is_refused(table):
    """Guesses between 0.2 and 0.3."""
    cells = frame().assign(arc=np.random.default_rng(0).uniform(0.2, 0.3, 18))
    refusal = marin_scale(write(table, cells), "--chance", "0.25").exception
    assert isinstance(refusal, FitRefused)
    assert "does not rise steadily" in refusal.what


def test_a_run_store_is_refused_because_it_holds_no_benchmark(tmp_path):
    """Its folder has no runs.csv."""
    (tmp_path / "store").mkdir()
    assert marin_scale(tmp_path / "store").exception.fix
