"""A new law is one module and one entry in `LAWS`: fit, forecast, report, sensitivity, back-test and figure then take it."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from marin_scaling import fit
from marin_scaling.cli.app import app
from marin_scaling.errors import UsageError
from marin_scaling.fitting.fit import FitResult
from marin_scaling.fitting.law import LAWS, Law, LawKind, LossDraws
from marin_scaling.fitting.optima import all_runs_drawn, allocation_of_best_runs

RUNS = Path(__file__).parents[2] / "runs" / "quickstart"


@dataclass(frozen=True, kw_only=True)
class LogLine(Law):
    """log L = a + b log C, with normal noise."""

    a: float
    b: float
    noise: float
    name: str = "log-line"
    formula: str = "a * C^b"

    @property
    def parameters(self):
        return {"a": float(np.exp(self.a)), "b": self.b}

    def draws(self, targets, *, seed):
        middle = np.exp(self.a + self.b * np.log(targets.flops))
        noise = middle * self.noise * np.random.default_rng(seed).standard_normal((1000, 1))
        return LossDraws(losses=middle + noise, causes={"noise": noise})


def fit_log_line(table, *, kind, seed, prior):
    drawn = all_runs_drawn(table.frame)
    x, y = np.log(drawn.column("flops")), np.log(drawn.column("loss"))
    b, a = np.polyfit(x, y, 1)
    law = LogLine(a=float(a), b=float(b), noise=float(np.std(y - a - b * x)) + 1e-6)
    allocation = allocation_of_best_runs(drawn, source=table.source)
    return FitResult.of(
        table, law, kind=kind, seed=seed, prior=prior, drawn=drawn, allocation=allocation, applies={}, why="as asked"
    )


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(LAWS, "log-line", LawKind(name="log-line", about="a straight line", fit=fit_log_line))


def command(*arguments):
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_command_line_fits_and_forecasts_by_the_law(registered):
    """Estimates, quantiles and status in the JSON document."""
    document = json.loads(command("fit", RUNS, "--law", "log-line", "--predict", "2.5e12", "--sensitivity", "--json"))
    (ahead,) = document["predictions"]
    assert document["law"] == "log-line: a * C^b"
    assert ahead["quantiles"]["0.05"] < ahead["median"] < ahead["quantiles"]["0.95"]
    assert ahead["bands"]["form"] is None
    choices = {row["choice"]: row["median"] for row in ahead["sensitivity"]}
    assert choices["log-line, as forecast"] == ahead["median"]
    assert choices["combined"] != ahead["median"]


def test_the_report_and_the_back_test_print_the_law(registered, tmp_path):
    """Parameters of `summary()`, scores by distance, and a figure."""
    figure = tmp_path / "law.json"
    shown = command("fit", RUNS, "--law", "log-line", "--predict", "2.5e12", "--plot", figure)
    assert "log-line" in shown
    assert "a * C^b" in shown
    assert json.loads(figure.read_text())["hconcat"]
    assert "%" in command("backtest", RUNS, "--law", "log-line")


def test_python_takes_the_law_by_name_and_as_an_object(registered):
    """Equal numbers either way; the table of the law has its two parameters."""
    by_name, as_object = fit(RUNS, law="log-line"), fit(RUNS, law=LAWS["log-line"])
    assert by_name.forecast(1e13).quantiles == as_object.forecast(1e13).quantiles
    assert by_name.result.law.summary().index.tolist() == ["a", "b"]
    assert by_name.backtest().points


def test_a_law_that_is_not_registered_is_refused():
    """A name of no law, in Python as on the command line."""
    with pytest.raises(UsageError):
        fit(RUNS, law="log-line")
