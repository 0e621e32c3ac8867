"""Entries with models and optimizers of their own: planned, trained, validated, shown and trained again, by command."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_line import marin_scale_process

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.publish.submission_page import pages_of, submission_page
from marin_scaling.run.store import read_run, run_folders
from marin_scaling.speedrun.entry import entry_plan, entry_specs, read_entry
from marin_scaling.speedrun.judge import judge_all
from marin_scaling.units import format_flops

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]  # of Levanter, in this process

TRACK = """\
name: tiny
title: A tiny track
limits: {model_flops: 1.0e+10}
hardware: [cpu]
seeds_at_least: 2
retrained_by_ci: true
"""
LLAMA = """\
name: ada/llama-muon
track: tiny
author: {name: Ada}
model: {type: llama, max_seq_len: 64, hidden_dim: 16, intermediate_dim: 48, num_layers: 2, num_heads: 2, num_kv_heads: 2}
optimizer: {type: muon, learning_rate: 0.02, adam_lr: 0.003}
batch_size: [{start: 0, value: 4}, {start: 30, value: 8}]
steps: 80
seeds: [0, 1]
trials: 2
evaluation: {windows: 64}
"""
SMALLER = {"max_seq_len: 128": "max_seq_len: 64", "steps: 750": "steps: 60\nseeds: [0, 1]\nevaluation: {windows: 64}"}
SMALLER |= {"{start: 200, value: 16}": "{start: 20, value: 16}", "trials: 3": "trials: 2", "hidden_dim: 32": "hidden_dim: 16"}


def said(root: Path, *arguments: object, status: int = 0) -> str:
    """Return what the command prints; it must end with that status."""
    done = marin_scale_process(*arguments, cwd=root)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a trained entry of Levanter's classes, and the starter, made smaller, too."""
    root = tmp_path_factory.mktemp("own")
    (root / "speedruns" / "tracks").mkdir(parents=True)
    (root / "speedruns" / "tracks" / "tiny.yaml").write_text(TRACK)
    said(root, "speedrun", "new", "ada/gated", "--track", "tiny", "--author", "Ada")
    starter = root / "speedruns" / "entries" / "ada" / "gated" / "entry.yaml"
    text = starter.read_text()
    for whole, small in SMALLER.items():
        assert whole in text
        text = text.replace(whole, small)
    starter.write_text(text)
    llama = root / "speedruns" / "entries" / "llama.yaml"
    llama.write_text(LLAMA)
    for entry in (llama, starter):
        told = said(root, "speedrun", "run", entry.relative_to(root))
        assert "the mean of 2 seeds" in told
        assert ("/submission.json --run-code\n" in told) == (entry == starter)
    return root


def test_entries_of_own_classes_are_accepted_and_come_out_again(trained: Path) -> None:
    """To the last digit, on one machine; that with code only if its reader asks for it."""
    assert "2 submissions: 2 accepted (0 with warnings)" in said(trained, "speedrun", "validate")
    told = said(trained, "speedrun", "confirm", "--all", status=1)
    assert "ada/llama-muon  confirmed" in told
    assert "ada/gated  NOT confirmed" in told
    again = said(trained, "speedrun", "confirm", "speedruns/ada/gated/submission.json", "--run-code")
    assert "ada/gated  confirmed" in again
    assert again.count(" +0.000000 ") == 3


def test_records_hold_all_that_repeats_a_run(trained: Path) -> None:
    """The classes, their settings, the code and the schedule; and both counts of FLOPs are stated."""
    code = (trained / "speedruns" / "entries" / "ada" / "gated" / "model.py").read_text()
    runs = [read_run(folder) for folder in run_folders(trained / "runs" / "speedrun-ada-gated")]
    assert [run.spec.code for run in runs] == [code, code]
    spec = runs[0].spec
    assert (spec.model.type, spec.optimizer.type) == ("gated_llama", "nadam")
    assert runs[0].record.params_total == spec.model.params_total
    assert spec.trained_tokens == 64 * (20 * 8 + 40 * 16)
    assert len(runs[0].history().rows) == 60
    document = json.loads((trained / "speedruns" / "ada" / "gated" / "submission.json").read_bytes())
    assert document["compute"]["model_flops"] == spec.flops
    assert document["compute"]["xla_gradient_flops"] == pytest.approx(spec.flops, rel=0.15)
    assert document["compute"]["xla_flops"] > document["compute"]["xla_gradient_flops"]


def test_the_page_shows_both_counts_and_the_code(trained: Path) -> None:
    """XLA's FLOPs beside those of the class, and the digest of the file that ran."""
    judged = judge_all(trained / "speedruns", at=datetime.now(UTC)).validated
    (gated,) = (each for each in judged if each.submission.name == "ada/gated")
    page = submission_page(gated, entry=None, parent=None, names=pages_of(judged), folder="board", recorded={})
    text = next(content.decode() for name, content in page.items() if name.endswith(".md"))
    compute = gated.submission.compute
    for count in (compute.model_flops, compute.xla_gradient_flops, compute.xla_flops):
        assert format_flops(count) in text
    assert "confirm speedruns/ada/gated/submission.json --run-code" in text
    assert sha256_hex((trained / "speedruns" / "entries" / "ada" / "gated" / "model.py").read_bytes()) in text


@pytest.mark.nightly
def test_an_interrupted_run_of_own_classes_ends_with_the_same_curve(trained: Path, tmp_path: Path) -> None:
    """Stopped after a step within the schedule, and resumed from its checkpoint in a new state."""
    from marin_scaling.errors import Interrupted
    from marin_scaling.train.train import train

    path = trained / "speedruns" / "entries" / "ada" / "gated" / "entry.yaml"
    entry, corpus = read_entry(path), standard_library_corpus()
    spec = entry_specs(entry, entry_plan(entry, path=path), corpus=corpus)[0]
    recorded = next(run for run in map(read_run, run_folders(trained / "runs" / "speedrun-ada-gated")) if run.spec == spec)
    steps = list[int]()
    with pytest.raises(Interrupted):
        train(
            spec,
            corpus=corpus,
            work_dir=tmp_path / "ended",
            on_step=lambda step, _loss: steps.append(step),
            is_to_end=lambda: len(steps) >= 25,
        )
    ended = train(spec, corpus=corpus, work_dir=tmp_path / "ended", on_step=lambda step, _loss: steps.append(step))
    assert steps[25] > 25
    unbroken = train(spec, corpus=corpus, work_dir=tmp_path / "unbroken", on_step=lambda _step, _loss: None)
    losses, of_unbroken = (
        [row.train_loss_nats_per_token for row in each.loss_curve.history(spec_digest=spec.digest).rows]
        for each in (ended, unbroken)
    )
    assert losses == of_unbroken
    assert ended.bits_per_byte == unbroken.bits_per_byte
    whole = [row.train_loss_nats_per_token for row in recorded.history().rows]
    assert len(losses) == spec.train_steps
    assert losses == pytest.approx(whole, rel=1e-5)  # the record's process had one core
