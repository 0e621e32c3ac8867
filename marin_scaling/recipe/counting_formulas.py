"""The formulas of what follows from a shape, to read: parameters, FLOPs, steps. Tests evaluate them against the counting."""

from __future__ import annotations

from marin_scaling.recipe.formula import Formula

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
    "params_total": Formula(_EXPERTS.format("num_experts"), "marin_scaling.run.moe_model, counted exactly"),
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
