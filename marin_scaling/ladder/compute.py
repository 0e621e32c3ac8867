"""How the steps of a run are computed: precision, attention, what is recomputed, how much at a time; and the memory it takes.

A part of ladder files and of specs, because rounding, and with it the loss, depends on it. Nothing is compiled here: memory is
an estimate.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.yaml_documents import Part


class Compute(Part):
    """How the steps of a run are computed. The defaults are fastest for tiny models on a CPU."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Of activations and products, in training and evaluation; parameters, the optimizer's state and the loss are float32."""
    attention: Literal["plain", "flash"] = "plain"
    """`flash` keeps no table of positions by positions: a kernel for the device where Levanter has one, else its own in JAX."""
    recompute: bool = False
    """Keep only what goes from layer to layer, and compute the rest of a layer again in the backward pass."""
    sequences_at_a_time: int | None = Field(default=None, gt=0)
    """Sequences that one device computes at once; gradients are added up over the batch. Without it the whole batch."""


BYTES_PER_PARAM = 28
"""In float32: the parameter and two moments of Adam before a step and after it (4 x 3 x 2), and the gradient."""
_FLOAT, _HALF = 4, 2
_PER_HIDDEN, _PER_INTERMEDIATE, _PER_HEAD_AND_POSITION, _PER_VOCABULARY = 17, 6, 2, 2
_FLASH_BLOCK = 1024  # positions; for shorter sequences Levanter's attention in JAX is the plain one


def training_memory_bytes(plan: RungPlan, compute: Compute | None = None, *, devices: int = 1) -> float:
    """What a step holds at once on each device, beside the program itself; `Compute()` where nothing else is said.

    Several devices have an even part of the batch, of the parameters and of the optimizer's state each; that is arithmetic.

    Numbers kept for the backward pass, for each token: in each layer 17 for each of hidden_dim, 6 for each of the MLP's width
    that a token passes and, with plain attention, 2 for each head and position; and 2 for each of vocab_size. Of layers that
    are recomputed, hidden_dim for each and the whole of one. Tests hold it against what XLA reserves on a CPU: for dense
    models in float32 up to a quarter above, and with other choices from a twentieth below to a third above. There, XLA undoes
    recomputation, of which only what JAX keeps is tested. For mixtures it is what a ragged product needs; on a CPU, where a
    step that overflows its buffers goes another way (`run.expert_dispatch`), XLA reserves one and a half to two and a half
    times as much. For bfloat16 it is arithmetic: a CPU's XLA keeps much of it in float32.

    >>> from marin_scaling.recipe.quickstart import QuickstartRecipe
    >>> plan = QuickstartRecipe().plan(budget_flops=2.5e12, hidden_dim=64)
    >>> [round(training_memory_bytes(plan, Compute(recompute=again)) / 1e6) for again in (False, True)]
    [60, 38]
    """
    compute = compute or Compute()
    part = -(-plan.batch_size // devices)
    at_once = min(part, compute.sequences_at_a_time or part)
    number = _FLOAT if compute.precision == "float32" else _HALF
    of_loss = _FLOAT * _PER_VOCABULARY * plan.shape.vocab_size  # always float32
    kept = number * _kept_of_layers(plan.shape, compute) + of_loss
    params = _bytes_per_param(compute, in_parts=at_once < part) * plan.shape.params_total
    return float(params / devices + at_once * plan.shape.seq_len * kept)


def _kept_of_layers(shape: ModelShape, compute: Compute) -> int:
    """Numbers for each token."""
    is_plain = compute.attention == "plain" or shape.seq_len < _FLASH_BLOCK
    square = shape.num_heads * (shape.seq_len if is_plain else _FLASH_BLOCK)  # of positions by positions, or of a block of them
    layer = _PER_HIDDEN * shape.hidden_dim + _PER_INTERMEDIATE * shape.mlp_dim_per_token
    layer += _PER_HEAD_AND_POSITION * square if is_plain else 0
    if compute.recompute:
        return shape.num_layers * shape.hidden_dim + layer + square
    return shape.num_layers * layer + (0 if is_plain else square)


def _bytes_per_param(compute: Compute, *, in_parts: bool) -> int:
    """With a copy in half precision, and the sum of gradients so far."""
    copy = _HALF if compute.precision == "bfloat16" else 0
    return BYTES_PER_PARAM + copy + (_FLOAT if in_parts else 0)
