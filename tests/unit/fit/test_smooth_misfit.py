"""The smooth misfit against textbook formulas with whole matrices, and against scipy's normal distribution."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from marin_scaling.fitting.model_discrepancy import COMPUTE_LENGTH, RATIO_LENGTH, Places, smooth_misfit

RUNS = 12


def places(count, *, seed):
    generator = np.random.default_rng(seed)
    return Places(log_flops=generator.uniform(18, 21, count), log_ratio=generator.uniform(0, 3, count))


def kernel(first, second):
    """Squared exponential, a product over both directions, run by run."""
    return np.array(
        [
            [
                np.exp(-((c - d) ** 2) / (2 * COMPUTE_LENGTH**2)) * np.exp(-((r - s) ** 2) / (2 * RATIO_LENGTH**2))
                for d, s in zip(second.log_flops, second.log_ratio, strict=True)
            ]
            for c, r in zip(first.log_flops, first.log_ratio, strict=True)
        ]
    )


RUN_PLACES, TARGETS = places(RUNS, seed=0), places(5, seed=1)
RELATIVE = np.random.default_rng(2).uniform(0.5, 4.0, RUNS)
RESIDUALS = 0.01 * np.random.default_rng(3).standard_normal((3, RUNS))
NOISE, MISFIT = np.array([1e-5, 4e-6, 9e-5]), np.array([2.5e-5, 1e-4, 1e-6])
PROCESS = smooth_misfit(RUN_PLACES, relative_variance=RELATIVE)


def covariance(draw):
    return MISFIT[draw] * kernel(RUN_PLACES, RUN_PLACES) + NOISE[draw] * np.diag(RELATIVE)


def test_the_likelihood_is_the_normal_one_of_misfit_and_noise_together_up_to_a_constant():
    """All differences between three settings, determinants included, agree with scipy's density of the whole covariance."""
    found = PROCESS.log_likelihood(RESIDUALS, noise_variance=NOISE, misfit_variance=MISFIT)
    known = np.array([multivariate_normal(np.zeros(RUNS), covariance(draw)).logpdf(RESIDUALS[draw]) for draw in range(3)])
    assert np.ptp(known) > 10  # the settings do differ
    assert found - found[0] == pytest.approx(known - known[0], abs=1e-8)


def test_the_misfit_at_targets_is_the_conditional_normal():
    """Mean k' V^-1 r and variance k0 - k' V^-1 k by solving with the whole covariance V (Rasmussen and Williams 2006, 2.25)."""
    mean, variance = PROCESS.at(TARGETS, RESIDUALS, noise_variance=NOISE, misfit_variance=MISFIT)
    for draw in range(3):
        reach = MISFIT[draw] * kernel(RUN_PLACES, TARGETS)
        assert mean[draw] == pytest.approx(reach.T @ np.linalg.solve(covariance(draw), RESIDUALS[draw]), rel=1e-8)
        left = MISFIT[draw] - np.sum(reach * np.linalg.solve(covariance(draw), reach), axis=0)
        assert variance[draw] == pytest.approx(left, rel=1e-8)


def test_the_covariance_between_targets_is_the_conditional_one_and_its_diagonal_the_variance():
    """For one draw by a direct solve; for several it is their mean."""
    each = [PROCESS.mean_covariance(TARGETS, noise_variance=NOISE[[i]], misfit_variance=MISFIT[[i]]) for i in range(3)]
    for draw in range(3):
        reach = MISFIT[draw] * kernel(RUN_PLACES, TARGETS)
        known = MISFIT[draw] * kernel(TARGETS, TARGETS) - reach.T @ np.linalg.solve(covariance(draw), reach)
        assert each[draw] == pytest.approx(known, rel=1e-7, abs=1e-15)
    _, variance = PROCESS.at(TARGETS, RESIDUALS, noise_variance=NOISE, misfit_variance=MISFIT)
    assert np.array([np.diag(one) for one in each]) == pytest.approx(variance, rel=1e-7)
    together = PROCESS.mean_covariance(TARGETS, noise_variance=NOISE, misfit_variance=MISFIT)
    assert together == pytest.approx(np.mean(each, axis=0), rel=1e-9, abs=1e-18)


def test_the_smooth_part_is_the_misfit_at_the_runs_themselves():
    """Two ways to the same numbers, and the rest is smaller than the residuals."""
    for draw in range(3):
        part = PROCESS.smooth_part(RESIDUALS[draw], noise_variance=NOISE[draw], misfit_variance=MISFIT[draw])
        mean, _ = PROCESS.at(RUN_PLACES, RESIDUALS, noise_variance=NOISE, misfit_variance=MISFIT)
        assert part == pytest.approx(mean[draw], rel=1e-8)
        weighted = RESIDUALS[draw] ** 2 / RELATIVE
        assert np.sum((RESIDUALS[draw] - part) ** 2 / RELATIVE) < weighted.sum()


def test_far_from_all_runs_nothing_is_known_of_the_misfit():
    """Ten decades away the mean is zero and the variance tau squared."""
    far = Places(log_flops=np.array([31.0]), log_ratio=np.array([1.0]))
    mean, variance = PROCESS.at(far, RESIDUALS, noise_variance=NOISE, misfit_variance=MISFIT)
    assert mean[:, 0] == pytest.approx(np.zeros(3), abs=1e-12)
    assert variance[:, 0] == pytest.approx(MISFIT, rel=1e-9)


def test_runs_at_one_place_share_their_misfit_and_are_no_obstacle():
    """Seeds of one run make the kernel singular: the variance there is that of their mean, never below zero."""
    same = Places(log_flops=np.full(4, 19.0), log_ratio=np.full(4, 1.3))
    process = smooth_misfit(same, relative_variance=np.ones(4))
    here = Places(log_flops=np.array([19.0]), log_ratio=np.array([1.3]))
    residuals = np.array([[0.01, 0.02, 0.03, 0.02]])
    mean, variance = process.at(here, residuals, noise_variance=np.array([4e-4]), misfit_variance=np.array([1e-4]))
    assert mean[0, 0] == pytest.approx(0.02 * 1e-4 / (1e-4 + 4e-4 / 4))
    assert variance[0, 0] == pytest.approx(1e-4 * 1e-4 / (1e-4 + 1e-4))
