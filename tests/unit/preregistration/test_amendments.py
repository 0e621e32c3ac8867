"""A later forecast of the same run: signed, verified and fitted again like the first, scored beside it, counted nowhere."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from amendment_factory import LATER, lower, make_amendment, sign_again
from cryptography.hazmat.primitives.asymmetric import ed25519
from fitted_registration import fitted, make_fitted_registration
from registration_factory import (
    CREATED_AT,
    PRINCIPAL,
    make_registration,
    signing_key,
    store_run,
    target_spec,
)

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import MarinScalingError, SigningError, VerificationError
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.register import bound_spec
from marin_scaling.preregistration.registry import allow_signer, signers_path
from marin_scaling.preregistration.track_record import track_records
from marin_scaling.preregistration.verdict import check_preregistration, verdict_on
from marin_scaling.preregistration.verify.refit import verify_and_fit
from marin_scaling.preregistration.verify.rules import log_step


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A forecast that its ladder gives."""
    return make_fitted_registration(tmp_path)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A forecast whose ladder has records, by a law that nobody can fit here."""
    return make_registration(tmp_path).folder


def verify_steps(folder: Path) -> list[VerifiedStep]:
    """All of them, the re-fit among them."""
    return verify_and_fit(folder, allowed_signers=signers_path(folder)).steps


def verify(folder: Path) -> dict[str, str]:
    """Evidence by step."""
    return {step.what: step.evidence for step in verify_steps(folder)}


def check(folder: Path, *, began: datetime = LATER, value: float = 2.46) -> Any:
    """The verdict after the run, which began at that time and took a day."""
    runs = folder.parent.parent / "runs"
    spec = bound_spec(target_spec(), statement=(folder / "statement.json").read_bytes())
    times = {"started_at": f"{began:%Y-%m-%dT%H:%M:%SZ}", "finished_at": f"{began + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"}
    store_run(runs, spec=spec, loss=value, **times)
    at = began + timedelta(days=5)
    return check_preregistration(folder, runs_dir=runs, allowed_signers=signers_path(folder), checked_at=at)


def test_an_amendment_is_verified_and_fitted_again_like_the_first(folder: Path) -> None:
    """From its own ladder; the first forecast is what it was."""
    before = (folder / "statement.json").read_bytes()
    make_amendment(folder)
    steps = verify_and_fit(folder, allowed_signers=signers_path(folder)).steps
    own = [step.what for step in steps].index("amend-1")
    (signature,) = [step.evidence for step in steps if step.what == "signature"]
    key = signature.split(" with ")[1].split(",")[0]
    said = f"by ada@example.org with {key} at 2026-11-20T09:30:00Z, after 0 steps: two more budgets were trained"
    assert steps[own].evidence == said
    assert steps[own + 1].what == "amend-1 fit"
    assert steps[own + 1].evidence.startswith("16 runs fitted again: all 23 quantiles")
    assert (folder / "statement.json").read_bytes() == before
    assert "amend 2 of 2" in log_step(folder, log=read_log(folder.parent)).evidence


def test_the_first_forecast_keeps_the_verdict_and_the_record(recorded: Path) -> None:
    """The later one has a row of its own, with how much of the run had been seen."""
    make_amendment(recorded, steps_seen=200, **lower(recorded))
    verdict = check(recorded)
    assert verdict.sentence.startswith("held: observed 2.4600 bits/byte, forecast 2.5000")
    assert "; amend-1 after 200 steps: 2.4500 (2.2855 to 2.6145), error -0.0100, CRPS" in verdict.sentence
    (amended,) = verdict.to_document()["amendments"]
    assert amended["scores"]["hit"]
    (record,) = track_records([verdict])
    assert (sum(record.counts.values()), len(record.pit)) == (1, 1)


def test_before_the_run_it_is_told_and_not_scored(recorded: Path) -> None:
    """A reader of a forecast that waits sees that there is a later one."""
    make_amendment(recorded, **lower(recorded))
    verdict = verdict_on(recorded, runs_dir=Path("none"), allowed_signers=signers_path(recorded), at=LATER)
    assert verdict.sentence.startswith("no outcome yet: 2.5000 bits/byte was forecast")
    assert verdict.sentence.endswith("; amend-1 after 0 steps: 2.4500 (2.2855 to 2.6145), not scored: the run has not ended")
    assert verdict.outcome is None


@pytest.mark.parametrize("hours", [24, 30])
def test_what_came_after_the_run_had_ended_is_not_scored(recorded: Path, hours: int) -> None:
    """What is known cannot be forecast."""
    make_amendment(recorded, at=LATER + timedelta(hours=hours), **lower(recorded))
    verdict = check(recorded)
    assert "not scored: it came after the run had ended" in verdict.sentence
    assert verdict.amendments[0]["scores"] is None


def test_a_back_dated_amendment_counts_from_when_it_was_logged(recorded: Path) -> None:
    """Else it could be made after a look at the end of the run."""
    make_amendment(recorded, logged=LATER + timedelta(days=3), **lower(recorded))
    assert "not scored: it came after the run had ended" in check(recorded).sentence


def test_nobody_else_amends_a_promise(folder: Path) -> None:
    """Not even someone who may sign."""
    key = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([9] * 32)))
    allow_signer(folder.parent, principal="bob@example.org", key=key.public_key, at=CREATED_AT)
    with pytest.raises(SigningError, match=r"bob@example.org.*ada@example.org"):
        make_amendment(folder, key=key, principal="bob@example.org")
    assert not (folder / "amend-1").exists()


def test_a_run_that_has_its_outcome_is_not_forecast_again(recorded: Path) -> None:
    """What is known cannot be forecast."""
    check(recorded)
    with pytest.raises(SigningError, match="outcome"):
        make_amendment(recorded, at=LATER + timedelta(days=9), **lower(recorded))


@pytest.mark.parametrize("kind", ["withdraw", "void"])
def test_a_forecast_that_has_ended_is_not_made_again(tmp_path: Path, kind: Any) -> None:
    """Taken back by its registrant, or found void by its resolver."""
    carol = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([5] * 32)))
    folder = make_registration(tmp_path, promise=Promise(resolver="carol@example.org", void_if=("the text is gone",))).folder
    allow_signer(folder.parent, principal="carol@example.org", key=carol.public_key, at=CREATED_AT)
    said = {"condition": "the text is gone"} if kind == "void" else {}
    key, by = (carol, "carol@example.org") if kind == "void" else (signing_key(), PRINCIPAL)
    give_notice(folder, kind, key=key, principal=by, at=LATER, reason="so it is", **said)
    with pytest.raises(SigningError, match=f"notice-1-{kind}"):
        make_amendment(folder, at=LATER + timedelta(hours=1), **lower(folder))


def test_whoever_has_seen_all_steps_forecasts_nothing(folder: Path) -> None:
    """The target has 800."""
    with pytest.raises(SigningError, match=r"800.*800"):
        make_amendment(folder, steps_seen=800)


def test_what_was_seen_stays_seen(folder: Path) -> None:
    """A later forecast after fewer steps is not made, and not believed where it was made by hand."""
    make_amendment(folder, steps_seen=500)
    rows, document, losses = fitted(seed=2)
    with pytest.raises(SigningError, match=r"--steps-seen 400 .* 500 .*amend-1"):
        make_amendment(folder, at=LATER + timedelta(hours=1), rows=rows, forecast=document, losses=losses, steps_seen=400)
    place = make_amendment(folder, at=LATER + timedelta(hours=1), rows=rows, forecast=document, losses=losses, steps_seen=600)
    sign_again(place, lambda said: said["knowledge"].update(targetRunStepsSeen=400))
    with pytest.raises(VerificationError, match=r"amend-2.*400"):
        verify_steps(folder)


def test_the_same_forecast_again_is_no_later_forecast(folder: Path) -> None:
    """Nothing has changed: neither since the first one nor since the one before."""
    rows, document, losses = fitted()
    with pytest.raises(SigningError, match=r"would equal .* in every number"):
        make_amendment(folder, rows=rows, forecast=document, losses=losses)
    make_amendment(folder)
    with pytest.raises(SigningError, match="amend-1"):
        make_amendment(folder, at=LATER + timedelta(hours=1))
    assert [path.name for path in folder.glob("amend-*")] == ["amend-1"]


def test_a_number_moved_by_hand_is_refused_here_too(folder: Path) -> None:
    """Fitted again, its ladder gives another one."""
    rows, document, losses = fitted(shift=0.02, seed=1)
    make_amendment(folder, rows=rows, forecast=document, losses=losses)
    with pytest.raises(VerificationError, match=r"amend-1: "):
        verify(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda said: said.update(supersedes=sha256_hex(b"another")), "it amends another statement"),
        (lambda said: said.update(createdAt="2026-11-20T08:00:00Z"), "not after the statement that it amends"),
        (lambda said: said["forecast"].update(extrapolation=2.0), r"forecast\.extrapolation is 2\.0, and its files say"),
        (lambda said: said["fit"].update(law="another"), r"fit\.law is 'another', and its files say"),
        (lambda said: said.update(verdict="held"), r"predicate\.verdict"),
    ],
    ids=["another statement", "older", "a number", "a law", "a key more"],
)
def test_an_amendment_that_does_not_follow_from_its_files_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    """Well signed, by its registrant."""
    sign_again(make_amendment(folder), change)
    with pytest.raises(VerificationError, match=reason):
        verify(folder)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda place: (place / "ladder.json").unlink(), "holds .*, not amendment.json"),
        (lambda place: (place / "samples.json").write_bytes(b"{}\n"), "samples.json .*has the digest"),
        (lambda place: place.rename(place.with_name("amend-2")), "amend-2 is there, and number 1 is not"),
        (lambda place: (place / "notes").write_text("x"), "holds .*notes"),
    ],
    ids=["missing", "edited", "renamed", "more"],
)
def test_an_amendment_is_whole_or_refused(folder: Path, spoil: Callable[[Path], Any], reason: str) -> None:
    """As every folder of a registry."""
    spoil(make_amendment(folder))
    with pytest.raises(MarinScalingError, match=reason):
        verify(folder)


def test_an_edited_amendment_is_found_by_the_log(folder: Path) -> None:
    """Its registrant signs it again, and the line has another digest."""
    sign_again(make_amendment(folder), lambda said: said.update(reason="another one"))
    with pytest.raises(VerificationError, match=r"amend-1/amendment\.json.*line 2"):
        log_step(folder, log=read_log(folder.parent))
