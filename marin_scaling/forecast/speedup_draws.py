"""What both conventions of a speedup share: the compute that a law needs for a loss, how far losses scatter, and draws of both.

Scatter is pooled over bowls and seeds, and never taken to be less than the seed noise of other ladders. Pure arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marin_scaling.fit.fit_result import FitResult
from marin_scaling.fit.frontier import FrontierLaws
from marin_scaling.fit.noise import SEED_NOISE
from marin_scaling.forecast.measured_losses import MeasuredLoss
from marin_scaling.laws import Array, FrontierLaw

DRAWS = 10_000
"""The ends of a 90 % interval then rest on 500 draws each."""

FARTHEST_FACTOR = 1e100
"""An exponent near 0 asks for factors that no number holds."""

ENOUGH_FREEDOM = 4
"""With fewer degrees of freedom of its own, a table's noise is pooled with that of the other table."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The variant's budgets, the baseline's law at each, and draws of the logarithm of the speedup: (draw,) each."""

    law_fit: FitResult | None
    points: Sequence[MeasuredLoss]
    laws: Sequence[FrontierLaw]
    draws: Sequence[Array]
    noise: str
    warnings: tuple[str, ...]


def needed_flops(law: FrontierLaw, *, loss: float) -> float | None:
    """The compute with which a law reaches a loss, in FLOPs; None when none does, or more than `FARTHEST_FACTOR` times C0.

    >>> law = FrontierLaw(E=1.6, A=3.8104 - 1.6, gamma=0.0941, reference_flops=1.0)  # issue 5596 at width 512
    >>> round(needed_flops(law, loss=3.7542), 2), needed_flops(law, loss=1.6)
    (1.31, None)
    """
    if loss <= law.E or law.A <= 0:
        return None
    log_factor = math.log(law.A / (loss - law.E)) / law.gamma
    farthest = math.log(FARTHEST_FACTOR)
    return law.reference_flops * math.exp(max(log_factor, -farthest)) if log_factor <= farthest else None


def log_speedups(laws: FrontierLaws, losses: Array, *, flops: float) -> Array:
    """Logarithm of what each law needs for its loss, over `flops`: (draw,). Infinite where no compute does."""
    excess = np.maximum(losses - laws.E, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (np.log(laws.A) - np.log(excess)) / laws.gamma
    return np.asarray(np.where(excess == 0, np.inf, logs) + math.log(laws.reference_flops / flops))


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Variance of a loss with its degrees of freedom, and where both were seen."""

    variance: float
    freedom: int
    seen_in: str

    def draw(self, generator: np.random.Generator, *, leverage: float = 1.0) -> Array:
        """Deviates of a loss whose variance is `leverage` times this one: (draw,)."""
        return np.asarray(math.sqrt(leverage * self.variance) * generator.standard_t(self.freedom, DRAWS))

    def sentence(self, whose: str, *, loss: float) -> str:
        """How much it is, as a share of `loss`."""
        plural = "" if self.freedom == 1 else "s"
        share = math.sqrt(self.variance) / loss
        return f"{whose} scatters by {share:.2%} of the loss ({self.freedom} degree{plural} of freedom: {self.seen_in})"


def pooled(points: Sequence[MeasuredLoss], others: Sequence[MeasuredLoss]) -> Scatter | None:
    """Scatter of one run about bowls and among seeds; None when neither table has a bowl of four runs, or seeds."""
    used, seen_in = [*points], "its bowls and seeds"
    if sum(point.freedom for point in used) < ENOUGH_FREEDOM:
        used, seen_in = [*points, *others], "bowls and seeds of both tables"
    freedom = sum(point.freedom for point in used)
    if not freedom:
        return None
    seen = sum(point.squares for point in used) / freedom
    return Scatter(variance=max(seen, seed_variance(points)), freedom=freedom, seen_in=seen_in)


def seed_variance(points: Sequence[MeasuredLoss]) -> float:
    """Variance of one run among seeds as other ladders saw it, at the lowest of these losses."""
    return (SEED_NOISE * min(point.loss for point in points)) ** 2
