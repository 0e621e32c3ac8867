"""Compute-optimal sizes: a power law for N*, and D* from the FLOPs.

N* = params (C / C0)^params_exponent goes through the minima of bowls if at least three budgets have closed ones ("approach 2"
of Hoffmann et al. 2022), otherwise it comes from the coupled law. Runs that all follow one rule of tokens per parameter do not
identify N*: N is then that of the same rule. D* is C / (k N*). The FLOPs per parameter and token, k, are
read off the runs: near 6, but different for small models (share of the output head) and long sequences (attention).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fitting.law import Law, Targets, refuse
from marin_scaling.fitting.optima import DrawnPoints
from marin_scaling.fitting.posterior import SurfacePosterior
from marin_scaling.laws import Array, effective_tokens

if TYPE_CHECKING:
    import pandas as pd

_LEAST_GROWTH, _LARGEST_GROWTH = -1.0, 2.0  # of N* with C; Delphi's is 0.40, Hoffmann's 0.46 to 0.50
_SIZES_TRIED, _OPTIMUM_OFF = 400, 4.0
"""Sizes compared for an optimum of repeated tokens, and the factor by which a law's own optimum may be off N* of the bowls."""
LEAST_BOWLS = 3
"""Degrees of freedom below which no interval is given: a line through two points has no residual."""


@dataclass(frozen=True, kw_only=True)
class FlopsPerParamToken:
    """FLOPs per parameter and token, k, as a power law in the parameters, limited to the range of the runs."""

    reference_params: float
    level: float
    exponent: float
    low: float
    high: float

    def at(self, params: Array) -> Array:
        """Return k at each number of parameters."""
        with np.errstate(over="ignore"):  # overflow is clipped to `high`
            return np.asarray(np.clip(self.level * (params / self.reference_params) ** self.exponent, self.low, self.high))


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Compute-optimal sizes. Deviations are of ln N* at C0 and of the exponent; `freedom` is that of their Student's t.

    `tokens_exponent` is that of the same points' tokens (D* ~ C^tokens_exponent), for reports; forecasts derive D* from the
    budget and N*. `origin` names the source of N*. `identified` is False if the sizes follow the runs' own tokens per
    parameter, optimal or not.
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
    identified: bool = True

    def params_at(self, flops: float) -> float:
        """Return the compute-optimal parameters for a budget."""
        return float(self.params * (flops / self.reference_flops) ** self.params_exponent)

    def tokens_at(self, flops: float) -> float:
        """Return the compute-optimal tokens for a budget."""
        return self.tokens_for(flops, params=self.params_at(flops))

    def tokens_for(self, flops: float, *, params: float) -> float:
        """Return the tokens that a budget pays for with a model of this size."""
        return float(flops / (self.cost.at(np.array([params]))[0] * params))

    def params_on(self, unique_tokens: float, *, flops: float, law: Law) -> float:
        """Return the compute-optimal parameters for a budget if only so many tokens are unique: N*, or more.

        N* grows by the factor by which the law's own optimum does, and at most until no token is repeated. Where N* is not
        identified, the rule of the runs holds.
        """
        unlimited, epochs = self.params_at(flops), self.tokens_at(flops) / unique_tokens
        if epochs <= 1 or not self.identified:
            return unlimited
        params = unlimited * np.geomspace(1 / _OPTIMUM_OFF, epochs * _OPTIMUM_OFF, _SIZES_TRIED)
        tokens = flops / (self.cost.at(params) * params)
        worth = effective_tokens(tokens, unique_tokens=unique_tokens)
        best, on_unique = (
            float(params[np.argmin(_medians(law, flops=flops * each / tokens, params=params, tokens=each))])
            for each in (tokens, worth)
        )
        return unlimited * min(max(on_unique / best, 1.0), epochs)

    def params_interval(self, flops: float, *, share: float = 0.9) -> tuple[float, float] | None:
        """Return the central interval of N*, None if its uncertainty is unknown."""
        from scipy.special import stdtrit

        if self.freedom < 1:
            return None
        away = math.log(flops / self.reference_flops)
        deviation = math.hypot(self.level_deviation, away * self.exponent_deviation)
        factor = math.exp(min(float(stdtrit(self.freedom, 0.5 + share / 2)) * deviation, 100.0))
        return self.params_at(flops) / factor, self.params_at(flops) * factor


def _medians(law: Law, *, flops: Array, params: Array, tokens: Array) -> Array:
    """Return the law's median log loss, or loss, at each size: (target,)."""
    losses = law.log_losses(params=params, tokens=tokens)
    if losses is None:
        losses = law.draws(Targets(flops=flops, params=params, tokens=tokens), seed=0).losses
    return np.asarray(np.median(losses, axis=0))


def allocation_through(drawn: DrawnPoints, posterior: SurfacePosterior | None = None) -> Allocation:
    """Return the allocation of a table's points; from the posterior if fewer than `LEAST_BOWLS` budgets have closed bowls."""
    frame = drawn.frame
    cost = _cost(*(frame[name].to_numpy(dtype=np.float64) for name in ("flops", "params", "tokens")))
    if not drawn.bowls and follows_one_ratio(frame):
        runs = [frame[name].to_numpy(dtype=np.float64) for name in ("flops", "params", "tokens")]
        along = _by_points(runs, cost, "the tokens per parameter of the runs")
        return replace(along, freedom=0.0, identified=False)
    closed = [point for point in drawn.points if not point.note]
    budgets = len({point.flops for point in closed}) if drawn.bowls else 0
    if posterior is not None and budgets < LEAST_BOWLS:
        return _by_posterior(posterior, cost)
    chosen = closed if budgets >= 2 else list(drawn.points)
    origin = f"the bottoms of {len(chosen)} bowls" if drawn.bowls else "the best runs as they are"
    return _by_points(
        [np.array([getattr(each, name) for each in chosen]) for name in ("flops", "params", "tokens")], cost, origin
    )


_ONE_RATIO = 0.05  # scatter about the trend of tokens per parameter, in decades, below which runs show nothing off it


def follows_one_ratio(frame: pd.DataFrame) -> bool:
    """Return True if tokens per parameter follow one trend with compute, so that no run shows the loss off it."""
    x, y = np.log10(frame["flops"].to_numpy()), np.log10(frame["tokens"].to_numpy() / frame["params"].to_numpy())
    return bool(np.std(y - np.polyval(np.polyfit(x - x.mean(), y, 1), x - x.mean())) < _ONE_RATIO)


def allocation_of_best_runs(drawn: DrawnPoints, *, source: str) -> Allocation:
    """Return compute-optimal sizes for a law without its own; `FitRefused` if the best runs follow no rule."""
    if len({point.flops for point in drawn.points}) < 2:
        refuse(
            f"{source}: no run has a lower loss than the cheapest, so there is no compute-optimal size to read off.",
            why="Without a decrease of loss with compute, no larger run can be forecast.",
            fix="Check the column that was read as the loss: --column loss=NAME",
        )
    allocation = allocation_through(drawn)
    if not _LEAST_GROWTH <= allocation.params_exponent <= _LARGEST_GROWTH:
        refuse(
            f"{source}: by its best runs the compute-optimal size would grow as C^{allocation.params_exponent:.3g}.",
            why="The size of the run to forecast would be arbitrary.",
            fix="Add sizes at each budget, or fit the default law, which takes any table.",
        )
    return allocation


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
    """Return the optimum of every drawn law at the largest budget, where C = k N D."""
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
