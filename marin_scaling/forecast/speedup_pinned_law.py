"""A variant against a law whose E and alpha are pinned for every recipe, through the baseline's loss at the same budget.

This is the convention of Marin's gate (issue 5596). What is pinned is taken as exact: only losses are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fit.frontier import FrontierLaws
from marin_scaling.forecast.measured_losses import MeasuredLoss, partner
from marin_scaling.forecast.speedup_draws import Compared, Scatter, log_speedups, pooled, seed_variance
from marin_scaling.laws import Array, FrontierLaw
from marin_scaling.units import format_flops

MARIN_E, MARIN_ALPHA = 1.6, 0.0941
"""Pinned by Marin's gate for its mixture-of-experts recipes (issue 5596), in nats per token of Paloma macro loss."""

MARIN_METRIC = "paloma_macro_loss_nats"

SEED_FREEDOM = 4
"""`SEED_NOISE` was seen in two groups of three seeds."""


def by_pinned_law(ours: Sequence[MeasuredLoss], theirs: Sequence[MeasuredLoss], generator: np.random.Generator) -> Compared:
    """Each budget that both tables have: the law of Marin's exponents through the baseline's loss there."""
    pairs = [(mine, point) for point in theirs if (mine := partner(point, ours)) is not None]
    _require_pairs(pairs)
    baseline_scatter, variant_scatter = (
        pooled(first, other) or Scatter(variance=seed_variance(first), freedom=SEED_FREEDOM, seen_in="seeds of Delphi's runs")
        for first, other in ((ours, theirs), (theirs, ours))
    )
    draws = []
    for mine, point in pairs:
        losses = mine.loss + baseline_scatter.draw(generator, leverage=mine.leverage)
        variant_losses = point.loss + variant_scatter.draw(generator, leverage=point.leverage)
        draws.append(log_speedups(_pinned_laws(losses, flops=mine.flops), variant_losses, flops=point.flops))
    said = (("a run of the baseline", baseline_scatter), ("one of the variant", variant_scatter))
    return Compared(
        law_fit=None,
        points=[point for _, point in pairs],
        laws=[
            FrontierLaw(E=MARIN_E, A=mine.loss - MARIN_E, gamma=MARIN_ALPHA, reference_flops=mine.flops) for mine, _ in pairs
        ],
        draws=draws,
        noise="; ".join(scatter.sentence(whose, loss=pairs[-1][1].loss) for whose, scatter in said),
        warnings=(*_alone("baseline", ours, theirs), *_alone("variant", theirs, ours)),
    )


def _pinned_laws(losses: Array, *, flops: float) -> FrontierLaws:
    whole = np.ones_like(losses)
    return FrontierLaws(
        E=MARIN_E * whole, A=np.maximum(losses - MARIN_E, 0.0), gamma=MARIN_ALPHA * whole, reference_flops=flops
    )


def _alone(whose: str, points: Sequence[MeasuredLoss], others: Sequence[MeasuredLoss]) -> tuple[str, ...]:
    alone = [format_flops(point.flops) for point in points if partner(point, others) is None]
    return (f"not compared, because only the {whose} has runs there: {', '.join(alone)} FLOPs",) if alone else ()


def _require_pairs(pairs: Sequence[tuple[MeasuredLoss, MeasuredLoss]]) -> None:
    if not pairs:
        raise FitRefused(
            "No budget of the variant is within 25 % of one of the baseline's.",
            why="Under a pinned convention the baseline's law goes through its loss at the same budget.",
            fix="Train both at the same FLOPs, or compare by the baseline's own law: --convention own",
        )
    low = min(mine.loss for mine, _ in pairs)
    if low <= MARIN_E:
        raise FitRefused(
            f"The baseline's loss of {low:g} is not above the pinned asymptote of {MARIN_E}.",
            why="A power law that falls towards the asymptote never gets there.",
            fix="Compare by the baseline's own law: --convention own",
        )
