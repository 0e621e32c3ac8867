"""Events of training processes, and their display as progress bars."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Literal, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from marin_scaling.errors import MarinScalingError
from marin_scaling.printable import printable, wrapped
from marin_scaling.run.spec import RunSpec, differences
from marin_scaling.units import format_duration, format_flops

EventKind = Literal["started", "stepped", "evaluating", "finished", "diverged", "failed", "noted"]
_SECONDS_BETWEEN_STEPS = 0.25


@dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """One line: run (by its folder's name), kind of event, steps, loss and message."""

    kind: EventKind
    run: str
    step: int = 0
    loss: float | None = None
    message: str = ""
    why: str = ""
    fix: str = ""


def failure_of(run: str, error: MarinScalingError) -> WorkerEvent:
    """Return the event of a run that ended in this error."""
    return WorkerEvent(kind="failed", run=run, message=error.what, why=error.why, fix=error.fix)


def parse_event(line: str) -> WorkerEvent | None:
    """Return the event in a line, or None for other output, for example of a library."""
    try:
        return WorkerEvent(**json.loads(line))
    except (ValueError, TypeError):
        return None


class EventWriter:
    """Writer of events to the launcher; steps at most four times a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_step_event = 0.0

    def tell(self, event: WorkerEvent) -> None:
        """Write one event."""
        self._stream.write(json.dumps(asdict(event), allow_nan=False) + "\n")
        self._stream.flush()

    def tell_step(self, run: str, step: int, loss: float) -> None:
        """Write a finished step, unless the last such event is too recent."""
        now = time.monotonic()
        if now >= self._next_step_event:
            self._next_step_event = now + _SECONDS_BETWEEN_STEPS
            self.tell(WorkerEvent(kind="stepped", run=run, step=step, loss=loss if abs(loss) < float("inf") else None))


class RunProgress:
    """Progress of runs, measured in FLOPs, some `finished` before; use as a context manager and pass `see` to the launcher."""

    def __init__(self, specs: Sequence[RunSpec], *, label: str, console: Console, finished: Collection[RunSpec] = ()) -> None:
        self._specs = {spec.directory_name: spec for spec in specs}
        self._labels = {run: f"{_label(self._specs[run])}{apart}" for run, apart in differences(specs).items()}
        self._console = console
        self._steps = {name: spec.train_steps if spec in finished else 0 for name, spec in self._specs.items()}
        self._finished = len(finished)
        self._began = time.monotonic()
        self._first_steps: tuple[float, float] | None = None
        self._bars = Progress(
            TextColumn("{task.description:<23}", markup=False),
            BarColumn(bar_width=18),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        total = sum(spec.flops for spec in specs)
        self._total = self._bars.add_task(label, total=total, state="")
        self._bars.update(self._total, completed=self._done_flops())
        self._rows: dict[str, TaskID] = {}
        self._is_compiling = False

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._bars.stop()

    def see(self, event: WorkerEvent) -> None:
        """Process one event."""
        spec, label = self._specs[event.run], self._labels[event.run]
        if event.run not in self._rows:  # a worker may also die before its first event
            self._rows[event.run] = self._bars.add_task(label, total=spec.train_steps, state="compiling")
        if event.kind == "started":
            self._start(event)
        elif event.kind in ("stepped", "evaluating"):
            self._move(event)
        elif event.kind == "noted":
            self._console.print(
                wrapped(f"note: {label.strip()}: {printable(event.message)}"),
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        else:
            self._end(event, spec)

    def _start(self, event: WorkerEvent) -> None:
        self._bars.update(self._rows[event.run], state="compiling")
        if not (self._is_compiling or self._console.is_terminal):
            self._console.print("compiling the first steps", highlight=False, markup=False)
        self._is_compiling = True

    def _move(self, event: WorkerEvent) -> None:
        state = "evaluating" if event.kind == "evaluating" else "" if event.loss is None else f"loss {event.loss:.3f}"
        self._bars.update(self._rows[event.run], completed=event.step, state=state)
        self._advance(event.run, event.step)

    def _end(self, event: WorkerEvent, spec: RunSpec) -> None:
        label = self._labels[event.run]
        self._bars.remove_task(self._rows.pop(event.run))
        if event.kind == "failed":
            self._console.print(f"{label}  failed", highlight=False, markup=False)
            return
        self._finished += 1
        self._advance(event.run, spec.train_steps)
        outcome = "diverged" if event.loss is None else f"{event.loss:.4f} bits/byte"
        self._console.print(
            f"[{self._finished:>2}/{len(self._specs)}] {label}  {outcome}  {self._remaining()}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def _advance(self, run: str, step: int) -> None:
        self._steps[run] = step
        self._bars.update(self._total, completed=self._done_flops(), state=self._remaining())

    def _done_flops(self) -> float:
        return sum(spec.flops * self._steps[run] / spec.train_steps for run, spec in self._specs.items())

    def _remaining(self) -> str:
        """Return the time left at the speed since the first compiled steps, or the duration after the last run."""
        now, done = time.monotonic(), self._done_flops()
        total = sum(spec.flops for spec in self._specs.values())
        if done >= total:
            return f"done in {format_duration(now - self._began)}"
        began, before = self._first_steps = self._first_steps or (now, done)
        return f"{format_duration((now - began) * (total - done) / (done - before))} left" if done > before else ""


def _label(spec: RunSpec) -> str:
    return f"{format_flops(spec.budget_flops):>7} FLOPs, width {spec.model.hidden_dim:>3}"
