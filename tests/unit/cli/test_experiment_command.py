"""`marin-scale experiment`: what is written anew is only what an import made, and a part is checked beside the whole."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale

ROOT = Path(__file__).parents[3]
DIGEST = "issue,experiment,outcome\n7,Wider layers,Worked\n8,Deeper,Did not work\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a digest to import."""
    (tmp_path / "digest.csv").write_text(DIGEST)
    return tmp_path


def test_an_import_says_what_is_new_changed_and_gone(place: Path) -> None:
    """When its source was changed."""
    said = marin_scale("experiment", "import", "digest.csv", "--to", "experiments/marin.jsonl", cwd=place).stdout
    assert "2 experiments in experiments/marin.jsonl: 2 new, 0 changed, 0 removed" in said
    (place / "digest.csv").write_text(
        DIGEST.replace("8,Deeper,Did not work", "9,Slim,Mixed").replace("7,Wider layers,Worked", "7,Wider layers,Mixed")
    )
    said = marin_scale("experiment", "import", "digest.csv", "--to", "experiments/marin.jsonl", cwd=place).stdout
    assert "changed: agent-moe-7\nremoved: agent-moe-8\n" in said
    assert "1 new, 1 changed, 1 removed" in said


def test_what_no_import_made_is_not_written_over(place: Path) -> None:
    """One's own experiment in that file, a line that nobody can read, or the source itself."""
    own = json.dumps({"name": "mine", "title": "x", "outcome": "worked"})
    for content in (own, "{"):
        (place / "mine.jsonl").write_text(content)
        done = marin_scale("experiment", "import", "digest.csv", "--to", "mine.jsonl", cwd=place)
        assert_refused(done, "mine.jsonl has an experiment that was not imported")
        assert (place / "mine.jsonl").read_text() == content
    (place / "digest.jsonl").write_text("{}")
    done = marin_scale("experiment", "import", "digest.jsonl", "--to", "digest.jsonl", cwd=place)
    assert_refused(done, "digest.jsonl")
    done = marin_scale("experiment", "import", "digest.csv", "--to", "mine.csv", cwd=place)
    assert_refused(done, "does not end in .jsonl")


@pytest.mark.parametrize("part", ["experiments", "experiments/bytes-moe", "experiments/bytes-moe/experiment.yaml"])
def test_a_part_is_checked_beside_the_whole(part: str, tmp_path: Path) -> None:
    """From any folder: what it names is looked for in the repository in which it lies."""
    said = marin_scale("experiment", "validate", str(ROOT / part), cwd=tmp_path).stdout
    assert said.endswith(": 0 errors, 0 warnings, 0 malformed\n")
    assert not said.startswith("0 ")


def test_building_the_site_tells_what_is_unsound(place: Path) -> None:
    """Its pages say so, and whoever publishes them has to know."""
    marin_scale("init", cwd=place)
    for name, more in (("wide", "ladders: [gone]"), ("deep", "titel: x")):
        folder = place / "experiments" / name
        folder.mkdir(parents=True)
        (folder / "experiment.yaml").write_text(f"name: {name}\ntitle: x\noutcome: worked\n{more}\n")
    said = marin_scale("site", "build", cwd=place).stdout
    assert "unsound experiments: wide, experiments/deep/experiment.yaml; " in said


def test_records_that_contradict_what_is_typed_are_refused(place: Path) -> None:
    """The page shows what the records say."""
    shutil.copytree(ROOT / "runs" / "bytes-dense", place / "runs" / "bytes-dense")
    folder = place / "experiments" / "wide"
    folder.mkdir(parents=True)
    text = "name: wide\ntitle: x\noutcome: worked\nladders: [bytes-dense]\nconfiguration: {batch_size: 17}\n"
    (folder / "experiment.yaml").write_text(text)
    done = marin_scale("experiment", "validate", cwd=place)
    assert done.returncode == 1
    assert "error    configuration.batch_size: 17 is stated, but the records have 16" in done.stdout
    (folder / "experiment.yaml").write_text(text.replace("batch_size: 17", "model: huge, optimizer: {learning_rate: 99.0}"))
    said = marin_scale("experiment", "validate", cwd=place).stdout
    assert "configuration.model: 'huge' is stated, but the records have more than one value of model.family" in said
    assert "configuration.optimizer.learning_rate: 99.0 is stated, but the records have more than one value" in said


def test_what_is_refused_or_malformed_ends_with_status_1(place: Path) -> None:
    """With the reason; as JSON too."""
    folder = place / "experiments" / "wide"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text("name: wide\ntitle: x\noutcome: worked\nladders: [gone]\n")
    done = marin_scale("experiment", "validate", cwd=place)
    assert done.returncode == 1
    assert "error    ladders: gone " in done.stdout
    found = json.loads(marin_scale("experiment", "validate", "--json", cwd=place).stdout)
    assert found["experiments"]["wide"][0]["where"] == "ladders"
    assert_refused(marin_scale("experiment", "validate", "elsewhere", cwd=place), "elsewhere does not exist")
