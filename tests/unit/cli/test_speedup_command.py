"""`marin-scale speedup`, as a person types it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import FitRefused, RunTableError, UsageError

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"

COMMAND = "from marin_scaling.cli import main; main()"


def marin_scale(*arguments):
    return CliRunner().invoke(app, ["speedup", *map(str, arguments)])


def delphi_rows() -> list[dict[str, str]]:
    with (DELPHI / "runs.csv").open() as lines:
        return list(csv.DictReader(lines))


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as lines:
        table = csv.DictWriter(lines, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


@pytest.fixture
def cheaper(tmp_path) -> Path:
    """Delphi's runs as if each had cost half."""
    rows = [row | {name: float(row[name]) / 2 for name in ("flops", "budget_flops")} for row in delphi_rows()]
    return write(tmp_path / "cheaper.csv", rows)


def test_the_same_runs_at_half_the_cost_are_twice_as_fast_at_every_budget(cheaper):
    """On real runs: each of the seven 90 % intervals holds 2, and all verdicts stand together."""
    done = marin_scale(DELPHI, cheaper, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["convention"], len(document["comparisons"])) == ("own", 7)
    for each in document["comparisons"]:
        low, high = each["model_flops"]["interval"]
        assert low < 2 < high
        assert each["model_flops"]["verdict_after_holm"] == "faster"
        assert each["wall_clock"] is None


@pytest.mark.parametrize("others", [1, 2])
def test_a_table_against_a_copy_of_itself_is_called_identical(tmp_path, others):
    """In another order too, in a comparison of two and in a chain."""
    copies = [write(tmp_path / f"copy{n}.csv", delphi_rows()[::-1]) for n in range(others)]
    document = json.loads(marin_scale(DELPHI, *copies, "--json").stdout)
    assert sum("identical" in each for each in document["warnings"]) == others * (others + 1) / 2


@pytest.mark.parametrize("column", ["evaluation", "flops_convention"])
def test_two_files_that_were_not_measured_alike_are_refused(tmp_path, column):
    """Their losses, or their FLOPs, are of two kinds, and the ratio would say which kind is smaller."""
    first, second = (
        write(tmp_path / f"{kind}.csv", [row | {column: f"{kind}{kind}11"} for row in delphi_rows()]) for kind in "ab"
    )
    done = marin_scale(first, second)
    assert isinstance(done.exception, RunTableError)
    assert "aa11" in done.exception.what
    assert "bb11" in done.exception.what


def test_half_of_the_runs_of_a_recipe_tie_with_all_of_them(tmp_path):
    """Every second run of Delphi against Delphi: seven ties, and the text counts them."""
    done = marin_scale(DELPHI, write(tmp_path / "half.csv", delphi_rows()[::2]))
    assert done.exit_code == 0, done.output
    assert done.stdout.count("  tie     tie") == 7
    assert "7 comparisons: at 90 % each, about 0.7 of them" in done.stdout
    assert "after Holm's correction for 7" in " ".join(done.stdout.split())
    assert "0 faster, 0 slower, 7 tie" in " ".join(done.stdout.split())
    assert "wall-clock time: not given, because column tokens_per_second" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_pinned_convention_is_never_the_default_and_says_what_it_pins(cheaper):
    """In text and in JSON."""
    plain, pinned = marin_scale(DELPHI, cheaper).stdout, marin_scale(DELPHI, cheaper, "--convention", "marin").stdout
    assert "E = 1.6" not in plain
    assert "with a free asymptote" in plain
    assert "E = 1.6 and alpha = 0.0941 are pinned as in Marin's issue 5596" in " ".join(pinned.split())
    document = json.loads(marin_scale(DELPHI, cheaper, "--convention", "marin", "--json").stdout)
    assert document["parameters"] == {"E": 1.6, "alpha": 0.0941}
    assert "pinned" in document["convention_label"]


def gate(path: Path, *, loss: float, rate: object, name: str = "tps") -> Path:
    """One run at one budget, as in Marin's gate; its size is made up."""
    run = {"run": "d512", "C": 3.82e17, "N": 2e7, "D": 3e9, "paloma_macro_loss": loss, name: rate}
    return write(path, [run])


def test_the_gate_of_issue_5596_comes_out_of_two_files(tmp_path):
    """Width 512: 1.31 in model FLOPs and 1.33 in wall-clock time were published (marin issue 5596)."""
    ours = gate(tmp_path / "adamh.csv", loss=3.8104, rate=405_630)
    theirs = gate(tmp_path / "muonh.csv", loss=3.7542, rate=405_630 * 1.01)
    done = marin_scale(ours, theirs, "--convention", "marin", "--json")
    (only,) = json.loads(done.stdout)["comparisons"]
    assert only["model_flops"]["speedup"] == pytest.approx(1.31, abs=0.005)
    assert only["wall_clock"]["speedup"] == pytest.approx(1.33, abs=0.005)
    text = marin_scale(ours, theirs, "--convention", "marin").stdout
    assert "effective speedup in wall-clock time" in text
    assert text.count("One comparison: ") == 2


def test_throughput_may_stand_under_another_name_or_be_empty(tmp_path):
    """--column names it; an empty cell means that nothing is said of time."""
    ours = gate(tmp_path / "a.csv", loss=3.81, rate=100, name="speed")
    theirs = gate(tmp_path / "b.csv", loss=3.75, rate="", name="speed")
    chosen = ("--convention", "marin", "--column", "tokens_per_second=speed")
    assert "not given, because no common budget" in marin_scale(ours, theirs, *chosen).stdout
    assert "effective speedup in wall-clock time" in marin_scale(ours, ours, *chosen).stdout


def test_a_run_store_can_be_a_side_of_it():
    """The ladder that this repository trained, against itself: ties, in FLOPs and in the time that its records hold."""
    store = DELPHI.parent / "quickstart"
    document = json.loads(marin_scale(store, store, "--json").stdout)
    for unit in ("model_flops", "wall_clock"):
        assert {each[unit]["verdict"] for each in document["comparisons"]} == {"tie"}


def test_three_tables_are_a_chain(cheaper):
    """Names come from `NAME=TABLE`, or from files and folders; stages multiply."""
    done = marin_scale(DELPHI, f"half={cheaper}", DELPHI, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert [each["name"] for each in document["recipes"]] == ["delphi", "half", "delphi (2)"]
    first, second = (each["model_flops"]["speedup"] for each in document["stages"])
    assert first == pytest.approx(2, rel=0.01)
    assert first * second == pytest.approx(document["cumulative"][-1]["model_flops"]["speedup"])
    text = marin_scale(DELPHI, f"half={cheaper}", DELPHI, "--at", "1e20").stdout
    assert "delphi -> half" in text
    assert "1e20 FLOPs" in text
    assert max(map(len, text.splitlines())) <= 100


def test_dense_models_and_mixtures_of_experts_compare_in_time_and_in_converted_flops():
    """Their FLOP conventions differ; run stores hold speeds and the output head's FLOPs."""
    runs = DELPHI.parent
    done = marin_scale(runs / "bytes-dense", runs / "bytes-moe", "--json")
    assert done.exit_code == 0, done.output
    (stage,) = json.loads(done.stdout)["stages"]
    assert stage["wall_clock"]["verdict"] == "slower"
    assert 0 < stage["model_flops"]["speedup"] < 2


def test_a_chain_without_a_common_metric_is_refused_with_every_metric():
    """One error, no traceback, and nothing on standard output."""
    done = marin_scale(DELPHI, DELPHI.parent / "quickstart", DELPHI.parent / "bytes-moe")
    assert isinstance(done.exception, RunTableError)
    assert done.stdout == ""
    for fact in ("paloma_macro_loss_nats", "bits_per_byte", "quickstart", "bytes-moe"):
        assert fact in done.exception.what


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--convention", "pinned"], UsageError, "convention 'pinned'"),
        (["--column", "loss"], UsageError, "--column 'loss'"),
        (["--column", "tokens_per_second=speed"], RunTableError, "has no column 'speed'"),
    ],
)
def test_bad_options_are_refused_with_a_reason(arguments, error, message):
    """Errors that the entry point prints without a traceback."""
    done = marin_scale(DELPHI, DELPHI, *arguments)
    assert isinstance(done.exception, error)
    assert message in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(("rate", "said"), [("fast", "'fast'"), ("-3", "-3"), ("inf", "inf")])
def test_a_throughput_that_is_no_number_is_an_error_with_its_place(tmp_path, rate, said):
    """File, line and column."""
    path = gate(tmp_path / "a.csv", loss=3.8, rate=rate)
    done = marin_scale(path, path, "--convention", "marin")
    assert isinstance(done.exception, RunTableError)
    assert f"{path}, line 2, column 'tps' holds {said}" in str(done.exception)


def test_a_baseline_without_a_law_is_told_of_the_other_convention(tmp_path):
    """One budget carries no law of its own."""
    path = gate(tmp_path / "a.csv", loss=3.8, rate=5)
    done = marin_scale(path, path)
    assert isinstance(done.exception, FitRefused)
    assert "--convention marin" in done.exception.fix


def test_the_entry_point_prints_bad_input_in_three_lines_and_exits_with_2(tmp_path):
    """What, why and how to go on, on standard error; no traceback."""
    path = gate(tmp_path / "a.csv", loss=3.8, rate=5)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "speedup", str(path), str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert [line.split(":")[0].strip() for line in rest] == ["why", "fix"]
