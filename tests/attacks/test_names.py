"""Attacks with names: not UTF-8, temporary, hidden, unknown to the tool, or equal on another system."""

import os
import unicodedata
from pathlib import Path

import pytest
from command_line import marin_scale_process
from forgery import said_by
from git_repository import branch_off, commit
from registration_factory import make_second_registration

from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.register import Registration
from marin_scaling.publish.build import build_site, make_user_repository

BASE = ("--no-refit", "--base", "main")
UNSEEN = (os.fsdecode(b"\xff\xfe.txt"), "a\u202egnp.txt", "a\n::error ::b")


@pytest.fixture
def branch(root: Path, registration: Registration, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch off main, which is the current directory; it adds a forecast."""
    branch_off(root)
    monkeypatch.chdir(root)
    make_second_registration(root)
    assert said_by("verify", root, *BASE)[0] == 0
    return root


@pytest.mark.parametrize("as_folder", [False, True])
@pytest.mark.parametrize("place", ["preregistrations", "preregistrations/2026-11-20-tiny-target", "runs", "runs/tiny"])
@pytest.mark.parametrize("name", UNSEEN, ids=["bytes", "bidi", "lines"])
def test_a_name_that_is_not_plain_is_refused_by_every_command(branch: Path, place: str, name: str, as_folder: bool) -> None:
    """In a message without a traceback, whose line is one line."""
    path = branch / place / name
    if as_folder:
        path.mkdir()
        (path / "runs.csv").write_text("")
    else:
        path.write_text("x")
    for command, options in (("verify", BASE), ("check", ()), ("verify", ("--no-refit",))):
        status, said = said_by(command, branch, *options)
        assert status == 1, said
        assert "\u202e" not in said
        assert "\n::error" not in said
    make_user_repository(branch)
    with pytest.raises(MarinScalingError) as refusal:
        build_site(branch)
    refusal.value.what.encode()


@pytest.mark.parametrize("command", [("verify", "all", "--base", "main"), ("review", "--base", "main"), ("site", "build")])
def test_a_name_in_another_encoding_gives_no_traceback(branch: Path, command: tuple[str, ...]) -> None:
    """On a terminal that takes only ASCII, too."""
    make_user_repository(branch)
    (branch / "runs" / UNSEEN[0]).mkdir()
    (branch / "preregistrations" / UNSEEN[0]).write_text("x")
    done = marin_scale_process(*command, cwd=branch, environment={"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "xff" in done.stdout + done.stderr


def _file(path: Path) -> None:
    path.write_text("x")


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


TEMPORARY = [
    "2026-11-20-tiny-target/.outcome.json.deadbeef.tmp",
    "2026-11-20-tiny-target/.statement.json.deadbeef.tmp",
    "2026-11-20-tiny-target/.notice-1-withdraw.deadbeef.tmp",
    ".log.jsonl.deadbeef.tmp",
    ".2026-11-23-more.deadbeef.tmp",
    ".probe.deadbeef.tmp",
]


@pytest.mark.parametrize("lay", [_file, _folder, _link], ids=lambda lay: lay.__name__)
@pytest.mark.parametrize("name", TEMPORARY)
def test_nothing_temporary_comes_in_by_a_pull_request(branch: Path, name: str, lay) -> None:
    """What an interrupted command left is one's own, and is removed before a commit; also if git ignores it."""
    lay(branch / "preregistrations" / name)
    for ignored in ("", "*.tmp\n"):
        (branch / ".gitignore").write_text(ignored)
        status, said = said_by("verify", branch, *BASE)
        assert status == 1, said
        assert "deadbeef" in said
    commit(branch)
    assert said_by("verify", branch, *BASE)[0] == 1


UNKNOWN = ["HEAD", "commondir", "config", "index", "README.md", ".hidden", "outcome.json", "2026-11-20", "Log.jsonl"]


@pytest.mark.parametrize("lay", [_file, _folder], ids=lambda lay: lay.__name__)
@pytest.mark.parametrize("name", UNKNOWN)
def test_nothing_unknown_lies_at_the_top_of_a_registry(branch: Path, name: str, lay) -> None:
    """With and without a base."""
    lay(branch / "preregistrations" / name)
    for options in (BASE, ("--no-refit",)):
        status, said = said_by("verify", branch, *options)
        assert status == 1, said
        assert name in said


@pytest.mark.parametrize("name", [".outcome.json.deadbeef.tmp", ".note", "more.txt", ".git"])
def test_nothing_unknown_lies_in_a_forecast_that_main_has(branch: Path, name: str) -> None:
    """Whether or not git would show it."""
    (branch / ".gitignore").write_text("*\n!preregistrations\n")
    (branch / "preregistrations" / "2026-11-20-tiny-target" / name).write_text("x")
    status, said = said_by("verify", branch, *BASE)
    assert status == 1, said
    assert name in said


@pytest.mark.parametrize(
    "names", [("policy.yaml", "Policy.yaml"), ("é.csv", unicodedata.normalize("NFD", "é.csv"))], ids=["case", "composition"]
)
def test_two_names_that_are_one_elsewhere_are_refused(branch: Path, names: tuple[str, str]) -> None:
    """A disk that ignores case would keep only one of the files, and nobody says which."""
    for name in names:
        (branch / "runs" / "tiny" / name).write_text(name)
    for command, options in (("verify", BASE), ("check", ())):
        status, said = said_by(command, branch, *options)
        assert status == 1, said
        assert "the same name" in said


def test_what_an_interrupted_command_left_hinders_nobody_without_a_base(branch: Path) -> None:
    """A file of the log, and a folder of a preregistration, as they are left by a kill."""
    (branch / "preregistrations" / ".log.jsonl.deadbeef.tmp").write_text("x")
    (branch / "preregistrations" / ".2026-11-23-more.deadbeef.tmp").mkdir()
    assert said_by("verify", branch, "--no-refit")[0] == 0
