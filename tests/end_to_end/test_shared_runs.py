"""Two machines (two folders) that share runs at an address: each run is trained once, and goes on where the other stopped."""

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_factory import corpus, rung_spec
from tiny_ladder import histories, repository, start

from marin_scaling.run.store import Workplace, work_dir
from marin_scaling.train.shared_storage import Exchange

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


def sharing(folder: Path) -> str:
    """YAML for a ladder that is trained by several machines."""
    return f"hardware: {{storage: 'file://{folder}/shared'}}\n"


def ignore(_step: int, _loss: float) -> None:
    """A listener that needs nothing."""


def records(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in (folder / "runs").glob("tiny/[0-9a-f]*/record.json")}


def test_two_machines_train_each_run_once(tmp_path: Path) -> None:
    """Begun at the same time, both end with all records, and these are the same: none was trained twice.

    A third one trains nothing. The loss curves are, bit for bit, those of a machine alone with as many cores a run.
    """
    first, second, third = (repository(tmp_path / name, more=sharing(tmp_path)) for name in ("first", "second", "third"))
    alone = repository(tmp_path / "alone")
    for launcher in [start(folder, "--max-parallel", "1") for folder in (first, second)]:
        output, _ = launcher.communicate(timeout=600)
        assert launcher.returncode == 0, output
        assert "All 4 runs are recorded" in output
    assert len(records(first)) == 4
    assert records(first) == records(second)
    output, _ = start(third).communicate(timeout=300)
    assert "4 of 4 runs are finished already" in output
    assert records(third) == records(first)
    output, _ = start(alone, "--max-parallel", "1").communicate(timeout=600)
    assert histories(alone) == histories(first), output


def test_a_run_that_one_machine_began_ends_on_another_as_it_would_have_on_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the last state that was saved for others, which is older than the last step; the curve is the same, bit for bit."""
    import marin_scaling.train.train as module

    spec = rung_spec(train_steps=20)

    def curve(
        folder: Path, *, on_step: Callable[[int, float], None] = ignore, on_saved: Callable[[], None] | None = None
    ) -> list[float | None]:
        result = module.train(spec, corpus=corpus(), work_dir=folder, on_step=on_step, on_saved=on_saved)
        return [row.train_loss_nats_per_token for row in result.loss_curve.history(spec_digest=spec.digest).rows]

    def stop_at_12(step: int, _loss: float) -> None:
        if step == 12:
            raise KeyboardInterrupt

    uninterrupted = curve(tmp_path / "whole")
    first, second = (
        Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / name, storage=f"memory://{tmp_path.name}") for name in "ab"
    )
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(module, "SAVING_SHARE", 1.0)
    with pytest.raises(KeyboardInterrupt):
        curve(work_dir(spec, first), on_step=stop_at_12, on_saved=lambda: Exchange(first).take_state(spec))
    Exchange(second).bring_state(spec)
    steps: list[int] = []
    assert curve(work_dir(spec, second), on_step=lambda step, _: steps.append(step)) == uninterrupted
    assert steps[0] > 5


def put_away(shared: Path, away: Path) -> None:
    """Move the shared folder, and put a file in its place; a launcher may make the folder anew in between."""
    shared.rename(away)
    while True:
        with contextlib.suppress(IsADirectoryError):
            shared.write_text("in the way")
            return
        shutil.copytree(shared, away, dirs_exist_ok=True)
        shutil.rmtree(shared)


@pytest.mark.nightly
def test_an_address_that_is_away_for_a_while_costs_no_run(tmp_path: Path) -> None:
    """From when the first run is recorded until it is said: all are recorded, and in the end they lie there."""
    folder, shared = repository(tmp_path / "here", more=sharing(tmp_path)), tmp_path / "shared"
    launcher = start(folder, "--max-parallel", "1")
    deadline = time.monotonic() + 300
    while not records(folder) and launcher.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    put_away(shared, tmp_path / "away")
    assert launcher.stdout is not None
    output = ""
    while "shared/work/" not in output and (line := launcher.stdout.readline()):  # until it is said
        output += line
    shared.unlink()
    (tmp_path / "away").rename(shared)
    output += launcher.communicate(timeout=600)[0]
    assert launcher.returncode == 0, output
    assert "shared/work/" in output
    assert len(records(folder)) == 4
    assert len(list(shared.glob("runs/tiny/[0-9a-f]*/record.json"))) == 4
