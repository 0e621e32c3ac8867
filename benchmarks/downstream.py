"""Accuracies on OLMo's tasks, forecast from smaller runs: error, coverage and CRPS by task and subset, in points of accuracy.

Runs of the OLMo ladder (190M to 1.3B parameters, 0.5 to 10 times Chinchilla's tokens) are sorted by FLOPs. The runs at 3x and
more are forecast from the first 8, 11, 14 and 16, each at its own size; and the three longest runs of 1.3B from all smaller
models. `--data DIR` names the folder with the table, which is not in this repository. The distribution of the gain beyond the
best run was chosen on these tables, so each group of tasks is also scored with the one that the other groups choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from report import parser, publish

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.accuracy_curve import Sigmoid, fit_sigmoid
from marin_scaling.forecast.downstream import GAIN, Gain, accuracy_draws, forecast_target
from marin_scaling.forecast.forecast import LEVELS, Target, samples_of
from marin_scaling.laws import Array
from marin_scaling.run.table import table_of_frame

CHANCE = {"boolq": 0.5, "csqa": 0.2, "piqa": 0.5, "socialiqa": 1 / 3, "winogrande": 0.5}
"""Accuracy of guessing; 0.25 for the other tasks."""
GAINS = [Gain(mean=mean, deviation=deviation) for mean in (0.0, 0.1, 0.2, 0.3, 0.4) for deviation in (0.0, 0.2, 0.3, 0.4, 0.5)]
NONE = Gain(mean=0.0, deviation=0.0)
ENDS = [LEVELS.index(level) for level in (0.05, 0.25, 0.5, 0.75, 0.95)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A held-out run: draws of its soft metric, the curve, its accuracy, and that of the best fitted run."""

    soft: Array
    curve: Sigmoid
    accuracy: float
    best: float

    def score(self, gain: Gain) -> list[float]:
        """Return the CRPS, the error, and 1 if the 50 and 90 % intervals hold the accuracy."""
        values = np.quantile(accuracy_draws(self.curve, self.soft, seed=0, gain=gain).accuracy, LEVELS)
        levels = np.array(LEVELS)
        above = self.accuracy >= values
        crps = 2 * np.mean(np.where(above, levels * (self.accuracy - values), (1 - levels) * (values - self.accuracy)))
        low, inner_low, median, inner_high, high = values[ENDS]
        held = (inner_low <= self.accuracy <= inner_high, low <= self.accuracy <= high)
        return [float(crps), float(median - self.accuracy), *map(float, held)]


def cuts(runs: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield fitted and held-out runs of one table, sorted by FLOPs."""
    for count in (8, 11, 14, 16):
        fitted = runs.iloc[:count]
        yield fitted, runs[runs["flops"] >= 2.997 * fitted["flops"].max()]
    largest = runs["params"] > 1e9
    yield runs[~largest], runs[largest].tail(3)


def cases_of(runs: pd.DataFrame, chance: float) -> tuple[list[Case], int]:
    """Return the forecasts of one task and subset, and how many were refused."""
    found, refused = [], 0
    for fitted, held_out in cuts(runs):
        try:
            curve = fit_sigmoid(fitted["bpb"], accuracy=fitted["accuracy"], chance=chance)
            result = fit(table_of_frame(fitted[["run", "flops", "params", "tokens"]].assign(loss=fitted["bpb"])))
        except FitRefused:
            refused += len(held_out)
            continue
        for run in held_out.itertuples():
            target = Target(flops=run.flops, params=run.params, tokens=run.tokens, active_params=run.params)
            try:
                forecast_target(result, curve, target)
            except FitRefused:
                refused += 1
                continue
            soft = samples_of(result, target)
            found.append(Case(soft=soft, curve=curve, accuracy=run.accuracy, best=fitted["accuracy"].max()))
    return found, refused


def chosen_by_others(scores: pd.DataFrame, group: str) -> int:
    """Return the position in `GAINS` whose 90 % intervals hold nearest to 90 %, of those within 5 % of the least CRPS.

    Over all groups of tasks but one; the CRPS of each group is relative to that without a gain.
    """
    crps, held = (scores[column].unstack().drop(columns=group) for column in ("crps", "held"))
    relative = (crps / crps.loc[GAINS.index(NONE)]).mean(axis=1)
    near = relative[relative <= 1.05 * relative.min()].index
    return int((held.mean(axis=1)[near] - 0.9).abs().idxmin())


def row_of(name: str, cases: list[Case], refused: int, scores: dict[str, Array]) -> list[str]:
    if not cases:
        return [name, "0", str(refused), *[""] * 8]
    ours = scores["ours"]
    crps = [f"{100 * scores[each][:, 0].mean():.2f}" for each in ("ours", "none", "others")]
    of_best = 100 * np.mean([abs(each.best - each.accuracy) for each in cases])
    plain = scores["none"]
    return [
        name,
        str(len(cases)),
        str(refused),
        f"{100 * np.median(np.abs(ours[:, 1])):.1f}",
        f"{100 * np.median(ours[:, 1]):+.1f}",
        f"{ours[:, 2].mean():.0%} ({plain[:, 2].mean():.0%})",
        f"{ours[:, 3].mean():.0%} ({plain[:, 3].mean():.0%})",
        *crps,
        f"{of_best:.2f}",
    ]


COLUMNS = (
    "task, subset", "forecasts", "refused", "error", "bias", "in 50 % (no gain)", "in 90 % (no gain)", "CRPS", "CRPS, no gain",
    "CRPS, chosen by the others", "error of no change",
)  # fmt: skip


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, required=True, help="folder with downstream/olmo_ladder_tasks_final.csv")
    options = arguments.parse_args()
    runs = pd.read_csv(options.data / "downstream" / "olmo_ladder_tasks_final.csv")
    runs = runs[runs["rerun"] == 0].sort_values("flops")
    found = {(task, split): cases_of(rows, CHANCE.get(task, 0.25)) for (task, split), rows in runs.groupby(["task", "split"])}
    scores = {key: np.array([[case.score(gain) for gain in GAINS] for case in cases]) for key, (cases, _) in found.items()}
    each_gain = pd.DataFrame(
        [
            (place, group_of(key[0]), *case[place, [0, 3]])
            for key, each in scores.items()
            for case in each
            for place in range(len(GAINS))
        ],
        columns=["gain", "group", "crps", "held"],
    )
    by_group = each_gain.groupby(["gain", "group"]).mean()
    others = {group: chosen_by_others(by_group, group) for group in each_gain["group"].unique()}
    columns = {
        key: {
            "ours": each[:, GAINS.index(GAIN)],
            "none": each[:, GAINS.index(NONE)],
            "others": each[:, others[group_of(key[0])]],
        }
        for key, each in scores.items()
        if len(each)
    }
    rows = [row_of(", ".join(key), *found[key], columns.get(key, {})) for key in found]
    all_cases = [case for cases, _ in found.values() for case in cases]
    total = {name: np.concatenate([each[name] for each in columns.values()]) for name in ("ours", "none", "others")}
    rows.append(row_of("**all**", all_cases, sum(refused for _, refused in found.values()), total))
    named = "; ".join(f"{group}: {GAINS[place].mean:g} and {GAINS[place].deviation:g}" for group, place in others.items())
    held = total["others"][:, 2:].mean(axis=0)
    publish(
        "Accuracies on OLMo's tasks, forecast from smaller runs",
        columns=COLUMNS,
        rows=rows,
        packages=("numpy", "scipy", "pandas"),
        notes=[
            "In points of accuracy. error: median of |median - measured|; error of no change: mean error of the best fitted "
            "run's accuracy. In brackets: shares of intervals without a distribution of the gain beyond the best run.",
            f"Gain in log error rate: mean {GAIN.mean:g}, deviation {GAIN.deviation:g}. Chosen by the other groups: {named}. "
            f"With those, {held[0]:.0%} and {held[1]:.0%} of the 50 and 90 % intervals held.",
            "All tasks were measured on the same twenty runs, so they are one ladder, not seventeen. Refused: the fitted runs "
            "show no steady rise, or the interval would be too wide.",
        ],
        write=options.write,
    )


def group_of(task: str) -> str:
    """Return the name that subsets of one benchmark share."""
    return task.partition("_")[0]


if __name__ == "__main__":
    main()
