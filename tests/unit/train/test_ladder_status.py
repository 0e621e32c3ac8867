"""`marin-scale status`: what each run is doing, from the files that training leaves."""

from pathlib import Path

import pytest
from run_factory import record_of, rung_spec

from marin_scaling.files import claim
from marin_scaling.run.curves import LossCurve
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import STARTED_NAME, History, HistoryRow, Workplace, add_run, work_dir
from marin_scaling.train.session import run_state, status_text


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work")


def begin(spec: RunSpec, workplace: Workplace, *losses: float | None) -> Path:
    """A run in training, as far as its loss curve."""
    folder = work_dir(spec, workplace)
    folder.mkdir(parents=True)
    (folder / STARTED_NAME).write_text("2026-11-24T00:00:00+00:00")
    with LossCurve(folder / "loss_curve.jsonl") as curve:
        for loss in losses:
            curve.add(loss)
    return folder


def store(spec: RunSpec, workplace: Workplace, *, loss: float | None) -> None:
    history = History(spec_digest=spec.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=5.5),))
    add_run(workplace.runs_dir, spec=spec, record=record_of(spec, loss=loss, history=history), history=history)


def test_a_run_that_nobody_began_waits_and_nothing_is_made_for_it(workplace: Workplace) -> None:
    """Looking leaves no trace."""
    assert run_state(rung_spec(), workplace).state == "waiting"
    assert not workplace.work_root.exists()


def test_a_claimed_run_is_in_training_and_an_unclaimed_one_is_stopped(workplace: Workplace) -> None:
    """With its steps so far and the last finite loss."""
    folder = begin(rung_spec(), workplace, 5.0, 4.0, None)
    with claim(folder) as is_ours:
        assert is_ours
        training = run_state(rung_spec(), workplace)
    assert (training.state, training.steps, training.loss) == ("training", 3, 4.0)
    assert run_state(rung_spec(), workplace).state == "stopped"


def test_a_run_that_was_only_asked_for_still_waits(workplace: Workplace) -> None:
    """Whoever asks whether it is claimed makes its folder, and nobody has begun it by that."""
    with claim(work_dir(rung_spec(), workplace)) as is_ours:
        assert is_ours
    assert run_state(rung_spec(), workplace).state == "waiting"


def test_of_a_ladder_that_nobody_began_that_is_said(workplace: Workplace) -> None:
    """Where its text is not tokenized, no run is known yet."""
    assert status_text([]) == "No run was begun."


def test_a_run_that_diverged_ended_at_its_last_step(workplace: Workplace) -> None:
    """Its row says how far it came, and nothing is left to do of it."""
    store(rung_spec(), workplace, loss=None)
    lines = status_text([run_state(rung_spec(), workplace)]).splitlines()
    assert "1 of 10" in lines[1]
    assert lines[-1] == "1 of 1 runs are recorded, 0 in training; 100% of the FLOPs done."


def test_a_recorded_run_is_finished_or_diverged(workplace: Workplace) -> None:
    """With the loss of its metric, where it has one."""
    finished, diverged = rung_spec(), rung_spec(seed=1)
    store(finished, workplace, loss=3.25)
    store(diverged, workplace, loss=None)
    states = [run_state(spec, workplace) for spec in (finished, diverged)]
    assert [(each.state, each.loss) for each in states] == [("finished", 3.25), ("diverged", None)]


def test_the_table_says_what_is_left(workplace: Workplace) -> None:
    """A line a run, how many are recorded, and the share of FLOPs that is done."""
    specs = [rung_spec(seed=seed) for seed in range(4)]
    store(specs[0], workplace, loss=3.25)
    begin(specs[1], workplace, *[4.0] * 5)
    lines = status_text([run_state(each, workplace) for each in specs], seconds_left=90).splitlines()
    assert [line.split()[2] for line in lines[1:5]] == ["finished", "stopped", "waiting", "waiting"]
    assert "5 of 10  4.0000 nats, training" in lines[2]
    assert lines[-2] == "1 of 4 runs are recorded, 0 in training; 38% of the FLOPs done."
    assert "1 min 30 s" in lines[-1]
