"""Runs from trackers' own files become a table that `fit` takes, each with its source; what lacks a number is named."""

import json
import logging
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from marin_scaling.errors import RunTableError, UsageError
from marin_scaling.run.import_runs import TrackedRun, import_runs
from marin_scaling.run.stability import GRADIENT_NORM_KEYS, stability_of_log, without_norms
from marin_scaling.run.store import read_runs
from marin_scaling.run.table import read_run_table
from marin_scaling.run.table_io import flat, write_table_file
from marin_scaling.run.trackers import read_tracked_runs

SUMMARY = {"throughput/total_gflops": 6e9, "throughput/total_tokens": 1e10, "parameter_count": 1e8, "eval/loss": 3.1}


def replica(folder: Path, name: str, **changes: Any) -> Path:
    """As Levanter's W&B tracker leaves it with `replicate_path`."""
    path = folder / name / "tracker_metrics.jsonl"
    path.parent.mkdir(parents=True)
    record = {"config": {"trainer": {"id": name, "seed": 3}}, "summary": SUMMARY | changes}
    path.write_text(json.dumps(record, sort_keys=True) + "\n")
    return path


def test_replicas_in_folders_become_a_table_that_is_fitted(tmp_path: Path) -> None:
    """Giga-FLOPs are FLOPs there; name, seed and file of each stay."""
    for number in range(5):
        replica(
            tmp_path / "runs", f"run-{number}", **{"throughput/total_gflops": 6e9 * 2**number, "eval/loss": 3.1 - number / 10}
        )
    found = import_runs(read_tracked_runs(str(tmp_path / "runs")))
    first = found.rows[0]
    assert first == {
        "run": "run-0",
        "flops": 6e18,
        "params": 1e8,
        "tokens": 1e10,
        "loss": 3.1,
        "metric": "eval/loss",
        "seed": 3,
        "status": "finished",
        "source": str(tmp_path / "runs" / "run-0" / "tracker_metrics.jsonl"),
    }
    for ending in ("csv", "parquet", "jsonl"):
        write_table_file(tmp_path / f"table.{ending}", found.rows)
        frame = read_run_table(tmp_path / f"table.{ending}").frame
        assert frame["flops"].tolist() == [6e18 * 2**number for number in range(5)]
        assert frame["run"].tolist() == [f"run-{number}" for number in range(5)]


def test_losses_passed_over_have_the_names_of_the_log(tmp_path: Path) -> None:
    """Only other losses are named, and the chosen one is none of them."""
    replica(tmp_path, "run-0", **{"val/loss": 3.2})
    (note,) = (each for each in import_runs(read_tracked_runs(str(tmp_path))).notes if each.startswith("loss is"))
    assert "loss is eval/loss," in note
    assert note.partition("passed over: ")[2] == "val/loss (1)"


def test_levanters_own_json_log_is_read_with_what_stands_before_it(tmp_path: Path) -> None:
    """Written by Levanter's tracker through Python's logging; the last value of each metric counts."""
    json_logger = pytest.importorskip("levanter.tracker.json_logger", reason="the train extra is not installed")
    path = tmp_path / "my-run.log"
    logger = logging.Logger("a run's own")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s - %(levelname)s - %(message)s"))
    logger.addHandler(handler)
    tracker = json_logger.JsonLoggerTracker(logger)
    tracker.log_hyperparameters({"trainer": {"seed": 7}})
    tracker.log_summary({"parameter_count": 1e8})
    logger.info("a line {of something} else")
    for step, loss in enumerate((4.0, 3.5)):
        tracker.log(
            {"throughput": {"total_gflops": 3e9 * (step + 1), "total_tokens": 5e9 * (step + 1)}, "eval/loss": loss}, step=step
        )
    unfinished = read_tracked_runs(str(path))
    tracker.finish()
    handler.close()
    (run,) = read_tracked_runs(str(path))
    (row,) = import_runs([run]).rows
    assert (row["run"], row["flops"], row["tokens"], row["loss"], row["seed"]) == ("my-run", 6e18, 1e10, 3.5, 7)
    assert (unfinished[0].state, run.state) == ("running", "finished")


def event(kind: str, **more: Any) -> str:
    return "INFO " + json.dumps({"tracker": "json_logger", "event": kind, **more}) + "\n"


def run_events(name: str, loss: float, *, is_finished: bool = True) -> str:
    metrics = SUMMARY | {"eval/loss": loss}
    told = [event("hparams", hparams={"trainer": {"id": name}}), event("log", step=9, metrics=metrics)]
    return "".join([*told, event("finish", summary={"eval/loss": loss}) if is_finished else ""])


def test_a_log_of_several_runs_has_each_of_them(tmp_path: Path) -> None:
    """Where one finished, or settings of another name come; one that goes on under its name is one."""
    path = tmp_path / "all.log"
    path.write_text(
        run_events("a", 3.2)
        + "{'loss': 1.0}\n"
        + run_events("b", 3.4, is_finished=False)
        + run_events("c", 5.4, is_finished=False)
    )
    rows = import_runs(read_tracked_runs(str(path))).rows
    assert [(row["run"], row["loss"], row["status"]) for row in rows] == [
        ("a", 3.2, "finished"),
        ("b", 3.4, "running"),
        ("c", 5.4, "running"),
    ]
    path.write_text(run_events("a", 3.4) + run_events("a", 3.2))
    (row,) = import_runs(read_tracked_runs(str(path))).rows
    assert (row["loss"], row["status"]) == (3.2, "finished")


def copy_of_whole_run(written: Path, folder: Path) -> Path:
    """A copy of W&B's file once its end is written: on a busy machine `finish` comes back before, and W&B goes on writing."""
    deadline = time.monotonic() + 300
    folder.mkdir()
    while time.monotonic() < deadline:
        path = shutil.copy(written, folder)
        (read,) = read_tracked_runs(str(path))
        if read.state == "finished" and "parameter_count" in read.metrics:
            return Path(path)
        time.sleep(0.2)
    raise AssertionError(f"W&B did not write the end of {written}")


@pytest.mark.parametrize(("said", "began"), [("2026-11-20T08:30:00Z", "2026-11-20T08:30:00+00:00"), (None, None)])
def test_a_run_of_an_online_project_has_its_id_project_and_start(
    monkeypatch: pytest.MonkeyPatch, said: str | None, began: str | None
) -> None:
    """As W&B's client gives them; an unknown start is None."""
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    told = {
        "name": "a",
        "id": "w1",
        "entity": "lab",
        "project": "moe",
        "url": "https://wandb.ai/lab/moe/w1",
        "state": "finished",
    }
    run = SimpleNamespace(**told, config={}, summary={"eval/loss": 2.5}, created_at=said)
    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(runs=lambda project: [run]))
    (read,) = read_tracked_runs("wandb:lab/moe")
    assert (read.id, read.project, read.metrics) == ("w1", "lab/moe", {"eval/loss": 2.5})
    assert (read.started_at and read.started_at.isoformat()) == began


def test_gradient_norms_of_an_online_run_are_asked_for_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B's client gives the rows that have all keys of a question, and norms are logged at other steps than losses."""
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    rows = [{"_step": 0, "train/loss": 3.0}, {"_step": 10, "grad/norm/total": 0.5}, {"_step": 20, "train/loss": 2.0}]

    def scan_history(keys: list[str]) -> list[dict[str, float]]:
        return [row for row in rows if row.keys() >= set(keys)]

    told = {"name": "a", "id": "w1", "entity": "lab", "project": "moe", "url": "", "state": "finished", "created_at": None}
    run = SimpleNamespace(**told, config={}, summary={"train/loss": 2.0, "grad/norm/total": 0.5}, scan_history=scan_history)
    monkeypatch.setattr(wandb, "Api", lambda: SimpleNamespace(runs=lambda project: [run]))
    (read,) = read_tracked_runs("wandb:lab/moe", curves=["train/loss", *GRADIENT_NORM_KEYS])
    assert [step for step, _ in without_norms(read)] == [0.0, 20.0]
    assert (stability_of_log(read).steps, stability_of_log(read).norms) == ([10.0], [0.5])


def test_wandbs_offline_file_is_read_as_far_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by W&B itself, without an account; cut in the middle, as a kill leaves it, it still has what came before."""
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="test", name="offline-run", dir=str(tmp_path), config={"trainer": {"seed": 5}})
    for step in range(3_000):
        run.log({"eval/loss": 4.0 - step / 3_000, "throughput/total_gflops": 1e6 * (step + 1)}, step=step)
    run.summary.update({"parameter_count": 1e8, "throughput/total_tokens": 1e10})
    run.finish()
    wandb.teardown()  # its service has written the file when it has ended
    (written,) = tmp_path.rglob("run-*.wandb")
    path = copy_of_whole_run(written, tmp_path / "copy")
    (row,) = import_runs(read_tracked_runs(str(path))).rows
    assert (row["run"], row["flops"], row["params"], row["seed"], row["status"]) == ("offline-run", 3e18, 1e8, 5, "finished")
    assert row["loss"] == pytest.approx(4.0 - 2_999 / 3_000)
    assert row["source"] == str(path)
    whole = path.read_bytes()
    checksum_length_kind = range(7, 14)
    for place in (*checksum_length_kind, 500, len(whole) // 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 128]) + whole[place + 1 :])
        with pytest.raises(RunTableError, match=r"wandb: "):
            read_tracked_runs(str(path))
    path.write_bytes(b"")
    (begun,) = read_tracked_runs(str(path))
    assert (begun.metrics, begun.state) == ({}, "running")
    path.write_bytes(whole[: len(whole) // 2])
    (cut,) = read_tracked_runs(str(path))
    assert cut.state == "running"
    assert 3.2 < cut.metrics["eval/loss"] < 3.9


def test_a_run_without_a_number_is_named_and_the_others_stay(tmp_path: Path) -> None:
    """With the file and the number that it lacks."""
    replica(tmp_path, "whole")
    replica(tmp_path, "lacking", **{"parameter_count": None, "eval/loss": "NaN"})
    found = import_runs(read_tracked_runs(str(tmp_path)))
    assert [row["run"] for row in found.rows] == ["whole"]
    ((name, why),) = found.left_out
    assert name == "lacking"
    for fact in ("tracker_metrics.jsonl", "params (parameter_count is 'None')", "loss (eval/loss is 'NaN')"):
        assert fact in why


def test_a_mirrored_run_of_ours_has_the_numbers_of_its_spec_and_a_chosen_key_wins() -> None:
    """Of a mixture the active parameters, too: `fit` takes them for its size."""
    stored = read_runs(Path(__file__).parents[3] / "runs" / "bytes-moe")[0]
    metrics = {"bits_per_byte": stored.record.loss, "mine": 5.0}
    run = TrackedRun(name="a", source="b", config=flat(stored.spec.model_dump(mode="json")), metrics=metrics)
    (row,) = import_runs([run]).rows
    for name, value in (("flops", "flops"), ("params", "params_total"), ("active_params", "params_active")):
        assert row[name] == getattr(stored.record, value)
    assert row["flops_convention"] == stored.record.flops_convention
    assert (row["budget_flops"], row["evaluation"]) == (stored.spec.budget_flops, stored.spec.measured_on)
    (row,) = import_runs([run], keys={"flops": "mine"}).rows
    assert row["flops"] == 5.0


def test_other_keys_are_taken_where_they_are_named(tmp_path: Path) -> None:
    """FLOPs of a key of one's own are FLOPs; a key that no run has is refused."""
    replica(tmp_path, "one", my_flops=5e17, my_loss=2.5)
    runs = read_tracked_runs(str(tmp_path))
    (row,) = import_runs(runs, keys={"flops": "my_flops", "loss": "my_loss"}).rows
    assert (row["flops"], row["loss"], row["metric"]) == (5e17, 2.5, "my_loss")
    for keys, said in (({"seed": "x"}, "seed=x"), ({"weight": "my_loss"}, "weight")):
        with pytest.raises(UsageError, match=said):
            import_runs(runs, keys=keys)


def test_a_tracker_without_a_known_loss_is_refused_with_those_it_has() -> None:
    """So that one can be named."""
    run = TrackedRun(name="a", source="b", config={}, metrics={"my/loss": 3.0, "other": 1.0})
    with pytest.raises(RunTableError) as caught:
        import_runs([run])
    assert "my/loss" in caught.value.fix
    run = TrackedRun(name="a", source="b", config={}, metrics={"eval/loss": float("nan")})
    with pytest.raises(RunTableError, match="eval/loss is not a number in any run: a has nan"):
        import_runs([run])


def test_a_number_that_parquet_has_no_whole_one_for_is_written(tmp_path: Path) -> None:
    """As tables of FLOPs or tokens beyond 64 bits need."""
    write_table_file(tmp_path / "a.parquet", [{"tokens": 10**20, "run": "a"}, {"tokens": 5, "run": "b"}])
    assert pd.read_parquet(tmp_path / "a.parquet")["tokens"].tolist() == [1e20, 5.0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.wandb", b"not W&B's", "is not a W&B file"),
        ("tracker_metrics.jsonl", b"plain text\n", "holds no replica of W&B"),
        ("tracker_metrics.jsonl", b'{"config": {}, "summary": {"eval/loss": 3.', "line 1: it is not JSON"),
        ("tracker_metrics.jsonl", b'{"config": [1], "summary": {}}', "line 1: config is not an object"),
        ("a.log", b'{"tracker": "json_logger", "metrics": [1]}', "line 1: metrics is not an object"),
    ],
)
def test_a_file_that_no_tracker_wrote_is_refused_by_name(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """With what, why and fix."""
    if name.endswith(".wandb"):
        pytest.importorskip("wandb", reason="the wandb extra is not installed")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunTableError) as caught:
        read_tracked_runs(str(tmp_path / name))
    assert said in caught.value.what
    assert name in caught.value.what


def test_where_nothing_is_nothing_is_imported(tmp_path: Path) -> None:
    """An empty folder, and a place that is not there."""
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=str(place)):
            read_tracked_runs(str(place))


def test_a_project_that_cannot_be_reached_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key, W&B's client says so; so do we, and how to go on."""
    pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "")
    with pytest.raises(UsageError, match="The W&B project team/project cannot be read"):
        read_tracked_runs("wandb:team/project")
