"""Use of the GPU at hand by width, dense and mixture of experts: one run, several that share it, and Levanter's own loop.

Each measurement is a process of its own (several where runs share the GPU), which compiles, waits until all that are measured
with it have done so, and then does steps for some seconds. Batches are the recipe's at 20 tokens per parameter, cut to what a
measurement has time for, of tokens drawn at random: a step costs the same on any text. Without a GPU it measures the processor,
which has no peak to divide by.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from report import parser, publish

from marin_scaling.data.token_corpus import HELD_OUT, RowFacts, TokenCorpus, TokenizerIdentity, token_type
from marin_scaling.ladder.compute import Compute
from marin_scaling.recipe.catalogue import find_recipe
from marin_scaling.recipe.flop_counting import training_flops
from marin_scaling.run.gpus import gpu_environment, visible_gpus
from marin_scaling.run.plan_specs import data_of, model_of, optimizer_of
from marin_scaling.run.run_spec import EvaluationSpec, RunSpec
from marin_scaling.speedrun.hardware import accelerator

CASES = (
    "quickstart:64",
    "quickstart-moe:64",
    "quickstart:128",
    "quickstart-moe:128",
    "delphi:512",
    "grug-moe:512",
    "delphi:1024",
    "grug-moe:768",
    "delphi:2048",
)
TOKENS_PER_PARAM, MOST_BATCH_TOKENS, SEQUENCES_AT_A_TIME = 20, 65_536, 2
CORPUS_TOKENS, EPOCHS, FEWEST_STEPS = 2**22, 100, 3
WIDEST_PACKED = 512  # of wider models only runs alone are measured, for want of time


@dataclass(frozen=True)
class Measurement:
    """What is measured together: a recipe's model of one width, in so many processes on one GPU."""

    recipe: str
    hidden_dim: int
    loop: Literal["ours", "levanter"]
    processes: int
    seconds: float
    on_gpu: bool


def random_corpus(vocab_size: int, seq_len: int) -> TokenCorpus:
    """Tokens drawn evenly from the vocabulary."""
    random, kind = np.random.default_rng(0), token_type(vocab_size)
    rows = {"train": CORPUS_TOKENS, HELD_OUT: 64 * seq_len}
    train, held_out = (random.integers(vocab_size, size=count, dtype=kind) for count in rows.values())
    return TokenCorpus(
        source="random-tokens",
        tokenizer=TokenizerIdentity(name="random", digest="0" * 64, size=vocab_size),
        token_bytes=np.ones(vocab_size, np.uint16),
        train=train,
        validation={HELD_OUT: held_out},
        facts={name: RowFacts(tokens=count, text_bytes=count, sha256="0" * 64) for name, count in rows.items()},
        digest="0" * 64,
    )


def spec_and_corpus(measurement: Measurement) -> tuple[RunSpec, TokenCorpus]:
    """The recipe's run of this width, with more steps than there will be time for."""
    recipe = find_recipe(measurement.recipe)
    shape = recipe.shape(measurement.hidden_dim)
    corpus = random_corpus(shape.vocab_size, shape.seq_len)
    budget = training_flops(shape, tokens=TOKENS_PER_PARAM * shape.params_active)
    plan = recipe.plan(budget_flops=budget, hidden_dim=measurement.hidden_dim)
    batch_size = min(plan.batch_size, MOST_BATCH_TOKENS // shape.seq_len)
    train_steps = EPOCHS * (CORPUS_TOKENS // shape.seq_len) // batch_size
    precision: Literal["bfloat16", "float32"] = "bfloat16" if measurement.on_gpu else "float32"
    at_once = None if batch_size * shape.seq_len * shape.vocab_size < 2**31 else min(batch_size, SEQUENCES_AT_A_TIME)
    spec = RunSpec(
        ladder="benchmark",
        role="rung",
        recipe=plan.recipe,
        budget_flops=budget,
        model=model_of(plan),
        optimizer=optimizer_of(plan),
        batch_size=batch_size,
        train_steps=train_steps,
        seed=0,
        data_order_seed=0,
        data=data_of(corpus),
        epochs=EPOCHS,
        evaluation=EvaluationSpec(seq_len=shape.seq_len, windows=64),
        compute=Compute(precision=precision, attention="flash", sequences_at_a_time=at_once),
    )
    return spec, corpus


def measure_here(measurement: Measurement, *, folder: Path, number: int) -> dict[str, object]:
    """Steps a second of one process, from when the parent says go."""
    import jax
    from training_loops import levanters_steps, our_steps

    from marin_scaling.run.levanter_config import use_compilation_cache

    use_compilation_cache(folder.parent / "compiled")
    spec, corpus = spec_and_corpus(measurement)
    loop = our_steps if measurement.loop == "ours" else levanters_steps
    losses = loop(spec, corpus, folder / f"work-{number}")
    for _ in range(2):  # the first compiles; the second is the first of its kind where buffers are reused
        next(losses)
    (folder / f"ready-{number}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    begin, steps = time.perf_counter(), 0
    while steps < FEWEST_STEPS or time.perf_counter() - begin < measurement.seconds:
        next(losses)
        steps += 1
    return {
        "steps_per_second": steps / (time.perf_counter() - begin),
        "flops_per_step": spec.flops / spec.train_steps,
        "params": spec.model.shape().params_active,
        "batch": f"{spec.batch_size} x {spec.model.seq_len}",
        "device": jax.devices()[0].device_kind,
    }


def measured(measurement: Measurement, *, folder: Path, deadline: float) -> list[dict[str, object]] | str:
    """What each process found, or in a word why there is nothing; what a failed one printed is printed."""
    folder.mkdir()
    running = [_begun(measurement, folder=folder, number=number) for number in range(measurement.processes)]
    try:
        while len(list(folder.glob("ready-*"))) < len(running):
            if time.monotonic() > deadline or any(each.poll() is not None for each in running):
                break
            time.sleep(0.05)
        (folder / "go").touch()
        for each in running:
            each.wait(timeout=max(deadline - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        return "the time was over"
    finally:
        for each in running:
            each.kill()
    if any(each.returncode for each in running):
        print(next(each.read_text() for each in sorted(folder.glob("errors-*")) if each.stat().st_size), file=sys.stderr)
        return "failed"
    return [json.loads((folder / f"found-{number}").read_text()) for number in range(len(running))]


def _begun(measurement: Measurement, *, folder: Path, number: int) -> subprocess.Popen[bytes]:
    gpus = visible_gpus()[:1]
    share = 1 / measurement.processes if gpus else 0
    command = [sys.executable, __file__, "--child", json.dumps(asdict(measurement)), str(folder), str(number)]
    environment = {**os.environ, **gpu_environment(number, gpus_per_run=share, gpus=gpus)}
    with (folder / f"errors-{number}").open("w") as errors:
        return subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)


def row(name: str, how: str, found: Sequence[dict[str, object]]) -> list[object]:
    """One line of the table; rates of processes that were measured together are added up."""
    first, rates = found[0], [float(str(each["steps_per_second"])) for each in found]
    speed = sum(rates) * float(str(first["flops_per_step"]))
    kind = accelerator(str(first["device"]).removeprefix("NVIDIA ").split()[0])
    utilisation = f"{speed / kind.peak_flops_per_second:.1%}" if kind else ""
    milliseconds = f"{1000 * len(rates) / sum(rates):.1f}"
    return [name, f"{first['params']:,}", first["batch"], how, milliseconds, f"{speed / 1e12:.4g}", utilisation]


def options_of() -> argparse.Namespace:
    """The options of the command line."""
    found = parser(__doc__ or "")
    found.add_argument("--cases", nargs="+", default=CASES, metavar="RECIPE:WIDTH")
    found.add_argument("--packed", type=int, default=3, help="processes that share the GPU")
    found.add_argument("--seconds", type=float, default=5.0, help="how long each measurement does steps")
    found.add_argument("--minutes", type=float, default=9.5, help="begin nothing after this")
    return found.parse_args()


def ways(hidden_dim: int, packed: int) -> list[tuple[Literal["ours", "levanter"], int, str]]:
    """Whose loop, in how many processes, and how the table calls it."""
    alone: list[tuple[Literal["ours", "levanter"], int, str]] = [("ours", 1, "ours"), ("levanter", 1, "Levanter's Trainer")]
    return alone + ([("ours", packed, f"ours, {packed} at once")] if hidden_dim <= WIDEST_PACKED else [])


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        measurement = Measurement(**json.loads(sys.argv[2]))
        folder, number = Path(sys.argv[3]), int(sys.argv[4])
        (folder / f"found-{number}").write_text(json.dumps(measure_here(measurement, folder=folder, number=number)))
        return
    options = options_of()
    deadline = time.monotonic() + 60 * options.minutes
    on_gpu = bool(visible_gpus())
    rows, left_out, devices = [], [], set()
    with tempfile.TemporaryDirectory() as place:
        for name in options.cases:
            recipe, _, width = name.partition(":")
            for loop, processes, how in ways(int(width), options.packed):
                if time.monotonic() > deadline:
                    left_out.append(f"{name} ({how})")
                    continue
                measurement = Measurement(recipe, int(width), loop, processes, options.seconds, on_gpu)
                found = measured(measurement, folder=Path(place) / f"{len(rows)}", deadline=deadline)
                rows.append([name, "", "", how, found, "", ""] if isinstance(found, str) else row(name, how, found))
                devices |= set() if isinstance(found, str) else {str(each["device"]) for each in found}
    publish(
        "Use of a GPU by width",
        columns=("recipe and width", "active parameters", "batch", "how", "ms a step", "model TFLOP/s", "MFU"),
        rows=rows,
        packages=("jax", "jaxlib", "marin-levanter", "marin-haliax", "equinox", "optax"),
        notes=[
            f"Device: {', '.join(sorted(devices)) or 'none'}. Milliseconds are of one run's step, FLOP/s of all runs at once.",
            *([f"There was no time for {', '.join(left_out)}."] if left_out else []),
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
