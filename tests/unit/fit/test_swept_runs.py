"""Which tables are sweeps, and what is kept of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from marin_scaling.errors import UsageError
from marin_scaling.fitting.fit import best_of_cells, fit
from marin_scaling.laws import SurfaceLaw
from marin_scaling.run.cells import cells_of, find_sweep, has_many_per_cell
from marin_scaling.run.table import read_run_table, simulate_ladder

SURFACE = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)
SIZES = np.geomspace(1e7, 1e9, 6)


def swept_frame(*, runs_a_cell=7, cells=6, **columns):
    """Runs of `cells` sizes, each trained `runs_a_cell` times at rising distance from the best rate; best first in no cell."""
    size = np.tile(SIZES[:cells], runs_a_cell)
    step = np.repeat(np.arange(runs_a_cell), cells)
    away = (step + np.tile(np.arange(cells), runs_a_cell)) % runs_a_cell  # each cell's best run stands in another row
    loss = 1.69 + 406.4 * size**-0.34 + 410.7 * (20 * size) ** -0.28 + 0.05 * away
    names = [f"run-{row}" for row in range(len(size))]
    flops = 120 * size**2
    frame = pd.DataFrame(
        {"run": names, "flops": flops, "params": size, "tokens": 20 * size, "loss": loss, "budget_flops": flops}
    )
    return frame.assign(away=away, **columns)


def test_a_cell_is_one_size_and_one_length_within_a_per_cent():
    """Batches that round the tokens otherwise are the same length; another size or active size is another cell."""
    runs = pd.DataFrame({"params": [1e8, 1e8, 1e8, 1.01e8], "tokens": [2.000e9, 2.001e9, 2.2e9, 2e9]})
    assert cells_of(runs).tolist() == [0, 0, 1, 2]
    assert len(set(cells_of(runs.assign(active_params=[1e7, 2e7, 1e7, 1e7])))) == 4


@pytest.mark.parametrize(
    ("runs_a_cell", "cells", "swept"),
    [(3, 6, True), (2, 6, False), (7, 5, True), (7, 4, False), (1, 6, False)],
    ids=["three of each of six", "two of each", "five cells", "four cells only", "one of each"],
)
def test_a_sweep_has_three_runs_or_more_in_its_cells_and_five_cells(runs_a_cell, cells, swept):
    """Fewer could be seeds of a few runs."""
    frame = swept_frame(runs_a_cell=runs_a_cell, cells=cells)
    assert has_many_per_cell(frame) is swept


@pytest.mark.parametrize(("repeated", "swept"), [(3, False), (4, True)])
def test_a_table_is_swept_when_more_than_three_tenths_of_its_cells_are(repeated, swept):
    """Of ten sizes three are swept, or four."""
    sizes = np.concatenate([np.geomspace(1e7, 1e9, 10), np.repeat(np.geomspace(1e7, 1e9, 10)[:repeated], 2)])
    assert has_many_per_cell(pd.DataFrame({"params": sizes, "tokens": 20 * sizes})) is swept


def test_seeds_alone_are_no_sweep_and_nothing_is_left_out():
    """Where the table tells the runs of a cell apart by a seed, they are one setting."""
    seeds = np.repeat([str(seed) for seed in range(7)], 6)
    frame = swept_frame(seed=seeds)
    kept, excluded = best_of_cells(frame)
    assert kept is frame
    assert excluded == ()
    both = swept_frame(seed=np.repeat(["0", "1", "0", "1", "0", "1", "0"], 6))  # three or four settings of two seeds
    assert len(best_of_cells(both)[0]) < len(both)


@pytest.mark.parametrize("runs_a_cell", [3, 10])
def test_the_best_run_of_each_cell_is_kept(runs_a_cell):
    """In the order of the table."""
    frame = swept_frame(runs_a_cell=runs_a_cell)
    kept, excluded = best_of_cells(frame)
    expected = frame.sort_values("loss").groupby("params").head(1).sort_index()
    assert kept["run"].tolist() == expected["run"].tolist()
    assert len(kept) + len(excluded) == len(frame)


def test_all_seeds_of_the_best_setting_stay_though_another_has_the_best_run(tmp_path):
    """Three seeds of each rate; the lowest mean decides, not the luckiest seed."""
    rows = "\n".join(
        f"{name}-{rate}-{seed},{size},{20 * size},{120 * size**2},{loss + shift},{rate},{seed}"
        for name, size, loss in (("a", 1e8, 3.0), ("b", 2e8, 2.8), ("c", 4e8, 2.6), ("d", 8e8, 2.5))
        for rate, shifts in ((1e-3, (0.01, 0.02, 0.03)), (2e-3, (0.005, 0.06, 0.07)), (4e-3, (0.1, 0.11, 0.12)))
        for seed, shift in enumerate(shifts)
    )
    (tmp_path / "runs.csv").write_text(f"run,params,tokens,flops,loss,learning_rate,trainer_seed\n{rows}\n")
    table = read_run_table(tmp_path / "runs.csv")
    kept, excluded = best_of_cells(table.frame, sweep=table.sweep)
    assert kept["run"].str.contains("-0.001-").tolist() == [True] * 12
    assert (len(excluded), "1 of the 3 settings" in excluded[0].why) == (24, True)


def test_every_run_left_out_is_named_with_how_many_were_better():
    """Nothing is dropped silently, and the way back is said."""
    frame = swept_frame()
    _, excluded = best_of_cells(frame)
    better = dict(zip(frame["run"], frame["away"], strict=True))
    assert [each.run for each in excluded] == frame["run"][frame["away"] >= 1].tolist()
    for each in excluded:
        assert each.why.startswith(f"swept: {better[each.run]} of the 7 runs of its size and tokens are lower")
        assert "--swept all keeps it" in each.why


def test_equal_losses_in_a_cell_are_counted_once_each():
    """Ties are broken by the order of the table, so that one is kept."""
    frame = swept_frame().assign(loss=3.0)
    assert best_of_cells(frame)[0].groupby("params").size().tolist() == [1] * 6


def test_a_fit_takes_the_best_of_a_sweep_and_says_so_or_all_when_asked():
    """Best: 6 of 42 runs; all: 42, of which 36 are not the best."""
    table = replace(simulate_ladder(SURFACE, budgets_flops=[1e18], sizes_per_budget=1, noise=0, seed=0), frame=swept_frame())
    best, whole = fit(table), fit(table, swept="all")
    assert (len(best.frame), len(best.excluded), len(whole.frame), len(whole.excluded)) == (6, 36, 42, 0)
    assert any(warning.startswith("swept runs") for warning in best.warnings)
    assert any("36 runs" in warning for warning in whole.warnings)
    assert not any("36 runs" in warning for warning in fit(replace(table, frame=best.frame), swept="all").warnings)
    size = {"params": SIZES[-1:], "tokens": 20 * SIZES[-1:]}
    assert np.exp(best.law.posterior.log_losses(**size)).mean() < np.exp(whole.law.posterior.log_losses(**size)).mean() - 0.05
    with pytest.raises(UsageError, match="'some'"):
        fit(table, swept="some")


def test_a_swept_column_is_found_in_few_cells_and_a_seed_under_any_name_is_not():
    """Four sizes, six rates each: the loss follows the rate; it does not follow the seed."""
    frame = swept_frame(runs_a_cell=6, cells=4)
    rate = pd.DataFrame({"rate": (1e-3 * 2.0 ** frame["away"]).map(str), "trainer.seed": np.repeat(list("012345"), 4)})
    assert find_sweep(frame, rate).swept == ("rate",)
    assert len(best_of_cells(frame, sweep=find_sweep(frame, rate))[0]) == 4
    noise = np.random.default_rng(0).normal(0, 0.01, len(frame))
    seeds = find_sweep(frame.assign(loss=frame["loss"] - 0.05 * frame["away"] + noise), rate[["trainer.seed"]])
    assert (seeds.swept, seeds.are_replicates) == ((), True)


def test_results_and_kinds_of_runs_are_not_taken_for_a_sweep():
    """Another loss of the same runs follows theirs, and so does a data set; neither was tuned."""
    frame = swept_frame(runs_a_cell=2)
    others = pd.DataFrame({"train_loss": (frame["loss"] - 0.1).map(str), "data": np.where(frame["away"] > 0, "code", "web")})
    assert find_sweep(frame, others).swept == ()


def test_the_best_of_each_cell_can_be_asked_for():
    """Two runs of each size are no sweep by themselves; asked for, the better one stays."""
    frame = swept_frame(runs_a_cell=2)
    assert len(best_of_cells(frame)[0]) == 12
    assert len(best_of_cells(frame, forced=True)[0]) == 6
