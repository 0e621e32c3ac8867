"""Forecasts of whole loss curves, from curves whose shape is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import FitRefused
from marin_scaling.forecast.loss_curve import (
    FRACTIONS,
    CurveForecast,
    RunCurve,
    Schedule,
    change_of_schedule,
    forecast_curve,
    is_one_metric,
    losses_at_fractions,
    schedule_changes,
)
from marin_scaling.laws import Array

DONE = np.array(FRACTIONS)
FLOPS = (1e18, 4e18, 1.6e19, 6.4e19)


def end_at(flops: float) -> float:
    """Final loss of a run."""
    return float(1.7 + 60 * flops**-0.1)


def curve(flops: float, *, random: np.random.Generator | None = None, deviation: float = 0.0, known: int = 20) -> RunCurve:
    """A run whose shape deviates by a random walk that ends at 0."""
    shape = 0.06 * (-np.log(DONE)) ** 0.9
    if random is not None:
        left = -np.log(DONE) - np.append(-np.log(DONE[1:]), 0)  # variance of the walk between fractions, backwards
        walk = np.cumsum((deviation * np.sqrt(left) * random.normal(size=20))[::-1])[::-1]
        shape = shape + walk
    losses = end_at(flops) * np.exp(shape)
    losses[known:] = np.nan
    return RunCurve(flops=flops, tokens_per_param=20.0, losses=losses, end=end_at(flops))


def ends(flops: float, *, off: float = 0.0, spread: float = 0.01) -> Array:
    """Equally likely final losses around one that is off by a share."""
    return end_at(flops) * np.exp(off + spread * np.random.default_rng(0).normal(size=1000))


def run(known: int = 0, **changes: float) -> RunCurve:
    """The large run, with losses at the first fractions."""
    return curve(1e21, known=known, **changes)


def width(found: CurveForecast) -> float:
    """Width of the 90 % interval of the end, as a share."""
    return found.end[0.95] / found.end[0.05] - 1


def test_the_curve_of_a_larger_run_has_the_shape_of_the_smaller_ones() -> None:
    """The whole curve is right to 0.2 % where the end is."""
    found = forecast_curve([curve(each) for each in FLOPS], run(), ends(1e21))
    medians = np.array([found.by_fraction[each][0.5] for each in FRACTIONS])
    assert np.abs(medians / run(20).losses - 1).max() < 0.002


def test_a_longer_curve_narrows_the_end_and_moves_it_to_the_truth() -> None:
    """From a forecast that is 1.5 % too high."""
    rungs, off = [curve(each) for each in FLOPS], ends(1e21, off=0.015)
    found = [forecast_curve(rungs, run(known), off) for known in (0, 4, 10, 16)]
    assert sorted(map(width, found), reverse=True) == [*map(width, found)]
    errors = [abs(each.end[0.5] / end_at(1e21) - 1) for each in found]
    assert sorted(errors, reverse=True) == errors
    assert errors[-1] < 0.002


def test_intervals_hold_as_often_as_they_say() -> None:
    """The end and the mark at 80 %, given half of the curve, of 100 simulated ladders: 90 % +- three standard errors."""
    inside = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        rungs = [curve(each, random=random, deviation=0.003) for each in FLOPS]
        truth = curve(1e21, random=random, deviation=0.003)
        off = 0.01 * random.normal()
        begun = RunCurve(flops=1e21, tokens_per_param=20.0, losses=np.where(DONE <= 0.5, truth.losses, np.nan))
        found = forecast_curve(rungs, begun, ends(1e21, off=off))
        inside.append(found.end[0.05] <= end_at(1e21) <= found.end[0.95])
        inside.append(found.by_fraction[0.8][0.05] <= truth.losses[15] <= found.by_fraction[0.8][0.95])
    assert 0.81 <= np.mean(inside) <= 0.99


def test_curves_of_another_metric_are_taken_for_that() -> None:
    """The training loss of a run lies a fixed share above its final metric."""
    rungs = [RunCurve(flops=c, tokens_per_param=20.0, losses=1.4 * curve(c).losses, end=end_at(c)) for c in FLOPS]
    assert not is_one_metric(rungs)
    begun = RunCurve(flops=1e21, tokens_per_param=20.0, losses=np.where(DONE <= 0.8, 1.4 * run(20).losses, np.nan))
    before, found = (forecast_curve(rungs, each, ends(1e21, off=0.015)) for each in (run(), begun))
    assert abs(before.by_fraction[1.0][0.5] / (1.4 * end_at(1e21)) - 1) < 0.03
    assert abs(found.end[0.5] / end_at(1e21) - 1) < 0.006


def test_a_curve_that_stops_early_still_tells_its_shape() -> None:
    """A run without a final loss; with it the forecast of the beginning is narrower."""
    cut = RunCurve(flops=6.4e19, tokens_per_param=20.0, losses=curve(6.4e19, known=16).losses)
    less, more = (
        forecast_curve(rungs, run(), ends(1e21)) for rungs in ([curve(1e18), curve(4e18)], [curve(1e18), curve(4e18), cut])
    )
    first, second = (each.by_fraction[0.05] for each in (less, more))
    assert second[0.95] / second[0.05] < first[0.95] / first[0.05]


def test_one_curve_is_not_enough() -> None:
    """Two are needed, with two losses each."""
    with pytest.raises(FitRefused):
        forecast_curve([curve(1e18), curve(4e18, known=1)], run(), ends(1e21))


@given(st.integers(min_value=400, max_value=3000), st.floats(min_value=0.0, max_value=0.01))
def test_many_noisy_steps_give_the_loss_at_each_fraction(steps: int, noise: float) -> None:
    """A line before each fraction errs by less than five standard errors of its end."""
    fractions = np.arange(1, steps + 1) / steps
    losses = 3 - 0.5 * fractions
    found = losses_at_fractions(fractions, losses * np.exp(noise * np.random.default_rng(0).normal(size=steps)))
    in_line = steps / 40  # at least, from f/2 to 5 %
    assert np.abs(found / (3 - 0.5 * DONE) - 1).max() < 1e-3 + 5 * 2 * noise / np.sqrt(in_line)


def test_a_fraction_between_far_points_is_unknown() -> None:
    """Nothing is made up over a gap."""
    found = losses_at_fractions(np.array([0.1, 0.15, 0.4]), np.array([3.0, 2.9, 2.5]))
    assert np.flatnonzero(np.isfinite(found)).tolist() == [1, 2, 7]


def test_a_change_of_schedule_is_undone_by_the_change_back() -> None:
    """A cosine becomes a late decay and a cosine again; early losses are compared with the converted ones."""
    losses = 2.6 + 0.75 * (24 * DONE) ** -0.5
    cosine, late = Schedule(shape="cosine", floor=0.1), Schedule(decay=0.2)
    changed = losses * np.exp(change_of_schedule(losses, cosine, late))
    assert changed[14] > 1.01 * losses[14]
    back = changed * np.exp(change_of_schedule(changed, late, cosine))
    assert np.abs(np.log(back / losses)).max() < 0.005
    assert not change_of_schedule(losses, late, late).any()


def test_a_change_beyond_those_that_were_tested_is_refused() -> None:
    """The drop is in nats, so that it is a large share of a low loss."""
    curves = {"runs_schedule": {"decay": 0.0}, "schedule": {}, "runs": [{"run": "a", "losses": [1.2] * 20}]}
    with pytest.raises(FitRefused):
        schedule_changes(curves)


def test_converted_curves_widen_the_forecast_where_they_were_changed() -> None:
    """The end is as given; a run that follows the curve narrows its end."""
    change = np.where(DONE > 0.5, -0.04 * (DONE - 0.5), 0.0)
    plain, wide = (forecast_curve([curve(each) for each in FLOPS], run(), ends(1e21), changes=each) for each in (None, change))
    assert wide.by_fraction[0.5][0.95] < plain.by_fraction[0.5][0.95]
    assert wide.end == plain.end
