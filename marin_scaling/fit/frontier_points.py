"""Fit a table of runs: choose the law that suits it, fit it, estimate the noise, say whether it may be used.

Two laws. `isoflop-frontier`: a bowl at each budget, then the frontier through their bottoms. `best-runs-frontier`: for tables
that are no isoFLOP grid, the frontier through the runs that no cheaper run beats. Both have a free asymptote. Refuses
(`FitRefused`) only what cannot carry a law at all; doubts are statuses and warnings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fit.fit_result import Allocation, FitResult, FitStatus, FrontierPoint
from marin_scaling.fit.frontier import FRONTIER_UNKNOWNS, GAMMA_BRACKET, fit_frontier
from marin_scaling.fit.isoflop import QUADRATIC_UNKNOWNS, Bowl, BowlShape, fit_bowl
from marin_scaling.fit.noise import SEED_NOISE, Noise, estimate_noise
from marin_scaling.laws import Array, FrontierLaw, frontier_loss
from marin_scaling.run.audit import Exclusion
from marin_scaling.units import format_flops

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.run_table import RunTable

LAWS = ("isoflop-frontier", "best-runs-frontier")
_BUDGET_SPREAD = 1.25  # runs of one budget that differ by more do not share a bowl: 25 % of compute moves the loss by percents


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """The points a law goes through, before it is fitted."""

    points: tuple[FrontierPoint, ...]
    bowls: tuple[Bowl, ...]
    frame: pd.DataFrame
    excluded: tuple[Exclusion, ...]
    warnings: tuple[str, ...] = ()


def fit(table: RunTable, *, law: str = "isoflop-frontier", seed: int = 0) -> FitResult:
    """Fit the runs of `table`; `seed` is kept for the resampling of forecasts (the fit itself draws nothing).

    When `law` is `isoflop-frontier` and the table is no isoFLOP grid, the best runs are taken, and `why_this_law` says so.
    """
    if law not in LAWS:
        raise UsageError(f"There is no law {law!r}.", why="A law has to be written down.", fix=f"Choose: {', '.join(LAWS)}.")
    _refuse_hopeless(table)
    name, why = _choose(table.frame, asked=law)
    drawn = _through_bowls(table.frame) if name == "isoflop-frontier" else _through_best_runs(table.frame)
    _refuse_few_points(drawn, table, name)
    flops, loss = _column(drawn, "flops"), _column(drawn, "loss")
    frontier = fit_frontier(flops, loss=loss)
    noise = _noise(drawn, residuals=loss - frontier_loss(frontier, flops=flops), table=table)
    statuses = _statuses(drawn, frontier, noise)
    return FitResult(
        law_name=name,
        why_this_law=why,
        law=frontier,
        points=drawn.points,
        bowls=drawn.bowls,
        noise=noise,
        allocation=_allocation(drawn),
        status=statuses[0],
        warnings=(*table.warnings, *drawn.warnings, *_doubts(noise, statuses)),
        frame=drawn.frame,
        excluded=(*table.excluded, *drawn.excluded),
        column_mapping=table.column_mapping,
        source=table.source,
        metric=table.metric,
        seed=seed,
    )


def _refuse_hopeless(table: RunTable) -> None:
    frame = table.frame
    if len(frame) <= FRONTIER_UNKNOWNS:
        plural = "" if len(frame) == 1 else "s"
        _refuse(
            f"{table.source} has {len(frame)} usable run{plural}; the law has {FRONTIER_UNKNOWNS} unknowns.{_left_out(table)}"
        )
    if frame["flops"].max() < _BUDGET_SPREAD * frame["flops"].min():
        _refuse(
            f"{table.source}: all {len(frame)} runs cost about {format_flops(frame['flops'].max())} FLOPs.",
            why="How loss falls with compute cannot be seen at a single budget.",
        )
    if frame["loss"].nunique() == 1:
        _refuse(
            f"{table.source}: all {len(frame)} runs have the same loss, {frame['loss'].iloc[0]:g}.",
            why="A loss that never changes says nothing about a larger run.",
            fix="Check that the right column was taken for the loss: --column loss=NAME",
        )


def _left_out(table: RunTable) -> str:
    """The runs that were left out, by name, as a sentence for a refusal; the first three of many."""
    named = "; ".join(f"{each.run}: {each.why}" for each in table.excluded[:3])
    more = f"; and {len(table.excluded) - 3} more" if len(table.excluded) > 3 else ""
    return f" Left out were {named}{more}." if table.excluded else ""


def _choose(frame: pd.DataFrame, *, asked: str) -> tuple[str, str]:
    if asked == "best-runs-frontier":
        return asked, "as asked"
    budgets = frame.groupby("budget_flops")
    bowls = sum(_has_bowl(runs) for _, runs in budgets)
    if 2 * bowls > budgets.ngroups:
        return asked, f"{bowls} of {budgets.ngroups} budgets have runs of three sizes or more"
    return "best-runs-frontier", f"no isoFLOP grid: only {bowls} of {budgets.ngroups} budgets have runs of three sizes or more"


def _has_bowl(runs: pd.DataFrame) -> bool:
    sizes = np.unique(np.round(np.log10(runs["tokens"].to_numpy()), 3))  # closer than 0.2 % is the same size
    return len(sizes) >= QUADRATIC_UNKNOWNS and bool(runs["flops"].max() <= _BUDGET_SPREAD * runs["flops"].min())


def _through_bowls(frame: pd.DataFrame) -> _Drawn:
    bowls, used, excluded = [], [], []
    for budget, runs in frame.groupby("budget_flops"):
        if _has_bowl(runs):
            bowls.append(fit_bowl(*_arrays(runs, "flops"), **dict(zip(_SIZES, _arrays(runs, *_SIZES), strict=True))))
            used.append(runs.index)
        else:
            why = f"its budget of {format_flops(float(budget))} FLOPs has runs of fewer than three sizes"  # type: ignore[arg-type]
            excluded += [Exclusion(run=str(run), why=why) for run in runs["run"]]
    points = tuple(_point_of(bowl) for bowl in bowls)
    kept = frame.loc[sorted(np.concatenate(used))] if used else frame.iloc[:0]
    return _Drawn(points=points, bowls=tuple(bowls), frame=kept, excluded=tuple(excluded), warnings=_bowl_warnings(bowls))


_SIZES = ("params", "tokens", "loss")


def _arrays(runs: pd.DataFrame, *names: str) -> list[Array]:
    return [runs[name].to_numpy(dtype=np.float64) for name in names]


def _point_of(bowl: Bowl) -> FrontierPoint:
    return FrontierPoint(
        flops=bowl.flops,
        params=bowl.optimal_params,
        tokens=bowl.optimal_tokens,
        loss=bowl.optimal_loss,
        leverage=bowl.leverage,
        run_count=bowl.run_count,
        note=bowl.shape.value,
    )


def _bowl_warnings(bowls: list[Bowl]) -> tuple[str, ...]:
    return tuple(
        f"at {format_flops(bowl.flops)} FLOPs {bowl.shape.value}" for bowl in bowls if bowl.shape is not BowlShape.CLOSED
    )


def _through_best_runs(frame: pd.DataFrame) -> _Drawn:
    """Points are the runs with a lower loss than every run that costs no more: the others bound the law from above only."""
    ordered = frame.sort_values(["flops", "loss"], kind="stable")
    loss = ordered["loss"].to_numpy()
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(loss)[:-1]])
    best = ordered[loss < best_before]
    points = tuple(
        FrontierPoint(flops=flops, params=params, tokens=tokens, loss=value, leverage=1.0, run_count=1, note="")
        for flops, params, tokens, value in best[["flops", *_SIZES]].itertuples(index=False, name=None)
    )
    note = f"the law goes through {len(best)} of {len(frame)} runs; a run that costs no more beats each of the others"
    return _Drawn(points=points, bowls=(), frame=frame, excluded=(), warnings=(note,) if len(best) < len(frame) else ())


def _refuse_few_points(drawn: _Drawn, table: RunTable, name: str) -> None:
    what = "budgets" if name == "isoflop-frontier" else "runs that no cheaper run beats"
    if len(drawn.points) < FRONTIER_UNKNOWNS:
        _refuse(
            f"{table.source} has {len(drawn.points)} usable {what}; the law has {FRONTIER_UNKNOWNS} unknowns.{_left_out(table)}"
        )


def _noise(drawn: _Drawn, *, residuals: Array, table: RunTable) -> Noise:
    leverage, loss = _column(drawn, "leverage"), _column(drawn, "loss")
    noise = estimate_noise(list(drawn.bowls), leverage=leverage, residuals=residuals, loss=loss)
    if noise.run_freedom == 0:
        _refuse(
            f"{table.source} has as many unknowns as numbers: {len(residuals)} budgets of three runs.{_left_out(table)}",
            why="Nothing would be left to say how far the forecast may be off.",
        )
    return noise


def _statuses(drawn: _Drawn, law: FrontierLaw, noise: Noise) -> list[FitStatus]:
    """All statuses that apply, worst first."""
    count = len(drawn.points)
    unclosed = sum(bowl.shape is not BowlShape.CLOSED for bowl in drawn.bowls)
    low, high = GAMMA_BRACKET
    applies = {
        FitStatus.NOT_FALLING: law.A == 0,
        FitStatus.EXPONENT_AT_EDGE: not low * 1.001 < law.gamma < high / 1.001,
        FitStatus.ONLY_THREE_BUDGETS: count == FRONTIER_UNKNOWNS,
        FitStatus.BOWLS_NOT_CLOSED: 3 * unclosed >= max(len(drawn.bowls), 1),
        FitStatus.ASYMPTOTE_AT_ZERO: law.E == 0,
        FitStatus.BUDGETS_SCATTER: noise.budgets_scatter,
        FitStatus.NOT_A_GRID: not drawn.bowls,
        FitStatus.FEW_BUDGETS: count == FRONTIER_UNKNOWNS + 1,
        FitStatus.USABLE: True,
    }
    return [status for status in FitStatus if applies[status]]


def _doubts(noise: Noise, statuses: list[FitStatus]) -> list[str]:
    """What is to be said beside the worst status: the others, and a floor under the noise."""
    others = [status.value for status in statuses[1:] if status is not FitStatus.USABLE]
    quiet = f"the runs scatter less than seeds do; {SEED_NOISE:.2%} of the loss is taken for their noise"
    return [*others, *([quiet] if noise.at_floor else [])]


def _allocation(drawn: _Drawn) -> Allocation:
    """Power laws through the optima that bowls enclose, or through all points when fewer than two are enclosed."""
    closed = [point for point in drawn.points if not point.note]
    chosen = closed if len({point.flops for point in closed}) >= 2 else list(drawn.points)
    log_flops = np.log([point.flops for point in chosen])
    centre = log_flops.mean()
    params_exponent, log_params = np.polyfit(log_flops - centre, np.log([point.params for point in chosen]), 1)
    tokens_exponent, log_tokens = np.polyfit(log_flops - centre, np.log([point.tokens for point in chosen]), 1)
    return Allocation(
        params=float(np.exp(log_params)),
        params_exponent=float(params_exponent),
        tokens=float(np.exp(log_tokens)),
        tokens_exponent=float(tokens_exponent),
        reference_flops=float(np.exp(centre)),
    )


def _column(drawn: _Drawn, name: str) -> Array:
    return np.array([getattr(point, name) for point in drawn.points], dtype=np.float64)


def _refuse(
    what: str,
    *,
    why: str = "With as few numbers as unknowns any forecast would fit, so none would mean anything.",
    fix: str = "Add runs at other budgets: at least four budgets, a factor of two or more apart, four sizes at each.",
) -> NoReturn:
    raise FitRefused(what, why=why, fix=fix)
