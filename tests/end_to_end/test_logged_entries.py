"""An entry whose runs Levanter's `train_lm` trained and W&B logged offline: submitted, validated, shown and trained again."""

import json
import os
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import pytest
from command_line import marin_scale_process
from text_factory import write_jsonl, write_tokenizer

pytest.importorskip("levanter", reason="the train extra is not installed")
pytest.importorskip("wandb", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]  # of Levanter, in this process

from marin_scaling.errors import DocumentError, UsageError  # noqa: E402
from marin_scaling.publish.submission_page import pages_of, submission_page  # noqa: E402
from marin_scaling.speedrun.from_runs import MOST_TOLERANCE  # noqa: E402
from marin_scaling.speedrun.judge import judge_all  # noqa: E402
from marin_scaling.speedrun.submit import submit_runs  # noqa: E402

SEEDS = (0, 1, 2)
STEPS = 800
MODEL = "type: llama, max_seq_len: 64, hidden_dim: 16, intermediate_dim: 48, num_layers: 2, num_heads: 2, num_kv_heads: 2"
OPTIMIZER = "type: muon, learning_rate: 0.02, adam_lr: 0.01, warmup: 0.1, lr_schedule: linear, min_lr_ratio: 0.0"
CONFIG = f"""\
data:
  tokenizer: {{folder}}/tokenizer
  cache_dir: cache-{{seed}}
  shuffle: true
  components:
    web: {{{{source: {{{{type: url, train_urls: [train.jsonl]}}}}}}}}
    held: {{{{source: {{{{type: url, validation_urls: [held.jsonl]}}}}}}}}
  train_weights: {{{{web: 1.0, held: 0.0}}}}
model: {{{{{MODEL}, tokenizer: {{folder}}/tokenizer}}}}
optimizer: {{{{{OPTIMIZER}}}}}
trainer:
  seed: {{seed}}
  mp: f32
  train_batch_size: 32
  num_train_steps: {STEPS}
  steps_per_eval: {STEPS}
  require_accelerator: false
  tracker: {{{{type: wandb, mode: offline, project: logged}}}}
  log_dir: logs
  log_jaxprs: false
  log_xla_hlo: false
  checkpointer: {{{{base_path: checkpoints}}}}
"""
ENTRY = f"""\
name: ada/logged
track: tiny
author: {{name: Ada}}
model: {{{MODEL}}}
optimizer: {{{OPTIMIZER}}}
batch_size: 32
steps: {STEPS}
trials: 3
data:
  source: web
  tokenizer: tokenizer
  train: {{files: train.jsonl}}
  validation: {{held: {{files: held.jsonl}}}}
"""
TRACK = """\
name: tiny
title: A tiny track
evaluation_name: held
limits: {model_flops: 3.0e+11}
hardware: [cpu]
seeds_at_least: 3
retrained_by_ci: true
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the entry and its text, and the logs of its runs."""
    root = tmp_path_factory.mktemp("logged")
    documents = [path.read_text(errors="replace") for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
    write_jsonl(root / "train.jsonl", documents[:90])
    write_jsonl(root / "held.jsonl", [text[:4000] for text in documents[90:96]])
    write_tokenizer(root / "tokenizer", vocab_size=300)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_DIR": str(root)}
    running = []
    for seed in SEEDS:
        (root / f"{seed}.yaml").write_text(CONFIG.format(folder=root, seed=seed))
        command = [sys.executable, "-P", "-m", "levanter.main.train_lm", "--config_path", f"{seed}.yaml"]
        with (root / f"{seed}.txt").open("w") as printed:
            running.append(subprocess.Popen(command, cwd=root, env=environment, stdout=printed, stderr=printed))
    for seed, process in zip(SEEDS, running, strict=True):
        assert process.wait() == 0, (root / f"{seed}.txt").read_text()[-3000:]
    (root / "speedruns" / "tracks").mkdir(parents=True)
    (root / "speedruns" / "tracks" / "tiny.yaml").write_text(TRACK)
    (root / "speedruns" / "entries").mkdir()
    (root / "speedruns" / "entries" / "logged.yaml").write_text(ENTRY)
    return root


def logs(root: Path) -> list[str]:
    """The folders of W&B's offline runs."""
    return sorted(str(path) for path in (root / "wandb").glob("offline-run-*"))


def test_an_entry_from_wandb_logs_is_accepted_shown_and_confirmed(logged: Path) -> None:
    """Its mean loss comes out again to 5 %, and the answer is that of the printed numbers, whatever these seeds' noise."""
    entry = "speedruns/entries/logged.yaml"
    submitted = marin_scale_process("speedrun", "submit", *logs(logged), "--entry", entry, cwd=logged)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert entry in submitted.stdout
    document = json.loads((logged / "speedruns" / "ada" / "logged" / "submission.json").read_bytes())
    assert sorted(each["seed"] for each in document["seeds"]) == list(SEEDS)
    assert document["compute"]["xla_gradient_flops"] == pytest.approx(document["compute"]["model_flops"], rel=0.15)
    (judged,) = judge_all(logged / "speedruns", at=datetime.now(UTC)).validated
    assert judged.accepted
    page = submission_page(judged, entry=None, parent=None, names=pages_of([judged]), folder="board", recorded={})
    shown = next(content.decode() for name, content in page.items() if name.endswith(".md"))
    assert "marin-scale speedrun confirm speedruns/ada/logged/submission.json" in shown
    assert judged.verification == "self-reported, no record here"
    again = marin_scale_process("speedrun", "confirm", "--all", cwd=logged)
    (line,) = [line for line in again.stdout.splitlines() if line.strip().startswith("mean")]
    claimed, retrained, difference, tolerance = map(float, line.split()[1:5])
    assert claimed == pytest.approx(fmean(each["bits_per_byte"] for each in document["seeds"]), abs=1e-6)
    assert retrained == pytest.approx(claimed, rel=0.05)
    holds = abs(difference) <= tolerance <= MOST_TOLERANCE * retrained
    assert (again.returncode, "ada/logged  confirmed" in again.stdout) == ((0, True) if holds else (1, False))


CHANGES = {
    "seeds": ("trials: 3", "trials: 3\nseeds: [0, 1]"),
    "steps": (f"steps: {STEPS}", "steps: 100"),
    "optimizer.adam_lr": ("adam_lr: 0.01", "adam_lr: 0.03"),
    "optimizer.warmup": ("warmup: 0.1, ", ""),  # its default is .01
    "z_loss_weight": ("trials: 3", "trials: 3\nz_loss_weight: 0.01"),
    "compute.precision": ("trials: 3", "trials: 3\ncompute: {precision: bfloat16}"),
    "data.validation": ("validation: {held:", "validation: {other:"),
}
"""Settings of the entry, each with its line and another one."""


def test_an_entry_that_differs_from_its_logs_is_refused_with_every_setting(
    logged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also another text than the logs name, names that the entry has already, and a log that is named twice."""
    monkeypatch.chdir(logged)
    text = ENTRY
    for before, after in CHANGES.values():
        text = text.replace(before, after)
    other = tmp_path / "other.yaml"
    other.write_text(text)
    with pytest.raises(DocumentError) as error:
        submit_runs(logs(logged), entry=other)
    assert {line.partition(":")[0] for line in error.value.lines} == set(CHANGES)
    other.write_text(ENTRY.partition("data:")[0])
    with pytest.raises(DocumentError) as error:
        submit_runs(logs(logged), entry=other)
    told = {line.partition(":")[0] for line in error.value.lines}
    assert told == {"parameters", "FLOPs per token", "data.source", "data.tokenizer", "data.validation"}
    other.write_text(ENTRY.replace("source: web", "source: finer"))
    with pytest.raises(DocumentError, match="finer"):
        submit_runs(logs(logged), entry=other)
    entry = logged / "speedruns" / "entries" / "logged.yaml"
    with pytest.raises(UsageError, match="name"):
        submit_runs(logs(logged), entry=entry, name="ada/other")
    with pytest.raises(UsageError, match="2 times"):
        submit_runs([logs(logged)[0]] * 2, entry=entry)
