"""Forecast a benchmark's accuracy in two steps: its soft metric against compute, then accuracy as a sigmoid of the soft metric.

Step one is the project's own engine with the soft metric for its loss; step two is `fit.sigmoid`. Every draw of the one goes
through a draw of the other, and a new run's scatter about the curve is added, so that the interval carries both steps (the two
steps are those of Bhagia et al. 2024, which give a point). Whether the curve of small runs holds for the target is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fit.fit_result import FitResult
from marin_scaling.fit.sigmoid import Sigmoid, require_reach
from marin_scaling.forecast.forecast import LEVELS, Forecast, forecast, samples
from marin_scaling.laws import Array

BAND_NOTES = {
    "soft metric": "what the soft metric of such a run may be, by the law through the ladder",
    "sigmoid": "other runs of the same kind would have given another curve from soft metric to accuracy",
    "residual": "the scatter of one run about the curve, with that of answering so many questions where their number is known",
}
"""What each band is: half-widths of 90 % intervals when the other two causes stand still."""

_POOR_FIT = 0.8  # R^2; Marin's tracker has .7 for bits per byte of held-out text, below .1 for accuracies that do not follow


class DownstreamStatus(Enum):
    """How far the accuracies may be used: worst first; the value is the sentence a reader sees."""

    BEYOND_THE_RUNS = (
        "Use with care: the soft metric of the target lies below that of every run with an accuracy; there the curve is a form "
        "that is assumed, and how high it rises is carried in the interval."
    )
    POOR_FIT = "Use with care: the curve explains less than 80 % of how accuracies differ; the interval has their scatter."
    USABLE = "Usable within its interval: runs with an accuracy enclose the soft metric of the target."


@dataclass(frozen=True, kw_only=True)
class DownstreamForecast:
    """What accuracy is expected of a compute-optimal run of `flops`, as shares from 0 to 1.

    `quantiles` (level to accuracy, 23 of them) include the scatter of the run itself. `bands` are half-widths of 90 % intervals
    by cause, which `BAND_NOTES` explain; they are not additive, because the curve is not straight. `soft` is step one.
    """

    flops: float
    soft: Forecast
    median: float
    quantiles: Mapping[float, float]
    bands: Mapping[str, float]
    status: DownstreamStatus

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90 % interval."""
        return self.quantiles[0.05], self.quantiles[0.95]

    @property
    def extrapolation(self) -> float:
        """`flops` over the largest run that was fitted."""
        return self.soft.extrapolation


def forecast_downstream(result: FitResult, curve: Sigmoid, *, flops: float, seed: int | None = None) -> DownstreamForecast:
    """Forecast the accuracy of a compute-optimal run of `flops`; `seed` is the fit's own unless given.

    `result` is a fit of the soft metric against compute, `curve` one of accuracy against the same soft metric. `FitRefused`
    when either step says nothing at `flops`, or both together less than half of what could be; `UsageError` as in `forecast`.

    >>> from marin_scaling.fit.fit_runs import fit
    >>> from marin_scaling.fit.sigmoid import fit_sigmoid, sigmoid_accuracy
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.simulate import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> soft = table.frame["loss"]
    >>> curve = fit_sigmoid(soft, accuracy=sigmoid_accuracy(soft, low=0.25, high=0.9, slope=4.0, middle=2.6), chance=0.25)
    >>> ahead = forecast_downstream(fit(table), curve, flops=1e21)
    >>> ahead.interval[0] < 0.733 < ahead.interval[1]  # what the curve gives for the law's 2.3331
    True
    """
    soft = forecast(result, flops=flops, seed=seed)
    require_reach(curve, soft=soft.median)
    draws = _draws(curve, samples(result, flops=flops, seed=seed), seed=result.seed if seed is None else seed)
    quantiles = dict(zip(LEVELS, np.quantile(draws.accuracy, LEVELS).tolist(), strict=True))
    _require_narrow(quantiles, curve, flops=flops)
    return DownstreamForecast(
        flops=flops,
        soft=soft,
        median=quantiles[0.5],
        quantiles=quantiles,
        bands={cause: _half_width(values) for cause, values in draws.causes.items()},
        status=_status(curve, soft=soft.median),
    )


@dataclass(frozen=True, kw_only=True)
class _AccuracyDraws:
    """Accuracies that a new run could show, (draw,), and by cause what they would be if the other causes stood still."""

    accuracy: Array
    causes: Mapping[str, Array]


def _draws(curve: Sigmoid, soft: Array, *, seed: int) -> _AccuracyDraws:
    generator = np.random.default_rng([seed, len(soft)])  # not the stream that the soft metrics were drawn from
    curves = replace(curve, draws=curve.draws[generator.permutation(len(soft)) % len(curve.draws)])
    middle = float(np.median(soft))
    drawn, deviates = curves.drawn_accuracy(soft), generator.standard_normal(len(soft))
    causes = {
        "soft metric": curve.accuracy(soft),
        "sigmoid": curves.drawn_accuracy(middle),
        "residual": curves.scatter_at(curve.accuracy(middle)) * deviates,
    }
    return _AccuracyDraws(accuracy=np.clip(drawn + curves.scatter_at(drawn) * deviates, 0.0, 1.0), causes=causes)


def _half_width(values: Array) -> float:
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) / 2


def _status(curve: Sigmoid, *, soft: float) -> DownstreamStatus:
    applies = {
        DownstreamStatus.BEYOND_THE_RUNS: soft < curve.soft_range[0],
        DownstreamStatus.POOR_FIT: curve.r_squared < _POOR_FIT,
        DownstreamStatus.USABLE: True,
    }
    return next(status for status in DownstreamStatus if applies[status])


def _require_narrow(quantiles: Mapping[float, float], curve: Sigmoid, *, flops: float) -> None:
    low, high = quantiles[0.05], quantiles[0.95]
    if high - low > curve.widest:
        raise FitRefused(
            f"No forecast of the accuracy at {flops:.3g} FLOPs: its 90 % interval would be {low:.2f} to {high:.2f}.",
            why=f"An interval wider than {curve.widest:.2g}, half of all that could be, says nothing.",
            fix="Forecast nearer to the runs, add runs that span more compute, or more runs with an accuracy (--pool).",
        )
