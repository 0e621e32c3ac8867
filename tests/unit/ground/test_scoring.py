"""Scores against closed forms, brute force and their own laws."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from marin_scaling.preregistration.format import LEVELS
from marin_scaling.scoring import (
    crps,
    interval_score,
    level_weights,
    pinball_loss,
    probability_integral_transform,
    score,
    score_point,
    weighted_interval_score,
)

STANDARD = NormalDist()
FORECAST = {level: STANDARD.inv_cdf(level) for level in LEVELS}
observations = st.floats(-6, 6)


def forecast_of(values):
    return dict(zip(LEVELS, np.cumsum(values).tolist(), strict=True))


forecasts = st.lists(st.floats(1e-3, 2), min_size=23, max_size=23).map(forecast_of)


def normal_crps(observed):
    """Closed form for the standard normal (Gneiting & Raftery 2007, section 4.2)."""
    return observed * (2 * STANDARD.cdf(observed) - 1) + 2 * STANDARD.pdf(observed) - 1 / math.sqrt(math.pi)


@pytest.mark.parametrize("observed", [-3.0, -1.0, 0.0, 0.3, 1.0, 3.0])
def test_the_crps_of_a_normal_forecast_is_near_its_closed_form(observed):
    """23 levels carry the integral to 4 %: the cut tails of a normal cost that much, measured once and kept."""
    assert crps(FORECAST, observed=observed) == pytest.approx(normal_crps(observed), rel=0.04)


def test_the_mean_crps_of_an_honest_normal_forecast_is_its_closed_form():
    """Averaged over outcomes the sum is 0.998 of 1/sqrt(pi), the expected score of an honest standard normal."""
    outcomes = [STANDARD.inv_cdf((n + 0.5) / 4000) for n in range(4000)]
    mean = sum(crps(FORECAST, observed=outcome) for outcome in outcomes) / len(outcomes)
    assert mean * math.sqrt(math.pi) == pytest.approx(0.998, abs=0.002)


@pytest.mark.parametrize("observed", [-2.0, 0.1, 1.7])
def test_the_crps_is_the_integral_of_twice_the_pinball_loss(observed):
    """Brute force over a step function of the level: each stated quantile holds on the levels nearest to it."""
    fine = (np.arange(200_000) + 0.5) / 200_000
    nearest = np.abs(fine[:, None] - np.array(LEVELS)[None, :]).argmin(axis=1)  # (level)
    values = np.array([FORECAST[level] for level in LEVELS])[nearest]
    stated = np.array(LEVELS)[nearest]
    losses = np.maximum(stated * (observed - values), (stated - 1) * (observed - values))
    assert crps(FORECAST, observed=observed) == pytest.approx(2 * losses.mean(), rel=1e-3)  # 1/200000 steps a level


def test_the_weighted_interval_score_is_that_of_bracher_et_al():
    """Equation 2 written with the median and eleven intervals gives the same as the mean pinball loss."""
    observed, total = 1.3, 0.5 * abs(1.3 - FORECAST[0.5])
    for low, high in zip(LEVELS[:11], reversed(LEVELS[12:]), strict=True):
        miss = 2 * low
        total += miss / 2 * interval_score(FORECAST[low], FORECAST[high], observed=observed, miss_probability=miss)
    assert weighted_interval_score(FORECAST, observed=observed) == pytest.approx(total / 11.5, rel=1e-12)


def test_the_weights_of_the_levels_sum_to_one():
    """Each part of [0, 1] belongs to one level."""
    assert sum(level_weights(LEVELS)) == pytest.approx(1, abs=1e-15)
    assert level_weights(LEVELS)[0] == pytest.approx(0.0175)


@given(forecasts, observations)
def test_scores_are_never_negative_and_a_point_is_scored_by_its_distance(forecast, observed):
    """Zero is the best there is."""
    assert crps(forecast, observed=observed) >= 0
    assert weighted_interval_score(forecast, observed=observed) >= 0
    assert crps({0.5: 1.0}, observed=observed) == pytest.approx(abs(observed - 1.0))


@given(forecasts, observations, st.floats(0.1, 10), st.floats(-5, 5))
def test_scores_have_the_unit_of_the_loss(forecast, observed, scale, shift):
    """Measured in other units, a score changes by the factor and not by the offset."""
    moved = {level: scale * value + shift for level, value in forecast.items()}
    for rule in (crps, weighted_interval_score):
        expected = scale * rule(forecast, observed=observed)
        assert rule(moved, observed=scale * observed + shift) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(forecasts, observations)
def test_the_pit_is_a_level_and_grows_with_the_value(forecast, observed):
    """It is a distribution function between 0 and 1."""
    low, high = (probability_integral_transform(forecast, observed=value) for value in (observed, observed + 0.5))
    assert 0 < low <= high < 1


@given(forecasts)
def test_the_pit_of_a_stated_quantile_is_its_level(forecast):
    """The transform inverts the forecast."""
    for level, value in forecast.items():
        assert probability_integral_transform(forecast, observed=value) == pytest.approx(level, abs=1e-9)


def test_beyond_the_outermost_quantiles_the_pit_is_the_middle_of_the_tail():
    """Nothing was stated there, so nothing finer is claimed."""
    assert probability_integral_transform(FORECAST, observed=-9) == pytest.approx(0.005)
    assert probability_integral_transform(FORECAST, observed=9) == pytest.approx(0.995)


@pytest.mark.parametrize("rule", [crps, weighted_interval_score])
def test_an_honest_width_scores_best_on_average(rule):
    """Neither a narrower nor a wider forecast than the truth can win: the rule is proper."""
    outcomes = [STANDARD.inv_cdf((n + 0.5) / 500) for n in range(500)]

    def mean_score(width):
        forecast = {level: width * value for level, value in FORECAST.items()}
        return sum(rule(forecast, observed=outcome) for outcome in outcomes)

    assert mean_score(1.0) < min(mean_score(width) for width in (0.25, 0.5, 0.8, 1.25, 2.0, 4.0))


@given(observations, st.floats(0.01, 0.99))
def test_the_pinball_loss_is_least_at_the_value(observed, level):
    """And zero there."""
    assert pinball_loss(observed, level=level, observed=observed) == 0
    assert pinball_loss(observed + 1, level=level, observed=observed) > 0


def test_the_published_moe_forecast_is_scored_as_by_hand():
    """Registered 2.252, observed 2.234, asymptote 1.6: +0.81 % of the loss is +2.84 % of its reducible part.

    Numbers of marin-community/marin issue 4697; the percentages are computed from them by hand.
    """
    scores = score({0.05: 2.2, 0.5: 2.252, 0.95: 2.3}, observed=2.234, asymptote=1.6)
    assert scores.signed_error == pytest.approx(0.018)
    assert scores.per_cent_of_loss == pytest.approx(0.8057, abs=1e-4)
    assert scores.per_cent_of_reducible_loss == pytest.approx(2.839, abs=1e-3)
    assert scores.hit


@pytest.mark.parametrize(("asymptote", "expected"), [(None, None), (2.5, None), (2.0, 20.0)])
def test_no_reducible_part_no_per_cent_of_it(asymptote, expected):
    """An asymptote at or above the value leaves nothing to divide by, so the number is absent."""
    found = score({0.05: 2.0, 0.5: 2.6, 0.95: 3.0}, observed=2.5, asymptote=asymptote).per_cent_of_reducible_loss
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("observed", "hit"), [(0.9, True), (1.1, True), (0.8999, False), (1.1001, False)])
def test_a_hit_lies_in_the_central_interval_with_its_ends(observed, hit):
    """The rule can come out both ways."""
    assert score({0.05: 0.9, 0.5: 1.0, 0.95: 1.1}, observed=observed).hit is hit


@given(forecasts, observations, st.none() | st.floats(-3, 3))
def test_a_point_has_the_signed_scores_of_a_forecast_with_that_median(quantiles, observed, asymptote):
    """And its CRPS is the absolute error, whatever the interval around it were."""
    assume(observed != 0)
    point = score_point(quantiles[0.5], observed=observed, asymptote=asymptote)
    whole = score(quantiles, observed=observed, asymptote=asymptote)
    for name in ("signed_error", "per_cent_of_loss", "per_cent_of_reducible_loss"):
        assert getattr(point, name) == getattr(whole, name)
    assert point.crps == abs(quantiles[0.5] - observed)
