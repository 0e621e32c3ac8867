"""Fit the coupled law, the project's default, to all runs of a table, at the optimum or not, as a posterior.

Bowls, the best loss of each budget and the frontier through them are only for display, except that closed bowls determine the
compute-optimal sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.fitting.allocation import allocation_through
from marin_scaling.fitting.coupled_law import SIGMA, TAU, CoupledLaws, Prior, laws_of
from marin_scaling.fitting.law import DEFAULT_LAW, FRONTIER_UNKNOWNS, Law, LawKind, LossDraws, Targets
from marin_scaling.fitting.optima import BowlShape, DrawnPoints, all_runs_drawn, loss_rises, size_column
from marin_scaling.fitting.posterior import (
    MOST_RUNS,
    UPWARD,
    FittedRuns,
    Places,
    SurfacePosterior,
    fit_posterior,
    places_of,
    variances,
)
from marin_scaling.fitting.result import LARGE_MISFIT, FitResult, FitStatus
from marin_scaling.laws import Array

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.table import RunTable

_FEW_RUNS = 8  # the number of the law's unknowns
_ONE_RATIO = 0.05  # scatter about the trend of tokens per parameter, in decades, below which runs show nothing off it

_LARGEST = 0.8  # share of the largest run's FLOPs above which runs belong to the largest budget
_FAR_OFF = (
    3.0  # standard deviations; eight other ladders, public and own, have at most 1.1; the one that missed its target has 4.7
)


@dataclass(frozen=True, kw_only=True)
class CoupledLaw(Law):
    """The coupled law as a posterior over the runs of `frame`."""

    posterior: SurfacePosterior
    frame: pd.DataFrame
    seed: int
    name: str = DEFAULT_LAW
    formula: str = "E + K * (w * (N / N0)^-a + (1 - w) * (D / D0)^-b)^g"
    is_calibrated: bool = True

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the law of highest posterior density."""
        posterior = self.posterior
        return {
            **{name: float(value[0]) for name, value in _named(laws_of(posterior.mode[None])).items()},
            "N0": posterior.middle_params,
            "D0": posterior.middle_tokens,
            "sigma": float(np.exp(posterior.mode[SIGMA])),
            "tau": float(np.exp(posterior.mode[TAU])),
        }

    @property
    def prior(self) -> Prior:
        """Prior of the posterior."""
        return self.posterior.prior

    @property
    def noise_variance(self) -> float:
        """Mean noise variance over the draws."""
        return float(np.mean(self.posterior.noise**2))

    def draws(self, targets: Targets, *, seed: int) -> LossDraws:
        """Draw from the calibrated predictive distribution."""
        return draw_losses(self.posterior, targets, seed=seed, log_sparsity=self._log_sparsity(targets))

    def parameter_draws(self) -> dict[str, Array]:
        """Return draws of the posterior."""
        return _named(self.posterior.laws)

    def log_losses(self, *, params: Array, tokens: Array) -> Array:
        """Return log losses without model discrepancy."""
        return self.posterior.log_losses(params=params, tokens=tokens)

    def joint_covariance(self, targets: Targets) -> Array:
        """Return the covariance over draws and model discrepancy."""
        return joint_covariance(self.posterior, targets, log_sparsity=self._log_sparsity(targets))

    def variants(self) -> Iterator[tuple[str, Law]]:
        """Yield the law refitted with outliers at full weight."""
        posterior = fit_posterior(fitted_runs(self.frame), prior=self.prior, seed=self.seed, downweight_outliers=False)
        yield "coupled surface, outliers at full weight", replace(self, posterior=posterior)

    def _log_sparsity(self, targets: Targets) -> Array | None:
        sparsity = 1.0 if targets.total_params is None else targets.total_params / targets.params
        return log_sparsity_at(self.frame, np.asarray(sparsity))


def _named(laws: CoupledLaws) -> dict[str, Array]:
    return {"E": laws.E, "K": laws.K, "w": laws.w, "a": laws.a, "b": laws.b, "g": laws.g, "gamma": laws.gamma}


def fit_coupled_runs(table: RunTable, *, kind: LawKind, seed: int, prior: Prior | None = None) -> FitResult:
    """Fit a table that passed `refuse_hopeless`."""
    drawn = all_runs_drawn(table.frame.assign(params=size_column(table.frame)))  # N counts active parameters
    posterior = fit_posterior(fitted_runs(table.frame), prior=prior, seed=seed)
    return FitResult.of(
        table,
        CoupledLaw(posterior=posterior, frame=table.frame, seed=seed),
        kind=kind,
        seed=seed,
        prior=prior,
        drawn=drawn,
        allocation=allocation_through(drawn, posterior),
        applies=_statuses(drawn, posterior),
        why=_why(drawn),
        warnings=_warnings(posterior, table.frame),
    )


def fitted_runs(frame: pd.DataFrame) -> FittedRuns:
    """Return the runs of a table for the posterior, with active parameters if the table has them."""
    flops, tokens, loss = (frame[name].to_numpy(dtype=np.float64) for name in ("flops", "tokens", "loss"))
    params = size_column(frame)
    return FittedRuns(flops=flops, params=params, tokens=tokens, loss=loss, log_sparsity=_log_sparsity(frame))


def _log_sparsity(frame: pd.DataFrame) -> Array | None:
    if "active_params" not in frame:
        return None
    logs = np.log(frame["params"].to_numpy(dtype=np.float64) / size_column(frame))
    return logs - np.median(logs) if np.ptp(logs) > 0.02 else None  # equally sparse within 2 %


def sparsity_of(frame: pd.DataFrame) -> float:
    """Return the ratio of total to active parameters in the larger half of the runs; 1 for dense models."""
    larger = frame[frame["flops"] >= frame["flops"].median()]
    return float(np.median(larger["params"].to_numpy(dtype=np.float64) / size_column(larger)))


def log_sparsity_at(frame: pd.DataFrame, sparsity: Array) -> Array | None:
    """Return ln(total / active) relative to the median of the fitted runs, for targets; None if the fit does not use it."""
    if _log_sparsity(frame) is None:
        return None
    return np.asarray(np.log(sparsity) - np.median(np.log(frame["params"].to_numpy(dtype=np.float64) / size_column(frame))))


def _why(drawn: DrawnPoints) -> str:
    frame = drawn.frame
    shape = f"bowls at {len(drawn.bowls)} budgets" if drawn.bowls else "no isoFLOP grid"
    ratio = np.log10(frame["tokens"] / frame["params"])
    return f"all {len(frame)} runs, {shape}, {10 ** ratio.min():.3g} to {10 ** ratio.max():.3g} tokens per parameter"


def _statuses(drawn: DrawnPoints, posterior: SurfacePosterior) -> dict[FitStatus, bool]:
    unclosed = sum(bowl.shape is not BowlShape.CLOSED for bowl in drawn.bowls)
    return {
        FitStatus.NOT_FALLING: loss_rises(drawn),
        FitStatus.TWO_BUDGETS: len({point.flops for point in drawn.points}) < FRONTIER_UNKNOWNS,
        FitStatus.FEW_RUNS: len(drawn.frame) <= _FEW_RUNS,
        FitStatus.BEST_RUN_OFF: abs(_best_run_off(posterior)) > _FAR_OFF,
        FitStatus.LARGE_MISFIT: float(np.median(np.exp(posterior.unknowns[:, TAU]))) > LARGE_MISFIT,
        FitStatus.BOWLS_NOT_CLOSED: bool(drawn.bowls) and 3 * unclosed >= len(drawn.bowls),
        FitStatus.ONE_RATIO: _ratio_scatter(drawn.frame) < _ONE_RATIO,
    }


def _best_run_off(posterior: SurfacePosterior) -> float:
    """Return how far the best run of the largest budget is off the median law, in standard deviations of noise and misfit."""
    runs = posterior.runs
    largest = np.flatnonzero(runs.flops >= _LARGEST * runs.flops.max())
    best = largest[[np.argmin(runs.loss[largest])]]
    sparsity = None if runs.log_sparsity is None else runs.log_sparsity[best]
    laws = posterior.log_losses(params=runs.params[best], tokens=runs.tokens[best], log_sparsity=sparsity)
    noise, misfit = variances(posterior.unknowns)
    return float((np.log(runs.loss[best[0]]) - np.median(laws)) / np.sqrt(np.median(noise) + np.median(misfit)))


def _ratio_scatter(frame: pd.DataFrame) -> float:
    """Return the standard deviation of log10 tokens per parameter about their trend with compute."""
    x, y = np.log10(frame["flops"].to_numpy()), np.log10(frame["tokens"].to_numpy() / frame["params"].to_numpy())
    return float(np.std(y - np.polyval(np.polyfit(x - x.mean(), y, 1), x - x.mean())))


def _warnings(posterior: SurfacePosterior, frame: pd.DataFrame) -> list[str]:
    thinned = f"of {len(frame)} runs the fit takes {MOST_RUNS}, half of them spread over the uppermost decade of compute"
    unsure = f"the posterior is rough: its draws are worth {posterior.worth:.0f} independent ones"
    return [*([thinned] if len(frame) > MOST_RUNS else []), *([unsure] if posterior.worth < 100 else [])]


FREEDOM = 3.0
"""Degrees of freedom of the Student distributions of discrepancy, noise and drift. With 5, and as many 50 % intervals held,
fewer 90 % intervals of simulated ladders held."""
STUDENT_VARIANCE = FREEDOM / (FREEDOM - 2)
"""Variance of a deviate of unit scale."""
_REPEATS = 10  # of every posterior draw, each with its own noise and drift


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Width that back-tests over public ladders add to the posterior; `calibration.json` describes ladders and method.

    `spread` multiplies every deviation from the median of the log loss. The others are scales of Student's t with 3 degrees of
    freedom (standard deviations are 1.73 times as large), added to the log loss in quadrature: one everywhere, and one per
    decade beyond the runs in FLOPs, in tokens per parameter, and in parameters.
    """

    spread: float
    everywhere: float
    per_decade_of_flops: float
    per_decade_of_ratio: float
    per_decade_of_params: float

    def drift(self, targets: Targets, posterior: SurfacePosterior) -> Array:
        """Return the added scale at each target: (target,)."""
        steps = zip(
            (self.per_decade_of_flops, self.per_decade_of_ratio, self.per_decade_of_params),
            decades_beyond(targets, posterior),
            strict=True,
        )
        squares = sum(((width * decades) ** 2 for width, decades in steps), np.zeros(len(targets.flops)))
        return np.asarray(np.sqrt(self.everywhere**2 + squares))


def decades_beyond(targets: Targets, posterior: SurfacePosterior) -> tuple[Array, Array, Array]:
    """Return decades beyond the runs in FLOPs, in tokens per parameter on either side, and in parameters: (target,) each."""
    runs, places = posterior.runs, places_of(posterior.runs)
    ratio = np.log10(targets.tokens / targets.params)
    aside = np.maximum(ratio - places.log_ratio.max(), places.log_ratio.min() - ratio)
    farther, larger = np.log10(targets.flops / runs.flops.max()), np.log10(targets.params / runs.params.max())
    return np.maximum(farther, 0.0), np.maximum(aside, 0.0), np.maximum(larger, 0.0)


@cache
def shipped_calibration() -> Calibration:
    """Return this version's calibration, from `calibration.json` of this package, written by `benchmarks/calibrate.py`."""
    text = files("marin_scaling.fitting").joinpath("calibration.json").read_text(encoding="utf-8")
    return Calibration(**json.loads(text)["factors"])


def draw_losses(
    posterior: SurfacePosterior,
    targets: Targets,
    *,
    seed: int,
    log_sparsity: Array | None = None,
    calibration: Calibration | None = None,
) -> LossDraws:
    """Draw losses of new runs at targets; equal seeds give equal numbers, and a draw's deviates are common to all targets.

    `log_sparsity` (target,) is ln of total over active parameters, relative to the median of the runs.
    """
    calibration, generator = calibration or shipped_calibration(), np.random.default_rng(seed)
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
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
    scale = calibration.spread * np.exp(median)  # converts a small change of the log loss to loss
    by_form = _explained(parts["law"], by=np.repeat(np.log(posterior.laws.g), _REPEATS))
    causes = {
        "noise": parts["noise"],
        "sampling": parts["law"] - by_form,
        "form": by_form - by_form.mean(axis=0) + parts["misfit"],
        "shift": parts["shift"],
    }
    losses = np.exp(median + calibration.spread * (total - median))
    return LossDraws(losses=losses, causes={name: scale * each for name, each in causes.items()})


def joint_covariance(posterior: SurfacePosterior, targets: Targets, *, log_sparsity: Array | None = None) -> Array:
    """Return the covariance of the log losses of runs at targets, without noise and drift: (target, target)."""
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    places = Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))
    return np.asarray(np.cov(law + posterior.misfit_at(places)[0], rowvar=False) + posterior.misfit_covariance(places))


def _shares(laws: int, generator: np.random.Generator) -> Array:
    """Return the centers of as many equal slices of probability as draws, in random order: (law and repeat,).

    Every law gets one of each tenth, so that all laws have the same distribution.
    """
    tenths = ((np.arange(_REPEATS * laws) + 0.5) / (_REPEATS * laws)).reshape(_REPEATS, laws)
    return np.asarray(generator.permuted(generator.permuted(tenths, axis=1), axis=0).T.ravel())


def _student(shares: Array) -> Array:
    """Return the quantiles of Student's t at shares of probability."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(FREEDOM, shares))


def _two_piece(shares: Array) -> Array:
    """Return quantiles of Student's t with its upper half stretched by `UPWARD`, without a step in the density."""
    below = 1 / (1 + UPWARD)
    upper = shares > below
    inner = np.where(upper, 0.5 + (shares - below) * (1 + UPWARD) / (2 * UPWARD), shares * (1 + UPWARD) / 2)
    return np.asarray(np.where(upper, UPWARD, 1.0) * _student(inner))


def _explained(values: Array, *, by: Array) -> Array:
    """Return the part of values (draw, target) that a cubic in `by` (draw,) explains."""
    centred = (by - by.mean()) / (by.std() or 1.0)
    design = np.stack([np.ones_like(centred), centred, centred**2, centred**3], axis=1)
    return np.asarray(design @ np.linalg.lstsq(design, values, rcond=None)[0])
