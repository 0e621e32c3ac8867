"""Optimizer of a run: Levanter's AdamH or MuonH with learning rates as inputs, and additions for mixtures of experts.

In a mixture, routers and the gates of heads use Adam as in Marin's experiments/grug/moe/optimizer.py (a gate begins at 0, whose
norm AdamH would keep). A router's bias is set to the value found in the step instead of being optimized (`moe`).

Both optimizers treat the first axis of an array with more than two as a stack of matrices, which is right for scanned layers.
In unrolled layers it is the axis of heads, so optimizers see matrices, unless a spec asks for slices. Scanned experts have two
such axes, which are shown as one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import haliax as hax
import haliax.nn as hnn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from levanter.optim.adamh import AdamHConfig
from levanter.optim.config import OptimizerConfig
from levanter.optim.muonh import MuonHConfig
from numpy.typing import NDArray

from marin_scaling.run.spec import MoeModelSpec, OptimizerSpec, OwnOptimizerSpec, RunSpec
from marin_scaling.train.levanter_types import optimizer_of_type
from marin_scaling.train.moe import head_gates, router_biases, routers

_STEPS_AT_ONCE = 4096
_LEVANTERS: dict[str, type[OptimizerConfig]] = {"adamH": AdamHConfig, "muonH": MuonHConfig}


class _GivenRates:
    """Learning rates given at each step, instead of computed from the number of the step.

    They are thus inputs of the compiled step instead of constants, and all runs of one shape share one program.
    """

    def lr_scheduler(self, _num_train_steps: int, override_lr: Any = None) -> Callable[[Any], Any]:
        """Return a constant schedule: the learning rate of the compiled step."""
        rate = self.learning_rate if override_lr is None else override_lr  # type: ignore[attr-defined]  # of the other base
        return lambda _step: rate


class SparseLabels:
    """Adam for routers and for the gates of heads."""

    def create_mask(self, params: Any) -> Any:
        """Return Levanter's choice for each parameter except these."""
        labels = super().create_mask(params)  # type: ignore[misc]  # of the other base
        return eqx.tree_at(lambda model: head_gates(model) + routers(model), labels, replace_fn=lambda _: "adam")


def levanters_schedule(optimizer: OptimizerSpec) -> OptimizerConfig:
    """Return Levanter's configuration with its own schedule: warm-up, stable, linear decay."""
    return _LEVANTERS[optimizer.name](**schedule_settings(optimizer))


def schedule_settings(optimizer: OptimizerSpec) -> dict[str, Any]:
    """Return learning rates, schedule and constants by Levanter's names."""
    return {
        "learning_rate": optimizer.learning_rate,
        "adam_lr": optimizer.adam_learning_rate,
        **_constants(optimizer),
        "epsilon": optimizer.epsilon,
        "warmup": optimizer.warmup_fraction,
        "decay": optimizer.decay_fraction,
        "min_lr_ratio": optimizer.min_learning_rate_ratio,
        "lr_schedule": "linear",
    }


def scheduled_rates(optimizer: OptimizerSpec, *, train_steps: int) -> NDArray[np.float32]:
    """Evaluate Levanter's schedule: matrix and Adam learning rate of every step, shape (2, steps)."""
    config = levanters_schedule(optimizer)
    schedules = (config.lr_scheduler(train_steps), config.lr_scheduler(train_steps, override_lr=config.adam_lr))
    return np.stack([_at_every_step(jax.vmap(schedule), train_steps) for schedule in schedules])


def _at_every_step(schedule: Callable[[Any], Any], train_steps: int) -> NDArray[np.float32]:
    """Evaluate a schedule in pieces of one length, since JAX takes 0.3 s to compile each length."""
    pieces = [schedule(first + jnp.arange(_STEPS_AT_ONCE)) for first in range(0, train_steps, _STEPS_AT_ONCE)]
    return np.concatenate(pieces)[:train_steps].astype(np.float32)


def optimizer_for_one_step(spec: RunSpec, *, learning_rate: Any, adam_learning_rate: Any, epsilon: Any) -> Any:
    """Return the optimizer of a step with these learning rates and epsilon (numbers or traced scalars).

    An optimizer by name has its own schedule, and ignores these numbers.
    """
    if isinstance(spec.optimizer, OwnOptimizerSpec):
        return optimizer_of_type(spec)
    return _at_rates((learning_rate, adam_learning_rate, epsilon), spec.optimizer, is_sparse=is_sparse(spec))


def with_gradient_norm(optimizer: Any, *, is_sparse: bool, see: Callable[[Any], object]) -> Any:
    """Return `optimizer`, whose update calls `see` with the norm of all gradients before clipping.

    The clipping computes the same sums of squares, which XLA shares. The gradients of routers' biases are excluded, since they
    are distances to new values.
    """

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        see(optax.global_norm(_without_router_biases(gradients) if is_sparse else gradients))
        updates: tuple[Any, Any] = optimizer.update(gradients, state, params, **more)
        return updates

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def initial_optimizer(spec: RunSpec) -> Any:
    """Return the optimizer with learning rates of 1, for the initial state, which does not depend on them."""
    if isinstance(spec.optimizer, OwnOptimizerSpec):
        return optimizer_of_type(spec)
    return _at_rates_of_1(spec.optimizer.without_rates, is_sparse=is_sparse(spec))


@functools.cache  # runs of one shape share programs by the identity of this object
def _at_rates_of_1(constants: OptimizerSpec, *, is_sparse: bool) -> Any:
    return _at_rates((1.0, 1.0, 1.0), constants, is_sparse=is_sparse)


def _at_rates(rates: tuple[Any, Any, Any], constants: OptimizerSpec, *, is_sparse: bool) -> Any:
    learning_rate, adam_learning_rate, epsilon = rates
    bases = (_GivenRates, *((SparseLabels,) if is_sparse else ()), _LEVANTERS[constants.name])
    config = type("OneStep", bases, {})(
        **_constants(constants), learning_rate=learning_rate, adam_lr=adam_learning_rate, epsilon=epsilon
    )
    return built_for_layers(config, 1, constant_norm=constants.constant_norm, is_sparse=is_sparse)


def built_for_layers(config: OptimizerConfig, train_steps: int, *, constant_norm: str, is_sparse: bool) -> Any:
    """Build Levanter's AdamH or MuonH so that it sees matrices, and routers' biases are set instead of optimized."""
    optimizer = (AdamHConfig if isinstance(config, AdamHConfig) else MuonHConfig).build(config, train_steps)
    if constant_norm == "matrix":
        optimizer = _shown_matrices(optimizer, joins_stacks=isinstance(config, AdamHConfig))
    return _setting_router_biases(optimizer) if is_sparse else optimizer


def is_sparse(spec: RunSpec) -> bool:
    """Return True for a mixture of experts."""
    return isinstance(spec.model, MoeModelSpec)


def _constants(optimizer: OptimizerSpec) -> dict[str, float]:
    return {
        "beta1": optimizer.beta1,
        "beta2": optimizer.beta2,
        "max_grad_norm": optimizer.max_grad_norm,
        "weight_decay": 0.0,
    }


def _shown_matrices(optimizer: Any, *, joins_stacks: bool) -> Any:
    """Return `optimizer` acting on each linear layer's weight as a matrix, on those of experts and layers as a stack of them.

    MuonH knows where it is within stacks by the names of their axes; for it, they are not joined.
    """
    shown = functools.partial(_as_matrices, joins_stacks=joins_stacks)

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(shown(gradients), state, shown(params), **more)
        return jax.tree.map(_in_shape_of, params, updates, is_leaf=_is_linear), state

    return optax.GradientTransformationExtraArgs(lambda params: optimizer.init(shown(params)), update)


def _is_linear(node: Any) -> bool:
    return isinstance(node, hnn.Linear)


def _as_matrices(tree: Any, *, joins_stacks: bool) -> Any:
    def shown(node: Any) -> Any:
        return _as_matrix(node, joins_stacks=joins_stacks) if _is_linear(node) else node

    return jax.tree.map(shown, tree, is_leaf=_is_linear)


LAYER_AXIS = "layer"
"""Levanter's name of the axis of scanned layers."""
STACK_AXIS = "stack"
"""Name, in an optimizer's state, of the axis over experts, or over layers and their experts."""


def _as_matrix(layer: hnn.Linear, *, joins_stacks: bool) -> hnn.Linear:
    """Return a layer with one input and one output axis; axes of experts, and of layers and experts, become one.

    A single axis keeps its name, by which it is sharded. (Levanter's `flatten_linear_layers` renames every axis, after which
    each device would hold the whole state.)
    """
    weight, axes = layer.weight, {"In": layer.In, "Out": layer.Out}
    for name in [name for name in axes if not isinstance(axes[name], hax.Axis)]:
        weight = weight.flatten_axes(axes[name], name)
        axes[name] = weight.resolve_axis(name)
    if joins_stacks and (stack := _stack_axes(layer)):
        weight = weight.flatten_axes(stack, STACK_AXIS)
    return dataclasses.replace(layer, weight=weight, **axes)


def _stack_axes(layer: hnn.Linear) -> tuple[hax.Axis, ...]:
    """Return the axes of a weight over experts, or over layers and experts; none for layers alone."""
    own = {axis.name for axis in (*hax.axis.ensure_tuple(layer.In), *hax.axis.ensure_tuple(layer.Out))}
    found = tuple(axis for axis in layer.weight.axes if axis.name not in own)
    return found if any(axis.name != LAYER_AXIS for axis in found) else ()


def _in_shape_of(layer: Any, changed: Any) -> Any:
    """Invert `_as_matrix`."""
    if not _is_linear(layer):
        return changed
    weight, axes = changed.weight, {"In": layer.In, "Out": layer.Out}
    for name in [name for name in axes if not isinstance(axes[name], hax.Axis)]:
        weight = weight.unflatten_axis(name, axes[name])
    if STACK_AXIS in {axis.name for axis in weight.axes}:
        weight = weight.unflatten_axis(STACK_AXIS, _stack_axes(layer))
    return dataclasses.replace(changed, weight=weight.rearrange(layer.weight.axes), **axes)


def _setting_router_biases(optimizer: Any) -> Any:
    """Return `optimizer` with the whole gradient subtracted from a router's bias; it is the distance to the new bias."""

    def update(gradients: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(_without_router_biases(gradients), state, params, **more)
        steps = [-1.0 * bias for bias in router_biases(gradients)]
        return eqx.tree_at(router_biases, updates, replace=steps), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _without_router_biases(gradients: Any) -> Any:
    return eqx.tree_at(router_biases, gradients, replace_fn=lambda bias: 0 * bias)
