"""How often the 90 % interval holds the truth, on ladders whose law is known.

The frontier law's interval, measured here: 99.0 % (like quickstart), 96.0 % (four budgets), 97.5 % (like Delphi): too wide
rather than too narrow. The bootstrap over budgets alone, which is what is usually reported, held 63.5, 43.0 and 71.5 %. The
bound: of 200 intervals that hold the truth in 90 % of cases, fewer than 85 % do so once in a hundred times.
"""

import numpy as np
import pandas as pd
import pytest

from marin_scaling.fitting.coupled_law import Prior, laws_of, log_prior, prior_start
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.frontier import fit_frontiers, resample
from marin_scaling.forecast.forecast import forecast
from marin_scaling.laws import SurfaceLaw, frontier_loss, optimal_params, surface_frontier, surface_loss
from marin_scaling.run.table import RunTable, simulate_ladder

LADDERS = 200
RESAMPLES = 300

QUICKSTART_LIKE = {"budgets": np.geomspace(4e10, 6.4e11, 5), "sizes": 4, "noise": 0.004, "beyond": 5.0}
FOUR_BUDGETS = {"budgets": np.geomspace(4e10, 3.2e11, 4), "sizes": 4, "noise": 0.004, "beyond": 5.0}
DELPHI_LIKE = {"budgets": np.geomspace(3e18, 3e20, 7), "sizes": 10, "noise": 0.002, "beyond": 33.0}


def random_surface(generator, *, centre_flops):
    """A surface whose optimum has 20 tokens a parameter at `centre_flops`, a floor of .8 to 2.3 and as much again above it."""
    alpha, beta = generator.uniform(0.25, 0.5, size=2)
    params = (centre_flops / 120) ** 0.5
    reducible, share = generator.uniform(0.8, 1.6), beta / (alpha + beta)
    return SurfaceLaw(
        E=generator.uniform(0.8, 2.3),
        A=reducible * share * params**alpha,
        B=reducible * (1 - share) * (20 * params) ** beta,
        alpha=alpha,
        beta=beta,
    )


def simulated_case(seed, *, budgets, sizes, noise, beyond):
    """A ladder, the target's FLOPs, and the loss that one run at the target has."""
    generator = np.random.default_rng([seed, 1])
    law = random_surface(generator, centre_flops=float(np.sqrt(budgets[0] * budgets[-1])))
    target = float(budgets[-1] * beyond)
    table = simulate_ladder(law, budgets_flops=budgets, sizes_per_budget=sizes, noise=noise, seed=seed, size_range=8.0)
    truth = float(frontier_loss(surface_frontier(law), flops=target)) * (1 + noise * generator.standard_normal())
    return table, target, truth


def covered(kind):
    """The share of ladders whose 90 % interval holds the truth, with our resampling and with the budgets' bootstrap alone."""
    held = {"ours": 0, "budgets alone": 0}
    for seed in range(LADDERS):
        table, target, truth = simulated_case(seed, **kind)
        result = fit(table, law="isoflop-frontier")
        drawn = resample(result.law, seed=seed, count=RESAMPLES)
        ours = drawn.laws.losses(np.array([target]))[:, 0] + drawn.run_noise
        loss = np.array([point.loss for point in result.points])
        weights = np.random.default_rng(seed).dirichlet(np.ones(len(loss)), size=RESAMPLES)
        flops = np.array([point.flops for point in result.points])
        plain = fit_frontiers(flops, losses=np.tile(loss, (RESAMPLES, 1)), weights=weights).losses(np.array([target]))[:, 0]
        for name, draws in (("ours", ours), ("budgets alone", plain)):
            low, high = np.quantile(draws, (0.05, 0.95))
            held[name] += low <= truth <= high
    return {name: count / LADDERS for name, count in held.items()}


def covered_by_the_coupled_law(kind, *, ladders):
    """The share of ladders whose central 50 and 90 % intervals hold the truth, with the default law."""
    held = {0.25: 0, 0.05: 0}
    for seed in range(ladders):
        table, target, truth = simulated_case(seed, **kind)
        quantiles = forecast(fit(table), flops=target).quantiles
        for level in held:
            held[level] += quantiles[level] <= truth <= quantiles[1 - level]
    return {"50 %": held[0.25] / ladders, "90 %": held[0.05] / ladders}


def coupled_case(seed):
    """A ladder like Delphi's from a coupled law that is drawn from the prior, its target, and the loss of one run there."""
    generator = np.random.default_rng([seed, 2])
    law = laws_of(prior_draw(generator)[None])
    budgets = np.repeat(np.geomspace(3e18, 3e20, 6), 8)
    ratio = 20 * np.tile(np.geomspace(1 / 5, 5, 8), 6)
    flops, ratio = np.append(budgets, 1e22), np.append(ratio, 20.0)
    params = np.sqrt(flops / 6 / ratio)
    tokens = flops / 6 / params
    middle = np.median(np.log(params[budgets.argsort()[-20:]])), np.median(np.log(tokens[budgets.argsort()[-20:]]))
    logs = law.log_losses(np.log(params) - middle[0], np.log(tokens) - middle[1])[0]
    loss = np.exp(logs + 0.003 * generator.standard_normal(len(flops)))
    frame = pd.DataFrame({"flops": flops, "params": params, "tokens": tokens, "loss": loss, "budget_flops": flops})
    frame = frame.assign(run=[f"simulated-{row}" for row in frame.index])
    table = RunTable(frame=frame[:-1], source="simulated", metric="loss")
    return table, frame.iloc[-1]


def covered_where_the_prior_is_true(*, ladders):
    """The share of ladders of `coupled_case` whose central 50 and 90 % intervals hold the loss of their target."""
    held = {0.25: 0, 0.05: 0}
    for seed in range(ladders):
        table, target = coupled_case(seed)
        quantiles = forecast(fit(table), flops=target.flops, params=target.params, tokens=target.tokens).quantiles
        for level in held:
            held[level] += quantiles[level] <= target.loss <= quantiles[1 - level]
    return {"50 %": held[0.25] / ladders, "90 %": held[0.05] / ladders}


def prior_draw(generator):
    """Unknowns from the prior: normal proposals, one of 2,000 kept by its weight."""
    start = prior_start(Prior(), middle_log_loss=1.0, sparse=False)
    deviations = np.array([0.3, 1.0, 1.0, 0.6, 0.35, 0.7, 1.0, 0.7])
    proposals = start + deviations * generator.standard_normal((2000, 8))
    proposed = 0.5 * np.sum(((proposals - start) / deviations) ** 2, axis=1)
    logs = log_prior(proposals, laws_of(proposals), Prior(), middle_log_loss=1.0) + proposed
    weights = np.exp(logs - logs.max())
    return proposals[generator.choice(2000, p=weights / weights.sum())]


def test_the_coupled_law_s_intervals_hold_truths_that_its_prior_expects():
    """33x beyond; of 60 intervals that hold in 90 % of cases fewer than 48 do once in a hundred, of 50 % fewer than 21."""
    shares = covered_where_the_prior_is_true(ladders=60)
    assert shares["90 %"] >= 48 / 60
    assert shares["50 %"] >= 21 / 60


@pytest.mark.parametrize("kind", [QUICKSTART_LIKE, FOUR_BUDGETS, DELPHI_LIKE], ids=["quickstart", "four budgets", "delphi"])
def test_the_90_percent_interval_holds_the_truth_at_least_as_often_as_it_says(kind):
    """At least 85 %, and more often than the bootstrap over budgets alone."""
    share = covered(kind)
    assert share["ours"] >= 0.85
    assert share["budgets alone"] < share["ours"]


def test_the_simulated_optimum_is_the_lowest_loss_of_its_budget():
    """The closed forms of the optimum against a search over 4,001 sizes."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        law = random_surface(generator, centre_flops=1e19)
        sizes = optimal_params(law, flops=1e20) * np.geomspace(0.1, 10, 4001)
        losses = surface_loss(law, params=sizes, tokens=1e20 / 6 / sizes)
        assert np.argmin(losses) == 2000
        assert losses[2000] == pytest.approx(float(frontier_loss(surface_frontier(law), flops=1e20)), rel=1e-12)
