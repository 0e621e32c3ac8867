"""What a recipe makes of a budget and a width: shape, batch, steps, rates and schedule of one run, and what follows from them.

Counting and cutting into steps are the same for all recipes; how a recipe chooses is in the recipe, and `counting_formulas` has
the same arithmetic to read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.flop_counting import WITH_LM_HEAD, WITHOUT_LM_HEAD, forward_flops_per_token, training_flops
from marin_scaling.recipe.hyperparameters import Hyperparameters
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.units import format_flops

BUDGET_TOLERANCE = 0.01
"""Largest relative difference between a rung's FLOPs and its budget; 1 % of compute is 0.001 nats or less."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Warm-up, stable and linear decay as fractions of all steps; clipping (0: none) and z-losses."""

    warmup_fraction: float
    decay_fraction: float
    min_learning_rate_ratio: float
    max_grad_norm: float
    z_loss_weight: float
    router_z_loss_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup_fraction + self.decay_fraction > 1:
            raise RecipeError(
                f"The learning rate would warm up for {self.warmup_fraction:g} of the steps and decay for "
                f"{self.decay_fraction:g} of them.",
                why="Together they are more than all steps.",
                fix="Lower warmup_fraction or decay_fraction.",
            )


@dataclass(frozen=True, kw_only=True)
class RungPlan:
    """One run, planned. `constant_norm` is what the optimizer keeps the norm of (`run_spec.OptimizerSpec`); `doubts` are
    sentences on what the recipe could not do as it would: a batch that was halved. `wanted_tokens`: what is cut into steps
    where it is not what the budget pays for."""

    recipe: str
    budget_flops: float
    shape: ModelShape
    batch_size: int
    train_steps: int
    hyperparameters: Hyperparameters
    schedule: Schedule
    optimizer: Literal["adamH", "muonH"] = "adamH"
    constant_norm: Literal["matrix", "slice"] = "matrix"
    doubts: tuple[str, ...] = ()
    wanted_tokens: float | None = None

    @property
    def trained_tokens(self) -> int:
        """Batch size times sequence length times steps."""
        return self.batch_size * self.shape.seq_len * self.train_steps

    @property
    def flops(self) -> float:
        """Training FLOPs, at most `BUDGET_TOLERANCE` off the budget."""
        return training_flops(self.shape, tokens=self.trained_tokens)

    @property
    def planned_tokens(self) -> float:
        """Tokens before they are cut into whole steps: those that the budget pays for, or that the recipe wants instead."""
        return self.wanted_tokens or paid_tokens(self.shape, budget_flops=self.budget_flops)

    @property
    def tokens_per_param(self) -> float:
        """Trained tokens over active parameters."""
        return self.trained_tokens / self.shape.params_active

    def values(self) -> dict[str, float]:
        """Every number of the run by its name, in the order in which a recipe decides them."""
        is_sparse, schedule = self.shape.router_outputs > 0, asdict(self.schedule)
        other = ("flops_with_lm_head", WITH_LM_HEAD) if is_sparse else ("flops_without_lm_head", WITHOUT_LM_HEAD)
        if not is_sparse:
            del schedule["router_z_loss_weight"]
        return {
            "budget_flops": self.budget_flops,
            **asdict(self.shape),
            "head_dim": self.shape.head_dim,
            "params_total": self.shape.params_total,
            **({"params_active": self.shape.params_active} if is_sparse else {}),
            "flops_per_token": 3 * forward_flops_per_token(self.shape),
            "planned_tokens": self.planned_tokens,
            "batch_size": self.batch_size,
            "train_steps": self.train_steps,
            "trained_tokens": self.trained_tokens,
            "flops": self.flops,
            other[0]: training_flops(self.shape, tokens=self.trained_tokens, convention=other[1]),
            **asdict(self.hyperparameters),
            **schedule,
        }


def paid_tokens(shape: ModelShape, *, budget_flops: float) -> float:
    """Tokens that a budget pays for at this shape."""
    return budget_flops / (3 * forward_flops_per_token(shape))


def steps_for_budget(shape: ModelShape, *, batch_size: int, budget_flops: float, tokens: float | None = None) -> int:
    """Whole steps nearest to `tokens`, or to what the budget pays for; `RecipeError` where their cost is more than
    `BUDGET_TOLERANCE` off the budget."""
    flops_per_step = 3.0 * forward_flops_per_token(shape) * batch_size * shape.seq_len
    steps = round(budget_flops / flops_per_step if tokens is None else tokens / (batch_size * shape.seq_len))
    if steps < 1 or abs(steps * flops_per_step / budget_flops - 1) > BUDGET_TOLERANCE:
        raise RecipeError(
            f"{format_flops(budget_flops)} FLOPs pay {budget_flops / flops_per_step:.1f} steps at width {shape.hidden_dim}.",
            why=f"With so few steps the cost cannot meet the budget to {BUDGET_TOLERANCE:.0%}, and nothing would be learnt.",
            fix="Raise the budget or take a smaller width.",
        )
    return steps
