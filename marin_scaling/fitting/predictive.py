"""Predictive draws of the coupled law: posterior, model discrepancy, noise, and drift as calibrated on public ladders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from marin_scaling.fitting.law import LossDraws, Targets
from marin_scaling.fitting.posterior import UPWARD, Places, SurfacePosterior, places_of
from marin_scaling.laws import Array

FREEDOM = 3.0
"""Degrees of freedom of the Student distributions of discrepancy, noise and drift. With 5, and as many 50 % intervals held,
fewer 90 % intervals of simulated ladders held."""
STUDENT_VARIANCE = FREEDOM / (FREEDOM - 2)
"""Variance of a deviate of unit scale."""
_REPEATS = 10  # of every posterior draw, each with its own noise and drift


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Width that back-tests over public ladders add to the posterior; `calibration.json` describes ladders and method.

    `spread` multiplies every deviation from the median of the log loss. The others are scales of Student's t with 3 degrees of
    freedom (standard deviations are 1.73 times as large), added to the log loss in quadrature: one everywhere, and one per
    decade beyond the runs in FLOPs, in tokens per parameter, and in parameters.
    """

    spread: float
    everywhere: float
    per_decade_of_flops: float
    per_decade_of_ratio: float
    per_decade_of_params: float

    def drift(self, targets: Targets, posterior: SurfacePosterior) -> Array:
        """Return the added scale at each target: (target,)."""
        steps = zip(
            (self.per_decade_of_flops, self.per_decade_of_ratio, self.per_decade_of_params),
            decades_beyond(targets, posterior),
            strict=True,
        )
        squares = sum(((width * decades) ** 2 for width, decades in steps), np.zeros(len(targets.flops)))
        return np.asarray(np.sqrt(self.everywhere**2 + squares))


def decades_beyond(targets: Targets, posterior: SurfacePosterior) -> tuple[Array, Array, Array]:
    """Return decades beyond the runs in FLOPs, in tokens per parameter on either side, and in parameters: (target,) each."""
    runs, places = posterior.runs, places_of(posterior.runs)
    ratio = np.log10(targets.tokens / targets.params)
    aside = np.maximum(ratio - places.log_ratio.max(), places.log_ratio.min() - ratio)
    farther, larger = np.log10(targets.flops / runs.flops.max()), np.log10(targets.params / runs.params.max())
    return np.maximum(farther, 0.0), np.maximum(aside, 0.0), np.maximum(larger, 0.0)


@cache
def shipped_calibration() -> Calibration:
    """Return this version's calibration, from `calibration.json` of this package, written by `benchmarks/calibrate.py`."""
    text = files("marin_scaling.fitting").joinpath("calibration.json").read_text(encoding="utf-8")
    return Calibration(**json.loads(text)["factors"])


def draw_losses(
    posterior: SurfacePosterior,
    targets: Targets,
    *,
    seed: int,
    log_sparsity: Array | None = None,
    calibration: Calibration | None = None,
) -> LossDraws:
    """Draw losses of new runs at targets; equal seeds give equal numbers, and a draw's deviates are common to all targets.

    `log_sparsity` (target,) is ln of total over active parameters, relative to the median of the runs.
    """
    calibration, generator = calibration or shipped_calibration(), np.random.default_rng(seed)
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    places = Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))
    misfit, misfit_variance = posterior.misfit_at(places)
    law, misfit, misfit_variance = (np.repeat(each, _REPEATS, axis=0) for each in (law, misfit, misfit_variance))
    wobble, slide, noise = (_shares(len(posterior.unknowns), generator)[:, None] for _ in range(3))
    parts = {
        "law": law + misfit,
        "misfit": np.sqrt(misfit_variance) * _student(wobble),
        "shift": calibration.drift(targets, posterior) * _student(slide),
        "noise": np.broadcast_to(_two_piece(noise) * np.repeat(posterior.noise, _REPEATS)[:, None], law.shape),
    }
    total = np.sum(list(parts.values()), axis=0)
    median = np.median(total, axis=0)
    scale = calibration.spread * np.exp(median)  # converts a small change of the log loss to loss
    by_form = _explained(parts["law"], by=np.repeat(np.log(posterior.laws.g), _REPEATS))
    causes = {
        "noise": parts["noise"],
        "sampling": parts["law"] - by_form,
        "form": by_form - by_form.mean(axis=0) + parts["misfit"],
        "shift": parts["shift"],
    }
    losses = np.exp(median + calibration.spread * (total - median))
    return LossDraws(losses=losses, causes={name: scale * each for name, each in causes.items()})


def joint_covariance(posterior: SurfacePosterior, targets: Targets, *, log_sparsity: Array | None = None) -> Array:
    """Return the covariance of the log losses of runs at targets, without noise and drift: (target, target)."""
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    places = Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))
    return np.asarray(np.cov(law + posterior.misfit_at(places)[0], rowvar=False) + posterior.misfit_covariance(places))


def _shares(laws: int, generator: np.random.Generator) -> Array:
    """Return the centers of as many equal slices of probability as draws, in random order: (law and repeat,).

    Every law gets one of each tenth, so that all laws have the same distribution.
    """
    tenths = ((np.arange(_REPEATS * laws) + 0.5) / (_REPEATS * laws)).reshape(_REPEATS, laws)
    return np.asarray(generator.permuted(generator.permuted(tenths, axis=1), axis=0).T.ravel())


def _student(shares: Array) -> Array:
    """Return the quantiles of Student's t at shares of probability."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(FREEDOM, shares))


def _two_piece(shares: Array) -> Array:
    """Return quantiles of Student's t with its upper half stretched by `UPWARD`, without a step in the density."""
    below = 1 / (1 + UPWARD)
    upper = shares > below
    inner = np.where(upper, 0.5 + (shares - below) * (1 + UPWARD) / (2 * UPWARD), shares * (1 + UPWARD) / 2)
    return np.asarray(np.where(upper, UPWARD, 1.0) * _student(inner))


def _explained(values: Array, *, by: Array) -> Array:
    """Return the part of values (draw, target) that a cubic in `by` (draw,) explains."""
    centred = (by - by.mean()) / (by.std() or 1.0)
    design = np.stack([np.ones_like(centred), centred, centred**2, centred**3], axis=1)
    return np.asarray(design @ np.linalg.lstsq(design, values, rcond=None)[0])
