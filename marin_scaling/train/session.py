"""Train runs in this repository: choose the machines, train what the store lacks, show progress and state.

A run that was begun and is claimed by no process is stopped; it resumes when the ladder is started again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from marin_scaling.errors import ClusterError, DataError, UsageError, missing_extra
from marin_scaling.files import hide_from_git
from marin_scaling.ladder.plan import TARGET, expected_target, time_left
from marin_scaling.printable import terminal_below
from marin_scaling.run import plan as plans
from marin_scaling.run.curves import losses_so_far
from marin_scaling.run.plan import LoadedLadder
from marin_scaling.run.spec import RunSpec, differences
from marin_scaling.run.store import (
    STARTED_NAME,
    WORK_ROOT,
    StoredRun,
    Workplace,
    is_finished,
    known_specs,
    read_run,
    run_folder,
    trunk_dir,
    weights_dir,
    work_dir,
    workplace,
)
from marin_scaling.run.text_needs import require_data
from marin_scaling.units import counted, format_duration, format_flops, parse_duration

if TYPE_CHECKING:
    from marin_scaling.data.corpus import TokenCorpus
    from marin_scaling.ladder.config import Hardware, LadderFile
    from marin_scaling.run.spec import RunSpec
    from marin_scaling.run.store import Workplace
    from marin_scaling.train.compile_for import CompiledLadder
    from marin_scaling.train.launcher import Pool, TrainingTime

logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs tracebacks of errors that are reported anyway


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Specs of the requested runs, the store's folder, whether time ran out, and the diverged runs."""

    specs: list[RunSpec]
    runs_dir: Path
    stopped: bool = False
    diverged: tuple[str, ...] = ()


class TrainableLadder(LoadedLadder):
    """A ladder to plan (`plan`), train (`train`) and watch (`status`) in the current folder."""

    def train(
        self,
        *,
        on: str = "local",
        only: Sequence[str] = (),
        max_parallel: int | None = None,
        stop_after: str = "",
        keep_weights: bool = False,
        on_message: Callable[[str], object] = print,
    ) -> Trained:
        """Train the rungs that `runs/` lacks; after an interruption, the same call resumes.

        `on` is local, ray or ray:ADDRESS; `only` names budgets (BUDGET or BUDGET/WIDTH); `stop_after` is a duration such as
        30m. `UsageError`, `DataError` or `ClusterError` before training begins, `TrainingFailed` if a run fails.
        """
        from marin_scaling.ladder.plan import ladder_table, require_fitting

        require_fitting(self.plan(only))
        file, limit = self.ladder.file, at_most(stop_after)
        use_tracker(file)
        pool = pool_of(on, file.hardware, runs=len(self.ladder.rungs), max_parallel=max_parallel)
        planned = self.bind()
        specs, storage = plans.chosen(planned.specs, only), file.hardware.storage
        on_message("\n".join([ladder_table(self.plan()), *(finding.line for finding in planned.findings())]))
        trained = Trained(specs=specs, runs_dir=planned.runs_dir)
        label, corpus = f"ladder {file.name}", planned.corpus
        try:
            with limit:
                train_with_progress(specs, corpus=corpus, label=label, pool=pool, storage=storage, keep_weights=keep_weights)
        except TimeIsUp:
            return replace(trained, stopped=True)
        if file.shared_trunk and all(is_finished(planned.runs_dir.parent, spec) for spec in planned.specs):
            for spec in planned.specs:
                shutil.rmtree(trunk_dir(spec, workplace()), ignore_errors=True)
        return replace(trained, diverged=tuple(_diverged(specs, planned.runs_dir.parent)))

    def compile_for(
        self, topology: str, *, only: Sequence[str] = (), on_message: Callable[[str], object] = print
    ) -> CompiledLadder:
        """Compile the training step and the evaluation of each shape for a TPU slice such as v5p:2x2x4, without a TPU.

        The result has `frame`, `fits` and `findings`. `only` names budgets (BUDGET or BUDGET/WIDTH), or `target`. A shape takes
        minutes of one core; compiled shapes are cached. `UsageError` for an unknown slice or a batch that its devices cannot
        share; `MissingExtra` without the extra `tpu`.
        """
        from marin_scaling.train.compile_for import compile_for

        return compile_for(self, topology, only=only, place=workplace(), on_message=on_message)

    def status(self) -> tuple[list[RunState], str | None]:
        """Return the state of every run, and the reason if only begun runs are listed, else None."""
        try:
            specs, why = self.bind_prepared().specs, None
        except DataError as error:
            specs, why = begun_specs(self.ladder.file.name, workplace()), error.what
        place = synced_paths(specs, storage=self.ladder.file.hardware.storage)
        return [run_state(spec, place) for spec in specs], why

    def sweep_status(self) -> list[RunState]:
        """Return the state of every run of the ladder's sweep that was begun."""
        place = workplace()
        specs = begun_specs(f"{self.ladder.file.name}-sweep", place)
        specs.sort(key=lambda spec: (spec.budget_flops, spec.model.hidden_dim, spec.batch_size, spec.optimizer.learning_rate))
        return [run_state(spec, place) for spec in specs]

    def seconds_left(self, states: Sequence[RunState]) -> float | None:
        """Return the seconds until all rungs are recorded, at the speed of those that are; None if none is."""
        done = {run.spec.rung_key: run.steps / run.spec.train_steps for run in states}
        left = time_left(self.plan(), done=done)
        return None if left is None else left.seconds

    def emit(self, *, only: Sequence[str] = ()) -> Emitted:
        """Write a configuration of each rung and its tokens for Levanter's `train_lm` into `emitted/NAME/`.

        `only=["target"]` writes the target, at the size that `recipe show` takes for its budget, into `emitted/NAME-target/`.
        Mixtures of experts are trained by `marin_scaling.train.train_lm`, which registers their model. `StorageError` if other
        files exist.
        """
        require_training(for_what="writing files for Levanter")
        from marin_scaling.train.levanter_yaml import command, emit_levanter

        planned, folder = self.bind(), _EMITTED / self.ladder.file.name
        if list(plans.as_list(only)) == [TARGET]:
            specs = [plans.target_spec(self.ladder.file, expected_target(self.ladder), corpus=planned.corpus)]
            folder = folder.with_name(f"{folder.name}-{TARGET}")
            require_data(specs[0], corpus=planned.corpus)
        else:
            specs = plans.chosen(planned.specs, only)
        mesh = self.ladder.file.hardware.per_run.mesh
        hide_from_git(_EMITTED)
        is_new = emit_levanter(specs, corpus=planned.corpus, folder=folder, mesh=mesh)
        return Emitted(folder=folder, runs=len(specs), is_new=is_new, command=command(specs[0]))


_EMITTED = Path("emitted")  # Python would import a folder `levanter` in the current folder as the package


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """Folder of the written files, number of runs, whether the files are new, and a command that trains one run."""

    folder: Path
    runs: int
    is_new: bool
    command: str


def load_ladder(path: Path | str) -> TrainableLadder:
    """Read a ladder file and expand it with its recipe; `LadderFileError` or `RecipeError` if it cannot be planned."""
    return TrainableLadder(**vars(plans.load_ladder(path)))


def _diverged(specs: Sequence[RunSpec], runs_dir: Path) -> list[str]:
    """Return BUDGET/WIDTH of each recorded run without a loss."""
    from marin_scaling.run.store import read_run, run_folder

    return [spec.rung_name for spec in specs if read_run(run_folder(runs_dir, spec)).record.loss is None]


def use_tracker(file: LadderFile | None) -> None:
    """Let training processes mirror their curves as the ladder file says; the environment overrides it."""
    if file is None or (tracker := file.tracker) is None:
        return
    os.environ.setdefault("WANDB_PROJECT", tracker.project)
    os.environ.setdefault("WANDB_MODE", tracker.mode)
    if tracker.entity is not None:
        os.environ.setdefault("WANDB_ENTITY", tracker.entity)


def synced_paths(specs: Sequence[RunSpec], *, storage: str | None) -> Workplace:
    """Return the paths of these runs, after downloading other machines' work on them (from `storage`)."""
    place = workplace(storage=storage)
    if storage is not None:
        from marin_scaling.train.shared_storage import Exchange

        Exchange(place).bring_progress(specs)
    return place


def pool_of(where: str, hardware: Hardware, *, runs: int, max_parallel: int | None = None) -> Pool:
    """Return the pool for `--on`: `local`, `ray` for a cluster started here, `ray:ADDRESS` or Ray's own `ray://ADDRESS`.

    `UsageError` for anything else. `runs` counts those of the whole ladder, so that the last run trains on as many cores as
    the others.
    """
    place, _, address = ("ray", "", where) if where.startswith("ray://") else where.partition(":")
    if place == "local" and not address:
        return _local_pool(hardware, runs=runs, max_parallel=max_parallel)
    if place != "ray":
        raise UsageError(
            f"--on {where}: runs are trained on this machine or on a Ray cluster.",
            fix="Use --on local, --on ray (a cluster started here), or --on ray:ADDRESS.",
        )
    if importlib.util.find_spec("ray") is None:
        raise missing_extra("ray", needed_for="training on a Ray cluster")
    from marin_scaling.train.ray_pool import ray_pool

    return ray_pool(address or None, per_run=hardware.per_run, max_parallel=max_parallel)


def target_pool(where: str, *, ladder: str) -> Pool:
    """Return the pool for a target: here with all GPUs of the machine, on a cluster with the ladder file's resources."""
    from marin_scaling.train.launcher import local_pool, visible_gpus

    if where == "local":
        gpus = visible_gpus()
        return local_pool(1, gpus=gpus, gpus_per_run=len(gpus), mesh=plans.hardware_of(ladder).per_run.mesh)
    return pool_of(where, plans.hardware_of(ladder), runs=1)


def _local_pool(hardware: Hardware, *, runs: int, max_parallel: int | None) -> Pool:
    from marin_scaling.train.launcher import local_pool, runs_that_fit, visible_gpus

    if hardware.per_run.is_group:
        raise UsageError(
            "hardware.per_run: on this machine one process trains a run, with all of the run's devices.",
            why="Only Ray starts groups of processes and TPU slices.",
            fix="Train on a cluster (--on ray:ADDRESS; --on ray starts one here), or leave processes and tpu_slice out.",
        )
    each, gpus = hardware.per_run.gpus, visible_gpus()
    most = runs_that_fit(each, len(gpus)) if each else len(os.sched_getaffinity(0))
    if not most:
        raise ClusterError(
            f"hardware.per_run.gpus: a run needs {each:g}, and this machine has {len(gpus)}.",
            fix="Lower it, train on another machine, or on a cluster: --on ray:ADDRESS.",
        )
    if gpus and not each:
        print(f"warning: this machine has {len(gpus)} GPUs, but hardware.per_run.gpus is 0; runs train on its cores.")
    at_a_time = most if hardware.runs_at_a_time == "cores" else hardware.runs_at_a_time
    if each:
        at_a_time = min(at_a_time, most)
    at_a_time = min(at_a_time, runs, max_parallel or at_a_time)
    return local_pool(at_a_time, gpus=gpus, gpus_per_run=each, mesh=hardware.per_run.mesh)


class TimeIsUp(BaseException):
    """The time of `--stop-after` is over; work is in checkpoints. A `BaseException`, so that no `except Exception` stops it."""


@contextlib.contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(_signal: int, _frame: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def at_most(duration: str) -> contextlib.AbstractContextManager[None]:
    """Raise `TimeIsUp` in the block after `duration` ("30m"); never if it is empty."""
    return _interrupted_after(parse_duration(duration)) if duration else contextlib.nullcontext()


def require_training(*, for_what: str) -> None:
    """Raise `MissingExtra` if the extra `train` is not installed."""
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for=for_what)


def train_with_progress(
    specs: Sequence[RunSpec],
    *,
    corpus: TokenCorpus,
    label: str,
    pool: Pool,
    storage: str | None = None,
    keep_weights: bool = False,
    at: Workplace | None = None,
) -> TrainingTime:
    """Train runs that neither the store nor `storage` holds, and show progress.

    `at` is another workplace than this repository's, for runs that are trained again.
    """
    from marin_scaling.run.store import is_finished
    from marin_scaling.train.launcher import train_runs
    from marin_scaling.train.progress import RunProgress
    from marin_scaling.untrusted_files import require_no_link

    require_training(for_what="training")
    _require_same_data(specs, corpus)
    place = at or replace(synced_paths(specs, storage=storage), keep_weights=keep_weights)
    for ladder in {spec.ladder for spec in specs}:
        require_no_link(place.runs_dir / ladder)
    pending = [spec for spec in specs if not is_finished(place.runs_dir, spec)]
    if len(pending) < len(specs):
        print(f"{len(specs) - len(pending)} of {len(specs)} runs are finished already; skipped.")
        ended = (spec for spec in specs if spec not in pending)
        lost = [spec for spec in ended if not weights_dir(spec.directory_name, place).exists()]
        if keep_weights and lost:
            print(f"warning: the weights of {counted(len(lost), 'skipped run')} are not in {WORK_ROOT / 'weights'}.")
    finished = [spec for spec in specs if spec not in pending]
    with RunProgress(specs, finished=finished, label=label, console=Console(file=terminal_below(sys.stdout))) as progress:
        return train_runs(
            pending,
            corpus=corpus,
            workplace=place,
            pool=pool,
            on_event=progress.see,
        )


def _require_same_data(specs: Sequence[RunSpec], corpus: TokenCorpus) -> None:
    for spec in specs:
        if spec.data.digest != corpus.digest:
            raise DataError(
                f"{spec.directory_name} was planned on {spec.data.source} {spec.data.digest[:12]}; "
                f"here it is {corpus.digest[:12]}.",
                why="The sources of Python's standard library differ between versions.",
                fix="Use the Python version of the plan, or plan and register again here.",
            )


_HEAD = f"{'budget':>8} {'width':>6} {'state':<9} {'steps':>15}  loss"


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run: its steps so far, and its loss: the metric if it is finished, else the last training loss (nats)."""

    spec: RunSpec
    state: Literal["finished", "diverged", "training", "stopped", "waiting"]
    steps: int = 0
    loss: float | None = None


def run_state(spec: RunSpec, workplace: Workplace) -> RunState:
    """Return the state of one run from store and working folder."""
    if is_finished(workplace.runs_dir, spec):
        return _ended(spec, read_run(run_folder(workplace.runs_dir, spec)))
    from marin_scaling.train.launcher import is_claimed

    folder, losses = work_dir(spec, workplace), losses_so_far(spec, workplace)
    is_begun = (folder / STARTED_NAME).exists()  # asking for a claim creates the folder
    is_training = (folder.exists() or workplace.storage is not None) and is_claimed(spec, workplace)
    if not (is_begun or is_training or losses):
        return RunState(spec=spec, state="waiting")
    return RunState(
        spec=spec,
        state="training" if is_training else "stopped",
        steps=len(losses),
        loss=next((loss for loss in reversed(losses) if loss is not None), None),
    )


def _ended(spec: RunSpec, run: StoredRun) -> RunState:
    """Return the state of a recorded run; a diverged one ended at the step where it diverged."""
    record = run.record
    steps = len(run.history().rows) if record.status == "diverged" else spec.train_steps
    return RunState(spec=spec, state=record.status, steps=steps, loss=record.loss)


def begun_specs(ladder: str, workplace: Workplace) -> list[RunSpec]:
    """Return the runs of a ladder that are recorded or were begun here, rungs before targets, in order of cost."""
    begun = [spec for spec in known_specs(workplace) if spec.ladder == ladder]
    return sorted(begun, key=lambda spec: (spec.role == "target", spec.flops))


def status_text(states: Sequence[RunState], *, seconds_left: float | None = None) -> str:
    """Format one line per run, and the seconds left, if they are known."""
    if not states:
        return "No run was begun."
    apart = differences([run.spec for run in states])
    rows = [f"{_row(run)}{apart[run.spec.directory_name]}" for run in states]
    return "\n".join([_HEAD, *rows, "", *_summary(states, seconds_left)])


def _row(run: RunState) -> str:
    spec = run.spec
    unit = "bits/byte" if run.state == "finished" else "nats, training"
    loss = "" if run.loss is None else f"{run.loss:.4f} {unit}"
    steps = f"{run.steps} of {spec.train_steps}"
    return f"{format_flops(spec.budget_flops):>8} {spec.model.hidden_dim:>6} {run.state:<9} {steps:>15}  {loss}".rstrip()


def _summary(states: Sequence[RunState], seconds_left: float | None) -> list[str]:
    ended = [run for run in states if run.state in ("finished", "diverged")]
    training = sum(run.state == "training" for run in states)
    total = sum(run.spec.flops for run in states)
    done = sum(run.spec.flops * (1.0 if run in ended else run.steps / run.spec.train_steps) for run in states)
    lines = [f"{len(ended)} of {len(states)} runs are recorded, {training} in training; {done / total:.0%} of the FLOPs done."]
    if seconds_left:
        lines.append(f"About {format_duration(seconds_left)} left at the speed of recorded runs.")
    return lines
