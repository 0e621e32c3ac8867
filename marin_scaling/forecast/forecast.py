"""Forecast losses at targets: quantiles, half-widths by source of uncertainty, and sensitivity to other choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from marin_scaling.errors import FitRefused, Severity, UsageError
from marin_scaling.fitting.combined_law import sparsity_of
from marin_scaling.fitting.fit import FitResult, fit
from marin_scaling.fitting.frontier import fit_frontier, fit_pinned_frontier
from marin_scaling.fitting.law import DEFAULT_LAW, LossDraws, Targets
from marin_scaling.fitting.optima import fit_asymmetric_bowl, has_bowl, size_column
from marin_scaling.fitting.surface import fit_interaction_surface, fit_surface, fit_tied_surface
from marin_scaling.laws import Array, effective_tokens, frontier_loss, surface_loss
from marin_scaling.printable import joined
from marin_scaling.run.table import RunTable
from marin_scaling.units import format_flops, format_number, unit_of

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (0.01, 0.025, *(n / 20 for n in range(1, 20)), 0.975, 0.99)
"""Quantile levels, the 23 of the COVID-19 and FluSight forecast hubs (Bracher et al. 2021)."""

FARTHEST = 1e12
"""Largest ratio of target to ladder: within it every number stays finite at any exponent that is searched."""

WIDEST = 2.0
"""Largest width of a 90 % interval, relative to the range of the runs' losses. Of 79 splits of public ladders, down to eight
runs 50x below their targets, the widest had 1.7."""

UNCALIBRATED_BAND_NOTES = {
    "form": "not estimated: one law only; another form of law may lie outside this interval",
    "shift": "not estimated: drift of recipe, data or tuning between the ladder and the target is not in this interval",
}
"""Notes on two bands that are None for an uncalibrated law."""
BAND_NOTES = {
    "noise": "the scatter of one run",
    "sampling": "other runs and budgets of the same kind would have given another law",
    "form": "no law of few parameters is exact: smooth discrepancy, the coupling g, half of the distance between two laws",
    "shift": "drift of tuning or kind with distance from the runs, as in back-tests of public ladders (calibration.json), and "
    "the error of a conversion to another schedule",
}
"""Meaning of each component of an interval's half-width."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A run to forecast. `params` are all parameters, `active_params` those that a token passes (equal in dense models).

    `run` is the name in a table of runs to forecast, and `observed` its measured loss, None if unknown.
    `unique_tokens` are those that the run repeats, None if all its tokens are new. `is_optimal` is True for an optimum that
    they limit. `log_error` is the standard deviation of a further error of the log loss.
    """

    flops: float
    params: float
    tokens: float
    active_params: float
    run: str = ""
    observed: float | None = None
    unique_tokens: float | None = None
    is_optimal: bool = False
    log_error: float = 0.0

    @property
    def worth(self) -> float:
        """Effective tokens as a share of the trained ones; 1 for new tokens."""
        return 1.0 if self.unique_tokens is None else _worth(self.tokens, self.unique_tokens)


@dataclass(frozen=True, kw_only=True, repr=False)
class Forecast:
    """Forecast loss of a run of `flops`, with `params` and `tokens`, in `unit` ("" if unknown for the metric).

    `quantiles` (level to loss, 23 of them) include the noise of the run. `bands` are half-widths of 90 % intervals by source of
    uncertainty, None if not estimated; `band_notes` describe them. `extrapolation` is the ratio of `flops` to the largest
    fitted run or budget. `optimal` is True for a compute-optimal size, and `params_interval` is the interval of its active
    parameters. `mis_sizing` is the relative increase of the loss for half or double the parameters at the same compute.
    `by_law` are the medians of the laws that are averaged, and `by_formula` is the formula's value at the law's
    `parameters`, None if unknown. `run` and `observed` are those of the target. `unique_tokens` are those that the run repeats,
    None if all are new.
    """

    flops: float
    params: float
    tokens: float
    active_params: float
    median: float
    quantiles: Mapping[float, float]
    bands: Mapping[str, float | None]
    band_notes: Mapping[str, str]
    extrapolation: float
    optimal: bool
    params_interval: tuple[float, float] | None
    mis_sizing: tuple[float, float] | None
    unit: str = ""
    by_law: Mapping[str, float] = field(default_factory=dict)
    by_formula: float | None = None
    run: str = ""
    observed: float | None = None
    unique_tokens: float | None = None

    @property
    def target(self) -> Target:
        """Sizes and FLOPs of the run."""
        names = ("flops", "params", "tokens", "active_params", "unique_tokens")
        return Target(**{name: getattr(self, name) for name in names})

    @property
    def effective_tokens(self) -> float:
        """Number of new tokens that are worth as much as those of the run."""
        return self.tokens if self.unique_tokens is None else self.tokens * _worth(self.tokens, self.unique_tokens)

    @property
    def tokens_per_param(self) -> float:
        """Ratio of trained tokens to active parameters."""
        return self.tokens / self.active_params

    @property
    def error(self) -> float | None:
        """Relative difference of the median from the observed loss; None if that is unknown."""
        return None if self.observed is None else self.median / self.observed - 1

    @property
    def inside_90(self) -> bool | None:
        """True if the observed loss is in the 90 % interval; None if it is unknown."""
        low, high = self.interval()
        return None if self.observed is None else low <= self.observed <= high

    @property
    def measured(self) -> dict[str, Any]:
        """Return the observed loss with its error and place in the 90 % interval; empty if it is unknown."""
        if self.observed is None:
            return {}
        return {"observed": self.observed, "error": self.error, "inside_90": self.inside_90}

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the central interval of this probability; `UsageError` unless its ends are among the quantiles."""
        ends = [each for each in self.quantiles if math.isclose(2 * abs(each - 0.5), level, abs_tol=1e-9)]
        if len(ends) != 2:  # not a pair
            known = ", ".join(f"{1 - 2 * each:.2g}" for each in self.quantiles if each < 0.5)
            raise UsageError(
                f"No interval of {level!r}: its ends are not among the forecast's {len(self.quantiles)} quantiles.",
                fix=f"Choose one of {known}.",
            )
        return self.quantiles[min(ends)], self.quantiles[max(ends)]

    @property
    def row(self) -> dict[str, Any]:
        """Return one row of a table: sizes, median, 90 % interval, half-widths by source (NaN if not estimated).

        The name of the run, and its observed loss with error and place in the interval, are added where they are known.
        """
        low, high = self.interval()
        bands = {cause: math.nan if half is None else half for cause, half in self.bands.items()}
        sizes = {
            name: getattr(self, name) for name in ("flops", "params", "active_params", "tokens", "extrapolation", "median")
        }
        named = {"run": self.run} if self.run else {}
        return {**named, **sizes, "q05": low, "q95": high, **bands, **self.measured}

    @property
    def frame(self) -> pd.DataFrame:
        """Return `row` as a table of one row."""
        import pandas as pd

        return pd.DataFrame([self.row])

    def __repr__(self) -> str:
        low, high = self.interval()
        unit = f" {self.unit}" if self.unit else ""
        distance = f"{self.extrapolation:.3g}x beyond"
        return f"Forecast({format_number(self.flops)} FLOPs: {self.median:.4f} [{low:.4f}, {high:.4f}]{unit}, {distance})"


def forecast(
    result: FitResult,
    *,
    flops: float,
    params: float | None = None,
    tokens: float | None = None,
    unique_tokens: float | None = None,
    seed: int | None = None,
) -> Forecast:
    """Forecast the loss of a run of `flops`; `seed` is the fit's own unless given.

    The run is compute-optimal unless `params` and `tokens` are given. With `unique_tokens`, it repeats these where it needs
    more, and its optimal size is the best one under this limit. `FitRefused` if the fit has no law to extrapolate, knows
    only compute-optimal runs, or has no useful forecast at `flops`; `UsageError` for an invalid number.

    >>> from marin_scaling.fitting.fit import fit
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> ahead = forecast(fit(table), flops=1e21)
    >>> ahead.interval()[0] < 2.3331 < ahead.interval()[1]  # the law's value there
    True
    """
    target = target_of(result, flops=flops, params=params, tokens=tokens, unique_tokens=unique_tokens)
    return forecast_runs(result, [target], seed=seed)[0]


def target_of(
    result: FitResult, *, flops: float, params: float | None, tokens: float | None, unique_tokens: float | None = None
) -> Target:
    """Return a run of `flops` with this size, or the compute-optimal one; errors as in `forecast`."""
    if params is None and tokens is None:
        _check(result, flops)
        return optimal_target(result, flops, unique_tokens=unique_tokens)
    if params is None or tokens is None:
        raise UsageError("A size needs both params and tokens.", fix="Give both, or neither.")
    return Target(flops=flops, params=params, tokens=tokens, active_params=params, unique_tokens=unique_tokens)


def targets_of(rows: pd.DataFrame) -> list[Target]:
    """Return the rows of a table with `flops`, `params`, `tokens`, `active_params` and perhaps `unique_tokens` as targets."""
    columns = [rows[name].astype(float) for name in ("flops", "params", "tokens", "active_params")]
    unique = rows["unique_tokens"].astype(float) if "unique_tokens" in rows else [None] * len(rows)
    return [
        Target(flops=flops, params=params, tokens=tokens, active_params=active, unique_tokens=each)
        for flops, params, tokens, active, each in zip(*columns, unique, strict=True)
    ]


def optimal_target(result: FitResult, flops: float, *, unique_tokens: float | None = None) -> Target:
    """Return the compute-optimal run of a budget, or one by the runs' own rule if they identify no optimum.

    The run is as sparse as the larger runs of the table. If the budget pays for more than `unique_tokens`, it is the best size
    of a run that repeats them.
    """
    active = _optimal_params(result, flops, unique_tokens)
    total = active * (sparsity_of(result.frame) if result.law.knows_any_size else 1.0)
    tokens = result.allocation.tokens_for(flops, params=active)
    return Target(flops=flops, params=total, tokens=tokens, active_params=active, unique_tokens=unique_tokens, is_optimal=True)


def _optimal_params(result: FitResult, flops: float, unique_tokens: float | None) -> float:
    if unique_tokens is None:
        return result.allocation.params_at(flops)
    _require_number(unique_tokens, "unique tokens")
    if result.allocation.tokens_at(flops) > unique_tokens:
        _require_known_sizes(result, flops, unique_tokens)
    return result.allocation.params_on(unique_tokens, flops=flops, law=result.law)


def _worth(tokens: float, unique_tokens: float) -> float:
    return float(effective_tokens(tokens, unique_tokens=unique_tokens)) / tokens


def forecast_runs(result: FitResult, targets: Sequence[Target], *, seed: int | None = None) -> list[Forecast]:
    """Forecast many runs from one fit, in their order; errors as in `forecast`."""
    for target in targets:
        for name in ("flops", "params", "tokens", "active_params"):
            _require_number(getattr(target, name), name)
        if target.unique_tokens is not None:
            _require_number(target.unique_tokens, "unique tokens")
    for flops in dict.fromkeys(target.flops for target in targets):
        _check(result, flops)
    if not targets:
        return []
    with threadpool_limits(1, "blas"):
        draws = _draws(result, targets, seed=result.seed if seed is None else seed)
    by_formula = result.law.formula_losses(_arrays(targets))
    formulas = [None] * len(targets) if by_formula is None else by_formula.tolist()
    values = np.quantile(draws.losses, LEVELS, axis=0).T  # (target, level)
    widths = {cause: _half_widths(each) for cause, each in draws.causes.items()}  # (target,) each
    bands = [{cause: float(each[column]) for cause, each in widths.items()} for column in range(len(targets))]
    by_law = [{name: float(each[column]) for name, each in draws.by_law.items()} for column in range(len(targets))]
    return [_summary(result, *each) for each in zip(targets, values, bands, by_law, formulas, strict=True)]


def samples(result: FitResult, *, flops: float, unique_tokens: float | None = None, seed: int | None = None) -> Array:
    """Return equally likely losses of a compute-optimal run of `flops`: (draw,)."""
    return samples_of(result, optimal_target(result, flops, unique_tokens=unique_tokens), seed=seed)


def samples_of(result: FitResult, target: Target, *, seed: int | None = None) -> Array:
    """Return equally likely losses of a run: (draw,)."""
    _check(result, target.flops)
    return _draws(result, [target], seed=result.seed if seed is None else seed).losses[:, 0]


def interval_along(result: FitResult, *, flops: Array, levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Array:
    """Return quantiles of a compute-optimal run's loss at many budgets, with the fit's own seed: (level, flops)."""
    draws = _draws(result, [optimal_target(result, float(each)) for each in flops], seed=result.seed)
    return np.asarray(np.quantile(draws.losses, levels, axis=0))


def _draws(result: FitResult, targets: Sequence[Target], *, seed: int) -> LossDraws:
    if not result.law.knows_any_size:
        _require_optimal(result, targets)
    draws, errors = result.law.draws(_arrays(targets), seed=seed), np.array([target.log_error for target in targets])
    if not errors.any():
        return draws
    factors = np.exp(errors * np.random.default_rng([seed, 1]).normal(size=draws.losses.shape))
    moved = np.median(draws.losses, axis=0) * (factors - 1)
    causes = {name: each + moved if name == "shift" else each for name, each in draws.causes.items()}
    return replace(draws, losses=draws.losses * factors, causes=causes)


def _arrays(targets: Sequence[Target]) -> Targets:
    flops, params, tokens, active = (
        np.array([getattr(target, name) for target in targets]) for name in ("flops", "params", "tokens", "active_params")
    )
    worth = np.array([target.worth for target in targets])
    return Targets(flops=flops * worth, params=active, tokens=tokens * worth, total_params=params)


def _summary(
    result: FitResult,
    target: Target,
    values: Array,
    bands: Mapping[str, float],
    by_law: Mapping[str, float],
    by_formula: float | None,
) -> Forecast:
    quantiles = dict(zip(LEVELS, (float(value) for value in values), strict=True))
    _require_positive(quantiles, result, target.flops)
    _require_narrower_than_the_runs(quantiles, result, target)
    unlimited = target.active_params == result.allocation.params_at(target.flops)
    optimal = result.allocation.identified and (unlimited or target.is_optimal)
    return Forecast(
        flops=target.flops,
        params=target.params,
        tokens=target.tokens,
        active_params=target.active_params,
        median=quantiles[0.5],
        quantiles=quantiles,
        bands={cause: bands.get(cause) for cause in ("noise", "sampling", "form", "shift")},
        band_notes=BAND_NOTES if result.law.is_calibrated else UNCALIBRATED_BAND_NOTES,
        extrapolation=target.flops / result.largest_flops,
        optimal=optimal,
        params_interval=result.allocation.params_interval(target.flops) if unlimited else None,
        mis_sizing=_mis_sizing(result, target) if optimal else None,
        unit=unit_of(result.metric),
        by_law=by_law,
        by_formula=by_formula,
        run=target.run,
        observed=target.observed,
        unique_tokens=target.unique_tokens,
    )


def _mis_sizing(result: FitResult, target: Target) -> tuple[float, float] | None:
    """Return the relative increase of the forecast for half, and for double, the parameters at the same compute."""
    if not result.law.knows_any_size:
        return None
    own, half, double = medians(result, [_resized(target, factor) for factor in (1.0, 0.5, 2.0)])
    return float(half / own - 1), float(double / own - 1)


def _resized(target: Target, factor: float) -> Target:
    params, active = factor * target.params, factor * target.active_params
    return replace(target, params=params, active_params=active, tokens=target.tokens / factor)


def medians(result: FitResult, targets: Sequence[Target]) -> Array:
    """Return the median losses of runs, without a check of their distance: (target,)."""
    with threadpool_limits(1, "blas"):
        return np.asarray(np.median(_draws(result, targets, seed=result.seed).losses, axis=0))


def _half_widths(values: Array) -> Array:
    """Return the half-width of the central 90 % of each column (draw, target): (target,)."""
    low, high = np.quantile(values, (0.05, 0.95), axis=0)
    return np.asarray((high - low) / 2)


def _require_positive(quantiles: Mapping[float, float], result: FitResult, flops: float) -> None:
    lowest = quantiles[LEVELS[0]]
    if lowest <= 0:
        raise FitRefused(
            f"{result.source}: no forecast at {format_flops(flops)} FLOPs: its {LEVELS[0]:.0%} quantile would be {lowest:.3g}.",
            why="A loss must be above zero; the runs scatter too much, or fall too little.",
            fix="Forecast nearer to the runs, add runs, or check the column that was read as the loss.",
        )


def _require_narrower_than_the_runs(quantiles: Mapping[float, float], result: FitResult, target: Target) -> None:
    width, span = quantiles[0.95] - quantiles[0.05], float(np.ptp(result.frame["loss"].to_numpy()))
    if result.law.is_calibrated and width > WIDEST * span:
        raise FitRefused(
            f"{result.source}: no forecast at {format_flops(target.flops)} FLOPs: its 90 % interval would be {width:.3g} wide, "
            f"and all losses of the runs lie within {span:.3g}.",
            why="The range of the runs' losses is narrower than this forecast.",
            fix="Forecast nearer to the runs, or add runs that span more compute.",
        )


def _require_optimal(result: FitResult, targets: Sequence[Target]) -> None:
    for target in targets:
        if not math.isclose(target.active_params, result.allocation.params_at(target.flops), rel_tol=1e-9):
            raise FitRefused(
                f"{result.source}: the law {result.law.name} does not know a run of {format_number(target.params, 3)} "
                f"parameters at {format_flops(target.flops)} FLOPs.",
                why="A frontier law knows only the best loss of each budget.",
                fix="Fit the default law, or forecast the compute-optimal run of that budget.",
            )


def _require_known_sizes(result: FitResult, flops: float, unique_tokens: float) -> None:
    if not result.law.knows_any_size:
        raise FitRefused(
            f"{result.source}: the optimum at {format_flops(flops)} FLOPs repeats {format_number(unique_tokens, 3)} unique "
            f"tokens, and the law {result.law.name} does not know other sizes.",
            why="A frontier law knows only the best loss of each budget.",
            fix="Fit the default law, or leave --unique-tokens out.",
        )


def _require_number(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{value!r} is not a positive, finite number of {name}.", fix="Write it like 1e23.")


def _check(result: FitResult, flops: float) -> None:
    _require_number(flops, "FLOPs of a compute budget")
    if not 1 / FARTHEST <= flops / result.largest_flops <= FARTHEST:
        raise FitRefused(
            f"{result.source}: no forecast at {format_flops(flops)} FLOPs, {flops / result.largest_flops:.3g}x its largest "
            "budget.",
            why=f"The limit is a factor of {format_number(FARTHEST)}.",
            fix="Forecast nearer to the runs.",
        )
    if not result.status.may_be_used:
        errors = [each for each in result.findings if each.severity is Severity.ERROR]
        allowed = " ".join(f"--allow {code}" for code in dict.fromkeys(each.code for each in errors))
        raise FitRefused(
            (
                f"{result.source}: no forecast at {format_flops(flops)} FLOPs. {result.status.value}",
                *(each.message for each in errors),
            ),
            why="The law does not describe these runs.",
            fix=f"To use all runs as they are: {allowed}"
            if errors
            else "Inspect the runs (marin-scale fit without --predict); train more budgets, or exclude faulty runs.",
        )


_MOST_BUDGETS = 10


@dataclass(frozen=True, kw_only=True)
class SensitivityRow:
    """A choice and its median, or None with the reason."""

    choice: str
    median: float | None
    why_none: str = ""


def choices_outside(rows: Sequence[Mapping[str, Any]], quantiles: Mapping[float, float]) -> str:
    """Return a sentence that names the choices whose medians lie outside a forecast's 90 % interval, "" if none does.

    The first row is the forecast itself, which is no alternative.
    """
    low, high = quantiles[0.05], quantiles[0.95]
    known = [row for row in rows[1:] if row["median"] is not None]
    outside = [f"{row['choice']}: {row['median']:.4f}" for row in known if not low <= row["median"] <= high]
    listed = f"lie outside its 90 % interval [{low:.4f}, {high:.4f}]: {joined(outside, separator='; ')}"
    return f"{len(outside)} of {len(known)} alternative fits {listed}" if outside else ""


def sensitivity(result: FitResult, forecast: Forecast) -> list[SensitivityRow]:
    """Return medians for the target of a forecast under other reasonable choices, the forecast itself first.

    The choices are each law alone, the frontier through skewed bowls, pinned asymptotes in the law's interval, outliers at full
    weight, repeated tokens as new ones, and (under the law of the fit) each budget left out, and the smallest ones. Frontier
    laws and pinned asymptotes are skipped for sizes that are not compute-optimal.
    """
    target = forecast.target
    of_rule = math.isclose(forecast.active_params, result.allocation.params_at(forecast.flops), rel_tol=1e-9)
    choices = list(_choices(result, target, of_rule=of_rule and target.worth == 1))
    return [SensitivityRow(choice=f"{result.law.name}, as forecast", median=forecast.median), *map(_row, choices)]


Choice = tuple[str, Callable[[], float]]


def _choices(result: FitResult, target: Target, *, of_rule: bool) -> Iterator[Choice]:
    if of_rule:
        yield from _frontier_choices(result, target)
    for name, form in _SURFACES.items():
        yield f"{name} alone (log-Huber)", partial(_surface_median, result, target, form)
    if result.law.name != DEFAULT_LAW:
        yield DEFAULT_LAW, partial(_median, result, target, _by(result, DEFAULT_LAW))
    for name, law in result.law.variants():
        yield name, partial(_forecast_median, replace(result, law=law), target)
    if result.has_effective_tokens:
        as_new = partial(_median, result, replace(target, unique_tokens=None), result.refit, _as_trained(result.frame))
        yield "repeated tokens counted as new", as_new
    budgets = sorted(result.frame["budget_flops"].unique())
    if 3 < len(budgets) <= _MOST_BUDGETS:
        for budget in budgets:
            yield _without(result, target, [budget], f"without the budget {format_flops(budget)}")
    if len(budgets) > 4:
        half = budgets[: len(budgets) // 2]
        yield _without(result, target, half, f"without the {len(half)} smallest of {len(budgets)} budgets")


def _as_trained(frame: pd.DataFrame) -> pd.DataFrame:
    trained = frame.assign(tokens=frame["trained_tokens"], flops=frame["trained_flops"])
    return trained.drop(columns=["epochs", "trained_tokens", "trained_flops"])


def _row(choice: Choice) -> SensitivityRow:
    name, median = choice
    try:
        return SensitivityRow(choice=name, median=median())
    except FitRefused as refusal:
        return SensitivityRow(choice=name, median=None, why_none=refusal.what)


def _frontier_choices(result: FitResult, target: Target) -> Iterator[Choice]:
    if result.bowls:
        yield "isoflop-frontier alone, E free", partial(_median, result, target, _by(result, "isoflop-frontier"))
        yield "frontier through skewed bowls (cubics), E free", partial(_skewed_median, result, target.flops)
    yield "best-runs-frontier alone, E free", partial(_median, result, target, _by(result, "best-runs-frontier"))
    flops, loss = (np.array([getattr(point, name) for point in result.points]) for name in ("flops", "loss"))
    for asymptote in _asymptotes(result):
        pinned = partial(_pinned_median, flops, loss, asymptote, target.flops)
        yield f"frontier with E pinned at {asymptote:g}", pinned


def _pinned_median(flops: Array, loss: Array, asymptote: float, target_flops: float) -> float:
    return float(frontier_loss(fit_pinned_frontier(flops, loss=loss, asymptote=asymptote), flops=target_flops))


def _asymptotes(result: FitResult) -> list[float]:
    """Return round values across the law's 90 % interval of E."""
    if "E" not in (ends := result.law.intervals()):
        return []
    low, high = ends["E"]
    return sorted({float(f"{value:.2g}") for value in np.linspace(max(low, 0.0), high, 4)})


def _median(
    result: FitResult, target: Target, refit: Callable[[RunTable], FitResult], frame: pd.DataFrame | None = None
) -> float:
    """Return the median for the same target from these runs, or some of them, by another law."""
    runs = result.frame if frame is None else frame
    other = refit(RunTable(frame=runs, source=result.source, metric=result.metric))
    return _forecast_median(other, target if other.law.knows_any_size else optimal_target(other, target.flops))


def _forecast_median(result: FitResult, target: Target) -> float:
    return forecast_runs(result, [target])[0].median


def _by(result: FitResult, law: str) -> Callable[[RunTable], FitResult]:
    return partial(fit, law=law, seed=result.seed, swept="all")


def _skewed_median(result: FitResult, target_flops: float) -> float:
    """Return the median of the frontier, E free, through minima of cubics; budgets of three sizes are refused."""
    budgets = [runs for _, runs in result.frame.groupby("budget_flops") if has_bowl(runs)]
    loss = [fit_asymmetric_bowl(tokens=_column(runs, "tokens"), loss=_column(runs, "loss")).optimal_loss for runs in budgets]
    flops = [np.exp(np.log(_column(runs, "flops")).mean()) for runs in budgets]
    return float(frontier_loss(fit_frontier(np.array(flops), loss=np.array(loss)), flops=target_flops))


def _surface_median(result: FitResult, target: Target, form: Callable[..., Callable[..., Array]]) -> float:
    tokens, loss = (_column(result.frame, name) for name in ("tokens", "loss"))
    predict = form(params=size_column(result.frame), tokens=tokens, loss=loss)
    return float(predict(params=target.active_params, tokens=target.tokens * target.worth))


_SURFACES: dict[str, Callable[..., Callable[..., Array]]] = {
    "five-parameter surface": lambda **runs: partial(surface_loss, fit_surface(**runs).law),
    "surface with one exponent": lambda **runs: fit_tied_surface(**runs).law.predict,
    "surface with an interaction term": lambda **runs: fit_interaction_surface(**runs).law.predict,
}


def _without(result: FitResult, target: Target, budgets: list[float], name: str) -> Choice:
    kept = result.frame[~result.frame["budget_flops"].isin(budgets)].reset_index(drop=True)
    return name, partial(_median, result, target, result.refit, kept)


def _column(runs: pd.DataFrame, name: str) -> Array:
    return np.asarray(runs[name], dtype=np.float64)
