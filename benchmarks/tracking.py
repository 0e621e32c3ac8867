"""How well `marin-scale track` says where a run will end, by the share of training done.

Each finished rung of this project's own ladders is tracked from the others, and each target from all rungs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from report import parser, publish

from marin_scaling.forecast.tracking import FinishedCurve, Tracking, curve_of, finished_curves, track
from marin_scaling.run.store import StoredRun, read_runs

LADDERS = ("quickstart", "bytes-dense", "bytes-moe")
FRACTIONS = (0.1, 0.25, 0.5, 0.75, 0.9)
RUNS = Path(__file__).parents[1] / "runs"


def tracked_at(stored: StoredRun, fraction: float, curves: Sequence[FinishedCurve]) -> Tracking:
    """What was to be said of a finished run when so much of it was done."""
    losses = [row.train_loss_nats_per_token or np.nan for row in stored.history().rows]
    return track(curve_of(losses[: round(fraction * len(losses))], stored.spec), curves)


def row_of(stored: Sequence[StoredRun], fraction: float) -> list[str]:
    """Median error, mean half-width and coverage over runs of several ladders."""
    errors, widths, inside = [], [], []
    for each in stored:
        if each.record.loss is None or round(fraction * each.spec.train_steps) < 20:
            continue
        rungs = [other for other in stored if other.spec.ladder == each.spec.ladder]
        found = tracked_at(each, fraction, finished_curves(rungs, without=each.spec.digest))
        low, high = found.interval
        errors.append(abs(found.quantiles[0.5] / each.record.loss - 1))
        widths.append((high - low) / 2 / each.record.loss)
        inside.append(low <= each.record.loss <= high)
    return [
        f"{fraction:.0%}",
        str(len(errors)),
        f"{np.median(errors):.2%}",
        f"{np.median(widths):.1%}",
        f"{np.mean(inside):.0%}",
    ]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    stored = [run for ladder in LADDERS for run in read_runs(RUNS / ladder)]
    publish(
        "Where a run will end, from its curve so far",
        columns=("done", "runs", "median error", "median half-width of the 90 % interval", "inside it"),
        rows=[row_of(stored, fraction) for fraction in FRACTIONS],
        packages=("numpy", "scipy"),
        notes=[f"Rungs and targets of {', '.join(LADDERS)}; a run of fewer than 20 steps so far is not tracked."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
