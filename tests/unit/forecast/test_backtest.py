"""Rolling back-tests: which runs are forecast from which, and how the forecasts are scored."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.coupled_law import Normal, Prior
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.backtest import (
    LEAST_FACTOR,
    MOST_CUTS,
    backtest,
    backtest_document,
    backtest_doubts,
    backtest_of_fit,
    backtest_text,
)
from marin_scaling.forecast.backtest import tested_text as sentence_of
from marin_scaling.forecast.forecast import LEVELS
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import read_run_table, simulate_ladder
from marin_scaling.scoring import crps

RUNS = Path(__file__).parents[3] / "runs"
DELPHI = RUNS / "delphi"
SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
DELPHI_BUDGETS = {3e18: 5, 9e18: 10, 1.8e19: 15, 3e19: 9, 9e19: 14, 1.8e20: 14, 3e20: 14}


def ladder(*, budgets, sizes=3, seed=0):
    return simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=sizes, noise=0.002, seed=seed)


def truthful(known, beyond):
    """A forecaster that knows: a point at every loss."""
    return [dict.fromkeys(LEVELS, float(loss)) for loss in beyond["loss"]]


@pytest.fixture(scope="module")
def delphi():
    return read_run_table(DELPHI)


@pytest.fixture(scope="module")
def tested(delphi):
    return backtest(delphi)


def test_every_later_budget_of_delphi_is_forecast_from_the_earlier_ones(tested):
    """From the third budget on, and only runs of at least half as much compute again: counted from the published table."""
    budgets, expected = sorted(DELPHI_BUDGETS), 0
    for place, cut in enumerate(budgets[2:], start=2):
        later = [budget for budget in budgets[place + 1 :] if budget / cut > LEAST_FACTOR]
        points = [point for point in tested.points if point.cut_flops == pytest.approx(cut, rel=0.01)]
        assert len(points) == sum(DELPHI_BUDGETS[budget] for budget in later)
        assert {f"{point.flops:.1e}" for point in points} == {f"{budget:.1e}" for budget in later}
        expected += len(points)
    assert len(tested.points) == expected == 51 + 42 + 28 + 14
    assert tested.refused == ()


def test_points_have_the_run_s_own_loss_and_are_scored_against_it(tested, delphi):
    """CRPS, error and interval again from the quantiles; each run's loss is that of the table."""
    loss = dict(zip(delphi.frame["run"], delphi.frame["loss"], strict=True))
    for point in tested.points:
        assert point.observed == loss[point.run]
        assert point.crps == crps(point.quantiles, observed=point.observed)
        assert point.error == pytest.approx(point.quantiles[0.5] / loss[point.run] - 1)
        assert point.inside(0.05, 0.95) == (point.quantiles[0.05] <= loss[point.run] <= point.quantiles[0.95])


def test_forecasts_of_delphi_are_near_and_their_intervals_hold_most_runs(tested):
    """Bowls included: errors of at most 1 % in the median, and 80 % or more of all runs in the 90 % intervals."""
    errors = np.array([point.error for point in tested.points])
    assert np.median(np.abs(errors)) < 0.01
    assert np.mean([point.inside(0.05, 0.95) for point in tested.points]) > 0.8


def test_only_runs_up_to_the_cut_are_known():
    """What a forecaster is given at each cut: the largest known run, the smallest to forecast, and how many of each."""
    seen = []

    def watching(known, beyond):
        seen.append((known.frame["flops"].max(), beyond["flops"].min(), len(known.frame), len(beyond)))
        return truthful(known, beyond)

    backtest(ladder(budgets=(1e18, 1.3e18, 3e18, 4e18, 1e19)), forecaster=watching)
    assert seen == [(3e18, 1e19, 9, 3), (4e18, 1e19, 12, 3)]  # 4e18 is nearer to 3e18 than half as much again


def test_a_loss_beyond_the_cut_changes_no_forecast_of_it():
    """The fit sees sizes of the runs to forecast, never their losses."""
    table = ladder(budgets=(1e18, 3e18, 1e19, 1e20), sizes=4)
    spoilt = table.frame["loss"].where(table.frame["flops"] < 5e19, 1.2 * table.frame["loss"])
    plain, changed = (backtest(each) for each in (table, replace(table, frame=table.frame.assign(loss=spoilt))))
    assert [point.quantiles for point in plain.points] == [point.quantiles for point in changed.points]
    assert all(0.15 < b.observed / a.observed - 1 < 0.25 for a, b in zip(plain.points, changed.points, strict=True))


def test_a_forecaster_that_returns_the_truth_has_no_error_and_always_hits(delphi):
    """CRPS zero to rounding, at every distance, and one that is 10 % high has an error and bias of 10 % and never hits."""
    for row in backtest(delphi, forecaster=truthful).by_distance():
        assert (row.median_absolute_error, row.bias, row.inside_50, row.inside_90) == (0, 0, 1, 1)
        assert row.crps == pytest.approx(0, abs=1e-12)

    def high(known, beyond):
        return [dict.fromkeys(LEVELS, 1.1 * float(loss)) for loss in beyond["loss"]]

    for row in backtest(delphi, forecaster=high).by_distance():
        assert (row.median_absolute_error, row.bias) == pytest.approx((0.1, 0.1))
        assert (row.inside_50, row.inside_90) == (0, 0)
        assert row.crps == pytest.approx(0.1)


def test_rows_by_distance_count_every_point_once(tested):
    """Between 1.5, 3, 10 and 30 times beyond; Delphi's budgets span a factor of 100, its cuts 17."""
    rows = tested.by_distance()
    assert [(row.nearest, row.farthest) for row in rows] == [(1.5, 3.0), (3.0, 10.0), (10.0, 30.0)]
    assert sum(row.count for row in rows) == len(tested.points)
    for row in rows:
        inside = [point for point in tested.points if row.nearest <= point.flops / point.cut_flops < row.farthest]
        assert row.count == len(inside)
        assert row.median_absolute_error == np.median([abs(point.error) for point in inside])


def test_a_cut_that_carries_no_forecast_is_listed_with_its_reason():
    """Losses that rise up to the third budget and fall after it: refused there, and forecast from the fourth on."""
    table = ladder(budgets=(1e18, 3e18, 1e19, 1e20, 1e21), sizes=4)
    lowered = np.where(table.frame["flops"] < 5e19, 0.7 * np.log10(table.frame["flops"] / 1e19), 0)
    found = backtest(replace(table, frame=table.frame.assign(loss=table.frame["loss"] + lowered)))
    assert [cut for cut, _ in found.refused] == [1e19]
    assert "the loss does not fall with compute" in found.refused[0][1]
    assert {point.cut_flops for point in found.points} == {1e20}
    assert "no forecast from runs up to 1e19 FLOPs: " in backtest_text(found)


def test_a_fit_is_back_tested_under_its_own_prior():
    """One that says that hardly anything can be removed forecasts far budgets higher."""
    table = ladder(budgets=(1e18, 3e18, 1e19, 1e20))
    usual, stubborn = fit(table), fit(table, prior=Prior(reducible_share=Normal(mean=-2.0, deviation=0.1)))
    far, near = (backtest_of_fit(each).points for each in (stubborn, usual))
    assert all(one.quantiles[0.5] > other.quantiles[0.5] for one, other in zip(far, near, strict=True))
    assert backtest_of_fit(stubborn) == backtest(table, prior=stubborn.law.prior, swept="all")


def test_a_table_that_is_too_small_is_said_to_forecast_nothing():
    """Three budgets have none beyond the third; nothing is invented."""
    found = backtest(ladder(budgets=(1e18, 3e18, 1e19)))
    assert found.points == found.refused == ()
    assert "no budget could be forecast from smaller ones" in backtest_text(found)


def test_of_many_budgets_eight_cuts_are_taken_the_first_and_last_among_them():
    """Thirty budgets of a run each: from the fourth, four runs, to the last but two, half as much again below the last."""
    budgets = np.geomspace(1e17, 1e20, 30)
    found = backtest(ladder(budgets=budgets, sizes=1), forecaster=truthful)
    cuts = sorted({point.cut_flops for point in found.points})
    assert len(cuts) == MOST_CUTS == 8
    assert (cuts[0], cuts[-1]) == pytest.approx((budgets[3], budgets[-3]))


@pytest.mark.parametrize("law", ["isoflop-frontier", "pinned-frontier@1.6"])
def test_a_frontier_law_is_back_tested_on_the_best_run_of_each_budget(delphi, law):
    """It knows no other size: one point for each cut and budget beyond, and its loss is the budget's lowest."""
    found = backtest(delphi, law=law)
    best = delphi.frame.groupby("budget_flops")["loss"].min()
    assert {point.observed for point in found.points} <= set(best)
    assert len({(point.cut_flops, point.observed) for point in found.points}) == len(found.points) == 10
    assert max(abs(point.error) for point in found.points) < 0.01  # at its own optimum it is a fair forecaster


def test_off_a_grid_a_frontier_law_is_back_tested_on_runs_that_no_cheaper_run_beats():
    """Of 40 runs at as many costs, each is the best of its budget; the badly sized ones say nothing of the frontier."""
    generator = np.random.default_rng(0)
    flops = np.sort(10 ** generator.uniform(18, 21, 40))
    params = np.sqrt(flops / 120) * 10 ** generator.uniform(-1, 1, 40)
    loss = surface_loss(SURFACE, params=params, tokens=flops / 6 / params)
    columns = {"flops": flops, "params": params, "tokens": flops / 6 / params, "loss": loss, "budget_flops": flops}
    frame = pd.DataFrame({"run": [f"r{n}" for n in range(40)], **columns})
    table = replace(ladder(budgets=(1e18, 1e19, 1e20)), frame=frame)
    observed = {point.observed for point in backtest(table, law="best-runs-frontier").points}
    unbeaten = {value for place, value in enumerate(loss) if value < loss[:place].min(initial=np.inf)}
    assert observed
    assert observed <= unbeaten
    assert len(unbeaten) < len(loss)


def test_an_unknown_law_is_an_error_and_no_refused_cut(delphi):
    """A typing error must not look like a table that carries nothing."""
    with pytest.raises(UsageError, match="'nosuch'"):
        backtest(delphi, law="nosuch")


def test_a_refusal_of_any_forecaster_is_listed():
    """Cut by cut, with its words."""

    def refusing(known, beyond):
        raise FitRefused("Not today.", why="Tired.", fix="Sleep.")

    found = backtest(ladder(budgets=(1e18, 3e18, 1e19, 1e20)), forecaster=refusing)
    assert found.refused == ((1e19, "Not today."),)


def test_the_document_has_every_point_and_no_infinite_number(tested):
    """What `--json` prints; the farthest class of all is open, and its end is null."""
    document = backtest_document(tested)
    assert len(document["points"]) == len(tested.points)
    assert set(document["points"][0]["quantiles"]) == {f"{level:g}" for level in LEVELS}
    far = backtest(ladder(budgets=(1e17, 2e17, 4e17, 1e20)), forecaster=truthful)
    assert backtest_document(far)["by_distance"][-1]["farthest"] is None
    assert "100x and more" in backtest_text(far)


def test_a_ladder_whose_back_test_missed_is_doubted():
    """Three of the four runs of the largest budget of `bytes-moe` lie below their intervals; its target was missed, too."""
    tested = backtest(read_run_table(RUNS / "bytes-moe"))
    assert [point.inside(0.05, 0.95) for point in tested.points].count(False) == 3
    bias = np.median([point.quantiles[0.5] / point.observed - 1 for point in tested.points])
    far, doubt = backtest_doubts(tested)
    assert "below" in far
    assert "of 4 runs forecast from smaller budgets 1 lay in their 90 % intervals" in doubt
    assert f"{bias:.1%} too high" in doubt
    assert "1 of 4 forecasts" in sentence_of(tested)
    assert f"{bias:.1%} too high" in " ".join(sentence_of(tested).split())


def test_a_ladder_whose_back_test_held_and_one_without_are_not_doubted(tested):
    """Delphi, and three budgets, of which none can be forecast from smaller ones."""
    assert backtest_doubts(tested) == []
    assert backtest_doubts(backtest(ladder(budgets=(1e18, 1e19, 1e20)))) == []


def test_the_back_test_of_a_fit_follows_from_its_runs_alone():
    """Three seeds of each size are no sweep; whoever fits these rows without their seeds again finds the same scores."""
    tables = [ladder(budgets=(1e17, 3e17, 1e18, 3e18, 1e19), seed=seed) for seed in range(3)]
    frame = pd.concat([table.frame.assign(seed=str(place)) for place, table in enumerate(tables)], ignore_index=True)
    frame["run"] = [f"run {row}" for row in frame.index]
    signed = fit(replace(tables[0], frame=frame))
    again = fit(replace(tables[0], frame=signed.frame.drop(columns="seed")), swept="all")
    assert backtest_of_fit(again).by_distance() == backtest_of_fit(signed).by_distance()
    assert len(backtest_of_fit(signed).points) == 27  # nine runs of each of two budgets, and nine of the last one again


def test_of_a_sweep_the_best_runs_are_forecast(delphi):
    """Each run of Delphi and two that are 1 and 2 % worse: the scores are those of the runs themselves."""
    tunings = [
        delphi.frame.assign(run=delphi.frame["run"] + f"-{worse}", loss=delphi.frame["loss"] * worse)
        for worse in (1, 1.01, 1.02)
    ]
    swept = replace(delphi, frame=pd.concat(tunings).sort_values("flops", kind="stable", ignore_index=True))
    for found, known in zip(backtest(swept).by_distance(), backtest(delphi).by_distance(), strict=True):
        assert asdict(found) == pytest.approx(asdict(known), rel=1e-9)


def test_a_budget_measured_otherwise_is_named_although_most_forecasts_held(delphi):
    """Delphi's largest budget with losses higher by 0.05 nats."""
    frame = delphi.frame
    tested = backtest(replace(delphi, frame=frame.assign(loss=frame["loss"] + 0.05 * (frame["budget_flops"] == 3e20))))
    assert np.mean([point.inside(0.05, 0.95) for point in tested.points]) > 0.5
    (doubt,) = backtest_doubts(tested)
    assert "3e20" in doubt
    assert "above" in doubt
