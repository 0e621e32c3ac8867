"""Attacks on the binding: another run is to answer a forecast than the one that carries it from its first step.

A run's folder is named by the digest of its spec, which holds the statement's digest and the order of data that follows from
it. Where a forger only leaves a run elsewhere, the forecast stays pending; here it is put where the right one is looked for.
"""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import edit, edited, log_again, refused, said_by, sign_again
from registration_factory import CREATED_AT, make_second_registration, run_spec, store_run

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.preregistration.outcome import outcome_document
from marin_scaling.preregistration.register import Registration, bound_spec, unbound_spec
from marin_scaling.run.spec import RunSpec


def present(root: Path, spec: RunSpec, *, as_the_run_of: Registration) -> Path:
    """Train `spec`, and put the run where that of a registration is looked for; returns the folder."""
    made = store_run(root / "runs", spec=spec, loss=2.5, day="2026-11-21")
    place = made.with_name(as_the_run_of.target.directory_name)
    if place != made:
        shutil.move(made, place)
    return place


def claim(registration: Registration, place: Path) -> None:
    """Write and log the outcome that would follow from the run in `place`, as if `check` had found it."""
    outcome = outcome_document(
        registration.statement,
        value=2.5,
        run=registration.target.digest,
        record_sha256=sha256_hex((place / "record.json").read_bytes()),
        checked_at=CREATED_AT + timedelta(days=2),
        tool_version="0.1.0",
    )
    (registration.folder / "outcome.json").write_bytes(dump_canonical(outcome))
    log_again(registration.folder.parent)


def test_a_rehearsal_without_the_statement_is_refused(root: Path, registration: Registration) -> None:
    """The same run without the digest may have been trained before anything was forecast."""
    present(root, unbound_spec(registration.target), as_the_run_of=registration)
    refused(root, "spec.json: its digest is not the name of its folder", command="check")


def test_a_run_under_another_statement_is_refused(root: Path, registration: Registration) -> None:
    """One run answers one forecast, the one that it carries."""
    other = bound_spec(unbound_spec(registration.target), statement=b"another forecast")
    present(root, other, as_the_run_of=registration)
    refused(root, "spec.json: its digest is not the name of its folder", command="check")


def test_a_statement_for_one_run_that_is_used_for_another_is_refused(root: Path, registration: Registration) -> None:
    """Replay: a run of another length, with this statement's digest in it."""
    other = run_spec(hidden_dim=128, train_steps=900, role="target")
    present(root, bound_spec(other, statement=registration.statement.raw), as_the_run_of=registration)
    refused(root, "spec.json: its digest is not the name of its folder", command="check")


def test_a_chosen_order_of_the_data_is_refused(root: Path, registration: Registration) -> None:
    """The digest is right, and the order does not follow from it: the best of several orders could be kept."""
    present(root, registration.target.model_copy(update={"data_order_seed": 1}), as_the_run_of=registration)
    refused(root, "spec.json: its digest is not the name of its folder", command="check")


def test_a_record_of_another_lineage_is_refused(root: Path, registration: Registration) -> None:
    """The right spec, over the record of the rehearsal."""
    place = present(root, unbound_spec(registration.target), as_the_run_of=registration)
    (place / "spec.json").write_bytes(registration.target.to_bytes())
    refused(root, "record.json: it does not match its spec", command="check")


def test_a_record_without_the_statement_is_refused(root: Path, registration: Registration) -> None:
    """It names the right spec, and not the digest that the run was to carry from its first step."""
    place = present(root, registration.target, as_the_run_of=registration)
    edit(place / "record.json", lambda record: record.update(statement_sha256=None))
    refused(root, "record.json: it does not match its spec", command="check")


def test_a_record_on_other_data_is_refused(root: Path, registration: Registration) -> None:
    """An easier text under the same name."""
    place = present(root, registration.target, as_the_run_of=registration)
    edit(place / "record.json", lambda record: record.update(data_digest="e" * 64))
    refused(root, "record.json: it does not match its spec", command="check")


def test_an_outcome_over_a_run_of_another_lineage_is_refused(root: Path, registration: Registration) -> None:
    """The outcome is written by hand, so that nobody needs to check: verifying it finds the wrong run all the same."""
    place = present(root, unbound_spec(registration.target), as_the_run_of=registration)
    claim(registration, place)
    refused(root, "spec.json is not the spec of the run that", "outcome.json names")


def test_an_outcome_without_a_run_is_refused(root: Path, registration: Registration) -> None:
    """Where the runs of its ladder are, the one that it tells of has to be, too."""
    place = present(root, registration.target, as_the_run_of=registration)
    claim(registration, place)
    shutil.rmtree(place)
    refused(root, "outcome.json tells an outcome, and its run", "is not there")


def test_the_outcome_of_another_forecast_is_refused(root: Path, registration: Registration) -> None:
    """A good one, copied beside the forecast that missed."""
    claim(registration, present(root, registration.target, as_the_run_of=registration))
    second = make_second_registration(root).folder
    shutil.copy(registration.folder / "outcome.json", second)
    log_again(second.parent)
    refused(root, f"{second.name}/outcome.json: statement_sha256 is", "and from the statement and the value follows")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda target: target.update(statement_sha256="0" * 64), "statement_sha256"),
        (lambda target: target.update(data_order_seed=1), "data_order_seed"),
        (lambda target: target.update(role="rung"), "role"),
    ],
    ids=["bound to another statement", "an order of its own", "a small run"],
)
def test_a_target_that_is_bound_already_is_refused(
    root: Path, folder: Path, change: Callable[[dict[str, Any]], object], key: str
) -> None:
    """A run that began under another forecast, or under none, is promised as if it had not."""
    sign_again(folder, files=edited(folder, "target.json", change))
    refused(root, f"target.json: {key}")


def test_a_forecast_that_is_moved_to_another_target_is_refused(root: Path, folder: Path) -> None:
    """The target is exchanged under the number, and all is signed: the number was made for another cost."""
    longer = edited(folder, "target.json", lambda target: target.update(train_steps=900))
    sign_again(folder, files=longer)
    refused(root, "the fit has 0 predictions at the target's")


def test_signing_again_after_the_run_loses_the_run(root: Path, registration: Registration) -> None:
    """A registrant who has seen the loss improves the number and signs it well: the run carries the digest of the first."""
    store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    before = registration.target.directory_name
    sign_again(registration.folder, lambda said: said["resolution"].update(voidIf=["it misses"]))
    spec = json.loads((root / "runs" / "tiny" / before / "spec.json").read_bytes())
    assert spec["statement_sha256"] != sha256_hex((registration.folder / "statement.json").read_bytes())
    shutil.move(root / "runs" / "tiny" / before, root / "runs" / "tiny" / looked_for(root))
    refused(root, "spec.json: its digest is not the name of its folder", command="check")


def looked_for(root: Path) -> str:
    """The folder of the run that alone can answer, as `check` says it."""
    return said_by("check", root)[1].split("its run will lie in ")[1].split()[0].rsplit("/", 1)[1]
