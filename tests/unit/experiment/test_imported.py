"""Experiments from Marin's files: every row, nothing guessed, no key kept."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from marin_scaling.errors import DocumentError
from marin_scaling.experiment.experiment import Outcome, read_experiments
from marin_scaling.experiment.import_marin import Imported, import_experiments

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "data" / "agent_moe_speedups.csv"

REPORTS = """# Some reports

- [Contents](#top)

## Models

- Try deeper \\[again\\] [![#7](https://img.shields.io/github/issues/detail/state/o/r/7)](https://github.com/o/r/issues/7)
    - [GitHub Issue #7](https://github.com/o/r/issues/7)
    - [WandB Report](https://wandb.ai/o/r/reports/Deeper--Vm1?accessToken=abcdef)
    - [Data Browser](https://crfm.stanford.edu/marin/data_browser/experiment/?path=gs%3A//b/experiments/e-1.json)
    - Conclusion: deeper was no better.

### Wide

- Wider [![#8](https://img.shields.io/x)](https://github.com/o/r/issues/8)
  - [WandB Run: wide (2)](https://wandb.ai/o/r/runs/wide)

## Data

- Try deeper [![#7](https://img.shields.io/x)](https://github.com/o/r/issues/7)
    - [WandB Report](https://wandb.ai/o/r/reports/Other--Vm2)
- [Only a page of the list's own](./page.md)
"""


def written(tmp_path: Path, name: str, content: Any) -> Imported:
    """Imported from a file of this name."""
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return import_experiments(path)


@pytest.mark.skipif(not SHARED.is_file(), reason="the shared table is not here")
def test_all_77_rows_of_the_digest_are_imported() -> None:
    """With the digest's own counts of outcomes: 14, 9, 12, 31, 5 and 6; and this repository has them as imported."""
    experiments = import_experiments(SHARED).experiments
    counts = Counter(each.outcome for each in experiments)
    assert [counts[outcome] for outcome in Outcome] == [14, 9, 12, 31, 5, 6]
    here = [each.experiment for each in read_experiments(ROOT / "experiments" / "marin-agent-moe.jsonl")]
    assert here == list(experiments)


@pytest.mark.skipif(not SHARED.is_file(), reason="the shared table is not here")
def test_ranges_are_read_as_the_digests_table_gives_them() -> None:
    """Where its words are a plain range or number; other words stay words."""
    rows = {f"agent-moe-{row['issue']}": row for row in csv.DictReader(SHARED.read_text().splitlines())}
    read = 0
    for each in import_experiments(SHARED).experiments:
        for metric in each.metrics:
            column = "wallclock_speedup" if metric.name == "speedup in time" else "model_flops_speedup"
            low, high = metric.low or metric.value, metric.high or metric.value
            if low is not None:
                read += 1
                assert (low, high) == tuple(float(rows[each.name][f"{column}_{end}_x"]) for end in ("low", "high"))
    assert read > 60


def test_the_digests_lines_are_imported_with_what_they_say(tmp_path: Path) -> None:
    """Rationale, summary, section; its own head gives repository and day."""
    head = {"record_type": "metadata", "repository": "o/r", "snapshot_date": "2026-08-09"}
    row = {
        "record_type": "experiment",
        "issue": 12,
        "title": "Slim layers",
        "category": "Topology",
        "rationale": "fewer parameters",
        "outcome": "Did not work",
        "summary": "no gain",
        "wall_clock_speedup": "0.95–1.02x",
        "model_flops_speedup": "—",
    }
    lines = "\n".join(map(json.dumps, [head, row, {"record_type": "foundation", "issue": 1, "title": "x", "summary": "y"}]))
    (one,) = written(tmp_path, "digest.jsonl", lines).experiments
    assert (one.name, one.outcome, one.hypothesis, one.conclusion) == (
        "agent-moe-12",
        "did-not-work",
        "fewer parameters",
        "no gain",
    )
    assert one.topics == ("mixture of experts", "Topology")
    assert [(metric.name, metric.low, metric.high) for metric in one.metrics] == [("speedup in time", 0.95, 1.02)]
    assert one.links.issue == "https://github.com/o/r/issues/12"
    assert one.source == "Agent-MoE digest of 2026-08-09"


def test_bullets_over_several_lines_are_whole_and_equal_titles_without_an_issue_stay_apart(tmp_path: Path) -> None:
    """As people write lists."""
    text = "## Data\n\n- A very\n  long title\n    - Conclusion: better,\n      and cheaper.\n\n- Notes\n- Notes\n- Notes\n"
    text += (
        "    - [Run](https://wandb.ai/o/r/runs/x) of [this model](https://huggingface.co/o/m), [more](https://example.org)\n"
    )
    first, *notes = written(tmp_path, "index.md", text).experiments
    assert (first.title, first.conclusion) == ("A very long title", "better, and cheaper.")
    assert [each.name for each in notes] == ["marin-report-notes", "marin-report-notes-2", "marin-report-notes-3"]
    links = notes[-1].links
    assert (links.models, links.other) == (("https://huggingface.co/o/m",), ("https://example.org",))


def test_one_issue_in_two_bullets_keeps_what_both_say(tmp_path: Path) -> None:
    """And a heading ends a bullet, whatever is indented after it."""
    issue = "[#1](https://github.com/o/r/issues/1)"
    text = f"- A {issue}\n    - Conclusion: good\n    - [PR](https://github.com/o/r/pull/2)\n## Next\n    an introduction\n"
    text += f"- B {issue}\n    - Conclusion: bad\n    - [PR](https://github.com/o/r/pull/3)\n"
    (one,) = written(tmp_path, "index.md", text).experiments
    assert (one.title, one.conclusion) == ("A #1", "good\n\nbad")
    assert (one.links.pull_request, one.links.other) == ("https://github.com/o/r/pull/2", ("https://github.com/o/r/pull/3",))


def test_any_markdown_with_bullets_is_no_list_of_reports(tmp_path: Path) -> None:
    """A README would else become experiments."""
    with pytest.raises(DocumentError, match="no bullet links an issue"):
        written(tmp_path, "README.md", "- Fast\n- [Docs](https://example.org)\n")


def test_a_table_tells_what_of_it_is_not_read_and_what_it_contradicts(tmp_path: Path) -> None:
    """Nothing is lost without a word; a row that cannot be read is named by its line."""
    head = "issue,experiment,outcome,wallclock_speedup_text,wallclock_speedup_low_x,wallclock_speedup_high_x,notes\n"
    imported = written(tmp_path, "digest.csv", f"{head}7,Wider,Worked,1.2x,1.2,1.1,fine\n")
    unread, contradiction = imported.notes
    assert "column notes" in unread
    assert "agent-moe-7: wallclock_speedup_high_x is 1.1, but wallclock_speedup_text has 1.2" in contradiction
    with pytest.raises(DocumentError, match=r"digest\.csv, line 2: more cells"):
        written(tmp_path, "digest.csv", f"{head}7,Wider,Worked,1.2x,1.2,1.2,fine,more\n")
    imported = written(tmp_path, "digest.csv", f"{head}7,Wider,Worked,—,1.2,,fine\n")
    assert any("wallclock_speedup_low_x, 1.2, is skipped" in note for note in imported.notes)
    with pytest.raises(DocumentError, match=r"digest\.csv, line 3: .*'Failed'.* worked, promising"):
        written(tmp_path, "digest.csv", f"{head}7,Wider,Worked,,,,\n8,Deeper,Failed,,,,\n")


def test_the_list_of_reports_is_imported_without_keys(tmp_path: Path) -> None:
    """An issue that stands there twice is one experiment; no outcome is guessed; every key is told."""
    imported = written(tmp_path, "index.md", REPORTS)
    by_name = {each.name: each for each in imported.experiments}
    assert list(by_name) == [
        "marin-report-contents",
        "marin-report-7",
        "marin-report-8",
        "marin-report-only-a-page-of-the-list-s-own",
    ]
    seven = by_name["marin-report-7"]
    assert seven.title == "Try deeper [again]"
    assert seven.links.tracker == ("https://wandb.ai/o/r/reports/Deeper--Vm1", "https://wandb.ai/o/r/reports/Other--Vm2")
    assert (
        seven.links.execution == "https://crfm.stanford.edu/marin/data_browser/experiment/?path=gs%3A//b/experiments/e-1.json"
    )
    assert (seven.topics, seven.conclusion, seven.outcome) == (("Models", "Data"), "deeper was no better.", None)
    assert by_name["marin-report-8"].topics == ("Models", "Wide")
    assert by_name["marin-report-8"].links.tracker == ("https://wandb.ai/o/r/runs/wide",)
    shown = ("marin-report-contents: skipped #top", "own: skipped ./page.md", "marin-report-7: accessToken was removed")
    assert all(words in note for words, note in zip(shown, imported.notes, strict=True))
    assert "abcdef" not in "".join(each.model_dump_json() for each in imported.experiments)


def test_a_record_of_the_executor_becomes_steps_with_what_they_took(tmp_path: Path) -> None:
    """Without memory addresses, secrets and paths of someone's machine; inputs from elsewhere stay named."""
    record = {
        "git_commit": "a" * 40,
        "caller_path": "/home/ada/marin/experiments/exp7.py",
        "created_date": "2026-01-02T03:04:05",
        "user": "ada",
        "description": "Deeper",
        "steps": [
            {"name": "raw/text", "fn_name": "<function fetch at 0x1354c27a0>", "config": {}, "output_path": "gs://b/raw"},
            {
                "name": "train",
                "fn_name": "run",
                "config": {
                    "model": {"layers": 2, "eos_token": "</s>", "tokenizer": "llama"},
                    "wandb_api_key": "xyz",
                    "HF_TOKEN": "xyz",
                    "aws_secret_access_key": "xyz",
                    "env": ["HF_TOKEN=xyz", "N=1"],
                },
                "dependencies": ["gs://b/raw", "gs://b/tokenizer"],
                "output_path": "gs://b/train",
            },
        ],
    }
    imported = written(tmp_path, "exp7-4c95ae.json", record)
    (one,) = imported.experiments
    assert [note.split(" with ")[0] for note in imported.notes] == ["exp7-4c95ae: 4 settings"]
    assert (one.name, one.title, str(one.date), one.outcome) == ("exp7-4c95ae", "Deeper", "2026-01-02", None)
    raw, train = one.steps
    assert (raw.name, raw.what, train.inputs, train.data) == ("raw/text", "fetch", ("raw/text",), ("gs://b/tokenizer",))
    model = {"layers": 2, "eos_token": "</s>", "tokenizer": "llama"}
    hidden = dict.fromkeys(("wandb_api_key", "HF_TOKEN", "aws_secret_access_key"), "(left out)")
    assert one.configuration["train"] == {"model": model, "env": ["HF_TOKEN=(left out)", "N=1"], **hidden}
    assert "xyz" not in one.model_dump_json()
    assert one.code is not None
    assert one.code.path == "experiments/exp7.py"


def test_a_record_without_a_description_is_called_by_its_script_and_no_machine(tmp_path: Path) -> None:
    """Where it lay on someone's disk is nobody's business."""
    for path, title in (("/home/ada/marin/experiments/exp7.py", "experiments/exp7.py"), ("/home/ada/mine.py", "mine.py")):
        (one,) = written(tmp_path, "e.json", {"caller_path": path, "steps": []}).experiments
        assert one.title == title
        assert "ada" not in one.model_dump_json()


def test_steps_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Where a record has two, the second is numbered."""
    steps = [{"name": "eval", "output_path": f"gs://b/{end}"} for end in ("x", "y")]
    steps.append({"name": "all", "output_path": "gs://b/z", "dependencies": ["gs://b/x", "gs://b/y"]})
    (one,) = written(tmp_path, "e.json", {"caller_path": "e.py", "steps": steps}).experiments
    assert [step.name for step in one.steps] == ["eval", "eval-2", "all"]
    assert one.steps[2].inputs == ("eval", "eval-2")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.csv", "a,b\n1,2\n", "columns issue, experiment and outcome"),
        ("x.csv", "issue,experiment,outcome\n7,wide,Great\n", "'Great'"),
        ("x.csv", "issue,experiment,outcome\n7,wide,Worked\n7,wide,Mixed\n", "agent-moe-7"),
        ("x.csv", f"issue,experiment,outcome\n7,{'w' * 200_000},Worked\n", "is not a CSV table"),
        ("x.jsonl", "{}\n", "lines without a record_type"),
        ("x.jsonl", "{\n", "line 1"),
        ("x.json", {"steps": 3}, "steps: must be a list"),
        ("x.json", {"caller_path": "x", "steps": [{"name": "a"}]}, "steps.0.output_path: field required"),
        ("x.json", {"caller_path": "x", "steps": [3]}, "steps.0"),
        ("x.json", '{"steps": [], "steps": []}', "duplicate key 'steps'"),
        ("x.md", "# Nothing\n", "no experiments"),
        ("x.txt", "", "'.txt'"),
    ],
)
def test_a_file_that_is_none_of_them_is_refused(tmp_path: Path, name: str, content: Any, said: str) -> None:
    """With the reason."""
    with pytest.raises(DocumentError, match=said):
        written(tmp_path, name, content)
