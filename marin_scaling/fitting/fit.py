"""Fit a table of runs by one of the laws, all runs or the best of a sweep, with repeated tokens counted by their worth.

A `FitResult` has the law, the best loss of each budget, and the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import Finding, Severity, UsageError
from marin_scaling.fitting.coupled_law import Prior
from marin_scaling.fitting.law import DEFAULT_LAW, Law, LawKind, find_law
from marin_scaling.fitting.optima import Allocation, Bowl, DrawnPoints, FrontierPoint
from marin_scaling.laws import effective_tokens
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.cells import Sweep, cells_of, find_sweep, repeats_data
from marin_scaling.run.table import RunTable, signed_rows
from marin_scaling.units import counted

if TYPE_CHECKING:
    import pandas as pd


LARGE_MISFIT = 0.02
"""Share of the loss above which a discrepancy has status `FitStatus.LARGE_MISFIT`."""


class FitStatus(Enum):
    """Status of a fit, the worst first; the value is the sentence for the reader."""

    CONTRADICTED = "Not usable: the runs contradict each other or their columns; see the errors of the table's audit."
    NOT_CONVERGED = "Not usable: the search for the parameters did not converge."
    NOT_FALLING = "Not usable: the loss does not fall with compute in these runs, so there is no law to extrapolate."
    EXPONENT_AT_EDGE = "Not usable: the best exponent lies at the edge of the searched range: no power law fits these budgets."
    IMPLAUSIBLE = "Not usable: a forecast contradicts its own law or reaches too far beyond the runs; see the warnings."
    ONLY_THREE_BUDGETS = "A rough guess only: three budgets determine the law's three unknowns exactly, and nothing tests it."
    TWO_BUDGETS = (
        "A rough guess only: fewer than three optima are seen; most of the forecast is what other ladders have in common."
    )
    FEW_RUNS = (
        "Use with care: as many unknowns as runs, or more; what other ladders have in common carries much of the forecast."
    )
    BACKTEST_MISSED = "Use with care: the back-test of this table missed: larger budgets lay outside of their forecasts."
    LAWS_DISAGREE = "Use with care: the two laws of the forecast disagree by more than its 90 % interval."
    FAR_SIZE = "Use with care: the tokens per parameter of a size are more than a factor of ten from those of all runs."
    DOUBTED = "Use with care: the table's audit has warnings that bear on the forecast."
    BEST_RUN_OFF = (
        "Use with care: the best run of the largest budget lies off the law by more than its noise allows; the law may miss "
        "where the ladder is going."
    )
    LARGE_MISFIT = (
        "Use with care: the runs lie off any law of this form together, by more than 2 % of the loss; the interval has it."
    )
    BOWLS_NOT_CLOSED = "Use with care: at a third of the budgets or more the runs do not enclose the optimum."
    ASYMPTOTE_AT_ZERO = (
        "Use with care: the best asymptote is 0, the least allowed; the runs do not show where the loss levels off, "
        "so the forecast may lie low."
    )
    PRIOR_ASYMPTOTE = "Use with care: the runs do not determine the asymptote; far beyond them the forecast rests on its prior."
    BUDGETS_SCATTER = (
        "Use with care: the budgets' optima scatter more about the law than runs about bowls; the interval has it."
    )
    NOT_A_GRID = (
        "Use with care: the law goes through the best runs as they are, optimal or not, and not through bottoms of bowls."
    )
    PINNED_ASYMPTOTE = (
        "A baseline only: somebody chose the asymptote, and the interval does not hold what another choice would have given."
    )
    FIXED_FORM = (
        "Use with care: a surface of fixed form and its bootstrap; over public ladders such 90 % intervals held 49 % of the "
        "losses."
    )
    CUSTOM_LAW = "Use with care: a law of your own and its bootstrap; marin-scale backtest shows how often such intervals hold."
    ONE_RATIO = "Use with care: sizes and tokens of all runs lie on one curve; how the loss changes off it was not seen."
    FEW_BUDGETS = "Use with care: one budget more than unknowns tests the law barely; read the interval, not the median."
    USABLE = "Usable within its interval: the law passes through the runs as their noise allows."

    @property
    def may_be_used(self) -> bool:
        """True if forecasts from this fit are allowed."""
        return not self.value.startswith("Not usable")


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """A fitted law and everything that a forecast, a reader or a checker needs. `frame` has the runs that were used.

    `points` are the best losses of budgets, `bowls` their parabolas. `refit` fits another table with the same law, prior and
    seed. `findings` are those of the table's audit; their messages are in `warnings`.
    """

    law: Law
    why_this_law: str
    points: tuple[FrontierPoint, ...]
    bowls: tuple[Bowl, ...]
    allocation: Allocation
    status: FitStatus
    warnings: tuple[str, ...]
    frame: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    column_mapping: Mapping[str, str]
    source: str
    metric: str
    seed: int
    refit: Callable[[RunTable], FitResult]
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(
        cls,
        table: RunTable,
        law: Law,
        *,
        kind: LawKind,
        seed: int,
        prior: Prior | None,
        drawn: DrawnPoints,
        allocation: Allocation,
        applies: Mapping[FitStatus, bool],
        why: str,
        warnings: Iterable[str] = (),
    ) -> FitResult:
        """Combine a law with its table; the worst of the statuses is the status, the others are warnings."""
        severities = {each.severity for each in table.findings}
        holds = {
            **applies,
            FitStatus.CONTRADICTED: Severity.ERROR in severities,
            FitStatus.DOUBTED: Severity.WARNING in severities,
        }
        status, *others = [each for each in FitStatus if holds.get(each, False)] or [FitStatus.USABLE]
        others = [each for each in others if each is not FitStatus.DOUBTED]  # its warnings are listed
        kind = kind if kind.name == law.name else find_law(law.name)
        return cls(
            law=law,
            why_this_law=why,
            points=drawn.points,
            bowls=drawn.bowls,
            allocation=allocation,
            status=status,
            warnings=(
                *table.warnings,
                *drawn.warnings,
                *(each.value for each in others),
                *warnings,
            ),
            frame=table.frame.loc[drawn.frame.index],
            excluded=(*table.excluded, *drawn.excluded),
            column_mapping=table.column_mapping,
            source=table.source,
            metric=table.metric,
            seed=seed,
            refit=partial(kind, seed=seed, prior=prior),
            findings=table.findings,
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the signed columns of the fitted runs, which are all that a fit uses of a table."""
        frame = self.frame
        if self.has_effective_tokens:
            frame = frame.assign(tokens=frame["trained_tokens"], flops=frame["trained_flops"])
        return signed_rows(frame)

    @property
    def has_effective_tokens(self) -> bool:
        """True if runs repeat data: `tokens` and `flops` of `frame` are effective ones, `trained_tokens` what was trained."""
        return "trained_tokens" in self.frame

    @cached_property
    def largest_flops(self) -> float:
        """FLOPs of the largest fitted run; for a law of compute-optimal runs only, of the largest budget."""
        trained = "trained_flops" if self.has_effective_tokens else "flops"
        return float(self.frame[trained].max()) if self.law.knows_any_size else max(point.flops for point in self.points)


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
    return _whole_sweep(table) if swept == "all" else _best_of_sweep(table, forced=swept == "best")


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


def _whole_sweep(table: RunTable) -> RunTable:
    _, excluded = best_of_cells(table.frame, sweep=table.sweep)
    if not excluded:
        return table
    said = f"all runs of the sweep are fitted, {counted(len(excluded), 'run')} of them not the best of their size and length"
    why = "the forecast is of a run tuned as these are on average (--swept best forecasts a tuned one)"
    return replace(table, warnings=(*table.warnings, f"{said}: {why}"))


def _best_of_sweep(table: RunTable, *, forced: bool) -> RunTable:
    frame, excluded = best_of_cells(table.frame, sweep=table.sweep, forced=forced)
    if not excluded:
        return table
    varied = f" ({', '.join(table.sweep.swept)})" if table.sweep and table.sweep.swept else ""
    kept = (
        "the best run of each size and length stands for it; the forecast is of a run as well tuned "
        "(`marin-scale tune` estimates what other tuning costs)"
    )
    return replace(
        table,
        frame=frame,
        excluded=(*table.excluded, *excluded),
        warnings=(*table.warnings, f"swept runs{varied}: {kept}"),
    )


def best_of_cells(
    frame: pd.DataFrame, *, sweep: Sweep | None = None, forced: bool = False
) -> tuple[pd.DataFrame, tuple[Exclusion, ...]]:
    """Return the best run of each cell of a swept table, and the others as exclusions.

    Runs with the same swept values, which differ in their seed, have the same `setting`. Of a frame with that column, all runs
    of the setting with the lowest mean loss stay.

    The forecast is that of a tuned run. On two public grids of 25 and 16 cells, the best 30 % of each cell forecast the best
    runs of larger cells with 1.2 and 1.9 times the CRPS of the best runs alone (lab book, 29 November 2026).

    `frame` itself is returned if it is not swept, unless `forced`. Without `sweep`, its column `seed` tells.
    """
    sweep = find_sweep(frame, frame[[name for name in ("seed",) if name in frame]]) if sweep is None else sweep
    if not (forced or sweep.is_in(frame)):
        return frame, ()
    frame = frame.reset_index(drop=True)
    cells, of_what = cells_of(frame), "settings" if "setting" in frame else "runs"
    settings = frame["setting"] if "setting" in frame else frame.index.to_series()
    by_cell = frame["loss"].groupby([cells, settings]).transform("mean").groupby(cells)
    kept = (settings == settings[by_cell.idxmin().iloc[cells]].to_numpy()).to_numpy()
    better, counts = by_cell.rank(method="dense") - 1, settings.groupby(cells).transform("nunique")
    swept = f"swept in {', '.join(sweep.swept[:3])}" if sweep.swept else "swept"
    excluded = tuple(
        Exclusion(
            run=str(run),
            why=f"{swept}: {int(before)} of the {count} {of_what} of its size and tokens are lower (--swept all keeps it)",
        )
        for run, before, count in zip(frame["run"][~kept], better[~kept], counts[~kept], strict=True)
    )
    return frame[kept].reset_index(drop=True), excluded
