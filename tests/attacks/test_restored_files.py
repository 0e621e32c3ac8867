"""Attacks on the repair of a main branch: a signed file was edited there, and a branch may bring back its recorded bytes.

The log of the base records every signed file, and a recorded statement names its subjects. No other bytes may replace
those of the base.
"""

import os
import shlex
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from forgery import (
    BOB,
    MALLORY,
    allow,
    chain,
    edit,
    key_of,
    log_again,
    log_entries,
    refused,
    said_by,
    sign_again,
    sign_bytes_again,
)
from git_repository import branch_off, commit, git
from registration_factory import CREATED_AT, make_second_registration, store_run
from typer.testing import CliRunner

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.cli.app import app
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration, countersign

NAMES = ["statement.json", "statement.json.sig", "ladder.json", f"statement.json.{BOB}.sig", "outcome.json"]


@pytest.fixture
def root(root: Path, registration: Registration, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a repository whose main has Ada's forecast, Bob's review and the outcome; the branch is `repair`."""
    countersign(registration.folder, key=key_of(BOB), principal=BOB)
    store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    write_down(registration.folder.parent, at=CREATED_AT + timedelta(days=2))
    assert "missed" in said_by("check", root)[1]
    branch_off(root)
    monkeypatch.chdir(root)
    return root


def damaged(root: Path, path: Path) -> bytes:
    """Edit a file on main, branch off there, and return its recorded bytes."""
    recorded = path.read_bytes()
    git(root, "checkout", "-q", "main")
    path.write_bytes(recorded + b"\n")
    commit(root)
    git(root, "checkout", "-qb", "repair")
    return recorded


def reviewed() -> tuple[int, str]:
    """Return exit status and output of the review, without line breaks."""
    done = CliRunner().invoke(app, ["review", "--base", "main"])
    import traceback

    if done.exception:
        traceback.print_exception(*done.exc_info)
    return done.exit_code, " ".join(done.output.split())


def refused_twice(root: Path, *fragments: str) -> None:
    """Require that `verify --base` and `review` refuse the branch, whether or not it is committed."""
    for is_committed in (False, True):
        if is_committed:
            commit(root)
        refused(root, *fragments, options=("--base", "main"))
        assert reviewed()[0] == 1


@pytest.mark.parametrize("name", NAMES)
def test_recorded_bytes_may_be_brought_back(root: Path, folder: Path, name: str) -> None:
    """Committed or not, with the command that `verify` prints; the review names the file."""
    damaged(root, folder / name)
    status, said = said_by("verify", root)
    assert status == 1
    command = next(line for line in said.splitlines() if "git checkout" in line).partition("git ")[2]
    git(root, *shlex.split(command))
    for _ in range(2):
        status, said = said_by("verify", root, "--base", "main")
        assert status == 0, said
        assert name in said.partition("restored to the bytes")[2].partition("\n")[0]
        status, said = reviewed()
        assert status == 0, said
        assert f"Restored: {name}" in said
        git(root, "commit", "-qm", "repair", "--allow-empty")
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "repair")
    assert said_by("verify", root)[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_base_that_is_refused_is_named_with_the_fix(root: Path, folder: Path, name: str) -> None:
    """By the review of a branch that only adds another forecast."""
    make_second_registration(root)
    commit(root)
    damaged(root, folder / name)
    git(root, "checkout", "-q", "forecast")
    git(root, "merge", "-q", "main")
    status, said = reviewed()
    assert status == 1
    assert f"-- {folder.relative_to(root)}/{name}" in said.partition("Refused, the base itself")[2]
    assert "verified: 2026-11-20-second" in said
    assert "git checkout main" not in said
    assert said_by("verify", root, "--base", "main")[0] == 1


@pytest.mark.parametrize("name", NAMES)
def test_other_bytes_in_the_place_of_edited_ones_are_refused(root: Path, folder: Path, name: str) -> None:
    """One space more than was recorded; the fix does not lead back to the edited bytes."""
    recorded = damaged(root, folder / name)
    (folder / name).write_bytes(recorded + b" ")
    refused_twice(root, name, "was changed since main")
    assert "git checkout main --" not in said_by("verify", root, "--base", "main")[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_second_file_that_changes_beside_a_repair_is_refused(root: Path, folder: Path, name: str) -> None:
    """A repair excuses no other change."""
    (folder / name).write_bytes(damaged(root, folder / name))
    other = folder / "samples.json"
    other.write_bytes(other.read_bytes() + b"\n")
    refused_twice(root, "samples.json was changed since main")


@pytest.mark.parametrize("is_damaged", [True, False])
def test_an_older_signed_version_is_refused(root: Path, folder: Path, is_damaged: bool) -> None:
    """The log records the newer one: its registrant once signed a kinder promise, which its signature still covers."""
    names = ("statement.json", "statement.json.sig")
    git(root, "checkout", "-q", "main")
    (folder / "outcome.json").unlink()
    (folder / f"statement.json.{BOB}.sig").unlink()
    older = {name: (folder / name).read_bytes() for name in names}
    sign_again(folder, lambda said: said["resolution"].update(voidIf=["the power fails"]))
    commit(root)
    assert said_by("verify", root, "--no-refit")[0] == 0
    if is_damaged:
        damaged(root, folder / "statement.json")
    else:
        git(root, "checkout", "-qb", "older")
    for name, content in older.items():
        (folder / name).write_bytes(content)
    refused_twice(root, "statement.json", "was changed since main")


@pytest.mark.parametrize("person", [MALLORY, "ada@example.org"])
def test_a_new_signature_over_edited_bytes_is_refused(root: Path, folder: Path, registry: Path, person: str) -> None:
    """The edit on main was made to measure, and a key that may sign covers it."""
    git(root, "checkout", "-q", "main")
    edit(folder / "statement.json", lambda document: document["predicate"].update(registrant=person, reviewers=[]))
    commit(root)
    git(root, "checkout", "-qb", "repair")
    log = (registry / "log.jsonl").read_bytes()
    key = key_of(person) if person == MALLORY else None
    sign_bytes_again(folder, (folder / "statement.json").read_bytes(), key=key)
    (registry / "log.jsonl").write_bytes(log)
    refused_twice(root, "statement.json.sig was changed since main")


def test_a_line_that_the_branch_adds_to_the_log_vouches_for_nothing(root: Path, folder: Path, registry: Path) -> None:
    """Only the log of the base counts."""
    recorded = damaged(root, folder / "statement.json")
    edited = recorded + b" "
    (folder / "statement.json").write_bytes(edited)
    entries = log_entries(registry)
    again = next(entry for entry in entries if entry["type"] == "register")
    files = {**again["files"], "statement.json": sha256_hex(edited)}
    chain(registry, [*entries, {**again, "files": files, "logged_at": entries[-1]["logged_at"]}])
    refused_twice(root, "statement.json was changed since main")


def test_a_repair_in_the_working_tree_hides_no_other_commit(root: Path, folder: Path) -> None:
    """The commit is what is merged."""
    path = folder / "statement.json"
    recorded = damaged(root, path)
    path.write_bytes(recorded + b" ")
    commit(root)
    path.write_bytes(recorded)
    refused(root, "statement.json", "differs between the working tree and the commit", options=("--base", "main"))
    assert reviewed()[0] == 1


def test_a_link_to_the_recorded_bytes_is_refused(root: Path, folder: Path) -> None:
    """They could be exchanged by a pull request that touches no file of the registry."""
    path = folder / "statement.json"
    (root / "elsewhere.json").write_bytes(damaged(root, path))
    path.unlink()
    os.symlink(os.path.relpath(root / "elsewhere.json", folder), path)
    refused_twice(root, "statement.json", "link")


def test_a_repair_and_a_new_key_are_two_changes(root: Path, folder: Path, registry: Path) -> None:
    """Signers never change together with another file."""
    (folder / "statement.json").write_bytes(damaged(root, folder / "statement.json"))
    allow(registry, "nobody@example.org")
    refused_twice(root, "allowed_signers and 1 other files of the registry changed since main")


def test_a_folder_that_main_lost_may_be_brought_back(root: Path, folder: Path) -> None:
    """With its recorded bytes only."""
    git(root, "checkout", "-q", "main")
    shutil.rmtree(folder)
    commit(root)
    git(root, "checkout", "-qb", "repair")
    assert reviewed()[0] == 1
    git(root, "checkout", "-q", "main~1", "--", str(folder))
    assert said_by("verify", root, "--base", "main")[0] == 0
    assert reviewed()[0] == 0
    (folder / "ladder.json").write_bytes((folder / "ladder.json").read_bytes() + b" ")
    assert said_by("verify", root, "--base", "main")[0] == 1
    assert reviewed()[0] == 1


def run_of(root: Path, role: str) -> Path:
    """Return the record of the target, or of a rung."""
    return next(
        path / "record.json" for path in (root / "runs/tiny").iterdir() if f'"{role}"' in (path / "spec.json").read_text()
    )


def damaged_record(root: Path, path: Path, **values: object) -> bytes:
    """Edit values of a record on main, branch off there, and return its first bytes."""
    recorded = path.read_bytes()
    git(root, "checkout", "-q", "main")
    edit(path, lambda document: document.update(values))
    commit(root)
    git(root, "checkout", "-qb", "repair")
    return recorded


@pytest.mark.parametrize("role", ["rung", "target"])
def test_a_run_that_contradicts_its_forecast_may_be_restored(root: Path, role: str) -> None:
    """To the bytes that main received first, also a second time; both commands name the file."""
    path = run_of(root, role)
    recorded = damaged_record(root, path, loss=1.5)
    path.write_bytes(recorded)
    commit(root)
    git(root, "branch", "-qf", "main")
    git(root, "branch", "-qm", "repaired")
    damaged_record(root, path, loss=1.25)
    path.write_bytes(recorded)
    for _ in range(2):
        status, said = said_by("verify", root, "--base", "main")
        assert status == 0, said
        assert "received first" in said
        status, said = reviewed()
        assert status == 0, said
        assert f"{path.parent.name}/record.json" in said
        git(root, "commit", "-qam", "repair", "--allow-empty")
    path.write_bytes(recorded + b"\n")
    refused_twice(root, "changed since main, and forecasts rest on")
    assert "git checkout main --" not in said_by("verify", root, "--base", "main")[1]


def test_a_rung_of_before_the_forecast_does_not_come_back(root: Path, folder: Path) -> None:
    """Main replaced the run before the forecast was made, so only the later bytes agree with it."""
    path = run_of(root, "rung")
    signed = path.read_bytes()
    git(root, "checkout", "-q", "--orphan", "fresh")
    edit(path, lambda document: document.update(loss=1.25))
    older = path.read_bytes()
    commit(root)
    path.write_bytes(signed)
    commit(root)
    git(root, "branch", "-qD", "main")
    git(root, "branch", "-qm", "main")
    git(root, "checkout", "-qb", "older")
    path.write_bytes(older)
    refused_twice(root, "changed since main, and forecasts rest on")
    git(root, "checkout", "-q", "main")
    damaged_record(root, path, loss=1.5)
    path.write_bytes(older)
    refused(root, "loss of the run", options=("--base", "main"))
    assert reviewed()[0] == 1


def test_a_record_that_contradicts_nothing_stays_as_it_is(root: Path) -> None:
    """Its times are in no signed row."""
    path = run_of(root, "rung")
    path.write_bytes(damaged_record(root, path, wall_seconds=2.0))
    refused_twice(root, "changed since main, and forecasts rest on")


def test_a_forecast_of_the_branch_makes_no_run_of_main_wrong(root: Path) -> None:
    """Only forecasts that the log of the base records count."""
    path = run_of(root, "rung")
    recorded = damaged_record(root, path, wall_seconds=2.0)
    made = make_second_registration(root).folder
    edit(made / "ladder.json", lambda document: [row.update(loss=1.5) for row in document["rows"]])
    path.write_bytes(recorded)
    refused_twice(root, "changed since main, and forecasts rest on")


BREAKS = {
    "a number": lambda raw: raw.replace(b'"seq":1', b'"seq":7'),
    "a mark of a merge": lambda raw: raw + b"<<<<<<< HEAD\n",
    "no end": lambda raw: raw[:-1],
}


@pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS)
def test_a_log_that_broke_on_main_may_be_restored(root: Path, registry: Path, broken: Callable[[bytes], bytes]) -> None:
    """To the last whole one, with lines after it; no log without its lines is taken."""
    path = registry / "log.jsonl"
    whole = path.read_bytes()
    git(root, "checkout", "-q", "main")
    path.write_bytes(broken(whole))
    commit(root)
    git(root, "checkout", "-qb", "repair")
    assert reviewed()[0] == 1
    path.write_bytes(whole)
    make_second_registration(root)
    commit(root)
    status, said = said_by("verify", root, "--base", "main")
    assert status == 0, said
    assert "broken log was restored" in said
    status, said = reviewed()
    assert status == 0, said
    shutil.rmtree(registry / "2026-11-20-second")
    log_again(registry)
    refused_twice(root, "does not begin with the last whole log of main")
    assert "git checkout main --" not in said_by("verify", root, "--base", "main")[1]
