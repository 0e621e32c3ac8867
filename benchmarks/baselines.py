"""Ways in which large runs are forecast today, each with an interval, to set ours beside.

pinned       the frontier law through optima with E pinned at 1.6, and the residuals' noise (Marin's practice)
free         the frontier law with a free asymptote and a bootstrap over budgets
surfaces     surfaces of fixed form by log-Huber with a bootstrap over runs, `additive-surface` being the five-parameter one
             (the Chinchilla practice): the project's own laws of these names

A frontier law knows optimal sizes only: for another size the loss is scaled by what a quadratic in log10 tokens per parameter
through all runs says. Written for comparison, as a careful user would; not for use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.frontier import fit_frontiers
from marin_scaling.fitting.surface_law import SURFACE_LAWS
from marin_scaling.forecast.backtest import with_law
from marin_scaling.forecast.forecast import LEVELS
from marin_scaling.laws import Array
from marin_scaling.run.table import RunTable

PINNED_ASYMPTOTE = 1.6
_RESAMPLES = 400


def pinned_frontier(known: RunTable, beyond: pd.DataFrame) -> list[dict[float, float]]:
    """Log-linear least squares with E = 1.6; lines drawn from their normal posterior, and Student noise of the residuals."""
    flops, loss = _optima(known)
    if len(flops) < 3 or loss.min() <= PINNED_ASYMPTOTE:
        raise FitRefused("too few optima above 1.6", why="", fix="")
    x, y = np.log(flops), np.log(loss - PINNED_ASYMPTOTE)
    design = np.stack([np.ones_like(x), x - x.mean()], axis=1)
    line = np.linalg.lstsq(design, y, rcond=None)[0]
    residuals, freedom = y - design @ line, max(len(x) - 2, 1)
    generator = np.random.default_rng(0)
    variance = residuals @ residuals / generator.chisquare(freedom, _RESAMPLES)
    root = np.linalg.cholesky(np.linalg.inv(design.T @ design))
    lines = line + np.sqrt(variance)[:, None] * (generator.standard_normal((_RESAMPLES, 2)) @ root.T)
    at = np.log(beyond["flops"].to_numpy()) - x.mean()
    drawn = lines[:, :1] + lines[:, 1:] * at + np.sqrt(variance)[:, None] * generator.standard_normal((_RESAMPLES, 1))
    return _quantiles((PINNED_ASYMPTOTE + np.exp(drawn)) * _off_optimum(known, beyond))


def free_frontier(known: RunTable, beyond: pd.DataFrame) -> list[dict[float, float]]:
    """E, A and gamma free; budgets resampled with replacement (three different ones at least), residuals added."""
    flops, loss = _optima(known)
    if len(flops) < 4:
        raise FitRefused("too few optima", why="", fix="")
    generator = np.random.default_rng(0)
    counts = generator.multinomial(len(flops), np.full(len(flops), 1 / len(flops)), size=4 * _RESAMPLES).astype(float)
    counts = counts[(counts > 0).sum(axis=1) >= 3][:_RESAMPLES]
    laws = fit_frontiers(flops, losses=np.tile(loss, (len(counts), 1)), weights=counts)
    whole = fit_frontiers(flops, losses=loss[None], weights=np.ones((1, len(loss)))).losses(flops)[0]
    noise = generator.choice((loss - whole) / whole, size=(len(counts), 1))
    drawn = laws.losses(beyond["flops"].to_numpy()) * (1 + noise)
    return _quantiles(drawn * _off_optimum(known, beyond))


BASELINES: dict[str, Callable[[RunTable, pd.DataFrame], Sequence[dict[float, float]]]] = {
    "frontier, E pinned at 1.6": pinned_frontier,
    "frontier, E free, bootstrap over budgets": free_frontier,
    **{f"`--law {law}`": with_law(law) for law in SURFACE_LAWS},
}


def _optima(known: RunTable) -> tuple[Array, Array]:
    points = fit(known, law="isoflop-frontier", swept="all").points
    return np.array([point.flops for point in points]), np.array([point.loss for point in points])


def _off_optimum(known: RunTable, beyond: pd.DataFrame) -> Array:
    """Loss of each run over that of the optimum of its budget, from a quadratic in log10 D/N about an optimum that drifts."""
    frame = known.frame
    x, y, z = (
        np.log10(frame["flops"].to_numpy()),
        np.log10((frame["tokens"] / frame["params"]).to_numpy()),
        np.log(frame["loss"]),
    )
    if len(frame) < 10 or np.ptp(y) < 0.3:
        return np.ones(len(beyond))
    centre = x.mean()
    design = np.stack([np.ones_like(x), x - centre, (x - centre) ** 2, y, y**2, y * (x - centre)], axis=1)
    found = np.linalg.lstsq(design, z.to_numpy(), rcond=None)[0]
    if found[4] <= 0:
        return np.ones(len(beyond))
    flops, ratio = np.log10(beyond["flops"].to_numpy()) - centre, np.log10((beyond["tokens"] / beyond["params"]).to_numpy())
    best = -(found[3] + found[5] * flops) / (2 * found[4])
    return np.asarray(np.exp(np.minimum(found[4] * (ratio - best) ** 2, 0.5)))


def _quantiles(drawn: Array) -> list[dict[float, float]]:
    return [dict(zip(LEVELS, map(float, column), strict=True)) for column in np.quantile(drawn, LEVELS, axis=0).T]
