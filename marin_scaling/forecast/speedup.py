"""Speedup of one recipe over another, with an interval; as text, and as a document with finite numbers or null."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from marin_scaling import __version__
from marin_scaling.errors import FitRefused, RunTableError, UsageError
from marin_scaling.fitting.fit import FitResult, best_of_cells
from marin_scaling.fitting.law import refuse_contradictions
from marin_scaling.forecast.speedup_conventions import (
    INTERVAL,
    MARIN_ALPHA,
    MARIN_E,
    MARIN_METRIC,
    SPEEDS,
    Compared,
    MeasuredLoss,
    Speedup,
    Verdict,
    by_own_law,
    by_pinned_law,
    fit_baseline,
    measure,
    needed_flops,
    partner,
    pooled,
    speedups,
)
from marin_scaling.laws import FrontierLaw, frontier_loss
from marin_scaling.printable import wrapped
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, WITHOUT_LM_HEAD
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.groups import count_ratio
from marin_scaling.run.table import BUDGET_SPAN, RunTable
from marin_scaling.units import format_flops

CONVENTIONS = ("own", "marin")


def require_comparable(
    baseline: RunTable, variant: RunTable, convention: str, *, allow: Collection[str] = ()
) -> tuple[str, ...]:
    """Return warnings about comparing these tables; raise if they cannot be compared."""
    if convention not in CONVENTIONS:
        raise UsageError(
            f"Unknown convention {convention!r}.",
            fix=f"Choose: {', '.join(CONVENTIONS)}.",
        )
    for table in (baseline, variant):
        if table.frame.empty:
            raise FitRefused(f"{table.source} has no usable runs.", fix="Give finished runs.")
        refuse_contradictions(table)
    metrics = {table.metric for table in (baseline, variant)} - {"loss"}  # the name `loss` leaves the metric open
    _require_one("metric", metrics, baseline, variant)
    for what, column in (("FLOP convention", "flops_convention"), ("evaluation (held-out text and protocol)", "evaluation")):
        _require_one(what, texts_of(baseline, column) | texts_of(variant, column), baseline, variant)
    if convention == "marin" and metrics - {MARIN_METRIC}:
        raise UsageError(
            f"The tables hold {next(iter(metrics))}; Marin's convention is of {MARIN_METRIC}.",
            why=f"Its asymptote of {MARIN_E} is in nats per token.",
            fix="Compare by the baseline's own law: --convention own",
        )
    counted = counted_alike(baseline, variant, allowed="flop-count" in allow)
    unnamed = [table.source for table in (baseline, variant) if table.metric == "loss"]
    named = (f"{' and '.join(unnamed)}: the metric is not named; both tables are assumed to have the same",) if unnamed else ()
    return (*counted, *named, *same_runs(baseline, variant))


def same_runs(one: RunTable, other: RunTable) -> tuple[str, ...]:
    """Return a warning if two tables hold the same runs, in any order."""
    columns = ["params", "tokens", "flops", "loss"]
    rows, others = (table.frame[columns].sort_values(columns).to_numpy() for table in (one, other))
    if not np.array_equal(rows, others):
        return ()
    return (f"{one.source} and {other.source} are identical: {len(rows)} runs of equal size, FLOPs and loss",)


def count_by_one_convention(*tables: RunTable) -> bool:
    """Return True unless the tables name different FLOP conventions."""
    return len(set().union(*(texts_of(table, "flops_convention") for table in tables))) < 2


def counted_alike(baseline: RunTable, variant: RunTable, *, allowed: bool) -> tuple[str, ...]:
    """Return a warning if the tables count FLOPs apart at equal size.

    `RunTableError` if by one factor at all sizes, or if one table alone names its convention.
    """
    kinds = [texts_of(table, "flops_convention") for table in (baseline, variant)]
    if all(kinds):
        return ()  # equal, as checked by `_require_one`
    found = count_ratio(baseline.frame, variant.frame)
    if found is None:
        return ()
    factor, is_one = found
    message = (
        f"FLOPs / (6 x params x tokens) in {variant.source} are {factor:g} times those in {baseline.source} at equal size: "
        "counted by another convention?"
    )
    if (is_one or any(kinds)) and not allowed:
        named = next((name for kind in kinds for name in kind), "")
        raise RunTableError(
            message,
            why=f"One of them counts by {named}, and the other does not say."
            if named
            else "A factor of 1.33 is 8 N D against 6 N D (recomputed activations).",
            fix="Count both alike, or name how each counts in a column flops_convention "
            f"({WITH_LM_HEAD}, {WITHOUT_LM_HEAD}); as they are: --allow flop-count",
        )
    return (message,)


def texts_of(table: RunTable, column: str) -> set[str]:
    """Return the different texts of a column; empty without the column."""
    return set(table.frame[column]) - {""} if column in table.frame else set()


def _require_one(what: str, found: set[str], baseline: RunTable, variant: RunTable) -> None:
    if len(found) > 1:
        raise RunTableError(
            f"{baseline.source} and {variant.source} differ in their {what}: {' and '.join(sorted(found))}.",
            fix="Evaluate and count the runs of both alike, or compare time (ms.speedup_chain); a loss in another column: "
            "--column loss=NAME",
        )


@dataclass(frozen=True, kw_only=True)
class BudgetComparison:
    """Comparison of baseline and variant at one of the variant's budgets.

    `baseline_loss` is that of the baseline's law. `needed_flops` are those that the law needs for `variant_loss`, None if no
    compute suffices. `throughput_ratio` is the ratio of the variant's model FLOPs per second to the baseline's, None if
    missing. `reach` is the factor by which `needed_flops` is outside of the baseline's budgets, 1 if inside. `note` is a
    warning, or empty.
    """

    flops: float
    baseline_loss: float
    variant_loss: float
    needed_flops: float | None
    model_flops: Speedup
    throughput_ratio: float | None
    wall_clock: Speedup | None
    reach: float | None
    note: str


@dataclass(frozen=True, kw_only=True)
class SpeedupReport:
    """All budgets of a comparison. `baseline_fit` is the baseline's law, None under a pinned convention."""

    convention: str
    baseline_fit: FitResult | None
    comparisons: tuple[BudgetComparison, ...]
    noise: str
    warnings: tuple[str, ...]
    baseline_excluded: tuple[Exclusion, ...]
    variant_excluded: tuple[Exclusion, ...]
    seed: int


def compare_recipes(
    baseline: RunTable, variant: RunTable, *, convention: str = "own", seed: int = 0, allow: Collection[str] = ()
) -> SpeedupReport:
    """Return the effective speedup of `variant` over `baseline` at each budget of the variant's runs.

    Several sizes at a budget are compared by the minimum of their bowl, or by their best run without a bowl; seeds by their
    mean. A column `tokens_per_second` or `mfu` in both frames gives wall-clock time too. Losses are in the unit of the tables.

    `UsageError` for an unknown convention, or a metric other than the convention's; `RunTableError` if the tables measure
    different things; `FitRefused` if the baseline determines no law, or no budget can be compared.

    >>> from dataclasses import replace
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> ladder = simulate_ladder(law, budgets_flops=[1e18, 3e18, 1e19, 3e19], sizes_per_budget=5, noise=0.0, seed=0)
    >>> cheaper = replace(ladder, frame=ladder.frame.assign(**{name: ladder.frame[name] / 2 for name in ("flops", "tokens")}))
    >>> first = compare_recipes(ladder, cheaper).comparisons[0]
    >>> f"{first.model_flops.value:.2f} {first.model_flops.verdict.value}"
    '2.00 faster'
    """
    warnings = require_comparable(baseline, variant, convention, allow=allow)
    (baseline_frame, baseline_swept), (variant_frame, variant_swept) = (
        best_of_cells(t.frame, sweep=t.sweep) for t in (baseline, variant)
    )
    ours, theirs = measure(baseline_frame), measure(variant_frame)
    generator = np.random.default_rng([seed, 1])  # independent of the law's draws
    if convention == "own":
        compared = by_own_law(fit_baseline(baseline), theirs, pooled(theirs, ours), generator, seed=seed)
    else:
        compared = by_pinned_law(ours, theirs, generator)
        warnings = (*warnings, *warnings_of(baseline))
    return SpeedupReport(
        convention=convention,
        baseline_fit=compared.law_fit,
        comparisons=_comparisons(compared, ours),
        noise=compared.noise,
        warnings=tuple(dict.fromkeys((*warnings, *compared.warnings, *warnings_of(variant)))),
        baseline_excluded=compared.law_fit.excluded if compared.law_fit else (*baseline.excluded, *baseline_swept),
        variant_excluded=(*variant.excluded, *variant_swept),
        seed=seed,
    )


def warnings_of(table: RunTable) -> tuple[str, ...]:
    """Return the warnings about a table, each with its source."""
    return tuple(f"{table.source}: {each}" for each in table.warnings)


def _comparisons(compared: Compared, ours: Sequence[MeasuredLoss]) -> tuple[BudgetComparison, ...]:
    """Compare each of the variant's budgets; throughput is compared with the baseline's at the same budget."""
    points, laws = compared.points, compared.laws
    needed = [needed_flops(law, loss=point.loss) for law, point in zip(laws, points, strict=True)]
    logs = [math.inf if each is None else math.log(each / point.flops) for each, point in zip(needed, points, strict=True)]
    ratios = [_throughput_ratio(point, partner(point, ours)) for point in points]
    timed = [n for n, ratio in enumerate(ratios) if ratio is not None]
    shifts = {n: math.log(ratio) for n, ratio in enumerate(ratios) if ratio is not None}
    in_flops = speedups(logs, compared.draws)
    in_time = dict(
        zip(timed, speedups([logs[n] + shifts[n] for n in timed], [compared.draws[n] + shifts[n] for n in timed]), strict=True)
    )
    return tuple(
        BudgetComparison(
            flops=point.flops,
            baseline_loss=float(frontier_loss(laws[n], flops=point.flops)),
            variant_loss=point.loss,
            needed_flops=needed[n],
            model_flops=in_flops[n],
            throughput_ratio=ratios[n],
            wall_clock=in_time.get(n),
            reach=_reach(needed[n], ours),
            note=_note(point, laws[n], _reach(needed[n], ours)),
        )
        for n, point in enumerate(points)
    )


def _throughput_ratio(point: MeasuredLoss, mine: MeasuredLoss | None) -> float | None:
    for speed in SPEEDS if mine else ():
        ours, theirs = getattr(mine, speed), getattr(point, speed)
        if ours is not None and theirs is not None:
            return float(theirs / ours)
    return None


def _reach(needed: float | None, ours: Sequence[MeasuredLoss]) -> float | None:
    if needed is None:
        return None
    return max(1.0, needed / max(each.flops for each in ours), min(each.flops for each in ours) / needed)


def _note(point: MeasuredLoss, law: FrontierLaw, reach: float | None) -> str:
    if reach is None:
        far = f"the baseline's law does not reach this loss; its asymptote is {law.E:.4f}"
    else:
        far = f"extrapolates the baseline's law {reach:.3g}x beyond its budgets" if reach > BUDGET_SPAN else ""
    return "; ".join(each for each in (point.note, far) if each)


_LISTED_EXCLUSIONS = 6  # of each table; more are counted, and the JSON document lists all

COLUMNS_HEAD = f"{'speedup':>8} {'90 % interval':>18}  {'alone':<7} together"


def speedup_document(report: SpeedupReport, *, baseline: RunTable, variant: RunTable) -> dict[str, Any]:
    """Return the document of `marin-scale speedup --json`, with finite numbers or null."""
    fitted = report.baseline_fit
    return {
        "convention": report.convention,
        "convention_label": _label(report),
        "law": f"{fitted.law.name}: {fitted.law.formula}" if fitted else None,
        "parameters": dict(fitted.law.parameters) if fitted else _pinned(),
        "status": fitted.status.value if fitted else None,
        "baseline": table_document(baseline, report.baseline_excluded),
        "variant": table_document(variant, report.variant_excluded),
        "comparisons": [_comparison_document(each) for each in report.comparisons],
        "comparisons_note": together([each.model_flops for each in report.comparisons]),
        "noise": report.noise,
        "warnings": list(report.warnings),
        "seed": report.seed,
        "tool": f"marin-scaling {__version__}",
    }


def _pinned() -> Mapping[str, float]:
    return {"E": MARIN_E, "alpha": MARIN_ALPHA}


def _label(report: SpeedupReport) -> str:
    if report.convention == "own":
        return "own: the frontier law of the baseline's runs, with a free asymptote"
    pinned = " and ".join(f"{name} = {value}" for name, value in _pinned().items())
    return (
        f"marin: {pinned} are pinned as in Marin's issue 5596, and not fitted to these runs; "
        "the interval includes the noise of the runs, but no error of the pinned values"
    )


def table_document(table: RunTable, excluded: Sequence[Exclusion]) -> dict[str, Any]:
    """Return the JSON object of a compared table."""
    return {
        "source": table.source,
        "metric": table.metric,
        "runs_read": len(table.frame),
        "column_mapping": dict(table.column_mapping),
        "excluded": [asdict(each) for each in excluded],
    }


def _comparison_document(each: BudgetComparison) -> dict[str, Any]:
    return {
        "flops": each.flops,
        "baseline_loss": each.baseline_loss,
        "variant_loss": each.variant_loss,
        "needed_flops": each.needed_flops,
        "model_flops": document_of(each.model_flops),
        "throughput_ratio": each.throughput_ratio,
        "wall_clock": document_of(each.wall_clock) if each.wall_clock else None,
        "reach": each.reach,
        "note": each.note or None,
    }


def document_of(each: Speedup) -> dict[str, Any]:
    """Return the JSON object of one speedup."""
    return {
        "speedup": each.value,
        "interval": list(each.interval),
        "p_value": each.p_value,
        "verdict": each.verdict.value,
        "verdict_after_holm": each.verdict_after_holm.value,
    }


def speedup_text(report: SpeedupReport, *, baseline: RunTable, variant: RunTable) -> str:
    """Format tables, convention, budgets, the joint result and warnings as text."""
    parts = [
        _table_text("baseline", baseline, report.baseline_excluded)
        + "\n"
        + _table_text("variant", variant, report.variant_excluded),
        _convention_text(report),
        _flops_text(report),
        _wall_clock_text(report, baseline, variant),
        _warnings_text(report),
    ]
    return "\n\n".join(parts)


def _table_text(whose: str, table: RunTable, excluded: Sequence[Exclusion]) -> str:
    head = f"{whose} {table.source}: {len(table.frame)} runs, {len(excluded)} left out; metric {table.metric}"
    lines = [wrapped(f"left out: {each.run}: {each.why}", "  ") for each in excluded[:_LISTED_EXCLUSIONS]]
    more = len(excluded) - _LISTED_EXCLUSIONS
    return "\n".join([wrapped(head), *lines, *([f"  and {more} more: see --json"] if more > 0 else [])])


def _convention_text(report: SpeedupReport) -> str:
    head = wrapped(f"convention {_label(report)}")
    if report.baseline_fit is None:
        return head
    law = report.baseline_fit.law.parameters
    return f"{head}\n  loss = {law['E']:.4f} + {law['A']:.4f} * (C / {format_flops(law['C0'])})^-{law['gamma']:.4f}"


def _flops_text(report: SpeedupReport) -> str:
    rows = [
        f"{format_flops(each.flops):>8} {each.baseline_loss:>10.5f} {each.variant_loss:>10.5f} {columns_of(each.model_flops)}"
        + ("  *" if each.note else "")
        for each in report.comparisons
    ]
    notes = dict.fromkeys(
        wrapped(f"* {format_flops(each.flops)}: {each.note}", "  ") for each in report.comparisons if each.note
    )
    return "\n".join(
        [
            wrapped("effective speedup in model FLOPs: how many times more the baseline needs for the variant's loss"),
            f"{'budget':>8} {'baseline':>10} {'variant':>10} {COLUMNS_HEAD}",
            *rows,
            *notes,
            wrapped(together([each.model_flops for each in report.comparisons])),
        ]
    )


def columns_of(each: Speedup) -> str:
    """Return the cells below `COLUMNS_HEAD`."""
    low, high = each.interval
    interval = f"[{low:.3f}, {'no end' if high is None else format(high, '.3f')}]"
    value = "none" if each.value is None else f"{each.value:.3f}"
    return f"{value:>8} {interval:>18}  {each.verdict.value:<7} {each.verdict_after_holm.value}"


def together(family: Sequence[Speedup]) -> str:
    """Return sentences about the verdicts of a family of comparisons after Holm's correction."""
    count, share = len(family), 1 - INTERVAL
    if count == 1:
        return "One comparison: no correction needed."
    counts = {verdict: sum(each.verdict_after_holm is verdict for each in family) for verdict in Verdict}
    return (
        f"{count} comparisons: at {INTERVAL * 100:.0f} % each, about {count * share:.1g} of them would be called faster or "
        f"slower without any difference. Together, after Holm's correction for {count}, the chance of even one such call is at "
        f"most {share * 100:.0f} %: {', '.join(f'{number} {verdict.value}' for verdict, number in counts.items())}."
    )


def _wall_clock_text(report: SpeedupReport, baseline: RunTable, variant: RunTable) -> str:
    timed = [(each, each.wall_clock) for each in report.comparisons if each.wall_clock is not None]
    if not timed:
        return wrapped(f"wall-clock time: not given, because {_no_throughput(baseline, variant)}")
    rows = [f"{format_flops(each.flops):>8} {each.throughput_ratio:>21.4f} {columns_of(found)}" for each, found in timed]
    silent = [format_flops(each.flops) for each in report.comparisons if each.wall_clock is None]
    return "\n".join(
        [
            wrapped("effective speedup in wall-clock time: times the ratio of model FLOPs a second, taken as exact"),
            f"{'budget':>8} {'throughput':>21} {COLUMNS_HEAD}",
            *rows,
            *([wrapped(f"not given, because a throughput is missing: {', '.join(silent)}", "  ")] if silent else []),
            wrapped(together([found for _, found in timed])),
        ]
    )


def _no_throughput(baseline: RunTable, variant: RunTable) -> str:
    without = [table.source for table in (baseline, variant) if not set(SPEEDS.values()) & set(table.frame)]
    if without:
        return f"column tokens_per_second (or mfu) is missing in {' and in '.join(dict.fromkeys(without))}"
    return "no common budget has a number in the column tokens_per_second, or mfu, of both tables"


def _warnings_text(report: SpeedupReport) -> str:
    lines = [wrapped(f"noise: {report.noise}")]
    if report.baseline_fit:
        lines.append(wrapped(f"status of the baseline's law: {report.baseline_fit.status.value}"))
    return "\n".join([*lines, *(wrapped(f"warning: {each}", "  ") for each in report.warnings)])
