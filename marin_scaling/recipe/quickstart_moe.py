"""`quickstart-moe`: the mixture of experts so small that a ladder of it trains on two CPU cores in minutes, on bytes.

The grug MoE's parts (quantile balancing, one shared expert, gated norms and heads) in two layers of two heads, as in the
quickstart: 8 experts as wide as the model, of which each token passes 2. Rates follow the quickstart's rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from marin_scaling.recipe.counting_formulas import MOE_COUNTING
from marin_scaling.recipe.formula import Formula, constant
from marin_scaling.recipe.hyperparameters import transfer_formulas
from marin_scaling.recipe.moe_shape import MoeShape
from marin_scaling.recipe.quickstart import QuickstartRecipe
from marin_scaling.recipe.run_plan import Schedule

_CHOSEN = "chosen for two CPU cores"
_TUNED = "tuned on this scale, lab book 2026-11-22"


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
    tuned_learning_rate: float = constant(0.024, _TUNED)
    router_z_loss_weight: float = constant(0.0, "off, as in grug-moe", zero=True)

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """How each number of a plan is found."""
        return _FORMULAS

    def shape(self, hidden_dim: int) -> MoeShape:
        """Two layers, two heads; every expert as wide as the model."""
        return MoeShape(
            **asdict(super().shape(hidden_dim)),
            num_experts=self.num_experts,
            experts_per_token=self.experts_per_token,
            shared_intermediate_dim=self.mlp_ratio * hidden_dim,
            norm_gate_rank=self.norm_gate_rank,
        )

    def _schedule(self) -> Schedule:
        return replace(super()._schedule(), router_z_loss_weight=self.router_z_loss_weight)


_FORMULAS = {
    "intermediate_dim": Formula("mlp_ratio * hidden_dim", "as wide as the model"),
    "shared_intermediate_dim": Formula("mlp_ratio * hidden_dim", "as wide as the model"),
    "num_kv_heads": Formula("num_heads", "as in quickstart"),
    **MOE_COUNTING,
    **transfer_formulas("trained_tokens"),
}
