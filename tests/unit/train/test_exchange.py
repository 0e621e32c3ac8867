"""Machines that share runs: what one finished the other has, a run is trained by one of them, and the later state goes on."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace

import numpy as np
import pytest
from run_factory import curve_lines, record_of, rung_spec

from marin_scaling.data.corpus import byte_corpus, data_folder, map_corpus, write_corpus
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.errors import RecordError, StorageError
from marin_scaling.run.curves import losses_so_far
from marin_scaling.run.store import (
    History,
    HistoryRow,
    Workplace,
    add_run,
    checkpoints_root,
    curve_path,
    read_runs,
    weights_dir,
    work_dir,
)
from marin_scaling.train import launcher as run_ladder
from marin_scaling.train import shared_storage as module
from marin_scaling.train.launcher import train_runs
from marin_scaling.train.progress import WorkerEvent
from marin_scaling.train.shared_storage import Exchange

SPEC = rung_spec()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Workplace]:
    """Two machines that share runs in a folder; nobody waits for who wrote last."""
    monkeypatch.setattr(module, "_SETTLING_SECONDS", 0.0)
    return [
        Workplace(runs_dir=tmp_path / name / "runs", work_root=tmp_path / name / "work", storage=f"file://{tmp_path}/shared")
        for name in "ab"
    ]


@pytest.fixture
def exchanges(places: list[Workplace]) -> list[Exchange]:
    """As these two machines have them."""
    return [Exchange(place) for place in places]


def finish(place: Workplace) -> None:
    history = History(spec_digest=SPEC.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=3.0),))
    add_run(place.runs_dir, spec=SPEC, record=record_of(SPEC, history=history), history=history)


def save(place: Workplace, *, step: int, curve: str) -> None:
    """As a run leaves its working folder: a checkpoint of this step, and its curve."""
    folder = work_dir(SPEC, place)
    checkpoint = checkpoints_root(folder) / SPEC.directory_name / f"step-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "arrays").write_text(f"state after {curve}")
    (checkpoint / "metadata.json").write_text("{}")
    curve_path(folder).write_text(curve)


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
    with pytest.raises(RecordError, match=r"shared/runs/.* is not a record of this run"):
        Exchange(there).share_finished([SPEC])
    assert not read_runs(there.runs_dir / SPEC.ladder)


def test_one_machine_at_a_time_trains_a_run(exchanges: list[Exchange]) -> None:
    """As long as it renews its lease; then, and when it gives it back, the other may."""
    here, there = exchanges
    with here.lease(SPEC) as first, there.lease(SPEC) as second:
        assert (first, second, there.is_leased(SPEC)) == (True, False, True)
    assert not there.is_leased(SPEC)
    with there.lease(SPEC) as second:
        assert second


def clock_of_leases(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that only the test moves; leases are short, so that they are renewed many times a second."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: clock.now, sleep=lambda _: None))
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.25)
    return clock


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, at most for five minutes."""
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_lease_is_renewed_and_lapses_when_its_holder_is_gone(
    exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held for longer than one lasts; left behind by a machine that died, it holds no longer than it says."""
    clock = clock_of_leases(monkeypatch)
    here, there = exchanges
    with here.lease(SPEC):
        for _ in range(3):
            clock.now += 0.9 * module.LEASE_SECONDS
            wait_for(lambda: (there._lease(SPEC) or {})["until"] == clock.now + module.LEASE_SECONDS)
            assert there.is_leased(SPEC)
    here._renew(SPEC)  # and then it dies
    clock.now += 0.99 * module.LEASE_SECONDS
    assert there.is_leased(SPEC)
    clock.now += 0.02 * module.LEASE_SECONDS
    with there.lease(SPEC) as is_ours:
        assert is_ours


def test_who_lost_a_lease_neither_takes_it_back_nor_gives_it_away(
    exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine that slept: it had lapsed, and another one took it."""
    clock_of_leases(monkeypatch)
    here, there = exchanges
    asked, is_leased = Semaphore(0), here.is_leased
    monkeypatch.setattr(here, "is_leased", lambda spec: (asked.release(), is_leased(spec))[1])
    with here.lease(SPEC):
        there._renew(SPEC)
        for _ in range(5):  # two before the lease, then each time that it would renew
            assert asked.acquire(timeout=300)
        assert is_leased(SPEC)
    assert here.is_leased(SPEC)


def test_of_two_that_take_a_lease_at_once_the_last_holds_it(exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one sees that its own is written over."""
    here, there = exchanges
    monkeypatch.setattr(module.time, "sleep", lambda _: there._renew(SPEC))
    with here.lease(SPEC) as is_ours:
        assert not is_ours


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_a_lease_that_cannot_be_read_is_none(exchanges: list[Exchange], tmp_path: Path, content: bytes) -> None:
    """It is written over."""
    here, there = exchanges
    here._renew(SPEC)
    (path,) = (tmp_path / "shared").rglob("lease.json")
    path.write_bytes(content)
    with there.lease(SPEC) as is_ours:
        assert is_ours


def test_tokens_that_a_store_changed_are_not_brought(places: list[Workplace], tmp_path: Path) -> None:
    """Named with where they lie; once that is removed, they are taken there again."""
    here, there = places
    tokens = np.arange(1_000, dtype=np.uint8)
    corpus = byte_corpus(source="bytes", train=tokens, validation=tokens[::-1].copy())
    write_corpus(corpus, data_folder(corpus.digest, work_root=here.work_root))
    Exchange(here).take_data(corpus.digest)
    (shared,) = (tmp_path / "shared" / "data").iterdir()
    (shared / "validation.bin").write_bytes(tokens.tobytes())
    with pytest.raises(StorageError, match="tokens of validation"):
        Exchange(there).bring_data(corpus.digest)
    assert not data_folder(corpus.digest, work_root=there.work_root).exists()
    shutil.rmtree(shared)
    Exchange(here).take_data(corpus.digest)
    Exchange(there).bring_data(corpus.digest)
    assert map_corpus(data_folder(corpus.digest, work_root=there.work_root)).digest == corpus.digest


def test_the_later_state_goes_on_with_its_curve(places: list[Workplace]) -> None:
    """Also where the own one is longer: what was trained after the own checkpoint is not mixed with it."""
    here, there = places
    save(here, step=5, curve="3.0\n2.9\n")
    Exchange(here).take_state(SPEC)
    save(there, step=3, curve="3.0\n3.0\n3.0\n")
    Exchange(there).bring_state(SPEC)
    assert saved(there) == {"step-5": "state after 3.0\n2.9\n"}
    assert curve_path(work_dir(SPEC, there)).read_text() == "3.0\n2.9\n"


def test_an_own_state_that_is_as_late_stays(places: list[Workplace]) -> None:
    """With its own curve: two states of one step are two states."""
    here, there = places
    save(here, step=5, curve="3.0\n")
    save(there, step=5, curve="2.0\n")
    for place in places:
        Exchange(place).take_state(SPEC)
    Exchange(there).bring_state(SPEC)
    assert saved(there) == {"step-5": "state after 2.0\n"}
    assert curve_path(work_dir(SPEC, there)).read_text() == "2.0\n"


def test_only_the_latest_whole_state_is_kept_there(places: list[Workplace], tmp_path: Path) -> None:
    """Earlier ones go when it is whole, later ones of others stay; one that is not whole does not count."""
    here, there = places
    for step in (5, 9):
        save(here, step=step, curve="3.0\n")
        Exchange(here).take_state(SPEC)
    save(there, step=7, curve="2.0\n")
    Exchange(there).take_state(SPEC)
    states = tmp_path / "shared" / "work" / SPEC.directory_name / "states"
    assert sorted(path.name.split("-")[1] for path in states.iterdir()) == ["7", "9"]
    (states / "step-12-of-a-machine-that-died").mkdir()
    Exchange(there).bring_state(SPEC)
    assert saved(there) == {"step-9": "state after 3.0\n"}


def test_a_run_was_begun_when_it_was_first_begun(places: list[Workplace]) -> None:
    """Whichever machine that was, and whichever learns of it first."""
    for place, began in zip(places, ("2026-01-02", "2026-01-01"), strict=True):
        work_dir(SPEC, place).mkdir(parents=True)
        (work_dir(SPEC, place) / "started_at").write_text(began)
    for place in (*places, places[0]):
        Exchange(place).agree_when_begun(SPEC)
    assert [(work_dir(SPEC, place) / "started_at").read_text() for place in places] == ["2026-01-01"] * 2


def test_progress_elsewhere_is_seen_and_own_files_stay(places: list[Workplace]) -> None:
    """The longer curve is shown, wherever it is; finished runs are brought."""
    here, there = places
    save(here, step=5, curve=curve_lines(3.0, 2.9))
    Exchange(here).take_state(SPEC)
    save(there, step=1, curve=curve_lines(2.0))
    Exchange(there).bring_progress([SPEC])
    assert losses_so_far(SPEC, there) == [3.0, 2.9]
    assert curve_path(work_dir(SPEC, there)).read_text() == curve_lines(2.0)
    curve_path(work_dir(SPEC, there)).write_text(curve_lines(2.0, 2.0, 2.0))
    assert losses_so_far(SPEC, there) == [2.0, 2.0, 2.0]
    finish(here)
    Exchange(here).share_finished([SPEC])
    Exchange(there).bring_progress([SPEC])
    assert len(read_runs(there.runs_dir / SPEC.ladder)) == 1
    assert not work_dir(SPEC, there).exists()


def test_kept_weights_are_those_of_the_record(places: list[Workplace], tmp_path: Path) -> None:
    """Taken with it, under the digest of its curve, and brought when they are wanted."""
    here, there = places
    finish(here)
    folder = weights_dir(SPEC.directory_name, here)
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text("{}")
    (folder / "arrays").write_text("trained")
    for place in places:
        Exchange(place).share_finished([SPEC])
    (run,) = read_runs(there.runs_dir / SPEC.ladder)
    Exchange(there).bring_weights(run)
    assert (weights_dir(SPEC.directory_name, there) / "arrays").read_text() == "trained"
    (shared,) = (tmp_path / "shared" / "weights").iterdir()
    assert shared.name == f"{SPEC.directory_name}-{run.record.history_sha256[:16]}"


def test_what_could_not_be_taken_there_at_the_end_is_taken_once_it_can(
    places: list[Workplace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file lies in the way of a run that is recorded here; it is said, and waited for. If it stays, that is an error."""
    here, said = places[0], []
    finish(here)
    monkeypatch.setattr(run_ladder, "_SHARED_POLL_SECONDS", 0.0)
    (tmp_path / "shared").write_text("in the way")

    def heard(event: WorkerEvent) -> None:
        said.append(event.message)
        (tmp_path / "shared").unlink()

    def no_pool(*_: object) -> Iterator[WorkerEvent]:
        raise AssertionError("nothing is to be trained")

    asked = {"corpus": standard_library_corpus(), "workplace": here, "pool": no_pool}
    train_runs([SPEC], **asked, on_event=heard)
    assert len(said) == 1
    assert "recorded here, but cannot be copied" in said[0]
    assert list((tmp_path / "shared" / "runs").glob("*/*/record.json"))

    shutil.rmtree(tmp_path / "shared")
    (tmp_path / "shared").write_text("in the way")
    monkeypatch.setattr(run_ladder, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(StorageError, match="shared"):
        train_runs([SPEC], **asked, on_event=lambda _: None)
