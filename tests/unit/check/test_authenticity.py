"""A registration verifies; every edit, swap and stranger is refused by name."""

import json
import os
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import PRINCIPAL, forecast_document, make_registration, run_spec, signing_key, store_ladder, store_run

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.check.authenticity import verify_folder
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.sshsig import make_signature


@pytest.fixture
def folder(tmp_path):
    return make_registration(tmp_path).folder


def verify(folder):
    return verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=folder.parent.parent / "runs")


def refused(folder, reason):
    with pytest.raises(VerificationError, match=reason):
        verify(folder)


def edit(path, change):
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(dump_canonical(document))


def sign_again(folder, change, *, files=None):
    """Edit the statement (and subjects) and sign it anew with the registrant's own key: an author who cheats."""
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)

    def edited(document):
        for subject in document["subject"]:
            subject["digest"]["sha256"] = sha256_hex((folder / subject["name"]).read_bytes())
        change(document["predicate"])

    edit(folder / "statement.json", edited)
    statement = (folder / "statement.json").read_bytes()
    (folder / "statement.json.sig").write_bytes(make_signature(statement, private_key=signing_key().private_key))


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
    steps = verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=tmp_path / "nowhere")
    assert steps[-1].evidence.startswith("not compared")
    assert "ladder" not in [step.what for step in verify_folder(folder, allowed_signers=signers_path(folder))]


@pytest.mark.parametrize("name", ["statement.json", "statement.json.sig", "ladder.json", "forecast.json", "target.json"])
def test_a_missing_file_is_named(folder, name):
    """Nothing of a registration may be withheld."""
    (folder / name).unlink()
    refused(folder, f"{name} is missing")


@pytest.mark.parametrize("name", ["ladder.json", "forecast.json", "target.json"])
def test_a_changed_subject_is_named(folder, name):
    """A swapped ladder, fit or target no longer has the promised digest."""
    edit(folder / name, lambda document: document.update(ladder="other"))
    refused(folder, f"{name} has the digest")


def test_an_edited_statement_is_refused(folder):
    """A forecast improved after signing; the signature is looked at before anything is derived."""
    edit(folder / "statement.json", lambda document: document["predicate"]["forecast"].update(extrapolation=99.0))
    refused(folder, "did not sign these bytes")


def test_a_statement_with_an_edited_free_field_fails_its_signature(folder):
    """A field that nothing else repeats is held by the signature alone."""
    edit(folder / "statement.json", lambda document: document["predicate"]["tool"].update(version="9"))
    refused(folder, "did not sign these bytes")


def test_a_stranger_cannot_sign(folder):
    """Anyone can make a key; this one is on no list."""
    stranger = ed25519.Ed25519PrivateKey.generate()
    statement = (folder / "statement.json").read_bytes()
    (folder / "statement.json.sig").write_bytes(make_signature(statement, private_key=stranger))
    refused(folder, "may not sign for ada@example.org")


def test_another_allowed_signer_cannot_sign_in_this_ones_name(folder):
    """The name in the statement and the name of the key must be one."""
    signers = folder.parent / "allowed_signers"
    signers.write_text(signers.read_text().replace(PRINCIPAL, "bob@example.org"))
    refused(folder, "may not sign for ada@example.org")


def test_a_loss_curve_that_is_not_the_runs_own_is_refused(folder):
    """A run is three files; the record names the digest of the third."""
    history = next((folder.parent.parent / "runs" / "tiny").glob("*/history.json"))
    history.write_bytes(history.read_bytes() + b"\n")
    refused(folder, "is not the loss curve that record.json names")
    history.unlink()
    refused(folder, "history.json is missing")
    (history.parent / "spec.json").unlink()
    refused(folder, "spec.json is missing")


def test_a_missing_list_of_signers_allows_nobody(folder):
    """No list, no trust."""
    (folder.parent / "allowed_signers").unlink()
    refused(folder, "is not there, or has no lines")


def test_an_expired_key_is_refused(folder):
    """A key whose time was over when the statement was made."""
    signers = folder.parent / "allowed_signers"
    signers.write_text(signers.read_text().replace(" namespaces", ' valid-before="20261101Z",namespaces'))
    refused(folder, "only before 2026-11-01")


def test_a_broken_list_of_signers_names_its_line(folder):
    """The refusal points at the list, not at the registration."""
    (folder.parent / "allowed_signers").write_text("ada@example.org\n")
    refused(folder, "allowed_signers, line 1")


def test_a_hand_tuned_number_is_refused_though_signed(folder):
    """The author moves the median and signs again: the fit beside it says another one."""

    def tune(predicate):
        quantiles = predicate["forecast"]["quantiles"]
        predicate["forecast"]["quantiles"] = {level: value + 0.1 for level, value in quantiles.items()}
        predicate["forecast"]["point"] = predicate["forecast"]["quantiles"]["0.5"]

    sign_again(folder, tune)
    refused(folder, "forecast.point is 2.6, and its subjects say 2.5")


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("targetRun", "flops", 1e12),
        ("targetRun", "tokens", 7),
        ("targetRun", "ladder", "other"),
        ("targetRun", "flopsConvention", "6ND"),
        ("metric", "protocol", {}),
        ("fit", "law", "another"),
        ("fit", "excluded", [{"run": "r", "why": "w"}]),
        ("scoring", "reducibleE", 2.4),
        ("forecast", "extrapolation", 2.0),
        ("forecast", "bands", {}),
    ],
)
def test_a_signed_field_that_its_subjects_contradict_is_named(folder, part, key, value):
    """What follows from the files beside the statement cannot be stated otherwise."""
    sign_again(folder, lambda predicate: predicate[part].update({key: value}))
    refused(folder, rf"{part}\.{key}")


def test_a_statement_in_another_folder_is_refused(folder):
    """A copy under another date is not another forecast."""
    shutil.copytree(folder, folder.parent / "2026-11-01-earlier")
    refused(folder.parent / "2026-11-01-earlier", "not that of its folder")


def test_a_linked_file_is_refused(folder, tmp_path):
    """A link could show one file to the verifier and another to the reader."""
    shutil.move(folder / "ladder.json", tmp_path / "ladder.json")
    os.symlink(tmp_path / "ladder.json", folder / "ladder.json")
    refused(folder, "ladder.json is not a plain file")


def test_a_linked_folder_is_refused(folder):
    """The same for the folder itself."""
    os.symlink(folder, folder.parent / "2026-11-20-link")
    refused(folder.parent / "2026-11-20-link", "not a plain folder")


@pytest.mark.parametrize("name", ["notes.txt", "forecast.json.bak", ".hidden"])
def test_a_file_that_does_not_belong_is_refused(folder, name):
    """What is not signed must not lie among what is."""
    (folder / name).write_text("x")
    refused(folder, "does not belong")


@pytest.mark.parametrize("name", ["../ladder.json", "/etc/passwd", "ladder.json/../x"])
def test_a_subject_outside_the_folder_is_refused(folder, name):
    """Subjects are plain names from a fixed list."""
    edit(folder / "statement.json", lambda document: document["subject"][0].update(name=name))
    refused(folder, r"subject\[0\].name")


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


def test_a_ladder_row_that_its_record_contradicts_is_refused_though_signed(folder):
    """The author improves a rung's loss in the table and signs it: the store says another one."""
    ladder = json.loads((folder / "ladder.json").read_bytes())
    ladder["rows"][0]["loss"] -= 0.01
    sign_again(folder, lambda _: None, files={"ladder.json": dump_canonical(ladder)})
    refused(folder, r"ladder.json: loss of the run [0-9a-f]{16} is")


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


def test_a_rung_that_is_not_in_the_store_is_refused(folder, tmp_path):
    """A forecast from a run that nobody can see."""
    run = next((tmp_path / "runs" / "tiny").iterdir())
    shutil.rmtree(run)
    refused(folder, rf"{run.name}[0-9a-f]* is not in")


def test_a_rung_left_out_in_silence_is_refused(folder, tmp_path):
    """A finished rung must be fitted, or listed as left out with its reason."""
    store_run(tmp_path / "runs", spec=run_spec(train_steps=333), loss=9.0)
    refused(folder, "neither in its ladder nor among those left out")


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


def canonical_without(folder, name, change):
    document = json.loads((folder / name).read_bytes())
    change(document)
    return {name: dump_canonical(document)}


def test_a_signed_ladder_of_another_name_is_refused(folder):
    """Rows under a name that has no runs cannot escape the comparison with the runs that there are."""
    files = canonical_without(folder, "ladder.json", lambda document: document.update(ladder="tiny-v2"))
    sign_again(folder, lambda predicate: None, files=files)
    refused(folder, "ladder.json is about the ladder 'tiny-v2' and the target belongs to 'tiny'")


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "a\nladder ok", "a\x1b[8m"])
def test_a_ladder_name_that_is_no_file_name_is_refused(folder, name):
    """It leads nowhere outside the store, and steers no terminal."""
    files = canonical_without(folder, "ladder.json", lambda document: document.update(ladder=name))
    sign_again(folder, lambda predicate: None, files=files)
    refused(folder, "ladder: .* is not text as it should stand here")


def test_a_statement_that_is_older_than_its_runs_is_refused(folder):
    """A back-dated statement is contradicted by the records that it rests on, though its author signs it."""
    sign_again(folder, lambda predicate: predicate.update(id="2026-11-19-tiny-target", createdAt="2026-11-19T10:30:00Z"))
    refused(
        folder.rename(folder.with_name("2026-11-19-tiny-target")), r"was finished at .*, after the statement of 2026-11-19T10"
    )


def test_numbers_of_a_signed_target_that_no_model_has_are_refused(folder):
    """Beyond 64 bits, or heads that do not divide the width: a "no", not a crash."""
    for change in ({"hidden_dim": 10**200}, {"num_heads": 3}):
        files = canonical_without(folder, "target.json", lambda document, change=change: document["model"].update(change))
        sign_again(folder, lambda predicate: None, files=files)
        refused(folder, "beyond 64 bits|heads")


def test_an_unknown_key_in_a_signed_target_is_refused(folder):
    """What `check` could not read, `verify` does not pass."""
    sign_again(
        folder, lambda predicate: None, files=canonical_without(folder, "target.json", lambda target: target.update(x=1))
    )
    refused(folder, "x: this key is not known")


def test_what_an_interrupted_check_leaves_is_not_in_the_way(folder):
    """A temporary file of the outcome is never read and refuses nothing."""
    (folder / ".outcome.json.0123abcd.tmp").write_bytes(b"{")
    assert verify(folder)


def test_an_unreadable_list_of_signers_refuses(folder):
    """A broken line is a "no" with the line's number, whatever stands in it."""
    signers_path(folder).write_text('"\n')
    refused(folder, "allowed_signers, line 1")
