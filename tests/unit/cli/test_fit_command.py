"""`marin-scale fit`, as a person types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import FitRefused, MarinScalingError, RunTableError, UsageError

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


def marin_scale(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_delphi_ladder_is_fitted_and_forecast_in_one_command():
    """What a newcomer types; the measured loss at 1e23 is 2.3546."""
    result = marin_scale("fit", DELPHI, "--predict", "1e23")
    assert result.exit_code == 0
    assert "forecast at 1e23 FLOPs (333x the largest budget)" in result.stdout


def test_json_is_all_that_is_printed_when_asked():
    """One document; each --predict is one prediction, in order."""
    result = marin_scale("fit", DELPHI, "--predict", "1e22", "--predict", "1e23", "--json", "--seed", "4")
    document = json.loads(result.stdout)
    assert [prediction["flops"] for prediction in document["predictions"]] == [1e22, 1e23]
    assert document["seed"] == 4
    quantiles = document["predictions"][1]["quantiles"]
    assert quantiles["0.05"] < 2.3546 < quantiles["0.95"]


def test_a_figure_is_drawn_beside_the_text(tmp_path):
    """And its place is said."""
    result = marin_scale("fit", DELPHI, "--predict", "1e23", "--plot", tmp_path / "law.svg")
    assert f"{tmp_path / 'law.svg'}" in result.stdout
    assert (tmp_path / "law.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--predict", "large"], UsageError, "'large' is not a"),
        (["--column", "loss"], UsageError, "--column 'loss'"),
        (["--column", "loss=missing"], RunTableError, "has no column 'missing'"),
        (["--column", "loss=loss", "--column", "loss=flops"], UsageError, "'loss' is already 'loss'"),
        (["--column", "loss=params", "--column", "params=params"], RunTableError, "'params' is taken for loss and for params"),
        (["--column", "weight=loss"], RunTableError, "'weight' is no column of a run table"),
        (["--law", "chinchilla"], UsageError, "law 'chinchilla'"),
        (["--plot", "law.bmp"], UsageError, "'.bmp'"),
        (["--predict", "1e200"], FitRefused, "no forecast at 1e200 FLOPs"),
    ],
)
def test_bad_options_are_refused_with_a_reason(arguments, error, message):
    """Errors that the entry point prints without a traceback."""
    result = marin_scale("fit", DELPHI, *arguments)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert isinstance(result.exception, MarinScalingError)
    assert result.stdout == ""


def test_the_entry_point_prints_bad_input_in_three_lines_and_exits_with_2(tmp_path):
    """What, why and how to go on, on standard error; no traceback."""
    table = tmp_path / "runs.csv"
    table.write_text("flops,params,tokens,loss\n1e18,1e8,1e9,oops\n")
    code = "from marin_scaling.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "fit", str(table)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first == f"error: {table}, line 2, column 'loss' holds 'oops', which is not a number."
    assert [line.split(":")[0].strip() for line in rest] == ["why", "fix"]


def test_a_forecast_loads_neither_jax_nor_altair_nor_lmfit():
    """They take seconds to start, and a forecast does not need them."""
    code = (
        "import sys; from typer.testing import CliRunner; from marin_scaling.cli.app import app; "
        f"assert CliRunner().invoke(app, ['fit', {str(DELPHI)!r}, '--predict', '1e23']).exit_code == 0; "
        "print(sorted({'jax', 'levanter', 'altair', 'lmfit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
