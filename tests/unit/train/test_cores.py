"""A training process is told which cores are its own; the last bits of a loss depend on how many they are."""

import contextlib
import os
from pathlib import Path

import pytest
from run_factory import rung_spec, stand_in

from marin_scaling.errors import TrainingFailed
from marin_scaling.ladder.config import Hardware
from marin_scaling.run.store import Workplace
from marin_scaling.train.session import pool_of

CORES = sorted(os.sched_getaffinity(0))[:2]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A shell script stands for the training process, and writes down how it was called."""
    stand_in(tmp_path / "python", says='"$@"', monkeypatch=monkeypatch)
    monkeypatch.chdir(tmp_path)
    return Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / ".marin-scaling")


def cores_given(workplace: Workplace, *, left: int, of: int) -> list[str]:
    """To each process, where so many of a ladder's runs are left."""
    pool = pool_of("local", Hardware(), runs=of)
    with contextlib.suppress(TrainingFailed):
        list(pool([rung_spec(seed=seed) for seed in range(left)], workplace))
    return sorted(line.split("--cores ")[1].split()[0] for line in Path("seen").read_text().splitlines())


@pytest.mark.skipif(len(CORES) < 2, reason="this machine has one core")
@pytest.mark.parametrize(
    ("left", "of", "given"),
    [
        (4, 4, [f"{CORES[0]}", f"{CORES[-1]}"]),
        (1, 4, [f"{CORES[0]}"]),
        (1, 1, [f"{CORES[0]},{CORES[-1]}"]),
    ],
)
def test_a_run_that_is_left_alone_has_the_cores_it_would_have_had(
    workplace: Workplace, left: int, of: int, given: list[str]
) -> None:
    """So that a ladder that was interrupted ends with the losses of one that was not."""
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CORES)
    try:
        assert cores_given(workplace, left=left, of=of) == given
    finally:
        os.sched_setaffinity(0, whole)
