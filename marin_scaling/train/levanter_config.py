"""Levanter's configuration of model and trainer from a RunSpec, for both pinned versions (0.2.20, Python 3.11; 0.2.227, 3.12).

Imports come from Levanter's defining submodules, because package-level names move between versions. A contract test runs on
each version.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import equinox as eqx
import haliax as hax
import jax
import jmp
from haliax.nn.scan import BlockSeq
from jax._src import compilation_cache
from levanter.callbacks.watch import WatchConfig
from levanter.checkpoint import CheckpointerConfig
from levanter.distributed import DistributedConfig
from levanter.layers.attention import Attention, AttentionMask
from levanter.models.llama import LlamaConfig
from levanter.models.qwen import Qwen3Config
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import TrainerConfig
from levanter.utils.mesh import DEFAULT_DP_AXES, MeshConfig

from marin_scaling.errors import TrainingFailed
from marin_scaling.ladder.config import ONE_AXIS, Compute, Mesh
from marin_scaling.printable import joined
from marin_scaling.run.spec import ModelSpec, MoeModelSpec, OwnModelSpec, RunSpec
from marin_scaling.run.store import checkpoints_root
from marin_scaling.train.compiled_programs import sealed_programs
from marin_scaling.train.levanter_types import model_of_type
from marin_scaling.train.moe import GrugMoeConfig
from marin_scaling.train.optimizer import STACK_AXIS

CHECKPOINT_SECONDS = 20.0
"""Seconds between checkpoints, the most training that a kill costs."""
SAVING_SHARE = 0.05
"""Largest share of time spent on saving; large checkpoints are written more rarely."""


def model_config(spec: RunSpec) -> LlamaConfig:
    """Return Levanter's Qwen3 configuration of this shape, that of the mixture, or that of a class by its name."""
    model = spec.model
    if isinstance(model, OwnModelSpec):
        return model_of_type(spec, attn_backend=_attention_backend(spec.compute))
    if not isinstance(model, MoeModelSpec):
        return Qwen3Config(**model_settings(spec))
    return mixture_config(model, **model_settings(spec), router_z_loss_weight=spec.recipe_optimizer.router_z_loss_weight)


def mixture_config(model: MoeModelSpec, **settings: Any) -> GrugMoeConfig:
    """Return the configuration of a mixture with the `settings` of a run, by default those for a forward pass."""
    forward = {"gradient_checkpointing": False, "scan_layers": False, "attn_backend": _attention_backend(Compute())}
    own = {name: getattr(model, name) for name in MIXTURE_SIZES}
    return GrugMoeConfig(**{**own, **_sizes(model), **forward, **settings})


MIXTURE_SIZES = ("num_experts", "experts_per_token", "shared_intermediate_dim", "norm_gate_rank")
"""Sizes of a mixture of experts that a dense model lacks; Levanter's configuration has the same names."""


def model_settings(spec: RunSpec) -> dict[str, Any]:
    """Return settings common to all models, by Levanter's names."""
    is_scanned = scans_layers(spec)
    return {
        **_sizes(spec.recipe_model),
        "gradient_checkpointing": is_scanned and spec.compute.recompute,  # unrolled layers are recomputed by `RecomputedLayers`
        "scan_layers": is_scanned,
        "attn_backend": _attention_backend(spec.compute),
    }


def _sizes(model: ModelSpec | MoeModelSpec) -> dict[str, Any]:
    return {
        "max_seq_len": model.seq_len,
        "hidden_dim": model.hidden_dim,
        "intermediate_dim": model.intermediate_dim,
        "num_layers": model.num_layers,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "tie_word_embeddings": False,
    }


MOST_UNROLLED_LAYERS, MOST_UNROLLED_ON_ACCELERATOR = 16, 4
"""Layers up to which each is compiled by itself, on a CPU and elsewhere: above the 2 to 4 of tiny models; not tuned."""


def scans_layers(spec: RunSpec) -> bool:
    """Return True if one layer is compiled and repeated in a loop, instead of each layer separately.

    Unrolled layers are fastest for tiny models on a CPU, but the time to compile them grows with their number. Losses of both
    agree to rounding. Levanter's optimizers cannot keep the norm of slices in scanned layers, and its MuonH takes one stack of
    matrices, not layers of experts.
    """
    if isinstance(spec.model, OwnModelSpec):
        return False  # its own settings say so, and its layers are not turned into the other form
    is_possible = spec.recipe_optimizer.constant_norm == "matrix" and not (
        spec.optimizer.name == "muonH" and isinstance(spec.model, MoeModelSpec)
    )
    most = MOST_UNROLLED_LAYERS if jax.default_backend() == "cpu" else MOST_UNROLLED_ON_ACCELERATOR
    return is_possible and spec.model.num_layers > most


def built_model(spec: RunSpec, *, key: Any) -> Any:
    """Return the model of a spec with fresh parameters."""
    model = model_config(spec).build(hax.Axis("vocab", spec.model.vocab_size), key=key)
    if isinstance(spec.model, OwnModelSpec):
        return model
    if spec.compute.recompute and not scans_layers(spec):
        model = _recomputing(model)
    return with_fused_attention(model) if _fuses_attention(spec) else model


class RecomputedLayers(BlockSeq):  # type: ignore[misc]  # Haliax is untyped here
    """A model's unrolled layers, of which only the inputs are stored."""

    def fold(self, init: Any, *arguments: Any, **more: Any) -> Any:
        """Return the output of the last layer for the input `init`."""
        again = [eqx.filter_checkpoint(layer) for layer in self.blocks]
        return BlockSeq(again, self.Block, self.gradient_checkpointing).fold(init, *arguments, **more)


def _recomputing(model: Any) -> Any:
    """Return `model` with layers that are recomputed, and with unchanged arrays and names."""
    layers = model.transformer.layers
    again = RecomputedLayers(layers.blocks, layers.Block, layers.gradient_checkpointing)
    return eqx.tree_at(lambda whole: whole.transformer.layers, model, again)


class FusedAttention(Attention):  # type: ignore[misc]  # Levanter is untyped here
    """Levanter's causal attention, computed by JAX's own function, on a GPU with cuDNN's kernel."""

    def __call__(self, x: Any, mask: Any, *, key: Any = None, pos_ids: Any = None) -> Any:
        """Return the heads' joined output for `x`; another mask than one of all earlier positions is left to Levanter."""
        if jax.tree.structure(mask) != jax.tree.structure(AttentionMask.causal()):
            return super().__call__(x, mask, key=key, pos_ids=pos_ids)
        query, keys, values = self._compute_qkv(x, key=None, pos_ids=pos_ids)
        query = query.rearrange((..., "position", "kv_head", "q_heads_per_group", "head_size"))
        query = query.flatten_axes(("kv_head", "q_heads_per_group"), "heads")
        keys, values = (each.rearrange((..., "position", "kv_head", "head_size")) for each in (keys, values))
        attended = jax.nn.dot_product_attention(
            *(each.array.astype(x.dtype) for each in (query, keys, values)),
            scale=self.config.scaling_factor,
            is_causal=True,
            implementation="cudnn" if jax.default_backend() == "gpu" else "xla",
        )
        return self.o_proj(hax.named(attended, query.axes), key=key)


def with_fused_attention(model: Any) -> Any:
    """Return `model` with `FusedAttention`, and with unchanged arrays and names."""

    def fused(node: Any) -> Any:
        if type(node) is not Attention:
            return node
        return FusedAttention(**{field.name: getattr(node, field.name) for field in dataclasses.fields(node)})

    return jax.tree.map(fused, model, is_leaf=lambda node: isinstance(node, Attention))


def _fuses_attention(spec: RunSpec) -> bool:
    """Return True on a GPU for which Levanter has no kernel, if cuDNN has one for these heads."""
    head_size = spec.recipe_model.hidden_dim // spec.recipe_model.num_heads
    is_possible = spec.compute.precision == "bfloat16" and head_size <= 128 and head_size % 8 == 0
    return is_possible and _attention_backend(spec.compute) == _IN_JAX


_POLICIES = {"float32": "f32", "bfloat16": "p=f32,c=bfloat16,o=bfloat16"}


def precision_policy(spec: RunSpec) -> str:
    """Return the precision of parameters, computation and output in `jmp`'s notation."""
    return _POLICIES[spec.compute.precision]


def _attention_backend(compute: Compute) -> str:
    """Return Levanter's own choice for the device, except on a GPU without NVIDIA's Transformer Engine."""
    if compute.attention == "plain":
        return "vanilla"
    lacks_kernel = jax.default_backend() == "gpu" and importlib.util.find_spec("transformer_engine") is None
    return _IN_JAX if lacks_kernel else "default"


_IN_JAX = "jax_flash"


def mesh_config(mesh: Mesh) -> MeshConfig:
    """Return Levanter's mesh with these axes; without axes, Levanter's default, which spreads all devices over `data`.

    Levanter itself maps heads and MLP widths to `model`, and the width of parameters to `data`. Added are key-value heads,
    joined heads in the state of optimizers (`In`, `Out`), experts, and the vocabulary of embedding and output head.
    """
    if mesh == ONE_AXIS:
        return MeshConfig()
    return MeshConfig(
        axes={"data": mesh.data or -1, "model": mesh.model, "expert": mesh.expert},
        shared_mapping={"kv_head": "model", "In": "model", "Out": "model", "experts": "expert", STACK_AXIS: "expert"},
        compute_mapping={"batch": [*DEFAULT_DP_AXES, "expert"]},
        param_mapping={"embed": "data", "vocab": ["model", "expert"]},
    )


def require_devices(mesh: Mesh, *, devices: int) -> None:
    """Raise `TrainingFailed` if the axes of a mesh are not those of this number of devices."""
    if mesh.over(devices).devices != devices:
        raise TrainingFailed(
            f"the mesh {mesh} has {mesh.over(devices).devices} parts, and there are {devices} devices.",
            fix="Change hardware.per_run.mesh in the ladder file, or the number of devices.",
        )


def sequences_at_once(spec: RunSpec, *, batch_parts: int) -> int:
    """Return the sequences that one device processes at once: the most that divide its part of the batch within the limit."""
    sizes = sorted({stage.value for stage in spec.batch_schedule} or {spec.batch_size})
    common = math.gcd(*sizes)
    if common % batch_parts:
        raise TrainingFailed(
            f"a batch of {joined(map(str, sizes), separator=' or ')} sequences cannot be spread evenly over "
            f"{batch_parts} devices.",
            fix="Give a run fewer devices: hardware.per_run.",
        )
    part = common // batch_parts
    allowed = min(part, spec.compute.sequences_at_a_time or part)
    return next(count for count in range(allowed, 0, -1) if part % count == 0)


def trainer_config(spec: RunSpec, *, work_dir: Path, mesh: Mesh = ONE_AXIS) -> TrainerConfig:
    """Return Levanter's trainer for one run on this machine, with checkpoints under `work_dir` and without a tracker."""
    devices = jax.device_count()
    require_devices(mesh, devices=devices)
    return TrainerConfig(
        id=spec.directory_name,
        seed=spec.seed,
        mp=jmp.get_policy(precision_policy(spec)),
        tracker=NoopConfig(),
        distributed=DistributedConfig(initialize_jax_distributed=False),  # `ProcessGroup.join` initializes it
        watch=WatchConfig(watch_targets=[]),
        log_dir=work_dir / "levanter",
        log_jaxprs=False,
        log_xla_hlo=False,
        crash_on_nan=False,  # `train` records a diverged run as a result
        crash_on_inf=False,
        train_batch_size=spec.batch_size,
        per_device_parallelism=sequences_at_once(spec, batch_parts=mesh.over(devices).batch_parts),
        mesh=mesh_config(mesh),
        num_train_steps=spec.train_steps,
        require_accelerator=False,
        checkpointer=CheckpointerConfig(
            base_path=str(checkpoints_root(work_dir)), save_interval=timedelta(seconds=1), keep=None
        ),
    )


def use_compilation_cache(folder: Path, *, on_note: Callable[[str], None] = print) -> None:
    """Share compiled programs between processes and restarts; each is checked before it is loaded (`compiled_programs`).

    Tiny programs are cached too. XLA's own caches are off: they would put the folder's path into every program's key, so that
    a copy of the folder would be useless.
    """
    programs = sealed_programs(folder, on_note=on_note)
    if programs is None or not hasattr(compilation_cache, "get_file_cache"):  # JAX's own cache would check nothing
        jax.config.update("jax_compilation_cache_dir", None)
        return
    compilation_cache.get_file_cache = lambda path: (programs, path)
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_enable_xla_caches", "")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
