"""Expand a ladder file into rungs and a target, with warnings about the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marin_scaling.errors import RecipeError
from marin_scaling.ladder.config import LadderFile, RungsAtBudget
from marin_scaling.laws import FARTHEST_CHECKED
from marin_scaling.recipe.base import Recipe, RungPlan
from marin_scaling.recipe.find import find_recipe
from marin_scaling.units import counted, format_flops

if TYPE_CHECKING:
    import pandas as pd


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
    def frame(self) -> pd.DataFrame:
        """One row per rung: budget, width, layers, params, active params, tokens, batch size, steps, FLOPs and seed."""
        import pandas as pd

        return pd.DataFrame([_row(rung) for rung in self.rungs])

    @property
    def total_flops(self) -> float:
        """What all rungs cost together, without the target."""
        return sum(rung.plan.flops for rung in self.rungs)

    @property
    def extrapolation(self) -> float:
        """Target budget over the largest rung's."""
        return self.file.target.budget_flops / max(rung.plan.budget_flops for rung in self.rungs)


def _row(rung: Rung) -> dict[str, float]:
    plan, shape = rung.plan, rung.plan.shape
    return {
        "budget_flops": plan.budget_flops,
        "hidden_dim": shape.hidden_dim,
        "num_layers": shape.num_layers,
        "params": shape.params_total,
        "active_params": shape.params_active,
        "tokens": plan.trained_tokens,
        "batch_size": plan.batch_size,
        "train_steps": plan.train_steps,
        "flops": plan.flops,
        "seed": rung.seed,
    }


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
    budget_flops, batch_size = target.budget_flops, target.batch_size
    return plan_at(recipe, budget_flops=budget_flops, params=compute_optimal_params, batch_size=batch_size)


def plan_at(recipe: Recipe, *, budget_flops: float, params: float, batch_size: int | None = None) -> RungPlan:
    """Return the run of a budget at the width whose count of active parameters is nearest to `params` (in ratio)."""
    width = min(recipe.widths(), key=lambda width: _ratio(recipe.shape(width).params_active, params))
    return recipe.plan(budget_flops=budget_flops, hidden_dim=width, batch_size=batch_size)


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)


_LAW_BUDGETS = 4  # one more than the law has unknowns, so that something is left to tell noise by
_BOWL_WIDTHS = 3  # a parabola has three unknowns
_NAMED = 3  # of many rungs


def ladder_doubts(ladder: Ladder) -> list[str]:
    """Too few budgets for the law or widths for a bowl, a target too far, rungs where the recipe ends, and what it could not do
    as it would."""
    plans = [rung.plan for rung in ladder.rungs if rung.seed == ladder.file.seeds[0]]
    widths = _widths_by_budget(plans)
    return [*_of_the_recipe(plans), *_at_the_edge(ladder.file.recipe, widths), *_too_few(widths), *_too_far(ladder)]


def _of_the_recipe(plans: Sequence[RungPlan]) -> list[str]:
    """What it says of single runs; a sentence that holds for many stands once."""
    found: dict[str, list[RungPlan]] = {}
    for plan in plans:
        for doubt in plan.doubts:
            found.setdefault(doubt, []).append(plan)
    return [f"{_listed([_place(plan) for plan in which])}: {doubt}" for doubt, which in found.items()]


def _at_the_edge(name: str, widths: dict[float, dict[int, RungPlan]]) -> list[str]:
    """Rungs that the recipe itself would not choose, and budgets whose bowl cannot be widened."""
    recipe = find_recipe(name)
    outside = [plan for budget, at in widths.items() for width, plan in at.items() if width not in recipe.widths_at(budget)]
    named = _listed([f"{_place(plan)} ({float(f'{plan.tokens_per_param:.3g}'):g} tokens per parameter)" for plan in outside])
    doubts = [f"{named}: not among the runs that the recipe itself would choose"] if outside else []
    for end, extreme, beyond in ((0, "narrowest", "smaller"), (-1, "widest", "larger")):
        limit = recipe.widths()[end]
        if there := [format_flops(budget) for budget, at in widths.items() if limit in at]:
            doubts.append(
                f"{_listed(there)} FLOPs: the {extreme} rung has the recipe's {extreme} width, {limit}; where the best size is "
                f"{beyond}, no rung can show it"
            )
    return doubts


def _too_few(widths: dict[float, dict[int, RungPlan]]) -> list[str]:
    doubts = [
        f"{format_flops(budget)} FLOPs has {len(found)} of the {_BOWL_WIDTHS} widths or more that show its best size"
        for budget, found in widths.items()
        if len(found) < _BOWL_WIDTHS
    ]
    if len(widths) < _LAW_BUDGETS:
        few = counted(len(widths), "budget")
        doubts.append(f"{few}; the law has three unknowns, and an interval needs {_LAW_BUDGETS} budgets or more")
    return doubts


def _too_far(ladder: Ladder) -> list[str]:
    if ladder.extrapolation <= FARTHEST_CHECKED:
        return []
    return [
        f"the target is {ladder.extrapolation:.3g}x the largest rung; "
        f"no forecast beyond {FARTHEST_CHECKED:.0f}x is known to be checked"
    ]


def _widths_by_budget(plans: Sequence[RungPlan]) -> dict[float, dict[int, RungPlan]]:
    found: dict[float, dict[int, RungPlan]] = {}
    for plan in plans:
        found.setdefault(plan.budget_flops, {})[plan.shape.hidden_dim] = plan
    return found


def _place(plan: RungPlan) -> str:
    return f"{format_flops(plan.budget_flops)} FLOPs at width {plan.shape.hidden_dim}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
