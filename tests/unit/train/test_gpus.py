"""Training processes are given the GPUs that the ladder file gives a run; no GPU is needed to see what each is given."""

import contextlib
from pathlib import Path

import pytest
from run_factory import rung_spec, stand_in

from marin_scaling.errors import ClusterError, LadderFileError, TrainingFailed
from marin_scaling.ladder.config import Hardware, PerRun, read_ladder_file
from marin_scaling.run.store import Workplace
from marin_scaling.train.launcher import Pool, visible_gpus
from marin_scaling.train.session import pool_of, target_pool


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A machine with four GPUs, as far as the environment says, where a shell script stands for the training process."""
    stand_in(
        tmp_path / "python", says='"gpus=$CUDA_VISIBLE_DEVICES memory=$XLA_PYTHON_CLIENT_MEM_FRACTION"', monkeypatch=monkeypatch
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.chdir(tmp_path)
    return Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / ".marin-scaling")


def seen(pool: Pool, workplace: Workplace) -> list[str]:
    """What the processes of a pool for twelve runs found in their environment."""
    with contextlib.suppress(TrainingFailed):
        list(pool([rung_spec(seed=seed) for seed in range(12)], workplace))
    return sorted(Path("seen").read_text().splitlines())


@pytest.mark.parametrize(
    ("gpus", "given"),
    [
        (1, [f"gpus={number} memory=" for number in range(4)]),
        (2, ["gpus=0,1 memory=", "gpus=2,3 memory="]),
        (0.5, [f"gpus={number} memory=0.45" for number in (0, 0, 1, 1, 2, 2, 3, 3)]),
    ],
)
def test_each_process_has_its_gpus_or_its_share_of_one(workplace: Workplace, gpus: float, given: list[str]) -> None:
    """As many processes as the GPUs are enough for, whatever number of cores there is."""
    assert seen(pool_of("local", Hardware(per_run=PerRun(gpus=gpus)), runs=12), workplace) == given


def test_runs_that_are_given_no_gpu_use_none_and_it_is_said(workplace: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    """Or a process a core would fight for the first one."""
    pool = pool_of("local", Hardware(runs_at_a_time=2), runs=12)
    assert "this machine has 4 GPUs, but hardware.per_run.gpus is 0" in capsys.readouterr().out
    assert seen(pool, workplace) == ["gpus= memory=", "gpus= memory="]


def test_a_target_has_all_gpus(workplace: Workplace) -> None:
    """It is the only run."""
    assert seen(target_pool("local", ladder="any"), workplace) == ["gpus=0,1,2,3 memory="]


def test_more_gpus_than_there_are_are_refused(workplace: Workplace) -> None:
    """With both numbers."""
    with pytest.raises(ClusterError, match=r"per_run\.gpus: a run needs 8, and this machine has 4"):
        pool_of("local", Hardware(per_run=PerRun(gpus=8)), runs=12)
    assert workplace.runs_dir.name == "runs"


def test_one_and_a_half_gpus_are_refused(tmp_path: Path) -> None:
    """A run on several has each of them whole."""
    path = tmp_path / "tiny.yaml"
    rungs = "rungs:\n  - {budget_flops: 1e11, hidden_dims: [16]}\ntarget: {budget_flops: 1e12}\n"
    path.write_text(f"name: tiny\nrecipe: quickstart\n{rungs}hardware: {{per_run: {{gpus: 1.5}}}}\n")
    with pytest.raises(LadderFileError, match=r"line 6: hardware\.per_run\.gpus: .*above 1"):
        read_ladder_file(path)


def test_gpus_are_those_that_the_environment_leaves_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """None where it names none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible_gpus() == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
