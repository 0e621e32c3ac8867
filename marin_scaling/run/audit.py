"""Which runs of a table must not enter a fit, and why: unfinished or diverged, the same row twice, counted otherwise.

Looks at words (status, metric), at equal rows, and beside the other runs at losses (`loss_audit`), FLOPs, sizes and epochs
(`size_audit`). Each finding names its runs and is a reason to leave a run out or a doubt about one that stays; the caller's own
choice (`keep`, `drop`) overrides and is recorded. Changes no number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.errors import RunTableError
from marin_scaling.laws import Array
from marin_scaling.run.findings import Findings, name_some
from marin_scaling.run.loss_audit import audit_losses
from marin_scaling.run.size_audit import audit_sizes

if TYPE_CHECKING:
    import pandas as pd

DIVERGED_STATUSES = frozenset({"diverged", "nan", "exploded"})
FINISHED_STATUSES = frozenset({"", "finished", "completed", "complete", "done", "success", "succeeded", "ok"})
"""Words that say, in the states of Weights & Biases, Slurm, our own records and common tables, that a loss is final."""

KINDS = {
    "metric": "metric",
    "flops_convention": "FLOP convention",
    "evaluation": "evaluation",
    "eval_length": "evaluation length",
    "cooldown": "cool-down",
}
"""Columns of words in which one law wants one word, and how a sentence calls them."""

_MOST = 0.75  # of the runs: then the others are left out; without such a majority the reader has to choose
_OFF_BUDGET = 2.0  # names such as 2e20 stand for budgets of 1.8e20; a factor of two is another budget


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """A run that is not in the fit, and the reason."""

    run: str
    why: str


def audit_runs(frame: pd.DataFrame, *, keep: Collection[str] = ()) -> Findings:
    """Audit the runs of a table with our column names; those named in `keep` stay whatever is found, and that is said."""
    reasons, doubts = _found(frame)
    audit = _unless_kept(reasons, [str(name) for name in frame["run"]], keep=keep)
    return Findings(reasons=audit.reasons, doubts=(*audit.doubts, *doubts))


def audit_words(
    names: Sequence[str], words: Mapping[str, Sequence[str]], *, keep: Collection[str], drop: Collection[str]
) -> Findings:
    """What can be said before numbers are read: runs named in `drop`, unfinished by `status`, or of another kind than most.

    `words` has texts by column, one a run. `RunTableError` when a name is no run's, or both kept and dropped.

    >>> audit_words(["a", "b", "c"], {"status": ["", "crashed", ""]}, keep=(), drop=["c"]).reasons
    {2: 'dropped as asked', 1: "its status is 'crashed', which does not say finished"}
    """
    _require_names(names, keep=keep, drop=drop)
    reasons = {position: "dropped as asked" for position, name in enumerate(names) if name in drop}
    statuses = words.get("status", ())
    reasons |= {row: why for row, each in enumerate(statuses) if row not in reasons and (why := excluded_by_status(each))}
    for column in KINDS:
        values = words.get(column, ())
        reasons |= _other_kinds(column, {row: value for row, value in enumerate(values) if row not in reasons})
    return _unless_kept(reasons, names, keep=keep)


def _other_kinds(column: str, values: dict[int, str]) -> dict[int, str]:
    """Runs whose word differs from the one that at least three quarters of the runs have; none when there is no such word."""
    counts = Counter(values.values())
    common, count = counts.most_common(1)[0] if counts else ("", 0)
    if count < _MOST * len(values):
        return {}
    named = KINDS[column]
    return {row: f"its {named} is {word!r}, and most runs' is {common!r}" for row, word in values.items() if word != common}


def _unless_kept(reasons: dict[int, str], names: Sequence[str], *, keep: Collection[str]) -> Findings:
    kept = {position: why for position, why in reasons.items() if names[position] in keep}
    said = tuple(f"kept as asked: {names[position]}, although {why}" for position, why in kept.items())
    return Findings(reasons={row: why for row, why in reasons.items() if row not in kept}, doubts=said)


def _found(frame: pd.DataFrame) -> tuple[dict[int, str], tuple[str, ...]]:
    """Duplicates first, then FLOPs, then losses, each looked for among the runs that the one before left."""
    if frame.empty:
        return {}, ()
    reasons = find_duplicates(frame)
    left = _left(frame, reasons)
    sizes = audit_sizes(
        [str(name) for name in frame["run"].iloc[left]],
        flops=_numbers(frame, "flops", left),
        params=_numbers(frame, "active_params" if "active_params" in frame else "params", left),
        tokens=_numbers(frame, "tokens", left),
        epochs=_numbers(frame, "epochs", left) if "epochs" in frame else None,
    )
    reasons |= {left[position]: why for position, why in sizes.reasons.items()}
    left = _left(frame, reasons)
    columns = ("flops", "params", "loss", "budget_flops")
    names = [str(name) for name in frame["run"].iloc[left]]
    losses = audit_losses(names, **{name: _numbers(frame, name, left) for name in columns})
    reasons |= {left[position]: why for position, why in losses.reasons.items()}
    doubts = (*sizes.doubts, *losses.doubts, _off_budget(frame), _names_twice(frame, reasons))
    return reasons, tuple(each for each in doubts if each)


def _off_budget(frame: pd.DataFrame) -> str:
    ratio = (frame["flops"] / frame["budget_flops"]).to_numpy(dtype=np.float64)
    off = [str(frame["run"].iloc[position]) for position in np.flatnonzero(np.abs(np.log(ratio)) > math.log(_OFF_BUDGET))]
    return f"FLOPs are more than {_OFF_BUDGET:g} times off budget_flops in {name_some(off)}" if off else ""


def _names_twice(frame: pd.DataFrame, reasons: dict[int, str]) -> str:
    names = frame["run"].iloc[_left(frame, reasons)]
    twice = [str(name) for name in names[names.duplicated()].unique()]
    return f"several rows are called {name_some(twice)}: checkpoints of one run, or a slip?" if twice else ""


def _left(frame: pd.DataFrame, reasons: dict[int, str]) -> list[int]:
    return [position for position in range(len(frame)) if position not in reasons]


def _numbers(frame: pd.DataFrame, column: str, positions: list[int]) -> Array:
    return np.asarray(frame[column].to_numpy(dtype=np.float64)[positions])


def _require_names(names: Sequence[str], *, keep: Collection[str], drop: Collection[str]) -> None:
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


def excluded_by_status(status: str) -> str | None:
    """The reason to leave out a run of this status, or None.

    Every word that is not known to say that the loss is final is a reason.

    >>> excluded_by_status("diverged"), excluded_by_status("finished"), excluded_by_status("crashed")
    ('it diverged (status)', None, "its status is 'crashed', which does not say finished")
    """
    word = status.strip().lower()
    if word in DIVERGED_STATUSES:
        return "it diverged (status)"
    return None if word in FINISHED_STATUSES else f"its status is {word!r}, which does not say finished"


def find_duplicates(frame: pd.DataFrame) -> dict[int, str]:
    """Rows equal to an earlier one in FLOPs, parameters, tokens, loss and seed: position to reason."""
    keys = [name for name in ("flops", "params", "tokens", "loss", "seed") if name in frame]
    repeated = np.flatnonzero(frame.duplicated(keys).to_numpy())
    if not repeated.size:
        return {}
    first_of: dict[tuple[object, ...], int] = {}
    for position, key in enumerate(frame[keys].itertuples(index=False, name=None)):
        first_of.setdefault(key, position)
    names = frame["run"].tolist()
    rows = frame[keys].iloc[repeated].itertuples(index=False, name=None)
    return {
        int(position): f"it is the same as {names[first_of[key]]}: FLOPs, parameters, tokens and loss are equal"
        for position, key in zip(repeated, rows, strict=True)
    }
