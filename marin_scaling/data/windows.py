"""Which windows of a long row of tokens a run trains and is evaluated on. Positions only; no token is read here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import DataError


def training_window_starts(tokens: int, *, seq_len: int, seed: int, epochs: int = 1) -> NDArray[np.int64]:
    """Starts of all full, disjoint windows, in an order drawn anew for each epoch from `seed`, which may have 64 bits.

    >>> sorted(training_window_starts(10, seq_len=3, seed=7).tolist())
    [0, 3, 6]
    """
    starts = np.arange(tokens // seq_len, dtype=np.int64) * seq_len
    seeds: list[int | list[int]] = [seed, *([seed, epoch] for epoch in range(1, epochs))]
    return np.concatenate([np.random.default_rng(each).permutation(starts) for each in seeds])


def evaluation_window_starts(tokens: int, *, seq_len: int, windows: int) -> NDArray[np.int64]:
    """Starts of `windows` disjoint windows, spread evenly over the held-out tokens.

    >>> evaluation_window_starts(100, seq_len=10, windows=4).tolist()
    [0, 30, 60, 90]
    """
    require_windows(tokens, seq_len=seq_len, windows=windows)
    return np.linspace(0, tokens - seq_len, windows).round().astype(np.int64)


def require_windows(tokens: int, *, seq_len: int, windows: int) -> None:
    """`DataError` with the numbers when that many disjoint windows do not fit into the held-out tokens."""
    if windows * seq_len > tokens:
        raise DataError(
            f"{windows} evaluation windows of {seq_len} tokens do not fit into {tokens} held-out tokens.",
            why="Overlapping windows would count the same text twice.",
            fix="Lower evaluation.windows in the ladder file." if seq_len <= tokens else "Hold out more text.",
        )
