"""What a forecast hangs on: every row against the same choice made by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from marin_scaling.fitting.coupled_law import Normal, Prior
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.frontier import fit_frontier, fit_pinned_frontier
from marin_scaling.fitting.optima import fit_asymmetric_bowl
from marin_scaling.fitting.surface import fit_surface
from marin_scaling.forecast.forecast import forecast, sensitivity
from marin_scaling.forecast.report import sensitivity_text
from marin_scaling.laws import SurfaceLaw, frontier_loss, surface_loss
from marin_scaling.run.table import simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20)


def ladder(*, budgets=BUDGETS, sizes=6):
    return simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=sizes, noise=0.002, seed=0)


@pytest.fixture(scope="module")
def result():
    return fit(ladder())


@pytest.fixture(scope="module")
def ahead(result):
    return forecast(result, flops=1e21)


@pytest.fixture(scope="module")
def rows(result, ahead):
    return sensitivity(result, ahead)


def named(rows, text):
    return [row for row in rows if text in row.choice]


def test_the_forecast_itself_comes_first_and_every_choice_has_its_row(rows, ahead):
    """Laws, asymptotes, the additive surface, outliers, each of five budgets, the smaller half: each with a number."""
    assert rows[0].choice == "combined, as forecast"
    assert rows[0].median == ahead.median
    choices = [row.choice for row in rows]
    assert len(set(choices)) == len(choices)
    for expected in (
        "isoflop-frontier alone, E free",
        "frontier through skewed bowls (cubics), E free",
        "best-runs-frontier alone, E free",
        "five-parameter surface alone (log-Huber)",
        "coupled-surface alone",
        "all-runs-frontier alone",
        "combined, outliers at full weight",
        *(f"without the budget {budget}" for budget in ("1e18", "3e18", "1e19", "3e19", "1e20")),
        "without the 2 smallest of 5 budgets",
    ):
        assert expected in choices
    assert all(row.median > 0 and not row.why_none for row in rows)


def test_pinned_rows_are_straight_lines_through_the_drawn_optima(rows, result):
    """Asymptotes are round values across the posterior's 90 %; a higher one gives a higher forecast."""
    flops, loss = (np.array([getattr(point, name) for point in result.points]) for name in ("flops", "loss"))
    pinned = {float(row.choice.rsplit(" ", 1)[1]): row.median for row in named(rows, "with E pinned at")}
    assert 2 <= len(pinned) <= 4
    for asymptote, median in pinned.items():
        law = fit_pinned_frontier(flops, loss=loss, asymptote=asymptote)
        assert median == pytest.approx(float(frontier_loss(law, flops=1e21)), rel=1e-12)
    low, high = np.quantile(result.law.posterior.laws.E, (0.05, 0.95))
    assert min(pinned) == pytest.approx(low, rel=0.05)
    assert max(pinned) == pytest.approx(high, rel=0.05)
    assert all(first < second for first, second in pairwise(pinned.values()))


def test_the_row_of_skewed_bowls_is_the_frontier_through_cubics(rows, result):
    """The bottoms of `fit_asymmetric_bowl`, budget by budget, at the nominal FLOPs that simulated runs have."""
    budgets = [runs for _, runs in result.frame.groupby("budget_flops")]
    bottoms = [
        fit_asymmetric_bowl(tokens=runs["tokens"].to_numpy(), loss=runs["loss"].to_numpy()).optimal_loss for runs in budgets
    ]
    law = fit_frontier(np.array(BUDGETS), loss=np.array(bottoms))
    (row,) = named(rows, "skewed bowls")
    assert row.median == pytest.approx(float(frontier_loss(law, flops=1e21)), rel=1e-9)


def test_bowls_of_three_sizes_have_no_skew_and_say_so():
    """A cubic has four unknowns; the other rows stand."""
    few = fit(ladder(sizes=3))
    rows = sensitivity(few, forecast(few, flops=1e21))
    (row,) = named(rows, "skewed bowls")
    assert row.median is None
    assert "3 different numbers of tokens" in row.why_none


def test_refits_keep_the_prior_of_the_forecast():
    """With another prior of the frontier's exponent, that of every row that fits the law anew is that one too."""
    prior = Prior(frontier_exponent=Normal(mean=float(np.log(0.3)), deviation=0.05))
    special, usual = fit(ladder(), prior=prior), fit(ladder())
    ahead, otherwise = forecast(special, flops=1e23), forecast(usual, flops=1e23).median
    refits = [row for row in sensitivity(special, ahead) if "combined" in row.choice or "without" in row.choice]
    assert len(refits) == 8
    assert all(abs(row.median - ahead.median) < abs(row.median - otherwise) for row in refits)


@pytest.mark.parametrize("law", ["additive-surface", "isoflop-frontier"])
def test_under_another_law_budgets_are_left_out_under_that_law(law):
    """The row without the largest budget is that law's own forecast from the rest; the default law has a row."""
    table = ladder()
    other = fit(table, law=law)
    ahead = forecast(other, flops=1e21)
    rows = sensitivity(other, ahead)
    rest = fit(replace(table, frame=table.frame[table.frame["budget_flops"] < 5e19].reset_index(drop=True)), law=law)
    (row,) = named(rows, "without the budget 1e20")
    sizes = {"params": ahead.params, "tokens": ahead.tokens} if law == "additive-surface" else {}
    assert row.median == pytest.approx(forecast(rest, flops=1e21, **sizes).median, rel=1e-12)
    assert len([row for row in rows if row.choice == "combined"]) == 1


def test_each_law_alone_is_that_law_s_own_forecast(rows):
    """Fitted by name to the same runs; the additive surface at the forecast's own size."""
    for law in ("isoflop-frontier", "best-runs-frontier"):
        (row,) = named(rows, f"{law} alone")
        assert row.median == forecast(fit(ladder(), law=law), flops=1e21).median


def test_the_additive_surface_is_read_at_the_forecast_s_own_size(rows, ahead, result):
    """Five parameters by log-Huber, all runs."""
    frame = result.frame
    law = fit_surface(**{name: frame[name].to_numpy() for name in ("params", "tokens", "loss")}).law
    (row,) = named(rows, "five-parameter surface alone")
    assert row.median == pytest.approx(float(surface_loss(law, params=ahead.params, tokens=ahead.tokens)), rel=1e-12)


@pytest.mark.parametrize(("choice", "low", "high"), [("the budget 1e20", 0, 9e19), ("the 2 smallest", 5e18, 1e21)])
def test_budgets_left_out_give_the_forecast_of_the_other_runs(rows, ahead, choice, low, high):
    """Of the same run, size and length, with the same seed; the largest budget, and the two smallest of five."""
    table = ladder()
    rest = fit(replace(table, frame=table.frame[table.frame["flops"].between(low, high)].reset_index(drop=True)))
    (row,) = named(rows, f"without {choice}")
    assert row.median == forecast(rest, flops=1e21, params=ahead.params, tokens=ahead.tokens).median


def test_an_outlier_at_full_weight_moves_its_row_and_not_the_forecast():
    """A run near a bowl's bottom a fifth too high: that row is off by over 1 %, the forecast's truth is in its interval."""
    table = ladder(budgets=BUDGETS[2:])
    frame = table.frame.assign(loss=table.frame["loss"].where(table.frame.index != 13, 1.2 * table.frame["loss"]))
    result = fit(replace(table, frame=frame))
    ahead = forecast(result, flops=1e21)
    (row,) = named(sensitivity(result, ahead), "outliers at full weight")
    assert abs(row.median / ahead.median - 1) > 0.01
    assert ahead.interval()[0] < 2.3289 < ahead.interval()[1]  # the surface's optimum


def test_a_size_off_the_optimum_has_no_rows_of_laws_that_know_the_optimum_only():
    """Frontiers through optima and pinned asymptotes are left out; surfaces, each law alone, outliers and four budgets stay."""
    result = fit(ladder(budgets=BUDGETS[:4], sizes=4))
    off = forecast(result, flops=1e20, params=1e9, tokens=1e20 / 6 / 1e9)
    rows = sensitivity(result, off)
    assert [row.choice for row in named(rows, "frontier")] == ["all-runs-frontier alone"]
    assert rows[0].median == off.median
    assert len(named(rows, "surface")) == 3 + 1  # log-Huber, and the forecast's own
    assert len(rows) == 7 + len(named(rows, "without the budget")) == 11  # as forecast, surfaces, the frontier, outliers


def test_a_choice_that_gives_no_forecast_says_why():
    """Losses that rise when the largest budget is left out: none, with the refusal's sentence, beside the numbers."""
    table = ladder(budgets=(1e18, 3e18, 1e19, 1e20), sizes=4)
    lowered = np.where(table.frame["flops"] < 5e19, 0.7 * np.log10(table.frame["flops"] / 1e19), 0)
    result = fit(replace(table, frame=table.frame.assign(loss=table.frame["loss"] + lowered)))
    rows = sensitivity(result, forecast(result, flops=2e20))
    (row,) = named(rows, "without the budget 1e20")
    assert row.median is None
    assert "the loss does not fall with compute" in row.why_none
    text = sensitivity_text(rows, flops=1e21)
    assert f"{row.choice} could not be fitted: {row.why_none}" in " ".join(text.split())


def test_few_or_many_budgets_have_no_rows_of_single_ones():
    """Of three too little would be left; of eleven each matters little, and the smaller half is left out together."""
    three, eleven = fit(ladder(budgets=BUDGETS[:3])), fit(ladder(budgets=np.geomspace(1e18, 1e20, 11), sizes=3))
    assert named(sensitivity(three, forecast(three, flops=1e20)), "without") == []
    (row,) = named(sensitivity(eleven, forecast(eleven, flops=1e21)), "without")
    assert row.choice == "without the 5 smallest of 11 budgets"


def test_the_text_sets_every_median_beside_its_distance_from_the_forecast(rows):
    """In per cent of the forecast, whose own distance is nothing."""
    lines = sensitivity_text(rows, flops=1e21).splitlines()[1 : 1 + len(rows)]
    for line, row in zip(lines, rows, strict=True):
        assert row.choice in line
        assert line.endswith(f"{row.median:8.4f} {row.median / rows[0].median - 1:+8.2%}")
    assert lines[0].endswith("+0.00%")
