"""The posterior of the coupled law: what moves it, what does not, and what it recovers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marin_scaling.fitting.combined_law import draw_losses, fitted_runs
from marin_scaling.fitting.law import Targets
from marin_scaling.fitting.posterior import MOST_RUNS, FittedRuns, Places, fit_posterior, relative_noise
from marin_scaling.fitting.surface import fit_surface
from marin_scaling.laws import SurfaceLaw, optimal_params, surface_loss
from marin_scaling.run.table import read_run_table, simulate_ladder

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20)
TARGET_FLOPS = 1e21
TARGET_PARAMS = optimal_params(SURFACE, flops=TARGET_FLOPS)
SCALES_OF_SIZES = {
    "FLOPs": {"flops": 1e-6},
    "parameters": {"params": 1e-6},
    "tokens": {"tokens": 1e6},
    "all": {"flops": 1e3, "params": 1e-3, "tokens": 1e9},
}


def ladder_runs(*, noise=0.002):
    table = simulate_ladder(SURFACE, budgets_flops=BUDGETS, sizes_per_budget=6, noise=noise, seed=0)
    return fitted_runs(table.frame)


def ten_times_beyond(posterior, *, flops=1.0, params=1.0, tokens=1.0):
    """The 5, 50 and 95 % quantiles of the loss ten times beyond; the keywords are units."""
    targets = Targets(
        flops=np.array([TARGET_FLOPS * flops]),
        params=np.array([TARGET_PARAMS * params]),
        tokens=np.array([TARGET_FLOPS / 6 / TARGET_PARAMS * tokens]),
    )
    return np.quantile(draw_losses(posterior, targets, seed=0).losses[:, 0], (0.05, 0.5, 0.95))


def in_order(runs, order):
    return runs.take(np.asarray(order))


@pytest.fixture(scope="module")
def runs():
    return ladder_runs()


@pytest.fixture(scope="module")
def posterior(runs):
    return fit_posterior(runs)


@pytest.fixture(scope="module")
def delphi():
    return fit_posterior(fitted_runs(read_run_table(DELPHI).frame))


def test_equal_seeds_give_equal_draws_and_other_seeds_others(runs, posterior):
    """Bit for bit; another seed moves the median by less than a tenth of the interval."""
    again, other = fit_posterior(runs), fit_posterior(runs, seed=1)
    assert np.array_equal(posterior.unknowns, again.unknowns)
    assert not np.array_equal(posterior.unknowns, other.unknowns)
    low, median, high = ten_times_beyond(posterior)
    assert abs(ten_times_beyond(other)[1] - median) < (high - low) / 10


def test_the_order_of_the_rows_does_not_matter(runs, posterior):
    """The same forecast to eight digits."""
    order = np.random.default_rng(1).permutation(len(runs.flops))
    assert ten_times_beyond(fit_posterior(in_order(runs, order))) == pytest.approx(ten_times_beyond(posterior), rel=1e-8)


@pytest.mark.parametrize("scales", SCALES_OF_SIZES.values(), ids=SCALES_OF_SIZES)
def test_the_units_of_compute_and_sizes_do_not_matter(runs, posterior, scales):
    """The same forecast to a twentieth of its interval: rounding may lead the search, and with it the draws, another way."""
    scaled = replace(runs, **{name: getattr(runs, name) * factor for name, factor in scales.items()})
    low, _, high = known = ten_times_beyond(posterior)
    assert np.abs(ten_times_beyond(fit_posterior(scaled), **scales) - known).max() < (high - low) / 20


@pytest.mark.parametrize("unit", [1 / np.log(2), 1e6])
def test_the_unit_of_the_loss_is_that_of_the_forecast(runs, posterior, unit):
    """Nats or bits: everything here is relative, asymptotes too."""
    scaled = fit_posterior(replace(runs, loss=runs.loss * unit))
    low, _, high = known = ten_times_beyond(posterior)
    assert np.abs(ten_times_beyond(scaled) / unit - known).max() < (high - low) / 20
    assert np.median(scaled.laws.E) / unit == pytest.approx(np.median(posterior.laws.E), rel=0.02)


def test_a_noise_free_additive_surface_is_recovered_at_the_runs():
    """Within 0.1 % at every run and under every draw's mean; the additive form is one of ours, g = 1."""
    runs = ladder_runs(noise=0.0)
    found = fit_posterior(runs).log_losses(params=runs.params, tokens=runs.tokens).mean(axis=0)
    assert np.abs(np.expm1(found - np.log(runs.loss))).max() < 1e-3


def test_the_truth_ten_times_beyond_lies_in_the_interval(posterior):
    """One ladder with noise of 0.2 % from a known law."""
    low, _, high = ten_times_beyond(posterior)
    truth = surface_loss(SURFACE, params=TARGET_PARAMS, tokens=TARGET_FLOPS / 6 / TARGET_PARAMS)
    assert low < truth < high


@pytest.mark.parametrize("row", [2, 27])
def test_one_run_a_fifth_too_high_hardly_moves_the_forecast(runs, posterior, row):
    """At the smallest or the largest budget: by less than a quarter of a per cent, at full weight by thrice that and more."""
    spoilt = replace(runs, loss=np.where(np.arange(len(runs.loss)) == row, 1.2 * runs.loss, runs.loss))
    median = ten_times_beyond(posterior)[1]
    weighted = ten_times_beyond(fit_posterior(spoilt))[1] / median - 1
    unweighted = ten_times_beyond(fit_posterior(spoilt, downweight_outliers=False))[1] / median - 1
    assert abs(weighted) < 0.0025
    assert abs(unweighted) > 3 * abs(weighted)


def test_of_a_thousand_runs_240_are_taken_half_of_them_from_the_uppermost_decade():
    """Both halves evenly, the largest and the smallest included."""
    generator = np.random.default_rng(0)
    flops = generator.permutation(np.geomspace(1e17, 1e20, 1000))
    params = (flops / 120) ** 0.5 * np.exp(generator.uniform(-1, 1, 1000))
    loss = surface_loss(SURFACE, params=params, tokens=flops / 6 / params)
    many = FittedRuns(flops=flops, params=params, tokens=flops / 6 / params, loss=loss)
    fitted = fit_posterior(many)
    assert len(fitted.runs.flops) == MOST_RUNS == 240
    assert (fitted.runs.flops.min(), fitted.runs.flops.max()) == (flops.min(), flops.max())
    assert np.sum(fitted.runs.flops >= flops.max() / 10) == 120
    steps = np.diff(np.log(np.sort(fitted.runs.flops)))  # 1,000 in three decades stand 0.0069 apart
    assert steps[:119].max() < 0.05  # below, every sixth or so of 667 is kept
    assert steps[120:].max() < 0.025  # above, every third or so of 333


def test_a_run_below_the_largest_budget_counts_less():
    """A decade below: exp(.5) by weight, 1.3 squared by scatter."""
    assert relative_noise(np.array([0.0, 1.0])) == pytest.approx([1.0, np.exp(0.5) * 1.3**2])


@pytest.mark.parametrize("seed", range(3))
def test_more_runs_of_one_law_do_not_widen_the_interval(seed):
    """Eight times as many sizes of each budget, of the same law and noise: the width at ten times may not grow by 10 %."""
    widths = []
    for sizes in (6, 48):
        generator = np.random.default_rng(seed)
        flops, off = (each.ravel() for each in np.meshgrid(np.geomspace(1e18, 1e20, 5), np.geomspace(0.25, 4, sizes)))
        params = off * (flops / 120) ** 0.5
        loss = surface_loss(SURFACE, params=params, tokens=flops / 6 / params) * np.exp(
            0.003 * generator.standard_normal(len(off))
        )
        fitted = fit_posterior(FittedRuns(flops=flops, params=params, tokens=flops / 6 / params, loss=loss))
        low, _, high = ten_times_beyond(fitted)
        widths.append(high - low)
    assert widths[1] < 1.1 * widths[0]


def test_the_delphi_posterior_gives_no_weight_to_the_additive_surface_s_asymptote(delphi):
    """Hoffmann's form fitted to these runs has E = 2.58, above losses that were measured since; the coupled law has g < 1."""
    runs = delphi.runs
    additive = fit_surface(params=runs.params, tokens=runs.tokens, loss=runs.loss).law
    assert pytest.approx(2.58, abs=0.01) == additive.E
    assert np.mean(delphi.laws.E > 2.5) < 0.01
    assert np.mean(delphi.laws.g < 1) > 0.95


def test_the_delphi_posterior_is_worth_many_independent_draws(delphi):
    """The ends of its intervals are known to a tenth of their width or better; no draw is other than a finite number."""
    assert delphi.worth > 250
    assert np.isfinite(delphi.unknowns).all()
    assert (delphi.noise > 0).all()


def test_a_posterior_s_misfit_between_targets_agrees_with_that_at_each(delphi):
    """Its covariance's diagonal, over half of the draws, is their mean variance within a fifth; it grows with distance."""
    targets = Places(log_flops=np.array([19.0, 21.0, 23.0]), log_ratio=np.array([1.2, 1.2, 1.2]))
    _, variance = delphi.misfit_at(targets)
    assert np.diag(delphi.misfit_covariance(targets)) == pytest.approx(variance.mean(axis=0), rel=0.2)
    assert (np.diff(variance.mean(axis=0)) > 0).all()


@pytest.mark.parametrize(("growth", "found"), [(0.0, (0.0, 0.45)), (1.0, (0.55, 1.0))])
def test_the_runs_say_how_their_noise_grows(growth, found):
    """Forty-nine runs that scatter alike, or more the smaller they are; of the largest budget's noise of 0.4 %, two thirds to
    three halves are found either way."""
    flops, ratio = np.repeat(np.geomspace(1e18, 1e21, 7), 7), np.tile(np.geomspace(8, 50, 7), 7)
    params = np.sqrt(flops / 6 / ratio)
    noise = 0.004 * np.sqrt(relative_noise(np.log10(flops.max() / flops))) ** growth
    clean = 1.7 + 0.7 * (params / 1e9) ** -0.34 + 0.7 * (ratio * params / 2e10) ** -0.34
    loss = clean * np.exp(noise * np.random.default_rng(3).standard_normal(len(clean)))
    posterior = fit_posterior(FittedRuns(flops=flops, params=params, tokens=ratio * params, loss=loss))
    assert found[0] <= posterior.noise_growth <= found[1]
    assert 0.0027 < np.median(posterior.noise) < 0.006
