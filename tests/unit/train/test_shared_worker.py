"""A process that trains shared runs waits for who holds one, and leaves the record of who was faster as it is."""

import io
import threading
import time
from pathlib import Path

import pytest
from run_factory import corpus, record_of, rung_spec

from marin_scaling.data.corpus import data_folder, write_corpus
from marin_scaling.run.store import History, HistoryRow, Workplace, read_runs, weights_dir, work_dir
from marin_scaling.train import __main__ as worker
from marin_scaling.train import shared_storage as module
from marin_scaling.train.progress import EventWriter, WorkerEvent, parse_event
from marin_scaling.train.shared_storage import Exchange

SPEC = rung_spec()
SPEC = rung_spec(data=SPEC.data.model_copy(update={"digest": corpus().digest}))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Workplace]:
    """Two machines that share runs in a folder, where the tokens lie already; leases last as long as they do."""
    monkeypatch.setattr(module, "_SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(worker, "_POLL_SECONDS", 0.1)
    places = [
        Workplace(runs_dir=tmp_path / name / "runs", work_root=tmp_path / name / "work", storage=f"file://{tmp_path}/shared")
        for name in "ab"
    ]
    write_corpus(corpus(), data_folder(SPEC.data.digest, work_root=places[0].work_root))
    Exchange(places[0]).take_data(SPEC.data.digest)
    return places


def began(place: Workplace, *, waits: bool, monkeypatch: pytest.MonkeyPatch) -> float | None:
    """When training of the run would begin here; None if it does not."""
    times: list[float] = []
    monkeypatch.setattr(worker, "_train_and_record", lambda *_, **__: times.append(time.time()))
    worker._train_what_is_shared(SPEC, place, events=EventWriter(io.StringIO()), waits=waits)
    return times[0] if times else None


def test_a_held_run_is_waited_for_until_its_lease_is_given_back(
    places: list[Workplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process that has no other run; one that has others leaves it to whom it is trained by."""
    here, there = places
    let_go = threading.Event()

    def hold() -> None:
        with Exchange(here).lease(SPEC):
            is_held.set()
            let_go.wait()

    is_held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    assert began(there, waits=False, monkeypatch=monkeypatch) is None
    given_back: list[float] = []
    threading.Timer(1.0, lambda: (given_back.append(time.time()), let_go.set())).start()
    begun = began(there, waits=True, monkeypatch=monkeypatch)
    holder.join()
    assert begun is not None
    assert begun >= given_back[0]


def test_a_run_is_taken_over_when_its_lease_has_lapsed(places: list[Workplace], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a machine that died."""
    here, there = places
    monkeypatch.setattr(module, "LEASE_SECONDS", 2.0)
    Exchange(here)._renew(SPEC)
    lease = Exchange(there)._lease(SPEC)
    begun = began(there, waits=True, monkeypatch=monkeypatch)
    assert lease is not None
    assert begun is not None
    assert begun >= lease["until"]


def publish(place: Workplace, *, loss: float) -> list[WorkerEvent | None]:
    """As a process does that has trained the run to this loss; the events that it tells."""
    stream, history = (
        io.StringIO(),
        History(spec_digest=SPEC.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=loss),)),
    )
    for folder in (work_dir(SPEC, place), weights_dir(SPEC.directory_name, place)):
        folder.mkdir(parents=True)
    record = record_of(SPEC, loss=loss, history=history)
    worker._publish(SPEC, record, history, place, events=EventWriter(stream), exchange=Exchange(place))
    return [parse_event(line) for line in stream.getvalue().splitlines()]


def test_of_two_that_ended_a_run_the_first_record_stands(places: list[Workplace]) -> None:
    """On both machines; the second says so, tells that record's loss, and keeps nothing of its own."""
    here, there = places
    publish(here, loss=3.0)
    note, end = publish(there, loss=4.0)
    assert note == WorkerEvent(
        kind="noted", run=SPEC.directory_name, message="another machine has recorded it meanwhile; its record counts."
    )
    assert end == WorkerEvent(kind="finished", run=SPEC.directory_name, step=SPEC.train_steps, loss=3.0)
    assert [read_runs(place.runs_dir / SPEC.ladder)[0].record.loss for place in places] == [3.0, 3.0]
    assert weights_dir(SPEC.directory_name, here).exists()
    assert not weights_dir(SPEC.directory_name, there).exists()
    assert not any(work_dir(SPEC, place).exists() for place in places)
