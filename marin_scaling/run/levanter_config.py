"""RunSpec to Levanter's configuration: the only translation, and with `train` the only place that knows Levanter's interface.

Holds for both pinned versions (0.2.20 on Python 3.11, 0.2.227 on 3.12); a contract test runs on each. Imports come from
Levanter's defining submodules, because package-level names move between versions.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jmp
import numpy as np
from levanter.callbacks.watch import WatchConfig
from levanter.checkpoint import CheckpointerConfig
from levanter.models.qwen import Qwen3Config
from levanter.optim.adamh import AdamHConfig
from levanter.tracker.tracker import NoopConfig
from levanter.trainer import TrainerConfig
from numpy.typing import NDArray

from marin_scaling.run.run_spec import ModelSpec, OptimizerSpec, RunSpec

CHECKPOINT_SECONDS = 20.0
"""How often a run saves its state: what a kill can cost at most."""


def model_config(model: ModelSpec) -> Qwen3Config:
    """Levanter's Qwen3 of this shape; layers unrolled and plain attention, which are fastest for tiny models on a CPU."""
    return Qwen3Config(
        max_seq_len=model.seq_len,
        hidden_dim=model.hidden_dim,
        intermediate_dim=model.intermediate_dim,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        gradient_checkpointing=False,
        scan_layers=False,
        attn_backend="vanilla",
        tie_word_embeddings=False,
    )


def optimizer_config(optimizer: OptimizerSpec) -> AdamHConfig:
    """Levanter's AdamH: matrices keep their norm, embeddings and norms get Adam; warm-up, stable, linear decay."""
    return AdamHConfig(
        learning_rate=optimizer.learning_rate,
        adam_lr=optimizer.adam_learning_rate,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        epsilon=optimizer.epsilon,
        max_grad_norm=optimizer.max_grad_norm,
        warmup=optimizer.warmup_fraction,
        decay=optimizer.decay_fraction,
        min_lr_ratio=optimizer.min_learning_rate_ratio,
        lr_schedule="linear",
        weight_decay=0.0,
    )


class ScheduleFromOutside(AdamHConfig):  # type: ignore[misc]  # Levanter is untyped here
    """AdamH whose rates are given at each step instead of being computed from the step's number.

    Then they are inputs of the compiled step and not constants in it, so that all runs of one shape share one program.
    """

    def lr_scheduler(self, _num_train_steps: int, override_lr: Any = None) -> Callable[[Any], Any]:
        """A constant schedule: the rate of the one step that is compiled."""
        rate = self.learning_rate if override_lr is None else override_lr
        return lambda _step: rate


def optimizer_for_one_step(optimizer: OptimizerSpec, *, learning_rate: Any, adam_learning_rate: Any, epsilon: Any) -> Any:
    """The optimizer of a step at which the schedule stands at these rates (numbers or traced scalars)."""
    config = ScheduleFromOutside(
        learning_rate=learning_rate,
        adam_lr=adam_learning_rate,
        epsilon=epsilon,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        max_grad_norm=optimizer.max_grad_norm,
        weight_decay=0.0,
    )
    return config.build(1)


def scheduled_rates(optimizer: OptimizerSpec, *, train_steps: int) -> NDArray[np.float32]:
    """Levanter's own schedule, evaluated: matrix and Adam learning rate of every step, shape (2, steps)."""
    config = optimizer_config(optimizer)
    schedules = (config.lr_scheduler(train_steps), config.lr_scheduler(train_steps, override_lr=config.adam_lr))
    steps = jnp.arange(train_steps)
    return np.stack([np.asarray(jax.vmap(schedule)(steps), np.float32) for schedule in schedules])


def trainer_config(spec: RunSpec, *, work_dir: Path) -> TrainerConfig:
    """Levanter's trainer for one run on this machine, with checkpoints under `work_dir`; the tracker is set by `train`."""
    return TrainerConfig(
        id=spec.directory_name,
        seed=spec.seed,
        mp=jmp.get_policy("f32"),
        tracker=NoopConfig(),
        watch=WatchConfig(watch_targets=[]),
        log_dir=work_dir / "levanter",
        log_jaxprs=False,
        log_xla_hlo=False,
        crash_on_nan=False,  # a diverged run is a result: `train` records it
        crash_on_inf=False,
        train_batch_size=spec.batch_size,
        num_train_steps=spec.train_steps,
        require_accelerator=False,
        checkpointer=CheckpointerConfig(base_path=str(work_dir / "checkpoints"), save_interval=timedelta(seconds=1), keep=None),
    )


def use_compilation_cache(folder: Path) -> None:
    """Share compiled programs between processes and restarts; tiny programs are worth keeping, too."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
