"""Best loss at each budget of a table (minima of bowls, or the runs that no cheaper run beats), and compute-optimal sizes.

A bowl is a parabola of the loss in the logarithm of the tokens, at one budget.

N* = params (C / C0)^params_exponent goes through the minima of bowls if at least three budgets have closed ones ("approach 2"
of Hoffmann et al. 2022), otherwise it comes from the coupled law. Runs whose sizes and tokens lie on one curve do not
identify N*: N then follows that curve. D* is C / (k N*). The FLOPs per parameter and token, k, are
read off the runs: near 6, but different for small models (share of the output head) and long sequences (attention).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.law import Law, Targets, refuse
from marin_scaling.fitting.posterior import SurfacePosterior
from marin_scaling.laws import Array, effective_tokens
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.table import BUDGET_SPAN
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd


QUADRATIC_UNKNOWNS = 3


class BowlShape(Enum):
    """Position of a bowl's minimum; the value describes it to the reader."""

    CLOSED = ""
    EDGE = "the bowl's bottom lies outside its runs: lowest run taken; add sizes on that side"
    OPEN = "the runs show no bowl: lowest run taken; add sizes"


@dataclass(frozen=True, kw_only=True)
class Bowl:
    """The parabola of one budget and its optimum.

    `a`, `b`, `c` are the published coefficients in x = log10(tokens). `leverage` is the variance of `optimal_loss` in units of
    one run's variance. For a bowl that is not closed, the optimum is the lowest run (leverage 1).
    """

    flops: float
    a: float
    b: float
    c: float
    optimal_tokens: float
    optimal_params: float
    optimal_loss: float
    lowest_loss: float
    leverage: float
    run_count: int
    residual_sum_of_squares: float
    shape: BowlShape

    @property
    def degrees_of_freedom(self) -> int:
        """Number of runs beyond the parabola's unknowns."""
        return self.run_count - QUADRATIC_UNKNOWNS

    def loss_at(self, tokens: Array) -> Array:
        """Return the parabola's loss at numbers of tokens."""
        x = np.log10(tokens)
        return np.asarray(self.a * x**2 + self.b * x + self.c)


def fit_bowl(flops: Array, *, params: Array, tokens: Array, loss: Array) -> Bowl:
    """Fit the runs of one budget; each array has one entry per run, with at least three different numbers of tokens.

    >>> tokens = 10.0 ** np.array([9.0, 9.5, 10.0, 10.5])
    >>> budget = np.full(4, 6e19)
    >>> bowl = fit_bowl(budget, params=budget / 6 / tokens, tokens=tokens, loss=3 + 0.5 * (np.log10(tokens) - 9.7) ** 2)
    >>> f"{bowl.optimal_loss:.6f} {bowl.optimal_tokens:.4g} {bowl.optimal_params:.4g}"
    '3.000000 5.012e+09 1.995e+09'
    """
    centre = np.log10(tokens).mean()
    x = np.log10(tokens) - centre
    design = np.stack([x**2, x, np.ones_like(x)], axis=1)  # (run, coefficient)
    scaled, triangle = np.linalg.qr(design)
    a, slope, level = np.linalg.solve(triangle, scaled.T @ loss)
    residuals = loss - design @ np.array([a, slope, level])
    shape = _shape(a, slope, x)
    vertex = -slope / (2 * a) if shape is BowlShape.CLOSED else x[np.argmin(loss)]
    at_vertex = np.array([vertex**2, vertex, 1.0])  # d L* / d (a, b, c); the vertex's own shift cancels to first order
    closed = shape is BowlShape.CLOSED
    return Bowl(
        flops=float(np.exp(np.log(flops).mean())),
        a=float(a),
        b=float(slope - 2 * a * centre),
        c=float(level - slope * centre + a * centre**2),
        optimal_tokens=float(10 ** (vertex + centre)),
        optimal_params=float(10 ** _line_through(x, np.log10(params), at=vertex)) if closed else float(params[np.argmin(loss)]),
        optimal_loss=float(at_vertex @ np.array([a, slope, level])) if closed else float(loss.min()),
        lowest_loss=float(loss.min()),
        leverage=float(np.sum(np.linalg.solve(triangle.T, at_vertex) ** 2)) if closed else 1.0,
        run_count=len(loss),
        residual_sum_of_squares=float(residuals @ residuals),
        shape=shape,
    )


def noise_variance(bowls: list[Bowl]) -> tuple[float, int]:
    """Return the pooled variance of one run about its bowl, and its degrees of freedom; (0.0, 0) without freedom."""
    freedom = sum(bowl.degrees_of_freedom for bowl in bowls)
    squares = sum(bowl.residual_sum_of_squares for bowl in bowls if bowl.degrees_of_freedom)
    return (squares / freedom, freedom) if freedom else (0.0, 0)


def _shape(a: float, slope: float, x: Array) -> BowlShape:
    rise_over_range = a * np.ptp(x) ** 2
    if rise_over_range <= 0:
        return BowlShape.OPEN
    return BowlShape.CLOSED if x.min() <= -slope / (2 * a) <= x.max() else BowlShape.EDGE


def _line_through(x: Array, y: Array, *, at: float) -> float:
    x_mean, y_mean = x.mean(), y.mean()
    return float(y_mean + (at - x_mean) * ((x - x_mean) @ (y - y_mean)) / ((x - x_mean) @ (x - x_mean)))


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """Best loss at one budget, as the law uses it. `leverage` is its variance in units of one run's variance."""

    flops: float
    params: float
    tokens: float
    loss: float
    leverage: float
    run_count: int
    note: str


def size_column(frame: pd.DataFrame) -> Array:
    """Return active parameters if the table has them, else parameters: (run,)."""
    return frame["active_params" if "active_params" in frame else "params"].to_numpy(dtype=np.float64)


_SIZES = ("params", "tokens", "loss")


@dataclass(frozen=True, kw_only=True)
class DrawnPoints:
    """Points for the frontier, their bowls, the runs used, and the runs excluded."""

    points: tuple[FrontierPoint, ...]
    bowls: tuple[Bowl, ...]
    frame: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    warnings: tuple[str, ...] = ()

    def column(self, name: str) -> Array:
        """Return one attribute of every point: (point,)."""
        return np.array([getattr(point, name) for point in self.points], dtype=np.float64)


def has_bowl(runs: pd.DataFrame) -> bool:
    """Return True if the runs of one budget can have a bowl: at least three sizes at one cost."""
    sizes = np.unique(np.round(np.log10(runs["tokens"].to_numpy()), 3))  # within 0.2 % is the same size
    return len(sizes) >= QUADRATIC_UNKNOWNS and bool(runs["flops"].max() <= BUDGET_SPAN * runs["flops"].min())


def through_bowls(frame: pd.DataFrame) -> DrawnPoints:
    """Return a point for each budget with a bowl; the runs of other budgets are excluded, with the reason."""
    bowls, used, excluded = [], [], []
    for budget, runs in frame.groupby("budget_flops"):
        if has_bowl(runs):
            bowls.append(fit_bowl(*_arrays(runs, "flops"), **dict(zip(_SIZES, _arrays(runs, *_SIZES), strict=True))))
            used.append(runs.index)
        else:
            why = f"its budget of {format_flops(float(budget))} FLOPs has runs of fewer than three sizes"  # type: ignore[arg-type]
            excluded += [Exclusion(run=str(run), why=why) for run in runs["run"]]
    points = tuple(_point_of(bowl) for bowl in bowls)
    kept = frame.loc[sorted(np.concatenate(used))] if used else frame.iloc[:0]
    return DrawnPoints(points=points, bowls=tuple(bowls), frame=kept, excluded=tuple(excluded), warnings=_bowl_warnings(bowls))


def _arrays(runs: pd.DataFrame, *names: str) -> list[Array]:
    return [runs[name].to_numpy(dtype=np.float64) for name in names]


def _point_of(bowl: Bowl) -> FrontierPoint:
    return FrontierPoint(
        flops=bowl.flops,
        params=bowl.optimal_params,
        tokens=bowl.optimal_tokens,
        loss=bowl.optimal_loss,
        leverage=bowl.leverage,
        run_count=bowl.run_count,
        note=bowl.shape.value,
    )


_DEEPEST = 0.01
"""Share of the loss by which a bottom may lie below its runs: at most 0.6 % in 56 of 57 public bowls, and 4.2 % in one with
runs far up its walls."""


def _bowl_warnings(bowls: list[Bowl]) -> tuple[str, ...]:
    found = [(bowl, bowl.shape.value) for bowl in bowls if bowl.shape is not BowlShape.CLOSED]
    for bowl in bowls:
        if (depth := bowl.lowest_loss / bowl.optimal_loss - 1) > _DEEPEST:
            told = f"the bowl's bottom, {bowl.optimal_loss:.5g}, is {depth:.1%} below its lowest run, {bowl.lowest_loss:.5g}"
            found.append((bowl, f"{told}: a parabola does not follow these runs (--drop those far up its walls)"))
    return tuple(f"at {format_flops(bowl.flops)} FLOPs {said}" for bowl, said in found)


def through_best_runs(frame: pd.DataFrame) -> DrawnPoints:
    """Return the runs with a lower loss than every run that costs no more; the others bound the law only from above."""
    ordered = frame.sort_values(["flops", "loss"], kind="stable")
    loss = ordered["loss"].to_numpy()
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(loss)[:-1]])
    best = ordered[loss < best_before]
    points = tuple(
        FrontierPoint(flops=flops, params=params, tokens=tokens, loss=value, leverage=1.0, run_count=1, note="")
        for flops, params, tokens, value in best[["flops", *_SIZES]].itertuples(index=False, name=None)
    )
    note = f"the law goes through {len(best)} of {len(frame)} runs; a run that costs no more beats each of the others"
    return DrawnPoints(points=points, bowls=(), frame=frame, excluded=(), warnings=(note,) if len(best) < len(frame) else ())


def all_runs_drawn(frame: pd.DataFrame) -> DrawnPoints:
    """Return points of bowls if most budgets have one, else the best runs; no run is excluded, for laws that use all."""
    budgets = frame.groupby("budget_flops")
    if 2 * sum(has_bowl(runs) for _, runs in budgets) <= budgets.ngroups:
        drawn = through_best_runs(frame)
        return DrawnPoints(points=drawn.points, bowls=(), frame=frame, excluded=())
    drawn = through_bowls(frame)
    return DrawnPoints(points=drawn.points, bowls=drawn.bowls, frame=frame, excluded=(), warnings=drawn.warnings)


def loss_rises(drawn: DrawnPoints) -> bool:
    """Return True if the best loss does not fall with compute over all runs."""
    frame = drawn.frame
    best = frame.groupby("budget_flops")[["flops", "loss"]].min() if drawn.bowls else frame[["flops", "loss"]]
    return bool(np.polyfit(np.log(best["flops"] / best["flops"].mean()), best["loss"], 1)[0] >= 0)


CUBIC_UNKNOWNS = 4


class SkewedBowlShape(Enum):
    """Status of a cubic's optimum, as a sentence for the reader. Unless `CLOSED`, the lowest run is used instead."""

    CLOSED = "Usable: the cubic has its bottom among the runs, and no other turn there."
    BENT_TWICE = "Not usable: the cubic turns twice among the runs, which no surface does; take the quadratic, or add runs."
    EDGE = "Not usable: the cubic's bottom lies outside the runs; add sizes on that side."
    OPEN = "Not usable: the cubic has no bottom; add sizes."


@dataclass(frozen=True, kw_only=True)
class SkewedBowl:
    """Optimum of one budget; `leverage` is the variance of `optimal_loss` in units of one run's.

    `skew` is the ratio of the third-order to the second-order coefficient there, per decade of tokens: positive for a bowl that
    is steeper towards more tokens (fewer parameters), None without an optimum.
    """

    optimal_tokens: float
    optimal_loss: float
    skew: float | None
    leverage: float
    run_count: int
    residual_sum_of_squares: float
    shape: SkewedBowlShape


def fit_asymmetric_bowl(*, tokens: Array, loss: Array) -> SkewedBowl:
    """Fit a cubic to the runs of one budget by ordinary least squares; arrays are (run,).

    `FitRefused` for fewer than four different numbers of tokens. At constant compute, D* determines N*.

    >>> tokens = 10.0 ** np.array([9.0, 9.4, 9.8, 10.2, 10.6])
    >>> x = np.log10(tokens) - 9.7
    >>> bowl = fit_asymmetric_bowl(tokens=tokens, loss=3 + 0.5 * x**2 + 0.1 * x**3)
    >>> f"{bowl.optimal_loss:.6f} {bowl.optimal_tokens:.4g} {bowl.skew:.3f} {bowl.shape.name}"
    '3.000000 5.012e+09 0.200 CLOSED'
    """
    _require_four(tokens)
    centre = np.log10(tokens).mean()
    x = np.log10(tokens) - centre
    design = np.stack([np.ones_like(x), x, x**2, x**3], axis=1)  # (run, coefficient)
    scaled, triangle = np.linalg.qr(design)
    coefficients = np.linalg.solve(triangle, scaled.T @ loss)
    residuals = loss - design @ coefficients
    shape, bottom = _bottom(coefficients, x)
    closed = shape is SkewedBowlShape.CLOSED
    at = bottom if closed else float(x[np.argmin(loss)])
    row = np.array([1.0, at, at**2, at**3])  # d L* / d coefficients; the minimum's own shift cancels to first order
    return SkewedBowl(
        optimal_tokens=float(10 ** (at + centre)),
        optimal_loss=float(row @ coefficients) if closed else float(loss.min()),
        skew=float(coefficients[3] / (coefficients[2] + 3 * coefficients[3] * at)) if closed else None,
        leverage=float(np.sum(np.linalg.solve(triangle.T, row) ** 2)) if closed else 1.0,
        run_count=len(loss),
        residual_sum_of_squares=float(residuals @ residuals),
        shape=shape,
    )


def _bottom(coefficients: Array, x: Array) -> tuple[SkewedBowlShape, float]:
    """Return the minimum of c1 x + c2 x^2 + c3 x^3, in a form that is exact as c3 goes to zero, and its status."""
    _, c1, c2, c3 = (float(each) for each in coefficients)
    discriminant = c2**2 - 3 * c3 * c1
    steepness = c2 + np.sqrt(max(discriminant, 0.0))
    if discriminant <= 0 or steepness <= 0:
        return SkewedBowlShape.OPEN, np.nan
    bottom = -c1 / steepness
    top = -2 * c2 / (3 * c3) - bottom if c3 else np.inf
    if c2 + 3 * c3 * np.clip(bottom, x.min(), x.max()) <= 0:  # the nearest runs lie on a maximum
        return SkewedBowlShape.OPEN, bottom
    if not x.min() <= bottom <= x.max():
        return SkewedBowlShape.EDGE, bottom
    return (SkewedBowlShape.BENT_TWICE if x.min() < top < x.max() else SkewedBowlShape.CLOSED), bottom


def _require_four(tokens: Array) -> None:
    if (different := len(np.unique(tokens))) < CUBIC_UNKNOWNS:
        raise FitRefused(
            f"{different} different numbers of tokens at one budget.",
            why=f"A cubic has {CUBIC_UNKNOWNS} unknowns.",
            fix="Add sizes, or fit the quadratic, which needs three.",
        )


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
        along = _by_points(runs, cost, "the runs")
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
    """Return True if tokens per parameter follow one trend with compute, so that no run shows the loss off it.

    A tenth of the runs may lie off it: so few, such as one that ended early, do not show where the optimum is.
    """
    x, y = np.log10(frame["flops"].to_numpy()), np.log10(frame["tokens"].to_numpy() / frame["params"].to_numpy())
    off = np.abs(y - np.polyval(np.polyfit(x - x.mean(), y, 1), x - x.mean()))
    near = np.argsort(off, kind="stable")[: len(off) - len(off) // 10]
    x, y = x[near] - x[near].mean(), y[near]
    return bool(np.std(y - np.polyval(np.polyfit(x, y, 1), x)) < _ONE_RATIO)


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
