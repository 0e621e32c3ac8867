"""How a budget is split: what FLOPs pay for, where the optimum lies, and how sure that is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marin_scaling.fitting.combined_law import fitted_runs
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.optima import allocation_through, through_best_runs, through_bowls
from marin_scaling.fitting.posterior import fit_posterior
from marin_scaling.laws import SurfaceLaw, optimal_params
from marin_scaling.run.table import read_run_table, simulate_ladder

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"
SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
SYMMETRIC = SurfaceLaw(E=1.69, A=400.0, B=900.0, alpha=0.32, beta=0.32)
BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20)


def frame_of(law=SURFACE, *, budgets=BUDGETS, sizes=7, noise=0.002, seed=0):
    return simulate_ladder(law, budgets_flops=budgets, sizes_per_budget=sizes, noise=noise, seed=seed).frame


def test_a_parameter_and_token_of_a_6nd_table_cost_six_flops_at_any_size():
    """Inside the runs and far outside, and D* is what is then left of the budget."""
    allocation = allocation_through(through_bowls(frame_of()))
    assert allocation.cost.at(np.array([1e3, 1e8, 1e15])) == pytest.approx([6.0] * 3, rel=1e-9)
    assert allocation.tokens_for(1e21, params=1e9) == pytest.approx(1e21 / 6e9)
    assert allocation.params_at(1e24) * allocation.tokens_at(1e24) * 6 == pytest.approx(1e24)
    assert allocation.params_exponent + allocation.tokens_exponent == pytest.approx(1)


def test_a_cost_that_changes_with_size_is_followed_inside_the_runs_and_held_outside():
    """k = 6 (N / 1e8)^0.05: exact between the smallest and the largest size, and the value there beyond."""
    frame = frame_of()
    per_param_token = 6 * (frame["params"] / 1e8) ** 0.05
    cost = allocation_through(through_best_runs(frame.assign(flops=per_param_token * frame["params"] * frame["tokens"]))).cost
    inside = np.geomspace(frame["params"].min(), frame["params"].max(), 5)
    assert cost.at(inside) == pytest.approx(6 * (inside / 1e8) ** 0.05)
    ends = [per_param_token.min(), per_param_token.max()]
    assert cost.at(np.array([frame["params"].min() / 1e3, frame["params"].max() * 1e3])) == pytest.approx(ends)


def test_one_size_only_has_one_cost():
    """No line can be laid through one number of parameters; the mean of the logarithms stands for all."""
    frame = frame_of(sizes=1).assign(params=1e8, tokens=lambda rows: rows["flops"] / np.array([5, 6, 6, 6, 7.2]) / 1e8)
    cost = allocation_through(through_best_runs(frame)).cost
    assert cost.at(np.array([1e6, 1e10])) == pytest.approx([(5 * 6**3 * 7.2) ** 0.2] * 2)


def test_bottoms_of_symmetric_bowls_give_the_optimum_without_bias():
    """Equal exponents make bowls even about their bottoms: N* and its exponent, one half, to four digits without noise."""
    allocation = allocation_through(through_bowls(frame_of(SYMMETRIC, noise=0.0)))
    assert allocation.params_exponent == pytest.approx(0.5, abs=1e-4)
    assert allocation.params_at(1e22) == pytest.approx(optimal_params(SYMMETRIC, flops=1e22), rel=1e-3)
    assert allocation.origin == "the bottoms of 5 bowls"


def test_the_interval_of_the_optimum_holds_the_truth_as_often_as_it_says():
    """In the middle of 120 noisy ladders and ten times beyond: in 90 % within three standard errors, and in 50 % likewise."""
    held = dict.fromkeys([(flops, share) for flops in (1e19, 1e21) for share in (0.5, 0.9)], 0)
    for seed in range(120):
        allocation = allocation_through(through_bowls(frame_of(SYMMETRIC, noise=0.003, seed=seed)))
        for flops, share in held:
            low, high = allocation.params_interval(flops, share=share)
            held[flops, share] += low < optimal_params(SYMMETRIC, flops=flops) < high
    for (_, share), count in held.items():
        assert count == pytest.approx(120 * share, abs=3 * (120 * share * (1 - share)) ** 0.5)


def test_the_interval_widens_away_from_the_bowls_and_with_the_share():
    """In ln N*: narrowest in the middle, and the median is its middle."""
    allocation = allocation_through(through_bowls(frame_of()))
    widths = [np.log(high / low) for low, high in map(allocation.params_interval, (1e19, 1e20, 1e22, 1e24))]
    assert widths == sorted(widths)
    low, high = allocation.params_interval(1e22)
    assert (low * high) ** 0.5 == pytest.approx(allocation.params_at(1e22))
    narrow = allocation.params_interval(1e22, share=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_without_a_residual_nothing_says_how_sure_the_optimum_is():
    """Two points determine a line: no interval, rather than one of no width."""
    assert allocation_through(through_bowls(frame_of(budgets=BUDGETS[:2]))).params_interval(1e21) is None


def test_delphi_s_size_at_1e23_is_the_one_that_was_trained():
    """24.96 billion parameters on 628 billion tokens: N* in its interval, and D* for that size within 1 %."""
    allocation = fit(read_run_table(DELPHI)).allocation
    low, high = allocation.params_interval(1e23)
    assert low < 24_963_098_112 < high
    assert allocation.tokens_for(1e23, params=24_963_098_112) == pytest.approx(628_172_521_472, rel=0.01)
    assert allocation.tokens_at(1e23) == pytest.approx(628_172_521_472, rel=0.03)
    assert allocation.origin == "the bottoms of 7 bowls"


def test_with_fewer_than_three_closed_bowls_the_coupled_law_says_the_optimum():
    """Two budgets, or a ladder of one ratio; with three the bowls do, whatever the posterior holds."""
    three = frame_of(budgets=BUDGETS[:3])
    posterior = fit_posterior(fitted_runs(three))
    assert allocation_through(through_bowls(three), posterior).origin == "the bottoms of 3 bowls"
    for frame in (three[three["flops"] < 9e18], three[three["params"] > three.groupby("flops")["params"].transform("median")]):
        drawn = through_bowls(frame)
        assert sum(not point.note for point in drawn.points) < 3
        by_law = allocation_through(drawn, posterior)
        assert by_law.origin == "the coupled law"
        assert by_law.params_exponent + by_law.tokens_exponent == 1
        assert by_law.reference_flops == posterior.runs.flops.max()


def test_the_coupled_law_s_optimum_is_the_lowest_of_its_losses_at_that_cost():
    """A search over 4,001 sizes at the largest budget, under every tenth draw."""
    frame = frame_of(budgets=BUDGETS[:2])
    posterior = fit_posterior(fitted_runs(frame))
    posterior = replace(posterior, unknowns=posterior.unknowns[::10])
    allocation = allocation_through(through_bowls(frame), posterior)
    sizes = allocation.params * np.geomspace(0.03, 30, 4001)
    losses = posterior.log_losses(params=sizes, tokens=3e18 / 6 / sizes)
    best = np.log(sizes[np.argmin(losses, axis=1)])
    assert np.median(best) == pytest.approx(np.log(allocation.params), abs=0.002)
    assert best.std() == pytest.approx(allocation.level_deviation, rel=0.01)


def test_the_coupled_law_s_interval_holds_the_truth_where_there_are_no_bowls():
    """A ladder about twenty tokens per parameter: wide, because little off the ratio was seen, and around the optimum."""
    params = np.geomspace(1e8, 3e9, 10)
    tokens = 20 * params * np.tile([0.8, 1.25], 5)
    frame = frame_of(budgets=6 * params * tokens, sizes=1).assign(params=params, tokens=tokens)
    loss = SURFACE.E + SURFACE.A * params**-SURFACE.alpha + SURFACE.B * tokens**-SURFACE.beta
    frame = frame.assign(loss=loss * (1 + 0.002 * np.random.default_rng(0).standard_normal(10)))
    allocation = allocation_through(through_best_runs(frame), fit_posterior(fitted_runs(frame)))
    low, high = allocation.params_interval(1e21)
    assert low < optimal_params(SURFACE, flops=1e21) < high
    assert high / low > 2


def test_runs_of_one_ratio_identify_no_optimum():
    """Sizes follow the runs' own ratio, with the posterior or without, and have no interval."""
    params = np.geomspace(1e8, 3e9, 10)
    frame = frame_of(budgets=120 * params**2, sizes=1).assign(params=params, tokens=20 * params)
    for posterior in (None, fit_posterior(fitted_runs(frame))):
        allocation = allocation_through(through_best_runs(frame), posterior)
        assert not allocation.identified
        assert allocation.tokens_at(1e23) / allocation.params_at(1e23) == pytest.approx(20)
        assert allocation.params_interval(1e23) is None
    one_ended_early = frame.assign(tokens=frame["tokens"].where(frame.index != 8, 0.6 * frame["tokens"]))
    assert not allocation_through(through_best_runs(one_ended_early)).identified
    assert allocation_through(through_bowls(frame_of())).identified


def test_a_bowl_far_below_its_runs_is_named():
    """The two outermost runs of the smallest budget far up its walls bend the parabola."""
    frame = frame_of(budgets=BUDGETS[:3], noise=0.0)
    far = frame["loss"].where(~frame.index.isin([0, 6]), 1.4 * frame["loss"])
    assert through_bowls(frame).warnings == ()
    (named,) = through_bowls(frame.assign(loss=far)).warnings
    assert "below its lowest run" in named
