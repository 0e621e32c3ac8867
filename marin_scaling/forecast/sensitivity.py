"""Sensitivity of a forecast: its target under other reasonable choices.

The choices are each law alone, the frontier through skewed bowls, pinned asymptotes in the law's interval, each budget left
out, the smallest ones left out, and outliers at full weight. Rows are medians without intervals, to compare with the forecast's
interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.frontier import fit_frontier, fit_pinned_frontier
from marin_scaling.fitting.law import DEFAULT_LAW
from marin_scaling.fitting.optima import fit_asymmetric_bowl, has_bowl, size_column
from marin_scaling.fitting.result import FitResult
from marin_scaling.fitting.surface import fit_interaction_surface, fit_surface, fit_tied_surface
from marin_scaling.forecast.forecast import Forecast, Target, forecast_runs, optimal_target
from marin_scaling.laws import Array, frontier_loss, surface_loss
from marin_scaling.printable import wrapped
from marin_scaling.run.table import RunTable
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd

_MOST_BUDGETS = 10


@dataclass(frozen=True, kw_only=True)
class SensitivityRow:
    """A choice and its median, or None with the reason."""

    choice: str
    median: float | None
    why_none: str = ""


def sensitivity(result: FitResult, forecast: Forecast) -> list[SensitivityRow]:
    """Return the rows for one forecast, that forecast first; budgets are left out under the law of the fit.

    Frontier laws and pinned asymptotes are skipped for sizes that are not compute-optimal.
    """
    target = Target(flops=forecast.flops, params=forecast.params, tokens=forecast.tokens, active_params=forecast.active_params)
    choices = list(_choices(result, target, optimal=forecast.optimal))
    return [SensitivityRow(choice=f"{result.law.name}, as forecast", median=forecast.median), *map(_row, choices)]


Choice = tuple[str, Callable[[], float]]


def _choices(result: FitResult, target: Target, *, optimal: bool) -> Iterator[Choice]:
    if optimal:
        yield from _frontier_choices(result, target)
    for name, form in _SURFACES.items():
        yield f"{name} alone (log-Huber)", partial(_surface_median, result, target, form)
    if result.law.name != DEFAULT_LAW:
        yield DEFAULT_LAW, partial(_median, result, target, _by(result, DEFAULT_LAW))
    for name, law in result.law.variants():
        yield name, partial(_forecast_median, replace(result, law=law), target)
    budgets = sorted(result.frame["budget_flops"].unique())
    if 3 < len(budgets) <= _MOST_BUDGETS:
        for budget in budgets:
            yield _without(result, target, [budget], f"without the budget {format_flops(budget)}")
    if len(budgets) > 4:
        half = budgets[: len(budgets) // 2]
        yield _without(result, target, half, f"without the {len(half)} smallest of {len(budgets)} budgets")


def _row(choice: Choice) -> SensitivityRow:
    name, median = choice
    try:
        return SensitivityRow(choice=name, median=median())
    except FitRefused as refusal:
        return SensitivityRow(choice=name, median=None, why_none=refusal.what)


def _frontier_choices(result: FitResult, target: Target) -> Iterator[Choice]:
    if result.bowls:
        yield "isoflop-frontier alone, E free", partial(_median, result, target, _by(result, "isoflop-frontier"))
        yield "frontier through skewed bowls (cubics), E free", partial(_skewed_median, result, target.flops)
    yield "best-runs-frontier alone, E free", partial(_median, result, target, _by(result, "best-runs-frontier"))
    flops, loss = (np.array([getattr(point, name) for point in result.points]) for name in ("flops", "loss"))
    for asymptote in _asymptotes(result):
        pinned = partial(_pinned_median, flops, loss, asymptote, target.flops)
        yield f"frontier with E pinned at {asymptote:g}", pinned


def _pinned_median(flops: Array, loss: Array, asymptote: float, target_flops: float) -> float:
    return float(frontier_loss(fit_pinned_frontier(flops, loss=loss, asymptote=asymptote), flops=target_flops))


def _asymptotes(result: FitResult) -> list[float]:
    """Return round values across the law's 90 % interval of E."""
    if "E" not in (ends := result.law.intervals()):
        return []
    low, high = ends["E"]
    return sorted({float(f"{value:.2g}") for value in np.linspace(max(low, 0.0), high, 4)})


def _median(
    result: FitResult, target: Target, refit: Callable[[RunTable], FitResult], frame: pd.DataFrame | None = None
) -> float:
    """Return the median for the same target from these runs, or some of them, by another law."""
    runs = result.frame if frame is None else frame
    other = refit(RunTable(frame=runs, excluded=(), warnings=(), column_mapping={}, source=result.source, metric=result.metric))
    return _forecast_median(other, target if other.law.knows_any_size else optimal_target(other, target.flops))


def _forecast_median(result: FitResult, target: Target) -> float:
    return forecast_runs(result, [target])[0].median


def _by(result: FitResult, law: str) -> Callable[[RunTable], FitResult]:
    return partial(fit, law=law, seed=result.seed, swept="all")


def _skewed_median(result: FitResult, target_flops: float) -> float:
    """Return the median of the frontier, E free, through minima of cubics; budgets of three sizes are refused."""
    budgets = [runs for _, runs in result.frame.groupby("budget_flops") if has_bowl(runs)]
    loss = [fit_asymmetric_bowl(tokens=_column(runs, "tokens"), loss=_column(runs, "loss")).optimal_loss for runs in budgets]
    flops = [np.exp(np.log(_column(runs, "flops")).mean()) for runs in budgets]
    return float(frontier_loss(fit_frontier(np.array(flops), loss=np.array(loss)), flops=target_flops))


def _surface_median(result: FitResult, target: Target, form: Callable[..., Callable[..., Array]]) -> float:
    tokens, loss = (_column(result.frame, name) for name in ("tokens", "loss"))
    predict = form(params=size_column(result.frame), tokens=tokens, loss=loss)
    return float(predict(params=target.active_params, tokens=target.tokens))


_SURFACES: dict[str, Callable[..., Callable[..., Array]]] = {
    "five-parameter surface": lambda **runs: partial(surface_loss, fit_surface(**runs).law),
    "surface with one exponent": lambda **runs: fit_tied_surface(**runs).law.predict,
    "surface with an interaction term": lambda **runs: fit_interaction_surface(**runs).law.predict,
}


def _without(result: FitResult, target: Target, budgets: list[float], name: str) -> Choice:
    kept = result.frame[~result.frame["budget_flops"].isin(budgets)].reset_index(drop=True)
    return name, partial(_median, result, target, result.refit, kept)


def _column(runs: pd.DataFrame, name: str) -> Array:
    return np.asarray(runs[name], dtype=np.float64)


def sensitivity_text(rows: list[SensitivityRow]) -> str:
    """Format each choice, its median, and its difference from the forecast."""
    first, width = rows[0].median or 1.0, max(len(row.choice) for row in rows)
    lines = ["sensitivity of the forecast (medians):"]
    for row in rows:
        value = f"{row.median:8.4f} {row.median / first - 1:+8.2%}" if row.median is not None else f"{'none':>8}"
        lines.append(f"  {row.choice:<{width}} {value}")
    lines += [wrapped(f"{row.choice} could not be fitted: {row.why_none}", "  ") for row in rows if row.median is None]
    lines.append(
        wrapped("A refitted surface is one least-squares fit; --law additive-surface prints the median of its bootstrap.", "  ")
    )
    return "\n".join(lines)
