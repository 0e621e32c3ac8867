"""Attacks by a seal: many forecasts hidden to show the lucky one, or one made after the run and said to have been sealed.

The forger here is the registrant, who holds the key, the salt and the private files, signs again and logs again.
"""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import MALLORY, allow, chain, edit, edited, key_of, log_again, log_entries, refused, said_by, sign_again
from registration_factory import (
    CREATED_AT,
    forecast_document,
    ladder_rows,
    make_registration,
    run_spec,
    signing_key,
    store_run,
)

from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.events.seal import commitment, private_folder, reveal
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import make_signature
from marin_scaling.preregistration.track_record import track_records
from marin_scaling.preregistration.verdict import check_all

REVEAL_BY = CREATED_AT + timedelta(days=1000)


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Ada's sealed forecast, with its line in the log; Mallory may sign, too."""
    folder = make_registration(tmp_path, reveal_by=REVEAL_BY).folder
    allow(folder.parent, MALLORY)
    return folder


@pytest.fixture
def opened(sealed: Path) -> Path:
    """The same, revealed."""
    reveal(sealed)
    write_down(sealed.parent, at=CREATED_AT)
    return sealed


def seal_again(folder: Path, *, key: SigningKey | None = None, **said: Any) -> None:
    """Another seal in the place of the first, with a good signature, logged as if it had been the first."""
    edit(folder / "seal.json", lambda document: document.update(said))
    raw = (folder / "seal.json").read_bytes()
    (folder / "seal.json.sig").write_bytes(make_signature(raw, private_key=(key or signing_key()).private_key))
    log_again(folder.parent)


def luckier(predicate: dict[str, Any]) -> None:
    """Another assumption: any other statement will do."""
    predicate["assumptions"] = [{"id": "A1", "text": "it always was so", "ifFalse": "void"}]


def test_what_the_registrant_sealed_and_revealed_is_sound(tmp_path: Path, opened: Path) -> None:
    """The ground of the attacks."""
    status, said = said_by("verify", tmp_path)
    assert status == 0, said
    assert f"{opened.name}\n" in said
    assert "sealed     ok  this statement, by ada@example.org at 2026-11-20T08:30:00Z" in said


def test_another_statement_than_the_one_that_was_sealed_is_refused(tmp_path: Path, opened: Path) -> None:
    """Signed by the right person, with the right salt, and not what was promised."""
    sign_again(opened, luckier)
    refused(tmp_path, "opening.json: salt and statement do not give the digest that was sealed")


def test_another_salt_opens_nothing(tmp_path: Path, opened: Path) -> None:
    """There is no second pair of salt and statement with that digest."""
    sign_again(opened, luckier, files=edited(opened, "opening.json", lambda document: document.update(salt="0" * 64)))
    refused(tmp_path, "opening.json: salt and statement do not give the digest that was sealed")


def test_a_seal_that_is_made_to_fit_after_the_run_is_not_in_the_log_as_it_is(tmp_path: Path, opened: Path) -> None:
    """The digest in the seal's line of the log was there before the run."""
    kept = log_entries(opened.parent)
    sign_again(opened, luckier)
    salt = "ab" * 32
    edit(opened / "opening.json", lambda document: document.update(salt=salt))
    seal_again(opened, commitment=commitment((opened / "statement.json").read_bytes(), salt=salt))
    chain(opened.parent, kept)
    refused(tmp_path, "seal.json: line 1 of the log has the digest")


def test_a_revealed_forecast_whose_seal_is_gone_is_refused(tmp_path: Path, opened: Path) -> None:
    """It would be as old as it says then."""
    for name in ("seal.json", "seal.json.sig", "opening.json"):
        (opened / name).unlink()
    refused(tmp_path, f"log.jsonl says of {opened.name}: seal, register, reveal; it must be registered there first")


@pytest.mark.parametrize("name", ["seal.json", "seal.json.sig", "opening.json"])
def test_a_part_of_the_seal_that_is_missing_is_refused(tmp_path: Path, opened: Path, name: str) -> None:
    """Each shows nothing without the others."""
    (opened / name).unlink()
    refused(tmp_path, f"{name} is missing")


def test_a_sealed_forecast_that_disappears_is_refused(tmp_path: Path, sealed: Path) -> None:
    """The log says that it came in."""
    shutil.rmtree(sealed)
    refused(tmp_path, f"{sealed.name} is missing, and")


def test_a_seal_in_someone_elses_name_is_refused(tmp_path: Path, sealed: Path) -> None:
    """Mallory seals a hopeless forecast for Ada, to spoil her record."""
    seal_again(sealed, key=key_of(MALLORY))
    refused(tmp_path, "may not sign for ada@example.org")


def test_a_forecast_that_someone_else_sealed_opens_nothing(tmp_path: Path, opened: Path) -> None:
    """Mallory's seal over Ada's statement does not make her the one who promised it, nor Ada."""
    seal_again(opened, key=key_of(MALLORY), by=MALLORY)
    refused(tmp_path, "opening.json: mallory@example.org sealed", "of ada@example.org")


def test_a_seal_in_another_folder_is_refused(tmp_path: Path, sealed: Path) -> None:
    """One seal for two forecasts, of which one is shown."""
    shutil.copytree(sealed, sealed.with_name("2026-11-20-other"))
    log_again(sealed.parent)
    refused(tmp_path, "seal.json is the seal of 2026-11-20-tiny-target, not that of its folder")


@pytest.mark.parametrize("until", ["2026-11-20T08:30:00Z", "2020-01-01T00:00:00Z", "2035-01-01T00:00:00Z"])
def test_a_seal_without_an_end_is_refused(tmp_path: Path, sealed: Path, until: str) -> None:
    """What need never be shown cannot be missed."""
    seal_again(sealed, reveal_by=until)
    refused(tmp_path, "seal.json: sealed at", "which is no term of up to four years")


def test_a_later_end_is_refused(tmp_path: Path, sealed: Path) -> None:
    """The day by which it is to be shown was promised."""
    kept = log_entries(sealed.parent)
    seal_again(sealed, reveal_by="2030-01-01T00:00:00Z")
    chain(sealed.parent, kept)
    refused(tmp_path, "seal.json: line 1 of the log has the digest")


def test_an_older_seal_than_its_statement_is_refused(tmp_path: Path, opened: Path) -> None:
    """The statement was made after the day on which it was sealed, so it is not what was sealed."""
    seal_again(opened, at="2026-11-19T08:30:00Z")
    refused(tmp_path, "opening.json: it was sealed at 2026-11-19T08:30:00Z, before the statement")


def test_files_beside_a_seal_are_refused(tmp_path: Path, sealed: Path) -> None:
    """An outcome without a forecast, to be opened when it suits."""
    (sealed / "outcome.json").write_bytes(b"{}\n")
    log_again(sealed.parent)
    refused(tmp_path, "outcome.json is in a sealed folder without a statement")


def test_a_seal_that_is_a_link_is_refused(tmp_path: Path, sealed: Path) -> None:
    """What it leads to could be exchanged."""
    (sealed / "seal.json").rename(tmp_path / "elsewhere.json")
    (sealed / "seal.json").symlink_to(tmp_path / "elsewhere.json")
    refused(tmp_path, "seal.json is a link")


def _twice(raw: bytes) -> bytes:
    return raw.replace(b'"kind"', b'"kind": "seal",\n "kind"', 1)


@pytest.mark.parametrize(
    "change", [_twice, lambda raw: raw.replace(b"\n", b"\r\n"), lambda raw: raw[:-2], lambda raw: raw + b" "]
)
def test_a_seal_that_can_be_read_in_two_ways_is_refused(tmp_path: Path, sealed: Path, change: Callable[[bytes], bytes]) -> None:
    """Keys twice, other line ends, a part of it: signed and logged all the same."""
    raw = change((sealed / "seal.json").read_bytes())
    (sealed / "seal.json").write_bytes(raw)
    (sealed / "seal.json.sig").write_bytes(make_signature(raw, private_key=signing_key().private_key))
    log_again(sealed.parent)
    refused(tmp_path, "seal.json")


def test_a_seal_that_comes_into_the_log_after_its_statement_is_refused(tmp_path: Path, opened: Path) -> None:
    """An open forecast that is said to have been sealed before."""
    seal, register, *others = log_entries(opened.parent)
    chain(opened.parent, [register, seal, *others])
    refused(tmp_path, "register, seal, reveal; it must be sealed and registered and revealed there first")


def test_ten_sealed_and_the_lucky_one_shown_are_nine_missed(tmp_path: Path) -> None:
    """Not refused, because nothing is forged: counted. Each of another size, so that each is of a run of its own."""
    rows = None
    for number in range(10):
        target = run_spec(hidden_dim=128, train_steps=800 + number, role="target")
        made = make_registration(
            tmp_path,
            rows=rows,
            target=target,
            forecast=forecast_document(flops=target.flops),
            slug=f"run-{number}",
            reveal_by=REVEAL_BY,
        )
        rows = ladder_rows(tmp_path / "runs")
    store_run(tmp_path / "runs", spec=made.target, loss=2.5, day="2026-11-21")
    reveal(made.folder)
    write_down(made.folder.parent, at=CREATED_AT)
    folders = sorted(path for path in made.folder.parent.iterdir() if path.is_dir())
    verdicts = check_all(folders, runs_dir=tmp_path / "runs", checked_at=REVEAL_BY + timedelta(days=1))
    (record,) = track_records(verdicts)
    assert record.states == "0 pending, 9 overdue, 1 held, 0 missed, 0 refused"
    assert (record.inside_90, record.settled) == (1, 10)


def test_the_private_files_of_another_seal_are_not_shown(tmp_path: Path, sealed: Path) -> None:
    """The registrant cannot reveal by mistake what was not sealed."""
    edit(private_folder(sealed) / "seal.json", lambda document: document.update(reveal_by="2027-01-01T00:00:00Z"))
    with pytest.raises(MarinScalingError):
        reveal(sealed)
    assert sorted(path.name for path in sealed.iterdir()) == ["seal.json", "seal.json.sig"]


def test_a_run_that_began_before_the_seal_answers_nothing(tmp_path: Path) -> None:
    """A statement with an older date, sealed after its run: what counts is when it was sealed."""
    made = make_registration(tmp_path, reveal_by=REVEAL_BY)
    store_run(tmp_path / "runs", spec=made.target, loss=2.5, day="2026-11-21")
    reveal(made.folder)
    seal_again(made.folder, at="2026-11-22T00:00:00Z")
    refused(tmp_path, "before its preregistration of 2026-11-22T00:00:00Z", command="check")
