"""Best size of a model that will process many tokens after training: fewer parameters, trained longer to the same loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.combined_law import sparsity_of
from marin_scaling.fitting.law import Targets
from marin_scaling.fitting.optima import size_column
from marin_scaling.fitting.result import FitResult
from marin_scaling.forecast.forecast import Forecast, Target, forecast_runs, optimal_target
from marin_scaling.laws import Array, effective_tokens
from marin_scaling.units import format_count, format_flops

INFERENCE_FLOPS = 2.0
"""FLOPs of a forward pass for each active parameter and token, as in Sardana et al. 2024."""
_SMALLEST, _SIZES = 0.02, 200
"""Smallest size compared, relative to N*, and the number of sizes."""
_LONGEST, _HALVINGS = 1e3, 40
"""Most tokens searched, relative to D*."""


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
                f"fewest FLOPs with {self.inference_tokens:.3g} inference tokens, at the loss of N* for "
                f"{format_flops(self.budget_flops)} FLOPs:",
                f"  loss {found.median:.4f}, {size}, {found.tokens_per_param:.3g} tokens per parameter",
                f"  training {found.flops:.3g} + inference {self.inference_flops:.3g} = {self.flops:.3g} FLOPs, "
                f"{share:+.0%} on the {self.flops_at_optimum:.3g} of N*",
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
    >>> from marin_scaling.run.simulate import simulate_ladder
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
            f"{result.source}: the law {result.law.name} does not know other sizes than the optimum at {flops:.3g} FLOPs.",
            fix="Fit the default law, or leave --inference-tokens out.",
        )
    if not result.allocation.identified:
        raise FitRefused(
            f"{result.source}: all runs follow one rule of tokens per parameter, which shows no loss of other sizes.",
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
    """Return the tokens with which each size has the optimum's median loss, infinite if no number has: (size,)."""
    wanted = _medians(result, optimum, np.array([optimum.active_params]), np.array([optimum.tokens]))[0]
    low, high = np.full_like(params, np.log(optimum.tokens)), np.full_like(params, np.log(_LONGEST * optimum.tokens))
    reached = _medians(result, optimum, params, np.exp(high)) <= wanted
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _medians(result, optimum, params, np.exp(middle)) > wanted
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    tokens = np.where(reached, np.exp(high), np.inf)
    tokens[0] = optimum.tokens
    return np.asarray(tokens)


def _medians(result: FitResult, optimum: Target, params: Array, tokens: Array) -> Array:
    if optimum.unique_tokens is not None:
        tokens = effective_tokens(tokens, unique_tokens=optimum.unique_tokens)
    losses = result.law.log_losses(params=params, tokens=tokens)
    if losses is None:
        flops = result.allocation.cost.at(params) * params * tokens
        losses = result.law.draws(Targets(flops=flops, params=params, tokens=tokens), seed=result.seed).losses
    return np.asarray(np.median(losses, axis=0))
