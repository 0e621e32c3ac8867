"""Result of a fit: the law, the best loss of each budget, and the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from marin_scaling.errors import Finding, Severity
from marin_scaling.fitting.law import Law, LawKind, find_law
from marin_scaling.fitting.optima import Bowl, DrawnPoints, FrontierPoint
from marin_scaling.run.audit import Exclusion
from marin_scaling.run.table import RunTable, signed_rows

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.fitting.allocation import Allocation
    from marin_scaling.fitting.coupled_law import Prior

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
    ONE_RATIO = "Use with care: all runs follow one rule of tokens per parameter; how the loss changes off it was not seen."
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
