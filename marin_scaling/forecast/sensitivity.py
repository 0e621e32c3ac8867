"""What a forecast hangs on: the same target under every other choice that a careful person could have made.

Each law alone, the frontier through skewed bowls, the asymptote pinned where the posterior has it, each budget left out, the
smallest ones left out, and outliers at full weight. Rows are medians to set beside the interval and have none of
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.bowl import fit_asymmetric_bowl
from marin_scaling.fitting.coupled_fit import fitted_runs
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.frontier import fit_frontier, fit_pinned_frontier
from marin_scaling.fitting.optima import has_bowl, size_column
from marin_scaling.fitting.posterior import fit_posterior
from marin_scaling.fitting.result import FitResult
from marin_scaling.fitting.surface import fit_interaction_surface, fit_surface, fit_tied_surface
from marin_scaling.forecast.forecast import Forecast, Target, forecast_runs, optimal_target
from marin_scaling.laws import Array, frontier_loss, surface_loss
from marin_scaling.run.table import RunTable
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd

_MOST_BUDGETS = 10


@dataclass(frozen=True, kw_only=True)
class SensitivityRow:
    """A choice and the median that it gives; None with the reason where it gives none."""

    choice: str
    median: float | None
    why_none: str = ""


def sensitivity(result: FitResult, forecast: Forecast) -> list[SensitivityRow]:
    """The rows for one forecast, that forecast first; budgets are left out under the law of the fit.

    Frontier laws and pinned asymptotes know compute-optimal runs only and are left out for any other size.
    """
    target = Target(flops=forecast.flops, params=forecast.params, tokens=forecast.tokens, active_params=forecast.active_params)
    choices = list(_choices(result, target, optimal=forecast.optimal))
    return [SensitivityRow(choice=f"{result.law_name}, as forecast", median=forecast.median), *map(_row, choices)]


Choice = tuple[str, Callable[[], float]]


def _choices(result: FitResult, target: Target, *, optimal: bool) -> Iterator[Choice]:
    if optimal:
        yield from _frontier_choices(result, target)
    for name, form in _SURFACES.items():
        yield f"{name} alone (log-Huber)", partial(_surface_median, result, target, form)
    if result.posterior is None:
        yield "coupled-surface", partial(_median, result, result.frame, target, law="coupled-surface")
    else:
        yield "coupled surface, outliers at full weight", partial(_unweighted_median, result, target)
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
        yield "isoflop-frontier alone, E free", partial(_median, result, result.frame, target, law="isoflop-frontier")
        yield "frontier through skewed bowls (cubics), E free", partial(_skewed_median, result, target.flops)
    yield "best-runs-frontier alone, E free", partial(_median, result, result.frame, target, law="best-runs-frontier")
    flops, loss = (np.array([getattr(point, name) for point in result.points]) for name in ("flops", "loss"))
    for asymptote in _asymptotes(result):
        pinned = partial(_pinned_median, flops, loss, asymptote, target.flops)
        yield f"frontier with E pinned at {asymptote:g}", pinned


def _pinned_median(flops: Array, loss: Array, asymptote: float, target_flops: float) -> float:
    return float(frontier_loss(fit_pinned_frontier(flops, loss=loss, asymptote=asymptote), flops=target_flops))


def _asymptotes(result: FitResult) -> list[float]:
    """Round values across the posterior's 90 % of E."""
    if result.posterior is None:
        return []
    low, high = np.quantile(result.posterior.laws.E, (0.05, 0.95))
    return sorted({float(f"{value:.2g}") for value in np.linspace(max(low, 0.0), high, 4)})


def _skewed_median(result: FitResult, target_flops: float) -> float:
    """The frontier, E free, through the bottoms of cubics; a budget of three sizes has none and the fit is refused."""
    budgets = [runs for _, runs in result.frame.groupby("budget_flops") if has_bowl(runs)]
    loss = [fit_asymmetric_bowl(tokens=_column(runs, "tokens"), loss=_column(runs, "loss")).optimal_loss for runs in budgets]
    flops = [np.exp(np.log(_column(runs, "flops")).mean()) for runs in budgets]
    return float(frontier_loss(fit_frontier(np.array(flops), loss=np.array(loss)), flops=target_flops))


def _median(result: FitResult, frame: pd.DataFrame, target: Target, *, law: str) -> float:
    """The same target from some of the runs or by another law, under the same prior."""
    prior = result.posterior.prior if result.posterior else None
    other = fit(_table(result, frame), law=law, seed=result.seed, swept="all", prior=prior)
    return forecast_runs(other, [optimal_target(other, target.flops) if other.is_frontier else target])[0].median


def _surface_median(result: FitResult, target: Target, form: Callable[..., Callable[..., Array]]) -> float:
    tokens, loss = (_column(result.frame, name) for name in ("tokens", "loss"))
    predict = form(params=size_column(result.frame), tokens=tokens, loss=loss)
    return float(predict(params=target.active_params, tokens=target.tokens))


_SURFACES: dict[str, Callable[..., Callable[..., Array]]] = {
    "five-parameter surface": lambda **runs: partial(surface_loss, fit_surface(**runs).law),
    "surface with one exponent": lambda **runs: fit_tied_surface(**runs).law.predict,
    "surface with an interaction term": lambda **runs: fit_interaction_surface(**runs).law.predict,
}


def _unweighted_median(result: FitResult, target: Target) -> float:
    prior = result.posterior.prior if result.posterior else None
    posterior = fit_posterior(fitted_runs(result.frame), prior=prior, seed=result.seed, downweight_outliers=False)
    return forecast_runs(replace(result, posterior=posterior), [target])[0].median


def _without(result: FitResult, target: Target, budgets: list[float], name: str) -> Choice:
    kept = result.frame[~result.frame["budget_flops"].isin(budgets)].reset_index(drop=True)
    return name, partial(_median, result, kept, target, law=result.law_name)


def _column(runs: pd.DataFrame, name: str) -> Array:
    return np.asarray(runs[name], dtype=np.float64)


def _table(result: FitResult, frame: pd.DataFrame) -> RunTable:
    return RunTable(frame=frame, excluded=(), warnings=(), column_mapping={}, source=result.source, metric=result.metric)


def sensitivity_text(rows: list[SensitivityRow]) -> str:
    """The table for a reader: each choice, its median, and how far it is from the forecast."""
    first = rows[0].median or 1.0
    lines = ["what the forecast hangs on (medians):"]
    for row in rows:
        value = f"{row.median:8.4f} {row.median / first - 1:+8.2%}" if row.median is not None else f"    none: {row.why_none}"
        lines.append(f"  {row.choice:<62} {value}")
    return "\n".join(lines)
