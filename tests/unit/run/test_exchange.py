"""Machines that share runs: what one finished the other has, a run is trained by one of them, and the later state goes on."""

import time
from pathlib import Path

import pytest
from run_factory import record_of, rung_spec

from marin_scaling.errors import RecordError
from marin_scaling.run import exchange as module
from marin_scaling.run.exchange import Exchange
from marin_scaling.run.run_record import History, HistoryRow
from marin_scaling.run.run_store import add_run, read_runs
from marin_scaling.run.workplace import Workplace, checkpoints_root, curve_path, work_dir

pytest.importorskip("fsspec", reason="the train extra is not installed")
SPEC = rung_spec()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Workplace]:
    """Two machines that share runs in a folder; nobody waits for who wrote last."""
    monkeypatch.setattr(module, "_SETTLING_SECONDS", 0.0)
    return [
        Workplace(runs_dir=tmp_path / name / "runs", work_root=tmp_path / name / "work", storage=f"file://{tmp_path}/shared")
        for name in "ab"
    ]


def finish(place: Workplace) -> None:
    history = History(spec_digest=SPEC.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=3.0),))
    add_run(place.runs_dir, spec=SPEC, record=record_of(SPEC, history=history), history=history)


def save(place: Workplace, *, step: int, curve: str, began: str = "then") -> None:
    """As a run leaves its working folder: a checkpoint of this step, and its curve."""
    folder = work_dir(SPEC, place)
    checkpoint = checkpoints_root(folder) / SPEC.directory_name / f"step-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "arrays").write_text(f"state after {curve}")
    (checkpoint / "metadata.json").write_text("{}")
    curve_path(folder).write_text(curve)
    (folder / "started_at").write_text(began)


def saved(place: Workplace) -> dict[str, str]:
    """Steps and content of the checkpoints that lie at a machine."""
    folder = checkpoints_root(work_dir(SPEC, place)) / SPEC.directory_name
    return {path.parent.name: path.read_text() for path in folder.glob("*/arrays")}


def test_what_one_machine_finished_the_other_has(places: list[Workplace]) -> None:
    """Byte for byte, curve included; and it stays when it is exchanged again."""
    here, there = places
    finish(here)
    for place in (here, there, here, there):
        Exchange(place).share_finished([SPEC])
    (mine,), (theirs,) = (read_runs(place.runs_dir / SPEC.ladder) for place in places)
    assert (mine.record, mine.history()) == (theirs.record, theirs.history())


def test_a_record_that_is_not_of_its_run_is_refused(places: list[Workplace], tmp_path: Path) -> None:
    """Where somebody put another run's record in its place."""
    here, there = places
    finish(here)
    Exchange(here).share_finished([SPEC])
    (path,) = (tmp_path / "shared").rglob("record.json")
    path.write_bytes(record_of(rung_spec(seed=1)).to_bytes())
    with pytest.raises(RecordError, match="not the outcome of the spec beside it"):
        Exchange(there).share_finished([SPEC])
    assert not read_runs(there.runs_dir / SPEC.ladder)


def test_one_machine_at_a_time_trains_a_run(places: list[Workplace]) -> None:
    """As long as it renews its lease; then, and when it gives it back, the other may."""
    here, there = (Exchange(place) for place in places)
    with here.lease(SPEC) as first, there.lease(SPEC) as second:
        assert (first, second, there.is_leased(SPEC)) == (True, False, True)
    assert not there.is_leased(SPEC)
    with there.lease(SPEC) as second:
        assert second


def test_a_lease_is_renewed_and_lapses_when_its_holder_is_gone(
    places: list[Workplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held for longer than one lasts; left behind by a machine that died, it holds no longer than it says."""
    monkeypatch.setattr(module, "LEASE_SECONDS", 4.0)
    here, there = (Exchange(place) for place in places)
    with here.lease(SPEC):
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            assert there.is_leased(SPEC)
            time.sleep(0.2)
    here._renew(SPEC, "of a machine that died")
    assert there.is_leased(SPEC)
    time.sleep(4.1)
    with there.lease(SPEC) as is_ours:
        assert is_ours


def test_of_two_that_take_a_lease_at_once_the_last_holds_it(places: list[Workplace], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one sees that its own is written over."""
    here, there = (Exchange(place) for place in places)
    monkeypatch.setattr(module.time, "sleep", lambda _: there._renew(SPEC, "the other"))
    with here.lease(SPEC) as is_ours:
        assert not is_ours


def test_the_later_state_goes_on(places: list[Workplace]) -> None:
    """With the curve of the machine that saved it, also where the own one is longer; and the run began when it first began."""
    here, there = places
    save(here, step=5, curve="3.0\n2.9\n", began="first")
    Exchange(here).take_work(SPEC)
    save(there, step=3, curve="3.0\n3.0\n3.0\n", began="second")
    Exchange(there).bring_work(SPEC)
    assert saved(there)["step-5"] == "state after 3.0\n2.9\n"
    assert curve_path(work_dir(SPEC, there)).read_text() == "3.0\n2.9\n"
    assert (work_dir(SPEC, there) / "started_at").read_text() == "first"


def test_an_own_state_that_is_as_late_stays(places: list[Workplace]) -> None:
    """What was not saved elsewhere is not thrown away."""
    here, there = places
    save(here, step=5, curve="3.0\n")
    Exchange(here).take_work(SPEC)
    save(there, step=5, curve="2.0\n")
    Exchange(there).bring_work(SPEC)
    assert saved(there) == {"step-5": "state after 2.0\n"}
    assert curve_path(work_dir(SPEC, there)).read_text() == "2.0\n"


def test_only_the_newest_whole_state_is_kept_there(places: list[Workplace], tmp_path: Path) -> None:
    """Older ones go when it is whole; one that is not does not count."""
    here, there = places
    for step in (5, 9):
        save(here, step=step, curve="3.0\n")
        Exchange(here).take_work(SPEC)
    shared = tmp_path / "shared" / "work" / SPEC.directory_name / "checkpoints"
    assert [path.name for path in shared.iterdir()] == ["step-9"]
    (shared / "step-12").mkdir()
    Exchange(there).bring_work(SPEC)
    assert saved(there).keys() == {"step-9"}


def test_progress_elsewhere_is_seen_and_own_progress_stays(places: list[Workplace]) -> None:
    """The longer curve is shown; finished runs are brought."""
    here, there = places
    save(here, step=5, curve="3.0\n2.9\n")
    Exchange(here).take_work(SPEC)
    Exchange(there).bring_progress([SPEC])
    assert curve_path(work_dir(SPEC, there)).read_text() == "3.0\n2.9\n"
    curve_path(work_dir(SPEC, there)).write_text("3.0\n2.8\n2.7\n")
    Exchange(there).bring_progress([SPEC])
    assert curve_path(work_dir(SPEC, there)).read_text() == "3.0\n2.8\n2.7\n"
    finish(here)
    Exchange(here).share_finished([SPEC])
    Exchange(here).forget_work(SPEC)
    Exchange(there).bring_progress([SPEC])
    assert len(read_runs(there.runs_dir / SPEC.ladder)) == 1
