"""No record says that a run ended before it began, whatever the clock of a machine says."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import assert_refused, marin_scale
from forgery import edit
from registration_factory import store_run
from run_factory import rung_spec

from marin_scaling.errors import RecordError
from marin_scaling.preregistration.register import Registration
from marin_scaling.run.curves import LossCurve
from marin_scaling.run.store import STARTED_NAME, Workplace, read_run, work_dir
from marin_scaling.train import __main__ as worker
from marin_scaling.train.shared_storage import Exchange

NOW = datetime.now(UTC)


def recorded(began: str, folder: Path, *, seconds: float = 60.0) -> Any:
    """The record that training writes now of a run that began then."""
    with LossCurve(folder / "loss_curve.jsonl") as curve:
        curve.add(3.0)
        result = SimpleNamespace(
            bits_per_byte=2.5, bits_per_byte_by_set={"validation": 2.5}, loss_curve=curve, step_seconds=1.0, trunk=None
        )
        place = Workplace(runs_dir=folder / "runs", work_root=folder / "work", git_commit="c" * 40)
        return worker._record(rung_spec(), result, started_at=began, wall_seconds=seconds, place=place)  # type: ignore[arg-type]


@pytest.mark.train
@pytest.mark.parametrize("ahead", [timedelta(seconds=30), timedelta(days=400), timedelta(hours=-1)])
def test_a_run_ends_after_it_began_when_the_clock_goes_back(ahead: timedelta, tmp_path: Path) -> None:
    """It began by a clock that was ahead; the last process took a minute."""
    pytest.importorskip("jax", reason="the train extra is not installed")
    began = (NOW + ahead).isoformat(timespec="seconds")
    record = recorded(began, tmp_path)
    ended = datetime.fromisoformat(record.finished_at)
    assert ended - datetime.fromisoformat(began) >= timedelta(seconds=60)
    assert ended >= NOW.replace(microsecond=0)


@pytest.mark.parametrize("written", [b"", b"2026-11-2\x00T10:00:00", b"\xff\xfe"])
def test_a_damaged_beginning_is_the_time_of_its_file(written: bytes, tmp_path: Path) -> None:
    marker = tmp_path / STARTED_NAME
    marker.write_bytes(written)
    os.utime(marker, (1_700_000_000, 1_700_000_000))
    began = worker._first_start(tmp_path)
    assert datetime.fromisoformat(began).timestamp() == 1_700_000_000
    assert worker._first_start(tmp_path) == began


@pytest.mark.parametrize("shared", [b"", b"0", b"yesterday"])
def test_a_damaged_beginning_of_another_machine_is_not_taken(shared: bytes, tmp_path: Path) -> None:
    """As text it would be the earliest."""
    spec, storage = rung_spec(), tmp_path / "storage"
    place = Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work", storage=str(storage))
    there = storage / "work" / spec.directory_name / STARTED_NAME
    there.parent.mkdir(parents=True)
    there.write_bytes(shared)
    here = work_dir(spec, place) / STARTED_NAME
    here.parent.mkdir(parents=True)
    here.write_bytes(b"2026-11-21T10:00:00+00:00")
    Exchange(place).agree_when_begun(spec)
    assert here.read_bytes() == there.read_bytes() == b"2026-11-21T10:00:00+00:00"


@pytest.mark.parametrize(
    ("began", "ended"),
    [
        ("2026-11-21T10:00:00Z", "2026-11-21T09:59:59Z"),
        ("2025-10-22T10:00:00+00:00", "2024-09-17T10:00:00+00:00"),
        ("2026-11-21T10:00:00-05:00", "2026-11-21T11:00:00+00:00"),
        ("2026-11-21T10:00:00", "2026-11-21T11:00:00+09:00"),
    ],
)
def test_reversed_times_are_refused_and_named(began: str, ended: str, tmp_path: Path) -> None:
    """Also where only their zones reverse them, and whatever command reads the record."""
    spec = rung_spec()
    folder = store_run(tmp_path / "runs", spec=spec, loss=2.5)
    edit(folder / "record.json", lambda record: record.update(started_at=began, finished_at=ended))
    with pytest.raises(RecordError) as refused:
        read_run(folder)
    assert began in refused.value.what
    assert ended in refused.value.what
    assert_refused(marin_scale("fit", "runs/tiny", cwd=tmp_path), began, ended)


def test_an_outcome_with_reversed_times_is_not_checked(registration: Registration, root: Path) -> None:
    """Neither held nor missed is said of it."""
    folder = store_run(root / "runs", spec=registration.target, loss=2.5, started_at="2026-11-21T08:00:00Z")
    edit(folder / "record.json", lambda record: record.update(finished_at="2026-11-21T07:00:00Z"))
    done = marin_scale("check", registration.folder.name, cwd=root)
    assert done.returncode != 0
    assert "held" not in done.stdout
    assert "2026-11-21T07:00:00Z" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
