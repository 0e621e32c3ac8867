"""Expand a ladder file into rungs and a target, with warnings about the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marin_scaling.errors import RecipeError
from marin_scaling.findings import Finding, warning
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
    """A ladder file and its rungs, cheapest first."""

    file: LadderFile
    rungs: tuple[Rung, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per rung: budget, width, layers, params, active params, tokens, batch size, steps, FLOPs and seed."""
        import pandas as pd

        return pd.DataFrame([_row(rung) for rung in self.rungs])

    @property
    def total_flops(self) -> float:
        """Sum of the FLOPs of all rungs, without the target."""
        return sum(rung.plan.flops for rung in self.rungs)

    @property
    def extrapolation(self) -> float:
        """Ratio of the target's budget to the largest rung's."""
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
    """Expand a ladder file with its recipe; `RecipeError` if a rung cannot be made."""
    recipe = find_recipe(file.recipe)
    plans = _plans(file, recipe)
    _refuse_one_run_twice(plans)
    _require_target(file, recipe)
    rungs = [Rung(plan=plan, seed=seed) for plan in plans for seed in file.seeds]
    return Ladder(file=file, rungs=tuple(sorted(rungs, key=lambda rung: (rung.plan.budget_flops, rung.plan.shape.hidden_dim))))


def _plans(file: LadderFile, recipe: Recipe) -> list[RungPlan]:
    """Plan all rungs; one `RecipeError` names every rung that cannot be made."""
    plans, faults = [], []
    for number, at in enumerate(file.rungs):
        try:
            widths = _widths(at, recipe)
        except RecipeError as error:
            faults.append(error.at(f"rungs.{number}"))
            continue
        for width in widths:
            try:
                plans.append(recipe.plan(budget_flops=at.budget_flops, hidden_dim=width))
            except RecipeError as error:
                faults.append(error.at(f"rungs.{number}"))
    if faults:
        raise RecipeError(tuple(line for fault in faults for line in fault.lines), why=faults[0].why, fix=faults[0].fix)
    return plans


def _refuse_one_run_twice(plans: list[RungPlan]) -> None:
    """Raise `RecipeError` if a run is listed twice."""
    runs = [(plan.budget_flops, plan.shape.hidden_dim) for plan in plans]
    for budget_flops, width in runs:
        if runs.count((budget_flops, width)) > 1:
            raise RecipeError(
                f"rungs: width {width} occurs twice at {format_flops(budget_flops)} FLOPs.",
                fix="List each budget once, and each width once per budget.",
            )


def _require_target(file: LadderFile, recipe: Recipe) -> None:
    """Raise `RecipeError` if no width makes the target, before the rungs are trained."""
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
        f"the last width tried failed: {faults[-1].what}",
        fix="Change the target's budget_flops or batch_size.",
    )


def _widths(at: RungsAtBudget, recipe: Recipe) -> list[int]:
    """Return the widths to train at a budget; `RecipeError` if the recipe has none, or fewer than wanted."""
    if at.hidden_dims is not None:
        return list(at.hidden_dims)
    sensible = recipe.widths_at(at.budget_flops)
    wanted = at.sizes or max(len(sensible), 1)
    if len(sensible) < wanted:
        raise RecipeError(
            f"the recipe {recipe.name!r} has {len(sensible)} sensible widths at {format_flops(at.budget_flops)} FLOPs; "
            f"{wanted} are wanted.",
            fix="Choose another budget, lower sizes, or list hidden_dims.",
        )
    last = max(wanted - 1, 1)
    return [sensible[round(place * (len(sensible) - 1) / last)] for place in range(wanted)]


def plan_target(file: LadderFile, *, compute_optimal_params: float) -> RungPlan:
    """Plan the target at the width whose active parameters are nearest to the compute-optimal number, by ratio."""
    recipe, target = find_recipe(file.recipe), file.target
    budget_flops, batch_size = target.budget_flops, target.batch_size
    return plan_at(recipe, budget_flops=budget_flops, params=compute_optimal_params, batch_size=batch_size)


def plan_at(recipe: Recipe, *, budget_flops: float, params: float, batch_size: int | None = None) -> RungPlan:
    """Return the run of a budget at the width whose count of active parameters is nearest to `params` (in ratio)."""
    width = min(recipe.widths(), key=lambda width: _ratio(recipe.shape(width).params_active, params))
    return recipe.plan(budget_flops=budget_flops, hidden_dim=width, batch_size=batch_size)


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)


_LAW_BUDGETS = 4  # one more than a frontier's parameters, to estimate the noise
_BOWL_WIDTHS = 3  # a parabola has three unknowns
_NAMED = 3  # rungs that a warning lists


def plan_findings(ladder: Ladder) -> list[Finding]:
    """Return what to look at before training: few budgets or widths, a far target, and rungs at the edge of the recipe."""
    plans = [rung.plan for rung in ladder.rungs if rung.seed == ladder.file.seeds[0]]
    widths = _widths_by_budget(plans)
    return [*_of_the_recipe(plans), *_at_the_edge(ladder.file.recipe, widths), *_too_few(widths), *_too_far(ladder)]


def _of_the_recipe(plans: Sequence[RungPlan]) -> Iterator[Finding]:
    """Yield the recipe's warnings about single runs, each sentence once."""
    found: dict[str, list[RungPlan]] = {}
    for plan in plans:
        for doubt in plan.doubts:
            found.setdefault(doubt, []).append(plan)
    yield from (warning("recipe", _listed(map(_place, which)), doubt) for doubt, which in found.items())


def _at_the_edge(name: str, widths: dict[float, dict[int, RungPlan]]) -> Iterator[Finding]:
    """Yield rungs that the recipe itself would not choose, and budgets whose bowl cannot be widened."""
    recipe = find_recipe(name)
    outside = [plan for budget, at in widths.items() for width, plan in at.items() if width not in recipe.widths_at(budget)]
    if outside:
        ratios = _listed(f"{float(f'{plan.tokens_per_param:.3g}'):g}" for plan in outside)
        message = f"{ratios} tokens per parameter, outside the range in which the recipe itself chooses runs"
        yield warning("unusual-width", _listed(map(_place, outside)), message)
    for end, extreme, beyond in ((0, "narrowest", "smaller"), (-1, "widest", "larger")):
        limit = recipe.widths()[end]
        if there := [format_flops(budget) for budget, at in widths.items() if limit in at]:
            message = f"the {extreme} rung has the recipe's {extreme} width, {limit}; a {beyond} best size cannot be found"
            yield warning("edge-of-recipe", f"{_listed(there)} FLOPs", message)


def _too_few(widths: dict[float, dict[int, RungPlan]]) -> Iterator[Finding]:
    for budget, found in widths.items():
        if len(found) < _BOWL_WIDTHS:
            message = f"only {counted(len(found), 'width')}; locating the best size takes at least {_BOWL_WIDTHS}"
            yield warning("few-widths", f"{format_flops(budget)} FLOPs", message)
    if len(widths) < _LAW_BUDGETS:
        few = counted(len(widths), "budget")
        yield warning("few-budgets", "rungs", f"only {few}; a forecast interval needs at least {_LAW_BUDGETS} budgets")


def _too_far(ladder: Ladder) -> Iterator[Finding]:
    if ladder.extrapolation > FARTHEST_CHECKED:
        far = f"{ladder.extrapolation:.3g}x the largest rung"
        yield warning("far-target", "target", f"{far}; no forecast beyond {FARTHEST_CHECKED:.0f}x has been checked publicly")


def _widths_by_budget(plans: Sequence[RungPlan]) -> dict[float, dict[int, RungPlan]]:
    found: dict[float, dict[int, RungPlan]] = {}
    for plan in plans:
        found.setdefault(plan.budget_flops, {})[plan.shape.hidden_dim] = plan
    return found


def _place(plan: RungPlan) -> str:
    """Return BUDGET/WIDTH, as `marin-scale ladder --only` takes it."""
    return f"{format_flops(plan.budget_flops)}/{plan.shape.hidden_dim}"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")
