"""Model FLOPs of training, from the shape alone.

Two FLOPs per multiply-add; a backward pass costs twice the forward one, so training costs three forwards; attention is
counted over the full sequence (no causal halving) with its mask; embedding lookup, norms and their gates, gates of heads,
softmax, optimizer and z-loss are not counted. Formula after `levanter/utils/flop_utils.py` (a test holds agreement).

Whether the output head counts is the difference between Marin's two conventions, and each kind of model has its own, so that
they cannot be mixed in one fit: dense models count it (it reproduces all published Delphi numbers, openathena.ai/blog/delphi),
mixtures of experts do not (experiments/grug/moe/heuristic.py).
"""

from __future__ import annotations

from typing import Protocol

WITH_LM_HEAD = "levanter-full-attention-with-lm-head"
WITHOUT_LM_HEAD = "levanter-full-attention-without-lm-head"


class CountedShape(Protocol):
    """Sizes that FLOPs are counted by: those of a recipe's model, or of a submission's."""

    @property
    def hidden_dim(self) -> int:
        """Width."""

    @property
    def num_layers(self) -> int:
        """Depth."""

    @property
    def num_heads(self) -> int:
        """Heads of queries."""

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values."""

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
        """Width of what one token goes through in an MLP, or in its experts."""

    @property
    def router_outputs(self) -> int:
        """What the router of a layer chooses from; 0 of a dense model."""


def flops_convention(shape: CountedShape) -> str:
    """Which of the two counts a model of this kind."""
    return WITHOUT_LM_HEAD if shape.router_outputs else WITH_LM_HEAD


def forward_flops_per_token(shape: CountedShape, *, convention: str | None = None) -> int:
    """Forward FLOPs for one token of a full sequence, by the model's own convention or by the one named.

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
    """FLOPs of training on `tokens` tokens: three forwards per token.

    >>> from marin_scaling.recipe.model_shape import ModelShape
    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> training_flops(delphi_smallest, tokens=4_304_928_768)
    3.000006086133547e+18
    """
    return 3.0 * forward_flops_per_token(shape, convention=convention) * tokens
