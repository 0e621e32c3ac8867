"""Which prior of the default law forecasts best: priors beside each other on leave-future-out forecasts at 3x and more.

The score is the continuous ranked probability score as a share of the loss, mean over cuts, each suite's over that of the first
prior. In the row "chosen by the others" each suite is scored with the prior that the other suites alone would have chosen, so
that it is out of sample. `--data DIR` names the folder with the suites that are not in this repository; simulated ladders, in
and outside the form that is fitted, stand beside them and choose nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from accuracy import NEAREST, far_error, scored
from report import parser, publish
from simulated_families import simulated_tables
from suites import public_suites

from marin_scaling.fitting.coupled_law import Normal, Prior
from marin_scaling.forecast.backtest import BacktestPoint, summarise, with_law
from marin_scaling.run.table import RunTable

TODAY = Prior()


def _log(middle: float, deviation: float) -> Normal:
    return Normal(mean=float(np.log(middle)), deviation=deviation)


PRIORS = {
    "first (until 24 November)": replace(
        TODAY,
        slope=_log(0.05, 1.0),
        reducible_share=Normal(mean=0.0, deviation=0.6),
        size_exponent=_log(0.4, 0.5),
    ),
    "today's": TODAY,
    "share of -0.3 and 0.5 in logit": replace(TODAY, reducible_share=Normal(mean=-0.3, deviation=0.5)),
    "share of -0.1 and 0.5 in logit": replace(TODAY, reducible_share=Normal(mean=-0.1, deviation=0.5)),
    "share of -0.2 and 0.4 in logit": replace(TODAY, reducible_share=Normal(mean=-0.2, deviation=0.4)),
    "sizes' exponents about 0.6": replace(TODAY, size_exponent=_log(0.6, 0.4)),
    "sizes' exponents within 0.3 in log": replace(TODAY, size_exponent=_log(0.5, 0.3)),
    "the frontier's exponent about 0.12": replace(TODAY, frontier_exponent=_log(0.12, 0.45)),
    "slopes about 0.05, within 1 in log (until 29 November)": replace(TODAY, slope=_log(0.05, 1.0)),
    "slopes within 0.3 in log": replace(TODAY, slope=_log(0.055, 0.3)),
    "misfit about 0.9 %": replace(TODAY, misfit=_log(0.009, 0.6)),
}


def points_by_suite(tables: Mapping[str, RunTable], prior: Prior) -> dict[str, list[BacktestPoint]]:
    """All forecasts of each suite, or of each family of simulated ladders."""
    found: dict[str, list[BacktestPoint]] = defaultdict(list)
    for name, table in tables.items():
        found[name.partition(" #")[0]] += scored(replace(table, source=name), with_law("coupled-surface", prior=prior))[0]
    return found


def score(points: list[BacktestPoint]) -> float:
    """Mean over cuts of the mean CRPS, as a share of the loss."""
    by_cut = defaultdict(list)
    for point in points:
        by_cut[point.cut_flops].append(point.crps / point.observed)
    return float(np.mean([np.mean(each) for each in by_cut.values()]))


def row_of(name: str, public: Mapping[str, list[BacktestPoint]], relative: float, simulated: float | None) -> list[str]:
    points = [point for each in public.values() for point in each]
    found = summarise(points, nearest=NEAREST, farthest=np.inf)
    return [
        name,
        f"{relative:.3f}",
        f"{found.crps:.3%}",
        far_error(points),
        f"{found.inside_50:.0%}",
        f"{found.inside_90:.0%}",
        f"{simulated:.3f}" if simulated is not None else "",
    ]


def chosen_by_the_others(relative: Mapping[str, Mapping[str, float]], suite: str) -> str:
    """The prior with the best mean over all suites but one; `relative[prior][suite]`."""
    return min(relative, key=lambda prior: np.mean([value for name, value in relative[prior].items() if name != suite]))


COLUMNS = ("prior", "score over the first's", "CRPS", "error at 10x", "in 50 %", "in 90 %", "simulated, over the first's")


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--data", type=Path, help="folder with the suites that are not in this repository")
    arguments.add_argument("--simulated", type=int, default=1, metavar="LADDERS", help="simulated ladders of each family")
    options = arguments.parse_args()
    tables, ladders = public_suites(options.data), simulated_tables(options.simulated)
    public = {name: points_by_suite(tables, prior) for name, prior in PRIORS.items()}
    simulated = {name: points_by_suite(ladders, prior) for name, prior in PRIORS.items()}
    first = next(iter(PRIORS))
    relative, beside = (
        {
            name: {suite: score(points) / score(found[first][suite]) for suite, points in suites.items()}
            for name, suites in found.items()
        }
        for found in (public, simulated)
    )
    means = {name: float(np.mean(list(values.values()))) for name, values in relative.items()}
    rows = [row_of(name, public[name], means[name], float(np.mean(list(beside[name].values())))) for name in PRIORS]
    others = {suite: chosen_by_the_others(relative, suite) for suite in public[first]}
    unseen = float(np.mean([relative[name][suite] for suite, name in others.items()]))
    unseen_points = {suite: public[name][suite] for suite, name in others.items()}
    rows.append(row_of("**chosen by the others**", unseen_points, unseen, None))
    publish(
        "Priors of the default law, each on leave-future-out forecasts",
        columns=COLUMNS,
        rows=rows,
        packages=("numpy", "scipy", "pandas"),
        notes=[
            "The surface alone, always with Student's t for slopes and share. Score: suites and their cuts count the same; the "
            "other columns count every forecast once.",
            "Chosen by the others: " + "; ".join(f"{suite}: {name}" for suite, name in others.items()) + ".",
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
