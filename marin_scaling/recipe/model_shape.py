"""Shapes of dense and mixture-of-experts models, their parameter counts, and their FLOPs by each convention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from marin_scaling.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a dense Qwen3-style transformer, from which all counts are derived.

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
                    f"{name} is {size} at width {self.hidden_dim}; it must be at least 1.",
                    fix="Choose a larger width, or other constants in the recipe file.",
                )
        if self.hidden_dim % self.num_heads or self.num_heads % self.num_kv_heads:
            raise RecipeError(
                f"hidden_dim {self.hidden_dim}, {self.num_heads} heads and {self.num_kv_heads} key-value heads do not divide.",
                why="Heads must divide hidden_dim, and key-value heads must divide heads.",
                fix="Choose a hidden_dim that the recipe lists.",
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def params_per_layer(self) -> int:
        """Parameters of one layer: attention, gated MLP, two norms, and query and key norms."""
        attention = 2 * self.hidden_dim * self.head_dim * (self.num_heads + self.num_kv_heads)
        mlp = 3 * self.hidden_dim * self.intermediate_dim
        norms = 2 * self.hidden_dim + 2 * self.head_dim
        return attention + mlp + norms

    @property
    def params_non_embedding(self) -> int:
        """All parameters except the input embedding and the output head."""
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
        """Width of the gated MLP."""
        return self.intermediate_dim

    @property
    def mlp_widths(self) -> tuple[int, ...]:
        """Widths of the MLPs of a layer, each once."""
        return (self.intermediate_dim,)

    @property
    def router_outputs(self) -> int:
        """Number of experts that a router chooses from; 0 for a dense model."""
        return 0


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
                f"{self.experts_per_token} of {self.num_experts} experts are chosen for each token; at least one must remain.",
                why="The router balances by the first expert that is not chosen.",
                fix="Raise num_experts or lower experts_per_token.",
            )

    @property
    def params_per_layer(self) -> int:
        """Parameters of one layer: attention with its gates, all experts, the shared one, router and its bias, gated norms."""
        return self._layer(experts=self.num_experts)

    @property
    def params_non_embedding(self) -> int:
        """All parameters except the input embedding and the output head; includes the gated norms next to these."""
        return self._outside_embedding(experts=self.num_experts)

    @property
    def params_active(self) -> int:
        """Parameters used for each token, with only the chosen experts."""
        return self._outside_embedding(experts=self.experts_per_token) + 2 * self.vocab_size * self.hidden_dim

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the chosen experts and the shared one together."""
        return self.experts_per_token * self.intermediate_dim + self.shared_intermediate_dim

    @property
    def mlp_widths(self) -> tuple[int, ...]:
        """Widths of an expert and of the shared one, each once."""
        return tuple(dict.fromkeys((self.intermediate_dim, self.shared_intermediate_dim)))

    @property
    def router_outputs(self) -> int:
        """Number of experts."""
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


FAMILIES: dict[str, type[ModelShape]] = {"qwen3": ModelShape, "grug-moe": MoeShape}


def shape_of(model: Mapping[str, Any]) -> ModelShape:
    """Return the shape in the `model` section of a spec.

    >>> sizes = dict(hidden_dim=16, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=2, vocab_size=256, seq_len=128)
    >>> shape_of({"family": "qwen3", **sizes}).params_total
    16496
    """
    return FAMILIES[model["family"]](**{key: value for key, value in model.items() if key != "family"})


WITH_LM_HEAD = "levanter-full-attention-with-lm-head"
WITHOUT_LM_HEAD = "levanter-full-attention-without-lm-head"


class CountedShape(Protocol):
    """Sizes that determine FLOPs, of a recipe's model or a submission's."""

    @property
    def hidden_dim(self) -> int:
        """Width."""

    @property
    def num_layers(self) -> int:
        """Depth."""

    @property
    def num_heads(self) -> int:
        """Number of query heads."""

    @property
    def num_kv_heads(self) -> int:
        """Number of key and value heads."""

    @property
    def head_dim(self) -> int:
        """Width of one head."""

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""

    @property
    def mlp_dim_per_token(self) -> int:
        """Width of the MLP, or of the experts together, that a token passes through."""

    @property
    def router_outputs(self) -> int:
        """Number of experts that a layer's router chooses from; 0 for a dense model."""


def flops_convention(shape: CountedShape) -> str:
    """Return the name of the FLOP convention for a model of this kind."""
    return WITHOUT_LM_HEAD if shape.router_outputs else WITH_LM_HEAD


def forward_flops_per_token(shape: CountedShape, *, convention: str | None = None) -> int:
    """Return forward FLOPs for one token of a full sequence, by the model's own convention or the given one.

    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> forward_flops_per_token(delphi_smallest)
    232292352
    >>> forward_flops_per_token(delphi_smallest, convention=WITHOUT_LM_HEAD)
    100958208
    """
    mlp = 6 * shape.hidden_dim * shape.mlp_dim_per_token
    router = 2 * shape.hidden_dim * shape.router_outputs
    projections = 4 * shape.hidden_dim * shape.head_dim * (shape.num_heads + shape.num_kv_heads)
    attention = shape.seq_len * (4 * shape.hidden_dim + 3 * shape.num_heads)  # logits and values, mask
    counts_head = (convention or flops_convention(shape)) == WITH_LM_HEAD
    lm_head = 2 * shape.hidden_dim * shape.vocab_size if counts_head else 0
    return shape.num_layers * (mlp + router + projections + attention) + lm_head


def training_flops(shape: CountedShape, *, tokens: int, convention: str | None = None) -> float:
    """Return FLOPs of training on `tokens` tokens: three forward passes per token.

    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> training_flops(delphi_smallest, tokens=4_304_928_768)
    3.000006086133547e+18
    """
    return 3.0 * forward_flops_per_token(shape, convention=convention) * tokens
