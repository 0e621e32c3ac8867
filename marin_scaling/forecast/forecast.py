"""Forecast losses: predictive draws, quantiles and bands at targets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.coupled_fit import log_sparsity_at, sparsity_of
from marin_scaling.fitting.frontier_law import resample
from marin_scaling.fitting.model_discrepancy import Places
from marin_scaling.fitting.posterior import UPWARD, SurfacePosterior, places_of
from marin_scaling.fitting.result import FitResult
from marin_scaling.fitting.surface import SurfaceDraws
from marin_scaling.laws import Array
from marin_scaling.units import unit_of

if TYPE_CHECKING:
    import pandas as pd

FREEDOM = 3.0
"""Of the Student distributions of misfit, noise and drift: tables differ in how far they are off. With 5, at 50 % intervals
that hold as often, fewer 90 % intervals of simulated ladders held (lab book)."""
STUDENT_VARIANCE = FREEDOM / (FREEDOM - 2)
"""Variance of a deviate of unit scale."""
_REPEATS = 10  # of every draw of the posterior, each with its own noise and drift


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Runs to forecast: arrays (target,)."""

    flops: Array
    params: Array
    tokens: Array
    log_sparsity: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What back-tests over public ladders add to the posterior; `calibration.json` says which and how.

    `spread` multiplies every deviation from the median of the log loss. The others are scales of Student's t with 3 degrees of
    freedom (1.73 times as large in standard deviations) that are added to the log loss, in quadrature: everywhere, and for
    each decade beyond the runs in FLOPs, in tokens per parameter, in parameters.
    """

    spread: float
    everywhere: float
    per_decade_of_flops: float
    per_decade_of_ratio: float
    per_decade_of_params: float

    def drift(self, targets: Targets, posterior: SurfacePosterior) -> Array:
        """The scale of what is added at each target: (target,)."""
        steps = zip(
            (self.per_decade_of_flops, self.per_decade_of_ratio, self.per_decade_of_params),
            decades_beyond(targets, posterior),
            strict=True,
        )
        squares = sum(((width * decades) ** 2 for width, decades in steps), np.zeros(len(targets.flops)))
        return np.asarray(np.sqrt(self.everywhere**2 + squares))


def decades_beyond(targets: Targets, posterior: SurfacePosterior) -> tuple[Array, Array, Array]:
    """Decades beyond the runs in FLOPs, in tokens per parameter on either side, and in parameters: (target,) each."""
    runs, places = posterior.runs, places_of(posterior.runs)
    ratio = np.log10(targets.tokens / targets.params)
    aside = np.maximum(ratio - places.log_ratio.max(), places.log_ratio.min() - ratio)
    farther, larger = np.log10(targets.flops / runs.flops.max()), np.log10(targets.params / runs.params.max())
    return np.maximum(farther, 0.0), np.maximum(aside, 0.0), np.maximum(larger, 0.0)


@dataclass(frozen=True, kw_only=True)
class LossDraws:
    """Losses a new run could show, (draw, target), and by cause what each draw adds to the middle: (draw, target), in loss."""

    losses: Array
    causes: dict[str, Array]


@cache
def shipped_calibration() -> Calibration:
    """The calibration of this version: `calibration.json` of this package, written by `benchmarks/calibrate.py`."""
    text = files("marin_scaling.forecast").joinpath("calibration.json").read_text(encoding="utf-8")
    return Calibration(**json.loads(text)["factors"])


def draw_losses(
    posterior: SurfacePosterior, targets: Targets, *, seed: int, calibration: Calibration | None = None
) -> LossDraws:
    """Draw losses of new runs at targets; equal seeds give equal numbers, and all targets share the luck of each draw."""
    calibration, generator = calibration or shipped_calibration(), np.random.default_rng(seed)
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=targets.log_sparsity)
    places = Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))
    misfit, misfit_variance = posterior.misfit_at(places)
    law, misfit, misfit_variance = (np.repeat(each, _REPEATS, axis=0) for each in (law, misfit, misfit_variance))
    wobble, slide, noise = (_shares(len(posterior.unknowns), generator)[:, None] for _ in range(3))
    parts = {
        "law": law + misfit,
        "misfit": np.sqrt(misfit_variance) * _student(wobble),
        "shift": calibration.drift(targets, posterior) * _student(slide),
        "noise": np.broadcast_to(_two_piece(noise) * np.repeat(posterior.noise, _REPEATS)[:, None], law.shape),
    }
    total = np.sum(list(parts.values()), axis=0)
    median = np.median(total, axis=0)
    scale = calibration.spread * np.exp(median)  # of a small part of the log loss, in loss
    by_form = _explained(parts["law"], by=np.repeat(np.log(posterior.laws.g), _REPEATS))
    causes = {
        "noise": parts["noise"],
        "sampling": parts["law"] - by_form,
        "form": by_form - by_form.mean(axis=0) + parts["misfit"],
        "shift": parts["shift"],
    }
    losses = np.exp(median + calibration.spread * (total - median))
    return LossDraws(losses=losses, causes={name: scale * each for name, each in causes.items()})


def joint_covariance(posterior: SurfacePosterior, targets: Targets) -> Array:
    """Covariance of the log losses of runs at targets, without their noise and drift: (target, target)."""
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=targets.log_sparsity)
    places = Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))
    return np.asarray(np.cov(law + posterior.misfit_at(places)[0], rowvar=False) + posterior.misfit_covariance(places))


def _shares(laws: int, generator: np.random.Generator) -> Array:
    """The middles of as many equal slices of probability as there are draws, in random order: (law and repeat,).

    Every law has one of each tenth, so that no law is luckier than another.
    """
    tenths = ((np.arange(_REPEATS * laws) + 0.5) / (_REPEATS * laws)).reshape(_REPEATS, laws)
    return np.asarray(generator.permuted(generator.permuted(tenths, axis=1), axis=0).T.ravel())


def _student(shares: Array) -> Array:
    """The quantiles of Student's t at shares of probability."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(FREEDOM, shares))


def _two_piece(shares: Array) -> Array:
    """Quantiles of Student's t with its upper half stretched by `UPWARD` and as much likelier: the density has no step."""
    below = 1 / (1 + UPWARD)
    upper = shares > below
    inner = np.where(upper, 0.5 + (shares - below) * (1 + UPWARD) / (2 * UPWARD), shares * (1 + UPWARD) / 2)
    return np.asarray(np.where(upper, UPWARD, 1.0) * _student(inner))


def _explained(values: Array, *, by: Array) -> Array:
    """The part of values (draw, target) that a cubic in `by` (draw,) explains."""
    centred = (by - by.mean()) / (by.std() or 1.0)
    design = np.stack([np.ones_like(centred), centred, centred**2, centred**3], axis=1)
    return np.asarray(design @ np.linalg.lstsq(design, values, rcond=None)[0])


LEVELS = (0.01, 0.025, *(n / 20 for n in range(1, 20)), 0.975, 0.99)
"""The 23 quantile levels of the COVID-19 and FluSight forecast hubs (Bracher et al. 2021)."""

FARTHEST = 1e12
"""The largest factor between ladder and target: within it every number stays finite at any exponent that is searched."""

WIDEST = 2.0
"""The widest 90 % interval that is given, over the range of the runs' losses. Of 79 splits of public ladders, down to eight
runs 50x below their targets, the widest had 1.7."""

FRONTIER_BAND_NOTES = {
    "form": "not estimated: one law only; another form of law may lie outside this interval",
    "shift": "not estimated: drift of recipe, data or tuning between the ladder and the target is not in this interval",
}
"""Why a frontier law's band is None."""
BAND_NOTES = {
    "noise": "the scatter of one run",
    "sampling": "other runs and budgets of the same kind would have given another law",
    "form": "no law of so few numbers is true: how far it is smoothly off, and which coupling of its terms holds",
    "shift": "drift of tuning or kind with distance from the runs, as in back-tests of public ladders (calibration.json)",
}
"""What each band of the coupled law is."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A run to forecast. `params` are all parameters, `active_params` those that a token passes (equal in dense models)."""

    flops: float
    params: float
    tokens: float
    active_params: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Forecast:
    """Forecast loss of a run of `flops`, with `params` and `tokens`, in `unit` ("" where the metric's name does not tell it).

    `quantiles` (level to loss, 23 of them) include the noise of the run itself. `bands` are half-widths of 90 % intervals by
    cause, None where no estimate is made; `band_notes` say what they are. `extrapolation` is `flops` over the largest run or
    budget that was fitted. `optimal` says whether the size is the compute-optimal one, `params_interval` how sure its active
    parameters are. `mis_sizing` is the share of the loss that half or double the parameters would add at the same compute.
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

    @property
    def tokens_per_param(self) -> float:
        """Trained tokens for each parameter that a token passes."""
        return self.tokens / self.active_params

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the central interval of this probability; `UsageError` for one whose ends are not among the quantiles."""
        ends = [each for each in self.quantiles if math.isclose(2 * abs(each - 0.5), level, abs_tol=1e-9)]
        if len(ends) != 2:  # not a pair
            known = ", ".join(f"{1 - 2 * each:.2g}" for each in self.quantiles if each < 0.5)
            raise UsageError(
                f"No interval of {level!r}: the forecast has {len(self.quantiles)} quantiles.",
                why="Ends of an interval are quantiles of the forecast.",
                fix=f"Choose one of {known}.",
            )
        return self.quantiles[min(ends)], self.quantiles[max(ends)]

    @property
    def row(self) -> dict[str, float]:
        """One row of a table of forecasts: sizes, median, 90 % interval, half-widths by cause (NaN where not estimated)."""
        low, high = self.interval()
        bands = {cause: math.nan if half is None else half for cause, half in self.bands.items()}
        sizes = {name: getattr(self, name) for name in ("flops", "params", "tokens", "extrapolation", "median")}
        return {**sizes, "q05": low, "q95": high, **bands}

    @property
    def frame(self) -> pd.DataFrame:
        """`row` as a table of one row."""
        import pandas as pd

        return pd.DataFrame([self.row])

    def __repr__(self) -> str:
        low, high = self.interval()
        unit = f" {self.unit}" if self.unit else ""
        distance = f"{self.extrapolation:.3g}x beyond"
        return f"Forecast({self.flops:g} FLOPs: {self.median:.4f} [{low:.4f}, {high:.4f}]{unit}, {distance})"


def forecast(
    result: FitResult, *, flops: float, params: float | None = None, tokens: float | None = None, seed: int | None = None
) -> Forecast:
    """Forecast the loss of a run of `flops`; `seed` is the fit's own unless given.

    The compute-optimal run, unless `params` and `tokens` say which. `FitRefused` when the fit has no law to extrapolate, knows
    compute-optimal runs only, or says nothing at `flops`; `UsageError` when a number is none.

    >>> from marin_scaling.fitting.fit import fit
    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.simulate import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> ahead = forecast(fit(table), flops=1e21)
    >>> ahead.interval()[0] < 2.3331 < ahead.interval()[1]  # what the law gives there
    True
    """
    if params is None and tokens is None:
        _check(result, flops)
        return forecast_runs(result, [optimal_target(result, flops)], seed=seed)[0]
    if params is None or tokens is None:
        raise UsageError(
            "A size needs both params and tokens.", why="One of them leaves the run open.", fix="Give both, or neither."
        )
    return forecast_runs(result, [Target(flops=flops, params=params, tokens=tokens, active_params=params)], seed=seed)[0]


def targets_of(rows: pd.DataFrame) -> list[Target]:
    """The rows of a table with `flops`, `params`, `tokens` and `active_params` as targets."""
    columns = (rows[name].astype(float) for name in ("flops", "params", "tokens", "active_params"))
    return [
        Target(flops=flops, params=params, tokens=tokens, active_params=active)
        for flops, params, tokens, active in zip(*columns, strict=True)
    ]


def optimal_target(result: FitResult, flops: float) -> Target:
    """The compute-optimal run of a budget, as sparse as the larger runs of the table."""
    active = result.allocation.params_at(flops)
    total = active * (1.0 if result.is_frontier else sparsity_of(result.frame))
    return Target(flops=flops, params=total, tokens=result.allocation.tokens_at(flops), active_params=active)


def forecast_runs(result: FitResult, targets: Sequence[Target], *, seed: int | None = None) -> list[Forecast]:
    """Forecast many runs from one fit, in their order; errors as in `forecast`."""
    for target in targets:
        for name in ("flops", "params", "tokens", "active_params"):
            _require_number(getattr(target, name), name)
    for flops in dict.fromkeys(target.flops for target in targets):
        _check(result, flops)
    if not targets:
        return []
    draws = _draws(result, targets, seed=result.seed if seed is None else seed)
    values = np.quantile(draws.losses, LEVELS, axis=0).T  # (target, level)
    widths = {cause: _half_widths(each) for cause, each in draws.causes.items()}  # (target,) each
    bands = [{cause: float(each[column]) for cause, each in widths.items()} for column in range(len(targets))]
    return [_summary(result, *each) for each in zip(targets, values, bands, strict=True)]


def samples(result: FitResult, *, flops: float, seed: int | None = None) -> Array:
    """Losses that a compute-optimal run of `flops` could show, all equally likely: (draw,)."""
    _check(result, flops)
    return _draws(result, [optimal_target(result, flops)], seed=result.seed if seed is None else seed).losses[:, 0]


def interval_along(result: FitResult, *, flops: Array, levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Array:
    """Quantiles of a compute-optimal run's loss along many budgets, with the fit's own seed: (level, flops)."""
    draws = _draws(result, [optimal_target(result, float(each)) for each in flops], seed=result.seed)
    return np.asarray(np.quantile(draws.losses, levels, axis=0))


def _draws(result: FitResult, targets: Sequence[Target], *, seed: int) -> LossDraws:
    flops, params, tokens, active = (
        np.array([getattr(target, name) for target in targets]) for name in ("flops", "params", "tokens", "active_params")
    )
    if result.posterior is not None:
        sparsity = log_sparsity_at(result.frame, params / active)
        return draw_losses(
            result.posterior, Targets(flops=flops, params=active, tokens=tokens, log_sparsity=sparsity), seed=seed
        )
    if result.surfaces is not None:
        return _surface_draws(result, result.surfaces, params=active, tokens=tokens, seed=seed)
    _require_optimal(result, targets)
    drawn = resample(result, seed=seed)
    law, noise = drawn.laws.losses(flops), np.broadcast_to(drawn.run_noise[:, None], (len(drawn.run_noise), len(flops)))
    return LossDraws(losses=law + noise, causes={"noise": noise, "sampling": law})


def _surface_draws(result: FitResult, surfaces: SurfaceDraws, *, params: Array, tokens: Array, seed: int) -> LossDraws:
    """Every resampled surface with a residual of the runs, drawn anew, for a new run's noise."""
    law = surfaces.losses(params=params, tokens=tokens)
    if not np.isfinite(law).all():
        raise FitRefused(
            f"{result.source}: no forecast of a run of {params[0]:.3g} parameters: resampled surfaces grow without end there.",
            why="A term with a large exponent, which few runs decide, has no bound away from them.",
            fix="Forecast nearer to the runs, add runs, or fit the default law.",
        )
    noise = law * np.expm1(np.random.default_rng(seed).choice(surfaces.residuals, size=(len(law), 1)))
    return LossDraws(losses=law + noise, causes={"noise": noise, "sampling": law})


def _summary(result: FitResult, target: Target, values: Array, bands: Mapping[str, float]) -> Forecast:
    quantiles = dict(zip(LEVELS, (float(value) for value in values), strict=True))
    _require_positive(quantiles, result, target.flops)
    _require_narrower_than_the_runs(quantiles, result, target)
    optimal = target.active_params == result.allocation.params_at(target.flops)
    return Forecast(
        flops=target.flops,
        params=target.params,
        tokens=target.tokens,
        active_params=target.active_params,
        median=quantiles[0.5],
        quantiles=quantiles,
        bands={cause: bands.get(cause) for cause in ("noise", "sampling", "form", "shift")},
        band_notes=BAND_NOTES if result.posterior else FRONTIER_BAND_NOTES,
        extrapolation=target.flops / result.largest_flops,
        optimal=optimal,
        params_interval=result.allocation.params_interval(target.flops) if optimal else None,
        mis_sizing=_mis_sizing(result.posterior, target) if result.posterior and optimal else None,
        unit=unit_of(result.metric),
    )


def _mis_sizing(posterior: SurfacePosterior, target: Target) -> tuple[float, float]:
    """By what share the loss rises when half, or double, the parameters are trained at the same compute."""
    factors = np.array([1.0, 0.5, 2.0])
    log_losses = posterior.log_losses(params=target.active_params * factors, tokens=target.tokens / factors)
    rise = np.median(np.expm1(log_losses[:, 1:] - log_losses[:, :1]), axis=0)
    return float(rise[0]), float(rise[1])


def _half_widths(values: Array) -> Array:
    """Of the central 90 % of each column (draw, target): (target,)."""
    low, high = np.quantile(values, (0.05, 0.95), axis=0)
    return np.asarray((high - low) / 2)


def _require_positive(quantiles: Mapping[float, float], result: FitResult, flops: float) -> None:
    lowest = quantiles[LEVELS[0]]
    if lowest <= 0:
        raise FitRefused(
            f"{result.source}: no forecast at {flops:.3g} FLOPs: its {LEVELS[0]:.0%} quantile would be {lowest:.3g}.",
            why="No loss lies below zero: the runs scatter so much, or lose so little, that the law says nothing there.",
            fix="Forecast nearer to the runs, add runs, or check that the column taken for the loss holds one.",
        )


def _require_narrower_than_the_runs(quantiles: Mapping[float, float], result: FitResult, target: Target) -> None:
    width, span = quantiles[0.95] - quantiles[0.05], float(np.ptp(result.frame["loss"].to_numpy()))
    if result.posterior is not None and width > WIDEST * span:
        raise FitRefused(
            f"{result.source}: no forecast at {target.flops:.3g} FLOPs: its 90 % interval would be {width:.3g} wide, and all "
            f"losses of the runs lie within {span:.3g}.",
            why="The runs say less about such a run than a glance at their losses does.",
            fix="Forecast nearer to the runs, or add runs that span more compute.",
        )


def _require_optimal(result: FitResult, targets: Sequence[Target]) -> None:
    for target in targets:
        if not math.isclose(target.active_params, result.allocation.params_at(target.flops), rel_tol=1e-9):
            raise FitRefused(
                f"{result.source}: the law {result.law_name} does not know a run of {target.params:.3g} parameters at "
                f"{target.flops:.3g} FLOPs.",
                why="A frontier law knows the best loss of each budget, and no other size.",
                fix="Fit the coupled law (--law coupled-surface), or forecast the compute-optimal run of that budget.",
            )


def _require_number(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"{value!r} is no number of {name}.", why="It has to be positive and finite.", fix="Write it like 1e23."
        )


def _check(result: FitResult, flops: float) -> None:
    _require_number(flops, "FLOPs of a compute budget")
    if not 1 / FARTHEST <= flops / result.largest_flops <= FARTHEST:
        raise FitRefused(
            f"{result.source}: no forecast at {flops:.3g} FLOPs, {flops / result.largest_flops:.3g}x its largest budget.",
            why=f"Beyond a factor of {FARTHEST:.0e} nothing is left of what the runs say.",
            fix="Forecast nearer to the runs.",
        )
    if not result.status.may_be_used:
        raise FitRefused(
            f"{result.source}: no forecast at {flops:.3g} FLOPs. {result.status.value}",
            why="An interval around a law that does not hold would only look like a forecast.",
            fix="Look at the runs (marin-scale fit without --predict); train more budgets, or leave out what went wrong.",
        )
