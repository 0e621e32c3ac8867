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
