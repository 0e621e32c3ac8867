"""The bowl of one budget with skew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_figures import delphi_runs_by_budget

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.bowl import SkewedBowlShape, fit_asymmetric_bowl, fit_bowl
from marin_scaling.laws import SurfaceLaw, optimal_params, surface_loss

HOFFMANN = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
FLOPS = 1e19
BEST_PARAMS = optimal_params(HOFFMANN, flops=FLOPS)
BEST_TOKENS = FLOPS / 6 / BEST_PARAMS
BEST_LOSS = float(surface_loss(HOFFMANN, params=BEST_PARAMS, tokens=BEST_TOKENS))
LOG_TOKENS = np.linspace(9.0, 10.6, 7)


def percent_off(lowest, highest, *, cubic, noise=0.0):
    """Errors of D* and L* in per cent, for nine runs from `lowest` to `highest` times the best number of tokens."""
    tokens = BEST_TOKENS * np.geomspace(lowest, highest, 9)
    params = FLOPS / 6 / tokens
    loss = surface_loss(HOFFMANN, params=params, tokens=tokens) + noise
    quadratic = fit_bowl(np.full(9, FLOPS), params=params, tokens=tokens, loss=loss)
    found = fit_asymmetric_bowl(tokens=tokens, loss=loss) if cubic else quadratic
    return 100 * (found.optimal_tokens / BEST_TOKENS - 1), 100 * (found.optimal_loss / BEST_LOSS - 1)


@pytest.mark.parametrize(
    ("lowest", "highest", "quadratic", "cubic"),
    [
        (1 / 4, 4, (-1.4, -0.008), (0.0, -0.008)),
        (1 / 10, 10, (-3.8, -0.062), (0.1, -0.059)),
        (1 / 2, 8, (0.6, -0.055), (0.6, 0.005)),
        (1 / 10, 90, (-4.2, -1.141), (10.7, -0.070)),
    ],
)
def test_the_errors_on_an_exact_surface_are_those_that_the_module_states(lowest, highest, quadratic, cubic):
    """Every digit of its table."""
    for is_cubic, stated in ((False, quadratic), (True, cubic)):
        tokens_off, loss_off = percent_off(lowest, highest, cubic=is_cubic)
        assert (round(tokens_off, 1), round(loss_off, 3)) == pytest.approx(stated)


@pytest.mark.parametrize(("reach", "quadratic", "cubic"), [(4, 1.7, 2.3), (10, 3.9, 1.4)])
def test_what_the_fourth_number_costs_under_noise_is_what_the_module_states(reach, quadratic, cubic):
    """Root mean square error of D* in per cent over 2,000 bowls at 0.003 nats a run, which know it to 1.6 % of itself."""
    generator = np.random.default_rng(0)
    errors = [
        percent_off(1 / reach, reach, cubic=each % 2 == 1, noise=generator.normal(0, 0.003, 9))[0] for each in range(4000)
    ]
    assert np.sqrt(np.mean(np.square(errors[::2]))) == pytest.approx(quadratic, abs=0.1)
    assert np.sqrt(np.mean(np.square(errors[1::2]))) == pytest.approx(cubic, abs=0.1)


@given(st.floats(9.2, 10.4), st.floats(0.1, 2.0), st.floats(-0.1, 0.1), st.floats(1.0, 5.0))
def test_a_cubic_without_noise_gives_its_own_bottom(centre, curvature, skew, bottom):
    """Where the runs enclose it and the other turn, 2 / (3 skew) away, is outside them."""
    x = LOG_TOKENS - centre
    bowl = fit_asymmetric_bowl(tokens=10**LOG_TOKENS, loss=bottom + curvature * (x**2 + skew * x**3))
    assert bowl.shape is SkewedBowlShape.CLOSED
    assert np.log10(bowl.optimal_tokens) == pytest.approx(centre, abs=1e-6)
    assert (bowl.optimal_loss, bowl.skew) == (pytest.approx(bottom, abs=1e-9), pytest.approx(skew, abs=1e-6))


@given(st.lists(st.floats(2.0, 4.0), min_size=7, max_size=7))
def test_the_residuals_are_those_of_ordinary_least_squares(loss):
    """numpy's polynomial fit solves the same problem by singular values."""
    cubic = np.polynomial.Polynomial.fit(LOG_TOKENS, loss, 3)
    squares = float(np.sum((cubic(LOG_TOKENS) - loss) ** 2))
    assert fit_asymmetric_bowl(tokens=10**LOG_TOKENS, loss=np.array(loss)).residual_sum_of_squares == pytest.approx(
        squares, abs=1e-9
    )


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (3 + 0.5 * (LOG_TOKENS - 11.5) ** 2, SkewedBowlShape.EDGE),
        (3 - 0.5 * (LOG_TOKENS - 9.8) ** 2, SkewedBowlShape.OPEN),
        (3 - (LOG_TOKENS - 9.8) ** 3 - (LOG_TOKENS - 9.8), SkewedBowlShape.OPEN),
        (3 + (LOG_TOKENS - 9.4) ** 2 * (LOG_TOKENS - 10.6) * -1, SkewedBowlShape.BENT_TWICE),
    ],
)
def test_a_curve_without_one_bottom_among_the_runs_gives_the_lowest_run_and_says_why(loss, shape):
    """It is never extrapolated."""
    bowl = fit_asymmetric_bowl(tokens=10**LOG_TOKENS, loss=loss)
    assert bowl.shape is shape
    assert (bowl.optimal_loss, bowl.skew, bowl.leverage) == (loss.min(), None, 1.0)
    assert bowl.shape.value.startswith("Not usable")


def test_the_leverage_is_the_variance_of_the_bottom():
    """Against 4,000 simulated bowls: their bottoms' variance over one run's; the tolerance is 4 standard errors."""
    generator, tokens = np.random.default_rng(7), 10**LOG_TOKENS
    truth = 3 + 0.4 * (LOG_TOKENS - 9.7) ** 2 + 0.05 * (LOG_TOKENS - 9.7) ** 3
    noisy = truth + 1e-4 * generator.standard_normal((4000, 7))
    bottoms = [fit_asymmetric_bowl(tokens=tokens, loss=loss).optimal_loss for loss in noisy]
    assert np.var(bottoms) / 1e-8 == pytest.approx(
        fit_asymmetric_bowl(tokens=tokens, loss=truth).leverage, rel=4 * np.sqrt(2 / 4000)
    )


def test_delphis_bowls_are_skewed():
    """At six of seven budgets the cubic leaves about a quarter of the quadratic's squares or less; all seven are closed."""
    ratios = []
    for runs in delphi_runs_by_budget():
        quadratic = fit_bowl(runs["flops"], params=runs["params"], tokens=runs["tokens"], loss=runs["loss"])
        cubic = fit_asymmetric_bowl(tokens=runs["tokens"], loss=runs["loss"])
        assert cubic.shape is SkewedBowlShape.CLOSED
        ratios.append(cubic.residual_sum_of_squares / quadratic.residual_sum_of_squares)
    assert ratios[0] > 0.5  # five runs only
    assert max(ratios[1:]) < 0.27
    assert min(ratios) == pytest.approx(1 / 14, abs=0.002)


def test_three_numbers_of_tokens_are_refused():
    """Whatever the number of runs."""
    with pytest.raises(FitRefused, match="3 different numbers of tokens"):
        fit_asymmetric_bowl(tokens=np.array([1e9, 1e9, 2e9, 4e9]), loss=np.array([3.1, 3.0, 2.9, 3.0]))
