"""Scaling tracks: fit one recipe at several sizes and forecast a much larger run.

The larger run has as many tokens per parameter as the group's largest run. Groups with overlapping intervals share ranks; a
group that cannot be fitted has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from marin_scaling.errors import MarinScalingError
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.result import FitStatus
from marin_scaling.forecast.forecast import Forecast, Target, forecast_runs
from marin_scaling.run.table import RunTable, table_of_frame
from marin_scaling.speedrun.submission import Submission
from marin_scaling.units import format_flops, format_number

FEWEST_SIZES = 4
"""One more than the parameters of a frontier law."""
LEAST_DECADES = 1.5
"""Smallest range from the cheapest to the most expensive run of a group."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Most expensive run of a group, forecast from the others."""

    forecast: Forecast
    measured: float

    @property
    def error(self) -> float:
        """Forecast minus measured loss, in bits per byte."""
        return self.forecast.median - self.measured


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Forecast of a group's law at the track's budget; `ranks` are its best and worst possible rank.

    `why_not` is the reason for a missing forecast or held-out run.
    """

    group: str
    submissions: tuple[Submission, ...]
    forecast: Forecast | None = None
    held_out: HeldOut | None = None
    ranks: tuple[int, int] | None = None
    warning: str = ""
    why_not: str = ""


def projections(submissions: Sequence[Submission], *, flops: float) -> list[Projection]:
    """Return the forecast of every group with several submissions: ranked groups by rank, then the others by name."""
    groups: dict[str, list[Submission]] = defaultdict(list)
    for each in submissions:
        groups[each.group].append(each)
    found = [_projection(name, groups[name], flops=flops) for name in sorted(groups) if len(groups[name]) > 1]
    ranked = [replace(each, ranks=_ranks(each, found)) for each in found if each.forecast]
    return [*sorted(ranked, key=_by_rank), *(each for each in found if each.forecast is None)]


def _projection(group: str, members: Sequence[Submission], *, flops: float) -> Projection:
    ordered = tuple(sorted(members, key=lambda each: each.compute.model_flops))
    made = Projection(group=group, submissions=ordered)
    if reason := _too_little(ordered, flops=flops):
        return replace(made, why_not=reason)
    try:
        result = fit(_table(ordered))
        (ahead,) = forecast_runs(result, [_on_its_rule(ordered[-1], flops=flops)])
    except MarinScalingError as error:
        return replace(made, why_not=error.what)
    made = replace(made, forecast=ahead, warning="" if result.status is FitStatus.USABLE else result.status.value)
    try:
        (again,) = forecast_runs(fit(_table(ordered[:-1])), [_target(ordered[-1])])
    except MarinScalingError as error:
        return replace(made, why_not=error.what)
    return replace(made, held_out=HeldOut(forecast=again, measured=ordered[-1].bits_per_byte))


def _too_little(ordered: Sequence[Submission], *, flops: float) -> str:
    """Return why a group cannot be fitted; empty if it can."""
    unknown = [each.name for each in ordered if each.data.trained_tokens is None]
    sizes = {each.model.params_total for each in ordered}
    cheapest, dearest = (ordered[place].compute.model_flops for place in (0, -1))
    decades = math.log10(dearest / cheapest)
    if unknown:
        return f"the trained tokens of {unknown[0]} are unknown"
    if len({(each.evaluation.name, each.evaluation.digest) for each in ordered}) > 1:
        return "the runs are measured on different texts"
    if len(sizes) < FEWEST_SIZES:
        return f"{len(sizes)} sizes; a fit needs {FEWEST_SIZES}"
    if decades < LEAST_DECADES:
        return f"the runs span {decades:.2f} decades of model FLOPs; a fit needs {LEAST_DECADES}"
    if flops <= dearest:
        return f"the largest run has {format_number(dearest, 3)} model FLOPs, not below the track's {format_flops(flops)}"
    return ""


def _table(ordered: Sequence[Submission]) -> RunTable:
    import pandas as pd

    rows = [
        {
            "run": each.name,
            "flops": target.flops,
            "params": target.params,
            "active_params": target.active_params,
            "tokens": target.tokens,
            "loss": each.bits_per_byte,
            "metric": "bits_per_byte",
        }
        for each in ordered
        for target in [_target(each)]
    ]
    return table_of_frame(pd.DataFrame(rows), source=ordered[0].group)


def _target(each: Submission) -> Target:
    total, tokens = float(each.model.params_total), float(each.data.trained_tokens or 0)
    return Target(
        flops=each.compute.model_flops, params=total, tokens=tokens, active_params=float(each.model.params_active or total)
    )


def _on_its_rule(largest: Submission, *, flops: float) -> Target:
    """Return the run with that many FLOPs: parameters and tokens both grow by the square root."""
    last = _target(largest)
    grown = math.sqrt(flops / last.flops)
    return Target(flops=flops, params=last.params * grown, tokens=last.tokens * grown, active_params=last.active_params * grown)


def _ranks(each: Projection, found: Sequence[Projection]) -> tuple[int, int]:
    """Return the best and worst possible rank of a group."""
    low, high = _interval(each)
    others = [_interval(other) for other in found if other.forecast]
    return 1 + sum(other_high < low for _, other_high in others), sum(other_low <= high for other_low, _ in others)


def _interval(each: Projection) -> tuple[float, float]:
    assert each.forecast is not None  # only ranked groups are compared
    return each.forecast.interval()


def _by_rank(each: Projection) -> tuple[tuple[int, int], float]:
    assert each.ranks is not None
    assert each.forecast is not None
    return each.ranks, each.forecast.median
