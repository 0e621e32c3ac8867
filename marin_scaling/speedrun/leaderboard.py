"""Board of a track: points, Pareto fronts, records; and of scaling tracks, gates and forecasts of a much larger run.

The larger run has as many tokens per parameter as the largest run of a group, which is one recipe at several sizes. Groups with
overlapping intervals share ranks; a group that cannot be fitted has none.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from statistics import variance
from typing import Any

from marin_scaling.errors import MarinScalingError, UsageError
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.forecast.forecast import Forecast, Target, forecast_runs
from marin_scaling.forecast.speedup import BudgetComparison, compare_recipes
from marin_scaling.forecast.speedup_conventions import Speedup
from marin_scaling.printable import joined
from marin_scaling.run.table import RunTable, table_of_frame
from marin_scaling.speedrun.checks import Validated
from marin_scaling.speedrun.submission import Submission
from marin_scaling.speedrun.track import AXES, Gate, Track, axis_key
from marin_scaling.units import format_flops, format_number


@dataclass(frozen=True, kw_only=True)
class Point:
    """Place of a submission: cost in any unit, loss in bits per byte, and name."""

    cost: float
    loss: float
    name: str


def front(points: Sequence[Point], *, same_cost: float = 0.0) -> list[Point]:
    """Return the points that no other dominates, by rising cost; equal points are all included.

    >>> a, b, c = (Point(cost=c, loss=l, name=n) for c, l, n in ((1, 3.0, "a"), (2, 2.0, "b"), (2, 2.5, "c")))
    >>> [point.name for point in front([c, b, a])]
    ['a', 'b']
    """
    ordered = sorted(points, key=_place)
    costs = [point.cost for point in ordered]
    lowest = [math.inf, *accumulate((point.loss for point in ordered), min)]
    return [
        point
        for point in ordered
        if point.loss <= lowest[bisect_right(costs, point.cost * (1 + same_cost))]
        and point.loss < lowest[bisect_left(costs, point.cost / (1 + same_cost))]
    ]


def dominated_by(point: Point, standing: Sequence[Point], *, same_cost: float = 0.0) -> Point | None:
    """Return the best point of a front that is at most as costly and at least as good; None for a point on the front."""
    place = bisect_right(standing, point.cost * (1 + same_cost), key=lambda other: other.cost)
    best = standing[place - 1] if place else None
    if best is None or best.loss > point.loss or (best.cost, best.loss) == (point.cost, point.loss):
        return None
    equal = [other for other in standing if (other.cost, other.loss) == (best.cost, best.loss)]
    return min(equal, key=lambda other: other.name)


def tied(points: Sequence[Point], *, noise: float, same_cost: float = 0.0) -> list[Point]:
    """Return the points that would be on the front if their loss were lower by the seed-to-seed noise.

    `noise` is the standard deviation of one run's loss; two runs differ by 1.96 sqrt(2) times it in 5 % of cases.
    """
    margin = _TWO_RUNS * noise
    standing = front(points, same_cost=same_cost)
    kept = set(map(id, standing))
    costs = [point.cost for point in standing]
    return [
        point
        for point in sorted(points, key=_place)
        if id(point) not in kept and point.loss - margin <= _lowest_at(point.cost * (1 + same_cost), costs, standing)
    ]


_TWO_RUNS = 1.959964 * math.sqrt(2)


def ties(points: Sequence[Point], *, noise: float, same_cost: float = 0.0) -> list[Point]:
    """Return the points within noise: just behind the front, or next to each other on the front."""
    if noise <= 0:
        return []
    standing = front(points, same_cost=same_cost)
    behind = tied(points, noise=noise, same_cost=same_cost)
    costs, margin = [point.cost for point in standing], _TWO_RUNS * noise
    met = [standing[bisect_right(costs, point.cost * (1 + same_cost)) - 1] for point in behind]
    near = [each for pair in pairwise(standing) if pair[0].loss - pair[1].loss <= margin for each in pair]
    return [*behind, *met, *near]


def _lowest_at(cost: float, costs: Sequence[float], standing: Sequence[Point]) -> float:
    """Return the loss of the front at a cost."""
    return standing[bisect_right(costs, cost) - 1].loss


def records(points: Sequence[Point], *, same_cost: float = 0.0) -> Iterator[Point]:
    """Yield the points that were on the front when they came, in the given order; an equal point is no record.

    >>> a, b, c = (Point(cost=c, loss=l, name=n) for c, l, n in ((2, 3.0, "a"), (1, 2.0, "b"), (2, 2.5, "c")))
    >>> [point.name for point in records([a, b, c])]
    ['a', 'b']
    """
    standing: list[Point] = []
    for point in points:
        if all(point.cost * (1 + same_cost) < other.cost or point.loss < other.loss for other in standing):
            standing = [other for other in standing if other.cost < point.cost or other.loss < point.loss]
            standing.append(point)
            yield point


def hypervolume(points: Sequence[Point], *, worst_cost: float, worst_loss: float) -> float:
    """Return the area between the front and a worst point, in decades of cost times units of loss.

    >>> hypervolume([Point(cost=10, loss=1.0, name="a")], worst_cost=1000, worst_loss=1.5)
    1.0
    """
    standing = [point for point in front(points) if point.cost < worst_cost and point.loss < worst_loss]
    corners = [*(point.cost for point in standing[1:]), worst_cost]
    return sum(
        (math.log10(corner) - math.log10(point.cost)) * (worst_loss - point.loss)
        for point, corner in zip(standing, corners, strict=False)
        if corner > point.cost
    )


def _place(point: Point) -> tuple[float, float, str]:
    return point.cost, point.loss, point.name


FIRST_AXIS = "model FLOPs"
SAME_COST = 0.005
"""Largest relative difference of equal costs, which are stated to three digits."""


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """Submission on its board."""

    validated: Validated
    on_front: tuple[str, ...]
    """Cost axes on whose Pareto front the submission is."""

    tied: tuple[str, ...]
    """Cost axes on which the submission would be on the front within noise."""

    beaten_by: str | None
    """Submission that is cheaper and better on the first axis."""

    record: bool
    """True if the submission was on the front of the first axis when it finished."""

    @property
    def submission(self) -> Submission:
        """Submission of the row."""
        return self.validated.submission

    def to_document(self) -> dict[str, Any]:
        """Return a row of `board.json` and `board.csv`; unknown values are None."""
        each = self.submission
        return {
            "name": each.name,
            "track": each.track,
            "authors": ", ".join(author.name for author in each.authors),
            "bits_per_byte": each.bits_per_byte,
            "standard_error": each.standard_error,
            "seeds": len(each.seeds),
            **{axis_key(axis): cost(each) for axis, cost in AXES.items()},
            "mfu": each.mfu,
            "epochs": each.epochs,
            "hardware": each.compute.hardware.kind if each.compute.hardware else None,
            "finished_at": moment.isoformat() if (moment := finished_at(each)) else None,
            "verification": self.validated.verification,
            "on_front": list(self.on_front),
            "tied": list(self.tied),
            "beaten_by": self.beaten_by,
            "record": self.record,
            "findings": [finding.code for finding in self.validated.findings],
        }


@dataclass(frozen=True, kw_only=True)
class Record:
    """Submission that was on the front of the first axis when it finished."""

    at: datetime
    submission: Submission
    hypervolume: float
    """Area behind the front since then, up to the track's highest cost and loss: decades of cost times bits per byte."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """Track with its rows by rising loss, refused submissions, and the noise of one run in bits per byte."""

    track: str
    rows: tuple[BoardRow, ...]
    refused: tuple[Validated, ...]
    noise: float | None
    """Standard deviation of one run, pooled over submissions with several seeds; None without any."""

    records: tuple[Record, ...]
    """Records in order of time; only submissions with a known end."""


def boards(validated: Sequence[Validated]) -> list[Board]:
    """Return a board for each track, by name."""
    tracks: dict[str, list[Validated]] = defaultdict(list)
    for each in validated:
        tracks[each.submission.track].append(each)
    return [_board(track, tracks[track]) for track in sorted(tracks)]


def finished_at(submission: Submission) -> datetime | None:
    """Return the end of the last seed; None if one end is unknown."""
    moments = [each.finished_at for each in submission.seeds]
    known = [moment.astimezone(UTC) for moment in moments if moment is not None]
    return max(known) if len(known) == len(moments) else None


def points(submissions: Sequence[Submission], *, axis: str) -> list[Point]:
    """Return the places of submissions whose cost on that axis is known."""
    return [
        Point(cost=cost, loss=each.bits_per_byte, name=each.name)
        for each in submissions
        if (cost := AXES[axis](each)) is not None
    ]


_COUNTED: Mapping[str, Callable[[Submission], float | None]] = {
    "model FLOPs": lambda each: each.counted_flops,
    "hardware FLOPs": lambda each: each.counted_hardware_flops,
}


def checked_points(submissions: Sequence[Submission], *, axis: str) -> list[Point]:
    """Return the places of submissions whose cost on that axis was recomputed; only these can be on a front."""
    counted = _COUNTED.get(axis)
    return points([each for each in submissions if counted is None or counted(each) is not None], axis=axis)


def _board(track: str, validated: Sequence[Validated]) -> Board:
    accepted = [each for each in validated if each.accepted]
    submissions = [each.submission for each in accepted]
    noise = pooled_noise(submissions)
    standing, close = (
        _names_by_axis(submissions, lambda places: front(places, same_cost=SAME_COST)),
        _names_by_axis(submissions, lambda places: ties(places, noise=noise or 0.0, same_cost=SAME_COST)),
    )
    first = front(checked_points(submissions, axis=FIRST_AXIS), same_cost=SAME_COST)
    broke = record_history(submissions)
    names = {each.submission.name for each in broke}
    rows = [
        BoardRow(
            validated=each,
            on_front=tuple(axis for axis in AXES if each.submission.name in standing[axis]),
            tied=tuple(axis for axis in AXES if each.submission.name in close[axis]),
            beaten_by=_beaten_by(each.submission, first),
            record=each.submission.name in names,
        )
        for each in accepted
    ]
    ordered = sorted(rows, key=lambda row: (row.submission.bits_per_byte, row.submission.name))
    refused = tuple(each for each in validated if not each.accepted)
    return Board(track=track, rows=tuple(ordered), refused=refused, noise=noise, records=tuple(broke))


def pooled_noise(submissions: Sequence[Submission]) -> float | None:
    """Return the standard deviation of one run, pooled over submissions with two seeds or more; None without any."""
    several = [[seed.bits_per_byte for seed in each.seeds] for each in submissions if len(each.seeds) > 1]
    freedom = sum(len(losses) - 1 for losses in several)
    return math.sqrt(sum((len(losses) - 1) * variance(losses) for losses in several) / freedom) if freedom else None


def _names_by_axis(submissions: Sequence[Submission], chosen: Callable[[list[Point]], list[Point]]) -> dict[str, set[str]]:
    return {axis: {point.name for point in chosen(checked_points(submissions, axis=axis))} for axis in AXES}


def _beaten_by(submission: Submission, first: Sequence[Point]) -> str | None:
    (place,) = points([submission], axis=FIRST_AXIS)
    other = dominated_by(place, first, same_cost=SAME_COST)
    return other.name if other else None


def record_history(submissions: Sequence[Submission]) -> list[Record]:
    """Return the records of a track in order of time, with the area behind the front."""
    dated = [(moment, each) for each in submissions if (moment := finished_at(each)) is not None]
    ordered = sorted(dated, key=lambda pair: (pair[0], pair[1].name))
    known = {each.name: (moment, each) for moment, each in ordered}
    places = checked_points([each for _, each in ordered], axis=FIRST_AXIS)
    worst_cost, worst_loss = (max((getattr(point, of) for point in places), default=0.0) for of in ("cost", "loss"))
    standing: list[Point] = []
    found = []
    for point in records(places, same_cost=SAME_COST):
        standing = front([*standing, point])
        moment, each = known[point.name]
        area = hypervolume(standing, worst_cost=worst_cost, worst_loss=worst_loss)
        found.append(Record(at=moment, submission=each, hypervolume=area))
    return found


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


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """A scaling group at one gate of its track.

    `result` is passed if all comparisons are certain (their 90 % intervals), likely if all estimates are in its favour, not
    passed if one is not, and open if a run or a forecast is missing, with the reason `why_not`. `speedups` are those at the
    gate's budgets, in time (`is_timed`) where all runs are on one kind of accelerator with known times, else in model FLOPs;
    None if missing. `forecast_ratios` are the baseline's forecast loss over the group's, with the limits of both intervals.
    """

    group: str
    number: int
    gate: Gate
    result: str
    speedups: tuple[Speedup | None, ...] = ()
    forecast_ratios: tuple[tuple[float, float, float], ...] = ()
    is_timed: bool = False
    why_not: str = ""

    @property
    def row(self) -> list[str]:
        """Group, gate, result, speedups and ratios of forecasts with 90 % intervals, and what is missing, as texts."""
        speeds = zip(self.gate.flops, self.speedups, strict=False)
        ratios = zip(self.gate.projected_to_flops, self.forecast_ratios, strict=False)
        return [
            self.group,
            str(self.number),
            self.result,
            "; ".join(f"{format_flops(flops)}: {_speed_said(speed)}" for flops, speed in speeds),
            "time" if self.is_timed else "model FLOPs",
            "; ".join(f"{format_flops(flops)}: {ratio:.4f} [{low:.4f}, {high:.4f}]" for flops, (ratio, low, high) in ratios),
            self.why_not,
        ]


def _speed_said(speedup: Speedup | None) -> str:
    if speedup is None:
        return "none"
    low, high = speedup.interval
    value = "above all bounds" if speedup.value is None else f"{speedup.value:.3g}"
    return f"{value} [{low:.3g}, {'' if high is None else f'{high:.3g}'}]"


def gate_results(submissions: Sequence[Submission], track: Track) -> list[GateResult]:
    """Return the results of every scaling group but the baseline at each gate, by group."""
    groups: dict[str, list[Submission]] = defaultdict(list)
    for each in sorted(submissions, key=lambda each: each.comparable_flops):
        groups[each.group].append(each)
    baseline = groups.pop(track.baseline or "", [])
    return [result for name in sorted(groups) for result in _at_gates(name, groups[name], baseline, track)]


_SAME_BUDGET = 1.1


def _at_gates(name: str, members: Sequence[Submission], baseline: Sequence[Submission], track: Track) -> list[GateResult]:
    timed = _on_one_chip([*members, *baseline])
    try:
        if not baseline:
            raise UsageError(f"the baseline {track.baseline} has no entries.", fix="Add its entries.")
        compared = compare_recipes(*(_table(each, timed=timed) for each in (baseline, members))).comparisons
    except MarinScalingError as error:
        return [
            GateResult(group=name, number=number, gate=gate, result="open", why_not=error.what)
            for number, gate in enumerate(track.gates, start=1)
        ]
    return [
        _at_gate(name, number, gate, compared, members=members, baseline=baseline)
        for number, gate in enumerate(track.gates, start=1)
    ]


def _at_gate(
    name: str,
    number: int,
    gate: Gate,
    compared: Sequence[BudgetComparison],
    *,
    members: Sequence[Submission],
    baseline: Sequence[Submission],
) -> GateResult:
    found = [next((each for each in compared if _is_near(each.flops, flops)), None) for flops in gate.flops]
    speeds = tuple(None if each is None else each.wall_clock or each.model_flops for each in found)
    missing = [format_flops(flops) for flops, each in zip(gate.flops, speeds, strict=True) if each is None]
    states = ["open" if each is None else _state(each.value, each.interval) for each in speeds]
    why = f"no run within 10 % of {joined(missing)} model FLOPs" if missing else ""
    ratios = list[tuple[float, float, float]]()
    for flops in gate.projected_to_flops:
        ours, theirs = (_projection(name, each, flops=flops) for each in (members, baseline))
        if ours.forecast is None or theirs.forecast is None:
            states.append("open")
            why = why or f"no forecast for {format_flops(flops)} model FLOPs: {ours.why_not or theirs.why_not}"
        else:
            (low, high), (their_low, their_high) = ours.forecast.interval(), theirs.forecast.interval()
            ratio = theirs.forecast.median / ours.forecast.median
            ratios.append((ratio, their_low / high, their_high / low))
            states.append(_state(ratio, ratios[-1][1:]))
    worst = next(state for state in ("not passed", "open", "likely", "passed") if state in states)
    return GateResult(
        group=name,
        number=number,
        gate=gate,
        result=worst,
        speedups=speeds,
        forecast_ratios=tuple(ratios),
        is_timed=any(each is not None and each.wall_clock is not None for each in found),
        why_not=why if worst == "open" else "",
    )


def _is_near(flops: float, other: float) -> bool:
    return 1 / _SAME_BUDGET <= flops / other <= _SAME_BUDGET


def _state(ratio: float | None, interval: tuple[float, float | None]) -> str:
    """Return the state of a ratio that should be above 1; None is above all bounds."""
    if interval[0] > 1:
        return "passed"
    return "likely" if ratio is None or ratio > 1 else "not passed"


def _on_one_chip(submissions: Sequence[Submission]) -> bool:
    """Return True if all runs have a known time on the same kind of accelerator; processors of one name differ too much."""
    kinds = {each.compute.hardware.kind if each.compute.hardware else None for each in submissions}
    return len(kinds) == 1 and not kinds & {None, "cpu"} and all(each.chip_seconds for each in submissions)


def _table(ordered: Sequence[Submission], *, timed: bool = False) -> RunTable:
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
            **({"tokens_per_second": target.tokens / (each.chip_seconds or math.nan)} if timed else {}),
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
