"""Speedup chains: known answers, products, reversal, equal tables, FLOP conventions, time, and what cannot be chained."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_scaling.errors import FitRefused, RunTableError, UsageError, error
from marin_scaling.forecast.speedup_chain import SpeedupChain, chain_document, chain_of_tables, names_of
from marin_scaling.forecast.speedup_conventions import Verdict
from marin_scaling.laws import SurfaceLaw
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, WITHOUT_LM_HEAD
from marin_scaling.run.table import RunTable, simulate_ladder

CHINCHILLA = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)  # Hoffmann et al. 2022, approach 3
BUDGETS = (1e18, 3e18, 1e19, 3e19)


def ladder(*, seed: int = 0, noise: float = 0.001, cost: float = 1.0, speed: float = 0.0) -> RunTable:
    """Runs of one law that cost `cost` times as much, at `speed` FLOP/s if it is not 0."""
    table = simulate_ladder(
        CHINCHILLA, budgets_flops=[each / cost for each in BUDGETS], sizes_per_budget=5, noise=noise, seed=seed
    )
    frame = table.frame.assign(**{name: table.frame[name] * cost for name in ("flops", "tokens", "budget_flops")})
    if speed:
        frame = frame.assign(tokens_per_second=speed * frame["tokens"] / frame["flops"])
    return replace(table, frame=frame)


def counted(table: RunTable, factor: float, convention: str = "") -> RunTable:
    """The same runs, their FLOPs counted `factor` times as high."""
    frame = table.frame.assign(**{name: table.frame[name] * factor for name in ("flops", "budget_flops")})
    return replace(table, frame=frame.assign(flops_convention=convention) if convention else frame)


def chained(*tables: RunTable, **options) -> SpeedupChain:
    return chain_of_tables([(f"r{n}", table) for n, table in enumerate(tables)], **options)


def values(chain: SpeedupChain, unit: str = "model_flops") -> list[float]:
    """Stages, then cumulative speedups."""
    return [getattr(each, unit).value for each in (*chain.stages, *chain.cumulative)]


def test_without_noise_the_planted_speedups_come_out():
    """Costs of 1, 1/2 and 1/3: stages of 2 and 1.5, and 3 in all."""
    chain = chained(ladder(noise=0), ladder(noise=0, cost=1 / 2), ladder(noise=0, cost=1 / 3))
    assert values(chain) == pytest.approx([2.0, 1.5, 2.0, 3.0], rel=2e-3)
    assert {each.model_flops.verdict_after_holm for each in (*chain.stages, *chain.cumulative)} == {Verdict.FASTER}


@pytest.mark.parametrize("convention", ["own", "marin"])
def test_a_table_against_itself_is_exactly_one(convention):
    """The same runs have the same draws, so that the interval has no width."""
    chain = chained(*[ladder(speed=1e15)] * 3, convention=convention)
    for unit in ("model_flops", "wall_clock"):
        for each in (*chain.stages, *chain.cumulative):
            found = getattr(each, unit)
            assert (found.value, found.interval, found.p_value, found.verdict) == (1.0, (1.0, 1.0), 1.0, Verdict.TIE)


def test_independent_ladders_of_one_law_tie():
    """Intervals of 90 % of 10 chains: fewer than 23 of 30 would hold 1 once in a hundred times, if all were independent."""
    held, false = 0, 0
    for seed in range(10):
        chain = chained(*(ladder(seed=10 * seed + n) for n in range(3)), seed=seed)
        family = [each.model_flops for each in (*chain.stages, chain.cumulative[-1])]
        held += sum(each.interval[0] <= 1 <= (each.interval[1] or math.inf) for each in family)
        false += any(each.verdict_after_holm is not Verdict.TIE for each in family)
    assert held >= 23
    assert false <= 4


def test_a_table_that_returns_cancels_its_noise():
    """In A, B, A the cumulative speedup is exactly 1, although both stages are uncertain."""
    chain = chained(ladder(seed=1), ladder(seed=2), ladder(seed=1))
    low, high = chain.stages[0].model_flops.interval
    assert low < high
    assert chain.cumulative[-1].model_flops.interval == (1.0, 1.0)


def test_tables_that_share_budgets_have_a_narrower_interval():
    """Two budgets of four are common: their noise cancels in part."""
    one, other = ladder(seed=1, noise=0.003), ladder(seed=2, noise=0.003)
    mixed = pd.concat([one.frame.iloc[:10], other.frame.iloc[10:]], ignore_index=True)

    def width(variant: RunTable) -> float:
        low, high = chained(one, variant, at_flops=3e18).stages[0].model_flops.interval
        return math.log(high / low)

    assert width(replace(one, frame=mixed)) < width(other)


LADDERS = [
    ladder(seed=n, cost=cost, noise=0.002, speed=speed) for n, (cost, speed) in enumerate([(1, 2e15), (0.6, 1e15), (0.8, 3e15)])
]
FORWARD = chained(*LADDERS)


@pytest.mark.parametrize("unit", ["model_flops", "wall_clock"])
def test_stages_multiply_to_the_cumulative_speedup_and_reversal_inverts(unit):
    """The loss of the comparison does not depend on the order of the recipes."""
    first, second, _, both = values(FORWARD, unit)
    assert first * second == pytest.approx(both, rel=1e-9)
    back = chained(*LADDERS[::-1])
    assert values(back, unit)[-1] == pytest.approx(1 / both, rel=1e-9)
    low, high = getattr(FORWARD.cumulative[-1], unit).interval
    assert getattr(back.cumulative[-1], unit).interval == pytest.approx((1 / high, 1 / low), rel=1e-9)


@settings(deadline=None, max_examples=5)
@given(factor=st.floats(0.05, 20))
def test_another_count_of_one_tables_flops_scales_its_speedup_and_no_time(factor):
    """At a stated budget of the first recipe: times are of seconds, which no convention changes."""
    plain = chained(*LADDERS[:2], at_flops=1e19)
    recounted = chained(LADDERS[0], counted(LADDERS[1], factor), at_flops=1e19, allow=["flop-count"])
    assert values(recounted) == pytest.approx([each / factor for each in values(plain)], rel=1e-4)
    assert values(recounted, "wall_clock") == pytest.approx(values(plain, "wall_clock"), rel=1e-4)


def test_wall_clock_is_flops_over_speed():
    """A recipe of half the cost that does half the FLOPs a second saves no time; MFU gives the same."""
    chain = chained(ladder(noise=0, speed=2e15), ladder(noise=0, cost=0.5, speed=1e15))
    assert values(chain, "wall_clock") == pytest.approx([1.0, 1.0], rel=2e-3)
    ours, theirs = (
        replace(table, frame=table.frame.assign(mfu=mfu))
        for table, mfu in ((ladder(noise=0), 40.0), (ladder(noise=0, cost=0.5), 0.2))
    )
    by_mfu = chained(ours, theirs)
    assert values(by_mfu, "wall_clock") == pytest.approx([1.0, 1.0], rel=2e-3)
    assert "mfu" in by_mfu.time_note


def test_speed_is_interpolated_between_budgets():
    """Twice the speed at ten times the budget: halfway, the square root of it."""
    table = ladder(noise=0)
    rate = 1e15 * 2.0 ** np.log10(table.frame["flops"] / 1e18)
    varied = replace(table, frame=table.frame.assign(tokens_per_second=rate * table.frame["tokens"] / table.frame["flops"]))
    chain = chained(ladder(noise=0, speed=1e15), varied, at_flops=10**18.75)
    assert values(chain, "wall_clock")[0] == pytest.approx(2**0.75, rel=5e-3)


def with_heads(share: float, *, with_column: bool = True) -> tuple[RunTable, RunTable]:
    """The same runs counted with the output head, and without it, where it is `share` of the other FLOPs."""
    table = ladder(noise=0)
    without = counted(table, 1 / (1 + share), WITHOUT_LM_HEAD)
    if with_column:
        without = replace(without, frame=without.frame.assign(lm_head_flops=share * without.frame["flops"]))
    return counted(table, 1.0, WITH_LM_HEAD), without


def test_flops_with_and_without_the_output_head_are_compared_with_it():
    """The same runs under both conventions: no speedup, and the note names the converted recipe."""
    chain = chained(*with_heads(0.4))
    assert values(chain) == pytest.approx([1.0, 1.0], rel=1e-3)
    assert WITH_LM_HEAD in chain.flops_note
    assert "r1" in chain.flops_note


def test_flops_of_two_conventions_are_not_compared_but_their_time_is():
    """Without the head's FLOPs, the chain has wall-clock time only; without speeds either, both reasons are in one error."""
    tables = with_heads(0.4, with_column=False)
    timed = [replace(each, frame=each.frame.assign(tokens_per_second=100.0)) for each in tables]
    chain = chained(*timed)
    assert chain.stages[0].model_flops is None
    assert chain.stages[0].wall_clock.value == pytest.approx(1.0, rel=1e-3)
    assert "lm_head_flops" in chain.flops_note
    with pytest.raises(RunTableError) as caught:
        chained(*tables)
    assert "lm_head_flops" in caught.value.what
    assert "tokens_per_second" in caught.value.what


def test_the_budget_of_the_comparison_can_be_chosen():
    """The first recipe needs it; a law that is used beyond its budgets is a warning."""
    chain = chained(ladder(), ladder(seed=1, cost=0.5), at_flops=3e20)
    assert chain.recipes[0].flops == pytest.approx(3e20)
    assert any("r0" in each and "10x" in each for each in chain.warnings)


def test_the_frame_has_a_row_per_stage_total_and_unit():
    """And the document has the same numbers, finite or null."""
    frame = FORWARD.frame
    assert frame.groupby(["unit", "kind"]).size().to_dict() == {
        (unit, kind): 2 for unit in ("model_flops", "wall_clock") for kind in ("stage", "cumulative")
    }
    document = chain_document(FORWARD)
    assert document["cumulative"][1]["wall_clock"]["speedup"] == frame.iloc[-1]["speedup"]
    assert [each["name"] for each in document["recipes"]] == ["r0", "r1", "r2"]


def test_holms_correction_spans_stages_and_totals():
    """No verdict of the family is stronger than alone."""
    chain = chained(ladder(noise=0.004), ladder(noise=0.004, seed=9, cost=0.95), ladder(noise=0.004, seed=8, cost=0.9))
    for each in (*chain.stages, *chain.cumulative):
        assert each.model_flops.verdict_after_holm in (each.model_flops.verdict, Verdict.TIE)


def single(losses: list[float], **columns) -> RunTable:
    """One run at each of two budgets."""
    flops = np.array([1e18, 1e19])
    frame = pd.DataFrame({"run": ["a", "b"], "flops": flops, "budget_flops": flops, "params": 1e8, "tokens": flops / 6e8})
    return RunTable(frame=frame.assign(loss=losses, **columns), source="made up", metric="loss")


def test_a_pinned_law_needs_one_common_budget_and_multiplies_exactly():
    """By Marin's constants at the largest common budget: (3.2 - 1.6) / (3.1 - 1.6) to the power 1 / 0.0941."""
    tables = [single([3.6, 3.2]), single([3.5, 3.1]), single([3.4, 3.0])]
    chain = chained(*tables, convention="marin")
    assert values(chain)[0] == pytest.approx((1.6 / 1.5) ** (1 / 0.0941))
    assert values(chain)[3] == pytest.approx(values(chain)[0] * values(chain)[1])
    smaller = chained(*tables, convention="marin", at_flops=1e18)
    assert values(smaller)[0] == pytest.approx((2.0 / 1.9) ** (1 / 0.0941))


def test_equal_names_are_numbered():
    """A file `runs.csv` is named after its folder."""
    tables = [replace(ladder(), source=each) for each in ("runs/a/runs.csv", "b.csv", "b.csv", "runs/c")]
    assert names_of(tables) == ["a", "b", "b (2)", "c"]


def test_all_problems_of_a_chain_are_in_one_error():
    """Metrics, evaluations, an empty table and a contradiction."""
    tables = [
        replace(ladder(), metric="nats", frame=ladder().frame.assign(evaluation="aa11")),
        replace(ladder(), metric="bits_per_byte", frame=ladder().frame.assign(evaluation="bb22")),
        replace(ladder(), frame=ladder().frame.iloc[:0]),
        replace(ladder(), findings=(error("groups", "dataset", "column 'dataset' sets kinds of runs apart"),)),
    ]
    with pytest.raises(RunTableError) as caught:
        chained(*tables)
    for fact in ("nats", "bits_per_byte", "aa11", "bb22", "r2", "'dataset'"):
        assert fact in caught.value.what


def test_every_table_without_a_law_is_named():
    """With the way out of a pinned law."""
    with pytest.raises(FitRefused) as caught:
        chained(single([3.6, 3.2]), ladder(), single([3.5, 3.1]))
    assert "r0" in caught.value.what
    assert "r2" in caught.value.what
    assert "--convention marin" in caught.value.fix


@pytest.mark.parametrize(
    ("tables", "options", "refusal"),
    [
        ([("a", ladder())], {}, UsageError),
        ([("a", ladder()), ("a", ladder())], {}, UsageError),
        ([("a", ladder()), ("b", ladder())], {"convention": "pinned"}, UsageError),
        ([("a", single([3.6, 3.2])), ("b", single([3.6, 3.2]))], {"convention": "marin", "at_flops": 1e20}, UsageError),
        ([("a", single([1.6, 1.5])), ("b", single([1.7, 1.5]))], {"convention": "marin"}, FitRefused),
        ([("a", replace(ladder(), metric="bits_per_byte")), ("b", ladder())], {"convention": "marin"}, RunTableError),
        ([("a", ladder()), ("b", counted(ladder(), 4 / 3))], {}, RunTableError),
    ],
)
def test_what_is_no_chain_is_refused(tables, options, refusal):
    """One table, equal names, an unknown convention, no common budget, a loss below the asymptote, another count of FLOPs."""
    with pytest.raises(refusal):
        chain_of_tables(tables, **options)
