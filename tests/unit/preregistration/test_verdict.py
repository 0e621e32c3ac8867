"""Pending, held, missed: what becomes of a forecast, and which runs cannot answer it."""

from datetime import UTC, datetime, timedelta

import pytest
from registration_factory import MEDIAN, make_registration, store_run

from marin_scaling.canonical_json import load_canonical
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.outcome import State
from marin_scaling.preregistration.register import bound_spec, unbound_spec
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verdict import check_all, check_preregistration
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.scoring import crps

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def registration(tmp_path):
    return make_registration(tmp_path)


def check(registration, *, now=NOW):
    folder = registration.folder
    runs = folder.parent.parent / "runs"
    return check_preregistration(folder, runs_dir=runs, allowed_signers=signers_path(folder), checked_at=now)


def train(registration, loss, *, tmp_path, day="2026-11-21", **changes):
    return store_run(tmp_path / "runs", spec=registration.target, loss=loss, day=day, **changes)


def test_before_the_run_the_state_is_pending(registration):
    """Nothing is written, and the sentence says where the run will lie."""
    verdict = check(registration)
    assert verdict.state is State.PENDING
    assert registration.target.directory_name in verdict.sentence
    assert not (registration.folder / "outcome.json").exists()


def test_a_run_that_is_not_there_when_it_is_due_is_overdue_until_it_is(registration, tmp_path):
    """It is computed, not written: a run that comes late is scored, and nothing has to be undone."""
    due = registration.statement.due
    assert check(registration, now=due).state is State.PENDING
    verdict = check(registration, now=due + timedelta(seconds=1))
    assert verdict.state is State.OVERDUE
    assert "its run was due at 2030-11-01T23:59:59Z; until it is there, it counts as missed" in verdict.sentence
    assert not (registration.folder / "outcome.json").exists()
    train(registration, 2.6, tmp_path=tmp_path)
    assert check(registration, now=due + timedelta(days=1)).state is State.HELD


def test_the_skill_is_one_minus_the_ratio_of_the_scores(registration, tmp_path):
    """Of the forecast and the registered baseline, by the same rule."""
    train(registration, 2.6, tmp_path=tmp_path)
    outcome = check(registration).outcome
    stated = registration.statement.predicate["scoring"]["baseline"]["quantiles"]
    assert outcome["baseline"]["crps"] == crps({float(level): value for level, value in stated.items()}, observed=2.6)
    assert outcome["baseline"]["skill"] == 1 - outcome["scores"]["crps"] / outcome["baseline"]["crps"]


@pytest.mark.parametrize(("loss", "state"), [(MEDIAN, State.HELD), (2.6, State.HELD), (2.7, State.MISSED), (2.3, State.MISSED)])
def test_the_verdict_is_whether_the_value_fell_in_the_interval(registration, tmp_path, loss, state):
    """A miss on the good side is a miss, too."""
    train(registration, loss, tmp_path=tmp_path)
    verdict = check(registration)
    assert verdict.state is state
    assert verdict.outcome["value"] == loss
    assert verdict.outcome["run"] == registration.target.digest
    assert verdict.outcome["scores"]["signed_error"] == pytest.approx(MEDIAN - loss)
    assert load_canonical((registration.folder / "outcome.json").read_bytes(), name="outcome.json") == verdict.outcome


def test_checking_again_says_the_same_and_writes_nothing(registration, tmp_path):
    """The outcome keeps the time of its first check."""
    train(registration, 2.6, tmp_path=tmp_path)
    first = check(registration)
    before = (registration.folder / "outcome.json").read_bytes()
    assert check(registration, now=datetime(2027, 1, 1, tzinfo=UTC)) == first
    assert (registration.folder / "outcome.json").read_bytes() == before


def test_the_outcome_is_verified_with_the_rest(registration, tmp_path):
    """A registration with its outcome still verifies, and the outcome is a step of its own."""
    train(registration, 2.6, tmp_path=tmp_path)
    check(registration)
    steps = verify_folder(registration.folder, allowed_signers=signers_path(registration.folder)).steps
    assert steps[-1].what == "outcome"
    assert steps[-1].evidence.startswith("held: 2.6 bits/byte")


def test_a_diverged_target_is_a_miss_without_scores(registration, tmp_path):
    """There is no value to score, and the forecast did not hold."""
    train(registration, None, tmp_path=tmp_path)
    verdict = check(registration)
    assert verdict.state is State.MISSED
    assert verdict.outcome["scores"] is None
    assert "diverged" in verdict.sentence


def test_the_same_run_without_the_statement_does_not_count(registration, tmp_path):
    """A rehearsal, or a run trained before the forecast, leaves it pending."""
    store_run(tmp_path / "runs", spec=unbound_spec(registration.target), loss=2.5)
    assert check(registration).state is State.PENDING


def test_a_run_bound_to_another_statement_does_not_count(registration, tmp_path):
    """One run answers one forecast."""
    other = bound_spec(unbound_spec(registration.target), statement=b"another")
    store_run(tmp_path / "runs", spec=other, loss=2.5)
    assert check(registration).state is State.PENDING


def test_a_standing_outcome_is_reported_where_the_runs_are_not(registration, tmp_path):
    """A reader without the store still learns what became of the forecast."""
    train(registration, 2.6, tmp_path=tmp_path)
    held = check(registration)
    elsewhere = check_preregistration(
        registration.folder, runs_dir=tmp_path / "none", allowed_signers=signers_path(registration.folder), checked_at=NOW
    )
    assert (elsewhere.state, elsewhere.outcome) == (held.state, held.outcome)
    assert elsewhere.sentence == held.sentence + "; claimed: its run is not here to be compared"


def test_one_refused_registration_does_not_hide_the_others(registration, tmp_path):
    """`check all` gives every folder its line."""
    bad = registration.folder.parent / "2026-11-21-bad"
    bad.mkdir()
    verdicts = check_all([bad, registration.folder], runs_dir=tmp_path / "runs", checked_at=NOW)
    assert [verdict.state for verdict in verdicts] == [State.REFUSED, State.PENDING]
    assert "is missing" in verdicts[0].sentence


def test_an_outcome_that_the_log_has_and_that_is_gone_is_not_written_again(registration, tmp_path):
    """Another one, of another hour, would not be it."""
    train(registration, 2.6, tmp_path=tmp_path)
    check(registration)
    (registration.folder / "outcome.json").unlink()
    with pytest.raises(VerificationError, match=r"outcome\.json.* log"):
        check(registration)
    assert not (registration.folder / "outcome.json").exists()
