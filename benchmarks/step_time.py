"""Milliseconds of a training step of the quickstart's models, by width, beside three others on the same batches: Levanter's own
`Trainer` (here without hooks), its whole command `train_lm` on the files of `marin-scale emit` (by its own count), and a
plain JAX, Equinox and Optax trainer.

Ours is Levanter's step over flat arrays (see `marin_scaling.train.step`); a contract test holds that both give the same
losses.
One process on all its cores; the first steps, which compile, are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from plain_trainer import parameter_count, plain_step
from report import parser, publish
from training_loops import levanters_steps, our_steps

from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.data.documents import standard_library_corpus
from marin_scaling.ladder.config import LadderFile, RungsAtBudget, Target
from marin_scaling.ladder.plan import plan_ladder
from marin_scaling.recipe.find import find_recipe
from marin_scaling.recipe.model_shape import training_flops
from marin_scaling.run.plan import rung_specs
from marin_scaling.run.spec import RunSpec
from marin_scaling.train.levanter_yaml import COMMAND, emit_levanter, file_name
from marin_scaling.train.optimizer import scheduled_rates
from marin_scaling.train.train import training_batches

WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128)
STEPS, UNCOUNTED = 150, 30
BATCH_TOKENS = 16 * 128
LAST_LOSSES: list[float] = []


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


def train_lm_milliseconds(spec: RunSpec, corpus: TokenCorpus, folder: Path) -> float:
    """Median over the counted steps of what Levanter's command logs as the duration of a step."""
    emit_levanter([spec], corpus=corpus, folder=folder)
    command = [sys.executable, *COMMAND.split()[1:], file_name(spec)]
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
    subprocess.run(command, cwd=folder, env=offline, capture_output=True, check=True)
    (log,) = (folder / "logs").glob("*.log")
    events = (json.loads(line[line.index('{"tracker"') :]) for line in log.read_text().splitlines() if '{"tracker"' in line)
    logged = [event.get("metrics", {}) for event in events]
    LAST_LOSSES.append(float(np.mean([each["train/loss"] for each in logged if "train/loss" in each][-20:])))
    seconds = [each["throughput/duration"] for each in logged if "throughput/duration" in each]  # hooks are not in it
    return 1000 * float(median(seconds[UNCOUNTED:]))


def plain_milliseconds(spec: RunSpec, corpus: TokenCorpus) -> float:
    """Median over the counted steps of the plain trainer; its model has as many parameters as ours, or this stops."""
    model, advance = plain_step(spec)
    if parameter_count(model) != spec.model.shape().params_total:
        raise SystemExit(f"the plain model has {parameter_count(model)} parameters, ours {spec.model.shape().params_total}")
    rates = scheduled_rates(spec.optimizer, train_steps=spec.train_steps).T
    batches = training_batches(spec, corpus.train, first_step=0)
    return _median_milliseconds(advance(tokens, *rate) for tokens, rate in zip(batches, rates.tolist(), strict=True))


def _median_milliseconds(losses: Iterator[float]) -> float:
    clock, found = zip(*((time.perf_counter(), loss) for loss in losses), strict=True)
    LAST_LOSSES.append(float(np.mean(found[-20:])))
    return 1000 * float(median(np.diff(clock)[UNCOUNTED:]))


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    corpus = standard_library_corpus()
    rows = []
    for width in WIDTHS:
        spec = spec_of(width, corpus)
        with tempfile.TemporaryDirectory() as folder:
            ours = _median_milliseconds(our_steps(spec, corpus, Path(folder) / "ours"))
            found = [
                _median_milliseconds(levanters_steps(spec, corpus, Path(folder) / "theirs")),
                train_lm_milliseconds(spec, corpus, Path(folder) / "emitted"),
                plain_milliseconds(spec, corpus),
            ]
            losses = " / ".join(f"{loss:.3f}" for loss in LAST_LOSSES[-4:])
            others = [*(f"{other:.1f} ({ours / other:.2f}x)" for other in found), losses]
        rate = spec.flops / spec.train_steps / ours * 1000
        rows.append([width, f"{spec.model.shape().params_total:,}", f"{ours:.1f}", *others, f"{rate / 1e9:.1f}"])
    publish(
        "A training step of the quickstart's models",
        columns=(
            "width",
            "parameters",
            "our ms a step",
            "Levanter's Trainer, ms (ours over it)",
            "its train_lm, ms (ours over it)",
            "plain JAX, ms (ours over it)",
            "last losses: ours / Levanter's / train_lm / plain",
            "our GFLOP/s",
        ),
        rows=rows,
        packages=("jax", "marin-levanter", "marin-haliax", "equinox", "optax"),
        notes=[
            f"Median of {STEPS - UNCOUNTED} steps of {BATCH_TOKENS} tokens, after {UNCOUNTED} that are not counted. "
            "Losses: mean of the last 20 steps, nats a token; train_lm and the plain trainer draw their own weights."
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
