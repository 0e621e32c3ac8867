"""Training FLOPs of a model shape, and the formulas behind each FLOP convention."""

from __future__ import annotations

from typing import Protocol

from marin_scaling.recipe.hyperparameters import Formula

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

    >>> from marin_scaling.recipe.model_shape import ModelShape
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

    >>> from marin_scaling.recipe.model_shape import ModelShape
    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> training_flops(delphi_smallest, tokens=4_304_928_768)
    3.000006086133547e+18
    """
    return 3.0 * forward_flops_per_token(shape, convention=convention) * tokens


_LEVANTER = "levanter/utils/flop_utils.py: full attention, {} the output head; three forwards a step"
_ATTENTION = "4 * hidden_dim * head_dim * (num_heads + num_kv_heads) + seq_len * (4 * hidden_dim + 3 * num_heads)"
_LM_HEAD = "6 * hidden_dim * vocab_size * trained_tokens"
_STEPS = {
    "planned_tokens": Formula("budget_flops / flops_per_token", "what the budget pays for"),
    "train_steps": Formula("round(planned_tokens / (batch_size * seq_len))", "whole steps nearest to the budget"),
    "trained_tokens": Formula("batch_size * seq_len * train_steps", "whole steps nearest to the budget"),
}

DENSE_COUNTING = {
    "head_dim": Formula("hidden_dim // num_heads", "equal heads"),
    "params_total": Formula(
        "num_layers * (2 * hidden_dim * head_dim * (num_heads + num_kv_heads) + 3 * hidden_dim * intermediate_dim"
        " + 2 * hidden_dim + 2 * head_dim) + hidden_dim + 2 * vocab_size * hidden_dim",
        "Qwen3 in Levanter, counted exactly",
    ),
    "flops_per_token": Formula(
        f"3 * (num_layers * (6 * hidden_dim * intermediate_dim + {_ATTENTION}) + 2 * hidden_dim * vocab_size)",
        _LEVANTER.format("with"),
    ),
    **_STEPS,
    "flops": Formula("flops_per_token * trained_tokens", _LEVANTER.format("with")),
    "flops_without_lm_head": Formula(f"flops - {_LM_HEAD}", "Marin's count of mixtures of experts, for comparison"),
}

_GATED_NORM = "hidden_dim * (1 + 2 * norm_gate_rank)"
_EXPERTS = (
    "num_layers * (hidden_dim * (2 * head_dim * (num_heads + num_kv_heads) + num_heads)"
    " + 3 * hidden_dim * ({} * intermediate_dim + shared_intermediate_dim) + (hidden_dim + 1) * num_experts"
    f" + 2 * {_GATED_NORM}) + 2 * {_GATED_NORM} + 2 * vocab_size * hidden_dim"
)

MOE_COUNTING = {
    "head_dim": DENSE_COUNTING["head_dim"],
    "params_total": Formula(_EXPERTS.format("num_experts"), "marin_scaling.train.moe, counted exactly"),
    "params_active": Formula(_EXPERTS.format("experts_per_token"), "of the experts only the chosen ones"),
    "flops_per_token": Formula(
        "3 * num_layers * (6 * hidden_dim * (experts_per_token * intermediate_dim + shared_intermediate_dim)"
        f" + 2 * hidden_dim * num_experts + {_ATTENTION})",
        _LEVANTER.format("without"),
    ),
    **_STEPS,
    "flops": Formula("flops_per_token * trained_tokens", _LEVANTER.format("without")),
    "flops_with_lm_head": Formula(f"flops + {_LM_HEAD}", "the count of dense models, for comparison"),
}
