"""A benchmark's accuracy in two steps: the interval carries both, and a refusal comes where either says nothing."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.accuracy_curve import fit_sigmoid, sigmoid_accuracy
from marin_scaling.forecast.downstream import BAND_NOTES, GAIN, DownstreamStatus, Gain, accuracy_draws, forecast_downstream
from marin_scaling.forecast.forecast import LEVELS, forecast, optimal_target, samples_of
from marin_scaling.laws import SurfaceLaw, frontier_loss, surface_frontier
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
TRUTH = {"low": 0.25, "high": 0.9, "slope": 4.0, "middle": 2.6}
NOISE, SCATTER = 0.003, 0.01
POOL = np.linspace(1.9, 3.4, 20)


def simulated(*, seed=0, noise=NOISE, budgets=(1e18, 3e18, 1e19, 3e19, 1e20)):
    return simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=5, noise=noise, seed=seed)


def curve_of(soft, *, seed=0, scatter=SCATTER, **arguments):
    accuracy = sigmoid_accuracy(soft, **TRUTH) + np.random.default_rng(seed).normal(0, scatter, len(soft))
    return fit_sigmoid(soft, accuracy=np.clip(accuracy, 0, 1), seed=seed, **{"chance": 0.25, **arguments})


def new_run(flops, *, seed):
    """Soft metric and accuracy of a run that was not fitted."""
    generator = np.random.default_rng(10_000 + seed)
    soft = float(frontier_loss(surface_frontier(SURFACE), flops=flops)) * (1 + NOISE * generator.standard_normal())
    return soft, float(sigmoid_accuracy(soft, **TRUTH)) + SCATTER * generator.standard_normal()


@cache
def both_steps():
    table = simulated()
    return fit(table), curve_of(table.frame["loss"].to_numpy())


@cache
def with_pool():
    return both_steps()[0], curve_of(POOL)


def test_the_90_percent_interval_holds_a_new_run_about_nine_times_in_ten():
    """Twenty ladders with a pool that encloses the target, ten times beyond: 14 is three standard errors below eighteen."""
    inside = 0
    for seed in range(20):
        table = simulated(seed=seed)
        curve = curve_of(np.concatenate([table.frame["loss"].to_numpy(), POOL]), seed=seed)
        low, high = forecast_downstream(fit(table), curve, flops=1e21).interval
        inside += low < new_run(1e21, seed=seed)[1] < high
    assert inside >= 14


def test_the_interval_is_wider_than_that_of_either_step_alone():
    """At the same budget: the soft metric's draws through the best curve, and the curves at the median of the soft metric."""
    ahead = forecast_downstream(*with_pool(), flops=1e22)
    half = (ahead.interval[1] - ahead.interval[0]) / 2
    assert set(ahead.bands) == set(BAND_NOTES)
    assert ahead.bands["form"] == 0  # the pool encloses the target
    assert all(0 < band < half for cause, band in ahead.bands.items() if cause != "form")


def test_beyond_the_best_run_the_form_of_the_curve_widens_and_raises_the_forecast():
    """By the factor on the log error rate: with none, the quantiles are those of the two steps alone."""
    result, curve = both_steps()
    draws = samples_of(result, optimal_target(result, 1e21))
    plain, stretched = (
        np.quantile(accuracy_draws(curve, draws, seed=0, gain=gain).accuracy, (0.05, 0.5, 0.95))
        for gain in (Gain(mean=0.0, deviation=0.0), GAIN)
    )
    assert stretched[2] - stretched[0] > 1.2 * (plain[2] - plain[0])
    assert plain[1] < stretched[1] < plain[2]
    assert forecast_downstream(result, curve, flops=1e21).bands["form"] > 0
    inside = np.full(2000, curve.soft_range[1])
    ours, theirs = (accuracy_draws(curve, inside, seed=0, gain=gain).accuracy for gain in (GAIN, Gain(mean=9.0, deviation=9.0)))
    assert ours.tolist() == theirs.tolist()


def test_a_size_that_is_given_is_forecast_at_its_own_soft_metric():
    """Ten times over-trained at the same compute: the soft metric of the surface there, and a lower accuracy."""
    result, curve = with_pool()
    best = optimal_target(result, 1e21)
    longer = forecast_downstream(result, curve, flops=1e21, params=best.params / 4, tokens=best.tokens * 4)
    assert longer.soft.params == best.params / 4
    assert longer.soft == forecast(result, flops=1e21, params=best.params / 4, tokens=best.tokens * 4)
    assert longer.median < forecast_downstream(result, curve, flops=1e21).median
    with pytest.raises(UsageError, match="both"):
        forecast_downstream(result, curve, flops=1e21, params=1e9)


def test_a_noisier_ladder_widens_the_soft_part_and_noisier_accuracies_the_others():
    """Each cause answers to its own noise."""
    result, curve = with_pool()
    before = forecast_downstream(result, curve, flops=1e21).bands
    noisy_ladder = forecast_downstream(fit(simulated(noise=0.02)), curve, flops=1e21).bands
    noisy_scores = forecast_downstream(result, curve_of(POOL, scatter=0.04), flops=1e21).bands
    assert noisy_ladder["soft metric"] > 1.5 * before["soft metric"]
    assert noisy_scores["sigmoid"] > 1.5 * before["sigmoid"]
    assert noisy_scores["residual"] > 1.5 * before["residual"]


def test_the_interval_widens_with_distance_while_the_curve_climbs():
    """From the ladder's edge to a thousand times beyond it, seen from the ladder's runs alone."""
    widths = [
        high - low for low, high in (forecast_downstream(*both_steps(), flops=flops).interval for flops in (1e20, 1e21, 1e22))
    ]
    assert all(near < far for near, far in pairwise(widths))


def test_a_wider_pool_narrows_the_curve_and_says_so():
    """Runs of other recipes that enclose the target's soft metric."""
    alone, pooled = (forecast_downstream(*steps, flops=1e22) for steps in (both_steps(), with_pool()))
    assert pooled.bands["sigmoid"] < alone.bands["sigmoid"] / 2
    assert alone.status is DownstreamStatus.BEYOND_THE_RUNS
    assert pooled.status is DownstreamStatus.USABLE


def test_there_are_23_rising_quantiles_between_0_and_1_and_the_median_is_one():
    """Few questions near the top of the curve: the draws above 1 are taken for 1."""
    result, _ = both_steps()
    ahead = forecast_downstream(result, curve_of(POOL, questions=60), flops=1e23)
    values = list(ahead.quantiles.values())
    assert tuple(ahead.quantiles) == LEVELS
    assert values == sorted(values)
    assert 0 <= values[0] < values[-1] <= 1
    assert ahead.median == ahead.quantiles[0.5]


def test_step_one_is_the_forecast_of_the_soft_metric():
    """The same engine, and the same numbers."""
    result, curve = with_pool()
    ahead = forecast_downstream(result, curve, flops=1e22)
    assert ahead.soft == forecast(result, flops=1e22)
    assert ahead.extrapolation == pytest.approx(100)


def test_equal_seeds_give_equal_numbers():
    """And another seed gives nearly equal ones: a tenth of the interval at most."""
    first, again, other = (forecast_downstream(*with_pool(), flops=1e22, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert abs(first.median - other.median) < (first.interval[1] - first.interval[0]) / 10


def test_a_curve_that_explains_little_is_used_with_care():
    """Eight points of noise about the middle of the climb."""
    curve = curve_of(np.linspace(2.3, 3.1, 40), scatter=0.08, seed=3)
    assert curve.r_squared < 0.8
    assert forecast_downstream(both_steps()[0], curve, flops=1e20).status is DownstreamStatus.POOR_FIT


def test_a_target_where_the_curve_says_nothing_is_refused():
    """Runs at chance or hardly above it do not show how high the curve rises ten thousand times beyond."""
    result, _ = both_steps()
    curve = curve_of(np.linspace(2.9, 3.6, 20), scatter=0.01)
    with pytest.raises(FitRefused, match="may be anything from"):
        forecast_downstream(result, curve, flops=1e24)


def test_both_steps_together_too_wide_are_refused():
    """A steep curve in the middle of what the law leaves open."""
    table = simulated(noise=0.03, budgets=(1e18, 1e19, 1e20))
    soft = np.linspace(2.0, 2.8, 30)
    accuracy = sigmoid_accuracy(soft, low=0.0, high=1.0, slope=60.0, middle=2.32)
    with pytest.raises(FitRefused, match="its 90 % interval would be"):
        forecast_downstream(fit(table), fit_sigmoid(soft, accuracy=accuracy), flops=1e21)
