"""Decisions before the next training: the runs that narrow a forecast most for their FLOPs, and the best size for inference.

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
from marin_scaling.fitting.combined_law import STUDENT_VARIANCE, shipped_calibration, sparsity_of
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.law import Targets
from marin_scaling.fitting.optima import size_column
from marin_scaling.fitting.posterior import relative_noise
from marin_scaling.forecast.forecast import Forecast, Target, forecast, forecast_runs, optimal_target
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.laws import Array, effective_tokens
from marin_scaling.run.store import RUNS_DIR
from marin_scaling.run.table import read_run_table
from marin_scaling.units import format_count, format_flops, format_number

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


INFERENCE_FLOPS = 2.0
"""FLOPs of a forward pass for each active parameter and token, as in Sardana et al. 2024."""
_SMALLEST, _SIZES = 0.02, 100
"""Smallest size compared, relative to N*, and the number of sizes."""
_LONGEST, _HALVINGS, _ROUNDS = 1e3, 30, 3
"""Most tokens searched, relative to D*, halvings of that range, and rounds of the search."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SizeForInference:
    """Size with the least FLOPs of training and `inference_tokens` at the loss of a compute-optimal run of `budget_flops`.

    `flops_at_optimum` are those of the compute-optimal run, its inference included. `largest_ratio` is that of tokens to active
    parameters among the runs.
    """

    budget_flops: float
    inference_tokens: float
    forecast: Forecast
    flops_at_optimum: float
    largest_ratio: float

    @property
    def inference_flops(self) -> float:
        """FLOPs of all inference tokens."""
        return INFERENCE_FLOPS * self.forecast.active_params * self.inference_tokens

    @property
    def flops(self) -> float:
        """FLOPs of training and inference."""
        return self.forecast.flops + self.inference_flops

    @property
    def document(self) -> dict[str, float]:
        """Return the part of a prediction's document."""
        return {
            **{name: getattr(self.forecast, name) for name in ("params", "active_params", "tokens", "median")},
            "inference_tokens": self.inference_tokens,
            "training_flops": self.forecast.flops,
            "inference_flops": self.inference_flops,
            "flops": self.flops,
            "flops_at_optimum": self.flops_at_optimum,
        }

    def __repr__(self) -> str:
        found, share = self.forecast, self.flops / self.flops_at_optimum - 1
        size = f"N {format_count(found.active_params)} parameters, D {format_count(found.tokens)} tokens"
        beyond = f"  warning: the runs have at most {self.largest_ratio:.3g} tokens per parameter"
        return "\n".join(
            [
                f"fewest FLOPs with {format_number(self.inference_tokens, 3)} inference tokens, at the loss of N* for "
                f"{format_flops(self.budget_flops)} FLOPs:",
                f"  loss {found.median:.4f}, {size}, {found.tokens_per_param:.3g} tokens per parameter",
                f"  training {format_flops(found.flops)} + inference {format_flops(self.inference_flops)} = "
                f"{format_flops(self.flops)} FLOPs, "
                f"{share:+.0%} on the {format_number(self.flops_at_optimum, 3)} of N*",
                *([beyond] if found.tokens_per_param > self.largest_ratio else []),
            ]
        )


def size_for_inference(
    result: FitResult, *, flops: float, inference_tokens: float, unique_tokens: float | None = None
) -> SizeForInference:
    """Return the size that has the loss of the compute-optimal run of `flops` for the fewest FLOPs in all.

    `FitRefused` for a law that does not know other sizes; `UsageError` for an invalid number.

    >>> from marin_scaling.fitting.fit import fit
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> found = size_for_inference(fit(table), flops=1e21, inference_tokens=1e12)
    >>> bool(found.flops < found.flops_at_optimum)
    True
    """
    if not (np.isfinite(inference_tokens) and inference_tokens > 0):
        raise UsageError(
            f"{inference_tokens!r} is not a positive, finite number of inference tokens.", fix="Write it like 1e13."
        )
    if not result.law.knows_any_size:
        raise FitRefused(
            f"{result.source}: the law {result.law.name} does not know other sizes than the optimum at {format_flops(flops)} "
            "FLOPs.",
            fix="Fit the default law, or leave --inference-tokens out.",
        )
    if not result.allocation.identified:
        raise FitRefused(
            f"{result.source}: sizes and tokens of all runs lie on one curve, which shows no loss of other sizes.",
            fix="Add runs of half and twice the size at the largest budgets, or leave --inference-tokens out.",
        )
    optimum = optimal_target(result, flops, unique_tokens=unique_tokens)
    params = optimum.active_params * np.geomspace(1.0, _SMALLEST, _SIZES)
    tokens = _tokens_to_the_loss(result, optimum, params)
    training = result.allocation.cost.at(params) * params * tokens
    total = training + INFERENCE_FLOPS * params * inference_tokens
    best = int(np.argmin(total))
    target = Target(
        flops=float(training[best]),
        params=float(params[best]) * sparsity_of(result.frame),
        tokens=float(tokens[best]),
        active_params=float(params[best]),
        unique_tokens=unique_tokens,
    )
    return SizeForInference(
        budget_flops=flops,
        largest_ratio=float((result.frame["tokens"] / size_column(result.frame)).max()),
        inference_tokens=inference_tokens,
        forecast=forecast_runs(result, [target if best else optimum])[0],
        flops_at_optimum=float(total[0]),
    )


def _tokens_to_the_loss(result: FitResult, optimum: Target, params: Array) -> Array:
    """Return the tokens with which each size has the optimum's median loss, infinite if no number has: (size,).

    The surface alone is fast enough for a search; what the forecast adds to it changes slowly, and is added in each round.
    """
    wanted = _medians(result, optimum, np.array([optimum.active_params]), np.array([optimum.tokens]), as_forecast=True)[0]
    tokens, added = np.full_like(params, optimum.tokens), np.zeros_like(params)
    for _ in range(_ROUNDS):
        added = _medians(result, optimum, params, tokens, as_forecast=True) - _medians(result, optimum, params, tokens)
        tokens, reached = _tokens_on_surface(result, optimum, params, wanted - added)
    tokens = np.where(reached, tokens, np.inf)
    tokens[0] = optimum.tokens
    return np.asarray(tokens)


def _tokens_on_surface(result: FitResult, optimum: Target, params: Array, wanted: Array) -> tuple[Array, Array]:
    """Return the tokens with which each size has its wanted log loss by the surface, and True where a number has: (size,)."""
    low, high = np.full_like(params, np.log(optimum.tokens)), np.full_like(params, np.log(_LONGEST * optimum.tokens))
    reached = _medians(result, optimum, params, np.exp(high)) <= wanted
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _medians(result, optimum, params, np.exp(middle)) > wanted
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp(high), np.asarray(reached)


def _medians(result: FitResult, optimum: Target, params: Array, tokens: Array, *, as_forecast: bool = False) -> Array:
    """Return median log losses of sizes by the law's surface if it has one, or as they are forecast: (size,)."""
    if optimum.unique_tokens is not None:
        tokens = effective_tokens(tokens, unique_tokens=optimum.unique_tokens)
    losses = None if as_forecast else result.law.log_losses(params=params, tokens=tokens)
    if losses is None:
        flops = result.allocation.cost.at(params) * params * tokens
        total = params * sparsity_of(result.frame)
        targets = Targets(flops=flops, params=params, tokens=tokens, total_params=total)
        losses = np.log(result.law.draws(targets, seed=result.seed).losses)
    return np.asarray(np.median(losses, axis=0))
