"""Curves from tables of other trackers: every step has a loss, and what is none is refused by row."""

import json
from pathlib import Path

import pandas as pd
import pytest

from marin_scaling.errors import RunTableError
from marin_scaling.run.curves import read_curve


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_csv_json_lines_and_parquet_give_one_curve(tmp_path: Path) -> None:
    """Under the names that W&B, Levanter and ours give step and loss; rows of other metrics are passed."""
    rows = [{"_step": 0, "train/loss": 5.0}, {"_step": 1, "eval/loss": 4.9}, {"_step": 1, "train/loss": 4.0}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    frame = pd.DataFrame({"global_step": [0, 1, 1], "train_loss": [5.0, None, 4.0]})
    frame.to_parquet(tmp_path / "c.parquet")
    paths = (
        write(tmp_path, "a.csv", "step,loss\n0,5.0\n1,4.0\n"),
        write(tmp_path, "b.jsonl", lines),
        tmp_path / "c.parquet",
    )
    assert [read_curve(path, train_steps=10) for path in paths] == [[5.0, 4.0]] * 3


def test_a_logged_step_stands_for_those_up_to_the_next_and_the_last_of_two_counts(tmp_path: Path) -> None:
    """As after a restart, which logs steps again."""
    path = write(tmp_path, "a.csv", "step,loss\n0,5.0\n3,4.0\n5,9.0\n5,3.0\n")
    assert read_curve(path, train_steps=6) == [5.0, 5.0, 5.0, 4.0, 4.0, 3.0]


def test_a_loss_that_is_no_number_stays_one(tmp_path: Path) -> None:
    """It is a fault of the run, not of the file."""
    assert read_curve(write(tmp_path, "a.csv", "step,loss\n0,5.0\n1,nan\n"), train_steps=2) == [5.0, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,value\n0,5\n", "has no column 'loss'"),
        ("at,loss\n0,5\n", "has no column 'step'"),
        ("step,loss\n0,much\n", "line 2: 'much' is not a number"),
        ("step,loss\n0.5,5\n", "line 2: '0.5' is not a step"),
        ("step,loss\n1000000000000,5\n", "line 2: '1000000000000' is not a step from 0 to 9"),
        ("step,loss\n0,-1\n", "line 2: the loss '-1'"),
        ("step,loss\n-1,5\n", "line 2: '-1' is not a step"),
        ("step,loss\n0,\n", "no row has a loss"),
        ("", "is empty"),
    ],
)
def test_what_is_no_curve_is_refused_by_file_and_row(tmp_path: Path, text: str, said: str) -> None:
    """With what to do."""
    with pytest.raises(RunTableError) as caught:
        read_curve(write(tmp_path, "a.csv", text), train_steps=10)
    assert said in caught.value.what
    assert "a.csv" in caught.value.what


CHART = "Step,a - train/loss,a - train/loss__MIN,a - train/loss__MAX"


def test_a_chart_exported_from_wandb_is_a_curve(tmp_path: Path) -> None:
    """Of its only run, or of the run whose column is named."""
    path = write(tmp_path, "chart.csv", f"{CHART}\n0,5,5,5\n1,4,4,4\n")
    assert read_curve(path, train_steps=10) == [5.0, 4.0]
    more = CHART.replace("a -", "b -").removeprefix("Step,")
    path = write(tmp_path, "charts.csv", f"{CHART},{more}\n0,5,5,5,6,6,6\n1,4,4,4,,,\n")
    with pytest.raises(RunTableError) as caught:
        read_curve(path, train_steps=10)
    assert "a - train/loss, b - train/loss" in caught.value.what
    assert "--column loss=" in caught.value.fix
    assert read_curve(path, train_steps=10, columns={"loss": "b - train/loss"}) == [6.0]
