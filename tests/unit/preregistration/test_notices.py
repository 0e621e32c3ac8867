"""What is said of a forecast afterwards: by who may say it, signed, beside it; the forecast stays, and stays counted."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import CREATED_AT, DUE, PRINCIPAL, make_registration, signing_key, store_run
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import DocumentError, SigningError, UsageError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import read_log, write_down
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import allow_signer, signers_path
from marin_scaling.preregistration.signing.keys import SigningKey, make_signing_key
from marin_scaling.preregistration.track_record import track_records
from marin_scaling.preregistration.tracked_run import stated_steps
from marin_scaling.preregistration.verdict import check_preregistration
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.run.curves import LossCurve
from marin_scaling.run.store import curve_path, work_dir, workplace

CAROL = "carol@example.org"
LATER = CREATED_AT + timedelta(days=1)
NOW = CREATED_AT + timedelta(days=3)
CONDITION = "the evaluation text is gone"


def carols() -> SigningKey:
    """The resolver's key."""
    return signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([5] * 32)))


@pytest.fixture
def registration(tmp_path: Path) -> Registration:
    """A forecast that Carol resolves, with one condition under which it is void."""
    promise = Promise(due=DUE, resolver=CAROL, void_if=(CONDITION,))
    registration = make_registration(tmp_path, promise=promise)
    allow_signer(registration.folder.parent, principal=CAROL, key=carols().public_key, at=CREATED_AT)
    return registration


def check(registration: Registration) -> Verdict:
    """What became of it."""
    folder = registration.folder
    runs = folder.parent.parent / "runs"
    return check_preregistration(folder, runs_dir=runs, allowed_signers=signers_path(folder), checked_at=NOW)


def withdraw(folder: Path, **said: Any) -> Path:
    """Its registrant takes it back."""
    known = {"key": signing_key(), "principal": PRINCIPAL, "at": LATER, "reason": "the run is cancelled"}
    return give_notice(folder, "withdraw", **known | said)


def void(folder: Path, **said: Any) -> Path:
    """Its resolver finds it void."""
    known = {"key": carols(), "principal": CAROL, "at": LATER, "reason": "taken down", "condition": CONDITION}
    return give_notice(folder, "void", **known | said)


def test_a_forecast_that_is_taken_back_before_its_run_is_listed_and_not_scored(registration: Registration) -> None:
    """In the denominator, as withdrawn."""
    withdraw(registration.folder)
    verdict = check(registration)
    assert verdict.state is State.WITHDRAWN
    assert verdict.sentence.startswith("withdrawn before its run, by ada@example.org at 2026-11-21T08:30:00Z: the run is canc")
    (record,) = track_records([verdict])
    assert (record.counts, record.settled) == ({State.WITHDRAWN: 1}, 0)


@pytest.mark.parametrize("admitted", [True, False])
def test_one_that_is_taken_back_once_its_run_began_counts_as_missed(
    registration: Registration, tmp_path: Path, admitted: bool
) -> None:
    """By the registrant's own word, or by the record of the run."""
    if not admitted:
        store_run(tmp_path / "runs", spec=registration.target, loss=2.9, day="2026-11-20")
        path = next((tmp_path / "runs" / "tiny").glob(f"{registration.target.directory_name}/record.json"))
        assert b"2026-11-20T10:00:00Z" in path.read_bytes()
    withdraw(registration.folder, target_steps_seen=100 * admitted)
    verdict = check(registration)
    assert verdict.state is State.WITHDRAWN_LATE
    assert track_records([verdict])[0].settled == 1
    assert not (registration.folder / "outcome.json").exists()


def test_a_run_that_is_trained_after_all_does_not_bring_it_back(registration: Registration, tmp_path: Path) -> None:
    """Or one could take it back, look, and forget that one did."""
    withdraw(registration.folder)
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, day="2026-11-22")
    assert check(registration).state is State.WITHDRAWN


def test_a_forecast_is_void_by_its_resolvers_word_on_a_condition_named_before(registration: Registration) -> None:
    """Neither held nor missed."""
    void(registration.folder, evidence="https://example.org/gone")
    verdict = check(registration)
    assert verdict.state is State.VOID
    assert verdict.sentence == f"void ({CONDITION}), by {CAROL} at 2026-11-21T08:30:00Z: taken down"


def test_a_run_that_left_its_recipe_is_scored_all_the_same(registration: Registration, tmp_path: Path) -> None:
    """With what was said of it beside the score."""
    known = {"key": carols(), "principal": CAROL, "at": LATER}
    give_notice(registration.folder, "deviate", **known, reason="other clipping", from_step=80)
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, day="2026-11-22")
    verdict = check(registration)
    assert verdict.state is State.HELD
    assert "its run left the recipe from step 80 (signed 2026-11-21): other clipping" in verdict.sentence


@pytest.mark.parametrize(
    ("give", "reason"),
    [
        (
            lambda folder: withdraw(folder, key=carols(), principal=CAROL),
            "carol@example.org takes back what ada",
        ),
        (lambda folder: void(folder, key=signing_key(), principal=PRINCIPAL), "ada@example.org is not its resolver"),
        (lambda folder: void(folder, condition="it looks bad"), "'it looks bad' is none of the conditions"),
        (lambda folder: void(folder, condition=None), "condition: field required"),
        (lambda folder: withdraw(folder, from_step=3), "from_step: unknown key"),
        (lambda folder: withdraw(folder, at=CREATED_AT - timedelta(days=1)), "before the statement was made"),
        (
            lambda folder: give_notice(folder, "deviate", key=carols(), principal=CAROL, at=LATER, reason="x"),
            "neither from_step nor from_tokens",
        ),
    ],
    ids=[
        "another's forecast",
        "not the resolver",
        "another condition",
        "no condition",
        "another's words",
        "too early",
        "no step",
    ],
)
def test_who_may_not_say_it_does_not(registration: Registration, give: Callable[[Path], Path], reason: str) -> None:
    """Nothing is written, and the state is what it was."""
    with pytest.raises((SigningError, DocumentError), match=reason.replace(".", r"\.")):
        give(registration.folder)
    assert check(registration).state is State.PENDING


def test_a_registrant_who_resolves_their_own_forecast_cannot_void_it(tmp_path: Path) -> None:
    """Whatever the statement names."""
    registration = make_registration(tmp_path, promise=Promise(due=DUE, void_if=(CONDITION,)))
    with pytest.raises(SigningError, match="or is its registrant, too"):
        void(registration.folder, key=signing_key(), principal=PRINCIPAL)


def test_a_notice_without_a_reason_is_none(registration: Registration) -> None:
    """Taking back without a word is what a registry is against."""
    with pytest.raises(DocumentError, match="reason"):
        withdraw(registration.folder, reason="")


def test_every_notice_is_a_step_of_verify(registration: Registration) -> None:
    """A reader of the evidence sees it."""
    withdraw(registration.folder)
    steps = verify_folder(registration.folder, allowed_signers=signers_path(registration.folder)).steps
    key = signing_key().public_key.fingerprint
    assert (steps[-1].what, steps[-1].evidence) == (
        "withdraw",
        f"with {key}, by ada@example.org at 2026-11-21T08:30:00Z: the run is cancelled",
    )


def test_the_commands_say_what_they_signed(registration: Registration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key from a file, as typed."""
    monkeypatch.chdir(tmp_path)
    key = make_signing_key(tmp_path / "dora")
    allow_signer(registration.folder.parent, principal="dora@example.org", key=key.public_key, at=CREATED_AT)
    arguments = ["registry", "deviate", registration.folder.name, "--from-step", "80", "--reason", "other clipping"]
    said = CliRunner().invoke(app, [*arguments, "--key", str(tmp_path / "dora"), "--as", "dora@example.org"])
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[-2] == f"Signed: preregistrations/{registration.folder.name}/notice-1-deviate"
    assert [entry.kind for entry in read_log(registration.folder.parent).entries] == ["register", "notice"]
    refused = CliRunner().invoke(app, ["registry", "withdraw", arguments[2], "--reason", "x", "--key", str(tmp_path / "dora")])
    assert isinstance(refused.exception, SigningError)


def test_what_has_its_outcome_is_not_withdrawn(tmp_path: Path) -> None:
    """It would count as missed, and its score be lost by mistake; nothing is signed, nobody's key is asked for."""
    registration = make_registration(tmp_path)
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, day="2026-11-21")
    check_preregistration(
        registration.folder, runs_dir=tmp_path / "runs", allowed_signers=signers_path(registration.folder), checked_at=NOW
    )
    assert (registration.folder / "outcome.json").exists()
    refused = CliRunner().invoke(app, ["registry", "withdraw", str(registration.folder), "--reason", "x"])
    assert isinstance(refused.exception, UsageError)
    assert "has an outcome" in str(refused.exception)
    assert not list(registration.folder.glob("notice-*"))


def test_a_forecast_ends_once(registration: Registration) -> None:
    """It is not taken back again, nor found void after that; nobody's key is asked for."""
    withdraw(registration.folder)
    write_down(registration.folder.parent, at=LATER)
    for said in (["withdraw"], ["void", "--because", CONDITION]):
        refused = CliRunner().invoke(app, ["registry", said[0], str(registration.folder), *said[1:], "--reason", "x"])
        assert isinstance(refused.exception, SigningError)
        assert "notice-1-withdraw" in str(refused.exception)


def test_a_run_leaves_its_recipe_at_a_step_that_it_has(registration: Registration) -> None:
    """The target has 800, from 0 on."""
    said = {"key": signing_key(), "principal": PRINCIPAL, "at": LATER, "reason": "other clipping"}
    with pytest.raises(SigningError, match=r"--from-step 800.* 799"):
        give_notice(registration.folder, "deviate", **said, from_step=800)
    assert give_notice(registration.folder, "deviate", **said, from_step=799).is_dir()


def test_whoever_may_have_seen_the_run_is_asked_how_much(registration: Registration, tmp_path: Path, monkeypatch: Any) -> None:
    """It has begun on this machine, and has a curve of three steps; before that nobody is asked."""
    monkeypatch.chdir(tmp_path)
    place = work_dir(registration.target, workplace())
    place.mkdir(parents=True)
    with LossCurve(curve_path(place)) as curve:
        for loss in (5.5, 5.4, 5.3):
            curve.add(loss)
    asked = CliRunner().invoke(app, ["registry", "withdraw", registration.folder.name, "--reason", "x"])
    assert isinstance(asked.exception, UsageError)
    assert f"The run of {registration.folder.name} has started here: step 3 of 800" in str(asked.exception)
    assert "--steps-seen N" in str(asked.exception)
    assert stated_steps(0, folder=registration.folder) == 0
    shutil.rmtree(place)
    assert stated_steps(None, folder=registration.folder) == 0


@pytest.mark.parametrize(
    ("seen", "counted"), [("0", "withdrawn before its run"), ("3", "withdrawn after its run began, which counts as missed")]
)
def test_whoever_takes_a_forecast_back_is_told_at_once_what_it_counts_as(
    registration: Registration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str, counted: str
) -> None:
    """Not only when it is checked; and `track` says that it was taken back."""
    monkeypatch.chdir(tmp_path)
    key = make_signing_key(tmp_path / "adas")
    allow_signer(registration.folder.parent, principal=PRINCIPAL, key=key.public_key, at=CREATED_AT)
    signer = ["--key", str(tmp_path / "adas"), "--as", PRINCIPAL]
    done = CliRunner().invoke(
        app, ["registry", "withdraw", registration.folder.name, "--reason", "x", "--steps-seen", seen, *signer]
    )
    assert done.exit_code == 0, done.output
    assert counted in done.output
    tracked = CliRunner().invoke(app, ["track", registration.folder.name])
    assert f"signed: {registration.folder.name}; it has its notice-1-withdraw" in " ".join(tracked.output.split())


@pytest.mark.parametrize("reason", ["", "  ", "one\ntwo"])
def test_a_reason_without_words_or_of_two_lines_is_refused(registration: Registration, reason: str) -> None:
    """Before anything else is asked; it would stand there for ever."""
    done = CliRunner().invoke(app, ["registry", "withdraw", registration.folder.name, "--reason", reason])
    assert isinstance(done.exception, UsageError)
    assert "--reason" in str(done.exception)
