"""How often 90 % intervals at ten times the ladder hold a new run, where all runs scatter alike, and without an asymptote.

Ladders of 4 budgets (1e18 to 6.4e19 FLOPs) and 4 sizes, at 3 to 130 tokens per parameter; each from another random law. The
public ladders of the calibration scatter less, and most near the walls of bowls and in small runs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from report import parser, publish

from marin_scaling.fitting.combined_law import CombinedLaw
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import Target, forecast_runs
from marin_scaling.laws import Array
from marin_scaling.run.table import table_of_frame

LADDERS = 200
BUDGETS = np.repeat(np.geomspace(1e18, 6.4e19, 4), 4)
RATIOS = np.tile(np.geomspace(3.0, 130.0, 4), 4)


def losses(params: Array, tokens: Array, random: np.random.Generator, *, asymptote: bool) -> Array:
    """Return losses by Hoffmann's form with random exponents, or by Kaplan's, which has no asymptote."""
    if asymptote:
        alpha, beta = random.uniform(0.25, 0.45, 2)
        scale = random.uniform(0.5, 0.9)
        return random.uniform(1.4, 2.0) + scale * (params / 3e8) ** -alpha + scale * (tokens / 6e9) ** -beta
    by_params, by_tokens = random.uniform(0.06, 0.09), random.uniform(0.085, 0.11)
    return ((8.8e13 / params) ** (by_params / by_tokens) + 5.4e13 / tokens) ** by_tokens


def forecast_one(number: int, *, noise: float, asymptote: bool) -> tuple[bool, float, float]:
    """Return whether the interval held a new run, the relative error of the median, and sigma as a share of the noise."""
    random = np.random.default_rng([number, round(1e4 * noise), asymptote])
    flops, ratios = np.append(BUDGETS, 6.4e20), np.append(RATIOS, 20.0)
    params = np.sqrt(flops / 6 / ratios)
    tokens = flops / 6 / params
    true = losses(params, tokens, random, asymptote=asymptote)
    loss = true * np.exp(noise * random.standard_normal(len(true)))
    frame = pd.DataFrame({"flops": flops, "params": params, "tokens": tokens, "loss": loss}).iloc[:-1]
    result = fit(table_of_frame(frame))
    target = Target(flops=flops[-1], params=params[-1], tokens=tokens[-1], active_params=params[-1])
    (ahead,) = forecast_runs(result, [target])
    low, high = ahead.interval()
    assert isinstance(result.law, CombinedLaw)
    return low <= loss[-1] <= high, ahead.median / true[-1] - 1, float(np.median(result.law.posterior.noise)) / noise


def main() -> None:
    """Print a row for each noise and form."""
    options = parser(__doc__ or "").parse_args()
    rows = []
    for asymptote, noise in ((True, 0.002), (True, 0.005), (True, 0.01), (False, 0.002), (False, 0.005)):
        found = [forecast_one(number, noise=noise, asymptote=asymptote) for number in range(LADDERS)]
        held, error, sigma = (np.array(each, dtype=float) for each in zip(*found, strict=True))
        form = "Hoffmann's form" if asymptote else "Kaplan's form, no asymptote"
        rows.append([f"{form}, noise {noise:.1%}", f"{held.mean():.0%}", f"{np.median(error):+.2%}", f"{np.median(sigma):.2f}"])
    publish(
        "Tables of four budgets and four sizes whose runs all scatter alike",
        columns=("ladders", "new run in the 90 % interval", "bias", "sigma of the fit / true noise"),
        rows=rows,
        packages=("numpy", "scipy", "pandas"),
        notes=[f"{LADDERS} ladders a row, each from another law; the target has 10 times the largest budget."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
