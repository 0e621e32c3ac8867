"""Attacks on the number: the ladder, the fit or the recipe behind a forecast is exchanged, or the number never came from it.

First without the key: then the digests in the statement hold every file. Then with it, signed and logged well: what follows
from other files is derived from them again, and the ladder is compared with the runs and fitted again.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fitted_registration import Rows, fitted, make_fitted_registration, simulated_ladder
from forgery import edited, refused, said_by, sign_again
from registration_factory import DUE, make_registration, run_spec, store_run, target_spec

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.fitting.fit import fit
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.format import SUBJECT_FILES
from marin_scaling.preregistration.statement import derived_fields
from marin_scaling.run.spec import RunSpec


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ladder.json", "metric"),
        ("forecast.json", "law"),
        ("evaluation.json", "data"),
        ("recipe.json", "recipe"),
        ("samples.json", "metric"),
        ("target.json", "recipe"),
    ],
)
def test_a_file_that_was_swapped_is_refused(root: Path, folder: Path, name: str, key: str) -> None:
    """Ladder, fit, evaluation, recipe, samples, target: each has its digest in what was signed."""
    (folder / name).write_bytes(edited(folder, name, lambda document: document.update({key: "another"}))[name])
    refused(root, name, "has the digest", "and the statement promises")


def test_an_evaluation_of_another_text_is_refused(root: Path, folder: Path) -> None:
    """The digest of an easier held-out text, in evaluation.json alone, where a reader would look."""
    files = edited(folder, "evaluation.json", lambda document: document["data"].update(digest="e" * 64))
    sign_again(folder, files=files)
    refused(root, "evaluation.json measures in another way than target.json")


def test_another_protocol_in_the_statement_is_refused(root: Path, folder: Path) -> None:
    """Fewer windows of the held-out text, so that luck has more room."""
    sign_again(folder, lambda said: said["metric"]["protocol"].update(windows=1))
    refused(root, "statement.json: metric.protocol is", "and its subjects say")


def test_another_number_in_the_recipe_is_refused(root: Path, folder: Path) -> None:
    """The reader is shown one learning rate, and another is trained with."""

    def slower(document: dict[str, Any]) -> None:
        document["numbers"].append({"name": "learning_rate", "value": 0.02, "formula": "", "source": ""})

    sign_again(folder, files=edited(folder, "recipe.json", slower))
    refused(root, "recipe.json gives another learning_rate than target.json")


def test_another_constant_in_the_recipe_is_refused(root: Path, folder: Path) -> None:
    """Among the recipe's constants stands a z-loss, and the target is trained without."""
    constant = {"name": "z_loss_weight", "value": 1e-4, "source": "tuned"}
    sign_again(folder, files=edited(folder, "recipe.json", lambda document: document["constants"].append(constant)))
    refused(root, "recipe.json gives another z_loss_weight than target.json")


def with_z_loss(target: RunSpec) -> RunSpec:
    """The same target, with a loss that keeps the logits small."""
    return target.model_copy(update={"optimizer": target.optimizer.model_copy(update={"z_loss_weight": 1e-4})})


def test_a_constant_that_was_changed_after_the_ladder_is_refused(root: Path) -> None:
    """The rungs were trained without a z-loss and the target will be trained with one; nobody is told."""
    make_registration(root, target=with_z_loss(target_spec()))
    refused(root, "recipe.knownDifferencesFromLadder does not name z_loss_weight: 0.0 in the runs of the ladder, 0.0001 in")


def test_a_changed_constant_that_is_declared_is_no_attack(root: Path) -> None:
    """Who says what differs has hidden nothing."""
    promise = Promise(due=DUE, known_differences=("z_loss_weight is 1e-4 from here on",))
    make_registration(root, target=with_z_loss(target_spec()), promise=promise)
    status, said = said_by("verify", root)
    assert status == 0, said


@pytest.mark.parametrize(
    "change", [{"recipe": "quickstart"}, {"data": target_spec().data.model_copy(update={"digest": "e" * 64})}]
)
def test_a_target_of_another_kind_than_its_ladder_is_refused(root: Path, change: dict[str, Any]) -> None:
    """Its law goes through runs of another recipe, or on another text."""
    make_registration(root, target=target_spec().model_copy(update=change))
    refused(root, f"spec.json: the {next(iter(change))} of this run of the ladder is", "and the target's")


def test_another_constant_of_the_optimizer_is_refused(root: Path, folder: Path) -> None:
    """In the statement, where most people read it."""
    sign_again(folder, lambda said: said["recipe"]["optimizer"].update(beta2=0.99))
    refused(root, "statement.json: recipe.optimizer is", "and its subjects say")


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("targetRun", "ladder", "other"),
        ("targetRun", "flops", 1e12),
        ("targetRun", "tokens", 7),
        ("targetRun", "flopsConvention", "6ND"),
        ("recipe", "batchSize", 9),
        ("recipe", "beyondLadder", {"flops": 2.0, "params": 2.0, "tokens": 2.0}),
        ("forecast", "extrapolation", 2.0),
        ("forecast", "bands", {}),
        ("forecast", "sensitivity", []),
        ("fit", "law", "another"),
        ("fit", "parameters", {"E": 1.4}),
        ("fit", "fixed", {"E": 1.4}),
        ("fit", "warnings", ["none"]),
        ("fit", "excluded", [{"run": "r", "why": "diverged"}]),
        ("scoring", "reducibleE", 2.4),
    ],
)
def test_a_signed_field_that_its_files_contradict_is_refused(
    root: Path, folder: Path, part: str, key: str, value: object
) -> None:
    """What follows from the files beside the statement cannot be said otherwise: a nearer target, a narrower band, a law."""
    sign_again(folder, lambda said: said[part].update({key: value}))
    refused(root, f"statement.json: {part}.{key} is", "and its subjects say")


def test_a_weaker_baseline_is_refused(root: Path, folder: Path) -> None:
    """Who is compared with a worse forecast looks skilled."""

    def weaken(said: dict[str, Any]) -> None:
        quantiles = said["scoring"]["baseline"]["quantiles"]
        said["scoring"]["baseline"]["quantiles"] = {level: value + 1 for level, value in quantiles.items()}

    sign_again(folder, weaken)
    refused(root, "statement.json: scoring.baseline is", "and its subjects say")


def test_samples_that_tell_another_story_are_refused(root: Path, folder: Path) -> None:
    """A thousand lower losses beside honest quantiles, for whoever reads the samples."""
    lower = edited(folder, "samples.json", lambda said: said.update(losses=[loss - 0.1 for loss in said["losses"]]))
    sign_again(folder, files=lower)
    refused(root, "samples.json has", "and the forecast")


def test_quantiles_that_cross_are_refused(root: Path, folder: Path) -> None:
    """An interval whose lower end lies above the upper one holds anything, or nothing."""

    def cross(said: dict[str, Any]) -> None:
        said["forecast"]["quantiles"]["0.05"], said["forecast"]["quantiles"]["0.95"] = 2.6, 2.4

    sign_again(folder, cross)
    refused(root, "quantile 0.1 is", "not above 2.6 at 0.05")


def test_a_forecast_of_fewer_quantiles_is_refused(root: Path, folder: Path) -> None:
    """The tails are left out, where it would be scored worst."""
    sign_again(folder, lambda said: said["forecast"]["quantiles"].pop("0.99"))
    refused(root, "not the 23 fixed ones")


def test_a_number_that_was_tuned_by_hand_is_refused(root: Path, folder: Path) -> None:
    """The median is moved in the statement, with a good signature: the fit beside it says another one."""

    def tune(said: dict[str, Any]) -> None:
        quantiles = {level: value + 0.1 for level, value in said["forecast"]["quantiles"].items()}
        said["forecast"].update(quantiles=quantiles, point=quantiles["0.5"])

    sign_again(folder, tune)
    refused(root, "statement.json: forecast.point is 2.6, and its subjects say 2.5")


@pytest.mark.parametrize("shift", [0.02, -0.02])
def test_a_number_that_was_tuned_by_hand_in_every_file_is_refused(root: Path, shift: float) -> None:
    """By a fiftieth of the interval, in statement, fit and samples alike, well signed: the ladder gives another one."""
    make_fitted_registration(root, shift=shift)
    refused(root, "statement.json: it forecasts", "but refitting its ladder gives", "90 %")


def test_a_number_from_a_nicer_ladder_is_refused(root: Path) -> None:
    """One ladder for the fit, another for the reader."""
    make_fitted_registration(root, rows_of=1)
    refused(root, "statement.json: it forecasts", "but refitting its ladder gives")


def test_a_row_of_the_ladder_that_was_changed_is_refused(root: Path) -> None:
    """One loss a little lower, in the ladder that is shown, with the number that the true one gave."""

    def lower(rows: Rows) -> Rows:
        return [{**rows[0], "loss": rows[0]["loss"] - 0.02}, *rows[1:]]

    make_fitted_registration(root, rows=lower)
    refused(root, "statement.json: it forecasts", "but refitting its ladder gives")


def test_an_exclusion_that_was_added_later_is_refused(root: Path) -> None:
    """A run that was fitted is listed as left out, with a reason, and its row is gone: the number still comes from it."""
    excluded = [{"run": "the last one", "why": "it diverged"}]
    make_fitted_registration(root, rows=lambda rows: rows[:-1], said={"excluded": excluded})
    refused(root, "statement.json: it forecasts", "but refitting its ladder gives")


def test_an_asymptote_that_flatters_is_refused(root: Path) -> None:
    """Per cent of the reducible loss look better over a lower asymptote; it is moved in fit and statement alike."""
    parameters = dict(fit(simulated_ladder()).law.parameters)
    make_fitted_registration(root, said={"parameters": {**parameters, "E": 0.9 * parameters["E"]}})
    refused(root, "statement.json: fit.parameters.E is", "but refitting its ladder gives")


def test_doubts_that_were_made_smaller_are_refused(root: Path) -> None:
    """A share of the width is said to be a tenth of what it is, while the quantiles stay honest."""

    def flatter(document: dict[str, Any]) -> None:
        document["predictions"][0]["bands"]["form"] /= 10

    make_fitted_registration(root, then=flatter)
    refused(root, "statement.json: forecast.bands.form is", "but refitting its ladder gives")


def of_another_formula(document: dict[str, Any]) -> None:
    """The law has the name that it had, and is said to be a simpler one."""
    document["law"] = f"{document['law'].partition(':')[0]}: loss = E + A C^-alpha"


def with_a_given_asymptote(document: dict[str, Any]) -> None:
    """The asymptote is said to have been known beforehand."""
    document["fixed"] = {"E": document["parameters"]["E"]}


def better_tested(document: dict[str, Any]) -> None:
    """The error that its back-test showed, halved."""
    document["backtest"][0]["median_absolute_error"] /= 2


def untested(document: dict[str, Any]) -> None:
    """No back-test, as if no budget could have been forecast."""
    document["backtest"] = []


def without_a_choice(document: dict[str, Any]) -> None:
    """The choice that lies farthest away is not told."""
    rows = document["predictions"][0]["sensitivity"]
    rows.remove(max(rows, key=lambda row: abs((row["median"] or rows[0]["median"]) - rows[0]["median"])))


def with_a_nearer_choice(document: dict[str, Any]) -> None:
    """Another law is said to give the same number."""
    first, *others = document["predictions"][0]["sensitivity"]
    others[0]["median"] = first["median"]


def without_an_answer(document: dict[str, Any]) -> None:
    """Another law is said to give no number."""
    document["predictions"][0]["sensitivity"][1] |= {"median": None, "why_none": "no law"}


def with_an_invented_choice(document: dict[str, Any]) -> None:
    """A choice that nobody tried agrees."""
    rows = document["predictions"][0]["sensitivity"]
    rows.append({"choice": "a law of the far end", "median": rows[0]["median"], "why_none": ""})


def sounder(document: dict[str, Any]) -> None:
    """A better status than the fit has; the pages print it."""
    document["status"] = "Usable within its interval, and beyond."


def in_agreement(document: dict[str, Any]) -> None:
    """The two laws of the forecast are said to agree."""
    (prediction,) = document["predictions"]
    prediction["by_law"] = dict.fromkeys(prediction["by_law"], prediction["median"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (in_agreement, "by_law in forecast.json is"),
        (of_another_formula, "fit.law is 'combined: loss = E + A C^-alpha'"),
        (with_a_given_asymptote, "fit.fixed is {'E': "),
        (better_tested, "fit.backtest.0.medianAbsoluteError is"),
        (untested, "fit.backtest has 0 rows"),
        (without_a_choice, "forecast.sensitivity has no '"),
        (with_a_nearer_choice, "forecast.sensitivity: '"),
        (without_an_answer, "is None"),
        (with_an_invented_choice, "not 'a law of the far end'"),
        (sounder, "the status in forecast.json is"),
    ],
)
def test_doubts_that_were_edited_in_every_file_are_refused(root: Path, change: Any, what: str) -> None:
    """Back-test, what the number hangs on, status: whoever looks surer than the ladder is told what differs."""
    make_fitted_registration(root, then=change)
    refused(root, "statement.json: ", what, "but refitting its ladder gives")


@pytest.mark.parametrize("medians", [[], "2.2", {"coupled-surface": "2.2", "all-runs-frontier": None}, {"combined": {}}])
def test_medians_of_laws_that_are_no_numbers_are_refused(root: Path, medians: Any) -> None:
    """Not with a traceback: the place is named."""
    folder = make_fitted_registration(root)
    change = edited(folder, "forecast.json", lambda document: document["predictions"][0].update(by_law=medians))
    sign_again(folder, files=change)
    refused(root, "forecast.json: predictions.0.by_law")


def test_a_warning_that_was_dropped_is_refused(root: Path) -> None:
    """The fit said that it goes through 4 of 16 runs, and the statement does not."""
    make_fitted_registration(root, law="best-runs-frontier", then=lambda document: document["warnings"].pop(0))
    refused(root, "fit.warnings lacks a warning", "the law goes through 4 of 16 runs")


def test_tails_that_were_moved_are_refused(root: Path) -> None:
    """The ten highest samples, beyond the outermost quantile, are drawn in: nothing else shows them."""
    _, document, losses = fitted()
    highest = document["predictions"][0]["quantiles"]["0.99"]
    make_fitted_registration(root, losses=[min(loss, highest) for loss in losses])
    refused(root, "statement.json: of the losses in samples.json number 1000 is", "but refitting its ladder gives")


def test_a_ladder_that_carries_no_forecast_at_all_is_refused(root: Path) -> None:
    """Two runs, with a fine forecast signed beside them."""
    make_fitted_registration(root, rows=lambda rows: rows[:2])
    refused(root, "statement.json: it forecasts", "refitting its ladder gives no forecast")


def test_a_rung_that_its_record_contradicts_is_refused(root: Path, folder: Path) -> None:
    """The loss of a small run is improved in the table, and signed: the run store says another one."""

    def improve(ladder: dict[str, Any]) -> None:
        ladder["rows"][0]["loss"] -= 0.01

    sign_again_with_its_baseline(folder, improve)
    refused(root, "ladder.json: loss of the run", "and its record says")


def sign_again_with_its_baseline(folder: Path, change: Any) -> None:
    """A changed ladder, with everything that follows from it changed in the statement, too."""
    (folder / "ladder.json").write_bytes(edited(folder, "ladder.json", change)["ladder.json"])
    documents = {name: json.loads((folder / name).read_bytes()) for name in SUBJECT_FILES}
    derived = derived_fields(documents)
    sign_again(folder, lambda said: [said[part].update(fields) for part, fields in derived.items()])


def test_a_rung_that_nobody_can_see_is_refused(root: Path, folder: Path) -> None:
    """A row of a run that is not among the records of its ladder."""
    run = next((root / "runs" / "tiny").iterdir())
    shutil.rmtree(run)
    refused(root, f"ladder.json: the run {run.name}", "is not in")


def test_a_rung_that_was_left_out_in_silence_is_refused(root: Path, folder: Path) -> None:
    """A finished run that did not suit is neither fitted nor listed as left out."""
    store_run(root / "runs", spec=run_spec(train_steps=333), loss=9.0)
    refused(root, "was finished before the forecast and is neither in its ladder nor among those left out")


def test_a_loss_curve_of_another_run_is_refused(root: Path, folder: Path) -> None:
    """A smoother one, beside the record of a rung."""
    history = next((root / "runs" / "tiny").glob("*/history.json"))
    history.write_bytes(dump_canonical({**json.loads(history.read_bytes()), "rows": []}))
    refused(root, "history.json is not the loss curve that record.json names")


def test_a_ladder_of_another_name_is_refused(root: Path, folder: Path) -> None:
    """Rows under a name that has no runs, so that nobody compares them with the runs that there are."""
    sign_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder.update(ladder="tiny-v2")))
    refused(root, "ladder.json is about the ladder 'tiny-v2' and the target belongs to 'tiny'")


def test_a_ladder_that_is_as_large_as_its_target_is_refused(root: Path, folder: Path) -> None:
    """What was measured is no forecast."""
    sign_again(folder, files=edited(folder, "ladder.json", lambda ladder: ladder["rows"][0].update(flops=1e13)))
    refused(root, "the target costs", "and the largest of 4 fitted runs 1e13")
