"""The shape of a mixture-of-experts transformer and its exact parameter counts.

Marin's grug MoE, as `marin_scaling.run.moe_model` builds it: every layer has a router, experts and one shared expert; grouped
queries, each head gated; a low-rank gate after every RMSNorm; queries and keys normed without weights; untied output head.
Counting only.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.model_shape import ModelShape


@dataclass(frozen=True, kw_only=True)
class MoeShape(ModelShape):
    """Sizes of a grug MoE; `intermediate_dim` is that of one expert.

    >>> marin_1e23 = MoeShape(hidden_dim=5120, intermediate_dim=2560, num_layers=48, num_heads=40, num_kv_heads=10,
    ...                       vocab_size=128_256, seq_len=4096, num_experts=64, experts_per_token=4,
    ...                       shared_intermediate_dim=5120, norm_gate_rank=128)
    >>> f"{marin_1e23.params_total / 1e9:.1f}B, {marin_1e23.params_active / 1e9:.1f}B active"
    '129.2B, 15.9B active'
    """

    num_experts: int
    experts_per_token: int
    shared_intermediate_dim: int
    norm_gate_rank: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts_per_token >= self.num_experts:
            raise RecipeError(
                f"{self.experts_per_token} of {self.num_experts} experts would be chosen for each token.",
                why="A router balances by the first expert that is not chosen, so there must be one.",
                fix="Raise num_experts or lower experts_per_token.",
            )

    @property
    def params_per_layer(self) -> int:
        """Attention with its gates, all experts, the shared one, router and its bias, two gated norms."""
        return self._layer(experts=self.num_experts)

    @property
    def params_non_embedding(self) -> int:
        """All parameters but the input embedding and the output head; with the gated norms after one and before the other."""
        return self._outside_embedding(experts=self.num_experts)

    @property
    def params_active(self) -> int:
        """Parameters used for each token: of the experts only the chosen ones."""
        return self._outside_embedding(experts=self.experts_per_token) + 2 * self.vocab_size * self.hidden_dim

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the chosen experts and the shared one together."""
        return self.experts_per_token * self.intermediate_dim + self.shared_intermediate_dim

    @property
    def router_outputs(self) -> int:
        """The experts."""
        return self.num_experts

    @property
    def _gated_norm(self) -> int:
        return self.hidden_dim + 2 * self.hidden_dim * self.norm_gate_rank

    def _outside_embedding(self, *, experts: int) -> int:
        return self.num_layers * self._layer(experts=experts) + 2 * self._gated_norm

    def _layer(self, *, experts: int) -> int:
        projections = 2 * self.head_dim * (self.num_heads + self.num_kv_heads)
        attention = self.hidden_dim * (projections + self.num_heads)
        mlps = 3 * self.hidden_dim * (experts * self.intermediate_dim + self.shared_intermediate_dim)
        router = (self.hidden_dim + 1) * self.num_experts
        return attention + mlps + router + 2 * self._gated_norm
