"""The frontier law with a pinned asymptote."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import FitRefused
from marin_scaling.fit.frontier import fit_frontier
from marin_scaling.fit.pinned_frontier import fit_pinned_frontier
from marin_scaling.laws import FrontierLaw, frontier_loss

FLOPS = np.geomspace(1e18, 3e20, 6)


@given(E=st.floats(-1.0, 3.0), A=st.floats(0.3, 3.0), gamma=st.floats(0.03, 0.5))
def test_a_law_pinned_at_its_own_asymptote_is_recovered(E, A, gamma):
    """All digits but the last few, from losses without noise; a negative asymptote is the caller's business."""
    loss = frontier_loss(FrontierLaw(E=E, A=A, gamma=gamma, reference_flops=1e19), flops=FLOPS)
    law = fit_pinned_frontier(FLOPS, loss=loss, asymptote=E)
    assert law.gamma == pytest.approx(gamma, rel=1e-9)
    assert frontier_loss(law, flops=[1e23]) == pytest.approx(E + A * (1e23 / 1e19) ** -gamma, rel=1e-9)
    assert law.E == E


@given(st.lists(st.floats(2.0, 4.0), min_size=6, max_size=6), st.floats(0.0, 1.9))
def test_the_line_is_that_of_ordinary_least_squares(losses, asymptote):
    """numpy's polynomial fit solves the same problem by singular values."""
    law = fit_pinned_frontier(FLOPS, loss=np.array(losses), asymptote=asymptote)
    line = np.polynomial.Polynomial.fit(np.log(FLOPS), np.log(np.array(losses) - asymptote), 1)
    assert frontier_loss(law, flops=FLOPS) == pytest.approx(asymptote + np.exp(line(np.log(FLOPS))), rel=1e-9)


def test_a_higher_asymptote_forecasts_a_higher_loss():
    """Which is why a pinned one is never the last word."""
    loss = 1.7 + 1.5 * (FLOPS / 1e19) ** -0.1
    forecasts = [frontier_loss(fit_pinned_frontier(FLOPS, loss=loss, asymptote=E), flops=[1e24])[0] for E in (1.5, 1.7, 1.9)]
    assert forecasts == sorted(forecasts)
    assert forecasts[1] == pytest.approx(frontier_loss(fit_frontier(FLOPS, loss=loss), flops=[1e24])[0], rel=1e-6)


@pytest.mark.parametrize("asymptote", [2.0, 2.5, np.nan])
def test_a_loss_at_or_below_the_asymptote_is_refused(asymptote):
    """Both numbers are named."""
    with pytest.raises(FitRefused, match="A loss of 2 is not above the pinned asymptote"):
        fit_pinned_frontier(FLOPS, loss=np.linspace(3, 2, 6), asymptote=asymptote)


def test_one_budget_has_no_slope():
    """However many runs it holds."""
    with pytest.raises(FitRefused, match="All 3 losses were bought with the same 1e"):
        fit_pinned_frontier(np.full(3, 1e19), loss=np.array([3.0, 2.9, 2.8]), asymptote=1.5)
