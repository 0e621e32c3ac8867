"""A forecast that was withdrawn before anything of its run was trained may be registered again, with its words corrected."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from registration_factory import CREATED_AT, PRINCIPAL, ladder_rows, make_registration, signing_key, store_run

from marin_scaling.errors import StatementError, VerificationError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import read_log, write_down
from marin_scaling.preregistration.preregister import unknown_people
from marin_scaling.preregistration.register import Registration, standing_registration
from marin_scaling.preregistration.verify.rules import require_whole

WITHDRAWN_AT = CREATED_AT + timedelta(hours=1)
AGAIN_AT = CREATED_AT + timedelta(hours=2)


def withdraw(registration: Registration, **said: Any) -> Path:
    """Its registrant takes it back, and the log says so."""
    known = {"key": signing_key(), "principal": PRINCIPAL, "at": WITHDRAWN_AT, "reason": "the resolver was mistyped"}
    given = give_notice(registration.folder, "withdraw", **known | said)
    write_down(registration.folder.parent, at=known["at"])
    return given


def again(root: Path, **changes: Any) -> Registration:
    """The same target, registered later under another name."""
    known = {"rows": ladder_rows(root / "runs"), "slug": "corrected", "created_at": AGAIN_AT}
    return make_registration(root, **known | changes)


def whole(registry: Path) -> None:
    """Verify that the registry has one forecast for each target."""
    require_whole(registry, log=read_log(registry))


def test_after_a_withdrawal_without_training_the_target_is_registered_again(tmp_path: Path) -> None:
    """Both stay in the registry, and verification accepts both."""
    first = make_registration(tmp_path)
    withdraw(first)
    second = again(tmp_path)
    whole(first.folder.parent)
    standing = standing_registration(second.target, registry_dir=first.folder.parent)
    assert standing is not None
    assert standing.folder == second.folder


def test_without_a_withdrawal_it_is_not(tmp_path: Path) -> None:
    """The first forecast is named."""
    first = make_registration(tmp_path)
    with pytest.raises(StatementError, match=first.folder.name):
        again(tmp_path)


def test_after_steps_of_the_run_were_seen_it_is_not(tmp_path: Path) -> None:
    """By the registrant's own word."""
    first = make_registration(tmp_path)
    withdraw(first, target_steps_seen=5)
    with pytest.raises(StatementError, match=first.folder.name):
        again(tmp_path)


def test_after_its_run_it_is_not(tmp_path: Path) -> None:
    """Whatever the withdrawal says."""
    first = make_registration(tmp_path)
    store_run(tmp_path / "runs", spec=first.target, loss=2.5, day="2026-11-21")
    withdraw(first)
    with pytest.raises(StatementError, match=first.folder.name):
        again(tmp_path)


def test_a_run_of_the_withdrawn_forecast_that_is_recorded_later_refuses_the_second(tmp_path: Path) -> None:
    """Of two forecasts with a run, one could be chosen."""
    first = make_registration(tmp_path)
    withdraw(first)
    again(tmp_path)
    store_run(tmp_path / "runs", spec=first.target, loss=2.5, day="2026-11-21")
    with pytest.raises(VerificationError, match="same target"):
        whole(first.folder.parent)


def test_a_withdrawal_after_the_second_forecast_does_not_count(tmp_path: Path) -> None:
    """Else the worse of the two could be withdrawn."""
    first = make_registration(tmp_path)
    notice = withdraw(first)
    aside = tmp_path / "aside"
    log = first.folder.parent / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    notice.rename(aside)
    log.write_text("".join(lines[:-1]))
    first.folder.rename(tmp_path / "first")
    log.unlink()
    second = again(tmp_path)
    (tmp_path / "first").rename(first.folder)
    write_down(first.folder.parent, at=AGAIN_AT)
    aside.rename(notice)
    write_down(first.folder.parent, at=AGAIN_AT + timedelta(hours=1))
    with pytest.raises(VerificationError, match="same target"):
        whole(second.folder.parent)


def test_a_withdrawal_that_nobody_signed_does_not_count(tmp_path: Path) -> None:
    """Its signature is verified before the second forecast is accepted."""
    first = make_registration(tmp_path)
    notice = withdraw(first)
    again(tmp_path)
    (notice / "notice.json.sig").write_bytes((first.folder / "statement.json.sig").read_bytes())
    with pytest.raises(VerificationError):
        whole(first.folder.parent)


def test_resolvers_and_reviewers_without_a_key_are_warned_of_before_signing(tmp_path: Path) -> None:
    """With the name that was probably meant; who signs now gets a line of their own."""
    registry = make_registration(tmp_path).folder.parent
    promise = Promise(due=date(2027, 3, 1), resolver="ada@exmaple.org", reviewers=("bob@example.net", PRINCIPAL))
    resolver, reviewer = unknown_people(promise, registry=registry, principal="eve@example.org")
    assert "promise.resolver" in resolver
    assert PRINCIPAL in resolver
    assert "bob@example.net" in reviewer
    assert str(registry / "allowed_signers") in reviewer
    assert unknown_people(Promise(resolver=PRINCIPAL), registry=registry, principal="eve@example.org") == []


@pytest.mark.parametrize(
    ("name", "near"), [("solo@example.org", False), ("aad@example.org", True), ("ADA@example.com", True), ("x@y.net", False)]
)
def test_only_a_near_name_is_suggested(tmp_path: Path, name: str, near: bool) -> None:
    """One domain alone makes no two names near."""
    registry = make_registration(tmp_path).folder.parent
    (warning,) = unknown_people(Promise(resolver=name), registry=registry, principal="eve@example.org")
    assert (PRINCIPAL in warning) is near
