"""Laws of one's own in `fit`: by `custom_law` in Python, and from a file on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from lmfit import Parameters
from typer.testing import CliRunner

from marin_scaling import fit
from marin_scaling.cli.app import app
from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.custom_law import custom_law
from marin_scaling.fitting.fit import FitStatus
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import simulate_ladder

HOFFMANN = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
RUNS = Path(__file__).parents[3] / "runs" / "quickstart"
FILE = """
from lmfit import Parameters
from marin_scaling.fitting.custom_law import custom_law

parameters = Parameters()
parameters.add("E", value=1, min=0, max=2)
parameters.add("A", value=1, min=0.1, max=10)
parameters.add("gamma", value=0.1, min=0.01, max=1)
power = custom_law(lambda flops, E, A, gamma: E + A * (flops / 1e11) ** -gamma, parameters, name="power")
number = 3
"""


def parameters(**constants):
    made = Parameters()
    made.add("E", value=1.5, min=0.5, max=2.5)
    for name in ("a", "b"):
        made.add(name, value=0, min=-5, max=3)
    for name in ("alpha", "beta"):
        made.add(name, value=0.3, min=0.1, max=1)
    for name, value in constants.items():
        made[name].set(value=value, vary=False)
    return made


def surface(params, tokens, E, a, b, alpha, beta):
    return E + np.exp(a) * (params / 1e9) ** -alpha + np.exp(b) * (tokens / 1e10) ** -beta


def ladder(noise=0.001):
    return simulate_ladder(HOFFMANN, budgets_flops=[1e18, 1e19, 1e20, 1e21], sizes_per_budget=5, noise=noise, seed=0)


def test_the_surface_that_made_the_runs_is_forecast_off_the_optimum():
    """Within the interval, at a size four times the optimum; parameters are those of the truth."""
    fitted = fit(ladder(), law=custom_law(surface, parameters()))
    ahead = fitted.forecast(1e22, params=2e10, tokens=1e22 / 6 / 2e10)
    low, high = ahead.interval()
    assert low < float(surface_loss(HOFFMANN, params=2e10, tokens=1e22 / 6 / 2e10)) < high
    assert fitted.result.law.parameters["alpha"] == pytest.approx(0.34, abs=0.03)
    assert fitted.result.status is FitStatus.CUSTOM_LAW
    assert "[[Variables]]" in fitted.report()


def test_a_constant_has_no_interval_and_keeps_its_value():
    """`vary=False`, as lmfit has it."""
    summary = fit(ladder(), law=custom_law(surface, parameters(E=1.69))).result.law.summary()
    assert summary.loc["E", "estimate"] == 1.69
    assert np.isnan(summary.loc["E", "q05"])
    assert summary.loc["alpha", "q05"] < summary.loc["alpha", "estimate"] < summary.loc["alpha", "q95"]


def test_equal_seeds_give_equal_forecasts():
    """The seed is of the starts, the resamples and the noise."""
    first, again, other = (
        fit(ladder(), law=custom_law(surface, parameters()), seed=seed).forecast(1e22).quantiles for seed in (0, 0, 1)
    )
    assert first == again != other


def test_a_function_that_raises_is_refused_without_a_traceback():
    """The refusal names the exception."""

    def broken(flops, E):
        raise ZeroDivisionError("by nothing")

    made = Parameters()
    made.add("E", value=1)
    with pytest.raises(FitRefused, match="ZeroDivisionError"):
        fit(ladder(), law=custom_law(broken, made))


def test_names_of_other_laws_are_refused():
    """A report would name the wrong law."""
    with pytest.raises(UsageError):
        custom_law(surface, parameters(), name="additive-surface")


def test_a_file_named_on_the_command_line_gives_the_law(tmp_path):
    """A forecast through the best loss of each budget, with the name that the file gives it."""
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    arguments = ["fit", str(RUNS), "--law", f"{path}:power", "--predict", "2.5e12", "--json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    document = json.loads(done.output)
    assert document["law"].startswith("power: ")
    assert 1 < document["predictions"][0]["median"] < 3


@pytest.mark.parametrize("name", ["power", "missing", "number"])
def test_a_file_that_gives_no_law_is_bad_input(tmp_path, name):
    """A missing file, a missing variable, another kind of object."""
    path = tmp_path / ("none.py" if name == "power" else "mine.py")
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(UsageError):
        CliRunner().invoke(app, ["fit", str(RUNS), "--law", f"{path}:{name}"], catch_exceptions=False)


def test_a_string_names_no_file_in_python(tmp_path):
    """Only the command line takes a file: a statement or a ladder file never runs code."""
    path = tmp_path / "mine.py"
    path.write_text("raise SystemExit('it ran')")
    with pytest.raises(UsageError):
        fit(RUNS, law=f"{path}:power")
