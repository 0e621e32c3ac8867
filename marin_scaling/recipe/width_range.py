"""An even range of widths, and what Marin's dense and sparse recipes make of one alike: heads, depth, a batch by its steps."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

from marin_scaling.errors import RecipeError
from marin_scaling.recipe.formula import Formula, constant
from marin_scaling.recipe.recipe import Recipe

_MARIN = "Marin, experiments/scaling_law_sweeps/completed_adamh.py and experiments/grug/moe/heuristic.py"


@dataclass(frozen=True, kw_only=True)
class WidthRange:
    """From the narrowest to the widest in equal steps."""

    narrowest: int = constant(512, _MARIN)
    widest: int = constant(16_384, "beyond any published run")
    width_step: int = constant(128, _MARIN)

    def widths(self) -> tuple[int, ...]:
        """From the narrowest to the widest in equal steps."""
        return tuple(self._range)

    @property
    def _range(self) -> range:
        return range(self.narrowest, self.widest + 1, self.width_step)

    def _require_width(self, recipe: str, hidden_dim: int, *, why: str) -> None:
        """`RecipeError` where the recipe has no such width."""
        if hidden_dim not in self._range:
            raise RecipeError(
                f"The recipe {recipe!r} has no width {hidden_dim}.",
                why=why,
                fix=f"Choose one from {self.narrowest} to {self.widest}, in steps of {self.width_step}.",
            )


@dataclass(frozen=True, kw_only=True)
class MarinWidths(WidthRange):
    """Widths of whole heads, each with the depth that Marin gives it."""

    width_of_head: int = constant(128, _MARIN)
    depth_offset: float = constant(55.0, f"{_MARIN}: 64 - 9")
    depth_per_doubling: float = constant(4.0, _MARIN)

    def _depth(self, hidden_dim: float) -> int:
        return round(hidden_dim / (self.depth_offset + self.depth_per_doubling * math.log2(hidden_dim)))


def sensible_widths(recipe: Recipe, budget_flops: float, *, least: float, most: float) -> tuple[int, ...]:
    """Widths at which a run of this budget can be planned and sees `least` to `most` tokens for each active parameter."""
    found = []
    for width in recipe.widths():
        with contextlib.suppress(RecipeError):
            plan = recipe.plan(budget_flops=budget_flops, hidden_dim=width)
            found += [width] if least <= plan.tokens_per_param <= most else []
    return tuple(found)


DEPTH = Formula("round(hidden_dim / (depth_offset + depth_per_doubling * log2(hidden_dim)))", _MARIN)


def batch_for_steps(tokens: float, *, steps: int, seq_len: int) -> int:
    """Sequences a step: the power of two at or above what makes so many steps.

    >>> batch_for_steps(4.3e9, steps=2**14, seq_len=4096)
    128
    """
    exact = tokens / (steps * seq_len)
    return 1 if exact <= 1 else int(2 ** math.ceil(math.log2(exact)))
