"""A run appears in the store whole and once, and what is read is what was written, or is refused."""

import json
import shutil
from pathlib import Path

import pytest
from run_factory import mixture_spec, record_of, rung_spec

from marin_scaling.errors import RecordError, RunTableError, StorageError
from marin_scaling.publish.submission_page import recorded_curves
from marin_scaling.run.spec import RunSpec, read_spec
from marin_scaling.run.store import (
    History,
    HistoryRow,
    RunRecord,
    Trunk,
    add_run,
    is_finished,
    read_run,
    read_runs,
    run_folders,
)
from marin_scaling.run.table import read_run_table

HISTORY_ROWS = (HistoryRow(step=0, train_loss_nats_per_token=5.5), HistoryRow(step=1, train_loss_nats_per_token=None))


def add(runs_dir: Path, spec: RunSpec) -> Path:
    history = History(spec_digest=spec.digest, rows=HISTORY_ROWS)
    return add_run(runs_dir, spec=spec, record=record_of(spec, history=history), history=history)


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    """Spec, record and loss curve come back equal, and the folder's name is the spec's digest."""
    spec = rung_spec()
    folder = add(tmp_path, spec)
    run = read_run(folder)
    assert run.spec == spec
    assert run.history().rows == HISTORY_ROWS
    assert folder == tmp_path / "tiny" / spec.digest[:16]
    assert is_finished(tmp_path, spec)


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    """The second record of one spec is refused."""
    add(tmp_path, rung_spec())
    with pytest.raises(StorageError, match="exists"):
        add(tmp_path, rung_spec())


def test_runs_come_sorted_by_cost(tmp_path: Path) -> None:
    """Cheapest first, whichever was written first."""
    for steps in (30, 10, 20):
        add(tmp_path, rung_spec(train_steps=steps))
    assert [run.spec.train_steps for run in read_runs(tmp_path / "tiny")] == [10, 20, 30]


def test_a_run_that_was_being_written_when_its_process_was_killed_is_no_run(tmp_path: Path) -> None:
    """All files of a run in the folder in which they are written first are read, counted and named by nothing."""
    folder = add(tmp_path, rung_spec())
    shutil.copytree(folder, folder.with_name(f".{folder.name}.b47f4287.tmp"))
    assert run_folders(tmp_path / "tiny") == [folder]
    assert [run.folder for run in read_runs(tmp_path / "tiny")] == [folder]
    assert recorded_curves(tmp_path) == {read_run(folder).record.history_sha256: folder}
    shutil.rmtree(folder)
    assert read_runs(tmp_path / "tiny") == []
    assert recorded_curves(tmp_path) == {}
    with pytest.raises(StorageError, match="Train the ladder first"):
        read_run_table(tmp_path)


@pytest.mark.parametrize("name", ["spec.json", "record.json"])
def test_a_changed_number_is_noticed(tmp_path: Path, name: str) -> None:
    """A digit changed in spec or record makes them disagree."""
    folder = add(tmp_path, rung_spec())
    document = json.loads((folder / name).read_text())
    document.update({"train_steps": 11} if name == "spec.json" else {"trained_tokens": 1})
    (folder / name).write_text(json.dumps(document))
    with pytest.raises(RecordError, match=name):
        read_run(folder)


def test_a_changed_loss_curve_is_noticed(tmp_path: Path) -> None:
    """The record binds the curve by its digest."""
    folder = add(tmp_path, rung_spec())
    (folder / "history.json").write_bytes((folder / "history.json").read_bytes().replace(b"5.5", b"5.4"))
    with pytest.raises(RecordError, match="history"):
        read_run(folder).history()


def test_all_faults_of_a_spec_are_named_with_file_key_and_value() -> None:
    """An unknown key does not hide a wrong number."""
    document = json.loads(rung_spec().to_bytes()) | {"colour": "blue", "batch_size": -7}
    with pytest.raises(RecordError) as caught:
        read_spec(json.dumps(document).encode(), name="spec.json")
    assert {line.split(": ")[1] for line in caught.value.lines} == {"colour", "batch_size"}
    assert any("-7" in line for line in caught.value.lines)


def test_a_diverged_run_has_no_loss() -> None:
    """A record with a status of diverged and a loss, or finished without one, is not a record."""
    record = record_of(rung_spec()).model_dump()
    for wrong in ({"status": "diverged"}, {"loss": None}):
        with pytest.raises(ValueError, match="loss"):
            RunRecord.model_validate(record | wrong)


def test_every_choice_is_in_the_digest() -> None:
    """Two specs that differ in any field have different names."""
    base = rung_spec()
    others = [
        rung_spec(seed=1),
        rung_spec(train_steps=11),
        rung_spec(data_order_seed=8),
        rung_spec(statement_sha256="ab"),
        base.model_copy(update={"data": base.data.model_copy(update={"digest": "other"})}),
        base.model_copy(update={"optimizer": base.optimizer.model_copy(update={"beta2": 0.9})}),
    ]
    assert len({base.digest, *(spec.digest for spec in others)}) == 7


def test_options_about_columns_and_units_are_not_ignored(tmp_path: Path) -> None:
    """A column that records do not have is an error, and so is a unit that they are not in."""
    for steps in (10, 20, 30):
        add(tmp_path, rung_spec(train_steps=steps))
    with pytest.raises(RunTableError, match="'nope'"):
        read_run_table(tmp_path / "tiny", columns={"loss": "nope"})
    with pytest.raises(RunTableError, match="flops"):
        read_run_table(tmp_path / "tiny", units={"flops": "PFLOPs"})


def test_a_run_has_the_speed_of_the_steps_that_it_trained_itself() -> None:
    """Tokens over seconds of steps; a trunk of another run has no part in it, and an interrupted run has no speed."""
    spec = rung_spec()
    record = record_of(spec)
    assert record.tokens_per_second(spec.train_steps) == spec.trained_tokens / 0.5
    shared = record.model_copy(update={"trunk": Trunk(spec_digest="0" * 64, steps=spec.train_steps // 2)})
    assert shared.tokens_per_second(spec.train_steps) == pytest.approx(spec.trained_tokens / 2 / 0.5)
    late = record.model_copy(update={"finished_at": "2026-11-21T01:00:00+00:00"})
    assert late.tokens_per_second(spec.train_steps) is None


@pytest.mark.parametrize("make", [rung_spec, mixture_spec])
def test_the_output_heads_flops_are_those_of_width_vocabulary_and_tokens(make) -> None:
    """Six for each weight and token, in a dense model and in a mixture of experts."""
    spec = make()
    assert spec.lm_head_flops == 6 * spec.model.hidden_dim * spec.model.vocab_size * spec.trained_tokens
