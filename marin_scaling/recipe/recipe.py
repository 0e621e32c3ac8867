"""The interface of a recipe: one dial, the FLOP budget, and a width give everything a run needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from marin_scaling.recipe.formula import Formula
from marin_scaling.recipe.model_shape import ModelShape
from marin_scaling.recipe.run_plan import RungPlan


class Recipe(Protocol):
    """What every recipe can do. Its constants are the fields of a frozen dataclass, each made by `formula.constant`."""

    @property
    def name(self) -> str:
        """The name in ladder files."""

    @property
    def formulas(self) -> Mapping[str, Formula]:
        """How each number of a plan is found, by the names of `RungPlan.values`; what is a constant may be absent."""

    def widths(self) -> tuple[int, ...]:
        """The widths this recipe can make, narrow to wide."""

    def widths_at(self, budget_flops: float) -> tuple[int, ...]:
        """Those of them that make a sensible run of this budget, narrow to wide; maybe none."""

    def shape(self, hidden_dim: int) -> ModelShape:
        """The model of this width; `RecipeError` where there is none."""

    def plan(self, *, budget_flops: float, hidden_dim: int, batch_size: int | None = None) -> RungPlan:
        """The run of this width that costs the budget; `RecipeError` where there is none.

        `batch_size` in sequences takes the place of the recipe's own, as when hardware decides it.
        """
