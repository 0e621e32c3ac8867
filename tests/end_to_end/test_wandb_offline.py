"""Weights & Biases mirrors a run where it is asked for: offline, without an account."""

import json
import os
from pathlib import Path

import pytest

from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import LadderFile
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.run.import_runs import import_runs
from marin_scaling.run.plan import rung_specs
from marin_scaling.run.store import Workplace, read_run, run_folder
from marin_scaling.run.trackers import read_tracked_runs
from marin_scaling.train.launcher import local_pool, train_runs
from marin_scaling.train.progress import WorkerEvent
from marin_scaling.train.session import use_tracker

pytest.importorskip("levanter", reason="the train extra is not installed")
pytest.importorskip("wandb", reason="the wandb extra is not installed")
pytestmark = pytest.mark.train


LADDER = {
    "name": "mirrored",
    "recipe": "quickstart",
    "rungs": [{"budget_flops": 1e10, "hidden_dims": [8]}],
    "target": {"budget_flops": 1e11},
    "evaluation": {"windows": 64},
    "tracker": {"project": "small-ladders", "mode": "offline"},
}


def test_the_loss_curve_is_mirrored_offline_and_the_record_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offline run named for ladder and digest holds the steps; `history.json` holds them too, and is what counts."""
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.setenv(name, "")  # so that it is taken back afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    corpus, file = standard_library_corpus(), LadderFile.model_validate(LADDER)
    use_tracker(file)
    (spec,) = rung_specs(plan_ladder(file), corpus=corpus)
    workplace = Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work")
    train_runs([spec], corpus=corpus, workplace=workplace, pool=local_pool(1), on_event=lambda event: None)
    run = read_run(run_folder(tmp_path / "runs", spec))
    assert len(run.history().rows) == spec.train_steps
    (mirrored,) = tmp_path.rglob("run-*.wandb")
    (row,) = import_runs(read_tracked_runs(str(mirrored))).rows
    assert (row["flops"], row["params"], row["tokens"]) == (spec.flops, run.record.params_total, spec.trained_tokens)
    assert (row["loss"], row["metric"]) == (run.record.loss, "bits_per_byte")
    content = mirrored.read_bytes()
    assert spec.directory_name.encode() in content
    assert json.dumps(spec.train_steps - 1).encode() in content


@pytest.mark.nightly
def test_a_server_that_is_away_costs_the_mirror_and_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one process are recorded; one note says what the client said, the other that it was not asked again."""
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "3")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    corpus, file = standard_library_corpus(), LadderFile.model_validate(LADDER | {"seeds": [0, 1]})
    specs = rung_specs(plan_ladder(file), corpus=corpus)
    workplace = Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work")
    events: list[WorkerEvent] = []
    train_runs(specs, corpus=corpus, workplace=workplace, pool=local_pool(1), on_event=events.append)
    assert all(read_run(run_folder(tmp_path / "runs", spec)).record.status == "finished" for spec in specs)
    first, second = [event for event in events if event.kind == "noted"]
    assert first.message.startswith("W&B cannot be reached")
    assert second.message.startswith(f"W&B could not be reached for the run {first.run}")


def test_the_environment_goes_before_the_ladder_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's own project, or none at all, without another file."""
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    use_tracker(LadderFile.model_validate(LADDER))
    assert (os.environ["WANDB_PROJECT"], os.environ["WANDB_MODE"]) == ("ours", "disabled")
