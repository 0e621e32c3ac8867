"""A trained model in Hugging Face's format computes what the trained model does, by three ways of reading it."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy_qwen3
import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

from run_factory import SHAPE, corpus, record_of, rung_spec  # noqa: E402

from marin_scaling.errors import StorageError, UsageError  # noqa: E402
from marin_scaling.ladder.config import Compute  # noqa: E402
from marin_scaling.run.spec import ModelSpec, RunSpec  # noqa: E402
from marin_scaling.run.store import (  # noqa: E402
    StoredRun,
    Workplace,
    add_run,
    read_run,
)

TOLERANCE = 1e-4  # of logits of size 1 to 10 in float32, after sums of up to 64 terms and two layers


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("place")
    return Workplace(runs_dir=folder / "runs", work_root=folder / "work")


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    """Two query heads on one of keys and values, so that a wrong grouping shows; recomputed layers are of another type."""
    return rung_spec(model=ModelSpec(**{**SHAPE, "num_kv_heads": 1}), train_steps=30, compute=Compute(recompute=True))


@pytest.fixture(scope="module")
def trained(place: Workplace, spec: RunSpec) -> Any:
    """The result of training, whose run is recorded and whose weights are kept."""
    from marin_scaling.train.train import train
    from marin_scaling.train.weights import keep_weights

    result = train(spec, corpus=corpus(), work_dir=place.work_root / "training", on_step=lambda step, loss: None)
    history = result.loss_curve.history(spec_digest=spec.digest)
    record = record_of(spec, loss=result.bits_per_byte, history=history)
    keep_weights(result.model, record, train_steps=spec.train_steps, place=place)
    add_run(place.runs_dir, spec=spec, record=record, history=history)
    return result


@pytest.fixture
def run(trained: Any, place: Workplace, spec: RunSpec) -> StoredRun:
    return read_run(place.runs_dir / spec.ladder / spec.directory_name)


@pytest.fixture(scope="module")
def exported(trained: Any, place: Workplace, spec: RunSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from marin_scaling.train.weights import write_hugging_face

    folder = tmp_path_factory.mktemp("exported")
    weights = place.work_root / "weights" / spec.directory_name
    write_hugging_face(spec, weights=weights, folder=folder, tokenizer=None)
    return folder


def held_out(spec: RunSpec) -> np.ndarray:
    from marin_scaling.train.train import evaluation_windows

    return evaluation_windows(spec, corpus())["validation"]


def levanters_logits(model: Any, tokens: np.ndarray) -> np.ndarray:
    import haliax as hax
    from levanter.layers.attention import AttentionMask

    named = model(hax.named(tokens, ("batch", "position")), attn_mask=AttentionMask.causal())
    return np.asarray(named.rearrange(("batch", "position", "vocab")).array)


def test_the_safetensors_compute_the_trained_models_logits_in_plain_numpy(trained: Any, exported: Path, spec: RunSpec) -> None:
    """By Qwen3's formulas and Hugging Face's names, on held-out windows; no name is left over."""
    windows = held_out(spec)[:8]
    config, arrays = numpy_qwen3.read_model(exported)
    ours = np.stack([numpy_qwen3.logits(config, arrays, tokens) for tokens in windows])
    assert np.abs(ours - levanters_logits(trained.model, windows)).max() < TOLERANCE
    assert len(arrays) == 3 + 11 * spec.model.num_layers
    assert sum(array.size for array in arrays.values()) == spec.model.shape().params_total


def test_the_safetensors_have_the_recorded_loss(run: StoredRun, exported: Path, spec: RunSpec) -> None:
    """In bits per byte over all evaluation windows."""
    found = numpy_qwen3.bits_per_byte(exported, held_out(spec), corpus().token_bytes)
    assert found == pytest.approx(run.record.loss, rel=1e-5)


def test_levanter_loads_the_folder_back_as_the_trained_model(trained: Any, exported: Path, spec: RunSpec) -> None:
    """Through its own `load_pretrained`, number for number."""
    import marin_scaling as ms

    loaded = ms.load_exported(exported)
    windows = held_out(spec)[:8]
    assert np.abs(levanters_logits(loaded, windows) - levanters_logits(trained.model, windows)).max() < TOLERANCE


def test_transformers_reads_the_configuration(exported: Path, spec: RunSpec) -> None:
    """As its own Qwen3, with our sizes."""
    from transformers import AutoConfig

    assert sorted(path.name for path in exported.iterdir()) == ["config.json", "model.safetensors"]
    config = AutoConfig.from_pretrained(exported)
    assert (config.model_type, config.architectures) == ("qwen3", ["Qwen3ForCausalLM"])
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (16, 2, 256)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (2, 1, 8)
    assert (config.max_position_embeddings, config.tie_word_embeddings) == (spec.model.seq_len, False)


def test_a_damaged_export_is_an_error_of_ours(exported: Path, tmp_path: Path) -> None:
    """A file of tensors that ends early, and none."""
    import shutil

    import marin_scaling as ms

    folder = shutil.copytree(exported, tmp_path / "model")
    tensors = folder / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-20])
    with pytest.raises(StorageError):
        ms.load_exported(folder)
    tensors.unlink()
    with pytest.raises(StorageError):
        ms.load_exported(folder)


def test_weights_of_another_training_of_a_run_are_not_taken_for_its_own(run: StoredRun, place: Workplace) -> None:
    """Known by the digest of the loss curve; where no weights are kept at all, how to get them is said."""
    from dataclasses import replace

    from marin_scaling.train.weights import kept_weights

    assert kept_weights(run, place) == place.work_root / "weights" / run.spec.directory_name
    other = replace(run, record=run.record.model_copy(update={"history_sha256": "0" * 64}))
    with pytest.raises(UsageError, match="its loss curve is not the recorded one"):
        kept_weights(other, place)
    elsewhere = Workplace(runs_dir=place.runs_dir, work_root=place.work_root / "elsewhere")
    with pytest.raises(UsageError, match="are missing") as caught:
        kept_weights(run, elsewhere)
    assert "marin-scale ladder ladders/tiny.yaml --only 1000000000/16 --keep-weights" in caught.value.fix


def test_weights_that_a_disk_changed_are_not_exported(run: StoredRun, place: Workplace, tmp_path: Path) -> None:
    """One byte of one file; weights that were kept before their files had a digest are taken as they are."""
    import json
    import shutil

    from marin_scaling.train.weights import kept_weights

    here = Workplace(runs_dir=place.runs_dir, work_root=tmp_path)
    folder = tmp_path / "weights" / run.spec.directory_name
    shutil.copytree(place.work_root / "weights" / run.spec.directory_name, folder)
    largest = max((folder / "d").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        kept_weights(run, here)
    marker = json.loads((folder / "weights.json").read_text())
    del marker["files"]
    (folder / "weights.json").write_text(json.dumps(marker))
    assert kept_weights(run, here) == folder


def test_weights_that_a_killed_process_left_are_written_over(
    trained: Any, run: StoredRun, place: Workplace, tmp_path: Path
) -> None:
    """Half-written ones in the working folder and whole ones without a record; what was kept can then be read."""
    from marin_scaling.train.weights import keep_weights, kept_weights

    here = Workplace(runs_dir=place.runs_dir, work_root=tmp_path)
    for left in (tmp_path / "work" / run.spec.directory_name / "weights", tmp_path / "weights" / run.spec.directory_name):
        (left / "d").mkdir(parents=True)
        (left / "metadata.json").write_text("half")
    keep_weights(trained.model, run.record, train_steps=run.spec.train_steps, place=here)
    assert '"is_temporary": false' in (kept_weights(run, here) / "metadata.json").read_text()
    assert not (tmp_path / "work" / run.spec.directory_name / "weights").exists()


def test_weights_that_cannot_be_read_are_said_by_name(run: StoredRun, place: Workplace, tmp_path: Path) -> None:
    """With what to do."""
    import shutil

    from marin_scaling.train.weights import write_hugging_face

    damaged = shutil.copytree(place.work_root / "weights" / run.spec.directory_name, tmp_path / "weights")
    shutil.rmtree(damaged / "d")
    with pytest.raises(StorageError, match="the weights cannot be read"):
        write_hugging_face(run.spec, weights=damaged, folder=tmp_path / "out", tokenizer=None)
