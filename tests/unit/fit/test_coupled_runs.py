"""From a table to a posterior: what is taken for the size, what is doubted, what is said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import FitRefused
from marin_scaling.fitting.combined_law import fitted_runs, log_sparsity_at, sparsity_of
from marin_scaling.fitting.coupled_law import KAPPA, Normal, Prior
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.fitting.law import Targets
from marin_scaling.forecast.forecast import forecast
from marin_scaling.laws import SurfaceLaw, optimal_params, surface_loss
from marin_scaling.run.table import RunTable, simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20)


def ladder(*, budgets=BUDGETS, sizes=6, noise=0.002, seed=0):
    return simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=sizes, noise=noise, seed=seed)


def table_of(params, tokens, *, loss=None, noise=0.001):
    """A 6 N D table of any runs; losses are the surface's unless given."""
    flops = 6 * params * tokens
    if loss is None:
        deviates = np.random.default_rng(0).standard_normal(len(params))
        loss = surface_loss(SURFACE, params=params, tokens=tokens) * (1 + noise * deviates)
    columns = {"flops": flops, "params": params, "tokens": tokens, "loss": loss, "budget_flops": flops}
    frame = pd.DataFrame({"run": [f"r{row}" for row in range(len(params))], **columns})
    return RunTable(frame=frame, source="table.csv", metric="loss")


def sparse(runs, sparsity):
    """The same models with `sparsity` times as many parameters, of which a token passes as many as before."""
    params = runs.frame["params"]
    return replace(runs, frame=runs.frame.assign(active_params=params, params=params * sparsity))


@pytest.fixture(scope="module")
def dense():
    return fit(ladder())


def test_a_sound_ladder_is_usable_and_nothing_is_doubted(dense):
    """Five budgets of six sizes: bowls are drawn, a frontier beside them, all runs are in the fit."""
    assert dense.status is FitStatus.USABLE
    assert dense.warnings == ()
    assert (len(dense.bowls), len(dense.points), len(dense.frame)) == (5, 5, 30)
    assert dense.why_this_law == "all 30 runs, bowls at 5 budgets, 2.57 to 401 tokens per parameter"


def test_the_parameters_are_one_law_that_passes_through_the_runs(dense):
    """The surface's formula with the printed numbers gives every loss within 1 %, and gamma is g a b / (a + b)."""
    law, frame = dense.law.parameters, dense.frame
    inner = law["w"] * (frame["params"] / law["N0"]) ** -law["a"] + (1 - law["w"]) * (frame["tokens"] / law["D0"]) ** -law["b"]
    assert (law["E"] + law["K"] * inner ** law["g"]).to_numpy() == pytest.approx(frame["loss"].to_numpy(), rel=0.01)
    assert law["gamma"] == pytest.approx(law["g"] * law["a"] * law["b"] / (law["a"] + law["b"]))


def test_each_law_alone_gives_its_own_parameters_and_formula():
    """Those of the combined law are both; its formula adds what a size off the optimum loses to the frontier."""
    runs = ladder(noise=0.001)
    surface, frontier, both = (fit(runs, law=name).law for name in ("coupled-surface", "all-runs-frontier", "combined"))
    assert surface.formula == "E + K * (w * (N / N0)^-a + (1 - w) * (D / D0)^-b)^g"
    assert frontier.formula.startswith("E_f + K_f * (C / C_f)^-gamma_f")
    assert both.formula.split("; ")[:3] == [
        "(L * F^2)^(1/3)",
        f"L = {surface.formula}",
        "F = (E_f + K_f * (C / C_f)^-gamma_f) * L / L*",
    ]
    assert both.parameters == {**surface.parameters, **frontier.parameters}
    assert not surface.parameters.keys() & frontier.parameters.keys()


@pytest.mark.parametrize("sparsity", [None, 8.0])
def test_the_formula_at_its_parameters_gives_what_the_law_says_it_gives(sparsity):
    """Written out here from the printed names, at a size off the optimum; a sparse model counts N (S / S0)^kappa."""
    runs = ladder(noise=0.001)
    if sparsity:
        total = runs.frame["params"] * np.tile([sparsity / 2, sparsity], len(runs.frame))[: len(runs.frame)]
        runs = replace(runs, frame=runs.frame.assign(active_params=runs.frame["params"], params=total))
    law = fit(runs).law
    p = law.parameters
    active, tokens, flops = 3e8, 2e10, 6 * 3e8 * 2e10
    counted = (sparsity / p["S0"]) ** p["kappa"] if sparsity else 1.0

    def surface(n, d):
        return p["E"] + p["K"] * (p["w"] * (n / p["N0"]) ** -p["a"] + (1 - p["w"]) * (d / p["D0"]) ** -p["b"]) ** p["g"]

    sizes = active * counted * np.geomspace(1e-3, 1e3, 200_001)
    here, least = surface(active * counted, tokens), surface(sizes, active * counted * tokens / sizes).min()
    frontier = (p["E_f"] + p["K_f"] * (flops * counted / p["C_f"]) ** -p["gamma_f"]) * here / least
    total = None if sparsity is None else np.array([active * sparsity])
    target = Targets(flops=np.array([flops]), params=np.array([active]), tokens=np.array([tokens]), total_params=total)
    assert law.formula_losses(target)[0] == pytest.approx(np.cbrt(here * frontier**2), rel=1e-9)
    assert {"kappa", "S0"} <= p.keys() if sparsity else not {"kappa", "S0"} & p.keys()
    assert ("kappa" in law.formula) == bool(sparsity)


def test_a_ladder_at_one_ratio_is_said_to_be_one():
    """Twenty tokens per parameter throughout: usable, and how the loss changes off it was not seen."""
    params = np.geomspace(1e7, 1e9, 10)
    result = fit(table_of(params, 20 * params))
    assert result.status is FitStatus.ONE_RATIO
    assert result.status.may_be_used
    assert result.bowls == ()
    assert result.why_this_law == "all 10 runs, no isoFLOP grid, 20 to 20 tokens per parameter"


def test_a_ladder_whose_ratio_follows_compute_is_of_one_ratio_too_and_one_that_scatters_is_not():
    """A trend is one rule; a factor of two about it is seen."""
    params = np.geomspace(1e7, 1e9, 10)
    following = fit(table_of(params, 20 * params * (params / 1e8) ** 0.2))
    scattering = fit(table_of(params, 20 * params * np.tile([2**-0.5, 2**0.5], 5)))
    assert following.status is FitStatus.ONE_RATIO
    assert scattering.status is FitStatus.USABLE


def test_two_budgets_are_a_rough_guess_and_have_no_frontier():
    """Of two points nothing is drawn through; the forecast holds the truth all the same."""
    result = fit(ladder(budgets=(1e18, 1e19)))
    assert result.status is FitStatus.TWO_BUDGETS
    low, high = forecast(result, flops=1e20).interval()
    assert low < 2.5686 < high  # the surface's optimum


def test_losses_that_rise_with_compute_are_not_to_be_used_and_forecast_nothing():
    """On a grid and without one: the status says no, and a forecast is refused with it."""
    grid, params = ladder(noise=0.0), np.geomspace(1e7, 1e9, 10)
    rising = grid.frame["loss"] + np.log10(grid.frame["flops"] / 1e18)
    for runs in (
        replace(grid, frame=grid.frame.assign(loss=rising)),
        table_of(params, 20 * params, loss=np.linspace(3.0, 3.3, 10)),
    ):
        result = fit(runs)
        assert result.status is FitStatus.NOT_FALLING
        with pytest.raises(FitRefused, match="the loss does not fall with compute"):
            forecast(result, flops=1e22)


def test_as_many_unknowns_as_runs_are_said():
    """Eight runs and eight unknowns; with a ninth run it is no longer said."""
    params = np.geomspace(1e7, 1e9, 9)
    tokens = 20 * params * np.tile([0.5, 2, 1], 3)
    assert fit(table_of(params[:8], tokens[:8])).status is FitStatus.FEW_RUNS
    assert fit(table_of(params, tokens)).status is FitStatus.USABLE


def test_bowls_that_do_not_close_at_a_third_of_the_budgets_are_said_and_named():
    """Two of five budgets with large sizes only; their runs stay in the fit."""
    runs = ladder(noise=0.0, sizes=7)
    small = runs.frame["params"] < 1.01 * runs.frame.groupby("budget_flops")["params"].transform("median")
    frame = runs.frame[~(small & (runs.frame["budget_flops"] < 9e18))].reset_index(drop=True)
    result = fit(replace(runs, frame=frame))
    assert result.status is FitStatus.BOWLS_NOT_CLOSED
    assert sum("add sizes" in warning for warning in result.warnings) == 2
    assert len(result.frame) == 27


def test_runs_that_lie_off_every_law_together_are_said_to():
    """A swing of 6 % along compute, up and down again: the misfit is large, and the status says so."""
    runs = ladder(noise=0.001)
    wave = 1 + 0.06 * np.sin(2 / 3 * np.pi * np.log10(runs.frame["flops"] / 1e18))
    assert fit(replace(runs, frame=runs.frame.assign(loss=runs.frame["loss"] * wave))).status is FitStatus.LARGE_MISFIT


def test_a_best_run_far_off_the_law_is_said():
    """The best run of the largest budget is 4 % below the law of the others, whose noise is 0.2 %."""
    runs = ladder()
    loss = runs.frame["loss"].copy()
    best = loss[runs.frame["flops"] == runs.frame["flops"].max()].idxmin()
    loss[best] *= 0.96
    assert FitStatus.BEST_RUN_OFF.value in said_of(replace(runs, frame=runs.frame.assign(loss=loss)))
    assert FitStatus.BEST_RUN_OFF.value not in said_of(runs)


def said_of(runs: RunTable) -> list[str]:
    result = fit(runs)
    return [result.status.value, *result.warnings]


def test_every_status_but_the_worst_is_among_the_warnings():
    """A ladder of six runs at one ratio: few runs, and one ratio."""
    params = np.geomspace(1e7, 1e9, 6)
    result = fit(table_of(params, 20 * params))
    assert result.status is FitStatus.FEW_RUNS
    assert FitStatus.ONE_RATIO.value in result.warnings


def test_many_runs_are_thinned_and_it_is_said():
    """Of 250 runs 240 are taken; all are counted as used."""
    params = np.geomspace(1e7, 1e9, 250)
    result = fit(table_of(params, 20 * params * np.tile([0.5, 2], 125)))
    assert len(result.law.posterior.runs.flops) == 240
    said = "of 250 runs the fit takes 240, half of them spread over the uppermost decade of compute"
    assert said in result.warnings


def test_sizes_are_the_active_parameters_where_the_table_has_them(dense):
    """Eight times the parameters, equally sparse: the forecast of the dense ladder, with eight times its size in all."""
    result = fit(sparse(ladder(), 8.0))
    assert result.law.posterior.unknowns.shape[1] == 8
    assert result.law.posterior.runs.log_sparsity is None
    assert result.law.posterior.runs.params.max() == dense.law.posterior.runs.params.max()
    ours, theirs = forecast(result, flops=1e21), forecast(dense, flops=1e21)
    assert ours.quantiles == pytest.approx(theirs.quantiles)
    assert ours.active_params == pytest.approx(theirs.params)
    assert ours.params == pytest.approx(8 * ours.active_params)
    assert ours.tokens_per_param == pytest.approx(theirs.tokens_per_param)


def test_a_constant_covariate_within_two_per_cent_adds_no_unknown():
    """Rounding of expert sizes is no difference in sparsity; 5 % are one."""
    few = ladder(sizes=3)
    rounding = 8 * (1 + 0.01 * np.tile([0.0, 1.0, 0.5], 5))
    assert fitted_runs(sparse(few, rounding).frame).log_sparsity is None
    assert fitted_runs(sparse(few, 8 * (1 + 0.05 * np.tile([0.0, 1.0, 0.5], 5))).frame).log_sparsity is not None


def test_varying_sparsity_is_a_ninth_unknown_and_its_worth_is_found():
    """Losses of models as good as dense ones of N (M/N)^0.3: the posterior of kappa holds 0.3, closer than its prior."""
    runs = ladder(noise=0.001)
    sparsity = np.random.default_rng(3).choice([2.0, 8.0, 32.0], len(runs.frame))
    grown = runs.frame["params"] * (sparsity / 8) ** 0.3
    loss = surface_loss(SURFACE, params=grown, tokens=runs.frame["tokens"])
    result = fit(sparse(replace(runs, frame=runs.frame.assign(loss=loss)), sparsity))
    assert result.law.posterior.unknowns.shape[1] == 9
    kappa = result.law.posterior.unknowns[:, KAPPA]
    low, high = np.quantile(kappa, (0.05, 0.95))
    assert low < 0.3 < high
    assert kappa.std() < Prior().total_params.deviation / 3
    middle = np.median(sparsity_of(result.frame) ** kappa)
    assert f"worth {middle:.2g} N" in result.law.report()
    assert fit(ladder()).law.report() == ""


def test_the_forecast_of_a_sparse_ladder_is_as_sparse_as_its_larger_runs():
    """Total over active is the median of the larger half; logarithms about the median of all, none for dense models."""
    runs = ladder(noise=0.001)
    sparsity = np.where(np.arange(30) % 3 == 0, 4.0, 16.0)
    result = fit(sparse(runs, sparsity))
    assert sparsity_of(result.frame) == 16
    ahead = forecast(result, flops=1e21)
    assert ahead.params == pytest.approx(16 * ahead.active_params)
    logs = log_sparsity_at(result.frame, np.array([16.0, 64.0]))
    assert logs == pytest.approx([0.0, np.log(4)])
    assert log_sparsity_at(fit(ladder()).frame, np.array([16.0])) is None


def test_only_differences_in_sparsity_count():
    """All models four times sparser, as if the count of parameters were in another unit: the same forecast."""
    runs = ladder(noise=0.001)
    sparsity = np.where(np.arange(30) % 3 == 0, 4.0, 16.0)
    once, fourfold = (forecast(fit(sparse(runs, factor * sparsity)), flops=1e21) for factor in (1, 4))
    assert fourfold.quantiles == pytest.approx(once.quantiles, rel=1e-6)
    assert fourfold.params == pytest.approx(4 * once.params)


def test_a_prior_of_one_s_own_is_used_and_kept(dense):
    """Held to g = 0.7 by a narrow prior: the draws are there, the default's nearer to 1; the result has the prior it used."""
    prior = Prior(coupling=Normal(mean=float(np.log(0.7)), deviation=0.01))
    result = fit(ladder(), prior=prior)
    assert np.median(result.law.posterior.laws.g) == pytest.approx(0.7, abs=0.02)
    assert np.median(dense.law.posterior.laws.g) > 0.8
    assert result.law.posterior.prior == prior


def test_the_optimum_is_that_of_the_surface_within_its_bowls_known_bias(dense):
    """Quadratics through bowls that are not even are off by some per cent: N* at the middle budget."""
    assert dense.allocation.params_at(1e19) == pytest.approx(optimal_params(SURFACE, flops=1e19), rel=0.08)


@pytest.mark.parametrize("wave", [0.02, 0.06])
def test_quiet_runs_on_a_wave_are_a_law_that_is_off_and_not_noise(wave):
    """Scatter of 0.1 % about a wave of 2 or 6 % of the loss in compute: the mode has that noise, to a factor of two."""
    quiet = ladder(noise=0.001)
    shape = 1 + wave * np.sin(np.pi * np.log10(quiet.frame["flops"] / 1e18))
    result = fit(replace(quiet, frame=quiet.frame.assign(loss=quiet.frame["loss"] * shape)))
    assert result.law.parameters["sigma"] < 0.002 < 0.01 < result.law.parameters["tau"]
    assert result.status is FitStatus.LARGE_MISFIT
    assert result.law.posterior.worth > 250


@pytest.mark.parametrize(
    "runs",
    [
        ladder(budgets=np.geomspace(1e17, 1e20, 10), sizes=100),
        replace(ladder(), frame=pd.concat([ladder(sizes=1, noise=0.01, seed=n).frame for n in range(4)], ignore_index=True)),
    ],
    ids=["1,000 runs in 10 budgets", "four copies of one run a budget"],
)
def test_the_order_of_rows_of_equal_cost_does_not_matter(runs):
    """Ties in FLOPs and sizes are settled by the numbers themselves."""
    shuffled = replace(runs, frame=runs.frame.sample(frac=1, random_state=2).reset_index(drop=True))
    given, other = (forecast(fit(each, swept="all"), flops=1e21) for each in (runs, shuffled))
    assert list(other.quantiles.values()) == pytest.approx(list(given.quantiles.values()), rel=1e-9)
