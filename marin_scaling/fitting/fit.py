"""Fit a table of runs by one of the laws, all runs or the best of a sweep, with repeated tokens counted by their worth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from marin_scaling.errors import UsageError
from marin_scaling.fitting.law import DEFAULT_LAW, LawKind, find_law
from marin_scaling.laws import effective_tokens
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.cells import Sweep, cells_of, find_sweep, repeats_data

if TYPE_CHECKING:
    import pandas as pd

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
    laws of all runs; its default is that of `coupled_law.Prior`.

    >>> from marin_scaling.laws import SurfaceLaw
    >>> from marin_scaling.run.table import simulate_ladder
    >>> law = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
    >>> table = simulate_ladder(law, budgets_flops=[1e18, 1e19, 1e20], sizes_per_budget=5, noise=0.001, seed=0)
    >>> result = fit(table)
    >>> result.law.name, result.status.may_be_used
    ('combined', True)
    """
    kind = find_law(law) if isinstance(law, str) else law
    chosen = chosen_runs(table, swept=swept)
    result: FitResult = kind(with_effective_tokens(chosen), seed=seed, prior=prior)
    return result


def chosen_runs(table: RunTable, *, swept: str = "auto") -> RunTable:
    """Return the runs that `fit` takes of those of one size, length and cost."""
    if swept not in SWEPT:
        raise UsageError(
            f"Unknown choice of swept runs {swept!r}.",
            fix=f"Choose: {', '.join(SWEPT)}.",
        )
    return table if swept == "all" else _best_of_sweep(table, forced=swept == "best")


def with_effective_tokens(table: RunTable) -> RunTable:
    """Return the table with effective tokens, and FLOPs in proportion, if any run repeats data.

    The laws thus see runs on new tokens. The columns `trained_tokens` and `trained_flops` keep what was trained.
    """
    frame = table.frame
    if "trained_tokens" in frame or not repeats_data(frame):
        return table
    tokens, flops, unique = frame["tokens"], frame["flops"], frame["tokens"] / frame["epochs"]
    share = effective_tokens(tokens, unique_tokens=unique) / tokens
    worth = frame.assign(tokens=tokens * share, flops=flops * share, trained_tokens=tokens, trained_flops=flops)
    return replace(table, frame=worth)


def _best_of_sweep(table: RunTable, *, forced: bool) -> RunTable:
    frame, excluded = best_of_cells(table.frame, sweep=table.sweep, forced=forced)
    if not excluded:
        return table
    varied = f" ({', '.join(table.sweep.swept)})" if table.sweep and table.sweep.swept else ""
    kept = (
        f"the best {KEPT_SHARE:.0%} of each size and length stand for it; the forecast is of a run as well tuned "
        "(`marin-scale tune` estimates what other tuning costs)"
    )
    return replace(
        table,
        frame=frame,
        excluded=(*table.excluded, *excluded),
        warnings=(*table.warnings, f"swept runs{varied}: {kept}"),
    )


KEPT_SHARE = 0.3


def best_of_cells(
    frame: pd.DataFrame, *, sweep: Sweep | None = None, forced: bool = False
) -> tuple[pd.DataFrame, tuple[Exclusion, ...]]:
    """Return the best runs of each cell of a swept table, at least one, and the others as exclusions.

    `frame` itself is returned if it is not swept, unless `forced`. Without `sweep`, its column `seed` tells.
    """
    sweep = find_sweep(frame, frame[[name for name in ("seed",) if name in frame]]) if sweep is None else sweep
    if not (forced or sweep.is_in(frame)):
        return frame, ()
    by_cell = frame["loss"].groupby(cells_of(frame))
    better, runs = by_cell.rank(method="first").to_numpy() - 1, by_cell.transform("size").to_numpy()
    kept = better < KEPT_SHARE * runs
    varied = f" in {', '.join(sweep.swept[:3])}" if sweep.swept else ""
    excluded = tuple(
        Exclusion(
            run=str(run),
            why=f"swept{varied}: {int(before)} of the {int(count)} runs of its size and tokens are lower "
            "(--swept all keeps it)",
        )
        for run, before, count in zip(frame["run"][~kept], better[~kept], runs[~kept], strict=True)
    )
    return frame[kept].reset_index(drop=True), excluded
