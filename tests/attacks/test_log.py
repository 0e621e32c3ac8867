"""Attacks on the log: something is to disappear, to be exchanged, or to look older than it is.

A clumsy forger changes lines and is betrayed by the chain. A skilled one chains all lines anew; what stops that one is what the
lines must mean together, and, in `test_pull_request.py`, the log of the base branch.
"""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import (
    BOB,
    chain,
    edit,
    key_of,
    log_entries,
    log_lines,
    refused,
    said_by,
    sign_again,
    write_lines,
)
from registration_factory import CREATED_AT, make_registration, make_second_registration, store_run

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.preregistration.log import MAX_LINE_BYTES, write_down
from marin_scaling.preregistration.register import Registration, countersign
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.signing.sshsig import make_signature
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.preregistration.verdict import check_preregistration

LATER = CREATED_AT + timedelta(days=2)
LATE = "2026-11-23T00:00:00Z"


@pytest.fixture
def folder(root: Path, registration: Registration) -> Path:
    """The first of two preregistrations; it missed. The log has three lines: registered, outcome, the second one registered."""
    folder = registration.folder
    store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    check_preregistration(folder, runs_dir=root / "runs", allowed_signers=signers_path(folder), checked_at=LATER)
    make_second_registration(root)
    return folder


def at(entry: dict[str, Any], moment: str) -> dict[str, Any]:
    """The same line, logged at another time."""
    return entry | {"logged_at": moment}


@pytest.mark.parametrize("line", [1, 2])
def test_a_line_of_the_future_is_refused(root: Path, folder: Path, line: int) -> None:
    """It would date all lines after it, and what it names could be said to have come later than it did."""
    entries = log_entries(folder.parent)
    chain(folder.parent, [*entries[:line], *(at(entry, "2999-01-01T00:00:00Z") for entry in entries[line:])])
    refused(root, f"log.jsonl, line {line + 1}, was logged at 2999-01-01T00:00:00Z, and here it is")


@pytest.mark.parametrize(("hours", "status"), [(23, 0), (25, 1)])
def test_a_clock_that_is_hours_ahead_is_no_attack(root: Path, folder: Path, hours: int, status: int) -> None:
    """Machines keep local time as if it were UTC; no place on earth is a day ahead of it."""
    ahead = moment_text(datetime.now(UTC) + timedelta(hours=hours))
    *entries, last = log_entries(folder.parent)
    chain(folder.parent, [*entries, at(last, ahead)])
    assert said_by("verify", root)[0] == status


def test_a_log_of_three_lines_is_sound(root: Path, folder: Path) -> None:
    """The ground of the attacks here: two preregistrations and an outcome."""
    status, said = said_by("verify", root)
    assert status == 0, said
    assert "lines register 1, outcome 2 of 3" in said


def test_lines_in_another_order_are_refused(root: Path, folder: Path, registry: Path) -> None:
    """The chain numbers them."""
    first, second, third = log_lines(registry)
    write_lines(registry, [second, first, third])
    refused(root, "log.jsonl, line 1: it says that it is number 1")


def test_lines_in_another_order_and_chained_anew_are_refused(root: Path, folder: Path, registry: Path) -> None:
    """An outcome that was there before its forecast, as the forger would like it to look."""
    first, second, third = log_entries(registry)
    chain(registry, [at(second, LATE), at(first, LATE), at(third, LATE)])
    refused(root, f"log.jsonl says of {folder.name}: outcome, register; it must be registered there first")


def test_times_that_run_backwards_are_refused(root: Path, folder: Path, registry: Path) -> None:
    """A line is chained in at the end and says that it was there before the others."""
    first, second, third = log_entries(registry)
    chain(registry, [first, second, at(third, "2026-11-20T08:30:00Z")])
    refused(root, "log.jsonl, line 3: it was logged at 2026-11-20T08:30:00Z, before the line above it")


def test_a_line_that_stands_twice_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """As it is, by its number."""
    first, second, third = log_lines(registry)
    write_lines(registry, [first, first, second, third])
    refused(root, "log.jsonl, line 2: it says that it is number 0")


def test_a_preregistration_that_came_in_twice_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Chained anew, two lines would be two promises, of which one could be shown."""
    entries = log_entries(registry)
    chain(registry, [*entries, at(entries[0], LATE)])
    refused(root, f"log.jsonl has {folder.name}/statement.json twice, in the lines 1 and 4")


def test_a_line_that_was_taken_out_is_missed(root: Path, folder: Path, registry: Path) -> None:
    """In the middle, by the number of the next one."""
    first, _, third = log_lines(registry)
    write_lines(registry, [first, third])
    refused(root, "log.jsonl, line 2: it says that it is number 2")


def test_the_first_line_is_missed_as_well(root: Path, folder: Path, registry: Path) -> None:
    """A log begins with number 0 and the digest of nothing."""
    write_lines(registry, log_lines(registry)[1:])
    refused(root, "log.jsonl, line 1: it says that it is number 1")


def test_an_outcome_whose_line_was_taken_out_and_chained_over_is_missed(root: Path, folder: Path, registry: Path) -> None:
    """The outcome lies there, and the log does not know it."""
    first, _, third = log_entries(registry)
    chain(registry, [first, third])
    refused(root, "outcome.json is not in the log")


def test_a_line_that_was_cut_off_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A log that ends in the middle of a line has lost what followed."""
    path = registry / "log.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    refused(root, "log.jsonl: its last line has no end")


def test_a_time_that_was_edited_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """One day earlier, in one line: the next one has the digest of what stood there."""
    first, second, third = log_lines(registry)
    write_lines(registry, [first, second.replace(b"2026-11-22", b"2026-11-21"), third])
    refused(root, "log.jsonl, line 3: it does not name the digest of the line before")


def test_a_back_dated_log_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """All lines weeks earlier and chained anew: they are older than what the statement says of itself."""
    chain(registry, [at(entry, "2026-11-01T00:00:00Z") for entry in log_entries(registry)])
    refused(root, f"{folder.name} was made at 2026-11-20T08:30:00Z by its own word, and logged before, at 2026-11-01")


def test_a_digest_that_was_exchanged_and_chained_over_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """The log of one statement, and the file of another."""
    first, second, third = log_entries(registry)
    first["files"]["statement.json"] = "0" * 64
    chain(registry, [first, second, third])
    refused(root, f"statement.json: line 1 of the log has the digest {'0' * 64}")


def test_signing_another_statement_under_the_old_line_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """The registrant signs a better promise with their own key, and leaves the log as it was."""
    before = (registry / "log.jsonl").read_bytes()
    (folder / "outcome.json").unlink()  # it would not follow from the other statement
    sign_again(folder, lambda predicate: predicate["resolution"].update(voidIf=["it misses"]))
    (registry / "log.jsonl").write_bytes(before)
    refused(root, "statement.json: line 1 of the log has the digest")


def test_another_signature_over_the_same_statement_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Also where both are good: of two keys of the same person, the signature of one came in."""
    other = key_of("ada's other key")
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"ada@example.org {other.public_key.text}\n")
    path = folder / "statement.json.sig"
    path.write_bytes(make_signature((folder / "statement.json").read_bytes(), private_key=other.private_key))
    refused(root, "statement.json.sig: line 1 of the log has the digest")


def test_a_failed_forecast_that_was_removed_is_missed(root: Path, folder: Path) -> None:
    """Register many and show one: the log names what is not there any more."""
    shutil.rmtree(folder)
    refused(root, f"{folder.name} is missing", "log.jsonl, line 1, says that it came in at 2026-11-20T08:30:00Z")


def test_a_second_forecast_for_the_same_run_is_refused(root: Path, folder: Path, registry: Path, tmp_path: Path) -> None:
    """Register many and show one: signed elsewhere, put in by hand and logged, with one loss for every taste."""
    other = make_registration(tmp_path / "other", slug="another-taste").folder
    shutil.copytree(other, registry / other.name)
    write_down(registry, at=LATER)
    refused(root, f"{folder.name} is for the same target as", other.name)


def test_a_preregistration_that_did_not_come_in_by_the_log_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Put in afterwards, by hand."""
    entries = [entry for entry in log_entries(registry) if entry["id"] != "2026-11-20-second"]
    chain(registry, entries)
    refused(root, "log.jsonl says of 2026-11-20-second: nothing; it must be registered there first")


def test_a_reviewers_signature_that_was_taken_away_is_missed(root: Path, folder: Path, registry: Path) -> None:
    """A forecast that Bob has signed cannot become one that he was never shown."""
    signed = countersign(folder, key=key_of(BOB), principal=BOB)
    write_down(registry, at=LATER)
    signed.unlink()
    refused(root, f"{signed.name}: line 4 of the log has the digest", "and there is no file")


def test_a_reviewers_signature_that_is_not_logged_is_refused(root: Path, folder: Path) -> None:
    """Or a review could be added when the outcome is known, as if it had always been there."""
    signed = countersign(folder, key=key_of(BOB), principal=BOB)
    refused(root, f"{signed.name} is not in the log")


def test_an_outcome_that_was_taken_away_is_missed(root: Path, folder: Path) -> None:
    """A miss that is to become pending again."""
    (folder / "outcome.json").unlink()
    refused(root, "outcome.json: line 2 of the log has the digest", "and there is no file")


def test_an_edited_outcome_with_a_line_of_its_own_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A kinder one, logged at the end by someone who knows how the chain is made."""
    edit(folder / "outcome.json", lambda outcome: outcome.update(checked_at="2026-11-22T08:30:01Z"))
    entries = log_entries(registry)
    digest = sha256_hex((folder / "outcome.json").read_bytes())
    chain(registry, [*entries, at(entries[1], LATE) | {"files": {"outcome.json": digest}}])
    refused(root, f"log.jsonl has {folder.name}/outcome.json twice, in the lines 2 and 4")


def test_a_path_that_leads_out_of_the_folder_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A line of this preregistration that binds the files of another."""
    first, *rest = log_entries(registry)
    files = {f"../2026-11-20-second/{name}": digest for name, digest in first["files"].items()}
    chain(registry, [first | {"files": files}, *rest])
    refused(root, "log.jsonl, line 1: ../2026-11-20-second/statement.json", "is not what a line of the type 'register' names")


def test_a_line_of_a_folder_outside_of_the_registry_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A path in place of a name."""
    first, *rest = log_entries(registry)
    chain(registry, [first | {"id": f"../{folder.name}"}, *rest])
    refused(root, "log.jsonl, line 1: id")


@pytest.mark.parametrize(
    "names",
    [[], ["statement.json"], ["statement.json", "statement.json.sig", "ladder.json"], ["outcome.json"]],
    ids=["none", "no signature", "one more", "of another type"],
)
def test_a_line_that_binds_other_files_than_its_own_is_refused(
    root: Path, folder: Path, registry: Path, names: list[str]
) -> None:
    """A line that names no statement would let any statement pass as the one that came in."""
    first, *rest = log_entries(registry)
    chain(registry, [first | {"files": dict.fromkeys(names, "0" * 64)}, *rest])
    refused(root, "log.jsonl, line 1:", "is not what a line of the type 'register' names")


def test_a_line_of_an_unknown_type_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Nothing is ever erased, so no line can say so."""
    first, *rest = log_entries(registry)
    chain(registry, [first, *rest, at(first, LATE) | {"type": "erase"}])
    refused(root, "log.jsonl, line 4: type", "'erase'")


def test_a_line_with_an_unknown_key_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """What is not known is not read, and would be hashed and never seen."""
    first, *rest = log_entries(registry)
    chain(registry, [first | {"also": 1}, *rest])
    refused(root, "log.jsonl, line 1: also: unknown key")


def test_a_line_with_a_key_twice_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Two readers would read two lines."""
    first, *rest = log_lines(registry)
    write_lines(registry, [first.replace(b'{"', b'{"seq":0,"', 1), *rest])
    refused(root, "log.jsonl, line 1", "duplicate key 'seq'")


@pytest.mark.parametrize(
    "spoil", [lambda line: line + b"\r", lambda line: line.replace(b'":', b'": ')], ids=["carriage returns", "spaces"]
)
def test_the_same_lines_in_another_form_are_refused(root: Path, folder: Path, registry: Path, spoil: Any) -> None:
    """One line has one form, and so one digest."""
    write_lines(registry, [spoil(line) for line in log_lines(registry)])
    refused(root, "log.jsonl, line 1: it is not written in the one canonical way")


def test_an_empty_line_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A place that is kept free for later."""
    first, *rest = log_lines(registry)
    write_lines(registry, [first, b"", *rest])
    refused(root, "log.jsonl, line 2")


def test_a_huge_line_is_refused_unread(root: Path, folder: Path, registry: Path) -> None:
    """More than any event has to say."""
    write_lines(registry, [json.dumps("x" * MAX_LINE_BYTES).encode(), *log_lines(registry)])
    refused(root, "log.jsonl, line 1: it has", f"bytes, more than {MAX_LINE_BYTES}")


def test_a_deeply_nested_line_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Brackets that are to overflow the reader's stack."""
    write_lines(registry, [b"[" * 60_000, *log_lines(registry)])
    refused(root, "log.jsonl, line 1", "it is nested too deeply")
