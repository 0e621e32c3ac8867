"""Predictive distribution of the loss of a new run: laws averaged, model discrepancy, drift and noise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from marin_scaling.fitting.coupled_law import SLOPES
from marin_scaling.fitting.frontier import FrontierPosterior
from marin_scaling.fitting.law import LossDraws, Targets
from marin_scaling.fitting.posterior import UPWARD, Places, SurfacePosterior, places_of
from marin_scaling.laws import Array

FREEDOM = 3.0
"""Degrees of freedom of the Student distributions of discrepancy, noise and drift. With 5, and as many 50 % intervals held,
fewer 90 % intervals of simulated ladders held."""
STUDENT_VARIANCE = FREEDOM / (FREEDOM - 2)
"""Variance of a deviate of unit scale."""
_LARGEST_LOG = 700.0  # e to this is still a number
_REPEATS = 10  # of every posterior draw, each with its own noise and drift


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Width that back-tests over public ladders add to the posterior; `calibration.json` describes ladders and method.

    `spread` multiplies every deviation from the median of the log loss but noise, which is measured. The others give scales of
    Student's t with 3 degrees of freedom (standard deviations are 1.73 times as large), added to the log loss in quadrature:
    one everywhere; one per decade beyond the runs in FLOPs, in tokens per parameter, and in parameters, as a share of the fall
    of the log loss in a decade of compute; and a share of the distance between the two laws.
    """

    spread: float
    everywhere: float
    per_decade_of_flops: float
    per_decade_of_ratio: float
    per_decade_of_params: float
    of_disagreement: float

    def drift(self, targets: Targets, posterior: SurfacePosterior) -> Array:
        """Return the added scale at each target: (target,)."""
        steps = zip(
            (self.per_decade_of_flops, self.per_decade_of_ratio, self.per_decade_of_params),
            decades_beyond(targets, posterior),
            strict=True,
        )
        squares = sum(((width * decades) ** 2 for width, decades in steps), np.zeros(len(targets.flops)))
        return np.asarray(np.sqrt(self.everywhere**2 + fall_per_decade(posterior) ** 2 * squares))


def fall_per_decade(posterior: SurfacePosterior) -> float:
    """Return by how much the log loss falls in a decade of compute in the middle of the larger runs: 0.09 on Delphi."""
    by_params, by_tokens = np.exp(posterior.unknowns[:, SLOPES].T)
    return float(np.median(by_params + by_tokens) * np.log(10) / 2)


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


FRONTIER_WEIGHT = 0.5
"""Weight of the frontier's quantiles; the surface has the rest. Equal weights were not fitted to any table."""
FRONTIER_WEIGHTS = {"combined": FRONTIER_WEIGHT, "coupled-surface": 0.0, "all-runs-frontier": 1.0}
"""Weight of the frontier by the name of the law, as in `--law`."""


def draw_losses(
    posterior: SurfacePosterior,
    targets: Targets,
    *,
    seed: int,
    frontier: FrontierPosterior | None = None,
    frontier_weight: float = FRONTIER_WEIGHT,
    log_sparsity: Array | None = None,
    calibration: Calibration | None = None,
) -> LossDraws:
    """Draw losses of new runs at targets; equal seeds give equal numbers, and a draw's deviates are common to all targets.

    With `frontier`, quantiles of the log losses by the two laws are averaged. `log_sparsity` (target,) is ln of total over
    active parameters, relative to the median of the runs.
    """
    calibration, generator = calibration or shipped_calibration(), np.random.default_rng(seed)
    law, misfit_variance = _surface_draws(posterior, targets, log_sparsity=log_sparsity)
    laws = {"coupled-surface": law}
    if frontier is not None and frontier_weight > 0:
        other = laws["all-runs-frontier"] = _in_order_of(law, _frontier_draws(frontier, targets, log_sparsity=log_sparsity))
        law = (1 - frontier_weight) * law + frontier_weight * other
    apart = np.ptp([np.median(each, axis=0) for each in laws.values()], axis=0) if frontier_weight < 1 else 0.0
    wobble, slide, noise = (_shares(len(posterior.unknowns), generator)[:, None] for _ in range(3))
    drift = calibration.drift(targets, posterior)
    parts = {
        "law": law,
        "misfit": np.sqrt(misfit_variance) * _student(wobble),
        "shift": np.hypot(drift, calibration.of_disagreement * apart) * _student(slide),
        "noise": np.broadcast_to(_two_piece(noise) * _repeated(posterior.noise[:, None]), law.shape),
    }
    by_law = {}
    if len(laws) > 1 and frontier_weight < 1:
        alone = parts["misfit"] + drift * _student(slide)
        by_law = {
            name: np.median(_losses(each + alone, parts["noise"], spread=calibration.spread), axis=0)
            for name, each in laws.items()
        }
    expected = law + parts["misfit"] + parts["shift"]
    losses = _losses(expected, parts["noise"], spread=calibration.spread)
    median = np.median(expected, axis=0)
    scale = calibration.spread * np.exp(median)  # converts a small change of the log loss to loss
    by_form = _explained(law, by=_repeated(np.log(posterior.laws.g)[:, None])[:, 0])
    causes = {
        "noise": parts["noise"] / calibration.spread,
        "sampling": law - by_form,
        "form": by_form - by_form.mean(axis=0) + parts["misfit"] + _either_side(len(law)) * apart / 2,
        "shift": parts["shift"],
    }
    return LossDraws(losses=losses, causes={name: scale * each for name, each in causes.items()}, by_law=by_law)


def _losses(expected: Array, noise: Array, *, spread: float) -> Array:
    """Return losses of runs by their expected log losses, spread about the median, and their noise: (draw, target) each."""
    median = np.median(expected, axis=0)
    return np.asarray(np.exp(np.minimum(median + spread * (expected - median) + noise, _LARGEST_LOG)))


def _surface_draws(posterior: SurfacePosterior, targets: Targets, *, log_sparsity: Array | None) -> tuple[Array, Array]:
    """Return log losses by the surface with its mean discrepancy, and the discrepancy's variance: (draw, target) each."""
    surface = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    misfit, variance = posterior.misfit_at(_places(targets))
    return _repeated(surface + misfit), _repeated(variance)


def _frontier_draws(frontier: FrontierPosterior, targets: Targets, *, log_sparsity: Array | None) -> Array:
    """Return log losses by the frontier, with the mean discrepancy of the runs from it: (draw, target)."""
    runs = frontier.surface.runs
    at_runs, at_targets = (
        frontier.log_losses(flops=each.flops, params=each.params, tokens=each.tokens, log_sparsity=sparsity)
        for each, sparsity in ((runs, runs.log_sparsity), (targets, log_sparsity))
    )
    return _repeated(at_targets + frontier.surface.misfit_at(_places(targets), at_runs)[0])


def _places(targets: Targets) -> Places:
    return Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))


def _repeated(values: Array) -> Array:
    """Return each draw of (draw, target) `_REPEATS` times."""
    return np.repeat(values, _REPEATS, axis=0)


def _in_order_of(first: Array, second: Array) -> Array:
    """Return the draws of `second` (draw, target), each column sorted as that of `first` is.

    >>> _in_order_of(np.array([[3.0], [1.0], [2.0]]), np.array([[10.0], [30.0], [20.0]]))[:, 0]
    array([30., 10., 20.])
    """
    ordered = np.empty_like(second)
    np.put_along_axis(ordered, np.argsort(first, axis=0, kind="stable"), np.sort(second, axis=0), axis=0)
    return ordered


def _either_side(draws: int) -> Array:
    return np.where(np.arange(draws) % 2, 1.0, -1.0)[:, None]


def joint_covariance(posterior: SurfacePosterior, targets: Targets, *, log_sparsity: Array | None = None) -> Array:
    """Return the covariance of the log losses of runs at targets, without noise and drift: (target, target)."""
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    places = _places(targets)
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
