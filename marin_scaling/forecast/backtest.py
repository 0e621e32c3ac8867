"""Rolling back-test: fit the budgets up to each cut of a table, forecast the runs beyond, and score the forecasts.

A back-test shows the accuracy of forecasts 3, 10 or 100 times beyond such runs, which a fit to all runs cannot show. Every run
is forecast at its own size and length, which tests whole bowls. A law that knows only compute-optimal runs is tested on the
best run of each budget, unless a cheaper run beats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.fit import FitResult, chosen_runs, fit
from marin_scaling.fitting.law import DEFAULT_LAW, LawKind, find_law, refuse_contradictions
from marin_scaling.fitting.optima import size_column
from marin_scaling.forecast.forecast import forecast_runs, targets_of
from marin_scaling.printable import wrapped
from marin_scaling.run.cells import repeats_data
from marin_scaling.run.table import RunTable
from marin_scaling.scoring import crps
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd


Quantiles = Mapping[float, float]
Forecaster = Callable[["RunTable", "pd.DataFrame"], Sequence[Quantiles]]
"""Function from runs up to a cut and runs beyond to quantiles of the latter's losses; `FitRefused` if there is no forecast."""

LEAST_FACTOR = 1.5
"""Smallest distance from the cut at which runs count as beyond it."""
DISTANCES = (LEAST_FACTOR, 3.0, 10.0, 30.0, 100.0, np.inf)
MOST_CUTS = 8
MOST_HELD_OUT, MOST_HELD_OUT_OF_FIT = 240, 60  # runs forecast from each cut, evenly spread over the table
_LEAST_RUNS = 4
_LEAST_INSIDE_90 = 0.5  # share of runs in their 90 % intervals below which a back-test missed; runs of a budget err together
_MOST_HALF_WIDTHS = 2.0
"""Distance of a budget's runs from their forecasts, in half-widths of the 90 % interval, from which the budget is doubted: at
most 1.4 in 95 budgets of the public suites, and 4.7 for Delphi's largest one with losses raised by 0.05 nats."""
_LEAST_BUDGETS = 3  # with fewer the status of the fit is a rough guess


@dataclass(frozen=True, kw_only=True)
class BacktestPoint:
    """One run, forecast from the runs up to a cut. Losses and `crps` are in the unit of the table."""

    cut_flops: float
    run: str
    flops: float
    observed: float
    quantiles: Quantiles
    crps: float

    @property
    def extrapolation(self) -> float:
        """Ratio of the run's FLOPs to the largest fitted."""
        return self.flops / self.cut_flops

    @property
    def error(self) -> float:
        """Relative difference of the median from the observed loss."""
        return self.quantiles[0.5] / self.observed - 1

    @property
    def half_widths_above(self) -> float:
        """Distance of the observed loss above the median, in half-widths of the 90 % interval."""
        width = self.quantiles[0.95] - self.quantiles[0.05]
        return 2 * (self.observed - self.quantiles[0.5]) / max(width, np.finfo(float).tiny)

    def inside(self, low: float, high: float) -> bool:
        """Return True if the observed loss is between two of the quantiles."""
        return self.quantiles[low] <= self.observed <= self.quantiles[high]


@dataclass(frozen=True, kw_only=True)
class BacktestRow:
    """Scores of the points between two distances; shares and errors, with `crps` as a share of the loss."""

    nearest: float
    farthest: float
    count: int
    median_absolute_error: float
    bias: float
    inside_50: float
    inside_90: float
    crps: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Backtest:
    """All points of a table's back-test, and the cuts without a forecast, with reasons."""

    source: str
    points: tuple[BacktestPoint, ...]
    refused: tuple[tuple[float, str], ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per forecast run: cut, run, FLOPs, extrapolation, observed loss, median, q05, q95, error and CRPS."""
        import pandas as pd

        names = ("cut_flops", "run", "flops", "extrapolation", "observed", "error", "crps")
        levels = {"median": 0.5, "q05": 0.05, "q95": 0.95}
        rows = [
            {name: getattr(each, name) for name in names} | {name: each.quantiles[level] for name, level in levels.items()}
            for each in self.points
        ]
        return pd.DataFrame(rows, columns=[*names, *levels])

    def __repr__(self) -> str:
        return backtest_text(self)

    def by_distance(self, distances: Sequence[float] = DISTANCES) -> list[BacktestRow]:
        """Return scores between each two distances that hold any point."""
        found = []
        for nearest, farthest in pairwise(distances):
            points = [point for point in self.points if nearest <= point.extrapolation < farthest]
            if points:
                found.append(summarise(points, nearest=nearest, farthest=farthest))
        return found


def backtest(
    table: RunTable,
    *,
    law: str | LawKind = DEFAULT_LAW,
    seed: int = 0,
    swept: str = "auto",
    prior: Prior | None = None,
    forecaster: Forecaster | None = None,
) -> Backtest:
    """Back-test a table with one of our laws, or with any other `forecaster`; at most `MOST_CUTS` cuts, evenly over budgets.

    `swept` and `prior` are as in `fit`: of a sweep, the best runs are forecast from the best runs.

    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e17, 1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> [(round(row.nearest), row.count) for row in backtest(table).by_distance()]
    [(10, 5)]
    """
    kind = find_law(law) if isinstance(law, str) else law
    refuse_contradictions(table)
    if forecaster is not None:
        return _rolled(table, forecaster, best_only=False, most=MOST_HELD_OUT)
    table = chosen_runs(table, swept=swept)
    law_of_cut = with_law(kind, seed=seed, swept="all", prior=prior)
    return _rolled(table, law_of_cut, best_only=not kind.knows_any_size, most=MOST_HELD_OUT)


def _rolled(table: RunTable, predict: Forecaster, *, best_only: bool, most: int) -> Backtest:
    points: list[BacktestPoint] = []
    refused: list[tuple[float, str]] = []
    for cut in _cuts(table.frame):
        known, beyond = _split(table, cut, best_only=best_only, most=most)
        try:
            forecasts = predict(known, beyond)
        except FitRefused as refusal:
            refused.append((cut, refusal.what))
            continue
        points += _points(known.frame["flops"].max(), beyond, forecasts)
    return Backtest(source=table.source, points=tuple(points), refused=tuple(refused))


def backtest_of_fit(result: FitResult) -> Backtest:
    """Back-test the runs of a fit, with the same law, prior and seed; of each cut at most 60 runs, evenly spread, are forecast.

    The result depends only on these rows, so that whoever has them can reproduce it. `backtest` forecasts up to 240.
    """
    table = RunTable(frame=result.frame, source=result.source, metric=result.metric)
    return _rolled(table, _with(result.refit), best_only=not result.law.knows_any_size, most=MOST_HELD_OUT_OF_FIT)


def summarise(points: Sequence[BacktestPoint], *, nearest: float, farthest: float) -> BacktestRow:
    """Return the scores of some points, each counted once."""
    errors = np.array([point.error for point in points])
    return BacktestRow(
        nearest=nearest,
        farthest=farthest,
        count=len(points),
        median_absolute_error=float(np.median(np.abs(errors))),
        bias=float(np.median(errors)),
        inside_50=float(np.mean([point.inside(0.25, 0.75) for point in points])),
        inside_90=float(np.mean([point.inside(0.05, 0.95) for point in points])),
        crps=float(np.mean([point.crps / point.observed for point in points])),
    )


def backtest_doubts(result: Backtest) -> list[str]:
    """Return warnings if the back-test of the table missed, else nothing."""
    found = list(_far_budgets(result.points))
    if not result.points:
        return found
    row = summarise(result.points, nearest=LEAST_FACTOR, farthest=np.inf)
    if row.inside_90 < _LEAST_INSIDE_90:
        inside, direction = round(row.inside_90 * row.count), _side(row)
        found.append(
            f"The ladder's own back-test missed: of {row.count} runs forecast from smaller budgets {inside} lay in their 90 % "
            f"intervals; the forecasts were {abs(row.bias):.1%} too {direction}, and this one may be."
        )
    return found


def tested_text(tested: Backtest | None) -> str:
    """Return the back-test in a sentence, with the largest distance at which half of the forecasts or more missed."""
    if tested is None or not tested.points:
        return ""
    rows = [summarise(tested.points, nearest=LEAST_FACTOR, farthest=np.inf)]
    rows += [row for row in tested.by_distance() if row.inside_90 <= _LEAST_INSIDE_90][-1:]
    counts = [f"{round(row.inside_90 * row.count)} of {row.count}" for row in rows]
    held = f"{counts[0]} forecasts held the loss in their 90 % intervals, median error {rows[0].median_absolute_error:.2%}"
    missed = "".join(f"; from {row.nearest:g}x on {counts[-1]}, {abs(row.bias):.1%} too {_side(row)}" for row in rows[1:])
    return wrapped(f"back-test: each budget forecast from the smaller ones, {held}{missed}")


def _side(row: BacktestRow) -> str:
    return "high" if row.bias > 0 else "low"


def _far_budgets(points: Sequence[BacktestPoint]) -> Iterator[str]:
    """Yield a warning for each budget whose runs lie far from their forecasts from the budgets directly below."""
    nearest = {point.run: point for point in sorted(points, key=lambda point: point.cut_flops)}
    for cut in sorted({point.cut_flops for point in nearest.values()}):
        runs = [point for point in nearest.values() if point.cut_flops == cut]
        distance = float(np.median([point.half_widths_above for point in runs]))
        if abs(distance) > _MOST_HALF_WIDTHS:
            error = float(np.median([point.error for point in runs]))
            yield (
                f"The loss at {format_flops(float(np.median([point.flops for point in runs])))} FLOPs is {abs(error):.1%} "
                f"{'above' if distance > 0 else 'below'} its forecast from the runs up to {format_flops(cut)}, "
                f"{abs(distance):.1f} times the half-width of the 90 % interval: were these runs trained and evaluated alike?"
            )


def backtest_text(result: Backtest) -> str:
    """Format the scores by distance as text."""
    head = f"{'beyond the runs':>16} {'forecasts':>9} {'error':>7} {'bias':>7} {'in 50 %':>8} {'in 90 %':>8} {'CRPS':>7}"
    lines = [wrapped(f"{result.source}: each budget forecast from the smaller ones"), head]
    for row in result.by_distance():
        distance = f"{row.nearest:g}x to {row.farthest:g}x" if np.isfinite(row.farthest) else f"{row.nearest:g}x and more"
        lines.append(
            f"{distance:>16} {row.count:>9} {row.median_absolute_error:>7.2%} {row.bias:>+7.2%} {row.inside_50:>8.0%} "
            f"{row.inside_90:>8.0%} {row.crps:>7.2%}"
        )
    if not result.points:
        lines.append("no budget could be forecast from smaller ones")
    lines += [wrapped(f"no forecast from runs up to {format_flops(cut)} FLOPs: {why}") for cut, why in result.refused]
    return "\n".join(
        [
            *lines,
            wrapped("error: median of |median / observed - 1|; CRPS as a share of the loss; runs of a budget err together"),
        ]
    )


def backtest_document(result: Backtest) -> dict[str, Any]:
    """Return the back-test as a document, with every point."""
    return {
        "source": result.source,
        "by_distance": backtest_scores(result),
        "points": [
            {
                "cut_flops": point.cut_flops,
                "run": point.run,
                "flops": point.flops,
                "extrapolation": point.extrapolation,
                "observed": point.observed,
                "quantiles": {f"{level:g}": value for level, value in point.quantiles.items()},
                "crps": point.crps,
            }
            for point in result.points
        ],
        "refused": [{"cut_flops": cut, "why": why} for cut, why in result.refused],
    }


def backtest_scores(result: Backtest) -> list[dict[str, Any]]:
    """Return the scores by distance, as in the document."""
    return [{**asdict(row), "farthest": row.farthest if np.isfinite(row.farthest) else None} for row in result.by_distance()]


def with_law(law: str | LawKind, *, seed: int = 0, swept: str = "auto", prior: Prior | None = None) -> Forecaster:
    """Return a forecaster by a law of `fit`; one of compute-optimal runs only forecasts those of the same FLOPs."""
    return _with(lambda known: fit(known, law=law, seed=seed, swept=swept, prior=prior))


def _with(fitted: Callable[[RunTable], FitResult]) -> Forecaster:
    def predict(known: RunTable, beyond: pd.DataFrame) -> list[Quantiles]:
        result = fitted(known)
        rows = beyond.assign(active_params=size_column(beyond))
        if repeats_data(beyond) and "trained_tokens" not in beyond:
            rows = rows.assign(unique_tokens=rows["tokens"] / rows["epochs"])
        if not result.law.knows_any_size:
            optimal = [result.allocation.params_at(flops) for flops in rows["flops"]]
            rows = rows.assign(params=optimal, active_params=optimal)
        return [each.quantiles for each in forecast_runs(result, targets_of(rows))]

    return predict


def _cuts(frame: pd.DataFrame) -> list[float]:
    """Return the largest FLOPs of the budgets before each cut."""
    largest = frame.groupby("budget_flops")["flops"].max().sort_values()
    enough = [flops for flops in largest.iloc[_LEAST_BUDGETS - 1 :] if (frame["flops"] <= flops).sum() >= _LEAST_RUNS]
    cuts = [flops for flops in enough if frame["flops"].max() >= LEAST_FACTOR * flops]
    if len(cuts) <= MOST_CUTS:
        return cuts
    return [cuts[place] for place in np.linspace(0, len(cuts) - 1, MOST_CUTS).round().astype(int)]


def _split(table: RunTable, cut: float, *, best_only: bool, most: int) -> tuple[RunTable, pd.DataFrame]:
    frame = table.frame
    known = frame[frame["flops"] <= cut * (1 + 1e-9)].reset_index(drop=True)
    beyond = frame[frame["flops"] >= LEAST_FACTOR * cut].reset_index(drop=True)
    if best_only:
        beyond = beyond[beyond["run"].isin(_unbeaten(frame))].reset_index(drop=True)
    spread = np.unique(np.linspace(0, len(beyond) - 1, min(len(beyond), most)).astype(np.int64))
    return replace(table, frame=known), beyond.iloc[spread].reset_index(drop=True)


def _unbeaten(frame: pd.DataFrame) -> pd.Series:
    """Return the names of the best run of each budget, unless the best run of a cheaper budget beats it."""
    best = frame.loc[frame.groupby("budget_flops")["loss"].idxmin()].sort_values("flops")
    return best.loc[best["loss"] < best["loss"].cummin().shift(fill_value=np.inf), "run"]


def _points(cut: float, beyond: pd.DataFrame, forecasts: Sequence[Quantiles]) -> list[BacktestPoint]:
    runs = zip(beyond["run"], beyond["flops"], beyond["loss"], forecasts, strict=True)
    return [
        BacktestPoint(
            cut_flops=float(cut),
            run=str(run),
            flops=float(flops),
            observed=float(loss),
            quantiles=quantiles,
            crps=crps(quantiles, observed=float(loss)),
        )
        for run, flops, loss, quantiles in runs
    ]
