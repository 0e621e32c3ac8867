"""The shape of a dense decoder-only transformer and its exact parameter counts.

Qwen3 family as Levanter builds it: RMSNorm before attention and MLP, gated MLP, rotary embeddings, RMSNorm of queries and
keys (`qk_norm`), no biases, untied output head. Counting only: no arrays are made here; `moe_shape` has the sparse one.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin_scaling.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a dense Qwen3-style transformer; all counts follow from it.

    >>> delphi_1e23 = ModelShape(hidden_dim=5376, intermediate_dim=4 * 5376, num_layers=51, num_heads=42, num_kv_heads=42,
    ...                          vocab_size=128_256, seq_len=4096)
    >>> delphi_1e23.params_total
    24963098112
    """

    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    seq_len: int

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size < 1:
                raise RecipeError(
                    f"{name} would be {size} at width {self.hidden_dim}.",
                    why="A model has at least one of each.",
                    fix="Choose a larger width, or other constants in the recipe file.",
                )
        if self.hidden_dim % self.num_heads or self.num_heads % self.num_kv_heads:
            raise RecipeError(
                f"hidden_dim {self.hidden_dim}, {self.num_heads} heads and {self.num_kv_heads} key-value heads do not divide.",
                why="Each head takes an equal part of the hidden dimension, and each key-value head serves equally many heads.",
                fix="Choose a hidden_dim that the recipe lists.",
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def params_per_layer(self) -> int:
        """Attention, gated MLP, two norms, and the query and key norms of one layer."""
        attention = 2 * self.hidden_dim * self.head_dim * (self.num_heads + self.num_kv_heads)
        mlp = 3 * self.hidden_dim * self.intermediate_dim
        norms = 2 * self.hidden_dim + 2 * self.head_dim
        return attention + mlp + norms

    @property
    def params_non_embedding(self) -> int:
        """All parameters but the input embedding and the output head."""
        return self.num_layers * self.params_per_layer + self.hidden_dim

    @property
    def params_total(self) -> int:
        """All parameters, with the input embedding and the untied output head."""
        return self.params_non_embedding + 2 * self.vocab_size * self.hidden_dim

    @property
    def params_active(self) -> int:
        """Parameters used for each token; all of them in a dense model."""
        return self.params_total

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the gated MLP that each token passes."""
        return self.intermediate_dim

    @property
    def router_outputs(self) -> int:
        """What a router chooses among; 0 where there is none."""
        return 0
