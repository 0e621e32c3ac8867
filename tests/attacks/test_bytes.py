"""Attacks on the bytes: two readers are to see two things in one file, or be led out of the folder.

Whoever attacks here holds the registrant's own key, and signs and logs exactly the bytes that they want.
"""

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import edit, edited, log_again, refused, sign_again, sign_bytes_again
from registration_factory import CREATED_AT, PRINCIPAL, signing_key

from marin_scaling.canonical_json import MAX_DOCUMENT_BYTES
from marin_scaling.errors import DocumentError
from marin_scaling.preregistration.events.notice import give_notice


def sign_with(folder: Path, old: str, new: str) -> None:
    """Sign the statement with one piece of its text exchanged."""
    text = (folder / "statement.json").read_text()
    assert old in text
    sign_bytes_again(folder, text.replace(old, new, 1).encode())


def test_a_key_that_stands_twice_is_refused(root: Path, folder: Path) -> None:
    """Of two points in one object, one reader would take the first and another the last."""
    sign_with(folder, '"point": 2.5,', '"point": 2.4,\n   "point": 2.5,')
    refused(root, "statement.json", "duplicate key 'point'")


def test_a_quantile_that_is_no_number_is_refused(root: Path, folder: Path) -> None:
    """NaN is neither above nor below any loss, so such a forecast could not be scored."""
    sign_with(folder, '"point": 2.5,', '"point": NaN,')
    refused(root, "statement.json", "it holds NaN")


def test_a_number_too_large_for_a_float_is_refused(root: Path, folder: Path) -> None:
    """1e999 is read as infinity by some and as an error by others."""
    sign_with(folder, '"point": 2.5,', '"point": 1e999,')
    refused(root, "statement.json", "1e999")


def test_a_number_of_5000_digits_is_refused(root: Path, folder: Path) -> None:
    """Reading it takes a time that grows with the square of its length."""
    sign_with(folder, '"point": 2.5,', f'"point": {"9" * 5000},')
    refused(root, "statement.json", "an integer of 5000 digits")


def test_an_integer_too_large_for_a_float_is_refused(root: Path, folder: Path) -> None:
    """It passes every check that compares, and ends with an error whoever multiplies it by a share."""
    sign_with(folder, '"point": 2.5,', f'"point": {10**309},')
    refused(root, "statement.json", "an integer of 310 digits")


def test_carriage_returns_are_refused(root: Path, folder: Path) -> None:
    """The same text with the line ends of another system is another file with another digest."""
    sign_bytes_again(folder, (folder / "statement.json").read_bytes().replace(b"\n", b"\r\n"))
    refused(root, "statement.json", "its bytes are not the canonical form")


def test_the_same_document_in_another_form_is_refused(root: Path, folder: Path) -> None:
    """Without line breaks nobody can review it, and it would be a second statement with the same content."""
    sign_bytes_again(folder, json.dumps(json.loads((folder / "statement.json").read_bytes())).encode())
    refused(root, "statement.json", "its bytes are not the canonical form")


def test_a_byte_order_mark_is_refused(root: Path, folder: Path) -> None:
    """Some programs skip it, so that they would read one document from two files."""
    sign_bytes_again(folder, b"\xef\xbb\xbf" + (folder / "statement.json").read_bytes())
    refused(root, "statement.json", "Unexpected UTF-8 BOM")


def test_bytes_after_the_end_of_the_document_are_refused(root: Path, folder: Path) -> None:
    """A second document behind the first is shown by nobody who stops at the first."""
    sign_bytes_again(folder, (folder / "statement.json").read_bytes() + b"{}\n")
    refused(root, "statement.json", "Extra data")


def test_a_document_that_is_nested_too_deeply_is_refused(root: Path, folder: Path) -> None:
    """A hundred thousand brackets are to overflow the reader's stack."""
    sign_bytes_again(folder, b"[" * 100_000)
    refused(root, "statement.json", "it is nested too deeply")


@pytest.mark.parametrize("name", ["statement.json", "statement.json.sig", "ladder.json"])
def test_a_huge_file_is_refused_unread(root: Path, folder: Path, name: str) -> None:
    """A file beyond 64 MiB is to fill the reader's memory."""
    os.truncate(folder / name, MAX_DOCUMENT_BYTES + 1)
    refused(root, name, f"has {MAX_DOCUMENT_BYTES + 1} bytes, more than {MAX_DOCUMENT_BYTES}")


def test_a_name_with_a_cyrillic_letter_is_refused(root: Path, folder: Path) -> None:
    """A registrant who looks like ada@example.org and is not she."""
    sign_again(folder, lambda predicate: predicate.update(registrant="\u0430da@example.org"))
    refused(root, "statement.json: predicate.registrant")


def test_a_key_that_looks_like_a_known_one_is_refused(root: Path, folder: Path) -> None:
    """A second point, written with a Greek omicron, is to be taken for the first."""
    sign_again(folder, lambda predicate: predicate["forecast"].update({"p\u03bfint": 2.4}))
    refused(root, "statement.json: predicate.forecast.p\u03bfint", "unknown key")


def test_a_key_that_nobody_reads_is_refused(root: Path, folder: Path) -> None:
    """A condition in small print, under a name that this tool does not show."""
    sign_again(folder, lambda predicate: predicate["resolution"].update(unless="it looks bad"))
    refused(root, "statement.json: predicate.resolution.unless", "unknown key")


def test_digits_of_another_script_are_refused(root: Path, folder: Path) -> None:
    """An assumption numbered with an Arabic three is another than A3, and looks like none."""
    sign_again(folder, lambda said: said["assumptions"].append({"id": "A\u0663", "text": "no z-loss", "ifFalse": ""}))
    refused(root, "statement.json: predicate.assumptions.0.id")


def test_a_sign_that_steers_a_terminal_is_refused(root: Path, folder: Path) -> None:
    """An escape sequence in the registrant's words is to paint over what verify says."""
    sign_again(folder, lambda said: said["resolution"]["voidIf"].append("\x1b[2K\rstatement  ok"))
    refused(root, "statement.json: predicate.resolution.voidIf.1", "holds U+001B")


HIDDEN = (
    "\u202e",
    "\u202a",
    "\u2066",
    "\u2069",
    "\u200b",
    "\u200f",
    "\ufeff",
    "\u00ad",
    "\U000e0041",
    "\ud800",
    "\u3164",
    "\x1b",
)


@pytest.mark.parametrize("sign", HIDDEN)
def test_a_sign_that_nobody_sees_is_refused(root: Path, folder: Path, sign: str) -> None:
    """A condition that is shown in another order than it is read, or looks equal to another and is not."""
    sign_again(folder, lambda said: said["resolution"]["voidIf"].append(f"the run {sign}ends"))
    refused(root, "statement.json: predicate.resolution.voidIf.1", f"holds U+{ord(sign):04X}")


def test_a_sign_that_nobody_sees_in_a_file_of_any_keys_is_refused(root: Path, folder: Path) -> None:
    """In the data's source, and in a key of its own, where no shape is fixed."""

    def spoil(target: dict[str, Any]) -> None:
        target["optimizer"]["beta\u200b1"] = 0.9

    sign_again(folder, files=edited(folder, "target.json", spoil))
    refused(root, "target.json: optimizer.beta\\u200b1", "holds U+200B")


@pytest.mark.parametrize("name", ["a\nladder ok", "a\x1b[8m"])
def test_a_ladders_name_of_two_lines_is_refused(root: Path, folder: Path, name: str) -> None:
    """The rest of it would look like a line of verify's own."""
    sign_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder.update(ladder=name)))
    refused(root, "ladder.json: ladder holds U+00")


def test_a_notice_with_a_sign_that_turns_its_words_is_refused(root: Path, folder: Path) -> None:
    """A reason that a reader sees backwards."""
    said = {"key": signing_key(), "principal": PRINCIPAL, "at": CREATED_AT + timedelta(days=1)}
    with pytest.raises(DocumentError, match=r"reason holds U\+202E"):
        give_notice(folder, "withdraw", reason="not \u202etaken back", **said)
    notice = give_notice(folder, "withdraw", reason="taken back", **said) / "notice.json"
    edit(notice, lambda document: document.update(reason="not \u202etaken back"))
    notice.with_name("notice.json.sig").write_bytes(signing_key().sign(notice.read_bytes()))
    log_again(folder.parent)
    refused(root, "notice.json: reason", "holds U+202E")


def test_a_file_that_looks_like_the_statement_is_refused(root: Path, folder: Path) -> None:
    """A kinder statement.json beside the real one, with a Cyrillic letter in its name."""
    shutil.copy(folder / "statement.json", folder / "st\u0430tement.json")
    refused(root, "st\u0430tement.json does not belong to a preregistration")


@pytest.mark.parametrize("name", ["notes.txt", "forecast.json.bak", ".hidden"])
def test_an_unsigned_file_beside_the_statement_is_refused(root: Path, folder: Path, name: str) -> None:
    """What is not signed must not lie among what is, or it would be taken for a part of it."""
    (folder / name).write_text("x")
    refused(root, f"{name} does not belong to a preregistration")


@pytest.mark.parametrize("name", ["statement.json", "statement.json.sig", "ladder.json", "forecast.json", "target.json"])
def test_a_file_that_is_withheld_is_named(root: Path, folder: Path, name: str) -> None:
    """The ladder behind a forecast, above all, is not for its registrant alone to see."""
    (folder / name).unlink()
    refused(root, f"{name} is missing")


def test_a_link_in_place_of_a_file_is_refused(root: Path, folder: Path) -> None:
    """What a link leads to can be exchanged after every check."""
    shutil.move(folder / "ladder.json", root / "elsewhere.json")
    os.symlink(root / "elsewhere.json", folder / "ladder.json")
    refused(root, "ladder.json is a link")


def test_a_link_in_place_of_the_folder_is_refused(root: Path, folder: Path) -> None:
    """The same with the whole preregistration."""
    shutil.move(folder, root / folder.name)
    os.symlink(root / folder.name, folder)
    refused(root, f"{folder.name} is a link")


def test_a_link_in_place_of_the_log_is_refused(root: Path, registry: Path) -> None:
    """A log that lies elsewhere could be exchanged without a change to the registry."""
    shutil.move(registry / "log.jsonl", root / "log.jsonl")
    os.symlink(root / "log.jsonl", registry / "log.jsonl")
    refused(root, "log.jsonl is a link")


def test_a_pipe_in_place_of_a_file_is_refused(root: Path, folder: Path) -> None:
    """A reader who opened it would wait for ever."""
    (folder / "ladder.json").unlink()
    os.mkfifo(folder / "ladder.json")
    refused(root, "ladder.json is a pipe")


@pytest.mark.parametrize("name", ["../ladder.json", "/etc/passwd", "ladder.json/../x"])
def test_a_subject_outside_of_the_folder_is_refused(root: Path, folder: Path, name: str) -> None:
    """A statement about a file that does not lie beside it could be about any."""
    edit(folder / "statement.json", lambda document: document["subject"][0].update(name=name))
    sign_bytes_again(folder, (folder / "statement.json").read_bytes())
    refused(root, "statement.json: subject.0.name", repr(name))


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "a ladder"])
def test_a_ladder_outside_of_the_run_store_is_refused(root: Path, folder: Path, name: str) -> None:
    """Runs of the forger's own, in a folder where nobody looks for any."""
    sign_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder.update(ladder=name)))
    refused(root, "ladder.json: ladder")


def test_a_run_outside_of_its_ladder_is_refused(root: Path, folder: Path) -> None:
    """A row of the ladder that leads to a record somewhere else."""
    run = "../../0123456789abcdef"
    sign_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder["rows"][0].update(run=run)))
    refused(root, "ladder.json: the run ../../0123456789abcdef is not in")
