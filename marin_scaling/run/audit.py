"""Audit of a run table: FLOP counts, sizes, losses, duplicates."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import Finding, RunTableError, error, warning
from marin_scaling.laws import Array
from marin_scaling.printable import quoted
from marin_scaling.run.cells import EARLIER_CHECKPOINT, ONE_EPOCH, repeats_data
from marin_scaling.run.columns import COLUMNS, Column
from marin_scaling.run.groups import evenly_spread
from marin_scaling.units import counted

if TYPE_CHECKING:
    import pandas as pd

_NAMED, _DROPPED = 3, 6


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """Runs to leave out, by position with the reason, and warnings about runs that stay.

    `findings` lower the status of a fit; `doubts` do not.
    """

    reasons: dict[int, str]
    doubts: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def name_some(names: Sequence[str]) -> str:
    """Join the first three names, and the number of the others.

    >>> name_some(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def exclusion_text(why: str, runs: Sequence[str]) -> str:
    """Return the runs with the reason; rows of one name by their number.

    >>> exclusion_text("its loss is empty", ["a", "b"]), exclusion_text("earlier checkpoint of a", ["a", "a"])
    ('a, b: its loss is empty', '2 earlier checkpoints of a')
    """
    if why.startswith(EARLIER_CHECKPOINT):
        return counted(len(runs), EARLIER_CHECKPOINT) + why.removeprefix(EARLIER_CHECKPOINT)
    return f"{name_some(runs)}: {why}"


_SAME_SIZE = 1.005  # parameters within 0.5 % are one model
_SAME_COUNT = 1.05  # a missing output layer changes a small model's count by more
_NEIGHBOURS = 5
_ODD_COUNT = 1.5  # relative to neighbors in size; formulas in use differ by less
_FEWEST = 6  # with fewer runs an odd one cannot be identified
_FORWARD_SHARE = (0.28, 0.40)  # about a third of the training FLOPs: forward passes only
_FORWARD_ONLY = "its FLOPs are a third of what its size and tokens cost elsewhere in the table: forward passes only?"
_THREE_TIMES = "its FLOPs are three times what its size and tokens cost elsewhere in the table: counted otherwise?"
_FEW = 0.1  # more than a tenth of the runs is a choice of design, not a mistake
_FEWEST_TOKENS = -0.5  # log10 of tokens per parameter: no known ladder has its median below 0.3


def audit_sizes(names: Sequence[str], *, flops: Array, params: Array, tokens: Array) -> RunAudit:
    """Compare every run with the others; arrays are (run,), and `params` are active parameters where these are known.

    >>> sizes = np.geomspace(1e8, 1e9, 8)
    >>> flops = 6 * sizes * 2e9
    >>> flops[2] /= 3
    >>> audit_sizes(list("abcdefgh"), flops=flops, params=sizes, tokens=np.full(8, 2e9)).reasons
    {2: 'its FLOPs are a third of what its size and tokens cost elsewhere in the table: forward passes only?'}
    """
    if not len(flops):
        return RunAudit(reasons={}, doubts=())
    share = flops / (6 * params * tokens)
    off = _off_neighbours(share, params)
    reasons = _thirds(off)
    sound = np.array([position not in reasons for position in range(len(share))], dtype=bool)
    odd = _odd_counts(names, off, sound)
    two = "" if odd else _two_counts(names, share, params, sound)
    return RunAudit(reasons=reasons, doubts=(two,) if two else (), findings=(*odd, *_far_ratios(names, tokens / params, sound)))


def _off_neighbours(share: Array, params: Array) -> Array:
    """Return the ratio of each run's share to the median of its nearest neighbors in size: (run,)."""
    if len(share) < _FEWEST:
        return np.ones_like(share)
    order = np.argsort(params, kind="stable")
    logs = np.log(share[order])
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(logs, _NEIGHBOURS, mode="reflect"), 2 * _NEIGHBOURS + 1)
    off = np.empty(len(share))
    off[order] = logs - np.median(windows, axis=1)
    return np.asarray(np.exp(off))


def _thirds(off: Array) -> dict[int, str]:
    low, high = _FORWARD_SHARE
    forward = {int(position): _FORWARD_ONLY for position in np.flatnonzero((low < off) & (off < high))}
    return forward | {int(position): _THREE_TIMES for position in np.flatnonzero((1 / high < off) & (off < 1 / low))}


def _odd_counts(names: Sequence[str], off: Array, sound: NDArray[np.bool_]) -> list[Finding]:
    odd = [int(position) for position in np.flatnonzero(sound & (np.abs(np.log(off)) > np.log(_ODD_COUNT)))]
    if not odd:
        return []
    by = ", ".join(f"{off[position]:.3g} times" for position in odd[:_NAMED])
    message = f"FLOPs / (6 x params x tokens) of {_listed(names, odd)} are {by} those of runs of about the same size: a slip?"
    return [warning("flop-count", "flops", f"{message} {drop_options(names, odd)}")]


def drop_options(names: Sequence[str], positions: Sequence[int]) -> str:
    """Return how to leave these runs out."""
    options = " ".join(f"--drop {shlex.quote(quoted(names[position]))}" for position in positions[:_DROPPED])
    return f"Leave them out: {options}" + (" and so on" if len(positions) > _DROPPED else "")


def _two_counts(names: Sequence[str], share: Array, params: Array, sound: NDArray[np.bool_]) -> str:
    """Warn of runs of one size whose FLOPs per token differ."""
    order = np.flatnonzero(sound)[np.argsort(params[sound], kind="stable")]
    starts = np.flatnonzero(np.diff(np.log(params[order]), prepend=-np.inf) > np.log(_SAME_SIZE))
    spread = np.maximum.reduceat(share[order], starts) / np.minimum.reduceat(share[order], starts)
    groups = np.split(order, starts[1:])
    odd = [position for group in np.flatnonzero(spread > _SAME_COUNT) for position in _minority(groups[group], share)]
    if not odd:
        return ""
    return (
        "FLOPs a token differ between runs of one size (with and without the output layer, or another sequence length?): "
        + _listed(names, odd)
    )


def _minority(group: NDArray[np.intp], share: Array) -> list[int]:
    off = np.abs(np.log(share[group] / np.median(share[group])))
    return [int(position) for position in group[off > np.log(_SAME_COUNT)]]


def _far_ratios(names: Sequence[str], ratio: Array, sound: NDArray[np.bool_]) -> list[Finding]:
    if sound.sum() < _FEWEST:
        return []
    logs = np.log10(ratio)
    centre = float(np.median(logs[sound]))
    if centre < _FEWEST_TOKENS:
        said = f"the median run has {10**centre:.2g} tokens per parameter: the columns of parameters and tokens swapped?"
        return [error("swapped", "tokens", f"{said} --column params=NAME --column tokens=NAME")]
    odd = _beyond_a_gap(np.where(sound, logs, centre))
    if not odd:
        return []
    said = f"tokens per parameter of {_listed(names, odd)} are a gap of ten times or more off those of the others: a slip?"
    return [warning("tokens-per-param", "tokens", f"{said} {drop_options(names, odd)}")]


def _beyond_a_gap(logs: Array) -> list[int]:
    """Return the few runs that a gap of a decade or more separates from the others."""
    order = np.argsort(logs, kind="stable")
    bulk = np.cumsum(np.diff(logs[order], prepend=-np.inf) > 1.0)  # number of the stretch without a gap
    largest = np.bincount(bulk).argmax()
    odd = np.sort(order[bulk != largest])
    return [int(position) for position in odd] if len(odd) <= _FEW * len(logs) else []


def _listed(names: Sequence[str], positions: Sequence[int]) -> str:
    return name_some([names[position] for position in positions])


_SURFACE_UNKNOWNS = 6
LEAST_RUNS_OF_SURFACE = 2 * _SURFACE_UNKNOWNS  # with fewer, a quadratic surface follows a diverged run
_OUTLIER_SCALES = 6.0  # as in Open-Athena's quality control of isoFLOP runs, which drops at 6 robust standard deviations
_LEAST_EXCESS = math.log(1.1)  # a run less than 10 % above expectation stays, however small the scatter
_DIVERGED_FACTOR = 2.0  # log(vocabulary) is more than twice the loss of a trained model
_REWEIGHTINGS = 50
_WALL_STEPS = (
    0.97,
    1.4,
)  # ratio from run to run: noise lowers a wall a little; Chinchilla's figure 4 rises by up to 1.24


def audit_losses(names: Sequence[str], *, flops: Array, params: Array, loss: Array, budget_flops: Array) -> RunAudit:
    """Find runs far above expectation: leave them out, or warn if they are on the wall of their bowl; arrays are (run,)."""
    found, low = find_outliers(flops=flops, params=params, loss=loss)
    walls = [row for row in found if _on_wall(row, np.flatnonzero(budget_flops == budget_flops[row]), params, loss)]
    doubt = f"far up the walls of their bowls, and kept: {name_some([names[row] for row in walls])}; a parabola may not follow"
    return RunAudit(
        reasons={row: why for row, why in found.items() if row not in walls},
        doubts=(doubt,) if walls else (),
        findings=tuple(_too_low(names, loss, low)),
    )


def _too_low(names: Sequence[str], loss: Array, low: Mapping[int, float]) -> list[Finding]:
    if not low:
        return []
    said = ", ".join(f"{names[row]} ({loss[row]:.4g}, {-each:.0%} below)" for row, each in list(low.items())[:_NAMED])
    more = f" and {len(low) - _NAMED} more" if len(low) > _NAMED else ""
    message = f"losses below what the other runs lead one to expect: {said}{more}: slips, or runs of another kind?"
    return [warning("low-loss", "loss", f"{message} {drop_options(names, list(low))}")]


def _on_wall(row: int, bowl: NDArray[np.intp], params: Array, loss: Array) -> bool:
    """Return True if losses rise without a jump from the bowl's best run to this one, with at least one run between."""
    ordered = bowl[np.argsort(params[bowl], kind="stable")]
    here, best = int(np.flatnonzero(ordered == row)[0]), int(np.argmin(loss[ordered]))
    way = loss[ordered[min(here, best) : max(here, best) + 1]][:: 1 if here > best else -1]
    steps = way[1:] / way[:-1]
    return len(steps) > 1 and bool(np.all((steps > _WALL_STEPS[0]) & (steps < _WALL_STEPS[1])))


def find_outliers(*, flops: Array, params: Array, loss: Array) -> tuple[dict[int, str], dict[int, float]]:
    """Return the runs whose loss is far above expectation, with reasons, and those far below, with the relative difference.

    All arrays are (run,), and runs are given by position.

    The expectation is a quadratic surface in log FLOPs and log parameters, fitted to log losses by least absolute
    deviations, which a few diverged runs cannot bend. The threshold is six robust standard deviations, and at least 10 %.
    A run above it has diverged, or is so far from its bowl's minimum that it would distort the fitted bowl. One as far
    below is a slip, or a run of another kind.
    """
    if len(loss) < LEAST_RUNS_OF_SURFACE:
        return _twice_the_others(flops, loss), {}
    residuals = np.log(loss) - least_absolute_surface(np.log10(flops), np.log10(params), np.log(loss))
    scale = 1.4826 * np.median(np.abs(residuals))  # 1.4826 x MAD is the standard deviation of a normal distribution
    high = {
        int(position): f"diverged, or far off its bowl: its loss {loss[position]:.4g} lies {np.expm1(residuals[position]):.0%} "
        "above what the other runs lead one to expect"
        for position in np.flatnonzero(residuals > max(_OUTLIER_SCALES * scale, _LEAST_EXCESS))
    }
    low = np.flatnonzero(residuals < -max(_OUTLIER_SCALES * scale, _LEAST_EXCESS))
    return high, {int(position): float(np.expm1(residuals[position])) for position in low}


def _twice_the_others(flops: Array, loss: Array) -> dict[int, str]:
    """Return runs at more than twice the median loss although a cheaper run is below the median."""
    median = float(np.median(loss)) if len(loss) else math.inf
    beaten = flops[loss <= median].min(initial=math.inf)
    return {
        int(
            position
        ): f"diverged: its loss {loss[position]:.4g} is more than twice the median of the runs, {median:.4g}, and a "
        "cheaper run is below that"
        for position in np.flatnonzero((loss > _DIVERGED_FACTOR * median) & (flops > beaten))
    }


def least_absolute_surface(x: Array, y: Array, target: Array) -> Array:
    """Return the quadratic in two coordinates with the least absolute deviations from `target`; all arrays are (run,)."""
    design, rows = quadratic_in(x, y), evenly_spread(len(target))
    terms, heights, weights = design[rows], target[rows], np.ones(len(rows))
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(terms * root[:, None], heights * root, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(heights - terms @ coefficients), 1e-6)
    return np.asarray(design @ coefficients)


def quadratic_in(x: Array, y: Array) -> Array:
    """Return the terms of a quadratic in two coordinates, which are (run,): (run, term)."""
    x, y = _standardised(x), _standardised(y)
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)


def _standardised(values: Array) -> Array:
    spread = values.std()
    return np.asarray((values - values.mean()) / (spread if spread > 0 else 1.0))


DIVERGED_STATUSES = frozenset({"diverged", "nan", "exploded"})
FINISHED_STATUSES = frozenset({"", "finished", "completed", "complete", "done", "success", "succeeded", "ok"})
"""States of a run with a final loss, as Weights & Biases, Slurm, our records and common tables write them."""

_RAY_STATUSES = frozenset({"terminated", "error", "running", "pending", "paused"})
_FINISHED_IN_RAY = frozenset({"terminated"})
"""State of a Ray Tune trial that ended as planned; elsewhere the word may mean that a run was killed."""

_MOST = 0.75  # with such a majority of runs the others are left out; without it the user has to choose
_OFF_BUDGET = 2.0  # a name such as 2e20 may stand for a budget of 1.8e20, but not for half or twice its value


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """A run that is not in the fit, and the reason."""

    run: str
    why: str


def audit_runs(frame: pd.DataFrame, *, keep: Collection[str] = ()) -> RunAudit:
    """Audit the runs of a table with our column names; runs named in `keep` stay, with a warning for each finding."""
    reasons, doubts, findings = _found(frame)
    audit = _unless_kept(reasons, [str(name) for name in frame["run"]], keep=keep)
    left = frame.iloc[_left(frame, audit.reasons)]
    few, many = _repeated_data(left)
    return RunAudit(
        reasons=audit.reasons, doubts=(*audit.doubts, *doubts, *few), findings=(*findings, *_uncounted(left), *many)
    )


_LEAST_COUNTED, _LEAST_IF_RISING = 0.6, 0.45
"""FLOPs of training over 6 N D are 0.98 to 1.3 in the median run of known tables; a third is forward passes only. Where
embeddings are not counted the ratio rises with size, from 0.74 to 1.07 in Delphi's runs."""
_RISING = 1.15


def _uncounted(frame: pd.DataFrame) -> list[Finding]:
    """Return a finding if FLOPs of the largest models are a small share of 6 N D."""
    params = frame["active_params" if "active_params" in frame else "params"]
    share = (frame["flops"] / (6 * params * frame["tokens"])).to_numpy(dtype=np.float64)
    if len(share) < _FEWEST:
        return []
    order = np.argsort(params.to_numpy(dtype=np.float64), kind="stable")
    small, _, large = (float(np.median(share[part])) for part in np.array_split(order, 3))
    if large > (_LEAST_IF_RISING if large > _RISING * small else _LEAST_COUNTED):
        return []
    experts = "parameters that a token does not pass are counted (--column active_params=NAME); or "
    cause = f"{'' if 'active_params' in frame else experts}forward passes only"
    message = f"FLOPs are {large:.3g} of 6 x params x tokens in the largest models: {cause}"
    return [warning("flop-count", "flops", f"{message}. Forecasts are for budgets and parameters counted in this way")]


MOST_EPOCHS = 16.0
"""Epochs up to which a status does not suffer: 16 are worth 10.6 in new tokens (`laws.effective_tokens`). Beyond, the formula
saturates, and the loss of large models on little text rises, which no law here does."""


def _repeated_data(frame: pd.DataFrame) -> tuple[list[str], list[Finding]]:
    """Return a sentence about repeated data, or a finding about more than `MOST_EPOCHS`."""
    if not repeats_data(frame):
        return [], []
    epochs = frame["epochs"].to_numpy(dtype=np.float64)
    message = (
        f"more than one epoch, up to {epochs.max():,.4g}, in {name_some(list(frame['run'][epochs > ONE_EPOCH]))}: repeated "
        "tokens count as fewer new ones (effective tokens, Muennighoff et al. 2023)"
    )
    if epochs.max() <= MOST_EPOCHS:
        return [message], []
    return [], [warning("epochs", "epochs", f"{message}; beyond {MOST_EPOCHS:g} epochs that count is rough")]


def audit_words(
    names: Sequence[str], words: Mapping[str, Sequence[str]], *, keep: Collection[str], drop: Collection[str]
) -> RunAudit:
    """Find runs to leave out by text alone: named in `drop`, unfinished by `status`, or of another kind than most.

    `words` maps columns to texts, one per run. `RunTableError` if a name is unknown, or both kept and dropped.

    >>> audit_words(["a", "b", "c"], {"status": ["", "crashed", ""]}, keep=(), drop=["c"]).reasons
    {2: 'dropped as asked', 1: "its status is 'crashed', which does not say finished"}
    """
    require_names(names, keep=keep, drop=drop)
    reasons = {position: "dropped as asked" for position, name in enumerate(names) if name in drop}
    statuses = words.get("status", ())
    final = _FINISHED_IN_RAY if {each.strip().lower() for each in statuses} <= _RAY_STATUSES else FINISHED_STATUSES
    reasons |= {
        row: why for row, each in enumerate(statuses) if row not in reasons and (why := excluded_by_status(each, final=final))
    }
    for column in (each for each in COLUMNS.values() if each.one_value):
        values = words.get(column.name, ())
        reasons |= _other_kinds(column, {row: value for row, value in enumerate(values) if row not in reasons})
    return _unless_kept(reasons, names, keep=keep)


def _other_kinds(column: Column, values: dict[int, str]) -> dict[int, str]:
    """Return the runs whose text differs from that of at least three quarters of the runs, if there is such a majority."""
    counts = Counter(values.values())
    common, count = counts.most_common(1)[0] if counts else ("", 0)
    if count < _MOST * len(values):
        return {}
    return {
        row: f"its {column.one_value} is {word!r}, and most runs' is {common!r}"
        for row, word in values.items()
        if word != common
    }


def _unless_kept(reasons: dict[int, str], names: Sequence[str], *, keep: Collection[str]) -> RunAudit:
    kept = {position: why for position, why in reasons.items() if names[position] in keep}
    said = tuple(f"kept as asked: {names[position]}, although {why}" for position, why in kept.items())
    return RunAudit(reasons={row: why for row, why in reasons.items() if row not in kept}, doubts=said)


def _found(frame: pd.DataFrame) -> tuple[dict[int, str], tuple[str, ...], tuple[Finding, ...]]:
    """Look for duplicates, then wrong FLOPs, then outliers in loss, each among the runs that remain."""
    if frame.empty:
        return {}, (), ()
    reasons = find_duplicates(frame)
    left = _left(frame, reasons)
    sizes = audit_sizes(
        [str(name) for name in frame["run"].iloc[left]],
        flops=_numbers(frame, "flops", left),
        params=_numbers(frame, "active_params" if "active_params" in frame else "params", left),
        tokens=_numbers(frame, "tokens", left),
    )
    reasons |= {left[position]: why for position, why in sizes.reasons.items()}
    left = _left(frame, reasons)
    columns = ("flops", "params", "loss", "budget_flops")
    names = [str(name) for name in frame["run"].iloc[left]]
    losses = audit_losses(names, **{name: _numbers(frame, name, left) for name in columns})
    reasons |= {left[position]: why for position, why in losses.reasons.items()}
    doubts = (*sizes.doubts, *losses.doubts, _off_budget(frame), _names_twice(frame, reasons))
    return reasons, tuple(each for each in doubts if each), (*sizes.findings, *losses.findings)


def _off_budget(frame: pd.DataFrame) -> str:
    ratio = (frame["flops"] / frame["budget_flops"]).to_numpy(dtype=np.float64)
    off = [str(frame["run"].iloc[position]) for position in np.flatnonzero(np.abs(np.log(ratio)) > math.log(_OFF_BUDGET))]
    return f"FLOPs are more than {_OFF_BUDGET:g} times off budget_flops in {name_some(off)}" if off else ""


def _names_twice(frame: pd.DataFrame, reasons: dict[int, str]) -> str:
    left = frame.iloc[_left(frame, reasons)]
    again = left.duplicated([name for name in ("run", "seed") if name in frame])
    twice = [str(name) for name in left["run"][again].unique()]
    return f"several rows are called {name_some(twice)}: checkpoints of one run, or a slip?" if twice else ""


def _left(frame: pd.DataFrame, reasons: dict[int, str]) -> list[int]:
    return [position for position in range(len(frame)) if position not in reasons]


def _numbers(frame: pd.DataFrame, column: str, positions: list[int]) -> Array:
    return np.asarray(frame[column].to_numpy(dtype=np.float64)[positions])


def require_names(names: Sequence[str], *, keep: Collection[str] = (), drop: Collection[str]) -> None:
    """Raise `RunTableError` for a run to keep or drop that the table does not have, or that is to be both."""
    there = set(names)
    for name in (*keep, *drop):
        if name not in there:
            raise RunTableError(
                f"There is no run {name!r} to keep or drop; the table begins with {', '.join(names[:3])}.",
                why="A choice about a run that is not there would change nothing, and yet be recorded.",
                fix="Give the run's name or, where the table has no names, its place, such as 'line 7'.",
            )
        if name in keep and name in drop:
            raise RunTableError(f"{name!r} is both kept and dropped.", why="Only one can be done.", fix="Give it once.")


def excluded_by_status(status: str, *, final: Collection[str] = FINISHED_STATUSES) -> str | None:
    """Return the reason to leave out a run of this status, or None if its loss is final.

    >>> excluded_by_status("diverged"), excluded_by_status("finished"), excluded_by_status("crashed")
    ('it diverged (status)', None, "its status is 'crashed', which does not say finished")
    """
    word = status.strip().lower()
    if word in DIVERGED_STATUSES:
        return "it diverged (status)"
    return None if word in final else f"its status is {word!r}, which does not say finished"


def find_duplicates(frame: pd.DataFrame) -> dict[int, str]:
    """Return rows equal to an earlier row in FLOPs, parameters, tokens, loss and seed: position to reason."""
    keys = [name for name in ("flops", "params", "tokens", "loss", "seed") if name in frame]
    repeated = np.flatnonzero(frame.duplicated(keys).to_numpy())
    if not repeated.size:
        return {}
    first_of: dict[tuple[object, ...], int] = {}
    for position, key in enumerate(frame[keys].itertuples(index=False, name=None)):
        first_of.setdefault(key, position)
    names = [str(name) for name in frame["run"]]
    rows = frame[keys].iloc[repeated].itertuples(index=False, name=None)
    return {
        position: f"it is the same as {_other(names, first_of[key], position)}: FLOPs, parameters, tokens and loss are equal"
        for position, key in zip(repeated.tolist(), rows, strict=True)
    }


def _other(names: Sequence[str], first: int, here: int) -> str:
    return names[first] if names[first] != names[here] else f"an earlier row of {names[first]}"
