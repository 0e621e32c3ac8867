"""A ladder, planned: every rung that the recipe makes of the file's budgets and widths, and what the whole costs.

Plans only: nothing is trained here, and no file is read; `ladder_table` shows a plan, `ladder_doubts` says what to mend in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin_scaling.errors import RecipeError
from marin_scaling.ladder.ladder_file import LadderFile, RungsAtBudget
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.recipe import Recipe
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.units import format_flops


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One planned run and its seed."""

    plan: RungPlan
    seed: int


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The file and the rungs it means, cheapest first."""

    file: LadderFile
    rungs: tuple[Rung, ...]

    @property
    def total_flops(self) -> float:
        """What all rungs cost together, without the target."""
        return sum(rung.plan.flops for rung in self.rungs)

    @property
    def extrapolation(self) -> float:
        """Target budget over the largest rung's."""
        return self.file.target.budget_flops / max(rung.plan.budget_flops for rung in self.rungs)


def plan_ladder(file: LadderFile) -> Ladder:
    """Expand a ladder file with its recipe; `RecipeError` where a rung cannot be made."""
    recipe = find_recipe(file.recipe)
    plans = [plan for number in range(len(file.rungs)) for plan in _plans_at(file, number, recipe=recipe)]
    _refuse_one_run_twice(plans)
    _require_target(file, recipe)
    rungs = [Rung(plan=plan, seed=seed) for plan in plans for seed in file.seeds]
    return Ladder(file=file, rungs=tuple(sorted(rungs, key=lambda rung: (rung.plan.budget_flops, rung.plan.shape.hidden_dim))))


def _plans_at(file: LadderFile, number: int, *, recipe: Recipe) -> list[RungPlan]:
    at = file.rungs[number]
    try:
        return [recipe.plan(budget_flops=at.budget_flops, hidden_dim=width) for width in _widths(at, recipe)]
    except RecipeError as error:
        raise error.at(f"rungs.{number}") from error


def _refuse_one_run_twice(plans: list[RungPlan]) -> None:
    """`RecipeError` where two lines, or one of them twice, mean the same run."""
    runs = [(plan.budget_flops, plan.shape.hidden_dim) for plan in plans]
    for budget_flops, width in runs:
        if runs.count((budget_flops, width)) > 1:
            raise RecipeError(
                f"rungs: width {width} stands twice at {format_flops(budget_flops)} FLOPs.",
                why="It would be planned, and counted, twice.",
                fix="Name a budget once, and each width once at a budget.",
            )


def _require_target(file: LadderFile, recipe: Recipe) -> None:
    """`RecipeError` where no width makes the target, so that it is said before the rungs are trained."""
    target, faults = file.target, []
    for width in recipe.widths_at(target.budget_flops) or recipe.widths():
        try:
            recipe.plan(budget_flops=target.budget_flops, hidden_dim=width, batch_size=target.batch_size)
        except RecipeError as error:
            faults.append(error)
        else:
            return
    with_batch = f" in batches of {target.batch_size}" if target.batch_size else ""
    raise RecipeError(
        f"target: no width of the recipe {recipe.name!r} makes a run of {format_flops(target.budget_flops)} FLOPs{with_batch}; "
        f"at the last one tried: {faults[-1].what}",
        why="The ladder is trained to forecast it.",
        fix="Change the target's budget_flops or batch_size.",
    )


def _widths(at: RungsAtBudget, recipe: Recipe) -> list[int]:
    """The widths that are trained at a budget; `RecipeError` where the recipe has none, or fewer than are wanted."""
    if at.hidden_dims is not None:
        return list(at.hidden_dims)
    sensible = recipe.widths_at(at.budget_flops)
    wanted = at.sizes or max(len(sensible), 1)
    if len(sensible) < wanted:
        raise RecipeError(
            f"the recipe {recipe.name!r} finds {len(sensible)} widths sensible at {format_flops(at.budget_flops)} FLOPs, "
            f"and {wanted} are wanted.",
            why="Too few tokens for a batch, or too many for the model, make a run that says little.",
            fix="Choose another budget, ask for fewer sizes, or name hidden_dims.",
        )
    last = max(wanted - 1, 1)
    return [sensible[round(place * (len(sensible) - 1) / last)] for place in range(wanted)]


def plan_target(file: LadderFile, *, compute_optimal_params: float) -> RungPlan:
    """The target run at the width whose count of active parameters is nearest to the compute-optimal one (in ratio)."""
    recipe, target = find_recipe(file.recipe), file.target
    width = min(recipe.widths(), key=lambda width: _ratio(recipe.shape(width).params_active, compute_optimal_params))
    return recipe.plan(budget_flops=target.budget_flops, hidden_dim=width, batch_size=target.batch_size)


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)
