"""`marin-scale mix` as a person types it: the mix in JSON and in a ladder file, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from command_line import assert_refused, marin_scale

BASE = """name: base
recipe: quickstart
rungs: [{budget_flops: 1e10}]
target: {budget_flops: 1e11}
data:
  source: mine
  corpora: {code: {files: c.jsonl}, web: {files: w.jsonl}}
  mix: {code: 0.5, web: 0.5}
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).dirichlet([1.0, 1.0], size=24)
    frame = pd.DataFrame(weights, columns=["weight_code", "weight_web"])
    frame.assign(loss=3 + (weights[:, 0] - 0.4) ** 2).to_csv(tmp_path / "mixtures.csv", index=False)
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def test_the_best_mix_is_printed_as_json_and_written(workplace: Path) -> None:
    """Both hold the same weights; the bottom of the bowl is at 0.4, and a limit of a tenth of the tokens holds code back."""
    limits = ["--tokens", "10B", "--limit", "code=500M", "--epochs", "2"]
    files = ["--write-ladder", "best.yaml", "--base", "base.yaml"]
    done = marin_scale("mix", "mixtures.csv", "--json", *limits, *files, cwd=workplace)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    weights = {row["domain"]: row["weight"] for row in document["best"]["domains"]}
    assert weights == {"web": 0.9, "code": 0.1}
    assert document["best"]["at_limit"] == ["code"]
    ladder = yaml.safe_load((workplace / "best.yaml").read_text())
    assert ladder["data"]["mix"] == weights
    assert ladder["name"] == "best"


@pytest.mark.parametrize(
    "options",
    [
        ("--limit", "code=1B"),
        ("--limit", "code=much", "--tokens", "1B"),
        ("--minimize", "loss=x"),
        ("--minimize", "nothing"),
        ("--against", "web=0.5"),
        ("--write-ladder", "best.yaml"),
        ("--write-ladder", "base.yaml", "--base", "base.yaml"),
        ("--write-ladder", "new/best.yaml", "--base", "mixtures.csv"),
        ("--metric", "accuracy"),
    ],
)
def test_bad_choices_are_refused_and_nothing_is_written(workplace: Path, options: tuple[str, ...]) -> None:
    """With a fix, and without a traceback."""
    before = sorted(path.name for path in workplace.iterdir())
    assert_refused(marin_scale("mix", "mixtures.csv", *options, cwd=workplace))
    assert sorted(path.name for path in workplace.iterdir()) == before
