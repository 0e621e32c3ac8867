"""Forecast the loss at every 5 % of a run from the curves of smaller runs, and its end again while it trains.

The model is log loss(f) = log end + shape(f), with f the share of the run that is done. Runs of one recipe and schedule,
trained for tokens that grow with their size, have nearly one shape (Qiu et al. 2025, "Scaling Collapse"). The shape is a mean
at each f, slopes in log FLOPs and log tokens per parameter, and a deviation of the run that vanishes at the end. The forecast
of the end comes from the law; the curve of a run in training narrows it.

Curves under another schedule are converted with a law of annealing, the multi-power law (Luo et al. 2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import ndtr
from scipy.stats import chi2

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array

FRACTIONS = tuple(step / 20 for step in range(1, 21))
"""Shares of a run at which its loss is forecast."""
CURVE_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
LEAST_CURVES = 2

_DONE = -np.log(FRACTIONS) + 0.0  # 0 at the end; the variance of a deviation grows with it
OTHER_METRIC = 0.02
"""Relative difference of curves' ends from the final losses from which they are of another metric for certain."""
_SAME = 1e-3  # largest relative difference of a curve's last loss from the final loss, if both are one metric
_DENSE = 8  # points before a fraction from which a line is fitted; fewer are interpolated
_NEAR = 0.06  # largest distance, in shares of the run, between points that are interpolated
# Rounded from a fit to public curves on 2026-11-27, except for noises and slopes of offsets: see the lab book of that day
_SLOPE = 0.0025  # standard deviation of a shape's slope in log FLOPs and in log tokens per parameter, at f = 1/e
_NOISES = (0.03, 0.1, 0.3, 1.0)  # of a point, in deviations of a run at f = 1/e; equally likely
_OFFSET, _OFFSET_SLOPE = 0.24, 1.0  # of the final metric from a curve of another metric: in deviations; its slopes
_DEVIATIONS = np.geomspace(5e-4, 0.1, 12)  # of a run from the shape, at f = 1/e
_USUAL_DEVIATION, _SPREAD = 0.0012, 1.0  # of their log-normal prior
_ENDS = 100  # final losses that stand for all draws
_SMOOTHING = 0.25  # of their standard deviation
_WIDE = (0.6, 1.05)  # range of an unknown final loss, in units of the lowest loss so far
_IMPROBABLE = 1e-6  # chance of a curve below which it is unlike the known ones
_LEAST_WEIGHT = 2e-3  # of a size of deviations and noise
# Multi-power law, fitted to three curves of 25M parameters with 24,000 steps (`benchmarks/loss_curves.py`), rounded
_STEPS = 24.0  # a run, in units of the constants: thousands of steps at the full rate
_POWER, _DROP, _SPEED, _SETTLING, _SLOWER = 0.52, 0.176, 61.0, 0.198, 0.816  # of S; nats per token; of the drop
_TRANSFER = 0.32  # standard deviation of a conversion's relative error: constants of 100M curves on those of 25M
MOST_TRANSFER = 0.06
"""Largest change of a final log loss by another schedule; the largest measured ones are 0.028 and, once, 0.047."""
_SETTLED = 0.15  # share of a run from which its curve follows the law


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate by the share of a run: it rises for `warmup`, stays, and falls to `floor` in the last `decay`."""

    warmup: float = 0.0
    decay: float | None = None
    """Share of the run; None for everything after the warm-up."""
    shape: str = "linear"
    floor: float = 0.0

    def rates(self, shares: Array) -> Array:
        """Return the learning rate at shares of the run, as a share of its peak.

        >>> Schedule(decay=0.5).rates(np.array([0.25, 0.5, 0.75, 1.0])).tolist()
        [1.0, 1.0, 0.5, 0.0]
        """
        decay = 1 - self.warmup if self.decay is None else self.decay
        done = np.clip((shares - 1 + decay) / decay, 0.0, 1.0) if decay else np.zeros_like(shares)
        left = {"cosine": (1 + np.cos(np.pi * done)) / 2, "sqrt": 1 - np.sqrt(done)}.get(self.shape, 1 - done)
        return np.asarray(np.minimum(self.floor + (1 - self.floor) * left, shares / max(self.warmup, 1e-9)))


def change_of_schedule(losses: Array, before: Schedule, after: Schedule) -> Array:
    """Return the change of a run's log loss at `FRACTIONS` (20,) under another schedule, by the multi-power law.

    `losses` are those under `before` at `FRACTIONS`, in nats per token, NaN where unknown. `FitRefused` for fewer than three
    after 15 % of the run.

    >>> change = change_of_schedule(3 + 0.5 * np.array(FRACTIONS) ** -0.5, Schedule(decay=0.0), Schedule(decay=0.2))
    >>> bool(abs(change[:16]).max() < 1e-3), round(float(change[-1]), 3)
    (True, -0.019)
    """
    at = np.flatnonzero(np.isfinite(losses) & (np.array(FRACTIONS) >= _SETTLED))
    if len(at) < 3:
        raise FitRefused(
            f"A curve has {len(at)} of its marks after {_SETTLED:.0%} of the run; a change of schedule needs 3.",
            fix="Add the rest of the curve, or leave the run out of the table.",
        )
    (steps, drop), (others, other_drop) = _annealing(before), _annealing(after)
    design = np.column_stack([np.ones(len(at)), steps[at] ** -_POWER])
    (floor, height), _ = nnls(design, losses[at] + drop[at])
    one, two = floor + height * steps**-_POWER - drop, floor + height * others**-_POWER - other_drop
    return np.asarray(np.log(two / one))


def _annealing(schedule: Schedule) -> tuple[Array, Array]:
    """Return steps at the full rate, in thousands, and the drop of the loss by lower rates, in nats per token: (20,) each."""
    grid = np.linspace(0.0, 1.0, 1201)
    rates = np.maximum(schedule.rates(grid), 1e-4)
    steps = _STEPS * np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(grid))])
    falls = np.maximum(rates[:-1] - rates[1:], 0.0)
    places = np.searchsorted(grid, np.array(FRACTIONS) - 1e-9)
    since = np.maximum(steps[places, None] - steps[None, :-1], 0.0)  # (fraction, fall); 0 before the fall
    settled = 1 - (_SPEED * rates[1:] ** -_SLOWER * since + 1) ** -_SETTLING
    return steps[places], _DROP * settled @ falls


@dataclass(frozen=True, kw_only=True)
class RunCurve:
    """Losses of a run at `FRACTIONS` (20,), NaN where unknown; `end` is its final loss, None if it has not ended."""

    flops: float
    tokens_per_param: float
    losses: Array
    end: float | None = None

    def regressors(self, origin: RunCurve) -> Array:
        """Return those of the shape, from another run: 1, log FLOPs, log tokens per parameter."""
        return np.array([1.0, np.log(self.flops / origin.flops), np.log(self.tokens_per_param / origin.tokens_per_param)])


@dataclass(frozen=True, kw_only=True)
class CurveForecast:
    """Quantiles of the loss by fraction and level, and of the final loss."""

    by_fraction: Mapping[float, Mapping[float, float]]
    end: Mapping[float, float]
    seen: int = 0
    """Number of fractions at which the run's loss was known."""
    is_unlike: bool = False
    """True if the run's curve has another shape than the known ones, so that it says nothing about its end."""


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """Distribution of a run's shape for one size of deviations: weight, mean (fraction,), covariance (fraction, fraction)."""

    log_weight: float
    mean: Array
    covariance: Array = field(repr=False)


def losses_at_fractions(fractions: Array, losses: Array) -> Array:
    """Return the losses at `FRACTIONS` of a curve that was logged at these shares of its run, NaN where it says nothing.

    Many points just before a fraction are smoothed by a line; few are interpolated.

    >>> losses_at_fractions(np.array([0.05, 0.1, 0.15]), np.array([4.0, 3.5, 3.25]))[:4].tolist()
    [4.0, 3.5, 3.25, nan]
    """
    order = np.argsort(fractions, kind="stable")
    done, logs = fractions[order], np.log(losses[order])
    found = np.full(len(FRACTIONS), np.nan)
    for place, fraction in enumerate(FRACTIONS):
        near = (done > max(fraction - 0.05, fraction / 2)) & (done <= fraction + 1e-9)
        if near.sum() >= _DENSE and done[near].max() > fraction - 0.01:
            found[place] = np.polyfit(done[near] - fraction, logs[near], 1)[1]
        elif (at := _interpolated(done, logs, fraction)) is not None:
            found[place] = at
    return np.asarray(np.exp(found))


def marks_of_steps(losses: Sequence[float | None], *, train_steps: int) -> tuple[float | None, ...]:
    """Return the losses at `FRACTIONS` of a run with these losses of steps 0, 1, ...; None where unknown or not finite."""
    values = np.array([np.nan if each is None else each for each in losses], dtype=np.float64)
    done, known = np.arange(1, len(values) + 1) / train_steps, np.isfinite(values) & (values > 0)
    if not known.any():
        return (None,) * len(FRACTIONS)
    return tuple(None if np.isnan(each) else each for each in losses_at_fractions(done[known], values[known]).tolist())


def _interpolated(done: Array, logs: Array, fraction: float) -> float | None:
    """Return the log loss at a fraction between two near points, or at a point within a hundredth of it."""
    if not len(done):
        return None
    after = int(np.searchsorted(done, fraction))
    closest = min((each for each in (after - 1, after) if 0 <= each < len(done)), key=lambda each: abs(done[each] - fraction))
    if abs(done[closest] - fraction) < 0.01:
        return float(logs[closest])
    if not 0 < after < len(done) or done[after] - done[after - 1] > _NEAR:
        return None
    return float(np.interp(fraction, done[after - 1 : after + 1], logs[after - 1 : after + 1]))


def forecast_curve(known: Sequence[RunCurve], run: RunCurve, ends: Array, *, changes: Array | None = None) -> CurveForecast:
    """Forecast the curve of `run` from those of smaller runs, given equally likely final losses `ends` of it (draw,).

    `changes` (20,) are those of log losses by the schedule of `run`, if the known curves are converted to it; `ends` have
    their error. Losses of `run` that are known already narrow the rest and the end. Curves may be of another metric than the
    final losses, such as the training loss; all must be of one. `FitRefused` if fewer than two curves are known.

    >>> flops = [1e18, 4e18, 1.6e19]
    >>> shape = np.array(FRACTIONS) ** -0.1
    >>> rungs = [RunCurve(flops=c, tokens_per_param=20, losses=c**-0.05 * shape, end=c**-0.05) for c in flops]
    >>> big = RunCurve(flops=1e21, tokens_per_param=20, losses=np.full(20, np.nan))
    >>> found = forecast_curve(rungs, big, ends=1e21**-0.05 * np.linspace(0.98, 1.02, 500))
    >>> round(found.by_fraction[0.5][0.5] / (1e21**-0.05 * 0.5**-0.1), 2)
    1.0
    """
    usable = [each for each in known if np.isfinite(each.losses).sum() > 1]
    if len(usable) < LEAST_CURVES:
        raise FitRefused(
            f"{len(usable)} runs have a loss curve; the forecast of a curve needs {LEAST_CURVES}.",
            fix="Add the curves of more runs of the table.",
        )
    found = _quantiles(_shapes(usable, run), np.log(run.losses), _Ends.of(ends, changes))
    if found.seen:
        return found
    end = dict(zip(CURVE_LEVELS, np.quantile(ends, CURVE_LEVELS).tolist(), strict=True))  # not smoothed
    return replace(found, end=end, by_fraction={**found.by_fraction, **({1.0: end} if is_one_metric(usable) else {})})


def is_one_metric(known: Sequence[RunCurve]) -> bool:
    """Return True if the curves end at the final losses, so that both are of one metric."""
    apart = _apart(known)
    return bool(apart) and float(np.median(apart)) < _SAME


def ends_apart(ladder: Mapping[str, Any]) -> float:
    """Return the median relative difference of curves' last losses in `ladder.json` from the final losses, 0 without any."""
    apart = _apart(_known_curves(ladder))
    return float(np.expm1(np.median(apart))) if apart else 0.0


def _apart(known: Sequence[RunCurve]) -> list[float]:
    return [abs(float(np.log(each.losses[-1] / each.end))) for each in known if each.end and np.isfinite(each.losses[-1])]


def _shapes(known: Sequence[RunCurve], run: RunCurve) -> list[_Shape]:
    """Return the distribution of the run's shape, as a mixture over the sizes of deviations and noise.

    The unknowns are mean and slopes at each fraction, with Gaussian priors; each run adds its curve with a covariance. A run
    without a final loss has a free level.
    """
    count = len(_DONE) - is_one_metric(known)  # the shape of the final metric itself is 0 at the end
    return [shape for noise in _NOISES for shape in _shapes_with(noise, known, run, count=count)]


def _shapes_with(noise: float, known: Sequence[RunCurve], run: RunCurve, *, count: int) -> list[_Shape]:
    spread, slopes = _covariances(count, noise=noise)
    precision = np.zeros((3 * count, 3 * count))
    precision[:count, :count] = np.eye(count)  # standard deviation 1 of a log: no information
    for place in (1, 2):
        own = slice(place * count, (place + 1) * count)
        precision[own, own] = np.linalg.inv(slopes)
    information, right, square, log_scale, degrees = _information(known, run, spread)
    found = []
    for deviation in _DEVIATIONS:
        root = np.linalg.cholesky(precision + information / deviation**2)
        solved = np.linalg.solve(root, right / deviation**2)
        at_run = np.linalg.solve(root, np.eye(3 * count)[:, :count])
        fit = log_scale - np.log(np.diag(root)).sum() - degrees * np.log(deviation)
        prior = -0.5 * (np.log(deviation / _USUAL_DEVIATION) / _SPREAD) ** 2
        found.append(
            _Shape(
                log_weight=float(fit + prior - 0.5 * (square / deviation**2 - solved @ solved)),
                mean=np.asarray(at_run.T @ solved),
                covariance=at_run.T @ at_run + deviation**2 * spread,
            )
        )
    return found


def _covariances(count: int, *, noise: float) -> tuple[Array, Array]:
    """Return covariances over fractions of a run's deviation (in units of its size) and of a slope of the shape."""
    done = _DONE[:count]
    common = np.minimum.outer(done, done)
    has_offset = count == len(_DONE)
    spread = common + noise**2 * np.eye(count) + (_OFFSET**2 if has_offset else 0.0)
    slopes = _SLOPE**2 * common + (_OFFSET_SLOPE**2 if has_offset else 0.0) + 1e-12 * np.eye(count)
    return spread, slopes


def _information(known: Sequence[RunCurve], run: RunCurve, spread: Array) -> tuple[Array, Array, float, float, int]:
    """Return what the curves say for deviations of size 1: information, right-hand side, square, log scale, and degrees."""
    count = len(spread)
    information, right = np.zeros((3 * count, 3 * count)), np.zeros(3 * count)
    square, log_scale, degrees = 0.0, 0.0, 0
    for each in known:
        at = np.flatnonzero(np.isfinite(each.losses[:count]))
        weight = np.linalg.inv(spread[np.ix_(at, at)])
        log_scale += 0.5 * float(np.linalg.slogdet(weight)[1])
        if each.end is None:  # its level is free
            total = weight.sum()
            weight = weight - np.outer(weight.sum(1), weight.sum(1)) / total
            log_scale -= 0.5 * float(np.log(total))
        shape = np.log(each.losses[at]) - np.log(each.end or 1.0)
        regressors = each.regressors(run)
        columns = np.concatenate([place * count + at for place in range(3)])
        information[np.ix_(columns, columns)] += np.kron(np.outer(regressors, regressors), weight)
        right[columns] += np.kron(regressors, weight @ shape)
        square += float(shape @ weight @ shape)
        degrees += len(at) - (each.end is None)
    return information, right, square, log_scale, degrees


@dataclass(frozen=True, kw_only=True)
class _Ends:
    """Logs of equally likely final losses (end,), and the error of converted curves: their changes against that of the end."""

    logs: Array
    changes: Array
    slope: float
    """Expected relative error of the conversion by the log of the end."""
    variance: float
    """Rest of the relative error, which the end does not tell."""
    early: Array
    """Variance of the log losses before the law holds, where the error is their own."""

    @classmethod
    def of(cls, ends: Array, changes: Array | None) -> _Ends:
        logs, spread = np.log(ends), max(float(np.log(ends).std()), 1e-9)
        thinned = np.array([part.mean() for part in np.array_split(np.sort(logs), min(_ENDS, len(logs)))])
        every = np.zeros(len(FRACTIONS)) if changes is None else changes
        is_early = np.array(FRACTIONS) < _SETTLED
        told = _TRANSFER * float(every[-1]) / spread  # correlation of the error with the end
        return cls(
            logs=thinned,
            changes=np.where(is_early, 0.0, every) - every[-1],
            slope=told * _TRANSFER / spread,
            variance=_TRANSFER**2 * max(1 - told**2, 0.0),
            early=np.where(is_early, _TRANSFER * every, 0.0) ** 2,
        )


def _quantiles(shapes: Sequence[_Shape], seen: Array, ends: _Ends) -> CurveForecast:
    """Return quantiles of the log-normal mixture over shapes and ends, given the log losses seen (NaN: not seen)."""
    count = len(shapes[0].mean)
    at = np.flatnonzero(np.isfinite(seen[:count]))
    bandwidth = _SMOOTHING * float(ends.logs.std()) + 1e-9
    parts = [_given(each, seen[at], at, ends=ends, bandwidth=bandwidth) for each in shapes]
    log_weights, means, deviations = (np.stack(each) for each in zip(*parts, strict=True))
    weights = np.exp(log_weights - log_weights.max())  # (shape, end)
    kept = weights.sum(1) > _LEAST_WEIGHT * weights.sum()
    weights = weights[kept] / weights[kept].sum()
    values = [_mixture_quantiles(weights, means[kept, :, each], deviations[kept, None, each]) for each in range(count + 1)]
    *rows, end = [dict(zip(CURVE_LEVELS, np.exp(each).tolist(), strict=True)) for each in values]
    rows += [end] * (len(FRACTIONS) - count)
    by_fraction = dict(zip(FRACTIONS, rows, strict=True))
    return CurveForecast(by_fraction=by_fraction, end=end, seen=len(at), is_unlike=_is_unlike(shapes, seen[at], at))


def _is_unlike(shapes: Sequence[_Shape], seen: Array, at: NDArray[np.intp]) -> bool:
    """Return True if the losses seen, at any level, are improbable under every likely shape."""
    best, chances = max(each.log_weight for each in shapes), [0.0]
    for each in shapes:
        if len(at) > 1 and each.log_weight > best + np.log(_LEAST_WEIGHT):
            weight = np.linalg.inv(each.covariance[np.ix_(at, at)])
            off = seen - each.mean[at]
            off = off - (weight @ off).sum() / weight.sum()
            chances.append(float(chi2.sf(off @ weight @ off, len(at) - 1)))
    return len(at) > 1 and max(chances) < _IMPROBABLE


def _given(shape: _Shape, seen: Array, at: NDArray[np.intp], *, ends: _Ends, bandwidth: float) -> tuple[Array, Array, Array]:
    """Return log weights (end,), means (end, fraction + 1) and standard deviations (fraction + 1,) of log losses and log end.

    Log losses and log end are jointly normal around each end, with the smoothing's variance common to all of them.
    """
    count = len(shape.mean)
    covariance = np.full((count + 1, count + 1), bandwidth**2)
    covariance[:count, :count] += shape.covariance
    changes = np.append(ends.changes[:count], 0.0)
    covariance += ends.variance * np.outer(changes, changes) + np.diag(np.append(ends.early[:count], 0.0))
    errors = ends.slope * (ends.logs - ends.logs.mean())
    means = ends.logs[:, None] + np.append(shape.mean, 0.0) + errors[:, None] * changes
    log_weights = np.full(len(ends.logs), shape.log_weight)
    if len(at):
        root = np.linalg.cholesky(covariance[np.ix_(at, at)])
        off = np.linalg.solve(root, (seen - means[:, at]).T)
        gain = np.linalg.solve(root, covariance[at])
        log_weights = log_weights - 0.5 * (off**2).sum(0) - np.log(np.diag(root)).sum()
        means, covariance = means + off.T @ gain, covariance - gain.T @ gain
    return log_weights, means, np.sqrt(np.maximum(np.diag(covariance), 1e-16))


def _mixture_quantiles(weights: Array, means: Array, deviations: Array) -> Array:
    """Return the quantiles at `CURVE_LEVELS` of a mixture of normals (shape, end), from its distribution on a grid."""
    grid = np.linspace((means - 6 * deviations).min(), (means + 6 * deviations).max(), 600)
    below = np.einsum("se,seg->g", weights, ndtr((grid - means[..., None]) / deviations[..., None]))
    return np.interp(CURVE_LEVELS, below, grid)


def curve_from_ladder(
    ladder: Mapping[str, Any], target: Mapping[str, Any], ends: Sequence[float], *, seen: Array | None = None
) -> CurveForecast:
    """Forecast the curve of a run from the content of `ladder.json`, its size in `target`, and equally likely `ends`.

    `target` has the keys of a row of `ladder.json`. `seen` are its losses at `FRACTIONS` so far, NaN where unknown. Errors as
    in `forecast_curve`.
    """
    known, changes = _known_curves(ladder), schedule_changes(ladder["curves"])
    run = _curve_of(target, losses=np.full(len(FRACTIONS), np.nan) if seen is None else seen)
    mean = np.mean([*changes.values()], axis=0) if changes else None
    return forecast_curve(known, run, np.array(ends), changes=mean)


def schedule_changes(curves: Mapping[str, Any]) -> dict[str, Array]:
    """Return changes of log losses (20,) by run under the target's schedule, from `curves` of `ladder.json`; empty without.

    `FitRefused` for changes of a final loss beyond those on which the law was tested.
    """
    if "schedule" not in curves or curves["schedule"] == curves["runs_schedule"]:
        return {}
    before, after = (Schedule(**curves[name]) for name in ("runs_schedule", "schedule"))
    losses = {each["run"]: np.array(each["losses"], dtype=np.float64) for each in curves["runs"]}
    found = {run: change_of_schedule(each, before, after) for run, each in losses.items()}
    if (most := max(abs(float(each[-1])) for each in found.values())) > MOST_TRANSFER:
        raise FitRefused(
            f"The other schedule changes the final loss of a run by {most:.1%}; the law of annealing is tested up to "
            f"{MOST_TRANSFER:.0%}.",
            fix="Train the runs with the target's schedule.",
        )
    return found


def schedule_error(curves: Mapping[str, Any] | None) -> float:
    """Return the standard deviation of the log of a final loss that a change of schedule adds; 0 without one."""
    changes = schedule_changes(curves or {})
    return _TRANSFER * abs(float(np.mean([each[-1] for each in changes.values()]))) if changes else 0.0


def _known_curves(ladder: Mapping[str, Any]) -> list[RunCurve]:
    """Return the curves of the runs in `ladder.json` under the target's schedule; an estimated final loss is left out."""
    rows, changes = {row["run"]: row for row in ladder["rows"]}, schedule_changes(ladder["curves"])
    curves, estimated = ladder["curves"]["runs"], ladder["curves"].get("complete", ())
    known = [
        _curve_of(rows[each["run"]], losses=np.array(each["losses"], dtype=np.float64) * np.exp(changes.get(each["run"], 0.0)))
        for each in curves
    ]
    return [replace(each, end=None) if curve["run"] in estimated else each for curve, each in zip(curves, known, strict=True)]


def estimated_end(row: Mapping[str, Any], finished: Sequence[Mapping[str, Any]]) -> float:
    """Return the final loss of a run that stopped early, from its curve and those of finished runs.

    Each run is a row of `ladder.json` with its `losses` at `FRACTIONS`, None where unknown.
    """
    run, *known = (_curve_of(each, losses=np.array(each["losses"], dtype=np.float64)) for each in (row, *finished))
    last = float(np.nanmin(run.losses))
    return forecast_curve(known, replace(run, end=None), last * np.geomspace(*_WIDE, 1000)).end[0.5]


def _curve_of(row: Mapping[str, Any], *, losses: Array) -> RunCurve:
    active = row.get("active_params", row["params"])
    return RunCurve(flops=row["flops"], tokens_per_param=row["tokens"] / active, losses=losses, end=row.get("loss"))


def curve_rows(found: CurveForecast) -> list[dict[str, Any]]:
    """Return the forecast as the rows of `curve` in `forecast.json`."""
    return [
        {"fraction": fraction, "quantiles": {f"{level:g}": value for level, value in quantiles.items()}}
        for fraction, quantiles in found.by_fraction.items()
    ]


def curve_text(found: CurveForecast) -> str:
    """Format the forecast of a curve, a line for each 10 % of the run and the first 5 %."""
    lines = ["  done    loss    90 % interval"]
    for place, (fraction, each) in enumerate(found.by_fraction.items()):
        if place == 0 or place % 2:
            lines.append(f"{fraction:>6.0%}  {each[0.5]:.4f}  [{each[0.05]:.4f}, {each[0.95]:.4f}]")
    return "\n".join(lines)
