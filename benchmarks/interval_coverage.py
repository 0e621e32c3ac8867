"""How often the 90 % interval holds the truth, on simulated ladders whose law is known.

The cases are those of the property test, which holds the least share; here the shares themselves, with their own error, and
beside them what the bootstrap over budgets alone would have held.
"""

from __future__ import annotations

import math
import sys
import time

from report import ROOT, parser, publish

sys.path[:0] = [str(ROOT / "tests" / "properties"), str(ROOT / "tests")]

import test_intervals_cover as cases  # noqa: E402  # the one definition of these ladders

KINDS = {
    "like the quickstart: 5 budgets, 4 sizes, noise 0.4 %, 5x beyond": cases.QUICKSTART_LIKE,
    "four budgets: 4 sizes, noise 0.4 %, 5x beyond": cases.FOUR_BUDGETS,
    "like Delphi: 7 budgets, 10 sizes, noise 0.2 %, 33x beyond": cases.DELPHI_LIKE,
}


COUPLED_LADDERS = 1000


def percent(share: float, ladders: int) -> str:
    """A share with its standard error, both in per cent."""
    return f"{share:.1%} ± {math.sqrt(share * (1 - share) / ladders):.1%}"


def _shares(found: dict[str, float]) -> list[str]:
    return [percent(found[level], COUPLED_LADDERS) for level in ("50 %", "90 %")]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    began = time.perf_counter()
    known = cases.covered_where_the_prior_is_true(ladders=COUPLED_LADDERS)
    prior_kind = "laws drawn from the coupled law's prior: 6 budgets, 8 sizes, noise 0.3 %, 33x beyond"
    rows = [[prior_kind, *_shares(known), "", "", f"{time.perf_counter() - began:.0f}"]]
    for name, kind in KINDS.items():
        began = time.perf_counter()
        shares = cases.covered(kind)
        coupled = cases.covered_by_the_coupled_law(kind, ladders=COUPLED_LADDERS)
        frontier = [percent(shares[which], cases.LADDERS) for which in ("ours", "budgets alone")]
        rows.append([name, *_shares(coupled), *frontier, f"{time.perf_counter() - began:.0f}"])
    publish(
        "Coverage of intervals where the law is known",
        columns=(
            "ladders",
            "central 50 %, coupled law",
            "central 90 %, coupled law",
            "90 %, frontier law",
            "90 %, bootstrap over budgets alone",
            "seconds",
        ),
        rows=rows,
        packages=("numpy", "pandas"),
        notes=[
            f"{COUPLED_LADDERS} ladders of each kind with the coupled law, {cases.LADDERS} with the frontier's "
            f"({cases.RESAMPLES} resamples), each from another random law; ± is one standard error of a share.",
            "But for the first row additive surfaces, a special case of the form that is fitted: this says nothing about a "
            "wrong form or a recipe that drifts; the coupled law's intervals are calibrated on public ladders, not on these.",
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
