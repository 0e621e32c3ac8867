"""A ladder that is killed goes on where it was: nothing is trained twice, nothing is lost, and the losses are the same."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tiny_ladder import LADDER, histories, repository, start

from marin_scaling.run.store import Workplace, read_runs
from marin_scaling.train.weights import kept_weights

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train


def test_two_launchers_and_a_kill_change_nothing_but_time(tmp_path: Path) -> None:
    """One launcher is killed with -9 once a rung is recorded, a second one beside it ends the ladder; a third trains nothing.

    The loss curves are, bit for bit, those of a ladder that nobody disturbed. The weights of all runs are kept as it was asked.
    """
    disturbed, quiet = repository(tmp_path / "disturbed"), repository(tmp_path / "quiet")
    first, second = start(disturbed, "--keep-weights"), start(disturbed, "--keep-weights")
    deadline = time.monotonic() + 300
    while not histories(disturbed) and time.monotonic() < deadline:
        time.sleep(0.2)
    before = histories(disturbed)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    output, _ = second.communicate(timeout=300)
    assert second.returncode == 0, output
    assert len(histories(disturbed)) == 4
    assert before.items() <= histories(disturbed).items()

    third = start(disturbed)
    output, _ = third.communicate(timeout=300)
    assert "4 of 4 runs are finished already" in output
    place = Workplace(runs_dir=disturbed / "runs", work_root=disturbed / ".marin-scaling")
    kept = [kept_weights(run, place) for run in read_runs(disturbed / "runs" / "tiny")]
    assert sorted(kept) == sorted((disturbed / ".marin-scaling" / "weights").iterdir())

    undisturbed = start(quiet)
    output, _ = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, output
    assert histories(quiet) == histories(disturbed)
    assert not (quiet / ".marin-scaling" / "weights").exists()


@pytest.mark.nightly
def test_a_ladder_with_shared_trunks_is_killed_and_ends_with_the_curves_of_separate_runs(tmp_path: Path) -> None:
    """The longer runs say whose steps they continue; no checkpoint of a trunk is left."""
    shared = LADDER + "shared_trunk: true\n"
    together, apart = repository(tmp_path / "together", ladder=shared), repository(tmp_path / "apart", ladder=shared)
    first = start(together)
    deadline = time.monotonic() + 300
    while not list((together / ".marin-scaling").glob("trunks/*/*/trunk.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    output, _ = start(together).communicate(timeout=300)
    assert len(histories(together)) == 4, output
    trunks = {run.spec.rung_name: run.record.trunk for run in read_runs(together / "runs" / "tiny")}
    assert [name for name, trunk in trunks.items() if trunk] == ["2e10/8", "2e10/12"], trunks
    assert not list((together / ".marin-scaling").glob("trunks/*/*"))
    for name in ("2e10/8", "2e10/12", "1e10/8", "1e10/12"):
        output, _ = start(apart, "--only", name).communicate(timeout=300)
        shutil.rmtree(apart / ".marin-scaling" / "trunks", ignore_errors=True)
    assert histories(apart) == histories(together), output
    assert not any(run.record.trunk for run in read_runs(apart / "runs" / "tiny"))
