"""Train one RunSpec with Levanter on this machine and measure its loss on held-out bytes.

Levanter does the model, the step, the schedule, the checkpoints and the exact resumption; here are only the data windows, the
loss curve, and bits per byte (Levanter's own figure is wrong for byte tokens). A run killed at any step resumes from its last
checkpoint and ends with the same curve. This module writes nothing into the run store.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from levanter.tracker.tracker import Tracker
from levanter.trainer import Trainer, initialize
from numpy.typing import NDArray

from marin_scaling.run.byte_corpus import ByteCorpus, evaluation_window_starts, shuffled_window_starts
from marin_scaling.run.levanter_config import CHECKPOINT_SECONDS, trainer_config
from marin_scaling.run.levanter_step import (
    CompiledStep,
    compile_evaluation,
    compile_step,
    initial_state,
    language_model_loss,
    parameter_count,
    resume_latest,
)
from marin_scaling.run.loss_curve import LossCurve
from marin_scaling.run.optimizer import initial_optimizer
from marin_scaling.run.plan_specs import require_data
from marin_scaling.run.run_spec import RunSpec

_EVALUATION_BATCH_WINDOWS = 64

StepListener = Callable[[int, float], None]
"""Called after each step with the number of finished steps and the loss in nats per token."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What training measured; `bits_per_byte` is None when the run diverged."""

    bits_per_byte: float | None
    loss_curve: LossCurve
    step_seconds: float
    params_total: int


def train(
    spec: RunSpec,
    *,
    corpus: ByteCorpus,
    work_dir: Path,
    on_step: StepListener,
    trackers: Sequence[Tracker] = (),
) -> TrainingResult:
    """Train `spec` to its last step, resuming from a checkpoint under `work_dir` if there is one, and evaluate it.

    `trackers` are further Levanter trackers (such as W&B) that mirror the loss curve. A run whose loss is no longer finite
    ends there, as a result and not as an error. Raises `DataError` when the data would have to be repeated.
    """
    require_data(spec, corpus=corpus)
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    optimizer = initial_optimizer(spec)
    loss_function = language_model_loss(spec.optimizer.z_loss_weight)
    with (
        LossCurve(work_dir / "loss_curve.jsonl") as curve,
        Trainer(config, optimizer, loss_function, add_default_hooks=False) as trainer,
    ):
        state = resume_latest(trainer, initial_state(trainer, spec, optimizer), steps_recorded=curve.steps_done)
        curve.truncate(int(state.step))
        step = compile_step(trainer, state, spec)
        observer = _Observer(trainer, step=step, curve=curve, on_step=on_step, trackers=trackers)
        is_finite = _train_to_the_end(step, spec=spec, train=corpus.train, observer=observer)
        model = step.state().model
        bits_per_byte = _evaluate(model, spec=spec, validation=corpus.validation) if is_finite else None
    return TrainingResult(
        bits_per_byte=bits_per_byte,
        loss_curve=curve,
        step_seconds=observer.step_seconds,
        params_total=parameter_count(model),
    )


def _train_to_the_end(step: CompiledStep, *, spec: RunSpec, train: NDArray[np.uint8], observer: _Observer) -> bool:
    """Train to the last step; False when the loss stopped being finite, and training with it."""
    for tokens in _training_batches(spec, train, first_step=step.steps_done):
        loss = step.advance(tokens)
        observer.see(loss)
        if not math.isfinite(loss):
            return False
    return True


def _training_batches(spec: RunSpec, train: NDArray[np.uint8], *, first_step: int) -> Iterator[NDArray[np.int32]]:
    """Batches of shape (batch, position): disjoint windows in the order that the data seed draws, from `first_step` on."""
    starts = shuffled_window_starts(len(train), seq_len=spec.model.seq_len, seed=spec.data_order_seed)
    offsets = np.arange(spec.model.seq_len)  # (position,)
    for step in range(first_step, spec.train_steps):
        batch_starts = starts[step * spec.batch_size : (step + 1) * spec.batch_size]  # (batch,)
        yield train[batch_starts[:, None] + offsets].astype(np.int32)


class _Observer:
    """What happens after each step: time it, record it, tell of it, and save the state now and then."""

    def __init__(
        self, trainer: Trainer, *, step: CompiledStep, curve: LossCurve, on_step: StepListener, trackers: Sequence[Tracker]
    ) -> None:
        self.step_seconds = 0.0
        self._step, self._curve, self._on_step, self._trackers = step, curve, on_step, trackers
        always = dataclasses.replace(trainer.config.checkpointer, save_interval=timedelta(microseconds=1))
        self._checkpointer = always.create(trainer.run_id)  # when to save is decided here, before the state is walked
        self._next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS
        self._last: float | None = None

    def see(self, loss: float) -> None:
        """Take in one step's loss."""
        self._time()
        number = self._curve.add(loss if math.isfinite(loss) else None)
        for tracker in self._trackers:
            tracker.log({"train/loss": loss}, step=number)
        self._on_step(number + 1, loss)
        if time.monotonic() >= self._next_checkpoint:
            self._curve.sync()
            self._checkpointer.on_step(tree=self._step.state().saveable_state, step=number)
            self._next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS

    def _time(self) -> None:
        """Count the seconds since the step before; the first step of a process compiles and is not counted."""
        now = time.perf_counter()
        if self._last is not None:
            self.step_seconds += now - self._last
        self._last = now


def _evaluate(model: Any, *, spec: RunSpec, validation: NDArray[np.uint8]) -> float:
    """Bits per byte over the held-out windows: the mean over every byte but the first of each window."""
    mean_loss_nats = compile_evaluation(model, windows=_EVALUATION_BATCH_WINDOWS, seq_len=spec.evaluation.seq_len)
    losses = [mean_loss_nats(tokens) for tokens in _evaluation_batches(spec, validation)]
    return float(np.mean(losses)) / math.log(2)


def _evaluation_batches(spec: RunSpec, validation: NDArray[np.uint8]) -> list[NDArray[np.int32]]:
    """Arrays of shape (batch, position), equally many windows in each, so that the mean of means is the mean."""
    seq_len = spec.evaluation.seq_len
    starts = evaluation_window_starts(len(validation), seq_len=seq_len, windows=spec.evaluation.windows)
    windows = np.stack([validation[start : start + seq_len] for start in starts]).astype(np.int32)
    return list(windows.reshape(-1, _EVALUATION_BATCH_WINDOWS, seq_len))
