"""Time and cost of planned runs: from the ladder's recorded runs, else the speed in the file, else the accelerator's peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any, Literal

import numpy as np

from marin_scaling.accelerators import accelerator
from marin_scaling.ladder.config import Hardware, LadderFile
from marin_scaling.ladder.fit_check import roofline
from marin_scaling.recipe.base import RungKey, RungPlan
from marin_scaling.units import format_duration

Basis = Literal["recorded", "file", "peak"]
"""Source of a time: recorded runs of the ladder, `sustained_flops_per_second`, or the accelerator's peak (a lower bound)."""
_HOUR = 3600
_OTHER_NAMES_IN_JAX = {"TPU v5": "v5p"}


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """Speed of a recorded run: its size, the FLOPs of the steps that it trained itself, seconds and devices."""

    rung: RungKey
    """Key of the rung, as a plan has it."""
    active_params: int
    flops: float
    step_seconds: float
    wall_seconds: float
    ended: float
    """POSIX time of its end."""
    device_kind: str
    device_count: int
    is_timed: bool = True
    """False if several processes trained the run, since the record has the seconds of the last one."""

    @property
    def flops_per_second(self) -> float:
        """FLOP/s in steps, without compilation and evaluation."""
        return self.flops / self.step_seconds

    @property
    def overhead_seconds(self) -> float:
        """Seconds outside of steps: compilation, evaluation, checkpoints."""
        return max(self.wall_seconds - self.step_seconds, 0.0)


@dataclass(frozen=True, kw_only=True)
class RunTime:
    """Time of a run on all of the hardware, its MFU and its cost; from peak speed, time and cost at least and MFU at most."""

    seconds: float
    basis: Basis
    mfu: float | None
    cost: float | None

    def part(self, share: float) -> RunTime:
        """Return the time and cost of a share of the run's steps."""
        return replace(self, seconds=self.seconds * share, cost=None if self.cost is None else self.cost * share)

    @property
    def document(self) -> dict[str, Any]:
        """The numbers by name, as JSON has them; bounds are named as such."""
        at_least, at_most = ("_at_least", "_at_most") if self.basis == "peak" else ("", "")
        found = {f"seconds{at_least}": self.seconds, f"mfu{at_most}": self.mfu, f"cost{at_least}": self.cost}
        return {name: value for name, value in found.items() if value is not None} | {"time_from": self.basis}

    @property
    def cells(self) -> dict[str, str]:
        """The numbers as cells of a table, by heading."""
        least, most = ("min. ", "max. ") if self.basis == "peak" else ("", "")
        cells = {f"{least}time": format_duration(self.seconds)}
        if self.mfu is not None:
            cells[f"{most}MFU"] = f"{self.mfu:.0%}"
        if self.cost is not None:
            cells[f"{least}cost"] = f"{self.cost:,.2f}"
        return cells


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed of a ladder's hardware, as far as known."""

    file: LadderFile
    recorded: tuple[RecordedRun, ...] = ()
    """Recorded runs on the hardware of the file."""

    @cached_property
    def at_a_time(self) -> float:
        """Runs that train side by side: as many as the file says, else the mean of the recorded ones."""
        stated = self.file.hardware.runs_at_a_time
        spans = [(run.ended - run.wall_seconds, run.ended) for run in self.recorded]
        return overlap(spans) if stated == "cores" else float(stated)

    def time_of(self, plan: RungPlan) -> RunTime | None:
        """Return the time of a run that shares the hardware with others, `at_a_time`; None if no speed is known."""
        alone = self.time_alone(plan)
        return alone if alone is None or alone.basis == "file" else alone.part(1 / self.at_a_time)

    def time_alone(self, plan: RungPlan) -> RunTime | None:
        """Return the time of a run by itself; None if no speed is known.

        Recorded runs give FLOP/s by active parameters (interpolated between sizes, and constant beyond them) and the seconds
        outside of steps: the median for this size, or the most of any run for a size without a record, which compiles anew.
        """
        hardware = self.file.hardware
        if self.recorded:
            size = plan.shape.params_active
            rate = self.flops_per_second(size)
            same_size = [run.overhead_seconds for run in self.recorded if run.active_params == size]
            overhead = median(same_size) if same_size else max(run.overhead_seconds for run in self.recorded)
            return self.timed(plan.flops / rate + overhead, "recorded", mfu=self._mfu(rate))
        if hardware.sustained_flops_per_second is not None:
            return self.timed(plan.flops / hardware.sustained_flops_per_second, "file")
        least = roofline(plan, self.file.compute, hardware)
        return None if least is None else self.timed(least.seconds, "peak", mfu=least.mfu)

    def time_taken(self, run: RecordedRun) -> RunTime:
        """Return the time of a recorded run, as its share of the hardware."""
        return self.timed(run.wall_seconds / self.at_a_time, "recorded", mfu=self._mfu(run.flops_per_second))

    def recorded_range(self) -> tuple[float, float]:
        """Return the least and the largest FLOP/s of a recorded run."""
        rates = [run.flops_per_second for run in self.recorded]
        return min(rates), max(rates)

    def timed(self, seconds: float, basis: Basis, *, mfu: float | None = None) -> RunTime:
        """Return so many seconds of all the hardware, with their cost if the file has a price."""
        price = self.file.hardware.cost_per_hour
        return RunTime(seconds=seconds, basis=basis, mfu=mfu, cost=None if price is None else seconds / _HOUR * price)

    def flops_per_second(self, active_params: int) -> float:
        """Return the FLOP/s of a run of this size, from recorded runs."""
        by_size: dict[int, list[float]] = {}
        for run in self.recorded:
            by_size.setdefault(run.active_params, []).append(math.log(run.flops_per_second))
        sizes = sorted(by_size)
        means = [sum(by_size[size]) / len(by_size[size]) for size in sizes]
        return float(np.exp(np.interp(math.log(active_params), np.log(sizes), means)))

    def _mfu(self, rate: float) -> float | None:
        hardware = self.file.hardware
        return None if hardware.chip is None else rate / (hardware.per_run.devices * hardware.chip.peak_flops_per_second)


def speed_of(file: LadderFile, runs: Sequence[RecordedRun]) -> Speed:
    """Return the speed of a ladder, from those of its recorded runs that used the file's hardware.

    Without an accelerator in the file, these are the runs on the kind and number of devices of the newest one.
    """
    timed = [run for run in runs if run.is_timed and run.step_seconds > 0]
    if file.hardware.chip is not None:
        same = [run for run in timed if _is_on(run, file.hardware)]
    else:
        newest = max(timed, key=lambda run: run.ended, default=None)
        same = [run for run in timed if newest and _devices(run) == _devices(newest)]
    return Speed(file=file, recorded=tuple(same))


def overlap(spans: Sequence[tuple[float, float]]) -> float:
    """Return the mean number of spans (start, end) at a moment that any of them covers; 1 if none has a length.

    >>> overlap([(0, 10), (0, 10), (10, 20)])
    1.5
    """
    covered, until = 0.0, -math.inf
    for start, end in sorted(spans):
        covered += max(end - max(start, until), 0.0)
        until = max(until, end)
    return sum(end - start for start, end in spans) / covered if covered else 1.0


def _is_on(run: RecordedRun, hardware: Hardware) -> bool:
    kind, chip = accelerator(_OTHER_NAMES_IN_JAX.get(run.device_kind, run.device_kind)), hardware.chip
    return kind is not None and chip is not None and kind.kind == chip.kind and run.device_count == hardware.per_run.devices


def _devices(run: RecordedRun) -> tuple[str, int]:
    return run.device_kind, run.device_count
