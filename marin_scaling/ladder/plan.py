"""Expand a ladder file into rungs and a target; the plan with costs and findings that `ladder --dry-run` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import Finding, LadderFileError, RecipeError, Severity, warning
from marin_scaling.ladder.config import ONE_AXIS, LadderFile, RungsAtBudget
from marin_scaling.ladder.fit_check import (
    RecordedRun,
    RunTime,
    Speed,
    check_fit,
    described,
    devices_words,
    speed_of,
    training_memory_bytes,
    uneven_findings,
    uneven_sizes,
)
from marin_scaling.laws import FARTHEST_CHECKED
from marin_scaling.printable import TABLE_WIDTH, joined, wrapped
from marin_scaling.recipe.base import Recipe, RungKey, RungPlan, with_trunk_of
from marin_scaling.recipe.find import find_recipe, usual_plan
from marin_scaling.units import counted, format_bytes, format_count, format_duration, format_flops

if TYPE_CHECKING:
    import pandas as pd


TARGET = "target"
"""Name of the target in `--only`, where a command has it."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One planned run and its seed."""

    plan: RungPlan
    seed: int

    @property
    def key(self) -> RungKey:
        """Name, seed, FLOPs, batch size and learning rate, which records of the run have."""
        return self.plan.rung_name, self.seed, self.plan.flops, self.plan.batch_size, self.plan.hyperparameters.learning_rate


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """A ladder file and its rungs, cheapest first."""

    file: LadderFile
    rungs: tuple[Rung, ...]
    recorded: tuple[RecordedRun, ...] = ()
    """Speeds of the ladder's recorded runs, of any settings."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row per rung: budget, width, layers, params, active params, tokens, batch size, steps, learning rate,
        FLOPs and seed.

        Also seconds, MFU and cost, as far as the speed is known, and `recorded`.
        """
        import pandas as pd

        return pd.DataFrame([_document(rung.plan) | {"seed": rung.seed} | self.progress(rung) for rung in self.rungs])

    @cached_property
    def speed(self) -> Speed:
        """Speed of the file's hardware, from recorded runs if there are any."""
        return speed_of(self.file, self.recorded)

    def time_of(self, rung: Rung) -> RunTime | None:
        """Return the time, MFU and cost of the steps that a rung trains itself: recorded or expected; None if unknown."""
        if taken := next((run for run in self.speed.recorded if run.rung == rung.key), None):
            return self.speed.time_taken(taken)
        whole = self.speed.time_of(rung.plan)
        return whole and whole.part(self.own_part(rung))

    def is_recorded(self, rung: Rung) -> bool:
        """Return True if a run with the rung's name, seed, FLOPs, batch size and learning rate is recorded."""
        return rung.key in self._recorded_rungs

    @cached_property
    def _recorded_rungs(self) -> set[RungKey]:
        return {run.rung for run in self.recorded}

    def progress(self, rung: Rung) -> dict[str, Any]:
        """Return by name whether a rung is recorded, and time, MFU and cost as far as they are known."""
        known = self.time_of(rung)
        return {"recorded": self.is_recorded(rung), **self.shared_cost(rung)} | ({} if known is None else known.document)

    @property
    def total_flops(self) -> float:
        """Sum of the FLOPs of all rungs, without the target; steps that rungs share count once."""
        return sum(self.own_flops(rung) for rung in self.rungs)

    @cached_property
    def seeds_of_rungs(self) -> list[list[Rung]]:
        """Runs that differ only in their seed, together."""
        found: dict[tuple[object, ...], list[Rung]] = {}
        for rung in self.rungs:
            name, _, *settings = rung.key
            found.setdefault((name, *settings), []).append(rung)
        return list(found.values())

    @property
    def is_sweep(self) -> bool:
        """True if rungs are trained at several learning rates or in several batch sizes."""
        return len({rung.plan.rung_name for rung in self.rungs}) < len(self.seeds_of_rungs)

    def own_flops(self, rung: Rung) -> float:
        """Return the FLOPs of the steps that a rung trains itself, after the trunk that it shares with shorter ones."""
        return rung.plan.flops * self.own_part(rung)

    def shared_cost(self, rung: Rung) -> dict[str, float]:
        """Return `own_flops` by name if the ladder shares trunks."""
        return {"own_flops": self.own_flops(rung)} if self.file.shared_trunk else {}

    def own_part(self, rung: Rung) -> float:
        """Return the share of its steps that a rung trains itself."""
        return 1 - self._shared_steps(rung) / rung.plan.train_steps

    def _shared_steps(self, rung: Rung) -> int:
        shorter = [
            other.plan.steps_before_decay
            for other in self.rungs
            if other.seed == rung.seed
            and other.plan.shape == rung.plan.shape
            and other.plan.budget_flops < rung.plan.budget_flops
        ]
        return max(shorter, default=0) if self.file.shared_trunk else 0

    @property
    def extrapolation(self) -> float:
        """Ratio of the target's budget to the largest rung's."""
        return self.file.target.budget_flops / max(rung.plan.budget_flops for rung in self.rungs)


def _document(plan: RungPlan) -> dict[str, Any]:
    shape = plan.shape
    return {
        "budget_flops": plan.budget_flops,
        "hidden_dim": shape.hidden_dim,
        "num_layers": shape.num_layers,
        "params": shape.params_total,
        "active_params": shape.params_active,
        "tokens": plan.trained_tokens,
        "batch_size": plan.batch_size,
        "train_steps": plan.train_steps,
        "learning_rate": plan.hyperparameters.learning_rate,
        "flops": plan.flops,
    }


def plan_ladder(file: LadderFile) -> Ladder:
    """Expand a ladder file with its recipe; `RecipeError` if a rung cannot be made."""
    recipe = find_recipe(file.recipe)
    plans = _plans(file, recipe)
    if file.shared_trunk:
        plans = _with_trunks(plans)
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


def _with_trunks(plans: Sequence[RungPlan]) -> list[RungPlan]:
    """Return the plans, those of each width with one trunk; `RecipeError` if a budget has too few steps in its batches."""
    widths = sorted({plan.shape.hidden_dim for plan in plans})
    alike = ([plan for plan in plans if plan.shape.hidden_dim == width] for width in widths)
    return [plan for each in alike for plan in with_trunk_of(each)]


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
            f"the recipe {recipe.name!r} has {counted(len(sensible), 'sensible width')} at {format_flops(at.budget_flops)} "
            f"FLOPs; {wanted} are wanted.",
            fix="Choose another budget, lower sizes, or list hidden_dims.",
        )
    last = max(wanted - 1, 1)
    return [sensible[round(place * (len(sensible) - 1) / last)] for place in range(wanted)]


def plan_target(
    file: LadderFile,
    *,
    compute_optimal_params: float,
    params_interval: tuple[float, float] | None = None,
    tokens_at_most: float = math.inf,
) -> RungPlan:
    """Plan the target at the width whose active parameters are nearest to the compute-optimal number, by ratio.

    If its run needs more than `tokens_at_most`, take the nearest width in `params_interval` that does not, if there is one.
    """
    recipe, target = find_recipe(file.recipe), file.target
    plan = partial(plan_at, recipe, budget_flops=target.budget_flops, batch_size=target.batch_size)
    nearest, (low, high) = plan(params=compute_optimal_params), params_interval or (math.inf, 0.0)
    if nearest.trained_tokens <= tokens_at_most:
        return nearest
    sizes = [size for width in recipe.widths() if low <= (size := recipe.shape(width).params_active) <= high]
    for size in sorted(sizes, key=lambda size: _ratio(size, compute_optimal_params)):
        with suppress(RecipeError):
            if (other := plan(params=size)).trained_tokens <= tokens_at_most:
                return other
    return nearest


def plan_at(recipe: Recipe, *, budget_flops: float, params: float, batch_size: int | None = None) -> RungPlan:
    """Return the run of a budget at the width whose count of active parameters is nearest to `params` (in ratio)."""
    width = min(recipe.widths(), key=lambda width: _ratio(recipe.shape(width).params_active, params))
    return recipe.plan(budget_flops=budget_flops, hidden_dim=width, batch_size=batch_size)


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)


LAW_BUDGETS = 4  # one more than a frontier's parameters, to estimate the noise
_BOWL_WIDTHS = 3  # a parabola has three unknowns
_NAMED = 3  # rungs that a warning lists


def plan_findings(ladder: Ladder) -> list[Finding]:
    """Return what to look at before training: few budgets or widths, a far target, and rungs at the edge of the recipe."""
    plans = [rung.plan for rung in ladder.rungs if rung.seed == ladder.file.seeds[0]]
    widths = _widths_by_budget(plans)
    found = [*_too_large(ladder, plans), *_little_shared(ladder), *_of_the_recipe(ladder.file.recipe, plans)]
    if ladder.is_sweep:
        return [finding for finding in found if finding.where != TARGET]
    return [*found, *_at_the_edge(ladder.file.recipe, widths), *_too_few(widths), *_too_far(ladder)]


def forbids_training(finding: Finding) -> bool:
    """Return True for a finding with which `ladder --dry-run` fails: text or memory that does not suffice."""
    if finding.code == "memory":
        return finding.where != TARGET  # a target can be trained on other devices; its rungs' text cannot be changed
    return finding.severity is Severity.ERROR or finding.code in ("unusable-data", "too-little-text")


def require_fitting(ladder: Ladder) -> None:
    """Raise `LadderFileError` if a rung does not fit on its devices, or into their memory."""
    found = tuple(f"{each.where}: {each.message}." for each in plan_findings(ladder) if each.severity is Severity.ERROR)
    if found:
        raise LadderFileError(
            found,
            why="The runs would fail when they begin.",
            fix=f"Change the ladder file, and look: marin-scale ladder ladders/{ladder.file.name}.yaml --dry-run",
        )


def expected_target(ladder: Ladder) -> RungPlan:
    """Return the target at the size that `recipe show` takes for its budget; the fit chooses the final one."""
    target = ladder.file.target
    try:
        return usual_plan(find_recipe(ladder.file.recipe), budget_flops=target.budget_flops, batch_size=target.batch_size)
    except RecipeError:  # no width is sensible there, and `_require_target` has found one that is possible
        return plan_target(ladder.file, compute_optimal_params=max(rung.plan.shape.params_active for rung in ladder.rungs))


def _too_large(ladder: Ladder, plans: Sequence[RungPlan]) -> Iterator[Finding]:
    """Yield what does not fit on the devices, or into their memory: the rungs, and the target."""
    compute, hardware = ladder.file.compute, ladder.file.hardware
    yield from uneven_findings(plans, hardware.per_run)
    if hardware.per_run.mesh != ONE_AXIS:
        uneven = uneven_sizes(expected_target(ladder), hardware.per_run.mesh, devices=hardware.per_run.devices)
        yield from (warning(kind.code, "target", kind.sentence([size])) for kind, size in uneven)
    if hardware.chip is None:
        if version := hardware.per_run.tpu_slice and hardware.per_run.tpu_slice.version:
            yield warning("accelerator", "hardware", f"{version} is not a known TPU, so nothing is compared with its memory")
        return
    found = check_fit(plans, compute, hardware)
    if not found.fits:
        severity = Severity.ERROR if found.is_certain else Severity.WARNING
        places = _listed(plan.rung_name for plan in found.too_large)
        yield Finding(severity=severity, code="memory", where=places, message=f"by estimate {found.sentence}")
    target = check_fit([expected_target(ladder)], compute, hardware)
    if not target.fits:
        yield warning("memory", "target", f"by estimate {target.sentence}")


_LEAST_SHARED = 0.05
"""Share of the FLOPs below which a shared trunk is hardly worth its equal settings."""


def _little_shared(ladder: Ladder) -> Iterator[Finding]:
    saved = 1 - ladder.total_flops / sum(rung.plan.flops for rung in ladder.rungs)
    if ladder.file.shared_trunk and saved < _LEAST_SHARED:
        decay = max(rung.plan.schedule.decay_fraction for rung in ladder.rungs)
        why = f"only widths with several budgets share steps, and the recipe decays over {decay:.0%} of a run"
        yield warning("shared-trunk", "shared_trunk", f"saves {saved:.0%} of the FLOPs: {why}")


def _of_the_recipe(name: str, plans: Sequence[RungPlan]) -> Iterator[Finding]:
    """Yield the recipe's warnings about single runs, each sentence once, and the rungs that it would not choose."""
    found: dict[str, list[RungPlan]] = {}
    for plan in plans:
        for doubt in plan.doubts:
            found.setdefault(doubt, []).append(plan)
    yield from (warning("recipe", _listed(plan.rung_name for plan in which), doubt) for doubt, which in found.items())
    recipe = find_recipe(name)
    if outside := [plan for plan in plans if plan.shape.hidden_dim not in recipe.widths_at(plan.budget_flops)]:
        ratios = _listed(f"{float(f'{plan.tokens_per_param:.3g}'):g}" for plan in outside)
        message = f"{ratios} tokens per parameter, outside the range in which the recipe itself chooses runs"
        yield warning("unusual-width", _listed(plan.rung_name for plan in outside), message)


def _at_the_edge(name: str, widths: dict[float, dict[int, RungPlan]]) -> Iterator[Finding]:
    """Yield budgets whose bowl cannot be widened."""
    recipe = find_recipe(name)
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
    if len(widths) < LAW_BUDGETS:
        few = counted(len(widths), "budget")
        yield warning("few-budgets", "rungs", f"only {few}; a forecast interval needs at least {LAW_BUDGETS} budgets")


def _too_far(ladder: Ladder) -> Iterator[Finding]:
    if ladder.extrapolation > FARTHEST_CHECKED:
        far = f"{_times_as_large(ladder)} the largest rung"
        yield warning("far-target", "target", f"{far}; no forecast beyond {FARTHEST_CHECKED:.0f}x has been checked publicly")


def _times_as_large(ladder: Ladder) -> str:
    factor = ladder.extrapolation
    return f"{factor:.3g}x" if factor < 1e3 else f"{format_flops(factor)}x"


def _widths_by_budget(plans: Sequence[RungPlan]) -> dict[float, dict[int, RungPlan]]:
    found: dict[float, dict[int, RungPlan]] = {}
    for plan in plans:
        found.setdefault(plan.budget_flops, {})[plan.shape.hidden_dim] = plan
    return found


def _listed(names: Iterable[str]) -> str:
    return joined(dict.fromkeys(names), most=_NAMED)


_OFF = 0.01
"""Relative difference of a rung's FLOPs from its budget above which the table has a column for it."""


def ladder_table(ladder: Ladder) -> str:
    """Format the rungs as a table, one line each with all its seeds, with totals and warnings.

    Columns: budget in FLOPs, width, layers, parameters, tokens, tokens per active parameter (D/N), batch size in sequences,
    steps, matrix learning rate and seeds. A mixture of experts adds its active parameters. With speed and cost of the hardware
    in the file, the columns also have the time and cost of all seeds on all of it. Accelerators give a lower bound and an MFU.
    Columns that do not fit a terminal are left out, first the learning rate (of a sweep the layers), then the steps.
    """
    rows = [_cells(runs, ladder) for runs in ladder.seeds_of_rungs]
    columns = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    for name in ("layers" if ladder.is_sweep else "lr", "steps", "max. MFU", "MFU"):
        if sum(columns.values()) + len(columns) > TABLE_WIDTH + 1:
            columns.pop(name, None)
    gap = "  " if sum(columns.values()) + 2 * len(columns) <= TABLE_WIDTH else " "
    lines = [gap.join(f"{row[name]:>{width}}" for name, width in columns.items()) for row in ({n: n for n in rows[0]}, *rows)]
    return "\n".join([*lines, "", *map(wrapped, _totals(ladder)), *(wrapped(each.line) for each in plan_findings(ladder))])


def ladder_document(ladder: Ladder) -> dict[str, Any]:
    """Return the rungs, totals and warnings of a ladder as JSON."""
    file, plan = ladder.file, expected_target(ladder)
    of_target, of_rungs, left = ladder.speed.time_alone(plan), _total(ladder, ladder.rungs), time_left(ladder)

    def sized(plan: RungPlan) -> dict[str, Any]:
        return _document(plan) | {"memory_bytes": _memory(plan, file)}

    target = {
        "budget_flops": file.target.budget_flops,
        "extrapolation": ladder.extrapolation,
        "expected": sized(plan) | (of_target.document if of_target else {}),
    }
    return {
        "name": file.name,
        "recipe": file.recipe,
        "rungs": [sized(rung.plan) | {"seed": rung.seed} | ladder.progress(rung) for rung in ladder.rungs],
        "total": {"flops": ladder.total_flops, **(of_rungs.document if of_rungs else {})},
        **({"left": {**left.document, "ends_at": _end(left).isoformat(timespec="minutes")}} if left and left.seconds else {}),
        **({} if ladder.is_sweep else {"target": target}),
        "findings": [vars(finding) for finding in plan_findings(ladder)],
    }


def _cells(runs: Sequence[Rung], ladder: Ladder) -> dict[str, str]:
    plan, of_first, together = runs[0].plan, ladder.time_of(runs[0]), _total(ladder, runs)
    plans = [rung.plan for rung in ladder.rungs]
    is_sparse = any(each.shape.params_active != each.shape.params_total for each in plans)
    is_off = any(abs(each.flops / each.budget_flops - 1) > _OFF for each in plans)
    return {
        "budget": format_flops(plan.budget_flops),
        "width": str(plan.shape.hidden_dim),
        "layers": str(plan.shape.num_layers),
        "params": format_count(plan.shape.params_total),
        **({"active": format_count(plan.shape.params_active)} if is_sparse else {}),
        "tokens": format_count(plan.trained_tokens),
        "D/N": f"{plan.tokens_per_param:.1f}" if plan.tokens_per_param < 1e4 else format_count(plan.tokens_per_param),
        "batch": str(plan.batch_size),
        "steps": str(plan.train_steps),
        "lr": f"{plan.hyperparameters.learning_rate:.4f}",
        **({"off by": f"{plan.flops / plan.budget_flops - 1:+.1%}"} if is_off else {}),
        **({"seeds": ",".join(str(run.seed) for run in runs)} if len(ladder.file.seeds) > 1 else {}),
        **({**of_first.cells, **together.cells} if of_first and together else {}),
    }


def _memory(plan: RungPlan, file: LadderFile) -> float:
    is_accelerator, per_run = file.hardware.chip is not None, file.hardware.per_run
    return training_memory_bytes(plan, file.compute, devices=per_run.devices, mesh=per_run.mesh, overwrites=is_accelerator)


def _total(ladder: Ladder, rungs: Sequence[Rung]) -> RunTime | None:
    """Return the time and cost of these rungs together; None if no speed is known."""
    times = [known for rung in rungs if (known := ladder.time_of(rung))]
    return ladder.speed.timed(sum(each.seconds for each in times), times[0].basis) if times else None


def time_left(ladder: Ladder, *, done: Mapping[RungKey, float] | None = None) -> RunTime | None:
    """Return the time until all rungs are recorded, at the speed of those that are; None if no speed was recorded.

    `done` has the shares of their steps that begun rungs trained. The longest rung takes its own
    time, however many train side by side.
    """
    speed, shares = ladder.speed, done or {}
    if not speed.recorded:
        return None
    times = [
        known.seconds * ladder.own_part(rung) * (1 - shares.get(rung.key, 0.0))
        for rung in ladder.rungs
        if not ladder.is_recorded(rung) and (known := speed.time_alone(rung.plan))
    ]
    return speed.timed(max([sum(times) / speed.at_a_time, *times]), "recorded")


def _end(left: RunTime) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=left.seconds + 59)  # shown in whole minutes


def _totals(ladder: Ladder) -> list[str]:
    file = ladder.file
    most = max(_memory(rung.plan, file) for rung in ladder.rungs)
    lines = [
        _counts(ladder),
        f"Memory of a step: at most {format_bytes(most)} on {devices_words(file.hardware.per_run)} "
        f"{described(file.compute)}, without the program itself.",
    ]
    if file.shared_trunk:
        lines.append(_about_trunks(ladder))
    if file.hardware.chip is not None and not ladder.is_sweep:
        lines.append(_on_chips(ladder))
    return [*lines, *_times(ladder)]


def _counts(ladder: Ladder) -> str:
    """Return a sentence on the number of runs and their FLOPs; of a sweep, also the command that reads it."""
    file, runs, rungs = ladder.file, len(ladder.rungs), ladder.seeds_of_rungs
    flops = f"{format_flops(ladder.total_flops)} FLOPs together"
    if ladder.is_sweep:
        swept = counted(len({each.plan.rung_name for each in ladder.rungs}), "rung")
        return f"Sweep of {swept}: {len(rungs)} settings, {runs} runs, {flops}. Then: marin-scale tune runs/{file.name}"
    seeds = f" with {counted(len(file.seeds), 'seed')} each, {runs} runs" if len(file.seeds) > 1 else ""
    target = f"target {format_flops(file.target.budget_flops)} FLOPs, {_times_as_large(ladder)} the largest rung."
    return f"{counted(len(rungs), 'rung')}{seeds}, {flops}; {target}"


def _times(ladder: Ladder) -> Iterator[str]:
    """Yield the time and cost of rungs and target, as far as the speed is known."""
    speed, hardware, plan = ladder.speed, ladder.file.hardware, expected_target(ladder)
    of_target, of_rungs, left = speed.time_alone(plan), _total(ladder, ladder.rungs), time_left(ladder)
    if of_target is None or of_rungs is None:
        none = "no rung was recorded without an interruption" if ladder.recorded else "no rung is recorded"
        yield f"Time is not known: {none}, and the file has no sustained_flops_per_second or accelerator."
        return
    rungs, target = format_duration(of_rungs.seconds), f", {format_duration(of_target.seconds)} for the target"
    target = "" if ladder.is_sweep else target
    if left is not None:
        rate = format_flops(speed.flops_per_second(plan.shape.params_active))
        yield f"{_as_recorded(ladder, left)}{target and f';{target[1:]} at {rate} FLOP/s'}."
    elif of_target.basis == "file":
        rate = format_flops(hardware.sustained_flops_per_second or 0.0)
        yield f"At {rate} FLOP/s: {rungs} of training steps for the rungs{target}."
    elif hardware.chip is not None:
        together = "one by one" if speed.at_a_time == 1 else f"{speed.at_a_time:g} at a time"
        yield (
            f"On {hardware.per_run.devices} {hardware.chip.kind} at peak speed and memory bandwidth: at least {rungs} for the "
            f"rungs {together}{target and f'{target} (MFU at most {of_target.mfu:.0%})'}."
        )
    if hardware.cost_per_hour is not None:
        least = "at least " if of_target.basis == "peak" else ""
        of_left = f", {left.cost:,.2f} of it left" if left else ""
        price = "" if ladder.is_sweep else f", {of_target.cost:,.2f} for the target"
        yield f"At {hardware.cost_per_hour:g} an hour: {least}{of_rungs.cost:,.2f} for the rungs{of_left}{price}."


def _as_recorded(ladder: Ladder, left: RunTime) -> str:
    speed, missing = ladder.speed, sum(not ladder.is_recorded(rung) for rung in ladder.rungs)
    low, high = map(format_flops, speed.recorded_range())
    mfu = [run.mfu for run in map(speed.time_taken, speed.recorded) if run.mfu is not None]
    reached = f" (MFU {min(mfu):.0%} to {max(mfu):.0%})" if mfu else ""
    others = len(ladder.recorded) - len(speed.recorded)
    without = f", without {others} that were interrupted or on other devices" if others else ""
    until = f"{format_duration(left.seconds)} left for {counted(missing, 'run')}, until {_end(left):%Y-%m-%d %H:%M} UTC"
    return (
        f"At the speed of {counted(len(speed.recorded), 'recorded run')}{without}, {low} to {high} FLOP/s each{reached}, "
        f"{speed.at_a_time:.1f} at a time: {until if missing else 'no run is left'}"
    )


def _about_trunks(ladder: Ladder) -> str:
    apart = sum(rung.plan.flops for rung in ladder.rungs)
    return (
        f"Shared trunks: {format_flops(apart)} FLOPs if each rung began anew, {1 - ladder.total_flops / apart:.0%} saved. "
        "Batch and rates are those of each width's largest budget."
    )


def _on_chips(ladder: Ladder) -> str:
    """Return a sentence about the target's size and memory."""
    file, plan = ladder.file, expected_target(ladder)
    shape = plan.shape
    return (
        f"Target, at the usual size of its budget: width {shape.hidden_dim}, {shape.num_layers} layers, "
        f"{format_count(shape.params_total)} parameters, {format_count(plan.trained_tokens)} tokens, batch {plan.batch_size}, "
        f"{plan.train_steps} steps, {format_bytes(_memory(plan, file))} on {devices_words(file.hardware.per_run)}."
    )
