"""The frontier law with a free asymptote, by variable projection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares

from marin_scaling.fitting.frontier import fit_frontier, fit_frontiers
from marin_scaling.laws import FrontierLaw, frontier_loss

FLOPS = np.geomspace(1e18, 3e20, 6)


def losses(E, A, gamma):
    return frontier_loss(FrontierLaw(E=E, A=A, gamma=gamma, reference_flops=1e19), flops=FLOPS)


@given(E=st.floats(0.5, 3.0), A=st.floats(0.3, 3.0), gamma=st.floats(0.03, 0.5))
def test_a_law_without_noise_is_recovered(E, A, gamma):
    """To the eighth digit at the data, and E to 1e-4: near gamma = .03 it shows only in the ninth digit of the loss."""
    law = fit_frontier(FLOPS, loss=losses(E, A, gamma))
    assert frontier_loss(law, flops=FLOPS) == pytest.approx(losses(E, A, gamma), abs=1e-8)
    assert pytest.approx(E, abs=1e-4) == law.E


@given(st.integers(0, 10_000))
def test_an_independent_solver_finds_nothing_better(seed):
    """scipy's bounded trust-region solver, started at our answer and at two others, never gets below our sum of squares."""
    noise = 0.01 * np.random.default_rng(seed).standard_normal(len(FLOPS))
    observed = losses(1.7, 1.5, 0.1) + noise
    law = fit_frontier(FLOPS, loss=observed)
    ours = np.sum((frontier_loss(law, flops=FLOPS) - observed) ** 2)
    ratio = np.log(FLOPS / law.reference_flops)
    starts = ([1.0, 2.0, 0.08], [2.0, 1.0, 0.3], [law.E, law.A, law.gamma])
    theirs = [
        2
        * least_squares(lambda p: p[0] + p[1] * np.exp(-p[2] * ratio) - observed, start, bounds=([0, 0, 0.004], [9, 9, 4])).cost
        for start in starts
    ]
    assert ours <= min(theirs) * (1 + 1e-6)


def test_the_asymptote_is_never_negative():
    """Data that curve the other way want E below zero, which means nothing: E is 0, and the rest is fitted anew."""
    observed = 3.0 - 0.08 * np.log(FLOPS / 1e18)
    law = fit_frontier(FLOPS, loss=observed)
    assert law.E == 0
    slope = np.polyfit(np.log(FLOPS), np.log(observed), 1)[0]
    assert law.gamma == pytest.approx(-slope, rel=0.05)  # a pure power law, by another criterion (logarithms)


def test_losses_that_rise_with_compute_have_no_reducible_part():
    """A is 0 and E the mean: the status then says that the fit may not be used."""
    law = fit_frontier(FLOPS, loss=np.linspace(2.0, 3.0, 6))
    assert (0, pytest.approx(2.5)) == (law.A, law.E)


def test_a_weight_of_two_is_the_same_budget_twice():
    """What a bootstrap over budgets relies on."""
    observed = losses(1.7, 1.5, 0.1) + 0.01 * np.array([1, -1, 0.5, 0, -0.5, 1])
    weighted = fit_frontiers(FLOPS, losses=observed[None], weights=np.array([[2.0, 1, 1, 1, 1, 1]]), zooms=12)
    twice = fit_frontier(np.append(FLOPS, FLOPS[0]), loss=np.append(observed, observed[0]))
    target = np.array([1e22])
    assert weighted.losses(target)[0] == pytest.approx(frontier_loss(twice, flops=target), rel=1e-7)


def test_many_fits_at_once_are_the_fits_one_by_one():
    """Bootstrap resolution: gamma to 1e-4 of itself, so losses ten times beyond the data to 1e-4."""
    generator = np.random.default_rng(3)
    many = losses(1.7, 1.5, 0.1) + 0.005 * generator.standard_normal((20, len(FLOPS)))
    together = fit_frontiers(FLOPS, losses=many, weights=np.ones_like(many))
    alone = [frontier_loss(fit_frontier(FLOPS, loss=each), flops=[3e21])[0] for each in many]
    assert together.losses(np.array([3e21]))[:, 0] == pytest.approx(alone, abs=1e-4)
