"""A registry only ever grows: how its log is written and read; attacks on it are in `tests/attacks`."""

from datetime import timedelta
from pathlib import Path

import pytest
from forgery import BOB, allow, chain, key_of, log_entries, log_lines, write_lines
from git_repository import commit, git
from hypothesis import given, settings
from hypothesis import strategies as st
from registration_factory import CREATED_AT, make_registration, make_second_registration, store_run
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import DocumentError, VerificationError
from marin_scaling.preregistration.layout import LOG_NAME
from marin_scaling.preregistration.log import Log, extends, parse_log, read_log, write_down
from marin_scaling.preregistration.register import countersign
from marin_scaling.preregistration.registry import registration_folders, signers_path
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.preregistration.verdict import check_preregistration
from marin_scaling.preregistration.verify.rules import log_step, require_whole

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


def verify(folder: Path) -> str:
    """The evidence of the step."""
    log = read_log(folder.parent)
    require_whole(folder.parent, log=log)
    return log_step(folder, log=log).evidence


def test_every_event_has_a_line(folder: Path) -> None:
    """Registered, resolved, and the second one registered."""
    said = [(entry.kind, entry.id) for entry in read_log(folder.parent).entries]
    assert said == [("register", folder.name), ("outcome", folder.name), ("register", "2026-11-20-second")]
    assert verify(folder) == (
        "lines register 1, outcome 2 of 3, each chained to the one before; logged at 2026-11-20T08:30:00Z, "
        f"{moment_text(LATER)}"
    )


def test_a_registry_without_a_log_says_what_is_not_shown(folder: Path) -> None:
    """Nothing is refused that was sound before there were logs."""
    (folder.parent / LOG_NAME).unlink()
    step = log_step(folder, log=read_log(folder.parent))
    assert not step.compared
    assert "nothing shows that none was taken out" in step.evidence


def test_writing_down_twice_adds_nothing(folder: Path) -> None:
    """A command that was interrupted is typed again."""
    before = log_lines(folder.parent)
    assert write_down(folder.parent, at=LATER) == []
    assert log_lines(folder.parent) == before


def test_what_another_branch_logged_first_stays_first(folder: Path) -> None:
    """Our lines are made again behind theirs; nothing has to be signed again."""
    write_lines(folder.parent, log_lines(folder.parent)[:1])
    added = write_down(folder.parent, at=LATER)
    assert [(entry.kind, entry.id) for entry in added] == [("register", "2026-11-20-second"), ("outcome", folder.name)]
    assert verify(folder)


def test_a_reviewers_signature_is_an_event(folder: Path) -> None:
    """With a line of its own."""
    allow(folder.parent, BOB)
    countersign(folder, key=key_of(BOB), principal=BOB)
    write_down(folder.parent, at=LATER)
    assert "review 4" in verify(folder)


def test_what_differs_from_the_log_is_not_written_down(folder: Path) -> None:
    """Typing `marin-scale registry log` after an edit does not make the edit good."""
    (folder / "outcome.json").write_bytes(b"{}\n")
    with pytest.raises(VerificationError, match=r"outcome\.json.*log\.jsonl"):
        write_down(folder.parent, at=LATER)


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
    write_lines(folder.parent, log_lines(folder.parent)[:2])
    said = CliRunner().invoke(app, ["registry", "log"])
    assert said.stdout == "added line 3: register 2026-11-20-second\npreregistrations/log.jsonl has 3 lines\n"


def test_lines_that_were_lost_and_are_written_anew_are_said_to_count_as_of_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With when the log of the last commit had them, and how to have that back."""
    monkeypatch.chdir(folder.parents[1])
    git(folder.parents[1], "init", "-q")
    commit(folder.parents[1])
    write_lines(folder.parent, log_lines(folder.parent)[:1])
    said = CliRunner().invoke(app, ["registry", "log"]).stdout
    assert f"2026-11-20-second, logged at {moment_text(LATER)}" in said
    git(folder.parents[1], *said.partition("restore the log: git ")[2].splitlines()[0].split())
    assert "stood in" not in CliRunner().invoke(app, ["registry", "log"]).stdout


def test_this_repositorys_own_registry_is_whole() -> None:
    """Nothing that was forecast here is missing."""
    registry = Path(__file__).parents[3] / "preregistrations"
    log = read_log(registry)
    require_whole(registry, log=log)
    assert all(log_step(folder, log=log).compared for folder in registration_folders(registry))


@pytest.mark.parametrize("time", ["2026-11-31T08:30:00Z", "9999-99-99T99:99:99Z", "2026-11-2３T08:30:00Z"])
def test_a_line_is_logged_at_a_moment(folder: Path, time: str) -> None:
    """No line after it could be younger, and none be compared with it."""
    *others, last = log_entries(folder.parent)
    chain(folder.parent, [*others, last | {"logged_at": time}])
    with pytest.raises((VerificationError, DocumentError), match="line 3"):
        verify(folder)


def test_lines_stand_in_the_order_of_their_times(folder: Path) -> None:
    """A fraction of a second is later than the second, though its text sorts before; the next line goes on from there."""
    documents = log_entries(folder.parent)
    times = ("2026-11-22T08:30:00Z", "2026-11-22T08:30:00.5Z", "2026-11-22T08:30:00.75Z")
    timed = [document | {"logged_at": time} for document, time in zip(documents, times, strict=True)]
    chain(folder.parent, timed)
    assert verify(folder)
    chain(folder.parent, timed[:2])
    [added] = write_down(folder.parent, at=LATER)
    assert added.logged_at == "2026-11-22T08:30:00.5Z"
    chain(folder.parent, [documents[0] | {"logged_at": times[1]}, documents[1] | {"logged_at": times[0]}])
    with pytest.raises(VerificationError, match="before the line above it"):
        verify(folder)


def test_a_registry_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A mistyped name leaves no empty folder behind."""
    done = CliRunner().invoke(app, ["registry", "log", "--registry", str(tmp_path / "nowhere")])
    assert done.exit_code == 0
    assert "has 0 lines" in done.stdout
    assert not list(tmp_path.iterdir())


def test_marks_of_a_merge_in_a_log_are_told_with_the_way_out(folder: Path) -> None:
    """Take the one log, and add the lines of the other anew."""
    lines = log_lines(folder.parent)
    log = folder.parent / LOG_NAME
    log.write_bytes(lines[0] + b"\n<<<<<<< HEAD\n" + lines[1] + b"\n=======\n" + lines[2] + b"\n>>>>>>> main\n")
    with pytest.raises(VerificationError, match=r"log\.jsonl, line 2,.*merge") as error:
        read_log(folder.parent)
    assert "git checkout BRANCH" in error.value.fix
