"""The pages of experiments: all are on them, own figures come from the records, and no text leaves its cell."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from own_registrations import registered

from marin_scaling.experiment.checks import figures
from marin_scaling.experiment.experiment import Experiment, Outcome, Step, write_experiments
from marin_scaling.publish.charts import steps_chart
from marin_scaling.publish.experiment_pages import experiment_pages, runs_chart
from marin_scaling.run.store import read_run

ROOT = Path(__file__).parents[3]


def pages(root: Path, *experiments: dict[str, Any], linked: list[str] | None = None) -> dict[str, str]:
    """The generated files of a repository with these experiments."""
    given = [Experiment.model_validate({"title": each["name"], "outcome": "worked", **each}) for each in experiments]
    if given:
        write_experiments(root / "experiments" / "many.jsonl", given)
    made = experiment_pages(root, linked=linked or [])
    return {name.removeprefix("experiments/"): content.decode() for name, content in made.items()}


@pytest.fixture(scope="module")
def own() -> dict[str, str]:
    """The pages of this repository's own."""
    made = experiment_pages(ROOT, linked=["ladders/bytes-moe.md", f"preregistrations/{registered('bytes-moe').name}.md"])
    return {name.removeprefix("experiments/"): content.decode() for name, content in made.items()}


def test_a_repository_without_experiments_says_how_to_make_the_first(tmp_path: Path) -> None:
    """No empty table."""
    made = pages(tmp_path)
    assert list(made) == ["index.md"]
    assert "experiments/NAME/experiment.yaml" in made["index.md"]


def test_failures_are_counted_and_listed_beside_successes(tmp_path: Path) -> None:
    """Own ones apart from those that were imported, with what each outcome means."""
    made = pages(
        tmp_path, {"name": "a"}, {"name": "b", "outcome": "did-not-work"}, {"name": "c", "outcome": None, "source": "a list"}
    )
    index = made["index.md"]
    assert f"worked</span> | {Outcome.WORKED.meaning} | 1 | 0 |" in index
    assert f"did-not-work</span> | {Outcome.DID_NOT_WORK.meaning} | 1 | 0 |" in index
    assert "| its source does not say | 0 | 1 |" in index
    assert index.index("[a](a.md)") < index.index("[c](c.md)")


def test_a_page_shows_the_figures_of_its_own_runs_from_their_records(own: dict[str, str]) -> None:
    """Every run of the ladder, and the mean of the two targets that differ in their seeds."""
    page = own["bytes-moe.md"]
    records = [json.loads(path.read_bytes()) for path in (ROOT / "runs" / "bytes-moe").glob("*/record.json")]
    assert len(records) == 18
    losses: dict[tuple[float, int], list[float]] = {}
    for record in records:
        losses.setdefault((record["flops"], record["params_total"]), []).append(record["loss"])
    assert sorted(map(len, losses.values())) == [1] * 16 + [2]
    for each in losses.values():
        assert f"| {fmean(each):.4f} |" in page
    assert "| loss (bits per byte) |" in page


def test_a_page_shows_how_it_was_made_up_to_the_outcome(own: dict[str, str]) -> None:
    """With digests of what is there; the drawing has a box for each step."""
    page, folder = own["bytes-moe.md"], registered("bytes-moe")
    assert "fit and forecast, signed by" in page
    outcome = json.loads((folder / "outcome.json").read_bytes())
    assert f"compared with the forecast: {outcome['verdict']}" in page
    assert outcome["run"][:12] in page
    assert own["bytes-moe.figures/steps.svg"].count('aria-roledescription="rect mark"') == 8
    assert f"(../preregistrations/{folder.name}.md)" in page


def test_settings_that_differ_from_the_baseline_are_shown(own: dict[str, str]) -> None:
    """Of those that all its runs share; what is the same stands below."""
    page = own["bytes-moe.md"]
    differing = page[page.index("## What differs from") : page.index("All settings")]
    assert "| recipe | &#34;quickstart&#34; | &#34;quickstart-moe&#34; |" in differing
    assert "model.seq&#95;len" not in differing


def test_what_has_no_page_is_named_without_a_link(own: dict[str, str]) -> None:
    """A broken link would stop the whole site."""
    assert "Of speedrun-cpu-dense-24, speedrun" in own["cpu-batch-8.md"]
    assert "](../ladders/" not in own["cpu-batch-8.md"]


def test_one_that_names_what_is_not_there_has_a_page_that_says_so(tmp_path: Path) -> None:
    """And breaks no other."""
    made = pages(tmp_path, {"name": "a", "ladders": ["gone"], "preregistration": "2026-01-01-gone"}, {"name": "b"})
    assert "gone is neither a folder of runs/" in made["a.md"]
    assert "| error | ladders |" in made["index.md"]
    assert "b.md" in made


def test_a_malformed_one_is_listed_with_its_reason(tmp_path: Path) -> None:
    """By file and line, from the repository's root."""
    place = tmp_path / "experiments" / "many.jsonl"
    place.parent.mkdir()
    place.write_text('{"name": "a"}\n')
    index = pages(tmp_path)["index.md"]
    assert "experiments/many.jsonl, line 1" in index
    assert "title: field required" in index
    assert str(tmp_path) not in index


def test_odd_files_are_malformed_and_hinder_no_other(tmp_path: Path) -> None:
    """A folder named like a file, numbers that are none, depth, lines that are no objects; two names that mkdocs keeps."""
    place = tmp_path / "experiments"
    (place / "x.jsonl").mkdir(parents=True)
    (place / "e").mkdir()
    (place / "e" / "experiment.yaml").write_text("name: e\nconfiguration: " + "{a: " * 3000 + "1" + "}" * 3000)
    sound = [f'{{"name": "{name}", "title": "x", "outcome": "worked"}}' for name in ("index", "README")]
    odd = ["3", '"x"', "[" * 100_000, '{"name": "q", "title": "x", "outcome": "worked", "configuration": {"a": 1e999}}']
    (place / "z.jsonl").write_text("\n".join([*odd, *sound]))
    made = pages(tmp_path)
    malformed = made["index.md"].split("## Malformed")[1]
    for part in ("x.jsonl", "e/experiment.yaml", *(f"z.jsonl, line {number}" for number in range(1, 5))):
        assert part in malformed
    assert {"index.page.md", "README.page.md"} <= made.keys()


def test_a_run_that_was_changed_is_told_and_nothing_of_it_shown(tmp_path: Path) -> None:
    """The other experiments stay."""
    shutil.copytree(ROOT / "runs" / "bytes-dense", tmp_path / "runs" / "bytes-dense")
    spec = next((tmp_path / "runs" / "bytes-dense").glob("*/spec.json"))
    spec.write_bytes(spec.read_bytes().replace(b'"seed": 0', b'"seed": 9'))
    page = pages(tmp_path, {"name": "a", "ladders": ["bytes-dense"]})["a.md"]
    assert "its digest is not the name of its folder" in page
    assert "## Its runs" not in page
    assert str(tmp_path) not in page


@pytest.mark.parametrize("content", [b"{}", b"nope", b"[]", b'{"verdict": "held", "checked_at": "x"}'])
def test_an_outcome_that_is_none_is_a_fault_on_the_page_and_no_more(tmp_path: Path, content: bytes) -> None:
    """The page of its forecast says that it is refused."""
    name = registered("bytes-dense").name
    shutil.copytree(ROOT / "preregistrations" / name, tmp_path / "preregistrations" / name)
    (tmp_path / "preregistrations" / name / "outcome.json").write_bytes(content)
    made = pages(tmp_path, {"name": "a", "preregistration": name}, {"name": "b"})
    assert '<pre class="output">' in made["a.md"]
    assert "## How it was made" not in made["a.md"]
    assert "b.md" in made


def test_times_are_shown_in_utc_and_no_paragraph_becomes_a_note_of_the_sites(tmp_path: Path) -> None:
    """Whatever zone and whatever signs they were written with."""
    steps = [{"name": "a", "finished_at": "2026-01-01T00:30:00+10:00"}]
    page = pages(tmp_path, {"name": "a", "steps": steps, "hypothesis": "!!! danger\n\n    all is lost"})["a.md"]
    assert '| <span class="whole">2025-12-31 14:30</span> |' in page
    assert "\n&#33;&#33;&#33; danger\n\nall is lost" in page


def test_words_of_strangers_leave_no_cell(tmp_path: Path) -> None:
    """Tags, cell ends, links."""
    bad = "<script>alert(1)</script> | [x](javascript:alert(1))"
    changes: dict[str, Any] = {"title": bad, "hypothesis": bad, "conclusion": bad, "topics": [bad], "configuration": {bad: bad}}
    steps = [{"name": "a", "what": bad}, {"name": "b", "inputs": ["a"]}]
    made = pages(tmp_path, {"name": "a", **changes, "steps": steps, "metrics": [{"name": bad, "said": bad}]})
    assert "<script>alert" not in made["a.figures/steps.svg"]
    for name in ("index.md", "a.md"):
        assert "<script>alert" not in made[name]
        assert "](javascript:" not in re.sub(r"<pre.*?</pre>", "", made[name], flags=re.DOTALL)  # Markdown is not read in there


def test_everything_that_was_written_down_is_on_the_page(tmp_path: Path) -> None:
    """Topics, authors and where they are, when a step began, figures with all digits, lists line by line, addresses."""
    changes: dict[str, Any] = {
        "topics": ["depth, at last", "dense"],
        "authors": [{"name": "Ada", "affiliation": "Lab", "url": "https://ada.example.org"}, {"name": "Bo"}],
        "conclusion": "It held.\nReasons:\n- narrow *bowls*\n- a rate that\n  fits\n\nSee https://example.org/x_y, all.",
        "steps": [{"name": "a", "status": "running", "started_at": "2026-01-01T00:30:00Z", "output_sha256": "ab" * 32}],
        "metrics": [
            {"name": "tokens", "value": 123456789012},
            {"name": "gain", "value": 0.91, "low": 0.9, "high": 1, "unit": "x"},
        ],
        "code": {"repository": "https://example.org/o/lab.git", "commit": "c" * 40, "command": "make"},
    }
    page = pages(tmp_path, {"name": "a", **changes})["a.md"]
    for part in (
        "About: depth, at last &#183; dense.",
        "By [Ada](<https://ada.example.org>), Lab; Bo.",
        "It held. Reasons:<br>\n&#45; narrow &#42;bowls&#42;<br>\n&#45; a rate that fits",
        "See [https://example.org/x&#95;y](<https://example.org/x_y>), all.",
        '| running | <span class="whole">2026-01-01 00:30</span> |  |',
        "`abababababababab…`",
        "| tokens | 123456789012 |",
        "| gain | 0.91 x (0.9 to 1) |",
        f"git clone https://example.org/o/lab.git &amp;&amp; cd lab\ngit checkout {'c' * 40}\nmake\n",
    ):
        assert part in page


def test_records_are_believed_rather_than_what_is_typed_of_them(tmp_path: Path) -> None:
    """And a setting in which an experiment's own runs differ is not told as one that it lacks."""
    for name in ("bytes-dense", "bytes-moe"):
        shutil.copytree(ROOT / "runs" / name, tmp_path / "runs" / name)
    dense = {"name": "dense", "ladders": ["bytes-dense"], "configuration": {"batch_size": 17, "note": "x"}}
    both = {"name": "both", "ladders": ["bytes-dense", "bytes-moe"], "baseline": "dense"}
    made = pages(tmp_path, dense, both, {"name": "bare", "baseline": "both"}, {"name": "last", "baseline": "bare"})
    assert "17 is stated, but the records have 16" in made["dense.md"]
    assert "(**1 error**" in made["index.md"]
    assert "batch_size: 16\n" in made["dense.md"]
    assert "| model.family | &#34;qwen3&#34; | differs among its runs |" in made["both.md"]
    assert "| note | &#34;x&#34; | not stated |" in made["both.md"]
    assert "batch_size: 16\n" in made["both.md"]
    assert "model.family: differs among its runs\n" in pages(tmp_path, {**both, "baseline": None})["both.md"]
    assert "Of that one no settings are known." in made["last.md"]


def test_a_target_without_a_preregistration_is_a_step_too(tmp_path: Path) -> None:
    """What stands among the runs stands among the steps."""
    shutil.copytree(ROOT / "runs" / "bytes-dense", tmp_path / "runs" / "bytes-dense")
    page = pages(tmp_path, {"name": "a", "ladders": ["bytes-dense"]})["a.md"]
    assert page.count("| target-") == 2
    assert "| target: 2.4" in page


def test_no_text_of_a_stranger_is_more_than_text(tmp_path: Path) -> None:
    """No fence in a block of settings, no picture that every reader fetches, no address that ends the build."""
    key = "a\n``` {.text data-x='y\\\" onmouseover=\\\"alert(1)'}\nx\n```\nb"
    words = "Wow!https://evil.example/pixel.gif and https://[x and !!! so"
    page = pages(tmp_path, {"name": "a", "configuration": {key: "~~~"}, "conclusion": words})["a.md"]
    assert "```" not in page
    assert "~~~" not in page
    assert "Wow&#33;[https://evil.example/pixel.gif](<https://evil.example/pixel.gif>)" in page
    assert "<https://[x" not in page


def test_what_replaces_another_is_linked_both_ways(tmp_path: Path) -> None:
    """A reader of the old one is sent on."""
    made = pages(tmp_path, {"name": "old"}, {"name": "new", "supersedes": ["old"]})
    assert "**Replaced** by [new](new.md)" in made["old.md"]
    assert "It replaces [old](old.md)" in made["new.md"]


def test_a_step_stands_to_the_right_of_what_it_took() -> None:
    """In whichever order they are given; too many are not drawn."""
    steps = [Step(name="last", inputs=("middle", "first")), Step(name="middle", inputs=("first",)), Step(name="first")]
    rows = max(steps_chart(steps).to_dict()["datasets"].values(), key=lambda rows: "name" in rows[0])
    places = {row["name"]: row["x"] for row in rows}
    assert places["first"] < places["middle"] < places["last"]
    assert steps_chart([Step(name=f"s{number}") for number in range(61)]) is None


def test_a_page_draws_the_mean_losses_of_its_runs(own: dict[str, str]) -> None:
    """A point for each row of the table, with two standard errors where there are several seeds."""
    assert "bytes-moe.figures/runs.svg" in own["bytes-moe.md"]
    records = [read_run(path.parent) for path in (ROOT / "runs" / "bytes-moe").glob("*/record.json")]
    found = figures(records)
    chart = runs_chart(found)
    assert chart is not None
    (rows,) = chart.to_dict()["datasets"].values()
    assert [row["loss"] for row in rows] == [each.mean_loss for each in found]
    for row, each in zip(rows, found, strict=True):
        assert row["high"] - row["loss"] == pytest.approx(2 * (each.standard_error or 0.0))


def test_runs_of_several_metrics_or_a_single_one_are_not_drawn() -> None:
    (one,) = figures([read_run(next((ROOT / "runs" / "bytes-moe").iterdir()))])
    assert runs_chart([one]) is None
    assert runs_chart([one, replace(one, metric="nats")]) is None
    assert runs_chart([one, replace(one, ladder="other")]) is not None
