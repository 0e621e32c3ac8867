"""From a sweep that is trained for real to a law, a recipe file, and a tuned target whose forecast is checked."""

import json
from pathlib import Path

import pytest
from command_line import marin_scale_process
from git_repository import commit, git
from tiny_ladder import repository

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

SWEEP = ("--sweep", "learning_rate=0.35,0.6,1,1.7,2.8")
LADDER = """\
name: {name}
recipe: {recipe}
rungs:
  - {{budget_flops: 3e10, hidden_dims: [8, 12, 16]}}
  - {{budget_flops: 6e10, hidden_dims: [12, 16, 24]}}
  - {{budget_flops: 1.2e11, hidden_dims: [12, 16, 24]}}
  - {{budget_flops: 2.4e11, hidden_dims: [16, 24, 32]}}
target: {{budget_flops: 1e12, seed: 1}}
data: {{source: python-standard-library, order: tiny}}
"""


def done(*arguments: str, cwd: Path) -> str:
    finished = marin_scale_process(*arguments, cwd=cwd)
    assert finished.returncode == 0, finished.stderr
    return str(finished.stdout)


@pytest.mark.nightly
def test_a_trained_sweep_gives_a_law_that_a_recipe_follows(tmp_path: Path) -> None:
    """Twelve runs; the ladder of its own name stays empty, and the sweep resumes without training anything again."""
    root = repository(tmp_path / "tiny")
    sweep = ("ladder", "ladders/tiny.yaml", "--sweep", "learning_rate=0.6,1.7,5")
    assert "12 runs are recorded in runs/tiny-sweep" in done(*sweep, cwd=root)
    assert not (root / "runs" / "tiny").exists()
    assert "12 of 12 runs are finished already" in done(*sweep, cwd=root)
    assert "12 of 12 runs are recorded" in done("status", "ladders/tiny.yaml", cwd=root)
    found = json.loads(done("tune", "runs/tiny-sweep", "--json", cwd=root))
    assert found["size"] == "width"
    assert len(found["optima"]) == 4
    assert [each["runs"] for each in found["optima"]] == [3] * 4
    done("tune", "runs/tiny-sweep", "--write-recipe", "tuned.yaml", "--base", "quickstart", cwd=root)
    shown = json.loads(done("recipe", "show", "tuned.yaml", "--budget", "1e11", "--json", cwd=root))
    rate = {each["name"]: each["value"] for each in shown["numbers"]}["learning_rate"]
    swept = [end for each in found["optima"] for end in (each["lowest"], each["highest"])]
    assert min(swept) / 3 < rate < 3 * max(swept)


@pytest.mark.nightly
def test_a_tuned_target_is_forecast_and_holds(tmp_path: Path) -> None:
    """Minutes: 45 swept runs, twelve rungs by the tuned recipe, and a target of four times the largest rung."""
    root = repository(tmp_path / "tiny", ladder=LADDER.format(name="tiny", recipe="quickstart"))
    git(root, "init", "-q", "-b", "main")
    for budget in ("3e10", "6e10", "1.2e11"):
        done("ladder", "ladders/tiny.yaml", *SWEEP, "--only", budget, cwd=root)
    (root / "recipes").mkdir()
    done("tune", "runs/tiny-sweep", "--write-recipe", "recipes/tuned.yaml", "--base", "quickstart", cwd=root)
    (root / "ladders" / "tuned.yaml").write_text(LADDER.format(name="tuned", recipe="recipes/tuned.yaml"))
    done("ladder", "ladders/tuned.yaml", cwd=root)
    commit(root)
    done("preregister", "ladders/tuned.yaml", "--as", "ada@example.org", cwd=root)
    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    commit(root)
    done("run", folder.name, cwd=root)
    (checked,) = json.loads(done("check", folder.name, "--json", cwd=root))
    assert checked["state"] == "held"
