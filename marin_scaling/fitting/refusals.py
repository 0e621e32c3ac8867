"""Refuse tables that determine no law; select tuned runs from sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from marin_scaling.errors import FitRefused
from marin_scaling.findings import Severity
from marin_scaling.laws import FRONTIER_UNKNOWNS
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.cells import Sweep, cells_of, find_sweep
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.units import counted, format_flops

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.table import RunTable


_MORE_RUNS = "Add runs at other budgets: at least four budgets, a factor of two or more apart, four sizes at each."
_KEEP = "Keep the runs that finished (--keep RUN for each), or correct the cells that the reasons name."


def refuse_hopeless(table: RunTable) -> None:
    """Raise `FitRefused` for runs that determine no law."""
    frame = table.frame
    if len(frame) <= FRONTIER_UNKNOWNS:
        refuse(
            f"{table.source} has {counted(len(frame), 'usable run')}; the law has {FRONTIER_UNKNOWNS} unknowns."
            f"{left_out(table)}",
            fix=f"{_KEEP} {_MORE_RUNS}" if len(table.excluded) > len(frame) else _MORE_RUNS,
        )
    if frame["flops"].max() < BUDGET_SPAN * frame["flops"].min():
        refuse(
            f"{table.source}: all {len(frame)} runs cost about {format_flops(frame['flops'].max())} FLOPs.",
            why="A single budget cannot show how loss falls with compute.",
        )
    if frame["loss"].nunique() == 1:
        refuse(
            f"{table.source}: all {len(frame)} runs have the same loss, {frame['loss'].iloc[0]:g}.",
            why="A constant loss cannot be extrapolated.",
            fix="Check the column that was read as the loss: --column loss=NAME",
        )


def refuse_contradictions(table: RunTable) -> None:
    """Raise `FitRefused` with every error that the audit of the table found."""
    errors = [each for each in table.findings if each.severity is Severity.ERROR]
    if errors:
        codes = " ".join(f"--allow {code}" for code in dict.fromkeys(each.code for each in errors))
        refuse(
            tuple(f"{table.source}: {each.message}" for each in errors),
            why="One law goes through runs of one kind whose numbers are counted alike.",
            fix=f"Follow the advice above, or take all runs as they are: {codes}",
        )


def left_out(table: RunTable) -> str:
    """Return a sentence with the first three runs that were left out, for a refusal."""
    named = "; ".join(f"{each.run}: {each.why}" for each in table.excluded[:3])
    more = f"; and {len(table.excluded) - 3} more" if len(table.excluded) > 3 else ""
    return f" Left out were {named}{more}." if table.excluded else ""


def refuse(
    what: str | tuple[str, ...],
    *,
    why: str = "With as many unknowns as numbers, any law would fit.",
    fix: str = _MORE_RUNS,
) -> NoReturn:
    """Raise `FitRefused` for a table that is too small."""
    raise FitRefused(what, why=why, fix=fix)


KEPT_SHARE = 0.3


def best_of_cells(
    frame: pd.DataFrame, *, sweep: Sweep | None = None, forced: bool = False
) -> tuple[pd.DataFrame, tuple[Exclusion, ...]]:
    """Return the best runs of each cell of a swept table, at least one, and the others as exclusions.

    `frame` itself is returned if it is not swept, unless `forced`. Without `sweep`, its column `seed` tells.
    """
    sweep = find_sweep(frame, frame[[name for name in ("seed",) if name in frame]]) if sweep is None else sweep
    if not (forced or sweep.is_in(frame)):
        return frame, ()
    by_cell = frame["loss"].groupby(cells_of(frame))
    better, runs = by_cell.rank(method="first").to_numpy() - 1, by_cell.transform("size").to_numpy()
    kept = better < KEPT_SHARE * runs
    varied = f" in {', '.join(sweep.swept[:3])}" if sweep.swept else ""
    excluded = tuple(
        Exclusion(
            run=str(run),
            why=f"swept{varied}: {int(before)} of the {int(count)} runs of its size and tokens are lower "
            "(--swept all keeps it)",
        )
        for run, before, count in zip(frame["run"][~kept], better[~kept], runs[~kept], strict=True)
    )
    return frame[kept].reset_index(drop=True), excluded
