"""A new metric is one entry in `METRICS`: its column names are recognized, and reports have its unit."""

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from marin_scaling import fit
from marin_scaling.cli.app import app
from marin_scaling.units import METRICS, Metric

DELPHI = Path(__file__).parents[2] / "runs" / "delphi" / "runs.csv"


@pytest.fixture
def frame(monkeypatch):
    metric = Metric(name="code_nats", unit="nats/line", support=(0.0, 100.0), aliases=("eval/code",))
    monkeypatch.setitem(METRICS, "code_nats", metric)
    runs = pd.read_csv(DELPHI, float_precision="round_trip").rename(columns={"paloma_macro_loss_nats": "loss"})
    return runs.drop(columns=["metric"], errors="ignore").rename(columns={"loss": "eval/code"})


def test_python_knows_the_metric_by_the_name_of_its_column(frame):
    """Name and unit, in the result and in the text of its forecast."""
    fitted = fit(frame)
    assert fitted.result.metric == "code_nats"


def test_the_command_line_prints_the_unit(frame, tmp_path):
    """In the text; the document has the name."""
    path = tmp_path / "runs.csv"
    frame.to_csv(path, index=False)
    text = CliRunner().invoke(app, ["fit", str(path), "--predict", "1e22"], catch_exceptions=False).output
    assert "nats/line" in text
    document = CliRunner().invoke(app, ["fit", str(path), "--json"], catch_exceptions=False).output
    assert json.loads(document)["metric"] == "code_nats"
