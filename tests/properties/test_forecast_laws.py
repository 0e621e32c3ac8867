"""Laws of every forecast: it never narrows with distance nor widens with runs, and no table makes it crash or say no number."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import fit
from marin_scaling.fitting.law import law_names
from marin_scaling.forecast.forecast import Forecast, Target, forecast, forecast_runs, optimal_target
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import RunTable, simulate_ladder
from marin_scaling.run.table_io import LARGEST_NUMBER, LEAST_NUMBER

HOFFMANN = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
COLUMNS = ("flops", "params", "tokens", "loss")
FEW = settings(max_examples=5, derandomize=True)


@st.composite
def surfaces(draw):
    """Surfaces with a floor of 0.8 to 2.3 and about as much above it at 1e19 FLOPs, where the optimum has 20 tokens each."""
    alpha, beta = draw(st.floats(0.25, 0.5)), draw(st.floats(0.25, 0.5))
    reducible, share, params = draw(st.floats(0.8, 1.6)), beta / (alpha + beta), (1e19 / 120) ** 0.5
    by_params, by_tokens = reducible * share * params**alpha, reducible * (1 - share) * (20 * params) ** beta
    return SurfaceLaw(E=draw(st.floats(0.8, 2.3)), A=by_params, B=by_tokens, alpha=alpha, beta=beta)


@st.composite
def ladders(draw):
    """Three to seven budgets of four to six sizes, from quiet to noisy."""
    return simulate_ladder(
        draw(surfaces()),
        budgets_flops=np.geomspace(1e18, 1e20, draw(st.integers(3, 7))),
        sizes_per_budget=draw(st.integers(4, 6)),
        noise=draw(st.sampled_from([0.0, 0.001, 0.004, 0.01])),
        seed=draw(st.integers(0, 1000)),
    )


def table(flops, params, tokens, loss):
    columns = {"flops": flops, "params": params, "tokens": tokens, "loss": loss, "budget_flops": flops}
    frame = pd.DataFrame({"run": [f"r{row}" for row in range(len(flops))], **columns})
    return RunTable(frame=frame, source="table.csv", metric="loss")


def hoffmann_ladder(*, budgets=(1e18, 3e18, 1e19, 3e19, 1e20), sizes=5):
    return simulate_ladder(HOFFMANN, budgets_flops=budgets, sizes_per_budget=sizes, noise=0.002, seed=0)


def changed(runs, **factors):
    """The table with columns multiplied."""
    return replace(runs, frame=runs.frame.assign(**{name: runs.frame[name] * factor for name, factor in factors.items()}))


def one_ratio(flops):
    """Hoffmann's losses of ten runs at twenty tokens per parameter, whatever FLOPs they are said to have cost."""
    params = np.geomspace(1e7, 1e9, 10)
    loss = surface_loss(HOFFMANN, params=params, tokens=20 * params)
    return table(flops, np.sqrt(flops / 120), 20 * np.sqrt(flops / 120), loss)


def answer(runs):
    """The forecast ten times beyond, or its refusal; anything else, a warning among them, fails the test."""
    try:
        return forecast(fit(runs), flops=10 * runs.frame["flops"].max())
    except (FitRefused, UsageError) as refusal:
        return refusal


def assert_sound(found):
    """A refusal that says what, why and how to go on, or numbers that are finite, above zero and in order."""
    if not isinstance(found, Forecast):
        assert all((found.what, found.fix))
        assert "nan" not in str(found).lower().split()
        return
    quantiles = list(found.quantiles.values())
    numbers = [found.flops, found.params, found.tokens, *quantiles, *found.bands.values(), *(found.params_interval or ())]
    assert all(number is None or (math.isfinite(number) and number > 0) for number in numbers)
    assert quantiles == sorted(quantiles)


def widths(result, targets):
    """The 90 % intervals as shares of the median."""
    return [(each.interval()[1] - each.interval()[0]) / each.median for each in forecast_runs(result, targets)]


@FEW
@given(ladders())
def test_an_interval_never_narrows_when_the_target_moves_away(runs):
    """As a share of the loss: along the optimum, to ever longer training, and to ever larger models, from the runs outward."""
    result = fit(runs)
    start = optimal_target(result, 1e20)
    steps = 10.0 ** np.arange(0, 4.5, 0.5)
    longer = [replace(start, tokens=start.tokens * step, flops=start.flops * step) for step in steps]
    larger = [
        Target(flops=1e20 * step, params=start.params * step, tokens=start.tokens, active_params=start.params * step)
        for step in steps
    ]
    for targets in ([optimal_target(result, 1e20 * step) for step in steps], longer, larger):
        shares = widths(result, targets)
        assert shares == sorted(shares)


@settings(max_examples=4, derandomize=True)
@given(surfaces(), st.integers(3, 6), st.integers(4, 6), st.sampled_from([0.001, 0.004, 0.01]), st.sampled_from([2, 4]))
def test_more_runs_of_one_law_do_not_widen_the_interval_by_a_tenth(law, budgets, sizes, noise, times):
    """Two or four seeds of each run, in the mean over four ladders: one that scatters little by chance is too narrow alone."""
    targets = [
        Target(flops=flops, params=size, tokens=20 * size, active_params=size)
        for flops, size in ((flops, (flops / 120) ** 0.5) for flops in (1e20, 1e21, 1e22))
    ]

    def log_widths(seeds):
        one, *more = (
            simulate_ladder(
                law, budgets_flops=np.geomspace(1e18, 1e20, budgets), sizes_per_budget=sizes, noise=noise, seed=each
            )
            for each in seeds
        )
        frames = [runs.frame.assign(run=f"{n} " + runs.frame["run"]) for n, runs in enumerate((one, *more))]
        return np.log(widths(fit(replace(one, frame=pd.concat(frames, ignore_index=True))), targets))

    few, many = (np.mean([log_widths(range(100 * n, 100 * n + count)) for n in range(4)], axis=0) for count in (1, times))
    assert (many < few + np.log(1.1)).all()


@FEW
@given(
    ladders(), st.randoms(), st.sampled_from([1e-30, 1e-6, 1e6, 1e30]), st.sampled_from(["flops", "params", "tokens", "loss"])
)
def test_neither_row_order_nor_units_change_a_forecast(runs, random, factor, column):
    """By more than a tenth of its interval, which is what another seed may do to it; most often to eight digits."""
    order = list(range(len(runs.frame)))
    random.shuffle(order)
    other = changed(replace(runs, frame=runs.frame.iloc[order].reset_index(drop=True)), **{column: factor})
    known, found = answer(runs), answer(other)
    assert isinstance(known, Forecast) == isinstance(found, Forecast)
    if isinstance(known, Forecast):
        unit = factor if column == "loss" else 1.0
        tenth = (known.interval()[1] - known.interval()[0]) / 10
        for level, value in known.quantiles.items():
            assert abs(found.quantiles[level] / unit - value) < tenth * (1 if 0.05 <= level <= 0.95 else 3)


REFUSED = {
    "constant losses": (
        table(np.geomspace(1e18, 1e20, 8), *np.geomspace((1e8, 1e9), (1e9, 1e10), 8).T, [3.0] * 8),
        "same loss",
    ),
    "losses that hardly change": (one_ratio(np.geomspace(1e18, 1e20, 10)), "lie within"),
    "one budget": (hoffmann_ladder(budgets=(1e18,), sizes=8), "all 8 runs cost about"),
    "two identical budgets": (hoffmann_ladder(budgets=(1e18, 1e18)), "all 10 runs cost about"),
    "two budgets a fifth apart": (hoffmann_ladder(budgets=(1e18, 1.2e18)), "all 10 runs cost about"),
    "three runs": (hoffmann_ladder(budgets=(1e18, 1e19, 1e20), sizes=1), "3 usable runs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_says_nothing_is_refused_in_words(case):
    """Not forecast by the prior alone."""
    runs, words = REFUSED[case]
    if case == "losses that hardly change":
        runs = replace(runs, frame=runs.frame.assign(loss=3.0 - 1e-12 * np.arange(10)))
    found = answer(runs)
    assert isinstance(found, FitRefused)
    assert words in found.what


TINY, HUGE = LEAST_NUMBER, LARGEST_NUMBER
UNUSUAL = {
    "two nearly identical budgets": hoffmann_ladder(budgets=(1e18, 1.26e18)),
    "five points on a line": one_ratio(np.geomspace(1e18, 1e20, 10)),
    "FLOPs at the lower end": one_ratio(np.geomspace(TINY, 100 * TINY, 10)),
    "FLOPs at the upper end": one_ratio(np.geomspace(HUGE / 100, HUGE, 10)),
    "FLOPs from end to end": one_ratio(np.geomspace(TINY, HUGE, 10)),
    "all columns from end to end": table(*np.geomspace((TINY, HUGE, TINY), (HUGE, TINY, HUGE), 8).T, np.linspace(3, 2, 8)),
    "one size and length at every budget": table(np.geomspace(1e18, 1e20, 6), [1e8] * 6, [1e9] * 6, np.linspace(3.5, 3, 6)),
    "losses at both ends": table(*np.geomspace((1e18, 1e8, 1e9), (1e20, 1e9, 1e10), 8).T, np.geomspace(HUGE, TINY, 8)),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_an_unusual_table_has_a_finite_forecast_or_a_refusal(case):
    """Ten times beyond; no warning of numpy either, which this suite takes for errors."""
    runs = UNUSUAL[case]
    if case == "five points on a line":
        runs = replace(runs, frame=runs.frame.iloc[::2].reset_index(drop=True))
    assert_sound(answer(runs))


@FEW
@given(st.sampled_from(COLUMNS), st.floats(-30, 30))
def test_units_from_1e_30_to_1e30_have_a_finite_forecast(column, exponent):
    """Everything is relative, so that a ladder stays forecastable."""
    found = answer(changed(hoffmann_ladder(), **{column: 10**exponent}))
    assert isinstance(found, Forecast)
    assert_sound(found)


def test_a_covariate_that_is_the_same_everywhere_changes_no_loss():
    """An eighth of the parameters is active in every run: the quantiles of the table whose parameters are those."""
    runs = hoffmann_ladder()
    sparse = replace(runs, frame=runs.frame.assign(active_params=runs.frame["params"] / 8))
    found, known = answer(sparse), answer(changed(runs, params=1 / 8))
    assert found.active_params == pytest.approx(known.params)
    assert list(found.quantiles.values()) == pytest.approx(list(known.quantiles.values()), rel=1e-3)


@settings(max_examples=20, derandomize=True)
@given(st.data())
def test_random_numbers_have_a_finite_forecast_or_a_refusal(data):
    """Four to nine rows of any numbers that a table may hold; every law."""
    count = data.draw(st.integers(4, 9))
    end = st.floats(math.log10(TINY), math.log10(HUGE))
    flops, params, tokens = (10 ** np.array(data.draw(st.lists(end, min_size=count, max_size=count))) for _ in range(3))
    loss = 10 ** np.array(data.draw(st.lists(st.floats(-2, 2), min_size=count, max_size=count)))
    runs = table(flops, params, tokens, loss)
    law = data.draw(st.sampled_from([*law_names(), "pinned-frontier@0", "pinned-frontier@1"]))
    try:
        found = forecast(fit(runs, law=law), flops=float(flops.max()))
    except (FitRefused, UsageError) as refusal:
        found = refusal
    assert_sound(found)
