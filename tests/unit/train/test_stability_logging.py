"""Gradient norms in the curve are those of the gradients before clipping, and to record them changes no bit of a loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_training import trained
from run_factory import MOE_SHAPE, corpus, rung_spec

from marin_scaling.run.spec import MoeModelSpec, RunSpec
from marin_scaling.run.store import HistoryRow

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


def spec_of(kind: str, **changes: Any) -> RunSpec:
    """A dense model or a mixture, whose gradients are clipped from the first step on."""
    model = {"model": MoeModelSpec(**MOE_SHAPE)} if kind == "moe" else {}
    optimizer = rung_spec().optimizer.model_copy(update={"constant_norm": "matrix", "max_grad_norm": 0.01})
    return rung_spec(**model, optimizer=optimizer, **changes)


def rows_of(result: Any) -> tuple[HistoryRow, ...]:
    rows: tuple[HistoryRow, ...] = result.loss_curve.history(spec_digest="").rows
    return rows


def norm_by_hand(spec: RunSpec, folder: Path) -> float:
    """Root of the sum of squares of the first step's gradients, added up in NumPy, without those of routers' biases."""
    import equinox as eqx
    import haliax as hax
    import jax
    import jax.numpy as jnp
    from levanter.models.lm_model import LmExample
    from levanter.trainer import Trainer, initialize

    from marin_scaling.train.levanter_config import trainer_config
    from marin_scaling.train.moe import router_biases
    from marin_scaling.train.optimizer import initial_optimizer
    from marin_scaling.train.step import initial_state, language_model_loss
    from marin_scaling.train.train import training_batches

    config = trainer_config(spec, work_dir=folder)
    initialize(config)
    optimizer, weight = initial_optimizer(spec), spec.optimizer.z_loss_weight
    tokens = next(training_batches(spec, corpus().train, first_step=0))
    weights = np.tile(np.arange(tokens.shape[1]) < tokens.shape[1] - 1, (len(tokens), 1)).astype(np.float32)
    example = LmExample(
        tokens=hax.named(jnp.asarray(tokens), ("batch", "position")),
        loss_weight=hax.named(jnp.asarray(weights), ("batch", "position")),
    )
    with Trainer(config, optimizer, language_model_loss(weight), add_default_hooks=False) as trainer:
        model = initial_state(trainer, spec, optimizer).model

        def loss(model: Any) -> Any:
            return model.compute_next_token_loss(example, key=None, logsumexp_weight=weight).scalar()

        gradients = eqx.filter_grad(loss)(model)
    if isinstance(spec.model, MoeModelSpec):
        gradients = eqx.tree_at(router_biases, gradients, replace_fn=lambda _: None)
    squares = [np.sum(np.asarray(leaf, np.float64) ** 2) for leaf in jax.tree.leaves(eqx.filter(gradients, eqx.is_array))]
    return float(np.sqrt(sum(squares)))


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_the_norm_is_that_of_the_gradients_before_clipping_and_no_loss_changes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same program without the norm gives the same losses, bit for bit."""
    from marin_scaling.train import step

    spec = spec_of(kind)
    result = trained(spec, tmp_path / "logged")
    first = rows_of(result)[0]
    by_hand = norm_by_hand(spec, tmp_path / "by-hand")
    assert first.gradient_norm == pytest.approx(by_hand, rel=1e-4)
    assert by_hand > 10 * spec.optimizer.max_grad_norm
    assert bool(first.expert_shares) == (kind == "moe")

    def without_norm(optimizer: Any, *, is_sparse: bool, see: Any) -> Any:
        see(0.0)
        return optimizer

    monkeypatch.setattr(step, "with_gradient_norm", without_norm)
    monkeypatch.setattr(step, "_PROGRAMS", {})
    plain = trained(spec, tmp_path / "plain")
    assert [row.gradient_norm for row in rows_of(plain)] == [0.0] * spec.train_steps
    assert [row.train_loss_nats_per_token for row in rows_of(plain)] == [
        row.train_loss_nats_per_token for row in rows_of(result)
    ]
    assert plain.bits_per_byte == result.bits_per_byte
