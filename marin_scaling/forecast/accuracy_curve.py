"""Accuracy against loss: a sigmoid and its posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.importance_sampling import highest_point, sample_posterior
from marin_scaling.laws import Array

_SLOPE, _SLOPE_SPREAD = np.log(5.0), 1.0  # log slope per range of the runs: 90 % within 1 and 26
_MIDDLE, _MIDDLE_SPREAD = -0.5, 1.0  # relative to the middle of the runs, in units of their range; -0.5 is the best run
_SCATTER, _SCATTER_SPREAD = np.log(0.02), 1.0  # log of a share: 90 % within 0.4 and 10 points of accuracy
_FINEST = 1e-3  # finer differences of accuracy are below the resolution of benchmarks
_MOST_PLACES = 400  # runs of nearly equal soft metric are merged above this number
_STEP = 1e-30  # imaginary step of derivatives
_TIMES_AS_MANY = 10  # for long tails: with 3,000 draws half-widths differed by a tenth between seeds
_LEAST_CENTERED = -0.5  # least lower end of the curve of scores centered on chance: 0 right where a third is by chance
_FARTHEST = 12.0  # logit, far nearer to 0 or 1 than `_FINEST`


@dataclass(frozen=True, kw_only=True)
class CurveRuns:
    """Runs with both metrics, merged where the soft metric is nearly equal: arrays (place,).

    `places` are soft metrics relative to the middle `centre` of their range, in units of the range `span`. `scatter` is the sum
    of squares within each of `count` runs. `chance` is the pinned lower end, or None; `questions` of the benchmark, or None.
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

    `worth` is the effective sample size of the draws.
    """

    best: Array
    draws: Array
    worth: float


def curve_runs(soft: Array, accuracy: Array, *, chance: float | None, questions: int | None) -> CurveRuns:
    """Prepare runs (run,) for the fit, merged to at most `_MOST_PLACES` places."""
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
    """Return the best curve and posterior draws; equal seeds give equal draws."""
    best = _least_squares(runs)
    found = sample_posterior(
        lambda points: _log_posterior(points, runs), starts=_mode(best, runs)[None], seed=seed, draws=_TIMES_AS_MANY * draws
    )
    return CurveFit(
        best=_in_units(best[None], runs)[0], draws=_in_units(found.equally_weighted(draws), runs), worth=found.effective
    )


def _mode(start: Array, runs: CurveRuns) -> Array:
    """Return the highest point of the posterior (unknown,) to its last digits, since lower accuracy would differ between
    processors, and with it every draw."""
    from scipy.optimize import root

    def slope(point: Array) -> Array:
        return np.asarray(_log_posterior(point + 1j * _STEP * np.eye(len(point)), runs).imag / _STEP)

    near = highest_point(lambda points: _log_posterior(points, runs), start[None]).point
    found = root(slope, near, tol=1e-13)
    return found.x if found.success else near


def rise(steps: Array) -> Array:
    """Return 1 / (1 + exp(steps)), without overflow.

    >>> rise(np.array([-1e9, 0.0, 1e9])).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.asarray(0.5 * (1 - np.tanh(0.5 * steps)))


def _named(points: Any, runs: CurveRuns) -> tuple[Any, Any, Any, Any, Any]:
    """Return low, high, slope, middle and scatter (point,) in units of the range, from unknowns (point, unknown)."""
    *pinned_or_low, climbs, log_slope, middle, log_scatter = points.T
    low = rise(-pinned_or_low[0]) if pinned_or_low else np.full(len(points), runs.chance)
    return low, low + (1 - low) * rise(-climbs), np.exp(log_slope), middle, np.exp(log_scatter)


def _in_units(points: Array, runs: CurveRuns) -> Array:
    """Return the numbers of `_named` in units of the table: (point, 5)."""
    low, high, slope, middle, scatter = _named(points, runs)
    return np.stack([low, high, slope / runs.span, runs.centre + runs.span * middle, scatter], axis=1)


def _curves(points: Any, runs: CurveRuns) -> Any:
    """Return accuracies of curves at the places of the runs: (point, place)."""
    low, high, slope, middle, _ = (each[:, None] for each in _named(points, runs))
    return low + (high - low) * rise(slope * (runs.places - middle))


def _log_posterior(points: Any, runs: CurveRuns) -> Any:
    """Return log densities (point,): normal deviations from the curve, with the variance of counting answers and of scatter."""
    curves, scatter = _curves(points, runs), _named(points, runs)[-1]
    counting = curves * (1 - curves) / runs.questions if runs.questions else 0.0
    variance = _FINEST**2 + scatter[:, None] ** 2 + counting
    squares = runs.scatter + runs.count * (runs.accuracy - curves) ** 2
    return _prior(points) - 0.5 * (runs.count * np.log(variance) + squares / variance).sum(axis=1)


def _prior(points: Any) -> Any:
    """Return log prior densities (point,). The lower end is uniform in shares, which is logistic in its logit. The full climb
    is twice as likely as half of it, because most questions of a benchmark can be answered. The other priors are normal."""
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
    """Return the best unknowns from starts across the priors, with the log of their root mean square residual: (unknown,)."""
    from scipy.optimize import least_squares

    def misses(unknowns: Array) -> Array:
        return np.asarray(np.sqrt(runs.count) * (runs.accuracy - _curves(np.append(unknowns, 0.0)[None], runs)[0]))

    found = [least_squares(misses, start, bounds=_bounds(runs), xtol=1e-12, ftol=1e-12) for start in _starts(runs)]
    best = min(found, key=lambda each: float(each.cost))
    squares = 2 * float(best.cost) + runs.scatter.sum()
    return np.append(best.x, np.log(max(_FINEST, np.sqrt(squares / runs.count.sum()))))


def _bounds(runs: CurveRuns) -> tuple[Array, Array]:
    """Return bounds of the curve's unknowns: ends indistinguishable from 0 and 1, slopes and middles as the priors allow."""
    ends = 1 if runs.chance is not None else 2
    farthest = np.array([*[_FARTHEST] * ends, 4 * _SLOPE_SPREAD, 4 * _MIDDLE_SPREAD])
    centre = np.array([*[0.0] * ends, _SLOPE, _MIDDLE])
    return centre - farthest, centre + farthest


def _starts(runs: CurveRuns) -> list[Array]:
    """Return gentle and steep starts, in and below the range of the runs, with a free lower end just below the worst run."""
    low = np.clip(runs.accuracy.min() - _FINEST, _FINEST, 0.9)
    ends = [0.0] if runs.chance is not None else [float(np.log(low / (1 - low))), 0.0]
    return [np.array([*ends, slope, middle]) for slope in (_SLOPE, _SLOPE + _SLOPE_SPREAD) for middle in (-1.0, -0.3, 0.2)]


FORMULA = "low + (high - low) / (1 + exp(slope * (soft - middle)))"
LEAST_RUNS = 6
"""Least number of runs: more than the curve's unknowns, which are four and the scatter."""
LEAST_R_SQUARED = 0.5
"""Least R^2: below it the runs' own scatter is more than half of the variance."""
MOST_CHANCE = 0.01
"""Largest share of tables of pure noise with an equally steady rise."""
WIDEST = 0.5
"""Largest width of a useful 90 % interval, as a share of the possible range of accuracy."""


@dataclass(frozen=True, kw_only=True)
class Sigmoid:
    """A fitted curve. `draws` (draw, 5) hold low, high, slope, middle and residual s.d., all equally likely.

    `low` to `middle` are those of least squares; `residual` is the root mean square about them. `chance` is the pinned value of
    `low`, `questions` the size of the benchmark; each may be None. `soft_range` is that of the runs.
    """

    low: float
    high: float
    slope: float
    middle: float
    residual: float
    r_squared: float
    draws: Array
    worth: float
    chance: float | None
    questions: int | None
    runs: int
    soft_range: tuple[float, float]

    def accuracy(self, soft: ArrayLike) -> Array:
        """Return the fitted curve at values of the soft metric, of any shape."""
        return sigmoid_accuracy(soft, low=self.low, high=self.high, slope=self.slope, middle=self.middle)

    def drawn_accuracy(self, soft: ArrayLike) -> Array:
        """Return the drawn curves at `soft`, a scalar or one value per draw (draw,): (draw,)."""
        low, high, slope, middle, _ = self.draws.T
        return sigmoid_accuracy(soft, low=low, high=high, slope=slope, middle=middle)

    def scatter_at(self, accuracy: ArrayLike) -> Array:
        """Return the standard deviation of a new run about each drawn curve at `accuracy`, counting included: (draw,)."""
        accuracy = np.asarray(accuracy)
        counting = accuracy * (1 - accuracy) / self.questions if self.questions else 0.0
        return np.asarray(np.sqrt(self.draws[:, -1] ** 2 + counting))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return central 90 % intervals of the curve's parameters and of the scatter about it."""
        names = ("low", "high", "slope", "middle", "residual")
        ends = np.quantile(self.draws, (0.05, 0.95), axis=0).T
        return {name: (float(below), float(above)) for name, (below, above) in zip(names, ends, strict=True)}

    @property
    def widest(self) -> float:
        """Largest width of a useful 90 % interval: half of the range between chance, or 0, and 1."""
        return WIDEST * (1 - (self.chance or 0.0))


def sigmoid_accuracy(soft: ArrayLike, *, low: ArrayLike, high: ArrayLike, slope: ArrayLike, middle: ArrayLike) -> Array:
    """Return the curve; arguments broadcast, and no value overflows.

    >>> sigmoid_accuracy([0.2, 0.6, 1e6], low=0.25, high=0.95, slope=10.0, middle=0.6).round(3)
    array([0.937, 0.6  , 0.25 ])
    """
    low, high = np.asarray(low), np.asarray(high)
    return np.asarray(low + (high - low) * rise(np.asarray(slope) * (np.asarray(soft) - np.asarray(middle))))


def fit_sigmoid(
    soft: ArrayLike, *, accuracy: ArrayLike, chance: float | None = None, questions: int | None = None, seed: int = 0
) -> Sigmoid:
    """Fit the curve to runs: `soft` and `accuracy`, both (run,), the latter in shares from 0 to 1.

    `chance` pins the lower end, which is fitted otherwise. Scores centered on chance (`chance=0`) may be negative; then the
    lower end is fitted, because small models score below a guess on some questions. `questions` gives a lower limit of the
    residual: the scatter of so many answers. `FitRefused` for fewer than six runs, no spread, no steady rise, R^2 below 0.5, or
    no more scatter than that of the answers. `UsageError` for an invalid argument.

    >>> soft = np.linspace(0.4, 0.9, 12)
    >>> truth = sigmoid_accuracy(soft, low=0.25, high=0.9, slope=12.0, middle=0.6)
    >>> curve = fit_sigmoid(soft, accuracy=truth, chance=0.25)
    >>> round(curve.high, 3), round(curve.slope, 2), round(curve.middle, 3), round(curve.r_squared, 3)
    (0.9, 12.0, 0.6, 1.0)
    """
    soft, accuracy = np.asarray(soft, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    _require_usable(soft, accuracy, chance=chance, questions=questions)
    _refuse_hopeless(soft, accuracy, questions=questions)
    floor = _LEAST_CENTERED if len(accuracy) and accuracy.min() < 0 else 0.0
    chance, questions = (None, None) if floor else (chance, questions)
    raised = (accuracy - floor) / (1 - floor)  # what the curve is fitted to lies between 0 and 1
    found = _lowered(fit_curve(curve_runs(soft, raised, chance=chance, questions=questions), seed=seed), floor)
    low, high, slope, middle, _ = found.best.tolist()
    squares = float(np.sum((accuracy - sigmoid_accuracy(soft, low=low, high=high, slope=slope, middle=middle)) ** 2))
    r_squared = 1 - squares / float(np.sum((accuracy - accuracy.mean()) ** 2))
    _refuse_poor(r_squared)
    return Sigmoid(
        low=low,
        high=high,
        slope=slope,
        middle=middle,
        residual=float(np.sqrt(squares / len(soft))),
        r_squared=r_squared,
        draws=found.draws,
        worth=found.worth,
        chance=chance,
        questions=questions,
        runs=len(soft),
        soft_range=(float(soft.min()), float(soft.max())),
    )


def _lowered(found: CurveFit, floor: float) -> CurveFit:
    """Return a fit to scores that were raised from `floor` to 0, for the scores themselves."""
    scale, shift = np.array([1 - floor, 1 - floor, 1, 1, 1 - floor]), np.array([floor, floor, 0, 0, 0])
    return CurveFit(best=found.best * scale + shift, draws=found.draws * scale + shift, worth=found.worth)


def require_reach(curve: Sigmoid, *, soft: float) -> None:
    """Raise `FitRefused` if the curve's 90 % interval at `soft` is wider than `Sigmoid.widest`.

    That is the case if no run has climbed far enough to show the upper end of the curve.
    """
    low, high = np.quantile(curve.drawn_accuracy(soft), (0.05, 0.95))
    if high - low > curve.widest:
        nearest, farthest = curve.soft_range
        raise FitRefused(
            f"At a soft metric of {soft:.4g} the accuracy may be anything from {low:.2f} to {high:.2f}; the runs with an "
            f"accuracy have soft metrics from {nearest:.4g} to {farthest:.4g}.",
            why="No run is near enough to determine the height or the slope of the curve there.",
            fix="Add runs with a soft metric near the target's, of any recipe (--pool), or forecast nearer to the runs.",
        )


def _require_usable(soft: Array, accuracy: Array, *, chance: float | None, questions: int | None) -> None:
    if soft.ndim != 1 or soft.shape != accuracy.shape:
        _reject(f"Soft metrics {soft.shape} and accuracies {accuracy.shape} must be two lists of one length.")
    if not (np.isfinite(soft).all() and np.isfinite(accuracy).all()):
        _reject("A soft metric or an accuracy is not finite.")
    least = -1 if chance == 0 else 0  # of scores that are centered on chance
    if len(accuracy) and not (accuracy.min() >= least and accuracy.max() <= 1):
        _reject(f"Accuracies range from {accuracy.min():g} to {accuracy.max():g}; they must be shares from 0 to 1.")
    if chance is not None and not 0 <= chance < 1:
        _reject(f"{chance:g} is not an accuracy by chance.", fix="Give one over the number of choices, such as 0.25.")
    if questions is not None and questions < 1:
        _reject(f"{questions} is not a number of questions.", fix="Give the number of questions of the benchmark.")


def _reject(what: str, *, fix: str = "Give a number for each run; divide percentages by 100.") -> NoReturn:
    raise UsageError(what, fix=fix)


def _refuse_hopeless(soft: Array, accuracy: Array, *, questions: int | None) -> None:
    if len(soft) < LEAST_RUNS:
        _refuse(
            f"{len(soft)} run{'' if len(soft) == 1 else 's'} with both a soft metric and an accuracy; the curve needs "
            f"{LEAST_RUNS}.",
            why="With as many unknowns as runs, any curve would fit.",
        )
    for values, name in ((soft, "soft metric"), (accuracy, "accuracy")):
        if np.ptp(values) <= 1e-9 * max(1e-300, float(np.abs(values).max())):
            _refuse(f"All {len(soft)} runs have one {name}, {values[0]:g}.", why="A curve cannot be seen at a single point.")
    if questions and not _more_than_guesses(accuracy, questions=questions):
        _refuse(
            f"The accuracies of {len(soft)} runs scatter no more than one model's on other sets of {questions} questions.",
            why="The differences between these runs may be chance.",
        )
    if _share_of_noise_as_steady(soft, accuracy) > MOST_CHANCE:
        _refuse(
            f"Accuracy does not rise steadily as the soft metric falls: more than {MOST_CHANCE:.0%} of tables of noise look "
            "as good.",
            why="An interval would describe noise.",
        )


def _more_than_guesses(accuracy: Array, *, questions: int) -> bool:
    """Return True if the scatter of accuracies exceeds that of 99 % of sets of equally good models."""
    from scipy.stats import chi2

    mean = accuracy.mean()
    statistic = np.sum((accuracy - mean) ** 2) * questions / (mean * (1 - mean))
    return bool(statistic > chi2.ppf(0.99, len(accuracy) - 1))


def _share_of_noise_as_steady(soft: Array, accuracy: Array) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(soft, accuracy, alternative="less").pvalue)


def _refuse_poor(r_squared: float) -> None:
    if r_squared < LEAST_R_SQUARED:
        _refuse(
            f"The curve explains {max(r_squared, 0.0):.0%} of how accuracies differ (R^2); {LEAST_R_SQUARED:.0%} is the least.",
            why="The rest is scatter, or the accuracy follows another soft metric.",
        )


def _refuse(what: str, *, why: str) -> NoReturn:
    raise FitRefused(
        what,
        why=why,
        fix="Add runs, larger ones first or a wider pool (--pool), or use a soft metric of the same questions (--soft).",
    )
