"""Which runs of a table must not enter a fit, and why: diverged, unfinished, or the same row twice.

A first, small audit: it looks at the status, at equal rows, and for losses far above what the other runs lead one to expect.
It decides and gives reasons; it changes no number. A run left out is always listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.laws import Array

if TYPE_CHECKING:
    import pandas as pd

DIVERGED_STATUSES = frozenset({"diverged", "nan", "exploded"})
UNFINISHED_STATUSES = frozenset(
    {"running", "failed", "crashed", "killed", "pending", "preempted", "preempting", "cancelled", "timeout", "oom", "stopped"}
)
"""States of Weights & Biases, Slurm and our own records in which a loss is not the run's final one."""

FINISHED_STATUSES = frozenset({"", "finished", "completed", "complete", "done", "success", "succeeded", "ok"})

_SURFACE_UNKNOWNS = 6
_LEAST_RUNS = 2 * _SURFACE_UNKNOWNS  # with fewer, a quadratic surface follows a diverged run instead of showing it
_OUTLIER_SCALES = 6.0  # as in Open-Athena's quality control of isoFLOP runs, which drops at 6 robust standard deviations
_LEAST_EXCESS = math.log(1.1)  # nothing under 10 % above expectation is left out, however quiet the others are
_REWEIGHTINGS = 50


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """A run that is not in the fit, and the reason."""

    run: str
    why: str


def excluded_by_status(status: str) -> str | None:
    """The reason to leave out a run of this status, or None.

    A word that is not known is a reason, too: whether its loss is final cannot be told.

    >>> excluded_by_status("diverged"), excluded_by_status("finished"), excluded_by_status("wibble")
    ('it diverged (status)', None, "its status 'wibble' is not known to mean finished")
    """
    word = status.strip().lower()
    if word in DIVERGED_STATUSES:
        return "it diverged (status)"
    if word in UNFINISHED_STATUSES:
        return f"it is not finished (status {word!r})"
    return None if word in FINISHED_STATUSES else f"its status {word!r} is not known to mean finished"


def find_duplicates(frame: pd.DataFrame) -> dict[int, str]:
    """Rows equal to an earlier one in FLOPs, parameters, tokens, loss and seed: position to reason."""
    keys = [name for name in ("flops", "params", "tokens", "loss", "seed") if name in frame]
    repeated = np.flatnonzero(frame.duplicated(keys).to_numpy())
    if not repeated.size:
        return {}
    first_of: dict[tuple[object, ...], int] = {}
    for position, key in enumerate(frame[keys].itertuples(index=False, name=None)):
        first_of.setdefault(key, position)
    names = frame["run"].tolist()
    rows = frame[keys].iloc[repeated].itertuples(index=False, name=None)
    return {
        int(position): f"it is the same as {names[first_of[key]]}: FLOPs, parameters, tokens and loss are equal"
        for position, key in zip(repeated, rows, strict=True)
    }


def find_outliers(*, flops: Array, params: Array, loss: Array) -> dict[int, str]:
    """Runs whose loss lies far above what the other runs lead one to expect: position to reason; all arrays (run,).

    Expected is a quadratic surface in log FLOPs and log parameters through log losses, fitted by least absolute deviations,
    which a few diverged runs cannot bend. Far is six robust standard deviations and at least 10 %: a
    diverged run, or one so far from its bowl's bottom that it would only bend the bowl.
    """
    if len(loss) < _LEAST_RUNS:
        return {}
    residuals = np.log(loss) - _least_absolute_surface(np.log10(flops), np.log10(params), np.log(loss))
    scale = 1.4826 * np.median(np.abs(residuals))  # 1.4826 x MAD is the standard deviation of a normal distribution
    threshold = max(_OUTLIER_SCALES * scale, _LEAST_EXCESS)
    return {
        int(position): f"diverged, or far off its bowl: its loss {loss[position]:.4g} lies {np.expm1(residuals[position]):.0%} "
        "above what the other runs lead one to expect"
        for position in np.flatnonzero(residuals > threshold)
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
