"""The forecast of one compute-optimal run: quantiles of its loss, its size, and what the width consists of.

An interval always comes with it. What this engine does not estimate (whether the law has the right form, whether large runs
differ in kind from small ones) is None with a note, not a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fit.fit_result import FitResult
from marin_scaling.forecast.resampling import resample
from marin_scaling.laws import Array

LEVELS = (0.01, 0.025, *(n / 20 for n in range(1, 20)), 0.975, 0.99)
"""The 23 quantile levels of the COVID-19 and FluSight forecast hubs (Bracher et al. 2021)."""

FARTHEST = 1e12
"""The largest factor between ladder and target: within it every number stays finite at any exponent in the searched bracket."""

BAND_NOTES = {
    "form": "not estimated: one law only; another form of law may lie outside this interval",
    "shift": "not estimated: drift of recipe, data or tuning between the ladder and the target is not in this interval",
}
"""Why a band is None."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is expected of a compute-optimal run of `flops`.

    `quantiles` (level to loss, 23 of them) include the noise of the run itself. `bands` are half-widths of 90 % intervals by
    cause, None where this engine makes no estimate. `extrapolation` is `flops` over the largest budget that was fitted.
    """

    flops: float
    params: float
    tokens: float
    median: float
    quantiles: Mapping[float, float]
    bands: Mapping[str, float | None]
    extrapolation: float

    @property
    def tokens_per_param(self) -> float:
        """Trained tokens for each parameter."""
        return self.tokens / self.params

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90 % interval."""
        return self.quantiles[0.05], self.quantiles[0.95]


def forecast(result: FitResult, *, flops: float, seed: int | None = None) -> Forecast:
    """Forecast the loss of a compute-optimal run of `flops`; `seed` is the fit's own unless given.

    `FitRefused` when the fit has no law to extrapolate, or its law runs out of the numbers a computer has at `flops`.
    """
    _check(result, flops)
    draws = resample(result, seed=result.seed if seed is None else seed)
    losses = draws.new_run_losses(np.array([flops]))[:, 0]
    quantiles = dict(zip(LEVELS, (float(value) for value in np.quantile(losses, LEVELS)), strict=True))
    _require_positive(quantiles, result, flops)
    bands = {"noise": _half_width(draws.run_noise), "sampling": _half_width(draws.laws.losses(np.array([flops]))[:, 0])}
    return Forecast(
        flops=flops,
        params=result.allocation.params_at(flops),
        tokens=result.allocation.tokens_at(flops),
        median=quantiles[0.5],
        quantiles=quantiles,
        bands={**bands, **dict.fromkeys(BAND_NOTES)},
        extrapolation=flops / result.largest_flops,
    )


def interval_along(result: FitResult, *, flops: Array, levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Array:
    """Quantiles of a new run's loss along many budgets, with the fit's own seed: (level, flops)."""
    return np.asarray(np.quantile(resample(result, seed=result.seed).new_run_losses(flops), levels, axis=0))


def _half_width(values: Array) -> float:
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) / 2


def _require_positive(quantiles: Mapping[float, float], result: FitResult, flops: float) -> None:
    lowest = quantiles[LEVELS[0]]
    if lowest <= 0:
        raise FitRefused(
            f"{result.source}: no forecast at {flops:.3g} FLOPs: its {LEVELS[0]:.0%} quantile would be {lowest:.3g}.",
            why="No loss lies below zero: the runs scatter so much, or lose so little, that the law says nothing there.",
            fix="Forecast nearer to the runs, add runs, or check that the column taken for the loss holds one.",
        )


def _check(result: FitResult, flops: float) -> None:
    if not (math.isfinite(flops) and flops > 0):
        raise UsageError(
            f"{flops!r} is no compute budget.", why="A budget is a positive, finite number.", fix="Write it like 1e23."
        )
    if not 1 / FARTHEST <= flops / result.largest_flops <= FARTHEST:
        raise FitRefused(
            f"{result.source}: no forecast at {flops:.3g} FLOPs, {flops / result.largest_flops:.3g}x its largest budget.",
            why=f"Beyond a factor of {FARTHEST:.0e} nothing is left of what the runs say.",
            fix="Forecast nearer to the runs.",
        )
    if not result.status.may_be_used:
        raise FitRefused(
            f"{result.source}: no forecast at {flops:.3g} FLOPs. {result.status.value}",
            why="An interval around a law that does not hold would only look like a forecast.",
            fix="Look at the runs (marin-scale fit without --predict); train more budgets, or leave out what went wrong.",
        )
