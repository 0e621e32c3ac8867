"""Forecasts of runs that repeat data: tokens counted by their worth (`laws.effective_tokens`), compared with tokens as trained.

Every budget of Muennighoff et al.'s smaller runs (2023) is forecast from the smaller ones at 3x and more, once with the table's
epochs and once without them. `--data DIR` names the folder of `epochs/datablations_small.csv`, which is not in this repository.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from report import parser, publish

from marin_scaling.forecast.backtest import BacktestPoint, backtest, summarise
from marin_scaling.run.table import read_run_table

NEAREST = 3.0
OVERFITTED = 75.0
"""FLOPs / (6 U^2) from which more epochs raise the loss in this table, which no law here does; U are unique tokens."""
Chosen = Callable[[BacktestPoint], bool]


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, required=True, help="folder with the suites that are not in this repository")
    options = arguments.parse_args()
    table = read_run_table(options.data / "epochs" / "datablations_small.csv")
    runs = table.frame.set_index("run")
    overfitted = set(runs.index[runs["flops"] / 6 / (runs["tokens"] / runs["epochs"]) ** 2 >= OVERFITTED])
    largest = sorted({point.cut_flops for point in backtest(table).points})[-2:]
    groups: dict[str, Chosen] = {
        "all": lambda _: True,
        "from the two largest cuts": lambda point: point.cut_flops in largest,
        "without overfitted targets": lambda point: point.run not in overfitted,
        "without them, from the two largest cuts": lambda point: point.run not in overfitted and point.cut_flops in largest,
        "up to 4 epochs": lambda point: runs["epochs"][point.run] <= 4,
        "4 to 16 epochs": lambda point: 4 < runs["epochs"][point.run] <= 16,
        "more than 16 epochs": lambda point: runs["epochs"][point.run] > 16,
    }
    rows = []
    for name, chosen in {"effective": table, "as trained": replace(table, frame=table.frame.drop(columns="epochs"))}.items():
        began = time.perf_counter()
        points = [point for point in backtest(chosen).points if point.extrapolation >= NEAREST]
        rows += [
            row_of(f"{group}, tokens {name}", list(filter(wanted, points)), time.perf_counter() - began)
            for group, wanted in groups.items()
        ]
    publish(
        "Forecasts of runs that repeat data",
        columns=("targets", "forecasts", "error", "bias", "in 50 %", "in 90 %", "CRPS", "s"),
        rows=sorted(rows, key=lambda row: list(groups).index(row[0].rpartition(", tokens ")[0])),
        packages=("numpy", "scipy", "pandas"),
        notes=[
            "error: median of |median / observed - 1|; bias: its median with sign; CRPS as a share of the loss; s: seconds for "
            "all cuts.",
            "Runs of one budget are forecast wrong together: the effective number of forecasts is that of cuts and budgets.",
            f"overfitted: FLOPs / (6 U^2) of {OVERFITTED:g} or more with U unique tokens, where this table's loss rises.",
        ],
        write=options.write,
    )


def row_of(name: str, points: list[BacktestPoint], seconds: float) -> list[str]:
    found = summarise(points, nearest=NEAREST, farthest=np.inf)
    return [
        name,
        str(found.count),
        f"{found.median_absolute_error:.2%}",
        f"{found.bias:+.2%}",
        f"{found.inside_50:.0%}",
        f"{found.inside_90:.0%}",
        f"{found.crps:.2%}",
        f"{seconds:.0f}",
    ]


if __name__ == "__main__":
    main()
