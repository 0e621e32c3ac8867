"""Layers whose insides are not kept for the backward pass but computed again: Haliax's unrolled layers keep them all.

Haliax recomputes only layers that are scanned, and tiny models on a CPU are fastest unrolled.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
from haliax.nn.scan import BlockSeq


class RecomputedLayers(BlockSeq):  # type: ignore[misc]  # Haliax is untyped here
    """A model's unrolled layers; of each only what goes in is kept."""

    def fold(self, init: Any, *arguments: Any, **more: Any) -> Any:
        """What the last layer makes of `init`."""
        again = [eqx.filter_checkpoint(layer) for layer in self.blocks]
        return BlockSeq(again, self.Block, self.gradient_checkpointing).fold(init, *arguments, **more)


def recomputing(model: Any) -> Any:
    """`model` with layers that are recomputed; its arrays and their names stay."""
    layers = model.transformer.layers
    again = RecomputedLayers(layers.blocks, layers.Block, layers.gradient_checkpointing)
    return eqx.tree_at(lambda whole: whole.transformer.layers, model, again)
