"""Attacks by a pull request: a branch brings a registry that is sound in itself, and not what grew out of the base's.

Whoever has an allowed key and writes the log anew can make any registry sound. What they cannot make is its past: the base
branch has it. Real git repositories; `marin-scale verify --base main` is what a workflow types.
"""

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from forgery import (
    BOB,
    CAROL,
    MALLORY,
    allow,
    edit,
    key_of,
    log_again,
    log_lines,
    said_by,
    sign_again,
    sign_bytes_again,
    write_lines,
)
from forgery import refused as refused_with
from git_repository import branch_off, commit
from registration_factory import CREATED_AT, make_second_registration, store_run

from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration, countersign

LATER = CREATED_AT + timedelta(days=2)


@pytest.fixture
def branch(root: Path, registration: Registration) -> Path:
    """A repository whose main has Ada's forecast, Bob's review and the outcome, a miss; we stand on a branch of it."""
    countersign(registration.folder, key=key_of(BOB), principal=BOB)
    store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    write_down(registration.folder.parent, at=LATER)
    assert "missed" in said_by("check", root)[1]
    branch_off(root)
    return root


def refused(root: Path, *fragments: str) -> None:
    """That the branch may not be merged, whether or not it is committed."""
    refused_with(root, *fragments, options=("--base", "main"))
    commit(root)
    refused_with(root, *fragments, options=("--base", "main"))


def test_a_further_forecast_may_be_merged(branch: Path) -> None:
    """The ground of the attacks: this is what a pull request is for."""
    make_second_registration(branch)
    status, said = said_by("verify", branch, "--base", "main")
    assert status == 0, said


def test_an_old_forecast_that_was_edited_is_refused(branch: Path, folder: Path) -> None:
    """Its own registrant signs a kinder promise, without the review and the outcome that no longer fit, and logs it anew."""
    (folder / "outcome.json").unlink()
    (folder / f"statement.json.{BOB}.sig").unlink()
    sign_again(folder, lambda said: said["resolution"].update(voidIf=["it misses"]))
    assert said_by("verify", branch)[0] == 0
    refused(branch, "log.jsonl does not begin with the log of main")


@pytest.mark.parametrize("name", ["statement.json", "ladder.json", "statement.json.sig"])
def test_an_old_file_that_was_touched_is_refused(branch: Path, folder: Path, name: str) -> None:
    """Also where the log is left as it was."""
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    refused(branch, f"{name} was changed since main")


def test_an_old_forecast_that_was_removed_is_refused(branch: Path, folder: Path, registry: Path) -> None:
    """With its lines in the log, as someone would who wants it gone."""
    shutil.rmtree(folder)
    (registry / "log.jsonl").unlink()
    assert said_by("verify", branch)[0] == 0
    refused(branch, "log.jsonl does not begin with the log of main")


def test_an_old_forecast_that_was_removed_under_its_log_is_refused(branch: Path, folder: Path) -> None:
    """The files go, the lines stay."""
    shutil.rmtree(folder)
    refused(branch, f"{folder.name}/", "was removed since main")


def test_an_old_forecast_under_a_new_name_is_refused(branch: Path, folder: Path) -> None:
    """A name is part of the promise, and renaming is removing."""
    folder.rename(folder.with_name("2026-11-20-renamed"))
    refused(branch, f"{folder.name}/", "was removed since main")


def test_a_log_that_was_written_anew_is_refused(branch: Path, registry: Path) -> None:
    """The chain holds, all digests fit, and the lines are not those that others have kept."""
    log_again(registry)
    assert said_by("verify", branch)[0] == 0
    refused(branch, "log.jsonl does not begin with the log of main")


def test_a_log_that_was_thrown_away_is_refused(branch: Path, registry: Path) -> None:
    """Where there is no log nothing can be missed, so the base's must be there."""
    (registry / "log.jsonl").unlink()
    refused(branch, "log.jsonl does not begin with the log of main")


def test_an_outcome_that_was_improved_together_with_its_record_is_refused(
    branch: Path, folder: Path, registration: Registration
) -> None:
    """Record and outcome tell the same lie, and the log is written anew: the base still has the first outcome."""
    record = branch / "runs" / "tiny" / registration.target.directory_name / "record.json"
    edit(record, lambda said: said.update(loss=2.5))
    (folder / "outcome.json").unlink()
    log_again(folder.parent)
    assert "held: observed 2.5000" in said_by("check", branch)[1]
    assert said_by("verify", branch)[0] == 0
    refused(branch, "log.jsonl does not begin with the log of main")


def test_a_review_that_was_taken_away_is_refused(branch: Path, folder: Path) -> None:
    """With the log as it is."""
    signed = folder / f"statement.json.{BOB}.sig"
    signed.unlink()
    refused(branch, f"{signed.name} was removed since main")


def test_someone_elses_forecast_that_was_taken_over_is_refused(branch: Path, folder: Path) -> None:
    """Mallory puts her own name over Ada's forecast, and signs it with a key that is allowed."""
    (folder / "outcome.json").unlink()
    (folder / f"statement.json.{BOB}.sig").unlink()
    edit(folder / "statement.json", lambda document: document["predicate"].update(registrant=MALLORY))
    sign_bytes_again(folder, (folder / "statement.json").read_bytes(), key=key_of(MALLORY))
    assert said_by("verify", branch)[0] == 0
    refused(branch, "log.jsonl does not begin with the log of main")


NOBODY = "nobody@example.org"


def forecast_of_nobody(root: Path) -> None:
    """A new forecast, signed by a key that this branch has allowed."""
    allow(root / "preregistrations", NOBODY)
    folder = make_second_registration(root).folder
    edit(folder / "statement.json", lambda document: document["predicate"].update(registrant=NOBODY))
    (folder / "statement.json.sig").write_bytes(key_of(NOBODY).sign((folder / "statement.json").read_bytes()))
    write_lines(folder.parent, log_lines(folder.parent)[:-1])
    write_down(folder.parent, at=LATER)


def test_a_key_and_a_forecast_in_one_pull_request_are_refused(branch: Path) -> None:
    """Nobody allows their own key beside what they sign with it; without the base, the forecast is sound."""
    forecast_of_nobody(branch)
    assert said_by("verify", branch)[0] == 0
    refused(branch, "allowed_signers and 8 other files of the registry changed since main")


def test_a_forecast_by_a_key_that_only_an_unmerged_branch_allows_is_refused(branch: Path, registry: Path) -> None:
    """The list of signers that counts is that of the base: here it is brought, used, and put back."""
    before = (registry / "allowed_signers").read_bytes()
    forecast_of_nobody(branch)
    (registry / "allowed_signers").write_bytes(before)
    refused(branch, f"may not sign for {NOBODY}", f": {registry}/allowed_signers of main has no such line")


def test_a_signer_who_is_struck_out_beside_a_forecast_is_refused(branch: Path, registry: Path) -> None:
    """A list that changes together with what it judges could also make room for a friend."""
    make_second_registration(branch)
    lines = (registry / "allowed_signers").read_text().splitlines(keepends=True)
    (registry / "allowed_signers").write_text("".join(line for line in lines if CAROL not in line))
    refused(branch, "allowed_signers and 8 other files of the registry changed since main")


def test_an_authority_of_ones_own_beside_a_forecast_is_refused(branch: Path, registry: Path) -> None:
    """Time stamps of any date could come with it."""
    make_second_registration(branch)
    (registry / "tsa_roots.pem").write_text("a root certificate")
    refused(branch, "tsa_roots.pem and 8 other files of the registry changed since main")


@pytest.mark.parametrize("name", ["log.jsonl", "allowed_signers"])
def test_a_link_to_outside_of_the_registry_is_refused(branch: Path, registry: Path, name: str) -> None:
    """What it leads to could be exchanged by a pull request that touches no file of the registry."""
    shutil.move(registry / name, branch / name)
    os.symlink(os.path.relpath(branch / name, registry), registry / name)
    refused(branch, f"{name}", "link")


def test_another_treatment_of_the_bytes_is_refused(branch: Path, registry: Path) -> None:
    """Git could be told to change line ends at the next checkout, so that nothing verifies any more."""
    (registry / ".gitattributes").write_text("* text eol=crlf\n")
    refused(branch, ".gitattributes was changed since main")
