"""The mixture of experts against a plain NumPy statement, and its training with Levanter's step, on each pinned version."""

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy_moe
import pytest
from real_training import save_each_step, stop_at, trained
from run_factory import MOE_SHAPE, corpus, rung_spec

from marin_scaling.recipe.model_shape import MoeShape
from marin_scaling.run.spec import MoeModelSpec, RunSpec
from marin_scaling.run.store import HistoryRow

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

MOE = MoeShape(**MOE_SHAPE)


def moe_spec(**changes: Any) -> RunSpec:
    """A tiny mixture; `optimizer` may be a dictionary of fields to change."""
    optimizer = rung_spec().optimizer.model_copy(update=changes.pop("optimizer", {}))
    return rung_spec(model=MoeModelSpec(**asdict(MOE)), optimizer=optimizer, **changes)


class Training:
    """A run, step by step."""

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        from levanter.trainer import Trainer, initialize

        from marin_scaling.train.levanter_config import trainer_config
        from marin_scaling.train.optimizer import initial_optimizer
        from marin_scaling.train.step import compile_step, initial_state, language_model_loss
        from marin_scaling.train.train import training_batches

        config = trainer_config(spec, work_dir=folder)
        initialize(config)
        optimizer = initial_optimizer(spec)
        self.trainer = Trainer(config, optimizer, language_model_loss(spec.optimizer.z_loss_weight), add_default_hooks=False)
        with self.trainer:
            self.step = compile_step(self.trainer, initial_state(self.trainer, spec, optimizer), spec)
        self._batches = training_batches(spec, corpus().train, first_step=0)

    @property
    def model(self) -> Any:
        return self.step.state().model

    def advance(self) -> tuple[np.ndarray, float]:
        """The batch of the next step and the loss on it before the update."""
        tokens = next(self._batches)
        with self.trainer:
            return tokens, float(self.step.advance(tokens).loss)


def numpy_loss(model: Any, batch: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """Mean next-token loss by NumPy, and router logits of each layer over all tokens of the batch."""
    weights = numpy_moe.weights_of(model)
    losses, routed = [], []
    for tokens in batch:
        logits, routers = numpy_moe.sequence_logits(weights, tokens, experts_per_token=MOE.experts_per_token)
        top = logits.max(axis=1)
        log_normalizer = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        losses += list((log_normalizer - logits[np.arange(len(tokens)), np.roll(tokens, -1)])[:-1])
        routed.append(routers)
    return float(np.mean(losses)), [np.concatenate([each[layer] for each in routed]) for layer in range(MOE.num_layers)]


@pytest.fixture(scope="module", params=[("adamH", "slice"), ("muonH", "matrix")], ids=lambda param: "-".join(param))
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    """Optimizer, and three steps: the model before each, its batch and loss; and the model after the last."""
    name, constant_norm = request.param
    optimizer = {"name": name, "constant_norm": constant_norm, "z_loss_weight": 0.0, "warmup_fraction": 0.0}
    run = Training(moe_spec(optimizer=optimizer), tmp_path_factory.mktemp("run"))
    return name, [*((run.model, *run.advance()) for _ in range(3)), (run.model, None, None)]


def test_loss_and_routing_are_numpys(steps: tuple[str, list[Any]]) -> None:
    """The loss before each step, and each router's bias after it, are what the plain statement gives."""
    _, states = steps
    for (before, tokens, loss), (after, *_) in pairwise(states):
        expected, routed = numpy_loss(before, tokens)
        assert loss == pytest.approx(expected, rel=1e-5)
        for old, new, logits in zip(biases(before), biases(after), routed, strict=True):
            assert new == pytest.approx(numpy_moe.next_bias(logits, old, MOE.experts_per_token), abs=1e-5)


def test_routing_is_measured_as_numpy_measures_it(steps: tuple[str, list[Any]]) -> None:
    """Chosen are those with the highest logit plus bias, of two that are equal but for rounding either; entropy has no bias."""
    import haliax as hax

    for model, tokens, _ in steps[1][:3]:
        entropies, found = map(np.asarray, model.routing(hax.named(tokens, ("batch", "position"))))
        for entropy, shares, logits, bias in zip(entropies, found, numpy_loss(model, tokens)[1], biases(model), strict=True):
            chosen = np.argsort(logits + bias, axis=1)[:, -MOE.experts_per_token :]
            expected = np.bincount(chosen.ravel(), minlength=MOE.num_experts) / chosen.size
            assert shares == pytest.approx(expected, abs=1.01 / chosen.size)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            mean = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
            assert entropy == pytest.approx(-np.sum(mean * np.log(mean)), rel=1e-4)


def test_gates_of_heads_open_and_shut(steps: tuple[str, list[Any]]) -> None:
    """They begin at 0 and are trained, which an optimizer that keeps norms could not do."""
    _, states = steps
    first, last = (layers_of(states[place][0])[0]["head_gate"] for place in (0, -1))
    assert not first.any()
    assert np.abs(last).min() > 0


def test_the_built_model_holds_the_numbers_we_count(steps: tuple[str, list[Any]]) -> None:
    """Exactly `params_total`, router biases and gates included."""
    from marin_scaling.train.step import parameter_count

    assert parameter_count(steps[1][0][0]) == MOE.params_total


def test_each_experts_matrices_keep_their_norms(steps: tuple[str, list[Any]]) -> None:
    """Both optimizers turn a matrix without stretching it, each expert's for itself; the router's is Adam's and stretches."""
    before, after = (layers_of(steps[1][place][0])[1] for place in (0, -1))
    for part in ("gate", "up", "down"):
        old, new = before["experts"][part], after["experts"][part]
        assert np.linalg.norm(new, axis=(1, 2)) == pytest.approx(np.linalg.norm(old, axis=(1, 2)), rel=1e-5)
        assert (np.linalg.norm(new - old, axis=(1, 2)) > 1e-3 * np.linalg.norm(old, axis=(1, 2))).all()
    assert np.linalg.norm(after["router"]) != pytest.approx(np.linalg.norm(before["router"]), rel=1e-5)


def test_projections_of_heads_keep_the_norm_that_the_spec_says(steps: tuple[str, list[Any]]) -> None:
    """That of the matrix, whatever its parts do; or that of each slice along the weight's first axis."""
    name, states = steps
    first, last = (states[place][0].transformer.layers.blocks[0].attention.attention for place in (0, -1))
    for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
        old, new = (np.asarray(getattr(attention, part).weight.array) for attention in (first, last))
        assert old.ndim > 2
        assert np.linalg.norm(new) == pytest.approx(np.linalg.norm(old), rel=1e-5)
        assert np.linalg.norm(new - old) > 1e-3 * np.linalg.norm(old)
        slices = [np.linalg.norm(weight.reshape(len(weight), -1), axis=1) for weight in (old, new)]
        if name == "adamH":  # with `slice`
            assert slices[1] == pytest.approx(slices[0], rel=1e-5)
        elif len(slices[0]) > 1:
            assert slices[1] != pytest.approx(slices[0], rel=1e-4)


def test_muonh_turns_each_expert_by_an_orthogonalised_update(steps: tuple[str, list[Any]]) -> None:
    """The first update of an expert's matrix has singular values that are nearly equal; AdamH's has not."""
    name, states = steps
    before, after = (layers_of(states[place][0])[0]["experts"]["up"] for place in (0, 1))
    singular = np.linalg.svd(after - before, compute_uv=False)
    spread = np.median(singular[:, 0] / singular[:, singular.shape[1] // 2])
    assert spread < 1.5 if name == "muonH" else spread > 1.5


def layers_of(model: Any) -> Any:
    return numpy_moe.weights_of(model)["layers"]


def biases(model: Any) -> list[np.ndarray]:
    return [layer["bias"] for layer in layers_of(model)]


def test_a_stopped_mixture_ends_with_the_same_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with router biases, norms and routing: stopped in the middle and resumed from its checkpoint."""
    from marin_scaling.train.levanter_config import use_compilation_cache

    use_compilation_cache(tmp_path / "compiled")
    spec = moe_spec(train_steps=20)

    def curve(folder: Path) -> tuple[HistoryRow, ...]:
        rows: tuple[HistoryRow, ...] = trained(spec, folder).loss_curve.history(spec_digest=spec.digest).rows
        return rows

    uninterrupted = curve(tmp_path / "whole")
    assert [row.step for row in uninterrupted if row.expert_shares] == [0, 1, 2, 3, 4, 6, 8, 12, 16]
    assert all(row.gradient_norm for row in uninterrupted)
    save_each_step(monkeypatch)
    stop_at(12, spec, tmp_path / "parts")
    assert curve(tmp_path / "parts") == uninterrupted
