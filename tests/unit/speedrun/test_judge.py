"""Submissions of a repository: against its own run records, and a copy against its original."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from git_repository import commit, git
from registration_factory import run_spec, store_run

from marin_scaling.git import GitError
from marin_scaling.run.store import read_run
from marin_scaling.speedrun.from_runs import submission_from_runs
from marin_scaling.speedrun.judge import judge_all, judge_new
from marin_scaling.speedrun.submission import Author, Submission, write_submission

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def trained(root: Path) -> Submission:
    """The submission of a run that the store of `root` records with 2.5 bits per byte."""
    times = {"started_at": "2026-11-19T10:00:00Z", "finished_at": "2026-11-19T10:00:05Z", "wall_seconds": 4.0}
    folder = store_run(root / "runs", spec=run_spec(), loss=2.5, step_seconds=3.0, **times)
    return submission_from_runs(
        [read_run(folder)], name="cpu/mine", track="cpu", author=Author(name="Ada"), description="", trials=1
    )


def refused(root: Path, *, base: str | None = None) -> dict[str, set[str]]:
    """The codes of the errors of each submission that is refused."""
    found = judge_all(root / "speedruns", at=NOW, base=base).validated
    return {
        each.submission.name: {one.code for one in each.findings if one.severity == "error"}
        for each in found
        if not each.accepted
    }


@pytest.mark.parametrize(("key", "value"), [("bits_per_byte", 1.5), ("training_seconds", 1.0), ("seed", 7)])
def test_a_figure_that_differs_from_the_record_of_its_log_is_refused(tmp_path: Path, key: str, value: float) -> None:
    """With both figures and the record's folder."""
    document = trained(tmp_path).model_dump(mode="json", exclude_none=True)
    document["seeds"][0][key] = value
    changed = Submission.model_validate_json(json.dumps(document))
    write_submission(tmp_path / "speedruns", changed)
    (judged,) = judge_all(tmp_path / "speedruns", at=NOW).validated
    (error,) = [each for each in judged.findings if each.severity == "error"]
    assert (error.code, error.where) == ("record", f"seeds.{key}")
    assert f"{value:g} is stated" in error.message
    assert str(tmp_path / "runs" / "tiny") in error.message
    assert judge_new(changed, to=tmp_path / "elsewhere" / "speedruns", at=NOW).accepted


def test_a_submission_of_its_own_record_is_accepted(tmp_path: Path) -> None:
    """All figures agree."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    assert refused(tmp_path) == {}


def copied(root: Path, *, name: str) -> None:
    """The submission once more, by another name."""
    write_submission(root / "speedruns", trained_again(root).model_copy(update={"name": name}))


def trained_again(root: Path) -> Submission:
    """The submission that lies there."""
    (found,) = [each.submission for each in judge_all(root / "speedruns", at=NOW).found]
    assert found is not None
    return found


@pytest.mark.parametrize("committed", [True, False])
def test_of_a_copy_and_its_original_the_one_on_the_main_branch_is_accepted(tmp_path: Path, committed: bool) -> None:
    """Though the copy's name comes first."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    git(tmp_path, "checkout", "-qb", "more")
    copied(tmp_path, name="aaa/copy")
    if committed:
        commit(tmp_path)
    assert refused(tmp_path) == {"aaa/copy": {"duplicate"}}
    assert refused(tmp_path, base="main") == {"aaa/copy": {"duplicate"}}


def test_a_copy_whose_branch_is_older_than_the_original_is_refused(tmp_path: Path) -> None:
    """It was committed first on its own branch, into which main was merged then."""
    (tmp_path / "README.md").write_text("x")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    git(tmp_path, "checkout", "-qb", "more")
    original = trained(tmp_path)
    write_submission(tmp_path / "speedruns", original.model_copy(update={"name": "aaa/copy"}))
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    write_submission(tmp_path / "speedruns", original)
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "more")
    git(tmp_path, "merge", "-q", "main", "-m", "main")
    assert refused(tmp_path) == {"aaa/copy": {"duplicate"}}


def test_of_two_on_one_branch_the_one_that_was_added_first_is_accepted(tmp_path: Path) -> None:
    """By the order of commits, whatever their dates."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    copied(tmp_path, name="aaa/copy")
    commit(tmp_path)
    assert refused(tmp_path) == {"aaa/copy": {"duplicate"}}


def test_a_base_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A mistyped branch must not pass for an empty one."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    with pytest.raises(GitError):
        refused(tmp_path, base="mian")
