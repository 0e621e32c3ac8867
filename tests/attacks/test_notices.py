"""Attacks by what is said afterwards: a forecast that is about to miss is to leave the record by a withdrawal or a void.

The notices here are given by people who may sign, each with a good signature of their own, written by hand round the commands
that would not write them, and logged. An outcome is signed by nobody, so that the registrant cannot sign one that the resolver
should; the nearest attack is a `void` by the registrant.
"""

import os
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import CAROL, CONDITION, MALLORY, edit, key_of, log_again, refused, said_by
from registration_factory import CREATED_AT, PRINCIPAL, make_registration, signing_key, store_run

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import make_signature
from marin_scaling.preregistration.statement import moment_text

LATER = CREATED_AT + timedelta(days=1)


def say(folder: Path, kind: str, *, number: int = 1, key: SigningKey | None = None, **said: Any) -> Path:
    """A notice as someone writes it who goes round the commands: by Ada where nothing else is said, signed and logged."""
    document = {
        "format_version": 1,
        "kind": kind,
        "statement_sha256": sha256_hex((folder / "statement.json").read_bytes()),
        "by": PRINCIPAL,
        "at": moment_text(LATER),
        "reason": "the run is cancelled",
        "target_steps_seen": 0,
        **said,
    }
    place = folder / f"notice-{number}-{kind}"
    place.mkdir()
    raw = dump_canonical(document)
    (place / "notice.json").write_bytes(raw)
    (place / "notice.json.sig").write_bytes(make_signature(raw, private_key=(key or signing_key()).private_key))
    write_down(folder.parent, at=LATER)
    return place


def test_what_the_right_people_say_is_sound(root: Path, folder: Path) -> None:
    """The ground of the attacks: the same words by those who may say them are no refusal."""
    say(folder, "deviate", by=MALLORY, key=key_of(MALLORY), from_step=80)
    say(folder, "void", number=2, by=CAROL, key=key_of(CAROL), condition=CONDITION)
    status, said = said_by("verify", root)
    assert status == 0, said
    assert f"void ({CONDITION})" in said_by("check", root)[1]


def test_a_withdrawal_by_someone_else_is_refused(root: Path, folder: Path) -> None:
    """Mallory takes back what Ada promised, to spare a friend or to spoil a good forecast."""
    say(folder, "withdraw", by=MALLORY, key=key_of(MALLORY))
    refused(root, "notice-1-withdraw/notice.json: mallory@example.org takes back what ada@example.org promised")


def test_a_withdrawal_in_the_registrants_name_is_refused(root: Path, folder: Path) -> None:
    """The same with Ada's name over it, and Mallory's signature."""
    say(folder, "withdraw", key=key_of(MALLORY))
    refused(root, "may not sign for ada@example.org", "has no such line")


def test_a_void_by_the_registrant_is_refused(root: Path, folder: Path) -> None:
    """Whether a condition came true is for the resolver to say."""
    say(folder, "void", condition=CONDITION)
    refused(root, "notice-1-void/notice.json: ada@example.org is not its resolver", "carol@example.org resolves it")


def test_a_void_by_a_registrant_who_resolves_it_themselves_is_refused(root: Path) -> None:
    """A statement may name its own registrant as the resolver; nobody voids their own forecast, though."""
    folder = make_registration(root, promise=Promise(void_if=(CONDITION,))).folder
    say(folder, "void", condition=CONDITION)
    refused(root, "notice-1-void/notice.json: ada@example.org is not its resolver, or is its registrant, too")


@pytest.mark.parametrize("said", [{"condition": "it looks bad"}, {}], ids=["another", "none"])
def test_a_void_under_a_condition_that_was_not_named_is_refused(root: Path, folder: Path, said: dict[str, str]) -> None:
    """Also by the resolver: the conditions were signed before the run."""
    say(folder, "void", by=CAROL, key=key_of(CAROL), **said)
    refused(root, "notice-1-void/notice.json", said.get("condition", "condition: field required"))


def test_a_notice_about_another_statement_is_refused(root: Path, folder: Path, tmp_path: Path) -> None:
    """A good withdrawal of another forecast of Ada's, moved beside this one."""
    other = make_registration(tmp_path / "other").folder
    shutil.copytree(say(other, "withdraw"), folder / "notice-1-withdraw")
    log_again(folder.parent)
    refused(root, "notice-1-withdraw/notice.json: it is about another statement")


def test_a_notice_that_was_edited_is_refused(root: Path, folder: Path) -> None:
    """Not by its reason, but by its signature."""
    place = say(folder, "withdraw")
    edit(place / "notice.json", lambda said: said.update(reason="the run was cancelled"))
    log_again(folder.parent)
    refused(root, "notice-1-withdraw/notice.json.sig is not a valid signature", "did not sign these bytes")


def test_a_notice_from_before_the_statement_is_refused(root: Path, folder: Path) -> None:
    """A forecast cannot be taken back before it was made."""
    say(folder, "withdraw", at=moment_text(CREATED_AT - timedelta(days=1)))
    refused(root, "notice-1-withdraw/notice.json: it was given at 2026-11-19T08:30:00Z, before the statement was made")


def test_a_notice_of_another_kind_than_its_folder_is_refused(root: Path, folder: Path) -> None:
    """The name says that the run left its recipe, the text takes the forecast back."""
    say(folder, "withdraw").rename(folder / "notice-1-deviate")
    log_again(folder.parent)
    refused(root, "notice-1-deviate/notice.json: it says 'withdraw', and its folder is notice-1-deviate")


def test_a_notice_with_small_print_is_refused(root: Path, folder: Path) -> None:
    """A key that nobody reads."""
    say(folder, "withdraw", unless="it holds")
    refused(root, "notice-1-withdraw/notice.json: unless: unknown key")


def test_a_withdrawal_without_a_reason_is_refused(root: Path, folder: Path) -> None:
    """Taking back without a word is what a registry is against."""
    say(folder, "withdraw", reason="")
    refused(root, "notice-1-withdraw/notice.json: reason")


def test_a_deviation_from_no_step_on_is_refused(root: Path, folder: Path) -> None:
    """Or every miss could be laid to something that happened at some time."""
    say(folder, "deviate", by=CAROL, key=key_of(CAROL))
    refused(root, "notice-1-deviate/notice.json: it has neither from_step nor from_tokens")


def test_an_unsigned_notice_is_refused(root: Path, folder: Path) -> None:
    """Anyone could have put it there."""
    (say(folder, "withdraw") / "notice.json.sig").unlink()
    refused(root, "notice-1-withdraw holds notice.json, not notice.json and notice.json.sig")


def test_a_file_beside_a_notice_is_refused(root: Path, folder: Path) -> None:
    """What is not signed does not lie among what is."""
    (say(folder, "withdraw") / "evidence.png").write_bytes(b"x")
    refused(root, "notice-1-withdraw holds evidence.png, notice.json, notice.json.sig, not")


def test_a_link_in_place_of_a_notice_is_refused(root: Path, folder: Path) -> None:
    """It could be a withdrawal today and none tomorrow."""
    place = say(folder, "withdraw")
    shutil.move(place, root / "elsewhere")
    os.symlink(root / "elsewhere", place)
    refused(root, "notice-1-withdraw is a link")


def test_a_notice_that_was_taken_away_is_missed(root: Path, folder: Path) -> None:
    """A withdrawal is not taken back once the run looks well; the log knows of it."""
    shutil.rmtree(say(folder, "withdraw"))
    refused(root, "notice-1-withdraw/notice.json: line 2 of the log has the digest", "and there is no file")


def test_a_notice_before_the_last_that_was_taken_away_is_missed(root: Path, folder: Path) -> None:
    """Also with the log written anew: they are numbered without a gap."""
    first = say(folder, "withdraw")
    say(folder, "deviate", number=2, by=CAROL, key=key_of(CAROL), from_step=80)
    shutil.rmtree(first)
    log_again(folder.parent)
    refused(root, "notice-2-deviate is there, and number 1 is not")


def test_a_notice_that_did_not_come_in_by_the_log_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Put in by hand, with a date of the forger's choice."""
    before = (registry / "log.jsonl").read_bytes()
    say(folder, "withdraw")
    (registry / "log.jsonl").write_bytes(before)
    refused(root, "notice-1-withdraw/notice.json is not in the log")


MISSED = "which counts as missed, by ada@example.org"


def counts_as_missed(root: Path, reason: str) -> None:
    """That the forecast is no refusal, and no way out either: it is among the settled ones, outside of its interval."""
    status, said = said_by("check", root, "--strict")
    assert status == 1, said
    assert f"withdrawn after {reason}, {MISSED}" in said
    assert "in their 90 % intervals 0 of 1" in said


def test_a_withdrawal_after_the_run_began_counts_as_missed(root: Path, registration: Registration) -> None:
    """Its record says when that was."""
    store_run(root / "runs", spec=registration.target, loss=2.9, started_at="2026-11-21T08:00:00Z")
    say(registration.folder, "withdraw")
    counts_as_missed(root, "its run began")


def test_a_back_dated_withdrawal_counts_as_missed(root: Path, registration: Registration) -> None:
    """It says that it is older than the run, and was logged when the run had begun."""
    store_run(root / "runs", spec=registration.target, loss=2.9, started_at="2026-11-21T08:00:00Z")
    say(registration.folder, "withdraw", at=moment_text(CREATED_AT + timedelta(hours=1)))
    counts_as_missed(root, "its run began")


def test_a_withdrawal_of_what_has_its_outcome_counts_as_missed(root: Path, registration: Registration) -> None:
    """Whatever its date, and also where the run itself is not at hand."""
    run = store_run(root / "runs", spec=registration.target, loss=2.9, started_at="2026-11-20T20:00:00Z")
    assert "missed: observed 2.9000" in said_by("check", root)[1]
    shutil.rmtree(run.parent)
    say(registration.folder, "withdraw", at=moment_text(CREATED_AT + timedelta(hours=1)))
    counts_as_missed(root, "its run began")


def test_a_withdrawal_of_what_is_overdue_counts_as_missed(root: Path) -> None:
    """Or whoever lets a run slip could clear their record afterwards."""
    folder = make_registration(root, promise=Promise(due=date(2026, 11, 20))).folder
    say(folder, "withdraw")
    counts_as_missed(root, "it was due")
