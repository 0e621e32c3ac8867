"""The kinds of model there are, by the name that a run's spec and a statement give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.recipe.moe_shape import MoeShape

FAMILIES: dict[str, type[ModelShape]] = {"qwen3": ModelShape, "grug-moe": MoeShape}


def shape_of(model: Mapping[str, Any]) -> ModelShape:
    """The shape in the `model` of a spec: its family and the sizes of that family.

    >>> sizes = dict(hidden_dim=16, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=2, vocab_size=256, seq_len=128)
    >>> shape_of({"family": "qwen3", **sizes}).params_total
    16496
    """
    return FAMILIES[model["family"]](**{key: value for key, value in model.items() if key != "family"})
