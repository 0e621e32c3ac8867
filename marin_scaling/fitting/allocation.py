"""How a budget is best split into parameters and tokens: a power law for N*, and FLOPs for D*.

N* = params (C / C0)^params_exponent, through the bottoms of bowls where three budgets or more have closed ones ("approach 2" of
Hoffmann et al. 2022), otherwise from the coupled law. D* is what the budget then pays for, C / (k N*), where k, the FLOPs a
parameter and token, is read off the runs: near 6, other for small models (the head's share) and long sequences (attention).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from marin_scaling.fitting.optima import DrawnPoints
from marin_scaling.fitting.posterior import SurfacePosterior
from marin_scaling.laws import Array

LEAST_BOWLS = 3
"""A line through two points has no residual to say how sure it is."""


@dataclass(frozen=True, kw_only=True)
class FlopsPerParamToken:
    """k as a power law in the parameters, through the runs, and never outside what the runs have."""

    reference_params: float
    level: float
    exponent: float
    low: float
    high: float

    def at(self, params: Array) -> Array:
        """k at each number of parameters."""
        with np.errstate(over="ignore"):  # what is too large is `high`
            return np.asarray(np.clip(self.level * (params / self.reference_params) ** self.exponent, self.low, self.high))


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Compute-optimal sizes. Deviations are of ln N* at C0 and of the exponent; `freedom` is that of Student's t for them.

    `tokens_exponent` is that of the same points' tokens (D* ~ C^tokens_exponent), for reports; forecasts take D* from the
    budget and N*. `origin` says what N* was read off.
    """

    params: float
    params_exponent: float
    tokens_exponent: float
    reference_flops: float
    level_deviation: float
    exponent_deviation: float
    freedom: float
    cost: FlopsPerParamToken
    origin: str

    def params_at(self, flops: float) -> float:
        """Compute-optimal parameters for a budget."""
        return float(self.params * (flops / self.reference_flops) ** self.params_exponent)

    def tokens_at(self, flops: float) -> float:
        """Compute-optimal tokens for a budget."""
        return self.tokens_for(flops, params=self.params_at(flops))

    def tokens_for(self, flops: float, *, params: float) -> float:
        """The tokens that a budget pays for with a model of so many parameters."""
        return float(flops / (self.cost.at(np.array([params]))[0] * params))

    def params_interval(self, flops: float, *, share: float = 0.9) -> tuple[float, float] | None:
        """The central interval of N*, None when nothing says how sure it is."""
        from scipy.special import stdtrit

        if self.freedom < 1:
            return None
        away = math.log(flops / self.reference_flops)
        deviation = math.hypot(self.level_deviation, away * self.exponent_deviation)
        factor = math.exp(min(float(stdtrit(self.freedom, 0.5 + share / 2)) * deviation, 100.0))
        return self.params_at(flops) / factor, self.params_at(flops) * factor


def allocation_through(drawn: DrawnPoints, posterior: SurfacePosterior | None = None) -> Allocation:
    """The allocation of a table's points; by the posterior where fewer than `LEAST_BOWLS` budgets have closed bowls."""
    frame = drawn.frame
    cost = _cost(*(frame[name].to_numpy(dtype=np.float64) for name in ("flops", "params", "tokens")))
    closed = [point for point in drawn.points if not point.note]
    budgets = len({point.flops for point in closed}) if drawn.bowls else 0
    if posterior is not None and budgets < LEAST_BOWLS:
        return _by_posterior(posterior, cost)
    chosen = closed if budgets >= 2 else list(drawn.points)
    origin = f"the bottoms of {len(chosen)} bowls" if drawn.bowls else "the best runs as they are"
    return _by_points(
        [np.array([getattr(each, name) for each in chosen]) for name in ("flops", "params", "tokens")], cost, origin
    )


def _by_points(points: list[Array], cost: FlopsPerParamToken, origin: str) -> Allocation:
    flops, params, tokens = (np.log(each) for each in points)
    centre = flops.mean()
    x, freedom = flops - centre, len(flops) - 2
    exponent, level = np.polyfit(x, params, 1)
    variance = float(np.sum((params - level - exponent * x) ** 2)) / max(freedom, 1)
    return Allocation(
        params=float(np.exp(level)),
        params_exponent=float(exponent),
        tokens_exponent=float(np.polyfit(x, tokens, 1)[0]),
        reference_flops=float(np.exp(centre)),
        level_deviation=math.sqrt(variance / len(flops)),
        exponent_deviation=math.sqrt(variance / float(x @ x)),
        freedom=float(freedom),
        cost=cost,
        origin=origin,
    )


def _by_posterior(posterior: SurfacePosterior, cost: FlopsPerParamToken) -> Allocation:
    """The optimum of every drawn law at the largest budget, where C = k N D."""
    flops, laws = float(posterior.runs.flops.max()), posterior.laws
    per_param_token = float(cost.at(np.array([posterior.middle_params]))[0])
    product = np.array([math.log(flops / per_param_token / posterior.middle_params / posterior.middle_tokens)])
    levels = laws.optimal_log_params(product)[:, 0] + math.log(posterior.middle_params)
    exponents = laws.b / (laws.a + laws.b)
    return Allocation(
        params=float(np.exp(np.median(levels))),
        params_exponent=float(np.median(exponents)),
        tokens_exponent=1 - float(np.median(exponents)),
        reference_flops=flops,
        level_deviation=float(levels.std()),
        exponent_deviation=float(exponents.std()),
        freedom=1e6,
        cost=cost,
        origin="the coupled law",
    )


def _cost(flops: Array, params: Array, tokens: Array) -> FlopsPerParamToken:
    log_params, log_cost = np.log(params), np.log(flops) - np.log(params) - np.log(tokens)
    centre, spread = log_params.mean(), float(np.ptp(log_params))
    exponent, level = np.polyfit(log_params - centre, log_cost, 1) if spread > 0.01 else (0.0, log_cost.mean())
    return FlopsPerParamToken(
        reference_params=float(np.exp(centre)),
        level=float(np.exp(level)),
        exponent=float(exponent),
        low=float(np.exp(log_cost.min())),
        high=float(np.exp(log_cost.max())),
    )
