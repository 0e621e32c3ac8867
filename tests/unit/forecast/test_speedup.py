"""Effective speedups: known laws, seeds, ties, swaps, and what cannot be compared."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, t

from marin_scaling.errors import FitRefused, RunTableError, UsageError, error
from marin_scaling.forecast.speedup import compare_recipes
from marin_scaling.forecast.speedup_conventions import Verdict, holm, measure, needed_flops
from marin_scaling.laws import FrontierLaw, SurfaceLaw, frontier_loss
from marin_scaling.run.table import RunTable, simulate_ladder

CHINCHILLA = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)  # Hoffmann et al. 2022, approach 3
BUDGETS = (1e18, 3e18, 1e19, 3e19)


def ladder(*, seed: int = 0, noise: float = 0.001, cost: float = 1.0, sizes: int = 5, budgets=BUDGETS) -> RunTable:
    """Runs of one law that cost `cost` times what they should: at half the cost the recipe is twice as fast."""
    table = simulate_ladder(
        CHINCHILLA, budgets_flops=[each / cost for each in budgets], sizes_per_budget=sizes, noise=noise, seed=seed
    )
    frame = table.frame
    return replace(table, frame=frame.assign(**{name: frame[name] * cost for name in ("flops", "tokens", "budget_flops")}))


def single_runs(losses, *, seed_column=None, flops=BUDGETS) -> RunTable:
    """One row a loss, all of one size at each budget."""
    frame = pd.DataFrame({"flops": flops, "budget_flops": flops, "loss": losses}, dtype=float)
    frame = frame.assign(params=frame["budget_flops"] ** 0.5, run=[f"run {n}" for n in range(len(frame))])
    frame = frame.assign(tokens=frame["flops"] / frame["params"] / 6)
    frame = frame if seed_column is None else frame.assign(seed=seed_column)
    return RunTable(frame=frame, source="made up", metric="loss")


def values(report):
    return [each.model_flops.value for each in report.comparisons]


def holds(report, number):
    return [each.model_flops.interval[0] <= number <= (each.model_flops.interval[1] or math.inf) for each in report.comparisons]


def test_without_noise_a_recipe_of_half_the_cost_is_exactly_twice_as_fast():
    """The baseline's own law is recovered from its runs, so that the only error is the fit's and the bowls'."""
    report = compare_recipes(ladder(noise=0), ladder(noise=0, cost=0.5))
    assert values(report) == pytest.approx([2.0] * 4, rel=1e-3)
    assert all(holds(report, 2.0))


def test_the_intervals_of_a_recipe_of_half_the_cost_hold_two():
    """20 intervals at 90 %: fewer than 15 would hold it once in a hundred times, if all were independent."""
    held = [
        inside
        for seed in range(5)
        for inside in holds(compare_recipes(ladder(seed=seed), ladder(seed=100 + seed, cost=0.5)), 2.0)
    ]
    assert sum(held) >= 15


def test_a_table_against_itself_is_a_tie_at_every_budget():
    """Under both conventions; exactly 1 under the pinned one."""
    table = ladder()
    for convention in ("own", "marin"):
        report = compare_recipes(table, table, convention=convention)
        assert {each.model_flops.verdict for each in report.comparisons} == {Verdict.TIE}
        assert all(holds(report, 1.0))
    assert values(report) == [1.0] * 4


def test_swapping_the_recipes_inverts_the_speedup_within_its_interval():
    """By its own law each table is compared with a curve through all of the other's budgets: the two are not one number."""
    baseline, variant = ladder(seed=1), ladder(seed=2, cost=0.5)
    there, back = compare_recipes(baseline, variant), compare_recipes(variant, baseline)
    for one, other in zip(there.comparisons, back.comparisons, strict=True):
        low, high = other.model_flops.interval
        assert high is not None
        assert 1 / high < one.model_flops.value < 1 / low
        assert (one.model_flops.verdict, other.model_flops.verdict) == (Verdict.FASTER, Verdict.SLOWER)


def test_needed_compute_inverts_the_law():
    """At the loss of any number of FLOPs the law needs that number."""
    law = FrontierLaw(E=1.7, A=1.5, gamma=0.1, reference_flops=1e19)
    for flops in (1e17, 1e19, 3e22):
        assert needed_flops(law, loss=float(frontier_loss(law, flops=flops))) == pytest.approx(flops, rel=1e-9)


def test_a_loss_below_the_asymptote_has_no_speedup_but_a_verdict():
    """No compute brings the baseline there: the number is absent, and the note says why."""
    report = compare_recipes(ladder(), single_runs([1.5], flops=[1e19]))
    (only,) = report.comparisons
    assert (only.needed_flops, only.model_flops.value, only.model_flops.interval[1], only.reach) == (None,) * 4
    assert only.model_flops.verdict is Verdict.FASTER
    assert "does not reach this loss" in only.note


def test_an_interval_may_have_no_upper_end():
    """The variant's loss lies a little above an asymptote that four budgets leave open."""
    (only,) = compare_recipes(ladder(), single_runs([1.9], flops=[1e19])).comparisons
    low, high = only.model_flops.interval
    assert high is None
    assert 1 < low < only.model_flops.value


def test_a_law_that_is_used_beyond_its_budgets_says_so():
    """The baseline would need several times the compute of its largest runs."""
    (only,) = compare_recipes(ladder(), single_runs([2.5], flops=[3e20])).comparisons
    assert only.reach == pytest.approx(only.needed_flops / 3e19)
    assert f"{only.reach:.3g}x beyond its budgets" in only.note


def test_seeds_are_averaged_and_their_spread_is_the_noise():
    """Mean, variance of the mean and degrees of freedom by hand; without a column `seed` the lowest is taken, and said."""
    losses = [3.02, 3.00, 3.07]
    (point,) = measure(single_runs(losses, flops=[1e19] * 3, seed_column=["0", "1", "2"]).frame)
    assert (point.loss, point.leverage, point.freedom) == pytest.approx((3.03, 1 / 3, 2))
    assert point.squares == pytest.approx(np.var(losses) * 3)
    (unseeded,) = measure(single_runs(losses, flops=[1e19] * 3).frame)
    assert (unseeded.loss, unseeded.freedom) == (3.00, 0)
    assert "the lowest loss was used" in unseeded.note


def test_the_interval_of_two_means_of_seeds_is_students():
    """Under the pinned law a logarithm of losses: its interval to first order by Student's t for the pooled variance."""
    ours = single_runs([3.00, 3.02, 3.01], flops=[1e19] * 3, seed_column=["0", "1", "2"])
    theirs = single_runs([2.99, 3.00, 3.01], flops=[1e19] * 3, seed_column=["0", "1", "2"])
    (only,) = compare_recipes(ours, theirs, convention="marin").comparisons
    error = math.sqrt(2 * 0.01**2 / 3)  # both groups have a standard deviation of .01
    assert only.model_flops.verdict is Verdict.TIE
    low, high = (math.log(each) for each in only.model_flops.interval)
    slope = 1 / (0.0941 * 1.405)
    # two independent t variables of 4 degrees of freedom are a little more spread than one; draws add 1 % of noise
    assert (high - low) / 2 == pytest.approx(t.ppf(0.95, 4) * error * slope, rel=0.05)


def test_single_runs_of_several_seeds_carry_a_law_through_their_means():
    """Four budgets with three seeds each: no bowls, and yet an interval."""
    flops = np.repeat(BUDGETS, 3)
    losses = 1.7 + 1.5 * (flops / 1e19) ** -0.1 + np.tile([0.002, -0.002, 0.0], 4)
    seeds = ["0", "1", "2"] * 4
    baseline = single_runs(losses, flops=flops, seed_column=seeds)
    report = compare_recipes(baseline, single_runs(losses - 0.05, flops=flops, seed_column=seeds))
    assert len(report.baseline_fit.points) == 4
    assert values(report)[1] == pytest.approx((1 - 0.05 / (1.5 * 0.3**-0.1)) ** -10, rel=0.05)


def timed(table: RunTable, *, flops_per_second: float) -> RunTable:
    frame = table.frame
    return replace(table, frame=frame.assign(tokens_per_second=flops_per_second * frame["tokens"] / frame["flops"]))


def test_wall_clock_is_the_speedup_times_the_ratio_of_throughputs():
    """A recipe of half the cost that does half the FLOPs a second saves no time; without throughput, nothing is said."""
    baseline, variant = ladder(noise=0), ladder(noise=0, cost=0.5)
    slow = timed(variant, flops_per_second=1e15)
    report = compare_recipes(timed(baseline, flops_per_second=2e15), slow)
    assert [each.throughput_ratio for each in report.comparisons] == pytest.approx([0.5] * 4)
    assert [each.wall_clock.value for each in report.comparisons] == pytest.approx([1.0] * 4, rel=1e-3)
    assert {each.wall_clock.verdict for each in report.comparisons} == {Verdict.TIE}
    assert {each.wall_clock for each in compare_recipes(baseline, slow).comparisons} == {None}


def test_holms_correction_only_ever_takes_a_verdict_back():
    """A verdict that stands together stood alone; and adjusted p-values are never below those of Benjamini and Hochberg."""
    p_values = list(np.random.default_rng(0).uniform(size=20) ** 3)
    assert all(np.asarray(holm(p_values)) >= false_discovery_control(p_values) - 1e-12)
    report = compare_recipes(ladder(noise=0.004), ladder(noise=0.004, seed=9, cost=0.9))
    for each in report.comparisons:
        assert each.model_flops.verdict_after_holm in (each.model_flops.verdict, Verdict.TIE)


def test_a_verdict_is_a_tie_exactly_where_the_interval_holds_one():
    """And exactly where the p-value is above a tenth."""
    for cost in (0.8, 0.97, 1.0, 1.1):
        for each in compare_recipes(ladder(), ladder(seed=7, cost=cost)).comparisons:
            low, high = each.model_flops.interval
            inside = low <= 1 <= (high or math.inf)
            assert (each.model_flops.verdict is Verdict.TIE) == inside == (each.model_flops.p_value > 0.1)


def test_equal_seeds_give_equal_reports_and_others_others():
    """The draws come from the seed and from nothing else."""
    one, again, other = (compare_recipes(ladder(), ladder(seed=3), seed=seed) for seed in (0, 0, 1))
    assert one.comparisons == again.comparisons
    assert one.comparisons != other.comparisons
    assert values(one) == values(other)


def test_budgets_of_one_table_alone_are_not_compared_by_a_pinned_law_and_said():
    """A pinned law goes through the baseline's loss at the same budget."""
    report = compare_recipes(ladder(), ladder(budgets=(1e19, 3e19, 1e20)), convention="marin")
    assert [f"{each.flops:.0e}" for each in report.comparisons] == ["1e+19", "3e+19"]
    assert any("only the variant has runs there: 1e20 FLOPs" in each for each in report.warnings)
    assert any("only the baseline has runs there: 1e18, 3e18 FLOPs" in each for each in report.warnings)


def of_metric(table, metric):
    return replace(table, metric=metric)


@pytest.mark.parametrize(
    ("baseline", "variant", "convention", "error", "message"),
    [
        (ladder(), ladder(), "pinned", UsageError, "convention 'pinned'"),
        (ladder(budgets=(1e18, 1e19)), ladder(), "own", FitRefused, "--convention marin"),
        (ladder(sizes=1, budgets=(1e18, 1e19, 1e20)), ladder(), "own", FitRefused, "--convention marin"),
        (ladder(), ladder(budgets=(1e20, 3e20)), "marin", FitRefused, "No budget of the variant is within 25 %"),
        (single_runs([1.5] * 4), single_runs([1.4] * 4), "marin", FitRefused, "not above the pinned asymptote of 1.6"),
        (of_metric(ladder(), "bits_per_byte"), of_metric(ladder(), "nats"), "own", RunTableError, "differ in their metric"),
        (of_metric(ladder(), "bits_per_byte"), ladder(), "marin", UsageError, "bits_per_byte"),
        (ladder(), replace(ladder(), frame=ladder().frame.iloc[:0]), "own", FitRefused, "has no usable runs"),
        (single_runs([3.0, 3.1, 3.2, 3.3, 3.4], flops=[1e18, 2e18, 4e18, 8e18, 1.6e19]), ladder(), "own", FitRefused, "marin"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_way_out(baseline, variant, convention, error, message):
    """Unknown conventions, too few budgets, other metrics, no common budget, a loss that rises."""
    with pytest.raises(error) as caught:
        compare_recipes(baseline, variant, convention=convention)
    assert message in str(caught.value)


def test_tables_that_count_flops_differently_are_refused():
    """A speedup is a ratio of FLOPs."""
    one, other = (replace(ladder(), frame=ladder().frame.assign(flops_convention=kind)) for kind in ("6ND", "with head"))
    with pytest.raises(RunTableError, match="differ in their FLOP convention: 6ND and with head"):
        compare_recipes(one, other)


def test_runs_that_were_measured_on_other_text_are_not_compared():
    """Their losses would say which held-out text is easier; tables that do not say what theirs was are taken at their word."""
    ours, theirs = (replace(ladder(), frame=ladder().frame.assign(evaluation=word)) for word in ("aa11", "bb22"))
    with pytest.raises(RunTableError, match=r"differ in their evaluation .held-out text and protocol.: aa11 and bb22"):
        compare_recipes(ours, theirs)
    assert compare_recipes(ours, ladder()).comparisons


def test_a_metric_without_a_name_is_doubted():
    """A column `loss` does not say what was measured."""
    assert "the metric is not named" in compare_recipes(ladder(), ladder()).warnings[0]


def test_tables_that_count_flops_by_two_conventions_are_not_compared():
    """The same runs, their FLOPs counted as 6 N D and as 8 N D: no speedup, unless asked for all the same."""
    table = ladder()
    recounted = replace(table, frame=table.frame.assign(flops=table.frame["flops"] * 4 / 3), source="recounted")
    with pytest.raises(RunTableError, match=r"recounted are 1\.33 times"):
        compare_recipes(table, recounted)
    report = compare_recipes(table, recounted, allow=["flop-count"])
    assert sum("1.33 times" in each for each in report.warnings) == 1


def test_a_table_whose_audit_found_an_error_is_not_compared():
    """The finding is the reason."""
    table = replace(ladder(), findings=(error("groups", "dataset", "column 'dataset' sets kinds of runs apart"),))
    with pytest.raises(FitRefused, match="'dataset'"):
        compare_recipes(ladder(), table)
