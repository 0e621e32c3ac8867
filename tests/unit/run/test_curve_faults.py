"""Faults of loss curves: those that are there are named by step, and sound curves have none."""

from pathlib import Path

import numpy as np
import pytest

from marin_scaling.run.curves import curve_faults
from marin_scaling.run.store import read_runs

RUNS = Path(__file__).parents[3] / "runs"


def falling(steps: int, *, seed: int = 0) -> list[float | None]:
    """A power of the step with two per cent of noise."""
    noise = np.random.default_rng(seed).normal(0, 0.02, steps)
    return (6 * np.arange(1, steps + 1) ** -0.15 * np.exp(noise)).tolist()


@pytest.mark.parametrize("ladder", ["quickstart", "bytes-dense", "bytes-moe"])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_no_recorded_curve_has_a_fault_at_any_of_ten_times(ladder: str, share: float) -> None:
    """Rungs and targets of this project's ladders, as they stood then."""
    for run in read_runs(RUNS / ladder):
        losses = [row.train_loss_nats_per_token for row in run.history().rows]
        so_far = losses[: round(share * len(losses))]
        decay_steps = round(run.spec.optimizer.decay_fraction * run.spec.train_steps)
        assert curve_faults(so_far, train_steps=run.spec.train_steps, decay_steps=decay_steps, vocab_size=256) == [], run.folder


def test_spikes_are_counted_by_stretches_with_the_highest() -> None:
    """Three steps in a row are one spike; one far from them is another."""
    losses = falling(1_000)
    for step, times in ((400, 1.5), (401, 1.8), (402, 1.4), (700, 1.6)):
        losses[step] = float(losses[step] or 0) * times
    (said,) = curve_faults(losses, train_steps=1_000, decay_steps=200, vocab_size=256)
    assert said.startswith("2 spikes of the loss, the highest at step 401: 1.")
    (said,) = curve_faults(losses[:600], train_steps=1_000, decay_steps=200, vocab_size=256)
    assert said.startswith("a spike of the loss, the highest at step 401: 1.")


def test_a_loss_that_stays_is_said_at_the_full_rate_and_not_in_the_decay() -> None:
    """From the middle of the steps so far on."""
    losses = [*falling(100), *[3.0] * 400]
    assert curve_faults(losses[:300], train_steps=1_000, decay_steps=600, vocab_size=256) == [
        "the loss has not fallen since step 150: the learning rate may be too high"
    ]
    assert curve_faults(losses, train_steps=1_000, decay_steps=600, vocab_size=256) == []
    assert curve_faults(falling(300), train_steps=1_000, decay_steps=600, vocab_size=256) == []


def test_a_loss_above_that_of_guessing_uniformly_is_said_once_a_part_of_the_run_is_done() -> None:
    """The logarithm of 256 is 5.545; fresh weights lie above it."""
    losses = [*falling(100), *[9.0] * 100]
    sentence = "the loss is 9 nats per token, above that of uniform guessing (5.545)"
    assert sentence in curve_faults(losses, train_steps=1_000, decay_steps=200, vocab_size=256)
    assert sentence not in curve_faults(losses, train_steps=2_000, decay_steps=200, vocab_size=256)
    assert sentence not in curve_faults(losses, train_steps=1_000, decay_steps=200, vocab_size=10_000)


def test_a_curve_without_a_step_has_no_fault() -> None:
    """As of a run that is known and has not begun."""
    assert curve_faults([], train_steps=10, decay_steps=2, vocab_size=256) == []


@pytest.mark.parametrize("broken", [None, float("nan"), float("inf")])
def test_the_first_loss_that_is_no_number_is_named(broken: float | None) -> None:
    """And nothing else is said of such a curve."""
    assert curve_faults([5.0, 4.0, broken, 3.0, broken], train_steps=10, decay_steps=2, vocab_size=256) == [
        "the loss is not finite at step 2"
    ]
