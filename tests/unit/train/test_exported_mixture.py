"""An exported mixture of experts loads as the trained model, and its files alone are enough to compute the same logits."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy_moe
import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

from command_line import marin_scale  # noqa: E402
from real_training import trained as train_it  # noqa: E402
from run_factory import MOE_SHAPE, corpus, record_of, rung_spec  # noqa: E402
from text_factory import write_tokenizer  # noqa: E402

import marin_scaling as ms  # noqa: E402
from marin_scaling.errors import StorageError  # noqa: E402
from marin_scaling.run.spec import MoeModelSpec, RunSpec, TokenizerSpec  # noqa: E402
from marin_scaling.run.store import Workplace, add_run  # noqa: E402

Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Change of configuration and tensors in place."""

TOLERANCE = 1e-5
SPEC = rung_spec(model=MoeModelSpec(**{**MOE_SHAPE, "num_kv_heads": 2}), train_steps=30)
"""Two query heads share each head of keys and values, so that a wrong grouping shows."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("place")
    return Workplace(runs_dir=folder / "runs", work_root=folder / ".marin-scaling")


@pytest.fixture(scope="module")
def trained(place: Workplace) -> Any:
    """The trained model, whose run is recorded and whose weights are kept."""
    from marin_scaling.train.weights import keep_weights

    result = train_it(SPEC, place.work_root / "training")
    history = result.loss_curve.history(spec_digest=SPEC.digest)
    record = record_of(SPEC, loss=result.bits_per_byte, history=history)
    keep_weights(result.model, record, train_steps=SPEC.train_steps, place=place)
    add_run(place.runs_dir, spec=SPEC, record=record, history=history)
    return result.model


@pytest.fixture(scope="module")
def exported(trained: Any, place: Workplace) -> Path:
    root = place.runs_dir.parent
    done = marin_scale("export", SPEC.directory_name, "--to", "model", cwd=root)
    assert done.returncode == 0, done.stderr
    return root / "model"


def write(place: Workplace, folder: Path, spec: RunSpec = SPEC, **tokenizer: Any) -> Path:
    from marin_scaling.train.weights import write_hugging_face

    folder.mkdir()
    weights = place.work_root / "weights" / SPEC.directory_name
    write_hugging_face(spec, weights=weights, folder=folder, **({"tokenizer": None} | tokenizer))
    return folder


def windows() -> np.ndarray:
    from marin_scaling.train.train import evaluation_windows

    return evaluation_windows(SPEC, corpus())["validation"][:8]


def logits(model: Any) -> np.ndarray:
    import equinox as eqx
    import haliax as hax
    from levanter.layers.attention import AttentionMask

    compute = eqx.filter_jit(lambda model, tokens: model(tokens, attn_mask=AttentionMask.causal()))
    named = compute(model, hax.named(windows(), ("batch", "position")))
    return np.asarray(named.rearrange(("batch", "position", "vocab")).array)


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return dict(load_file(folder / "model.safetensors"))


def changed(exported: Path, folder: Path, change: Change) -> Path:
    from safetensors.numpy import save_file

    shutil.copytree(exported, folder)
    config, tensors = json.loads((folder / "config.json").read_text()), tensors_of(folder)
    change(config, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_the_loaded_model_has_the_trained_models_logits(trained: Any, exported: Path) -> None:
    """On held-out windows; the model that is loaded holds as many numbers."""
    from marin_scaling.train.step import parameter_count

    loaded = ms.load_exported(exported)
    assert np.abs(logits(loaded) - logits(trained)).max() < TOLERANCE
    assert parameter_count(loaded) == SPEC.model.shape().params_total


def test_the_files_alone_compute_the_trained_models_logits_in_plain_numpy(trained: Any, exported: Path) -> None:
    """By the names and shapes of the documentation, in float64; no name is left over."""
    config, weights = numpy_moe.read_exported(exported)
    choices = config["num_experts_per_tok"]
    ours = np.stack([numpy_moe.sequence_logits(weights, tokens, experts_per_token=choices)[0] for tokens in windows()])
    assert np.abs(ours - logits(trained)).max() < TOLERANCE
    norms, attention, router, mlps = 6, 5, 2, 3 * (config["num_experts"] + 1)
    assert len(tensors_of(exported)) == 5 + 3 + config["num_hidden_layers"] * (norms + attention + router + mlps)


def test_the_configuration_has_the_sizes_and_constants(exported: Path) -> None:
    """With Hugging Face's names; byte tokens have no tokenizer."""
    config = json.loads((exported / "config.json").read_text())
    assert (config["model_type"], config["layout_version"], config["dtype"]) == ("marin_scaling_grug_moe", 1, "float32")
    assert (config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]) == (16, 2, 256)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 4)
    assert (config["num_experts"], config["num_experts_per_tok"], config["norm_gate_rank"]) == (6, 2, 3)
    assert (config["moe_intermediate_size"], config["shared_expert_intermediate_size"]) == (20, 24)
    assert (config["query_scale"], config["routed_scaling_factor"]) == (1.3, 2.5)
    assert (config["rms_norm_eps"], config["rope_theta"], config["rope_scaling"]) == (1e-5, 10_000, None)
    assert config["max_position_embeddings"] == 32
    assert config["tokenizer"] is None


def test_tensors_above_the_limit_are_written_in_several_files(
    trained: Any, exported: Path, place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hub's index; they are loaded as one, and a file that is missing is an error of ours."""
    monkeypatch.setattr("marin_scaling.train.weights.SHARD_BYTES", 30_000)
    folder = write(place, tmp_path / "parts")
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(files) > 2
    assert sorted(set(weight_map.values())) == files
    assert set(weight_map) == set(tensors_of(exported))
    assert np.array_equal(logits(ms.load_exported(folder)), logits(ms.load_exported(exported)))
    (folder / files[0]).unlink()
    with pytest.raises(StorageError) as caught:
        ms.load_exported(folder)
    assert files[0] in caught.value.what


def test_a_tokenizer_is_written_beside_the_model_and_named_in_the_configuration(
    trained: Any, place: Workplace, tmp_path: Path
) -> None:
    """Its files are read by `transformers`, though the model is not."""
    from transformers import AutoTokenizer

    reference = TokenizerSpec(name="somebody/words", digest="a" * 64, size=512)
    spec = SPEC.model_copy(update={"data": SPEC.data.model_copy(update={"tokenizer": reference})})
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    folder = write(place, tmp_path / "model", spec, tokenizer=tokenizer, end_token="<|end|>")
    assert json.loads((folder / "config.json").read_text())["tokenizer"] == reference.model_dump()
    text = "A sentence of words."
    assert AutoTokenizer.from_pretrained(folder).encode(text) == AutoTokenizer.from_pretrained(tokenizer).encode(text)


def test_all_wrong_tensors_and_constants_are_in_one_error(exported: Path, tmp_path: Path) -> None:
    """Missing, unknown, of another shape or type; and constants that this version does not compute with."""

    def change(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        config.update(query_scale=1.4, layout_version=2)
        del tensors["model.layers.1.mlp.router.bias"]
        tensors["model.layers.0.mlp.gate.weight"] = np.zeros(3, np.float32)
        tensors["model.norm.weight"] = np.zeros(17, np.float32)
        tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(np.float16)

    with pytest.raises(StorageError) as caught:
        ms.load_exported(changed(exported, tmp_path / "model", change))
    lines = caught.value.lines[1:]
    assert len(lines) == 6
    named = ("query_scale", "layout_version", "router.bias", "mlp.gate.weight", "model.norm.weight", "lm_head.weight")
    for name, values in zip(named, (("1.4", "1.3"), ("2", "1"), (), (), ("[17]", "[16]"), ("float16", "float32")), strict=True):
        (line,) = (line for line in lines if name in line)
        assert all(value in line for value in values)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": "16"}, ["hidden_size"]),
        ({"hidden_size": 0, "num_experts": None}, ["hidden_size", "num_experts"]),
        ({"hidden_size": 32}, ["lm_head.weight", "[256, 16]", "[256, 32]"]),
        ({"num_key_value_heads": 3}, []),
        ({"model_type": "llama"}, ["llama"]),
        ({"model_type": None}, []),
    ],
)
def test_a_changed_configuration_is_refused(exported: Path, tmp_path: Path, change: dict[str, Any], named: list[str]) -> None:
    """Sizes that are no numbers, that do not fit the tensors or each other, and other models."""
    folder = changed(exported, tmp_path / "model", lambda config, tensors: config.update(change))
    with pytest.raises(StorageError) as caught:
        ms.load_exported(folder)
    assert all(name in caught.value.what for name in named)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_or_missing_file_is_refused(exported: Path, tmp_path: Path, name: str) -> None:
    """A file that ends early, and none."""
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / name).write_bytes((folder / name).read_bytes()[:-20])
    with pytest.raises(StorageError):
        ms.load_exported(folder)
    (folder / name).unlink()
    with pytest.raises(StorageError):
        ms.load_exported(folder)


def test_the_cards_example_runs(exported: Path) -> None:
    """It computes logits of four bytes."""
    card = (exported / "README.md").read_text()
    assert "6 of width 20, and a shared one of width 24" in card
    names: dict[str, Any] = {}
    exec(card.split("```python")[1].split("```")[0].replace("THIS-FOLDER", str(exported)), names)
    sizes = {axis.name: axis.size for axis in names["logits"].axes}
    assert sizes == {"batch": 1, "position": 4, "vocab": 256}
