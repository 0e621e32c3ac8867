"""Marin's recipes: `delphi`, dense; `grug-moe`, a mixture of experts by the formulas of May 2026; `grug-moe-v16` by April's.

`delphi` is for the published suite of 3e18 to 1e23 FLOPs and reproduces each of its runs: Qwen3 shape with a depth determined
by the width, AdamH with the Complete(d) transfer rules, warm-up-stable-decay, about 2^16 steps in batches of a power of two
(experiments/scaling_law_sweeps/completed_adamh.py; openathena.ai/blog/delphi). The suite's three large runs are reproduced
with their batches, which hardware determined: 512, 1024 and 2048 (exp1337_delphi_suite.py).

In `grug-moe`, every layer routes each token to 4 experts of half the model's width and passes it through one shared expert.
Quantile balancing replaces a balancing loss. Learning rates are power laws of tokens and width, fitted by Marin to 17 runs
(May, MuonH, 256 experts, issue #5951) and to 186 runs (v16, AdamH, 64 experts, issue #4225). Source of all formulas:
experiments/grug/moe/heuristic.py. These models lack exclusive self-attention, half-rotary and window attention, which Marin
toggled between recipes and which its FLOP count does not include.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.base import (
    DEPTH,
    AdamHRecipe,
    MarinWidths,
    RungPlan,
    Schedule,
    batch_for_steps,
    paid_tokens,
    sensible_widths,
    steps_for_budget,
)
from marin_scaling.recipe.model_shape import (
    DENSE_COUNTING,
    MARIN,
    MOE_COUNTING,
    Formula,
    Hyperparameters,
    ModelShape,
    MoeShape,
    RateLaw,
    constant,
    rate_doubts,
    transfer_formulas,
)
from marin_scaling.units import format_flops, format_number


@dataclass(frozen=True, kw_only=True)
class DelphiRecipe(AdamHRecipe, MarinWidths):
    """Marin's Delphi.

    >>> plan = DelphiRecipe().plan(budget_flops=1e23, hidden_dim=5376, batch_size=2048)
    >>> plan.shape.num_layers, plan.train_steps, plan.shape.params_total
    (51, 74884, 24963098112)
    """

    name: str = "delphi"
    vocab_size: int = constant(128_256, "tokens of Llama 3's tokenizer")
    seq_len: int = constant(4096, MARIN)
    mlp_ratio: int = constant(4, MARIN)
    wide_width_step: int = constant(256, MARIN)
    wide_steps_above_flops: float = constant(2e19, MARIN)
    steps_wanted: int = constant(2**16, MARIN)
    min_batch_size: int = constant(8, MARIN)
    max_batch_size: int = constant(8192, MARIN)
    max_params: float = constant(12e9, f"{MARIN}: at 3e20 FLOPs and below")
    max_params_flops: float = constant(3e20, f"{MARIN}: beyond, as the root of the budget")

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """Formula of each number of a plan."""
        return _DELPHI_FORMULAS

    def widths_at(self, budget_flops: float) -> tuple[int, ...]:
        """Return the sizes of Marin's isoFLOP sweep: coarser above 2e19 FLOPs, with enough tokens for a batch of 8, at most
        250 tokens per parameter and at most 12B parameters.

        >>> DelphiRecipe().widths_at(3e18)
        (512, 640, 768, 896, 1024)
        """
        every = max(1, self.wide_width_step // self.width_step) if budget_flops > self.wide_steps_above_flops else 1
        return tuple(width for width in self._range[::every] if self._is_sensible(budget_flops, self.shape(width)))

    def shape(self, hidden_dim: int) -> ModelShape:
        """Return the model with the depth for this width and heads of 128."""
        self._require_width(self.name, hidden_dim, why=f"Its heads are {self.width_of_head} wide.")
        num_heads = hidden_dim // self.width_of_head
        return ModelShape(
            hidden_dim=hidden_dim,
            intermediate_dim=self.mlp_ratio * hidden_dim,
            num_layers=self._depth(hidden_dim),
            num_heads=num_heads,
            num_kv_heads=num_heads,
            vocab_size=self.vocab_size,
            seq_len=self.seq_len,
        )

    def plan(self, *, budget_flops: float, hidden_dim: int, batch_size: int | None = None) -> RungPlan:
        """Return the run of this width that costs the budget.

        A given `batch_size` keeps the tokens of the recipe's own batch in whole steps, as for the suite's large runs.
        """
        shape = self.shape(hidden_dim)
        tokens = paid_tokens(shape, budget_flops=budget_flops)
        wanted = self._wanted_batch(tokens)
        own_batch = self._batch(shape, budget_flops)
        if batch_size is not None:
            tokens = own_batch * self.seq_len * max(1, round(tokens / (own_batch * self.seq_len)))
        batch = batch_size or own_batch
        rates = self.transfer(batch_size=batch, tokens=tokens, width_ratio=hidden_dim / self.narrowest)
        return RungPlan(
            recipe=self.name,
            budget_flops=budget_flops,
            shape=shape,
            batch_size=batch,
            train_steps=steps_for_budget(shape, batch_size=batch, budget_flops=budget_flops, tokens=tokens),
            hyperparameters=rates,
            schedule=self._schedule(),
            doubts=self._doubts(batch, rates, wanted=wanted if batch_size is None else batch),
            wanted_tokens=None if batch_size is None else tokens,
        )

    def _batch(self, shape: ModelShape, budget_flops: float) -> int:
        """Return the batch size in sequences, or raise `RecipeError` if none fits."""
        tokens = paid_tokens(shape, budget_flops=budget_flops)
        batch = self._halved(self._wanted_batch(tokens), tokens, shape.hidden_dim)
        if not self.min_batch_size <= batch <= self.max_batch_size:
            raise RecipeError(
                f"{format_flops(budget_flops)} FLOPs at width {shape.hidden_dim} pay {format_number(tokens, 3)} tokens, a "
                f"batch of {batch}.",
                why=f"Learning rates were tuned for batches of {self.min_batch_size} to {self.max_batch_size} sequences and "
                f"about {self.steps_wanted} steps.",
                fix="Choose another budget or another width.",
            )
        return batch

    def _doubts(self, batch: int, rates: Hyperparameters, *, wanted: int) -> tuple[str, ...]:
        """Return warnings about batch and learning rates."""
        tuned = self.min_batch_size <= batch <= self.max_batch_size
        warnings = {
            f"batch {wanted} is halved to {batch}, so that no learning rate or beta2 reaches its bound": batch < wanted,
            f"learning rates were tuned for batches of {self.min_batch_size} to {self.max_batch_size}, not {batch}": not tuned,
        }
        return (*(sentence for sentence, holds in warnings.items() if holds), *rate_doubts(rates, cap=self.max_learning_rate))

    def _halved(self, batch: int, tokens: float, hidden_dim: int) -> int:
        """Return the batch size, halved until no learning rate is at a bound, but not below the smallest."""
        while batch // 2 >= self.min_batch_size and not self._rates_fit(batch, tokens, hidden_dim):
            batch //= 2
        return batch

    def _wanted_batch(self, tokens: float) -> int:
        """Return the smallest power of two that needs at most the wanted number of steps."""
        return batch_for_steps(tokens, steps=self.steps_wanted, seq_len=self.seq_len)

    def _rates_fit(self, batch_size: int, tokens: float, hidden_dim: int) -> bool:
        found = self.transfer(batch_size=batch_size, tokens=tokens, width_ratio=hidden_dim / self.narrowest)
        highest = max(found.learning_rate, found.adam_learning_rate)
        return highest < self.max_learning_rate and found.beta2 > self.min_beta2

    def _is_sensible(self, budget_flops: float, shape: ModelShape) -> bool:
        tokens, largest = paid_tokens(shape, budget_flops=budget_flops), max(1.0, budget_flops / self.max_params_flops) ** 0.5
        batch = self._halved(self._wanted_batch(tokens), tokens, shape.hidden_dim)
        in_range = self.min_batch_size <= batch <= self.max_batch_size
        over_trained = tokens > self.max_tokens_per_param * shape.params_total
        return in_range and not over_trained and shape.params_total <= self.max_params * largest


_DELPHI_FORMULAS = {
    "intermediate_dim": Formula("mlp_ratio * hidden_dim", MARIN),
    "num_layers": DEPTH,
    "num_heads": Formula("hidden_dim // width_of_head", MARIN),
    "num_kv_heads": Formula("num_heads", "no grouped queries"),
    "batch_size": Formula(
        "2 ** ceil(log2(planned_tokens / (steps_wanted * seq_len)))", f"{MARIN}: halved where a rate is capped"
    ),
    **DENSE_COUNTING,
    **transfer_formulas("planned_tokens"),
}


_MOE = "Marin, experiments/grug/moe/heuristic.py"
_MAY = f"{_MOE}, May recipe (#5951)"
_V16 = f"{_MOE}, v16 (#4225)"
_SIZING = "Marin #4447, sizing table"


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """A compute-optimal run by Marin's laws: active and total parameters, tokens, and a width before rounding."""

    params_active: float
    params_total: float
    tokens: float
    hidden_dim: float
    num_layers: int


@dataclass(frozen=True, kw_only=True)
class GrugMoeRecipe(MarinWidths):
    """Marin's May recipe: MuonH, 256 experts.

    >>> plan = GrugMoeRecipe().plan(budget_flops=3.46e19, hidden_dim=1280)
    >>> plan.shape.num_layers, plan.batch_size, f"{plan.trained_tokens:.3g}"
    (13, 256, '1.5e+10')
    """

    name: str = "grug-moe"
    optimizer: Literal["adamH", "muonH"] = "muonH"
    vocab_size: int = constant(128_256, "tokens of Llama 3's tokenizer")
    seq_len: int = constant(4096, _MOE)
    queries_per_key: int = constant(4, _MOE)
    num_experts: int = constant(256, _MAY)
    experts_per_token: int = constant(4, _MOE)
    expert_ratio: float = constant(0.5, _MOE)
    expert_multiple: int = constant(128, f"{_MOE}: for the kernels of a TPU")
    shared_ratio: int = constant(1, _MOE)
    norm_gate_rank: int = constant(128, "Marin, experiments/grug/moe/model.py (arXiv 2601.22966)")
    steps_wanted: int = constant(2**14, _MOE)
    min_batch_size: int = constant(32, _MOE)
    min_tokens_per_param: float = constant(8.0, "an eighth of what the sizing table finds optimal")
    max_tokens_per_param: float = constant(500.0, "eight times what the sizing table finds optimal")
    adam_rate_factor: float = constant(0.06602, _MAY)
    rate_token_exponent: float = constant(0.395, _MAY, signed=True, most=2)
    rate_width_exponent: float = constant(0.150, _MAY, signed=True, most=2)
    rate_batch_exponent: float = constant(0.5, _MOE, signed=True, most=2)
    matrix_rate_ratio: float = constant(13 / 3, _MOE)
    max_learning_rate: float = constant(0.05, _MOE)
    epsilon_factor: float = constant(9.676e-18, f"{_MOE}: 1e-15 at 1.4e9 tokens in batches of 131072")
    beta1: float = constant(0.9062, _MOE, below=1)
    tuned_beta2: float = constant(0.999, _MOE, below=1)
    tuned_batch_tokens: int = constant(131_072, _MOE)
    min_beta2: float = constant(0.95, _MOE, below=1)
    max_beta2: float = constant(0.9999, _MOE, below=1)
    warmup_fraction: float = constant(0.01, _MAY, zero=True, most=1)
    min_learning_rate_ratio: float = constant(0.05, _MAY, zero=True, most=1)
    max_grad_norm: float = constant(0.0, f"{_MAY}: no clipping", zero=True)
    z_loss_weight: float = constant(1e-4, _MOE, zero=True)
    router_z_loss_weight: float = constant(0.0, "Marin, experiments/grug/moe: off since May", zero=True)
    active_params_per_root_flop: float = constant(0.0543, _SIZING)
    tokens_per_root_flop: float = constant(3.290, _SIZING)
    total_per_active_param: float = constant(8.0, f"{_SIZING}: inferred, gives its five totals")
    cubed_width_per_active_param: float = constant(8.065, f"{_SIZING}: inferred, gives its five widths")

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """Formula of each number of a plan."""
        return _GRUG_FORMULAS

    def widths_at(self, budget_flops: float) -> tuple[int, ...]:
        """Return the widths whose steps meet the budget and that have 8 to 500 tokens per active parameter.

        >>> GrugMoeRecipe().widths_at(3e18)[::3]
        (512, 896)
        """
        return sensible_widths(self, budget_flops, least=self.min_tokens_per_param, most=self.max_tokens_per_param)

    def usual_width(self, budget_flops: float) -> int:
        """Return the width nearest to the compute-optimal one of the sizing table."""
        wanted = self.sizing(budget_flops).hidden_dim
        return min(self._range, key=lambda width: abs(width - wanted))

    def sizing(self, budget_flops: float) -> Sizing:
        """Return Marin's compute-optimal sizes (#4447): parameters and tokens grow as the root of the budget.

        >>> sizing = GrugMoeV16Recipe().sizing(1e23)
        >>> f"{sizing.params_active:.4g} {sizing.tokens:.3g} {sizing.hidden_dim:.0f} {sizing.num_layers}"
        '1.717e+10 1.04e+12 5174 50'
        """
        active = self.active_params_per_root_flop * budget_flops**0.5
        width = (self.cubed_width_per_active_param * active) ** (1 / 3)
        return Sizing(
            params_active=active,
            params_total=self.total_per_active_param * active,
            tokens=self.tokens_per_root_flop * budget_flops**0.5,
            hidden_dim=width,
            num_layers=self._depth(width),
        )

    def shape(self, hidden_dim: int) -> MoeShape:
        """Return the model with the depth for this width; heads of 128, four per key; experts of half the width."""
        self._require_width(self.name, hidden_dim, why=f"Its heads are {self.width_of_head} wide.")
        num_heads = max(1, hidden_dim // self.width_of_head)
        return MoeShape(
            hidden_dim=hidden_dim,
            intermediate_dim=math.ceil(self.expert_ratio * hidden_dim / self.expert_multiple) * self.expert_multiple,
            num_layers=self._depth(hidden_dim),
            num_heads=num_heads,
            num_kv_heads=_largest_divisor(num_heads, at_most=num_heads // self.queries_per_key),
            vocab_size=self.vocab_size,
            seq_len=self.seq_len,
            num_experts=self.num_experts,
            experts_per_token=self.experts_per_token,
            shared_intermediate_dim=self.shared_ratio * hidden_dim,
            norm_gate_rank=self.norm_gate_rank,
        )

    def plan(self, *, budget_flops: float, hidden_dim: int, batch_size: int | None = None) -> RungPlan:
        """Return the run of this width that costs the budget, in about 2^14 steps of a power of two sequences."""
        shape = self.shape(hidden_dim)
        tokens = paid_tokens(shape, budget_flops=budget_flops)
        batch = batch_size or self._batch(tokens)
        rates = self.rates(batch_tokens=batch * self.seq_len, tokens=tokens, hidden_dim=hidden_dim)
        return RungPlan(
            recipe=self.name,
            budget_flops=budget_flops,
            shape=shape,
            batch_size=batch,
            train_steps=steps_for_budget(shape, batch_size=batch, budget_flops=budget_flops),
            hyperparameters=rates,
            schedule=self._schedule(),
            optimizer=self.optimizer,
            doubts=self._doubts(rates, batch=batch, wanted=batch_size or self._wanted_batch(tokens)),
        )

    def rates(self, *, batch_tokens: int, tokens: float, hidden_dim: int) -> Hyperparameters:
        """Return the hyperparameters for a batch in tokens, a number of training tokens and a width.

        >>> found = GrugMoeRecipe().rates(batch_tokens=131_072, tokens=1.44e9, hidden_dim=512)
        >>> f"{found.adam_learning_rate:.3g} {found.learning_rate:.3g} {found.beta2:.3g}"
        '0.00226 0.0098 0.999'
        """
        adam = self.adam_rate_factor * tokens**-self.rate_token_exponent * hidden_dim**-self.rate_width_exponent
        adam *= batch_tokens**self.rate_batch_exponent
        return Hyperparameters(
            learning_rate=min(self.matrix_rate_ratio * min(adam, self.max_learning_rate), self.max_learning_rate),
            adam_learning_rate=min(adam, self.max_learning_rate),
            beta1=self.beta1,
            beta2=min(max(self.tuned_beta2 ** (batch_tokens / self.tuned_batch_tokens), self.min_beta2), self.max_beta2),
            epsilon=self.epsilon_factor * math.sqrt(tokens / batch_tokens),
        )

    def rate_constants(self, law: RateLaw) -> dict[str, float]:
        """Return the constants with which the recipe follows a law of the matrices' learning rate, or of Adam's."""
        batch = self.rate_batch_exponent if law.batch_exponent is None else law.batch_exponent
        one = law.at(width=1, tokens=1, batch_size=1 / self.seq_len, batch_exponent=batch)
        return {
            "adam_rate_factor": one if law.is_of_adam else one / self.matrix_rate_ratio,
            "rate_width_exponent": -law.width_exponent,
            "rate_token_exponent": -law.token_exponent,
            "rate_batch_exponent": batch,
        }

    def _batch(self, tokens: float) -> int:
        """Return the smallest power of two that needs at most the wanted number of steps, but not below the smallest batch."""
        return max(self.min_batch_size, self._wanted_batch(tokens))

    def _wanted_batch(self, tokens: float) -> int:
        return batch_for_steps(tokens, steps=self.steps_wanted, seq_len=self.seq_len)

    def _schedule(self) -> Schedule:
        """Return warm-up, followed by a linear decay to the last step."""
        return Schedule(
            warmup_fraction=self.warmup_fraction,
            decay_fraction=1 - self.warmup_fraction,
            min_learning_rate_ratio=self.min_learning_rate_ratio,
            max_grad_norm=self.max_grad_norm,
            z_loss_weight=self.z_loss_weight,
            router_z_loss_weight=self.router_z_loss_weight,
        )

    def _doubts(self, rates: Hyperparameters, *, batch: int, wanted: int) -> tuple[str, ...]:
        """Return warnings about batch and learning rates."""
        raised = f"batch {wanted} is raised to {batch}, the smallest; steps are fewer than {self.steps_wanted}"
        return (*([raised] if batch > wanted else []), *rate_doubts(rates, cap=self.max_learning_rate))


@dataclass(frozen=True, kw_only=True)
class GrugMoeV16Recipe(GrugMoeRecipe):
    """Marin's recipe of April 2026 for its run of 1e23 FLOPs: AdamH, 64 experts.

    >>> GrugMoeV16Recipe().plan(budget_flops=2.83e19, hidden_dim=1280).trained_tokens
    12380536832
    """

    name: str = "grug-moe-v16"
    optimizer: Literal["adamH", "muonH"] = "adamH"
    num_experts: int = constant(64, _V16)
    adam_rate_factor: float = constant(1.63 / 64, f"{_V16}: 1.63 for batches in sequences of 4096")
    rate_token_exponent: float = constant(0.2813, _V16, signed=True, most=2)
    rate_width_exponent: float = constant(0.3678, _V16, signed=True, most=2)
    warmup_fraction: float = constant(0.1, _V16, zero=True, most=1)
    min_learning_rate_ratio: float = constant(0.0, _V16, zero=True, most=1)
    max_grad_norm: float = constant(1.0, _V16, zero=True)
    router_z_loss_weight: float = constant(1e-3, "usual (Zoph et al. 2022); Marin had one, its weight is not known", zero=True)


def _largest_divisor(number: int, *, at_most: int) -> int:
    return max((divisor for divisor in range(1, at_most + 1) if number % divisor == 0), default=1)


_ADAM = "adam_rate_factor * planned_tokens ** -rate_token_exponent * hidden_dim ** -rate_width_exponent"
_GRUG_FORMULAS = {
    "intermediate_dim": Formula("ceil(expert_ratio * hidden_dim / expert_multiple) * expert_multiple", _MOE),
    "shared_intermediate_dim": Formula("shared_ratio * hidden_dim", _MOE),
    "num_layers": DEPTH,
    "num_heads": Formula("max(1, hidden_dim // width_of_head)", _MOE),
    "num_kv_heads": Formula(
        "max([k for k in range(1, num_heads // queries_per_key + 1) if num_heads % k == 0], default=1)", _MOE
    ),
    "batch_size": Formula(
        "max(min_batch_size, 2 ** ceil(log2(max(1, planned_tokens / (steps_wanted * seq_len)))))",
        f"{_MOE}; of the four published batches one, of width 768, was half of it",
    ),
    **MOE_COUNTING,
    "adam_learning_rate": Formula(f"min(max_learning_rate, {_ADAM} * (batch_size * seq_len) ** rate_batch_exponent)", _MOE),
    "learning_rate": Formula("min(max_learning_rate, matrix_rate_ratio * adam_learning_rate)", _MOE),
    "beta2": Formula("min(max(tuned_beta2 ** (batch_size * seq_len / tuned_batch_tokens), min_beta2), max_beta2)", _MOE),
    "epsilon": Formula("epsilon_factor * (planned_tokens / (batch_size * seq_len)) ** 0.5", _MOE),
    "decay_fraction": Formula("1 - warmup_fraction", f"{_MOE}: down to the last step"),
}
