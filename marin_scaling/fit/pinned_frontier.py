"""The frontier law with an asymptote that somebody chose: the usual practice, kept as a baseline to compare with.

L*(C) = E + A (C / C0)^-gamma with E given is a straight line, log(L* - E) = log A - gamma log(C / C0); it is fitted by ordinary
least squares in the logarithms, every budget weighing the same. That is how Marin's issues 4447 (E = 1.6), 6044 (E = 1.4) and
1337 (E near 1.9) forecast: least squares in the loss itself misses their printed forecasts by up to 0.002.

The law's name carries the asymptote: `pinned-frontier@1.6`.

What the data say about E is not asked here, and no interval can hold what the choice costs: on Delphi's seven optima the
forecast at 1e23 FLOPs goes from 2.325 to 2.401 as E goes from 1.5 to 1.9. `marin_scaling.fit.frontier` leaves E free.
"""

from __future__ import annotations

import math

import numpy as np

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fit.frontier import FrontierLaws
from marin_scaling.laws import Array, FrontierLaw

PINNED_UNKNOWNS = 2
PINNED_LAW = "pinned-frontier@"


def pinned_asymptote(law: str) -> float | None:
    """The asymptote in the name of a pinned law, None for any other law; `UsageError` where it is no number of zero or more.

    >>> pinned_asymptote("pinned-frontier@1.6"), pinned_asymptote("isoflop-frontier")
    (1.6, None)
    """
    if not law.startswith(PINNED_LAW.rstrip("@")):
        return None
    try:
        asymptote = float(law.removeprefix(PINNED_LAW))
    except ValueError:
        asymptote = math.nan
    if "_" in law or not (math.isfinite(asymptote) and asymptote >= 0):  # Python reads 1_6 as 16
        raise UsageError(
            f"{law!r} does not say at which loss the asymptote is pinned.",
            why="Somebody has to choose that number; this project has none of its own.",
            fix=f"Write it like --law {PINNED_LAW}1.6, or leave it free: --law isoflop-frontier",
        )
    return asymptote


def fit_pinned_frontier(flops: Array, *, loss: Array, asymptote: float) -> FrontierLaw:
    """The straight line through (log C, log(L* - E)); arrays are (budget,), losses and `asymptote` in the same unit.

    The law's `reference_flops` is the geometric mean of the budgets. Where losses rise with compute gamma is negative.
    `FitRefused` when a loss lies at or below the asymptote, or when all budgets are one.

    >>> compute = np.array([2.00e19, 1.31e20, 7.16e20])  # three anchors of Marin's 67B, issue 6044
    >>> law = fit_pinned_frontier(compute, loss=np.array([3.2373, 2.9538, 2.7515]), asymptote=1.4)
    >>> f"{law.E + law.A * (1.19e23 / law.reference_flops) ** -law.gamma:.4f}"  # registered: 2.269
    '2.2692'
    """
    _require_room(loss, asymptote)
    _require_two_budgets(flops)
    laws = fit_pinned_frontiers(flops, losses=loss[None], weights=np.ones((1, len(loss))), asymptote=asymptote)
    return FrontierLaw(E=float(asymptote), A=float(laws.A[0]), gamma=float(laws.gamma[0]), reference_flops=laws.reference_flops)


def fit_pinned_frontiers(flops: Array, *, losses: Array, weights: Array, asymptote: float) -> FrontierLaws:
    """One law for each row of `losses` and `weights` (data set, budget), on the same budgets; all losses above `asymptote`."""
    log_flops, log_excess = np.log(flops), np.log(losses - asymptote)
    shares = weights / weights.sum(axis=1, keepdims=True)
    centred = log_flops - (shares @ log_flops)[:, None]
    spread = np.maximum((shares * centred**2).sum(axis=1), np.finfo(float).tiny)
    gamma = -(shares * centred * log_excess).sum(axis=1) / spread
    reference = float(log_flops.mean())
    log_scale = (shares * log_excess).sum(axis=1) + gamma * (shares @ log_flops - reference)
    return FrontierLaws(
        E=np.full(len(losses), float(asymptote)), A=np.exp(log_scale), gamma=gamma, reference_flops=float(np.exp(reference))
    )


def _require_room(loss: Array, asymptote: float) -> None:
    lowest = float(np.min(loss))
    if not lowest > asymptote:
        raise FitRefused(
            f"A loss of {lowest:g} is not above the pinned asymptote {asymptote:g}.",
            why="The asymptote is the loss that no compute removes; a run at or below it says that it was pinned too high.",
            fix=f"Pin it below {lowest:g}, or leave it free.",
        )


def _require_two_budgets(flops: Array) -> None:
    if len(np.unique(flops)) < 2:
        raise FitRefused(
            f"All {len(flops)} losses were bought with the same {float(flops[0]):g} FLOPs.",
            why="A slope needs two different budgets.",
            fix="Add a budget.",
        )
