"""Which submissions nobody beats: cheaper or as cheap, and better or as good, in one of the two truly.

Costs and losses are lower-is-better. Points that are equal in both do not beat each other, so all of them stand on the front.
Where a difference is within the noise of a single run, the worse one is not on the front but is said to be tied with it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, kw_only=True)
class Point:
    """A submission's place: its cost in any unit, its loss (bits per byte), its name."""

    cost: float
    loss: float
    name: str


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other dominates, by rising cost; equal points all of them.

    >>> a, b, c = (Point(cost=c, loss=l, name=n) for c, l, n in ((1, 3.0, "a"), (2, 2.0, "b"), (2, 2.5, "c")))
    >>> [point.name for point in front([c, b, a])]
    ['a', 'b']
    """
    found: list[Point] = []
    best = math.inf
    for _, same_cost in groupby(sorted(points, key=_place), key=lambda point: point.cost):
        cheapest = list(same_cost)
        lowest = cheapest[0].loss
        if lowest < best:
            found += [point for point in cheapest if point.loss == lowest]
            best = lowest
    return found


def dominated_by(point: Point, standing: Sequence[Point]) -> Point | None:
    """Of the points of a front, the best that is cheaper or as cheap, and better or as good; None of a point on the front."""
    place = bisect_right(standing, point.cost, key=lambda other: other.cost)
    best = standing[place - 1] if place else None
    if best is None or best.loss > point.loss or (best.cost, best.loss) == (point.cost, point.loss):
        return None
    equal = [other for other in standing if (other.cost, other.loss) == (best.cost, best.loss)]
    return min(equal, key=lambda other: other.name)


def tied(points: Sequence[Point], *, noise: float) -> list[Point]:
    """The points that are not on the front and would be, were their loss lower by what two runs may differ by chance.

    `noise` is the standard deviation of one run's loss; two differ by 1.96 sqrt(2) of it in one case of twenty.
    """
    margin = 1.959964 * math.sqrt(2) * noise
    standing = front(points)
    kept = set(map(id, standing))
    costs = [point.cost for point in standing]
    return [
        point
        for point in sorted(points, key=_place)
        if id(point) not in kept and point.loss - margin <= _lowest_at(point.cost, costs, standing)
    ]


def _lowest_at(cost: float, costs: Sequence[float], standing: Sequence[Point]) -> float:
    """The loss of the front at a cost."""
    return standing[bisect_right(costs, cost) - 1].loss


def records(points: Sequence[Point]) -> Iterator[Point]:
    """Of points in the order in which they came, those that stood on the front when they came; an equal one is no record.

    >>> a, b, c = (Point(cost=c, loss=l, name=n) for c, l, n in ((2, 3.0, "a"), (1, 2.0, "b"), (2, 2.5, "c")))
    >>> [point.name for point in records([a, b, c])]
    ['a', 'b']
    """
    standing: list[Point] = []
    for point in points:
        if all(point.cost < other.cost or point.loss < other.loss for other in standing):
            standing = [other for other in standing if other.cost < point.cost or other.loss < point.loss]
            standing.append(point)
            yield point


def hypervolume(points: Sequence[Point], *, worst_cost: float, worst_loss: float) -> float:
    """The area that the front leaves behind it, up to a worst point: decades of cost times units of loss. It only grows.

    >>> hypervolume([Point(cost=10, loss=1.0, name="a")], worst_cost=1000, worst_loss=1.5)
    1.0
    """
    standing = [point for point in front(points) if point.cost < worst_cost and point.loss < worst_loss]
    corners = [*(point.cost for point in standing[1:]), worst_cost]
    return sum(
        (math.log10(corner) - math.log10(point.cost)) * (worst_loss - point.loss)
        for point, corner in zip(standing, corners, strict=False)
        if corner > point.cost
    )


def _place(point: Point) -> tuple[float, float, str]:
    return point.cost, point.loss, point.name
