"""The least squares and the posterior of a sigmoid through scored runs, in unknowns without bounds.

In units of the range of the soft metric: logit of the lower end (where it is not pinned), logit of the share of what lies
above it that the curve climbs, log slope, middle, log of the scatter beyond that of counting. Priors (`_prior`) are wide: from
curves nearly straight over the runs to steps between two of them, and middles up to two ranges away. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from marin_scaling.fit.importance import highest_point, sample_posterior
from marin_scaling.laws import Array

_SLOPE, _SLOPE_SPREAD = np.log(5.0), 1.0  # log slope per range of the runs: 90 % within 1 and 26
_MIDDLE, _MIDDLE_SPREAD = -0.5, 1.0  # ranges of the runs from the middle of theirs; -0.5 is the best run
_SCATTER, _SCATTER_SPREAD = np.log(0.02), 1.0  # log of a share: 90 % within 0.4 and 10 points of accuracy
_FINEST = 1e-3  # no benchmark tells accuracies apart that are nearer
_MOST_PLACES = 400  # runs of nearly equal soft metric count together where there are more
_STEP = 1e-30  # along the imaginary axis
_TIMES_AS_MANY = 10  # the tails are long: with 3,000 draws half-widths differed by a tenth between seeds
_FARTHEST = 12.0  # logit; nearer to 0 or 1 than `_FINEST` by far


@dataclass(frozen=True, kw_only=True)
class CurveRuns:
    """Runs with both metrics, those of nearly equal soft metric together: arrays (place,).

    `places` are soft metrics in units of their range `span` about its middle `centre`; `scatter` is the sum of squares within
    each of `count` runs. `chance` is the pinned lower end, or None; `questions` of the benchmark, or None.
    """

    places: Array
    accuracy: Array
    count: Array
    scatter: Array
    centre: float
    span: float
    chance: float | None
    questions: int | None


@dataclass(frozen=True, kw_only=True)
class CurveFit:
    """Low, high, slope, middle and scatter: `best` (5,) by least squares, `draws` (draw, 5) of the posterior.

    `worth` is how many independent draws they stand for.
    """

    best: Array
    draws: Array
    worth: float


def curve_runs(soft: Array, accuracy: Array, *, chance: float | None, questions: int | None) -> CurveRuns:
    """Runs (run,) as the fit takes them, at most `_MOST_PLACES` places."""
    order = np.argsort(soft, kind="stable")
    first = np.unique(np.linspace(0, len(order), min(len(order), _MOST_PLACES), endpoint=False).astype(int))
    count = np.diff(np.append(first, len(order))).astype(np.float64)
    means, places = (np.add.reduceat(each[order], first) / count for each in (accuracy, soft))
    squares = (accuracy[order] - np.repeat(means, count.astype(int))) ** 2
    centre, span = float(soft.min() + soft.max()) / 2, float(np.ptp(soft))
    return CurveRuns(
        places=(places - centre) / span,
        accuracy=means,
        count=count,
        scatter=np.add.reduceat(squares, first),
        centre=centre,
        span=span,
        chance=chance,
        questions=questions,
    )


def fit_curve(runs: CurveRuns, *, seed: int, draws: int = 3000) -> CurveFit:
    """The best curve and equally likely ones; equal seeds give equal draws."""
    best = _least_squares(runs)
    found = sample_posterior(
        lambda points: _log_posterior(points, runs), starts=_mode(best, runs)[None], seed=seed, draws=_TIMES_AS_MANY * draws
    )
    return CurveFit(
        best=_in_units(best[None], runs)[0], draws=_in_units(found.equally_weighted(draws), runs), worth=found.effective
    )


def _mode(start: Array, runs: CurveRuns) -> Array:
    """The highest point of the posterior (unknown,), to its last digits: nearly there differs between processors, and with it
    every draw."""
    from scipy.optimize import root

    def slope(point: Array) -> Array:
        return np.asarray(_log_posterior(point + 1j * _STEP * np.eye(len(point)), runs).imag / _STEP)

    near = highest_point(lambda points: _log_posterior(points, runs), start[None]).point
    found = root(slope, near, tol=1e-13)
    return found.x if found.success else near


def rise(steps: Array) -> Array:
    """1 / (1 + exp(steps)), which no value overflows.

    >>> rise(np.array([-1e9, 0.0, 1e9])).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.asarray(0.5 * (1 - np.tanh(0.5 * steps)))


def _named(points: Any, runs: CurveRuns) -> tuple[Any, Any, Any, Any, Any]:
    """Low, high, slope, middle and scatter (point,) in units of the range, from unknowns (point, unknown), real or complex."""
    *pinned_or_low, climbs, log_slope, middle, log_scatter = points.T
    low = rise(-pinned_or_low[0]) if pinned_or_low else np.full(len(points), runs.chance)
    return low, low + (1 - low) * rise(-climbs), np.exp(log_slope), middle, np.exp(log_scatter)


def _in_units(points: Array, runs: CurveRuns) -> Array:
    """The same in units of the table: (point, 5)."""
    low, high, slope, middle, scatter = _named(points, runs)
    return np.stack([low, high, slope / runs.span, runs.centre + runs.span * middle, scatter], axis=1)


def _curves(points: Any, runs: CurveRuns) -> Any:
    """Accuracies of curves at the places of the runs: (point, place)."""
    low, high, slope, middle, _ = (each[:, None] for each in _named(points, runs))
    return low + (high - low) * rise(slope * (runs.places - middle))


def _log_posterior(points: Any, runs: CurveRuns) -> Any:
    """(point,): normal deviations from the curve, of the variance of counting answers and of a scatter beyond it."""
    curves, scatter = _curves(points, runs), _named(points, runs)[-1]
    counting = curves * (1 - curves) / runs.questions if runs.questions else 0.0
    variance = _FINEST**2 + scatter[:, None] ** 2 + counting
    squares = runs.scatter + runs.count * (runs.accuracy - curves) ** 2
    return _prior(points) - 0.5 * (runs.count * np.log(variance) + squares / variance).sum(axis=1)


def _prior(points: Any) -> Any:
    """Log density (point,): the lower end evenly in shares, which is logistic in its logit; the climb twice as likely to be
    whole as half of it, because most questions of a benchmark have an answer that can be known; the rest normal."""
    *low, climb, log_slope, middle, log_scatter = points.T
    even = sum(-2 * np.log(np.cosh(0.5 * logit)) for logit in (*low, climb))
    whole = 0.5 * climb - np.log(np.cosh(0.5 * climb))
    deviations = (
        (log_slope - _SLOPE) / _SLOPE_SPREAD,
        (middle - _MIDDLE) / _MIDDLE_SPREAD,
        (log_scatter - _SCATTER) / _SCATTER_SPREAD,
    )
    return even + whole - 0.5 * sum(each**2 for each in deviations)


def _least_squares(runs: CurveRuns) -> Array:
    """The best unknowns from starts across the priors, with the log of the root mean square that they leave: (unknown,)."""
    from scipy.optimize import least_squares

    def misses(unknowns: Array) -> Array:
        return np.asarray(np.sqrt(runs.count) * (runs.accuracy - _curves(np.append(unknowns, 0.0)[None], runs)[0]))

    found = [least_squares(misses, start, bounds=_bounds(runs), xtol=1e-12, ftol=1e-12) for start in _starts(runs)]
    best = min(found, key=lambda each: float(each.cost))
    squares = 2 * float(best.cost) + runs.scatter.sum()
    return np.append(best.x, np.log(max(_FINEST, np.sqrt(squares / runs.count.sum()))))


def _bounds(runs: CurveRuns) -> tuple[Array, Array]:
    """Of the unknowns of the curve: ends as near to 0 and 1 as makes no difference, slopes and middles as far as priors let."""
    ends = 1 if runs.chance is not None else 2
    farthest = np.array([*[_FARTHEST] * ends, 4 * _SLOPE_SPREAD, 4 * _MIDDLE_SPREAD])
    centre = np.array([*[0.0] * ends, _SLOPE, _MIDDLE])
    return centre - farthest, centre + farthest


def _starts(runs: CurveRuns) -> list[Array]:
    """Gentle and steep, in and below the range of the runs; the lower end, where it is free, a little below the worst run."""
    low = np.clip(runs.accuracy.min() - _FINEST, _FINEST, 0.9)
    ends = [0.0] if runs.chance is not None else [float(np.log(low / (1 - low))), 0.0]
    return [np.array([*ends, slope, middle]) for slope in (_SLOPE, _SLOPE + _SLOPE_SPREAD) for middle in (-1.0, -0.3, 0.2)]
