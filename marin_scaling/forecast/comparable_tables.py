"""Whether two tables of runs can be compared: one metric, measured alike, FLOPs counted alike, a convention that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marin_scaling.errors import FitRefused, RunTableError, UsageError
from marin_scaling.forecast.speedup_pinned_law import MARIN_E, MARIN_METRIC

if TYPE_CHECKING:
    from marin_scaling.run.run_table import RunTable

CONVENTIONS = ("own", "marin")


def require_comparable(baseline: RunTable, variant: RunTable, convention: str) -> tuple[str, ...]:
    """What is doubtful about comparing these tables; an error where they cannot be compared."""
    if convention not in CONVENTIONS:
        raise UsageError(
            f"There is no convention {convention!r}.",
            why="It has to be written down.",
            fix=f"Choose: {', '.join(CONVENTIONS)}.",
        )
    for table in (baseline, variant):
        if table.frame.empty:
            raise FitRefused(
                f"{table.source} has no usable runs.", why="There is nothing to compare.", fix="Give finished runs."
            )
    metrics = {table.metric for table in (baseline, variant)} - {"loss"}  # a column `loss` does not say which
    _require_one("metric", metrics, baseline, variant)
    for what, column in (("FLOP convention", "flops_convention"), ("evaluation (held-out text and protocol)", "evaluation")):
        _require_one(what, _texts(baseline, column) | _texts(variant, column), baseline, variant)
    if convention == "marin" and metrics - {MARIN_METRIC}:
        raise UsageError(
            f"The tables hold {next(iter(metrics))}; Marin's convention is of {MARIN_METRIC}.",
            why=f"Its asymptote of {MARIN_E} is a loss in nats per token; of another metric it means nothing.",
            fix="Compare by the baseline's own law: --convention own",
        )
    unnamed = [table.source for table in (baseline, variant) if table.metric == "loss"]
    return (f"{' and '.join(unnamed)}: the metric is not named; both are taken to have the same",) if unnamed else ()


def _texts(table: RunTable, column: str) -> set[str]:
    return set(table.frame[column]) - {""} if column in table.frame else set()


def _require_one(what: str, found: set[str], baseline: RunTable, variant: RunTable) -> None:
    if len(found) > 1:
        raise RunTableError(
            f"{baseline.source} and {variant.source} differ in their {what}: {' and '.join(sorted(found))}.",
            why="A speedup compares losses, and compute, that were measured alike.",
            fix="Evaluate and count the runs of both alike; if a column holds it under another name: --column loss=NAME",
        )
