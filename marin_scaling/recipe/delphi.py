"""`delphi`: Marin's dense recipe for the published suite of 3e18 to 1e23 FLOPs; it reproduces each of its runs.

Qwen3 shape with a depth determined by the width, AdamH with the Complete(d) transfer rules, warm-up-stable-decay, about 2^16
steps in batches of a power of two (Marin, experiments/scaling_law_sweeps/completed_adamh.py; openathena.ai/blog/delphi). The
suite's three large runs are reproduced with their batches, which hardware determined: 512, 1024 and 2048 (Marin,
exp1337_delphi_suite.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.base import DEPTH, AdamHRecipe, MarinWidths, RungPlan, batch_for_steps, paid_tokens, steps_for_budget
from marin_scaling.recipe.model_shape import (
    DENSE_COUNTING,
    MARIN,
    Formula,
    Hyperparameters,
    ModelShape,
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
        return _FORMULAS

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


_FORMULAS = {
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
