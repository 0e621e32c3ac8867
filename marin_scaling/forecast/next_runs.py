"""Choose the runs to train next: those that narrow the forecast of a target most for their FLOPs.

Posterior draws give the joint covariance of the losses of possible runs and of the target. To first order (as if all were
normal) a run reduces the target's variance by covariance^2 / (its variance + its noise), whatever its loss (Lindley 1956).
Comparing hundreds of runs thus needs no refit. Runs are chosen one by one, each with the largest gain per FLOP; a single run
that exhausts the allowance is chosen instead if it gains more than all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.combined_law import sparsity_of
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.law import Targets
from marin_scaling.fitting.posterior import relative_noise
from marin_scaling.fitting.predictive import STUDENT_VARIANCE, shipped_calibration
from marin_scaling.fitting.result import FitResult
from marin_scaling.forecast.forecast import forecast
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.laws import Array
from marin_scaling.run.paths import RUNS_DIR
from marin_scaling.run.table import read_run_table
from marin_scaling.units import format_count, format_flops

BUDGETS_PER_DECADE = 4
SIZE_FACTORS = (0.35, 0.6, 1.0, 1.7, 2.8)
"""Candidate sizes at each budget, relative to the compute-optimal one."""
MOST_RUNS = 12
_LEAST_GAIN = 0.02  # of the target's variance, equal to 1 % of its interval


@dataclass(frozen=True, kw_only=True)
class AdvisedRun:
    """A run to train, and the expected 90 % interval of the target after it and all runs before it."""

    flops: float
    params: float
    tokens: float
    seeds: int
    width_after: float


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Runs in the order of choice; widths are those of the target's 90 % interval, in the unit of the loss."""

    target_flops: float
    allowance_flops: float
    width_before: float
    runs: tuple[AdvisedRun, ...]

    @property
    def spent_flops(self) -> float:
        """Sum of the FLOPs of all advised runs."""
        return sum(run.flops * run.seeds for run in self.runs)


def advise(result: FitResult, *, target_flops: float, allowance_flops: float) -> Advice:
    """Advise on runs that cost at most `allowance_flops` in all, and none more than the target.

    `FitRefused` for a fit without a posterior or a target that cannot be forecast; `UsageError` if the allowance is too small.
    """
    before = forecast(result, flops=target_flops)
    candidates = _candidates(result, target_flops=target_flops, allowance_flops=allowance_flops)
    covariance = result.law.joint_covariance(candidates)
    if covariance is None:
        raise FitRefused(
            f"{result.source}: the law {result.law.name} has no posterior to advise from.",
            fix="Fit the default law.",
        )
    choice = _Choice(result, candidates, covariance, allowance_flops)
    order = choice.greedy()
    width = before.interval()[1] - before.interval()[0]
    runs = _merged(candidates, order, [width * ratio for ratio in choice.ratios(order)])
    return Advice(target_flops=target_flops, allowance_flops=allowance_flops, width_before=width, runs=tuple(runs))


def advise_on(path: Path, *, allowance_flops: float, target_flops: float | None = None) -> Advice:
    """Advise on a ladder file, whose runs are in `runs/`, or on a table of runs; errors as in `advise`.

    The target is that of the ladder file, or `target_flops`, which a table needs.
    """
    runs = path
    if path.suffix in (".yaml", ".yml"):
        file = read_ladder_file(path)
        runs, target_flops = RUNS_DIR / file.name, target_flops or file.target.budget_flops
    if not target_flops:
        raise UsageError(f"{path} is a table of runs and names no target.", fix="Add --target FLOPS.")
    return advise(fit(read_run_table(runs)), target_flops=target_flops, allowance_flops=allowance_flops)


def _candidates(result: FitResult, *, target_flops: float, allowance_flops: float) -> Targets:
    """Return the target, followed by every possible budget and size: (1 + candidate,)."""
    lowest, highest = float(result.frame["flops"].min()), min(allowance_flops, target_flops)
    if highest < lowest:
        raise UsageError(
            f"{format_flops(allowance_flops)} FLOPs pay for no run: the smallest so far cost {format_flops(lowest)}.",
            fix="Raise the allowance.",
        )
    steps = max(2, round(BUDGETS_PER_DECADE * np.log10(highest / lowest)) + 1)
    budgets = np.repeat(np.geomspace(lowest, highest, steps), len(SIZE_FACTORS))
    params = np.array([result.allocation.params_at(flops) for flops in budgets])
    params = params * np.tile(SIZE_FACTORS, steps)
    flops = np.concatenate([[target_flops], budgets])
    params = np.concatenate([[result.allocation.params_at(target_flops)], params])
    tokens = np.array([result.allocation.tokens_for(c, params=n) for c, n in zip(flops, params, strict=True)])
    return Targets(flops=flops, params=params, tokens=tokens, total_params=params * sparsity_of(result.frame))


class _Choice:
    """Greedy choice among candidates with one joint covariance, target first, updated after every choice."""

    def __init__(self, result: FitResult, candidates: Targets, covariance: Array, allowance_flops: float) -> None:
        self.flops = candidates.flops
        self.allowance = allowance_flops
        self.covariance = covariance
        self.noise = result.law.noise_variance
        calibration = shipped_calibration()
        self.drift = calibration.per_decade_of_flops * result.law.fall_per_decade
        self.everywhere, self.spread = calibration.everywhere, calibration.spread
        self.largest = result.largest_flops

    def greedy(self) -> list[int]:
        """Return candidates (from 1 on) in the order of choice; one may be chosen again, as another seed."""
        order: list[int] = []
        covariance, largest, left = self.covariance, self.largest, self.allowance
        while len(order) < MOST_RUNS:
            before = self._variance(covariance, largest)
            gains = before - np.array([self._after(covariance, largest, place) for place in range(1, len(self.flops))])
            gains = np.where(self.flops[1:] <= left * (1 + 1e-9), gains, 0.0)
            best = 1 + int(np.argmax(gains / self.flops[1:]))
            if gains[best - 1] < _LEAST_GAIN * before:
                best = 1 + int(np.argmax(gains))
            if gains[best - 1] < _LEAST_GAIN * before:
                break
            covariance, largest = self._updated(covariance, best, largest), max(largest, float(self.flops[best]))
            left -= float(self.flops[best])
            order.append(best)
        return min((order, self._single()), key=lambda chosen: self.ratios(chosen)[-1] if chosen else 1.0)

    def ratios(self, order: Sequence[int]) -> list[float]:
        """Return the standard deviation of the target after each choice, relative to that before all of them."""
        covariance, largest = self.covariance, self.largest
        before, found = self._variance(covariance, largest), []
        for place in order:
            covariance, largest = self._updated(covariance, place, largest), max(largest, float(self.flops[place]))
            found.append(float(np.sqrt(self._variance(covariance, largest) / before)))
        return found

    def _single(self) -> list[int]:
        before = self._variance(self.covariance, self.largest)
        affordable = [place for place in range(1, len(self.flops)) if self.flops[place] <= self.allowance * (1 + 1e-9)]
        after = {place: self._after(self.covariance, self.largest, place) for place in affordable}
        worth = [place for place in affordable if after[place] <= (1 - _LEAST_GAIN) * before]
        return sorted(worth, key=lambda place: after[place])[:1]

    def _after(self, covariance: Array, largest: float, place: int) -> float:
        learnt = covariance[0, place] ** 2 / (covariance[place, place] + self._noise_of(place, largest))
        return self._variance(covariance, max(largest, float(self.flops[place]))) - self.spread**2 * float(learnt)

    def _variance(self, covariance: Array, largest: float) -> float:
        decades = max(0.0, float(np.log10(self.flops[0] / largest)))
        drift = STUDENT_VARIANCE * ((self.drift * decades) ** 2 + self.everywhere**2)
        return self.spread**2 * (float(covariance[0, 0]) + drift) + self.noise

    def _updated(self, covariance: Array, place: int, largest: float) -> Array:
        column = covariance[:, place]
        return np.asarray(covariance - np.outer(column, column) / (column[place] + self._noise_of(place, largest)))

    def _noise_of(self, place: int, largest: float) -> float:
        below = max(0.0, float(np.log10(largest / self.flops[place])))
        return self.noise * float(relative_noise(np.array([below]))[0])


def _merged(candidates: Targets, order: Sequence[int], widths: Sequence[float]) -> list[AdvisedRun]:
    """Merge choices of one size into one entry with a number of seeds, at its last place."""
    last = {place: width for place, width in zip(order, widths, strict=True)}
    return [
        AdvisedRun(
            flops=float(candidates.flops[place]),
            params=float(candidates.params[place]),
            tokens=float(candidates.tokens[place]),
            seeds=list(order).count(place),
            width_after=width,
        )
        for place, width in sorted(last.items(), key=lambda item: -item[1])
    ]


def advice_text(advice: Advice) -> str:
    """Format the advice as text."""
    head = (
        f"target {format_flops(advice.target_flops)} FLOPs: 90 % interval {advice.width_before:.4f} wide with the runs so far; "
        f"{format_flops(advice.allowance_flops)} FLOPs allowed"
    )
    if not advice.runs:
        return f"{head}\nno affordable run is expected to narrow it by 1 % or more"
    lines = [head, f"{'budget':>9} {'params':>8} {'tokens':>8} {'seeds':>6} {'expected width with it':>23}"]
    for run in advice.runs:
        lines.append(
            f"{format_flops(run.flops):>9} {format_count(run.params):>8} {format_count(run.tokens):>8} {run.seeds:>6} "
            f"{run.width_after:>14.4f} ({run.width_after / advice.width_before - 1:+.0%})"
        )
    lines.append(
        f"together {format_flops(advice.spent_flops)} FLOPs; expected to first order, whatever the losses turn out to be"
    )
    return "\n".join(lines)
