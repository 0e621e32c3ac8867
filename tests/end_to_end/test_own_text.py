"""A ladder on text of one's own with a tokenizer of one's own, trained for real and measured on two named held-out sets."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy_qwen3
import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = pytest.mark.train

from text_factory import texts, write_jsonl, write_tokenizer  # noqa: E402

from marin_scaling.data.corpus import data_folder, map_corpus  # noqa: E402
from marin_scaling.run.store import read_runs  # noqa: E402
from marin_scaling.train.train import evaluation_windows  # noqa: E402

LADDER = """\
name: mine
recipe: recipes/bpe.yaml
rungs:
  - {budget_flops: 1e9, hidden_dims: [8, 12]}
target: {budget_flops: 1e10}
data:
  source: test-texts
  train: {files: "corpus/train-*.jsonl"}
  validation:
    wiki: {files: corpus/wiki.jsonl}
    code: {files: corpus/code.jsonl}
  tokenizer: tokenizer
  epochs: EPOCHS
evaluation: {windows: 64}
"""
RECIPE = """\
name: bpe
base: quickstart
constants: {vocab_size: 512, seq_len: 32, batch_size: 4}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(2):
        write_jsonl(tmp_path / "corpus" / f"train-{number}.jsonl", texts(60, start=number * 100))
    write_jsonl(tmp_path / "corpus" / "wiki.jsonl", texts(40, start=1_000))
    write_jsonl(tmp_path / "corpus" / "code.jsonl", texts(5, start=2_000))
    write_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "bpe.yaml").write_text(RECIPE)
    (tmp_path / "ladders").mkdir()
    (tmp_path / "ladders" / "mine.yaml").write_text(LADDER.replace("EPOCHS", "40"))
    return tmp_path


def marin_scale(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "marin_scaling.cli", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_records_have_the_loss_of_each_set_and_their_mean(folder: Path) -> None:
    """In bits per byte of text, whatever the tokenizer; the spec names tokenizer, sets and how often the text is seen."""
    looked = marin_scale(folder, "ladder", "ladders/mine.yaml", "--dry-run")
    assert "the text of test-texts is not tokenized yet" in looked.stdout
    done = marin_scale(folder, "ladder", "ladders/mine.yaml", "--keep-weights")
    assert done.returncode == 0, done.stderr
    assert "reading and tokenizing wiki (once)" in done.stderr
    assert "2 of 2 runs see text more than once, up to" in done.stdout
    records = [json.loads(path.read_bytes()) for path in (folder / "runs").glob("mine/*/record.json")]
    specs = [json.loads(path.read_bytes()) for path in (folder / "runs").glob("mine/*/spec.json")]
    assert len(records) == 2
    for record in records:
        assert set(record["losses"]) == {"wiki", "code"}
        assert record["loss"] == pytest.approx(sum(record["losses"].values()) / 2)
        assert 0 < record["loss"] < 5
    for spec in specs:
        assert spec["data"]["tokenizer"]["size"] == 512
        assert 1 < spec["epochs"] <= 40
        wiki = "".join(texts(40, start=1_000))
        assert spec["data"]["held_out"]["wiki"]["bytes"] == len(wiki.encode())
    again = marin_scale(folder, "ladder", "ladders/mine.yaml")
    assert "tokenizing" not in again.stderr
    assert "2 of 2 runs are finished already" in again.stdout
    assert "2 of 2 runs are recorded" in marin_scale(folder, "status", "ladders/mine.yaml").stdout
    assert_exported_with_its_tokenizer(folder)


def assert_exported_with_its_tokenizer(folder: Path) -> None:
    """Text becomes the same tokens by its files, and on them the model has the recorded loss of each set."""
    from transformers import AutoTokenizer

    run = read_runs(folder / "runs" / "mine")[0]
    done = marin_scale(folder, "export", run.folder.name, "--to", "model")
    assert done.returncode == 0, done.stderr
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    corpus = map_corpus(data_folder(run.spec.data.digest, work_root=folder / ".marin-scaling"))
    encoded = [token for text in texts(5, start=2_000) for token in [*tokenizer.encode(text), tokenizer.eos_token_id]]
    assert encoded == corpus.validation["code"].tolist()
    for name, windows in evaluation_windows(run.spec, corpus).items():
        measured = numpy_qwen3.bits_per_byte(folder / "model", windows, corpus.token_bytes)
        assert measured == pytest.approx(run.record.losses[name], rel=1e-5)
    assert "its files are here" in (folder / "model" / "README.md").read_text()

    write_tokenizer(folder / "other", vocab_size=400)
    shutil.copytree(folder / "other", folder / "tokenizer", dirs_exist_ok=True)
    marin_scale(folder, "export", run.folder.name, "--to", "without")
    assert sorted(path.name for path in (folder / "without").iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert "Its files are not here" in (folder / "without" / "README.md").read_text()


MIX = """\
name: mixed
recipe: recipes/bpe.yaml
rungs:
  - {budget_flops: 1e9, hidden_dims: [8, 12]}
target: {budget_flops: 4e9}
data:
  source: test-mix
  corpora:
    base: {files: corpus/train-0.jsonl}
    mine: {files: corpus/train-1.jsonl}
  mix: {base: 0.75, mine: 0.25}
  tokenizer: tokenizer
  held_out: 0.2
  epochs: 200
evaluation: {windows: 64}
"""


def test_a_mix_is_planned_and_trained_with_the_repeats_of_its_target(folder: Path) -> None:
    """The plan states how often each part is seen; no forecast is signed from rungs that repeat less than the target."""
    file = folder / "ladders" / "mixed.yaml"
    file.write_text(MIX)
    done = marin_scale(folder, "ladder", "ladders/mixed.yaml")
    assert done.returncode == 0, done.stderr
    runs = read_runs(folder / "runs" / "mixed")
    assert all(set(run.record.losses) == {"base", "mine"} for run in runs)
    assert all(run.spec.times_seen > 1 for run in runs)
    refused = marin_scale(folder, "preregister", "ladders/mixed.yaml")
    assert refused.returncode == 2
    assert "data.horizon" in refused.stderr

    file = folder / "ladders" / "simulated.yaml"
    file.write_text(MIX.replace("name: mixed", "name: simulated").replace("  epochs", "  horizon: target\n  epochs"))
    planned = json.loads(marin_scale(folder, "ladder", "ladders/simulated.yaml", "--dry-run", "--json").stdout)
    notes = {found["where"]: found["message"] for found in planned["findings"] if found["code"] == "mix"}
    assert set(notes) == {"data.base", "data.mine"}
    assert marin_scale(folder, "ladder", "ladders/simulated.yaml").returncode == 0
    simulated = read_runs(folder / "runs" / "simulated")
    assert len(simulated) == 2
    passes = [{each.name: each.passes for each in run.spec.exposures} for run in simulated]
    assert passes[0] == pytest.approx(passes[1], rel=0.2)
    assert all(run.spec.times_seen == 1 for run in simulated)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epochs: EPOCHS", "epochs: 1", "tokens; the training data have"),
        ("  tokenizer: tokenizer\n", "", "512; the data have 256 tokens (tokenizer: bytes)"),
        ("corpus/wiki.jsonl", "corpus/train-0.jsonl", "held out too (wiki: corpus/train-0.jsonl, line 1)"),
        ("tokenizer: tokenizer", "tokenizer: corpus", "The tokenizer 'corpus' cannot be loaded"),
    ],
)
def test_data_that_do_not_fit_the_ladder_are_refused_before_training(folder: Path, old: str, new: str, said: str) -> None:
    """With status 2, what, why and fix, and nothing recorded."""
    text = LADDER.replace(old, new).replace("EPOCHS", "40")
    (folder / "ladders" / "mine.yaml").write_text(text)
    refused = marin_scale(folder, "ladder", "ladders/mine.yaml")
    assert refused.returncode == 2, refused.stdout
    assert said in refused.stderr
    assert "  fix: " in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (folder / "runs" / "mine").exists()
