"""Advice on which runs to train next: what it keeps to, and whether its promise holds when the runs are trained."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast
from marin_scaling.forecast.next_runs import MOST_RUNS, advice_text, advise
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
NOISE = 0.002
TARGET = 1e22


def ladder(seed):
    """Four budgets within a factor of eight: much is left to learn."""
    return simulate_ladder(SURFACE, budgets_flops=(1e18, 2e18, 4e18, 8e18), sizes_per_budget=5, noise=NOISE, seed=seed)


def trained(advice, *, seed):
    """The advised runs with the losses that the surface and its noise give them."""
    generator = np.random.default_rng([seed, 7])
    runs = [run for run in advice.runs for _ in range(run.seeds)]
    losses = [
        float(surface_loss(SURFACE, params=run.params, tokens=run.tokens)) * (1 + NOISE * generator.standard_normal())
        for run in runs
    ]
    return pd.DataFrame(
        {
            "run": [f"advised-{number}" for number in range(len(runs))],
            "flops": [run.flops for run in runs],
            "params": [run.params for run in runs],
            "tokens": [run.tokens for run in runs],
            "loss": losses,
            "budget_flops": [run.flops for run in runs],
        }
    )


@pytest.fixture(scope="module")
def result():
    return fit(ladder(0))


@pytest.mark.parametrize("allowance", [1e18, 5e18, 2e19, 1e20, 1e21, 1e22, 1e24])
def test_advice_keeps_to_the_allowance_and_the_target_and_every_run_narrows(result, allowance):
    """No run costs more than the target, all together no more than allowed, and each expected width is below the one before."""
    advice = advise(result, target_flops=TARGET, allowance_flops=allowance)
    assert advice.spent_flops == pytest.approx(sum(run.flops * run.seeds for run in advice.runs))
    assert advice.spent_flops <= allowance * (1 + 1e-9)
    assert all(run.flops <= TARGET * (1 + 1e-9) for run in advice.runs)
    assert all(run.flops >= result.frame["flops"].min() * (1 - 1e-9) for run in advice.runs)
    assert sum(run.seeds for run in advice.runs) <= MOST_RUNS
    widths = [advice.width_before, *(run.width_after for run in advice.runs)]
    assert all(before > after > 0 for before, after in pairwise(widths))


def test_the_width_before_is_that_of_the_forecast(result):
    """The 90 % interval that `fit --predict` prints."""
    low, high = forecast(result, flops=TARGET).interval()
    assert advise(result, target_flops=TARGET, allowance_flops=1e20).width_before == high - low


def test_a_larger_allowance_never_promises_less(result):
    """From twenty times the smallest run to the price of the target."""
    widths = [
        advise(result, target_flops=TARGET, allowance_flops=allowance).runs[-1].width_after
        for allowance in np.geomspace(2e19, 1e22, 6)
    ]
    assert all(second <= first * 1.001 for first, second in pairwise(widths))


def test_advised_sizes_cost_what_they_are_said_to(result):
    """6 N D, as in the table, at sizes about the optimum."""
    for run in advise(result, target_flops=TARGET, allowance_flops=1e21).runs:
        assert 6 * run.params * run.tokens == pytest.approx(run.flops)
        assert 0.3 < run.params / result.allocation.params_at(run.flops) < 3


def test_equal_fits_give_equal_advice(result):
    """Nothing is drawn on the way."""
    first, second = (advise(result, target_flops=TARGET, allowance_flops=1e20) for _ in range(2))
    assert first == second


def test_an_allowance_below_the_smallest_run_is_refused(result):
    """With both numbers."""
    with pytest.raises(UsageError, match=r"9e17 FLOPs pay for no run: the smallest so far cost 1e18"):
        advise(result, target_flops=TARGET, allowance_flops=9e17)


def test_a_law_without_a_posterior_has_no_advice():
    """It has no joint distribution of losses."""
    with pytest.raises(FitRefused, match="the law isoflop-frontier has no posterior to advise from"):
        advise(fit(ladder(0), law="isoflop-frontier"), target_flops=TARGET, allowance_flops=1e20)


def test_a_target_that_cannot_be_forecast_is_refused(result):
    """As its forecast is."""
    with pytest.raises(FitRefused, match=r"no forecast at 1e40"):
        advise(result, target_flops=1e40, allowance_flops=1e20)


@pytest.mark.parametrize("allowance", [5e19, 1e20])
def test_when_the_advised_runs_are_trained_the_interval_is_as_narrow_as_promised(allowance):
    """Five ladders, two trainings of each: the width after a real refit is the expected one to 15 % in the mean.

    Seen: 6 and 13 % wider in the mean. The allowance takes 37 to 50 % off the width, and one ladder of the five keeps 31 % more
    than expected: the advice is to first order.
    """
    ratios = []
    for seed in range(5):
        table = ladder(seed)
        advice = advise(fit(table), target_flops=TARGET, allowance_flops=allowance)
        promised = advice.runs[-1].width_after
        assert promised < 0.8 * advice.width_before
        for again in range(2):
            frame = pd.concat([table.frame, trained(advice, seed=again)], ignore_index=True)
            low, high = forecast(fit(replace(table, frame=frame)), flops=TARGET).interval()
            ratios.append((high - low) / promised)
    assert np.mean(ratios) == pytest.approx(1.0, rel=0.15)


def test_the_text_names_each_run_its_seeds_and_the_expected_width(result):
    """Widths before and with it; what all cost together."""
    advice = advise(result, target_flops=TARGET, allowance_flops=1e20)
    lines = advice_text(advice).splitlines()
    assert lines[0].startswith("target 1e22 FLOPs: 90 % interval ")
    assert f"{advice.width_before:.4f} wide" in lines[0]
    assert len(lines) == len(advice.runs) + 3
    for line, run in zip(lines[2:-1], advice.runs, strict=True):
        assert f"{run.width_after:.4f} ({run.width_after / advice.width_before - 1:+.0%})" in line
    assert lines[-1].startswith("together ")


def test_runs_that_would_gain_nothing_are_not_advised():
    """One run as small as the smallest of sixty, for a target ten thousand times as large."""
    budgets = (1e18, 3e18, 1e19, 3e19, 1e20)
    result = fit(simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=12, noise=0.002, seed=0))
    advice = advise(result, target_flops=1e22, allowance_flops=1e18)
    assert advice.runs == ()
    assert "no affordable run" in advice_text(advice)
