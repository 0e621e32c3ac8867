"""Fit a table of runs by one of the laws, and refuse (`FitRefused`) what can carry none.

`coupled-surface`, the default, takes all runs of any table and gives a posterior. `isoflop-frontier` and `best-runs-frontier`
are the usual practice with a free asymptote: they see the best loss of each budget only; `pinned-frontier@1.6` is the same with
an asymptote that somebody chose. The surfaces of fixed form
(`surface_law`) take all runs, and their bootstrap knows of no other form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from marin_scaling.errors import UsageError
from marin_scaling.fitting.coupled_fit import fit_coupled_runs
from marin_scaling.fitting.frontier import PINNED_LAW, pinned_asymptote
from marin_scaling.fitting.frontier_law import fit_frontier_runs
from marin_scaling.fitting.refusals import KEPT_SHARE, best_of_cells, refuse_hopeless
from marin_scaling.fitting.result import FitResult
from marin_scaling.fitting.surface_law import SURFACE_LAWS, fit_surface_runs

if TYPE_CHECKING:
    from marin_scaling.fitting.coupled_law import Prior
    from marin_scaling.run.table import RunTable

LAWS = ("coupled-surface", "isoflop-frontier", "best-runs-frontier", *SURFACE_LAWS)
LAW_NAMES = (*LAWS, f"{PINNED_LAW}1.6 (or any other asymptote)")
SWEPT = ("best", "all")


def fit(
    table: RunTable, *, law: str = "coupled-surface", seed: int = 0, swept: str = "best", prior: Prior | None = None
) -> FitResult:
    """Fit the runs of `table`; `seed` is that of the posterior's draws, or of the resampling behind other laws' forecasts.

    `swept` says which runs of a table with several of each size stand for it: the best of each, or all. `prior` is for the
    coupled law; its default is that of `coupled_law.Prior`.

    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.simulate import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> result = fit(table)
    >>> result.law_name, result.status.may_be_used
    ('coupled-surface', True)
    """
    if not is_law(law):
        raise _unknown(law, LAW_NAMES, "law")
    if swept not in SWEPT:
        raise _unknown(swept, SWEPT, "choice of swept runs")
    chosen = table if swept == "all" else _best_of_sweep(table)
    refuse_hopeless(chosen)
    if law == "coupled-surface":
        return fit_coupled_runs(chosen, seed=seed, prior=prior)
    if law in SURFACE_LAWS:
        return fit_surface_runs(chosen, law=law, seed=seed)
    return fit_frontier_runs(chosen, law=law, seed=seed)


def _best_of_sweep(table: RunTable) -> RunTable:
    frame, excluded = best_of_cells(table.frame)
    if not excluded:
        return table
    said = f"swept runs: the best {KEPT_SHARE:.0%} of each size and length stand for it; the forecast is of a run as well tuned"
    return replace(table, frame=frame, excluded=(*table.excluded, *excluded), warnings=(*table.warnings, said))


def knows_optima_only(law: str) -> bool:
    """Whether a law forecasts the best run of a budget and no other size."""
    return law != "coupled-surface" and law not in SURFACE_LAWS


def is_law(name: str) -> bool:
    """Whether `fit` knows a law of that name; `UsageError` for a pinned one without its number."""
    return name in LAWS or pinned_asymptote(name) is not None


def _unknown(name: str, known: tuple[str, ...], what: str) -> UsageError:
    return UsageError(f"There is no {what} {name!r}.", why="It has to be written down.", fix=f"Choose: {', '.join(known)}.")
