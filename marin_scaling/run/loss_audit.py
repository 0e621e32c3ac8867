"""Runs whose loss lies far above what the other runs lead one to expect: diverged, or far up the wall of a bowl.

A run that diverged would bend every law; one far up the wall of its bowl is sound, and only a parabola minds. They are told
apart by their neighbours in the bowl: a wall rises from run to run, a diverged run jumps. Gives reasons and doubts only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marin_scaling.laws import Array
from marin_scaling.run.findings import Findings, name_some

_SURFACE_UNKNOWNS = 6
_LEAST_RUNS = 2 * _SURFACE_UNKNOWNS  # with fewer, a quadratic surface follows a diverged run instead of showing it
_OUTLIER_SCALES = 6.0  # as in Open-Athena's quality control of isoFLOP runs, which drops at 6 robust standard deviations
_LEAST_EXCESS = math.log(1.1)  # nothing under 10 % above expectation is left out, however quiet the others are
_DIVERGED_FACTOR = 2.0  # the logarithm of a vocabulary is more than twice the loss of a model that has learnt anything
_REWEIGHTINGS = 50
_WALL_STEPS = (
    0.97,
    1.4,
)  # from run to run: noise lowers a wall a little; Chinchilla's figure 4 rises by up to 1.24


def audit_losses(names: Sequence[str], *, flops: Array, params: Array, loss: Array, budget_flops: Array) -> Findings:
    """Runs far above expectation, all arrays (run,): left out, or doubted where they stand on the wall of their bowl."""
    found = find_outliers(flops=flops, params=params, loss=loss)
    walls = [row for row in found if _on_wall(row, np.flatnonzero(budget_flops == budget_flops[row]), params, loss)]
    doubt = f"far up the walls of their bowls, and kept: {name_some([names[row] for row in walls])}; a parabola may not follow"
    return Findings(reasons={row: why for row, why in found.items() if row not in walls}, doubts=(doubt,) if walls else ())


def _on_wall(row: int, bowl: NDArray[np.intp], params: Array, loss: Array) -> bool:
    """Whether losses rise without a jump from the best run of the bowl out to this one, over at least one run between."""
    ordered = bowl[np.argsort(params[bowl], kind="stable")]
    here, best = int(np.flatnonzero(ordered == row)[0]), int(np.argmin(loss[ordered]))
    way = loss[ordered[min(here, best) : max(here, best) + 1]][:: 1 if here > best else -1]
    steps = way[1:] / way[:-1]
    return len(steps) > 1 and bool(np.all((steps > _WALL_STEPS[0]) & (steps < _WALL_STEPS[1])))


def find_outliers(*, flops: Array, params: Array, loss: Array) -> dict[int, str]:
    """Runs whose loss lies far above what the other runs lead one to expect: position to reason; all arrays (run,).

    Expected is a quadratic surface in log FLOPs and log parameters through log losses, fitted by least absolute deviations,
    which a few diverged runs cannot bend. Far is six robust standard deviations and at least 10 %: a
    diverged run, or one so far from its bowl's bottom that it would only bend the bowl.
    """
    if len(loss) < _LEAST_RUNS:
        return _twice_the_others(flops, loss)
    residuals = np.log(loss) - _least_absolute_surface(np.log10(flops), np.log10(params), np.log(loss))
    scale = 1.4826 * np.median(np.abs(residuals))  # 1.4826 x MAD is the standard deviation of a normal distribution
    threshold = max(_OUTLIER_SCALES * scale, _LEAST_EXCESS)
    return {
        int(position): f"diverged, or far off its bowl: its loss {loss[position]:.4g} lies {np.expm1(residuals[position]):.0%} "
        "above what the other runs lead one to expect"
        for position in np.flatnonzero(residuals > threshold)
    }


def _twice_the_others(flops: Array, loss: Array) -> dict[int, str]:
    """Few runs: one at more than twice the median loss although it costs more than a run below the median has diverged."""
    median = float(np.median(loss)) if len(loss) else math.inf
    beaten = flops[loss <= median].min(initial=math.inf)
    return {
        int(
            position
        ): f"diverged: its loss {loss[position]:.4g} is more than twice the median of the runs, {median:.4g}, and a "
        "cheaper run is below that"
        for position in np.flatnonzero((loss > _DIVERGED_FACTOR * median) & (flops > beaten))
    }


def _least_absolute_surface(x: Array, y: Array, target: Array) -> Array:
    x, y = _standardised(x), _standardised(y)
    design = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)  # (run, coefficient)
    weights = np.ones_like(target)
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(target - design @ coefficients), 1e-6)
    return np.asarray(design @ coefficients)


def _standardised(values: Array) -> Array:
    spread = values.std()
    return np.asarray((values - values.mean()) / (spread if spread > 0 else 1.0))
