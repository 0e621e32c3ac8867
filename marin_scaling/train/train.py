"""Train one RunSpec with Levanter on this machine and measure its loss on held-out bytes.

Levanter does the model, the step, the schedule, the checkpoints and the exact resumption; here are only the data windows, the
loss curve, and bits per byte (Levanter's own figure is wrong for byte tokens). A run killed at any step resumes from its last
checkpoint and ends with the same curve. This module writes nothing into the run store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from levanter.tracker.tracker import Tracker
from levanter.trainer import Trainer, initialize
from numpy.typing import NDArray

from marin_scaling.data.corpus import TokenCorpus, Tokens, evaluation_window_starts, training_window_starts
from marin_scaling.errors import Interrupted
from marin_scaling.files import read_own_bytes, replace_file
from marin_scaling.run.curves import LossCurve, forget_seal, has_diverged, write_shares
from marin_scaling.run.paths import curve_path
from marin_scaling.run.plan import require_data
from marin_scaling.run.spec import MoeModelSpec, RunSpec
from marin_scaling.train.checkpoints import is_whole, resume_latest, seal_once_whole
from marin_scaling.train.levanter_config import CHECKPOINT_SECONDS, SAVING_SHARE, trainer_config
from marin_scaling.train.optimizer import initial_optimizer
from marin_scaling.train.process_group import ALONE, ProcessGroup
from marin_scaling.train.step import (
    CompiledStep,
    compile_evaluation,
    compile_expert_shares,
    compile_step,
    initial_state,
    language_model_loss,
    parameter_count,
)

_EVALUATION_BATCH_WINDOWS = 64


StepListener = Callable[[int, float], None]
"""Called after each step with the number of finished steps and the loss in nats per token."""
BatchListener = Callable[[NDArray[np.int32]], None]
"""Called with the tokens of a step, of shape (batch, position)."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What training measured: bits per byte of each held-out set by name, none when the run diverged; and Levanter's model."""

    model: Any
    bits_per_byte_by_set: Mapping[str, float]
    loss_curve: LossCurve
    step_seconds: float
    params_total: int

    @property
    def bits_per_byte(self) -> float | None:
        """The mean over sets; None when the run diverged."""
        return float(np.mean(list(self.bits_per_byte_by_set.values()))) if self.bits_per_byte_by_set else None


def train(
    spec: RunSpec,
    *,
    corpus: TokenCorpus,
    work_dir: Path,
    on_step: StepListener,
    on_note: Callable[[str], None] = print,
    on_saved: Callable[[], None] | None = None,
    trackers: Sequence[Tracker] = (),
    group: ProcessGroup = ALONE,
    is_to_end: Callable[[], bool] = lambda: False,
) -> TrainingResult:
    """Train `spec` to its last step, resuming from a checkpoint under `work_dir` if there is one, and evaluate it.

    `on_note` is told what a person should know, such as a checkpoint that could not be used. `on_saved` is called when the
    state is saved whole under `work_dir`: every 20 seconds, or more rarely where that or the call takes long. `trackers` are
    further Levanter trackers (such as W&B) that mirror the loss curve. All processes of a `group` have to call this, with one
    `work_dir` that all of them see. A run whose loss is no longer finite ends there, as a result and not as an error; of one
    that ends worse than it began, and than by guessing uniformly, `on_note` is told, and it has no loss either. Raises
    `DataError` when the data would have to be repeated, and `Interrupted` after the step and the saving that follow on
    `is_to_end`.
    """
    require_data(spec, corpus=corpus)
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    optimizer = initial_optimizer(spec)
    loss_function = language_model_loss(spec.optimizer.z_loss_weight)
    with (
        LossCurve(_curve_of(group, work_dir)) as curve,
        Trainer(config, optimizer, loss_function, add_default_hooks=False) as trainer,
    ):
        fresh = initial_state(trainer, spec, optimizer)
        state = resume_latest(trainer, fresh, spec, steps_recorded=curve.steps_done, on_note=on_note, group=group)
        curve.truncate(int(state.step))
        step = compile_step(trainer, state, spec)
        on_save = _shares_writer(trainer, step, work_dir, group) if isinstance(spec.model, MoeModelSpec) else None
        saver = _Saver(trainer, step=step, on_save=on_save, on_saved=on_saved, group=group)
        observer = _Observer(curve=curve, saver=saver, on_step=on_step, trackers=trackers, is_to_end=is_to_end)
        try:
            is_finite = _train_to_the_end(step, spec=spec, train=corpus.train, observer=observer)
            model = step.state().model
            bits_per_byte = _evaluate(trainer, model, spec=spec, corpus=corpus) if is_finite else {}
        except BaseException:
            saver.leave()
            raise
        if bits_per_byte and (why := _how_it_diverged(bits_per_byte, spec=spec, corpus=corpus, curve=curve)):
            on_note(why)
            bits_per_byte = {}
        saver.wait_for_all()
    return TrainingResult(
        model=model,
        bits_per_byte_by_set=bits_per_byte,
        loss_curve=curve,
        step_seconds=observer.step_seconds,
        params_total=parameter_count(model),
    )


def _train_to_the_end(step: CompiledStep, *, spec: RunSpec, train: Tokens, observer: _Observer) -> bool:
    """Train to the last step; False when the loss stopped being finite, and training with it."""
    for tokens in _training_batches(spec, train, first_step=step.steps_done):
        loss = step.advance(tokens)
        observer.see(loss, tokens)
        if not math.isfinite(loss):
            return False
    return True


def _training_batches(spec: RunSpec, train: Tokens, *, first_step: int) -> Iterator[NDArray[np.int32]]:
    """Batches of shape (batch, position): disjoint windows in the order that the data seed draws, from `first_step` on."""
    starts = training_window_starts(len(train), seq_len=spec.model.seq_len, seed=spec.data_order_seed, epochs=spec.epochs)
    offsets = np.arange(spec.model.seq_len)  # (position,)
    for step in range(first_step, spec.train_steps):
        batch_starts = starts[step * spec.batch_size : (step + 1) * spec.batch_size]  # (batch,)
        yield train[batch_starts[:, None] + offsets].astype(np.int32)


def _curve_of(group: ProcessGroup, work_dir: Path) -> Path:
    """The leader's counts; another process begins with a copy of it, in a folder of its own."""
    curve = curve_path(work_dir)
    if group.is_leader:
        return curve
    own = curve_path(work_dir / f"process-{group.rank}")
    forget_seal(own)
    replace_file(own, read_own_bytes(curve) if curve.exists() else b"")
    return own


def _shares_writer(trainer: Trainer, step: CompiledStep, work_dir: Path, group: ProcessGroup) -> BatchListener:
    """Of a mixture: how the tokens of a batch are spread over its experts now, kept beside its curve."""
    compute = compile_expert_shares(trainer, step.state().model)

    def write(tokens: NDArray[np.int32]) -> None:
        shares = compute(step.state().model, tokens)
        if group.is_leader:
            write_shares(work_dir, shares)

    return write


class _Observer:
    """What happens after each step: time it, record it, tell of it, and save the state now and then."""

    def __init__(
        self,
        *,
        curve: LossCurve,
        saver: _Saver,
        on_step: StepListener,
        trackers: Sequence[Tracker],
        is_to_end: Callable[[], bool],
    ) -> None:
        self.step_seconds = 0.0
        self._is_to_end = is_to_end
        self._curve, self._saver, self._on_step, self._trackers = curve, saver, on_step, trackers
        self._last: float | None = None

    def see(self, loss: float, tokens: NDArray[np.int32]) -> None:
        """Take in the loss of one step on `tokens`."""
        self._time()
        number = self._curve.add(loss if math.isfinite(loss) else None)
        for tracker in self._trackers:
            tracker.log({"train/loss": loss}, step=number)
        self._on_step(number + 1, loss)
        if self._saver.is_due():
            self._curve.sync()
            self._saver.save(number, tokens)
            self._last = time.perf_counter()  # its seconds are not those of a step
        if self._is_to_end() and math.isfinite(loss):
            self._curve.sync()
            self._saver.save_at_last(number, tokens)
            raise Interrupted

    def _time(self) -> None:
        """Count the seconds since the step before; the first step of a process compiles and is not counted."""
        now = time.perf_counter()
        if self._last is not None:
            self.step_seconds += now - self._last
        self._last = now


class _Saver:
    """Saves the state every `CHECKPOINT_SECONDS`, and tells of it; each takes `SAVING_SHARE` of the time at most."""

    def __init__(
        self,
        trainer: Trainer,
        *,
        step: CompiledStep,
        on_save: BatchListener | None,
        on_saved: Callable[[], None] | None,
        group: ProcessGroup,
    ) -> None:
        self._step, self._on_save, self._on_saved, self._group = step, on_save, on_saved, group
        always = dataclasses.replace(trainer.config.checkpointer, save_interval=timedelta(microseconds=1))
        self._folder = Path(trainer.checkpoint_path)
        self._sealing: tuple[Path, threading.Thread] | None = None
        self._checkpointer = always.create(trainer.run_id)  # when to save is decided here, before the state is walked
        self._next = self._next_told = time.monotonic() + CHECKPOINT_SECONDS

    def is_due(self) -> bool:
        """Whether the state is to be saved now, by the leader's clock."""
        return bool(self._group.leaders(time.monotonic() >= self._next))

    def save(self, number: int, tokens: NDArray[np.int32]) -> None:
        """Save the state after the step of this number, on `tokens`."""
        if self._on_save is not None:
            self._on_save(tokens)
        began = time.monotonic()
        self._checkpointer.on_step(tree=self._step.state().saveable_state, step=number)
        if self._group.is_leader:  # while training goes on
            newest = self._folder / f"step-{number}"
            self._sealing = newest, threading.Thread(target=seal_once_whole, args=(newest,), daemon=True)
            self._sealing[1].start()
        self._next = _next_time(began)
        if self._on_saved is not None and time.monotonic() >= self._next_told:
            began = time.monotonic()
            self._checkpointer.wait_until_finished()
            self._on_saved()
            self._next_told = _next_time(began)

    def save_at_last(self, number: int, tokens: NDArray[np.int32]) -> None:
        """The same for a process that ends then: the state is whole, here and with the others, when this returns."""
        self._next_told = 0.0
        self.save(number, tokens)
        self._settle()

    def leave(self) -> None:
        """Until what is being written or removed is, so that whoever goes on here meets no half of it."""
        with contextlib.suppress(Exception):  # the error that is on its way says more; the state at the end needs no copy
            self._settle()

    def wait_for_all(self) -> None:
        """Until no process of the group writes any more: then its leader may take the files away."""
        self.leave()
        self._group.is_everywhere(True)

    def _settle(self) -> None:
        self._checkpointer.wait_until_finished()
        if self._sealing is not None:
            newest, thread = self._sealing
            if is_whole(newest):
                thread.join()


def _next_time(began: float) -> float:
    """When to do again what began then and has ended now."""
    now = time.monotonic()
    return now + max(CHECKPOINT_SECONDS, (now - began) * (1 / SAVING_SHARE - 1))


def _evaluate(trainer: Trainer, model: Any, *, spec: RunSpec, corpus: TokenCorpus) -> dict[str, float]:
    """Bits per byte of each held-out set: loss over every token but the first of each window, over the bytes they stand for."""
    at_once = _windows_at_once(spec, devices=trainer.device_mesh.size)
    program = compile_evaluation(trainer, model, spec, windows=at_once)
    return {
        name: _total_nats(program, windows, at_once=at_once) / math.log(2) / _scored_bytes(corpus, windows)
        for name, windows in evaluation_windows(spec, corpus).items()
    }


def _how_it_diverged(bits_per_byte: Mapping[str, float], *, spec: RunSpec, corpus: TokenCorpus, curve: LossCurve) -> str:
    """A sentence with the numbers; empty where the run did not."""
    windows, vocab_size = evaluation_windows(spec, corpus), spec.model.vocab_size
    nats = np.mean(
        [  # per token
            bits * math.log(2) * _scored_bytes(corpus, windows[name]) / windows[name][:, 1:].size
            for name, bits in bits_per_byte.items()
        ]
    )
    if not has_diverged(float(nats), first_nats=curve.first_finite() or 0.0, vocab_size=vocab_size):
        return ""
    return (
        f"it diverged: its held-out loss is {nats:.4g} nats a token at the end, above where it began and above that of "
        f"guessing uniformly ({math.log(vocab_size):.4g})."
    )


def _scored_bytes(corpus: TokenCorpus, windows: NDArray[np.int32]) -> int:
    return int(corpus.token_bytes[windows[:, 1:]].sum(dtype=np.int64))


def _windows_at_once(spec: RunSpec, *, devices: int) -> int:
    """As many as always, or as many sequences as are computed at a time in training; a multiple of the devices."""
    wanted = (spec.compute.sequences_at_a_time or _EVALUATION_BATCH_WINDOWS) * devices
    return -(-min(wanted, _EVALUATION_BATCH_WINDOWS) // devices) * devices


def _total_nats(mean_loss_nats: Callable[..., float], windows: NDArray[np.int32], *, at_once: int) -> float:
    """Over all windows, in batches of equal size; what fills the last one up has no weight."""
    total = 0.0
    for start in range(0, len(windows), at_once):
        batch = windows[start : start + at_once]
        filled = np.resize(batch, (at_once, batch.shape[1]))
        weighed = np.arange(at_once) < len(batch)
        total += mean_loss_nats(filled, weighed) * len(batch) * (batch.shape[1] - 1)
    return total


def evaluation_windows(spec: RunSpec, corpus: TokenCorpus) -> dict[str, NDArray[np.int32]]:
    """By set, of shape (window, position); of a named set that has fewer windows than are wanted, all."""
    seq_len, found = spec.evaluation.seq_len, {}
    for name, windows in spec.evaluated_windows.items():
        tokens = corpus.validation[name]
        starts = evaluation_window_starts(len(tokens), seq_len=seq_len, windows=windows)
        found[name] = np.stack([tokens[start : start + seq_len] for start in starts]).astype(np.int32)
    return found
