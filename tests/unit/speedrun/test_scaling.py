"""Scaling tracks: groups are ranked by their laws, share ranks where intervals overlap, and have none without a fit."""

import math
from collections.abc import Sequence

import pytest
from submission_factory import submission_document

from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.publish.board_page import scaling_row
from marin_scaling.speedrun.leaderboard import GateResult, Projection, gate_results, projections
from marin_scaling.speedrun.submission import SeedResult, Submission
from marin_scaling.speedrun.track import Gate, Track

FLOPS = 1e21
LAW = SurfaceLaw(E=0.6, A=30.0, B=60.0, alpha=0.34, beta=0.28)
SIZES = tuple(10**exponent for exponent in (7.0, 7.4, 7.8, 8.2, 8.6))


def run(name: str, *, params: float, loss: float, tokens: float | None = None) -> Submission:
    """A submission of this size and loss, trained on 20 tokens a parameter; only what a law needs is true of it."""
    trained = round(20 * params if tokens is None else tokens)
    document = submission_document(name=name, track="scaling")
    document["model"] |= {"params_total": round(params), "params_active": round(params)}
    document["data"] |= {"trained_tokens": trained}
    document["compute"] |= {"model_flops": 6.0 * params * trained}
    document["seeds"] = [document["seeds"][0] | {"bits_per_byte": loss}]
    return Submission.model_validate(document)


def group(name: str, *, law: SurfaceLaw = LAW, sizes: Sequence[float] = SIZES, better_by: float = 0.0) -> list[Submission]:
    """One recipe at several sizes, by a law."""
    losses = [float(surface_loss(law, params=size, tokens=20 * size)) - better_by for size in sizes]
    return [
        run(f"{name}/{size:.3g}".replace("+", ""), params=size, loss=loss) for size, loss in zip(sizes, losses, strict=True)
    ]


def test_the_law_of_a_group_is_asked_for_a_run_by_the_groups_own_rule() -> None:
    """Twenty tokens a parameter there, too; and the interval has what the law gives."""
    (found,) = projections(group("a"), flops=FLOPS)
    assert found.forecast is not None
    params = math.sqrt(FLOPS / 6 / 20)
    assert (found.forecast.params, found.forecast.tokens) == pytest.approx((params, 20 * params), rel=1e-6)
    low, high = found.forecast.interval()
    assert low < surface_loss(LAW, params=params, tokens=20 * params) < high
    assert found.ranks == (1, 1)


def test_what_is_surely_better_is_before_and_what_may_be_shares_ranks() -> None:
    """Three groups: two that differ by less than their intervals, and one that is far behind."""
    members = [*group("b"), *group("a", better_by=0.001), *group("c", better_by=-1.0)]
    assert [(each.group, each.ranks) for each in projections(members, flops=FLOPS)] == [
        ("a", (1, 2)),
        ("b", (1, 2)),
        ("c", (3, 3)),
    ]


def test_the_largest_run_is_forecast_from_the_others() -> None:
    """Its error is forecast less measured."""
    members = group("a")
    (found,) = projections(members, flops=FLOPS)
    assert found.held_out is not None
    assert found.held_out.measured == members[-1].bits_per_byte
    assert found.held_out.error == found.held_out.forecast.median - members[-1].bits_per_byte
    assert abs(found.held_out.error) < 0.02


def reason(members: Sequence[Submission]) -> str:
    """Why these have no rank."""
    (found,) = projections(members, flops=FLOPS)
    assert (found.forecast, found.ranks) == (None, None)
    return found.why_not


def test_too_little_is_not_ranked_and_says_why() -> None:
    """Too few sizes, too narrow, too large already, of another text, of unknown length."""
    members = group("a")
    assert reason(members[:3]) == "3 sizes; a fit needs 4"
    assert reason(group("a", sizes=[1e7, 1.5e7, 2e7, 3e7])).startswith("the runs span 0.95 decades of model FLOPs")
    assert reason([*members, run("a/large", params=1e11, loss=0.7)]).startswith("the largest run has ")
    other = members[0].evaluation.model_copy(update={"name": "other"})
    assert reason([members[0].model_copy(update={"evaluation": other}), *members[1:]]).endswith("different texts")
    unknown = members[0].data.model_copy(update={"trained_tokens": None})
    assert reason([members[0].model_copy(update={"data": unknown}), *members[1:]]).endswith("unknown")


def test_a_group_whose_loss_rises_is_not_ranked() -> None:
    """Its fit is refused, and the words of the refusal are shown."""
    members = [run(f"a/{place}", params=size, loss=1.0 + place / 10) for place, size in enumerate(SIZES)]
    said = reason(members)
    assert said
    (shown,) = map(scaling_row, projections(members, flops=FLOPS))
    assert shown[:3] == ["none", "a", "5"]


def test_a_single_run_is_no_group() -> None:
    """A law needs several sizes."""
    assert projections([run("alone", params=1e7, loss=1.0)], flops=FLOPS) == []


def test_a_row_shows_ranks_intervals_and_what_was_held_out() -> None:
    """A shared rank from the best to the worst."""
    found: list[Projection] = projections([*group("a"), *group("b")], flops=FLOPS)
    rows = list(map(scaling_row, found))
    assert [row[0] for row in rows] == ["1 to 2", "1 to 2"]
    assert all("inside its interval" in row[6] for row in rows)


BUDGETS = tuple(6 * 20 * size**2 for size in SIZES)


def gated(members: Sequence[Submission], *gates: Gate) -> list[GateResult]:
    """The results of all groups at these gates, against the group `base`."""
    return gate_results(members, Track(name="scaling", title="x", baseline="base", gates=gates))


def test_a_group_that_is_surely_faster_passes_and_a_slower_one_does_not() -> None:
    """By its speedup at each budget; a gate beyond the runs stays open, and names the budget."""
    members = [*group("base"), *group("good", better_by=0.02), *group("bad", better_by=-0.02)]
    first, second = Gate(flops=BUDGETS[:2]), Gate(flops=(*BUDGETS[:4], 1e25))
    found = {(each.group, each.number): each for each in gated(members, first, second)}
    assert [found[group, 1].result for group in ("good", "bad")] == ["passed", "not passed"]
    assert found["good", 1].speedups[0].value > 1.05
    assert found["bad", 1].speedups[0].value < 0.95
    assert found["good", 2].result == "open"
    assert "1e25" in found["good", 2].why_not
    assert found["bad", 2].result == "not passed"


def test_a_better_forecast_is_part_of_a_gate() -> None:
    """A group that is better at all sizes is likely better far beyond them; one whose law cannot be known leaves it open."""
    gate = Gate(flops=BUDGETS[1:3], projected_to_flops=(FLOPS,))
    (found,) = gated([*group("base"), *group("good", better_by=0.05)], gate)
    assert found.result in ("passed", "likely")
    (found,) = gated([*group("base"), *group("good", better_by=0.05)[1:3]], gate)
    assert found.result == "open"
    assert found.why_not


def _four_times_as_long(seed: SeedResult) -> SeedResult:
    return seed.model_copy(update={"training_seconds": 4 * (seed.training_seconds or math.nan)})


def test_the_time_counts_where_all_runs_are_on_one_kind_of_chip() -> None:
    """A quarter of the speed quarters the speedup: what is better for its FLOPs does not pass."""
    slow = [
        each.model_copy(update={"seeds": tuple(map(_four_times_as_long, each.seeds))}) for each in group("good", better_by=0.02)
    ]
    gate = Gate(flops=BUDGETS[:2])
    (fast,), (late,) = (gated([*group("base"), *members], gate) for members in (group("good", better_by=0.02), slow))
    assert fast.result == "passed"
    assert late.result == "not passed"
    assert late.speedups[0].value == pytest.approx(fast.speedups[0].value / 4, rel=1e-6)


def test_a_gate_without_its_baseline_is_open_and_a_track_without_one_is_refused() -> None:
    assert [each.result for each in gated(group("good"), Gate(flops=BUDGETS[:1]))] == ["open"]
    with pytest.raises(ValueError, match="baseline"):
        Track(name="x", title="x", gates=(Gate(flops=BUDGETS[:1]),))
    with pytest.raises(ValueError, match="gates"):
        Track(name="x", title="x", baseline="base")
