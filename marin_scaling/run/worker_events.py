"""What a training process tells its launcher: JSON lines on a pipe. Both ends are here, so that they cannot drift apart."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Literal, TextIO

from marin_scaling.errors import MarinScalingError

EventKind = Literal["started", "stepped", "evaluating", "finished", "diverged", "failed", "noted"]
_SECONDS_BETWEEN_STEPS = 0.25


@dataclass(frozen=True, kw_only=True)
class WorkerEvent:
    """One line: which run (by its folder's name), what happened, after how many steps, at which loss, and what is said."""

    kind: EventKind
    run: str
    step: int = 0
    loss: float | None = None
    message: str = ""
    why: str = ""
    fix: str = ""


def failure_of(run: str, error: MarinScalingError) -> WorkerEvent:
    """The event of a run that ended in this error."""
    return WorkerEvent(kind="failed", run=run, message=error.what, why=error.why, fix=error.fix)


def parse_event(line: str) -> WorkerEvent | None:
    """The event in a line, or None for anything else (a library that prints)."""
    try:
        return WorkerEvent(**json.loads(line))
    except (ValueError, TypeError):
        return None


class EventWriter:
    """Writes events to the launcher; steps at most four times a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_step_event = 0.0

    def tell(self, event: WorkerEvent) -> None:
        """Write one event."""
        self._stream.write(json.dumps(asdict(event), allow_nan=False) + "\n")
        self._stream.flush()

    def tell_step(self, run: str, step: int, loss: float) -> None:
        """Write that a step is done, unless the last such event is too fresh."""
        now = time.monotonic()
        if now >= self._next_step_event:
            self._next_step_event = now + _SECONDS_BETWEEN_STEPS
            self.tell(WorkerEvent(kind="stepped", run=run, step=step, loss=loss if abs(loss) < float("inf") else None))
