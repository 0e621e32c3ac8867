"""The commands that `preregister` prints lead to a merged forecast, in a repository with a remote and in one without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_repository import commit, git
from registration_factory import ladder_rows, make_registration, make_second_registration, store_ladder

from marin_scaling.cli.preregister import _print_next
from marin_scaling.preregistration.register import Registration

LADDER = Path("ladders/tiny.yaml")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a trained ladder and no registry."""
    monkeypatch.chdir(tmp_path)
    store_ladder(tmp_path / "runs")
    LADDER.parent.mkdir()
    LADDER.write_text("name: tiny\n")
    git(tmp_path, "init", "-q", "-b", "trunk")
    for key in ("user.name", "user.email"):
        git(tmp_path, "config", key, "ada@example.org")
    commit(tmp_path)
    return tmp_path


def printed(made: Registration, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """Return the text of the next steps, and its commands except the training."""
    files = f"preregistrations runs/tiny {LADDER}"
    command = f"marin-scale run {made.folder.name}"
    _print_next(made, registry=Path("preregistrations"), files=files, then="train its run", command=command)
    text = capsys.readouterr().out
    commands = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    assert commands[-1].startswith("marin-scale run")
    return text, commands[:-1]


def typed(commands: list[str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        done = subprocess.run(
            ["bash", "-euc", command], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def committed(revision: str) -> str:
    return subprocess.run(["git", "ls-tree", "-r", "--name-only", revision], capture_output=True, text=True, check=True).stdout


def test_without_a_remote_the_printed_commands_review_and_merge_the_forecast(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the key, then the forecast, on the branch that was checked out."""
    made = make_registration(root, rows=ladder_rows(root / "runs"))
    text, commands = printed(made, capsys)
    assert "push" not in "".join(commands)
    assert "origin" not in text
    typed(commands)
    assert f"{made.folder.name}/statement.json" in committed("trunk")


@pytest.mark.parametrize("main", ["main", "master"])
def test_on_a_feature_branch_the_base_is_the_main_branch(root: Path, main: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The key is merged without the commits of the feature, and the forecast with them."""
    git(root, "branch", "-m", main)
    git(root, "switch", "-q", "-c", "feature")
    Path("feature.txt").write_text("x")
    commit(root)
    made = make_registration(root, rows=ladder_rows(root / "runs"))
    _, commands = printed(made, capsys)
    assert f"marin-scale review --base {main}" in commands
    typed(commands)
    assert "feature.txt" not in committed("my-key")
    assert {"feature.txt", f"preregistrations/{made.folder.name}/statement.json"} <= set(committed(main).split())


def test_with_a_remote_the_key_is_merged_into_its_main_branch(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HEAD of the remote names it where no local branch is called main or master."""
    git(root, "remote", "add", "origin", "https://example.org/lab/forecasts.git")
    git(root, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(root, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    git(root, "switch", "-q", "-c", "feature")
    text, commands = printed(make_registration(root, rows=ladder_rows(root / "runs")), capsys)
    assert commands[0].startswith("git switch -c my-key trunk ")
    assert "git switch trunk && git pull\n  git switch feature && git merge trunk" in text


def test_with_a_known_key_the_forecast_is_only_committed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No branch is needed."""
    make_registration(root, rows=ladder_rows(root / "runs"))
    commit(root)
    made = make_second_registration(root)
    _, commands = printed(made, capsys)
    assert [command.split()[:2] for command in commands] == [["git", "add"], ["git", "commit"]]
    typed(commands)
    assert f"{made.folder.name}/statement.json" in committed("trunk")


def test_with_a_remote_the_forecast_is_pushed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before its run is trained."""
    git(root, "remote", "add", "origin", "https://example.org/lab/forecasts.git")
    _, commands = printed(make_registration(root, rows=ladder_rows(root / "runs")), capsys)
    assert "git push" in commands[-1]
