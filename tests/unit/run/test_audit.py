"""Which runs are left out of a fit for what their numbers say."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.audit import audit_losses, audit_runs, find_outliers
from marin_scaling.run.table import read_run_table, simulate_ladder

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


def outliers(frame):
    return find_outliers(**{name: frame[name].to_numpy() for name in ("flops", "params", "loss")})


@given(st.integers(0, 80))
def test_one_run_at_the_loss_of_a_uniform_guess_is_found_wherever_it_stands(position):
    """11.76 is the logarithm of Llama 3's vocabulary: a run that diverged to knowing nothing."""
    frame = read_run_table(DELPHI).frame
    loss = frame["loss"].to_numpy().copy()
    loss[position] = 11.76
    found, _ = outliers(frame.assign(loss=loss))
    assert list(found) == [position]
    assert "its loss 11.76 lies" in found[position]


@settings(max_examples=30)
@given(st.floats(0.25, 0.5), st.floats(0.25, 0.5), st.floats(0.8, 2.3), st.integers(0, 1000))
def test_no_run_of_a_sound_ladder_is_left_out(alpha, beta, floor, seed):
    """Bowls 30 times wide, runs noisy to 0.5 %."""
    law = SurfaceLaw(E=floor, A=1.2 * 1e8**alpha / 2, B=1.2 * 2e9**beta / 2, alpha=alpha, beta=beta)
    budgets = np.geomspace(1e18, 1e20, 5)
    table = simulate_ladder(law, budgets_flops=budgets, sizes_per_budget=6, noise=0.005, seed=seed, size_range=30.0)
    assert outliers(table.frame) == ({}, {})


@pytest.mark.parametrize(("loss", "found"), [(5.9, []), (11.0, [7])])
def test_of_a_handful_of_runs_only_a_loss_beyond_twice_the_median_is_judged(loss, found):
    """Twelve runs are needed before six coefficients show which one does not fit."""
    few = {"flops": np.geomspace(1e18, 1e20, 8), "params": np.geomspace(1e8, 1e9, 8), "loss": np.array([3.0] * 7 + [loss])}
    assert list(find_outliers(**few)[0]) == found


def test_of_a_handful_of_runs_the_cheapest_may_have_any_loss():
    """The smallest runs of a steep ladder lie far above its median."""
    loss = np.array([9.0, 5.0, 3.5, 3.2, 3.0, 2.9])
    assert find_outliers(flops=np.geomspace(1e14, 1e19, 6), params=np.geomspace(1e6, 1e9, 6), loss=loss) == ({}, {})


def test_a_lower_loss_than_expected_is_named_and_never_left_out():
    """Only runs that went wrong are left out; luck, slips and better recipes are for the reader to judge."""
    frame = read_run_table(DELPHI).frame
    loss = frame["loss"].to_numpy().copy()
    loss[40] *= 0.7
    assert [list(found) for found in outliers(frame.assign(loss=loss))] == [[], [40]]
    audit = audit_runs(frame.assign(loss=loss))
    assert (audit.reasons, [each.code for each in audit.findings]) == ({}, ["low-loss"])
    assert f"--drop {frame['run'].iloc[40]}" in audit.findings[0].message


@pytest.mark.parametrize("excess", [1.05, 1.09])
def test_a_run_a_few_percent_high_is_kept(excess):
    """Nothing under 10 % is left out."""
    frame = read_run_table(DELPHI).frame
    loss = frame["loss"].to_numpy().copy()
    loss[40] *= excess
    assert outliers(frame.assign(loss=loss)) == ({}, {})


def test_a_wall_is_kept_and_a_jump_is_not():
    """Seven runs a bowl, a hundred times wide: the outermost is 30 % up; the same loss between two low ones has diverged."""
    offsets, budgets = np.linspace(-2.3, 2.3, 7), np.geomspace(1e18, 1e20, 4)
    budget, offset = np.repeat(budgets, 7), np.tile(offsets, 4)
    loss = (2 + 30 * budget**-0.07) * (1 + 0.012 * offset**2)
    loss[:7] *= np.where(offsets > 1, np.exp(0.15 * (offsets - 1)), 1)
    columns = {"flops": budget, "budget_flops": budget, "params": (budget / 120) ** 0.5 * np.exp(offset)}
    names = [f"run-{n}" for n in range(28)]
    wall = audit_losses(names, loss=loss, **columns)
    assert (wall.reasons, "run-6" in "".join(wall.doubts)) == ({}, True)
    jump = loss.copy()
    jump[17] = loss[6]
    assert list(audit_losses(names, loss=jump, **columns).reasons) == [17]
