"""Weighted draws agree with distributions that are known, and with sums over a grid."""

import numpy as np
import pytest

from marin_scaling.fitting.importance_sampling import sample_posterior


def gaussian(points):
    """Nine unknowns, standard deviations from 0.02 to 1, neighbours correlated by 0.9."""
    scaled = points / np.geomspace(0.02, 1, 9) - 1
    rotated = np.concatenate([scaled[:, :1], (scaled[:, 1:] - 0.9 * scaled[:, :-1]) / np.sqrt(1 - 0.81)], axis=1)
    return -0.5 * np.sum(rotated**2, axis=1)


def bent(points):
    """A ridge along a parabola, with a heavy tail on one side."""
    return -0.5 * (points[:, 0] ** 2 + (points[:, 1] - points[:, 0] ** 2) ** 2 / 0.3) - 0.3 * np.exp(points[:, 0] - 1)


def test_a_gaussian_of_nine_correlated_unknowns_is_recovered():
    """Means within three standard errors, standard deviations within 5 %, from a start far away."""
    found = sample_posterior(gaussian, starts=np.full((1, 9), 3.0), seed=0, draws=4000)
    scales = np.geomspace(0.02, 1, 9)
    assert found.effective > 4000
    assert found.mode == pytest.approx(scales, rel=1e-3)
    means = found.weights @ found.points
    assert np.abs((means - scales) / scales).max() < 3 / np.sqrt(found.effective)
    spread = np.sqrt(found.weights @ (found.points - means) ** 2)
    assert spread == pytest.approx(scales, rel=0.05)


def test_a_bent_ridge_agrees_with_a_sum_over_a_grid():
    """Two independent ways to the same means and the same tail."""
    x, y = (axis.ravel() for axis in np.meshgrid(np.linspace(-6, 5, 800), np.linspace(-4, 30, 1600)))
    density = np.exp(bent(np.stack([x, y], axis=1)))
    density /= density.sum()
    found = sample_posterior(bent, starts=np.zeros((1, 2)), seed=1, draws=20_000)
    means = found.weights @ found.points
    assert means == pytest.approx([density @ x, density @ y], abs=0.03)
    assert found.weights @ (found.points[:, 1] > 4) == pytest.approx(density @ (y > 4), abs=0.01)


def test_the_highest_of_several_modes_is_found_from_starts_at_each():
    """Two bumps, one twice as high."""

    def bumps(points):
        return np.log(np.exp(-0.5 * (points[:, 0] + 4) ** 2) + 2 * np.exp(-0.5 * (points[:, 0] - 4) ** 2))

    assert sample_posterior(bumps, starts=np.array([[-3.0], [3.0]]), seed=0).mode[0] == pytest.approx(4, abs=1e-3)


def test_equal_seeds_give_equal_draws_and_resampling_keeps_the_mean():
    """And another seed gives other draws."""
    first, again, other = (sample_posterior(gaussian, starts=np.zeros((1, 9)), seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.points, again.points)
    assert not np.array_equal(first.points, other.points)
    assert first.equally_weighted(2000).mean(axis=0) == pytest.approx(first.weights @ first.points, rel=0.05)
