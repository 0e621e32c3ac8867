"""How steps are computed changes what they need and hardly what they give; trained for real, with Levanter."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_training import losses_of, trained
from run_factory import mixture_spec, rung_spec

from marin_scaling.errors import TrainingFailed
from marin_scaling.ladder.config import Compute
from marin_scaling.run.spec import EvaluationSpec, RunSpec

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


SPREAD = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from real_training import losses_of, trained
from test_compute import dense, fresh_state, of_matrices
import jax

def share(array):
    return array.addressable_shards[0].data.size / array.size

result = trained(dense(), Path("work"))
states = [fresh_state(spec, Path("state")).opt_state for spec in (dense(), of_matrices())]
leaves = [leaf for leaf in jax.tree.leaves(states) if getattr(leaf, "ndim", 0) > 1]
shares = [share(result.model.lm_head.weight.array), max(map(share, leaves))]
print([jax.device_count(), *shares, *losses_of(result)])
"""


def dense(**compute: Any) -> RunSpec:
    return rung_spec(train_steps=12, compute=Compute(**compute))


def of_matrices() -> RunSpec:
    """One whose optimizer keeps the norm of whole matrices."""
    return dense().model_copy(update={"optimizer": dense().optimizer.model_copy(update={"constant_norm": "matrix"})})


def sparse(**compute: Any) -> RunSpec:
    return mixture_spec(train_steps=12, compute=Compute(**compute))


def fresh_state(spec: RunSpec, work_dir: Path) -> Any:
    """The training state that this run begins with, on all devices."""
    from levanter.trainer import Trainer

    from marin_scaling.train.levanter_config import trainer_config
    from marin_scaling.train.optimizer import initial_optimizer
    from marin_scaling.train.step import initial_state, language_model_loss

    config, optimizer = trainer_config(spec, work_dir=work_dir), initial_optimizer(spec)
    with Trainer(config, optimizer, language_model_loss(0.0), add_default_hooks=False) as trainer:
        return initial_state(trainer, spec, optimizer)


@pytest.mark.parametrize("compute", [{"recompute": True}, {"sequences_at_a_time": 3}])
def test_a_dense_run_has_the_same_losses_however_it_is_computed(compute: dict[str, Any], tmp_path: Path) -> None:
    """Up to rounding; 3 sequences at a time do not divide a batch of 4 and mean 2."""
    as_usual = losses_of(trained(dense(), tmp_path / "usual"))
    assert losses_of(trained(dense(**compute), tmp_path / "other")) == pytest.approx(as_usual, rel=1e-5)


def long(attention: str) -> RunSpec:
    """A run of sequences that flash attention takes in blocks: from 1,024 positions on."""
    model = dense().model.model_copy(update={"seq_len": 2048})
    changes = {"model": model, "batch_size": 2, "train_steps": 4, "evaluation": EvaluationSpec(seq_len=128, windows=64)}
    return dense(attention=attention).model_copy(update=changes)


def loops(spec: RunSpec) -> int:
    """How many loops stand in the program that computes a loss of this model; blocks are taken in loops."""
    import equinox as eqx
    import haliax as hax
    import jax
    from levanter.models.lm_model import LmExample

    from marin_scaling.train.levanter_config import model_config

    config = model_config(spec)
    model = config.build(hax.Axis("vocab", spec.model.vocab_size), key=jax.random.PRNGKey(0))
    example = LmExample.causal(hax.zeros(config.max_Pos, dtype=int))
    program = eqx.filter_jit(lambda model: model.compute_next_token_loss(example).scalar()).lower(model)
    return int(program.as_text().count("stablehlo.while"))


def test_flash_attention_is_attention(tmp_path: Path) -> None:
    """The same losses up to rounding, which on some processors is none."""
    plain, flash = losses_of(trained(long("plain"), tmp_path / "plain")), losses_of(trained(long("flash"), tmp_path / "flash"))
    assert flash == pytest.approx(plain, rel=1e-4)


def test_flash_attention_is_another_program() -> None:
    """It goes over blocks of positions, and plain attention over none."""
    assert loops(long("flash")) > loops(long("plain")) == 0


def test_a_mixture_has_the_same_losses_when_its_layers_are_recomputed(tmp_path: Path) -> None:
    """Up to rounding. (Balanced on parts of a batch its bias would be another one.)"""
    as_usual = losses_of(trained(sparse(), tmp_path / "usual"))
    assert losses_of(trained(sparse(recompute=True), tmp_path / "other")) == pytest.approx(as_usual, rel=1e-4)


def kept_bytes(spec: RunSpec) -> int:
    """What JAX keeps for the backward pass of one batch, beside the parameters."""
    import equinox as eqx
    import haliax as hax
    import jax
    from jax._src.ad_checkpoint import saved_residuals  # its public sister only prints
    from levanter.models.lm_model import LmExample

    from marin_scaling.train.step import built_model

    model, static = eqx.partition(built_model(spec, key=jax.random.PRNGKey(0)), eqx.is_inexact_array)
    axes = (hax.Axis("batch", spec.batch_size), hax.Axis("position", spec.model.seq_len))
    example = LmExample(tokens=hax.zeros(axes, int), loss_weight=hax.ones(axes))
    found = saved_residuals(lambda arrays: eqx.combine(arrays, static).compute_next_token_loss(example).scalar(), model)
    return sum(array.size * array.dtype.itemsize for array, where in found if "argument" not in where)


@pytest.mark.parametrize("kind", [dense, sparse])
def test_of_layers_that_are_recomputed_little_is_kept(kind: Callable[..., RunSpec]) -> None:
    """Scarcely more than what goes from layer to layer and what the loss keeps; on a CPU XLA undoes it."""
    assert kept_bytes(kind(recompute=True)) < 0.35 * kept_bytes(kind())


def test_half_precision_is_near_and_not_the_same(tmp_path: Path) -> None:
    """bfloat16 has eight bits: a loss is right to about a hundredth."""
    exact, rounded = (
        losses_of(trained(dense(), tmp_path / "f32")),
        losses_of(trained(dense(precision="bfloat16"), tmp_path / "bf16")),
    )
    assert rounded == pytest.approx(exact, rel=2e-2)
    assert rounded != pytest.approx(exact, rel=1e-5)


def test_a_run_on_two_devices_has_the_losses_of_one(tmp_path: Path) -> None:
    """The batch, and each matrix and the optimizer's state by its width, are spread; XLA lets a processor stand for two."""
    (tmp_path / "work").mkdir()
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    two = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ran = subprocess.run(
        [sys.executable, "-c", SPREAD.format(path=path)], cwd=tmp_path, env=two, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    devices, of_head, of_state, *losses = json.loads(ran.stdout.splitlines()[-1])
    assert (devices, of_head, of_state) == (2, 0.5, 0.5)
    assert losses == pytest.approx(losses_of(trained(dense(), tmp_path / "one")), rel=1e-5)


def test_a_batch_that_devices_cannot_share_is_refused() -> None:
    """With both numbers, before anything is compiled."""
    from marin_scaling.train.levanter_config import sequences_at_once

    with pytest.raises(TrainingFailed, match="batch of 4 sequences cannot be spread evenly over 3 devices"):
        sequences_at_once(dense(), batch_parts=3)
    assert [sequences_at_once(dense(sequences_at_a_time=most), batch_parts=1) for most in (1, 2, 3, 4, 9)] == [1, 2, 2, 4, 4]


def test_tokens_have_the_same_weights_on_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant of a CPU's program, and computed elsewhere: 1 for each token that has a next one."""
    import jax

    from marin_scaling.train.step import _next_token_weights

    found = _next_token_weights(2, 4)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert _next_token_weights(2, 4).tolist() == found.tolist() == [[1, 1, 1, 0]] * 2
