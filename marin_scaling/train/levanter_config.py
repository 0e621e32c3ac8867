"""RunSpec to Levanter's configuration of model and trainer; `optimizer` has the optimizer, `moe` the mixture of experts.

Holds for both pinned versions (0.2.20 on Python 3.11, 0.2.227 on 3.12); a contract test runs on each. Imports come from
Levanter's defining submodules, because package-level names move between versions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import jax
import jmp
from jax._src import compilation_cache
from levanter.callbacks.watch import WatchConfig
from levanter.checkpoint import CheckpointerConfig
from levanter.distributed import DistributedConfig
from levanter.models.llama import LlamaConfig
from levanter.models.qwen import Qwen3Config
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import TrainerConfig

from marin_scaling.errors import TrainingFailed
from marin_scaling.run.paths import checkpoints_root
from marin_scaling.run.spec import MoeModelSpec, RunSpec
from marin_scaling.train.compiled_programs import sealed_programs
from marin_scaling.train.moe import GrugMoeConfig

CHECKPOINT_SECONDS = 20.0
"""How often a run saves its state: what a kill can cost at most."""
SAVING_SHARE = 0.05
"""A large state is saved more rarely, so that saving takes no larger share of the time."""


def model_config(spec: RunSpec) -> LlamaConfig:
    """Levanter's Qwen3 of this shape, or the mixture."""
    model = spec.model
    if not isinstance(model, MoeModelSpec):
        return Qwen3Config(**model_settings(spec))
    return GrugMoeConfig(
        **model_settings(spec),
        num_experts=model.num_experts,
        experts_per_token=model.experts_per_token,
        shared_intermediate_dim=model.shared_intermediate_dim,
        norm_gate_rank=model.norm_gate_rank,
        router_z_loss_weight=spec.optimizer.router_z_loss_weight,
    )


def model_settings(spec: RunSpec) -> dict[str, Any]:
    """What every model has, by Levanter's names; layers unrolled, fastest for tiny models on a CPU."""
    model = spec.model
    return {
        "max_seq_len": model.seq_len,
        "hidden_dim": model.hidden_dim,
        "intermediate_dim": model.intermediate_dim,
        "num_layers": model.num_layers,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "gradient_checkpointing": False,  # see `step`
        "scan_layers": False,
        "attn_backend": _attention_backend(spec),
        "tie_word_embeddings": False,
    }


_POLICIES = {"float32": "f32", "bfloat16": "p=f32,c=bfloat16,o=bfloat16"}


def precision_policy(spec: RunSpec) -> str:
    """As `jmp` reads it: of parameters, computation and output."""
    return _POLICIES[spec.compute.precision]


def _attention_backend(spec: RunSpec) -> str:
    """Levanter's own choice for the device; but on a GPU that only serves where NVIDIA's Transformer Engine is installed."""
    if spec.compute.attention == "plain":
        return "vanilla"
    lacks_kernel = jax.default_backend() == "gpu" and importlib.util.find_spec("transformer_engine") is None
    return "jax_flash" if lacks_kernel else "default"


def sequences_at_once(spec: RunSpec, *, devices: int) -> int:
    """On each device: the most that divide its part of the batch evenly and are not more than are allowed."""
    if spec.batch_size % devices:
        raise TrainingFailed(
            f"its batch of {spec.batch_size} sequences cannot be spread evenly over {devices} devices.",
            why="Each device computes equally many.",
            fix="Give a run fewer devices: hardware.per_run.",
        )
    part = spec.batch_size // devices
    allowed = min(part, spec.compute.sequences_at_a_time or part)
    return next(count for count in range(allowed, 0, -1) if part % count == 0)


def trainer_config(spec: RunSpec, *, work_dir: Path) -> TrainerConfig:
    """Levanter's trainer for one run on this machine, with checkpoints under `work_dir`; the tracker is set by `train`."""
    return TrainerConfig(
        id=spec.directory_name,
        seed=spec.seed,
        mp=jmp.get_policy(precision_policy(spec)),
        tracker=NoopConfig(),
        distributed=DistributedConfig(initialize_jax_distributed=False),  # whoever starts us says whether there are others
        watch=WatchConfig(watch_targets=[]),
        log_dir=work_dir / "levanter",
        log_jaxprs=False,
        log_xla_hlo=False,
        crash_on_nan=False,  # a diverged run is a result: `train` records it
        crash_on_inf=False,
        train_batch_size=spec.batch_size,
        per_device_parallelism=sequences_at_once(spec, devices=jax.device_count()),
        num_train_steps=spec.train_steps,
        require_accelerator=False,
        checkpointer=CheckpointerConfig(
            base_path=str(checkpoints_root(work_dir)), save_interval=timedelta(seconds=1), keep=None
        ),
    )


def use_compilation_cache(folder: Path, *, on_note: Callable[[str], None] = print) -> None:
    """Share compiled programs between processes and restarts; each is checked before it is loaded (`compiled_programs`).

    Tiny programs are worth keeping, too. A copy of the folder elsewhere serves this user as well: XLA's own caches would put
    its path into every program's key.
    """
    programs = sealed_programs(folder, on_note=on_note)
    if programs is None or not hasattr(compilation_cache, "get_file_cache"):  # never JAX's own cache, which checks nothing
        jax.config.update("jax_compilation_cache_dir", None)
        return
    compilation_cache.get_file_cache = lambda path: (programs, path)
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_enable_xla_caches", "")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
