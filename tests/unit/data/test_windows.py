"""Windows cover a row of tokens without overlap, in an order that a seed decides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.data.corpus import evaluation_window_starts, training_window_starts
from marin_scaling.errors import DataError


@given(st.integers(10, 5_000), st.integers(1, 9), st.integers(0, 2**64 - 1))
def test_training_windows_are_disjoint_and_cover_the_bytes(size: int, seq_len: int, seed: int) -> None:
    """Each full window once, in an order that depends on nothing but a seed of up to 64 bits."""
    starts = training_window_starts(size, seq_len=seq_len, seed=seed)
    assert sorted(starts.tolist()) == list(range(0, size - seq_len + 1, seq_len))
    assert np.array_equal(starts, training_window_starts(size, seq_len=seq_len, seed=seed))


@given(st.integers(1, 50), st.integers(2, 20), st.integers(0, 500))
def test_evaluation_windows_are_disjoint_and_inside(windows: int, seq_len: int, spare: int) -> None:
    """However many fit, they neither overlap nor leave the held-out bytes."""
    starts = evaluation_window_starts(windows * seq_len + spare, seq_len=seq_len, windows=windows)
    assert len(starts) == windows
    assert starts[0] == 0
    assert starts[-1] + seq_len <= windows * seq_len + spare
    assert (np.diff(starts) >= seq_len).all()


def test_more_windows_than_fit_are_refused() -> None:
    """The error says how many of how many bytes."""
    with pytest.raises(DataError, match="11 evaluation windows of 10 tokens do not fit into 100"):
        evaluation_window_starts(100, seq_len=10, windows=11)


def test_each_epoch_has_every_window_once_in_an_order_of_its_own() -> None:
    """And the first epoch is that of a run of one."""
    once, thrice = (training_window_starts(1_000, seq_len=10, seed=7, epochs=epochs) for epochs in (1, 3))
    epochs = thrice.reshape(3, 100)
    assert np.array_equal(epochs[0], once)
    assert all(np.array_equal(np.sort(epoch), np.sort(once)) for epoch in epochs)
    assert not np.array_equal(epochs[1], epochs[0])
    assert not np.array_equal(epochs[1], epochs[2])
