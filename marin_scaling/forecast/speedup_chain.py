"""Speedup chain: every recipe against the one before it and against the first, in model FLOPs and in wall-clock time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_scaling import __version__
from marin_scaling.errors import FitRefused, MarinScalingError, RunTableError, UsageError
from marin_scaling.fitting.fit import FitResult, best_of_cells
from marin_scaling.fitting.frontier import FrontierLaws, FrontierOfBudgets
from marin_scaling.fitting.law import refuse_contradictions
from marin_scaling.forecast.speedup import (
    COLUMNS_HEAD,
    CONVENTIONS,
    columns_of,
    counted_alike,
    document_of,
    same_runs,
    table_document,
    texts_of,
    together,
    warnings_of,
)
from marin_scaling.forecast.speedup_conventions import (
    DRAWS,
    LAW_DRAWS,
    MARIN_ALPHA,
    MARIN_E,
    MARIN_METRIC,
    SEED_FREEDOM,
    SPEEDS,
    MeasuredLoss,
    Scatter,
    Speedup,
    drawn_laws,
    fit_baseline,
    generator_of,
    log_speedups,
    measure,
    needed_flops,
    partner,
    pooled,
    seed_variance,
    speedups,
)
from marin_scaling.laws import Array, frontier_loss
from marin_scaling.printable import joined, wrapped
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, WITHOUT_LM_HEAD
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.table import BUDGET_SPAN, RunTable
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd


Named = tuple[str, "RunTable"]
"""Name and runs of a recipe."""

Cost = tuple[float, Array]
"""Ln of the FLOPs or seconds that a recipe needs: estimate and draws (draw,)."""

UNITS = {"model_flops": "model FLOPs", "wall_clock": "wall-clock time"}
_FARTHEST = 30 * math.log(10.0)
"""Largest distance of needed FLOPs from a table's budgets, in ln FLOPs; also that of a law that never reaches the loss."""


@dataclass(frozen=True, kw_only=True)
class ChainStage:
    """Speedup of `variant` over `baseline`: of one stage, or of all stages up to `variant`; None in a unit that is missing."""

    baseline: str
    variant: str
    model_flops: Speedup | None
    wall_clock: Speedup | None

    @property
    def name(self) -> str:
        """Both names, as in "dense -> moe"."""
        return f"{self.baseline} -> {self.variant}"


@dataclass(frozen=True, kw_only=True)
class ChainRecipe:
    """Recipe of a chain. `flops` are those that it needs for the chain's loss, by its own count; None if no FLOPs suffice."""

    name: str
    table: RunTable
    excluded: tuple[Exclusion, ...]
    flops: float | None
    noise: str
    status: str


@dataclass(frozen=True, kw_only=True, repr=False)
class SpeedupChain:
    """Chain of recipes; `str(chain)` is the text of `marin-scale speedup A B C`.

    All recipes are compared at one `loss` (None under the pinned convention, whose ratios do not depend on it). `stages` has
    each recipe against the one before, `cumulative` each against the first. `flops_note` and `time_note` tell how FLOPs and
    time were measured, or why they are missing.
    """

    convention: str
    metric: str
    recipes: tuple[ChainRecipe, ...]
    loss: float | None
    compared_at: str
    stages: tuple[ChainStage, ...]
    cumulative: tuple[ChainStage, ...]
    flops_note: str
    time_note: str
    warnings: tuple[str, ...]
    seed: int

    @property
    def notes(self) -> dict[str, str]:
        """Note of each unit."""
        return {"model_flops": self.flops_note, "wall_clock": self.time_note}

    @property
    def frame(self) -> pd.DataFrame:
        """One row per stage, cumulative speedup and unit: speedup, 90 % interval (q05, q95), p-value and both verdicts."""
        import pandas as pd

        return pd.DataFrame([row for unit in UNITS for row in self._rows(unit)])

    def _rows(self, unit: str) -> Iterator[dict[str, Any]]:
        for kind, family in (("stage", self.stages), ("cumulative", self.cumulative)):
            for stage in family:
                each: Speedup | None = getattr(stage, unit)
                if each is not None:
                    yield {
                        "kind": kind,
                        "baseline": stage.baseline,
                        "variant": stage.variant,
                        "unit": unit,
                        "speedup": math.nan if each.value is None else each.value,
                        "q05": each.interval[0],
                        "q95": math.inf if each.interval[1] is None else each.interval[1],
                        "p_value": each.p_value,
                        "verdict": each.verdict.value,
                        "verdict_after_holm": each.verdict_after_holm.value,
                    }

    def __str__(self) -> str:
        return chain_text(self)

    def __repr__(self) -> str:
        return f"SpeedupChain({' -> '.join(each.name for each in self.recipes)})"


def chain_of_tables(
    tables: Sequence[Named],
    *,
    convention: str = "own",
    at_flops: float | None = None,
    seed: int = 0,
    allow: Collection[str] = (),
) -> SpeedupChain:
    """Return the speedups of a chain of recipes, given by name and runs, the first one the baseline.

    Each recipe's own law, fitted once, gives the FLOPs that it needs for a common loss: the loss of the first recipe at
    `at_flops`, or the lowest loss that every law reaches within its budgets. Ratios of these FLOPs, or of the time that they
    take, are the speedups, so that stages multiply to the cumulative speedup. A table has the same draws wherever it occurs,
    and tables with equal budgets share the draws of these, so that intervals are joint. The draws include the noise of runs
    and lack of fit: the scatter of budgets about the law, beyond the noise. Lack of fit is one share of the loss for all
    recipes, with a half-Cauchy prior (Gelman 2006).

    Time needs a column `tokens_per_second`, or `mfu`, in every table. It does not depend on the FLOP convention. FLOPs with
    and without the output head are compared with it, if those without have a column `lm_head_flops`.

    `UsageError` for one table, equal names, an unknown convention, or `at_flops` at no common budget of the pinned convention.
    `RunTableError` with all problems of tables that measure different things or share neither FLOPs nor time. `FitRefused` with
    every table that determines no law.

    >>> from dataclasses import replace
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> ladder = simulate_ladder(law, budgets_flops=[1e18, 3e18, 1e19, 3e19], sizes_per_budget=5, noise=0.0, seed=0)
    >>> cheaper = replace(ladder, frame=ladder.frame.assign(flops=ladder.frame["flops"] / 2))
    >>> chain = chain_of_tables([("a", ladder), ("b", cheaper), ("c", cheaper)], allow=["flop-count"])
    >>> [f"{stage.name} {stage.model_flops.value:.2f}" for stage in (*chain.stages, *chain.cumulative)]
    ['a -> b 2.00', 'b -> c 1.00', 'a -> b 2.00', 'a -> c 2.00']
    """
    warnings = _require_chain(tables, convention)
    reached, compared_at, loss = (
        _by_own_laws(tables, at_flops=at_flops, seed=seed)
        if convention == "own"
        else _by_pinned_law(tables, at_flops=at_flops, seed=seed)
    )
    in_flops, flops_note, counted = _costs_in_flops(reached, allowed="flop-count" in allow)
    in_time, time_note = _costs_in_time(reached)
    if in_flops is None and in_time is None:
        raise RunTableError(
            (f"model FLOPs: {flops_note}", f"wall-clock time: {time_note}"),
            fix="Give every table a column tokens_per_second or mfu, or count FLOPs alike"
            + ("." if _DIFFERENT in flops_note else "; as they are: --allow flop-count"),
        )
    families = {"model_flops": _family(in_flops), "wall_clock": _family(in_time)}
    names = [name for name, _ in tables]
    stages = list(itertools.pairwise(names))
    totals = [(names[0], after) for after in names[1:]]
    return SpeedupChain(
        convention=convention,
        metric=next(iter({table.metric for _, table in tables} - {"loss"}), "loss"),
        recipes=tuple(each.recipe for each in reached),
        loss=loss,
        compared_at=compared_at,
        stages=_stages(stages, {unit: of_unit[: len(stages)] for unit, of_unit in families.items()}),
        cumulative=_stages(totals, {unit: of_unit[:1] + of_unit[len(stages) :] for unit, of_unit in families.items()}),
        flops_note=flops_note,
        time_note=time_note,
        warnings=tuple(dict.fromkeys((*warnings, *counted, *(said for each in reached for said in each.warnings)))),
        seed=seed,
    )


def _stages(pairs: Sequence[tuple[str, str]], families: dict[str, list[Speedup]]) -> tuple[ChainStage, ...]:
    found: dict[str, Sequence[Speedup | None]] = {unit: family or [None] * len(pairs) for unit, family in families.items()}
    return tuple(
        ChainStage(baseline=before, variant=after, **{unit: family[n] for unit, family in found.items()})
        for n, (before, after) in enumerate(pairs)
    )


def names_of(tables: Sequence[RunTable]) -> list[str]:
    """Return a name for each table, from its file or folder; equal names are numbered.

    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> names_of([simulate_ladder(law, budgets_flops=[1e18], sizes_per_budget=3, noise=0.0, seed=0)] * 2)
    ['simulated (seed 0)', 'simulated (seed 0) (2)']
    """
    paths = [PurePath(table.source) for table in tables]
    plain = [path.parent.name if path.name == "runs.csv" else path.stem for path in paths]
    return [f"{name} ({before + 1})" if (before := plain[:n].count(name)) else name for n, name in enumerate(plain)]


def _require_chain(tables: Sequence[Named], convention: str) -> tuple[str, ...]:
    """Return warnings about tables; raise one error with all problems if they do not measure the same."""
    if convention not in CONVENTIONS:
        raise UsageError(f"Unknown convention {convention!r}.", fix=f"Choose: {', '.join(CONVENTIONS)}.")
    names = [name for name, _ in tables]
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(
            f"A chain has two or more recipes, each with its own name; these are {joined(names)}.",
            fix="Name the tables: marin-scale speedup dense=runs/a moe=runs/b muon=runs/c",
        )
    problems = [*_unusable(tables), *_differences(tables)]
    if convention == "marin":
        problems += [
            f"{name} holds {table.metric}; Marin's convention is of {MARIN_METRIC}"
            for name, table in tables
            if table.metric not in ("loss", MARIN_METRIC)
        ]
    if problems:
        raise RunTableError(
            tuple(f"{each}." for each in problems),
            why="Every stage of a chain compares losses of one metric on one held-out text.",
            fix="Evaluate all runs alike; if a column holds the loss under another name: --column loss=NAME",
        )
    unnamed = [name for name, table in tables if table.metric == "loss"]
    open_metric = [f"the metric of {joined(unnamed)} is not named; all recipes are assumed to have the same"] if unnamed else []
    return (*open_metric, *(each for (_, a), (_, b) in itertools.combinations(tables, 2) for each in same_runs(a, b)))


def _unusable(tables: Sequence[Named]) -> Iterator[str]:
    for name, table in tables:
        if table.frame.empty:
            yield f"{name}: {table.source} has no usable runs"
            continue
        try:
            refuse_contradictions(table)
        except MarinScalingError as error:
            yield from (f"{name}: {line.rstrip('.')}" for line in error.lines)


def _differences(tables: Sequence[Named]) -> Iterator[str]:
    for what, values in (
        ("metrics", [{table.metric} - {"loss"} for _, table in tables]),
        ("evaluations (held-out text and protocol)", [texts_of(table, "evaluation") for _, table in tables]),
    ):
        if len(set().union(*values)) > 1:
            held = ", ".join(
                f"{name} has {' and '.join(sorted(found))}" for (name, _), found in zip(tables, values, strict=True) if found
            )
            yield f"the recipes differ in their {what}: {held}"


@dataclass(frozen=True, kw_only=True)
class _Reached:
    """Recipe with the ln FLOPs that it needs for the loss, estimate and draws; `places` are where to look up its speed."""

    recipe: ChainRecipe
    points: Sequence[MeasuredLoss]
    log_flops: float
    draws: Array
    places: tuple[float, Array]
    warnings: tuple[str, ...]

    def costing(self, attribute: str, log_factor: Callable[[Array], Array]) -> Cost | None:
        """Return the cost per FLOP by a measured number times the FLOPs; None if no budget has this number.

        The ln of a FLOP's cost is `log_factor` of the number, which is interpolated between budgets as a power of the FLOPs.
        """
        known = [
            (math.log(each.flops), math.log(value)) for each in self.points if (value := getattr(each, attribute)) is not None
        ]
        if not known:
            return None
        places, values = np.array(known).T
        of_estimate, of_draws = (log_factor(np.exp(np.interp(at, places, values))) for at in self.places)
        return self.log_flops + float(of_estimate), self.draws + of_draws


def _by_own_laws(tables: Sequence[Named], *, at_flops: float | None, seed: int) -> tuple[list[_Reached], str, float]:
    results = _fits(tables)
    laws = [result.law for result in results if isinstance(result.law, FrontierOfBudgets)]  # all, as `fit_baseline` ensures
    ends = [float(frontier_loss(law.frontier, flops=float(law.drawn.column("flops").max()))) for law in laws]
    loss = max(ends) if at_flops is None else float(frontier_loss(laws[0].frontier, flops=at_flops))
    compared_at = (
        f"a loss of {loss:.4f}, the lowest that every law reaches within its budgets"
        if at_flops is None
        else f"a loss of {loss:.4f}, which {tables[0][0]} reaches with {format_flops(at_flops)} FLOPs by its own count"
    )
    found = zip(tables, results, laws, drawn_laws(laws, seed=seed), strict=True)
    return (
        [_reach(name, table, result, law, drawn, loss=loss) for (name, table), result, law, drawn in found],
        compared_at,
        loss,
    )


def _fits(tables: Sequence[Named]) -> list[FitResult]:
    """Fit every table; raise one `FitRefused` that names all tables without a law."""
    results, refused = [], []
    for name, table in tables:
        try:
            results.append(fit_baseline(table))
        except FitRefused as error:
            refused += [f"{name}: {line}" for line in error.lines]
    if refused:
        raise FitRefused(
            tuple(refused),
            why="Each recipe of a chain needs a law of its own.",
            fix="Give each recipe runs at four or more budgets, or compare at one budget with a pinned law: --convention marin",
        )
    return results


def _reach(
    name: str, table: RunTable, result: FitResult, law: FrontierOfBudgets, drawn: FrontierLaws, *, loss: float
) -> _Reached:
    budgets = np.log(law.drawn.column("flops"))
    low, high = float(budgets.min()), float(budgets.max())
    needed = needed_flops(law.frontier, loss=loss)
    log_flops = high + _FARTHEST if needed is None else math.log(needed)
    draws = log_speedups(drawn, np.full(LAW_DRAWS, loss), flops=1.0)
    draws = np.clip(draws, low - _FARTHEST, high + _FARTHEST)
    return _Reached(
        recipe=ChainRecipe(
            name=name,
            table=table,
            excluded=result.excluded,
            flops=needed,
            noise=_noise_text(law),
            status=result.status.value,
        ),
        points=measure(best_of_cells(table.frame, sweep=table.sweep)[0]),
        log_flops=log_flops,
        draws=draws,
        places=(log_flops, draws),
        warnings=(*_beyond(name, log_flops, low, high), *(f"{name}: {each}" for each in result.warnings)),
    )


def _beyond(name: str, log_flops: float, low: float, high: float) -> Iterator[str]:
    reach = math.exp(max(low - log_flops, log_flops - high, 0.0))
    if reach > BUDGET_SPAN:
        yield f"{name}: its law is extrapolated {reach:.3g}x beyond its budgets"


def _noise_text(law: FrontierOfBudgets) -> str:
    noise, loss = law.noise, float(law.drawn.column("loss").min())
    runs = f"runs scatter by {math.sqrt(noise.run_variance) / loss:.2%} of the loss"
    own = f"its own lack of fit is {math.sqrt(noise.budget_variance) / loss:.2%}"
    return f"{runs} ({noise.run_freedom} degrees of freedom), {own}"


def _by_pinned_law(tables: Sequence[Named], *, at_flops: float | None, seed: int) -> tuple[list[_Reached], str, None]:
    """Compare at one budget with laws of Marin's constants; their ratios at a loss are the same for every loss."""
    measured = [measure(best_of_cells(table.frame, sweep=table.sweep)[0]) for _, table in tables]
    chosen = _common_budget(tables, measured, at_flops)
    low = min(point.loss for point in chosen)
    if low <= MARIN_E:
        raise FitRefused(
            f"The loss of {low:g} is not above the pinned asymptote of {MARIN_E}.",
            fix="Use each recipe's own law: --convention own",
        )
    everything = [point for points in measured for point in points]
    reached = [
        _reach_by_pinned_law(name, table, point, pooled(points, everything), seed=seed)
        for (name, table), points, point in zip(tables, measured, chosen, strict=True)
    ]
    return reached, f"the budget of {format_flops(chosen[0].flops)} FLOPs", None


def _reach_by_pinned_law(name: str, table: RunTable, point: MeasuredLoss, seen: Scatter | None, *, seed: int) -> _Reached:
    scatter = seen or Scatter(variance=seed_variance([point]), freedom=SEED_FREEDOM, seen_in="seeds of Delphi's runs")
    deviates = scatter.draw(generator_of(seed, (point.flops, point.loss)), leverage=point.leverage)
    above = np.maximum(point.loss + deviates - MARIN_E, np.finfo(float).tiny)
    place = math.log(point.flops)
    return _Reached(
        recipe=ChainRecipe(
            name=name,
            table=table,
            excluded=table.excluded,
            flops=None,
            noise=scatter.sentence("a run", loss=point.loss),
            status=f"loss {point.loss:.4f} at {format_flops(point.flops)} FLOPs",
        ),
        points=[point],
        log_flops=place + math.log(point.loss - MARIN_E) / MARIN_ALPHA,
        draws=place + np.log(above) / MARIN_ALPHA,
        places=(place, np.full(DRAWS, place)),
        warnings=(*warnings_of(table), *((f"{name}: {point.note}",) if point.note else ())),
    )


def _common_budget(
    tables: Sequence[Named], measured: Sequence[Sequence[MeasuredLoss]], at_flops: float | None
) -> list[MeasuredLoss]:
    """Return each table's point at the largest common budget, or at the one asked for."""
    common = [
        [point, *(each for each in others if each is not None)]
        for point in measured[0]
        if all(others := [partner(point, points) for points in measured[1:]])
    ]
    if at_flops is not None:
        common = [points for points in common if abs(math.log(points[0].flops / at_flops)) <= math.log(BUDGET_SPAN)]
    if not common:
        held = tuple(
            f"{name} has runs at {joined(format_flops(each.flops) for each in points)} FLOPs."
            for (name, _), points in zip(tables, measured, strict=True)
        )
        where = "No budget" if at_flops is None else f"No budget within 25 % of {format_flops(at_flops)} FLOPs"
        raise UsageError(
            (f"{where} is common to all recipes.", *held), fix="Choose a common budget, or use own laws: --convention own"
        )
    return common[-1]


_DIFFERENT = "FLOPs are counted by different conventions"


def _costs_in_flops(reached: Sequence[_Reached], *, allowed: bool) -> tuple[Sequence[Cost] | None, str, tuple[str, ...]]:
    """Return the costs in FLOPs by one convention or None, how they are counted or why not, and warnings."""
    conventions = [next(iter(texts_of(each.recipe.table, "flops_convention")), "") for each in reached]
    named = set(conventions) - {""}
    if named == {WITH_LM_HEAD, WITHOUT_LM_HEAD} and "" not in conventions:
        return _with_heads(reached, conventions)
    if len(named) > 1:
        held = ", ".join(
            f"{each.recipe.name} by {kind or 'an unnamed one'}" for each, kind in zip(reached, conventions, strict=True)
        )
        return None, f"not given, because {_DIFFERENT}: {held}", ()
    try:
        pairs = itertools.pairwise(reached)
        warnings = [said for a, b in pairs for said in counted_alike(a.recipe.table, b.recipe.table, allowed=allowed)]
    except RunTableError as error:
        return None, f"not given: {error.lines[0]}", ()
    unnamed = [each.recipe.name for each, kind in zip(reached, conventions, strict=True) if not kind] if named else []
    counted = f"{next(iter(named), '')}{f'; no convention is named by {joined(unnamed)}' if unnamed else ''}"
    return [(each.log_flops, each.draws) for each in reached], counted, tuple(warnings)


def _with_heads(reached: Sequence[_Reached], conventions: Sequence[str]) -> tuple[Sequence[Cost] | None, str, tuple[str, ...]]:
    """Add the output head to the FLOPs of tables that lack it, as its share along each table's budgets."""
    lacking = [each.recipe.name for each, kind in zip(reached, conventions, strict=True) if kind == WITHOUT_LM_HEAD]
    added = {each.recipe.name: each.costing("head_share", np.log1p) for each in reached if each.recipe.name in lacking}
    missing = [name for name, cost in added.items() if cost is None]
    if missing:
        why = f"some FLOPs leave out the output head and column lm_head_flops is missing in {joined(missing)}"
        return None, f"not given, because {why}", ()
    costs = [added.get(each.recipe.name) or (each.log_flops, each.draws) for each in reached]
    return costs, f"{WITH_LM_HEAD}; the output head was added for {joined(lacking)}", ()


def _costs_in_time(reached: Sequence[_Reached]) -> tuple[Sequence[Cost] | None, str]:
    """Return the costs in time, or None, with the measure of speed or the reason."""
    for speed, column in SPEEDS.items():
        costs = [cost for each in reached if (cost := each.costing(speed, _seconds)) is not None]
        if len(costs) == len(reached):
            return costs, f"speeds from column {column}, on the same hardware, taken as exact"
    without = [each.recipe.name for each in reached if not any(each.costing(speed, _seconds) for speed in SPEEDS)]
    lacking = f"missing in {joined(without)}" if without else "not the same in all tables"
    return None, f"not given, because column tokens_per_second (or mfu) is {lacking}"


def _seconds(rate: Array) -> Array:
    return np.asarray(-np.log(rate))


def _family(costs: Sequence[Cost] | None) -> list[Speedup]:
    """Return the speedups of all stages, then the cumulative ones from the second stage on, corrected together."""
    if costs is None:
        return []
    stages = list(itertools.pairwise(costs))
    pairs = [*stages, *((costs[0], each) for each in costs[2:])]
    logs, draws = zip(*((before[0] - after[0], before[1] - after[1]) for before, after in pairs), strict=True)
    return speedups(logs, draws)


def chain_document(chain: SpeedupChain) -> dict[str, Any]:
    """Return the document of `marin-scale speedup --json` for a chain, with finite numbers or null."""
    return {
        "convention": chain.convention,
        "convention_label": _LABELS[chain.convention],
        "metric": chain.metric,
        "loss": chain.loss,
        "compared_at": chain.compared_at,
        "recipes": [
            {"name": each.name, "flops": each.flops, "noise": each.noise, "status": each.status}
            | table_document(each.table, each.excluded)
            for each in chain.recipes
        ],
        **{
            kind: [
                {"baseline": each.baseline, "variant": each.variant}
                | {unit: (found := getattr(each, unit)) and document_of(found) for unit in UNITS}
                for each in family
            ]
            for kind, family in (("stages", chain.stages), ("cumulative", chain.cumulative))
        },
        "flops_note": chain.flops_note,
        "time_note": chain.time_note,
        "warnings": list(chain.warnings),
        "seed": chain.seed,
        "tool": f"marin-scaling {__version__}",
    }


_LABELS = {
    "own": "own: the frontier law of each recipe's runs, with a free asymptote",
    "marin": f"marin: E = {MARIN_E} and alpha = {MARIN_ALPHA} are pinned as in Marin's issue 5596, for every recipe; the "
    "interval includes the noise of the runs, but no error of the pinned values",
}


def chain_text(chain: SpeedupChain) -> str:
    """Format recipes, convention, both units and warnings as text."""
    return "\n\n".join(
        [
            "\n".join(_recipe_text(each) for each in chain.recipes),
            wrapped(f"convention {_LABELS[chain.convention]}") + "\n" + wrapped(f"compared at {chain.compared_at}"),
            *(_unit_text(chain, unit, note) for unit, note in chain.notes.items()),
            "\n".join(
                [
                    *(wrapped(f"{each.name}: {each.noise}; {each.status}") for each in chain.recipes),
                    *(wrapped(f"warning: {each}", "  ") for each in chain.warnings),
                ]
            ),
        ]
    )


def _recipe_text(each: ChainRecipe) -> str:
    needs = "" if each.flops is None else f"; needs {format_flops(each.flops)} FLOPs"
    return wrapped(f"{each.name} {each.table.source}: {len(each.table.frame)} runs, {len(each.excluded)} left out{needs}")


def _unit_text(chain: SpeedupChain, unit: str, note: str) -> str:
    if getattr(chain.stages[0], unit) is None:
        return wrapped(f"{UNITS[unit]}: {note}")
    totals = chain.cumulative[1:]
    width = max(len(each.name) for each in (*chain.stages, *totals))
    rows = [f"{each.name:<{width}} {columns_of(getattr(each, unit))}" for each in chain.stages]
    more = [f"{each.name:<{width}} {columns_of(getattr(each, unit))}" for each in totals]
    return "\n".join(
        [
            wrapped(f"speedup in {UNITS[unit]}" + (f": {note}" if note else "")),
            f"{'stage':<{width}} {COLUMNS_HEAD}",
            *rows,
            *(["cumulative", *more] if more else []),
            wrapped(together([getattr(each, unit) for each in (*chain.stages, *totals)])),
        ]
    )
