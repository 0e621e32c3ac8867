"""From a table to a frontier law: which law, what is refused, what is doubted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from marin_scaling.errors import FitRefused, UsageError
from marin_scaling.fitting.fit import FitStatus, fit
from marin_scaling.fitting.law import LawKind
from marin_scaling.laws import SurfaceLaw, frontier_loss, surface_frontier
from marin_scaling.run.table import RunTable, simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
BUDGETS = (1e18, 3e18, 1e19, 3e19, 1e20)


def ladder(*, budgets=BUDGETS, sizes=5, noise=0.001, seed=0, **changes):
    return simulate_ladder(SURFACE, budgets_flops=budgets, sizes_per_budget=sizes, noise=noise, seed=seed, **changes)


def frontier_fit(runs, law="isoflop-frontier"):
    return fit(runs, law=law)


def table(**columns):
    frame = pd.DataFrame({"run": [f"r{n}" for n in range(len(columns["flops"]))], **columns}).assign(
        budget_flops=columns["flops"]
    )
    return RunTable(frame=frame, source="table.csv", metric="loss")


def test_a_fit_has_one_blas_thread_however_many_its_process_has():
    """So its numbers are the same in every interface and on every machine with this library."""

    def threads(*_, **__):
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        assert threads() == {2}
        assert LawKind(name="threads", about="", fit=threads)(ladder(), seed=0, prior=None) == {1}
        assert threads() == {2}


def test_a_known_surface_gives_its_own_frontier():
    """Quadratics through symmetric bowls of an asymmetric surface are biased; at the data by less than 0.2 % here."""
    result = frontier_fit(ladder(noise=0.0, sizes=7))
    truth = surface_frontier(SURFACE)
    assert frontier_loss(result.law.frontier, flops=BUDGETS) == pytest.approx(frontier_loss(truth, flops=BUDGETS), rel=2e-3)
    assert result.allocation.params_exponent == pytest.approx(0.28 / 0.62, abs=0.01)
    assert result.law.name == "isoflop-frontier"


@settings(max_examples=20)
@given(st.randoms())
def test_row_order_does_not_matter(random):
    """The same runs in another order are the same runs."""
    given_table = ladder()
    order = list(range(len(given_table.frame)))
    random.shuffle(order)
    shuffled = replace(given_table, frame=given_table.frame.iloc[order].reset_index(drop=True))
    assert frontier_fit(shuffled).law.parameters == pytest.approx(frontier_fit(given_table).law.parameters, rel=1e-6)


@settings(max_examples=20)
@given(st.floats(1e-6, 1e6))
def test_the_unit_of_compute_does_not_matter(factor):
    """PetaFLOPs or FLOPs: E, A and gamma are the same, and C0 is in the table's unit."""
    plain = ladder()
    scaled = replace(plain, frame=plain.frame.assign(flops=plain.frame["flops"] * factor))
    before, after = frontier_fit(plain).law.parameters, frontier_fit(scaled).law.parameters
    assert after == pytest.approx({**before, "C0": before["C0"] * factor}, rel=1e-6)


def test_a_sound_ladder_is_usable():
    """Five budgets, five sizes, quiet runs: nothing to doubt."""
    result = frontier_fit(ladder(sizes=7, noise=0.002))
    assert result.status is FitStatus.USABLE
    assert result.status.may_be_used


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (table(flops=[1e18, 2e18, 3e18], params=[1e8] * 3, tokens=[1e9] * 3, loss=[3.0, 2.9, 2.8]), "3 usable runs"),
        (
            table(flops=[1e18] * 6, params=np.geomspace(1e8, 1e9, 6), tokens=np.geomspace(1e9, 1e8, 6), loss=[3.0] * 6),
            "all 6 runs cost",
        ),
        (table(flops=np.geomspace(1e18, 1e20, 6), params=[1e8] * 6, tokens=[1e9] * 6, loss=[3.0] * 6), "the same loss, 3"),
        (
            table(flops=np.geomspace(1e18, 1e20, 6), params=[1e8] * 6, tokens=[1e9] * 6, loss=[2, 3, 4, 5, 6, 7.0]),
            "1 usable runs",
        ),
        (ladder(budgets=(1e18, 1e19)), "2 usable budgets; this law needs 3"),
        (ladder(budgets=(1e18, 1e19, 1e20), sizes=3), "as many unknowns as numbers"),
    ],
)
def test_runs_that_cannot_carry_a_law_are_refused_in_one_sentence(runs, message):
    """The sentence gives the two numbers that disagree, and the source."""
    with pytest.raises(FitRefused, match=message) as refusal:
        frontier_fit(runs)
    assert runs.source in str(refusal.value)
    assert refusal.value.exit_status == 2


def test_an_unknown_law_is_refused_with_the_known_ones():
    """A typing error must not choose a law."""
    with pytest.raises(UsageError, match="law 'chinchila'"):
        frontier_fit(ladder(), law="chinchila")


def test_one_run_a_budget_is_taken_as_a_frontier_and_it_is_said():
    """A ladder at one ratio of tokens to parameters has no bowls."""
    result = frontier_fit(ladder(sizes=1, noise=0.0))
    assert result.law.name == "best-runs-frontier"
    assert result.why_this_law == "no isoFLOP grid: only 0 of 5 budgets have runs of three sizes or more"
    assert result.status is FitStatus.NOT_A_GRID
    assert pytest.approx(SURFACE.E, rel=1e-4) == result.law.frontier.E  # these runs lie on the frontier exactly


def test_a_budget_without_a_bowl_is_left_out_by_name():
    """Its runs stand among those left out, with the reason, and not among the rows."""
    full, lone = ladder(), ladder(budgets=(5e20,), sizes=1)
    result = frontier_fit(replace(full, frame=pd.concat([full.frame, lone.frame.assign(run="lone")], ignore_index=True)))
    assert [(each.run, each.why) for each in result.excluded] == [
        ("lone", "its budget of 5e20 FLOPs has runs of fewer than three sizes")
    ]
    assert "lone" not in [row["run"] for row in result.rows]
    assert result.largest_flops == pytest.approx(1e20)


def test_losses_that_rise_with_compute_may_not_be_used():
    """A law is returned, so that one can look at it, and its status says no."""
    rising = ladder(noise=0.0)
    upwards = rising.frame["loss"] + np.log10(rising.frame["flops"] / 1e18)
    result = frontier_fit(replace(rising, frame=rising.frame.assign(loss=upwards)))
    assert result.status is FitStatus.NOT_FALLING
    assert not result.status.may_be_used


@pytest.mark.parametrize(
    ("runs", "status"),
    [
        (ladder(budgets=(1e18, 1e19, 1e20)), FitStatus.ONLY_THREE_BUDGETS),
        (ladder(budgets=(1e18, 1e19, 1e20, 1e21)), FitStatus.FEW_BUDGETS),
    ],
)
def test_few_budgets_are_doubted(runs, status):
    """With as many budgets as unknowns nothing tests the law."""
    assert frontier_fit(runs).status is status


def test_budgets_that_stray_from_the_law_are_noticed():
    """One budget 3 % too high, runs quiet to 0.1 %: budgets scatter more than runs, and the noise says how much."""
    quiet = ladder()
    shifted = quiet.frame["loss"].where(quiet.frame["budget_flops"] != 1e19, quiet.frame["loss"] * 1.03)
    result = frontier_fit(replace(quiet, frame=quiet.frame.assign(loss=shifted)))
    assert FitStatus.BUDGETS_SCATTER.value in (result.status.value, *result.warnings)
    assert result.law.noise.budget_variance > 10 * result.law.noise.run_variance


def test_bowls_that_do_not_close_are_doubted_by_name():
    """All runs far on one side of the optimum: the lowest run is taken at each budget, and each is named."""
    plain = ladder(sizes=7, noise=0.0)
    smaller = plain.frame[plain.frame["params"] < plain.frame.groupby("budget_flops")["params"].transform("median") * 0.99]
    result = frontier_fit(replace(plain, frame=smaller.reset_index(drop=True)))
    assert result.status is FitStatus.BOWLS_NOT_CLOSED
    assert sum("add sizes" in warning for warning in result.warnings) >= 2
