"""Recipes small enough for two CPU cores: dense, and mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from marin_scaling.recipe.base import AdamHRecipe, RungPlan, Schedule, sensible_widths, steps_for_budget
from marin_scaling.recipe.model_shape import (
    DENSE_COUNTING,
    MOE_COUNTING,
    Formula,
    ModelShape,
    MoeShape,
    constant,
    rate_doubts,
    transfer_formulas,
)

_TUNED = "tuned on this scale, lab book 2026-11-21"
_CHOSEN = "chosen for two CPU cores"
_ONE_DEPTH = "one for all widths: a step in depth would be a step in the bowls of so small a ladder"


@dataclass(frozen=True, kw_only=True)
class QuickstartRecipe(AdamHRecipe):
    """Tiny byte-level Delphi.

    >>> plan = QuickstartRecipe().plan(budget_flops=3e11, hidden_dim=48)
    >>> plan.shape.num_layers, plan.train_steps, plan.shape.params_total
    (2, 219, 98640)
    """

    name: str = "quickstart"
    constant_norm: Literal["matrix", "slice"] = "slice"
    vocab_size: int = constant(256, "one for each byte")
    seq_len: int = constant(128, _CHOSEN)
    num_layers: int = constant(2, _ONE_DEPTH)
    num_heads: int = constant(2, _ONE_DEPTH)
    mlp_ratio: int = constant(4, "as in delphi")
    batch_size: int = constant(16, _CHOSEN)
    narrowest: int = constant(8, "rotary embeddings need heads of even width")
    widest: int = constant(128, "wider models do not fit a laptop's minutes")
    width_step: int = constant(4, "rotary embeddings need heads of even width")
    tuned_batch_size: int = constant(16, _TUNED)
    tuned_tokens: float = constant(300 * 16 * 128, _TUNED)
    tuned_learning_rate: float = constant(0.012, _TUNED)
    tuned_adam_learning_rate: float = constant(0.04, _TUNED)
    tuned_epsilon: float = constant(1e-8, _TUNED)
    tuned_beta2: float = constant(0.97, _TUNED, below=1)
    max_learning_rate: float = constant(0.1, _TUNED)
    min_tokens_per_param: float = constant(2.0, "fewer were never trained at this scale")
    decay_fraction: float = constant(0.4, _TUNED, zero=True, most=1)
    max_grad_norm: float = constant(1.0, _TUNED)

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """Formula of each number of a plan."""
        return _FORMULAS

    def widths_at(self, budget_flops: float) -> tuple[int, ...]:
        """Return the widths whose steps meet the budget and that have 2 to 250 tokens per parameter."""
        return sensible_widths(self, budget_flops, least=self.min_tokens_per_param, most=self.max_tokens_per_param)

    def plan(self, *, budget_flops: float, hidden_dim: int, batch_size: int | None = None) -> RungPlan:
        """Return the run of this width that costs the budget, in batches of 16 sequences of 128 bytes."""
        shape, batch_size = self.shape(hidden_dim), batch_size or self.batch_size
        train_steps = steps_for_budget(shape, batch_size=batch_size, budget_flops=budget_flops)
        tokens = batch_size * shape.seq_len * train_steps
        rates = self.transfer(batch_size=batch_size, tokens=tokens, width_ratio=hidden_dim / self.narrowest)
        return RungPlan(
            recipe=self.name,
            constant_norm=self.constant_norm,
            budget_flops=budget_flops,
            shape=shape,
            batch_size=batch_size,
            train_steps=train_steps,
            hyperparameters=rates,
            schedule=self._schedule(),
            doubts=rate_doubts(rates, cap=self.max_learning_rate),
        )

    def shape(self, hidden_dim: int) -> ModelShape:
        """Return a model of two layers and two heads, with an MLP four times as wide as the model."""
        why = "Its attention heads have an even width, and wider models do not fit a laptop's minutes."
        self._require_width(self.name, hidden_dim, why=why)
        return ModelShape(
            hidden_dim=hidden_dim,
            intermediate_dim=self.mlp_ratio * hidden_dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_heads,
            vocab_size=self.vocab_size,
            seq_len=self.seq_len,
        )


_FORMULAS = {
    "intermediate_dim": Formula("mlp_ratio * hidden_dim", "as in delphi"),
    "num_kv_heads": Formula("num_heads", "as in delphi"),
    **DENSE_COUNTING,
    **transfer_formulas("trained_tokens"),
}


_TUNED_MOE = "tuned on this scale, lab book 2026-11-22"


@dataclass(frozen=True, kw_only=True)
class QuickstartMoeRecipe(QuickstartRecipe):
    """Tiny byte-level mixture of experts.

    >>> plan = QuickstartMoeRecipe().plan(budget_flops=3e11, hidden_dim=48)
    >>> plan.shape.params_total, plan.shape.params_active, plan.train_steps
    (170992, 88048, 284)
    """

    name: str = "quickstart-moe"
    num_experts: int = constant(8, _CHOSEN)
    experts_per_token: int = constant(2, _CHOSEN)
    mlp_ratio: int = constant(1, "with two experts and the shared one as much MLP a token as in grug-moe")
    norm_gate_rank: int = constant(4, _CHOSEN)
    tuned_learning_rate: float = constant(0.024, _TUNED_MOE)
    router_z_loss_weight: float = constant(0.0, "off, as in grug-moe", zero=True)

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """Formula of each number of a plan."""
        return _MOE_FORMULAS

    def shape(self, hidden_dim: int) -> MoeShape:
        """Return a model of two layers and two heads; every expert is as wide as the model."""
        return MoeShape(
            **asdict(super().shape(hidden_dim)),
            num_experts=self.num_experts,
            experts_per_token=self.experts_per_token,
            shared_intermediate_dim=self.mlp_ratio * hidden_dim,
            norm_gate_rank=self.norm_gate_rank,
        )

    def _schedule(self) -> Schedule:
        return replace(super()._schedule(), router_z_loss_weight=self.router_z_loss_weight)


_MOE_FORMULAS = {
    "intermediate_dim": Formula("mlp_ratio * hidden_dim", "as wide as the model"),
    "shared_intermediate_dim": Formula("mlp_ratio * hidden_dim", "as wide as the model"),
    "num_kv_heads": Formula("num_heads", "as in quickstart"),
    **MOE_COUNTING,
    **transfer_formulas("trained_tokens"),
}
