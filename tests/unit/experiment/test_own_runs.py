"""What an experiment's own runs say of it: runs without a loss are not told as a success."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from own_registrations import registered

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.experiment.checks import own_records, own_steps, runs_of
from marin_scaling.experiment.experiment import Experiment, Step
from marin_scaling.run.store import StoredRun

ROOT = Path(__file__).parents[3]


def steps(*, diverged: int) -> dict[str, Step]:
    """Of the experiment, were the first so many runs of its cheapest budget and its target without a loss."""

    def without_loss(run: StoredRun) -> StoredRun:
        return replace(run, record=run.record.model_copy(update={"loss": None}))

    promise = registered("bytes-dense").name
    one = Experiment(name="one", title="x", outcome="worked", ladders=("bytes-dense",), preregistration=promise)
    runs = runs_of(one, root=ROOT)
    cheapest = min(run.spec.budget_flops for run in runs)
    lost = [run for run in runs if run.spec.budget_flops == cheapest][:diverged]
    answers = [run for run in runs if run.spec.statement_sha256]
    changed = [without_loss(run) if run in [*lost, *answers] else run for run in runs]
    return {step.name: step for step in own_steps(one, changed, root=ROOT)}


def cheapest_rung(found: dict[str, Step]) -> Step:
    return next(step for name, step in found.items() if name.startswith("bytes-dense/"))


def test_a_rung_of_which_one_run_diverged_succeeded_and_says_so() -> None:
    """The others have losses."""
    rung = cheapest_rung(steps(diverged=1))
    assert (rung.status, str(rung.what).rpartition(", ")[2]) == ("succeeded", "1 diverged")


def test_a_rung_and_a_target_without_any_loss_failed() -> None:
    """There is nothing to fit and nothing to compare."""
    found = steps(diverged=100)
    assert cheapest_rung(found).status == "failed"
    assert [step.status for name, step in found.items() if name.startswith("target-")] == ["failed"]


def test_a_statement_that_was_changed_after_signing_is_the_fault_of_its_experiment(tmp_path: Path) -> None:
    """An edited assumption, which breaks no rule of the format, is not told as signed."""
    folder = tmp_path / "preregistrations" / registered("bytes-dense").name
    shutil.copytree(registered("bytes-dense"), folder)
    path = folder / "statement.json"
    document = json.loads(path.read_bytes())
    document["predicate"]["assumptions"] = [{"id": "A1", "text": "another", "ifFalse": ""}]
    path.write_bytes(dump_canonical(document))
    one = Experiment(name="one", title="x", outcome="worked", ladders=("bytes-dense",), preregistration=folder.name)
    assert "statement.json" in own_records(one, root=tmp_path).fault.partition("\n")[0]
    assert "after signing" in own_records(one, root=tmp_path).fault
