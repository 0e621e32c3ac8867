"""What looks wrong in a training-loss curve while it grows: no numbers, worse than guessing, spikes, a loss that does not fall.

Looks at one curve; where the run will end is `forecast.tracking`. With these bounds none of the 56 recorded curves of this
project's ladders shows a fault (lab book, 2026-11-22). Routers are looked at in `expert_shares`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from marin_scaling.laws import Array

_SPIKE_SCALES = 8.0  # times the scatter about the running median
_SPIKE_LEAST = 1.25  # and at least so many times the median
_LEAST_WINDOW, _WINDOW_SHARE = 16, 0.02  # steps of the running median: so many, or this share of all
_LEAST_SHARE, _LEAST_FALL = 0.15, 0.02  # of the steps done, before the loss must fall by this power of the step


def curve_faults(losses: Sequence[float | None], *, train_steps: int, decay_steps: int, vocab_size: int) -> list[str]:
    """A sentence for each fault of the losses of steps 0, 1, ... so far; the rate falls in the last `decay_steps` of all.

    >>> curve_faults([5.0, 4.0, None], train_steps=10, decay_steps=2, vocab_size=256)
    ['the loss is no number at step 2']
    """
    broken = [step for step, loss in enumerate(losses) if loss is None or not math.isfinite(loss)]
    if broken:
        return [f"the loss is no number at step {broken[0]}"]
    values = np.array([loss for loss in losses if loss is not None])
    faults = [_worse_than_guessing(values, train_steps, vocab_size), _spikes(values, train_steps)]
    return [*itertools.chain(*faults), *_flat(values, train_steps, decay_steps)]


def has_diverged(held_out_nats: float, *, first_nats: float, vocab_size: int) -> bool:
    """Whether a run ended worse than it began in training, and than by guessing uniformly.

    Losses in nats per token. A run of few steps that has not yet learnt to beat guessing has not diverged.

    >>> has_diverged(9.0, first_nats=6.1, vocab_size=256), has_diverged(5.7, first_nats=6.1, vocab_size=256)
    (True, False)
    """
    return not held_out_nats <= max(math.log(vocab_size), first_nats)  # also where it is no number


def _worse_than_guessing(losses: Array, train_steps: int, vocab_size: int) -> list[str]:
    """Whether the latest losses lie above that of guessing uniformly, when a part of the run is done."""
    if len(losses) == 0 or len(losses) < _LEAST_SHARE * train_steps:
        return []
    guessing, latest = math.log(vocab_size), losses[-max(1, len(losses) // 20) :].mean()
    if latest < guessing:
        return []
    return [f"the loss is {latest:.4g} nats a token, above that of guessing uniformly ({guessing:.4g})"]


def _spikes(losses: Array, train_steps: int) -> list[str]:
    """Where the loss jumps far above the median of the steps before, each stretch of such steps once."""
    window = max(_LEAST_WINDOW, round(_WINDOW_SHARE * train_steps))
    if len(losses) <= 2 * window:
        return []
    medians = np.median(sliding_window_view(losses[:-1], window), axis=1)  # of the steps before each
    above = np.log(losses[window:] / medians)
    bound = max(_SPIKE_SCALES * 1.4826 * float(np.median(np.abs(above))), math.log(_SPIKE_LEAST))
    spiked = np.flatnonzero(above > bound)
    if not spiked.size:
        return []
    stretches = np.split(spiked, np.flatnonzero(np.diff(spiked) > window) + 1)
    worst = int(spiked[np.argmax(above[spiked])])
    times = math.exp(float(above[worst]))
    counted = "a spike" if len(stretches) == 1 else f"{len(stretches)} spikes"
    return [f"{counted} of the loss, the highest at step {window + worst}: {times:.3g} times the steps before"]


def _flat(losses: Array, train_steps: int, decay_steps: int) -> list[str]:
    """Whether, at the full rate, the loss has stopped falling over the latter half of the steps so far."""
    done = len(losses)
    if done < _LEAST_SHARE * train_steps or done > train_steps - decay_steps:
        return []
    steps = np.arange(done // 2, done)
    power = float(np.polyfit(np.log(steps + 1), np.log(losses[steps]), 1)[0])
    if power < -_LEAST_FALL:
        return []
    return [f"the loss has not fallen since step {steps[0]}: a learning rate that is too high looks like this"]
