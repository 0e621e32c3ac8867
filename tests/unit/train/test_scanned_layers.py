"""Scanned layers train as unrolled ones do, a checkpoint of one layout resumes in the other; fused attention is attention."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_training import save_each_step, stop_at, trained
from run_factory import MOE_SHAPE, SHAPE, record_of, rung_spec

from marin_scaling.ladder.config import Compute
from marin_scaling.run.spec import ModelSpec, MoeModelSpec, RunSpec
from marin_scaling.run.store import Workplace

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


def spec_of(kind: str, **changes: Any) -> RunSpec:
    """A run of ten steps of a tiny model with three layers, whose optimizer keeps the norm of matrices."""
    shape = (MOE_SHAPE if "moe" in kind else SHAPE) | {"num_layers": 3}
    model = MoeModelSpec(**shape) if "moe" in kind else ModelSpec(**shape)
    name = "muonH" if "muon" in kind else "adamH"
    optimizer = rung_spec().optimizer.model_copy(
        update={"constant_norm": "matrix", "name": name, "router_z_loss_weight": 0.001}
    )
    return rung_spec(model=model, optimizer=optimizer, **changes)


def scan(monkeypatch: pytest.MonkeyPatch, *, layers: int) -> None:
    """From now on, scan models with more than so many layers."""
    from marin_scaling.train import levanter_config, step

    monkeypatch.setattr(levanter_config, "MOST_UNROLLED_LAYERS", layers)
    monkeypatch.setattr(step, "_PROGRAMS", {})


def losses_and_weights(spec: RunSpec, folder: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    """The loss at each step, and the trained arrays, with unrolled layers."""
    import equinox as eqx
    import jax
    from haliax.nn.scan import BlockSeq

    from marin_scaling.train.step import in_other_layout

    result = trained(spec, folder)
    rows = result.loss_curve.history(spec_digest=spec.digest).rows
    is_unrolled = isinstance(result.model.transformer.layers, BlockSeq)
    model = result.model if is_unrolled else in_other_layout(result.model)
    return np.array([row.train_loss_nats_per_token for row in rows]), [
        np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    ]


@pytest.mark.parametrize("kind", ["dense adamH", "moe adamH", pytest.param("dense muonH", marks=pytest.mark.nightly)])
def test_both_layouts_give_the_same_losses_and_weights_to_rounding(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, weights = losses_and_weights(spec_of(kind), tmp_path / "unrolled")
    scan(monkeypatch, layers=0)
    scanned_losses, scanned_weights = losses_and_weights(spec_of(kind), tmp_path / "scanned")
    assert scanned_losses == pytest.approx(losses, rel=2e-5)
    for ours, theirs in zip(weights, scanned_weights, strict=True):
        assert theirs == pytest.approx(ours, rel=1e-2, abs=2e-4)


@pytest.mark.parametrize(
    ("kind", "before", "after"), [("dense", 16, 0), ("moe", 0, 16)], ids=["dense-scanned-later", "moe-unrolled-later"]
)
def test_a_run_resumes_in_the_other_layout(
    kind: str, before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The losses after it are those of an uninterrupted run."""
    whole, _ = losses_and_weights(spec_of(kind), tmp_path / "whole")
    save_each_step(monkeypatch)
    scan(monkeypatch, layers=before)
    stop_at(4, spec_of(kind), tmp_path / "parts")
    scan(monkeypatch, layers=after)
    notes: list[str] = []
    result = trained(spec_of(kind), tmp_path / "parts", on_note=notes.append)
    rows = result.loss_curve.history(spec_digest=spec_of(kind).digest).rows
    assert any("resuming from step" in note for note in notes), notes
    assert [row.train_loss_nats_per_token for row in rows] == pytest.approx(list(whole), rel=2e-5)


def test_the_weights_of_a_scanned_run_are_kept_unrolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they load, and are exported, on any device."""
    import jax
    from haliax.nn.scan import BlockSeq
    from levanter.tracker.tracker import NoopConfig
    from levanter.trainer import TrainerConfig

    from marin_scaling.train.step import unrolled
    from marin_scaling.train.weights import keep_weights, load_weights

    scan(monkeypatch, layers=0)
    spec, place = spec_of("dense"), Workplace(runs_dir=tmp_path / "runs", work_root=tmp_path / "work")
    result = trained(spec, tmp_path / "training")
    history = result.loss_curve.history(spec_digest=spec.digest)
    record = record_of(spec, loss=result.bits_per_byte, history=history)
    keep_weights(result.model, record, train_steps=spec.train_steps, place=place)
    scan(monkeypatch, layers=16)
    trainer = TrainerConfig(tracker=NoopConfig(), require_accelerator=False)
    with trainer.use_device_mesh():
        folder = place.work_root / "weights" / spec.directory_name
        model = load_weights(spec, folder, axis_mapping=trainer.parameter_axis_mapping, mesh=trainer.device_mesh)
    assert isinstance(model.transformer.layers, BlockSeq)
    for ours, theirs in zip(jax.tree.leaves(model), jax.tree.leaves(unrolled(result.model)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_scanned_layers_are_recomputed_if_the_spec_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is the same."""
    scan(monkeypatch, layers=0)
    plain, _ = losses_and_weights(spec_of("dense"), tmp_path / "plain")
    again, _ = losses_and_weights(spec_of("dense", compute=Compute(recompute=True)), tmp_path / "again")
    assert again == pytest.approx(plain, rel=2e-5)


def test_what_levanters_optimizers_cannot_scan_is_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    from marin_scaling.train.levanter_config import scans_layers

    scan(monkeypatch, layers=0)
    slices = rung_spec().optimizer.model_copy(update={"constant_norm": "slice"})
    assert scans_layers(spec_of("dense"))
    assert not scans_layers(rung_spec(optimizer=slices))
    assert not scans_layers(spec_of("moe muonH"))


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_fused_attention_gives_the_loss_of_levanters(kind: str) -> None:
    """Of the same weights and tokens, with grouped heads, and after its gradient, too."""
    import equinox as eqx
    import haliax as hax
    import jax
    from levanter.models.lm_model import LmExample

    from marin_scaling.train.levanter_config import built_model, with_fused_attention

    spec = spec_of(kind)
    model = built_model(spec, key=jax.random.PRNGKey(0))
    tokens = hax.named(np.arange(2 * 16, dtype=np.int32).reshape(2, 16) * 7 % 251, ("batch", "position"))
    example = LmExample(tokens=tokens, loss_weight=hax.named(np.ones((2, 16), np.float32), tokens.axes))

    def loss(model: Any) -> Any:
        return model.compute_next_token_loss(example, key=None, logsumexp_weight=0.0).scalar()

    (first, ours), (second, theirs) = (
        eqx.filter_value_and_grad(eqx.filter_jit(loss))(each) for each in (with_fused_attention(model), model)
    )
    assert float(first) == pytest.approx(float(second), rel=1e-6)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-3, abs=1e-6)
