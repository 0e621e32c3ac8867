"""The Python interface gives what the commands give."""

from pathlib import Path

import pandas as pd
import pytest

from marin_scaling.api import fit
from marin_scaling.errors import RunTableError

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


@pytest.fixture(scope="module")
def fitted():
    return fit(DELPHI)


def test_a_frame_and_the_file_it_came_from_give_one_forecast(fitted):
    """To the digit: the same numbers in memory."""
    frame = pd.read_csv(DELPHI / "runs.csv", float_precision="round_trip")
    assert fit(frame).forecast(1e22).quantiles == fitted.forecast(1e22).quantiles


def test_forecasts_come_as_a_table_with_a_column_for_each_quantile(fitted):
    """A row a budget; the median is the quantile of one half."""
    table = fitted.forecasts(1e21, 1e22)
    assert table["flops"].tolist() == [1e21, 1e22]
    assert (table["median"] == table["q0.5"]).all()
    assert len([name for name in table if name.startswith("q")]) == 23


def test_the_notebook_shows_the_report_and_the_chart_has_the_forecast(fitted):
    """HTML with no markup of its own but a block of text; two panels."""
    assert fitted._repr_html_().startswith("<pre>")
    assert "81 runs used" in str(fitted)
    assert len(fitted.chart(1e23).hconcat) == 2


def test_a_frame_with_a_bad_cell_is_refused_with_its_row_and_column():
    """By the label of the row, as pandas shows it."""
    frame = pd.DataFrame({"flops": [1e18, "x"], "params": 1e8, "tokens": 1e9, "loss": 3.0}, index=["a", "b"])
    with pytest.raises(RunTableError, match="DataFrame, row b, column 'flops' holds 'x'"):
        fit(frame)


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
