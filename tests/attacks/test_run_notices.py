"""Forgeries of restarts and deviations: the run or the forecast that counts is chosen afterwards, or by someone else."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import MALLORY, allow, edit, key_of, log_now, refused, said_by, sign_again
from made_once import made_once
from outside_factory import AGAIN, AGAIN_RUN, FIRST, PRINCIPAL, RUN, register_outside, restart, target, write_part
from registration_factory import signing_key

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.preregistration.events.notice import conditional_statement, read_notice
from marin_scaling.preregistration.outcome import outcome_document
from marin_scaling.preregistration.outside import record_outcome
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import make_signature
from marin_scaling.preregistration.statement import moment_text


def make(root: Path) -> None:
    """A repository with a forecast of an outside run, its restart and its outcome; Mallory may sign, too."""
    root.mkdir()
    folder = register_outside(root)
    allow(folder.parent, MALLORY)
    restart(folder)
    began = datetime.now(UTC) + timedelta(hours=1)
    logs = [
        write_part(root, RUN, FIRST, ended=began),
        write_part(root, AGAIN_RUN, AGAIN, ended=began + timedelta(hours=1)),
    ]
    record_outcome(folder, *logs, registry=folder.parent, key=root / "key", signer=PRINCIPAL, on_message=lambda _: None)


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made_once("restarted", make, factory=tmp_path_factory), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the forecast."""
    return next((root / "preregistrations").glob("*-hero"))


def say(folder: Path, number: int, *, kind: str = "restart", key: SigningKey | None = None, **said: Any) -> Path:
    """A notice as someone writes it who goes round the command: by Ada where nothing else is said, and logged."""
    restarted = {"continues": RUN if number == 1 else AGAIN_RUN, "run": AGAIN_RUN if number == 1 else "hero-1c"}
    document = {
        "format_version": 1,
        "kind": kind,
        "statement_sha256": read_registration(folder).sha256,
        "by": PRINCIPAL,
        "at": moment_text(datetime.now(UTC)),
        "reason": "a node failed",
        "target_steps_seen": 0,
        "from_step": 101,
        **(restarted if kind == "restart" else {}),
        **said,
    }
    place = folder / f"notice-{number}-{kind}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    raw = dump_canonical({name: value for name, value in document.items() if value is not None})
    (place / "notice.json").write_bytes(raw)
    (place / "notice.json.sig").write_bytes(make_signature(raw, private_key=(key or signing_key()).private_key))
    log_now(folder.parent)
    return place


def read_again(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the reading of the logs, sign it, and write the outcome that follows from it."""
    path, statement = folder / "observed" / "observed.json", read_registration(folder)
    edit(path, change)
    raw = path.read_bytes()
    path.with_name("observed.json.sig").write_bytes(make_signature(raw, private_key=signing_key().private_key))
    outcome = outcome_document(
        statement,
        value=json.loads(raw)["value"],
        run=json.loads((folder / "outcome.json").read_bytes())["run"],
        record_sha256=sha256_hex(raw),
        checked_at=datetime.now(UTC),
        tool_version=__version__,
    )
    (folder / "outcome.json").write_bytes(dump_canonical(outcome))
    log_now(folder.parent)


def test_the_whole_repository_verifies_as_it_is(root: Path, folder: Path) -> None:
    """So that every refusal below is of its forgery; also with the notice written by hand, and received again."""
    say(folder, 1)
    status, said = said_by("verify", root)
    assert status == 0, said


def changed(at: int, **values: Any) -> Callable[[dict[str, Any]], object]:
    """Another word of the signed reading about one of its runs."""
    return lambda said: said["runs"][at].update(values)


READINGS: dict[str, tuple[Callable[[dict[str, Any]], object], tuple[str, ...]]] = {
    "an undeclared id": (changed(1, run="hero-9"), ("hero-9", AGAIN_RUN)),
    "another first run": (changed(0, run="hero-9"), ("restarts",)),
    "no restart": (lambda said: said.pop("runs"), ("none", AGAIN_RUN)),
    "one restart more": (lambda said: said["runs"].append({**said["runs"][1], "run": "hero-1c"}), ("hero-1c",)),
    "swapped order": (lambda said: said["runs"].reverse(), ("restarts",)),
    "a gap before": (changed(0, last_step=60), ("gap", "60", "101")),
    "a gap after": (changed(1, first_step=150), ("gap", "150", "101")),
    "an earlier step": (changed(1, first_step=50), ("50", "before 101")),
    "a finished run": (changed(0, last_step=200), ("finished",)),
    "an old run": (changed(1, started_at="2020-01-01T00:00:00Z"), ("2020-01-01",)),
    "an unknown field": (changed(1, note="x"), ("note",)),
}


@pytest.mark.parametrize("name", READINGS)
def test_a_forged_reading_of_a_restart_is_refused(root: Path, folder: Path, name: str) -> None:
    """Though its registrant has signed and logged it."""
    change, named = READINGS[name]
    read_again(folder, change)
    refused(root, *named)
    assert said_by("check", root)[0] == 1


NOTICES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "by Mallory": ({"by": MALLORY, "key": key_of(MALLORY)}, (MALLORY, "neither")),
    "in the registrant's name by Mallory": ({"key": key_of(MALLORY)}, ("may not sign for",)),
    "forged lineage": ({"continues": "hero-0"}, ("hero-0", RUN)),
    "another id": ({"run": "hero-9"}, ("hero-9",)),
    "the promised id": ({"run": RUN}, (RUN, "earlier run")),
    "a later step": ({"from_step": 150}, ("150", "before")),
    "an earlier step": ({"from_step": 10}, ("gap", "10")),
    "no place": ({"from_step": None}, ("neither from_step nor from_tokens",)),
    "two places": ({"from_tokens": 1.0}, ("from_step and from_tokens",)),
    "before the statement": ({"at": "2020-01-01T00:00:00Z"}, ("2020-01-01", "before")),
    "of another statement": ({"statement_sha256": "0" * 64}, ("another statement",)),
    "small print": ({"unless": "it holds"}, ("unless",)),
}


@pytest.mark.parametrize("name", NOTICES)
def test_a_forged_notice_of_a_restart_is_refused(root: Path, folder: Path, name: str) -> None:
    """Signed by someone who may sign, and logged."""
    said, named = NOTICES[name]
    say(folder, 1, **said)
    refused(root, *named)


def undated(run: dict[str, Any]) -> None:
    """A run whose log has no start."""
    run.update(started_at=None)


def test_a_notice_that_was_received_after_the_end_is_refused(root: Path, folder: Path) -> None:
    """It is dated before the end of the run, and came into the log later."""
    ended = read_registration(folder).created_at
    say(folder, 1, at=moment_text(ended))
    read_again(folder, lambda said: [said.update(ended_at=moment_text(ended), started_at=None), *map(undated, said["runs"])])
    refused(root, "late")


def test_a_notice_after_the_outcome_is_refused(root: Path, folder: Path) -> None:
    """A better run is not declared once the outcome is known."""
    say(folder, 2, from_step=150)
    refused(root, "hero-1c")


def test_notices_in_swapped_order_are_refused(root: Path, folder: Path) -> None:
    """Their numbers are not signed, but what each continues is."""
    say(folder, 2, from_step=150)
    for old, new in (("notice-1", "notice-3"), ("notice-2", "notice-1"), ("notice-3", "notice-2")):
        (folder / f"{old}-restart").rename(folder / f"{new}-restart")
    log_now(folder.parent)
    refused(root, "continues", AGAIN_RUN)


def test_a_notice_that_was_edited_is_refused(root: Path, folder: Path) -> None:
    """By its signature."""
    edit(folder / "notice-1-restart" / "notice.json", lambda said: said.update(from_step=105))
    log_now(folder.parent)
    refused(root, "notice.json", "was changed after signing")


def test_a_notice_that_was_taken_away_is_refused(root: Path, folder: Path) -> None:
    """Its reading still joins two runs; so do the notices of another forecast moved here."""
    shutil.rmtree(folder / "notice-1-restart")
    log_now(folder.parent)
    refused(root, "none declared")


def test_a_notice_of_another_forecast_is_refused(root: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ada declared the restart of another run."""
    other = register_outside(tmp_path_factory.mktemp("other"), name="other")
    shutil.rmtree(folder / "notice-1-restart")
    shutil.copytree(restart(other), folder / "notice-1-restart")
    log_now(folder.parent)
    refused(root, "notice-1-restart/notice.json: it is about another statement")


def test_the_run_of_another_forecast_is_refused_as_a_restart(root: Path, folder: Path) -> None:
    """Registered by hand beside it, so that one log would answer two forecasts."""
    other = folder.with_name(f"{folder.name}-2")
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("observed", "outcome.json", "notice-*"))
    document = json.loads((other / "target.json").read_bytes())
    document["outcome"]["run"] = AGAIN_RUN
    sign_again(other, lambda said: said.update(id=other.name), files={"target.json": dump_canonical(document)})
    log_now(folder.parent)
    refused(root, AGAIN_RUN, other.name)


def test_two_runs_do_not_continue_as_one(root: Path, folder: Path) -> None:
    """Another forecast, of another run, declares the same restart."""
    other = register_outside(root, name="other", outcome={**target()["outcome"], "run": "hero-2"})
    say(other, 1, continues="hero-2")
    refused(root, AGAIN_RUN, other.name)


def shifted(folder: Path, by: float) -> dict[str, float]:
    """The signed quantiles, moved."""
    return {f"{level:g}": value + by for level, value in read_registration(folder).quantiles.items()}


def deviate(folder: Path, **said: Any) -> Path:
    """A deviation with a forecast that is better than the first."""
    return say(folder, 2, kind="deviate", **{"quantiles": shifted(folder, 0.001), **said})


def test_a_deviation_with_a_forecast_leaves_the_first_one_as_it_is(root: Path, folder: Path) -> None:
    """The ground of the attacks: the outcome stays, and the later forecast is not scored, as it came after it."""
    before = (folder / "outcome.json").read_bytes()
    deviate(folder)
    status, said = said_by("check", root, "--json")
    assert status == 0, said
    (verdict,) = json.loads(said)
    assert (folder / "outcome.json").read_bytes() == before
    assert verdict["outcome"] == json.loads(before)
    (later,) = verdict["amendments"]
    assert later["scores"] is None


DEVIATIONS: dict[str, tuple[Callable[[Path], dict[str, Any]], tuple[str, ...]]] = {
    "a forecast by Mallory": (lambda _: {"by": MALLORY, "key": key_of(MALLORY)}, (MALLORY, PRINCIPAL)),
    "in the registrant's name": (lambda _: {"key": key_of(MALLORY)}, ("may not sign for",)),
    "three quantiles": (lambda _: {"quantiles": {"0.05": 1.0, "0.5": 2.0, "0.95": 3.0}}, ("levels",)),
    "no quantiles": (lambda _: {"quantiles": {}}, ("levels",)),
    "falling quantiles": (
        lambda folder: {"quantiles": {level: 9 - value for level, value in shifted(folder, 0).items()}},
        ("quantile",),
    ),
    "a negative loss": (lambda folder: {"quantiles": shifted(folder, -9.0)}, ("outside",)),
    "words that replace the forecast": (lambda _: {"replaces": "the forecast"}, ("replaces",)),
    "two places": (lambda _: {"from_tokens": 1.0}, ("from_step and from_tokens",)),
    "no place": (lambda _: {"from_step": None}, ("neither from_step nor from_tokens",)),
    "no day": (lambda _: {"changed_on": "2026-02-31"}, ("changed_on",)),
    "another statement": (lambda _: {"statement_sha256": "0" * 64}, ("another statement",)),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_forged_deviation_is_refused(root: Path, folder: Path, name: str) -> None:
    """Signed by someone who may sign, and logged."""
    said, named = DEVIATIONS[name]
    deviate(folder, **said(folder))
    refused(root, *named)


def test_an_outcome_scored_by_a_later_forecast_is_refused(root: Path, folder: Path) -> None:
    """A deviation replaces nothing: the scores follow from the statement."""
    place = deviate(folder)
    statement = read_registration(folder)
    later = conditional_statement(
        read_notice((place / "notice.json").read_bytes(), name=place.name, statement=statement), statement
    )
    outcome = json.loads((folder / "outcome.json").read_bytes())
    changed = outcome_document(
        later,
        value=outcome["value"],
        run=outcome["run"],
        record_sha256=outcome["record_sha256"],
        checked_at=datetime.now(UTC),
        tool_version=__version__,
    )
    (folder / "outcome.json").write_bytes(dump_canonical(changed))
    log_now(folder.parent)
    refused(root, "outcome.json")


def test_a_forecast_that_is_dated_back_is_not_scored(root: Path, folder: Path) -> None:
    """It came into the log after the end of the run."""
    ended = read_registration(folder).created_at
    shutil.rmtree(folder / "notice-1-restart")
    say(folder, 1, kind="deviate", quantiles=shifted(folder, 0.001), at=moment_text(ended))
    read_again(folder, lambda said: [said.pop("runs"), said.update(ended_at=moment_text(ended), started_at=None)])
    status, said = said_by("check", root, "--json")
    assert status == 0, said
    (later,) = json.loads(said)[0]["amendments"]
    assert later["scores"] is None
    assert "after the run had ended" in later["why_not_scored"]


def test_a_deviation_that_was_taken_away_is_missed(root: Path, folder: Path) -> None:
    """The log knows of it."""
    shutil.rmtree(deviate(folder))
    refused(root, "notice-2-deviate/notice.json", "there is no file")
