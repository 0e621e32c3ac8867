"""Find runs of several kinds in one table, by a column or by budget: other losses, or another way to count FLOPs.

Runs of one recipe lie on a smooth surface: log loss over log FLOPs and log parameters, and log FLOPs / (6 N D) over log
parameters. A column of few values whose groups are shifted on that surface describes another kind of run. A column that goes
with size (a width, a batch size) does not: the surface has its effect already.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from marin_scaling.errors import Finding, error, warning
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted
from marin_scaling.run.cells import Sweep, cells_of, numbers_in
from marin_scaling.run.columns import LEAST_COUNT_SHIFT
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd

LEAST_LOSS_SHIFT = 0.01
"""Groups whose losses differ by less than 1 % change a forecast by less than its interval."""

_MOST_VALUES = 32
_LARGEST_SHARE = 0.25
"""A column with more values than a quarter of the runs names runs, not groups."""

_LEAST_RUNS = 2
LEAST_T, CHANCE = 4.5, 0.01
"""Least shift in standard errors, and the chance that the greatest of all shifts of a table reaches the threshold, which is
higher where columns are many. `benchmarks/audit_tables.py` has the shares of noisy tables that are named and disturbed."""

_LEAST_FREEDOM = 4
_CUBIC_FROM = 60
"""Runs from which on the surface is cubic: a quadratic misses a power law over three decades by about 1 %."""

_EXPLAINED = 0.8

_LARGE_LOSS_SHIFT = 0.02
"""Smaller differences between groups lie within the interval of most forecasts: a warning."""

_LEAST_SHARE = 0.05
"""A smaller share of odd runs is outliers: a warning, too."""

_REPETITION = re.compile(r"epoch|unique|distinct", re.IGNORECASE)
_MOST_COLUMNS = 200
_MOST_BUDGETS = 40
_VALUES_NAMED = 8
_OTHERS_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class GroupShift:
    """A column whose groups differ: `values` from the lowest group to the highest, which lie `shift` apart in logarithms."""

    column: str
    values: tuple[str, ...]
    shift: float
    low: str
    high: str
    largest: str
    """Value of the most runs."""
    others: float
    """Share of the runs outside the largest group."""


def shifted_groups(columns: pd.DataFrame, *, height: Array, coordinates: Sequence[Array], least: float) -> list[GroupShift]:
    """Return the columns whose groups are shifted by `least` or more on the surface, the clearest first.

    `columns` has a row a run; `height`, such as log loss, and each of `coordinates`, such as log FLOPs, are (run,).

    >>> import pandas as pd
    >>> size, web = np.linspace(0, 1, 30), np.tile([1.0, 0.0], 15)
    >>> height = 1 - 0.3 * size + 0.2 * web + 1e-3 * np.sin(99 * size)
    >>> kinds = pd.DataFrame({"dataset": np.where(web > 0, "web", "code")})
    >>> found = shifted_groups(kinds, height=height, coordinates=[size], least=0.01)
    >>> found[0].column, found[0].low, found[0].high, round(found[0].shift, 2)
    ('dataset', 'code', 'web', 0.2)
    """
    rows = evenly_spread(len(height))
    height, coordinates = height[rows], [each[rows] for each in coordinates]
    texts = {str(name): columns[name].iloc[rows].astype(str).to_numpy(dtype=np.str_) for name in columns.columns}
    parted = {name: np.unique(cells, return_inverse=True) for name, cells in texts.items()}
    groupings = {name: each for name, each in parted.items() if _is_grouping(each[1], len(each[0]))}
    pairs = sum(math.comb(len(labels), 2) for labels, _ in groupings.values())
    found = []
    for name, (labels, member) in groupings.items():
        surface = _surface(coordinates, spare=len(labels))
        if not _goes_with_size(labels, member, surface, coordinates):
            found.append(_shift(name, labels, member, height, surface, pairs=pairs))
    clear = [(score, group) for each in found if each is not None for score, group in [each] if group.shift >= least]
    return [group for _, group in sorted(clear, key=lambda pair: -pair[0])]


_MOST_RUNS = 4000
"""Runs that a surface is fitted to, evenly spread over a larger table."""


def evenly_spread(count: int) -> NDArray[np.int64]:
    """Return the positions of at most 4,000 of `count` runs: (run,)."""
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_RUNS)).astype(np.int64))


def _is_grouping(member: NDArray[np.intp], count: int) -> bool:
    if not 1 < count <= min(_MOST_VALUES, max(2, _LARGEST_SHARE * len(member))):
        return False
    return bool(np.sort(np.bincount(member))[-2] >= _LEAST_RUNS)


def _goes_with_size(labels: NDArray[np.str_], member: NDArray[np.intp], surface: Array, coordinates: Sequence[Array]) -> bool:
    """Return True for numbers that size and budget explain, and for labels of three or more separate ranges of them."""
    if len(labels) > 2 and any(_are_separate(member, each) for each in coordinates):
        return True
    numbers = numbers_in(labels)
    if numbers is None or not np.ptp(numbers):
        return False
    heights = (np.log(numbers) if (numbers > 0).all() else numbers)[member]
    left = heights - surface @ np.linalg.lstsq(surface, heights, rcond=None)[0]
    return bool(left.var() < (1 - _EXPLAINED) * heights.var())


def _are_separate(member: NDArray[np.intp], values: Array) -> bool:
    lows, highs = (np.array([end(values[member == group]) for group in range(member.max() + 1)]) for end in (np.min, np.max))
    order = np.argsort(lows)
    return bool((lows[order][1:] > highs[order][:-1]).all())


def _surface(coordinates: Sequence[Array], *, spare: int) -> Array:
    """Return 1, x, x^2 of each coordinate and their products, and cubes where runs are many: (run, coefficient)."""
    scaled = [(each - each.mean()) / (each.std() or 1.0) for each in coordinates]
    products = [a * b for place, a in enumerate(scaled) for b in scaled[place:]]
    many = len(scaled[0]) >= _CUBIC_FROM + 4 * spare
    cubes = [np.prod(each, axis=0) for each in itertools.combinations_with_replacement(scaled, 3)] if many else []
    return np.stack([np.ones_like(scaled[0]), *scaled, *products, *cubes], axis=1)


def _shift(
    name: str, labels: NDArray[np.str_], member: NDArray[np.intp], height: Array, surface: Array, *, pairs: int
) -> tuple[float, GroupShift] | None:
    """Return the clearest pair of groups, with its difference in standard errors."""
    dummies = (member[:, None] == np.arange(1, len(labels))).astype(np.float64)
    design = np.concatenate([surface, dummies], axis=1)
    rank = int(np.linalg.matrix_rank(design))
    freedom = len(height) - rank
    if freedom < _LEAST_FREEDOM or rank < np.linalg.matrix_rank(surface) + len(labels) - 1:
        return None  # too few runs, or a group that goes with size alone
    inverse = np.linalg.pinv(design.T @ design)
    coefficients = inverse @ design.T @ height
    variance = max(float(np.sum((height - design @ coefficients) ** 2) / (len(height) - rank)), 1e-12)
    first = surface.shape[1]
    shifts = np.concatenate([[0.0], coefficients[first:]])
    covariance = np.zeros((len(labels), len(labels)))
    covariance[1:, 1:] = inverse[first:, first:] * variance
    spread = np.diag(covariance)[:, None] + np.diag(covariance) - 2 * covariance
    scores = np.abs(shifts[:, None] - shifts) / np.sqrt(np.maximum(spread, 1e-18))
    one, other = np.unravel_index(int(np.argmax(scores)), scores.shape)
    if scores[one, other] < max(LEAST_T, stdtrit(freedom, 1 - CHANCE / 2 / pairs)):
        return None
    low, high = sorted((int(one), int(other)), key=lambda group: shifts[group])
    return float(scores[one, other]), GroupShift(
        column=name,
        values=tuple(str(labels[group]) for group in np.argsort(shifts)),
        shift=float(shifts[high] - shifts[low]),
        low=str(labels[low]),
        high=str(labels[high]),
        largest=str(labels[int(np.argmax(np.bincount(member)))]),
        others=1 - float(np.bincount(member).max()) / len(member),
    )


def audit_kinds(frame: pd.DataFrame, others: pd.DataFrame, *, sweep: Sweep) -> list[Finding]:
    """Return a finding for the columns that set kinds of runs apart, and for a step of the FLOP count between budgets.

    `others` holds the further columns of the table, in the same rows; what was swept or replicated is no kind of run.
    """
    if len(frame) < 2:
        return []
    repeated = [name for name in others.columns if _REPETITION.search(str(name))]  # the audit of epochs is about these
    columns = others.drop(columns=[*sweep.swept, *sweep.replicated, *repeated], errors="ignore").iloc[:, :_MOST_COLUMNS]
    size, ratio = frame[_size(frame)].to_numpy(dtype=np.float64), _log_ratio(frame)
    by_count = shifted_groups(columns, height=ratio, coordinates=[np.log(size)], least=LEAST_COUNT_SHIFT)
    findings = [_of_counts(by_count)] if by_count else []
    if not by_count and (step := _budget_step(frame, ratio, size)):
        findings = [step]
    coordinates, swept = [np.log(frame["flops"].to_numpy(dtype=np.float64)), np.log(size)], sweep.is_in(frame)
    by_loss = _loss_shifts(frame, columns, coordinates, swept=swept)
    if not by_loss:
        return findings
    sparsity = np.log(frame["params"].to_numpy(dtype=np.float64) / size)
    is_counted = _is_as_sparse(by_loss[0], columns, sparsity) and by_loss[0].column not in [
        each.column for each in _loss_shifts(frame, columns, [*coordinates, sparsity], swept=swept)
    ]
    return [_of_losses(by_loss, by_sparsity=is_counted), *findings]


_STEEPEST = 0.2
"""Largest fall of log loss with the log of total / active parameters: the law's slopes are .02 to .15, and kappa at most 1."""


def _is_as_sparse(group: GroupShift, columns: pd.DataFrame, sparsity: Array) -> bool:
    """Return True if the groups' log ratios of total to active parameters differ enough to explain their losses."""
    cells = columns[group.column].astype(str).to_numpy()
    apart = np.median(sparsity[cells == group.low]) - np.median(sparsity[cells == group.high])
    return bool(group.shift <= _STEEPEST * apart)


def _size(frame: pd.DataFrame) -> str:
    return "active_params" if "active_params" in frame else "params"


def _loss_shifts(frame: pd.DataFrame, columns: pd.DataFrame, coordinates: Sequence[Array], *, swept: bool) -> list[GroupShift]:
    """Return the shifts of log loss; of a swept table the best run of each cell and value stands for its tunings."""
    if swept:
        return shifts_of_best(frame["loss"], columns, cells=cells_of(frame), coordinates=coordinates)
    height = np.log(frame["loss"].to_numpy(dtype=np.float64))
    return shifted_groups(columns, height=height, coordinates=coordinates, least=LEAST_LOSS_SHIFT)


def shifts_of_best(
    loss: pd.Series[float], columns: pd.DataFrame, *, cells: NDArray[np.int64], coordinates: Sequence[Array]
) -> list[GroupShift]:
    """Return the shifts of log loss between groups of which the best run of each cell stands for its tunings.

    `cells` are numbers of cells and `coordinates` such as log FLOPs: (run,) each; `columns` has a row a run.
    """
    found, height = list[GroupShift](), np.log(loss.to_numpy(dtype=np.float64))
    for name in columns.columns:
        best = loss.groupby([cells, columns[name].astype(str).to_numpy()]).idxmin().to_numpy()
        ours = [each[best] for each in coordinates]
        found += shifted_groups(columns[[name]].iloc[best], height=height[best], coordinates=ours, least=LEAST_LOSS_SHIFT)
    return found


def _of_losses(shifts: list[GroupShift], *, by_sparsity: bool) -> Finding:
    """Return an error if one law cannot go through the groups, a warning if they are few, near, or apart by sparsity."""
    first = shifts[0]
    make = error if first.shift >= _LARGE_LOSS_SHIFT and first.others >= _LEAST_SHARE and not by_sparsity else warning
    counted = "total / active parameters go with it, which the law counts by kappa. If these runs differ in more, fit one kind"
    return make(
        "groups",
        first.column,
        f"column {quoted(first.column)!r} sets kinds of runs apart: at equal FLOPs and parameters the loss of "
        f"{quoted(first.high)!r} lies {np.expm1(first.shift):.1%} above that of {quoted(first.low)!r} ({values_named(first)})"
        f"{_also(shifts)}; {counted if by_sparsity else 'one law cannot go through both. Fit one kind'}: {choice_of(first)}",
    )


def _of_counts(shifts: list[GroupShift]) -> Finding:
    first = shifts[0]
    factor = f"{np.exp(first.shift):.3g} times those of {quoted(first.low)!r} at equal size ({values_named(first)})"
    return error(
        "flop-count",
        first.column,
        f"column {quoted(first.column)!r} sets ways to count FLOPs apart: FLOPs / (6 x params x tokens) of "
        f"{quoted(first.high)!r} are {factor}{_also(shifts)}. Count all runs alike, or fit one kind: {choice_of(first)}",
    )


def values_named(group: GroupShift) -> str:
    """Return the values of a column, the lowest group first."""
    return f"values: {joined(group.values, most=_VALUES_NAMED)}"


def _also(shifts: list[GroupShift]) -> str:
    others = [group.column for group in shifts[1:]]
    return f"; also {joined(others, most=_OTHERS_NAMED)}" if others else ""


def choice_of(group: GroupShift) -> str:
    """Return the option that chooses the largest group."""
    pair = f"{group.column}={group.largest}"
    return f"--where {shlex.quote(quoted(pair))}"


def _budget_step(frame: pd.DataFrame, ratio: Array, size: Array) -> Finding | None:
    """Return the finding that FLOPs / (6 N D) steps at a budget, where it is a smooth function of size in sound tables."""
    import pandas as pd

    budgets = frame["budget_flops"].to_numpy(dtype=np.float64)
    levels = np.unique(budgets)
    if not 1 < len(levels) <= _MOST_BUDGETS:
        return None
    rows = evenly_spread(len(budgets))  # a million runs would need a gigabyte of labels
    parts = pd.DataFrame({f"{n}": np.where(budgets[rows] >= level, "above", "below") for n, level in enumerate(levels) if n})
    found = shifted_groups(parts, height=ratio[rows], coordinates=[np.log(size[rows])], least=LEAST_COUNT_SHIFT)
    if not found:
        return None
    first = int(found[0].column)
    factor = np.exp(found[0].shift if found[0].high == "above" else -found[0].shift)
    above, below = ([format_flops(level) for level in part] for part in (levels[first:], levels[:first]))
    return error(
        "flop-count",
        "flops",
        f"FLOPs are counted by two conventions: FLOPs / (6 x params x tokens) at the budgets {joined(above)} are {factor:.3g} "
        f"times those at {joined(below)}, at equal size (1.33 is 8 N D, with recomputed activations). Count all budgets alike",
    )


def count_ratio(one: pd.DataFrame, other: pd.DataFrame) -> tuple[float, bool] | None:
    """Return by what factor two tables count FLOPs / (6 N D) apart at equal size, and whether it is one factor at all sizes.

    None if they count alike, or share no sizes.

    >>> import pandas as pd
    >>> one = pd.DataFrame({"params": [1e8, 2e8, 4e8], "tokens": [2e9] * 3})
    >>> one, other = (one.assign(flops=k * one["params"] * one["tokens"]) for k in (6, 8))
    >>> count_ratio(one, other)
    (1.33, True)
    """
    ours, theirs = (np.log(frame[_size(frame)].to_numpy(dtype=np.float64)) for frame in (one, other))
    shared = (theirs >= ours.min() - _NEAR_SIZE) & (theirs <= ours.max() + _NEAR_SIZE)
    if not shared.any():
        return None
    order = np.argsort(ours)
    differences = _log_ratio(other)[shared] - np.interp(theirs[shared], ours[order], _log_ratio(one)[order])
    shift = float(np.median(differences))
    if abs(shift) < LEAST_COUNT_SHIFT:
        return None
    return round(float(np.exp(shift)), 2), bool(np.ptp(differences) < _ONE_FACTOR)


_NEAR_SIZE = 0.1
_ONE_FACTOR = 0.03
"""A convention is one factor; what an architecture saves, or the embedding adds, changes with size."""


def _log_ratio(frame: pd.DataFrame) -> Array:
    flops, size, tokens = (frame[name].to_numpy(dtype=np.float64) for name in ("flops", _size(frame), "tokens"))
    return np.asarray(np.log(flops / (6 * size * tokens)))
