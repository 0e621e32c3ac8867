"""The forecast of one run: quantiles, bands, sizes, and what it refuses."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import LEVELS, forecast, forecast_runs, interval_along, samples
from marin_scaling.laws import SurfaceLaw, frontier_loss, surface_frontier
from marin_scaling.preregistration import format as statement_format
from marin_scaling.run.table import read_run_table, simulate_ladder

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)


@pytest.fixture(scope="module")
def delphi():
    return fit(read_run_table(DELPHI))


@pytest.fixture(scope="module")
def heldout():
    return read_run_table(DELPHI / "heldout.csv").frame


def simulated(**changes):
    arguments = {"budgets_flops": (1e18, 3e18, 1e19, 3e19, 1e20), "sizes_per_budget": 6, "noise": 0.002, "seed": 0}
    return fit(simulate_ladder(SURFACE, **{**arguments, **changes}))


def test_the_delphi_ladder_forecasts_what_was_measured_up_to_333_times_beyond(delphi, heldout):
    """All seven held-out losses lie in their 90 % intervals, and every median is within 2 %."""
    for run in heldout.itertuples():
        prediction = forecast(delphi, flops=run.flops)
        assert prediction.interval()[0] < run.loss < prediction.interval()[1]
        assert prediction.median == pytest.approx(run.loss, rel=0.02)


def test_the_extrapolation_factor_is_counted_from_the_largest_budget(delphi):
    """1e23 is 333 times 3e20."""
    assert forecast(delphi, flops=1e23).extrapolation == pytest.approx(333.3, abs=0.1)


def test_there_are_23_rising_quantiles_and_the_median_is_one_of_them(delphi):
    """The levels are those that a preregistration promises."""
    prediction = forecast(delphi, flops=1e22)
    assert tuple(prediction.quantiles) == LEVELS == statement_format.LEVELS
    values = list(prediction.quantiles.values())
    assert all(low < high for low, high in pairwise(values))
    assert prediction.median == prediction.quantiles[0.5]


def test_equal_seeds_give_equal_numbers_and_other_seeds_nearly_equal_ones(delphi):
    """The median moves by a tenth of the interval at most."""
    first, again, other = (forecast(delphi, flops=1e22, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.quantiles != other.quantiles
    width = first.interval()[1] - first.interval()[0]
    assert abs(first.median - other.median) < width / 10


def test_the_interval_widens_with_distance():
    """Ten times farther is never better known, as a share of the loss; what does not grow is the noise of one run."""
    result = simulated()
    predictions = [forecast(result, flops=flops) for flops in (1e20, 1e21, 1e22, 1e23, 1e24)]
    for cause in ("sampling", "form", "shift"):
        shares = [each.bands[cause] / each.median for each in predictions]
        assert shares == sorted(shares)
    noise = [each.bands["noise"] / each.median for each in predictions]
    assert noise == pytest.approx(noise[:1] * 5, rel=0.02)


def test_noisier_runs_give_wider_intervals():
    """Five times the noise: more of it in the interval, and a wider whole; misfit and drift do not follow it."""
    quiet, loud = (forecast(simulated(noise=noise), flops=1e21) for noise in (0.001, 0.005))
    assert loud.bands["noise"] > quiet.bands["noise"]
    assert loud.interval()[1] - loud.interval()[0] > quiet.interval()[1] - quiet.interval()[0]


def test_the_error_of_a_conversion_widens_the_interval_and_stands_in_its_shift(delphi):
    """A deviation of 1 % of the loss, with the drift as two independent causes."""
    near = forecast(delphi, flops=1e21)
    (wider,) = forecast_runs(delphi, [replace(near.target, log_error=0.01)])
    error = 1.645 * 0.01 * near.median
    assert wider.bands["shift"] == pytest.approx(np.hypot(near.bands["shift"], error), rel=0.05)
    assert wider.bands["noise"] == near.bands["noise"]
    half, wide = (np.diff(each.interval())[0] / 2 for each in (near, wider))
    assert wide == pytest.approx(np.hypot(half, error), rel=0.05)


def test_a_frontier_law_estimates_neither_form_nor_shift(heldout):
    """One law of one form, that sees no drift: absent, not invented."""
    result = fit(read_run_table(DELPHI), law="isoflop-frontier")
    bands = forecast(result, flops=1e22).bands
    assert bands["form"] is None
    assert bands["shift"] is None
    assert 0 < bands["noise"] < bands["sampling"]


def test_a_frontier_law_refuses_a_size_off_the_optimum_and_the_coupled_law_forecasts_it(delphi):
    """Twice the parameters on half the tokens cost something: more than nothing, less than 3 % of the loss."""
    frontier = fit(read_run_table(DELPHI), law="isoflop-frontier")
    with pytest.raises(FitRefused, match="does not know a run of"):
        forecast(frontier, flops=1e22, params=2e10, tokens=8e10)
    optimum = forecast(delphi, flops=1e22)
    larger = forecast(delphi, flops=1e22, params=2 * optimum.params, tokens=optimum.tokens / 2)
    assert 0 < larger.median / optimum.median - 1 < 0.03
    assert optimum.mis_sizing[1] == pytest.approx(larger.median / optimum.median - 1, abs=2e-3)
    assert (optimum.optimal, larger.optimal) == (True, False)


def test_the_wanted_size_of_the_large_delphi_runs_is_in_the_interval_of_the_optimum(delphi, heldout):
    """3.38, 9.71 and 24.96 billion parameters were trained at 1e21, 1e22 and 1e23, read off the same bowls by their makers."""
    for run in heldout[heldout["flops"] > 5e21].itertuples():
        low, high = forecast(delphi, flops=run.flops).params_interval
        assert low < run.params < high


def test_samples_have_the_quantiles_of_the_forecast(delphi):
    """The same draws."""
    drawn = samples(delphi, flops=1e22)
    assert np.quantile(drawn, LEVELS) == pytest.approx(list(forecast(delphi, flops=1e22).quantiles.values()))


def test_a_forecast_twice_as_wide_as_the_range_of_all_losses_is_refused():
    """Runs about one optimum that lose 4 % over three budgets, a thousand million times beyond."""
    result = simulated(budgets_flops=(1e18, 1.4e18, 2e18), sizes_per_budget=3, size_range=1.2, noise=0.001)
    with pytest.raises(FitRefused, match=r"its 90 % interval would be .* wide, and all losses of the runs lie within"):
        forecast(result, flops=2e27)


def test_sizes_are_the_optimum_of_the_surface():
    """Parameters and tokens ten times beyond a quiet ladder, within 5 %: bowls of an asymmetric surface are off by that."""
    prediction = forecast(simulated(noise=0.0), flops=1e21)
    truth = (0.34 * 406.4 / (0.28 * 410.7)) ** (1 / 0.62) * (1e21 / 6) ** (0.28 / 0.62)
    assert prediction.params == pytest.approx(truth, rel=0.05)
    assert prediction.params * prediction.tokens * 6 == pytest.approx(1e21, rel=0.02)


def test_the_median_follows_a_quiet_ladder_to_its_truth():
    """Ten times beyond, within 1 %: what is left is the bias of quadratic bowls."""
    truth = frontier_loss(surface_frontier(SURFACE), flops=1e21)
    assert forecast(simulated(noise=0.0), flops=1e21).median == pytest.approx(float(truth), rel=0.01)


def test_a_law_that_does_not_fall_forecasts_nothing():
    """A refusal, not a number with an interval around it."""
    table = simulate_ladder(SURFACE, budgets_flops=(1e18, 1e19, 1e20, 1e21), sizes_per_budget=5, noise=0.0, seed=0)
    rising = replace(table, frame=table.frame.assign(loss=table.frame["loss"] + np.log10(table.frame["flops"] / 1e18)))
    with pytest.raises(FitRefused, match="no forecast at 1e23"):
        forecast(fit(rising), flops=1e23)


def test_a_frontier_law_that_reaches_below_zero_is_refused():
    """Losses from which a constant was taken: no loss is negative, so the law means nothing there."""
    table = simulate_ladder(SURFACE, budgets_flops=(1e18, 1e19, 1e20, 1e21), sizes_per_budget=5, noise=0.02, seed=0)
    shifted = table.frame["loss"] - 0.99 * table.frame["loss"].min()
    with pytest.raises(FitRefused, match="its 1% quantile would be -"):
        forecast(fit(replace(table, frame=table.frame.assign(loss=shifted)), law="isoflop-frontier"), flops=1e24)


@pytest.mark.parametrize(
    ("flops", "error"), [(0.0, UsageError), (float("nan"), UsageError), (1e300, FitRefused), (1e-9, FitRefused)]
)
def test_no_budget_or_one_beyond_all_measure_is_refused(delphi, flops, error):
    """Nothing overflows on the way to the refusal."""
    with pytest.raises(error):
        forecast(delphi, flops=flops)


def test_the_interval_along_the_law_is_the_forecast_at_each_point(delphi):
    """The figure shows what the text says."""
    prediction = forecast(delphi, flops=1e22)
    low, median, high = interval_along(delphi, flops=np.array([1e22]))
    assert (low[0], median[0], high[0]) == pytest.approx(
        (prediction.interval()[0], prediction.median, prediction.interval()[1])
    )
