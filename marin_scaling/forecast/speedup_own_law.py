"""A variant against the baseline's own law: the frontier through the baseline's runs, with a free asymptote.

Draws of that law, and of the variant's losses, which are taken to scatter as the baseline's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from marin_scaling.errors import FitRefused
from marin_scaling.fit.fit_result import FitResult
from marin_scaling.fit.fit_runs import fit
from marin_scaling.fit.swept_runs import cells_of
from marin_scaling.forecast.measured_losses import MeasuredLoss
from marin_scaling.forecast.resampling import resample
from marin_scaling.forecast.speedup_draws import DRAWS, Compared, Scatter, log_speedups
from marin_scaling.laws import FrontierLaw

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.run_table import RunTable


def by_own_law(
    result: FitResult, points: Sequence[MeasuredLoss], within: Scatter | None, generator: np.random.Generator, *, seed: int
) -> Compared:
    """Each budget of the variant against the one law; the variant's optima are taken to scatter as the baseline's do."""
    assert isinstance(result.law, FrontierLaw)  # what a frontier fit has
    laws = resample(result, seed=seed, count=DRAWS).laws
    of_run, of_budget = _variant_scatter(result, within)
    draws = []
    for point in points:
        losses = np.full(DRAWS, point.loss)
        losses += of_run.draw(generator, leverage=point.leverage) if of_run else 0.0
        losses += of_budget.draw(generator) if of_budget else 0.0
        draws.append(log_speedups(laws, losses, flops=point.flops))
    said = [("a run of the variant", of_run), ("its budget, beyond that,", of_budget)]
    return Compared(
        law_fit=result,
        points=points,
        laws=[result.law] * len(points),
        draws=draws,
        noise="; ".join(each.sentence(whose, loss=points[-1].loss) for whose, each in said if each),
        warnings=tuple(f"{result.source}: {each}" for each in result.warnings),
    )


def _variant_scatter(result: FitResult, within: Scatter | None) -> tuple[Scatter | None, Scatter | None]:
    """Scatter of one run, and of a budget beyond that. A law through best runs has one scatter only, which holds both."""
    noise = result.noise
    assert noise is not None  # what a frontier fit has
    about = "the baseline about its law"
    runs = Scatter(variance=noise.run_variance, freedom=noise.run_freedom, seen_in=about)
    if not result.bowls:
        return within, runs
    if not noise.budget_variance:
        return within or runs, None
    return within or runs, Scatter(variance=noise.budget_variance, freedom=noise.budget_freedom, seen_in=about)


def fit_baseline(table: RunTable) -> FitResult:
    """The baseline's own frontier law; `FitRefused`, with the way around it, when it carries none."""
    try:
        result = fit(table, law="isoflop-frontier")
        if not result.bowls:
            result = fit(replace(table, frame=_means_of_seeds(table.frame)), law="isoflop-frontier")
    except FitRefused as error:
        _refuse_baseline(error.what, why=error.why)
    if not result.status.may_be_used:
        _refuse_baseline(f"{table.source}: {result.status.value}", why="Without a law nobody knows what compute a loss costs.")
    return result


def _refuse_baseline(what: str, *, why: str) -> NoReturn:
    raise FitRefused(
        what,
        why=why,
        fix="Give the baseline runs at four budgets or more, or compare budget by budget by a pinned law: --convention marin",
    )


def _means_of_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each size and budget whose runs differ in their seed only, with the mean loss; other rows as they are."""
    if "seed" not in frame:
        return frame
    params, tokens = (frame[name].to_numpy(dtype=np.float64) for name in ("params", "tokens"))
    by_cell = frame.assign(cell=cells_of(params, tokens)).groupby(["budget_flops", "cell"])
    seeds = by_cell["seed"].transform("nunique") == by_cell["seed"].transform("size")
    means = frame.assign(loss=frame["loss"].where(~seeds, by_cell["loss"].transform("mean")))
    return means[~seeds | (by_cell.cumcount() == 0)].reset_index(drop=True)
