"""Rows of one run at growing tokens: checkpoints and resumed runs."""

import numpy as np
import pandas as pd
import pytest

from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.table import RunTable, table_of_frame

LAW = SurfaceLaw(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)


def curves(*shares: float, runs: int = 25) -> pd.DataFrame:
    """Return a table with a row for each share of each run's tokens; the runs are an isoFLOP grid."""
    budget, width = np.repeat(np.geomspace(1e18, 1e20, 5), 5), np.tile(np.geomspace(0.4, 2.5, 5), 5)
    params = np.round(np.sqrt(budget / 120) * width)[:runs]
    tokens = np.round(budget[:runs] / 6 / params)
    names = [f"run-{number}" for number in range(runs)]
    parts = [pd.DataFrame({"run": names, "params": params, "tokens": np.round(share * tokens)}) for share in shares]
    frame = pd.concat(parts, ignore_index=True)
    loss = surface_loss(LAW, params=frame["params"].to_numpy(), tokens=frame["tokens"].to_numpy())
    return frame.assign(flops=6 * frame["params"] * frame["tokens"], loss=loss)


def is_last_rows(table: RunTable, frame: pd.DataFrame) -> bool:
    return sorted(table.frame["tokens"]) == sorted(frame.groupby("run")["tokens"].max())


def codes(table: RunTable) -> set[str]:
    return {finding.code for finding in table.findings}


def test_of_checkpoints_with_steps_the_last_is_kept_and_the_others_are_listed() -> None:
    frame = curves(0.1, 0.3, 0.6, 1.0)
    table = table_of_frame(frame.assign(step=frame["tokens"] / 1e6))
    assert is_last_rows(table, frame)
    assert len(table.excluded) == 75
    assert {each.run for each in table.excluded} == set(frame["run"])


def test_steps_in_the_names_mark_checkpoints() -> None:
    frame = curves(0.25, 1.0)
    steps = np.repeat([250, 1000], 25)
    named = frame.assign(run=[f"{name}/step-{step}" for name, step in zip(frame["run"], steps, strict=True)], step=steps)
    assert is_last_rows(table_of_frame(named), frame)


def test_of_a_resumed_run_the_last_row_is_kept() -> None:
    frame = curves(1.0)
    begun = curves(0.37).iloc[[3, 12]]
    table = table_of_frame(pd.concat([begun, frame], ignore_index=True))
    assert is_last_rows(table, frame)
    assert {each.run for each in table.excluded} == {"run-3", "run-12"}


def test_names_on_the_levels_of_an_isoflop_grid_are_doubted_and_a_choice_settles_it() -> None:
    frame = curves(0.1, 0.3, 0.6, 1.0)
    doubted = table_of_frame(frame)
    assert "checkpoints" in codes(doubted)
    assert len(doubted.frame) == len(frame)
    assert is_last_rows(table_of_frame(frame, columns={"run": "run"}), frame)


def test_a_run_that_is_asked_for_keeps_all_of_its_rows() -> None:
    frame = pd.concat([curves(0.37).iloc[[3]], curves(1.0)], ignore_index=True)
    table = table_of_frame(frame, keep=["run-3"])
    assert len(table.frame) == 26


@pytest.mark.parametrize("column", ["seed", "budget_flops"])
def test_rows_of_two_seeds_or_budgets_are_two_runs(column: str) -> None:
    frame = pd.concat([curves(0.37), curves(1.0)], ignore_index=True)
    values = np.repeat([1, 2], 25) if column == "seed" else frame["flops"]
    table = table_of_frame(frame.assign(**{column: values}))
    assert len(table.frame) == 50
    assert "checkpoints" not in codes(table)


def test_a_grid_with_a_name_for_each_run_has_no_checkpoints() -> None:
    frame = curves(0.25, 1.0)
    table = table_of_frame(frame.assign(run=[f"r{row}" for row in range(len(frame))]))
    assert len(table.frame) == len(frame)
    assert "checkpoints" not in codes(table)


def unnamed(*, excess: float, rows: int = 6, sizes: int = 5, spaced: bool = False) -> pd.DataFrame:
    """Return one run of each size without names, whose losses lie above the law by `excess` until a decay at its very end."""
    size, share = np.geomspace(5e7, 1.1e9, sizes), np.arange(1, rows + 1) / rows if spaced else 2.0 ** np.arange(1 - rows, 1)
    params, progress = np.repeat(np.round(size), rows), np.tile(share, sizes)
    step = np.round(20 * params / 2**17 * progress)
    frame = pd.DataFrame({"params": params, "tokens": 2.0**17 * step, "step": step.astype(int)})
    loss = surface_loss(LAW, params=params, tokens=frame["tokens"].to_numpy()) * np.where(progress < 1, 1 + excess, 1.0)
    noise = np.exp(5e-4 * np.random.default_rng(0).standard_normal(len(frame)))
    return frame.assign(flops=6 * params * frame["tokens"], loss=loss * noise)


def levels(frame: pd.DataFrame) -> set[str]:
    """Return the severities of the findings about checkpoints."""
    return {str(each.severity) for each in table_of_frame(frame).findings if each.code == "checkpoints"}


def test_losses_above_the_ends_of_all_sizes_show_unnamed_checkpoints() -> None:
    frame = unnamed(excess=0.03)
    table = table_of_frame(frame)
    (found,) = (each for each in table.findings if each.code == "checkpoints")
    assert str(found.severity) == "warning"
    assert found.where == "step"
    assert "30 of 30" in found.message
    assert "5 runs" in found.message
    assert "--column run=params" in found.message
    assert len(table.frame) == 30


def test_the_offered_option_keeps_the_last_row_of_each_unnamed_run() -> None:
    frame = unnamed(excess=0.03)
    table = table_of_frame(frame, columns={"run": "params"})
    assert sorted(table.frame["tokens"]) == sorted(frame.groupby("params")["tokens"].max())
    assert len(table.excluded) == 25
    assert "checkpoints" not in codes(table)


def test_the_clock_is_known_by_its_numbers_and_not_by_its_name() -> None:
    assert levels(unnamed(excess=0.03).rename(columns={"step": "x"})) == {"warning"}


def test_runs_of_one_size_are_told_apart_by_a_setting_that_holds_along_each() -> None:
    frame = pd.concat([unnamed(excess=0.03).assign(lr=rate) for rate in (1e-3, 2e-3)], ignore_index=True)
    frame["loss"] *= np.where(frame["lr"] == 2e-3, 1.004, 1.0)
    (found,) = (each for each in table_of_frame(frame).findings if each.code == "checkpoints")
    assert "10 runs" in found.message
    assert "--column run=lr" in found.message


def test_separate_runs_on_one_law_get_a_note_that_leaves_their_status() -> None:
    assert levels(unnamed(excess=0.0)) == {"note"}


def test_many_equally_spaced_steps_show_a_logging_interval() -> None:
    assert levels(unnamed(excess=0.0, rows=10, spaced=True)) == {"warning"}
    assert levels(unnamed(excess=0.0, rows=5, spaced=True)) == {"note"}


def test_a_column_that_holds_the_end_of_each_run_shows_checkpoints() -> None:
    frame = unnamed(excess=0.0)
    assert levels(frame.assign(total=frame.groupby("params")["step"].transform("max"))) == {"warning"}
    assert levels(frame.assign(total=frame["step"])) == {"note"}


@pytest.mark.parametrize("column", ["seed", "budget_flops"])
def test_rows_whose_seeds_or_budgets_differ_are_separate_runs(column: str) -> None:
    frame = unnamed(excess=0.03)
    assert levels(frame.assign(**{column: np.arange(30) if column == "seed" else frame["flops"]})) == set()


def test_unnamed_runs_of_an_isoflop_grid_are_no_checkpoints() -> None:
    params, budget = np.tile(np.geomspace(5e7, 8e8, 5), 5), np.repeat(np.geomspace(1e18, 1e20, 5), 5)
    step = np.round(budget / 6 / params / 2**15)
    frame = pd.DataFrame({"params": params, "tokens": 2.0**15 * step, "step": step})
    loss = surface_loss(LAW, params=params, tokens=frame["tokens"].to_numpy())
    assert levels(frame.assign(flops=6 * params * frame["tokens"], loss=loss)) == set()
