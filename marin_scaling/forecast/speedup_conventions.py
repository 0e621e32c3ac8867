"""Conventions of speedups: measured losses, own laws, a pinned law; draws and verdicts."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import FitRefused, RunTableError
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.frontier import SEED_NOISE, FrontierLaws, FrontierOfBudgets, fit_frontiers, resample
from marin_scaling.fitting.optima import Bowl, BowlShape, fit_bowl, has_bowl, noise_variance
from marin_scaling.laws import Array, FrontierLaw, frontier_loss
from marin_scaling.run.cells import cells_of
from marin_scaling.run.table import BUDGET_SPAN, RunTable
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class MeasuredLoss:
    """Loss of a table at one budget or size.

    `leverage` is its variance in units of one run's; `squares` and their `freedom` give the scatter of runs there.
    `flops_per_second` are model FLOPs, `mfu` is a share, and `head_share` the output head's FLOPs over `flops`: None without a
    column `tokens_per_second`, `mfu` and `lm_head_flops`. `note` is a warning, or empty.
    """

    flops: float
    params: float
    loss: float
    leverage: float
    squares: float
    freedom: int
    flops_per_second: float | None
    mfu: float | None
    head_share: float | None
    note: str


def measure(frame: pd.DataFrame) -> list[MeasuredLoss]:
    """Return the loss at each budget, cheapest first: minimum of the bowl, else the best size, with seeds averaged.

    >>> import pandas as pd
    >>> run = {"flops": 6e18, "params": 1e9, "tokens": 1e9, "budget_flops": 6e18}
    >>> seeds = pd.DataFrame([run | {"seed": "0", "loss": 3.1}, run | {"seed": "1", "loss": 3.3}])
    >>> [(point.loss, point.leverage, point.freedom) for point in measure(seeds)]
    [(3.2, 0.5, 1)]
    """
    if "mfu" in frame and frame["mfu"].max() > 1:
        if (least := float(frame["mfu"].min())) <= 1:
            raise RunTableError(
                f"MFU of {least:g} and {frame['mfu'].max():g} in one table: a share or percent?",
                fix="Write all as shares or all in percent.",
            )
        frame = frame.assign(mfu=frame["mfu"] / 100)
    return [_measure_budget(runs) for _, runs in frame.groupby("budget_flops")]


def partner(point: MeasuredLoss, others: Sequence[MeasuredLoss]) -> MeasuredLoss | None:
    """Return the other table's nearest budget, None if it is too far away to be the same."""
    nearest = min(others, key=lambda other: abs(math.log(other.flops / point.flops)))
    return nearest if abs(math.log(nearest.flops / point.flops)) <= math.log(BUDGET_SPAN) else None


def _measure_budget(runs: pd.DataFrame) -> MeasuredLoss:
    flops, params, tokens, loss = (runs[name].to_numpy(dtype=np.float64) for name in ("flops", "params", "tokens", "loss"))
    cells = [_measure_cell(cell) for _, cell in runs.groupby(cells_of(runs))]
    best = min(cells, key=lambda cell: cell.loss)
    if not has_bowl(runs):
        return replace(best, squares=sum(each.squares for each in cells), freedom=sum(each.freedom for each in cells))
    bowl = fit_bowl(flops, params=params, tokens=tokens, loss=loss)
    bottom = _bottom(bowl, cells) if bowl.shape is BowlShape.CLOSED else best
    squares = bowl.residual_sum_of_squares if bowl.degrees_of_freedom else 0.0
    return replace(bottom, squares=squares, freedom=bowl.degrees_of_freedom, note=bowl.shape.value)


def _bottom(bowl: Bowl, cells: Sequence[MeasuredLoss]) -> MeasuredLoss:
    """Return the optimum, with the throughput of the nearest size."""
    nearest = min(cells, key=lambda cell: abs(math.log(cell.params / bowl.optimal_params)))
    return replace(nearest, flops=bowl.flops, params=bowl.optimal_params, loss=bowl.optimal_loss, leverage=bowl.leverage)


def _measure_cell(cell: pd.DataFrame) -> MeasuredLoss:
    loss, count = cell["loss"].to_numpy(dtype=np.float64), len(cell)
    seeds = "seed" in cell and cell["seed"].nunique() == count
    alike = f"{count} runs of one size without a column `seed` to distinguish them: the lowest loss was used"
    return MeasuredLoss(
        flops=float(np.exp(np.log(cell["flops"].to_numpy(dtype=np.float64)).mean())),
        params=float(cell["params"].iloc[0]),
        loss=float(loss.mean() if seeds else loss.min()),
        leverage=1 / count if seeds else 1.0,
        squares=float(np.sum((loss - loss.mean()) ** 2)) if seeds else 0.0,
        freedom=count - 1 if seeds else 0,
        flops_per_second=_mean_of(cell, "tokens_per_second", times=cell["flops"] / cell["tokens"]),
        mfu=_mean_of(cell, "mfu", times=1.0),
        head_share=_mean_of(cell, "lm_head_flops", times=1 / cell["flops"]),
        note=alike if count > 1 and not seeds else "",
    )


def _mean_of(cell: pd.DataFrame, column: str, *, times: pd.Series[float] | float) -> float | None:
    if column not in cell:
        return None
    values = (cell[column] * times).dropna()
    return float(values.mean()) if len(values) else None


SPEEDS = {"flops_per_second": "tokens_per_second", "mfu": "mfu"}
"""Measures of speed in `MeasuredLoss`, the preferred one first, with the column of each."""


DRAWS = 10_000
"""Number of draws; each end of a 90 % interval then depends on 500 of them."""

FARTHEST_FACTOR = 1e100
"""Largest factor; exponents near 0 lead to overflow."""

ENOUGH_FREEDOM = 4
"""Degrees of freedom below which a table's noise is pooled with that of the other table."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The variant's budgets, the baseline's law at each, and draws of the logarithm of the speedup: (draw,) each."""

    law_fit: FitResult | None
    points: Sequence[MeasuredLoss]
    laws: Sequence[FrontierLaw]
    draws: Sequence[Array]
    noise: str
    warnings: tuple[str, ...]


def needed_flops(law: FrontierLaw, *, loss: float) -> float | None:
    """Return the FLOPs with which a law reaches a loss; None if it never does, or beyond `FARTHEST_FACTOR` times C0.

    >>> law = FrontierLaw(E=1.6, A=3.8104 - 1.6, gamma=0.0941, reference_flops=1.0)  # issue 5596 at width 512
    >>> round(needed_flops(law, loss=3.7542), 2), needed_flops(law, loss=1.6)
    (1.31, None)
    """
    if loss <= law.E or law.A <= 0:
        return None
    log_factor = math.log(law.A / (loss - law.E)) / law.gamma
    farthest = math.log(FARTHEST_FACTOR)
    return law.reference_flops * math.exp(max(log_factor, -farthest)) if log_factor <= farthest else None


def log_speedups(laws: FrontierLaws, losses: Array, *, flops: float) -> Array:
    """Return the logarithm of the FLOPs that each law needs for its loss, over `flops`: (draw,). Infinite if unreachable."""
    excess = np.maximum(losses - laws.E, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (np.log(laws.A) - np.log(excess)) / laws.gamma
    return np.asarray(np.where(excess == 0, np.inf, logs) + math.log(laws.reference_flops / flops))


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Variance of a loss with its degrees of freedom, and its origin."""

    variance: float
    freedom: int
    seen_in: str

    def draw(self, generator: np.random.Generator, *, leverage: float = 1.0) -> Array:
        """Return deviates of a loss whose variance is `leverage` times this one: (draw,)."""
        return np.asarray(math.sqrt(leverage * self.variance) * generator.standard_t(self.freedom, DRAWS))

    def sentence(self, whose: str, *, loss: float) -> str:
        """Describe the scatter as a share of `loss`."""
        plural = "" if self.freedom == 1 else "s"
        share = math.sqrt(self.variance) / loss
        return f"{whose} scatters by {share:.2%} of the loss ({self.freedom} degree{plural} of freedom: {self.seen_in})"


def pooled(points: Sequence[MeasuredLoss], others: Sequence[MeasuredLoss]) -> Scatter | None:
    """Return the scatter of one run about bowls and among seeds; None if neither table has a bowl of four runs, or seeds."""
    used, seen_in = [*points], "its bowls and seeds"
    if sum(point.freedom for point in used) < ENOUGH_FREEDOM:
        used, seen_in = [*points, *others], "bowls and seeds of both tables"
    freedom = sum(point.freedom for point in used)
    if not freedom:
        return None
    seen = sum(point.squares for point in used) / freedom
    return Scatter(variance=max(seen, seed_variance(points)), freedom=freedom, seen_in=seen_in)


def seed_variance(points: Sequence[MeasuredLoss]) -> float:
    """Return the variance of one run among seeds in other ladders, at the lowest of these losses."""
    return (SEED_NOISE * min(point.loss for point in points)) ** 2


def by_own_law(
    result: FitResult, points: Sequence[MeasuredLoss], within: Scatter | None, generator: np.random.Generator, *, seed: int
) -> Compared:
    """Compare each budget of the variant with one law; the variant's optima are assumed to scatter like the baseline's."""
    law = _frontier_of(result)
    laws = resample(law, seed=seed, count=DRAWS).laws
    of_run, of_budget = _variant_scatter(result, within)
    draws = []
    for point in points:
        losses = np.full(DRAWS, point.loss)
        losses += of_run.draw(generator, leverage=point.leverage) if of_run else 0.0
        losses += of_budget.draw(generator) if of_budget else 0.0
        draws.append(log_speedups(laws, losses, flops=point.flops))
    scatters = [("a run of the variant", of_run), ("its budget, beyond that,", of_budget)]
    return Compared(
        law_fit=result,
        points=points,
        laws=[law.frontier] * len(points),
        draws=draws,
        noise="; ".join(each.sentence(whose, loss=points[-1].loss) for whose, each in scatters if each),
        warnings=tuple(f"{result.source}: {each}" for each in result.warnings),
    )


def _frontier_of(result: FitResult) -> FrontierOfBudgets:
    assert isinstance(result.law, FrontierOfBudgets)  # guaranteed by `fit_baseline`
    return result.law


def _variant_scatter(result: FitResult, within: Scatter | None) -> tuple[Scatter | None, Scatter | None]:
    """Return the scatter of one run, and of a budget beyond that; a law through best runs has a single scatter of both."""
    noise = _frontier_of(result).noise
    about = "the baseline about its law"
    runs = Scatter(variance=noise.run_variance, freedom=noise.run_freedom, seen_in=about)
    if not result.bowls:
        return within, runs
    if not noise.budget_variance:
        return within or runs, None
    return within or runs, Scatter(variance=noise.budget_variance, freedom=noise.budget_freedom, seen_in=about)


def fit_baseline(table: RunTable) -> FitResult:
    """Fit the baseline's own frontier law; `FitRefused`, with an alternative, if it has none."""
    try:
        result = fit(table, law="isoflop-frontier")
        if not result.bowls:
            result = fit(replace(table, frame=_means_of_seeds(table.frame)), law="isoflop-frontier")
    except FitRefused as error:
        _refuse_baseline(error.what, why=error.why)
    if not result.status.may_be_used:
        _refuse_baseline(f"{table.source}: {result.status.value}", why="A speedup needs the compute of a loss.")
    return result


def _refuse_baseline(what: str, *, why: str) -> NoReturn:
    raise FitRefused(
        what,
        why=why,
        fix="Give the baseline runs at four or more budgets, or compare budget by budget with a pinned law: --convention marin",
    )


def _means_of_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Merge runs of one size and budget that differ only in their seed to a row with the mean loss."""
    if "seed" not in frame:
        return frame
    by_cell = frame.assign(cell=cells_of(frame)).groupby(["budget_flops", "cell"])
    seeds = by_cell["seed"].transform("nunique") == by_cell["seed"].transform("size")
    means = frame.assign(loss=frame["loss"].where(~seeds, by_cell["loss"].transform("mean")))
    return means[~seeds | (by_cell.cumcount() == 0)].reset_index(drop=True)


LAW_DRAWS = 4_000
"""Number of drawn laws of a recipe in a chain; each end of a 90 % interval then depends on 200 of them."""


def drawn_laws(laws: Sequence[FrontierOfBudgets], *, seed: int) -> list[FrontierLaws]:
    """Refit each law to its budgets with noise and lack of fit added: `LAW_DRAWS` laws of each.

    Each budget's deviates depend on its FLOPs and loss only, so that tables that share budgets have common draws of these. A
    draw's lack of fit is the same share of the loss for all laws, since a single ladder has too few budgets to show it.
    """
    measured = [_Spread.of(law) for law in laws]
    ratios = _drawn_ratios([each for each in measured if each.can_lack_fit], seed=seed)
    return [_redrawn(law, each, ratios, seed=seed) for law, each in zip(laws, measured, strict=True)]


def _redrawn(law: FrontierOfBudgets, spread: _Spread, ratios: Array, *, seed: int) -> FrontierLaws:
    flops, loss, leverage = (law.drawn.column(name) for name in ("flops", "loss", "leverage"))
    deviates = np.stack([generator_of(seed, each).standard_normal(LAW_DRAWS) for each in zip(flops, loss, strict=True)], axis=1)
    of_run, of_budget = spread.drawn_variances(ratios, generator_of(seed, (*flops, *loss)))
    losses = loss + np.sqrt(of_run[:, None] * leverage + of_budget[:, None]) * deviates
    return fit_frontiers(flops, losses=losses, weights=np.ones_like(losses))


def generator_of(seed: int, numbers: Collection[float]) -> np.random.Generator:
    """Return the generator of these numbers, and of no others."""
    digest = sha256_hex(np.asarray(numbers, dtype="<f8").tobytes())
    return np.random.default_rng([seed, int(digest[:16], 16)])


_LACK_OF_FIT = 0.5 * np.tan(np.pi / 2 * (np.arange(200) + 0.5) / 200)
"""Quantiles of the half-Cauchy prior of lack of fit, as multiples of the usual noise of a budget's optimum in the chain. The
scale is the largest that keeps the width of chains without lack of fit, on other simulated chains than the benchmark's."""


@dataclass(frozen=True, kw_only=True)
class _Spread:
    """Sums of squares of a ladder with their degrees of freedom: of runs about bowls, and of budgets about the law.

    Those of budgets are in units of a run's variance: divided by `leverage`, the mean of the budgets. `loss` is the lowest.
    """

    law: FrontierOfBudgets
    within: float
    within_freedom: int
    between: float
    leverage: float
    loss: float

    @classmethod
    def of(cls, law: FrontierOfBudgets) -> _Spread:
        """Measure the spread of a law's runs and budgets."""
        flops, loss, leverage = (law.drawn.column(name) for name in ("flops", "loss", "leverage"))
        seen, freedom = noise_variance(list(law.drawn.bowls))
        return cls(
            law=law,
            within=seen * freedom,
            within_freedom=freedom,
            between=float(np.sum((loss - frontier_loss(law.frontier, flops=flops)) ** 2)) / float(leverage.mean()),
            leverage=float(leverage.mean()),
            loss=float(loss.min()),
        )

    @property
    def can_lack_fit(self) -> bool:
        """True with bowls of four runs; without, the scatter about the law is that of runs, with lack of fit in it."""
        return bool(self.within_freedom and self.law.noise.budget_freedom)

    @property
    def least_variance(self) -> float:
        """Variance of a run among seeds."""
        return (SEED_NOISE * self.loss) ** 2

    @property
    def log_noise(self) -> float:
        """Logarithm of the standard deviation of a budget's optimum, as a share of the loss."""
        variance = max(self.within / self.within_freedom, self.least_variance)
        return 0.5 * math.log(variance * self.leverage) - math.log(self.loss)

    def squares(self, ratios: Array) -> tuple[Array, Array]:
        """Return the sum of all squares in units of a run's variance, and the inflation of those of budgets: (ratio,)."""
        inflation = 1 + ratios**2
        return self.within + self.between / inflation, inflation

    def drawn_variances(self, ratios: Array, generator: np.random.Generator) -> tuple[Array, Array]:
        """Draw the variances of a run and of lack of fit, given draws of `_drawn_ratios`: (draw,) each.

        The variance of runs has Jeffreys's prior, with the limit that seeds set.
        """
        noise = self.law.noise
        if not self.can_lack_fit:
            chi = generator.chisquare(noise.run_freedom, LAW_DRAWS)
            return noise.run_variance * noise.run_freedom / chi, np.zeros(LAW_DRAWS)
        own = ratios * math.exp(-self.log_noise)
        chi = generator.chisquare(self.within_freedom + noise.budget_freedom, LAW_DRAWS)
        of_run = np.maximum(self.squares(own)[0] / chi, self.least_variance)
        return of_run, of_run * self.leverage * own**2


def _drawn_ratios(ladders: Sequence[_Spread], *, seed: int) -> Array:
    """Draw the lack of fit of a chain, as a share of the loss, from its posterior by all ladders: (draw,).

    A ladder that occurs twice counts once.
    """
    different = {(each.within, each.between): each for each in ladders}
    if not different:
        return np.zeros(LAW_DRAWS)
    usual = math.exp(float(np.mean([each.log_noise for each in different.values()])))
    log_weight = np.zeros(len(_LACK_OF_FIT))
    for each in different.values():
        squares, inflation = each.squares(_LACK_OF_FIT * usual * math.exp(-each.log_noise))
        budgets = each.law.noise.budget_freedom
        log_weight -= 0.5 * (budgets * np.log(inflation) + (each.within_freedom + budgets) * np.log(squares))
    weight = np.exp(log_weight - log_weight.max())
    generator = generator_of(seed, sorted(number for pair in different for number in pair))
    return np.asarray(usual * _LACK_OF_FIT[generator.choice(len(weight), size=LAW_DRAWS, p=weight / weight.sum())])


MARIN_E, MARIN_ALPHA = 1.6, 0.0941
"""Constants pinned by Marin's gate for its mixture-of-experts recipes (issue 5596), in nats per token of Paloma macro loss."""

MARIN_METRIC = "paloma_macro_loss_nats"

SEED_FREEDOM = 4
"""Degrees of freedom of `SEED_NOISE`, from two groups of three seeds."""


def by_pinned_law(ours: Sequence[MeasuredLoss], theirs: Sequence[MeasuredLoss], generator: np.random.Generator) -> Compared:
    """Compare each common budget of both tables with a law of Marin's exponents through the baseline's loss there."""
    pairs = [(mine, point) for point in theirs if (mine := partner(point, ours)) is not None]
    _require_pairs(pairs)
    baseline_scatter, variant_scatter = (
        pooled(first, other) or Scatter(variance=seed_variance(first), freedom=SEED_FREEDOM, seen_in="seeds of Delphi's runs")
        for first, other in ((ours, theirs), (theirs, ours))
    )
    draws = []
    for mine, point in pairs:
        losses = mine.loss + baseline_scatter.draw(generator, leverage=mine.leverage)
        variant_losses = point.loss + variant_scatter.draw(generator, leverage=point.leverage)
        draws.append(log_speedups(_pinned_laws(losses, flops=mine.flops), variant_losses, flops=point.flops))
    scatters = (("a run of the baseline", baseline_scatter), ("one of the variant", variant_scatter))
    return Compared(
        law_fit=None,
        points=[point for _, point in pairs],
        laws=[
            FrontierLaw(E=MARIN_E, A=mine.loss - MARIN_E, gamma=MARIN_ALPHA, reference_flops=mine.flops) for mine, _ in pairs
        ],
        draws=draws,
        noise="; ".join(scatter.sentence(whose, loss=pairs[-1][1].loss) for whose, scatter in scatters),
        warnings=(*_alone("baseline", ours, theirs), *_alone("variant", theirs, ours)),
    )


def _pinned_laws(losses: Array, *, flops: float) -> FrontierLaws:
    whole = np.ones_like(losses)
    return FrontierLaws(
        E=MARIN_E * whole, A=np.maximum(losses - MARIN_E, 0.0), gamma=MARIN_ALPHA * whole, reference_flops=flops
    )


def _alone(whose: str, points: Sequence[MeasuredLoss], others: Sequence[MeasuredLoss]) -> tuple[str, ...]:
    alone = [format_flops(point.flops) for point in points if partner(point, others) is None]
    return (f"not compared, because only the {whose} has runs there: {', '.join(alone)} FLOPs",) if alone else ()


def _require_pairs(pairs: Sequence[tuple[MeasuredLoss, MeasuredLoss]]) -> None:
    if not pairs:
        raise FitRefused(
            "No budget of the variant is within 25 % of one of the baseline's.",
            why="A pinned law goes through the baseline's loss at the same budget.",
            fix="Train both at the same FLOPs, or compare by the baseline's own law: --convention own",
        )
    low = min(mine.loss for mine, _ in pairs)
    if low <= MARIN_E:
        raise FitRefused(
            f"The baseline's loss of {low:g} is not above the pinned asymptote of {MARIN_E}.",
            why="A power law never reaches its asymptote.",
            fix="Compare by the baseline's own law: --convention own",
        )


INTERVAL = 0.9

LARGEST_SPEEDUP = 1e6
"""Largest reported speedup; no recipes in use are so far apart."""


class Verdict(Enum):
    """Verdict of an interval on a variant."""

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Speedup over the baseline, with a 90 % interval.

    `value`, or the interval's upper end, is None if above `LARGEST_SPEEDUP`: the baseline's law reaches such a loss with
    unavailable compute, or never. `p_value` is two-sided, for no difference. `verdict` is a tie if the interval holds 1;
    `verdict_after_holm` corrects it for all budgets of a comparison.
    """

    value: float | None
    interval: tuple[float, float | None]
    p_value: float
    verdict: Verdict
    verdict_after_holm: Verdict


def speedups(logs: Sequence[float], draws: Sequence[Array]) -> list[Speedup]:
    """Return a family of comparisons with Holm's correction."""
    p_values = [_p_value(each) for each in draws]
    return [
        _speedup(value, each, p_value=p_value, adjusted=adjusted)
        for value, each, p_value, adjusted in zip(logs, draws, p_values, holm(p_values), strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for comparison with a common level (Holm 1979), valid under any dependence between them.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(each) for each in adjusted]


def _speedup(log_value: float, draws: Array, *, p_value: float, adjusted: float) -> Speedup:
    low, high = _ends(draws)
    verdict = Verdict.FASTER if low > 0 else Verdict.SLOWER if high < 0 else Verdict.TIE
    return Speedup(
        value=_unless_endless(log_value),
        interval=(min(math.exp(min(low, 700.0)), LARGEST_SPEEDUP), _unless_endless(high)),
        p_value=p_value,
        verdict=verdict,
        verdict_after_holm=verdict if adjusted <= 1 - INTERVAL else Verdict.TIE,
    )


def _ends(draws: Array) -> tuple[float, float]:
    """Return the interval of draws that may be infinite, by order statistics, since `np.quantile` gives NaN for infinities."""
    tail, ordered = round(len(draws) * (1 - INTERVAL) / 2), np.sort(draws)
    return float(ordered[tail - 1]), float(ordered[-tail])


def _unless_endless(log_value: float) -> float | None:
    return math.exp(log_value) if log_value <= math.log(LARGEST_SPEEDUP) else None


def _p_value(draws: Array) -> float:
    """Return twice the share of draws on the rarer side of no difference, but never zero."""
    rarer = min(int(np.sum(draws <= 0)), int(np.sum(draws >= 0)))
    return min(1.0, 2 * (rarer + 1) / (len(draws) + 1))
