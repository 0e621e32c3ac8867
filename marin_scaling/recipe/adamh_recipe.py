"""What `delphi` and its tiny copy share: transfer rules for AdamH, the schedule's constants, and an even range of widths.

How a width becomes a shape, and a budget a batch, is each recipe's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin_scaling.recipe.formula import constant
from marin_scaling.recipe.hyperparameters import MARIN, TransferRules
from marin_scaling.recipe.run_plan import Schedule
from marin_scaling.recipe.width_range import WidthRange


@dataclass(frozen=True, kw_only=True)
class AdamHRecipe(TransferRules, WidthRange):
    """Constants with Delphi's values; a recipe sets its own where it differs."""

    max_tokens_per_param: float = constant(250.0, MARIN)
    warmup_fraction: float = constant(0.1, MARIN, zero=True, most=1)
    decay_fraction: float = constant(0.2, MARIN, zero=True, most=1)
    min_learning_rate_ratio: float = constant(0.0, MARIN, zero=True, most=1)
    max_grad_norm: float = constant(0.1, MARIN)
    z_loss_weight: float = constant(1e-7, MARIN, zero=True)

    def _schedule(self) -> Schedule:
        return Schedule(
            warmup_fraction=self.warmup_fraction,
            decay_fraction=self.decay_fraction,
            min_learning_rate_ratio=self.min_learning_rate_ratio,
            max_grad_norm=self.max_grad_norm,
            z_loss_weight=self.z_loss_weight,
        )
