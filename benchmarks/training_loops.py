"""The steps of one run as a stream of losses, ours and those of Levanter's own loop: what `step_time` and `gpu_ladder` time.

Both take the same batches in the same order; neither saves, evaluates or records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import haliax as hax
import jax.numpy as jnp
import numpy as np
from levanter.models.lm_model import LmExample
from levanter.trainer import Trainer, initialize

from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.run.spec import RunSpec
from marin_scaling.train.levanter_config import trainer_config
from marin_scaling.train.optimizer import initial_optimizer, levanters_schedule
from marin_scaling.train.step import compile_step, initial_state, language_model_loss
from marin_scaling.train.train import prefetched, training_batches


def our_steps(spec: RunSpec, corpus: TokenCorpus, work_dir: Path) -> Iterator[float]:
    """The loss of each step of ours, as `marin-scale ladder` trains a rung: read once the next one has begun."""
    with _trainer(spec, initial_optimizer(spec), work_dir) as trainer:
        step = compile_step(trainer, initial_state(trainer, spec, trainer.optimizer), spec)
        with prefetched(training_batches(spec, corpus.train, first_step=0, trainer=trainer)) as batches:
            begun = step.advance(next(batches)).loss
            for tokens in batches:
                begun, ended = step.advance(tokens).loss, begun
                yield float(ended)
            yield float(begun)


def levanters_steps(spec: RunSpec, corpus: TokenCorpus, work_dir: Path) -> Iterator[float]:
    """The loss after each step of Levanter's `Trainer`, without hooks."""
    with _trainer(spec, levanters_schedule(spec.optimizer).build(spec.train_steps), work_dir) as trainer:
        state = initial_state(trainer, spec, trainer.optimizer)
        for info in trainer.training_steps(state, _examples(spec, corpus)):
            yield float(info.loss)


def _trainer(spec: RunSpec, optimizer: Any, work_dir: Path) -> Trainer:
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    return Trainer(config, optimizer, language_model_loss(spec.optimizer.z_loss_weight), add_default_hooks=False)


def _examples(spec: RunSpec, corpus: TokenCorpus) -> Iterator[Any]:
    axes = (hax.Axis("batch", spec.batch_size), hax.Axis("position", spec.model.seq_len))
    weights = np.ones([axis.size for axis in axes], np.float32)
    weights[:, -1] = 0.0
    for tokens in training_batches(spec, corpus.train, first_step=0):
        yield LmExample(tokens=hax.named(jnp.asarray(tokens), axes), loss_weight=hax.named(jnp.asarray(weights), axes))
