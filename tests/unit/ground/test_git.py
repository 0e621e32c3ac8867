"""Git answers from the root of one repository, whatever the environment, the settings and the data folders hold."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_repository import commit, git

from marin_scaling import git as asked
from marin_scaling.errors import UsageError

PACKAGE = Path(asked.__file__).parent
STARTERS = {
    "data/labeler.py",
    "experiment/texts.py",
    "git.py",
    "preregistration/signing/keys.py",
    "publish/build.py",
    "speedrun/own_classes.py",
    "train/compile_for.py",
    "train/launcher.py",
    "train/ray_pool.py",
}
"""The modules that start a program; git.py alone starts git."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit on main, and the current directory in it."""
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "data" / "a.txt").write_text("one\n")
    git(root, "init", "-q", "-b", "main")
    commit(root)
    monkeypatch.chdir(root)
    return root


def answer(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def test_no_other_module_starts_git() -> None:
    """A new module that starts programs has to be listed here, and none but git.py has a command line that begins with git."""
    starters, git_lines = set(), []
    for path in sorted(PACKAGE.rglob("*.py")):
        name, tree = path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(each.name in ("subprocess", "pty") for each in node.names):
                starters.add(name)
            words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
            if words and isinstance(words[0], ast.Constant) and words[0].value == "git":
                git_lines.append(name)
    assert starters == STARTERS
    assert set(git_lines) == {"git.py"}


def test_a_commit_is_named_by_branch_tag_or_revision(root: Path) -> None:
    """The id is the one that git itself gives."""
    git(root, "tag", "v1")
    repository = asked.require_repository()
    assert {repository.commit_id(name) for name in ("main", "v1", "HEAD", "@", "refs/heads/main")} == {
        answer(root, "rev-parse", "main")
    }


def test_a_question_is_asked_once_within_its_block_only(root: Path) -> None:
    """A commit that is added meanwhile is not seen in the block, also not by an inner one, and is seen after it."""
    repository = asked.require_repository()
    with asked.asked_once():
        first = repository.commit_id("main")
        (root / "data" / "a.txt").write_text("two\n")
        commit(root)
        with asked.asked_once():
            assert repository.commit_id("main") == first
        assert repository.commit_id("main") == first
    assert repository.commit_id("main") == answer(root, "rev-parse", "main") != first


@pytest.mark.parametrize("name", ["", "--output=x", "-h", "nosuch", "data", "HEAD:data", "main\nmain", "main\0", "\x1b[2J"])
def test_what_is_no_commit_is_bad_input_and_never_an_option(root: Path, name: str) -> None:
    """Also the name of a folder, and a name with the end of a line."""
    before = sorted(root.rglob("*"))
    with pytest.raises(UsageError):
        asked.require_repository().commit_id(name)
    assert sorted(root.rglob("*")) == before


def test_a_branch_may_have_the_name_of_a_file(root: Path) -> None:
    """The name of a base is never taken for a path."""
    git(root, "branch", "data")
    assert asked.require_repository().commit_id("data") == answer(root, "rev-parse", "refs/heads/data")


def test_a_name_of_a_branch_and_of_a_tag_names_no_base(root: Path) -> None:
    """Git itself would take the tag."""
    git(root, "branch", "both")
    git(root, "tag", "both")
    with pytest.raises(UsageError, match="both"):
        asked.require_repository().commit_id("both")


def test_the_environment_does_not_choose_the_repository(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIT_DIR, GIT_INDEX_FILE and settings in variables, as a git hook or a stranger's script sets them."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "b.txt").write_text("other\n")
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.email")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "mallory@example.org")
    repository = asked.require_repository()
    assert repository.root == root
    assert set(repository.tree(repository.commit_id("main"), root)) == {Path("data/a.txt")}
    assert repository.tracked(Path("data")) == [Path("data/a.txt")]
    assert asked.setting("user.email") != "mallory@example.org"


def test_git_answers_in_a_hook(root: Path, tmp_path: Path) -> None:
    """A pre-commit hook of real git, with the variables that it sets."""
    hook = root / ".git" / "hooks" / "pre-commit"
    program = "from marin_scaling.git import *; r = require_repository(); print(r.root, r.commit_id('main'), r.git_dir)"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" > {tmp_path}/said\n')
    hook.chmod(0o755)
    before = answer(root, "rev-parse", "main")
    (root / "data" / "b.txt").write_text("two\n")
    commit(root)
    assert (tmp_path / "said").read_text().split() == [str(root), before, str(root / ".git")]


def test_a_linked_worktree_and_a_submodule_have_a_root(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There `.git` is a file."""
    git(root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(root), "inner")
    git(root, "commit", "-qm", "a submodule")
    for place, files in ((tmp_path / "side", {Path("data/a.txt")}), (root / "inner", {Path("data/a.txt")})):
        monkeypatch.chdir(place / "data")
        repository = asked.require_repository()
        assert repository.root == place
        assert set(repository.tree(repository.commit_id("HEAD"), place)) == files
        assert repository.tracked(place) == [Path("data/a.txt")]


def test_replaced_objects_and_grafts_are_not_seen(root: Path) -> None:
    """A replacement would put another tree under the name of a commit, and a graft another parent."""
    first = answer(root, "rev-parse", "HEAD")
    (root / "data" / "a.txt").write_text("two\n")
    commit(root)
    second = answer(root, "rev-parse", "HEAD")
    tree = asked.require_repository().tree(second, root)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "grafts").write_text(f"{second}\n")
    git(root, "replace", second, first)
    repository = asked.require_repository()
    assert repository.tree(second, root) == tree
    assert repository.commit_id("main~1") == first


def test_a_monitor_a_hook_and_a_pager_in_the_settings_never_run(root: Path, tmp_path: Path) -> None:
    """Not even where the repository's own settings name them."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "core.editor", "diff.external", "core.sshCommand"):
        git(root, "config", name, str(program))
    repository = asked.require_repository()
    repository.tree(repository.commit_id("main"), Path("data"))
    repository.tracked(Path("data"))
    assert asked.remote_address(root) is None
    assert not (tmp_path / "ran").exists()


def test_a_missing_object_is_an_error_and_never_fetched(root: Path, tmp_path: Path) -> None:
    """A partial clone would start a transport, which may be a program."""
    repository = asked.require_repository()
    entry = repository.tree(repository.commit_id("main"), Path("data"))[Path("data/a.txt")]
    (root / ".git" / "objects" / entry.id[:2] / entry.id[2:]).unlink()
    for name, value in (
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::touch {tmp_path}/ran"),
        ("protocol.ext.allow", "always"),
        ("core.repositoryFormatVersion", "1"),
    ):
        git(root, "config", name, value)
    with pytest.raises(UsageError):
        repository.content(entry)
    assert not (tmp_path / "ran").exists()


def test_an_embedded_bare_repository_is_not_found(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root is where `.git` lies, also for a person who stands in a data folder; without one there is no repository."""
    for name in ("objects", "refs"):
        (root / "data" / name).mkdir()
    (root / "data" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "data" / "config").write_text("[core]\n\tbare = false\n\tworktree = .\n[user]\n\temail = mallory@example.org\n")
    monkeypatch.chdir(root / "data")
    assert asked.require_repository().root == root
    assert asked.setting("user.email") != "mallory@example.org"
    (root / ".git").rename(tmp_path / "away")
    assert asked.find_repository() is None
    assert asked.setting("user.email") != "mallory@example.org"


def test_a_folder_outside_of_the_repository_has_no_tracked_files_there(root: Path, tmp_path: Path) -> None:
    """The repository is that of the current directory, also if the folder lies in another one."""
    with pytest.raises(UsageError):
        asked.require_repository().tracked(tmp_path)


def test_names_in_any_encoding_are_listed(root: Path) -> None:
    """Git's names are bytes."""
    name = os.fsdecode(b'\xff\n\t"\xc3\xa9.txt')
    (root / "data" / name).write_text("x")
    commit(root)
    assert Path("data") / name in asked.require_repository().tracked(root)
