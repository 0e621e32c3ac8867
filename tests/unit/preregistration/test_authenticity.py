"""A registration verifies step by step, and what is broken is named; attacks on it are in `tests/attacks`."""

import json
import shutil

import pytest
from forgery import edited, sign_again
from registration_factory import PRINCIPAL, forecast_document, make_registration, run_spec, store_ladder, store_run

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verify.authenticity import verify_folder


@pytest.fixture
def folder(tmp_path):
    return make_registration(tmp_path).folder


def verify(folder):
    return verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=folder.parent.parent / "runs").steps


def refused(folder, reason):
    with pytest.raises(VerificationError, match=reason):
        verify(folder)


def test_an_untouched_registration_verifies_step_by_step(folder):
    """Every step says what was checked and shows its evidence."""
    steps = verify(folder)
    assert [step.what for step in steps] == ["statement", "subjects", "signature", "forecast", "run", "ladder"]
    evidence = {step.what: step.evidence for step in steps}
    assert PRINCIPAL in evidence["signature"]
    assert "SHA256:" in evidence["signature"]
    assert evidence["ladder"].startswith("4 rows equal to the records")


def test_without_the_runs_the_ladder_is_not_compared_and_says_so(folder, tmp_path):
    """A sceptic who has only the folder learns what was not checked."""
    steps = verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=tmp_path / "nowhere").steps
    assert steps[-1].evidence.startswith("not compared")
    assert "ladder" not in [step.what for step in verify_folder(folder, allowed_signers=signers_path(folder)).steps]


def test_a_run_without_one_of_its_files_is_refused(folder):
    """A run is three files."""
    history = next((folder.parent.parent / "runs" / "tiny").glob("*/history.json"))
    history.unlink()
    refused(folder, "history.json is missing")
    (history.parent / "spec.json").unlink()
    refused(folder, "spec.json is missing")


def test_a_broken_list_of_signers_names_its_line(folder):
    """The refusal points at the list, not at the registration."""
    (folder.parent / "allowed_signers").write_text("ada@example.org\n")
    refused(folder, "allowed_signers, line 1")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]\n",
        b"null\n",
        b"\xff",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b"{}\r\n",
    ],
)
@pytest.mark.parametrize("name", ["statement.json", "statement.json.sig", "ladder.json"])
def test_rubbish_is_refused_without_a_traceback(folder, name, content):
    """Empty, ambiguous, deep, long: each is a plain refusal."""
    (folder / name).write_bytes(content)
    refused(folder, name)


def test_a_rung_that_is_listed_as_left_out_may_be_missing_from_the_ladder(tmp_path):
    """A diverged rung, named with its reason, is fine."""
    spec = run_spec(train_steps=333)
    store_run(tmp_path / "runs", spec=spec, loss=None)
    rows_without = make_registration(
        tmp_path / "other", forecast=forecast_document(excluded=[{"run": spec.digest, "why": "diverged"}])
    )
    shutil.copytree(tmp_path / "runs", tmp_path / "other" / "runs", dirs_exist_ok=True)
    assert verify(rows_without.folder)[-1].what == "ladder"


def test_a_rung_that_finished_later_does_not_spoil_an_older_forecast(folder, tmp_path):
    """Ladders grow; a forecast answers for what was there."""
    store_run(tmp_path / "runs", spec=run_spec(train_steps=333), loss=2.0, day="2026-12-01")
    assert verify(folder)[-1].what == "ladder"


def test_a_record_without_its_fields_is_refused(folder, tmp_path):
    """A broken store is named, not a traceback."""
    record = next((tmp_path / "runs" / "tiny").iterdir()) / "record.json"
    record.write_bytes(b"{}\n")
    refused(folder, "record.json")


def test_numbers_of_a_signed_target_that_no_model_has_are_refused(folder):
    """Beyond 64 bits, or heads that do not divide the width: a "no", not a crash."""
    for change in ({"hidden_dim": 10**200}, {"num_heads": 3}):
        files = edited(folder, "target.json", lambda document, change=change: document["model"].update(change))
        sign_again(folder, files=files)
        refused(folder, f"{2**64}|heads")


def test_an_unknown_key_in_a_signed_target_is_refused(folder):
    """What `check` could not read, `verify` does not pass."""
    sign_again(folder, files=edited(folder, "target.json", lambda target: target.update(x=1)))
    refused(folder, r"target\.json: x: ")


@pytest.mark.parametrize("name", ["outcome.json", "notice-1-withdraw", "stamp-1.tsr", "statement.json.bob@example.org.sig"])
def test_what_an_interrupted_command_leaves_is_not_in_the_way(folder, name):
    """A temporary file of what is added later is never read, and refuses nothing."""
    path = folder / f".{name}.0123abcd.tmp"
    if name.startswith("notice"):
        path.mkdir()
    else:
        path.write_bytes(b"{")
    assert verify(folder)


@pytest.mark.parametrize("name", ["outcome.json", "notice-1-withdraw", "statement.json.bob@example.org.sig"])
def test_what_no_interrupted_command_leaves_is_refused_under_its_name(folder, name):
    """A folder in place of a file, a file in place of a folder, and a link in place of either."""
    path = folder / f".{name}.0123abcd.tmp"
    if name.startswith("notice"):
        path.write_bytes(b"{")
    else:
        path.mkdir()
    refused(folder, name)
    path.unlink() if path.is_file() else path.rmdir()
    path.symlink_to("/etc/passwd")
    refused(folder, name)


def test_an_unreadable_list_of_signers_refuses(folder):
    """A broken line is a "no" with the line's number, whatever stands in it."""
    signers_path(folder).write_text('"\n')
    refused(folder, "allowed_signers, line 1")


def test_a_budget_that_its_spec_contradicts_is_refused_though_signed(tmp_path):
    """Budgets say which runs the baseline goes through: in other ones it would be another, easier to be better than."""
    rows = store_ladder(tmp_path / "runs")
    rows[0]["budget_flops"] *= 2
    folder = make_registration(tmp_path, rows=rows).folder
    refused(folder, r"ladder.json: budget_flops of the run [0-9a-f]{16} is 2000000000.0, and its record says 1000000000.0")


def test_a_run_that_stands_twice_in_a_ladder_is_refused_though_signed(folder):
    """It would count twice in a fit."""
    ladder = json.loads((folder / "ladder.json").read_bytes())
    again = next(row for row in ladder["rows"] if row["loss"] == max(row["loss"] for row in ladder["rows"]))
    ladder["rows"].append(again)
    sign_again(folder, lambda _: None, files={"ladder.json": dump_canonical(ladder)})
    refused(folder, f"ladder.json has the run {again['run'][:16]} 2 times")


def test_two_spellings_of_one_level_are_refused_though_signed(folder):
    """A reader of forecast.json would see two medians."""
    fit = json.loads((folder / "forecast.json").read_bytes())
    fit["predictions"][0]["quantiles"]["0.50"] = 2.4
    sign_again(folder, lambda _: None, files={"forecast.json": dump_canonical(fit)})
    refused(folder, "two of its quantiles are of one level")


def test_a_number_that_stands_twice_in_a_recipe_is_refused_though_signed(folder):
    """Each time that it stands there it must be the target's."""
    recipe = json.loads((folder / "recipe.json").read_bytes())
    recipe["numbers"].insert(0, recipe["numbers"][0] | {"value": 999})
    sign_again(folder, lambda _: None, files={"recipe.json": dump_canonical(recipe)})
    refused(folder, "recipe.json gives another batch_size than target.json")


def test_a_small_number_is_compared_as_closely_as_a_large_one(folder):
    """An optimizer's epsilon is smaller than the last digits of a loss."""
    sign_again(folder, lambda predicate: predicate["recipe"]["optimizer"].update(epsilon=1.05e-8))
    refused(folder, r"recipe\.optimizer")
