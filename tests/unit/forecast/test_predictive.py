"""Draws of new runs' losses: what the calibration does to them, and each cause of their spread."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

from marin_scaling.fitting.combined_law import (
    Calibration,
    decades_beyond,
    draw_losses,
    fall_per_decade,
    fitted_runs,
    joint_covariance,
    shipped_calibration,
)
from marin_scaling.fitting.law import Targets
from marin_scaling.fitting.posterior import UPWARD, Places, fit_posterior
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import read_run_table, simulate_ladder

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
PLAIN = Calibration(
    spread=1.0,
    everywhere=0.0,
    per_decade_of_flops=0.0,
    per_decade_of_ratio=0.0,
    per_decade_of_params=0.0,
    of_disagreement=0.0,
)


def at(*flops, ratio=20.0, params=None):
    """6 N D runs of these budgets at so many tokens per parameter, or of these parameters."""
    compute = np.array(flops)
    sizes = np.sqrt(compute / 6 / ratio) if params is None else np.full(len(flops), params)
    return Targets(flops=compute, params=sizes, tokens=compute / 6 / sizes)


def relative_width(losses):
    low, median, high = np.quantile(losses, (0.05, 0.5, 0.95), axis=0)
    return (high - low) / median


@pytest.fixture(scope="module")
def posterior():
    budgets = (1e18, 3e18, 1e19, 3e19, 1e20)
    table = simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=6, noise=0.002, seed=0)
    return fit_posterior(fitted_runs(table.frame))


def test_equal_seeds_give_equal_losses_and_other_seeds_nearly_equal_ones(posterior):
    """The seed is of the noise and drift; the quantiles move by a fiftieth of the interval at most."""
    first, again, other = (draw_losses(posterior, at(1e21), seed=seed).losses for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    quantiles = [np.quantile(each, (0.05, 0.5, 0.95)) for each in (first, other)]
    assert np.abs(quantiles[0] - quantiles[1]).max() < (quantiles[0][2] - quantiles[0][0]) / 50


def test_the_spread_multiplies_every_deviation_from_the_median_but_noise(posterior):
    """Draw by draw: a unit of spread adds the deviation without noise, whose median is zero."""
    once, twice, three_times = (
        np.log(draw_losses(posterior, at(1e20, 1e22), seed=0, calibration=replace(PLAIN, spread=spread)).losses)
        for spread in (1.0, 2.0, 3.0)
    )
    assert np.median(twice - once, axis=0) == pytest.approx([0, 0], abs=1e-12)
    assert three_times - twice == pytest.approx(twice - once, abs=1e-12)


def test_without_drift_the_interval_is_narrower_and_its_share_of_the_spread_is_nothing(posterior):
    """Farther than the runs, with the shipped factors and with all drifts at zero."""
    shipped = shipped_calibration()
    none = replace(PLAIN, spread=shipped.spread)
    with_drift, without = (draw_losses(posterior, at(1e21, 1e23), seed=0, calibration=each) for each in (shipped, none))
    assert (relative_width(without.losses) < relative_width(with_drift.losses)).all()
    assert (without.causes["shift"] == 0).all()
    assert with_drift.causes["shift"].std() > 0


def test_the_shipped_calibration_is_a_spread_near_one_and_small_drifts():
    """Factors of `calibration.json`: a correction of what the posterior says, not the whole of it."""
    shipped = shipped_calibration()
    assert 0.5 < shipped.spread < 2
    assert 0 <= shipped.everywhere < 0.02
    shares = (shipped.per_decade_of_flops, shipped.per_decade_of_ratio, shipped.per_decade_of_params)
    assert all(0 < share < 0.2 for share in shares), "shares of what the ladder itself falls in a decade"


def test_decades_beyond_the_runs_are_counted_on_each_side_that_is_new(posterior):
    """The runs end at 1e20 FLOPs, 2.04e9 parameters, and between 2.57 and 401 tokens per parameter."""
    inside = decades_beyond(at(1e19, 1e20), posterior)
    assert [each.tolist() for each in inside] == [[0.0, 0.0]] * 3
    farther = decades_beyond(at(1e22, params=10 * posterior.runs.params.max()), posterior)
    assert np.concatenate(farther) == pytest.approx([2.0, 0.0, 1.0], abs=1e-9)
    ratios = posterior.runs.tokens / posterior.runs.params
    for wanted in (ratios.max() * 100, ratios.min() / 100):
        assert decades_beyond(at(1e19, ratio=wanted), posterior)[1] == pytest.approx([2.0])


def test_inside_the_runs_nothing_drifts_but_what_drifts_everywhere(posterior):
    """The drift's standard deviation is then `everywhere` alone."""
    calibration = replace(PLAIN, everywhere=0.001, per_decade_of_flops=1.0, per_decade_of_ratio=1.0, per_decade_of_params=1.0)
    assert calibration.drift(at(1e18, 1e20), posterior) == pytest.approx([0.001, 0.001])


def test_drifts_add_in_quadrature_by_the_decade(posterior):
    """In units of the ladder's fall in a decade: .3 a decade of FLOPs, .4 a decade of parameters; 0 beside the runs, .3, .6, .9
    along, .5 x two for both."""
    calibration = replace(PLAIN, per_decade_of_flops=0.3, per_decade_of_params=0.4)
    unit = fall_per_decade(posterior)
    shares = calibration.drift(at(1e20, 1e21, 1e22, 1e23, params=1e9), posterior) / unit
    assert shares == pytest.approx([0, 0.3, 0.6, 0.9])
    largest = posterior.runs.params.max()
    assert calibration.drift(at(1e22, params=100 * largest), posterior) / unit == pytest.approx([1.0])


def test_the_unit_of_drift_is_the_fall_of_the_law_in_a_decade(posterior):
    """The mean over draws of ln L, half a decade of compute before the middle of the larger runs and half after."""
    step = 10**0.25
    sizes = {"params": posterior.middle_params, "tokens": posterior.middle_tokens}
    before, after = (
        posterior.log_losses(**{name: np.array([middle * factor]) for name, middle in sizes.items()}).mean()
        for factor in (1 / step, step)
    )
    assert fall_per_decade(posterior) == pytest.approx(before - after, rel=0.02)


def test_the_shift_band_grows_with_every_decade_and_every_cause_is_there(posterior):
    """Four causes, all above zero outside the runs; as a share of the loss the shift never falls."""
    targets = at(1e20, 1e21, 1e22, 1e23, 1e24)
    draws = draw_losses(posterior, targets, seed=0)
    assert set(draws.causes) == {"noise", "sampling", "form", "shift"}
    for cause in draws.causes.values():
        assert cause.shape == draws.losses.shape
        assert (np.diff(np.quantile(cause, (0.05, 0.95), axis=0), axis=0) > 0).all()
    shares = np.ptp(np.quantile(draws.causes["shift"], (0.05, 0.95), axis=0), axis=0) / np.median(draws.losses, axis=0)
    assert (np.diff(shares) > 0).all()


def test_the_causes_add_up_to_the_deviation_of_each_draw_from_the_middle(posterior):
    """To first order in the deviation, up to one constant a target: the largest is 4 % of the loss, its square 0.1 %."""
    draws = draw_losses(posterior, at(1e20, 1e22), seed=0)
    median = np.median(draws.losses, axis=0)
    left = draws.losses - median - np.sum(list(draws.causes.values()), axis=0)
    left = left - left.mean(axis=0)
    bound = 0.6 * (np.abs(np.log(draws.losses / median)).max(axis=0)) ** 2 * median
    assert (np.abs(left).max(axis=0) < bound).all()


def test_noise_is_student_s_with_its_upper_half_stretched(posterior):
    """With one noise for all draws the log losses' noise has quantiles of a two-piece Student distribution of 3 degrees."""
    same = replace(posterior, unknowns=np.repeat(posterior.unknowns[:1], 800, axis=0))
    noise = draw_losses(same, at(1e20), seed=0, calibration=PLAIN)
    middle = np.median(noise.losses)
    deviates = noise.causes["noise"][:, 0] / middle / same.noise[0]
    assert np.mean(deviates > 0) == pytest.approx(UPWARD / (1 + UPWARD), abs=1e-3)
    assert np.quantile(-deviates[deviates < 0], (0.5, 0.9)) == pytest.approx(student(3).ppf([0.75, 0.95]), rel=0.01)
    assert np.quantile(deviates[deviates > 0], (0.5, 0.9)) == pytest.approx(UPWARD * student(3).ppf([0.75, 0.95]), rel=0.01)


def test_the_covariance_between_targets_is_that_of_the_draws_without_noise(posterior):
    """The variance that law and known misfit have over the draws, and the mean of what is left of the misfit."""
    targets = at(1e21, 1e23)
    covariance = joint_covariance(posterior, targets)
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens)
    places = Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))
    mean, left = posterior.misfit_at(places)
    assert np.diag(covariance) == pytest.approx((law + mean).var(axis=0, ddof=1) + left.mean(axis=0), rel=0.1)
    assert np.linalg.eigvalsh(covariance).min() > 0
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert 0.5 < correlation < 1


def test_at_a_run_that_was_seen_the_forecast_is_its_surroundings(posterior):
    """In the middle of the runs: the surface's loss within three standard errors of six runs' mean, and a narrow interval."""
    target = at(1e19)
    low, median, high = np.quantile(draw_losses(posterior, target, seed=0).losses[:, 0], (0.05, 0.5, 0.95))
    truth = float(surface_loss(SURFACE, params=target.params, tokens=target.tokens)[0])
    assert low < truth < high
    assert median == pytest.approx(truth, rel=3 * 0.002 / 6**0.5)
    assert (high - low) / median < 0.01


def test_a_target_s_draws_do_not_depend_on_the_other_targets(posterior):
    """Forecast alone or among others, it is the same run."""
    alone, among = (draw_losses(posterior, targets, seed=0).losses for targets in (at(1e22), at(1e19, 1e22, 1e23)))
    assert among[:, 1] == pytest.approx(alone[:, 0], rel=1e-12)


def test_measured_delphi_runs_lie_in_the_intervals_of_their_own_sizes():
    """All seven held-out runs, forecast at the sizes that were trained."""
    heldout = read_run_table(DELPHI / "heldout.csv").frame
    posterior = fit_posterior(fitted_runs(read_run_table(DELPHI).frame))
    flops, params, tokens = (heldout[name].to_numpy() for name in ("flops", "params", "tokens"))
    losses = draw_losses(posterior, Targets(flops=flops, params=params, tokens=tokens), seed=0).losses
    low, high = np.quantile(losses, (0.05, 0.95), axis=0)
    assert len(heldout) == 7
    assert ((low < heldout["loss"]) & (heldout["loss"] < high)).all()
