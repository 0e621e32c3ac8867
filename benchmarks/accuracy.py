"""Leave-future-out accuracy and calibration: the product, its laws alone, baselines, and others, on the same runs.

Every budget of every suite is forecast from the smaller ones; scored are all runs at 3x or more beyond the largest that was
fitted. The product is also scored by suite and by regime: few sizes, one run a budget, one ratio of tokens per parameter, and
targets near the optimum and off it. `--data DIR` names the folder with the suites that are not in this repository;
`--simulated` adds ladders from laws in and outside the form that is fitted; `--prototype FILE` adds a module with
`forecast(train, target) -> (levels, quantiles)`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from baselines import BASELINES
from report import parser, publish
from simulated_families import simulated_tables
from suites import near_optimum, public_suites, thinned

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.law import DEFAULT_LAW
from marin_scaling.forecast.backtest import BacktestPoint, Forecaster, backtest, summarise, with_law
from marin_scaling.run.table import RunTable

NEAREST, FAR = 3.0 * (1 - 1e-3), 10.0 * (1 - 1e-3)  # budgets are off their nominal FLOPs by parts in ten thousand


def thinned_first(regime: str, forecaster: Forecaster) -> Forecaster:
    """Forecast from the runs of one regime of `thinned`; refuse tables that do not have it."""

    def predict(known: RunTable, beyond: pd.DataFrame) -> Sequence[Mapping[float, float]]:
        runs = thinned(known).get(regime)
        if runs is None:
            raise FitRefused(f"{known.source}: no {regime}", fix="")
        return forecaster(runs, beyond)

    return predict


def scored(table: RunTable, forecaster: Forecaster | None) -> tuple[list[BacktestPoint], int]:
    result = backtest(table, forecaster=forecaster)
    return [point for point in result.points if point.extrapolation >= NEAREST], len(result.refused)


def prototype(file: Path) -> Forecaster:
    spec = importlib.util.spec_from_file_location("prototype", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    columns = ["flops", "params", "tokens"]

    def predict(known: RunTable, beyond: pd.DataFrame) -> list[dict[float, float]]:
        levels, values = module.forecast(known.frame[[*columns, "loss"]], beyond[columns])
        return [dict(zip(map(float, levels), map(float, row), strict=True)) for row in values]

    return predict


OURS = "marin-scaling"
FEW_BUDGETS = 3
Scored = dict[tuple[str, float, str], BacktestPoint]
"""Forecasts by suite, cut and run."""


def far_error(points: Iterable[BacktestPoint]) -> str:
    """The median error at ten times the ladder and more, every forecast counted once; empty where there is none."""
    far = [abs(point.error) for point in points if point.extrapolation >= FAR]
    return f"{np.median(far):.2%}" if far else ""


def row_of(name: str, points: Scored, ours: Scored, refused: int, seconds: float | None) -> list[str]:
    found = summarise(list(points.values()), nearest=NEAREST, farthest=np.inf)
    width = np.mean([(point.quantiles[0.95] - point.quantiles[0.05]) / point.observed for point in points.values()])
    both = points.keys() & ours.keys()
    theirs, our_own = (np.mean([each[key].crps / each[key].observed for key in both]) for each in (points, ours))
    there = f"{our_own:.3%}" + (f" (it {theirs:.3%})" if len(both) < len(points) else "")
    return [
        name,
        str(found.count),
        f"{found.median_absolute_error:.2%}",
        far_error(points.values()),
        f"{found.bias:+.2%}",
        f"{found.inside_50:.0%}",
        f"{found.inside_90:.0%}",
        f"{found.crps:.3%}",
        by_suite_score(points),
        "" if points is ours else there,
        f"{width:.1%}",
        str(refused),
        f"{seconds:.0f}" if seconds is not None else "",
    ]


def far_error_by_suite(points: Scored) -> float:
    """The median error at 10x and more in which each suite weighs the same, however many forecasts it has."""
    far = [(suite.partition(" #")[0], abs(point.error)) for (suite, *_), point in points.items() if point.extrapolation >= FAR]
    counts = Counter(suite for suite, _ in far)
    ordered = sorted(far, key=lambda pair: pair[1])
    weights = np.cumsum([1 / counts[suite] for suite, _ in ordered])
    return ordered[int(np.searchsorted(weights, weights[-1] / 2))][1]


def by_suite_score(points: Scored) -> str:
    """The mean over suites of the mean over splits of the CRPS, as a share of the loss."""
    frame = pd.DataFrame(
        [(suite.partition(" #")[0], suite, cut, each.crps / each.observed) for (suite, cut, _), each in points.items()],
        columns=["family", "suite", "cut", "crps"],
    )
    splits = frame.groupby(["family", "suite", "cut"])["crps"].mean()
    return f"{splits.groupby('family').mean().mean():.3%}"


def scores_of(suites: Mapping[str, RunTable], forecaster: Forecaster | None) -> tuple[Scored, int]:
    """Return all forecasts of a forecaster, and how many cuts it refused."""
    points: Scored = {}
    refused = 0
    for suite, table in suites.items():
        some, refusals = scored(replace(table, source=suite), forecaster)
        points |= {(suite, point.cut_flops, point.run): point for point in some}
        refused += refusals
    return points, refused


def regimes_of(suites: Mapping[str, RunTable], ours: Scored) -> list[list[str]]:
    """Return a row for targets near the optimum and off it, and for each way of having fewer runs."""
    near = {(suite, run) for suite, table in suites.items() for run in table.frame["run"][near_optimum(table.frame)]}
    of_near = {key: point for key, point in ours.items() if (key[0], key[2]) in near}
    parts = {
        "targets near the optimum": of_near,
        "targets off the optimum": {key: point for key, point in ours.items() if key not in of_near},
        "three budgets or fewer fitted": {
            key: point for key, point in ours.items() if budgets_below(suites[key[0]], key[1]) <= FEW_BUDGETS
        },
    }
    for regime in ("four sizes", "one run a budget", "one ratio"):
        parts[f"from {regime}"] = scores_of(suites, thinned_first(regime, with_law(DEFAULT_LAW)))[0]
    return [row_of(f"{name}, {OURS}", points, points, 0, None) for name, points in parts.items()]


def budgets_below(table: RunTable, cut: float) -> int:
    frame = table.frame
    return int(frame.loc[frame["flops"] <= cut * (1 + 1e-9), "budget_flops"].nunique())


COLUMNS = (
    "suite, forecaster",
    "forecasts",
    "error",
    "error at 10x",
    "bias",
    "in 50 %",
    "in 90 %",
    "CRPS",
    "CRPS, suites equal",
    "ours there",
    "90 % width",
    "refused",
    "s",
)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, help="folder with the suites that are not in this repository")
    arguments.add_argument("--simulated", type=int, default=0, metavar="LADDERS", help="simulated ladders of each family")
    arguments.add_argument("--prototype", type=Path, help="another forecaster: a Python file")
    options = arguments.parse_args()
    alone = {f"`--law {name}`": with_law(name) for name in ("coupled-surface", "all-runs-frontier")}
    forecasters: dict[str, Forecaster | None] = {OURS: None, **alone, **BASELINES}
    if options.prototype:
        forecasters["prototype"] = prototype(options.prototype)
    groups = {"public": public_suites(options.data)}
    if options.simulated:
        groups["simulated"] = simulated_tables(options.simulated)
    rows: list[list[str]] = []
    far: list[str] = []
    for group, suites in groups.items():
        ours: Scored = {}
        for name, forecaster in forecasters.items():
            began = time.perf_counter()
            points, refused = scores_of(suites, forecaster)
            ours = ours or points
            rows.append(row_of(f"**all {group}, {name}**", points, ours, refused, time.perf_counter() - began))
            print(rows[-1], file=sys.stderr)
        rows += [
            row_of(family, some, some, 0, None)
            for family in dict.fromkeys(suite.partition(" #")[0] for suite in suites)
            if (some := {key: point for key, point in ours.items() if key[0].partition(" #")[0] == family})
        ]
        far.append(f"Error at 10x of {OURS}, all {group}, each suite counting the same: {far_error_by_suite(ours):.2%}.")
        if group == "public":
            rows += regimes_of(suites, ours)
    publish(
        "Leave-future-out forecasts at 3x and more",
        columns=COLUMNS,
        rows=rows,
        packages=("numpy", "scipy", "pandas"),
        notes=[
            "error: median of |median / observed - 1|; bias: its median with sign; CRPS and width as shares of the loss; "
            "refused: cuts from which a forecaster gives nothing; s: seconds for all cuts.",
            "Runs of one budget are forecast wrong together: the effective number of forecasts is that of cuts and budgets.",
            "The suites were also those that the prior's widths and the drift were set on (`calibrate.py`).",
            "ours there: our CRPS on the forecasts that both give (and the other's, where that is fewer than it gives).",
            *far,
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
