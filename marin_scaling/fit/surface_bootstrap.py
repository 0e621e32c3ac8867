"""Refit the five-parameter surface to thousands of reweighted sets of the same runs at once: its bootstrap.

Every refit starts at the law of all runs and descends by `marin_scaling.fit.log_huber`, many sets in step. Only the basin of
the start is searched. On 240 points of Chinchilla's figure a global fit of each set finds nothing lower
(`tests/unit/fit/test_surface_bootstrap.py`); with few runs, or weights far from one, compare some sets with `fit_surface`.
Arithmetic on arrays only; what to resample (runs, budgets, seeds) is the caller's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin_scaling.fit.log_huber import CentredRuns, Descended, centred, descend, numbers_of, unknowns_of
from marin_scaling.laws import Array, SurfaceLaw

_SETS_AT_ONCE = 100  # a working set of a few MB; larger ones are no faster
_LEAST_GAIN = 1e-10  # of the objective; what is left to gain is far below what resampling moves


@dataclass(frozen=True, kw_only=True)
class SurfaceResamples:
    """Many surfaces L(N, D) = E + A N^-alpha + B D^-beta: arrays (set,). Where not `converged`, a way station."""

    E: Array
    A: Array
    B: Array
    alpha: Array
    beta: Array
    value: Array
    """The weighted objective that is left."""
    converged: NDArray[np.bool_]


def resample_surface(
    law: SurfaceLaw, *, params: Array, tokens: Array, loss: Array, resamples: int, seed: int, huber_delta: float = 1e-3
) -> SurfaceResamples:
    """`resamples` sets of as many runs as there are, drawn with replacement, each refitted; arrays are (run,).

    `law` is the log-Huber optimum of all runs (`fit_surface`). Equal seeds give equal sets.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 6), np.geomspace(1e9, 1e11, 6)))
    >>> noise = np.exp(0.001 * np.random.default_rng(0).standard_normal(36))
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> loss = (law.E + law.A * params**-law.alpha + law.B * tokens**-law.beta) * noise
    >>> draws = resample_surface(law, params=params, tokens=tokens, loss=loss, resamples=200, seed=0)
    >>> bool(draws.converged.all()), bool(0.001 < draws.alpha.std() < 0.01)
    (True, True)
    """
    weights = drawn_weights(len(loss), resamples=resamples, seed=seed)
    return refit_surfaces(law, params=params, tokens=tokens, loss=loss, weights=weights, huber_delta=huber_delta)


def drawn_weights(count: int, *, resamples: int, seed: int) -> Array:
    """How often each of `count` runs is drawn, with replacement, in each set of as many: (set, run)."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    return drawn.astype(np.float64)


def refit_surfaces(
    law: SurfaceLaw, *, params: Array, tokens: Array, loss: Array, weights: Array, huber_delta: float = 1e-3
) -> SurfaceResamples:
    """One surface for each row of `weights` (set, run), which say how often a run counts; the other arrays are (run,)."""
    runs = centred(params, tokens, loss)
    start = unknowns_of((law.E, law.A, law.B, law.alpha, law.beta), runs)
    ends = refit(start, runs, weights=weights, huber_delta=huber_delta)
    E, A, B, alpha, beta = numbers_of(ends.theta, runs).T
    return SurfaceResamples(E=E, A=A, B=B, alpha=alpha, beta=beta, value=ends.value, converged=ends.converged)


def refit(start: Array, runs: CentredRuns, *, weights: Array, huber_delta: float) -> Descended:
    """The surface of the runs' form for each row of `weights` (set, run), downhill from the unknowns `start` (unknown,)."""
    ends = [
        descend(np.tile(start, (len(some), 1)), runs, weights=some, delta=huber_delta, least_gain=_LEAST_GAIN)
        for some in np.array_split(weights, range(_SETS_AT_ONCE, len(weights), _SETS_AT_ONCE))
    ]
    return Descended(
        theta=np.concatenate([each.theta for each in ends]),
        value=np.concatenate([each.value for each in ends]),
        converged=np.concatenate([each.converged for each in ends]),
    )
