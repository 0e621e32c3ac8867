"""Accuracy as a sigmoid of a soft metric: what is found, how sure it is, and what is refused."""

import numpy as np
import pytest

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.forecast.accuracy_curve import fit_sigmoid, require_reach, sigmoid_accuracy

TRUTH = {"low": 0.25, "high": 0.9, "slope": 10.0, "middle": 0.7}


def runs(*, soft=(0.4, 1.2), count=24, noise=0.0, seed=0, **changes):
    places = np.linspace(*soft, count)
    accuracy = sigmoid_accuracy(places, **{**TRUTH, **changes})
    return places, np.clip(accuracy + np.random.default_rng(seed).normal(0, noise, count), 0, 1)


def fitted(**changes):
    arguments = {name: changes.pop(name) for name in ("chance", "questions") if name in changes}
    soft, accuracy = runs(**changes)
    return fit_sigmoid(soft, accuracy=accuracy, **arguments)


@pytest.mark.parametrize("chance", [None, 0.25])
def test_a_known_curve_is_recovered_from_runs_without_noise(chance):
    """All four numbers to four digits, and every run explained; with the lower end pinned, and with it free."""
    curve = fitted(chance=chance)
    found = {name: getattr(curve, name) for name in TRUTH}
    assert found == pytest.approx(TRUTH, rel=1e-4)
    assert curve.r_squared == pytest.approx(1.0, abs=1e-8)


def test_the_intervals_of_its_numbers_hold_the_known_curve_and_its_scatter_about_nine_times_in_ten():
    """Four in each of fifteen tables. As those of a table err together, 43 of 60 is three standard errors below."""
    truth, inside = {**TRUTH, "residual": 0.02}, 0
    for seed in range(15):
        intervals = fitted(noise=0.02, chance=0.25, seed=seed).intervals()
        inside += sum(intervals[name][0] < truth[name] < intervals[name][1] for name in ("high", "slope", "middle", "residual"))
    assert inside >= 43


def test_the_90_percent_interval_holds_a_new_run_about_nine_times_in_ten():
    """Sixty tables whose best run is half-way up: a new run there and one beyond; four in sixty is three standard errors."""
    inside = {0.7: 0, 0.6: 0}
    for seed in range(60):
        curve = fitted(soft=(0.7, 1.2), noise=0.01, seed=seed, chance=0.25)
        new = np.random.default_rng(1000 + seed)
        for soft in inside:
            drawn = curve.drawn_accuracy(soft)
            low, high = np.quantile(drawn + curve.scatter_at(drawn) * new.standard_normal(drawn.shape), (0.05, 0.95))
            inside[soft] += bool(low < sigmoid_accuracy(soft, **TRUTH) + new.normal(0, 0.01) < high)
    assert all(count >= 47 for count in inside.values()), inside


def test_a_ceiling_that_no_run_has_come_near_is_open():
    """Runs up to a tenth of the climb leave it open over a third of all accuracies; runs up to the top pin it to a tenth."""
    near, far = fitted(noise=0.01, chance=0.25), fitted(soft=(0.85, 1.2), noise=0.01, chance=0.25)
    widths = [high - low for low, high in (curve.intervals()["high"] for curve in (near, far))]
    assert widths[0] < 0.1
    assert widths[1] > 0.33


def test_a_curve_that_says_nothing_at_the_target_is_refused_there_and_not_among_its_runs():
    """Runs that have only just left chance."""
    curve = fitted(soft=(0.85, 1.3), noise=0.01, chance=0.25)
    require_reach(curve, soft=0.85)
    with pytest.raises(FitRefused, match="may be anything from") as refusal:
        require_reach(curve, soft=0.4)
    assert "--pool" in refusal.value.fix


def test_the_number_of_questions_puts_the_scatter_of_counting_into_the_noise():
    """Half right of 100: five points of noise, though the runs happen to lie on the curve."""
    curve = fitted(noise=0.0, chance=0.25, questions=100)
    assert np.median(curve.scatter_at(0.5)) == pytest.approx(0.05, rel=0.05)


def test_equal_seeds_give_equal_curves_and_the_order_of_runs_changes_nothing():
    """Bit for bit, and to rounding."""
    soft, accuracy = runs(noise=0.02)
    first, again = (fit_sigmoid(soft, accuracy=accuracy, chance=0.25) for _ in range(2))
    turned = fit_sigmoid(soft[::-1], accuracy=accuracy[::-1], chance=0.25)
    assert np.array_equal(first.draws, again.draws)
    assert turned.intervals()["high"] == pytest.approx(first.intervals()["high"], rel=1e-6)


def test_thousands_of_runs_give_the_curve_that_they_lie_on():
    """More than are taken one by one: neighbours count together, and the curve is the same."""
    curve = fitted(count=20_000, noise=0.02, chance=0.25)
    assert {name: getattr(curve, name) for name in TRUTH} == pytest.approx(TRUTH, rel=0.01)
    assert curve.intervals()["residual"] == pytest.approx((0.02, 0.02), rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_accuracy_flat_at_chance_is_refused(seed):
    """Noise of two points about 0.25, whatever the soft metric."""
    with pytest.raises(FitRefused) as refusal:
        fitted(high=0.25, noise=0.02, seed=seed, chance=0.25)
    assert refusal.value.fix


def test_mere_noise_is_taken_for_a_curve_once_in_a_hundred_tables_at_most():
    """Two hundred tables of six runs, the fewest that are taken: six is twice the expected two, and three standard errors."""
    taken = 0
    for seed in range(200):
        soft, accuracy = np.linspace(0.5, 1, 6), np.random.default_rng(seed).uniform(0.2, 0.8, 6)
        try:
            fit_sigmoid(soft, accuracy=accuracy)
        except FitRefused:
            continue
        taken += 1
    assert taken <= 6


def test_a_spread_that_counting_explains_is_refused():
    """Steadily rising from 0.24 to 0.26, on 200 questions."""
    soft = np.linspace(0.5, 1, 12)
    with pytest.raises(FitRefused, match="no more than one model's on other sets of 200 questions"):
        fit_sigmoid(soft, accuracy=np.linspace(0.26, 0.24, 12), questions=200)


def test_a_curve_that_explains_less_than_half_is_refused():
    """Forty runs rise, surely but little, under five times as much noise."""
    with pytest.raises(FitRefused, match=r"\(R\^2\); 50% is the least"):
        fitted(count=60, high=0.45, noise=0.1, chance=0.25, seed=3)


@pytest.mark.parametrize(
    ("soft", "accuracy", "said"),
    [
        (np.linspace(0.5, 1, 5), np.linspace(0.8, 0.3, 5), "5 runs with both"),
        (np.full(8, 0.7), np.linspace(0.8, 0.3, 8), "All 8 runs have one soft metric, 0.7"),
        (np.linspace(0.5, 1, 8), np.full(8, 0.25), "All 8 runs have one accuracy, 0.25"),
        (np.linspace(0.5, 1, 8), np.linspace(0.3, 0.8, 8), "does not rise steadily"),
    ],
)
def test_runs_without_a_curve_are_refused(soft, accuracy, said):
    """Too few, no spread, and an accuracy that falls as the soft metric does; each with why and what to do."""
    with pytest.raises(FitRefused, match=said) as refusal:
        fit_sigmoid(soft, accuracy=accuracy)
    assert "--pool" in refusal.value.fix


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": np.linspace(80, 30, 8)}, "shares from 0 to 1"),
        ({"accuracy": np.linspace(0.8, 0.3, 7)}, "two lists of one length"),
        ({"accuracy": np.array([0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, np.nan])}, "not finite"),
        ({"chance": 1.5}, "accuracy by chance"),
        ({"questions": 0}, "number of questions"),
    ],
)
def test_arguments_that_are_no_numbers_of_their_kind_are_refused(changes, said):
    """Per cent, unequal lists, NaN, impossible chance, no questions."""
    arguments = {"accuracy": np.linspace(0.8, 0.3, 8), **changes}
    with pytest.raises(UsageError, match=said):
        fit_sigmoid(np.linspace(0.5, 1, 8), **arguments)
