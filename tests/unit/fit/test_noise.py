"""Noise of runs and of budgets."""

import numpy as np
import pytest
from scipy.stats import chi2

from marin_scaling.fitting.bowl import fit_bowl
from marin_scaling.fitting.frontier import SEED_NOISE, _chi_squared_99, estimate_noise

TOKENS = 10.0 ** np.linspace(9, 10.5, 8)


def bowls(sigma, *, budgets, seed=0):
    generator = np.random.default_rng(seed)
    flops = np.geomspace(1e18, 1e20, budgets)
    truth = 3 + 0.4 * (np.log10(TOKENS) - 9.7) ** 2
    return [
        fit_bowl(np.full(8, each), params=each / 6 / TOKENS, tokens=TOKENS, loss=truth + sigma * generator.standard_normal(8))
        for each in flops
    ]


def noise_of(fitted, residuals):
    leverage = np.array([bowl.leverage for bowl in fitted])
    return estimate_noise(fitted, leverage=leverage, residuals=np.asarray(residuals), loss=np.full(len(fitted), 3.0))


def test_the_noise_of_runs_is_recovered():
    """100 bowls of eight runs have 500 degrees of freedom: a standard deviation to 10 %, three standard errors."""
    noise = noise_of(bowls(0.01, budgets=100), np.zeros(100))
    assert noise.run_variance**0.5 == pytest.approx(0.01, rel=0.1)
    assert (noise.budget_variance, noise.budgets_scatter, noise.at_floor) == (0, False, False)


def test_scatter_of_budgets_is_told_from_that_of_runs():
    """Optima .05 off a law whose runs are quiet to .003: nearly all of it is the budgets' own."""
    residuals = 0.05 * np.random.default_rng(1).standard_normal(60)
    noise = noise_of(bowls(0.003, budgets=60), residuals)
    assert noise.budgets_scatter
    assert noise.budget_variance**0.5 == pytest.approx(0.05, rel=0.3)
    assert noise.run_variance**0.5 == pytest.approx(0.003, rel=0.2)


def test_runs_without_noise_get_that_of_seeds():
    """An interval of no width would be a lie: the next run has another seed."""
    noise = noise_of(bowls(0.0, budgets=5), np.zeros(5))
    assert noise.at_floor
    assert noise.run_variance**0.5 == pytest.approx(SEED_NOISE * 3.0)


def test_three_budgets_of_three_runs_leave_nothing_to_tell_noise_by():
    """No degree of freedom at all."""
    three = [fit_bowl(np.full(3, 1e18), params=1e9 / TOKENS[:3], tokens=TOKENS[:3], loss=np.array([3.2, 3.0, 3.1]))] * 3
    assert noise_of(three, np.zeros(3)).run_freedom == 0


@pytest.mark.parametrize("freedom", range(1, 12))
def test_the_critical_value_is_that_of_the_chi_squared_distribution(freedom):
    """Against scipy; Wilson and Hilferty's cube is good to 1 %."""
    assert _chi_squared_99(freedom) == pytest.approx(chi2.ppf(0.99, freedom), rel=0.01)
