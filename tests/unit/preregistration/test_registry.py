"""The registry: a preregistration appears whole, once, with a signature that strangers can verify."""

import shutil
import subprocess
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import (
    CREATED_AT,
    PRINCIPAL,
    forecast_document,
    ladder_rows,
    make_registration,
    run_spec,
    signing_key,
    target_spec,
)

from marin_scaling.errors import SigningError, StatementError, StorageError, UsageError
from marin_scaling.preregistration.format import SUBJECT_FILES
from marin_scaling.preregistration.register import standing_registration
from marin_scaling.preregistration.registry import allow_signer, find_folders, registration_folders, registration_id
from marin_scaling.preregistration.signing.keys import make_signing_key
from marin_scaling.preregistration.signing.sshsig import NAMESPACE


def test_the_folder_holds_statement_signature_and_subjects(tmp_path):
    """Statement, signature and what they name, and the list of signers and the log beside the folder."""
    registration = make_registration(tmp_path)
    assert registration.folder.name == "2026-11-20-tiny-target"
    names = sorted(path.name for path in registration.folder.iterdir())
    assert names == sorted(["statement.json", "statement.json.sig", *SUBJECT_FILES])
    assert registration.folder.joinpath("statement.json").read_bytes() == registration.statement.raw
    assert sorted(path.name for path in (tmp_path / "preregistrations").iterdir()) == [
        ".gitattributes",
        "2026-11-20-tiny-target",
        "allowed_signers",
        "log.jsonl",
    ]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen of OpenSSH is not installed")
def test_stock_ssh_keygen_accepts_a_registration(tmp_path):
    """The command in the documentation, word for word, with the real program."""
    folder = make_registration(tmp_path, key=make_signing_key(tmp_path / "key")).folder
    command = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "preregistrations" / "allowed_signers"), "-I", PRINCIPAL]
    command += ["-n", NAMESPACE, "-s", str(folder / "statement.json.sig")]
    statement = (folder / "statement.json").read_bytes()
    assert subprocess.run(command, input=statement, capture_output=True, check=False).returncode == 0
    edited = statement.replace(b"2.5", b"2.4", 1)
    assert subprocess.run(command, input=edited, capture_output=True, check=False).returncode != 0


def test_the_target_that_comes_back_carries_the_statement(tmp_path):
    """What must be trained next is handed over, bound."""
    registration = make_registration(tmp_path)
    assert registration.target.statement_sha256 == registration.statement.sha256
    assert registration.target.role == "target"


def test_the_reader_is_told_which_key_signed_and_that_a_signer_was_added_once(tmp_path):
    """The second forecast by the same signer adds no line."""
    first = make_registration(tmp_path)
    other = run_spec(hidden_dim=128, train_steps=900, role="target")
    rows = [{"run": "r", "budget_flops": 1.0, "flops": 1.0, "params": 1, "tokens": 1, "loss": 3.0}]
    forecast = forecast_document(flops=other.flops)
    second = make_registration(tmp_path, rows=rows, target=other, forecast=forecast, slug="second")
    assert first.added_signer.startswith(f"added {PRINCIPAL} with the key SHA256:")
    assert (second.key_note, second.added_signer) == ("signing with a test key", None)
    assert len((tmp_path / "preregistrations" / "allowed_signers").read_text().splitlines()) == 1


def test_a_second_preregistration_for_a_target_is_refused_and_names_the_first(tmp_path):
    """Of two forecasts one could be picked afterwards; nothing is written, no signer added."""
    make_registration(tmp_path)
    before = (tmp_path / "preregistrations" / "allowed_signers").read_bytes()
    rows = [{"run": "r", "budget_flops": 1.0, "flops": 1.0, "params": 1, "tokens": 1, "loss": 3.0}]
    with pytest.raises(StatementError, match="2026-11-20-tiny-target"):
        make_registration(tmp_path, rows=rows, slug="again", principal="bob@example.org")
    assert (tmp_path / "preregistrations" / "allowed_signers").read_bytes() == before
    assert len(registration_folders(tmp_path / "preregistrations")) == 1


def test_a_bound_target_counts_as_the_same_target(tmp_path):
    """Binding a spec first does not make it another target."""
    registration = make_registration(tmp_path)
    rows = [{"run": "r", "budget_flops": 1.0, "flops": 1.0, "params": 1, "tokens": 1, "loss": 3.0}]
    with pytest.raises(StatementError, match="already"):
        make_registration(tmp_path, rows=rows, slug="again", target=registration.target)


def test_an_interrupted_tool_finds_its_own_registration_again(tmp_path):
    """Typed again after a kill, the quickstart goes on with the forecast that stands."""
    assert standing_registration(target_spec(), registry_dir=tmp_path / "preregistrations") is None
    registration = make_registration(tmp_path)
    again = standing_registration(target_spec(), registry_dir=tmp_path / "preregistrations")
    assert (again.folder, again.target, again.statement) == (registration.folder, registration.target, registration.statement)


def test_the_same_name_for_another_target_is_refused(tmp_path):
    """A folder is never overwritten; how to give another name is said."""
    make_registration(tmp_path)
    other = run_spec(hidden_dim=128, train_steps=900, role="target")
    rows = [{"run": "r", "budget_flops": 1.0, "flops": 1.0, "params": 1, "tokens": 1, "loss": 3.0}]
    with pytest.raises(StatementError, match="--slug NAME"):
        make_registration(tmp_path, rows=rows, target=other, forecast=forecast_document(flops=other.flops))


@pytest.mark.parametrize("slug", ["", "Hero", "a b", "../x", "a/b", "-a", "a" * 65, "é"])
def test_a_slug_that_is_no_plain_name_is_refused(slug):
    """It becomes a folder, so it cannot lead out of the registry."""
    with pytest.raises(UsageError, match="not a valid slug"):
        registration_id(slug, created_at=CREATED_AT)


def test_a_key_that_a_maintainer_limited_is_not_added_again(tmp_path):
    """An expired line stays the last word on its key."""
    line = f'{PRINCIPAL} valid-before="20260101Z" {signing_key().public_key.text}\n'
    (tmp_path / "allowed_signers").write_text(line)
    with pytest.raises(SigningError, match="2026-01-01"):
        allow_signer(tmp_path, principal=PRINCIPAL, key=signing_key().public_key, at=CREATED_AT)
    assert (tmp_path / "allowed_signers").read_text() == line
    assert (
        allow_signer(tmp_path, principal=PRINCIPAL, key=signing_key().public_key, at=CREATED_AT - timedelta(days=365)) is None
    )


def test_a_signer_is_added_on_a_line_of_its_own(tmp_path):
    """Also after a last line that does not end."""
    (tmp_path / "allowed_signers").write_text("# maintainers")
    allow_signer(tmp_path, principal=PRINCIPAL, key=signing_key().public_key, at=CREATED_AT)
    first, second = (tmp_path / "allowed_signers").read_text().splitlines()
    assert first == "# maintainers"
    assert second.startswith(f'{PRINCIPAL} namespaces="{NAMESPACE}" ssh-ed25519 ')


def test_the_folder_one_stands_in_is_found_as_a_dot(tmp_path, monkeypatch):
    """A reviewer who has gone into the folder types `marin-scale verify .`"""
    folder = make_registration(tmp_path).folder
    monkeypatch.chdir(folder)
    assert find_folders(".", registry_dir=tmp_path / "preregistrations") == [folder]


def test_folders_are_found_by_name_by_path_and_all(tmp_path):
    """`verify` takes what a person would type."""
    folder, registry = make_registration(tmp_path).folder, tmp_path / "preregistrations"
    assert find_folders("all", registry_dir=registry) == [folder]
    assert find_folders(folder.name, registry_dir=registry) == [folder]
    assert find_folders(str(folder), registry_dir=tmp_path / "elsewhere") == [folder]
    with pytest.raises(UsageError, match="other"):
        find_folders("other", registry_dir=registry)
    with pytest.raises(StorageError, match="elsewhere"):
        find_folders("all", registry_dir=tmp_path / "elsewhere")


def test_a_second_key_of_a_name_is_told(tmp_path):
    """Someone else may have added it: a maintainer should see that the name had one already."""
    assert "beside" not in str(allow_signer(tmp_path, principal=PRINCIPAL, key=signing_key().public_key, at=CREATED_AT))
    other = signing_key(ed25519.Ed25519PrivateKey.generate()).public_key
    said = str(allow_signer(tmp_path, principal=PRINCIPAL, key=other, at=CREATED_AT))
    assert said.endswith("allowed_signers, which lists 1 other key of that name")


def test_a_name_that_the_log_has_and_whose_folder_is_gone_is_refused_before_anything_is_written(tmp_path):
    """The new one could never be logged; with another name it is another forecast."""
    folder = make_registration(tmp_path).folder
    shutil.rmtree(folder)
    rows = ladder_rows(tmp_path / "runs")
    with pytest.raises(StatementError, match=r"log\.jsonl, line 1, .*2026-11-20-tiny-target"):
        make_registration(tmp_path, rows=rows)
    assert not folder.exists()
    assert make_registration(tmp_path, rows=rows, slug="other").folder.exists()
