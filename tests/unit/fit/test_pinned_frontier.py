"""The frontier law with a pinned asymptote."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.fitting.frontier import fit_frontier, fit_pinned_frontier, fit_pinned_frontiers, resample
from marin_scaling.fitting.law import find_law
from marin_scaling.forecast.forecast import forecast
from marin_scaling.laws import FrontierLaw, frontier_loss
from marin_scaling.run.table import read_run_table

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
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
    with pytest.raises(FitRefused, match="All 3 losses are at the same 1e"):
        fit_pinned_frontier(np.full(3, 1e19), loss=np.array([3.0, 2.9, 2.8]), asymptote=1.5)


def test_weighted_lines_are_those_of_weighted_least_squares():
    """numpy's polynomial fit takes the roots of the weights; 20 data sets at once."""
    generator = np.random.default_rng(0)
    losses, weights = generator.uniform(2, 3, (20, 6)), generator.dirichlet(np.ones(6), 20)
    found = fit_pinned_frontiers(FLOPS, losses=losses, weights=weights, asymptote=1.5).losses(FLOPS)
    for at, loss, weight in zip(found, losses, weights, strict=True):
        line = np.polynomial.Polynomial.fit(np.log(FLOPS), np.log(loss - 1.5), 1, w=np.sqrt(weight))
        assert at == pytest.approx(1.5 + np.exp(line(np.log(FLOPS))), rel=1e-9)


def test_delphi_pinned_at_1_6_is_forecast_as_others_have_it():
    """2.7452, 2.5212 and 2.3411 were published for bowls of other make; ours agree within what bowls differ by."""
    result = fit(read_run_table(DELPHI), law="pinned-frontier@1.6")
    assert frontier_loss(result.law.frontier, flops=[1e21, 1e22, 1e23]) == pytest.approx([2.7452, 2.5212, 2.3411], abs=1e-3)
    assert result.status is FitStatus.PINNED_ASYMPTOTE
    assert (result.law.name, result.law.parameters["E"]) == ("pinned-frontier@1.6", 1.6)


def test_every_resample_keeps_the_asymptote_and_no_loss_falls_below_it():
    """The interval is about the line alone."""
    result = fit(read_run_table(DELPHI), law="pinned-frontier@1.6")
    laws = resample(result.law, seed=0).laws
    assert set(laws.E) == {1.6}
    assert laws.losses(np.array([1e30])).min() > 1.6
    ahead = forecast(result, flops=1e23)
    assert ahead.interval()[0] < ahead.median < ahead.interval()[1]


def test_an_asymptote_within_the_noise_of_the_losses_is_refused():
    """Its logarithm would be that of noise."""
    with pytest.raises(FitRefused, match=r"lies 0.0829 above the asymptote pinned at 2.8"):
        fit(read_run_table(DELPHI), law="pinned-frontier@2.8")


@pytest.mark.parametrize("number", ["", "@", "@nan", "@-1", "@1_6"])
def test_a_pinned_law_without_a_number_is_refused(number):
    """There is no default: nobody's constant is chosen here."""
    with pytest.raises(UsageError, match="pinned asymptote"):
        find_law(f"pinned-frontier{number}")


@pytest.mark.parametrize(("budgets", "sentence"), [(2, "2 usable budgets; this law needs 3"), (3, None)])
def test_few_budgets_are_refused_or_doubted_by_the_number_of_its_unknowns(budgets, sentence):
    """It has two: with three budgets one is left to test it, barely; with two nothing."""
    table = read_run_table(DELPHI)
    kept = sorted(table.frame["budget_flops"].unique())[-budgets:]
    few = replace(table, frame=table.frame[table.frame["budget_flops"].isin(kept)].reset_index(drop=True))
    if sentence:
        with pytest.raises(FitRefused, match=sentence):
            fit(few, law="pinned-frontier@1.6")
    else:
        assert FitStatus.FEW_BUDGETS.value in fit(few, law="pinned-frontier@1.6").warnings
