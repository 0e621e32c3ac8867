"""`python -m marin_scaling.train.described_slice KIND:TOPOLOGY MESH RESULT.json`: compile a run for an absent TPU slice.

The run's spec is read from standard input. The compiler is `libtpu`, which describes the slice; nothing runs on a device. The
process changes functions of JAX, and must do nothing else.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import haliax as hax
import haliax.tree_util
import jax
import jax.numpy as jnp
import numpy as np
from haliax.partitioning import pspec_for_axis
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec
from levanter.trainer import Trainer, initialize
from levanter.trainer_state import TrainerState

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.files import replace_file
from marin_scaling.ladder.config import Mesh
from marin_scaling.run.spec import RunSpec, read_spec
from marin_scaling.train.compile_for import DescribedSlice, described_slice
from marin_scaling.train.levanter_config import built_model, trainer_config
from marin_scaling.train.optimizer import initial_optimizer
from marin_scaling.train.step import (
    evaluation_function,
    flattened,
    language_model_loss,
    step_function,
)
from marin_scaling.train.train import sharding_of_batches, windows_at_once

_CHIP_CONFIGS = {"v4": "megacore"}
"""Chips whose two cores are one device only if this is asked for."""
_RATES = 3  # of a step, as in `rates_of_steps`
_USED_AND_LIMIT = re.compile(
    r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm|\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)", re.I
)
"""Two forms in which XLA refuses a program that exceeds the memory of a device."""
_POWERS = {unit: 1024.0**power for power, unit in enumerate(("", "K", "M", "G", "T"))}


def main() -> None:
    """Compile the programs of one run, and write what XLA reports."""
    name, mesh, result = sys.argv[1:]
    wanted = described_slice(name, mesh=Mesh.model_validate_json(mesh))
    spec = read_spec(sys.stdin.buffer.read(), name="standard input")
    name_devices(described_devices(wanted))
    with tempfile.TemporaryDirectory() as folder:
        replace_file(Path(result), dump_canonical(compiled_programs(spec, mesh=wanted.mesh, work_dir=Path(folder))))


def described_devices(wanted: DescribedSlice) -> list[Any]:
    """Return the devices of a slice, on which programs can be compiled but not run."""
    more: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if wanted.chips == 1 else {}
    if (config := _CHIP_CONFIGS.get(wanted.chip.kind)) is not None:
        more["chip_config_name"] = config
    return list(topologies.get_topology_desc(platform="tpu", topology_name=wanted.name, **more).devices)


def name_devices(devices: list[Any]) -> None:
    """Let JAX name these devices as its own: Levanter and this package choose mesh and kernels by them."""
    real = jax.devices

    def named(backend: str | None = None, **_: Any) -> list[Any]:
        return devices if backend in (None, "tpu") else list(real(backend))

    jax.devices = jax.local_devices = named
    jax.device_count = jax.local_device_count = lambda backend=None: len(named(backend))
    jax.default_backend = lambda: "tpu"


def compiled_programs(spec: RunSpec, *, mesh: Mesh, work_dir: Path) -> dict[str, Any]:
    """Return what XLA reports of the training step and the evaluation, or the first one's excess of memory."""
    config = trainer_config(spec, work_dir=work_dir, mesh=mesh)
    initialize(config)
    optimizer = initial_optimizer(spec)
    loss = language_model_loss(spec.optimizer.z_loss_weight)
    trainer, found = Trainer(config, optimizer, loss, add_default_hooks=False), {}
    state = described_state(trainer, spec, optimizer)
    for name, lower in (("step", _lowered_step), ("evaluation", _lowered_evaluation)):
        began = time.perf_counter()
        with _inside(trainer):
            lowered = lower(trainer, state, spec)
        found[name] = _report(lowered)
        found[name]["seconds"] = round(time.perf_counter() - began, 1)
        if "used_bytes" in found[name]:
            break
    return found


def described_state(trainer: Trainer, spec: RunSpec, optimizer: Any) -> TrainerState:
    """Return the training state with descriptions instead of arrays, spread over the devices as in training."""

    def begin(key: Any) -> TrainerState:
        return TrainerState.init(optimizer, built_model(spec, key=key), key=key, is_trainable=True, mp=trainer.mp)

    key = jax.random.PRNGKey(spec.seed)
    with _inside(trainer):
        state = eqx.filter_eval_shape(begin, key)
    return haliax.tree_util.tree_map(partial(_placed, trainer), state)


def _placed(trainer: Trainer, node: Any) -> Any:
    """Return the description of an array with its place: parameters and moments by their axes, all others on each device."""
    if isinstance(node, hax.NamedArray):
        spread = NamedSharding(trainer.device_mesh, pspec_for_axis(node.axes, trainer.parameter_axis_mapping))
        return hax.NamedArray(_at(node.array, spread), node.axes)
    if isinstance(node, jax.ShapeDtypeStruct):
        return _at(node, NamedSharding(trainer.device_mesh, PartitionSpec()))
    return node


def _at(array: Any, place: NamedSharding) -> Any:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)


@contextmanager
def _inside(trainer: Trainer) -> Iterator[None]:
    """Enter the mesh for tracing: its abstract form, since constants are computed on this machine."""
    mesh = trainer.device_mesh
    with mesh, jax.sharding.use_abstract_mesh(mesh.abstract_mesh), hax.axis_mapping(trainer.parameter_axis_mapping):
        yield


def _lowered_step(trainer: Trainer, state: TrainerState, spec: RunSpec) -> Any:
    leaves, rebuild = flattened(state)
    tokens = jax.ShapeDtypeStruct((spec.batch_size, spec.model.seq_len), jnp.int32, sharding=sharding_of_batches(spec, trainer))
    program = jax.jit(step_function(trainer, spec, rebuild), donate_argnums=(0,))
    return program.lower(leaves, tokens, jax.ShapeDtypeStruct((_RATES,), jnp.float32))


def _lowered_evaluation(trainer: Trainer, state: TrainerState, spec: RunSpec) -> Any:
    leaves, rebuild = flattened(state.model)
    windows = windows_at_once(spec, batch_parts=trainer.config.data_axis_size)
    program = jax.jit(evaluation_function(trainer, spec, rebuild, windows=windows))
    tokens = jax.ShapeDtypeStruct((windows, spec.evaluation.seq_len), jnp.int32)
    return program.lower(leaves, tokens, jax.ShapeDtypeStruct((windows,), np.bool_))


def _report(lowered: Any) -> dict[str, float]:
    """Compile a program; return its bytes on each device, FLOPs and bytes of memory traffic, or used and available memory."""
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        found = _USED_AND_LIMIT.search(str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) or found is None:
            raise
        used, used_unit, limit, limit_unit = filter(lambda group: group is not None, found.groups())
        return {"used_bytes": float(used) * _POWERS[used_unit], "limit_bytes": float(limit) * _POWERS[limit_unit]}
    memory, cost = program.memory_analysis(), program.cost_analysis() or {}
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        **{name: cost[key] for name, key in (("flops", "flops"), ("moved_bytes", "bytes accessed")) if cost.get(key, -1) > 0},
    }


if __name__ == "__main__":
    main()
