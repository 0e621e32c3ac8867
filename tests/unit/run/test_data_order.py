"""The order in which runs read their training text."""

import json
import shutil
from pathlib import Path

import pytest

from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import LadderFile
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.run.plan import load_ladder, rung_specs
from marin_scaling.run.spec import DIRECTORY_DIGITS

ROOT = Path(__file__).parents[3]


def orders(name: str, *, seeds: list[int] | None = None, **data: str) -> list[int]:
    written = {
        "name": name,
        "recipe": "quickstart",
        "rungs": [{"budget_flops": 1e10, "hidden_dims": [8]}],
        "seeds": seeds or [0],
        "target": {"budget_flops": 1e11},
        "evaluation": {"windows": 64},
        "data": data,
    }
    ladder = plan_ladder(LadderFile.model_validate(written))
    return [spec.data_order_seed for spec in rung_specs(ladder, corpus=standard_library_corpus())]


def test_ladders_of_two_names_read_the_same_batches() -> None:
    assert orders("wide") == orders("narrow")


def test_each_seed_and_each_named_order_is_another_order() -> None:
    found = [*orders("tiny", seeds=[0, 1]), *orders("tiny", order="second")]
    assert len(set(found)) == 3
    assert orders("tiny", order="second") == orders("other", order="second")


def test_a_ladder_with_recorded_runs_keeps_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = next(
        path.parent
        for path in (ROOT / "runs" / "bytes-dense").glob("*/spec.json")
        if json.loads(path.read_text())["role"] == "rung"
    )
    recorded = json.loads((folder / "spec.json").read_text())
    shutil.copytree(folder, tmp_path / "runs" / "tiny" / folder.name)
    assert orders("tiny", seeds=[recorded["seed"]]) == [recorded["data_order_seed"]]
    assert orders("other", seeds=[recorded["seed"]]) == orders("third", seeds=[recorded["seed"]])
    assert orders("tiny", seeds=[recorded["seed"]], order="second") == orders("other", order="second", seeds=[recorded["seed"]])


@pytest.mark.parametrize("name", ["bytes-dense", "bytes-moe", "quickstart"])
def test_the_committed_ladders_plan_the_order_of_their_records(name: str) -> None:
    planned = load_ladder(ROOT / "ladders" / f"{name}.yaml").bind()
    recorded = [json.loads(path.read_text()) for path in (ROOT / "runs" / name).glob("*/spec.json")]
    assert {spec.data_order_seed for spec in planned.specs} == {
        each["data_order_seed"] for each in recorded if each["role"] == "rung"
    }


def test_a_folder_without_a_spec_is_no_recorded_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    in_the_way = tmp_path / "runs" / "tiny" / ("0" * DIRECTORY_DIGITS)
    in_the_way.mkdir(parents=True)
    assert orders("tiny") == orders("other")


def test_recorded_runs_of_other_settings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the quickstart's runs are rungs of its file; in a file without the smallest budget, four are not."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "runs" / "quickstart", tmp_path / "runs" / "quickstart")
    text = (ROOT / "ladders" / "quickstart.yaml").read_text()
    (tmp_path / "quickstart.yaml").write_text(text)
    assert "other-runs" not in {found.code for found in load_ladder("quickstart.yaml").bind().findings()}
    smallest = next(line for line in text.splitlines(keepends=True) if "budget_flops: 3e10" in line)
    (tmp_path / "quickstart.yaml").write_text(text.replace(smallest, ""))
    (named,) = (found for found in load_ladder("quickstart.yaml").bind().findings() if found.code == "other-runs")
    removed = [
        rung for rung in load_ladder(ROOT / "ladders" / "quickstart.yaml").ladder.rungs if rung.plan.budget_flops == 3e10
    ]
    assert f"{len(removed)} recorded runs" in named.message
    assert "3e10/8" in named.message
