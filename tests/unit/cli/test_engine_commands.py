"""The forecasting commands as a person types them: what is printed, what a program reads, what bad input gets.

The numbers themselves are tested with the modules.
"""

import csv
import json
import re
from dataclasses import asdict

import pytest
from command_line import assert_refused, listing, marin_scale

from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.law import LAWS
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
COLUMNS = ("run", "flops", "params", "tokens", "loss")


def write_rows(path, rows, columns):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def written(path, *, sweep=1, budgets=(1e19, 3e19, 1e20)):
    """A simulated ladder of four sizes a budget; `sweep` runs of each, all but one of them worse by 5 % and more."""
    frame = simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=4, noise=0.002, seed=0).frame
    rows = [
        {**row, "run": f"{row['run']}-{step}", "loss": row["loss"] * (1 + 0.05 * step)}
        for row in frame[list(COLUMNS)].to_dict("records")
        for step in range(sweep)
    ]
    write_rows(path, rows, COLUMNS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables to fit and to forecast; no command may add to them."""
    root = tmp_path_factory.mktemp("tables")
    written(root / "runs.csv")
    written(root / "swept.csv", sweep=4)
    written(root / "four-budgets.csv", budgets=(1e18, 3e18, 1e19, 1e20))
    written(root / "one-budget.csv", budgets=(1e18,))
    (root / "targets.csv").write_text("run,params,tokens,flops\na,1e9,2e10,\nb,3e9,6e10,\nc,,,1e21\n")
    (root / "bad-targets.csv").write_text("params,tokens\n1e9,2e10\n1e9,many\n")
    return root


@pytest.fixture(scope="module")
def document(folder):
    """What `--json` prints of a fit and three forecasts."""
    return json.loads(printed(folder, "fit", "runs.csv", "--predict-runs", "targets.csv", "--sensitivity", "--json"))


def printed(folder, *arguments):
    """Standard output of a command that went well."""
    done = marin_scale(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_a_table_of_runs_is_forecast_row_by_row(document):
    """Three rows, three predictions in their order, each with quantiles, bands, size and distance, and FLOPs if need be."""
    first, second, third = document["predictions"]
    assert (first["params"], second["tokens"], third["flops"]) == (1e9, 6e10, 1e21)
    assert first["flops"] == pytest.approx(6 * 1e9 * 2e10, rel=1e-6)
    assert (first["optimal"], third["optimal"]) == (False, True)
    for prediction in document["predictions"]:
        assert len(prediction["quantiles"]) == 23
        assert prediction["quantiles"]["0.5"] == prediction["median"]
        assert set(prediction["bands"]) == set(prediction["band_notes"]) == {"noise", "sampling", "form", "shift"}
        assert all(half > 0 for half in prediction["bands"].values())
        assert prediction["extrapolation"] == pytest.approx(prediction["flops"] / 1e20)
    assert set(third["mis_sizing"]) == {"half", "double"}
    assert third["params_interval"][0] < third["params"] < third["params_interval"][1]


def test_the_document_says_which_law_which_prior_and_whether_it_may_be_used(document):
    """All that a checker needs beside the predictions."""
    assert document["law"].startswith("combined: (L * F^2)^(1/3); L = E + K")
    assert document["may_be_used"] is True
    assert document["status"].startswith(("Usable", "Use with care"))
    assert document["runs_used"] == 12
    assert set(document["parameter_intervals"]) == {"E", "K", "w", "a", "b", "g", "gamma", "E_f", "K_f", "gamma_f"}
    assert document["prior"]["coupling"] == asdict(Prior().coupling)


def test_sensitivity_is_printed_below_the_forecast_and_stands_in_its_document(folder, document):
    """Text and JSON have the same rows, each with a number or the reason why there is none."""
    text = " ".join(printed(folder, "fit", "runs.csv", "--predict", "1e21", "--sensitivity").split())
    assert text.index("forecast at 1e21 FLOPs") < text.index("sensitivity of the forecast")
    prediction = document["predictions"][2]
    assert prediction["sensitivity"][0]["median"] == prediction["median"]
    assert len(prediction["sensitivity"]) > 5
    for row in prediction["sensitivity"]:
        assert row["choice"] in text
        assert (row["why_none"] if row["median"] is None else f"{row['median']:.4f}") in text


def test_the_law_that_was_asked_for_is_fitted_and_named(folder):
    """With its numbers, and a forecast in an interval."""
    text = printed(folder, "fit", "four-budgets.csv", "--law", "isoflop-frontier", "--predict", "1e21")
    assert "law: isoflop-frontier" in text
    assert "loss = " in text
    assert "forecast at 1e21 FLOPs (10x the largest budget)" in text
    assert "90 % interval [" in text


def test_of_a_sweep_the_best_runs_are_fitted_and_the_others_listed_unless_all_are_wanted(folder):
    """Of 48 runs 12, the best of every four; with --swept all none is left out."""
    best = json.loads(printed(folder, "fit", "swept.csv", "--json"))
    whole = json.loads(printed(folder, "fit", "swept.csv", "--swept", "all", "--json"))
    assert (best["runs_used"], len(best["excluded"])) == (12, 36)
    assert (whole["runs_used"], whole["excluded"]) == (48, [])
    assert all(each["why"].startswith("swept: ") for each in best["excluded"])


def test_a_back_test_is_a_table_by_distance_and_a_document_with_every_run(folder):
    """Four budgets: the runs of the fourth from those of three."""
    text = printed(folder, "backtest", "four-budgets.csv")
    assert text.startswith("four-budgets.csv: each budget forecast from the smaller ones")
    assert "in 90 %" in text
    document = json.loads(printed(folder, "backtest", "four-budgets.csv", "--json"))
    assert len(document["points"]) == 4
    assert [row["count"] for row in document["by_distance"]] == [4]
    assert {"cut_flops", "run", "flops", "extrapolation", "observed", "quantiles", "crps"} == set(document["points"][0])
    assert document["refused"] == []


def test_advice_names_runs_their_cost_and_the_expected_width(folder):
    """For a target that is named, within the allowance; nothing is trained or written."""
    before = listing(folder)
    text = printed(folder, "advise", "runs.csv", "--budget", "5e20", "--target", "1e22")
    assert text.startswith("target 1e22 FLOPs: 90 % interval ")
    assert "5e20 FLOPs allowed" in text
    assert "expected width with it" in text
    assert "together " in text
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("fit", "runs.csv", "--predict-runs", "bad-targets.csv"), ("bad-targets.csv, line 3, column 'tokens' holds 'many'",)),
        (("fit", "runs.csv", "--swept", "some"), ("swept runs 'some'", "best, all")),
        (
            ("fit", "four-budgets.csv", "--law", "isoflop-frontier", "--predict-runs", "targets.csv"),
            ("does not know a run of",),
        ),
        (("fit", "one-budget.csv", "--predict", "1e20"), ("all 4 runs cost about 1e18 FLOPs",)),
        (("backtest", "four-budgets.csv", "--law", "kaplan"), ("'kaplan'",)),
        (("advise", "runs.csv", "--budget", "1e20"), ("names no target", "--target FLOPS")),
        (("advise", "runs.csv", "--budget", "1e10", "--target", "1e22"), ("1e10 FLOPs pay for no run",)),
        (("advise", "runs.csv", "--budget", "much", "--target", "1e22"), ("'much' is not a",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) and value[0] in ("fit", "backtest", "ladder") else "",
)
def test_bad_input_is_refused_with_what_why_and_fix(folder, arguments, fragments):
    """Status 2, nothing on standard output, no traceback, nothing written."""
    before = listing(folder)
    assert_refused(marin_scale(*arguments, cwd=folder), *fragments)
    assert listing(folder) == before


@pytest.mark.parametrize("command", ["fit", "backtest"])
def test_the_help_of_law_names_every_law(command, tmp_path):
    """It is written out, because the help is to start without what fits them."""
    shown = re.sub(r"\s+", "", marin_scale(command, "--help", cwd=tmp_path).stdout)
    assert all(law in shown for law in LAWS)
