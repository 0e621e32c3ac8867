"""The slope of the density against complex steps through the density itself, over tables of every kind."""

import numpy as np
import pytest

from marin_scaling.fitting.coupled_law import Prior, prior_start
from marin_scaling.fitting.posterior import FittedRuns, PosteriorDensity, fitted_table, places_of, smooth_misfit

STEP = 1e-30  # of a complex step: no digits are lost
SPREAD = np.array([0.3, 0.7, 0.7, 0.6, 0.35, 0.7, 1.0, 0.7, 0.3])


def density(count, *, sparse=False, prior=None):
    """Of runs over three decades of compute and two of tokens per parameter, with a loss that follows no law of ours."""
    generator = np.random.default_rng(count)
    flops, ratio = 10 ** generator.uniform(18, 21, count), 10 ** generator.uniform(0.5, 2.5, count)
    params = np.sqrt(flops / 6 / ratio)
    loss = 1.7 + 1.5 * (flops / 1e18) ** -0.12 * np.exp(0.02 * generator.standard_normal(count))
    sparsity = np.log(generator.choice([4.0, 8.0, 16.0], count)) if sparse else None
    table = fitted_table(FittedRuns(flops=flops, params=params, tokens=ratio * params, loss=loss, log_sparsity=sparsity))
    misfit = smooth_misfit(places_of(table.runs), relative_variance=table.variance)
    misfit = misfit.weighted(table.variance**-0.5, noise_variance=1e-5, misfit_variance=4e-5)
    return PosteriorDensity(table=table, prior=prior or Prior(), misfit=misfit)


def points(of, *, sparse, count=20):
    """Rows spread as widely as the prior is."""
    start = prior_start(of.prior, middle_log_loss=of.table.middle_log_loss, sparse=sparse)
    return start + SPREAD[: len(start)] * np.random.default_rng(4).standard_normal((count, len(start)))


@pytest.mark.parametrize(("runs", "sparse"), [(5, False), (60, False), (300, False), (40, True)])
def test_value_and_slope_are_those_of_complex_steps(runs, sparse):
    """To twelve digits, at 20 points as wide apart as the prior: few runs, many, more than are taken, and sparse models."""
    of = density(runs, sparse=sparse)
    for point in points(of, sparse=sparse):
        value, slope = of.value_and_slope(point)
        stepped = of(point + 1j * STEP * np.eye(len(point)))
        assert value == pytest.approx(stepped[0].real, rel=1e-12)
        assert slope == pytest.approx(stepped.imag / STEP, rel=1e-9, abs=1e-9 * np.abs(slope).max())


def test_far_outside_of_any_table_the_slope_is_a_number():
    """A search that steps too far comes back: e^60 over the middle of the runs, where the power is cut off."""
    of = density(20)
    point = points(of, sparse=False, count=1)[0]
    point[1] = 4.0  # the loss would fall by e^55 for each e in size
    value, slope = of.value_and_slope(point)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
