"""Forms of known attacks that a second search found: long lists of signers, names read as another, runs for other forecasts."""

import base64
import contextlib
import html
import struct
import subprocess
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from forgery import refused, said_by
from git_repository import branch_off, commit, git
from registration_factory import make_second_registration, run_spec, store_run
from typer.testing import CliRunner

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.cli.app import app
from marin_scaling.preregistration.layout import SIGNERS_NAME
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import read_registration, run_size
from marin_scaling.preregistration.signing.allowed_signers import joined_people
from marin_scaling.printable import SIGNERS_BYTES, SIGNERS_CHANGED

BASE = ("--no-refit", "--base", "main")


@pytest.fixture
def branch(root: Path, registration: Registration) -> Path:
    """A branch off a main that has the forecast."""
    assert registration.folder.is_dir()
    branch_off(root)
    return root


def signer_lines(names: Iterable[str]) -> bytes:
    """A line with a key of its own for each name; nobody holds these keys."""
    kind = b"ssh-ed25519"
    lines = []
    for name in names:
        wire = struct.pack(">I", len(kind)) + kind + struct.pack(">I", 32) + bytes.fromhex(sha256_hex(name.encode()))
        key = base64.b64encode(wire).decode()
        lines.append(f'{name} namespaces="preregistration@marin-scaling" {kind.decode()} {key}\n')
    return "".join(lines).encode()


@pytest.mark.parametrize("count", [SIGNERS_CHANGED + 1, 5000])
def test_more_new_signers_than_a_reviewer_can_read_are_refused_at_once(branch: Path, count: int) -> None:
    """Each new name is compared with each listed name: 3,000 took minutes."""
    path = branch / "preregistrations" / SIGNERS_NAME
    path.write_bytes(path.read_bytes() + signer_lines(f"u{number}@example.org" for number in range(count)))
    commit(branch)
    began = time.process_time()
    refused(branch, f"{count} lines of", SIGNERS_NAME, f"at most {SIGNERS_CHANGED}", options=BASE)
    assert time.process_time() - began < 30


def test_as_many_new_signers_as_a_reviewer_can_read_are_no_attack(branch: Path) -> None:
    """A pull request that only adds signers is shown line by line."""
    path = branch / "preregistrations" / SIGNERS_NAME
    path.write_bytes(path.read_bytes() + signer_lines(f"u{number}@example.org" for number in range(SIGNERS_CHANGED)))
    commit(branch)
    status, said = said_by("verify", branch, *BASE)
    assert status == 0, said


def test_a_list_of_signers_without_end_is_refused(branch: Path) -> None:
    """Also in comments, which change nothing."""
    path = branch / "preregistrations" / SIGNERS_NAME
    path.write_bytes(path.read_bytes() + b"# more\n" * (SIGNERS_BYTES // 7))
    refused(branch, SIGNERS_NAME, f"more than {SIGNERS_BYTES}", options=BASE)


def test_people_are_joined_in_linear_time() -> None:
    """A chain of 20,000 names, each with the key of the next, is one person."""
    pairs = [(f"u{number // 2}@a", f"key {(number + 1) // 2}") for number in range(40_000)]
    began = time.process_time()
    assert joined_people(pairs).are_one("u0@a", "u19999@a")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", [".GIT", ".git.", ".git ", "git~1", "GIT~1", ".git::$INDEX_ALLOCATION"])
@pytest.mark.parametrize("place", ["runs", "preregistrations/2026-11-20-tiny-target"])
def test_a_repository_under_a_name_that_some_system_reads_as_git_is_refused(branch: Path, place: str, name: str) -> None:
    """Git itself carries no such name, but an archive or a copied folder does."""
    subprocess.run(["git", "init", "-q", "--bare", str(branch / place / name)], check=True)
    refused(branch, name.rstrip(), "repository", options=BASE)
    refused(branch, name.rstrip(), "repository", command="check")


@pytest.mark.parametrize("name", ["runs.", "runs ", "preregistrations. .", "runs/tiny.", "runs/tiny  "])
def test_a_name_that_differs_in_dots_or_spaces_at_its_end_is_refused(branch: Path, name: str) -> None:
    """Windows drops both, so that either folder can stand for the other."""
    (branch / name).mkdir()
    (branch / name / "x").write_text("x")
    commit(branch)
    refused(branch, "is the same name as", options=BASE)


@pytest.mark.parametrize("name", ["z_loss_weight", "min_learning_rate_ratio"])
def test_a_constant_of_almost_zero_makes_no_other_recipe(registration: Registration, name: str) -> None:
    """Ten percent of zero is zero, so that a weight of 1e-30 would be another recipe, and its forecast of no family."""
    run = run_size(read_registration(registration.folder).predicate)
    assert run.optimizer[name] == 0.0
    assert run.is_near(replace(run, recipe="delphi-2", optimizer={**run.optimizer, name: 1e-30}))
    assert not run.is_near(replace(run, recipe="delphi-2", optimizer={**run.optimizer, name: 1e-4}))


def planted_run(root: Path, registration: Registration, *, loss: float) -> None:
    """A run that answers Ada's forecast, by somebody who never trained it."""
    store_run(root / "runs", spec=registration.target, loss=loss, day="2026-11-21")


def review_of(root: Path) -> tuple[int, str]:
    """Exit status and text of the review of the branch."""
    with contextlib.chdir(root):
        done = CliRunner().invoke(app, ["review", "--base", "main", "--markdown"])
    return done.exit_code, html.unescape(done.output)


@pytest.mark.parametrize(("loss", "verdict"), [(2.5, "held"), (2.9, "missed")])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_run_that_settles_somebody_elses_forecast_is_shown(
    branch: Path, registration: Registration, loss: float, verdict: str, is_committed: bool
) -> None:
    """Without an outcome nothing in the registry changes, and check says how the forecast came out nevertheless."""
    planted_run(branch, registration, loss=loss)
    if is_committed:
        commit(branch)
    status, said = review_of(branch)
    assert status == 0
    assert "Preregistrations: 1, of which refused: 0." in said
    assert f"tiny/{registration.target.directory_name}" in said
    assert "whose record is not signed" in said
    assert f"Its state: {verdict}" in said


def test_a_rung_that_makes_somebody_elses_forecast_refused_is_refused(branch: Path) -> None:
    """It ended before the forecast, which therefore seems to have left it out."""
    store_run(branch / "runs", spec=run_spec(hidden_dim=48), loss=2.0, day="2026-11-18")
    commit(branch)
    status, said = review_of(branch)
    assert status == 1
    assert "Preregistrations: 1, of which refused: 1." in said
    assert "finished before the forecast" in said


def test_a_broken_run_in_somebody_elses_ladder_is_refused(branch: Path) -> None:
    """Verify would refuse the forecast from then on."""
    broken = branch / "runs" / "tiny" / "0123456789abcdef"
    broken.mkdir()
    (broken / "record.json").write_text("{")
    commit(branch)
    status, said = review_of(branch)
    assert status == 1
    assert "spec.json is missing" in said


def test_a_further_rung_and_a_run_of_another_ladder_are_no_attack(branch: Path) -> None:
    """They come after the forecast, and settle nothing."""
    store_run(branch / "runs", spec=run_spec(hidden_dim=48), loss=2.0, day="2026-11-24")
    store_run(branch / "runs", spec=run_spec(hidden_dim=48, ladder="other"), loss=2.0, day="2026-11-18")
    commit(branch)
    status, said = review_of(branch)
    assert status == 0
    assert "No preregistration is added" in said


@pytest.mark.parametrize("labels", [{"ladder": "other", "role": "rung"}, {"ladder": "tiny", "role": "target"}])
def test_a_forecast_of_a_run_that_main_has_under_another_label_is_warned_of(branch: Path, labels: dict[str, str]) -> None:
    """The same model on the same data, in another order: its loss is known before the forecast."""
    known = run_spec(hidden_dim=128, train_steps=900, **labels)
    stored = store_run(branch / "runs", spec=known, loss=2.41, day="2026-11-18")
    commit(branch)
    git(branch, "branch", "-f", "main")
    make_second_registration(branch)
    status, said = review_of(branch)
    assert status == 0
    assert "**runs of this target are recorded already**" in said
    assert f"{labels['ladder']}/{stored.name}" in said
