"""The bowl of one budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.fitting.bowl import BowlShape, fit_bowl, noise_variance

TOKENS = 10.0 ** np.array([9.0, 9.3, 9.7, 10.1, 10.4])
FLOPS = np.full(5, 6e19)
PARAMS = FLOPS / 6 / TOKENS


def bowl_of(loss, **changes):
    return fit_bowl(FLOPS, **{"params": PARAMS, "tokens": TOKENS, "loss": np.asarray(loss), **changes})


@given(st.lists(st.floats(2.0, 4.0), min_size=5, max_size=5))
def test_coefficients_are_those_of_ordinary_least_squares(loss):
    """numpy.polyfit solves the same problem by another road (scaled Vandermonde matrix, singular values)."""
    bowl = bowl_of(loss)
    expected = np.polynomial.Polynomial.fit(np.log10(TOKENS), loss, 2)(np.log10(TOKENS))
    assert bowl.loss_at(TOKENS) == pytest.approx(expected, abs=1e-9)


@given(st.floats(9.1, 10.3), st.floats(0.05, 2.0), st.floats(1.0, 5.0))
def test_a_bowl_without_noise_gives_its_own_bottom(centre, curvature, bottom):
    """Where the runs enclose it."""
    bowl = bowl_of(bottom + curvature * (np.log10(TOKENS) - centre) ** 2)
    assert bowl.shape is BowlShape.CLOSED
    assert np.log10(bowl.optimal_tokens) == pytest.approx(centre, abs=1e-6)
    assert bowl.optimal_loss == pytest.approx(bottom, abs=1e-9)
    assert bowl.optimal_params * bowl.optimal_tokens * 6 == pytest.approx(6e19, rel=1e-6)


def test_a_bottom_outside_the_runs_is_not_extrapolated():
    """The lowest run stands for it, and a reader is told."""
    bowl = bowl_of(3 + 0.5 * (np.log10(TOKENS) - 11.5) ** 2)
    assert bowl.shape is BowlShape.EDGE
    assert (bowl.optimal_tokens, bowl.optimal_params) == (TOKENS[-1], PARAMS[-1])
    assert bowl.optimal_loss == pytest.approx(3 + 0.5 * 1.1**2)


def test_runs_on_a_hill_show_no_bowl():
    """A maximum is no optimum."""
    bowl = bowl_of(3 - 0.5 * (np.log10(TOKENS) - 9.8) ** 2)
    assert bowl.shape is BowlShape.OPEN
    assert bowl.optimal_tokens == TOKENS[0]


def test_the_leverage_is_the_variance_of_the_bottom():
    """Against 4,000 simulated bowls: their bottoms' variance over one run's; the tolerance is 4 standard errors."""
    generator = np.random.default_rng(7)
    truth = 3 + 0.4 * (np.log10(TOKENS) - 9.7) ** 2
    bottoms = [bowl_of(truth + 1e-3 * generator.standard_normal(5)).optimal_loss for _ in range(4000)]
    assert np.var(bottoms) / 1e-6 == pytest.approx(bowl_of(truth).leverage, rel=4 * np.sqrt(2 / 4000))


def test_the_noise_of_three_runs_cannot_be_known():
    """Three runs lie on their quadratic exactly; they add no degree of freedom and no square."""
    three = fit_bowl(FLOPS[:3], params=PARAMS[:3], tokens=TOKENS[:3], loss=np.array([3.2, 3.0, 3.1]))
    assert noise_variance([three]) == (0.0, 0)
    five = bowl_of([3.2, 3.05, 3.0, 3.06, 3.1])
    assert noise_variance([three, five]) == (pytest.approx(five.residual_sum_of_squares / 2), 2)
