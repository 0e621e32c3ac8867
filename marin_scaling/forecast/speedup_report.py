"""Format a comparison of two recipes as a JSON document with finite numbers or null, and as text of 100 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from marin_scaling import __version__
from marin_scaling.forecast.speedup import BudgetComparison, SpeedupReport
from marin_scaling.forecast.speedup_conventions import INTERVAL, MARIN_ALPHA, MARIN_E, Speedup, Verdict
from marin_scaling.printable import wrapped
from marin_scaling.run.audit import Exclusion
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    from marin_scaling.run.table import RunTable

_LISTED_EXCLUSIONS = 6  # of each table; more are counted, and the JSON document lists all

_HEAD = f"{'speedup':>8} {'90 % interval':>18}  {'alone':<7} together"


def speedup_document(report: SpeedupReport, *, baseline: RunTable, variant: RunTable) -> dict[str, Any]:
    """Return the document of `marin-scale speedup --json`, with finite numbers or null."""
    fitted = report.baseline_fit
    return {
        "convention": report.convention,
        "convention_label": _label(report),
        "law": f"{fitted.law.name}: {fitted.law.formula}" if fitted else None,
        "parameters": dict(fitted.law.parameters) if fitted else _pinned(),
        "status": fitted.status.value if fitted else None,
        "baseline": _table_document(baseline, report.baseline_excluded),
        "variant": _table_document(variant, report.variant_excluded),
        "comparisons": [_comparison_document(each) for each in report.comparisons],
        "comparisons_note": _together([each.model_flops for each in report.comparisons]),
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


def _table_document(table: RunTable, excluded: Sequence[Exclusion]) -> dict[str, Any]:
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
        "model_flops": _speedup_document(each.model_flops),
        "throughput_ratio": each.throughput_ratio,
        "wall_clock": _speedup_document(each.wall_clock) if each.wall_clock else None,
        "reach": each.reach,
        "note": each.note or None,
    }


def _speedup_document(each: Speedup) -> dict[str, Any]:
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
        f"{format_flops(each.flops):>8} {each.baseline_loss:>10.5f} {each.variant_loss:>10.5f} {_columns_of(each.model_flops)}"
        + ("  *" if each.note else "")
        for each in report.comparisons
    ]
    notes = dict.fromkeys(
        wrapped(f"* {format_flops(each.flops)}: {each.note}", "  ") for each in report.comparisons if each.note
    )
    return "\n".join(
        [
            wrapped("effective speedup in model FLOPs: how many times more the baseline needs for the variant's loss"),
            f"{'budget':>8} {'baseline':>10} {'variant':>10} {_HEAD}",
            *rows,
            *notes,
            wrapped(_together([each.model_flops for each in report.comparisons])),
        ]
    )


def _columns_of(each: Speedup) -> str:
    low, high = each.interval
    interval = f"[{low:.3f}, {'no end' if high is None else format(high, '.3f')}]"
    value = "none" if each.value is None else f"{each.value:.3f}"
    return f"{value:>8} {interval:>18}  {each.verdict.value:<7} {each.verdict_after_holm.value}"


def _together(family: Sequence[Speedup]) -> str:
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
    rows = [f"{format_flops(each.flops):>8} {each.throughput_ratio:>21.4f} {_columns_of(found)}" for each, found in timed]
    silent = [format_flops(each.flops) for each in report.comparisons if each.wall_clock is None]
    return "\n".join(
        [
            wrapped("effective speedup in wall-clock time: times the ratio of model FLOPs a second, taken as exact"),
            f"{'budget':>8} {'throughput':>21} {_HEAD}",
            *rows,
            *([wrapped(f"not given, because a throughput is missing: {', '.join(silent)}", "  ")] if silent else []),
            wrapped(_together([found for _, found in timed])),
        ]
    )


def _no_throughput(baseline: RunTable, variant: RunTable) -> str:
    without = [table.source for table in (baseline, variant) if "tokens_per_second" not in table.frame]
    if without:
        return f"column tokens_per_second is missing in {' and in '.join(dict.fromkeys(without))}"
    return "no common budget has a number in the column tokens_per_second of both tables"


def _warnings_text(report: SpeedupReport) -> str:
    lines = [wrapped(f"noise: {report.noise}")]
    if report.baseline_fit:
        lines.append(wrapped(f"status of the baseline's law: {report.baseline_fit.status.value}"))
    return "\n".join([*lines, *(wrapped(f"warning: {each}", "  ") for each in report.warnings)])
