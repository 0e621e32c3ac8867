"""Forecasts of runs that repeat data: tokens counted by their worth (`laws.effective_tokens`), compared with tokens as trained.

Every budget of Muennighoff et al.'s smaller runs (2023) is forecast from the smaller ones at 3x and more, once with the table's
epochs and once without them. `--data DIR` names the folder of `epochs/datablations_small.csv`, which is not in this repository.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from report import parser, publish

from marin_scaling.forecast.backtest import BacktestPoint, backtest, summarise
from marin_scaling.run.table import read_run_table

NEAREST = 3.0
LARGER = 5e17
"""FLOPs from which on a cut has more than twenty runs below it."""
OVERFITTED = 75.0
"""FLOPs / (6 U^2) from which more epochs raise the loss in this table, which no law here does; U are unique tokens."""


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, required=True, help="folder with the suites that are not in this repository")
    options = arguments.parse_args()
    table = read_run_table(options.data / "epochs" / "datablations_small.csv")
    runs = table.frame.set_index("run")
    overfitted = set(runs.index[runs["flops"] / 6 / (runs["tokens"] / runs["epochs"]) ** 2 >= OVERFITTED])
    tables = {"effective": table, "as trained": replace(table, frame=table.frame.drop(columns="epochs"))}
    points = {
        name: [each for each in backtest(chosen).points if each.extrapolation >= NEAREST] for name, chosen in tables.items()
    }
    cuts = sorted({point.cut_flops for point in points["effective"]})
    groups: dict[str, Callable[[BacktestPoint], bool]] = {
        f"from {int((runs['flops'] <= cut).sum())} runs up to {cut:.2g} FLOPs": lambda each, cut=cut: each.cut_flops == cut
        for cut in cuts
    }
    groups |= {
        "from all cuts": lambda _: True,
        f"from cuts at {LARGER:.0g} FLOPs or more": lambda each: each.cut_flops >= LARGER,
        "of these, without overfitted targets": lambda each: each.cut_flops >= LARGER and each.run not in overfitted,
        "of these, up to 4 epochs": lambda each: each.cut_flops >= LARGER and runs["epochs"][each.run] <= 4,
    }
    publish(
        "Forecasts of runs that repeat data",
        columns=("targets", "tokens", "forecasts", "error", "bias", "in 50 %", "in 90 %", "CRPS"),
        rows=[
            [group, name, *scores(list(filter(wanted, found)))]
            for group, wanted in groups.items()
            for name, found in points.items()
        ],
        packages=("numpy", "scipy", "pandas"),
        notes=[
            "error: median of |median / observed - 1|; bias: its median with sign; CRPS as a share of the loss.",
            "Runs of one budget are forecast wrong together: the effective number of forecasts is that of cuts and budgets.",
            f"overfitted: FLOPs / (6 U^2) of {OVERFITTED:g} or more with U unique tokens, where this table's loss rises.",
        ],
        write=options.write,
    )


def scores(points: list[BacktestPoint]) -> list[str]:
    found = summarise(points, nearest=NEAREST, farthest=np.inf)
    shares = (found.inside_50, found.inside_90)
    errors = f"{found.median_absolute_error:.2%}", f"{found.bias:+.2%}"
    return [str(found.count), *errors, *(f"{each:.0%}" for each in shares), f"{found.crps:.2%}"]


if __name__ == "__main__":
    main()
