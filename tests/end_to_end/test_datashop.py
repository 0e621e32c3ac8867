"""From a corpus with planted noise and a labeler to a filtered corpus, a ladder on each text, and a verdict."""

import json
from pathlib import Path

import pytest
from command_line import marin_scale_process
from planted_corpus import write_planted
from tiny_ladder import repository

pytest.importorskip("levanter", reason="the train extra is not installed")
pytest.importorskip("sklearn", reason="the data extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.nightly]

LADDER = """\
name: {name}
recipe: quickstart
rungs:
  - {{budget_flops: 2e10, hidden_dims: [12]}}
  - {{budget_flops: 4e10, hidden_dims: [16]}}
  - {{budget_flops: 8e10, hidden_dims: [16]}}
seeds: [0, 1, 2]
target: {{budget_flops: 1e12}}
data:
  source: {name}
  train: {{files: {file}}}
  validation: {{code: {{files: held-out.jsonl}}}}
  overlap: leave-out
evaluation: {{windows: 1024}}
"""
TEXTS = {"base": "corpus.jsonl", **{name: f"quality/{name}.jsonl" for name in ("filtered", "random", "shuffled")}}


def done(*arguments: str, cwd: Path) -> str:
    finished = marin_scale_process(*arguments, cwd=cwd)
    assert finished.returncode == 0, finished.stderr
    return str(finished.stdout)


def test_the_filtered_text_is_better_and_the_controls_are_not(tmp_path: Path) -> None:
    """Minutes: 36 runs, nine on each of four texts, evaluated on the same code that no corpus holds."""
    root = repository(tmp_path / "tiny")
    write_planted(root, code_bytes=4_000_000, held_out_bytes=300_000)
    filtered = json.loads(
        done(
            *("data", "filter", "corpus.jsonl", "--prompt", "prompt.txt", "--labeler", "python label.py"),
            *("--labels", "300", "--out", "quality", "--json"),
            cwd=root,
        )
    )
    assert filtered["status"].startswith("Usable")
    kept = {json.loads(line)["text"] for line in (root / TEXTS["filtered"]).read_text().splitlines()}
    rows = [json.loads(line) for line in (root / TEXTS["base"]).read_text().splitlines()]
    assert sum(row["is_code"] for row in rows if row["text"] in kept) > 0.95 * len(kept)
    for name, file in TEXTS.items():
        (root / "ladders" / f"{name}.yaml").write_text(LADDER.format(name=name, file=file))
        done("ladder", f"ladders/{name}.yaml", cwd=root)
    controls = ("--control", "runs/random", "--control", "runs/shuffled")
    found = json.loads(done("data", "compare", "runs/base", "runs/filtered", *controls, "--json", cwd=root))
    verdicts = {each["name"]: each["verdict_after_holm"] for each in found["texts"]}
    assert verdicts["filtered"] == "better"
    assert verdicts["random"] != "better"
    assert verdicts["shuffled"] == "worse"
    assert found["status"].startswith("Usable")
