"""A forecast that is signed now and shown later: what is public of it, what opens it, and what becomes of one never shown."""

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from forgery import BOB, key_of
from git_repository import commit, git
from registration_factory import (
    CREATED_AT,
    PRINCIPAL,
    evidence,
    forecast_document,
    ladder_rows,
    make_registration,
    make_second_registration,
    run_spec,
    store_ladder,
    store_run,
    target_spec,
)
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError, StatementError, UsageError, VerificationError
from marin_scaling.files import publish_folder
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.seal import LONGEST_SEAL, private_folder, reveal, whole_folder
from marin_scaling.preregistration.layout import is_sealed
from marin_scaling.preregistration.log import read_log, write_down
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.register import bound_spec, preregister_target
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.review.pull_request import review_branch
from marin_scaling.preregistration.review.report import review_text
from marin_scaling.preregistration.signing.allowed_signers import read_allowed_signers
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.track_record import record_text, track_records
from marin_scaling.preregistration.tracked_run import named_spec
from marin_scaling.preregistration.verdict import check_all, check_preregistration
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step, require_whole
from marin_scaling.publish.build import generated_pages

REVEAL_BY = CREATED_AT + timedelta(days=100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The public folder of a sealed forecast."""
    return make_registration(tmp_path, reveal_by=REVEAL_BY).folder


def shown(folder: Path, *, at: datetime = CREATED_AT) -> Path:
    """The same after it was revealed, and logged."""
    reveal(folder)
    write_down(folder.parent, at=at)
    return folder


def verdict(folder: Path, *, at: datetime) -> Verdict:
    """What becomes of it at some moment."""
    return check_preregistration(
        folder, runs_dir=folder.parents[1] / "runs", allowed_signers=signers_path(folder), checked_at=at
    )


def test_nothing_of_a_sealed_forecast_is_public_but_who_sealed_it_and_until_when(folder: Path) -> None:
    """Two files, and in them a digest that nobody can find without the salt."""
    assert sorted(path.name for path in folder.iterdir()) == ["seal.json", "seal.json.sig"]
    said = json.loads((folder / "seal.json").read_bytes())
    assert sorted(said) == ["at", "by", "commitment", "format_version", "id", "kind", "reveal_by"]
    statement = (private_folder(folder) / "statement.json").read_bytes()
    assert said["commitment"] != hashlib.sha256(statement).hexdigest()


def test_git_sees_nothing_of_what_waits_to_be_revealed(folder: Path) -> None:
    """Also in a repository that does not ignore the folder of the tool's own files."""
    root = folder.parents[1]
    git(root, "init", "-q", "-b", "main")
    commit(root)
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, check=True, text=True).stdout
    assert "seal.json" in listed
    assert ".marin-scaling" not in listed


def test_a_sealed_forecast_is_verified_by_its_signature_and_says_that_no_more_can_be_seen(folder: Path) -> None:
    """One line, marked as not compared."""
    (step,) = verify_folder(folder, allowed_signers=signers_path(folder)).steps
    assert not step.compared
    at = "2026-11-20T08:30:00Z, to be shown by 2027-02-28T08:30:00Z"
    assert re.match(rf"by {PRINCIPAL} with SHA256:[A-Za-z0-9+/]{{43}} at {at}", step.evidence)
    assert "seal 1 of 1" in log_step(folder, log=read_log(folder.parent)).evidence


def test_salt_and_statement_give_the_sealed_digest_by_sha256_alone(folder: Path) -> None:
    """What a sceptic does who has sha256sum and nothing of ours."""
    shown(folder)
    salt = bytes.fromhex(json.loads((folder / "opening.json").read_bytes())["salt"])
    found = hashlib.sha256(salt + (folder / "statement.json").read_bytes()).hexdigest()
    assert found == json.loads((folder / "seal.json").read_bytes())["commitment"]


def test_a_revealed_forecast_is_verified_like_any_other_and_as_old_as_its_seal(folder: Path) -> None:
    """Its line of the log is the seal's, however late it is shown."""
    shown(folder, at=CREATED_AT + timedelta(days=2))
    steps = verify_folder(folder, allowed_signers=signers_path(folder)).steps
    assert "this statement, by ada@example.org" in {step.what: step.evidence for step in steps}["sealed"]
    line = log_step(folder, log=read_log(folder.parent)).evidence
    assert "seal 1, register 2, reveal 3 of 3" in line
    assert "logged at 2026-11-20T08:30:00Z, 2026-11-22T08:30:00Z" in line


def test_a_sealed_forecast_waits_and_counts_as_missed_once_its_day_is_over(folder: Path) -> None:
    """Else ten could be sealed and the lucky one be shown."""
    assert verdict(folder, at=REVEAL_BY).state is State.SEALED
    late = verdict(folder, at=REVEAL_BY + timedelta(seconds=1))
    assert late.state is State.OVERDUE
    assert "until it is, it counts as missed" in late.sentence
    assert "1 registered: 0 pending, 1 overdue" in record_text(track_records([late])[0])


def test_the_run_of_a_sealed_forecast_is_bound_to_it_before_anyone_has_seen_it(tmp_path: Path) -> None:
    """Trained while sealed, scored once revealed."""
    made = make_registration(tmp_path, reveal_by=REVEAL_BY)
    store_run(tmp_path / "runs", spec=made.target, loss=2.52, day="2026-11-21")
    at = CREATED_AT + timedelta(days=2)
    assert verdict(made.folder, at=at).state is State.SEALED
    assert verdict(shown(made.folder), at=at).state is State.HELD


def test_reveal_goes_on_where_it_was_interrupted(folder: Path) -> None:
    """The statement comes last, so what is half shown is still sealed, and says how to go on."""
    for name in ("ladder.json", "opening.json"):
        (folder / name).write_bytes((private_folder(folder) / name).read_bytes())
    assert is_sealed(folder)
    with pytest.raises(
        VerificationError, match=r"ladder.json is in a sealed folder(?s:.)*marin-scale registry reveal 2026-11-20-tiny-target"
    ):
        verify_folder(folder, allowed_signers=signers_path(folder))
    verify_folder(shown(folder), allowed_signers=signers_path(folder))


def test_another_forecast_of_a_sealed_target_by_the_same_person_is_refused(tmp_path: Path, folder: Path) -> None:
    """Sealed again at once, open before it is shown, and open in a clone, where nobody saw what was sealed."""
    with pytest.raises(StatementError, match="already forecasts this target"):
        make_registration(tmp_path, rows=ladder_rows(tmp_path / "runs"), reveal_by=REVEAL_BY, slug="again")
    with pytest.raises(StatementError, match="already forecasts this target"):
        make_registration(tmp_path, rows=ladder_rows(tmp_path / "runs"), slug="open")
    elsewhere = private_folder(folder).rename(tmp_path / "elsewhere")
    make_registration(tmp_path, rows=ladder_rows(tmp_path / "runs"), slug="open")
    elsewhere.rename(private_folder(folder))
    with pytest.raises(StatementError, match=r"2026-11-20-open.*ada"):
        reveal(folder)
    assert is_sealed(folder)


def test_two_people_may_forecast_one_run_when_one_of_them_was_sealed(tmp_path: Path, folder: Path) -> None:
    """Neither could see the other's number, and both count."""
    shown_rows, bob = evidence(ladder_rows(tmp_path / "runs")), key_of(BOB)
    private = private_folder(folder)
    preregister_target(
        shown_rows,
        registry_dir=folder.parent,
        key=bob,
        principal="bob@example.org",
        slug="bob",
        created_at=CREATED_AT,
        promise=Promise(),
    )
    assert private.is_dir()
    shown(folder)
    require_whole(folder.parent, log=read_log(folder.parent))


@pytest.mark.parametrize("days", [0, -1, LONGEST_SEAL.days + 1])
def test_a_seal_lasts_until_a_later_day_and_at_most_four_years(tmp_path: Path, days: int) -> None:
    """And nothing is written of one that does not."""
    with pytest.raises(StatementError, match="four years"):
        make_registration(tmp_path, reveal_by=CREATED_AT + timedelta(days=days))
    assert not (tmp_path / "preregistrations").exists()
    assert not (tmp_path / ".marin-scaling").exists()


def test_who_has_not_sealed_it_is_told_that_its_files_are_elsewhere(folder: Path) -> None:
    """A clone of the repository has the seal alone."""
    private_folder(folder).rename(folder.parents[1] / "kept")
    with pytest.raises(UsageError, match=r"is sealed, and .* does not exist here"):
        whole_folder(folder)


def test_ones_own_sealed_forecast_is_known_by_its_name(folder: Path) -> None:
    """Its run can be tracked and trained before anyone else has seen what was forecast."""
    spec = named_spec(folder.name, registry=folder.parent)
    assert spec == bound_spec(target_spec(), statement=(private_folder(folder) / "statement.json").read_bytes())


@pytest.mark.parametrize("command", ["sign", "amend", "withdraw", "deviate"])
def test_nothing_is_said_of_a_sealed_forecast_before_it_is_shown(folder: Path, command: str) -> None:
    """What is said stands beside the statement, so the statement has to stand there."""
    options = {"sign": [], "deviate": ["--from-step", "1", "--reason", "so"]}.get(command, ["--reason", "so"])
    done = CliRunner().invoke(app, ["registry", command, folder.name, "--registry", str(folder.parent), *options])
    assert isinstance(done.exception, MarinScalingError)
    assert "is still sealed" in str(done.exception)


def test_reveal_verifies_what_it_shows_and_says_what_is_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line; a second time there is nothing to reveal."""
    monkeypatch.chdir(folder.parents[1])
    done = CliRunner().invoke(app, ["registry", "reveal", folder.name])
    assert done.exit_code == 0, done.output
    assert "  sealed     ok  this statement" in done.output
    assert f"Revealed: preregistrations/{folder.name}" in done.output.replace(str(folder.parents[1]) + "/", "")
    again = CliRunner().invoke(app, ["registry", "reveal", folder.name])
    assert "is not sealed" in str(again.exception)
    log_step(folder, log=read_log(folder.parent))


def test_a_review_shows_a_seal_as_a_seal_and_the_forecast_when_it_is_revealed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First what a reviewer may ask of a seal, then all that they ask of a forecast."""
    monkeypatch.chdir(folder.parents[1])
    registry, root = folder.parent, folder.parents[1]
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("/preregistrations/2026*\n/preregistrations/log.jsonl\n")
    commit(root)
    (root / ".gitignore").write_text("")
    sealed = review_branch("main", registry_dir=registry, runs_dir=root / "runs")
    assert sealed.sound
    text = review_text(sealed, registry=registry, runs_dir=root / "runs", at=CREATED_AT)
    assert "**Sealed**: <code>by ada&#64;</code><code>example" in text
    assert "1 registered: 1 sealed" in text
    assert "2.5000" not in text
    commit(root)
    shown(folder)
    revealed = review_branch("main", registry_dir=registry, runs_dir=root / "runs")
    text = review_text(revealed, registry=registry, runs_dir=root / "runs", at=CREATED_AT + timedelta(days=30))
    assert "**Verified**, signed by <code>ada&#64;</code><code>example&#46;org</code>: **2.5000" in text
    assert "sealed before it was revealed" in text
    assert "was made 30 days ago" not in text


def test_the_site_counts_what_is_sealed_and_shows_no_number(folder: Path) -> None:
    """A page of its own, a row of the index."""
    make_second_registration(folder.parents[1])
    files = generated_pages(folder.parents[1])
    index = files["index.md"].decode()
    assert "1 sealed" in index
    page = files[f"preregistrations/{folder.name}.md"].decode()
    assert "**Sealed** by ada" in page
    assert "2.5000" not in page


def test_a_signer_is_added_for_a_seal_as_for_a_statement(folder: Path) -> None:
    """Else the first sealed forecast of a registry could not be verified."""
    assert [line.names(PRINCIPAL) for line in read_allowed_signers(signers_path(folder))] == [True]


def test_all_of_a_registry_is_checked_with_what_is_sealed_in_it(folder: Path) -> None:
    """A seal beside an open forecast breaks neither."""
    make_second_registration(folder.parents[1])
    folders = sorted(path for path in folder.parent.iterdir() if path.is_dir())
    found = check_all(folders, runs_dir=folder.parents[1] / "runs", checked_at=CREATED_AT)
    assert [each.state for each in found] == [State.PENDING, State.SEALED]


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="there is no sha256sum here")
def test_the_command_of_the_sceptics_page_prints_the_sealed_digest(folder: Path) -> None:
    """With sed, printf and sha256sum, typed as the page has it."""
    page = Path(__file__).parents[3] / "site/how-to/verify-a-preregistration.md"
    (command,) = re.findall(r"```bash\n(salt=.*?)```", page.read_text(), flags=re.DOTALL)
    done = subprocess.run(["bash", "-c", command], cwd=shown(folder), capture_output=True, text=True, check=True)
    digest, line = done.stdout.splitlines()
    assert digest.split()[0] in line


def test_an_open_forecast_of_what_was_sealed_here_is_refused(folder: Path) -> None:
    """Else the seal could never be revealed, or the better of the two would be shown; and nothing is written."""
    root = folder.parents[1]
    with pytest.raises(StatementError, match="already forecasts this target"):
        make_registration(root, rows=ladder_rows(root / "runs"), slug="again")
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_a_sealing_that_was_interrupted_says_how_to_go_on(folder: Path) -> None:
    """Its files were kept, and its seal was never shown."""
    root = folder.parents[1]
    shutil.rmtree(folder)
    (folder.parent / "log.jsonl").unlink()
    with pytest.raises(StatementError) as error:
        make_registration(root, rows=ladder_rows(root / "runs"), reveal_by=REVEAL_BY)
    assert f"remove {private_folder(folder)} and seal again" in error.value.fix
    shutil.rmtree(private_folder(folder))
    assert is_sealed(make_registration(root, rows=ladder_rows(root / "runs"), reveal_by=REVEAL_BY).folder)


@pytest.mark.parametrize("day", ["2020-01-01", "2999-01-01", "tomorrow", "2027-02-30"])
def test_a_seal_without_a_sensible_term_is_refused_before_anything_is_fitted(tmp_path: Path, day: str) -> None:
    """From the command line: even the ladder file is not asked for yet."""
    done = CliRunner().invoke(app, ["preregister", str(tmp_path / "none.yaml"), "--seal-until", day])
    assert isinstance(done.exception, UsageError)
    assert f"--seal-until {day} is not a day" in str(done.exception)


def test_a_name_that_is_taken_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """By the forecast of another target; nothing is left that would block this one."""
    standing = make_registration(tmp_path).folder
    with pytest.raises(StatementError, match=standing.name):
        make_second_registration_sealed(tmp_path, slug="tiny-target")
    assert not private_folder(standing).exists()
    assert is_sealed(make_second_registration_sealed(tmp_path, slug="second"))


def make_second_registration_sealed(root: Path, *, slug: str) -> Path:
    """A sealed forecast of another target in the same registry."""
    other = run_spec(hidden_dim=128, train_steps=900, role="target")
    rows, said = ladder_rows(root / "runs"), forecast_document(flops=other.flops)
    return make_registration(root, rows=rows, target=other, forecast=said, slug=slug, reveal_by=REVEAL_BY).folder


@pytest.mark.parametrize("reveal_by", [REVEAL_BY, None])
def test_of_two_forecasts_of_one_target_begun_at_once_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reveal_by: datetime | None
) -> None:
    """Both are signed before either is written, and writing takes so long that both would find nothing standing."""
    rows, both_signed, sign = store_ladder(tmp_path / "runs"), Barrier(2), SigningKey.sign

    def signed_together(key: SigningKey, content: bytes) -> bytes:
        if b"predicateType" in content:
            both_signed.wait(timeout=60)
        return sign(key, content)

    def published_slowly(folder: Path, files: Mapping[str, bytes]) -> None:
        time.sleep(0.5)
        publish_folder(folder, files)

    monkeypatch.setattr(SigningKey, "sign", signed_together)
    where = "events.seal" if reveal_by else "registry"
    monkeypatch.setattr(f"marin_scaling.preregistration.{where}.publish_folder", published_slowly)

    def begun(slug: str) -> str:
        try:
            return make_registration(tmp_path, rows=rows, slug=slug, reveal_by=reveal_by).folder.name
        except StatementError as error:
            return error.what

    with ThreadPoolExecutor(2) as people:
        said = list(people.map(begun, ["one", "other"]))
    standing = [path.name for path in (tmp_path / "preregistrations").iterdir() if path.is_dir()]
    assert len(standing) == 1
    assert standing[0] in said
    assert sum("already forecasts this target" in each for each in said) == 1
