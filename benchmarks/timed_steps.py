"""Timing of training steps in processes of their own, for `gpu_ladder.py`.

Processes import and compile side by side. One job is timed at a time, and the processes of all others are stopped meanwhile.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from marin_scaling.data.corpus import HELD_OUT, RowFacts, TokenCorpus, TokenizerIdentity, token_type
from marin_scaling.ladder.config import Compute
from marin_scaling.ladder.fit_check import training_memory_bytes
from marin_scaling.recipe.find import find_recipe
from marin_scaling.recipe.model_shape import training_flops
from marin_scaling.run.plan import data_of, model_of, optimizer_of
from marin_scaling.run.spec import EvaluationSpec, RunSpec
from marin_scaling.train.launcher import gpu_environment, visible_gpus

PRODUCT = "matrix-product"
TOKENS_PER_PARAM, MOST_BATCH_TOKENS, SEQUENCES_AT_A_TIME = 20, 65_536, 2
CORPUS_TOKENS, EPOCHS, FEWEST_STEPS, WARM_UP_SHARE = 2**22, 100, 3, 0.1
PRODUCTS_PER_STEP = 10
PROCESS_BYTES = 1e9  # a CUDA context and loaded kernels
MEMORY_SHARE = 0.85  # of a GPU's memory that jobs may take together, by the estimate
_SECONDS_TO_TRACE = 60.0
SECONDS_BEYOND = 60.0  # a job that steps for so much longer than it was asked to is ended

Loop = Literal["ours", "levanter", "plain", "plain-unfused", "product"]


@dataclass(frozen=True)
class Measurement:
    """A recipe's model of one width, trained by one loop in one or several processes on one GPU."""

    recipe: str
    hidden_dim: int
    loop: Loop
    processes: int
    seconds: float
    on_gpu: bool

    @property
    def estimated_bytes(self) -> float:
        """Return the memory that all processes are expected to take."""
        if self.recipe == PRODUCT:
            return PROCESS_BYTES
        plan, spec = plan_of(self), spec_of(self, random_corpus(256, 1))
        one = training_memory_bytes(replace(plan, batch_size=spec.batch_size), spec.compute)
        return self.processes * (one + PROCESS_BYTES)


def random_corpus(vocab_size: int, seq_len: int) -> TokenCorpus:
    """Return tokens drawn evenly from the vocabulary."""
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


def plan_of(measurement: Measurement) -> Any:
    """Return the recipe's plan of this width at 20 tokens per parameter."""
    recipe = find_recipe(measurement.recipe)
    shape = recipe.shape(measurement.hidden_dim)
    budget = training_flops(shape, tokens=TOKENS_PER_PARAM * shape.params_active)
    return recipe.plan(budget_flops=budget, hidden_dim=measurement.hidden_dim)


def spec_of(measurement: Measurement, corpus: TokenCorpus) -> RunSpec:
    """Return the run of `plan_of`, its batch cut to `MOST_BATCH_TOKENS`, with more steps than there is time for."""
    plan = plan_of(measurement)
    shape = plan.shape
    batch_size = min(plan.batch_size, MOST_BATCH_TOKENS // shape.seq_len)
    precision: Literal["bfloat16", "float32"] = "bfloat16" if measurement.on_gpu else "float32"
    at_once = None if batch_size * shape.seq_len * shape.vocab_size < 2**31 else min(batch_size, SEQUENCES_AT_A_TIME)
    return RunSpec(
        ladder="benchmark",
        role="rung",
        recipe=plan.recipe,
        budget_flops=plan.budget_flops,
        model=model_of(plan),
        optimizer=optimizer_of(plan),
        batch_size=batch_size,
        train_steps=EPOCHS * (CORPUS_TOKENS // shape.seq_len) // batch_size,
        seed=0,
        data_order_seed=0,
        data=data_of(corpus),
        epochs=EPOCHS,
        evaluation=EvaluationSpec(seq_len=shape.seq_len, windows=64),
        compute=Compute(precision=precision, attention="flash", sequences_at_a_time=at_once),
    )


def plain_steps(spec: RunSpec, corpus: TokenCorpus, *, fused: bool) -> Iterator[float]:
    """Yield the loss after each step of the plain trainer."""
    from plain_trainer import parameter_count, plain_step

    from marin_scaling.train.optimizer import scheduled_rates

    model, advance = plain_step(spec, fused=fused)
    wanted = spec.model.shape().params_total
    if parameter_count(model) != wanted:
        raise SystemExit(f"the plain model has {parameter_count(model)} parameters, ours {wanted}")
    del model  # its buffers are donated to the first step
    size = spec.batch_size * spec.model.seq_len
    batches = corpus.train[: len(corpus.train) // size * size].reshape(-1, spec.batch_size, spec.model.seq_len)
    for step, rates in enumerate(scheduled_rates(spec.optimizer, train_steps=spec.train_steps).T.tolist()):
        yield advance(batches[step % len(batches)].astype(np.int32), *rates)


def products(size: int, *, on_gpu: bool) -> Iterator[float]:
    """Multiply random square matrices in bfloat16 (float32 on a processor), `PRODUCTS_PER_STEP` at a time."""
    import jax
    import jax.numpy as jnp

    kind = jnp.bfloat16 if on_gpu else jnp.float32
    left, right = (jax.random.normal(jax.random.PRNGKey(seed), (size, size), kind) for seed in (0, 1))
    multiply = jax.jit(jnp.matmul)
    while True:
        jax.block_until_ready([multiply(left, right) for _ in range(PRODUCTS_PER_STEP)])
        yield 0.0


def stream_of(measurement: Measurement, work: Path) -> tuple[Iterator[float], dict[str, object]]:
    """Return the steps of a measurement as a stream of losses, and the facts of its model."""
    if measurement.loop == "product":
        size = measurement.hidden_dim
        facts: dict[str, object] = {"flops_per_step": PRODUCTS_PER_STEP * 2.0 * size**3}
        return products(size, on_gpu=measurement.on_gpu), facts
    shape = find_recipe(measurement.recipe).shape(measurement.hidden_dim)
    corpus = random_corpus(shape.vocab_size, shape.seq_len)
    spec = spec_of(measurement, corpus)
    facts = {
        "flops_per_step": spec.flops / spec.train_steps,
        "params": shape.params_active,
        "params_total": shape.params_total,
        "batch": f"{spec.batch_size} x {shape.seq_len}",
        "sequences_at_a_time": spec.compute.sequences_at_a_time,
        "precision": spec.compute.precision,
    }
    if measurement.loop in ("plain", "plain-unfused"):
        return plain_steps(spec, corpus, fused=measurement.loop == "plain"), facts
    from training_loops import levanters_steps, our_steps

    loop = our_steps if measurement.loop == "ours" else levanters_steps
    return loop(spec, corpus, work), facts


def measure_here(measurement: Measurement, *, folder: Path, number: int) -> dict[str, object]:
    """Compile, wait until the parent says go, and time steps."""
    import jax

    from marin_scaling.train.levanter_config import use_compilation_cache

    faulthandler.dump_traceback_later(_SECONDS_TO_TRACE, repeat=True)  # where a compilation hangs
    began = time.perf_counter()
    use_compilation_cache(folder.parent / "compiled")
    losses, facts = stream_of(measurement, folder / f"work-{number}")
    for _ in range(2):  # the first compiles; the second is the first of its kind where buffers are reused
        next(losses)
    setup_seconds = time.perf_counter() - began
    (folder / f"ready-{number}").touch()
    parent = os.getppid()
    while not (folder / "go").exists():
        time.sleep(0.01)
        if os.getppid() != parent:
            sys.exit("the parent is gone")
    clock = [time.perf_counter()]
    while time.perf_counter() - clock[0] < WARM_UP_SHARE * measurement.seconds:
        next(losses)
    clock = [time.perf_counter()]
    while len(clock) <= FEWEST_STEPS or clock[-1] - clock[0] < measurement.seconds:
        loss = next(losses)
        clock.append(time.perf_counter())
    device = jax.devices()[0]
    return {
        "steps_per_second": (len(clock) - 1) / (clock[-1] - clock[0]),
        "steps": len(clock) - 1,
        "median_ms": 1000 * float(median(np.diff(clock))),
        "last_loss": loss,
        "setup_seconds": setup_seconds,
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "device": device.device_kind,
        **facts,
    }


@dataclass(kw_only=True)
class Job:
    """A measurement with its processes, from start to result."""

    name: str
    how: str
    measurement: Measurement
    is_second_try: bool = False
    folder: Path = Path()
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Return the case and the loop in a few words."""
        return f"{self.name} ({self.how})"

    def start(self, folder: Path) -> None:
        """Start the processes, which compile and then wait."""
        self.folder = folder
        folder.mkdir()
        self.processes = [self._process(number) for number in range(self.measurement.processes)]

    def _process(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, json.dumps(asdict(self.measurement)), str(self.folder), str(number)]
        gpus = visible_gpus()[:1]
        of_gpu = gpu_environment(0, gpus_per_run=len(gpus), gpus=gpus)
        if gpus:  # several jobs hold memory side by side: each takes what it needs
            of_gpu |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"}
        with (self.folder / f"errors-{number}").open("w") as errors:
            return subprocess.Popen(command, env={**os.environ, **of_gpu}, stdout=errors, stderr=errors)

    @property
    def has_failed(self) -> bool:
        """Return True if a process ended without a result."""
        return any(process.poll() not in (None, 0) for process in self.processes)

    @property
    def is_ready(self) -> bool:
        """Return True if every process has compiled."""
        return len(list(self.folder.glob("ready-*"))) == len(self.processes)

    def measure(self, *, until: float) -> list[dict[str, object]] | None:
        """Return the results of all processes, or None if one failed or the time was over."""
        (self.folder / "go").touch()
        last = min(until, time.monotonic() + self.measurement.seconds + SECONDS_BEYOND)
        try:
            for process in self.processes:
                process.wait(timeout=max(last - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            return None
        if self.has_failed:
            return None
        return [json.loads((self.folder / f"found-{number}").read_text()) for number in range(len(self.processes))]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the processes that are still running."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def end(self) -> None:
        """Kill what is still running."""
        self.send(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def error(self) -> str:
        """Return the end of the first process's output that is not empty."""
        texts = [path.read_text(errors="replace") for path in sorted(self.folder.glob("errors-*"))]
        return next((text[-4000:] for text in texts if text), "")


Listener = Callable[[Job, list[dict[str, object]] | None], None]
"""Called with a job and its results; None if the job failed."""


def time_all(
    jobs: Sequence[Job],
    *,
    place: Path,
    begin_until: float,
    until: float,
    most_processes: int,
    most_bytes: float,
    on_done: Listener,
) -> list[Job]:
    """Time jobs, several in preparation at once; return those that were not begun or not ended in time."""
    waiting, running, unfinished = list(jobs), list[Job](), list[Job]()
    held = {id(job): job.measurement.estimated_bytes for job in jobs}
    try:
        while (waiting and time.monotonic() < begin_until) or running:
            for job in list(waiting):
                if _fits(job, running, held, most_processes, most_bytes) and time.monotonic() < begin_until:
                    waiting.remove(job)
                    job.start(place / f"{len(list(place.iterdir()))}")
                    running.append(job)
            if time.monotonic() > until:
                break
            done = next((job for job in running if job.has_failed or job.is_ready), None)
            if done is None:
                time.sleep(0.05)
                continue
            running.remove(done)
            found = None if done.has_failed else _measured_alone(done, running, until=until)
            done.end()
            if found is None and time.monotonic() > until:
                unfinished.append(done)
                continue
            on_done(done, found)
    finally:
        for job in running:
            job.end()
    return [*unfinished, *running, *waiting]


def _fits(job: Job, running: Sequence[Job], held: dict[int, float], most_processes: int, most_bytes: float) -> bool:
    """Return True if the job may start beside those that run; alone it always may."""
    together = [job, *running]
    processes = sum(each.measurement.processes for each in together)
    return not running or (processes <= most_processes and sum(held[id(each)] for each in together) <= most_bytes)


def _measured_alone(job: Job, others: Sequence[Job], *, until: float) -> list[dict[str, object]] | None:
    for other in others:
        other.send(signal.SIGSTOP)
    try:
        return job.measure(until=until)
    finally:
        for other in others:
            other.send(signal.SIGCONT)


def gpu_bytes() -> float:
    """Return the memory of the first GPU; infinity where no driver tells."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(answer.split()[0]) * 2**20
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return float("inf")


def main() -> None:
    """Be one process of a job: `timed_steps.py MEASUREMENT FOLDER NUMBER`."""
    measurement, folder, number = Measurement(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    found = measure_here(measurement, folder=folder, number=number)
    (folder / f"found-{number}").write_text(json.dumps(found))
    sys.stderr.flush()
    os._exit(0)  # to take JAX apart takes a second


if __name__ == "__main__":
    main()
