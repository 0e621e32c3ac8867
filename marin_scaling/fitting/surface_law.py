"""Fit surfaces of fixed form to a run table, with a bootstrap over runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling.fitting.allocation import allocation_through
from marin_scaling.fitting.huber import ADDITIVE, CentredRuns, Descended, centred, descend, numbers_of, terms, unknowns_of
from marin_scaling.fitting.optima import all_runs_drawn, loss_rises, size_column
from marin_scaling.fitting.refusals import refuse
from marin_scaling.fitting.result import LARGE_MISFIT, FitResult, FitStatus
from marin_scaling.fitting.surface import (
    FLOPS_PER_PARAM_TOKEN,
    INTERACTION,
    TIED,
    InteractionSurface,
    OverTrainingLaw,
    SurfaceDraws,
    TiedSurface,
    endless_exponents,
    fit_interaction_surface,
    fit_over_training,
    fit_surface,
    fit_tied_surface,
)
from marin_scaling.laws import Array, SurfaceLaw

if TYPE_CHECKING:
    from marin_scaling.run.table import RunTable

_SETS_AT_ONCE = 100  # a working set of a few MB; larger ones are no faster
_LEAST_GAIN = 1e-10  # of the objective; what is left to gain is far below what resampling moves


@dataclass(frozen=True, kw_only=True)
class SurfaceResamples:
    """Many surfaces L(N, D) = E + A N^-alpha + B D^-beta: arrays (set,). Where not `converged`, a way station."""

    E: Array
    A: Array
    B: Array
    alpha: Array
    beta: Array
    value: Array
    """The weighted objective that is left."""
    converged: NDArray[np.bool_]


def resample_surface(
    law: SurfaceLaw, *, params: Array, tokens: Array, loss: Array, resamples: int, seed: int, huber_delta: float = 1e-3
) -> SurfaceResamples:
    """`resamples` sets of as many runs as there are, drawn with replacement, each refitted; arrays are (run,).

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
    """How often each of `count` runs is drawn, with replacement, in each set of as many: (set, run)."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    return drawn.astype(np.float64)


def refit_surfaces(
    law: SurfaceLaw, *, params: Array, tokens: Array, loss: Array, weights: Array, huber_delta: float = 1e-3
) -> SurfaceResamples:
    """One surface for each row of `weights` (set, run), which say how often a run counts; the other arrays are (run,)."""
    runs = centred(params, tokens, loss)
    start = unknowns_of((law.E, law.A, law.B, law.alpha, law.beta), runs)
    ends = refit(start, runs, weights=weights, huber_delta=huber_delta)
    E, A, B, alpha, beta = numbers_of(ends.theta, runs).T
    return SurfaceResamples(E=E, A=A, B=B, alpha=alpha, beta=beta, value=ends.value, converged=ends.converged)


def refit(start: Array, runs: CentredRuns, *, weights: Array, huber_delta: float) -> Descended:
    """The surface of the runs' form for each row of `weights` (set, run), downhill from the unknowns `start` (unknown,)."""
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
_FEW_RUNS = 2  # times the unknowns
_LEAST_GROWTH, _LARGEST_GROWTH = -1.0, 2.0  # of N* with C; Delphi's is 0.40, Hoffmann's 0.46 to 0.50


@dataclass(frozen=True, kw_only=True)
class _Form:
    """A form by its powers, how it is fitted, and its numbers as the search has them: E, coefficients, exponents."""

    powers: Array
    formula: str
    fit: Callable[..., Any]
    numbers: Callable[[Any], tuple[float, ...]] = astuple


def _tied_numbers(law: OverTrainingLaw) -> tuple[float, ...]:
    scale = FLOPS_PER_PARAM_TOKEN**law.eta
    return law.E, law.a / scale, law.b / scale, 2 * law.eta


_FORMS = {
    "additive-surface": _Form(powers=ADDITIVE, formula="E + A * N^-alpha + B * D^-beta", fit=fit_surface),
    "tied-surface": _Form(powers=TIED, formula=TiedSurface.formula, fit=fit_tied_surface),
    "interaction-surface": _Form(powers=INTERACTION, formula=InteractionSurface.formula, fit=fit_interaction_surface),
    "over-training": _Form(powers=TIED, formula=OverTrainingLaw.formula, fit=fit_over_training, numbers=_tied_numbers),
}
SURFACE_LAWS = tuple(_FORMS)


def fit_surface_runs(table: RunTable, *, law: str, seed: int) -> FitResult:
    """Fit a table by the form of that name; `FitRefused` when too few runs or sizes carry it."""
    form, frame = _FORMS[law], table.frame
    params, (tokens, loss) = size_column(frame), (frame[name].to_numpy(dtype=np.float64) for name in ("tokens", "loss"))
    found = form.fit(params=params, tokens=tokens, loss=loss, huber_delta=HUBER_DELTA).law
    runs = centred(params, tokens, loss, powers=form.powers)
    draws = _draws(unknowns_of(form.numbers(found), runs), runs, source=table.source, seed=seed)
    drawn = all_runs_drawn(frame.assign(params=params))
    if len({point.flops for point in drawn.points}) < 2:
        refuse(
            f"{table.source}: no run has a lower loss than the cheapest, so there is no compute-optimal size to read off.",
            why="A loss that does not fall with compute says nothing about a larger run.",
            fix="Check that the right column was taken for the loss: --column loss=NAME",
        )
    allocation = allocation_through(drawn)
    if not _LEAST_GROWTH <= allocation.params_exponent <= _LARGEST_GROWTH:
        refuse(
            f"{table.source}: by its best runs the compute-optimal size would grow as C^{allocation.params_exponent:.3g}.",
            why="Sizes that follow no rule leave open which run is to be forecast.",
            fix="Add sizes at each budget, or fit the default law, which takes any table.",
        )
    statuses = _statuses(draws, rises=loss_rises(drawn))
    return FitResult(
        law_name=law,
        formula=form.formula,
        why_this_law=f"as asked, to all {len(frame)} runs",
        law=None,
        posterior=None,
        surfaces=draws,
        parameters={name: float(value) for name, value in asdict(found).items()},
        points=drawn.points,
        bowls=drawn.bowls,
        noise=None,
        allocation=allocation,
        status=statuses[0],
        warnings=(*table.warnings, *drawn.warnings, *(each.value for each in statuses[1:-1])),
        frame=frame,
        excluded=table.excluded,
        column_mapping=table.column_mapping,
        source=table.source,
        metric=table.metric,
        seed=seed,
    )


def _draws(unknowns: Array, runs: CentredRuns, *, source: str, seed: int) -> SurfaceDraws:
    count, at_runs = len(runs.loss), terms(unknowns[None], runs)[0].sum(axis=0)
    if not np.isfinite(at_runs).all():
        raise endless_exponents(unknowns, runs)
    weights = drawn_weights(count, resamples=RESAMPLES, seed=seed)
    ends = refit(unknowns, runs, weights=weights, huber_delta=HUBER_DELTA)
    if 2 * ends.converged.sum() < RESAMPLES:
        refuse(
            f"{source}: of {RESAMPLES} resamples of its {count} runs {RESAMPLES - ends.converged.sum()} carry no such surface.",
            why="What a few runs decide alone has no interval.",
            fix="Add runs, or fit the default law, which takes any table.",
        )
    scale = np.sqrt(count / (count - len(unknowns)))
    residuals = scale * (runs.log_loss - np.log(at_runs))
    return SurfaceDraws(unknowns=ends.theta[ends.converged], runs=runs, residuals=residuals)


def _statuses(draws: SurfaceDraws, *, rises: bool) -> list[FitStatus]:
    """All statuses that apply, worst first."""
    count, unknowns = len(draws.residuals), len(draws.unknowns[0])
    applies = {
        FitStatus.NOT_FALLING: rises,
        FitStatus.FEW_RUNS: count <= _FEW_RUNS * unknowns,
        FitStatus.LARGE_MISFIT: float(np.sqrt(np.mean(draws.residuals**2))) > LARGE_MISFIT,
        FitStatus.FIXED_FORM: True,
        FitStatus.USABLE: True,
    }
    return [status for status in FitStatus if applies.get(status)]
