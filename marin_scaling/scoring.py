"""Scores of a forecast in 23 quantiles, or in one number, against the observed value; lower is better.

The continuous ranked probability score is the integral of twice the pinball loss over all levels (Gneiting & Raftery 2007).
For given quantiles it is a sum, in which the weight of a level is the length of the part of [0, 1] nearest to it. The
weighted interval score is that sum with equal weights (Bracher et al. 2021). Scores have the unit of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class PointScores:
    """Scores of a single number; `per_cent_of_reducible_loss` is None without an asymptote below the value."""

    crps: float
    signed_error: float
    per_cent_of_loss: float
    per_cent_of_reducible_loss: float | None


@dataclass(frozen=True, kw_only=True)
class Scores(PointScores):
    """Scores of a forecast in quantiles; its signed errors are those of the median."""

    weighted_interval_score: float
    interval_score_90: float
    pit: float
    hit: bool


def score(quantiles: Mapping[float, float], *, observed: float, asymptote: float | None = None) -> Scores:
    """Score a forecast (level to value, increasing; with 0.05, 0.5 and 0.95) against the observed loss.

    `asymptote` is the fitted irreducible loss, in the same unit.

    >>> score({0.05: 0.9, 0.5: 1.0, 0.95: 1.1}, observed=1.05, asymptote=0.8).hit
    True
    """
    point = score_point(quantiles[0.5], observed=observed, asymptote=asymptote)
    return Scores(
        crps=crps(quantiles, observed=observed),
        weighted_interval_score=weighted_interval_score(quantiles, observed=observed),
        interval_score_90=interval_score(quantiles[0.05], quantiles[0.95], observed=observed, miss_probability=0.1),
        pit=probability_integral_transform(quantiles, observed=observed),
        hit=quantiles[0.05] <= observed <= quantiles[0.95],
        signed_error=point.signed_error,
        per_cent_of_loss=point.per_cent_of_loss,
        per_cent_of_reducible_loss=point.per_cent_of_reducible_loss,
    )


def score_point(forecast: float, *, observed: float, asymptote: float | None = None) -> PointScores:
    """Score a forecast that is one number; its CRPS is the absolute error. `asymptote` is as in `score`.

    >>> score_point(2.0, observed=2.5, asymptote=2.25).per_cent_of_reducible_loss
    -200.0
    """
    error = forecast - observed
    reducible = observed - asymptote if asymptote is not None else 0.0
    return PointScores(
        crps=crps({0.5: forecast}, observed=observed),
        signed_error=error,
        per_cent_of_loss=100 * error / observed,
        per_cent_of_reducible_loss=100 * error / reducible if reducible > 0 else None,
    )


def pinball_loss(value: float, *, level: float, observed: float) -> float:
    """Return the pinball loss of `value` as quantile of `level`: `level` per unit too low, 1 - `level` per unit too high.

    >>> pinball_loss(1.0, level=0.9, observed=2.0), pinball_loss(2.0, level=0.75, observed=1.0)
    (0.9, 0.25)
    """
    return max(level * (observed - value), (level - 1) * (observed - value))


def level_weights(levels: tuple[float, ...]) -> tuple[float, ...]:
    """Return the length of the part of [0, 1] nearest to each level; the lengths sum to 1.

    >>> level_weights((0.25, 0.5, 0.75))
    (0.375, 0.25, 0.375)
    """
    middles = [(low + high) / 2 for low, high in pairwise(levels)]
    return tuple(high - low for low, high in zip([0.0, *middles], [*middles, 1.0], strict=True))


def crps(quantiles: Mapping[float, float], *, observed: float) -> float:
    """Return the continuous ranked probability score: 2 * sum of `level_weights` * `pinball_loss`.

    >>> crps({0.5: 3.0}, observed=1.0)  # of a single number: the absolute error
    2.0
    """
    weights = level_weights(tuple(quantiles))
    losses = (pinball_loss(value, level=level, observed=observed) for level, value in quantiles.items())
    return 2 * sum(weight * loss for weight, loss in zip(weights, losses, strict=True))


def weighted_interval_score(quantiles: Mapping[float, float], *, observed: float) -> float:
    """Return the weighted interval score: twice the mean pinball loss (Bracher et al. 2021, eq. 2).

    >>> weighted_interval_score({0.5: 3.0}, observed=1.0)
    2.0
    """
    losses = [pinball_loss(value, level=level, observed=observed) for level, value in quantiles.items()]
    return 2 * sum(losses) / len(losses)


def interval_score(lower: float, upper: float, *, observed: float, miss_probability: float) -> float:
    """Return an interval's width, plus 2 / `miss_probability` per unit by which the value is outside (Winkler 1972).

    >>> interval_score(1.0, 2.0, observed=2.5, miss_probability=0.1)
    11.0
    """
    outside = max(lower - observed, observed - upper, 0.0)
    return upper - lower + 2 / miss_probability * outside


def probability_integral_transform(quantiles: Mapping[float, float], *, observed: float) -> float:
    """Return the level at which the value fell, between 0 and 1, linear between the quantiles.

    Outside of the outermost quantiles it is the middle of the tail (0.005 or 0.995 for 0.01 and 0.99).

    >>> probability_integral_transform({0.05: 0.0, 0.5: 1.0, 0.95: 2.0}, observed=1.5)
    0.725
    """
    levels, values = tuple(quantiles), tuple(quantiles.values())
    if observed < values[0]:
        return levels[0] / 2
    for index in range(1, len(values)):
        if observed <= values[index]:
            share = (observed - values[index - 1]) / (values[index] - values[index - 1])
            return levels[index - 1] + share * (levels[index] - levels[index - 1])
    return (1 + levels[-1]) / 2
