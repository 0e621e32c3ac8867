"""Attacks on the metric and the outcome: the miss is to become a hit after the run.

An outcome is derived from the statement and the record of the run, by a rule that the statement fixes. Nobody signs it, because
nobody chooses it: whoever writes one that does not follow is refused, the registrant and the resolver as well.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forgery import edit, edited, log_again, refused, said_by, sign_again
from registration_factory import CREATED_AT, store_run

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.preregistration.outcome import outcome_document
from marin_scaling.preregistration.register import Registration


@pytest.fixture
def run(root: Path, registration: Registration) -> Path:
    """The run of the forecast, which missed; its outcome stands and is logged."""
    run = store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    assert "missed: observed 2.9000" in said_by("check", root)[1]
    return run


def rewrite(registration: Registration, run: Path, /, *, value: float | None, **changes: Any) -> None:
    """An outcome that follows from another value, or with other words in it, logged as if it were the first."""
    outcome = outcome_document(
        registration.statement,
        value=value,
        run=registration.target.digest,
        record_sha256=sha256_hex((run / "record.json").read_bytes()),
        checked_at=CREATED_AT + timedelta(days=2),
        tool_version="0.1.0",
    )
    (registration.folder / "outcome.json").write_bytes(dump_canonical({**outcome, **changes}))
    log_again(registration.folder.parent)


def test_another_metric_in_the_statement_is_refused(root: Path, folder: Path) -> None:
    """Of several metrics of a run, the one that came out well."""
    sign_again(folder, lambda said: said["metric"].update(name="accuracy"))
    refused(root, "statement.json: predicate.metric.name", "'accuracy'")


def test_another_metric_of_the_target_is_refused(root: Path, folder: Path) -> None:
    """Another one is measured than was fitted."""
    sign_again(folder, files=edited(folder, "target.json", lambda target: target["evaluation"].update(metric="accuracy")))
    refused(root, "ladder.json is about 'bits_per_byte' and the target is measured in 'accuracy'")


def test_a_wider_support_is_refused(root: Path, folder: Path) -> None:
    """A byte costs at most eight bits; a forecast that reaches beyond it holds everything."""
    sign_again(folder, lambda said: said["metric"].update(support=[0.0, 99.0]))
    refused(root, "unit, direction or support of bits_per_byte are not")


def test_other_weights_than_the_last_are_refused(root: Path, folder: Path) -> None:
    """The best of all checkpoints is not what was promised."""
    sign_again(folder, lambda said: said["metric"].update(checkpointRule="the best ones"))
    refused(root, "statement.json: predicate.metric.checkpointRule", "'the best ones'")


def test_a_rule_that_cannot_miss_is_refused(root: Path, folder: Path) -> None:
    """What counts as a hit is fixed by the format."""
    sign_again(folder, lambda said: said["scoring"].update(hit="always"))
    refused(root, "statement.json: predicate.scoring.hit", "'always'")


def test_a_point_that_is_not_the_median_is_refused(root: Path, folder: Path) -> None:
    """Two numbers for two outcomes."""
    sign_again(folder, lambda said: said["forecast"].update(point=2.9))
    refused(root, "its point 2.9 is not its median 2.5")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metric": "accuracy"}, "metric 'accuracy' differ from the promised 'bits_per_byte'"),
        ({"flops_convention": "6ND"}, "FLOP convention '6ND' differ from the promised"),
        ({"params_total": 1}, "parameters 1 differ from the promised"),
    ],
    ids=["metric", "convention", "size"],
)
def test_a_record_of_something_else_is_refused(
    root: Path, registration: Registration, changes: dict[str, Any], reason: str
) -> None:
    """The run was measured by another metric, its cost counted in another way, or it is of another size."""
    store_run(root / "runs", spec=registration.target, loss=2.5, day="2026-11-21", **changes)
    refused(root, reason, command="check")


@pytest.mark.parametrize("command", ["verify", "check"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verdict": "held"}, "verdict is 'held', and from the statement and the value follows 'missed'"),
        ({"status": "diverged"}, "status is 'diverged', and from the statement and the value follows 'finished'"),
        ({"metric": "accuracy"}, "metric is 'accuracy', and from the statement and the value follows 'bits_per_byte'"),
        ({"run": "0" * 64}, f"run is '{'0' * 64}', and from the statement and the value follows"),
        ({"statement_sha256": "0" * 64}, f"statement_sha256 is '{'0' * 64}', and from the statement and the value follows"),
        ({"scores": None}, "scores is None, and from the statement and the value follows"),
        ({"baseline": {"crps": 9.0, "skill": 0.99}}, "baseline.crps is 9.0, and from the statement and the value follows"),
    ],
    ids=["verdict", "status", "metric", "run", "statement", "scores", "skill"],
)
def test_an_edited_outcome_is_refused(
    root: Path, registration: Registration, run: Path, command: str, changes: dict[str, Any], reason: str
) -> None:
    """Whoever edits it, with whatever right: what stands there has to follow from the statement and the value."""
    rewrite(registration, run, value=2.9, **changes)
    refused(root, f"outcome.json: {reason}", command=command)


@pytest.mark.parametrize("command", ["verify", "check"])
def test_an_outcome_of_another_value_is_refused(root: Path, registration: Registration, run: Path, command: str) -> None:
    """The value is exchanged, and all scores are made again from it: the record of the run says another one."""
    rewrite(registration, run, value=2.51)
    refused(root, "outcome.json: value is 2.51, and", "record.json says 2.9", command=command)


@pytest.mark.parametrize("command", ["verify", "check"])
def test_a_record_that_was_improved_after_its_outcome_is_refused(
    root: Path, registration: Registration, run: Path, command: str
) -> None:
    """The other way round: the record is edited, and the outcome stands."""
    edit(run / "record.json", lambda record: record.update(loss=2.51))
    refused(root, "outcome.json: value is 2.9, and", "record.json says 2.51", command=command)


def test_a_missed_run_that_is_called_diverged_is_refused(root: Path, registration: Registration, run: Path) -> None:
    """Without a value there would be no scores, and a miss that cost nothing in the mean."""
    rewrite(registration, run, value=None)
    refused(root, "outcome.json: value is None, and", "record.json says 2.9")


def test_an_outcome_at_an_impossible_time_is_refused(root: Path, registration: Registration, run: Path) -> None:
    """It is a refusal of this one, and the others are checked all the same."""
    rewrite(registration, run, value=2.9, checked_at="2026-99-99T00:00:00Z")
    refused(root, f"{registration.folder.name}  refused", command="check")


def test_an_outcome_in_the_older_form_is_refused(root: Path, registration: Registration, run: Path) -> None:
    """The form of version 0.1 says nothing of the baseline, against which this one has no skill."""
    outcome = json.loads((registration.folder / "outcome.json").read_bytes())
    del outcome["baseline"]
    (registration.folder / "outcome.json").write_bytes(dump_canonical({**outcome, "format_version": 1}))
    log_again(registration.folder.parent)
    refused(root, "outcome.json: baseline: field required")
