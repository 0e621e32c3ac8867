"""Forecast accuracy on a benchmark from loss, through an accuracy curve."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from marin_scaling import __version__
from marin_scaling.errors import FitRefused, RunTableError
from marin_scaling.fitting.fit import FitResult
from marin_scaling.forecast.accuracy_curve import FORMULA, Sigmoid, require_reach
from marin_scaling.forecast.forecast import LEVELS, Forecast, Target, forecast_runs, samples_of, target_of
from marin_scaling.forecast.report import forecast_document
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted, wrapped
from marin_scaling.run.table import RunTable, column_texts
from marin_scaling.run.table_io import RawTable, cells_of_column, finite_number, is_empty, read_table_file
from marin_scaling.units import format_count, format_flops
from marin_scaling.untrusted_files import is_present

BAND_NOTES = {
    "soft metric": "uncertainty of the run's soft metric, from the law through the ladder",
    "sigmoid": "uncertainty of the curve from soft metric to accuracy, through these runs",
    "form": "the gain beyond the best of these runs, of which the form of the curve is a guess, as on OLMo's tasks",
    "residual": "scatter of one run about the curve, including that of the answers if their number is known",
}
"""Meaning of each band: half-width of the 90 % interval with the other sources of uncertainty fixed."""

_POOR_FIT = 0.8  # R^2; Marin's tracker has 0.7 for bits per byte of held-out text, below 0.1 for unrelated accuracies


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Normal distribution of the log of the true over the curve's gain beyond the best of its runs, in log error rate."""

    mean: float
    deviation: float


GAIN = Gain(mean=0.2, deviation=0.4)
"""Curves end too low: held-out runs of most OLMo tasks gained more than their curves, by about 1.5 times. The mean is half of
that, because all were measured on one ladder. With the deviation, 90 % intervals held nine tenths of held-out accuracies
(`benchmarks/downstream.py` compares others, and those that the other tasks choose)."""


class DownstreamStatus(Enum):
    """Status of the accuracies, the worst first; the value is the sentence for the reader."""

    BEYOND_THE_RUNS = (
        "Use with care: the soft metric of the target is below that of every run with an accuracy; there the form of the curve "
        "is assumed. The interval includes how far such curves missed OLMo's tasks."
    )
    POOR_FIT = "Use with care: the curve explains less than 80 % of the variance of accuracies; the interval includes the rest."
    USABLE = "Usable within its interval: runs with an accuracy enclose the soft metric of the target."


@dataclass(frozen=True, kw_only=True)
class DownstreamForecast:
    """Forecast accuracy of a run of `flops`, in shares from 0 to 1.

    `quantiles` (level to accuracy, 23 of them) include the scatter of the run. `bands` are half-widths of 90 % intervals by
    source of uncertainty (`BAND_NOTES`); they are not additive, because the curve is not straight. `soft` is the forecast of
    the soft metric, with the size of the run.
    """

    flops: float
    soft: Forecast
    median: float
    quantiles: Mapping[float, float]
    bands: Mapping[str, float]
    status: DownstreamStatus

    @property
    def interval(self) -> tuple[float, float]:
        """Central 90 % interval."""
        return self.quantiles[0.05], self.quantiles[0.95]

    @property
    def extrapolation(self) -> float:
        """Ratio of `flops` to the largest fitted run."""
        return self.soft.extrapolation


def forecast_downstream(
    result: FitResult,
    curve: Sigmoid,
    *,
    flops: float,
    params: float | None = None,
    tokens: float | None = None,
    seed: int | None = None,
) -> DownstreamForecast:
    """Forecast the accuracy of a run of `flops`, compute-optimal unless `params` and `tokens` are given.

    `result` is a fit of the soft metric against compute, `curve` one of accuracy against that soft metric; `seed` is the fit's
    own unless given. `FitRefused` if either step has no useful forecast at `flops`, or if the interval covers over half of the
    possible range; `UsageError` as in `forecast`.

    >>> from marin_scaling.fitting.fit import fit
    >>> from marin_scaling.forecast.accuracy_curve import fit_sigmoid, sigmoid_accuracy
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> soft = table.frame["loss"]
    >>> curve = fit_sigmoid(soft, accuracy=sigmoid_accuracy(soft, low=0.25, high=0.9, slope=4.0, middle=2.6), chance=0.25)
    >>> ahead = forecast_downstream(fit(table), curve, flops=1e21)
    >>> ahead.interval[0] < 0.733 < ahead.interval[1]  # the curve's value for the law's 2.3331
    True
    """
    return forecast_target(result, curve, target_of(result, flops=flops, params=params, tokens=tokens), seed=seed)


def forecast_target(result: FitResult, curve: Sigmoid, target: Target, *, seed: int | None = None) -> DownstreamForecast:
    """Forecast the accuracy of a target, as `forecast_downstream` does."""
    (soft,) = forecast_runs(result, [target], seed=seed)
    require_reach(curve, soft=soft.median)
    draws = accuracy_draws(curve, samples_of(result, target, seed=seed), seed=result.seed if seed is None else seed)
    quantiles = dict(zip(LEVELS, np.quantile(draws.accuracy, LEVELS).tolist(), strict=True))
    _require_narrow(quantiles, curve, flops=target.flops)
    return DownstreamForecast(
        flops=target.flops,
        soft=soft,
        median=quantiles[0.5],
        quantiles=quantiles,
        bands={cause: _half_width(values) for cause, values in draws.causes.items()},
        status=_status(curve, soft=soft.median),
    )


@dataclass(frozen=True, kw_only=True)
class AccuracyDraws:
    """Accuracies of a new run, (draw,), and by source of uncertainty their values with the other sources fixed."""

    accuracy: Array
    causes: Mapping[str, Array]


def accuracy_draws(curve: Sigmoid, soft: Array, *, seed: int, gain: Gain = GAIN) -> AccuracyDraws:
    """Draw accuracies of a new run from equally likely soft metrics (draw,); equal seeds give equal numbers."""
    generator = np.random.default_rng([seed, len(soft)])  # independent of the draws of soft metrics
    curves = replace(curve, draws=curve.draws[generator.permutation(len(soft)) % len(curve.draws)])
    middle, best = float(np.median(soft)), curve.soft_range[0]
    deviates, gains = generator.standard_normal((2, len(soft)))
    factor = np.exp(gain.mean + gain.deviation * gains)
    drawn = _stretched(curves.drawn_accuracy(np.minimum(soft, best)), curves.drawn_accuracy(best), factor)
    drawn = np.where(soft < best, drawn, curves.drawn_accuracy(soft))
    beyond = _stretched(curve.accuracy(min(middle, best)), curve.accuracy(best), factor)
    causes = {
        "soft metric": curve.accuracy(soft),
        "sigmoid": curves.drawn_accuracy(middle),
        "form": beyond,
        "residual": curves.scatter_at(curve.accuracy(middle)) * deviates,
    }
    return AccuracyDraws(accuracy=np.clip(drawn + curves.scatter_at(drawn) * deviates, 0.0, 1.0), causes=causes)


def _stretched(accuracy: Array, start: Array, factor: Array) -> Array:
    """Return accuracies whose log error rate falls `factor` times as far below that of `start`.

    >>> _stretched(np.array([0.8]), np.array([0.6]), np.array([2.0])).round(3)  # half of the errors are left, then a quarter
    array([0.9])
    """
    return np.asarray(1 - (1 - start) * ((1 - accuracy) / np.maximum(1 - start, 1e-12)) ** factor)


def _half_width(values: Array) -> float:
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) / 2


_LEAST_GAIN = 0.001
"""Gain in accuracy by the curve beyond the best of its runs from which on its form matters."""


def _gain_beyond(curve: Sigmoid, *, soft: float) -> float:
    best = curve.soft_range[0]
    return float(curve.accuracy(min(soft, best)) - curve.accuracy(best))


def _status(curve: Sigmoid, *, soft: float) -> DownstreamStatus:
    applies = {
        DownstreamStatus.BEYOND_THE_RUNS: _gain_beyond(curve, soft=soft) > _LEAST_GAIN,
        DownstreamStatus.POOR_FIT: curve.r_squared < _POOR_FIT,
        DownstreamStatus.USABLE: True,
    }
    return next(status for status in DownstreamStatus if applies[status])


def _require_narrow(quantiles: Mapping[float, float], curve: Sigmoid, *, flops: float) -> None:
    low, high = quantiles[0.05], quantiles[0.95]
    if high - low > curve.widest:
        raise FitRefused(
            f"No forecast of the accuracy at {format_flops(flops)} FLOPs: its 90 % interval would be {low:.2f} to {high:.2f}.",
            why=f"The widest useful interval is {curve.widest:.2g}, half of the possible range.",
            fix="Forecast nearer to the runs, add runs that span more compute, or more runs with an accuracy (--pool).",
        )


_WHY = "A curve of accuracy runs between chance and 1; nothing is dropped silently."
_FIX = "Fix the cell (divide percentages by 100), or leave it empty if the run has no score."


@dataclass(frozen=True, kw_only=True)
class ScoredRuns:
    """`soft` and `accuracy` of runs that have both, (run,) each; `notes` are warnings about the others."""

    soft: Array
    accuracy: Array
    notes: tuple[str, ...] = ()

    def with_pool(self, pool: ScoredRuns) -> ScoredRuns:
        """Add the runs of another table; a run with equal numbers in both counts once, with a note.

        >>> mine = ScoredRuns(soft=np.array([0.8, 0.7]), accuracy=np.array([0.3, 0.4]))
        >>> pool = ScoredRuns(soft=np.array([0.7, 0.5]), accuracy=np.array([0.4, 0.7]))
        >>> both = mine.with_pool(pool)
        >>> both.soft.tolist(), both.notes
        ([0.8, 0.7, 0.5], ('1 run is in both tables and counts once',))
        """
        mine = set(zip(self.soft.tolist(), self.accuracy.tolist(), strict=True))
        pairs = zip(pool.soft.tolist(), pool.accuracy.tolist(), strict=True)
        other = np.array([pair not in mine for pair in pairs], dtype=bool)
        twice = int(np.sum(~other))
        words = "run is in both tables and counts" if twice == 1 else "runs are in both tables and count"
        note = (f"{twice} {words} once",) if twice else ()
        return ScoredRuns(
            soft=np.concatenate([self.soft, pool.soft[other]]),
            accuracy=np.concatenate([self.accuracy, pool.accuracy[other]]),
            notes=tuple(dict.fromkeys([*self.notes, *pool.notes, *note])),
        )


def read_scores(path: Path, *, table: RunTable, metric: str, chance: float | None = None) -> ScoredRuns:
    """Read accuracies from column `metric` of the file of `table`, for the runs that the table kept.

    The soft metric is the table's loss. With `chance` 0, scores are centered on chance and may be negative. `RunTableError` for
    a missing column, a cell that is not a share, runs far below chance, or two rows of one name and soft metric that differ;
    `StorageError` for an unreadable file.
    """
    raw = _raw_table(path)
    run = table.column_mapping.get("run")
    names = list(raw.places) if run is None else column_texts(raw, run)
    cells = zip(names, _numbers(raw, table.column_mapping["loss"]), _shares(raw, metric, chance), strict=True)
    scores: dict[tuple[str, float], float] = {}
    for name, soft, share in cells:
        if not np.array_equal(scores.setdefault((name, soft), share), share, equal_nan=True):
            raise RunTableError(
                f"{raw.name}: rows named {name!r} have the same soft metric, but different cells in {metric!r}.",
                fix="Give every row its own name in the column `run`.",
            )
    keys = list(zip(table.frame["run"], table.frame["loss"], strict=True))
    shares = [scores[key] for key in keys]
    _refuse_placeholders([name for name, _ in keys], shares, chance, source=raw.name, metric=metric)
    return _scored(table.frame["loss"].to_numpy(dtype=np.float64), shares, source=raw.name, metric=metric)


def read_pool(path: Path, *, soft: str, metric: str, chance: float | None = None) -> ScoredRuns:
    """Read runs of any recipe with both columns; other rows are skipped and counted. Errors are as in `read_scores`."""
    raw = _raw_table(path)
    shares = _shares(raw, metric, chance)
    _refuse_placeholders(raw.places, shares, chance, source=raw.name, metric=metric)
    return _scored(np.array(_numbers(raw, soft)), shares, source=raw.name, metric=metric)


_FAR_BELOW = 0.5  # of chance; no benchmark of more than ten questions gives so little to a guess
_FAR_BELOW_ZERO = -0.2  # of a score centered on chance
_LEAST_REAL = 0.1  # an accuracy of exactly 0 among accuracies all above this is a missing score


def _refuse_placeholders(
    names: Sequence[str], shares: Sequence[float], chance: float | None, *, source: str, metric: str
) -> None:
    """`RunTableError` with the runs whose score is far below what a guess gets: zeros that stand for no score, for example."""
    above = [share for share in shares if share > 0]
    if chance is None:
        least = 1e-12 if above and min(above) > _LEAST_REAL else -math.inf
    else:
        least = _FAR_BELOW * chance or _FAR_BELOW_ZERO
    far = [(name, share) for name, share in zip(names, shares, strict=True) if share < least]
    if far and 0 <= (chance or 0.0) < 1:
        told = joined([f"{name} ({share:g})" for name, share in far])
        dropped = " ".join(f"--drop {shlex.quote(quoted(name))}" for name, _ in far[:3])
        than = "the others" if chance is None else "chance" if chance else "zero"
        raise RunTableError(
            f"{source}: {len(far)} runs have a {metric} far below {than}: {told}.",
            why="A score of zero often stands for a benchmark that was not run; the curve would bend to it.",
            fix=f"Empty these cells, or leave the runs out: {dropped}.",
        )


def _scored(soft: Array, shares: Sequence[float], *, source: str, metric: str) -> ScoredRuns:
    accuracy = np.array(shares, dtype=np.float64)
    both = np.isfinite(soft) & np.isfinite(accuracy)
    missing = int(np.sum(~both))
    note = f"{source}: {missing} of {len(both)} runs have no {metric} and are not used for the curve of accuracy"
    return ScoredRuns(soft=soft[both], accuracy=accuracy[both], notes=(note,) if missing else ())


def _raw_table(path: Path) -> RawTable:
    path = Path(path)
    if path.is_dir() and not is_present(path / "runs.csv"):
        raise RunTableError(
            f"{path} is a folder without runs.csv.",
            why="Stored runs have no benchmark scores.",
            fix="Give a CSV, Parquet or JSONL file with FLOPs, parameters, tokens and both columns.",
        )
    return read_table_file(path / "runs.csv" if path.is_dir() else path)


def _numbers(raw: RawTable, column: str) -> list[float]:
    """Return cells as numbers, NaN if empty."""
    return [_number(cell, where=where) for cell, where in _placed(raw, column)]


def _shares(raw: RawTable, column: str, chance: float | None) -> list[float]:
    """Return cells as shares from 0 to 1, NaN where empty; scores centered on chance may be negative."""
    return [_share(cell, chance, where=where) for cell, where in _placed(raw, column)]


def _placed(raw: RawTable, column: str) -> Iterator[tuple[Any, str]]:
    if column not in raw.column_names():
        raise RunTableError(
            f"{raw.name} has no column {column!r}; it has: {', '.join(raw.column_names())}.",
            fix="Name the columns: --soft COLUMN for the loss or bits per byte, --metric COLUMN for the accuracy.",
        )
    return cells_of_column(raw, column)


def _number(cell: Any, *, where: str) -> float:
    return math.nan if is_empty(cell) else finite_number(cell, where=where, why=_WHY, fix=_FIX)


def _share(cell: Any, chance: float | None, *, where: str) -> float:
    number = _number(cell, where=where)
    if number < (-1 if chance == 0 else 0) or number > 1:
        centered = "; a score centered on chance may be negative: --chance 0" if -1 <= number < 0 and chance != 0 else ""
        raise RunTableError(f"{where} holds {number:g}; an accuracy must be a share from 0 to 1{centered}.", fix=_FIX)
    return number


_KNOWN_TO = 0.04  # accuracy of an interval's ends, in units of its width, for 250 effective draws
_ROUGH = 100.0  # effective sample size below which the ends of an interval are known to a sixth of its width at best
ASSUMES = "The interval assumes that both the law and the curve of these runs still hold for the target."


def downstream_document(
    result: FitResult, curve: Sigmoid, forecasts: Sequence[DownstreamForecast], *, metric: str, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the document of `marin-scale downstream --json`: both steps, and the accuracies."""
    return {
        "metric": metric,
        "soft_metric": result.column_mapping.get("loss", result.metric),
        "law": forecast_document(result, [each.soft for each in forecasts]),
        "curve": _curve_document(curve),
        "predictions": [_prediction(each) for each in forecasts],
        "band_notes": dict(BAND_NOTES),
        "warnings": _warnings(curve, notes),
        "tool": f"marin-scaling {__version__}",
    }


def downstream_text(
    result: FitResult, curve: Sigmoid, forecasts: Sequence[DownstreamForecast], *, metric: str, notes: Sequence[str] = ()
) -> str:
    """Format runs of both steps, the curve, the accuracies and warnings as text."""
    soft = result.column_mapping.get("loss", result.metric)
    parts = [
        _steps_text(result, curve, soft=soft, metric=metric),
        *(_forecast_text(each, soft=soft, metric=metric) for each in forecasts),
        _warnings_text(result, curve, notes),
    ]
    return "\n\n".join(parts)


def _curve_document(curve: Sigmoid) -> dict[str, Any]:
    return {
        "formula": FORMULA,
        "parameters": {name: getattr(curve, name) for name in ("low", "high", "slope", "middle")},
        "parameter_intervals": {name: list(ends) for name, ends in curve.intervals().items()},
        "r_squared": curve.r_squared,
        "residual": curve.residual,
        "chance": curve.chance,
        "questions": curve.questions,
        "runs": curve.runs,
        "soft_range": list(curve.soft_range),
    }


def _prediction(each: DownstreamForecast) -> dict[str, Any]:
    return {
        **({"run": each.soft.run} if each.soft.run else {}),
        "flops": each.flops,
        "params": each.soft.params,
        "tokens": each.soft.tokens,
        "median": each.median,
        "quantiles": {f"{level:g}": value for level, value in each.quantiles.items()},
        "bands": dict(each.bands),
        "extrapolation": each.extrapolation,
        "status": each.status.value,
    }


def _warnings(curve: Sigmoid, notes: Sequence[str]) -> list[str]:
    unsure = f"the draws of the curve have an effective sample size of only {curve.worth:.0f}"
    return [*notes, *([unsure] if curve.worth < _ROUGH else [])]


def _steps_text(result: FitResult, curve: Sigmoid, *, soft: str, metric: str) -> str:
    ends = curve.intervals()
    numbers = [f"{name} {getattr(curve, name):.4g} {_pair(ends[name])}" for name in ("high", "slope", "middle")]
    low = f"low {curve.low:.4g}" + (", pinned at chance" if curve.chance is not None else f" {_pair(ends['low'])}")
    counted = f", {curve.questions} questions" if curve.questions else ""
    return "\n".join(
        [
            wrapped(f"step one: {soft} against compute, {len(result.frame)} runs of {result.source}, law {result.law.name}"),
            wrapped(f"{len(result.excluded)} runs left out; {result.status.value}", "  "),
            wrapped(
                f"step two: {metric} against {soft}, {curve.runs} runs{counted}; R^2 {curve.r_squared:.3f}, scatter "
                f"{curve.residual:.4f}"
            ),
            f"  {metric} = {FORMULA.replace('soft', soft)}",
            wrapped(f"{low}, {', '.join(numbers)}: least squares, and 90 % intervals", "  "),
        ]
    )


def _pair(ends: tuple[float, float]) -> str:
    """Format two ends with the digits that the draws determine: about 4 % of the width, as seeds differ."""
    digits = max(0, math.floor(-math.log10(max(_KNOWN_TO * (ends[1] - ends[0]), 1e-6))))
    return f"[{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def _forecast_text(each: DownstreamForecast, *, soft: str, metric: str) -> str:
    (low, high), (soft_low, soft_high) = each.interval, each.soft.interval()
    bands = ", ".join(f"{cause} ±{half:.3f}" for cause, half in each.bands.items())
    return "\n".join(
        [
            wrapped(f"forecast {_named(each)}at {format_flops(each.flops)} FLOPs ({each.extrapolation:.3g}x the largest run):"),
            f"  {soft} {each.soft.median:.3f}, 90 % interval [{soft_low:.3f}, {soft_high:.3f}]",
            f"  {metric} {each.median:.3f}, 90 % interval [{low:.3f}, {high:.3f}]",
            wrapped(f"half-widths: {bands}", "  "),
            wrapped(f"status: {each.status.value}", "  "),
        ]
    )


def _named(each: DownstreamForecast) -> str:
    """Return name and size of a run that was given, "" for a compute-optimal one."""
    size = f"N {format_count(each.soft.active_params)}, D {format_count(each.soft.tokens)}, "
    return "" if each.soft.optimal else f"{f'of {each.soft.run} ' if each.soft.run else ''}with {size}"


def _warnings_text(result: FitResult, curve: Sigmoid, notes: Sequence[str]) -> str:
    warnings = [*result.warnings, *_warnings(curve, notes)]
    return "\n".join([*(wrapped(f"warning: {each}", "  ") for each in warnings), wrapped(ASSUMES)])
