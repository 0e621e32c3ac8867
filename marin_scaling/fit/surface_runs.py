"""Fit a surface of fixed form to all runs of a table, with a bootstrap over runs: how most forecast since Hoffmann et al. 2022.

For comparison with the default law, which has such surfaces as special cases: the bootstrap knows of other runs, and not of
another form. `surface_forms` says what the forms are and where they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_scaling.fit.allocation import allocation_through
from marin_scaling.fit.coupled_runs import size_column
from marin_scaling.fit.fit_result import LARGE_MISFIT, FitResult, FitStatus
from marin_scaling.fit.frontier_points import all_runs_drawn, loss_rises
from marin_scaling.fit.log_huber import ADDITIVE, CentredRuns, centred, terms, unknowns_of
from marin_scaling.fit.refusals import refuse
from marin_scaling.fit.surface import endless_exponents, fit_surface
from marin_scaling.fit.surface_bootstrap import drawn_weights, refit
from marin_scaling.fit.surface_forms import (
    FLOPS_PER_PARAM_TOKEN,
    INTERACTION,
    TIED,
    InteractionSurface,
    OverTrainingLaw,
    TiedSurface,
    fit_interaction_surface,
    fit_over_training,
    fit_tied_surface,
)
from marin_scaling.laws import Array

if TYPE_CHECKING:
    from marin_scaling.run.run_table import RunTable

RESAMPLES = 1000
HUBER_DELTA = 1e-3
_FEW_RUNS = 2  # times the unknowns
_LEAST_GROWTH, _LARGEST_GROWTH = -1.0, 2.0  # of N* with C; Delphi's is 0.40, Hoffmann's 0.46 to 0.50


@dataclass(frozen=True, kw_only=True)
class SurfaceDraws:
    """Surfaces refitted to resampled runs: `unknowns` (set, unknown) about the middle of `runs`.

    `residuals` (run,): log residuals of the surface of all runs, scaled up for the unknowns that were fitted to them.
    """

    unknowns: Array
    runs: CentredRuns
    residuals: Array

    def losses(self, *, params: Array, tokens: Array) -> Array:
        """Loss of every surface at targets (target,): (set, target)."""
        x, y = np.log([params, tokens]) - self.runs.means[:, None]
        return np.asarray(terms(self.unknowns, replace(self.runs, x=x, y=y)).sum(axis=1))


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
