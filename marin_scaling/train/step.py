"""The compiled training step on Levanter's trainer, and its state with scanned or unrolled layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from haliax.nn.scan import BlockSeq, Stacked
from jax.sharding import NamedSharding, PartitionSpec
from levanter.models.lm_model import LmExample
from levanter.trainer import Trainer
from levanter.trainer_state import TrainerState
from numpy.typing import NDArray

from marin_scaling.run.spec import OwnOptimizerSpec, RunSpec
from marin_scaling.train.levanter_config import built_model
from marin_scaling.train.optimizer import STACK_AXIS, is_sparse, optimizer_for_one_step, scheduled_rates, with_gradient_norm


def in_other_layout(tree: Any) -> Any:
    """Return a model or training state with unrolled layers instead of scanned ones, or the reverse; the numbers are the same.

    >>> from haliax.nn import Linear
    >>> layer, width = hax.Axis("layer", 3), hax.Axis("width", 2)
    >>> keys = jax.random.split(jax.random.PRNGKey(0), 3)
    >>> scanned = Stacked.init(layer, Linear)(In=width, Out=width.alias("out"), key=keys)
    >>> unrolled = in_other_layout(scanned)
    >>> len(unrolled.blocks), unrolled.blocks[2].weight.axes == scanned.stacked.weight.axes[1:]
    (3, True)
    >>> bool(jnp.array_equal(in_other_layout(unrolled).stacked.weight.array, scanned.stacked.weight.array))
    True
    """
    return jax.tree.map(_other_layout, tree, is_leaf=_is_layers)


def unrolled(model: Any) -> Any:
    """Return a model with unrolled layers, as weights are kept."""
    layers = getattr(getattr(model, "transformer", None), "layers", None)  # a class of one's own may name them otherwise
    return eqx.filter_jit(in_other_layout)(model) if isinstance(layers, Stacked) else model


def _is_layers(node: Any) -> bool:
    """Return True for the layers of a model, scanned or not; experts are stacked, too, but within layers."""
    return isinstance(node, (BlockSeq, Stacked))


def _other_layout(node: Any) -> Any:
    if isinstance(node, Stacked):
        apart = jax.tree.map(partial(_apart, layers=node.Block), node.stacked, is_leaf=_is_named)
        return BlockSeq(list(dataclasses.replace(node, stacked=apart).unstacked()), node.Block, node.gradient_checkpointing)
    if not isinstance(node, BlockSeq):
        return node
    stacked = jax.tree.map(partial(_joined, node.Block), *node.blocks, is_leaf=_is_named)
    return Stacked(stacked, node.Block, node.gradient_checkpointing)


def _is_named(node: Any) -> bool:
    return isinstance(node, hax.NamedArray)


def _apart(array: Any, *, layers: hax.Axis) -> Any:
    """Return an array of scanned layers with an axis of layers, which an optimizer may have joined with that of experts."""
    if not _is_named(array) or STACK_AXIS not in {axis.name for axis in array.axes}:
        return array
    experts = hax.Axis(STACK_AXIS, array.axis_size(STACK_AXIS) // layers.size)
    return array.unflatten_axis(STACK_AXIS, (layers, experts))


def _joined(layers: hax.Axis, *each: Any) -> Any:
    """Return the arrays of unrolled layers as one, in the inverse of `_apart`."""
    if not _is_named(each[0]):
        return jnp.stack(each)
    stacked = hax.stack(layers, each)
    if STACK_AXIS not in {axis.name for axis in stacked.axes}:
        return stacked
    return stacked.flatten_axes((layers, stacked.resolve_axis(STACK_AXIS)), STACK_AXIS)


_PROGRAMS: dict[tuple[Any, ...], Callable[..., Any]] = {}


def language_model_loss(z_loss_weight: float) -> Callable[..., Any]:
    """Return next-token cross-entropy in nats with z-loss, as a loss function of Levanter's `Trainer`."""

    def loss(model: Any, example: LmExample, *, key: Any = None) -> Any:
        return model.compute_next_token_loss(example, key=key, logsumexp_weight=z_loss_weight)

    return loss


def initial_state(trainer: Trainer, spec: RunSpec, optimizer: Any) -> TrainerState:
    """Return a fresh training state, spread over several devices if present; randomness comes from the spec's seed."""
    key_training, key_model = jax.random.split(jax.random.PRNGKey(spec.seed))
    begin = partial(TrainerState.init, optimizer, is_trainable=True, mp=trainer.mp)

    @partial(eqx.filter_jit, **_for_one_call())
    def program(key_model: Any, key_training: Any) -> TrainerState:
        return begin(built_model(spec, key=key_model), key=key_training)

    if trainer.device_mesh.size == 1:
        return _shared("beginning", program, spec, trainer, optimizer)(key_model, key_training)
    build = hax.named_jit(partial(built_model, spec), axis_resources=trainer.parameter_axis_mapping)
    return hax.shard(begin(build(key=key_model), key=key_training), trainer.parameter_axis_mapping)


def _for_one_call() -> dict[str, Any]:
    """Return compiler options with less optimization on a CPU, which halves the time to compile programs that run once."""
    if jax.default_backend() != "cpu":
        return {}
    return {"compiler_options": {"xla_backend_optimization_level": "1"}}


def _shared(kind: str, program: Callable[..., Any], spec: RunSpec, trainer: Trainer, *more: Any) -> Callable[..., Any]:
    """Return `program`, or the one that this process has compiled for a run of the same shape.

    JAX's cache on disk saves compiling; this also saves tracing and loading, which take about a second.
    """
    return _PROGRAMS.setdefault((kind, spec.program_digest, trainer.device_mesh, *more), program)


def parameter_count(model: Any) -> int:
    """Return the number of trainable parameters of the model."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


class BegunStep(NamedTuple):
    """Loss of a step in nats per token before the update, and norm of its gradients before clipping.

    The device may still be computing them; to read one waits for it.
    """

    loss: jax.Array
    gradient_norm: jax.Array


class CompiledStep:
    """A training run between two steps: `advance` begins the next one, `state` returns the current state."""

    def __init__(
        self, program: Callable[..., Any], leaves: list[Any], rebuild: Callable[..., Any], rates: NDArray[Any]
    ) -> None:
        self._program, self._leaves, self._rebuild, self._rates = program, leaves, rebuild, rates
        self.steps_done = int(rebuild(leaves).step)

    def advance(self, tokens: Any) -> BegunStep:
        """Begin a step on `tokens` of shape (batch, position); the device may still be computing when this returns."""
        self._leaves, *begun = self._program(self._leaves, tokens, self._rates[self.steps_done])
        self.steps_done += 1
        return BegunStep(*begun)

    def state(self) -> TrainerState:
        """Return the training state, as Levanter saves it."""
        return self._rebuild(self._leaves)


def compile_step(trainer: Trainer, state: TrainerState, spec: RunSpec) -> CompiledStep:
    """Compile Levanter's step for this run, ready to `advance`.

    On accelerators the state before a step is overwritten by the one after it. On a CPU it is kept, because checkpoints are
    written from it while training goes on.
    """
    leaves, rebuild = flattened(state)
    donated = () if jax.default_backend() == "cpu" else (0,)
    program = jax.jit(step_function(trainer, spec, rebuild), donate_argnums=donated)
    return CompiledStep(_shared("step", program, spec, trainer), leaves, rebuild, rates_of_steps(spec))


def step_function(trainer: Trainer, spec: RunSpec, rebuild: Callable[[list[Any]], TrainerState]) -> Callable[..., Any]:
    """Return the function to compile: (arrays of the state, tokens, rates) to (arrays of the next state, loss, gradient norm).

    `tokens` has shape (batch, position); `rates` are those of one step in `rates_of_steps`.
    """

    def program(leaves: list[Any], tokens: Any, rates: Any) -> Any:
        axes = (hax.Axis("batch", tokens.shape[0]), hax.Axis("position", spec.model.seq_len))
        norms = list[Any]()
        optimizer = optimizer_for_one_step(spec, learning_rate=rates[0], adam_learning_rate=rates[1], epsilon=rates[2])
        optimizer = with_gradient_norm(optimizer, is_sparse=is_sparse(spec), see=norms.append)
        state = dataclasses.replace(rebuild(leaves), optimizer=optimizer)
        weights = _next_token_weights(tokens.shape[0], spec.model.seq_len)
        example = LmExample(tokens=hax.named(tokens, axes), loss_weight=hax.named(jnp.asarray(weights), axes))
        with hax.axis_mapping(trainer.compute_axis_mapping):
            example = hax.shard(example)
        result = trainer._train_step(state, (example,), {}, _no_hooks=True)
        return jax.tree.leaves(eqx.filter(result.new_state, eqx.is_array)), result.loss, norms[0]

    return program


def rates_of_steps(spec: RunSpec) -> NDArray[np.float32]:
    """Return learning rate, Adam's learning rate and epsilon of every step, of shape (step, 3); zeros for an own schedule."""
    if isinstance(spec.optimizer, OwnOptimizerSpec):
        return np.zeros((spec.train_steps, 3), np.float32)
    rates = scheduled_rates(spec.optimizer, train_steps=spec.train_steps)
    return np.stack([*rates, np.full(spec.train_steps, spec.optimizer.epsilon, np.float32)], axis=1)


def compile_evaluation(
    trainer: Trainer, model: Any, spec: RunSpec, *, windows: int
) -> Callable[[NDArray[np.int32], NDArray[np.bool_]], float]:
    """Compile the mean loss of `model` in nats per token, over windows of tokens (windows, position) with non-zero count.

    It uses the precision and devices of training. The last token of a window has no next token.
    """
    leaves, rebuild = flattened(model)
    program = jax.jit(evaluation_function(trainer, spec, rebuild, windows=windows))
    shared = _shared("evaluation", program, spec, trainer, windows, spec.evaluation.seq_len)
    return lambda tokens, counts: float(shared(leaves, tokens, counts))


def evaluation_function(
    trainer: Trainer, spec: RunSpec, rebuild: Callable[[list[Any]], Any], *, windows: int
) -> Callable[..., Any]:
    """Return the function to compile: (arrays of the model, tokens, counts) to the mean loss of the windows that count."""
    seq_len = spec.evaluation.seq_len
    axes = (hax.Axis("batch", windows), hax.Axis("position", seq_len))

    def program(leaves: list[Any], tokens: Any, counts: Any) -> Any:
        weights = _next_token_weights(windows, seq_len) * counts[:, None]
        example = LmExample(tokens=hax.named(tokens, axes), loss_weight=hax.named(weights, axes))
        with hax.axis_mapping(trainer.compute_axis_mapping):
            model = eqx.nn.inference_mode(trainer.mp.cast_to_compute(rebuild(leaves)))
            return model.compute_next_token_loss(hax.shard(example), key=None, logsumexp_weight=0.0).scalar()

    return program


def compile_routing(trainer: Trainer, model: Any, spec: RunSpec) -> Callable[[Any, Any], tuple[jax.Array, jax.Array]]:
    """Compile the function from a mixture and tokens (batch, position) to `GrugMoeModel.routing`.

    It is a program of its own, so that the step's program does not change with what is measured. If a batch is computed in
    parts, the numbers are those of the first part.
    """
    _, rebuild = flattened(model)
    at_once = trainer.config.per_device_parallelism * trainer.config.data_axis_size

    @partial(jax.jit, out_shardings=NamedSharding(trainer.device_mesh, PartitionSpec()), **_for_one_call())
    def program(leaves: list[Any], tokens: Any) -> Any:
        with hax.axis_mapping(trainer.compute_axis_mapping):
            named = hax.shard(hax.named(tokens[:at_once], ("batch", "position")))
            return trainer.mp.cast_to_compute(rebuild(leaves)).routing(named)

    shared = _shared("routing", program, spec, trainer)
    return lambda model, tokens: shared(flattened(model)[0], tokens)


def flattened(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the arrays of a tree, or their descriptions, as a list, and the inverse function."""
    arrays, static = eqx.partition(tree, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, structure = jax.tree.flatten(arrays)
    return leaves, lambda leaves: eqx.combine(jax.tree.unflatten(structure, leaves), static)


def _next_token_weights(windows: int, seq_len: int) -> Any:
    """Return 1 for each token but the last of each window, of shape (batch, position).

    On accelerators they are computed in the program. On a CPU they are a constant in it, as when the first runs were recorded:
    XLA then joins other operations, and losses keep their last bits.
    """
    row = np.arange(seq_len) < seq_len - 1  # (position,)
    if jax.default_backend() == "cpu":
        return np.tile(row.astype(np.float32), (windows, 1))
    return jnp.broadcast_to(jnp.asarray(row, jnp.float32), (windows, seq_len))
