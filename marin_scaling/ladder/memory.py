"""How much memory a planned run needs to be trained: an estimate, because nothing is compiled here."""

from __future__ import annotations

from marin_scaling.recipe.run_plan import RungPlan

BYTES_PER_PARAM = 28
"""In float32: the parameter and two moments of Adam before a step and after it (4 x 3 x 2), and the gradient."""
_FLOAT = 4
_PER_HIDDEN, _PER_INTERMEDIATE, _PER_HEAD_AND_POSITION, _PER_VOCABULARY = 17, 6, 2, 2


def training_memory_bytes(plan: RungPlan) -> float:
    """What a step holds at once on one device, beside the program itself.

    Float32, no rematerialisation, plain attention, as `marin-scale ladder` trains. Numbers kept for the backward pass, for each
    token: in each layer 17 for each of hidden_dim, 6 for each of the MLP's width that a token passes and 2 for each head and
    position, and 2 for each of vocab_size. Tests hold it against what XLA reserves on a CPU: for dense models up to a quarter
    above. For mixtures it is what a ragged product needs; on a CPU, where a step that overflows its buffers goes another way
    (`run.expert_dispatch`), XLA reserves one and a half to two and a half times as much.

    >>> from marin_scaling.recipe.quickstart import QuickstartRecipe
    >>> plan = QuickstartRecipe().plan(budget_flops=2.5e12, hidden_dim=64)
    >>> round(training_memory_bytes(plan) / 1e6)
    60
    """
    shape = plan.shape
    per_layer = (
        _PER_HIDDEN * shape.hidden_dim
        + _PER_INTERMEDIATE * shape.mlp_dim_per_token
        + _PER_HEAD_AND_POSITION * shape.num_heads * shape.seq_len
    )
    kept = shape.num_layers * per_layer + _PER_VOCABULARY * shape.vocab_size
    return float(BYTES_PER_PARAM * shape.params_total + _FLOAT * plan.batch_size * shape.seq_len * kept)
