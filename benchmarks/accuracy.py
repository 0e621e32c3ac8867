"""Leave-future-out accuracy and calibration: the product, three baselines, and any other forecaster, on the same runs.

Every budget of every suite is forecast from the smaller ones; scored are all runs at 3x or more beyond the largest that was
fitted. `--data DIR` names the folder with the suites that are not in this repository; `--simulated` adds ladders from laws in
and outside the form that is fitted; `--prototype FILE` adds a module with `forecast(train, target) -> (levels, quantiles)`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from baselines import BASELINES
from report import parser, publish
from simulated_families import simulated_tables
from suites import public_suites

from marin_scaling.forecast.backtest import BacktestPoint, Forecaster, backtest, summarise
from marin_scaling.run.table import RunTable

NEAREST, FAR = 3.0 * (1 - 1e-3), 10.0 * (1 - 1e-3)  # budgets are off their nominal FLOPs by parts in ten thousand


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


COLUMNS = (
    "suite, forecaster",
    "forecasts",
    "error",
    "error at 10x",
    "bias",
    "in 50 %",
    "in 90 %",
    "CRPS",
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
    forecasters: dict[str, Forecaster | None] = {"marin-scaling": None, **BASELINES}
    if options.prototype:
        forecasters["prototype"] = prototype(options.prototype)
    groups = {"public": public_suites(options.data)}
    if options.simulated:
        groups["simulated"] = simulated_tables(options.simulated)
    rows: list[list[str]] = []
    by_suite: list[str] = []
    for group, suites in groups.items():
        ours: Scored = {}
        for name, forecaster in forecasters.items():
            began, refused = time.perf_counter(), 0
            points: Scored = {}
            for suite, table in suites.items():
                some, refusals = scored(replace(table, source=suite), forecaster)
                points |= {(suite, point.cut_flops, point.run): point for point in some}
                refused += refusals
            ours = ours or points
            rows.append(row_of(f"**all {group}, {name}**", points, ours, refused, time.perf_counter() - began))
            print(rows[-1], file=sys.stderr)
            if forecaster is None:
                by_suite.append(
                    f"Error at 10x of {name}, all {group}, each suite counting the same: {far_error_by_suite(points):.2%}."
                )
                for family in dict.fromkeys(suite.partition(" #")[0] for suite in suites):
                    some_points = {key: point for key, point in points.items() if key[0].partition(" #")[0] == family}
                    if some_points:
                        rows.append(row_of(f"{family}, {name}", some_points, some_points, 0, None))
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
            *by_suite,
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
