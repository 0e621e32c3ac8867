"""The front: what nobody beats, with ties; how far noise reaches; what was a record when it came; the room behind it."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.speedrun.leaderboard import Point, dominated_by, front, hypervolume, records, tied, ties

points = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda place: Point(cost=place[0], loss=place[1], name="x")),
    max_size=30,
)


def dominates(one: Point, other: Point) -> bool:
    """No dearer, no worse, and not the same."""
    return one.cost <= other.cost and one.loss <= other.loss and (one.cost, one.loss) != (other.cost, other.loss)


@given(points)
def test_the_front_is_what_no_other_point_dominates(drawn: list[Point]) -> None:
    """By comparing every pair, which is slow and cannot be wrong."""
    expected = [point for point in drawn if not any(dominates(other, point) for other in drawn)]
    assert sorted(map(id, front(drawn))) == sorted(map(id, expected))


@given(points)
def test_who_beats_a_point_is_the_best_of_all_that_do(drawn: list[Point]) -> None:
    """The lowest loss, and of these the lowest cost; None where nobody does."""
    for point in drawn:
        better = [(other.loss, other.cost) for other in drawn if dominates(other, point)]
        found = dominated_by(point, front(drawn))
        assert (found and (found.loss, found.cost)) == min(better, default=None)


@given(points, points)
def test_more_points_never_leave_less_room_behind_the_front(some: list[Point], more: list[Point]) -> None:
    """The hypervolume only grows."""
    before = hypervolume(some, worst_cost=10, worst_loss=10)
    assert hypervolume([*some, *more], worst_cost=10, worst_loss=10) >= before - 1e-12


@given(points)
def test_the_room_behind_the_front_is_that_of_all_points(drawn: list[Point]) -> None:
    """Counted again on a grid of whole losses and the decades between whole costs."""
    counted = sum(
        math.log10((cost + 1) / cost)
        for cost, loss in itertools.product(range(1, 10), range(1, 10))
        if any(point.cost <= cost and point.loss <= loss for point in drawn)
    )
    assert math.isclose(hypervolume(drawn, worst_cost=10, worst_loss=10), counted, abs_tol=1e-9)


@given(points)
def test_records_are_those_on_the_front_when_they_came(drawn: list[Point]) -> None:
    """An equal one that came later is none."""
    expected = [
        point
        for place, point in enumerate(drawn)
        if all(earlier.cost > point.cost or earlier.loss > point.loss for earlier in drawn[:place])
    ]
    assert list(map(id, records(drawn))) == list(map(id, expected))


def test_equal_points_are_all_on_the_front() -> None:
    """Two suites of one size share their FLOPs; neither beats the other."""
    one, same = Point(cost=1, loss=1, name="a"), Point(cost=1, loss=1, name="b")
    assert front([one, same]) == [one, same]


def test_what_is_behind_by_less_than_chance_is_tied_and_not_on_the_front() -> None:
    """Two runs whose standard deviation is .001 differ by .0028 in one case of twenty."""
    best, close, far = (Point(cost=1, loss=loss, name=str(loss)) for loss in (1.0, 1.0027, 1.0029))
    assert front([far, close, best]) == [best]
    assert tied([far, close, best], noise=0.001) == [close]
    assert tied([far, close, best], noise=0.0) == []


def test_costs_that_differ_by_rounding_are_one_cost() -> None:
    """A worse loss for 0.03 % less is on no front; for 3 % less it is."""
    better, worse = Point(cost=3.99995e11, loss=2.4010, name="better"), Point(cost=3.99885e11, loss=2.4055, name="worse")
    assert [each.name for each in front([better, worse], same_cost=0.005)] == ["better"]
    assert dominated_by(worse, front([better, worse], same_cost=0.005), same_cost=0.005) == better
    cheaper = Point(cost=3.88e11, loss=2.4055, name="cheaper")
    assert [each.name for each in front([better, cheaper], same_cost=0.005)] == ["cheaper", "better"]


def test_entries_within_noise_are_ties_of_each_other() -> None:
    """Behind the front, and next to each other on it."""
    first, near, far = (Point(cost=c, loss=loss, name=n) for c, loss, n in ((1, 2.0, "a"), (2, 1.999, "b"), (4, 1.5, "c")))
    behind = Point(cost=2, loss=2.001, name="d")
    assert {each.name for each in ties([first, near, far, behind], noise=0.01)} == {"a", "b", "d"}
    assert ties([first, near, far, behind], noise=0.0) == []
