"""Fit the additive surface to a run table, with a bootstrap over runs."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.fit import LARGE_MISFIT, FitResult, FitStatus
from marin_scaling.fitting.law import Law, LawKind, LossDraws, Targets, refuse
from marin_scaling.fitting.optima import all_runs_drawn, allocation_of_best_runs, loss_rises, size_column
from marin_scaling.fitting.surface import (
    SURFACE_UNKNOWNS,
    CentredRuns,
    Descended,
    centred,
    descend,
    endless_exponents,
    fit_surface,
    numbers_of,
    terms,
    unknowns_of,
)
from marin_scaling.laws import Array, SurfaceLaw, surface_loss
from marin_scaling.run.table import RunTable
from marin_scaling.units import format_number

_SETS_AT_ONCE = 100  # a working set of a few MB; larger ones are no faster
_LEAST_GAIN = 1e-10  # of the objective, far below the effect of resampling


@dataclass(frozen=True, kw_only=True)
class SurfaceResamples:
    """Many surfaces L(N, D) = E + A N^-alpha + B D^-beta: arrays (set,); intermediate points where not `converged`."""

    E: Array
    A: Array
    B: Array
    alpha: Array
    beta: Array
    value: Array
    """Weighted objective of each set."""
    converged: NDArray[np.bool_]


def resample_surface(
    law: SurfaceLaw, *, params: Array, tokens: Array, loss: Array, resamples: int, seed: int, huber_delta: float = 1e-3
) -> SurfaceResamples:
    """Refit `resamples` sets of as many runs, drawn with replacement; arrays are (run,).

    `law` is the log-Huber optimum of all runs (`fit_surface`). Equal seeds give equal sets.

    >>> params, tokens = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 1e10, 6), np.geomspace(1e9, 1e11, 6)))
    >>> noise = np.exp(0.001 * np.random.default_rng(0).standard_normal(36))
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> loss = (law.E + law.A * params**-law.alpha + law.B * tokens**-law.beta) * noise
    >>> draws = resample_surface(law, params=params, tokens=tokens, loss=loss, resamples=200, seed=0)
    >>> bool(draws.converged.all()), bool(0.001 < draws.alpha.std() < 0.01)
    (True, True)
    """
    weights = drawn_weights(len(loss), resamples=resamples, seed=seed)
    return refit_surfaces(law, params=params, tokens=tokens, loss=loss, weights=weights, huber_delta=huber_delta)


def drawn_weights(count: int, *, resamples: int, seed: int) -> Array:
    """Return how often each of `count` runs is drawn, with replacement, in each set: (set, run)."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    return drawn.astype(np.float64)


def refit_surfaces(
    law: SurfaceLaw, *, params: Array, tokens: Array, loss: Array, weights: Array, huber_delta: float = 1e-3
) -> SurfaceResamples:
    """Fit one surface per row of `weights` (set, run), the multiplicities of runs; the other arrays are (run,)."""
    runs = centred(params, tokens, loss)
    start = unknowns_of((law.E, law.A, law.B, law.alpha, law.beta), runs)
    ends = refit(start, runs, weights=weights, huber_delta=huber_delta)
    E, A, B, alpha, beta = numbers_of(ends.theta, runs).T
    return SurfaceResamples(E=E, A=A, B=B, alpha=alpha, beta=beta, value=ends.value, converged=ends.converged)


def refit(start: Array, runs: CentredRuns, *, weights: Array, huber_delta: float) -> Descended:
    """Fit the surface of the runs' form for each row of `weights` (set, run), from the unknowns `start` (unknown,)."""
    ends = [
        descend(np.tile(start, (len(some), 1)), runs, weights=some, delta=huber_delta, least_gain=_LEAST_GAIN)
        for some in np.array_split(weights, range(_SETS_AT_ONCE, len(weights), _SETS_AT_ONCE))
    ]
    return Descended(
        theta=np.concatenate([each.theta for each in ends]),
        value=np.concatenate([each.value for each in ends]),
        converged=np.concatenate([each.converged for each in ends]),
    )


RESAMPLES = 1000
HUBER_DELTA = 1e-3
_FEW_RUNS = 2  # per unknown


@dataclass(frozen=True, kw_only=True)
class AdditiveSurface(Law):
    """The additive surface of all runs, and `unknowns` (set, unknown) of refits to resampled runs.

    `residuals` (run,) are log residuals of the surface of all runs, scaled up for the fitted unknowns.
    """

    surface: SurfaceLaw
    unknowns: Array
    runs: CentredRuns
    residuals: Array
    source: str
    name: str = "additive-surface"
    formula: str = "E + A * N^-alpha + B * D^-beta"

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters at the log-Huber optimum of all runs."""
        return asdict(self.surface)

    def formula_losses(self, targets: Targets) -> Array:
        """Return the surface of all runs at each target."""
        return surface_loss(self.surface, params=targets.params, tokens=targets.tokens)

    def draws(self, targets: Targets, *, seed: int) -> LossDraws:
        """Draw from every resampled surface, with resampled residuals as the noise of a new run."""
        law = self._losses(targets.params, targets.tokens)
        if not np.isfinite(law).all():
            raise FitRefused(
                f"{self.source}: no forecast of a run of {format_number(targets.params[0], 3)} parameters: resampled surfaces "
                "grow without "
                "end there.",
                why="A term with a large exponent, which few runs determine, has no bound away from them.",
                fix="Forecast nearer to the runs, add runs, or fit the default law.",
            )
        noise = law * np.expm1(np.random.default_rng(seed).choice(self.residuals, size=(len(law), 1)))
        return LossDraws(losses=law + noise, causes={"noise": noise, "sampling": law})

    def parameter_draws(self) -> dict[str, Array]:
        """Return the parameters of the resampled surfaces."""
        return dict(zip(self.parameters, numbers_of(self.unknowns, self.runs).T, strict=True))

    def _losses(self, params: Array, tokens: Array) -> Array:
        x, y = np.log([params, tokens]) - self.runs.means[:, None]
        return np.asarray(terms(self.unknowns, replace(self.runs, x=x, y=y)).sum(axis=1))


def fit_surface_runs(table: RunTable, *, kind: LawKind, seed: int, prior: Prior | None = None) -> FitResult:
    """Fit a table by the additive surface; `FitRefused` for too few runs or sizes."""
    frame = table.frame
    params, (tokens, loss) = size_column(frame), (frame[name].to_numpy(dtype=np.float64) for name in ("tokens", "loss"))
    surface = fit_surface(params=params, tokens=tokens, loss=loss, huber_delta=HUBER_DELTA).law
    law = _with_resamples(surface, centred(params, tokens, loss), source=table.source, seed=seed)
    drawn = all_runs_drawn(frame.assign(params=params))
    return FitResult.of(
        table,
        law,
        kind=kind,
        seed=seed,
        prior=prior,
        drawn=drawn,
        allocation=allocation_of_best_runs(drawn, source=table.source),
        applies={
            FitStatus.NOT_FALLING: loss_rises(drawn),
            FitStatus.FEW_RUNS: len(frame) <= _FEW_RUNS * SURFACE_UNKNOWNS,
            FitStatus.LARGE_MISFIT: float(np.sqrt(np.mean(law.residuals**2))) > LARGE_MISFIT,
            FitStatus.FIXED_FORM: True,
        },
        why=f"as asked, to all {len(frame)} runs",
    )


def _with_resamples(surface: SurfaceLaw, runs: CentredRuns, *, source: str, seed: int) -> AdditiveSurface:
    unknowns = unknowns_of(astuple(surface), runs)
    count, at_runs = len(runs.loss), terms(unknowns[None], runs)[0].sum(axis=0)
    if not np.isfinite(at_runs).all():
        raise endless_exponents(unknowns, runs)
    weights = drawn_weights(count, resamples=RESAMPLES, seed=seed)
    ends = refit(unknowns, runs, weights=weights, huber_delta=HUBER_DELTA)
    if 2 * ends.converged.sum() < RESAMPLES:
        refuse(
            f"{source}: of {RESAMPLES} resamples of its {count} runs {RESAMPLES - ends.converged.sum()} carry no such surface.",
            why="An interval needs results that do not depend on a few runs.",
            fix="Add runs, or fit the default law, which takes any table.",
        )
    scale = np.sqrt(count / (count - len(unknowns)))
    residuals = scale * (runs.log_loss - np.log(at_runs))
    return AdditiveSurface(surface=surface, unknowns=ends.theta[ends.converged], runs=runs, residuals=residuals, source=source)
