"""The launcher when its processes cannot work: it says so and ends, and nothing in the current folder gets in their way."""

import os
import sys
from pathlib import Path

import pytest
from registration_factory import store_run
from run_factory import rung_spec

from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.errors import StorageError, TrainingFailed
from marin_scaling.run.store import Workplace
from marin_scaling.train.launcher import local_pool, train_runs
from marin_scaling.train.progress import failure_of


@pytest.fixture(scope="module")
def corpus() -> TokenCorpus:
    """Any corpus: no process of these tests comes to train."""
    return standard_library_corpus()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """An empty store and an empty folder for the work."""
    monkeypatch.chdir(tmp_path)
    return Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / ".marin-scaling")


def interpreter(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Let a shell script of these lines stand for the Python that workers are started with."""
    path = folder / "python"
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def train(workplace: Workplace, corpus: TokenCorpus, *, runs_at_a_time: int = 2) -> list[str]:
    kinds: list[str] = []
    specs = [rung_spec(), rung_spec(seed=1)]
    train_runs(
        specs,
        corpus=corpus,
        workplace=workplace,
        pool=local_pool(runs_at_a_time),
        on_event=lambda event: kinds.append(f"{event.kind} {event.message}"),
    )
    return kinds


def test_processes_that_die_before_their_first_run_end_the_launcher_with_their_last_words(
    tmp_path: Path, workplace: Workplace, corpus: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status, the log's path and what this process wrote into it; not what stood there from an earlier time."""
    interpreter(tmp_path, monkeypatch, "echo 'ModuleNotFoundError: no sums today' >&2", "exit 3")
    log = workplace.work_root / "logs" / "worker-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("an older word\n")
    with pytest.raises(TrainingFailed, match="ended with status 3 before it began a run") as caught:
        train(workplace, corpus)
    assert str(log) in caught.value.what
    assert "no sums today" in caught.value.what
    assert "an older word" not in caught.value.what


def test_processes_that_are_killed_without_a_word_end_the_launcher_too(
    tmp_path: Path, workplace: Workplace, corpus: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does when memory runs out."""
    interpreter(tmp_path, monkeypatch, "kill -9 $$")
    with pytest.raises(TrainingFailed, match=r"ended with status -9 before it began a run.*: nothing"):
        train(workplace, corpus, runs_at_a_time=1)


def test_a_process_that_dies_in_a_run_fails_that_run_only(
    tmp_path: Path, workplace: Workplace, corpus: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named; the other run is then tried by a process that dies in it in turn."""
    events = [f'{{"kind": "started", "run": "{spec.directory_name}"}}' for spec in (rung_spec(), rung_spec(seed=1))]
    first, second = events
    interpreter(
        tmp_path, monkeypatch, f"test -e began && echo '{second}' && exit 1", "touch began", f"echo '{first}'", "exit 1"
    )
    with pytest.raises(TrainingFailed, match="2 of 2 runs failed") as caught:
        train(workplace, corpus, runs_at_a_time=1)
    assert caught.value.what.count("its process ended with status 1") == 2
    assert caught.value.why == ""


def test_runs_that_failed_for_one_reason_have_it_said_once(workplace: Workplace, corpus: TokenCorpus) -> None:
    """What happened is said of each; that others are recorded, where there are others."""
    failing, sound = [rung_spec(), rung_spec(seed=1)], rung_spec(seed=2)
    store_run(workplace.runs_dir, spec=sound, loss=3.25)
    error = StorageError("the disk is full.", why="Nothing fits.", fix="Make room.")
    with pytest.raises(TrainingFailed) as caught:
        train_runs(
            [*failing, sound],
            corpus=corpus,
            workplace=workplace,
            pool=lambda specs, _place: iter([failure_of(spec.directory_name, error) for spec in specs]),
            on_event=lambda _event: None,
        )
    named = sorted(
        f"1e9/{spec.model.hidden_dim}, seed {spec.seed} ({spec.directory_name}): the disk is full." for spec in failing
    )
    expected = ["2 of 3 runs failed:", *named, "  why: Nothing fits.", "  fix: Make room."]
    assert [line.removeprefix("       ") for line in caught.value.what.splitlines()] == expected
    assert caught.value.why == "All other runs are trained and recorded."


def test_a_process_that_is_killed_in_a_run_fails_it_with_a_word_of_memory(
    tmp_path: Path, workplace: Workplace, corpus: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says nothing; what it usually means is said."""
    began = f'{{"kind": "started", "run": "{rung_spec().directory_name}"}}'
    interpreter(tmp_path, monkeypatch, "test -e began && exit 0", "touch began", f"echo '{began}'", "kill -9 $$")
    with pytest.raises(TrainingFailed, match=r"was killed .signal 9."):
        train_runs([rung_spec()], corpus=corpus, workplace=workplace, pool=local_pool(1), on_event=lambda _event: None)


def test_a_file_of_the_current_folder_is_not_taken_for_a_module(
    tmp_path: Path, workplace: Workplace, corpus: TokenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's argparse.py does not stand in for Python's: the worker comes as far as to read its spec."""
    (tmp_path / "argparse.py").write_text("raise SystemExit('not the argparse you look for')\n")
    real, spec = sys.executable, workplace.work_root / "specs" / f"{rung_spec().directory_name}.json"
    interpreter(tmp_path, monkeypatch, f"echo broken > '{spec}'", f"exec '{real}' \"$@\"")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with pytest.raises(TrainingFailed, match="before it began a run") as caught:
        train(workplace, corpus, runs_at_a_time=1)
    assert "not the argparse" not in caught.value.what
    assert os.path.basename(spec) in caught.value.what
