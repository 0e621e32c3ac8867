"""Attacks on the time: a forecast is to look older than the run that it forecasts.

The time in a statement is its registrant's word, so each attack here is signed and logged well. What contradicts it are records
of runs, the log, and, where there is one, the stamp of a third party.
"""

import importlib.util
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import log_again, refused, said_by, sign_again, sign_bytes_again
from registration_factory import make_registration, store_run
from time_authority import make_authority, stamp_over

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.preregistration.events.seal import reveal
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.statement import moment_text

needs_an_authority = pytest.mark.skipif(
    importlib.util.find_spec("rfc3161_client") is None or shutil.which("openssl") is None,
    reason="the extra timestamp (rfc3161-client) or openssl is not installed",
)


def rename(folder: Path, name: str) -> Path:
    """The folder under another name, and logged under it."""
    renamed = folder.rename(folder.with_name(name))
    log_again(folder.parent)
    return renamed


def test_a_run_that_began_before_its_forecast_is_refused(root: Path, registration: Registration) -> None:
    """Signing after a look at the first steps."""
    store_run(root / "runs", spec=registration.target, loss=2.5, started_at="2026-11-20T08:00:00Z")
    refused(root, "began at 2026-11-20T08:00:00Z, before its preregistration of 2026-11-20T08:30:00Z", command="check")


def test_a_forecast_that_was_logged_after_its_run_began_is_told(root: Path, registration: Registration) -> None:
    """Not refused, because lines are made again when another branch came first; but a reader sees what it rests on."""
    store_run(root / "runs", spec=registration.target, loss=2.5, started_at="2026-11-21T08:00:00Z")
    assert "after its run had begun" not in said_by("check", root)[1]
    registry = registration.folder.parent
    (registry / "log.jsonl").unlink()
    write_down(registry, at=datetime(2026, 11, 22, tzinfo=UTC))
    late = "logged at 2026-11-22T00:00:00Z, after its run had begun at 2026-11-21T08:00:00Z: that it was made before"
    assert late in said_by("check", root)[1]


def test_a_back_dated_statement_is_refused(root: Path, folder: Path) -> None:
    """It would be older than the small runs that it rests on, whose records say when they were finished."""
    sign_again(folder, lambda said: said.update(id="2026-11-19-tiny-target", createdAt="2026-11-19T10:30:00Z"))
    rename(folder, "2026-11-19-tiny-target")
    refused(root, "was finished at 2026-11-19T11:00:00Z, after the statement of 2026-11-19T10:30:00Z that rests on it")


def test_an_earlier_day_in_the_name_is_refused(root: Path, folder: Path) -> None:
    """The folder says one day, the statement another."""
    sign_again(folder, lambda said: said.update(id="2026-11-01-tiny-target"))
    rename(folder, "2026-11-01-tiny-target")
    refused(root, "its id 2026-11-01-tiny-target does not start with the day of 2026-11-20T08:30:00Z")


def test_a_statement_under_an_earlier_name_is_refused(root: Path, folder: Path) -> None:
    """A copy in a folder of another date is not an older forecast."""
    rename(folder, "2026-11-01-tiny-target")
    refused(root, "statement.json is the statement 2026-11-20-tiny-target, not that of its folder")


def test_a_moment_that_never_was_is_refused(root: Path, folder: Path) -> None:
    """The thirteenth month could be read as any."""
    sign_again(folder, lambda said: said.update(createdAt="2026-13-20T08:30:00Z"))
    refused(root, "statement.json: predicate.createdAt: ", "2026-13-20T08:30:00Z")


def test_a_time_of_no_zone_is_refused(root: Path, folder: Path) -> None:
    """It would be another moment on every machine."""
    sign_again(folder, lambda said: said.update(createdAt="2026-11-20T08:30:00"))
    refused(root, "statement.json: predicate.createdAt")


def test_a_forecast_that_was_due_before_it_was_made_is_refused(root: Path, folder: Path) -> None:
    """It would count as missed at once, and a registrant who wants that spoils the record of others."""
    sign_again(folder, lambda said: said["resolution"].update(due="2026-11-01T00:00:00Z"))
    refused(root, "it is due at 2026-11-01T00:00:00Z, before it was made")


def test_a_registrant_who_has_seen_steps_of_the_run_is_refused(root: Path, folder: Path) -> None:
    """No forecast is made of a run that is under way, also where that is said openly."""
    sign_again(folder, lambda said: said["knowledge"].update(targetRunStepsSeen=100))
    refused(root, "statement.json: predicate.knowledge.targetRunStepsSeen", "100")


def test_a_statement_in_a_format_of_the_future_is_refused(root: Path, folder: Path) -> None:
    """What nobody can read yet binds nobody."""
    document = json.loads((folder / "statement.json").read_bytes())
    document["predicateType"] = "urn:marin-scaling:preregistration:v9"
    sign_bytes_again(folder, dump_canonical(document))
    refused(root, "statement.json: predicateType", "preregistration:v9", "preregistration:v1")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a time-stamping authority that the registry trusts."""
    return make_authority(tmp_path_factory.mktemp("authorities") / "trusted")


def made_now(root: Path, authority: Path, **changes: Any) -> Registration:
    """A forecast of five minutes ago, in a registry that trusts the authority; stamps have the time of this machine."""
    registration = make_registration(root, **{"created_at": datetime.now(UTC) - timedelta(minutes=5), **changes})
    shutil.copy(authority / "root.pem", registration.folder.parent / "tsa_roots.pem")
    return registration


def stamp(folder: Path, authority: Path, *, over: str = "statement.json.sig") -> Path:
    """The authority's word on the signature as it is now, logged."""
    path = folder / "stamp-1.tsr"
    path.write_bytes(stamp_over(authority, (folder / over).read_bytes()))
    write_down(folder.parent, at=datetime.now(UTC))
    return path


@needs_an_authority
def test_editing_and_signing_again_under_an_old_stamp_is_refused(root: Path, authority: Path) -> None:
    """The registrant changes the promise, signs it, and writes the whole log anew: the stamp is over the first signature."""
    folder = made_now(root, authority).folder
    stamp(folder, authority)
    sign_again(folder, lambda said: said["resolution"].update(voidIf=["it misses"]))
    refused(root, "stamp-1.tsr is no time stamp over this signature: Mismatch")


@needs_an_authority
def test_the_stamp_of_another_forecast_is_refused(root: Path, authority: Path, tmp_path: Path) -> None:
    """An older one, moved beside a younger signature."""
    older = made_now(tmp_path / "older", authority).folder
    folder = made_now(root, authority).folder
    shutil.copy(stamp(older, authority), folder)
    log_again(folder.parent)
    refused(root, "stamp-1.tsr is no time stamp over this signature: Mismatch")


@needs_an_authority
def test_the_stamp_of_an_authority_of_ones_own_is_refused(root: Path, authority: Path, tmp_path: Path) -> None:
    """Anyone can be an authority; the registry names those that it trusts."""
    folder = made_now(root, authority).folder
    stamp(folder, make_authority(tmp_path / "own"))
    refused(root, "stamp-1.tsr is no time stamp over this signature")


@needs_an_authority
@pytest.mark.parametrize("place", [0.3, 0.5, 0.7])
def test_a_stamp_that_was_edited_is_refused(root: Path, authority: Path, place: float) -> None:
    """Its time, above all."""
    folder = made_now(root, authority).folder
    path = stamp(folder, authority)
    raw = bytearray(path.read_bytes())
    raw[int(place * len(raw))] ^= 1
    path.write_bytes(bytes(raw))
    log_again(folder.parent)
    refused(root, "stamp-1.tsr is no time stamp over this signature")


@needs_an_authority
def test_a_key_that_had_expired_when_the_signature_was_first_seen_is_refused(root: Path, authority: Path) -> None:
    """Its finder writes an older date into the statement; the stamp says when the signature was there."""
    folder = made_now(root, authority).folder
    stamp(folder, authority)
    assert said_by("verify", root)[0] == 0
    signers = folder.parent / "allowed_signers"
    ended = f"{datetime.now(UTC) - timedelta(minutes=1):%Y%m%d%H%M%S}Z"
    signers.write_text(signers.read_text().replace(" namespaces", f' valid-before="{ended}",namespaces'))
    refused(root, "may not sign for ada@example.org", "allows the key only before")


@needs_an_authority
def test_a_statement_that_is_younger_than_its_stamp_is_refused(root: Path, authority: Path) -> None:
    """Dated into the future, so that a run of tomorrow begins after it."""
    made = datetime.now(UTC) + timedelta(hours=2)
    folder = made_now(root, authority, created_at=made).folder
    stamp(folder, authority)
    refused(root, "stamp-1.tsr is of", f"before the statement of {moment_text(made)}")


@needs_an_authority
def test_a_run_that_began_before_the_first_stamp_is_refused(root: Path, authority: Path) -> None:
    """It began after the time that the registrant wrote down, and before anyone else saw the signature."""
    registration = made_now(root, authority)
    stamp(registration.folder, authority)
    began = moment_text(datetime.now(UTC) - timedelta(minutes=4))
    store_run(root / "runs", spec=registration.target, loss=2.5, started_at=began)
    refused(root, f"began at {began}, before the first stamp of", command="check")


@needs_an_authority
def test_a_stamp_that_was_taken_away_is_missed(root: Path, authority: Path) -> None:
    """Because it shows that the run began first."""
    stamp(made_now(root, authority).folder, authority).unlink()
    refused(root, "stamp-1.tsr: line 2 of the log has the digest", "and there is no file")


@needs_an_authority
def test_a_stamp_over_the_statement_of_a_forecast_that_was_sealed_is_refused(root: Path, authority: Path) -> None:
    """What was sealed is as old as its seal, so that is what a third party must have seen."""
    folder = made_now(root, authority, reveal_by=datetime.now(UTC) + timedelta(days=9)).folder
    reveal(folder)
    write_down(folder.parent, at=datetime.now(UTC))
    stamp(folder, authority)
    refused(root, "stamp-1.tsr is no time stamp over this signature: Mismatch")


@needs_an_authority
def test_a_run_that_began_before_the_stamp_of_its_seal_is_refused(root: Path, authority: Path) -> None:
    """Also when the statement was shown long after."""
    registration = made_now(root, authority, reveal_by=datetime.now(UTC) + timedelta(days=9))
    stamp(registration.folder, authority, over="seal.json.sig")
    reveal(registration.folder)
    write_down(registration.folder.parent, at=datetime.now(UTC))
    assert said_by("verify", root)[0] == 0
    began = moment_text(datetime.now(UTC) - timedelta(minutes=4))
    store_run(root / "runs", spec=registration.target, loss=2.5, started_at=began)
    refused(root, f"began at {began}, before the first stamp of", command="check")
