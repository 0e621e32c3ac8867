"""Cells of a run table: runs of one size, length and cost; what was swept inside them, and what marks replicates."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import Finding, note, warning
from marin_scaling.laws import Array
from marin_scaling.printable import joined, quoted
from marin_scaling.run.columns import STEP_NAMES, spelled
from marin_scaling.units import format_number

if TYPE_CHECKING:
    import pandas as pd

NEARNESS = {"params": 0.005, "active_params": 0.005, "tokens": 0.015, "flops": 0.03, "epochs": 0.01}
"""Relative difference up to which two numbers are one. Whole batches move tokens by up to 1 %, and FLOPs with them."""

ONE_EPOCH = 1.01
"""Largest number of epochs that counts as one."""

_WIDEST = 3.0
"""A chain of near numbers is one level if it spans at most this many times the nearness; of a wider one, equal numbers are."""

_CHANCE = 1e-3
"""Largest p-value of a swept column; 0.05 for a column with the name of a hyperparameter."""
_NAMED_CHANCE = 0.05

_TUNED = re.compile(
    r"(^|[^a-z])(lr|learning[-_ ]?rate|peak[-_ ]?lr|bs|batch|batch[-_ ]?size|wd|weight[-_ ]?decay|warm[-_ ]?up|beta[_12]*|eps|"
    r"epsilon|momentum|dropout|clip|grad[-_ ]?clip|init|init[-_ ]?std|decay|temperature|muon|adam)([^a-z]|$)",
    re.IGNORECASE,
)
_REPLICATE = re.compile(r"(^|[^a-z])(seeds?|rng|replicates?|repeats?|repetitions?|reps?|trials?)([^a-z]|$)", re.IGNORECASE)
_KIND = re.compile(r"vocab|tokeni[sz]er|seq|context|data|corpus|stage|phase|arch|version|experiment|split", re.IGNORECASE)
"""A column with such a name tells kinds of runs apart, also where its values are numbers."""

_MANY = 3
_PARABOLA = 3
"""Runs that a parabola goes through whatever their losses."""
_LEAST_SHARE = 0.3
_LEAST_CELLS = 5
_MOST_ROWS = 2000
"""Runs that the test of a column takes: cells up to this many runs."""
_MOST_LABELS = 64


def repeats_data(frame: pd.DataFrame) -> bool:
    """Return True if any run of a table was trained for more than one epoch."""
    return "epochs" in frame and bool((frame["epochs"] > ONE_EPOCH).any())


def cells_of(frame: pd.DataFrame) -> NDArray[np.int64]:
    """Return the cell of each run of a table, (run,), numbered from 0: equal in all columns of `NEARNESS` that it has.

    >>> import pandas as pd
    >>> cells_of(pd.DataFrame({"params": [1e8, 1e8, 1e8, 2e8], "tokens": [2e9, 2.01e9, 3e9, 2e9]})).tolist()
    [0, 0, 1, 2]
    """
    numbers = {name: frame[name].to_numpy(dtype=np.float64) for name in NEARNESS if name in frame}
    keys = [_levels(np.log(values), NEARNESS[name]) for name, values in numbers.items()]
    return np.asarray(np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1))


def _levels(logs: Array, nearness: float) -> NDArray[np.int64]:
    """Return the number of the group of near values that each value is in: (run,)."""
    order = np.argsort(logs, kind="stable")
    values = logs[order]
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > nearness)
    ends = np.append(starts[1:], len(values))
    levels = np.zeros(len(values), dtype=np.int64)
    level = -1
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        steps = np.zeros(end - start, dtype=np.int64)
        if values[end - 1] - values[start] > _WIDEST * nearness:
            steps = np.cumsum(np.diff(values[start:end], prepend=values[start]) > 0)
        levels[start:end] = level + 1 + steps
        level += 1 + int(steps[-1])
    found = np.empty_like(levels)
    found[order] = levels
    return found


def _levels_of(frame: pd.DataFrame, column: str) -> NDArray[np.int64]:
    return _levels(np.log(frame[column].to_numpy(dtype=np.float64)), NEARNESS[column])


EARLIER_CHECKPOINT = "earlier checkpoint"
_STEP_IN_NAME = re.compile(r"[-_/. ]*(steps?|ckpt|checkpoint|iter)[-_=. ]*\d+$", re.IGNORECASE)
_RUN_NAMES = re.compile(r"(^|_)(run|id)(_|$)")
_MOST_ON_LEVELS = 0.5
_LEAST_ON_LEVEL = 3


def find_checkpoints(
    frame: pd.DataFrame, others: pd.DataFrame, *, column: str, is_chosen: bool, size: str = "params"
) -> tuple[dict[int, str], list[Finding]]:
    """Return the rows that are earlier checkpoints of a run, position to reason, and a finding where runs cannot be told.

    Rows of one name, size, seed and nominal budget are one run if the loss falls from the fewest tokens to the most. The
    table's `column` of names distinguishes runs if the user chose it, if the table has steps, or if its own name says so and
    the rows are no isoFLOP grid. Where no column names runs, all rows stay, and `size` is the table's column of parameters.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"run": ["a", "a", "b"], "params": 1e8, "tokens": [1e9, 2e9, 2e9], "loss": [4.0, 3.5, 3.6]})
    >>> find_checkpoints(frame, pd.DataFrame(), column="run", is_chosen=False)[0]
    {0: 'earlier checkpoint of a; the row with the most tokens (2e9) is kept'}
    """
    if frame.empty:
        return {}, []
    if not column:
        return {}, _unnamed_checkpoints(frame, others, size=size)
    stems = frame["run"].map(lambda name: _STEP_IN_NAME.sub("", str(name)))
    shared = [frame[name] for name in ("seed", "budget_flops") if name in frame]
    sizes = _levels_of(frame, "params")
    repeated = stems.duplicated(keep=False).to_numpy()
    groups = frame[repeated].groupby([stems[repeated], sizes[repeated], *(each[repeated] for each in shared)], sort=False)
    curves = [curve for _, rows in groups if (curve := rows.sort_values("tokens", kind="stable")) is not None and _falls(curve)]
    if not curves:
        return {}, []
    names = [stems[curve.index[-1]] for curve in curves]
    has_steps = not {spelled(str(name)) for name in others.columns}.isdisjoint(map(spelled, STEP_NAMES))
    if is_chosen or has_steps or (_RUN_NAMES.search(spelled(column)) and not _share_levels(frame, curves)):
        pairs = list(zip(names, curves, strict=True))
        return {int(row): _earlier(name, curve) for name, curve in pairs for row in curve.index[:-1]}, []
    message = f"several rows of one size, at growing tokens and falling loss, are called {joined(names, most=_MANY)}"
    fix = f"Checkpoints of one run? --column {shlex.quote(quoted(f'run={column}'))} keeps the last row of each"
    return {}, [warning("checkpoints", column, f"{message}. {fix}")]


def _earlier(name: str, curve: pd.DataFrame) -> str:
    """Return the reason to leave out the rows of a run before its last one."""
    kept = f"the row with the most tokens ({format_number(curve['tokens'].iloc[-1], 4)}) is kept"
    return f"{EARLIER_CHECKPOINT} of {name}; {kept}"


def _falls(curve: pd.DataFrame) -> bool:
    """Return True for two rows or more with different tokens and a loss that falls from the first to the last."""
    return len(curve) > 1 and curve["tokens"].is_unique and bool(curve["loss"].iloc[-1] < curve["loss"].iloc[0])


def _share_levels(frame: pd.DataFrame, curves: Sequence[pd.DataFrame]) -> bool:
    """Return True if half of the earlier rows lie on levels of FLOPs with other sizes: an isoFLOP grid, not checkpoints."""
    if "flops" not in frame:
        return False
    levels = _levels_of(frame, "flops")
    sizes = frame["params"].groupby(levels).transform("nunique").to_numpy()
    rows = np.concatenate([curve.index[:-1].to_numpy() for curve in curves])
    return bool(np.mean(sizes[rows] >= _LEAST_ON_LEVEL) >= _MOST_ON_LEVELS)


_LEAST_ON_CURVE = 3
_SETTING_SHARE = 0.9
_SPACED, _SPACED_SHARE, _SAME_GAP = 8, 0.8, 0.02
"""Equally spaced steps at each size that show a logging interval: designs have fewer lengths, and space them by factors."""

_AT_END = 0.01
"""Distance from the planned end, relative to it, up to which a row is at the end."""
_EXPONENTS = np.linspace(0.05, 1.0, 20)
_LEAST_FREEDOM, _LEAST_T, _LEAST_TAIL = 4, 4.5, 0.005
_LEAST_UNFINISHED = 0.01
"""Least excess of unfinished rows: a smaller one changes a forecast by less than its interval. `benchmarks/audit_tables.py` has
the share of tables of checkpoints that are named, and of tables of separate runs that are disturbed."""


@dataclass(frozen=True, kw_only=True)
class _Curves:
    """Rows that one run may have passed through: positions by growing tokens, and the clock's numbers (row of the table)."""

    clock: str
    steps: Array
    rows: tuple[NDArray[np.intp], ...]
    settings: tuple[str, ...]


def _unnamed_checkpoints(frame: pd.DataFrame, others: pd.DataFrame, *, size: str) -> list[Finding]:
    """Return a finding for rows that may be checkpoints of one run, in a table without names of runs.

    A clock is a column of whole numbers in proportion to tokens at each size, such as a step. Tables of separate runs have one,
    too. The length of a run is chosen before it starts, and its learning rate decays towards that length. So checkpoints show
    in three ways. A column holds the planned end, which the last row alone reaches. The clock's numbers are many and equally
    spaced. Or earlier losses lie above the power law in tokens on which the last losses of all sizes end. Separate runs are
    each at their end. A table that shows none of this gets a note, unless its rows are an isoFLOP grid.
    """
    curves = _curves_by_clock(frame, others)
    if curves is None:
        return []
    evidence = _planned_end(curves, others) or _equal_spacing(curves) or _unfinished(frame, curves)
    count = sum(len(rows) for rows in curves.rows)
    fix = f"Checkpoints? --column {shlex.quote(quoted(f'run={(*curves.settings, size)[0]}'))} keeps the last row of each run"
    fix += "; separate runs? --column run=NAME, a column with a name for each"
    if evidence:
        message = f"{count} of {len(frame)} rows are probably checkpoints of {len(curves.rows)} runs: {evidence}"
        return [warning("checkpoints", curves.clock, f"{message}. {fix}")]
    if 2 * count < len(frame) or _share_levels(frame, [frame.iloc[rows] for rows in curves.rows]):
        return []
    message = (
        f"{count} rows of {len(curves.rows)} sizes may be checkpoints: tokens are in proportion to {quoted(curves.clock)!r}"
    )
    return [note("checkpoints", curves.clock, f"{message}. {fix}")]


def _curves_by_clock(frame: pd.DataFrame, others: pd.DataFrame) -> _Curves | None:
    """Return the curves of the first column that is a clock."""
    sizes, tokens = _levels_of(frame, "params"), frame["tokens"].to_numpy(dtype=np.float64)
    chosen = [frame[name].astype(str).to_numpy() for name in ("seed", "budget_flops") if name in frame]
    for clock in others.columns:
        steps = numbers_in(others[clock].astype(str).to_numpy(dtype=np.str_))
        if steps is None or not (steps >= 1).all() or (steps % 1).any():
            continue
        groups = _numbered(sizes, _levels(np.log(tokens / steps), NEARNESS["tokens"]), *chosen)
        settings = [str(name) for name in others.columns if name != clock and _is_setting(groups, others[name])]
        groups = _numbered(groups, *(others[name].astype(str).to_numpy() for name in settings))
        rows = tuple(rows for rows in _members(groups, tokens) if _falls(frame.iloc[rows]))
        if rows:
            return _Curves(clock=str(clock), steps=steps, rows=rows, settings=tuple(settings))
    return None


def _numbered(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of each row's combination of keys: (row,)."""
    numbers = [np.unique(key, return_inverse=True)[1] for key in keys]
    return np.asarray(np.unique(np.stack(numbers), axis=1, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def _is_setting(groups: NDArray[np.int64], values: pd.Series[Any]) -> bool:
    """Return True if each value recurs within its group, as what was chosen for a run does; results change with each row."""
    pairs = _numbered(groups, values.astype(str).to_numpy())
    counts = np.bincount(pairs)
    return len(counts) > groups.max() + 1 and bool(np.mean(counts[pairs] >= _LEAST_ON_CURVE) >= _SETTING_SHARE)


def _members(groups: NDArray[np.int64], tokens: Array) -> list[NDArray[np.intp]]:
    """Return the rows of each group of three or more, by growing tokens."""
    order = np.lexsort((tokens, groups))
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    return [part for part in parts if len(part) >= _LEAST_ON_CURVE]


def _planned_end(curves: _Curves, others: pd.DataFrame) -> str:
    """Return the fact that a column holds the last step of each curve in all of its rows."""
    for name in others.columns:
        values = numbers_in(others[name].astype(str).to_numpy(dtype=np.str_)) if name != curves.clock else None
        if values is not None and all(
            np.ptp(values[rows]) == 0 and abs(values[rows[0]] / curves.steps[rows[-1]] - 1) <= _AT_END for rows in curves.rows
        ):
            return f"column {quoted(str(name))!r} holds the end of each, which its last row alone reaches"
    return ""


def _equal_spacing(curves: _Curves) -> str:
    """Return the fact that the steps of every curve are many and equally spaced."""
    for rows in curves.rows:
        gaps = np.diff(curves.steps[rows])
        is_equal = np.abs(gaps / np.median(gaps) - 1) <= _SAME_GAP
        if len(rows) < _SPACED or np.mean(is_equal) < _SPACED_SHARE:
            return ""
    return f"at each size {min(map(len, curves.rows))} or more rows at equally spaced {quoted(curves.clock)!r}"


def _unfinished(frame: pd.DataFrame, curves: _Curves) -> str:
    """Return the fact that losses before the last of a curve lie above a power law that the last ones end."""
    from scipy.special import stdtrit

    loss, tokens = (frame[name].to_numpy(dtype=np.float64) for name in ("loss", "tokens"))
    freedom = sum(len(rows) - 2 for rows in curves.rows) - 2
    if freedom < _LEAST_FREEDOM:
        return ""
    fits = [_remaining(loss, tokens / np.median(tokens), curves.rows, exponent) for exponent in _EXPONENTS]
    without = min(plain for plain, _ in fits)
    best, excess = min(each for _, found in fits for each in found)
    score = math.sqrt(max(freedom * (without - best) / max(best, 1e-18), 0.0))
    if excess < _LEAST_UNFINISHED or score < max(_LEAST_T, stdtrit(freedom, 1 - _LEAST_TAIL)):
        return ""
    return f"losses before the last one of a size lie up to {excess:.1%} above the power law in tokens that the last ones end"


def _remaining(
    loss: Array, tokens: Array, curves: Sequence[NDArray[np.intp]], exponent: float
) -> tuple[float, list[tuple[float, float]]]:
    """Return the squared residuals of a power law for each curve, and for each schedule those with its excess, and the excess.

    The schedules are a decay at the very end, and a cosine. Their excess of the loss is common to all curves.
    """
    products = np.zeros((3, 3))
    for rows in curves:
        progress = tokens[rows] / tokens[rows[-1]]
        heights = np.stack([np.ones(len(rows)), progress < 1 - _AT_END, (1 + np.cos(np.pi * progress)) / 2], axis=1)
        law = np.linalg.qr(np.stack([np.ones(len(rows)), tokens[rows] ** -exponent], axis=1) / loss[rows][:, None])[0]
        left = heights - law @ (law.T @ heights)
        products += left.T @ left
    plain = float(products[0, 0])
    excess = [products[0, each] / max(products[each, each], 1e-18) for each in (1, 2)]
    return plain, [(plain - float(products[0, each] * excess[each - 1]), float(excess[each - 1])) for each in (1, 2)]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Columns that set runs of one cell apart: `swept` hyperparameters, and `replicated` ones such as seeds.

    `are_replicates` is True if the replicated columns tell all runs of each cell apart, so that nothing else can differ.
    """

    swept: tuple[str, ...] = ()
    replicated: tuple[str, ...] = ()
    are_replicates: bool = False

    def is_in(self, frame: pd.DataFrame) -> bool:
        """Return True if runs of one cell differ in how well they were tuned."""
        return bool(self.swept) or (not self.are_replicates and has_many_per_cell(frame))


def has_many_per_cell(frame: pd.DataFrame) -> bool:
    """Return True for a table with three runs or more in a third of its cells, five cells or more.

    >>> import pandas as pd
    >>> sizes = np.repeat([1e7, 2e7, 4e7, 8e7, 1.6e8], 4)
    >>> has_many_per_cell(pd.DataFrame({"params": sizes, "tokens": 20 * sizes}))
    True
    """
    counts = np.bincount(cells_of(frame)) if len(frame) else np.zeros(0)
    return len(counts) >= _LEAST_CELLS and bool(np.mean(counts >= _MANY) > _LEAST_SHARE)


def find_sweep(frame: pd.DataFrame, others: pd.DataFrame) -> Sweep:
    """Return what was swept in a run table; `others` holds its further columns, in the same rows.

    A column is swept if the loss follows its value within cells; replicates leave no such trace. Columns whose values do not
    recur are results, not choices, unless their name is that of a hyperparameter.

    >>> import pandas as pd
    >>> size = np.repeat([1e8, 2e8, 4e8, 8e8], 3)
    >>> loss = 4 - 0.2 * np.log(size / 1e8) + np.tile([0.1, 0.0, 0.2], 4)
    >>> frame = pd.DataFrame({"params": size, "tokens": 20 * size, "loss": loss})
    >>> find_sweep(frame, pd.DataFrame({"rate": ["1e-3", "2e-3", "4e-3"] * 4, "id": list("abcdefghijkl")})).swept
    ('rate',)
    """
    if frame.empty or others.empty:
        return Sweep()
    cells = cells_of(frame)
    repeated = np.flatnonzero(np.bincount(cells)[cells] > 1)
    rows = repeated[np.argsort(cells[repeated], kind="stable")][:_MOST_ROWS]
    cells, loss = np.unique(cells[rows], return_inverse=True)[1], frame["loss"].to_numpy(dtype=np.float64)[rows]
    swept, replicated = list[str](), list[str]()
    for name in others.columns:
        values = others[name].iloc[rows].astype(str).to_numpy(dtype=np.str_)
        if not _varies(cells, values):
            continue
        if _REPLICATE.search(str(name)):
            replicated.append(str(name))
        elif _cannot_be_tested(str(name), cells, values):
            swept.append(str(name))
        elif (chance := _chance_of_column(str(name), cells, loss, values)) is not None:
            least = _NAMED_CHANCE if _TUNED.search(str(name)) else _CHANCE
            (swept if chance < least else replicated).append(str(name))
    marks = list(zip(cells.tolist(), *(others[name].iloc[rows].astype(str) for name in replicated), strict=True))
    return Sweep(swept=tuple(swept), replicated=tuple(replicated), are_replicates=len(set(marks)) == len(marks) > 0)


def _cannot_be_tested(name: str, cells: NDArray[np.int64], values: NDArray[np.str_]) -> bool:
    """Return True for a hyperparameter by its name whose parabolas take all freedom, as those of three runs a cell do."""
    pairs = set(zip(cells.tolist(), values.tolist(), strict=True))
    is_full = len(pairs) == len(values) and max(np.bincount(cells)) <= _PARABOLA
    return bool(_TUNED.search(name)) and is_full and "" not in values and numbers_in(values) is not None


def _varies(cells: NDArray[np.int64], values: NDArray[np.str_]) -> bool:
    return len(set(zip(cells.tolist(), values.tolist(), strict=True))) > len(set(cells.tolist()))


def _chance_of_column(name: str, cells: NDArray[np.int64], loss: Array, values: NDArray[np.str_]) -> float | None:
    """Return the p-value of "the loss does not follow this column"; None if it cannot be swept, or not be tested."""
    numbers, distinct = numbers_in(values), sorted(set(values.tolist()))
    if numbers is None or "" in values:
        return None
    if not _TUNED.search(name) and (
        _KIND.search(name) or len(distinct) < _MANY or 2 * len(distinct) > len(values) or _are_labels(distinct)
    ):
        return None
    return _chance(cells, loss, values, numbers)


def _are_labels(distinct: Sequence[str]) -> bool:
    """Return True for texts and for 0, 1, 2, ..., which number kinds of runs."""
    if not all(re.fullmatch(r"[-+\d.eE]+", value) for value in distinct):
        return True
    steps = np.diff(np.sort(np.array(distinct, dtype=np.float64)))
    return bool((steps == 1).all()) and min(map(float, distinct)) in (0, 1)


def numbers_in(values: Sequence[str] | NDArray[np.str_]) -> Array | None:
    """Return the numbers in the cells of a column, also in one common text such as bs32; None for other texts.

    >>> numbers_in(["bs32", "bs64"]).tolist(), numbers_in(["web", "code"])
    ([32.0, 64.0], None)
    """
    try:
        found = np.asarray(values, dtype=np.str_).astype(np.float64)
    except ValueError:
        parts = {value: re.fullmatch(r"([^\d]*?)(\d+\.?\d*(?:e[-+]?\d+)?)([^\d]*)", value) for value in map(str, set(values))}
        if any(each is None for each in parts.values()) or len({(each[1], each[3]) for each in parts.values() if each}) > 1:
            return None
        found = np.array([float(each[2]) for value in values if (each := parts[str(value)])])
    return found if np.isfinite(found).all() else None


def _chance(cells: NDArray[np.int64], loss: Array, values: NDArray[np.str_], numbers: Array) -> float | None:
    """Return the p-value of an F test, corrected for two tests; None if no freedom is left.

    The loss may follow the values in one way in all cells, or a parabola in the logarithm of a number in each cell.
    """
    labels, member = np.unique(values, return_inverse=True)
    dummies = member[:, None] == np.arange(min(len(labels), _MOST_LABELS) - 1)
    tests = [_p_value(cells, _ranks(cells, loss), dummies.astype(np.float64)), _curved(cells, loss, numbers)]
    found = [each for each in tests if each is not None]
    return min(1.0, len(found) * min(found)) if found else None


def _curved(cells: NDArray[np.int64], loss: Array, numbers: Array) -> float | None:
    """Return the p-value of parabolas, one in each cell, in the logarithm of positive numbers: F tests of cells, joined."""
    if not (numbers > 0).all():
        return None
    explained, used, rest, freedom = 0.0, 0, 0.0, 0
    for cell in np.unique(cells):
        rows = cells == cell
        x, y = np.log(numbers[rows]), np.log(loss[rows])
        x, y = x - x.mean(), y - y.mean()
        design = np.stack([x, x**2 - np.mean(x**2)], axis=1)
        rank = int(np.linalg.matrix_rank(design))
        if not rank:
            freedom, rest = freedom + len(y) - 1, rest + float(y @ y)
            continue
        left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        explained, used = explained + float(y @ y - left @ left), used + rank
        rest, freedom = rest + float(left @ left), freedom + len(y) - 1 - rank
    return _upper_tail(explained, used, rest, freedom)


def _p_value(cells: NDArray[np.int64], heights: Array, columns: Array) -> float | None:
    design, within = _centred(columns, cells), _centred(heights[:, None], cells)[:, 0]
    used = int(np.linalg.matrix_rank(design)) if columns.shape[1] else 0
    freedom = len(heights) - len(set(cells.tolist())) - used
    if not used:
        return None
    left = within - design @ np.linalg.lstsq(design, within, rcond=None)[0]
    return _upper_tail(float(within @ within - left @ left), used, float(left @ left), freedom)


def _upper_tail(explained: float, used: int, rest: float, freedom: int) -> float | None:
    from scipy.special import fdtrc

    if freedom <= 0 or not used:
        return None
    return float(fdtrc(used, freedom, max(explained / used / (rest / freedom), 0.0))) if rest > 0 else 0.0


def _ranks(cells: NDArray[np.int64], loss: Array) -> Array:
    """Return each run's rank by loss within its cell, from 0 to 1: a diverged run counts no more than the last."""
    order = np.lexsort((loss, cells))
    counts = np.bincount(cells)
    ranks = np.empty(len(loss))
    ranks[order] = np.concatenate([np.arange(count) / max(count - 1, 1) for count in counts])
    return ranks


def _centred(columns: Array, cells: NDArray[np.int64]) -> Array:
    sizes = np.maximum(np.bincount(cells), 1)
    means = [np.bincount(cells, column) / sizes for column in columns.T]
    return columns - np.stack(means, axis=1)[cells] if means else columns


LARGEST_SCATTER = 0.03
"""Largest relative difference of losses between repeats of a run: twice the largest of Delphi's and 15 other public ladders."""
_TIMES_USUAL, _LEAST_REPEATED = 3.0, 3


def audit_repeats(frame: pd.DataFrame) -> list[Finding]:
    """Return a finding for runs of one size, length and cost whose losses differ by more than repeats do.

    That is by more than `LARGEST_SCATTER`, and three times as much as in the median of the repeats: seeds of tiny models may
    scatter so far in all sizes.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"run": ["a", "b"], "params": 1e8, "tokens": 2e9, "loss": [3.0, 3.2]})
    >>> [each.code for each in audit_repeats(frame)], audit_repeats(frame.assign(loss=[3.0, 3.01]))
    (['repeats'], [])
    """
    loss = frame["loss"].groupby(cells_of(frame))
    apart = (loss.max() / loss.min() - 1)[loss.count() > 1].sort_values(ascending=False)
    usual = _TIMES_USUAL * float(apart.median()) if len(apart) >= _LEAST_REPEATED else 0.0
    odd = [cell for cell, each in apart.items() if each > max(LARGEST_SCATTER, usual)]
    if not odd:
        return []
    rows = frame.iloc[loss.indices[odd[0]]].sort_values("loss")
    low, high = (f"{rows['run'].iloc[end]} ({rows['loss'].iloc[end]:.5g})" for end in (0, -1))
    others = f"; so do those of {len(odd) - 1} more sizes" if len(odd) > 1 else ""
    message = (
        f"losses of runs of one size and length differ by {apart.iloc[0]:.1%}: {low} and {high}{others}. Repeats of a run "
        f"differ by less than {LARGEST_SCATTER:.0%}: a failed run (--drop RUN), or another recipe?"
    )
    return [warning("repeats", "loss", message)]
