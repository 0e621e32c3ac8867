"""When a table can carry no law at all, and how that is said.

A refusal is rare and earned: too few runs for any law, one budget only, losses that never change. Everything less is a status
or a warning of the fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from marin_scaling.errors import FitRefused
from marin_scaling.fit.frontier import FRONTIER_UNKNOWNS
from marin_scaling.run.run_table import BUDGET_SPAN
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    from marin_scaling.run.run_table import RunTable


def refuse_hopeless(table: RunTable) -> None:
    """`FitRefused` when no law goes through these runs."""
    frame = table.frame
    if len(frame) <= FRONTIER_UNKNOWNS:
        plural = "" if len(frame) == 1 else "s"
        refuse(
            f"{table.source} has {len(frame)} usable run{plural}; the law has {FRONTIER_UNKNOWNS} unknowns.{left_out(table)}"
        )
    if frame["flops"].max() < BUDGET_SPAN * frame["flops"].min():
        refuse(
            f"{table.source}: all {len(frame)} runs cost about {format_flops(frame['flops'].max())} FLOPs.",
            why="How loss falls with compute cannot be seen at a single budget.",
        )
    if frame["loss"].nunique() == 1:
        refuse(
            f"{table.source}: all {len(frame)} runs have the same loss, {frame['loss'].iloc[0]:g}.",
            why="A loss that never changes says nothing about a larger run.",
            fix="Check that the right column was taken for the loss: --column loss=NAME",
        )


def left_out(table: RunTable) -> str:
    """The runs that were left out, by name, as a sentence for a refusal; the first three of many."""
    named = "; ".join(f"{each.run}: {each.why}" for each in table.excluded[:3])
    more = f"; and {len(table.excluded) - 3} more" if len(table.excluded) > 3 else ""
    return f" Left out were {named}{more}." if table.excluded else ""


def refuse(
    what: str,
    *,
    why: str = "With as few numbers as unknowns any forecast would fit, so none would mean anything.",
    fix: str = "Add runs at other budgets: at least four budgets, a factor of two or more apart, four sizes at each.",
) -> NoReturn:
    """Refuse a table as too small."""
    raise FitRefused(what, why=why, fix=fix)
