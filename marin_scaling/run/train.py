"""Train one RunSpec with Levanter on this machine and measure its loss on held-out bytes.

Levanter does the model, the step, the schedule, the checkpoints and the exact resumption; here are only the data windows, the
loss curve, and bits per byte (Levanter's own figure is wrong for byte tokens). A run killed at any step resumes from its last
checkpoint and ends with the same curve. This module writes nothing into the run store.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from levanter.models.lm_model import LmExample
from levanter.tracker.tracker import Tracker
from levanter.trainer import Trainer, initialize
from numpy.typing import NDArray

from marin_scaling.errors import DataError
from marin_scaling.run.byte_corpus import (
    BYTE_VOCABULARY,
    ByteCorpus,
    evaluation_window_starts,
    shuffled_window_starts,
)
from marin_scaling.run.levanter_config import CHECKPOINT_SECONDS, model_config, optimizer_config, trainer_config
from marin_scaling.run.loss_curve import LossCurve
from marin_scaling.run.run_spec import RunSpec

_EVALUATION_BATCH_WINDOWS = 64

StepListener = Callable[[int, float], None]
"""Called after each step with the number of finished steps and the loss in nats per token."""

_Observer = Callable[[Callable[[], Any], float], None]
"""Called after each step with a way to the training state and the loss."""


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
    _require_one_epoch(spec, corpus)
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    optimizer = optimizer_config(spec.optimizer).build(spec.train_steps)
    with (
        LossCurve(work_dir / "loss_curve.jsonl") as curve,
        Trainer(config, optimizer, _loss_function(spec), add_default_hooks=False) as trainer,
    ):
        key_training, key_model = jax.random.split(jax.random.PRNGKey(spec.seed))
        state = trainer.initial_state(key_training, model_init=lambda: _initial_model(spec, key_model))
        curve.truncate(int(state.step))
        stopwatch = _StepStopwatch()
        observers = _observers(trainer, curve=curve, stopwatch=stopwatch, on_step=on_step, trackers=trackers)
        state, is_finite = _train_to_the_end(trainer, state, spec=spec, train=corpus.train, observers=observers)
        bits_per_byte = _evaluate(trainer, state.model, spec=spec, validation=corpus.validation) if is_finite else None
    return TrainingResult(
        bits_per_byte=bits_per_byte,
        loss_curve=curve,
        step_seconds=stopwatch.seconds,
        params_total=sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(state.model, eqx.is_inexact_array))),
    )


def _require_one_epoch(spec: RunSpec, corpus: ByteCorpus) -> None:
    if spec.trained_tokens > len(corpus.train):
        raise DataError(
            f"The run {spec.directory_name} wants {spec.trained_tokens} tokens; the training data has {len(corpus.train)}.",
            why="Text that is repeated is worth less than new text, and a law fitted across that border misleads.",
            fix="Lower the budget or raise the model size in the ladder file.",
        )


def _loss_function(spec: RunSpec) -> Callable[..., Any]:
    def loss(model: Any, example: LmExample, *, key: Any = None) -> Any:
        return model.compute_next_token_loss(example, key=key, logsumexp_weight=spec.optimizer.z_loss_weight)

    return loss


def _initial_model(spec: RunSpec, key: Any) -> Any:
    return model_config(spec.model).build(hax.Axis("vocab", BYTE_VOCABULARY), key=key)


def _train_to_the_end(
    trainer: Trainer, state: Any, *, spec: RunSpec, train: NDArray[np.uint8], observers: Sequence[_Observer]
) -> tuple[Any, bool]:
    """The state after the last step, and whether the loss was finite throughout (otherwise it ends where it was not)."""
    leaves, rebuild, step = _compiled_step(trainer, state, spec)
    for tokens in _training_batches(spec, train, first_step=int(state.step)):
        leaves, loss_array = step(leaves, tokens)
        loss = float(loss_array)
        for observe in observers:
            observe(lambda leaves=leaves: rebuild(leaves), loss)  # type: ignore[misc]
        if not math.isfinite(loss):
            return rebuild(leaves), False
    return rebuild(leaves), True


def _compiled_step(trainer: Trainer, state: Any, spec: RunSpec) -> tuple[list[Any], Callable[..., Any], Callable[..., Any]]:
    """Levanter's own training step, compiled over the flat list of the state's arrays.

    Called through Haliax, a step of a tiny model spends more time in walking the state's tree in Python than in computing
    (lab book, 2026-11-21); the program that runs is the same.
    """
    arrays, static = eqx.partition(state, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    axes = (hax.Axis("batch", spec.batch_size), hax.Axis("position", spec.model.seq_len))
    weights = hax.named(_next_byte_weights(spec.batch_size, spec.model.seq_len), axes)

    def rebuild(leaves: list[Any]) -> Any:
        return eqx.combine(jax.tree.unflatten(structure, leaves), static)

    @jax.jit  # type: ignore[untyped-decorator]
    def step(leaves: list[Any], tokens: Any) -> tuple[list[Any], Any]:
        example = LmExample(tokens=hax.named(tokens, axes), loss_weight=weights)
        result = trainer._train_step(rebuild(leaves), (example,), {}, _no_hooks=True)
        return jax.tree.leaves(eqx.filter(result.new_state, eqx.is_array)), result.loss

    return leaves, rebuild, step


def _training_batches(spec: RunSpec, train: NDArray[np.uint8], *, first_step: int) -> Iterator[NDArray[np.int32]]:
    """Batches of shape (batch, position): disjoint windows in the order that the data seed draws, from `first_step` on."""
    starts = shuffled_window_starts(len(train), seq_len=spec.model.seq_len, seed=spec.data_order_seed)
    offsets = np.arange(spec.model.seq_len)  # (position,)
    for step in range(first_step, spec.train_steps):
        batch_starts = starts[step * spec.batch_size : (step + 1) * spec.batch_size]  # (batch,)
        yield train[batch_starts[:, None] + offsets].astype(np.int32)


def _next_byte_weights(batch_size: int, seq_len: int) -> Any:
    weights = np.ones((batch_size, seq_len), np.float32)
    weights[:, -1] = 0.0  # the last byte of a window has no next byte in it
    return jnp.asarray(weights)


class _StepStopwatch:
    """Seconds spent in steps, without the first of this process, which compiles."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: float | None = None

    def tick(self) -> None:
        now = time.perf_counter()
        if self._last is not None:
            self.seconds += now - self._last
        self._last = now


def _observers(
    trainer: Trainer, *, curve: LossCurve, stopwatch: _StepStopwatch, on_step: StepListener, trackers: Sequence[Tracker]
) -> Sequence[_Observer]:
    """What happens after each step: record it, tell of it, and save the state now and then."""
    checkpointer = trainer.config.checkpointer.create(trainer.run_id)
    next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS

    def record(_state: Callable[[], Any], loss: float) -> None:
        stopwatch.tick()
        step = curve.add(loss if math.isfinite(loss) else None)
        for tracker in trackers:
            tracker.log({"train/loss": loss}, step=step)
        on_step(step + 1, loss)

    def save(state: Callable[[], Any], _loss: float) -> None:
        nonlocal next_checkpoint
        if time.monotonic() >= next_checkpoint:
            checkpointer.on_step(tree=state().saveable_state, step=curve.steps_done - 1)
            next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS

    return (record, save)


def _evaluate(trainer: Trainer, model: Any, *, spec: RunSpec, validation: NDArray[np.uint8]) -> float:
    """Bits per byte over the held-out windows: the mean over every byte but the first of each window."""
    axes = (hax.Axis("batch", _EVALUATION_BATCH_WINDOWS), hax.Axis("position", spec.evaluation.seq_len))
    weights = hax.named(_next_byte_weights(_EVALUATION_BATCH_WINDOWS, spec.evaluation.seq_len), axes)

    @hax.named_jit(axis_resources=trainer.compute_axis_mapping)  # type: ignore[untyped-decorator]
    def mean_loss_nats(model: Any, tokens: Any) -> Any:
        example = LmExample(tokens=hax.named(tokens, axes), loss_weight=weights)
        return model.compute_next_token_loss(example, key=None, logsumexp_weight=0.0).scalar()

    losses = [float(mean_loss_nats(model, tokens)) for tokens in _evaluation_batches(spec, validation)]
    return float(np.mean(losses)) / math.log(2)


def _evaluation_batches(spec: RunSpec, validation: NDArray[np.uint8]) -> list[NDArray[np.int32]]:
    """Arrays of shape (batch, position), equally many windows in each, so that the mean of means is the mean."""
    seq_len = spec.evaluation.seq_len
    starts = evaluation_window_starts(len(validation), seq_len=seq_len, windows=spec.evaluation.windows)
    windows = np.stack([validation[start : start + seq_len] for start in starts]).astype(np.int32)
    return list(windows.reshape(-1, _EVALUATION_BATCH_WINDOWS, seq_len))
