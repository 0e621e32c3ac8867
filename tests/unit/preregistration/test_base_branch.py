"""What a pull request may do to a registry, in a real git repository: add, and nothing else."""

from pathlib import Path

import pytest
from forgery import BOB, key_of
from git_repository import branch_off, commit, git
from registration_factory import CREATED_AT, make_registration, make_second_registration
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError, RunTableError, UsageError, VerificationError
from marin_scaling.preregistration.layout import RECORD_NAME
from marin_scaling.preregistration.public_record import COLUMNS
from marin_scaling.preregistration.registry import allow_signer
from marin_scaling.preregistration.review.pull_request import base_step, is_uncommitted, logged_there, signers_at, trust_steps

REGISTRY = Path("preregistrations")


@pytest.mark.parametrize("committed", [True, False])
def test_a_further_preregistration_is_what_a_branch_is_for(root: Path, committed: bool) -> None:
    """Whether or not it is committed yet."""
    make_second_registration(root)
    if committed:
        commit(root)
    evidence = base_step("main", registry_dir=REGISTRY).evidence
    assert evidence == "8 new files since main, whose log is the beginning of ours"


def test_a_key_may_be_allowed_alone(root: Path) -> None:
    """It counts once it is merged."""
    allow_signer(REGISTRY, principal=BOB, key=key_of(BOB).public_key, at=CREATED_AT)
    key = key_of(BOB).public_key.fingerprint
    evidence = base_step("main", registry_dir=REGISTRY).evidence
    assert "and allowed_signers was changed: it counts once it is merged" in evidence
    (step,) = trust_steps("main", registry_dir=REGISTRY)
    assert f"{BOB} with {key}, new: may sign forecasts as {BOB} without an end" in step.evidence
    with signers_at("main", registry_dir=REGISTRY) as path:
        assert BOB.encode() not in path.read_bytes()


def test_a_list_of_signers_is_not_taken_out(root: Path) -> None:
    """Without it no forecast could be verified."""
    (REGISTRY / "allowed_signers").unlink()
    with pytest.raises(VerificationError, match=r"allowed_signers.*main"):
        base_step("main", registry_dir=REGISTRY)


@pytest.mark.parametrize(("name", "text"), [("policy.yaml", "since: x\n"), ("allowed_signers", "nonsense\n")])
def test_what_a_registry_would_trust_must_be_readable(root: Path, name: str, text: str) -> None:
    """Before it is merged: afterwards all would be refused by it. The review says so, too."""
    (REGISTRY / name).write_text(text)
    with pytest.raises(MarinScalingError, match=name):
        base_step("main", registry_dir=REGISTRY)
    commit(root)
    assert CliRunner().invoke(app, ["review", "--base", "main"]).exit_code == 1


def test_verify_trusts_the_list_of_the_base(root: Path) -> None:
    """A signer who was struck from the list of this branch only is still the base's, and the other way round."""
    (REGISTRY / "allowed_signers").write_text("# nobody\n")
    said = CliRunner().invoke(app, ["verify", "all", "--no-refit", "--base", "main"])
    assert said.exit_code == 0, said.output
    assert "allowed_signers, removed: ada@example.org with SHA256:" in said.stdout
    assert "allowed by allowed_signers of main, line 1" in said.stdout
    git(root, "checkout", "-q", "--", "preregistrations/allowed_signers")
    git(root, "rm", "-q", "--cached", "preregistrations/allowed_signers")
    git(root, "commit", "-qm", "no signers")
    said = CliRunner().invoke(app, ["verify", "all", "--no-refit", "--base", "HEAD"])
    assert said.exit_code == 1
    assert "may not sign for ada@example.org" in said.stderr


def test_a_base_that_git_does_not_know_is_bad_input(root: Path) -> None:
    """With what to do about it."""
    with pytest.raises(UsageError, match="nosuch"):
        base_step("nosuch", registry_dir=REGISTRY)


HEADER = ",".join(COLUMNS)
PUBLIC = (
    f"{HEADER}\nrun a,,https://example.org/1,,,2.4,,,none,,,about,post\nrun b,,https://example.org/2,,,2.3,,,none,,,,post\n"
)


@pytest.fixture
def public(root: Path) -> Path:
    """The public record of two forecasts without a value, on main and on our branch."""
    path = REGISTRY / RECORD_NAME
    path.write_text(PUBLIC)
    commit(root)
    git(root, "branch", "-f", "main")
    return path


def test_the_public_record_may_be_added_to(public: Path) -> None:
    """A value that was open, a further row, and words at the end of a caveat."""
    grown = PUBLIC.replace("2.4,,,none,,,about", "2.4,,,none,2.35,2026-12-01,about; measured twice")
    public.write_text(grown + "run c,,https://example.org/3,,,2.2,,,none,,,,post\n")
    evidence = base_step("main", registry_dir=REGISTRY).evidence
    assert evidence == "0 new files since main, whose log is the beginning of ours, its public record only grew"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2.4,", "2.36,", r"public-record\.csv, line 2, column 'forecast_loss_nats' has '2\.36', and main has '2\.4'"),
        ("about", "exactly", r"line 2, column 'caveat' has 'exactly', and main has 'about'"),
        ("none,,,,post\n", ",,,,post\n", r"line 3, column 'interval' has '', and main has 'none'"),
        ("\nrun a", "\nrun 0,,https://example.org/0,,,,,,,,,,post\nrun a", r"line 2, column 'run' has 'run 0'"),
        (PUBLIC.splitlines()[2] + "\n", "", r"after its last line, column 'run' has '', and main has 'run b'"),
    ],
)
def test_what_stands_in_the_public_record_stays(public: Path, old: str, new: str, said: str) -> None:
    """A number, a word of a caveat, a cell, the order, a row."""
    assert old in PUBLIC
    public.write_text(PUBLIC.replace(old, new))
    with pytest.raises(VerificationError, match=said):
        base_step("main", registry_dir=REGISTRY)


def test_the_public_record_does_not_disappear(public: Path) -> None:
    """Taken away, it is named like any other file."""
    public.unlink()
    with pytest.raises(VerificationError, match=r"public-record\.csv.*main"):
        base_step("main", registry_dir=REGISTRY)


def test_a_public_record_that_cannot_be_read_does_not_come_in(root: Path) -> None:
    """Nor is it mended later, when it stands."""
    (REGISTRY / RECORD_NAME).write_text(PUBLIC.replace("2.4", "~2.4"))
    with pytest.raises(RunTableError, match=r"line 2, .*forecast_loss_nats.*'~2\.4'"):
        base_step("main", registry_dir=REGISTRY)


def test_nobody_allows_a_key_beside_a_change_of_the_public_record(public: Path) -> None:
    """The list of signers changes alone."""
    public.write_text(PUBLIC + "run c,,https://example.org/3,,,2.2,,,none,,,,post\n")
    allow_signer(REGISTRY, principal=BOB, key=key_of(BOB).public_key, at=CREATED_AT)
    with pytest.raises(VerificationError, match=r"allowed_signers and 1 .*main"):
        base_step("main", registry_dir=REGISTRY)


def test_what_git_has_not_as_it_is_now_is_uncommitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files and changed ones; where there is no git, nothing is said."""
    monkeypatch.chdir(tmp_path)
    folder = make_registration(tmp_path).folder
    assert not is_uncommitted(folder)
    branch_off(tmp_path)
    assert not is_uncommitted(folder)
    (folder / "more").write_text("x")
    assert is_uncommitted(folder)


def test_without_git_nothing_is_said_of_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that only trains, or adds a line to the log, needs none."""
    folder = make_registration(tmp_path).folder
    branch_off(tmp_path)
    (folder / "more").write_text("x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_uncommitted(folder)
    assert logged_there("HEAD", registry_dir=folder.parent).entries == ()
