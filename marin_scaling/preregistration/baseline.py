"""The simple forecast beside ours: a straight line through the best run of each budget, on logarithms of loss and FLOPs.

A forecaster who does no better than this has no skill. Ordinary least squares with the textbook's prediction interval, errors
taken as normal; pure Python, so that anyone can work it out again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from marin_scaling.preregistration.statement_format import LEVELS

_LARGEST = 700.0  # a logarithm that a float still holds; no loss is near it


def line_through_the_best(rows: Sequence[Mapping[str, Any]], *, flops: float) -> dict[float, float]:
    """Level to loss at `flops`, from rows with `budget_flops`, `flops` and `loss`; losses in the unit of theirs.

    Of two budgets only the line is known, and all quantiles lie on it. One budget carries no line: the best run's loss.

    >>> rows = [{"budget_flops": c, "flops": c, "loss": 3 * c**-0.1} for c in (1e3, 1e4, 1e5)]
    >>> round(line_through_the_best(rows, flops=1e6)[0.5], 9) == round(3 * 1e6**-0.1, 9)
    True
    """
    best: dict[float, Mapping[str, Any]] = {}
    for row in rows:
        budget = row["budget_flops"]
        if budget not in best or row["loss"] < best[budget]["loss"]:
            best[budget] = row
    points = [(math.log(row["flops"]), math.log(row["loss"])) for row in best.values()]
    middle, deviation = _predicted(points, at=math.log(flops))
    normal = NormalDist()
    at_levels = {level: deviation * (normal.inv_cdf(level) if level != 0.5 else 0.0) for level in LEVELS}
    return {level: math.exp(min(middle + away, _LARGEST)) for level, away in at_levels.items()}


def _predicted(points: Sequence[tuple[float, float]], *, at: float) -> tuple[float, float]:
    """Value of the line at `at`, and the standard deviation of a new value around it."""
    count = len(points)
    mean_x, mean_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    middle = mean_y + slope * (at - mean_x)
    if count < 3 or not spread:
        return middle, 0.0
    squares = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return middle, math.sqrt(squares / (count - 2) * (1 + 1 / count + (at - mean_x) ** 2 / spread))
