"""Forgeries of outside runs: by a registrant who signs and logs again what he likes, and by others who may sign."""

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from forgery import MALLORY, Change, allow, edit, edited, key_of, log_now, refused, said_by, sign_again
from git_repository import branch_off, commit
from made_once import made_once
from outside_factory import KEY, LOSS, PRINCIPAL, register_outside, write_files, write_log
from registration_factory import signing_key
from typer.testing import CliRunner

from marin_scaling import __version__
from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.cli.app import app
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.outcome import outcome_document
from marin_scaling.preregistration.outside import forecast_outside, read_target_file, record_outcome
from marin_scaling.preregistration.register import preregister_target
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import make_signature
from marin_scaling.preregistration.verify.refit import TOLERANCE


def make(root: Path) -> None:
    """A repository with a forecast of an outside run and its outcome; Mallory may sign, too."""
    root.mkdir()
    folder = register_outside(root)
    allow(folder.parent, MALLORY)
    log = write_log(root)
    record_outcome(folder, str(log), registry=folder.parent, key=root / "key", signer=PRINCIPAL, on_message=lambda _: None)


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made_once("outside", make, factory=tmp_path_factory), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the forecast."""
    return next((root / "preregistrations").glob("*-hero"))


def read_again(folder: Path, change: Callable[[dict[str, Any]], object], *, key: SigningKey | None = None) -> None:
    """Change the reading of the log, sign it, and write the outcome that follows from it."""
    path, statement = folder / "observed" / "observed.json", read_registration(folder)
    edit(path, change)
    raw = path.read_bytes()
    signature = make_signature(raw, private_key=(key or signing_key()).private_key)
    path.with_name("observed.json.sig").write_bytes(signature)
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


def unread(folder: Path) -> None:
    """Remove the outcome and its reading."""
    shutil.rmtree(folder / "observed")
    (folder / "outcome.json").unlink()


def promise_again(folder: Path, change: Change = lambda predicate: None, *, files: Mapping[str, bytes] | None = None) -> None:
    """Remove the outcome, put other files in, change the promise, sign it, and log it as received just now."""
    unread(folder)
    sign_again(folder, change, files=files)
    log_now(folder.parent)


def test_the_whole_repository_verifies_as_it_is(root: Path) -> None:
    """So that every refusal below is of its forgery."""
    status, said = said_by("verify", root)
    assert status == 0, said


READINGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another run": (lambda said: said.update(run="hero-2"), "hero-2"),
    "another project": (lambda said: said.update(project="lab/other"), "lab/other"),
    "another key": (lambda said: said.update(key="train/loss"), "train/loss"),
    "another statement": (lambda said: said.update(statement_sha256="0" * 64), "another statement"),
    "half of the tokens": (lambda said: said.update(tokens=1e10), "10.0B"),
    "a run that goes on": (lambda said: said.update(state="running"), "running"),
    "a run that crashed": (lambda said: said.update(state="crashed"), "crashed"),
    "a run that began before": (lambda said: said.update(started_at="2020-01-01T00:00:00Z"), "2020-01-01"),
    "a run of another project in the log": (lambda said: said.update(project_in_log="lab/other"), "lab/other"),
    "another tracker": (lambda said: said.update(tracker="wandb"), "wandb"),
    "read before the promise": (lambda said: said.update(read_at="2020-01-01T00:00:00Z"), "2020-01-01"),
    "a value of another metric": (lambda said: said.update(value=55.0), "55"),
    "by someone else": (lambda said: said.update(by=MALLORY), MALLORY),
    "an unknown field": (lambda said: said.update(note="x"), "note"),
}


@pytest.mark.parametrize("name", READINGS)
def test_a_forged_reading_is_refused(root: Path, folder: Path, name: str) -> None:
    """Though its registrant has signed and logged it."""
    change, named = READINGS[name]
    read_again(folder, change)
    refused(root, named)
    assert said_by("check", root)[0] == 1


def test_a_reading_by_mallory_in_her_own_name_is_refused(root: Path, folder: Path) -> None:
    """She may sign, but is neither registrant nor resolver."""
    read_again(folder, lambda said: said.update(by=MALLORY), key=key_of(MALLORY))
    refused(root, MALLORY, "neither")


def test_a_reading_in_the_registrant_s_name_with_another_key_is_refused(root: Path, folder: Path) -> None:
    """Mallory's key is not listed for that name."""
    read_again(folder, lambda said: said.update(value=LOSS * 1.01), key=key_of(MALLORY))
    assert said_by("verify", root)[0] == 1


def test_an_edited_value_without_a_signature_is_refused(root: Path, folder: Path) -> None:
    """The signature covers the value."""
    edit(folder / "observed" / "observed.json", lambda said: said.update(value=LOSS * 1.01))
    log_now(folder.parent)
    assert said_by("verify", root)[0] == 1


@pytest.mark.parametrize("change", [{"value": 2.0}, {"record_sha256": "0" * 64}])
def test_an_outcome_that_does_not_follow_from_the_reading_is_refused(root: Path, folder: Path, change: dict) -> None:
    """Neither in its value nor in the digest."""
    edit(folder / "outcome.json", lambda outcome: outcome.update(change))
    log_now(folder.parent)
    assert said_by("verify", root)[0] == 1


def test_an_outcome_without_a_reading_is_refused(root: Path, folder: Path) -> None:
    """Nobody signed where it comes from."""
    shutil.rmtree(folder / "observed")
    log_now(folder.parent)
    refused(root, "observed")


def test_a_reading_with_a_further_file_is_refused(root: Path, folder: Path) -> None:
    """What is not signed must not lie beside it."""
    (folder / "observed" / "notes.txt").write_text("see elsewhere")
    refused(root, "notes.txt")


def test_a_reading_that_is_a_link_is_refused(root: Path, folder: Path) -> None:
    """To a folder that changes later."""
    shutil.move(folder / "observed", root / "elsewhere")
    (folder / "observed").symlink_to(root / "elsewhere")
    assert said_by("verify", root)[0] == 1


@pytest.mark.parametrize(
    "doctored",
    [lambda runs: runs.assign(loss=runs["loss"] * 0.99), lambda runs: runs.iloc[:-1], lambda runs: runs.assign(run=runs.index)],
    ids=["other losses", "one run less", "other names"],
)
def test_rows_that_the_table_does_not_have_are_refused(
    tmp_path: Path, doctored: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    """A whole and sound forecast from doctored runs, with the digest of the published table."""
    write_files(tmp_path)
    doctored(pd.read_csv(tmp_path / "runs.csv")).to_csv(tmp_path / "doctored.csv", index=False)
    wanted = read_target_file(tmp_path / "hero.yaml")
    with contextlib.chdir(tmp_path):
        evidence = forecast_outside("doctored.csv", wanted, on_message=lambda _: None)
    source = {"path": "runs.csv", "sha256": sha256_hex((tmp_path / "runs.csv").read_bytes()), "choices": {}}
    preregister_target(
        replace(evidence, source=source),
        registry_dir=tmp_path / "preregistrations",
        key=signing_key(),
        principal=PRINCIPAL,
        slug="hero",
        created_at=datetime.now(UTC),
        promise=wanted.promise,
    )
    refused(tmp_path, "runs.csv says")


@pytest.mark.parametrize("path", ["../runs.csv", "/etc/passwd", "a/../../b.csv", ".git/config", "-runs.csv", "runs.parquet"])
def test_a_table_outside_of_the_repository_is_refused(root: Path, folder: Path, path: str) -> None:
    """Nor one that has to be unpacked; it is never opened."""
    promise_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder["source"].update(path=path)))
    refused(root, "source.path")


def test_a_table_that_is_a_link_is_refused(root: Path) -> None:
    """To a file outside."""
    (root / "runs.csv").rename(root / "elsewhere.csv")
    (root / "runs.csv").symlink_to(root / "elsewhere.csv")
    assert said_by("verify", root)[0] == 1


def test_a_ladder_without_its_table_is_refused(root: Path, folder: Path) -> None:
    """Nobody could see where its runs come from."""
    promise_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder.pop("source")))
    refused(root, "names a table")


def test_a_table_in_a_folder_that_is_a_link_is_refused(root: Path, folder: Path) -> None:
    """With the digest of the file that lies there."""
    (root / "elsewhere").mkdir()
    shutil.copy(root / "runs.csv", root / "elsewhere")
    (root / "tables").symlink_to(root / "elsewhere")
    promise_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder["source"].update(path="tables/runs.csv")))
    refused(root, "through a link")


def test_an_unknown_choice_of_reading_is_refused(root: Path, folder: Path) -> None:
    """Without a traceback."""
    promise_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder["source"].update(choices={"eval": "x"})))
    refused(root, "eval")


PROMISES: dict[str, Callable[[dict[str, Any]], object]] = {
    "bound": lambda said: said["targetRun"].update(assurance="bound"),
    "no level of assurance": lambda said: said["targetRun"].pop("assurance"),
    "the rule of bound runs": lambda said: said["targetRun"].update(lineageRule="any run"),
    "another size": lambda said: said["targetRun"].update(paramsTotal=2 * 10**9),
    "another trainer": lambda said: said["recipe"]["described"].update(trainer="another"),
    "begun before": lambda said: said["recipe"]["described"].update(planned_start="2020-01-01"),
    "no planned start": lambda said: said["recipe"]["described"].pop("planned_start"),
    "a wider tolerance": lambda said: said["targetRun"]["tolerance"].update(tokens=0.5),
    "another unit": lambda said: said["metric"].update(unit="bits/byte"),
}


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_that_its_target_does_not_give_is_refused(root: Path, folder: Path, name: str) -> None:
    """Signed and logged again."""
    promise_again(folder, PROMISES[name])
    assert said_by("verify", root)[0] == 1


def test_a_run_named_after_the_fact_is_refused(root: Path, folder: Path) -> None:
    """The outcome's run in target.json, changed after the reading and signed again, is not the one that was read."""
    files = edited(folder, "target.json", lambda target: target["outcome"].update(run="hero-2"))
    sign_again(folder, files=files)
    assert said_by("verify", root)[0] == 1


def test_moved_quantiles_are_refused(root: Path, folder: Path) -> None:
    """A forecast moved by more than the tolerance of the refit."""
    statement = json.loads((folder / "statement.json").read_bytes())["predicate"]["forecast"]
    by = 3 * TOLERANCE * (statement["quantiles"]["0.95"] - statement["quantiles"]["0.05"])

    def moved(document: dict[str, Any]) -> None:
        (prediction,) = document["predictions"]
        prediction["quantiles"] = {level: value + by for level, value in prediction["quantiles"].items()}
        prediction["median"] += by

    def promised(said: dict[str, Any]) -> None:
        quantiles = said["forecast"]["quantiles"]
        said["forecast"].update(quantiles={level: value + by for level, value in quantiles.items()})
        said["forecast"]["point"] += by

    samples = edited(folder, "samples.json", lambda said: said.update(losses=[loss + by for loss in said["losses"]]))
    promise_again(folder, promised, files={**edited(folder, "forecast.json", moved), **samples})
    assert said_by("verify", root)[0] == 1


def test_a_second_forecast_of_the_run_under_other_words_is_refused(root: Path, folder: Path) -> None:
    """By verify, where a registrant has put it beside the first by hand."""
    unread(folder)
    other = folder.with_name(f"{folder.name}-2")
    shutil.copytree(folder, other)

    def promised(said: dict[str, Any]) -> None:
        said.update(id=other.name)
        said["recipe"]["described"].update(trainer="the same one")

    words = edited(other, "target.json", lambda target: target["described"].update(trainer="the same one"))
    sign_again(other, promised, files=words)
    log_now(folder.parent)
    refused(root, "for the same target")


def test_a_forecast_that_came_after_the_outcome_is_refused(root: Path, folder: Path) -> None:
    """Of another person, made with other software, dated before: the log has it after the outcome."""
    other = folder.with_name(f"{folder.name}-2")
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("observed", "outcome.json"))

    def promised(said: dict[str, Any]) -> None:
        said.update(id=other.name, registrant=MALLORY)
        said["resolution"].update(resolver=MALLORY)

    sign_again(other, promised)
    statement = (other / "statement.json").read_bytes()
    (other / "statement.json.sig").write_bytes(make_signature(statement, private_key=key_of(MALLORY).private_key))
    hidden = other.rename(root / "hidden")
    log_now(folder.parent)
    hidden.rename(other)
    write_down(folder.parent, at=datetime.now(UTC))
    refused(root, "after the outcome")


def test_a_branch_that_changes_the_signed_table_is_refused(root: Path, folder: Path) -> None:
    """Though no file of the registry changes."""
    branch_off(root)
    (root / "runs.csv").write_text((root / "runs.csv").read_text().replace("3.", "3.1", 1))
    commit(root)
    with contextlib.chdir(root):
        done = CliRunner().invoke(app, ["review", "--base", "main"])
    assert done.exit_code == 1
    assert "runs.csv was changed after signing" in " ".join(done.output.split())


def test_the_key_of_the_promise_is_in_the_refusal(root: Path, folder: Path) -> None:
    """A reader sees what was promised."""
    read_again(folder, lambda said: said.update(key="train/loss"))
    refused(root, KEY)
