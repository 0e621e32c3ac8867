"""Runs whose FLOPs, parameters, tokens or epochs contradict one another or stand apart from the rest of the table.

Whatever the formula, two runs of one size that count FLOPs alike have the same FLOPs for each token, and FLOPs over
6 x parameters x tokens changes slowly with size (in the Delphi runs from 0.74 to 1.07, neighbours in size within 8 %). What
breaks this was counted otherwise: forward passes only, or with and without the output layer. Gives reasons and doubts; changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marin_scaling.laws import Array
from marin_scaling.run.findings import Findings, name_some

_SAME_SIZE = 1.005  # parameters within 0.5 % are one model
_SAME_COUNT = 1.05  # a missing output layer moves a small model's count by more, and what moves it by less hardly matters
_NEIGHBOURS = 5
_ODD_COUNT = 1.5  # off its neighbours in size by more than formulas in use differ
_FEWEST = 6  # with fewer runs nobody can say which of them is odd
_FORWARD_SHARE = (0.28, 0.40)  # a third of training: forward passes without the backward ones
_FORWARD_ONLY = "its FLOPs are a third of what its size and tokens cost elsewhere in the table: forward passes only?"
_THREE_TIMES = "its FLOPs are three times what its size and tokens cost elsewhere in the table: counted otherwise?"
_ANOTHER_UNIT = 10.0  # FLOPs over 6 N D in the median run of known tables: 0.98 to 1.3
_FEW = 0.1  # more than a tenth of the runs are no slip but a part of the design
_FEWEST_TOKENS = -0.5  # log10 of tokens per parameter: a ladder with its median below 0.3 is not known


def audit_sizes(names: Sequence[str], *, flops: Array, params: Array, tokens: Array, epochs: Array | None = None) -> Findings:
    """Look at every run beside the others; arrays are (run,), `params` those that a token uses, where they are known.

    >>> sizes = np.geomspace(1e8, 1e9, 8)
    >>> flops = 6 * sizes * 2e9
    >>> flops[2] /= 3
    >>> audit_sizes(list("abcdefgh"), flops=flops, params=sizes, tokens=np.full(8, 2e9)).reasons
    {2: 'its FLOPs are a third of what its size and tokens cost elsewhere in the table: forward passes only?'}
    """
    if not len(flops):
        return Findings(reasons={}, doubts=())
    share = flops / (6 * params * tokens)
    off = _off_neighbours(share, params)
    reasons = _thirds(off)
    sound = np.array([position not in reasons for position in range(len(share))], dtype=bool)
    doubts = (
        _all_forward(share[sound]) or _another_unit(share[sound]),
        _odd_counts(names, off, sound) or _two_counts(names, share, params, sound),
        _far_ratios(names, tokens / params, sound),
        _repeated_data(names, epochs),
    )
    return Findings(reasons=reasons, doubts=tuple(each for each in doubts if each))


def _off_neighbours(share: Array, params: Array) -> Array:
    """The factor by which each run's share is off the median of its nearest neighbours in size: (run,)."""
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


def _odd_counts(names: Sequence[str], off: Array, sound: NDArray[np.bool_]) -> str:
    odd = [int(position) for position in np.flatnonzero(sound & (np.abs(np.log(off)) > np.log(_ODD_COUNT)))]
    if not odd:
        return ""
    return f"FLOPs do not go with size and tokens as in runs of about the same size: {_listed(names, odd)}"


def _all_forward(share: Array) -> str:
    if len(share) and _FORWARD_SHARE[0] < np.median(share) < _FORWARD_SHARE[1]:
        return (
            f"FLOPs are {np.median(share):.2f} of 6 x parameters x tokens: forward passes only (then multiply by three), or "
            "parameters that a token does not use are counted (then give active_params)"
        )
    return ""


def _another_unit(share: Array) -> str:
    typical = float(np.median(share)) if len(share) else 1.0
    if 1 / _ANOTHER_UNIT < typical < _ANOTHER_UNIT:
        return ""
    return (
        f"FLOPs are {typical:.2g} of 6 x parameters x tokens in the median run: a column in another unit (FLOPs, parameters "
        "and tokens are counted one by one), two columns swapped, or, of mixtures of experts, no active_params? A forecast's "
        "budget is in FLOPs as this table counts them"
    )


def _two_counts(names: Sequence[str], share: Array, params: Array, sound: NDArray[np.bool_]) -> str:
    """Doubt about runs of one size whose FLOPs a token differ."""
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


def _far_ratios(names: Sequence[str], ratio: Array, sound: NDArray[np.bool_]) -> str:
    if sound.sum() < _FEWEST:
        return ""
    logs = np.log10(ratio)
    centre = float(np.median(logs[sound]))
    if centre < _FEWEST_TOKENS:
        return f"the median run has {10**centre:.2g} tokens per parameter: are the columns of parameters and tokens swapped?"
    odd = _beyond_a_gap(np.where(sound, logs, centre))
    if not odd:
        return ""
    return f"tokens per parameter lie ten times or more beyond all others' in {_listed(names, odd)}: a slip in a number?"


def _beyond_a_gap(logs: Array) -> list[int]:
    """The few that a gap of a decade or more parts from the bulk."""
    order = np.argsort(logs, kind="stable")
    bulk = np.cumsum(np.diff(logs[order], prepend=-np.inf) > 1.0)  # a number for each stretch without a gap
    largest = np.bincount(bulk).argmax()
    odd = np.sort(order[bulk != largest])
    return [int(position) for position in odd] if len(odd) <= _FEW * len(logs) else []


def _repeated_data(names: Sequence[str], epochs: Array | None) -> str:
    if epochs is None or not (repeated := np.flatnonzero(epochs > 1)).size:
        return ""
    return (
        f"more than one epoch, up to {epochs.max():.3g}, in {_listed(names, list(repeated))}: repeated tokens are worth less "
        "than new ones, markedly so beyond four (Muennighoff et al. 2023), and the laws count them as new"
    )


def _listed(names: Sequence[str], positions: Sequence[int]) -> str:
    return name_some([names[position] for position in positions])
