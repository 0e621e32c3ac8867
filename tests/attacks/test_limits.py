"""Attacks on time and on readers: files that hold very much of something, each of it sound by itself.

Counted is what is shown and how often something is done, not how long it takes.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import marin_scale
from fitted_registration import simulated_ladder
from one_page import page
from submission_factory import submission_document

from marin_scaling.preregistration.public_record import COLUMNS
from marin_scaling.printable import LISTED, PREFORMATTED_CHARACTERS, UNKNOWN_KEYS_NAMED, YAML_BYTES
from marin_scaling.publish import experiment_pages as experiment_page
from marin_scaling.publish.build import generated_pages

MANY = 30_000
KEYS = {f"unknown{number}": number for number in range(MANY)}


def ladder(root: Path, keys: dict[str, Any]) -> tuple[str, ...]:
    (root / "a.yaml").write_text(json.dumps({"name": "a"} | keys))
    return "ladder", "a.yaml", "--dry-run"


def experiment(root: Path, keys: dict[str, Any]) -> tuple[str, ...]:
    (root / "experiments" / "a").mkdir(parents=True)
    (root / "experiments" / "a" / "experiment.yaml").write_text(json.dumps({"name": "a"} | keys))
    return "experiment", "validate"


def track(root: Path, keys: dict[str, Any]) -> tuple[str, ...]:
    (root / "speedruns" / "tracks").mkdir(parents=True)
    (root / "speedruns" / "tracks" / "a.yaml").write_text(json.dumps({"name": "a"} | keys))
    return "speedrun", "validate"


def submission(root: Path, keys: dict[str, Any]) -> tuple[str, ...]:
    (root / "speedruns" / "a").mkdir(parents=True)
    (root / "speedruns" / "a" / "submission.json").write_text(json.dumps(submission_document() | keys))
    return "speedrun", "validate"


FORMS: list[Callable[[Path, dict[str, Any]], tuple[str, ...]]] = [ladder, experiment, track, submission]


@pytest.mark.parametrize("form", FORMS)
def test_of_very_many_unknown_keys_the_first_are_named(
    tmp_path: Path, form: Callable[[Path, dict[str, Any]], tuple[str, ...]]
) -> None:
    """The others are counted."""
    done = marin_scale(*form(tmp_path, KEYS), cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2)
    assert len(said) < 2000
    assert 0 < sum(f"unknown{number}" in said for number in range(MANY)) <= UNKNOWN_KEYS_NAMED + 1
    assert "more keys are wrong" in said


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", ["k" * 300_000, "a." * 150_000], ids=["long", "dotted"])
def test_a_very_long_key_is_cut(tmp_path: Path, form: Callable[[Path, dict[str, Any]], tuple[str, ...]], key: str) -> None:
    """Its beginning and its end are shown."""
    keys = {key: 1} if form is submission else {key[: YAML_BYTES // 4]: 1}
    done = marin_scale(*form(tmp_path, keys), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert len(done.stdout + done.stderr) < 2000


def test_a_yaml_file_that_no_person_wrote_is_refused_unread(tmp_path: Path) -> None:
    """It is larger than any file of its kind."""
    (tmp_path / "a.yaml").write_text("name: a\n" + "# x\n" * YAML_BYTES)
    done = marin_scale("ladder", "a.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert f"more than {YAML_BYTES}" in done.stderr


def written(root: Path, **keys: Any) -> str:
    """The page of an experiment."""
    folder = root / "experiments" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    document = {"name": "a", "title": "b", "outcome": "worked"} | keys
    (folder / "experiment.yaml").write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    return generated_pages(root)["experiments/a.md"].decode()


@pytest.mark.parametrize(
    ("key", "item"),
    [
        ("metrics", lambda n: {"name": f"m{n}", "value": n}),
        ("links", lambda n: f"https://example.org/{n}"),
        ("authors", lambda n: {"name": f"Ada {n}"}),
        ("topics", lambda n: f"topic {n}"),
        ("supersedes", lambda n: f"other{n}"),
        ("steps", lambda n: {"name": f"s{n}", "inputs": [f"s{m}" for m in range(max(0, n - 60), n)]}),
    ],
)
def test_a_page_shows_a_bounded_part_of_a_list(tmp_path: Path, key: str, item: Callable[[int], Any]) -> None:
    """A list that is four times as long makes the page not longer, and the page says how many more there are."""
    sizes = []
    for count in (250, 1000):
        items = [item(number) for number in range(count)]
        page = written(tmp_path / str(count), **{key: {"other": items} if key == "links" else items})
        sizes.append(len(page))
        assert page.count("\n| ") + page.count("\n- ") <= 2 * LISTED + 20
        assert "more" in page
    assert sizes[1] - sizes[0] < 2000


@pytest.mark.parametrize("compared", [False, True], ids=["alone", "beside its baseline"])
def test_settings_are_taken_apart_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: bool) -> None:
    """Of a configuration of 4,000 keys as of one of 40; the page shows the beginning, and names the file with the rest."""
    calls, real = Counter[str](), experiment_page.leaves
    monkeypatch.setattr(experiment_page, "leaves", lambda value: calls.update(["leaves"]) or real(value))
    if compared:
        (tmp_path / "experiments" / "base").mkdir(parents=True)
        base = {"name": "base", "title": "b", "outcome": "worked", "configuration": {f"k{n}": -1 for n in range(4000)}}
        (tmp_path / "experiments" / "base" / "experiment.yaml").write_text(json.dumps(base))
    page = written(tmp_path, configuration={f"k{n}": n for n in range(4000)}, **({"baseline": "base"} if compared else {}))
    assert calls["leaves"] <= 2
    assert len(page) < 2 * PREFORMATTED_CHARACTERS + 20_000
    assert "a.experiment.json" in page
    assert "more" in page


def test_a_submission_with_very_many_of_everything_has_a_bounded_page(tmp_path: Path) -> None:
    """Changes, authors, seeds, settings and packages."""
    document = submission_document()
    seed = document["seeds"][0]
    document |= {
        "authors": [{"name": f"Ada {number}"} for number in range(5000)],
        "lineage": {"parent": "other", "changes": [f"change {number}" for number in range(5000)]},
        "seeds": [seed | {"seed": number, "log_sha256": f"{number:064x}"} for number in range(2000)],
    }
    document["model"] |= {"config": {f"k{number}": number for number in range(5000)}}
    document["environment"] = {"python": "3", "packages": {f"p{number}": "1" for number in range(5000)}}
    folder = tmp_path / "speedruns" / "a"
    folder.mkdir(parents=True)
    (folder / "submission.json").write_text(json.dumps(document))
    (page,) = [text for name, text in generated_pages(tmp_path).items() if name.endswith("llama~130m.md")]
    assert len(page) < 200_000
    assert page.count(b"\n| ") <= 4 * LISTED
    assert page.count(b" more") >= 3


def test_a_very_long_source_is_shown_by_its_beginning(tmp_path: Path) -> None:
    """The rest stays in its file, which is named; also where it is one line."""
    table = simulated_ladder().frame[["flops", "params", "tokens", "loss"]]
    for number, text in enumerate(("# x\n" * 500_000, "x" * 2_000_000, "[" * 1_000_000)):
        root = tmp_path / str(number)
        folder = root / "runs" / "few"
        folder.mkdir(parents=True)
        table.to_csv(folder / "runs.csv")
        (folder / "SOURCE.md").write_text(text)
        source = page(root, "ladders/few.md").partition("<summary>Source</summary>")[2]
        assert len(source) < 2 * PREFORMATTED_CHARACTERS
        assert "more characters in SOURCE.md" in source


def test_a_public_record_of_very_many_rows_is_shown_by_its_first(tmp_path: Path) -> None:
    """All rows count in its sums; a huge cell is cut."""
    row = f"run,2026-03-03,https://example.org/a,,1e21,2.75,{'m' * 100_000},1.9,none,2.75,,c,s"
    small = row.replace("m" * 100_000, "m")
    (tmp_path / "preregistrations").mkdir()
    (tmp_path / "preregistrations" / "public-record.csv").write_text(
        "\n".join([",".join(COLUMNS), row, *[small] * 3000]) + "\n"
    )
    shown = page(tmp_path, "index.md")
    assert "3001 registered" in shown
    assert f"{3001 - LISTED} more in preregistrations/public-record.csv" in shown
    assert len(shown) < 200_000
