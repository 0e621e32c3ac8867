"""The Python interface at the package root gives what the commands give."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import marin_scaling as ms
from marin_scaling.errors import FitRefused, MarinScalingError, MissingExtra, RunTableError, UsageError
from marin_scaling.fitting.fit import FitStatus

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


@pytest.fixture(scope="module")
def fitted():
    return ms.fit(DELPHI)


def test_importing_the_package_loads_nothing_of_it():
    """Each function is imported when it is first used."""
    program = "import sys, marin_scaling; print([name for name in sys.modules if name.startswith('marin_scaling.')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert {"fit", "load_runs", "load_ladder"} <= set(dir(ms))
    with pytest.raises(AttributeError):
        ms.fitt  # noqa: B018


def test_a_frame_and_the_file_it_came_from_give_one_forecast(fitted):
    """To the digit: the same numbers in memory."""
    frame = pd.read_csv(DELPHI / "runs.csv", float_precision="round_trip")
    assert ms.fit(frame).forecast(1e22).quantiles == fitted.forecast(1e22).quantiles


def test_one_forecast_prints_as_one_line(fitted):
    """A whole number of FLOPs, which no float of NumPy holds, is a number too."""
    assert repr(fitted.forecast(10**23)) == "Forecast(1e23 FLOPs: 2.3568 [2.3043, 2.4102] nats/token, 333x beyond)"
    assert fitted.forecast("1e23") == fitted.forecast(10**23)


def test_many_forecasts_are_a_table_and_are_found_by_their_flops(fitted):
    """Numbers and texts may be mixed."""
    found = fitted.forecast([1e22, "1e23"])
    assert found.frame["flops"].tolist() == [1e22, 1e23]
    assert {"median", "q05", "q95", "noise", "sampling", "form", "shift"} <= set(found.frame)
    assert found[1e23].interval(0.9) == (found.frame["q05"][1], found.frame["q95"][1])
    assert len(repr(found).splitlines()) == len(found) == 2
    with pytest.raises(UsageError):
        found[1e21]


@pytest.mark.parametrize("flops", ["much", None, -1, float("nan"), True, [1e22, "x"], {}, 10**400])
def test_what_is_no_number_of_flops_is_refused(fitted, flops):
    """By an error of ours, whatever its type."""
    with pytest.raises(MarinScalingError):
        fitted.forecast(flops if flops != {} else object())


@pytest.mark.parametrize("level", [0.85, 0, 1, 2])
def test_an_interval_without_quantiles_is_refused(fitted, level):
    """The ends of the others are quantiles: .98, .95, .9, ..."""
    assert fitted.forecast(1e22).interval(0.95) < fitted.forecast(1e22).interval(0.5)
    with pytest.raises(UsageError):
        fitted.forecast(1e22).interval(level)


def test_flops_that_contradict_a_size_are_refused(fitted):
    """1e9 parameters on 2e10 tokens cost about 1.2e20 FLOPs."""
    assert fitted.forecast(1.2e20, params=1e9, tokens=2e10).params == 1e9
    with pytest.raises(UsageError, match=r"1e23"):
        fitted.forecast(1e23, params=1e9, tokens=2e10)
    with pytest.raises(UsageError):
        fitted.forecast(1e20, params=1e9)
    with pytest.raises(UsageError):
        fitted.forecast([1e20], params=1e9, tokens=2e10)


def test_sizes_are_forecast_from_a_table_or_from_arrays(fitted):
    """Under the table's own index; the loss is the median."""
    sizes = pd.DataFrame({"params": [1e9, 2e9], "tokens": [2e10, 4e10]}, index=["small", "large"])
    found = fitted.predict(sizes)
    assert found.index.tolist() == ["small", "large"]
    assert fitted.loss(params=sizes["params"], tokens=sizes["tokens"]).tolist() == found["median"].tolist()
    assert fitted.loss(params=1e9, tokens=2e10) == pytest.approx(found["median"]["small"], rel=1e-3)
    assert fitted.loss(params=[1e9], tokens=np.array([[2e10], [4e10]])).shape == (2, 1)


NO_SIZES = [None, [1e9], pd.DataFrame({"params": [1e9]}), pd.DataFrame({"params": ["x"], "tokens": [1e9]})]


@pytest.mark.parametrize("runs", NO_SIZES)
def test_what_is_no_table_of_sizes_is_refused(fitted, runs):
    """By an error of ours."""
    with pytest.raises(RunTableError):
        fitted.predict(runs)


@pytest.mark.parametrize(("params", "tokens"), [("x", 1e9), (-1, 1e9), (1e9, None)])
def test_what_is_no_size_is_refused(fitted, params, tokens):
    """By an error of ours."""
    with pytest.raises(UsageError):
        fitted.loss(params=params, tokens=tokens)


@pytest.mark.parametrize("runs", [None, 5, [1, 2]])
def test_what_is_no_table_of_runs_is_refused(runs):
    """By an error of ours."""
    with pytest.raises(RunTableError):
        ms.fit(runs)


def test_the_summary_has_the_parameters_with_their_intervals(fitted):
    """One row per letter of the formula; the asymptote lies within its interval."""
    found = fitted.summary()
    assert {"E", "a", "b", "g", "gamma"} <= set(found.index)
    assert found["q05"]["E"] < found["estimate"]["E"] < found["q95"]["E"]
    assert fitted.status is FitStatus.USABLE


def test_the_sensitivity_is_a_table(fitted):
    """Its first row is the forecast itself."""
    found = fitted.sensitivity(1e23)
    assert found.frame["median"][0] == found.forecast.median
    assert found.frame["change"][0] == 0


def test_the_notebook_shows_the_report_and_the_chart_has_the_forecast(fitted):
    """HTML with no markup of its own but a block of text; two panels; one line in a terminal."""
    assert fitted._repr_html_().startswith("<pre>")
    assert "81 runs used" in str(fitted)
    assert len(repr(fitted).splitlines()) == 1
    assert "2.3568" in fitted.report(fitted.forecast(1e23))
    assert len(fitted.plot(fitted.forecast(1e23)).hconcat) == 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_posterior_goes_to_arviz(fitted):
    """All draws, by the letters of the formula."""
    pytest.importorskip("arviz")
    assert {"E", "a", "b", "gamma"} <= set(fitted.to_arviz().posterior)


def test_without_arviz_its_extra_is_named(fitted, monkeypatch):
    """And a law without a posterior is refused."""
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(MissingExtra) as missing:
        fitted.to_arviz()
    assert "[arviz]" in missing.value.fix
    with pytest.raises(FitRefused):
        ms.fit(DELPHI, law="best-runs-frontier").to_arviz()


def test_the_status_of_a_forecast_is_the_worst_of_fit_and_forecast(fitted):
    """Two forecasts; the one 10 million times beyond the runs is not usable."""
    near, far = fitted.forecast(1e21), fitted.forecast(3e27)
    assert fitted.status_of(near) is fitted.status
    assert fitted.status_of(fitted.forecast([1e21, 3e27])) is fitted.status_of(far) is FitStatus.IMPLAUSIBLE


def test_a_backtest_is_a_table():
    """One row per forecast run."""
    found = ms.backtest(DELPHI, law="best-runs-frontier")
    assert len(found.frame) == len(found.points) > 0
    assert (found.frame["q05"] < found.frame["q95"]).all()


def test_a_frame_with_a_bad_cell_is_refused_with_its_row_and_column():
    """By the label of the row, as pandas shows it."""
    frame = pd.DataFrame({"flops": [1e18, "x"], "params": 1e8, "tokens": 1e9, "loss": 3.0}, index=["a", "b"])
    with pytest.raises(RunTableError, match="DataFrame, row b, column 'flops' holds 'x'"):
        ms.fit(frame)


def test_user_laws_with_lmfit_parameters_report_as_lmfit_does():
    """Bounds, a fixed constant, and `fit_report()` where lmfit's users look for it."""
    from lmfit import Parameters

    from marin_scaling.fitting.custom_law import fit_user_law

    frame = pd.read_csv(DELPHI / "runs.csv").groupby("budget_flops", as_index=False)["loss"].min()
    parameters = Parameters()
    parameters.add("floor", value=1.6, vary=False)
    parameters.add("scale", value=1.5, min=0)
    parameters.add("gamma", value=0.1, min=0, max=1)
    found = fit_user_law(
        lambda flops, floor, scale, gamma: floor + scale * (flops / 1e19) ** -gamma,
        data={"flops": frame["budget_flops"].to_numpy(), "loss": frame["loss"].to_numpy()},
        parameters=parameters,
    )
    assert "gamma" in found.report()
    assert found.result.params["floor"].value == 1.6


def test_the_loss_of_a_sparse_model_takes_its_active_parameters():
    """As its forecast in a table does."""
    params = np.tile([1e8, 2e8, 4e8], 4) * np.repeat(np.geomspace(1, 6, 4), 3)
    flops = np.repeat(np.geomspace(1e18, 3e19, 4), 3)
    tokens = flops / 6 / params
    loss = 1.7 + 400 / params**0.34 + 410 / tokens**0.28
    fitted = ms.fit(
        pd.DataFrame({"flops": flops, "params": 8 * params, "active_params": params, "tokens": tokens, "loss": loss})
    )
    sizes = {"params": 8e9, "tokens": 2e10, "active_params": 1e9}
    assert fitted.loss(**sizes) == pytest.approx(fitted.predict(pd.DataFrame([sizes]))["median"].iloc[0])
