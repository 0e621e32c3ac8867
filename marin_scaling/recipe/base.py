"""The `Recipe` interface, the plan of one run, and the range of widths a budget allows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, Protocol

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.model_shape import (
    MARIN,
    WITH_LM_HEAD,
    WITHOUT_LM_HEAD,
    Formula,
    Hyperparameters,
    ModelShape,
    RateLaw,
    TransferRules,
    constant,
    forward_flops_per_token,
    training_flops,
)
from marin_scaling.units import format_flops

RungKey = tuple[str, int, float, int, float]
"""Name, seed, FLOPs, batch size and learning rate of a rung: what tells the rungs of a ladder apart."""

BUDGET_TOLERANCE = 0.01
"""Largest relative difference between a rung's FLOPs and its budget; 1 % of compute is 0.001 nats or less."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Warm-up, stable phase and linear decay as fractions of all steps; clipping (0: none) and z-losses."""

    warmup_fraction: float
    decay_fraction: float
    min_learning_rate_ratio: float
    max_grad_norm: float
    z_loss_weight: float
    router_z_loss_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup_fraction + self.decay_fraction > 1:
            raise RecipeError(
                f"warmup_fraction {self.warmup_fraction:g} and decay_fraction {self.decay_fraction:g} add up to more than 1.",
                fix="Lower one of them.",
            )


@dataclass(frozen=True, kw_only=True)
class RungPlan:
    """A planned run. `constant_norm` is the unit whose norm the optimizer keeps (`run_spec.OptimizerSpec`). `doubts` are
    warnings about compromises, such as a halved batch. `wanted_tokens` are the tokens to cut into steps if the budget does
    not determine them."""

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
    def rung_name(self) -> str:
        """BUDGET/WIDTH, as `marin-scale ladder --only` takes it."""
        return f"{format_flops(self.budget_flops)}/{self.shape.hidden_dim}"

    @property
    def flops(self) -> float:
        """Training FLOPs, at most `BUDGET_TOLERANCE` off the budget."""
        return training_flops(self.shape, tokens=self.trained_tokens)

    @property
    def planned_tokens(self) -> float:
        """Tokens before rounding to whole steps, from the budget or as the recipe wants."""
        return self.wanted_tokens or paid_tokens(self.shape, budget_flops=self.budget_flops)

    @property
    def steps_before_decay(self) -> int:
        """Steps of warm-up and stable phase."""
        return steps_before_decay(self.train_steps, decay_fraction=self.schedule.decay_fraction)

    @property
    def tokens_per_param(self) -> float:
        """Ratio of trained tokens to active parameters."""
        return self.trained_tokens / self.shape.params_active

    def values(self) -> dict[str, float]:
        """Return every number of the run by name, in the order in which a recipe determines them."""
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


def with_trunk_of(plans: Sequence[RungPlan]) -> list[RungPlan]:
    """Return the plans of one width with the batch size, rates and constants of its largest budget, and one warm-up.

    The warm-up has the steps of that of the smallest budget, so that all runs are the same up to the first decay.
    """
    *_, longest = by_budget = sorted(plans, key=lambda plan: plan.budget_flops)
    steps = [
        steps_for_budget(longest.shape, batch_size=longest.batch_size, budget_flops=plan.budget_flops) for plan in by_budget
    ]
    warmup_steps = int(longest.schedule.warmup_fraction * steps[0])
    return [
        replace(
            longest,
            budget_flops=plan.budget_flops,
            train_steps=count,
            schedule=replace(longest.schedule, warmup_fraction=fraction_of_steps(warmup_steps, count)),
            wanted_tokens=None,
        )
        for plan, count in zip(by_budget, steps, strict=True)
    ]


def swept_plans(
    recipe: Recipe, plan: RungPlan, *, rate_factors: Sequence[float] = (1.0,), batch_sizes: Sequence[int] = ()
) -> list[RungPlan]:
    """Return the run at every combination of batch size and multiple of the learning rate that the recipe gives for it.

    Only the rate of the matrices changes; a batch size keeps the budget, so that the number of steps changes.
    """
    batches = [
        plan if size == plan.batch_size else _in_batches_of(size, recipe, plan) for size in batch_sizes or (plan.batch_size,)
    ]
    return [
        replace(each, hyperparameters=replace(each.hyperparameters, learning_rate=factor * each.hyperparameters.learning_rate))
        for each in batches
        for factor in rate_factors
    ]


def _in_batches_of(size: int, recipe: Recipe, plan: RungPlan) -> RungPlan:
    try:
        return recipe.plan(budget_flops=plan.budget_flops, hidden_dim=plan.shape.hidden_dim, batch_size=size)
    except RecipeError as error:
        raise error.at(f"In batches of {size} sequences") from error


def fraction_of_steps(part: int, steps: int) -> float:
    """Return a fraction that gives `part` of `steps` when their product is rounded down, as in Levanter's schedule.

    >>> [int(fraction_of_steps(part, 49) * 49) for part in (0, 1, 48)]
    [0, 1, 48]
    """
    fraction = part / steps
    return fraction if int(fraction * steps) == part else math.nextafter(fraction, 1.0)


def steps_before_decay(train_steps: int, *, decay_fraction: float) -> int:
    """Return the steps before the decay, whose number Levanter rounds down.

    >>> steps_before_decay(219, decay_fraction=0.4)
    132
    """
    return train_steps - int(decay_fraction * train_steps)


def paid_tokens(shape: ModelShape, *, budget_flops: float) -> float:
    """Return the tokens that a budget pays for at this shape."""
    return budget_flops / (3 * forward_flops_per_token(shape))


def steps_for_budget(shape: ModelShape, *, batch_size: int, budget_flops: float, tokens: float | None = None) -> int:
    """Return the number of steps nearest to `tokens` (default: those of the budget); `RecipeError` if their cost is more than
    `BUDGET_TOLERANCE` off the budget."""
    flops_per_step = 3.0 * forward_flops_per_token(shape) * batch_size * shape.seq_len
    steps = round(budget_flops / flops_per_step if tokens is None else tokens / (batch_size * shape.seq_len))
    if steps < 1 or abs(steps * flops_per_step / budget_flops - 1) > BUDGET_TOLERANCE:
        raise RecipeError(
            f"{format_flops(budget_flops)} FLOPs pay {budget_flops / flops_per_step:.1f} steps at width {shape.hidden_dim}.",
            why=f"With so few steps the cost cannot be within {BUDGET_TOLERANCE:.0%} of the budget.",
            fix="Raise the budget or choose a smaller width.",
        )
    return steps


class Recipe(Protocol):
    """Interface of recipes. The constants are the fields of a frozen dataclass, each made by `formula.constant`."""

    @property
    def name(self) -> str:
        """Name in ladder files."""

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """Formula of each number of a plan, by the names of `RungPlan.values`; constants may be left out."""

    def widths(self) -> tuple[int, ...]:
        """Return all widths of this recipe, in ascending order."""

    def widths_at(self, budget_flops: float) -> tuple[int, ...]:
        """Return the widths that make a sensible run of this budget, in ascending order; may be empty."""

    def shape(self, hidden_dim: int) -> ModelShape:
        """Return the model of this width, or raise `RecipeError`."""

    def plan(self, *, budget_flops: float, hidden_dim: int, batch_size: int | None = None) -> RungPlan:
        """Return the run of this width that costs the budget, or raise `RecipeError`.

        `batch_size` in sequences replaces the recipe's own, for example if the hardware decides it.
        """


_MARIN = "Marin, experiments/scaling_law_sweeps/completed_adamh.py and experiments/grug/moe/heuristic.py"


@dataclass(frozen=True, kw_only=True)
class WidthRange:
    """Widths in equal steps from the narrowest to the widest."""

    narrowest: int = constant(512, _MARIN)
    widest: int = constant(16_384, "beyond any published run")
    width_step: int = constant(128, _MARIN)

    def widths(self) -> tuple[int, ...]:
        """Return all widths, in ascending order."""
        return tuple(self._range)

    @property
    def _range(self) -> range:
        return range(self.narrowest, self.widest + 1, self.width_step)

    def _require_width(self, recipe: str, hidden_dim: int, *, why: str) -> None:
        """Raise `RecipeError` if the recipe has no such width."""
        if hidden_dim not in self._range:
            raise RecipeError(
                f"The recipe {recipe!r} has no width {hidden_dim}.",
                why=why,
                fix=f"Choose a width from {self.narrowest} to {self.widest}, in steps of {self.width_step}.",
            )


@dataclass(frozen=True, kw_only=True)
class MarinWidths(WidthRange):
    """Widths of whole heads, with Marin's depth for each."""

    width_of_head: int = constant(128, _MARIN)
    depth_offset: float = constant(55.0, f"{_MARIN}: 64 - 9")
    depth_per_doubling: float = constant(4.0, _MARIN)

    def _depth(self, hidden_dim: float) -> int:
        return round(hidden_dim / (self.depth_offset + self.depth_per_doubling * math.log2(hidden_dim)))


def sensible_widths(recipe: Recipe, budget_flops: float, *, least: float, most: float) -> tuple[int, ...]:
    """Return widths at which a run of this budget can be planned and has `least` to `most` tokens per active parameter."""
    found = []
    for width in recipe.widths():
        with contextlib.suppress(RecipeError):
            plan = recipe.plan(budget_flops=budget_flops, hidden_dim=width)
            found += [width] if least <= plan.tokens_per_param <= most else []
    return tuple(found)


DEPTH = Formula("round(hidden_dim / (depth_offset + depth_per_doubling * log2(hidden_dim)))", _MARIN)


def batch_for_steps(tokens: float, *, steps: int, seq_len: int) -> int:
    """Return the batch size in sequences: the smallest power of two that needs at most so many steps.

    >>> batch_for_steps(4.3e9, steps=2**14, seq_len=4096)
    128
    """
    exact = tokens / (steps * seq_len)
    return 1 if exact <= 1 else int(2 ** math.ceil(math.log2(exact)))


@dataclass(frozen=True, kw_only=True)
class AdamHRecipe(TransferRules, WidthRange):
    """Constants with Delphi's values; a recipe overrides those that differ."""

    max_tokens_per_param: float = constant(250.0, MARIN)
    warmup_fraction: float = constant(0.1, MARIN, zero=True, most=1)
    decay_fraction: float = constant(0.2, MARIN, zero=True, most=1)
    min_learning_rate_ratio: float = constant(0.0, MARIN, zero=True, most=1)
    max_grad_norm: float = constant(0.1, MARIN)
    z_loss_weight: float = constant(1e-7, MARIN, zero=True)

    def rate_constants(self, law: RateLaw) -> dict[str, float]:
        """Return the constants with which the recipe follows a law of the matrices' learning rate; `RecipeError` for Adam's."""
        if law.is_of_adam:
            raise RecipeError(
                "The law is of Adam's learning rate, and the base has a law for matrices.",
                fix="Name the column of the matrices' rate, or choose another base.",
            )
        batch = self.rate_batch_exponent if law.batch_exponent is None else law.batch_exponent
        at = {"width": self.narrowest, "tokens": self.tuned_tokens, "batch_size": self.tuned_batch_size}
        return {
            "tuned_learning_rate": law.at(**at, batch_exponent=batch),
            "rate_width_exponent": -law.width_exponent,
            "token_horizon_exponent": -law.token_exponent,
            "rate_batch_exponent": batch,
        }

    def _schedule(self) -> Schedule:
        return Schedule(
            warmup_fraction=self.warmup_fraction,
            decay_fraction=self.decay_fraction,
            min_learning_rate_ratio=self.min_learning_rate_ratio,
            max_grad_norm=self.max_grad_norm,
            z_loss_weight=self.z_loss_weight,
        )
