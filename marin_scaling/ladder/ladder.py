"""A ladder, planned: every rung that the recipe makes of the file's budgets and widths, and what the whole costs.

Plans only: nothing is trained here, and no file is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin_scaling.errors import RecipeError
from marin_scaling.ladder.compute import Compute, training_memory_bytes
from marin_scaling.ladder.ladder_file import LadderFile, RungsAtBudget
from marin_scaling.laws import FARTHEST_CHECKED
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.recipe import Recipe
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.units import format_bytes, format_count, format_duration, format_flops


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
        raise RecipeError(f"rungs.{number}: {error.what}", why=error.why, fix=error.fix) from error


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


def ladder_table(ladder: Ladder) -> str:
    """The rungs as a table, one line each, and the totals.

    Columns: budget in FLOPs, width, layers, parameters, active ones, tokens, tokens per active parameter, batch (sequences),
    steps, matrix learning rate, how far the run's FLOPs are from the budget, and the memory of a step on one device.
    """
    doubts = [f"note: {doubt}" for doubt in ladder_doubts(ladder)]
    return "\n".join([_HEAD, *(_row(rung.plan, ladder.file.compute) for rung in ladder.rungs), "", *_totals(ladder), *doubts])


def ladder_doubts(ladder: Ladder) -> list[str]:
    """What to mend before training, because a fit could not: too few budgets for the law, too few widths for a bowl; and what
    the recipe could not do as it would."""
    widths: dict[float, set[int]] = {}
    for rung in ladder.rungs:
        widths.setdefault(rung.plan.budget_flops, set()).add(rung.plan.shape.hidden_dim)
    file = ladder.file
    doubts = [
        f"{format_flops(rung.plan.budget_flops)} FLOPs at width {rung.plan.shape.hidden_dim}: {doubt}"
        for rung in ladder.rungs
        if rung.seed == file.seeds[0]
        for doubt in rung.plan.doubts
    ]
    doubts += [
        f"{format_flops(budget)} FLOPs has {len(found)} of the {_BOWL_WIDTHS} widths or more that show its best size"
        for budget, found in widths.items()
        if len(found) < _BOWL_WIDTHS
    ]
    if len(widths) < _LAW_BUDGETS:
        doubts.append(
            f"{len(widths)} budgets; the law has three unknowns, and an interval needs {_LAW_BUDGETS} budgets or more"
        )
    largest = max(widths)
    if file.target.budget_flops > FARTHEST_CHECKED * largest:
        doubts.append(
            f"the target is {file.target.budget_flops / largest:.3g}x the largest rung; "
            f"no forecast beyond {FARTHEST_CHECKED:.0f}x is known to be checked"
        )
    return doubts


_LAW_BUDGETS = 4  # one more than the law has unknowns, so that something is left to tell noise by
_BOWL_WIDTHS = 3  # a parabola has three unknowns
_COLUMNS = {
    "budget": 8,
    "width": 6,
    "layers": 6,
    "params": 7,
    "active": 7,
    "tokens": 7,
    "tok/par": 7,
    "batch": 5,
    "steps": 6,
    "lr": 8,
}
_HEAD = " ".join(f"{name:>{width}}" for name, width in {**_COLUMNS, "off by": 7, "memory": 7}.items())


def _row(plan: RungPlan, compute: Compute) -> str:
    return (
        f"{format_flops(plan.budget_flops):>8} {plan.shape.hidden_dim:>6} {plan.shape.num_layers:>6} "
        f"{format_count(plan.shape.params_total):>7} {format_count(plan.shape.params_active):>7} "
        f"{format_count(plan.trained_tokens):>7} "
        f"{plan.tokens_per_param:>7.1f} {plan.batch_size:>5} {plan.train_steps:>6} "
        f"{plan.hyperparameters.learning_rate:>8.4f} {plan.flops / plan.budget_flops - 1:>+7.2%} "
        f"{format_bytes(training_memory_bytes(plan, compute)):>7}"
    )


def _totals(ladder: Ladder) -> list[str]:
    file, hardware = ladder.file, ladder.file.hardware
    lines = [
        f"{len(ladder.rungs)} rungs, {format_flops(ladder.total_flops)} FLOPs together; "
        f"target {format_flops(file.target.budget_flops)} FLOPs, {ladder.extrapolation:.3g}x the largest rung.",
        f"Memory: of a step on one device {_said(file.compute)}; beside the program itself.",
    ]
    rate = hardware.sustained_flops_per_second
    if rate is not None:
        rungs, target = ladder.total_flops / rate, file.target.budget_flops / rate
        lines.append(
            f"At {format_flops(rate)} FLOP/s: {format_duration(rungs)} of training steps for the rungs, "
            f"{format_duration(target)} for the target."
        )
        if hardware.cost_per_hour is not None:
            price = hardware.cost_per_hour / 3600
            costs = f"{rungs * price:,.2f} for the rungs, {target * price:,.2f} for the target"
            lines.append(f"At {hardware.cost_per_hour:g} an hour: {costs}.")
    return lines


def _said(compute: Compute) -> str:
    parts = [f"in {compute.precision}", "layers recomputed" if compute.recompute else "nothing recomputed"]
    if compute.attention == "flash":
        parts.append("flash attention")
    if compute.sequences_at_a_time:
        parts.append(f"at most {compute.sequences_at_a_time} sequences at a time")
    return ", ".join(parts)


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)
