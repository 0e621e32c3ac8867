"""Progress of a ladder, read from its store and working folder without changing them.

A run that was begun and is claimed by no process is stopped; it resumes when the ladder is started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from marin_scaling.run.curves import losses_so_far
from marin_scaling.run.paths import STARTED_NAME, Workplace, known_specs, work_dir
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import StoredRun, is_finished, read_run, run_folder
from marin_scaling.train.launcher import is_claimed
from marin_scaling.units import format_duration, format_flops

_HEAD = f"{'budget':>8} {'width':>6} {'state':<9} {'steps':>15}  loss"


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run: its steps so far, and its loss: the metric if it is finished, else the last training loss (nats)."""

    spec: RunSpec
    state: Literal["finished", "diverged", "training", "stopped", "waiting"]
    steps: int = 0
    loss: float | None = None
    wall_seconds: float = 0.0


def run_state(spec: RunSpec, workplace: Workplace) -> RunState:
    """Return the state of one run from store and working folder."""
    if is_finished(workplace.runs_dir, spec):
        return _ended(spec, read_run(run_folder(workplace.runs_dir, spec)))
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
    return RunState(spec=spec, state=record.status, steps=steps, loss=record.loss, wall_seconds=record.wall_seconds)


def begun_specs(ladder: str, workplace: Workplace) -> list[RunSpec]:
    """Return the runs of a ladder that are recorded or were begun here, rungs before targets, in order of cost."""
    begun = [spec for spec in known_specs(workplace) if spec.ladder == ladder]
    return sorted(begun, key=lambda spec: (spec.role == "target", spec.flops))


def status_text(states: Sequence[RunState]) -> str:
    """Format one line per run, and the remaining time."""
    if not states:
        return "No run was begun."
    return "\n".join([_HEAD, *map(_row, states), "", *_summary(states)])


def _row(run: RunState) -> str:
    spec = run.spec
    unit = "bits/byte" if run.state == "finished" else "nats, training"
    loss = "" if run.loss is None else f"{run.loss:.4f} {unit}"
    steps = f"{run.steps} of {spec.train_steps}"
    return f"{format_flops(spec.budget_flops):>8} {spec.model.hidden_dim:>6} {run.state:<9} {steps:>15}  {loss}".rstrip()


def _summary(states: Sequence[RunState]) -> list[str]:
    ended = [run for run in states if run.state in ("finished", "diverged")]
    training = sum(run.state == "training" for run in states)
    total = sum(run.spec.flops for run in states)
    done = sum(run.spec.flops * (1.0 if run in ended else run.steps / run.spec.train_steps) for run in states)
    at_a_time = max(training, 1)
    lines = [f"{len(ended)} of {len(states)} runs are recorded, {training} in training; {done / total:.0%} of the FLOPs done."]
    seconds = sum(run.wall_seconds for run in ended)
    if seconds and done < total:
        left = (total - done) * seconds / sum(run.spec.flops for run in ended) / at_a_time
        lines.append(f"About {format_duration(left)} left at the speed of recorded runs, {at_a_time} at a time.")
    return lines
