"""Fit all runs of a table, at the optimum or not: a coupled surface, a frontier through all runs, or both (the default).

Bowls, the best loss of each budget and the frontier through them are only for display, except that closed bowls determine the
compute-optimal sizes.

The loss of a new run follows a predictive distribution: laws averaged, model discrepancy, drift and noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from marin_scaling.fitting.coupled_law import KAPPA, SHARE, SIGMA, SLOPES, TAU, CoupledLaws, Prior, laws_of
from marin_scaling.fitting.fit import LARGE_MISFIT, FitResult, FitStatus
from marin_scaling.fitting.frontier import FrontierPosterior, fit_frontier_posterior
from marin_scaling.fitting.law import FRONTIER_UNKNOWNS, Law, LawKind, LossDraws, Targets
from marin_scaling.fitting.optima import (
    BowlShape,
    DrawnPoints,
    all_runs_drawn,
    allocation_through,
    follows_one_ratio,
    loss_rises,
    size_column,
)
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
from marin_scaling.laws import Array
from marin_scaling.printable import wrapped
from marin_scaling.run.table import RunTable

if TYPE_CHECKING:
    import pandas as pd


FREEDOM = 3.0
"""Degrees of freedom of the Student distributions of discrepancy, noise and drift. With 5, and as many 50 % intervals held,
fewer 90 % intervals of simulated ladders held."""
STUDENT_VARIANCE = FREEDOM / (FREEDOM - 2)
"""Variance of a deviate of unit scale."""
_LARGEST_LOG = 700.0  # e to this is still a number
_REPEATS = 10  # of every posterior draw, each with its own noise and drift


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Width that back-tests over public ladders add to the posterior; `calibration.json` describes ladders and method.

    `spread` multiplies every deviation from the median of the log loss but noise, which is measured. The others give scales of
    Student's t with 3 degrees of freedom (standard deviations are 1.73 times as large), added to the log loss in quadrature:
    one everywhere; one per decade beyond the runs in FLOPs, in tokens per parameter, and in parameters, as a share of the fall
    of the log loss in a decade of compute; and a share of the distance between the two laws.
    """

    spread: float
    everywhere: float
    per_decade_of_flops: float
    per_decade_of_ratio: float
    per_decade_of_params: float
    of_disagreement: float

    def drift(self, targets: Targets, posterior: SurfacePosterior) -> Array:
        """Return the added scale at each target: (target,)."""
        steps = zip(
            (self.per_decade_of_flops, self.per_decade_of_ratio, self.per_decade_of_params),
            decades_beyond(targets, posterior),
            strict=True,
        )
        squares = sum(((width * decades) ** 2 for width, decades in steps), np.zeros(len(targets.flops)))
        return np.asarray(np.sqrt(self.everywhere**2 + fall_per_decade(posterior) ** 2 * squares))


def fall_per_decade(posterior: SurfacePosterior) -> float:
    """Return by how much the log loss falls in a decade of compute in the middle of the larger runs: 0.09 on Delphi."""
    by_params, by_tokens = np.exp(posterior.unknowns[:, SLOPES].T)
    return float(np.median(by_params + by_tokens) * np.log(10) / 2)


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


FRONTIER_WEIGHT = 2 / 3
"""Weight of the frontier's quantiles; the surface has the rest. Chosen on 16 public ladders with the prior of the slopes: with
ladders equal the CRPS is 4 % lower than with equal weights, with forecasts equal 1 % higher."""
FRONTIER_WEIGHTS = {"combined": FRONTIER_WEIGHT, "coupled-surface": 0.0, "all-runs-frontier": 1.0}
"""Weight of the frontier by the name of the law, as in `--law`."""
WEIGHT_BY_LAW = {"coupled-surface": 1 - FRONTIER_WEIGHT, "all-runs-frontier": FRONTIER_WEIGHT}
"""Weight of each law in the combined one."""


def draw_losses(
    posterior: SurfacePosterior,
    targets: Targets,
    *,
    seed: int,
    frontier: FrontierPosterior | None = None,
    frontier_weight: float = FRONTIER_WEIGHT,
    log_sparsity: Array | None = None,
    calibration: Calibration | None = None,
) -> LossDraws:
    """Draw losses of new runs at targets; equal seeds give equal numbers, and a draw's deviates are common to all targets.

    With `frontier`, quantiles of the log losses by the two laws are averaged. `log_sparsity` (target,) is ln of total over
    active parameters, relative to the median of the runs.
    """
    calibration, generator = calibration or shipped_calibration(), np.random.default_rng(seed)
    law, misfit_variance = _surface_draws(posterior, targets, log_sparsity=log_sparsity)
    laws = {"coupled-surface": law}
    if frontier is not None and frontier_weight > 0:
        other = laws["all-runs-frontier"] = _in_order_of(law, _frontier_draws(frontier, targets, log_sparsity=log_sparsity))
        law = (1 - frontier_weight) * law + frontier_weight * other
    apart = np.ptp([np.median(each, axis=0) for each in laws.values()], axis=0) if frontier_weight < 1 else 0.0
    wobble, slide, noise = (_shares(len(posterior.unknowns), generator)[:, None] for _ in range(3))
    drift = calibration.drift(targets, posterior)
    parts = {
        "law": law,
        "misfit": np.sqrt(misfit_variance) * _student(wobble),
        "shift": np.hypot(drift, calibration.of_disagreement * apart) * _student(slide),
        "noise": np.broadcast_to(_two_piece(noise) * _repeated(posterior.noise[:, None]), law.shape),
    }
    by_law = {}
    if len(laws) > 1 and frontier_weight < 1:
        alone = parts["misfit"] + drift * _student(slide)
        by_law = {
            name: np.median(_losses(each + alone, parts["noise"], spread=calibration.spread), axis=0)
            for name, each in laws.items()
        }
    expected = law + parts["misfit"] + parts["shift"]
    losses = _losses(expected, parts["noise"], spread=calibration.spread)
    median = np.median(expected, axis=0)
    scale = calibration.spread * np.exp(median)  # converts a small change of the log loss to loss
    by_form = _explained(law, by=_repeated(np.log(posterior.laws.g)[:, None])[:, 0])
    causes = {
        "noise": parts["noise"] / calibration.spread,
        "sampling": law - by_form,
        "form": by_form - by_form.mean(axis=0) + parts["misfit"] + _either_side(len(law)) * apart / 2,
        "shift": parts["shift"],
    }
    return LossDraws(losses=losses, causes={name: scale * each for name, each in causes.items()}, by_law=by_law)


def _losses(expected: Array, noise: Array, *, spread: float) -> Array:
    """Return losses of runs by their expected log losses, spread about the median, and their noise: (draw, target) each."""
    median = np.median(expected, axis=0)
    return np.asarray(np.exp(np.minimum(median + spread * (expected - median) + noise, _LARGEST_LOG)))


def _surface_draws(posterior: SurfacePosterior, targets: Targets, *, log_sparsity: Array | None) -> tuple[Array, Array]:
    """Return log losses by the surface with its mean discrepancy, and the discrepancy's variance: (draw, target) each."""
    surface = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    misfit, variance = posterior.misfit_at(_places(targets))
    return _repeated(surface + misfit), _repeated(variance)


def _frontier_draws(frontier: FrontierPosterior, targets: Targets, *, log_sparsity: Array | None) -> Array:
    """Return log losses by the frontier, with the mean discrepancy of the runs from it: (draw, target)."""
    runs = frontier.surface.runs
    at_runs, at_targets = (
        frontier.log_losses(flops=each.flops, params=each.params, tokens=each.tokens, log_sparsity=sparsity)
        for each, sparsity in ((runs, runs.log_sparsity), (targets, log_sparsity))
    )
    return _repeated(at_targets + frontier.surface.misfit_at(_places(targets), at_runs)[0])


def _places(targets: Targets) -> Places:
    return Places(log_flops=np.log10(targets.flops), log_ratio=np.log10(targets.tokens / targets.params))


def _repeated(values: Array) -> Array:
    """Return each draw of (draw, target) `_REPEATS` times."""
    return np.repeat(values, _REPEATS, axis=0)


def _in_order_of(first: Array, second: Array) -> Array:
    """Return the draws of `second` (draw, target), each column sorted as that of `first` is.

    >>> _in_order_of(np.array([[3.0], [1.0], [2.0]]), np.array([[10.0], [30.0], [20.0]]))[:, 0]
    array([30., 10., 20.])
    """
    ordered = np.empty_like(second)
    np.put_along_axis(ordered, np.argsort(first, axis=0, kind="stable"), np.sort(second, axis=0), axis=0)
    return ordered


def _either_side(draws: int) -> Array:
    return np.where(np.arange(draws) % 2, 1.0, -1.0)[:, None]


def joint_covariance(posterior: SurfacePosterior, targets: Targets, *, log_sparsity: Array | None = None) -> Array:
    """Return the covariance of the log losses of runs at targets, without noise and drift: (target, target)."""
    law = posterior.log_losses(params=targets.params, tokens=targets.tokens, log_sparsity=log_sparsity)
    places = _places(targets)
    return np.asarray(np.cov(law + posterior.misfit_at(places)[0], rowvar=False) + posterior.misfit_covariance(places))


def _shares(laws: int, generator: np.random.Generator) -> Array:
    """Return the centers of as many equal slices of probability as draws, in random order: (law and repeat,).

    Every law gets one of each tenth, so that all laws have the same distribution.
    """
    tenths = ((np.arange(_REPEATS * laws) + 0.5) / (_REPEATS * laws)).reshape(_REPEATS, laws)
    return np.asarray(generator.permuted(generator.permuted(tenths, axis=1), axis=0).T.ravel())


def _student(shares: Array) -> Array:
    """Return the quantiles of Student's t at shares of probability."""
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


_FEW_RUNS = 8  # the number of the law's unknowns

_PRIOR_HOLDS = 0.8  # of the prior's standard deviation: with more the prior has two thirds of the say about the asymptote
_LARGEST = 0.8  # share of the largest run's FLOPs above which runs belong to the largest budget
_FAR_OFF = (
    3.0  # standard deviations; eight other ladders, public and own, have at most 1.1; the one that missed its target has 4.7
)


_SURFACE, _FRONTIER = "E + K * (w * (N / N0)^-a + (1 - w) * (D / D0)^-b)^g", "E_f + K_f * (C / C_f)^-gamma_f"
_FORMULAS = {
    0.0: _SURFACE,
    1.0: f"{_FRONTIER}, at the best N and D for C",
    FRONTIER_WEIGHT: f"(L * F^2)^(1/3); L = {_SURFACE}; F = ({_FRONTIER}) * L / L*; L* = least L at this N * D",
}
_SPARSE = "; N = active params * (S / S0)^kappa; C = FLOPs * (S / S0)^kappa; S = total / active params"


@dataclass(frozen=True, kw_only=True)
class CombinedLaw(Law):
    """The coupled surface and the frontier through all runs of `frame`, as posteriors; `frontier_weight` is 0 or 1 for one law.

    The frontier takes from the surface what sizes off the optimum lose.
    """

    posterior: SurfacePosterior
    frontier: FrontierPosterior
    frontier_weight: float
    frame: pd.DataFrame
    seed: int
    name: str
    formula: str
    is_calibrated: bool = True

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the surface of highest posterior density, and medians of the frontier's."""
        posterior = self.posterior
        surface = {
            **{name: float(value[0]) for name, value in _named(laws_of(posterior.mode[None])).items()},
            "N0": posterior.middle_params,
            "D0": posterior.middle_tokens,
            "sigma": float(np.exp(posterior.mode[SIGMA])),
            "tau": float(np.exp(posterior.mode[TAU])),
        }
        frontier = {name: float(np.median(draws)) for name, draws in self._frontier_draws().items()}
        of_frontier = {**frontier, "C_f": float(np.exp(self.frontier.middle_log_flops))}
        sparse = {"kappa": float(posterior.mode[KAPPA]), "S0": _middle_sparsity(self.frame)} if self._is_sparse else {}
        return {
            **(surface if self.frontier_weight < 1 else {}),
            **(of_frontier if self.frontier_weight > 0 else {}),
            **sparse,
        }

    @property
    def prior(self) -> Prior:
        """Prior of the posteriors."""
        return self.posterior.prior

    @property
    def noise_variance(self) -> float:
        """Mean noise variance over the draws."""
        return float(np.mean(self.posterior.noise**2))

    @property
    def fall_per_decade(self) -> float:
        """Fall of the log loss in a decade of compute, by the surface."""
        return fall_per_decade(self.posterior)

    def draws(self, targets: Targets, *, seed: int, calibration: Calibration | None = None) -> LossDraws:
        """Draw from the predictive distribution with this calibration, by default the shipped one."""
        return draw_losses(
            self.posterior,
            targets,
            seed=seed,
            frontier=self.frontier,
            frontier_weight=self.frontier_weight,
            log_sparsity=self._log_sparsity(targets),
            calibration=calibration,
        )

    def formula_losses(self, targets: Targets) -> Array:
        """Return the surface of highest density, the frontier of medians, or their weighted geometric mean."""
        posterior, sparsity, values = self.posterior, self._log_sparsity(targets), self.parameters
        shift = 0.0 if sparsity is None else values["kappa"] * sparsity
        surface = laws_of(posterior.mode[None])
        x, y = np.log(targets.params / posterior.middle_params) + shift, np.log(targets.tokens / posterior.middle_tokens)
        log_surface = surface.log_losses(x[None], y)[0]
        if self.frontier_weight == 0:
            return np.asarray(np.exp(log_surface))
        best = surface.optimal_log_params(x + y)
        log_least = surface.log_losses(best, x + y - best)[0]
        distance = np.log(targets.flops / values["C_f"]) + shift
        log_frontier = np.log(values["E_f"] + values["K_f"] * np.exp(-values["gamma_f"] * distance))
        if self.frontier_weight == 1:
            return np.asarray(np.exp(log_frontier))
        return np.asarray(np.exp(log_surface + self.frontier_weight * (log_frontier - log_least)))

    def parameter_draws(self) -> dict[str, Array]:
        """Return draws of the posteriors."""
        return {
            **(_named(self.posterior.laws) if self.frontier_weight < 1 else {}),
            **(self._frontier_draws() if self.frontier_weight > 0 else {}),
            **({"kappa": self.posterior.unknowns[:, KAPPA]} if self._is_sparse else {}),
        }

    def log_losses(self, *, params: Array, tokens: Array) -> Array:
        """Return log losses by the surface, without model discrepancy."""
        return self.posterior.log_losses(params=params, tokens=tokens)

    def joint_covariance(self, targets: Targets) -> Array:
        """Return the covariance over draws of the surface and its discrepancy."""
        return joint_covariance(self.posterior, targets, log_sparsity=self._log_sparsity(targets))

    def variants(self) -> Iterator[tuple[str, Law]]:
        """Yield each law alone, and the law refitted with outliers at full weight."""
        for name, weight in FRONTIER_WEIGHTS.items():
            if weight not in (self.frontier_weight, FRONTIER_WEIGHT):
                yield f"{name} alone", replace(self, frontier_weight=weight)
        posterior = fit_posterior(fitted_runs(self.frame), prior=self.prior, seed=self.seed, downweight_outliers=False)
        frontier = fit_frontier_posterior(posterior, seed=self.seed)
        yield f"{self.name}, outliers at full weight", replace(self, posterior=posterior, frontier=frontier)

    def report(self) -> str:
        """Return what sparsity is worth by kappa, and whether the runs or the prior say so; "" if it does not vary."""
        if not self._is_sparse:
            return ""
        kappa, at = self.posterior.unknowns[:, KAPPA], sparsity_of(self.frame)
        least, most = np.quantile(self.frame["params"] / size_column(self.frame), (0, 1))
        low, middle, high = at ** np.quantile(kappa, (0.05, 0.5, 0.95))
        is_prior = kappa.std() > _PRIOR_HOLDS * self.prior.total_params.deviation
        known = "kappa is the prior's: the runs hardly determine it" if is_prior else "the runs determine kappa"
        return "\n".join(
            [
                wrapped(f"S is {least:.3g} to {most:.3g} in these runs; {known}", "  "),
                wrapped(
                    f"N active parameters at S = {at:.3g} are worth {middle:.2g} N [{low:.2g}, {high:.2g}] of a dense model of "
                    "equal loss and tokens, if the power of S holds down to 1",
                    "  ",
                ),
            ]
        )

    @property
    def _is_sparse(self) -> bool:
        return self.posterior.runs.log_sparsity is not None

    def _frontier_draws(self) -> dict[str, Array]:
        return {f"{name}_f": draws for name, draws in self.frontier.parameters.items()}

    def _log_sparsity(self, targets: Targets) -> Array | None:
        sparsity = 1.0 if targets.total_params is None else targets.total_params / targets.params
        return log_sparsity_at(self.frame, np.asarray(sparsity))


def _named(laws: CoupledLaws) -> dict[str, Array]:
    return {"E": laws.E, "K": laws.K, "w": laws.w, "a": laws.a, "b": laws.b, "g": laws.g, "gamma": laws.gamma}


def fit_coupled_runs(table: RunTable, *, kind: LawKind, seed: int, prior: Prior | None = None) -> FitResult:
    """Fit a table that passed `refuse_hopeless`."""
    drawn = all_runs_drawn(table.frame.assign(params=size_column(table.frame)))  # N counts active parameters
    posterior = fit_posterior(fitted_runs(table.frame), prior=prior, seed=seed)
    weight = FRONTIER_WEIGHTS[kind.name]
    law = CombinedLaw(
        posterior=posterior,
        frontier=fit_frontier_posterior(posterior, seed=seed),
        frontier_weight=weight,
        frame=table.frame,
        seed=seed,
        name=kind.name,
        formula=_FORMULAS[weight] + (_SPARSE if posterior.runs.log_sparsity is not None else ""),
    )
    return FitResult.of(
        table,
        law,
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
    return np.asarray(np.log(sparsity / _middle_sparsity(frame)))


def _middle_sparsity(frame: pd.DataFrame) -> float:
    return float(np.exp(np.median(np.log(frame["params"].to_numpy(dtype=np.float64) / size_column(frame)))))


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
        FitStatus.PRIOR_ASYMPTOTE: _share_of_prior(posterior) > _PRIOR_HOLDS,
        FitStatus.ONE_RATIO: follows_one_ratio(drawn.frame),
    }


def _share_of_prior(posterior: SurfacePosterior) -> float:
    """Return the ratio of the posterior's to the prior's standard deviation of logit(K / L0), which places the asymptote."""
    return float(posterior.unknowns[:, SHARE].std() / posterior.prior.reducible_share.deviation)


def _best_run_off(posterior: SurfacePosterior) -> float:
    """Return how far the best run of the largest budget is off the median law, in standard deviations of noise and misfit."""
    runs = posterior.runs
    largest = np.flatnonzero(runs.flops >= _LARGEST * runs.flops.max())
    best = largest[[np.argmin(runs.loss[largest])]]
    sparsity = None if runs.log_sparsity is None else runs.log_sparsity[best]
    laws = posterior.log_losses(params=runs.params[best], tokens=runs.tokens[best], log_sparsity=sparsity)
    noise, misfit = variances(posterior.unknowns)
    return float((np.log(runs.loss[best[0]]) - np.median(laws)) / np.sqrt(np.median(noise) + np.median(misfit)))


def _warnings(posterior: SurfacePosterior, frame: pd.DataFrame) -> list[str]:
    thinned = f"of {len(frame)} runs the fit takes {MOST_RUNS}, half of them spread over the uppermost decade of compute"
    unsure = f"the posterior is rough: its draws are worth {posterior.worth:.0f} independent ones"
    return [*([thinned] if len(frame) > MOST_RUNS else []), *([unsure] if posterior.worth < 100 else [])]
