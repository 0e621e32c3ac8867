"""A recipe turns one dial, the FLOP budget, and a width into everything a run needs; here is the interface and the tiny one.

`quickstart` is Delphi's recipe (Qwen3 shape, AdamH with token-horizon transfer, warm-up-stable-decay) made so small that a
ladder of it trains on two CPU cores in minutes, on bytes. Its constants were tuned here on this scale (lab book, 2026-11-21).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.flop_counting import forward_flops_per_token, training_flops
from marin_scaling.recipe.hyperparameters import Hyperparameters, TunedAt, transfer
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.units import format_flops

BUDGET_TOLERANCE = 0.01
"""Largest relative difference between a rung's FLOPs and its budget; 1 % of compute is 0.001 nats or less."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Warm-up, stable and linear decay as fractions of all steps; clipping and z-loss."""

    warmup_fraction: float
    decay_fraction: float
    min_learning_rate_ratio: float
    max_grad_norm: float
    z_loss_weight: float


@dataclass(frozen=True, kw_only=True)
class RungPlan:
    """One run, planned: what the recipe makes of a budget and a width."""

    recipe: str
    budget_flops: float
    shape: ModelShape
    batch_size: int
    train_steps: int
    hyperparameters: Hyperparameters
    schedule: Schedule

    @property
    def trained_tokens(self) -> int:
        """Batch size times sequence length times steps."""
        return self.batch_size * self.shape.seq_len * self.train_steps

    @property
    def flops(self) -> float:
        """Training FLOPs, at most `BUDGET_TOLERANCE` off the budget."""
        return training_flops(self.shape, tokens=self.trained_tokens)


class Recipe(Protocol):
    """What every recipe can do."""

    @property
    def name(self) -> str:
        """The name in ladder files."""

    def shape(self, hidden_dim: int) -> ModelShape:
        """The model of this width; `RecipeError` where there is none."""

    def plan(self, *, budget_flops: float, hidden_dim: int) -> RungPlan:
        """The run of this width that costs the budget; `RecipeError` where there is none."""

    def widths(self) -> tuple[int, ...]:
        """The widths this recipe can make, narrow to wide."""


@dataclass(frozen=True)
class QuickstartRecipe:
    """Tiny byte-level Delphi.

    >>> plan = QuickstartRecipe().plan(budget_flops=3e11, hidden_dim=48)
    >>> plan.shape.num_layers, plan.train_steps, plan.shape.params_total
    (2, 219, 98640)
    """

    name: str = "quickstart"

    def widths(self) -> tuple[int, ...]:
        """Multiples of 4: rotary embeddings need two heads of even width."""
        return tuple(range(8, 129, 4))

    def plan(self, *, budget_flops: float, hidden_dim: int) -> RungPlan:
        """The run of this width that costs the budget, in batches of 16 sequences of 128 bytes."""
        shape, batch_size = self.shape(hidden_dim), 16
        train_steps = _steps_for_budget(shape, batch_size=batch_size, budget_flops=budget_flops)
        tokens = batch_size * shape.seq_len * train_steps
        return RungPlan(
            recipe=self.name,
            budget_flops=budget_flops,
            shape=shape,
            batch_size=batch_size,
            train_steps=train_steps,
            hyperparameters=transfer(_QUICKSTART_TUNED, batch_size=batch_size, tokens=tokens),
            schedule=_QUICKSTART_SCHEDULE,
        )

    def shape(self, hidden_dim: int) -> ModelShape:
        """Two layers, two heads, MLP four times as wide as the model."""
        if hidden_dim not in self.widths():
            raise RecipeError(
                f"The recipe {self.name!r} has no width {hidden_dim}.",
                why="Its two attention heads have an even width, and wider models than 128 do not fit a laptop's minutes.",
                fix=f"Choose one of {', '.join(map(str, self.widths()))}.",
            )
        return ModelShape(
            hidden_dim=hidden_dim,
            intermediate_dim=4 * hidden_dim,
            num_layers=2,  # one depth for all: a step in depth would be a step in the bowls of so small a ladder
            num_heads=2,
            num_kv_heads=2,
            vocab_size=256,
            seq_len=128,
        )


_QUICKSTART_TUNED = TunedAt(
    batch_size=16,
    tokens=300 * 16 * 128,
    learning_rate=0.012,
    adam_learning_rate=0.04,
    beta2=0.97,
    epsilon=1e-8,
    max_learning_rate=0.1,
)
_QUICKSTART_SCHEDULE = Schedule(
    warmup_fraction=0.1, decay_fraction=0.4, min_learning_rate_ratio=0.0, max_grad_norm=1.0, z_loss_weight=1e-7
)

RECIPES: dict[str, Recipe] = {"quickstart": QuickstartRecipe()}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name; `RecipeError` names those there are."""
    if name not in RECIPES:
        raise RecipeError(
            f"There is no recipe {name!r}.",
            why="The recipe turns a budget into a model, a batch and learning rates.",
            fix=f"Use one of: {', '.join(sorted(RECIPES))}.",
        )
    return RECIPES[name]


def _steps_for_budget(shape: ModelShape, *, batch_size: int, budget_flops: float) -> int:
    flops_per_step = 3.0 * forward_flops_per_token(shape) * batch_size * shape.seq_len
    steps = round(budget_flops / flops_per_step)
    if steps < 1 or abs(steps * flops_per_step / budget_flops - 1) > BUDGET_TOLERANCE:
        raise RecipeError(
            f"{format_flops(budget_flops)} FLOPs pay {budget_flops / flops_per_step:.1f} steps at width {shape.hidden_dim}.",
            why=f"With so few steps the cost cannot meet the budget to {BUDGET_TOLERANCE:.0%}, and nothing would be learnt.",
            fix="Raise the budget or take a smaller width.",
        )
    return steps
