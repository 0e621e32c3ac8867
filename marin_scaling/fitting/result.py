"""What a fit hands on: the law, the points it was drawn through, the noise about it, and whether the numbers may be used.

Every engine returns this, so that forecasts, charts, documents and statements need not know how a law was fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from marin_scaling.fitting.bowl import Bowl
from marin_scaling.fitting.optima import FrontierPoint
from marin_scaling.laws import FrontierLaw
from marin_scaling.run.audit import Exclusion

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.fitting.allocation import Allocation
    from marin_scaling.fitting.frontier import Noise
    from marin_scaling.fitting.posterior import SurfacePosterior
    from marin_scaling.fitting.surface import SurfaceDraws

LARGE_MISFIT = 0.02
"""Of the loss: where `FitStatus.LARGE_MISFIT` begins."""


class FitStatus(Enum):
    """Whether the numbers may be used: worst first; the value is the sentence a reader sees."""

    NOT_FALLING = "Not usable: the loss does not fall with compute in these runs, so there is no law to extrapolate."
    EXPONENT_AT_EDGE = "Not usable: the best exponent lies at the edge of the searched range: no power law fits these budgets."
    ONLY_THREE_BUDGETS = "A rough guess only: three budgets determine the law's three unknowns exactly, and nothing tests it."
    TWO_BUDGETS = "A rough guess only: with fewer than three budgets most of the forecast is what other ladders have in common."
    FEW_RUNS = (
        "Use with care: as many unknowns as runs, or more; what other ladders have in common carries much of the forecast."
    )
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
        "Use with care: a surface of fixed form and its bootstrap; over public ladders such 90 % intervals held 38 to 55 % of "
        "the losses."
    )
    ONE_RATIO = "Use with care: all runs follow one rule of tokens per parameter; how the loss changes off it was not seen."
    FEW_BUDGETS = "Use with care: one budget more than unknowns tests the law barely; read the interval, not the median."
    USABLE = "Usable within its interval: the law passes through the runs as their noise allows."

    @property
    def may_be_used(self) -> bool:
        """Whether a forecast from this fit means anything."""
        return self not in (FitStatus.NOT_FALLING, FitStatus.EXPONENT_AT_EDGE)


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """A fitted law and everything a forecast, a reader or a checker needs beside it. `frame` holds the runs that were used.

    `posterior` is that of the coupled law, `surfaces` the resampled ones of a fixed form, None for other laws; `law` is the
    frontier through `points`, None where there are too few or for surfaces; `noise` is that of a frontier law. `parameters` are
    the fitted law's numbers by the letters of `formula`.
    """

    law_name: str
    formula: str
    why_this_law: str
    law: FrontierLaw | None
    posterior: SurfacePosterior | None
    parameters: Mapping[str, float]
    points: tuple[FrontierPoint, ...]
    bowls: tuple[Bowl, ...]
    noise: Noise | None
    allocation: Allocation
    status: FitStatus
    warnings: tuple[str, ...]
    frame: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    column_mapping: Mapping[str, str]
    source: str
    metric: str
    seed: int
    surfaces: SurfaceDraws | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The runs that were fitted: `run`, `budget_flops`, `flops`, `params`, `tokens`, `loss` of each.

        And `active_params` and `epochs` where the table has them: all that a fit takes from it.
        """
        columns = ["run", "budget_flops", "flops", "params", "tokens", "loss"]
        columns += [name for name in ("active_params", "epochs") if name in self.frame]
        return [dict(zip(columns, row, strict=True)) for row in self.frame[columns].itertuples(index=False, name=None)]

    @property
    def is_frontier(self) -> bool:
        """Whether the law knows the best loss of each budget only, and no other size."""
        return self.noise is not None

    @property
    def largest_flops(self) -> float:
        """FLOPs of the largest run that was fitted; for a frontier law, of the largest budget."""
        return max(point.flops for point in self.points) if self.is_frontier else float(self.frame["flops"].max())
