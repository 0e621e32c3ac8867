"""A registry only ever grows: what came in is chained line by line, and nothing is taken out, exchanged or put in between."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st
from registration_factory import CREATED_AT, make_registration, make_second_registration, signing_key, store_run
from typer.testing import CliRunner

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.check.history import log_step, require_whole
from marin_scaling.check.verdict import check_preregistration
from marin_scaling.cli.app import app
from marin_scaling.errors import DocumentError, UsageError, VerificationError
from marin_scaling.preregistration.countersignature import countersign
from marin_scaling.preregistration.log import FIRST_PREVIOUS, LOG_NAME, Log, extends, parse_log, read_log, write_down
from marin_scaling.preregistration.registry import allow_signer, registration_folders, signers_path
from marin_scaling.preregistration.sshsig import make_signature

LATER = CREATED_AT + timedelta(days=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The first of two preregistrations in one registry; it has its outcome."""
    registration = make_registration(tmp_path)
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, day="2026-11-21")
    signers = signers_path(registration.folder)
    check_preregistration(registration.folder, runs_dir=tmp_path / "runs", allowed_signers=signers, checked_at=LATER)
    make_second_registration(tmp_path)
    return registration.folder


def lines(folder: Path) -> list[bytes]:
    """Those of the log, without their ends."""
    return (folder.parent / LOG_NAME).read_bytes().split(b"\n")[:-1]


def rewrite(folder: Path, changed: list[bytes]) -> None:
    """Write other lines into the log."""
    (folder.parent / LOG_NAME).write_bytes(b"".join(line + b"\n" for line in changed))


def chained(documents: list[dict[str, object]]) -> list[bytes]:
    """Lines whose numbers and chain are right: the log of a forger who rewrites all of it."""
    made: list[bytes] = []
    for number, document in enumerate(documents):
        previous = sha256_hex(made[-1]) if made else FIRST_PREVIOUS
        made.append(json.dumps(document | {"seq": number, "prev": previous}, sort_keys=True, separators=(",", ":")).encode())
    return made


def verify(folder: Path) -> str:
    """The evidence of the step."""
    log = read_log(folder.parent)
    require_whole(folder.parent, log=log)
    return log_step(folder, log=log).evidence


def test_every_event_has_a_line(folder: Path) -> None:
    """Registered, resolved, and the second one registered."""
    said = [(entry.kind, entry.id) for entry in read_log(folder.parent).entries]
    assert said == [("register", folder.name), ("outcome", folder.name), ("register", "2026-11-20-second")]
    assert verify(folder) == "lines register 1, outcome 2 of 3, each chained to the one before; logged at 2026-11-20T08:30:00Z"


def test_a_registry_without_a_log_says_what_is_not_shown(folder: Path) -> None:
    """Nothing is refused that was sound before there were logs."""
    (folder.parent / LOG_NAME).unlink()
    step = log_step(folder, log=read_log(folder.parent))
    assert not step.compared
    assert "nothing shows that none was taken out" in step.evidence


def test_writing_down_twice_adds_nothing(folder: Path) -> None:
    """A command that was interrupted is typed again."""
    before = lines(folder)
    assert write_down(folder.parent, at=LATER) == []
    assert lines(folder) == before


def test_what_another_branch_logged_first_stays_first(folder: Path) -> None:
    """Our lines are made again behind theirs; nothing has to be signed again."""
    rewrite(folder, lines(folder)[:1])
    added = write_down(folder.parent, at=LATER)
    assert [(entry.kind, entry.id) for entry in added] == [("register", "2026-11-20-second"), ("outcome", folder.name)]
    assert verify(folder)


def test_a_reviewers_signature_is_an_event(folder: Path) -> None:
    """And is missed until it is logged."""
    key = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([2] * 32)))
    allow_signer(folder.parent, principal="bob@example.org", key=key.public_key, at=CREATED_AT)
    signed = countersign(folder, key=key, principal="bob@example.org")
    with pytest.raises(VerificationError, match=r"bob@example\.org\.sig is not in the log"):
        verify(folder)
    write_down(folder.parent, at=LATER)
    assert "review 4" in verify(folder)
    signed.unlink()
    with pytest.raises(VerificationError, match="and there is no file"):
        verify(folder)


def spoil(name: str, found: list[bytes]) -> list[bytes]:
    """The lines, changed in one way."""
    first, outcome, last = found
    match name:
        case "reordered":
            return [outcome, first, last]
        case "duplicated":
            return [first, first, outcome, last]
        case "one taken out":
            return [first, last]
        case "the first taken out":
            return [outcome, last]
        case "another number":
            return [first, outcome.replace(b'"seq":1', b'"seq":2'), last]
        case "another time":
            return [first, outcome.replace(b"2026-11-22", b"2026-11-21"), last]
        case "carriage returns":
            return [line + b"\r" for line in found]
        case "spaces":
            return [line.replace(b'":', b'": ') for line in found]
        case "an empty line":
            return [first, b"", outcome, last]
        case _:
            return [first.replace(b'{"', b'{"also":1,"', 1), outcome, last]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("reordered", "line 1: it says that it is number 1"),
        ("duplicated", "line 2: it says that it is number 0"),
        ("one taken out", "line 2: it says that it is number 2"),
        ("the first taken out", "line 1: it says that it is number 1"),
        ("another number", "line 2: it says that it is number 2"),
        ("another time", "line 3: it does not name the digest of the line before"),
        ("carriage returns", "line 1: it is not written in the one canonical way"),
        ("spaces", "line 1: it is not written in the one canonical way"),
        ("an empty line", "line 2"),
        ("an unknown key", "also: this key is not known"),
    ],
)
def test_a_log_that_was_changed_is_refused(folder: Path, change: str, reason: str) -> None:
    """The refusal names the first line that is wrong."""
    rewrite(folder, spoil(change, lines(folder)))
    with pytest.raises((VerificationError, DocumentError), match=reason):
        verify(folder)


def test_a_log_whose_end_is_cut_off_is_refused(folder: Path) -> None:
    """In the middle of a line."""
    path = folder.parent / LOG_NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(VerificationError, match="its last line has no end"):
        verify(folder)


def test_a_preregistration_that_was_taken_out_is_missed(folder: Path) -> None:
    """The one that failed must not disappear."""
    shutil.rmtree(folder)
    with pytest.raises(VerificationError, match=rf"{folder.name} is missing, and .*log\.jsonl, line 1, says"):
        require_whole(folder.parent, log=read_log(folder.parent))


def test_a_preregistration_that_did_not_come_in_by_the_log_is_refused(folder: Path) -> None:
    """Put in by hand, with another date."""
    shutil.copytree(folder, folder.with_name("2026-11-19-older"))
    with pytest.raises(VerificationError, match="says of 2026-11-19-older: nothing"):
        verify(folder.with_name("2026-11-19-older"))


def test_signing_again_is_seen(folder: Path) -> None:
    """A better statement, signed by the same key, under the old line."""
    path = folder / "statement.json.sig"
    key = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([3] * 32)))
    path.write_bytes(make_signature((folder / "statement.json").read_bytes(), private_key=key.private_key))
    with pytest.raises(VerificationError, match=r"statement\.json\.sig: line 1 of the log has the digest"):
        verify(folder)
    with pytest.raises(VerificationError, match="differ from what"):
        write_down(folder.parent, at=LATER)


def test_an_outcome_that_was_written_again_is_seen(folder: Path) -> None:
    """Also a kinder one, and also none."""
    (folder / "outcome.json").write_bytes(b"{}\n")
    with pytest.raises(VerificationError, match=r"outcome\.json: line 2 of the log"):
        verify(folder)
    (folder / "outcome.json").unlink()
    with pytest.raises(VerificationError, match="and there is no file"):
        verify(folder)


def test_a_line_that_is_older_than_its_statement_is_refused(folder: Path) -> None:
    """A forger who rewrites the whole log to look early."""
    documents = [json.loads(line) | {"logged_at": "2026-11-01T00:00:00Z"} for line in lines(folder)]
    rewrite(folder, chained(documents))
    with pytest.raises(VerificationError, match=r"was made at 2026-11-20T08:30:00Z by its own word, and logged before"):
        verify(folder)


@pytest.mark.parametrize("time", ["2026-11-31T08:30:00Z", "9999-99-99T99:99:99Z", "2026-11-2３T08:30:00Z"])
def test_a_line_is_logged_at_a_moment(folder: Path, time: str) -> None:
    """No line after it could be younger, and none be compared with it."""
    *others, last = (json.loads(line) for line in lines(folder))
    rewrite(folder, chained([*others, last | {"logged_at": time}]))
    with pytest.raises((VerificationError, DocumentError), match="line 3"):
        verify(folder)


def test_lines_stand_in_the_order_of_their_times(folder: Path) -> None:
    """A fraction of a second is later than the second, though its text sorts before; the next line goes on from there."""
    documents = [json.loads(line) for line in lines(folder)]
    times = ("2026-11-22T08:30:00Z", "2026-11-22T08:30:00.5Z", "2026-11-22T08:30:00.75Z")
    timed = [document | {"logged_at": time} for document, time in zip(documents, times, strict=True)]
    rewrite(folder, chained(timed))
    assert verify(folder)
    rewrite(folder, chained(timed[:2]))
    [added] = write_down(folder.parent, at=LATER)
    assert added.logged_at == "2026-11-22T08:30:00.5Z"
    rewrite(folder, chained([documents[0] | {"logged_at": times[1]}, documents[1] | {"logged_at": times[0]}]))
    with pytest.raises(VerificationError, match="before the line above it"):
        verify(folder)


def test_one_preregistration_is_registered_once(folder: Path) -> None:
    """Two lines would be two promises."""
    documents = [json.loads(line) for line in lines(folder)]
    rewrite(folder, chained([*documents, documents[0] | {"logged_at": "2026-11-23T00:00:00Z"}]))
    with pytest.raises(VerificationError, match=r"has 2026-11-20-tiny-target/statement\.json twice, in the lines 1 and 4"):
        verify(folder)


def test_an_outcome_is_logged_once(folder: Path) -> None:
    """An edited outcome with a line of its own at the end, as someone would add who knows how the chain is made."""
    path = folder / "outcome.json"
    path.write_bytes(path.read_bytes().replace(b"held", b"kept"))
    documents = [json.loads(line) for line in lines(folder)]
    again = {**documents[1], "files": {"outcome.json": sha256_hex(path.read_bytes())}, "logged_at": "2026-11-23T00:00:00Z"}
    rewrite(folder, chained([*documents, again]))
    with pytest.raises(VerificationError, match=r"outcome\.json twice, in the lines 2 and 4"):
        verify(folder)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"statement.json": "0" * 64},
        {"statement.json": "0" * 64, "statement.json.sig": "0" * 64, "ladder.json": "0" * 64},
        {"../2026-11-20-second/statement.json": "0" * 64},
        {"outcome.json": "0" * 64},
    ],
    ids=["none", "no signature", "one more", "of another folder", "of another type"],
)
def test_a_line_names_the_files_of_its_type(folder: Path, files: dict[str, str]) -> None:
    """One that names none would bind nothing, and one that leads elsewhere something else."""
    documents = [json.loads(line) for line in lines(folder)]
    rewrite(folder, chained([documents[0] | {"files": files}, *documents[1:]]))
    with pytest.raises(VerificationError, match=r"line 1: .* is not what a line of the type 'register' names"):
        verify(folder)


def test_a_log_extends_another_only_at_its_end() -> None:
    """Whole lines, in front, unchanged."""
    assert extends(b"", b"")
    assert extends(b"a\n", b"a\nb\n")
    for head in (b"", b"b\n", b"b\na\n", b"a"):
        assert not extends(b"a\n", head)
    assert not extends(b"a", b"ab\n")


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_a_log_or_refused(raw: bytes) -> None:
    """With an error meant for a reader; only nothing is a log without lines."""
    try:
        assert parse_log(raw, name="log.jsonl") == Log(entries=())
    except (VerificationError, DocumentError):
        return
    assert raw == b""


def test_the_log_command_says_what_it_added(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line each, and how many there are."""
    monkeypatch.chdir(tmp_path)
    rewrite(folder, lines(folder)[:2])
    said = CliRunner().invoke(app, ["log"])
    root = read_log(folder.parent).root
    assert said.stdout == f"line 3: register 2026-11-20-second\npreregistrations/log.jsonl has 3 lines; root {root}\n"


def test_a_proof_shows_someone_with_the_root_alone_that_a_line_is_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows nothing for another root, or another line."""
    monkeypatch.chdir(tmp_path)
    root = read_log(folder.parent).root
    proof = CliRunner().invoke(app, ["log", "--prove", folder.name]).stdout
    (tmp_path / "proof.json").write_text(proof)
    said = CliRunner().invoke(app, ["log", "--check-proof", "proof.json", "--root", root])
    assert said.stdout == f"{folder.name} stands in that log, line 1, since 2026-11-20T08:30:00Z.\n"
    for changed, against in (
        (proof, "0" * 64),
        (proof.replace("tiny", "tony"), root),
        (proof.replace('"index": 0', '"index": 1'), root),
    ):
        (tmp_path / "proof.json").write_text(changed)
        refused = CliRunner().invoke(app, ["log", "--check-proof", "proof.json", "--root", against])
        assert isinstance(refused.exception, VerificationError)
        assert "is not shown to stand in the log of 3 lines" in str(refused.exception)


@pytest.mark.parametrize(
    "arguments", [["--prove", "nothing"], ["--check-proof", "proof.json"], ["--check-proof", "p", "--root", "1"]]
)
def test_a_proof_of_nothing_is_bad_input(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """With what to type."""
    monkeypatch.chdir(tmp_path)
    assert isinstance(CliRunner().invoke(app, ["log", *arguments]).exception, UsageError)


def test_this_repositorys_own_registry_is_whole() -> None:
    """Nothing that was forecast here is missing."""
    registry = Path(__file__).parents[3] / "preregistrations"
    log = read_log(registry)
    require_whole(registry, log=log)
    assert all(log_step(folder, log=log).compared for folder in registration_folders(registry))
