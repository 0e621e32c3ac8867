"""Train one RunSpec with Levanter on this machine, and measure its loss on held-out text.

Levanter provides the model, the step, the schedule, the checkpoints and exact resumption. This module adds data windows, the
loss curve, and bits per byte, which Levanter computes wrongly for byte tokens. A run killed at any step resumes from its last
checkpoint and ends with the same curve. The caller records the result.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import haliax as hax
import jax
import numpy as np
from haliax.partitioning import pspec_for_axis
from jax.sharding import NamedSharding
from levanter.tracker.tracker import Tracker
from levanter.trainer import Trainer, initialize
from levanter.utils.background_iterable import BackgroundIterator
from numpy.typing import NDArray

from marin_scaling.data.corpus import TokenCorpus, Tokens, evaluation_window_starts
from marin_scaling.errors import Interrupted
from marin_scaling.files import read_own_bytes, replace_file
from marin_scaling.ladder.config import ONE_AXIS, Mesh
from marin_scaling.run.curves import LossCurve, forget_seal, has_diverged
from marin_scaling.run.spec import MoeModelSpec, RunSpec
from marin_scaling.run.store import Trunk, curve_path
from marin_scaling.run.text_needs import require_data
from marin_scaling.train.checkpoints import begin_at_trunk, begun_at, is_whole, keep_trunk, resume_latest, seal_once_whole
from marin_scaling.train.environment import ALONE, ProcessGroup
from marin_scaling.train.levanter_config import CHECKPOINT_SECONDS, SAVING_SHARE, trainer_config
from marin_scaling.train.optimizer import initial_optimizer
from marin_scaling.train.step import (
    BegunStep,
    CompiledStep,
    compile_evaluation,
    compile_routing,
    compile_step,
    initial_state,
    language_model_loss,
    parameter_count,
)
from marin_scaling.units import format_duration

_EVALUATION_BATCH_WINDOWS = 64
_STEPS_PER_QUESTION = 8


StepListener = Callable[[int, float], None]
"""Called after each step with the number of finished steps and the loss in nats per token."""
RoutingMeter = Callable[[Any], tuple[jax.Array, jax.Array] | None]
"""Called with the tokens of the next step, of shape (batch, position); returns its routing, or None if it is not measured."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of training: bits per byte of each held-out set, empty if the run diverged; and Levanter's model."""

    model: Any
    bits_per_byte_by_set: Mapping[str, float]
    loss_curve: LossCurve
    step_seconds: float
    params_total: int
    trunk: Trunk | None
    idle_seconds: float
    """Seconds in which the devices had nothing to compute because the next batch was not read yet."""

    @property
    def bits_per_byte(self) -> float | None:
        """Mean over held-out sets; None if the run diverged."""
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
    trunk: Path | None = None,
    mesh: Mesh = ONE_AXIS,
) -> TrainingResult:
    """Train `spec` to its last step, resuming from a checkpoint under `work_dir` if there is one, and evaluate it.

    `on_note` reports events such as an unusable checkpoint. `on_saved` is called after a checkpoint is complete: every 20
    seconds, or more rarely if saving or the call is slow. `trackers` are further Levanter trackers (such as W&B) that mirror
    the loss curve. All processes of a `group` must call this with a `work_dir` that all of them see. In the folder `trunk`,
    runs leave the state before their decay for longer ones, which begin with it. `mesh` spreads the run over devices; a
    checkpoint from another mesh is resumed.

    A run whose loss is no longer finite ends as a result without a loss. So does a run that ends worse than it began and
    worse than uniform guessing, which `on_note` reports. `DataError` if the data would have to be repeated; `Interrupted`,
    after a step and a checkpoint, once `is_to_end` is true.
    """
    require_data(spec, corpus=corpus)
    if trunk is not None:
        begin_at_trunk(spec, work_dir=work_dir, trunk=trunk, group=group)
    config = trainer_config(spec, work_dir=work_dir, mesh=mesh)
    initialize(config)
    optimizer = initial_optimizer(spec)
    loss_function = language_model_loss(spec.optimizer.z_loss_weight)
    with (
        LossCurve(_curve_of(group, work_dir)) as curve,
        Trainer(config, optimizer, loss_function, add_default_hooks=False) as trainer,
    ):
        fresh = initial_state(trainer, spec, optimizer)
        state = resume_latest(trainer, fresh, spec, steps_recorded=curve.steps_done, on_note=on_note, group=group)
        if group.is_leader and int(state.step):
            began = begun_at(spec, work_dir=work_dir)
            how = "continuing a shorter run" if began and began.steps == int(state.step) else "resuming"
            on_note(f"{how} from step {int(state.step)} of {spec.train_steps}")
        curve.truncate(int(state.step))
        step = compile_step(trainer, state, spec)
        saver = _Saver(trainer, step=step, on_saved=on_saved, group=group)
        observer = _Observer(curve=curve, saver=saver, on_step=on_step, trackers=trackers, is_to_end=is_to_end)
        if trunk is not None:
            keep = partial(keep_trunk, spec=spec, work_dir=work_dir, trunk=trunk, group=group)
            observer.keep_trunk_after(spec.steps_before_decay, lambda: keep(step.state()))
        try:
            with prefetched(training_batches(spec, corpus.train, first_step=step.steps_done, trainer=trainer)) as batches:
                is_finite = _train_to_the_end(step, batches, observer, meter=routing_meter(trainer, step, spec))
            if observer.idle_seconds > max(_IDLE_SHARE * observer.step_seconds, _SHORT_WAIT):
                on_note(_about_slow_data(observer))
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
        trunk=begun_at(spec, work_dir=work_dir),
        idle_seconds=observer.idle_seconds,
    )


class _Begun(NamedTuple):
    """A step that the device computes, and its routing where that is measured."""

    results: BegunStep
    routing: tuple[jax.Array, jax.Array] | None


def _train_to_the_end(
    step: CompiledStep, batches: BackgroundIterator[Any], observer: _Observer, *, meter: RoutingMeter
) -> bool:
    """Train to the last step; stop and return False if the loss is not finite.

    The loss of a step is read after the next one has begun, so that the device does not wait for this process.
    """
    begun: _Begun | None = None
    while (tokens := observer.next_batch(batches, begun and begun.results.loss)) is not None:
        routing = meter(tokens)  # before the step, which may overwrite the weights
        ended, begun = begun, _Begun(step.advance(tokens), routing)
        if ended is not None and not observer.see(ended):
            return False
        if observer.is_to_save(step.steps_done):
            if not observer.see(begun):
                return False
            begun = None
            observer.save(step.steps_done - 1)
    return begun is None or observer.see(begun)


_SECONDS_OF_A_LOOK = 0.001
_SHORT_WAIT = 2.0
"""Seconds of waiting that no run notes."""
_IDLE_SHARE = 0.1
"""Share of the steps' time above which a run notes that its data are slow."""


def _about_slow_data(observer: _Observer) -> str:
    seconds, share = observer.idle_seconds, observer.idle_seconds / observer.step_seconds
    return (
        f"{format_duration(seconds)}, {share:.0%} of the steps' time, the device waited for batches. "
        "Keep the data on a faster disk, or train fewer runs at a time."
    )


def training_batches(spec: RunSpec, train: Tokens, *, first_step: int, trainer: Trainer | None = None) -> Iterator[Any]:
    """Yield batches of shape (batch, position) from `first_step` on: disjoint windows in the order of the data seed.

    They are NumPy arrays; for a `trainer` of several devices, arrays spread over these, of which each process reads its rows.
    """
    starts = spec.window_starts()
    offsets = np.arange(spec.model.seq_len)  # (position,)
    spread = None if trainer is None or trainer.device_mesh.size == 1 else sharding_of_batches(spec, trainer)
    for step in range(first_step, spec.train_steps):
        batch_starts = starts[spec.windows_before(step) : spec.windows_before(step + 1)]  # (batch,)

        def rows(index: tuple[slice, ...] = (slice(None), slice(None)), starts: Any = batch_starts) -> NDArray[np.int32]:
            found: NDArray[np.int32] = train[starts[index[0], None] + offsets[index[1]]].astype(np.int32)
            return found

        shape = (len(batch_starts), spec.model.seq_len)
        yield rows() if spread is None else jax.make_array_from_callback(shape, spread, rows)


def sharding_of_batches(spec: RunSpec, trainer: Trainer) -> NamedSharding:
    """Return how tokens (batch, position) are spread over the trainer's devices."""
    axes = (hax.Axis("batch", spec.batch_size), hax.Axis("position", spec.model.seq_len))
    return NamedSharding(trainer.device_mesh, pspec_for_axis(axes, trainer.compute_axis_mapping))


_BATCHES_AHEAD = 8


@contextlib.contextmanager
def prefetched(batches: Iterator[Any]) -> Iterator[BackgroundIterator[Any]]:
    """Read batches ahead in Levanter's thread, which ends with the block."""
    ahead = BackgroundIterator(batches, max_capacity=_BATCHES_AHEAD)
    try:
        yield ahead
    finally:
        ahead.stop()


def _curve_of(group: ProcessGroup, work_dir: Path) -> Path:
    """Return the path of the leader's curve, or of a copy in another process's own folder."""
    curve = curve_path(work_dir)
    if group.is_leader:
        return curve
    own = curve_path(work_dir / f"process-{group.rank}")
    forget_seal(own)
    replace_file(own, read_own_bytes(curve) if curve.exists() else b"")
    return own


def routing_meter(trainer: Trainer, step: CompiledStep, spec: RunSpec) -> RoutingMeter:
    """Return the function that measures the routing of a mixture at some steps; it measures nothing of a dense model."""
    if not isinstance(spec.model, MoeModelSpec):
        return lambda _tokens: None
    compute = compile_routing(trainer, step.state().model, spec)
    return lambda tokens: compute(step.state().model, tokens) if is_measured(step.steps_done) else None


def is_measured(step: int) -> bool:
    """Return True for the steps whose routing is recorded: of two significant bits below 64, and of three from there on.

    These are 28 of the first 1,000 steps and 55 of 100,000. They do not depend on the length of a run or on its interruptions,
    so runs that share a trunk record the same.

    >>> [step for step in range(100) if is_measured(step)]
    [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96]
    """
    return step == 0 or step // (step & -step) < (4 if step < _FINER_FROM else 8)


_FINER_FROM = 64


_SHARE_DIGITS, _NORM_DIGITS = 6, 6
"""Recorded digits: of entropies and shares after the point, of gradient norms in all."""


def routing_metrics(entropy: Sequence[float], shares: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the routing of a step by the names under which trackers log it."""
    found = {f"router/layer_{layer}/entropy": value for layer, value in enumerate(entropy)}
    for layer, each in enumerate(shares):
        found |= {f"router/layer_{layer}/expert_{expert}_load": share for expert, share in enumerate(each)}
    return found


class _Observer:
    """Work after each step: time it, record it, report it, and save a checkpoint from time to time."""

    def __init__(
        self,
        *,
        curve: LossCurve,
        saver: _Saver,
        on_step: StepListener,
        trackers: Sequence[Tracker],
        is_to_end: Callable[[], bool],
    ) -> None:
        self.step_seconds = self.idle_seconds = 0.0
        self._is_to_end, self._ends, self._is_due = is_to_end, False, False
        self._curve, self._saver, self._on_step, self._trackers = curve, saver, on_step, trackers
        self._last: float | None = None
        self._trunk_steps = 0
        self._keep_trunk: Callable[[], None] | None = None

    def keep_trunk_after(self, steps: int, keep: Callable[[], None]) -> None:
        """Call `keep` once so many steps are done."""
        self._trunk_steps, self._keep_trunk = steps, keep

    def next_batch(self, batches: BackgroundIterator[Any], begun: Any) -> Any | None:
        """Return the next batch, None after the last; the wait for it counts as idle once the device ended the step `begun`."""
        while begun is not None and not batches.qsize() and not begun.is_ready():
            time.sleep(_SECONDS_OF_A_LOOK)
        asked = time.perf_counter()
        tokens = next(batches, None)
        if begun is not None:
            self.idle_seconds += time.perf_counter() - asked
        return tokens

    def see(self, begun: _Begun) -> bool:
        """Wait for the loss of a step, and process it; return True if it is finite."""
        nats, norm = (float(each) for each in begun.results)
        self._time()
        is_finite = math.isfinite(nats)
        entropy, shares = begun.routing or ((), ())
        entropy, shares = (np.asarray(each, np.float64).round(_SHARE_DIGITS).tolist() for each in (entropy, shares))
        number = self._curve.add(
            nats if is_finite else None,
            gradient_norm=float(f"{norm:.{_NORM_DIGITS}g}") if math.isfinite(norm) else None,
            router_entropy_nats=entropy,
            expert_shares=shares,
        )
        for tracker in self._trackers:
            tracker.log({"train/loss": nats, "grad/norm/total": norm, **routing_metrics(entropy, shares)}, step=number)
        self._on_step(number + 1, nats)
        return is_finite

    def is_to_save(self, steps_done: int) -> bool:
        """Return True if a checkpoint is due, the trunk ends, or training is to end."""
        self._ends = self._is_to_end()
        self._is_due = self._saver.is_due() or self._ends
        return self._is_due or steps_done == self._trunk_steps

    def save(self, number: int) -> None:
        """Save the state after the step of this number, whose loss was seen; raise `Interrupted` if training is to end."""
        self._curve.sync()
        if number + 1 == self._trunk_steps and self._keep_trunk is not None:
            self._keep_trunk()
        if self._ends:
            self._saver.save_at_last(number)
            raise Interrupted
        if self._is_due:
            self._saver.save(number)
        self._last = time.perf_counter()  # excludes the time of saving

    def _time(self) -> None:
        """Add the seconds since the previous step; the first step of a process compiles and is not counted."""
        now = time.perf_counter()
        if self._last is not None:
            self.step_seconds += now - self._last
        self._last = now


class _Saver:
    """Saves a checkpoint every `CHECKPOINT_SECONDS`, and reports it; each may take at most `SAVING_SHARE` of the time."""

    def __init__(
        self,
        trainer: Trainer,
        *,
        step: CompiledStep,
        on_saved: Callable[[], None] | None,
        group: ProcessGroup,
    ) -> None:
        self._step, self._on_saved, self._group = step, on_saved, group
        always = dataclasses.replace(trainer.config.checkpointer, save_interval=timedelta(microseconds=1))
        self._folder = Path(trainer.checkpoint_path)
        self._sealing: tuple[Path, threading.Thread] | None = None
        self._asked = 0
        self._checkpointer = always.create(trainer.run_id)  # `is_due` decides when to save, before the state is traversed
        self._next = self._next_told = time.monotonic() + CHECKPOINT_SECONDS

    def is_due(self) -> bool:
        """Return True if a checkpoint is due by the leader's clock.

        A group asks at every eighth step, because the answer waits for the device.
        """
        self._asked += 1
        if self._group.count > 1 and self._asked % _STEPS_PER_QUESTION:
            return False
        return bool(self._group.leaders(time.monotonic() >= self._next))

    def save(self, number: int) -> None:
        """Save the state after the step of this number."""
        began = time.monotonic()
        self._checkpointer.on_step(tree=self._step.state().saveable_state, step=number)
        if self._group.is_leader:  # in parallel to training
            newest = self._folder / f"step-{number}"
            self._sealing = newest, threading.Thread(target=seal_once_whole, args=(newest,), daemon=True)
            self._sealing[1].start()
        self._next = _next_time(began)
        if self._on_saved is not None and time.monotonic() >= self._next_told:
            began = time.monotonic()
            self._checkpointer.wait_until_finished()
            self._on_saved()
            self._next_told = _next_time(began)

    def save_at_last(self, number: int) -> None:
        """Save the state before the process ends; on return it is complete, here and in the shared storage."""
        self._next_told = 0.0
        self.save(number)
        self._settle()

    def leave(self) -> None:
        """Wait for pending writes and deletions, so that the next process finds no partial checkpoint."""
        with contextlib.suppress(Exception):  # another error is being raised; the final state needs no copy
            self._settle()

    def wait_for_all(self) -> None:
        """Wait until no process of the group writes, so that its leader may delete the files."""
        self.leave()
        self._group.is_everywhere(True)

    def _settle(self) -> None:
        self._checkpointer.wait_until_finished()
        if self._sealing is not None:
            newest, thread = self._sealing
            if is_whole(newest):
                thread.join()


def _next_time(began: float) -> float:
    """Return when to repeat work that began at `began` and has ended now."""
    now = time.monotonic()
    return now + max(CHECKPOINT_SECONDS, (now - began) * (1 / SAVING_SHARE - 1))


def _evaluate(trainer: Trainer, model: Any, *, spec: RunSpec, corpus: TokenCorpus) -> dict[str, float]:
    """Return bits per byte of each held-out set: loss over all tokens but the first of each window, per byte of their text."""
    at_once = windows_at_once(spec, batch_parts=trainer.config.data_axis_size)
    program = compile_evaluation(trainer, model, spec, windows=at_once)
    return {
        name: _total_nats(program, windows, at_once=at_once) / math.log(2) / _scored_bytes(corpus, windows)
        for name, windows in evaluation_windows(spec, corpus).items()
    }


def _how_it_diverged(bits_per_byte: Mapping[str, float], *, spec: RunSpec, corpus: TokenCorpus, curve: LossCurve) -> str:
    """Describe the divergence with its numbers; empty if the run did not diverge."""
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
        f"diverged: its held-out loss is {nats:.4g} nats per token at the end, above its first training loss and above "
        f"that of uniform guessing ({math.log(vocab_size):.4g})."
    )


def _scored_bytes(corpus: TokenCorpus, windows: NDArray[np.int32]) -> int:
    return int(corpus.token_bytes[windows[:, 1:]].sum(dtype=np.int64))


def windows_at_once(spec: RunSpec, *, batch_parts: int) -> int:
    """Return the number of windows per evaluation batch, a multiple of the batch's parts, limited as in training."""
    wanted = (spec.compute.sequences_at_a_time or _EVALUATION_BATCH_WINDOWS) * batch_parts
    return -(-min(wanted, _EVALUATION_BATCH_WINDOWS) // batch_parts) * batch_parts


def _total_nats(mean_loss_nats: Callable[..., float], windows: NDArray[np.int32], *, at_once: int) -> float:
    """Return the total over all windows, in batches of equal size; padding has no weight."""
    total = 0.0
    for start in range(0, len(windows), at_once):
        batch = windows[start : start + at_once]
        filled = np.resize(batch, (at_once, batch.shape[1]))
        weighed = np.arange(at_once) < len(batch)
        total += mean_loss_nats(filled, weighed) * len(batch) * (batch.shape[1] - 1)
    return total


def evaluation_windows(spec: RunSpec, corpus: TokenCorpus) -> dict[str, NDArray[np.int32]]:
    """Return windows by set, of shape (window, position); all windows of a named set that has fewer than wanted."""
    seq_len, found = spec.evaluation.seq_len, {}
    for name, windows in spec.evaluated_windows.items():
        tokens = corpus.validation[name]
        starts = evaluation_window_starts(len(tokens), seq_len=seq_len, windows=windows)
        found[name] = np.stack([tokens[start : start + seq_len] for start in starts]).astype(np.int32)
    return found
