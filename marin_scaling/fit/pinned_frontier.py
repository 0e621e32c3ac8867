"""The frontier law with an asymptote that somebody chose: the usual practice, kept as a baseline to compare with.

L*(C) = E + A (C / C0)^-gamma with E given is a straight line, log(L* - E) = log A - gamma log(C / C0); it is fitted by ordinary
least squares in the logarithms, every budget weighing the same. That is how Marin's issues 4447 (E = 1.6), 6044 (E = 1.4) and
1337 (E near 1.9) forecast: least squares in the loss itself misses their printed forecasts by up to 0.002.

What the data say about E is not asked here, and no interval can hold what the choice costs: on Delphi's seven optima the
forecast at 1e23 FLOPs goes from 2.325 to 2.401 as E goes from 1.5 to 1.9. `marin_scaling.fit.frontier` leaves E free.
"""

from __future__ import annotations

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.laws import Array, FrontierLaw


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
    log_flops, log_excess = np.log(flops), np.log(loss - asymptote)
    centred = log_flops - log_flops.mean()
    gamma = -float(centred @ log_excess / (centred @ centred))
    return FrontierLaw(
        E=float(asymptote),
        A=float(np.exp(log_excess.mean())),
        gamma=gamma,
        reference_flops=float(np.exp(log_flops.mean())),
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
