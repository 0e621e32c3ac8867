"""Fit a table of runs by one of the laws; raise `FitRefused` for runs that determine none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from marin_scaling.errors import UsageError
from marin_scaling.fitting.law import DEFAULT_LAW, LawKind, find_law
from marin_scaling.fitting.refusals import KEPT_SHARE, best_of_cells, refuse_hopeless

if TYPE_CHECKING:
    from marin_scaling.fitting.coupled_law import Prior
    from marin_scaling.fitting.result import FitResult
    from marin_scaling.run.table import RunTable

SWEPT = ("auto", "best", "all")


def fit(
    table: RunTable, *, law: str | LawKind = DEFAULT_LAW, seed: int = 0, swept: str = "auto", prior: Prior | None = None
) -> FitResult:
    """Fit the runs of `table`; `seed` is that of the posterior's draws, or of the resampling for other laws' forecasts.

    `law` is a name of `LAWS`, or your own law (`custom_law`). `swept` chooses among runs of one size, length and cost: the best
    of each (`best`), all of them (`all`), or the best if they were swept and not replicated (`auto`). `prior` is for the
    coupled law; its default is that of `coupled_law.Prior`.

    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.simulate import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> result = fit(table)
    >>> result.law.name, result.status.may_be_used
    ('coupled-surface', True)
    """
    kind = find_law(law) if isinstance(law, str) else law
    if swept not in SWEPT:
        raise UsageError(
            f"Unknown choice of swept runs {swept!r}.",
            fix=f"Choose: {', '.join(SWEPT)}.",
        )
    chosen = table if swept == "all" else _best_of_sweep(table, forced=swept == "best")
    refuse_hopeless(chosen)
    result: FitResult = kind(chosen, seed=seed, prior=prior)
    return result


def _best_of_sweep(table: RunTable, *, forced: bool) -> RunTable:
    frame, excluded = best_of_cells(table.frame, sweep=table.sweep, forced=forced)
    if not excluded:
        return table
    varied = f" ({', '.join(table.sweep.swept)})" if table.sweep and table.sweep.swept else ""
    kept = f"the best {KEPT_SHARE:.0%} of each size and length stand for it; the forecast is of a run as well tuned"
    return replace(
        table,
        frame=frame,
        excluded=(*table.excluded, *excluded),
        warnings=(*table.warnings, f"swept runs{varied}: {kept}"),
    )
