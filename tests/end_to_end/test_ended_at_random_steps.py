"""Ended at any step, a run goes on from there and ends with the loss curve of one that nobody disturbed, bit for bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from mounted import mounted
from tiny_ladder import repository

from marin_scaling.data.corpus import data_folder, write_corpus
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.files import replace_file
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.run.plan import rung_specs
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import Workplace, checkpoints_root, is_finished, run_folder, spec_path, work_dir
from marin_scaling.train.launcher import worker_command
from marin_scaling.train.progress import parse_event

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 6e10, hidden_dims: [8]}
target: {budget_flops: 1e11}
evaluation: {windows: 64}
"""


def laid_out(folder: Path) -> tuple[RunSpec, Workplace]:
    """The one run of 545 steps, with its data where a training process finds them."""
    root, corpus = repository(folder, ladder=LADDER), standard_library_corpus()
    (spec,) = rung_specs(plan_ladder(read_ladder_file(root / "ladders" / "tiny.yaml")), corpus=corpus)
    place = Workplace(runs_dir=root / "runs", work_root=root / ".marin-scaling")
    write_corpus(corpus, data_folder(corpus.digest, work_root=place.work_root))
    replace_file(spec_path(spec, place), spec.to_bytes())
    return spec, place


def trained(spec: RunSpec, place: Workplace, *, until: int | None = None) -> tuple[int, list[int]]:
    """A training process, sent SIGTERM once it tells of step `until`; its exit status, and the steps that it told of."""
    command = worker_command([spec], workplace=place, cores=sorted(os.sched_getaffinity(0))[:1])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    steps = []
    with process.stdout as lines:
        for event in filter(None, map(parse_event, lines)):
            if event.kind == "stepped":
                steps.append(event.step)
                if until is not None and event.step >= until:
                    process.send_signal(signal.SIGTERM)
    return process.wait(), steps


@pytest.mark.nightly
def test_a_run_that_is_ended_again_and_again_loses_no_step_and_no_bit(tmp_path: Path) -> None:
    """Twice, at steps drawn anew in each test: it begins again where it was ended, and not at a checkpoint before that."""
    whole, its_place = laid_out(tmp_path / "whole")
    assert trained(whole, its_place)[0] == 0
    spec, place = laid_out(tmp_path / "ended")
    draw, ended_at = Random(), [0]
    for _ in range(2):
        until = draw.randint(ended_at[-1] + 1, ended_at[-1] + 120)
        status, steps = trained(spec, place, until=until)
        assert status == 128 + signal.SIGTERM, (status, ended_at)
        assert steps[0] == ended_at[-1] + 1, (steps[0], ended_at)
        ended_at.append(_steps_saved(place, spec))
        assert ended_at[-1] >= until
    assert trained(spec, place)[0] == 0
    assert is_finished(place.runs_dir, spec)
    first, second = (run_folder(each.runs_dir, spec) / "history.json" for each in (its_place, place))
    assert first.read_bytes() == second.read_bytes(), (sys.version, ended_at)


def test_a_disk_that_fills_up_is_told_as_such_and_the_run_goes_on_later(tmp_path: Path) -> None:
    """A file system of two pages, which the loss curve fills; on another one the same command trains the run."""
    spec, place = laid_out(tmp_path / "full")
    command = worker_command([spec], workplace=place, cores=sorted(os.sched_getaffinity(0))[:1])
    with mounted(work_dir(spec, place), "size=8k"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [event.message for event in filter(None, map(parse_event, done.stdout.splitlines())) if event.kind == "failed"]
    message = f"the disk is full: nothing could be written below {place.work_root}. Earlier checkpoints are kept."
    assert told == [message], done.stderr
    assert done.returncode == 1
    assert trained(spec, place)[0] == 0


def _steps_saved(place: Workplace, spec: RunSpec) -> int:
    kept = (checkpoints_root(work_dir(spec, place)) / spec.directory_name).glob("step-*")
    return max(int(folder.name.removeprefix("step-")) for folder in kept) + 1
