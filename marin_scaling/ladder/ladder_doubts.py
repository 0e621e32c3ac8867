"""What to mend in a planned ladder before it is trained, because no fit could afterwards: sentences, none where all is well.

Looks at the plan alone; what the text allows is in `run.plan_specs`.
"""

from __future__ import annotations

from collections.abc import Sequence

from marin_scaling.ladder.ladder import Ladder
from marin_scaling.laws import FARTHEST_CHECKED
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.run_plan import RungPlan
from marin_scaling.units import counted, format_flops

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
