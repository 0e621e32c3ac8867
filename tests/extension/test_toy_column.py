"""A new column of run tables is one entry in `COLUMNS`: reading, the audit, statements' rows and `--column` take it."""

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from marin_scaling import fit
from marin_scaling.cli.app import app
from marin_scaling.run.columns import COLUMNS, Cells, Column
from marin_scaling.run.table import table_of_frame

DELPHI = Path(__file__).parents[2] / "runs" / "delphi" / "runs.csv"


@pytest.fixture
def frame(monkeypatch):
    """Delphi with a signed number and a text that has to be one; two runs have another text."""
    monkeypatch.setitem(COLUMNS, "depth", Column(name="depth", meaning="layers", aliases=("n_layers",), signed=True))
    monkeypatch.setitem(
        COLUMNS, "dtype", Column(name="dtype", meaning="number format", cells=Cells.TEXTS, one_value="number format")
    )
    runs = pd.read_csv(DELPHI, float_precision="round_trip")
    return runs.assign(n_layers=range(1, len(runs) + 1), dtype=["float8", "float8", *["bfloat16"] * (len(runs) - 2)])


def test_the_column_is_read_under_its_alias_and_signed(frame):
    """Numbers by our name in the table, and in the rows that a statement holds."""
    result = fit(frame).result
    assert result.column_mapping["depth"] == "n_layers"
    assert [row["depth"] for row in result.rows] == list(range(3, len(frame) + 1))


def test_runs_of_another_value_are_left_out_with_the_reason(frame):
    """The two of the other format."""
    excluded = table_of_frame(frame).excluded
    assert [each.why.startswith("its number format is 'float8'") for each in excluded] == [True, True]


def test_the_command_line_reads_the_column(frame, tmp_path):
    """`--column` chooses a name that nobody recognizes."""
    path = tmp_path / "runs.csv"
    frame.rename(columns={"n_layers": "how deep"}).to_csv(path, index=False)
    arguments = ["fit", str(path), "--column", "depth=how deep", "--json"]
    document = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).output)
    assert document["column_mapping"]["depth"] == "how deep"
    assert len(document["excluded"]) == 2
