"""A table of runs on its way out has every row and column, and a fit of it forecasts what a fit of the runs does."""

import json
from pathlib import Path

import pytest
from command_line import assert_refused, make_repository, marin_scale, marin_scale_process
from run_factory import record_of

from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.forecast import forecast
from marin_scaling.run.store import History, HistoryRow, add_run, read_runs
from marin_scaling.run.table import read_run_table, rows_of
from marin_scaling.run.table_io import write_table_file
from marin_scaling.run.trackers import read_tracked_runs

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ladder of 16 rungs and one of another seed that diverged, as far as its records say."""
    root = make_repository(tmp_path_factory.mktemp("trained") / "repository")
    spec = read_runs(root / "runs" / "tiny")[0].spec.model_copy(update={"seed": 1})
    history = History(spec_digest=spec.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=None),))
    record = record_of(spec, loss=None, history=history)
    add_run(root / "runs", spec=spec, record=record, history=history)
    return root


def test_a_run_store_as_a_file_forecasts_what_the_store_does(repository: Path) -> None:
    """In each format; the diverged run is in it, and left out by the fit with the same reason. Each row has its folder."""
    store = fit(read_run_table(repository / "runs" / "tiny"))
    for ending in ("parquet", "csv", "jsonl"):
        done = marin_scale("table", "runs/tiny", "--to", f"out.{ending}", cwd=repository)
        assert done.stdout == f"17 runs in out.{ending}.\nNext: marin-scale fit out.{ending}\n", done.stderr
        table = read_run_table(repository / f"out.{ending}")
        assert forecast(fit(table), flops=1e13).quantiles == forecast(store, flops=1e13).quantiles
        assert [each.why for each in table.excluded] == [each.why for each in store.excluded]
        sources = [row["source"] for row in rows_of(repository / f"out.{ending}")]
        assert all((repository / source / "record.json").is_file() for source in sources)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_table_of_somebodys_keeps_all_its_columns(tmp_path: Path, ending: str) -> None:
    """Numbers are numbers; names are not, even when they look so; numbers too long for integers are floats. Each row gets the
    place where it stood, and keeps that on its way through another file."""
    rows = [
        {"run": "007", "C": "60000000000000000000000", "N": "1e8", "D": "1000", "loss": "3.1", "rate": "0.5", "note": "x"},
        {"run": "1e3", "C": "7e22", "N": "2e8", "D": "2000", "loss": "", "rate": "", "note": "3"},
    ]
    write_table_file(tmp_path / "theirs.csv", rows)
    write_table_file(tmp_path / f"ours.{ending}", rows_of(tmp_path / "theirs.csv"))
    first, second = rows_of(tmp_path / f"ours.{ending}")
    assert [row.pop("source") for row in (first, second)] == [f"{tmp_path / 'theirs.csv'}, line {number}" for number in (2, 3)]
    assert first == {"run": "007", "C": 6e22, "N": 1e8, "D": 1000, "loss": 3.1, "rate": 0.5, "note": "x"}
    assert second == {"run": "1e3", "C": 7e22, "N": 2e8, "D": 2000, "loss": None, "rate": None, "note": "3"}


def test_wandb_gets_one_table_with_all_columns(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read back from the files that its client leaves offline: every row, None where a run diverged, and where it came from."""
    pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(repository)  # sources are said as they were typed
    rows = rows_of(Path("runs/tiny"))
    done = marin_scale_process("table", "runs/tiny", "--to", "wandb:ladders", cwd=repository)  # a process whose client is fresh
    assert done.stdout.startswith("17 runs in a W&B table: "), done.stderr
    (run,) = read_tracked_runs(str(tmp_path))
    assert (run.name, run.config["source"], run.metrics["runs/nrows"]) == ("tiny", "runs/tiny", 17)
    (path,) = tmp_path.rglob("*.table.json")
    table = json.loads(path.read_text())
    assert [dict(zip(table["columns"], cells, strict=True)) for cells in table["data"]] == rows


def test_what_is_no_table_and_what_is_no_place_is_refused(repository: Path) -> None:
    """A folder without runs, and a file of another kind."""
    assert_refused(marin_scale("table", "ladders", "--to", "x.csv", cwd=repository), "ladders holds no runs")
    refused = marin_scale("table", "runs/tiny", "--to", "x.xlsx", cwd=repository)
    assert_refused(refused, "x.xlsx: tables are written as .csv, .parquet or .jsonl")
