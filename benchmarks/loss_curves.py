"""Forecasts of whole loss curves: errors and intervals of the marks and of the end, by the share of the run that was seen.

The largest rungs of this project's ladders are forecast from the smaller ones, and the targets from all rungs. `--data DIR`
adds rungs of Marin's ladder for its 535B run (DIR/curves/marin_hero_ladder_evals.csv), each from the smaller ones. It also
adds conversions between schedules (DIR/curves/multipowerlaw_curves.csv and marin_67b_early_cooldown_6811.csv).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
from report import parser, publish, table_row
from scipy.optimize import least_squares, nnls
from scipy.signal import lfilter

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import Target, samples_of
from marin_scaling.forecast.loss_curve import (
    _TRANSFER,
    FRACTIONS,
    RunCurve,
    Schedule,
    change_of_schedule,
    forecast_curve,
    is_one_metric,
    losses_at_fractions,
)
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


CURVES = ("cosine_24000", "constant_24000", "wsd_20000_24000", "wsdld_20000_24000"), ("constant_72000", "cosine_72000")
"""Schedules of equal steps, each converted to each other one of its group."""
WARM_STEPS, STEPS_APART = 2160, 16
LAWS = ("none", "annealing (Tissue et al. 2024)", "multi-power")
STARTS = {LAWS[1]: (1.0, 0.0, 0.5, -1.0, -1.0), LAWS[2]: (1.0, 0.0, 0.5, -1.0, 0.0, -0.7, 0.5)}
"""Logs of the floor and height, and the power of the steps at full rate; then the law's constants of the drop."""


@dataclass(frozen=True)
class Annealed:
    """Curve under a schedule: steps, rates on a grid of steps in shares of the peak, and `scale`, its run in 24,000 steps."""

    steps: Array
    losses: Array
    grid: Array
    rates: Array
    is_fitted: bool
    scale: float = 1.0

    @property
    def done(self) -> Array:
        """Thousands of steps at the full rate so far, by the grid."""
        return np.cumsum(self.rates) * STEPS_APART / 1000 * self.scale

    def at_fractions(self, values: Array, steps: Array) -> Array:
        """Values by `steps` at `FRACTIONS`."""
        return np.interp(np.array(FRACTIONS) * 24000 / self.scale, steps, values)


def annealed_curves(folder: Path) -> dict[tuple[str, str], Annealed]:
    """Curves of the multi-power law's authors, by model and schedule; their warm-up is not in the file."""
    found = {}
    for key, rows in pd.read_csv(folder / "curves" / "multipowerlaw_curves.csv").groupby(["model", "schedule"], sort=False):
        grid = np.arange(0.0, rows["step"].iloc[-1] + 1, STEPS_APART)
        rates = np.interp(grid, rows["step"], rows["lr"] / rows["lr"].max())
        if key[1].startswith("wsdcon"):  # constant, then another constant from step 8,000
            rates = np.where(grid < 8000, 1.0, rows["lr"].iloc[-1] / rows["lr"].max())
        rates = np.where(grid < WARM_STEPS, grid / WARM_STEPS, rates)
        steps, losses = rows["step"].to_numpy(float), rows["loss"].to_numpy()
        scale = 1 / 3 if "72000" in key[1] else 1.0
        found[key] = Annealed(steps, losses, grid, rates, rows["authors_split"].iloc[0] == "train", scale)
    return found


def drop(curve: Annealed, law: str, constants: Array, steps: Array) -> Array:
    """Drop of the loss at steps by rates below the peak: the annealing law with its memory, or the multi-power law."""
    falls = np.where(curve.grid[1:] > WARM_STEPS, np.maximum(curve.rates[:-1] - curve.rates[1:], 0.0), 0.0)
    if law == LAWS[1]:
        height, memory = np.exp(constants)
        kept = lfilter([1.0], [1.0, -np.exp(-STEPS_APART / 1000 * curve.scale / memory)], np.append(0.0, falls))
        return np.interp(steps, curve.grid, height * np.cumsum(kept) * STEPS_APART / 1000 * curve.scale)
    height, speed, settling, slower = *np.exp(constants[:3]), constants[3]
    places = np.flatnonzero(falls)
    since = np.interp(steps, curve.grid, curve.done)[:, None] - curve.done[places]
    settled = 1 - (speed * curve.rates[places + 1] ** -slower * np.maximum(since, 0.0) + 1) ** -settling
    return np.asarray(height * settled @ falls[places])


def constants_of(curves: Sequence[Annealed], law: str) -> Array:
    """Power of the steps at full rate, and the constants of the drop, by least squares of log losses with few outliers."""

    def residuals(unknowns: Array) -> Array:
        parts = []
        for each in curves:
            done = np.interp(each.steps, each.grid, each.done)
            losses = np.exp(unknowns[0]) + np.exp(unknowns[1]) * done ** -unknowns[2]
            losses -= drop(each, law, unknowns[3:], each.steps)
            parts.append(100 * np.log(np.maximum(losses, 0.1) / each.losses) / np.sqrt(len(each.losses)))
        return np.concatenate(parts)

    return np.asarray(least_squares(residuals, STARTS[law], loss="soft_l1", f_scale=0.03).x[2:])


def converted(one: Annealed, other: Annealed, law: str, constants: Array) -> tuple[Array, Array]:
    """Predicted and measured change of the log loss from one schedule to the other, at `FRACTIONS` from 15 % on."""
    losses, measured = (each.at_fractions(each.losses, each.steps) for each in (one, other))
    settled = np.array(FRACTIONS) >= 0.15
    change = np.zeros(len(FRACTIONS))
    if law != LAWS[0]:
        done = [each.at_fractions(each.done, each.grid) ** -constants[0] for each in (one, other)]
        drops = [each.at_fractions(drop(each, law, constants[1:], each.grid), each.grid) for each in (one, other)]
        design = np.column_stack([np.ones(settled.sum()), done[0][settled]])
        (floor, height), _ = nnls(design, (losses + drops[0])[settled])
        change = np.log((floor + height * done[1] - drops[1]) / (floor + height * done[0] - drops[0]))
    return change[settled], np.log(measured / losses)[settled]


def conversions(folder: Path) -> Iterator[list[object]]:
    """Rows of the errors of conversions, with the constants of one model on curves of the other."""
    curves = annealed_curves(folder)
    for fitted, scored_model in (("25M", "100M"), ("100M", "25M")):
        for law in LAWS:
            own = [each for (model, _), each in curves.items() if model == fitted and each.is_fitted]
            constants = np.array([]) if law == LAWS[0] else constants_of(own, law)
            pairs = [(scored_model, *pair) for group in CURVES for pair in permutations(group, 2)]
            found = [converted(curves[model, one], curves[model, other], law, constants) for model, one, other in pairs]
            errors = np.array([predicted - measured for predicted, measured in found])
            moved = np.array([predicted[-1] for predicted, _ in found])
            apart = np.sqrt((errors[:, -1] ** 2).sum() / max((moved**2).sum(), 1e-12))
            inside = np.mean(np.abs(errors[:, -1]) <= 1.645 * _TRANSFER * np.abs(moved))
            own_law = [law, fitted, scored_model, len(pairs), f"{np.abs(errors).mean():.2%}"]
            ends = [f"{np.sqrt((errors[:, -1] ** 2).mean()):.2%}", f"{np.abs(errors[:, -1]).max():.2%}"]
            shares = ["", ""] if law == LAWS[0] else [f"{apart:.2f}", f"{inside:.0%}"]
            yield [*own_law, *ends, *shares, " ".join(f"{each:.3g}" for each in constants)]


def early_cooldown(folder: Path) -> str:
    """Cool-down of Marin's 67B run against the one that the built-in law predicts for a run of as many steps."""
    rows = pd.read_csv(folder / "curves" / "marin_67b_early_cooldown_6811.csv")
    first, last = rows.iloc[0], rows.iloc[-1]
    after = Schedule(decay=1 - first["step"] / last["step"], floor=last["lr"] / first["lr"])
    measured = float(np.log(last["loss"] / first["loss"]))
    flat = np.full(len(FRACTIONS), first["loss"])
    predicted = float(change_of_schedule(flat, Schedule(decay=0.0), after)[-1])
    return (
        f"Early cool-down of Marin's 67B mixture, linear from step {first['step']:.0f} to {last['step']:.0f}: the loss fell by "
        f"{-measured:.2%}, and the built-in law predicts {-predicted:.2%} without what further steps add."
    )


def _schedule_notes(folder: Path) -> list[str]:
    """The errors of conversions as a table of its own, and how their constants were chosen."""
    columns = (
        "law",
        "constants from",
        "converted",
        "pairs",
        "mean error of marks",
        "rms error of ends",
        "largest",
        "error / change",
        "ends in 90 %",
        "constants",
    )
    lines = [table_row(columns), table_row(["---"] * len(columns)), *map(table_row, conversions(folder))]
    return [
        "## Conversions between schedules",
        "\n".join(lines),
        "Each curve under a cosine, a constant rate, an exponential and a linear decay of 24,000 steps is converted to each "
        "other one, and a constant rate and a cosine of 72,000 steps likewise. Floor and height are fitted to the one curve, "
        "the constants to the three curves that the authors fit, of the other model.",
        "Built in are the multi-power law's constants of 25M, rounded, and as the standard deviation of a conversion the ratio "
        f"error / change of the exchanged roles, {_TRANSFER} (constants of 100M, curves of 25M). So the 25M curves chose the "
        "former, and three curves of 100M its error.",
        early_cooldown(folder),
    ]


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
    notes = _schedule_notes(options.data) if options.data else []
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
            *notes,
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
