"""A signed file that was changed after signing: the first fact that every command states, with the command that restores it."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from amendment_factory import LATER, make_amendment
from forgery import BOB, chain, key_of, log_entries
from git_repository import commit, git
from one_page import page
from registration_factory import CREATED_AT, PRINCIPAL, make_second_registration, signing_key
from typer.testing import CliRunner

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.cli.app import app
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.layout import countersignature_name
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.registry import allow_signer, signers_path
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.printable import COMMITS_SEARCHED

FOLDER = Path("preregistrations/2026-11-20-tiny-target")
SECOND = Path("preregistrations/2026-11-20-second")


def set_value(keys: str, value: object) -> Callable[[Path], None]:
    """Return the edit that sets a value of a document, in the canonical form."""

    def edit(path: Path) -> None:
        document = json.loads(path.read_bytes())
        *above, last = keys.split(".")
        part = document
        for key in above:
            part = part[key]
        part[last.replace("|", ".")] = value
        path.write_bytes(dump_canonical(document))

    return edit


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def refusal(folder: Path = FOLDER) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=Path("runs"))
    return caught.value


def commit_of(root: Path, revision: str) -> str:
    """Return the id of a commit."""
    return subprocess.run(
        ["git", "rev-parse", "--short=12", revision], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def restored(error: VerificationError, root: Path) -> None:
    """Run the command of the fix; the forecast must verify afterwards."""
    command = shlex.split("git " + error.fix.partition("git ")[2])
    git(root, *command[1:])
    verify_folder(FOLDER, allowed_signers=signers_path(FOLDER))


EDITS = {
    "an unordered quantile": set_value("predicate.forecast.quantiles.0|5", 2.0),
    "another point": set_value("predicate.forecast.point", 2.4999),
    "another assumption": set_value("predicate.assumptions", [{"id": "A1", "text": "x", "ifFalse": ""}]),
    "an unknown key": set_value("predicate.x", 1),
    "no JSON": truncate,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("committed", [True, False])
def test_an_edited_statement_is_named_with_the_commit_that_has_its_signed_bytes(
    root: Path, edit: Callable[[Path], None], committed: bool
) -> None:
    """Whatever else the edit broke: the signature is checked before the content."""
    signed = commit_of(root, "HEAD")
    edit(FOLDER / "statement.json")
    if committed:
        commit(root)
    error = refusal()
    assert error.lines[0].startswith(f"{FOLDER}/statement.json was changed after signing")
    assert error.fix.endswith(f"git checkout {signed} -- {FOLDER}/statement.json")
    assert "quantile" not in str(error)
    restored(error, root)


def test_the_newest_of_several_signed_versions_is_named(root: Path) -> None:
    """An edit that was taken back and made again."""
    path = FOLDER / "statement.json"
    signed = path.read_bytes()
    for content in (b"{}\n", signed, b"[]\n"):
        path.write_bytes(content)
        commit(root)
    assert f"git checkout {commit_of(root, 'HEAD~1')} -- {path}" in refusal().fix


def test_an_exchanged_signature_is_named_and_not_its_statement(root: Path) -> None:
    """The statement is as it was signed."""
    path = FOLDER / "statement.json.sig"
    path.write_bytes(signing_key().sign(b"other bytes"))
    commit(root)
    error = refusal()
    assert error.lines[0].startswith(f"{path} was changed after signing")
    restored(error, root)


def test_no_commit_is_named_where_none_has_the_signed_bytes(root: Path) -> None:
    """The error states it, with the number of commits that were searched."""
    make_second_registration(root)
    truncate(SECOND / "statement.json")
    commit(root)
    error = refusal(SECOND)
    assert error.lines[0].startswith(f"{SECOND}/statement.json")
    assert "git checkout" not in error.fix
    assert str(COMMITS_SEARCHED) in error.fix


def test_a_signature_of_a_reviewer_that_does_not_fit_accuses_no_statement(root: Path) -> None:
    """The registrant's signature still fits."""
    allow_signer(FOLDER.parent, principal=BOB, key=key_of(BOB).public_key, at=CREATED_AT)
    (FOLDER / countersignature_name(BOB)).write_bytes(key_of(BOB).sign(b"other bytes"))
    assert refusal().lines[0].startswith(f"{FOLDER}/{countersignature_name(BOB)}")


@pytest.mark.parametrize("name", ["notice.json", "amendment.json"])
def test_later_signed_files_are_checked_like_the_statement(root: Path, name: str) -> None:
    """Of a notice and of an amendment, before their content."""
    if name == "notice.json":
        at = datetime.now(UTC) - timedelta(minutes=1)
        place = give_notice(FOLDER, "deviate", key=signing_key(), principal=PRINCIPAL, at=at, reason="x", from_step=1)
        write_down(FOLDER.parent, at=datetime.now(UTC))
    else:
        place = FOLDER / make_amendment(FOLDER, at=LATER).name
    commit(root)
    path = FOLDER / place.name / name
    path.write_bytes(b"{}\n")
    commit(root)
    error = refusal()
    assert error.lines[0].startswith(f"{path} was changed after signing")
    restored(error, root)


def test_an_edited_file_that_the_statement_names_is_restored_from_its_commit(root: Path) -> None:
    """Its digest is signed, and no signature is its own."""
    signed, path = commit_of(root, "HEAD"), FOLDER / "ladder.json"
    path.write_bytes(b"{}\n")
    commit(root)
    error = refusal()
    assert error.lines[0].startswith(f"{path} was changed after signing")
    assert f"git checkout {signed} -- {path}" in error.fix
    path.unlink()
    commit(root)
    error = refusal()
    assert "missing" in error.lines[0]
    assert f"git checkout {signed} -- {path}" not in error.fix, "the newest commit that has the file"
    assert f"-- {path}" in error.fix


@pytest.mark.parametrize("command", ["verify all", "verify all --base main", "check all", "review --base main"])
@pytest.mark.parametrize("is_new", [True, False])
def test_every_command_says_first_that_a_file_was_changed_after_signing(root: Path, command: str, is_new: bool) -> None:
    """Of a forecast of the branch, and of one of its base."""
    folder = FOLDER
    if is_new:
        folder = SECOND
        make_second_registration(root)
        commit(root)
    signed = commit_of(root, "HEAD")
    EDITS["an unordered quantile"](folder / "statement.json")
    commit(root)
    result = CliRunner().invoke(app, command.split())
    said = f"{result.output}\n{result.exception if isinstance(result.exception, VerificationError) else ''}"
    assert result.exit_code == 1
    flat = " ".join(said.replace("&#45;", "-").split())
    fact = flat.index(f"{folder}/statement.json was changed after signing")
    assert f"git checkout {signed} -- {folder}/statement.json" in flat
    assert "not above" not in flat
    assert "was changed since" not in flat[:fact]


def test_the_page_of_a_forecast_names_the_edit_and_the_commit(root: Path) -> None:
    """In place of its numbers."""
    signed = commit_of(root, "HEAD")
    EDITS["an unordered quantile"](FOLDER / "statement.json")
    commit(root)
    text = page(root, f"preregistrations/{FOLDER.name}.md")
    assert "was changed after signing" in text
    assert signed in text


def test_a_removed_folder_is_restored_whole(root: Path) -> None:
    """With one command, by `review` and by `verify`."""
    signed = commit_of(root, "HEAD")
    shutil.rmtree(FOLDER)
    commit(root)
    result = CliRunner().invoke(app, ["review", "--base", "main"])
    assert f"git checkout main -- {FOLDER}\n" in result.output
    missing = CliRunner().invoke(app, ["verify", "all"]).exception
    assert isinstance(missing, VerificationError)
    assert missing.fix.endswith(f"git checkout {signed} -- {FOLDER}")


def replace_in(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Return the edit that replaces bytes of a file."""

    def edit(path: Path) -> None:
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))

    return edit


def record_another_digest(path: Path) -> None:
    """Write the log anew, with another digest of the statement."""
    entries = log_entries(path.parent)
    chain(path.parent, [{**each, "files": {**each["files"], "statement.json": "0" * 64}} for each in entries])


UNSIGNED = {
    "a line of the log": ("log.jsonl", replace_in(b'"seq":0', b'"seq":3')),
    "a cut log": ("log.jsonl", truncate),
    "a digest in the log": ("log.jsonl", record_another_digest),
    "a loss": ("record.json", set_value("loss", 2.0)),
    "the bytes of a record": ("record.json", truncate),
    "the digest of a curve": ("record.json", set_value("history_sha256", "0" * 64)),
    "a curve": ("history.json", truncate),
    "a spec": ("spec.json", set_value("train_steps", 7)),
    "a whole run": (".", shutil.rmtree),
}


@pytest.mark.parametrize(("name", "edit"), UNSIGNED.values(), ids=UNSIGNED)
def test_a_changed_log_or_run_is_restored_by_the_printed_command(root: Path, name: str, edit: Callable[[Path], None]) -> None:
    """Whether its digest is known, or only its values are signed."""
    signed, run = commit_of(root, "HEAD"), sorted(Path("runs/tiny").iterdir())[0]
    path = FOLDER.parent / name if name == "log.jsonl" else run / name
    edit(path)
    commit(root)
    result = CliRunner().invoke(app, ["verify", "all", "--no-refit"])
    assert result.exit_code == 1
    said = f"{result.output}\n{result.exception if isinstance(result.exception, VerificationError) else ''}"
    assert f"git checkout {signed} -- {path}" in said
    git(root, *shlex.split(said.partition("fix: ")[2].partition("git ")[2].partition("\n")[0].partition(". ")[0]))
    assert CliRunner().invoke(app, ["verify", "all", "--no-refit"]).exit_code == 0
