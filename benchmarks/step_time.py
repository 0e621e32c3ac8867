"""Milliseconds of a training step of the quickstart's models, by width, beside Levanter's own `Trainer` on the same batches.

Ours is Levanter's step over flat arrays (see `marin_scaling.run.levanter_step`); a contract test holds that both give the same
losses.
One process on all its cores; the first steps, which compile, are not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import haliax as hax
import jax.numpy as jnp
import numpy as np
from levanter.models.lm_model import LmExample
from levanter.trainer import Trainer, initialize
from report import parser, publish

from marin_scaling.data.standard_library import standard_library_corpus
from marin_scaling.data.token_corpus import TokenCorpus
from marin_scaling.ladder.ladder import plan_ladder
from marin_scaling.ladder.ladder_file import LadderFile, RungsAtBudget, Target
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.flop_counting import training_flops
from marin_scaling.run.levanter_config import trainer_config
from marin_scaling.run.levanter_step import compile_step, initial_state, language_model_loss
from marin_scaling.run.optimizer import levanters_schedule
from marin_scaling.run.plan_specs import rung_specs
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.train import _training_batches

WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128)
WIDTHS_OF_TRAINER = (16, 64)
STEPS, UNCOUNTED = 150, 30
BATCH_TOKENS = 16 * 128


def spec_of(width: int, corpus: TokenCorpus) -> RunSpec:
    """The quickstart recipe's run of `STEPS` steps at this width."""
    budget = training_flops(find_recipe("quickstart").shape(width), tokens=BATCH_TOKENS * STEPS)
    file = LadderFile(
        name="benchmark",
        recipe="quickstart",
        rungs=(RungsAtBudget(budget_flops=budget, hidden_dims=(width,)),),
        target=Target(budget_flops=2 * budget),
    )
    [spec] = rung_specs(plan_ladder(file), corpus=corpus)
    return spec


def our_milliseconds(spec: RunSpec, corpus: TokenCorpus, work_dir: Path) -> float:
    """Median over the counted steps of our compiled step."""
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    optimizer = levanters_schedule(spec.optimizer).build(spec.train_steps)
    with Trainer(config, optimizer, language_model_loss(spec.optimizer.z_loss_weight), add_default_hooks=False) as trainer:
        step = compile_step(trainer, initial_state(trainer, spec, optimizer), spec)
        return _median_milliseconds(step.advance(tokens) for tokens in _training_batches(spec, corpus.train, first_step=0))


def trainer_milliseconds(spec: RunSpec, corpus: TokenCorpus, work_dir: Path) -> float:
    """Median over the counted steps of Levanter's own loop."""
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    optimizer = levanters_schedule(spec.optimizer).build(spec.train_steps)
    with Trainer(config, optimizer, language_model_loss(spec.optimizer.z_loss_weight), add_default_hooks=False) as trainer:
        state = initial_state(trainer, spec, optimizer)
        return _median_milliseconds(float(info.loss) for info in trainer.training_steps(state, _examples(spec, corpus)))


def _examples(spec: RunSpec, corpus: TokenCorpus) -> Iterator[Any]:
    axes = (hax.Axis("batch", spec.batch_size), hax.Axis("position", spec.model.seq_len))
    weights = np.ones([axis.size for axis in axes], np.float32)
    weights[:, -1] = 0.0
    for tokens in _training_batches(spec, corpus.train, first_step=0):
        yield LmExample(tokens=hax.named(jnp.asarray(tokens), axes), loss_weight=hax.named(jnp.asarray(weights), axes))


def _median_milliseconds(losses: Iterator[float]) -> float:
    clock = [time.perf_counter() for _ in losses]
    return 1000 * float(median(np.diff(clock)[UNCOUNTED:]))


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    corpus = standard_library_corpus()
    rows = []
    for width in WIDTHS:
        spec = spec_of(width, corpus)
        with tempfile.TemporaryDirectory() as folder:
            ours = our_milliseconds(spec, corpus, Path(folder) / "ours")
            theirs = trainer_milliseconds(spec, corpus, Path(folder) / "theirs") if width in WIDTHS_OF_TRAINER else None
        rate = spec.flops / spec.train_steps / ours * 1000
        compared = "" if theirs is None else f"{theirs:.1f}"
        rows.append([width, f"{spec.model.shape().params_total:,}", f"{ours:.1f}", compared, f"{rate / 1e9:.1f}"])
    publish(
        "A training step of the quickstart's models",
        columns=("width", "parameters", "our ms a step", "Levanter's Trainer, ms", "our GFLOP/s"),
        rows=rows,
        packages=("jax", "marin-levanter", "marin-haliax", "equinox"),
        notes=[f"Median of {STEPS - UNCOUNTED} steps of {BATCH_TOKENS} tokens, after {UNCOUNTED} that are not counted."],
        write=options.write,
    )


if __name__ == "__main__":
    main()
