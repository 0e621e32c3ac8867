"""The part of a board where groups of several sizes are ranked by what their laws say of a much larger run."""

from __future__ import annotations

from collections.abc import Sequence

from marin_scaling.publish.markdown import escape, table
from marin_scaling.speedrun.scaling import HeldOut, Projection
from marin_scaling.units import format_flops

_WORDS = (
    "Each group is one recipe at several sizes. Its law is fitted by this project's engine and asked for a run of {budget} "
    "model FLOPs with as many tokens for each parameter as the group's largest run. Groups whose 90 % intervals overlap share "
    "ranks. Held out is the error of the group's largest run when it is forecast from the others."
)
_HEADER = ["rank", "group", "runs", "largest", "bits per byte then", "90 % interval", "held out", "to be known"]


def scaling_section(found: Sequence[Projection], *, track: str, flops: float) -> str:
    """A table of all groups, those without a forecast last, with the reason; empty without groups."""
    if not found:
        return ""
    words = _WORDS.format(budget=format_flops(flops))
    return f"### Scaling of {escape(track)}\n\n{words}\n\n{table(_HEADER, list(map(_row, found)), right=[2, 3, 4])}"


def _row(each: Projection) -> list[str]:
    ahead = each.forecast
    return [
        "none" if each.ranks is None else _ranks(*each.ranks),
        escape(each.group),
        str(len(each.submissions)),
        format_flops(each.submissions[-1].compute.model_flops),
        "" if ahead is None else f"{ahead.median:.4f}",
        "" if ahead is None else f"{ahead.interval[0]:.4f} to {ahead.interval[1]:.4f}",
        _held_out(each.held_out),
        escape(" ".join(filter(None, [each.doubt, each.why_not]))),
    ]


def _ranks(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best} to {worst}"


def _held_out(held: HeldOut | None) -> str:
    if held is None:
        return ""
    low, high = held.forecast.interval
    inside = "inside" if low <= held.measured <= high else "outside"
    return f"{held.error:+.4f}, {inside} its interval"
