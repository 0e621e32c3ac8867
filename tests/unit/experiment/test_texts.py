"""A new experiment, and the texts of its issue and pull request."""

import json
import re
import shutil
from pathlib import Path

import pytest

import marin_scaling as ms
from marin_scaling.errors import DocumentError, StorageError, UsageError
from marin_scaling.experiment.checks import all_findings, own_records
from marin_scaling.experiment.experiment import Outcome, read_experiment
from marin_scaling.experiment.texts import open_issue, summary, write_pull_request
from marin_scaling.run.store import read_runs

ROOT = Path(__file__).parents[3]
SAID = {"title": "A deeper model", "hypothesis": "At equal compute it ends *lower*."}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ladders").mkdir()
    shutil.copy(ROOT / "ladders" / "quickstart.yaml", tmp_path / "ladders")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_new_experiment_is_valid_before_its_ladder_is_trained(place: Path) -> None:
    """A ladder that is only planned is no missing one."""
    folder = ms.new_experiment("deeper", ladders=["ladders/quickstart.yaml"], **SAID)
    one = read_experiment(folder / "experiment.yaml")
    assert (one.title, one.hypothesis, one.outcome) == (*SAID.values(), Outcome.IN_PROGRESS)
    assert one.ladders == ("quickstart",)
    assert [each.code for each in all_findings([one], root=place)["deeper"] if each.severity == "error"] == []
    issue = (folder / "issue.md").read_text()
    assert "marin-scale preregister ladders/quickstart.yaml" in issue
    assert "4.8e11" in issue


def test_the_texts_have_the_results_of_recorded_runs(place: Path) -> None:
    """Their number, budgets and lowest loss; the proposal stays as it was."""
    folder = ms.new_experiment("deeper", ladders=["ladders/quickstart.yaml"], **SAID)
    shutil.copytree(ROOT / "runs" / "quickstart", place / "runs" / "quickstart")
    issue = (folder / "issue.md").read_text()
    text = write_pull_request(folder).read_text()
    assert (folder / "issue.md").read_text() == issue
    runs = read_runs(place / "runs" / "quickstart")
    assert f"{len(runs)} runs of 3e10 to 2.5e12 FLOPs" in text
    lowest = min(run.record.loss for run in runs if run.record.loss is not None)
    assert f"{lowest:.2f}" in text


def test_ladders_on_two_texts_are_judged_as_texts(place: Path) -> None:
    """If they have three seeds and two budgets, no forecast is proposed; ladders of other rungs are compared as recipes."""
    text = (place / "ladders" / "quickstart.yaml").read_text().partition("rungs:")[0]
    for name, budget in (("one", 2e10), ("two", 2e10), ("other", 3e10)):
        head = re.sub(r"name: .*", f"name: {name}", text)
        rungs = (
            f"rungs: [{{budget_flops: 1e10}}, {{budget_flops: {budget}}}]\nseeds: [0, 1, 2]\ntarget: {{budget_flops: 1e11}}\n"
        )
        (place / "ladders" / f"{name}.yaml").write_text(head + rungs)
    issues = [
        (ms.new_experiment(other, ladders=["ladders/one.yaml", f"ladders/{other}.yaml"], **SAID) / "issue.md").read_text()
        for other in ("two", "other")
    ]
    assert "marin-scale data compare runs/one runs/two" in issues[0]
    assert "marin-scale speedup runs/one runs/other" in issues[1]
    assert all("marin-scale preregister" not in issue for issue in issues)


def test_the_summary_has_the_verdict_on_the_forecast() -> None:
    """As the registry has it."""
    one = read_experiment(ROOT / "experiments" / "quickstart" / "experiment.yaml")
    lines = summary(one, own_records(one, root=ROOT))
    assert any("2026-11-26-quickstart" in line and "held" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "title", "fact"), [("a/b", "x", "a/b"), ("ä b", "x", "name"), ("c", "", "title"), ("c", "x\ny", "title")]
)
def test_a_name_or_title_that_no_experiment_can_have_is_refused(place: Path, name: str, title: str, fact: str) -> None:
    """And nothing is written."""
    with pytest.raises(DocumentError) as error:
        ms.new_experiment(name, title=title, hypothesis="h")
    assert fact in str(error.value)
    assert not (place / "experiments").exists()


def test_the_corpora_of_a_filter_become_steps_with_digests(place: Path) -> None:
    """Of the digests in its report; a folder without one is refused, and nothing is written."""
    parts = [
        {"name": "whole", "documents": 10, "file": None, "sha256": None},
        {"name": "filtered", "documents": 4, "file": "filtered.jsonl", "sha256": "a" * 64},
    ]
    (place / "cut").mkdir()
    report = {"corpus": ["all.jsonl"], "keep": 0.5, "labels": 60, "parts": parts}
    (place / "cut" / "filter.json").write_text(json.dumps(report))
    one = read_experiment(ms.new_experiment("cleaner", filters=["cut"], **SAID) / "experiment.yaml")
    assert [(step.name, step.data, step.output_sha256) for step in one.steps] == [("cut/filtered", ("all.jsonl",), "a" * 64)]
    with pytest.raises(DocumentError):
        ms.new_experiment("other", filters=["ladders"], **SAID)
    assert not (place / "experiments" / "other").exists()


def test_an_experiment_is_not_overwritten(place: Path) -> None:
    """A second one of the name leaves the first as it was."""
    folder = ms.new_experiment("deeper", **SAID)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(StorageError):
        ms.new_experiment("deeper", title="Another", hypothesis="h")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_address_of_an_opened_issue_is_written_down(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program of the forge prints it; without the program, the text is left to paste."""
    folder = ms.new_experiment("deeper", **SAID)
    monkeypatch.setenv("PATH", str(place / "empty"))
    with pytest.raises(UsageError):
        open_issue(folder)
    program = place / "bin" / "gh"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho https://github.com/o/r/issues/7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert open_issue(folder) == "https://github.com/o/r/issues/7"
    assert read_experiment(folder / "experiment.yaml").links.issue == "https://github.com/o/r/issues/7"
