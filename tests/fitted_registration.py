"""Signed forecasts that were really fitted, from simulated runs: ground for tests of fitting a signed ladder again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from registration_factory import losses_of, make_registration, target_spec

from marin_scaling.fit.fit_result import FitResult
from marin_scaling.fit.fit_runs import fit
from marin_scaling.forecast.backtest import Backtest
from marin_scaling.forecast.forecast import Forecast, forecast
from marin_scaling.forecast.forecast_document import forecast_document
from marin_scaling.forecast.sensitivity import SensitivityRow
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.simulate import simulate_ladder

LAW = SurfaceLaw(E=0.9, A=20.0, B=60.0, alpha=0.34, beta=0.28)
Rows = Sequence[dict[str, Any]]


def simulated_ladder(*, seed: int = 0) -> Any:
    """Simulated runs up to a tenth of the target's FLOPs."""
    budgets = [target_spec().flops * share for share in (0.0125, 0.025, 0.05, 0.1)]
    return simulate_ladder(LAW, budgets_flops=budgets, sizes_per_budget=4, noise=0.002, seed=seed)


def document_of(result: FitResult, stated: Forecast) -> dict[str, Any]:
    """A forecast as it is registered; what it hangs on is told by a row."""
    tested = Backtest(source="", points=(), refused=())
    row = SensitivityRow(choice="as forecast", median=stated.median)
    return forecast_document(result, [stated], sensitivities=[[row]], tested=tested) | {"metric": "bits_per_byte"}


def fitted(
    *, law: str = "coupled-surface", shift: float = 0.0, seed: int = 0
) -> tuple[list[dict[str, Any]], dict[str, Any], list[float]]:
    """Rows of the ladder of a seed, the document of their forecast of the target, and its losses; moved by `shift` widths."""
    result = fit(simulated_ladder(seed=seed), law=law)
    honest = forecast(result, flops=target_spec().flops)
    low, high = honest.interval
    moved = {level: value + shift * (high - low) for level, value in honest.quantiles.items()}
    document = document_of(result, replace(honest, median=moved[0.5], quantiles=moved))
    return list(result.rows), document, losses_of(document)


def make_fitted_registration(
    root: Path,
    *,
    law: str = "coupled-surface",
    shift: float = 0.0,
    rows_of: int = 0,
    rows: Callable[[Rows], Rows] = lambda fitted: fitted,
    said: Mapping[str, Any] | None = None,
    then: Callable[[dict[str, Any]], None] = lambda document: None,
    **changes: Any,
) -> Path:
    """A signed forecast of `law` and its folder; an honest one where nothing else is said.

    `shift` moves all quantiles by widths of the interval; the ladder beside it is that of the seed `rows_of`, after `rows`;
    `said` is put into the forecast's document, and `then` changes it; `changes` are arguments of `make_registration`.
    """
    _, document, _ = fitted(law=law, shift=shift)
    shown = rows(fit(simulated_ladder(seed=rows_of), law=law).rows)
    document |= dict(said or {})
    then(document)
    return make_registration(root, rows=shown, forecast=document, **changes).folder
