"""Attacks on rules that begin or end on a day: a statement that says another day than that of its receipt.

The base branch says when it received a file. Main has the log, the signers and the policy; the branch brings what is attacked.
"""

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import registration_factory
from forgery import BOB, CAROL, CONDITION, allow, key_of, log_again, refused, said_by, sign_again
from git_repository import branch_off, commit, git
from registration_factory import PRINCIPAL, ladder_rows, make_registration, run_spec, signing_key, store_run

from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration, countersign
from marin_scaling.preregistration.registry import allow_signer

OLD_DAY = datetime(2026, 11, 12, 8, 30, tzinfo=UTC)
YESTERDAY = datetime.now(UTC) - timedelta(days=1)
POLICY = "since: 2026-11-15\nreviewers: 2\nstamps: 1\nown_resolver: false\n"
BASE = ("--base", "main")


@pytest.fixture
def bare(root: Path) -> Path:
    """A repository whose main has signers, a ladder of 2026-11-09, and no forecast; we stand on a branch of it."""
    registry = root / "preregistrations"
    registry.mkdir()
    allow_signer(registry, principal=PRINCIPAL, key=signing_key().public_key, at=OLD_DAY)
    allow(registry, BOB, CAROL)
    (registry / ".gitattributes").write_text("* -text\n")
    for hidden_dim, steps in registration_factory.RUNGS:
        spec = run_spec(hidden_dim=hidden_dim, train_steps=100 * steps)
        store_run(root / "runs", spec=spec, loss=1.0 + 100 * spec.flops**-0.2, day="2026-11-09")
    branch_off(root)
    return root


def to_main(root: Path, name: str, text: str) -> None:
    """Main has this file in its registry, too."""
    (root / "preregistrations" / name).write_text(text)
    commit(root)
    git(root, "branch", "-f", "main")


def dated_back(root: Path, *, logged_at: datetime | None = None) -> Registration:
    """A forecast that says it is of 2026-11-12; its line in the log says so, too, or another time."""
    promise = Promise(resolver=CAROL, void_if=(CONDITION,))
    made = make_registration(root, rows=ladder_rows(root / "runs"), created_at=OLD_DAY, promise=promise)
    if logged_at:
        (made.folder.parent / "log.jsonl").unlink()
        write_down(made.folder.parent, at=logged_at)
    return made


@pytest.mark.parametrize("logged_at", [None, YESTERDAY])
@pytest.mark.parametrize("rule", ["reviewers: 1", "stamps: 1", "due_days: 30"])
def test_a_policy_binds_what_is_received_after_it_began(bare: Path, rule: str, logged_at: datetime | None) -> None:
    """Whatever day the statement and its own line in the log say."""
    to_main(bare, "policy.yaml", f"since: 2026-11-15\n{rule}\n")
    dated_back(bare, logged_at=logged_at)
    refused(bare, "policy.yaml", options=BASE)
    commit(bare)
    refused(bare, "policy.yaml", options=BASE)
    assert "Refused" in said_review(bare)


def said_review(root: Path) -> str:
    """What a reviewer of the branch reads."""
    place = ("--registry", "preregistrations", "--runs", "runs")
    done = subprocess.run(
        ["marin-scale", "review", "--base", "main", *place], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def test_check_judges_by_the_log_and_not_by_the_statement(bare: Path) -> None:
    """Without a base the line in the log counts, and a commit that brought the forecast later."""
    to_main(bare, "policy.yaml", "since: 2026-11-15\nreviewers: 1\n")
    dated_back(bare, logged_at=YESTERDAY)
    refused(bare, "1 signature of reviewers", command="check")
    refused(bare, "1 signature of reviewers")


def test_a_commit_that_is_younger_than_its_line_counts(bare: Path) -> None:
    """The line in the log is dated back, too; the history of the branch shows when it came."""
    to_main(bare, "policy.yaml", "since: 2026-11-15\nreviewers: 1\n")
    dated_back(bare)
    status, said = said_by("verify", bare)
    assert status == 0, said
    assert "not applied, received 2026-11-12, before 2026-11-15" in said
    commit(bare)
    refused(bare, "1 signature of reviewers")
    refused(bare, "1 signature of reviewers", command="check")


def test_a_policy_that_is_not_applied_is_said(bare: Path) -> None:
    """A forecast that main had before the policy began stays sound."""
    dated_back(bare)
    commit(bare)
    git(bare, "branch", "-f", "main")
    to_main(bare, "policy.yaml", POLICY)
    status, said = said_by("verify", bare, *BASE)
    assert status == 0, said
    assert "policy     --  not applied, received 2026-11-12, before 2026-11-15" in said


def end_key(root: Path, name: str) -> None:
    """On main the key of a name has ended on 2026-11-20."""
    signers = root / "preregistrations" / "allowed_signers"
    text = signers.read_text().replace(f"{name} namespaces", f'{name} valid-before="20261120Z",namespaces')
    to_main(root, "allowed_signers", text)


def test_a_key_that_ended_before_the_receipt_signs_no_older_statement(bare: Path) -> None:
    """Its finder writes a day on which it was allowed."""
    end_key(bare, PRINCIPAL)
    dated_back(bare)
    refused(bare, f"may not sign for {PRINCIPAL}", "only before 2026-11-20", options=BASE)
    (bare / "preregistrations" / "log.jsonl").unlink()
    write_down(bare / "preregistrations", at=YESTERDAY)
    refused(bare, f"may not sign for {PRINCIPAL}", "only before 2026-11-20")


def test_a_key_that_ended_signs_no_review_of_an_older_statement(bare: Path) -> None:
    """A reviewer's signature has no time of its own."""
    folder = dated_back(bare).folder
    commit(bare)
    git(bare, "branch", "-f", "main")
    countersign(folder, key=key_of(BOB), principal=BOB)
    end_key_on_main_only(bare, BOB)
    write_down(folder.parent, at=OLD_DAY)
    refused(bare, f"may not sign for {BOB}", "only before 2026-11-20", options=BASE)


def end_key_on_main_only(root: Path, name: str) -> None:
    """As `end_key`, and what the branch has added stays as it is, uncommitted."""
    git(root, "stash", "-uq")
    end_key(root, name)
    git(root, "stash", "pop", "-q")


def test_a_key_that_ended_gives_no_older_notice(bare: Path) -> None:
    """Carol's key ended; who found it finds a forecast void on a day before that."""
    folder = dated_back(bare).folder
    commit(bare)
    git(bare, "branch", "-f", "main")
    end_key(bare, CAROL)
    said = {"principal": CAROL, "at": OLD_DAY + timedelta(days=1), "reason": "x", "condition": CONDITION}
    give_notice(folder, "void", key=key_of(CAROL), **said)
    write_down(folder.parent, at=OLD_DAY + timedelta(days=1))
    refused(bare, f"may not sign for {CAROL}", "only before 2026-11-20", options=BASE)


def test_a_key_that_ended_seals_nothing_older(bare: Path) -> None:
    """Nor is a seal older than its receipt."""
    end_key(bare, PRINCIPAL)
    make_registration(bare, rows=ladder_rows(bare / "runs"), created_at=OLD_DAY, reveal_by=OLD_DAY + timedelta(days=90))
    refused(bare, f"may not sign for {PRINCIPAL}", "only before 2026-11-20", options=BASE)


def test_an_age_of_more_than_a_day_is_said(bare: Path) -> None:
    """By verify and by review; a forecast of this hour has no such line."""
    dated_back(bare)
    assert "received   --  received" in said_by("verify", bare, *BASE)[1]
    assert "days ago" in said_review(bare)
    shutil.rmtree(bare / "preregistrations" / "2026-11-12-tiny-target")
    (bare / "preregistrations" / "log.jsonl").unlink()
    make_registration(bare, rows=ladder_rows(bare / "runs"), created_at=datetime.now(UTC) - timedelta(minutes=1))
    assert "received   --" not in said_by("verify", bare, *BASE)[1]


def test_a_result_that_main_has_before_its_forecast_is_refused(bare: Path) -> None:
    """The run was bound to a statement that nobody else had seen, and its record was merged first."""
    made = dated_back(bare)
    shutil.move(made.folder.parent, bare / "aside")
    shutil.copytree(bare / "aside", made.folder.parent, ignore=shutil.ignore_patterns("2026-*", "log.jsonl"))
    store_run(bare / "runs", spec=made.target, loss=2.5, day="2026-11-13")
    (bare / ".gitignore").write_text("/aside\n")
    commit(bare)
    git(bare, "branch", "-f", "main")
    shutil.rmtree(made.folder.parent)
    shutil.copytree(bare / "aside", made.folder.parent)
    refused(bare, "record.json is in main already", "2026-11-13T10:00:00Z", made.folder.name, options=BASE)
    assert "record.json is in main already" in said_review(bare)
    commit(bare)
    status, said = said_by("check", bare)
    assert status == 0
    assert "the record of its run was committed at" in said


def test_a_run_that_began_before_the_receipt_is_said(bare: Path) -> None:
    """With both times: the statement and the record say that the forecast came first."""
    made = dated_back(bare)
    store_run(bare / "runs", spec=made.target, loss=2.5, day="2026-11-13")
    said = said_review(bare)
    assert "logged at 2026" in said
    assert "after its run had begun at 2026-11-13T10:00:00Z" in said


def test_git_is_not_asked_in_a_folder_of_data(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history comes from the root of the repository, also where a data folder looks like a git directory."""
    to_main(bare, "policy.yaml", "since: 2026-11-15\nreviewers: 1\n")
    dated_back(bare)
    commit(bare)
    for name, text in (("HEAD", "ref: refs/heads/x\n"), ("commondir", "/nowhere\n")):
        (bare / "preregistrations" / name).write_text(text)
    monkeypatch.setitem(os.environ, "GIT_DIR", "/nowhere")
    refused(bare, "1 signature of reviewers", command="check")


def test_a_date_after_the_receipt_is_refused_still(bare: Path) -> None:
    """A later day than its line in the log gains nothing."""
    folder = dated_back(bare).folder
    sign_again(folder, lambda said: said.update(createdAt="2026-11-12T20:00:00Z"))
    (folder.parent / "log.jsonl").unlink()
    write_down(folder.parent, at=OLD_DAY)
    refused(bare, "was made at 2026-11-12T20:00:00Z by its own word, and logged before")
    log_again(folder.parent)
