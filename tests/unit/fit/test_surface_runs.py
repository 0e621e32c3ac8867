"""Surfaces of fixed form as laws of a table: what they give back, what they forecast, and what they refuse."""

from dataclasses import astuple, replace

import numpy as np
import pytest

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.fitting.surface import centred, fit_surface, numbers_of, terms, unknowns_of
from marin_scaling.forecast.backtest import backtest
from marin_scaling.forecast.forecast import forecast
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import simulate_ladder

HOFFMANN = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20)


def ladder(*, law=HOFFMANN, noise=0.0, sizes=7):
    return simulate_ladder(law, budgets_flops=BUDGETS, sizes_per_budget=sizes, noise=noise, seed=0)


def columns(table):
    return {name: table.frame[name].to_numpy(dtype=float) for name in ("params", "tokens", "loss")}


def test_a_surface_without_noise_is_forecast_exactly_at_any_size():
    """The median and both ends: Hoffmann's rounded surface at 1e23 FLOPs, twenty times off the optimum."""
    ahead = forecast(fit(ladder(), law="additive-surface"), flops=1e23, params=3e9, tokens=1e23 / 6 / 3e9)
    truth = float(surface_loss(HOFFMANN, params=3e9, tokens=1e23 / 6 / 3e9))
    assert [ahead.median, *ahead.interval()] == pytest.approx([truth] * 3, rel=1e-4)


def test_the_law_s_numbers_are_those_of_the_fit_to_the_same_runs():
    """`fit_surface`, number by number, and the formula names its letters."""
    table = ladder(noise=0.003)
    result, alone = fit(table, law="additive-surface"), fit_surface(**columns(table)).law
    assert dict(result.law.parameters) == {name: getattr(alone, name) for name in ("E", "A", "B", "alpha", "beta")}
    assert all(name in result.law.formula for name in result.law.parameters)


def test_the_search_s_terms_add_up_to_the_law():
    """Numbers of a law to unknowns and back to losses, at every run of a ladder."""
    runs = columns(ladder())
    numbers, centre = astuple(HOFFMANN), centred(**runs)
    unknowns = unknowns_of(numbers, centre)[None]
    expected = surface_loss(HOFFMANN, params=runs["params"], tokens=runs["tokens"])
    assert terms(unknowns, centre)[0].sum(axis=0) == pytest.approx(expected, rel=1e-12)
    assert numbers_of(unknowns, centre)[0] == pytest.approx(numbers, rel=1e-12)


def test_the_interval_is_of_the_bootstrap_and_the_residuals_and_says_what_it_leaves_out():
    """Noise and sampling have half-widths, form and shift have none; the noise is that of the simulated runs."""
    ahead = forecast(fit(ladder(noise=0.003), law="additive-surface"), flops=1e21)
    assert ahead.bands["form"] is None
    assert ahead.bands["shift"] is None
    assert ahead.bands["noise"] == pytest.approx(1.645 * 0.003 * ahead.median, rel=0.35)
    assert 0 < ahead.bands["sampling"] < ahead.bands["noise"] * 3


def test_a_back_test_of_a_surface_forecasts_each_run_at_its_own_size():
    """Without noise every run of a bowl is hit, off the optimum too, which a frontier law would miss by per cents."""
    found = backtest(ladder(), law="additive-surface")
    assert len(found.points) > 20
    assert max(abs(point.quantiles[0.5] / point.observed - 1) for point in found.points) < 1e-3


def test_a_good_fit_still_says_that_such_intervals_are_too_narrow():
    """The status of the best of fits."""
    assert fit(ladder(noise=0.002), law="additive-surface").status is FitStatus.FIXED_FORM


def test_equal_seeds_give_equal_forecasts_and_other_seeds_others():
    """The seed is of the resampled runs and of the new run's residual."""
    table = ladder(noise=0.003)
    first, again, other = (forecast(fit(table, law="additive-surface", seed=seed), flops=1e21) for seed in (0, 0, 1))
    assert first == again
    assert first.quantiles != other.quantiles


def test_too_few_runs_for_a_surface_are_refused():
    """Five unknowns and five runs: the sentence says how many are needed."""
    table = ladder(sizes=7)
    few = replace(table, frame=table.frame.iloc[::8].reset_index(drop=True))
    with pytest.raises(FitRefused, match="5 different runs"):
        fit(few, law="additive-surface")


def test_total_parameters_do_not_enter_where_active_ones_are_known():
    """A sparse table has the surface of its active parameters."""
    table = ladder(noise=0.002)
    sparse = replace(table, frame=table.frame.assign(active_params=table.frame["params"], params=8 * table.frame["params"]))
    dense, other = (fit(each, law="additive-surface").law.parameters for each in (table, sparse))
    assert dict(other) == pytest.approx(dict(dense))
    assert np.isfinite(list(other.values())).all()
