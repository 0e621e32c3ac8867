"""Forecasts of whole loss curves: errors and intervals of the marks and of the end, by the share of the run that was seen.

The largest rungs of this project's ladders are forecast from the smaller ones, and the targets from all rungs. `--data DIR`
adds rungs of Marin's ladder for its 535B run (DIR/curves/marin_hero_ladder_evals.csv), each from the smaller ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from report import parser, publish

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import Target, samples_of
from marin_scaling.forecast.loss_curve import FRACTIONS, RunCurve, forecast_curve, is_one_metric, losses_at_fractions
from marin_scaling.laws import Array
from marin_scaling.run.store import StoredRun, read_runs
from marin_scaling.run.table import table_of_frame

LADDERS = ("quickstart", "bytes-dense", "bytes-moe")
RUNS = Path(__file__).parents[1] / "runs"
SEEN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LINE_SPREAD = 0.02
"""Standard deviation of the log of a final loss that only a line through fewer than four runs forecasts."""


@dataclass(frozen=True)
class Case:
    """A run to forecast, the smaller runs, and equally likely final losses."""

    suite: str
    run: RunCurve
    known: Sequence[RunCurve]
    ends: Array


def curve_of(stored: StoredRun) -> RunCurve:
    """Training losses of a stored run, and its final metric."""
    spec, losses = stored.spec, np.array([row.train_loss_nats_per_token or np.nan for row in stored.history().rows])
    done = np.arange(1, len(losses) + 1) / spec.train_steps
    shape = spec.model.shape()
    at = losses_at_fractions(done[np.isfinite(losses)], losses[np.isfinite(losses)])
    return RunCurve(
        flops=spec.flops, tokens_per_param=spec.trained_tokens / shape.params_active, losses=at, end=stored.record.loss
    )


def own_cases() -> Iterator[Case]:
    """Targets from all rungs, and the rungs of the largest budget from the others."""
    for ladder in LADDERS:
        stored = [each for each in read_runs(RUNS / ladder) if each.record.loss is not None]
        rungs = [each for each in stored if each.spec.role == "rung"]
        largest = max(each.spec.budget_flops for each in rungs)
        smaller = [each for each in rungs if each.spec.budget_flops < largest]
        held_out = [(each, rungs) for each in stored if each.spec.role == "target"]
        held_out += [(each, smaller) for each in rungs if each.spec.budget_flops == largest]
        for each, known in held_out:
            shape = each.spec.model.shape()
            size = Target(
                flops=each.spec.flops,
                params=shape.params_total,
                tokens=each.spec.trained_tokens,
                active_params=shape.params_active,
            )
            table = pd.DataFrame([row_of(other) for other in known])
            yield Case(ladder, curve_of(each), [*map(curve_of, known)], samples_of(fit(table_of_frame(table)), size))


def row_of(stored: StoredRun) -> dict[str, object]:
    """A stored run as a row of a table."""
    spec, shape = stored.spec, stored.spec.model.shape()
    return {
        "run": spec.digest[:16],
        "flops": spec.flops,
        "params": shape.params_total,
        "active_params": shape.params_active,
        "tokens": spec.trained_tokens,
        "loss": stored.record.loss,
        "budget_flops": spec.budget_flops,
    }


def hero_cases(folder: Path) -> Iterator[Case]:
    """Rungs of Marin's ladder from the smaller ones; a line through their ends, whose spread is assumed, forecasts the end."""
    frame = pd.read_csv(folder / "curves" / "marin_hero_ladder_evals.csv")
    rungs = []
    for _, rows in frame.groupby("rung"):
        last = rows.iloc[-1]
        rungs.append(
            RunCurve(
                flops=float(last["flops_no_lm_head"] / last["fraction"]),
                tokens_per_param=float(last["tokens"] / last["fraction"] / last["active_params_rounded"]),
                losses=losses_at_fractions(rows["fraction"].to_numpy(), rows["loss"].to_numpy()),
                end=float(last["loss"]) if last["fraction"] > 0.99 else None,
            )
        )
    rungs.sort(key=lambda each: each.flops)
    for place in (2, 3):
        known, run = rungs[:place], rungs[place]
        line = np.polyfit([np.log(each.flops) for each in known], [np.log(each.end or 1.0) for each in known], 1)
        ends = np.exp(np.polyval(line, np.log(run.flops)) + LINE_SPREAD * np.random.default_rng(0).normal(size=1000))
        yield Case("marin-hero", run, known, ends)


def scored(case: Case, seen: float) -> dict[str, float]:
    """Errors and hits of the marks after the seen share, and of the end."""
    losses = np.where(np.array(FRACTIONS) <= seen + 1e-9, case.run.losses, np.nan)
    found = forecast_curve(case.known, replace(case.run, losses=losses, end=None), case.ends)
    marks = [
        (abs(float(np.log(quantiles[0.5] / loss))), quantiles[0.05] <= loss <= quantiles[0.95])
        for (fraction, quantiles), loss in zip(found.by_fraction.items(), case.run.losses, strict=True)
        if fraction > seen and np.isfinite(loss) and not (fraction == 1.0 and is_one_metric(case.known))
    ]
    errors, hits = zip(*marks, strict=True) if marks else ([np.nan], [np.nan])
    result = {"mark_error": float(np.median(errors)), "mark_inside": float(np.mean(hits))}
    if case.run.end is not None:
        low, middle, high = (found.end[level] for level in (0.05, 0.5, 0.95))
        result |= {
            "end_error": abs(float(np.log(middle / case.run.end))),
            "end_inside": float(low <= case.run.end <= high),
            "end_width": (high - low) / 2 / case.run.end,
        }
    return result


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, help="folder with further curves")
    options: argparse.Namespace = arguments.parse_args()
    cases = [*own_cases(), *(hero_cases(options.data) if options.data else ())]
    rows = []
    for suites, name in ((LADDERS, "own"), (("marin-hero",), "marin-hero")):
        chosen = [case for case in cases if case.suite in suites]
        for seen in SEEN if chosen else ():
            scores = pd.DataFrame([scored(case, seen) for case in chosen])
            rows.append(
                [
                    name,
                    f"{seen:.0%}",
                    len(chosen),
                    f"{scores['mark_error'].median():.2%}",
                    f"{scores['mark_inside'].mean():.0%}",
                    f"{scores['end_error'].median():.2%}",
                    f"{scores['end_inside'].mean():.0%}",
                    f"{scores['end_width'].median():.2%}",
                ]
            )
    publish(
        "Forecasts of whole loss curves",
        columns=(
            "curves",
            "seen",
            "runs",
            "median error of later marks",
            "inside 90 %",
            "median error of the end",
            "inside 90 %",
            "half-width of the end",
        ),
        rows=rows,
        packages=("numpy", "scipy"),
        notes=[
            f"own: targets and largest rungs of {', '.join(LADDERS)}. Their curves are training losses in nats per token, and "
            "their ends are in bits per byte.",
            "marin-hero: the rung of width 1,536 from two smaller ones, and that of width 2,048, which stops at 80 %, from "
            f"three. A line through their ends, with an assumed spread of {LINE_SPREAD:.0%}, forecasts the end.",
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
