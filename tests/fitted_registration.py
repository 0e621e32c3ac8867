"""Signed forecasts that were really fitted, from simulated runs: ground for tests of fitting a signed ladder again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from registration_factory import make_registration, target_spec

from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.law import DEFAULT_LAW
from marin_scaling.forecast.backtest import backtest_of_fit
from marin_scaling.forecast.forecast import Forecast, forecast, samples, sensitivity
from marin_scaling.forecast.report import forecast_document
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.table import simulate_ladder

LAW = SurfaceLaw(E=0.9, A=20.0, B=60.0, alpha=0.34, beta=0.28)
Rows = Sequence[dict[str, Any]]


def simulated_ladder(*, seed: int = 0) -> Any:
    """Simulated runs up to a tenth of the target's FLOPs."""
    budgets = [target_spec().flops * share for share in (0.0125, 0.025, 0.05, 0.1)]
    return simulate_ladder(LAW, budgets_flops=budgets, sizes_per_budget=4, noise=0.002, seed=seed)


@cache
def honestly_fitted(law: str, seed: int, prior: Prior | None = None) -> tuple[FitResult, Forecast, str, tuple[float, ...]]:
    """The fit of the ladder of a seed, its forecast of the target, the registered document (as JSON), and its losses."""
    result = fit(simulated_ladder(seed=seed), law=law, prior=prior)
    stated = forecast(result, flops=target_spec().flops)
    hangs_on, tested = [sensitivity(result, stated)], backtest_of_fit(result)
    document = forecast_document(result, [stated], sensitivities=hangs_on, tested=tested) | {"metric": "bits_per_byte"}
    return result, stated, json.dumps(document), tuple(samples(result, flops=stated.flops).tolist())


def fitted(
    *, law: str = DEFAULT_LAW, shift: float = 0.0, seed: int = 0, prior: Prior | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any], list[float]]:
    """Rows of the ladder of a seed, the document of their forecast of the target, and its losses; moved by `shift` widths."""
    result, honest, document_text, losses = honestly_fitted(law, seed, prior)
    document: dict[str, Any] = json.loads(document_text)
    (prediction,) = document["predictions"]
    moved = shift * (honest.interval()[1] - honest.interval()[0])
    prediction["median"] += moved
    prediction["quantiles"] = {level: value + moved for level, value in prediction["quantiles"].items()}
    return list(result.rows), document, [loss + moved for loss in losses]


def make_fitted_registration(
    root: Path,
    *,
    law: str = DEFAULT_LAW,
    prior: Prior | None = None,
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
    _, document, losses = fitted(law=law, shift=shift, prior=prior)
    shown = rows(fit(simulated_ladder(seed=rows_of), law=law).rows)
    document |= dict(said or {})
    then(document)
    return make_registration(root, rows=shown, forecast=document, **{"losses": losses, **changes}).folder
