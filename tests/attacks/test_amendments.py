"""Attacks by a later forecast: it is to stand in the place of the first, or to look as if it had been made before the end.

The forger is the registrant, or someone else who may sign, and writes by hand round the command that would not; each amendment
here is signed well and logged. What it is scored as where nothing can be refused is seen in the last tests.
"""

import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from amendment_factory import LATER, lower, make_amendment, sign_again
from fitted_registration import fitted, make_fitted_registration
from forgery import CAROL, CONDITION, MALLORY, chain, edit, key_of, log_again, log_entries, refused, said_by
from git_repository import branch_off, commit
from registration_factory import (
    CREATED_AT,
    PRINCIPAL,
    make_registration,
    make_second_registration,
    run_spec,
    signing_key,
    store_run,
)

from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.statement import moment_text
from marin_scaling.preregistration.verdict import check_preregistration

BEGAN, ENDED = "2026-11-20T10:00:00Z", "2026-11-21T10:00:00Z"
END = CREATED_AT + timedelta(days=1, hours=1, minutes=30)
AFTERWARDS = END + timedelta(days=1)
Said = dict[str, Any]


@pytest.fixture
def place(folder: Path) -> Path:
    """Ada's later forecast of her run, lower by a twentieth of a bit; its ladder has records."""
    return make_amendment(folder, **lower(folder))


@pytest.fixture
def fitted_folder(root: Path) -> Path:
    """A forecast that its ladder gives; the amendments of these tests are fitted again."""
    return make_fitted_registration(root)


def forge(place: Path, change: Callable[[Said], Any] = lambda said: None, *, key: SigningKey | None = None) -> None:
    """Change it, sign it, and log all anew, as if it had always been so."""
    sign_again(place, change, key=key)
    log_again(place.parents[1])


def test_a_later_forecast_is_sound(root: Path, place: Path) -> None:
    """The ground of the attacks."""
    status, said = said_by("verify", root)
    assert status == 0, said
    (line,) = [line for line in said.splitlines() if line.startswith("  amend-1    ok  by ada@example.org with SHA256:")]
    assert line.endswith(" at 2026-11-20T09:30:00Z, after 0 steps: two more budgets were trained")
    assert "its ladder ok  4 rows equal to the records" in said
    assert "lines register 1, amend 2 of 2" in said


def test_an_amendment_by_another_signer_is_refused(root: Path, place: Path) -> None:
    """Mallory may sign forecasts of her own, and puts a worse one beside Ada's."""
    forge(place, lambda said: said.update(registrant=MALLORY), key=key_of(MALLORY))
    refused(root, "amend-1/amendment.json: mallory@example.org amends what ada@example.org promised")


def test_an_amendment_in_the_registrants_name_is_refused(root: Path, place: Path) -> None:
    """The same with Ada's name over it, and Mallory's signature."""
    forge(place, key=key_of(MALLORY))
    refused(root, "may not sign for ada@example.org", "has no such line")


@pytest.mark.parametrize("earlier", [timedelta(0), timedelta(days=1)])
def test_an_amendment_from_before_its_statement_is_refused(root: Path, place: Path, earlier: timedelta) -> None:
    """Whoever finds the better of two numbers later says that it was the first."""
    forge(place, lambda said: said.update(createdAt=moment_text(CREATED_AT - earlier)))
    refused(root, "amend-1/amendment.json: it was made at", "not after the statement that it amends")


def test_an_amendment_of_another_statement_is_refused(root: Path, place: Path) -> None:
    """A lucky number that was given for one run, moved beside the forecast of another."""
    other = make_second_registration(root).folder
    shutil.move(place, other / "amend-1")
    log_again(other.parent)
    refused(root, f"{other.name}/amend-1/amendment.json: it amends another statement")


def test_an_amendment_of_another_run_under_this_statements_digest_is_refused(root: Path, folder: Path) -> None:
    """Its fit forecasts a smaller run, whose loss is easier to know."""
    place = make_amendment(folder, **lower(folder))
    edit(place / "forecast.json", lambda fit: fit["predictions"][0].update(flops=fit["predictions"][0]["flops"] / 2))
    forge(place)
    refused(root, "the fit has 0 predictions at the target's")


@pytest.mark.parametrize("name", ["forecast.json", "ladder.json", "samples.json"])
def test_an_amendment_in_another_metric_is_refused(root: Path, place: Path, name: str) -> None:
    """Or two numbers of two kinds would stand in one table."""
    edit(place / name, lambda document: document.update(metric="nats_per_token"))
    forge(place)
    refused(root, name, "nats_per_token")


@pytest.mark.parametrize("key", ["metric", "targetRun", "scoring", "resolution"])
def test_an_amendment_that_says_again_what_it_may_not_change_is_refused(root: Path, place: Path, key: str) -> None:
    """Another metric, run, rule or day: the statement's stand, and an amendment has no word for them."""
    forge(place, lambda said: said.update({key: {}}))
    refused(root, f"amend-1/amendment.json: predicate.{key}: unknown key")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda said: said.update(flops=said["flops"] / 2), "samples.json says flops"),
        (lambda said: said.update(losses=said["losses"][::-1]), "samples.json does not hold 1000 rising losses"),
        (lambda said: said.update(losses=said["losses"][::2]), "samples.json does not hold 1000 rising losses"),
        (lambda said: said.update(losses=[loss - 0.1 for loss in said["losses"]]), "samples.json has 2.1"),
    ],
    ids=["another run", "falling", "half of them", "lower"],
)
def test_samples_that_tell_another_story_are_refused(
    root: Path, place: Path, change: Callable[[Said], Any], reason: str
) -> None:
    """As beside a statement."""
    edit(place / "samples.json", change)
    forge(place)
    refused(root, reason)


def test_better_quantiles_than_its_fit_are_refused(root: Path, place: Path) -> None:
    """In the amendment alone, with a good signature: the fit beside it says others."""

    def narrow(said: Said) -> None:
        forecast = said["forecast"]
        forecast["quantiles"] = {level: (value + forecast["point"]) / 2 for level, value in forecast["quantiles"].items()}

    forge(place, narrow)
    refused(root, "amend-1/amendment.json: forecast.quantiles is", "and its files say")


@pytest.mark.parametrize("shift", [0.02, -0.02])
def test_better_quantiles_in_every_file_are_refused(root: Path, fitted_folder: Path, shift: float) -> None:
    """By a fiftieth of the interval, in statement, fit and samples alike: its ladder, fitted again, gives others."""
    rows, document, losses = fitted(shift=shift, seed=1)
    make_amendment(fitted_folder, rows=rows, forecast=document, losses=losses)
    refused(root, "amend-1: it forecasts", "but refitting its ladder gives", "90 %")


def test_a_ladder_that_was_changed_is_refused(root: Path, fitted_folder: Path) -> None:
    """One loss a little lower, in the ladder that is shown, with the number that the true one gave."""
    rows, document, losses = fitted(seed=1)
    lowered = [{**rows[0], "loss": rows[0]["loss"] - 0.02}, *rows[1:]]
    make_amendment(fitted_folder, rows=lowered, forecast=document, losses=losses)
    refused(root, "amend-1: it forecasts", "but refitting its ladder gives")


def test_a_ladder_that_its_records_contradict_is_refused(root: Path, folder: Path) -> None:
    """Ladder, fit and number agree; the run store says another loss."""
    changed = lower(folder)
    changed["rows"][0]["loss"] -= 0.01
    make_amendment(folder, **changed)
    refused(root, "amend-1/ladder.json: loss of the run", "and its record says")


def test_a_rung_that_was_left_out_in_silence_is_refused(root: Path, folder: Path) -> None:
    """The runs that came in since the first forecast are in the later one's ladder, all of them."""
    store_run(
        root / "runs",
        spec=run_spec(train_steps=333),
        loss=9.0,
        started_at=moment_text(CREATED_AT),
        finished_at=moment_text(CREATED_AT + timedelta(minutes=30)),
    )
    make_amendment(folder, **lower(folder))
    refused(root, "was finished before the forecast and is neither in its ladder nor among those left out")


def test_an_amendment_older_than_its_runs_is_refused(root: Path, folder: Path) -> None:
    """It is back-dated to before the runs that it was made from."""
    made = lower(folder)
    record = next((root / "runs" / "tiny").glob(f"{made['rows'][0]['run'][:16]}/record.json"))
    make_amendment(folder, **made)
    edit(record, lambda said: said.update(finished_at="2026-11-20T12:00:00Z"))
    refused(root, "was finished at 2026-11-20T12:00:00Z, after the statement of")


def test_an_amendment_that_did_not_come_in_by_the_log_is_refused(root: Path, registry: Path, folder: Path) -> None:
    """Put in by hand, with a date of the forger's choice."""
    before = (registry / "log.jsonl").read_bytes()
    make_amendment(folder, **lower(folder))
    (registry / "log.jsonl").write_bytes(before)
    refused(root, "amend-1/amendment.json is not in the log")


def test_a_line_that_binds_only_part_of_an_amendment_is_refused(root: Path, registry: Path, place: Path) -> None:
    """Its ladder could be exchanged later, under the same line."""
    first, second = log_entries(registry)
    del second["files"]["amend-1/ladder.json"]
    chain(registry, [first, second])
    refused(root, "log.jsonl, line 2:", "is not what a line of the type 'amend' names")


def test_an_amendment_that_was_taken_away_is_missed(root: Path, place: Path) -> None:
    """It did worse than the first forecast; the log knows of it."""
    shutil.rmtree(place)
    refused(root, "amend-1/", "line 2 of the log has the digest", "and there is no file")


def test_an_amendment_before_the_last_that_was_taken_away_is_missed(root: Path, folder: Path, place: Path) -> None:
    """Also with the log written anew: they are numbered without a gap."""
    make_amendment(folder, at=LATER + timedelta(hours=1), **lower(folder, by=0.1))
    shutil.rmtree(place)
    log_again(folder.parent)
    refused(root, "amend-2 is there, and number 1 is not")


def test_amendments_in_another_order_are_refused(root: Path, folder: Path, place: Path) -> None:
    """The one that did best is to look like the last word."""
    second = make_amendment(folder, at=LATER + timedelta(hours=1), **lower(folder, by=0.1))
    shutil.move(place, folder / "kept")
    second.rename(place)
    (folder / "kept").rename(second)
    log_again(folder.parent)
    refused(root, "amend-2 is not younger than amend-1")


def test_an_amendment_that_stands_twice_is_refused(root: Path, folder: Path, place: Path) -> None:
    """One forecast is not two."""
    shutil.copytree(place, folder / "amend-2")
    log_again(folder.parent)
    refused(root, "amend-2 is not younger than amend-1")


def test_an_amendment_that_was_edited_is_refused(root: Path, place: Path) -> None:
    """Not by its reason, but by its signature."""
    edit(place / "amendment.json", lambda document: document["predicate"].update(reason="it looked wrong"))
    log_again(place.parents[1])
    refused(root, "amend-1/amendment.json.sig is not a valid signature", "did not sign these bytes")


def test_an_amendment_that_was_signed_again_is_refused(root: Path, place: Path) -> None:
    """By its registrant, with a kinder reason: the line of the log has the digest of the first one."""
    sign_again(place, lambda said: said.update(reason="it looked wrong"))
    refused(root, "amend-1/amendment.json: line 2 of the log has the digest")


def test_an_unsigned_amendment_is_refused(root: Path, place: Path) -> None:
    """Anyone could have put it there."""
    (place / "amendment.json.sig").unlink()
    refused(root, "amend-1 holds amendment.json, forecast.json, ladder.json, samples.json, not")


def test_the_statements_signature_over_an_amendment_is_refused(root: Path, folder: Path, place: Path) -> None:
    """A good signature of the right person, over another promise."""
    shutil.copy(folder / "statement.json.sig", place / "amendment.json.sig")
    log_again(folder.parent)
    refused(root, "amend-1/amendment.json.sig is not a valid signature")


def test_a_file_beside_an_amendment_is_refused(root: Path, place: Path) -> None:
    """What is not signed does not lie among what is."""
    (place / "evidence.png").write_bytes(b"x")
    refused(root, "amend-1 holds amendment.json, amendment.json.sig, evidence.png, forecast.json")


@pytest.mark.parametrize("name", ["amend-01", "amend-0", "amend-1b", "amend-"])
def test_a_folder_that_only_looks_like_an_amendment_is_refused(root: Path, folder: Path, place: Path, name: str) -> None:
    """It would lie there unread."""
    shutil.copytree(place, folder / name)
    refused(root, f"{name} does not belong to a preregistration")


def test_a_link_in_place_of_an_amendment_is_refused(root: Path, place: Path) -> None:
    """It could be one forecast today and another tomorrow."""
    shutil.move(place, root / "elsewhere")
    os.symlink(root / "elsewhere", place)
    refused(root, "amend-1 is a link")


def test_a_link_in_an_amendment_is_refused(root: Path, place: Path) -> None:
    """The same with one of its files."""
    shutil.move(place / "ladder.json", root / "ladder.json")
    os.symlink(root / "ladder.json", place / "ladder.json")
    refused(root, "amend-1/ladder.json is", "link")


def withdrawn(folder: Path) -> None:
    """Ada takes her forecast back."""
    give_notice(folder, "withdraw", key=signing_key(), principal=PRINCIPAL, at=LATER, reason="the run is cancelled")
    write_down(folder.parent, at=LATER)


def void(folder: Path) -> None:
    """Carol finds it void."""
    give_notice(folder, "void", key=key_of(CAROL), principal=CAROL, at=LATER, reason="so it is", condition=CONDITION)
    write_down(folder.parent, at=LATER)


@pytest.mark.parametrize(("end", "name"), [(withdrawn, "notice-1-withdraw"), (void, "notice-1-void")])
@pytest.mark.parametrize("backdated", [False, True])
def test_an_amendment_of_what_has_ended_is_refused(
    root: Path, folder: Path, end: Callable[[Path], None], name: str, backdated: bool
) -> None:
    """Taken back or found void, and forecast again; also where its date says that it was there before, and the log does not."""
    said = LATER - timedelta(minutes=30) if backdated else LATER + timedelta(hours=1)
    place = make_amendment(folder, at=said, **lower(folder))
    kept = shutil.move(place, root / "kept")
    log_again(folder.parent)
    end(folder)
    shutil.move(kept, place)
    write_down(folder.parent, at=LATER + timedelta(hours=1))
    refused(root, "amend-1 was given at 2026-11-20T10:30:00Z, after", name)


def test_an_amendment_from_before_a_withdrawal_stays(root: Path, folder: Path, place: Path) -> None:
    """What was said is not unsaid: that is no refusal."""
    withdrawn(folder)
    assert said_by("verify", root)[0] == 0


@pytest.fixture
def settled(root: Path, registration: Registration) -> Path:
    """The folder of a forecast whose run has ended, and that has its outcome, a miss, an hour later."""
    folder, runs = registration.folder, root / "runs"
    store_run(runs, spec=registration.target, loss=2.9, started_at=BEGAN, finished_at=ENDED)
    at = END + timedelta(hours=1)
    check_preregistration(folder, runs_dir=runs, allowed_signers=signers_path(folder), checked_at=at)
    return folder


def amend_all_the_same(folder: Path, *, said: datetime) -> None:
    """An amendment that has the true value, by someone who goes round the command, which refuses beside an outcome."""
    away = (folder / "outcome.json").rename(folder.parents[1] / "outcome.json")
    make_amendment(folder, at=said, logged=AFTERWARDS, **lower(folder, by=-0.4))
    away.rename(folder / "outcome.json")


@pytest.mark.parametrize("said", [AFTERWARDS, LATER], ids=["as it is", "back-dated"])
def test_an_amendment_after_the_outcome_is_refused(root: Path, settled: Path, said: datetime) -> None:
    """What is known is not forecast, whatever its date: the log had the outcome first."""
    amend_all_the_same(settled, said=said)
    refused(root, "amend-1 was given at 2026-11-22T10:00:00Z, after outcome.json of 2026-11-21T11:00:00Z")


NOT_SCORED = "(2.7355 to 3.0645), not scored: it came after the run had ended"


def test_a_back_dated_amendment_of_a_run_that_has_ended_is_not_scored(root: Path, registration: Registration) -> None:
    """No refusal, because lines may be made again when another branch came first; what counts is when it was logged."""
    store_run(root / "runs", spec=registration.target, loss=2.9, started_at=BEGAN, finished_at=ENDED)
    make_amendment(registration.folder, at=LATER, logged=END, **lower(registration.folder, by=-0.4))
    said = said_by("check", root)[1]
    assert NOT_SCORED in said
    assert "in their 90 % intervals 0 of 1" in said


@pytest.mark.parametrize("checked_at", [END + timedelta(hours=1), AFTERWARDS + timedelta(days=9000)])
def test_an_amendment_whose_line_is_no_older_than_the_outcomes_is_not_scored(
    root: Path, settled: Path, checked_at: datetime
) -> None:
    """Also where its run is not here, and whatever the outcome says of its own time: nothing shows that it was there before."""
    amend_all_the_same(settled, said=LATER)
    edit(settled / "outcome.json", lambda said: said.update(checked_at=moment_text(checked_at)))
    (settled.parent / "log.jsonl").unlink()
    write_down(settled.parent, at=AFTERWARDS)
    shutil.rmtree(root / "runs")
    said = said_by("check", root)[1]
    assert NOT_SCORED in said
    assert "missed: observed 2.9000" in said


@pytest.fixture
def branch(root: Path, place: Path) -> Path:
    """A repository whose main has the forecast and the later one; we stand on a branch of it."""
    branch_off(root)
    return root


def refused_by_the_base(root: Path, *fragments: str) -> None:
    """That the branch may not be merged, though the registry is sound in itself."""
    assert said_by("verify", root)[0] == 0
    commit(root)
    refused(root, *fragments, options=("--base", "main"))


def test_an_amendment_that_the_base_has_is_not_deleted(branch: Path, place: Path) -> None:
    """With its line, and the log chained anew."""
    shutil.rmtree(place)
    log_again(place.parents[1])
    refused_by_the_base(branch, "log.jsonl does not begin with the log of main")


def test_an_amendment_that_the_base_has_is_not_deleted_under_its_log(branch: Path, place: Path) -> None:
    """The files go, the lines stay."""
    shutil.rmtree(place)
    refused(branch, "amend-1/", "was removed since main", options=("--base", "main"))


def test_an_amendment_that_the_base_has_is_not_replaced(branch: Path, place: Path) -> None:
    """A luckier one in its place, by the same person, and the log chained anew."""
    folder = place.parent
    shutil.rmtree(place)
    (folder.parent / "log.jsonl").unlink()
    make_amendment(folder, **lower(folder, by=0.1))
    refused_by_the_base(branch, "log.jsonl does not begin with the log of main")


def test_an_amendment_by_a_key_that_only_the_branch_allows_is_refused(root: Path, registration: Registration) -> None:
    """The list of signers that counts is that of the base."""
    branch_off(root)
    other, registry = key_of("ada's other key"), registration.folder.parent
    before = (registry / "allowed_signers").read_bytes()
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"ada@example.org {other.public_key.text}\n")
    make_amendment(registration.folder, key=other, **lower(registration.folder))
    assert said_by("verify", root)[0] == 0
    (registry / "allowed_signers").write_bytes(before)
    refused(root, "may not sign for ada@example.org", "allowed_signers of main", options=("--base", "main"))


def test_an_amendment_beside_a_promise_of_no_resolver_is_sound(root: Path) -> None:
    """Nor does it need what the promise left out."""
    folder = make_registration(root, promise=Promise()).folder
    make_amendment(folder, **lower(folder))
    assert said_by("verify", root)[0] == 0
