"""Attacks on how git is asked: a stranger's files, variables and settings that would choose its repository, or hide a change.

The branch of each has a forecast that was missed on main, and is held here: its record is improved, its outcome made anew.
"""

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from command_line import marin_scale
from forgery import edit, log_again, said_by
from git_repository import branch_off, commit, git
from hostile_repository import forged_copy, lay_repository, telling_program
from registration_factory import CREATED_AT, make_second_registration, store_run

from marin_scaling.errors import MarinScalingError, VerificationError
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.review.pull_request import base_step, runs_steps

BASE = ("--no-refit", "--base", "main")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository, with a folder beside it for what the stranger keeps elsewhere."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def branch(root: Path, registration: Registration, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch off a main whose forecast was missed; the current directory is the root."""
    store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    write_down(registration.folder.parent, at=CREATED_AT + timedelta(days=2))
    assert "missed" in said_by("check", root)[1]
    (root / "runs" / "tiny" / "SOURCE.md").write_bytes(b"$Id$ of a ladder.\r\n")
    branch_off(root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def forged(branch: Path, registration: Registration) -> Path:
    """The branch, with a record that was improved, an outcome that fits it, and a log that was written anew."""
    edit(branch / "runs" / "tiny" / registration.target.directory_name / "record.json", lambda record: record.update(loss=2.5))
    (registration.folder / "outcome.json").unlink()
    log_again(registration.folder.parent)
    assert "held" in said_by("check", branch)[1]
    return branch


def answer(root: Path, *words: str) -> str:
    """What git says there."""
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def refused_by_the_true_base(root: Path) -> None:
    """That verify and review name what changed since the true main."""
    status, said = said_by("verify", root, *BASE)
    assert status == 1, said
    assert "log.jsonl does not begin with the log of main" in said
    done = marin_scale("review", "--base", "main", cwd=root)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "does not begin with the log of main" in done.stdout


@pytest.mark.parametrize("place", ["preregistrations", "runs", "preregistrations/2026-11-20-tiny-target", "."])
def test_an_embedded_repository_chooses_neither_base_nor_program(forged: Path, tmp_path: Path, place: str) -> None:
    """Git takes a folder with HEAD, objects and refs for a repository when it is started there."""
    program, mark = telling_program(tmp_path)
    lay_repository(forged / place, forged=forged_copy(forged, tmp_path / "forged"), program=program)
    refused_by_the_true_base(forged)
    git(forged, "add", "-A", "-f")
    git(forged, "commit", "-qm", "innocent")
    refused_by_the_true_base(forged)
    assert not mark.exists()


def test_a_common_directory_elsewhere_chooses_neither(forged: Path, tmp_path: Path) -> None:
    """Four small files in the registry, and all else below a folder that nobody reads."""
    program, mark = telling_program(tmp_path)
    far = forged / "docs" / "cache"
    far.mkdir(parents=True)
    lay_repository(far, forged=forged_copy(forged, tmp_path / "forged"), program=program)
    for place in (forged / "preregistrations", forged / "runs"):
        shutil.copy(far / "index", place / "index")
        (place / "HEAD").write_text("ref: refs/heads/main\n")
        (place / "commondir").write_text("../docs/cache\n")
    refused_by_the_true_base(forged)
    assert not mark.exists()


@pytest.mark.parametrize("names", [("GIT_DIR",), ("GIT_DIR", "GIT_WORK_TREE"), ("GIT_OBJECT_DIRECTORY", "GIT_DIR")])
def test_a_variable_chooses_no_repository(
    forged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """As a hook or a step of a workflow can leave them."""
    other = forged_copy(forged, tmp_path / "forged")
    values = {"GIT_DIR": other / ".git", "GIT_WORK_TREE": forged, "GIT_OBJECT_DIRECTORY": other / ".git" / "objects"}
    for name in names:
        monkeypatch.setenv(name, str(values[name]))
    refused_by_the_true_base(forged)


def test_settings_in_variables_run_no_program(forged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A monitor, an external comparison and a pager."""
    program, mark = telling_program(tmp_path)
    for number, name in enumerate(("core.fsmonitor", "diff.external", "core.pager")):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", str(program))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "3")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    refused_by_the_true_base(forged)
    assert not mark.exists()


def test_a_replaced_commit_is_not_the_base(forged: Path) -> None:
    """`refs/replace` would put the forged tree under the name of main."""
    commit(forged)
    git(forged, "replace", "main", "forecast")
    refused_by_the_true_base(forged)


def test_a_graft_changes_no_ancestor(forged: Path) -> None:
    """A base may be named by its distance from another commit."""
    commit(forged)
    git(forged, "branch", "long")
    git(forged, "commit", "-q", "--allow-empty", "-m", "innocent")
    git(forged, "checkout", "-q", "long")
    for _ in range(2):
        git(forged, "commit", "-q", "--allow-empty", "-m", "longer")
    head, longer = (answer(forged, "rev-parse", name) for name in ("forecast", "long"))
    git(forged, "checkout", "-q", "forecast")
    (forged / ".git" / "info").mkdir(exist_ok=True)
    (forged / ".git" / "info" / "grafts").write_text(f"{head} {longer}\n")
    status, said = said_by("verify", forged, "--no-refit", "--base", "HEAD~2")
    assert status == 1, said
    assert "does not begin with the log of HEAD~2" in said


@pytest.mark.parametrize("base", ["--output=x", "--no-index", "-h", "", "main\n", "preregistrations", "HEAD:preregistrations"])
def test_a_base_is_no_option_and_no_path(branch: Path, base: str) -> None:
    """Bad input, and nothing is written."""
    before = sorted(branch.rglob("*"))
    with pytest.raises(MarinScalingError) as refusal:
        base_step(base, registry_dir=Path("preregistrations"))
    assert refusal.value.exit_status == 2
    assert sorted(branch.rglob("*")) == before


def test_a_base_may_have_the_name_of_a_folder(branch: Path) -> None:
    """A branch called like the registry is that branch."""
    git(branch, "branch", "preregistrations", "main")
    make_second_registration(branch)
    assert said_by("verify", branch, "--no-refit", "--base", "preregistrations")[0] == 0


SOURCE = Path("runs/tiny/SOURCE.md")


def _attribute(root: Path, attributes: str, content: bytes) -> None:
    (root / ".gitattributes").write_text(f"*.md {attributes}\n")
    (root / SOURCE).write_bytes(content)


def _line_ends(root: Path) -> None:
    _attribute(root, "text eol=crlf", b"$Id$ of a ladder.\r\n\r\n")
    git(root, "add", "-A")


def _expanded_id(root: Path) -> None:
    _attribute(root, "-text ident", b"$Id: and any other words $ of a ladder.\r\n")


def _encoding(root: Path) -> None:
    _attribute(root, "-text working-tree-encoding=UTF-16LE", "$Id$ of a ladder.\r\n".encode("utf-16-le"))


def _filter(root: Path) -> None:
    _attribute(root, "-text filter=own", b"another ladder\n")
    git(root, "config", "filter.own.clean", f"git --git-dir={root}/.git cat-file blob main:{SOURCE}")


def _assumed(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", str(SOURCE))
    (root / SOURCE).write_bytes(b"another ladder\n")


def _skipped(root: Path) -> None:
    git(root, "update-index", "--skip-worktree", str(SOURCE))
    (root / SOURCE).write_bytes(b"another ladder\n")


def _committed_only(root: Path) -> None:
    """Git checks the changed line ends out as those that main has."""
    _attribute(root, "text eol=crlf", b"$Id$ of a ladder.\r\n")
    git(root, "add", "--renormalize", "-A")
    git(root, "commit", "-qm", "innocent")
    assert (root / SOURCE).read_bytes() == b"$Id$ of a ladder.\r\n"


@pytest.mark.parametrize(
    "hide", [_line_ends, _expanded_id, _encoding, _filter, _assumed, _skipped, _committed_only], ids=lambda hide: hide.__name__
)
def test_a_change_that_git_does_not_see_is_a_change(branch: Path, hide) -> None:
    """Attributes, filters and flags of the index: each lets git say that nothing changed."""
    runs_steps("main", registry_dir=Path("preregistrations"), runs_dir=Path("runs"))
    hide(branch)
    with pytest.raises(VerificationError, match=r"SOURCE\.md.*main"):
        runs_steps("main", registry_dir=Path("preregistrations"), runs_dir=Path("runs"))


def test_what_is_committed_is_what_was_verified(branch: Path) -> None:
    """A new forecast whose committed bytes are not those that are checked out: attributes turn one into the other."""
    folder = make_second_registration(branch).folder
    content = (folder / "forecast.json").read_bytes()
    (folder / "forecast.json").write_bytes(content.replace(b"\n", b"\r\n"))
    git(branch, "add", "-A")
    git(branch, "commit", "-qm", "next")
    (folder / "forecast.json").write_bytes(content)
    with pytest.raises(VerificationError, match=r"forecast\.json"):
        base_step("main", registry_dir=Path("preregistrations"))


def test_attributes_of_the_registry_are_the_ones_that_keep_bytes(branch: Path) -> None:
    """Others, once merged, would let git check out other bytes than those that were signed, for everyone."""
    (branch / "preregistrations" / ".gitattributes").write_text("* text eol=crlf\n")
    with pytest.raises(VerificationError, match="gitattributes"):
        base_step("main", registry_dir=Path("preregistrations"))


def test_a_submodule_in_a_registry_is_refused(branch: Path, tmp_path: Path) -> None:
    """Its files are another repository's, which may change at any time."""
    other = forged_copy(branch, tmp_path / "other")
    git(branch, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "preregistrations/2026-11-22-other")
    git(branch, "commit", "-qm", "a submodule")
    git(branch, "submodule", "deinit", "-q", "-f", "--all")
    with pytest.raises(VerificationError, match="2026-11-22-other"):
        base_step("main", registry_dir=Path("preregistrations"))


def test_a_linked_worktree_is_verified_like_a_clone(branch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There `.git` is a file; main is only added to, and then it is not."""
    git(branch, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"), "main")
    monkeypatch.chdir(tmp_path / "side")
    make_second_registration(tmp_path / "side")
    assert said_by("verify", tmp_path / "side", *BASE)[0] == 0
    (tmp_path / "side" / "preregistrations" / "2026-11-20-tiny-target" / "forecast.json").write_bytes(b"{}\n")
    assert said_by("verify", tmp_path / "side", *BASE)[0] == 1


def test_a_hook_can_verify(branch: Path) -> None:
    """A pre-commit hook of real git, whose variables name the index that is about to be committed."""
    hook = branch / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {sys.executable} -m marin_scaling.cli verify all --no-refit --base main >&2\n")
    hook.chmod(0o755)
    make_second_registration(branch)
    commit(branch)
    (branch / "preregistrations" / "2026-11-20-tiny-target" / "forecast.json").write_bytes(b"{}\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        commit(branch)
    assert b"forecast.json was changed since main" in failed.value.stderr


def test_a_repository_with_sha256_is_compared(root: Path, registration: Registration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its object ids are longer."""
    git(root, "init", "-q", "-b", "main", "--object-format=sha256")
    commit(root)
    git(root, "checkout", "-qb", "forecast")
    monkeypatch.chdir(root)
    make_second_registration(root)
    assert said_by("verify", root, *BASE)[0] == 0
    (registration.folder / "forecast.json").write_bytes(b"{}\n")
    assert said_by("verify", root, *BASE)[0] == 1


@pytest.mark.parametrize("name", ["x;{}", "x$({})", "x`{}`", "x|{}", "a'b"])
def test_a_branch_name_runs_nothing_in_the_printed_command(tmp_path: Path, registration: Registration, name: str) -> None:
    """Git allows these signs in names of branches; the reviewer pastes what is printed."""
    root, kept, name = registration.folder.parent.parent, tmp_path / "kept", name.replace("{}", "touch${IFS}pwned")
    shutil.move(registration.folder, kept)
    branch_off(root)
    git(root, "checkout", "-qb", name)
    shutil.move(kept, registration.folder)
    write_down(registration.folder.parent, at=CREATED_AT)
    commit(root)
    done = marin_scale("review", "--base", "main", cwd=root)
    merge = next(line for line in done.stdout.splitlines() if "git merge" in line)
    subprocess.run(["bash", "-c", merge], cwd=root, check=True, capture_output=True)
    assert not (root / "pwned").exists()
    log = subprocess.run(["git", "log", "-1", "--format=%H", "main"], cwd=root, capture_output=True, check=True).stdout
    assert log == subprocess.run(["git", "rev-parse", name], cwd=root, capture_output=True, check=True).stdout
