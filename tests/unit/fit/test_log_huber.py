"""The descent of the log-Huber objective, many sets in step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_scaling.fitting.huber import centred, derivatives, descend, huber_function, terms

GENERATOR = np.random.default_rng(0)
PARAMS, TOKENS = 10 ** GENERATOR.uniform(8, 10, 40), 10 ** GENERATOR.uniform(9, 11.5, 40)
LOSS = (1.7 + 400 * PARAMS**-0.34 + 1500 * TOKENS**-0.33) * np.exp(0.003 * GENERATOR.standard_t(3, 40))
RUNS = centred(PARAMS, TOKENS, LOSS)
WEIGHTS = GENERATOR.integers(0, 4, (6, 40)).astype(float)
STARTS = GENERATOR.uniform([0, -2, -2, 0.2, 0.2], [1, 0, 0, 0.5, 0.5], (6, 5))


def ends(starts, weights):
    return descend(starts, RUNS, weights=weights, delta=1e-3, least_gain=1e-14)


def test_a_set_ends_in_the_same_place_whoever_goes_along():
    """Six together, and each alone."""
    together = ends(STARTS, WEIGHTS)
    alone = [ends(start[None], weight[None]) for start, weight in zip(STARTS, WEIGHTS, strict=True)]
    assert together.converged.all()
    assert together.value == pytest.approx([each.value[0] for each in alone], rel=1e-9)


def test_where_a_descent_arrives_the_gradient_is_zero():
    """The derivative of the objective by each unknown, beside the same sum with all signs alike."""
    found = ends(STARTS, WEIGHTS)
    parts = terms(found.theta, RUNS)
    residuals = np.log(parts.sum(axis=1)) - RUNS.log_loss
    slopes = derivatives(parts / parts.sum(axis=1, keepdims=True), RUNS) * WEIGHTS[:, None]
    gradient = np.sum(slopes * np.clip(residuals, -1e-3, 1e-3)[:, None], axis=2)
    assert np.abs(gradient).max() < 1e-5 * np.abs(slopes * 1e-3).sum(axis=2).min()


@settings(max_examples=30)
@given(st.lists(st.floats(-4, 4), min_size=5, max_size=5))
def test_a_descent_never_ends_above_its_start(start):
    """Wherever it starts: a step that does not gain is not taken."""
    begin = np.array([start])
    before = huber_function(np.log(terms(begin, RUNS).sum(axis=1)) - RUNS.log_loss, 1e-3).sum()
    assert ends(begin, np.ones((1, 40))).value[0] <= before * (1 + 1e-12)


@given(st.floats(-1, 1))
def test_hubers_function_is_half_the_square_inside_and_a_line_outside(residual):
    """With delta = 0.1."""
    expected = residual**2 / 2 if abs(residual) <= 0.1 else 0.1 * (abs(residual) - 0.05)
    assert huber_function(np.array([residual]), 0.1)[0] == pytest.approx(expected)
