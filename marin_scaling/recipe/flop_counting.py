"""Model FLOPs of training, from the shape alone.

Convention `levanter-full-attention-with-lm-head`: two FLOPs per multiply-add; a backward pass costs twice the forward one, so
training costs three forwards; attention is counted over the full sequence (no causal halving) with its mask; the output head
counts, the embedding lookup does not, nor do norms, softmax, optimizer and z-loss. Formula after `levanter/utils/flop_utils.py`
(a test holds agreement); it reproduces all published Delphi FLOP numbers (openathena.ai/blog/delphi).
"""

from __future__ import annotations

from marin_scaling.recipe.model_shape import ModelShape

FLOPS_CONVENTION = "levanter-full-attention-with-lm-head"


def forward_flops_per_token(shape: ModelShape) -> int:
    """Forward FLOPs for one token of a full sequence.

    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> forward_flops_per_token(delphi_smallest)
    232292352
    """
    mlp = 6 * shape.hidden_dim * shape.intermediate_dim
    projections = 4 * shape.hidden_dim * shape.head_dim * (shape.num_heads + shape.num_kv_heads)
    attention = shape.seq_len * (4 * shape.hidden_dim + 3 * shape.num_heads)  # logits and values, mask
    lm_head = 2 * shape.hidden_dim * shape.vocab_size
    return shape.num_layers * (mlp + projections + attention) + lm_head


def training_flops(shape: ModelShape, *, tokens: int) -> float:
    """FLOPs of training on `tokens` tokens: three forwards per token.

    >>> delphi_smallest = ModelShape(hidden_dim=512, intermediate_dim=2048, num_layers=6, num_heads=4, num_kv_heads=4,
    ...                              vocab_size=128_256, seq_len=4096)
    >>> training_flops(delphi_smallest, tokens=4_304_928_768)
    3.000006086133547e+18
    """
    return 3.0 * forward_flops_per_token(shape) * tokens
