"""How often the 90 % intervals of a speedup chain hold the truth: 200 simulated chains of three ladders a row.

The ladders of a chain come from one law, so that every speedup is 1, or cost half and a third of what they should, so that the
stages are 2 and 1.5. In some rows the budgets scatter about the law beyond the noise of their runs (lack of fit).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from report import parser, publish

from marin_scaling.forecast.speedup_chain import SpeedupChain, chain_of_tables
from marin_scaling.forecast.speedup_conventions import Speedup, Verdict
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.table import RunTable, simulate_ladder

CHAINS = 200
LAW = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)  # Hoffmann et al. 2022, approach 3
COSTS = (1.0, 1 / 2, 1 / 3)
ROWS = (
    # budgets, sizes, noise, lack of fit, planted costs
    (4, 5, 0.001, 0.0, False),
    (6, 5, 0.002, 0.0, False),
    (7, 7, 0.002, 0.0, False),
    (6, 5, 0.002, 0.002, False),
    (6, 5, 0.002, 0.0, True),
)


def ladder(budgets: int, sizes: int, *, noise: float, misfit: float, cost: float, seed: int) -> RunTable:
    """Return a simulated ladder, each budget 10^0.5 times the one before, whose runs cost `cost` times as much."""
    flops = 1e18 * 10.0 ** (np.arange(budgets) / 2)
    table = simulate_ladder(LAW, budgets_flops=list(flops / cost), sizes_per_budget=sizes, noise=noise, seed=seed)
    shift = np.random.default_rng([seed, 1]).standard_normal(budgets)
    frame = table.frame.assign(loss=table.frame["loss"] * np.exp(misfit * np.repeat(shift, sizes)))
    return replace(table, frame=frame.assign(**{name: frame[name] * cost for name in ("flops", "tokens", "budget_flops")}))


def chain(number: int, *, budgets: int, sizes: int, noise: float, misfit: float, planted: bool) -> SpeedupChain:
    """Return the chain of three simulated ladders with this number."""
    costs = COSTS if planted else (1.0, 1.0, 1.0)
    tables = [
        (f"{place}", ladder(budgets, sizes, noise=noise, misfit=misfit, cost=cost, seed=10 * number + place))
        for place, cost in enumerate(costs)
    ]
    return chain_of_tables(tables, seed=number)


def speedups(found: SpeedupChain) -> list[Speedup]:
    """Return both stages and the cumulative speedup, in model FLOPs."""
    return [each.model_flops for each in (*found.stages, found.cumulative[-1]) if each.model_flops is not None]


def holds(each: Speedup, truth: float) -> bool:
    """Return True if the interval holds the true speedup."""
    low, high = each.interval
    return low <= truth and (high is None or truth <= high)


def main() -> None:
    """Print a row for each kind of ladder."""
    options = parser(__doc__ or "").parse_args()
    rows = []
    for budgets, sizes, noise, misfit, planted in ROWS:
        truths = (2.0, 1.5, 3.0) if planted else (1.0, 1.0, 1.0)
        found = [
            speedups(chain(number, budgets=budgets, sizes=sizes, noise=noise, misfit=misfit, planted=planted))
            for number in range(CHAINS)
        ]
        held = np.mean([[holds(each, truth) for each, truth in zip(one, truths, strict=True)] for one in found], axis=0)
        middle = np.median([[each.value or np.inf for each in one] for one in found], axis=0)
        width = np.median([np.log((each.interval[1] or np.inf) / each.interval[0]) / 2 for one in found for each in one])
        wrong = np.mean([any(each.verdict_after_holm is not Verdict.TIE for each in one) for one in found])
        rows.append(
            [
                f"{budgets} budgets, {sizes} sizes, noise {noise:.1%}, lack of fit {misfit:.1%}",
                " x ".join(f"{each:g}" for each in truths[:2]),
                *(f"{share:.1%}" for share in held),
                " x ".join(f"{each:.3f}" for each in middle[:2]) + f" = {middle[2]:.3f}",
                f"{width:.0%}",
                "" if planted else f"{wrong:.1%}",
            ]
        )
    table = ladder(6, 5, noise=0.002, misfit=0.0, cost=1.0, seed=0)
    same = chain_of_tables([(name, table) for name in "ABC"])
    exact = all(each.value == 1.0 and each.interval == (1.0, 1.0) for each in speedups(same))
    publish(
        "Speedup chains of simulated ladders",
        columns=(
            "ladders",
            "truth",
            "stage 1 held",
            "stage 2 held",
            "in all held",
            "median",
            "half-width",
            "any false verdict",
        ),
        rows=rows,
        packages=("numpy", "pandas"),
        notes=[
            f"{CHAINS} chains a row; a share of 90 % has a standard error of {(0.09 / CHAINS) ** 0.5:.1%}. The last column "
            "is the share of chains with any verdict other than a tie after Holm's correction, at most 10 % by design.",
            f"A chain of one table with itself gives 1 with the interval [1, 1]: {'yes' if exact else 'no'}.",
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
