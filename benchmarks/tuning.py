"""Laws of optimal hyperparameters on published and simulated sweeps: exponents, predicted cells, and what intervals hold.

`--data DIR` names the folder of the files that are not in the repository: Step Law's mixtures of experts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from report import ROOT, parser, publish

from marin_scaling.forecast.tuning import NEAR_OPTIMAL, Tuning, tune

SWEEPS = 200
WIDTHS, TOKENS, FACTORS = (256, 512, 1024), (1e9, 4e9, 1.6e10), (0.25, 0.5, 1.0, 2.0, 4.0)
TARGET = (2048, 6.4e10)


def published(data: Path | None) -> Iterator[tuple[str, Tuning]]:
    """Yield the sweeps with their laws."""
    yield "Marin #4225 (AdamH)", tune(ROOT / "benchmarks" / "data" / "marin-4225.csv", columns={"loss": "c4_en_bpb"})
    if data is not None:
        yield "Step Law, mixtures (AdamW)", tune(data / "moe" / "steplaw_moe_runs.csv")


def rows_of(name: str, found: Tuning) -> Iterator[list[str]]:
    """Yield one row per law."""
    for hyperparameter, law in found.laws.items():
        exponents = [f"{term} {median:.3f} [{low:.3f}, {high:.3f}]" for term, (median, low, high) in law.exponents.items()]
        costs = [each.cost for each in found.transfers[hyperparameter]]
        near = f"{sum(cost <= NEAR_OPTIMAL for cost in costs)} of {len(costs)}"
        scatter = f"{float(np.median(law.scatter)):.1%}"
        yield [name, hyperparameter, ", ".join(exponents), scatter, near, f"{max(costs):.3%}"]


def simulated(seed: int, *, scatter: float, noise: float) -> tuple[pd.DataFrame, float]:
    """Return a sweep of nine cells, and the optimum of a new cell at `TARGET`, by a law drawn for it."""
    generator = np.random.default_rng(seed)
    of_width, of_tokens = generator.uniform(-0.8, 0.1), generator.uniform(-0.5, 0.4)

    def best(width: float, tokens: float) -> float:
        own = scatter * generator.standard_normal()
        return 0.003 * (width / 512) ** of_width * (tokens / 4e9) ** of_tokens * math.exp(own)

    rows = []
    for width in WIDTHS:
        for tokens in TOKENS:
            optimum = best(width, tokens)
            centre = 0.003 * (width / 512) ** -0.4 * (tokens / 4e9) ** -0.1  # the rule that the sweep is centered on
            for factor in FACTORS:
                excess = 0.03 * math.log(factor * centre / optimum) ** 2 + noise * generator.standard_normal()
                loss = 3 * (width / 512) ** -0.1 * (tokens / 4e9) ** -0.08 * math.exp(excess)
                rows.append((width, tokens, factor * centre, loss))
    return pd.DataFrame(rows, columns=["width", "tokens", "lr", "loss"]), best(*TARGET)


def coverage(*, scatter: float, noise: float) -> tuple[int, float, float]:
    """Return how many 90 % intervals hold a new cell's optimum, the mean cost of predictions, and the mean expected one."""
    held, costs, expected = 0, [], []
    for seed in range(SWEEPS):
        frame, optimum = simulated(seed, scatter=scatter, noise=noise)
        found = tune(frame).predict(width=TARGET[0], tokens=TARGET[1])["learning_rate"]
        held += found.interval[0] <= optimum <= found.interval[1]
        costs.append(math.expm1(0.03 * math.log(found.value / optimum) ** 2))
        expected.append(found.cost or 0.0)
    return held, float(np.mean(costs)), float(np.mean(expected))


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--data", type=Path, help="folder of the files that are not in the repository")
    chosen = options.parse_args()
    rows = [row for name, found in published(chosen.data) for row in rows_of(name, found)]
    notes = []
    for scatter, noise in ((0.02, 5e-4), (0.1, 1e-3), (0.2, 2e-3)):
        held, cost, expected = coverage(scatter=scatter, noise=noise)
        notes.append(
            f"Simulated, cells scatter by {scatter:.0%} and losses by {noise:.2%}: {held} of {SWEEPS} intervals of 90 % hold "
            f"the optimum of a cell of twice the width and four times the tokens. The prediction costs {cost:.3%} of the loss "
            f"on average, {expected:.3%} expected."
        )
    publish(
        "Laws of optimal hyperparameters",
        columns=("sweep", "hyperparameter", "exponents", "scatter of a cell", "within 0.1 %", "greatest cost"),
        rows=rows,
        packages=("numpy", "scipy"),
        notes=["Cells are predicted from all cells that cost less; the cost is the loss above a cell's own minimum.", *notes],
        write=chosen.write,
    )


if __name__ == "__main__":
    main()
