"""Audit generated run tables with known faults, and tables without any: how often the audit is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from report import parser, publish
from scipy.special import stdtrit

from marin_scaling.errors import MarinScalingError, Severity
from marin_scaling.forecast.speedup import compare_recipes
from marin_scaling.laws import SurfaceLaw, surface_loss
from marin_scaling.run.column_units import COUNT_UNITS, FLOP_UNITS
from marin_scaling.run.groups import CHANCE, LEAST_T
from marin_scaling.run.table import RunTable, table_of_frame

Generator = np.random.Generator
LEAST_FOUND, MOST_DISTURBED = 0.95, 0.02
UNTRAINED = 9.0
"""Loss beyond which a power law says nothing: that of a model before training is 10 to 12.6 nats."""


@dataclass(frozen=True)
class Made:
    """A table, the names of its columns where they are not ours, and what its FLOPs and parameters are one by one."""

    frame: pd.DataFrame
    columns: dict[str, str]
    truth: pd.DataFrame


def sound(random: Generator) -> Made:
    """Return a table without faults: a random law, grid, noise and FLOP count, and columns that explain nothing."""
    budgets, sizes = random.integers(4, 8), random.integers(4, 8)
    budget = np.repeat(10.0 ** random.uniform(17, 18.5) * np.geomspace(1, 10.0 ** random.uniform(1, 2.5), budgets), sizes)
    spread = np.exp(random.uniform(0.3, 1.2))
    ratio = 10.0 ** random.uniform(0.8, 2)
    params = np.round(np.sqrt(budget / 6 / ratio) * np.tile(np.geomspace(1 / spread, spread, sizes), budgets))
    overhead = 1 + random.choice([0.0, 0.4]) * random.random() * (params / params.min()) ** -random.uniform(0.2, 0.6)
    batch = 2.0 ** random.integers(14, 18)
    tokens = np.maximum(np.round(budget / 6 / params / overhead / batch), 10) * batch
    law = _law(random)
    noise = np.exp(10.0 ** random.uniform(-3.3, -2.3) * random.standard_normal(len(params)))
    frame = pd.DataFrame(
        {
            "run": [f"run-{n}" for n in range(len(params))],
            "flops": 6 * params * tokens * overhead,
            "params": params,
            "tokens": tokens,
            "loss": surface_loss(law, params=params, tokens=tokens) * noise,
        }
    )
    if random.random() < 0.5:
        frame["budget_flops"] = budget
    for name, values in _decoys(random, params).items():
        if random.random() < 0.5:
            frame[name] = values
    return Made(frame, {}, frame.copy())


def _decoys(random: Generator, params: np.ndarray) -> dict[str, object]:
    count = len(params)
    return {
        "machine": random.choice(["a100", "h100", "v5p"], count),
        "hidden_dim": (params**0.4 / 16).round() * 16,
        "num_layers": np.maximum((params**0.2).round(), 2),
        "user": random.choice(["ann", "bo"], count),
        "runtime_s": random.uniform(1e3, 1e5, count),
        "size_label": [f"{n / 1e6:.0f}M" for n in params],
        "mfu": random.uniform(0.2, 0.6, count).round(3),
    }


def unit_of_a_column(random: Generator) -> Made:
    """Return a table with one column in another unit, which its name states in half of the tables."""
    made = sound(random)
    column = str(random.choice(["flops", "params", "tokens"]))
    unit = str(random.choice(list(FLOP_UNITS if column == "flops" else COUNT_UNITS)[:7]))
    factor = (FLOP_UNITS if column == "flops" else COUNT_UNITS)[unit]
    name = f"{column} ({unit})" if random.random() < 0.5 else column
    frame = made.frame.assign(**{column: made.frame[column] / factor}).rename(columns={column: name})
    return Made(frame, {column: name} if name != column else {}, made.truth)


def units_of_rows(random: Generator) -> Made:
    """Return a table with a share of its rows in another unit."""
    made = sound(random)
    column = str(random.choice(["flops", "params", "tokens"]))
    units = FLOP_UNITS if column == "flops" else COUNT_UNITS
    factor = units[str(random.choice(["GFLOPs", "TFLOPs"] if column == "flops" else ["millions", "billions", "thousands"]))]
    rows = random.random(len(made.frame)) < random.uniform(0.1, 0.6)
    rows[random.integers(len(rows))] = True
    return replace(made, frame=made.frame.assign(**{column: np.where(rows, made.frame[column] / factor, made.frame[column])}))


def overflow(random: Generator) -> Made:
    """Return a table whose FLOPs are 6 N D in 64-bit integers, signed or not."""
    made = sound(random)
    scale = 2.0**63 / np.quantile(6 * made.frame["params"] * made.frame["tokens"], random.uniform(0.2, 0.8))
    tokens = (made.frame["tokens"] * scale).round()
    exact = [6 * int(n) * int(d) for n, d in zip(made.frame["params"], tokens, strict=True)]
    left = [each % 2**64 for each in exact]
    flops = left if random.random() < 0.5 else [each - 2**64 if each >= 2**63 else each for each in left]
    truth = made.truth.assign(flops=np.array(exact, dtype=float), tokens=tokens)
    frame = made.frame.assign(flops=flops, tokens=tokens).drop(columns="budget_flops", errors="ignore")
    return Made(frame, {}, truth)


def convention_of_budgets(random: Generator) -> Made:
    """Return a table whose upper budgets count recomputation: 8 N D, or up to half more."""
    made = sound(random)
    budget = made.frame.get("budget_flops", made.frame["flops"].map(lambda each: float(f"{each:.1g}")))
    levels = np.unique(budget)
    factor = random.choice([4 / 3, random.uniform(1.2, 1.5)])
    upper = budget >= levels[random.integers(1, len(levels))]
    flops = made.frame["flops"] * np.where(upper, factor, 1)
    return replace(made, frame=made.frame.assign(flops=flops).drop(columns="budget_flops", errors="ignore"))


def groups(random: Generator) -> Made:
    """Return a table of two to five kinds of runs, told apart by a column of a random name."""
    parts = [sound(np.random.default_rng(random.integers(2**32)))]
    base = parts[0].frame
    count = int(random.integers(2, 6))
    shifts = random.uniform(0.03, 0.5) * random.permutation(np.linspace(-1, 1, count))
    column = str(random.choice(["dataset", "tokenizer", "stage", "optimizer", "experiment", "notes", "vocab_size"]))
    noise = 10.0 ** random.uniform(-3.3, -2.3)
    frames = [
        base.assign(
            run=base["run"] + f"-{n}",
            loss=base["loss"] * np.exp(shift + noise * random.standard_normal(len(base))),
            **{column: 32_000 * (n + 1) if column == "vocab_size" else f"kind {n}"},
        )
        for n, shift in enumerate(shifts)
    ]
    return Made(pd.concat(frames, ignore_index=True), {}, base)


def noisy(random: Generator) -> Made:
    """Return a table with losses noisy to 0.5 to 3 %, and columns that explain nothing."""
    made = sound(random)
    noise = np.exp(random.uniform(0.005, 0.03) * random.standard_normal(len(made.frame)))
    return replace(made, frame=made.frame.assign(loss=made.frame["loss"] * noise))


def small_groups(random: Generator) -> Made:
    """Return 14 to 23 runs, noisy to 0.5 to 1.5 %, of two kinds whose losses are 3 to 8 % apart."""
    frame = sound(random).frame
    frame = frame.iloc[np.sort(random.permutation(len(frame))[: random.integers(14, 24)])].reset_index(drop=True)
    is_web = random.random(len(frame)) < 0.5
    is_web[random.permutation(len(frame))[:6]] = [True] * 3 + [False] * 3
    noise = random.uniform(0.005, 0.015) * random.standard_normal(len(frame))
    loss = frame["loss"] * np.exp(np.where(is_web, random.uniform(0.03, 0.08), 0.0) + noise)
    return Made(frame.assign(loss=loss, dataset=np.where(is_web, "web", "code")), {}, frame)


def is_decidable(made: Made) -> bool:
    """Return True if the shift between two kinds passes the audit's test where the law of the runs is known."""
    residual, is_web = np.log(made.frame["loss"] / made.truth["loss"]), made.frame["dataset"] == "web"
    parts = [residual[is_web].to_numpy(), residual[~is_web].to_numpy()]
    freedom = len(residual) - 2
    variance = sum(float(((each - each.mean()) ** 2).sum()) for each in parts) / freedom
    score = (parts[0].mean() - parts[1].mean()) / np.sqrt(variance * sum(1 / len(each) for each in parts))
    return bool(score > max(LEAST_T, stdtrit(freedom, 1 - CHANCE / 2)))


def is_doubted(made: Made) -> bool:
    """Return True if the table is refused, or has a finding that lowers its status."""
    table = read(made)
    return table is None or any(each.severity is not Severity.NOTE for each in table.findings)


def sweep(random: Generator, *, replicates: bool = False) -> Made:
    """Return a table of four cells or more with three to eight runs each, of several learning rates or of several seeds."""
    base = sound(random).frame.drop(columns=["machine", "user", "mfu", "runtime_s"], errors="ignore")
    base = base.iloc[random.permutation(len(base))[: random.integers(4, 13)]]
    count = int(random.integers(3, 9))
    rates = 10.0 ** random.uniform(-4, -2) * 2.0 ** np.arange(count)
    noise = 10.0 ** random.uniform(-3, -2.3)
    curve = random.uniform(0.01, 0.04)
    best = random.uniform(0, count - 1) + random.uniform(-0.5, 0.5, len(base))
    rounding = 1 + 0.008 * random.uniform(-0.5, 0.5, (count, len(base)))
    frames = [
        base.assign(
            run=base["run"] + f"-{n}",
            tokens=base["tokens"] * rounding[n],
            flops=base["flops"] * rounding[n],
            loss=base["loss"]
            * np.exp((0 if replicates else curve * (n - best) ** 2) + noise * random.standard_normal(len(base))),
        )
        for n in range(count)
    ]
    rates_names = ["lr", "peak_lr", "x", "optimizer.learning_rate", "bs"]
    names = ["seed", "trainer.seed", "rng", "config/seed"] if replicates else rates_names
    column = str(random.choice(names))
    frames = [frame.assign(**{column: n if replicates else rates[n]}) for n, frame in enumerate(frames)]
    return Made(pd.concat(frames, ignore_index=True), {}, base)


def perplexity(random: Generator) -> Made:
    """Return a table of perplexities, which the column's name states in half of the tables."""
    made = sound(random)
    name = str(random.choice(["eval_ppl", "val_perplexity", "loss", "loss"]))
    frame = made.frame.assign(loss=np.exp(made.frame["loss"])).rename(columns={"loss": name})
    return Made(frame, {"loss": name} if name != "loss" else {}, made.truth)


def perplexity_of_rows(random: Generator) -> Made:
    """Return a table with two perplexities or more among two losses or more."""
    made = sound(random)
    rows = random.random(len(made.frame)) < random.uniform(0.05, 0.95)
    rows[random.permutation(len(rows))[:4]] = [True, True, False, False]
    return replace(made, frame=made.frame.assign(loss=np.where(rows, np.exp(made.frame["loss"]), made.frame["loss"])))


def bits_of_rows(random: Generator) -> Made:
    """Return a table with two losses or more, up to a third, in bits."""
    made = sound(random)
    count = int(random.integers(2, max(3, len(made.frame) // 3)))
    rows = random.permutation(len(made.frame))[:count]
    loss = made.frame["loss"].to_numpy().copy()
    loss[rows] /= np.log(2)
    return replace(made, frame=made.frame.assign(loss=loss))


def checkpoints(random: Generator) -> Made:
    """Return rows of four to eight runs, one of each size, at 4 to 20 steps, in a table without names of runs.

    Steps are equally spaced in all runs or in each, or doubled. Losses of unfinished rows lie above those of finished runs by
    1.5 to 5 % of the loss until the learning rate decays, at the very end or by a cosine.
    """
    params, tokens_a_step = _sizes(random)
    ends = 10.0 ** random.uniform(0.8, 2) * params ** random.integers(2) / tokens_a_step
    ends = np.maximum(np.round(ends / ends.mean() * 10.0 ** random.uniform(3.5, 5)), 100)
    cadence, count = random.choice(["of all runs", "of each run", "doubled"]), int(random.integers(4, 21))
    excess, noise, by_cosine = random.uniform(0.015, 0.05), 10.0 ** random.uniform(-3.3, -2.3), random.random() < 0.5
    law, parts = _law(random), []
    for size, end in zip(params, ends, strict=True):
        step = _steps(end, ends.min() if cadence == "of all runs" else end, count=count, doubled=cadence == "doubled")
        left = (1 + np.cos(np.pi * step / end)) / 2 if by_cosine else np.minimum(1, (1 - step / end) / 0.15)
        of_run = noise * random.standard_normal()
        parts.append(pd.DataFrame({"params": size, "tokens": step * tokens_a_step, "step": step}))
        loss = surface_loss(law, params=np.full(len(step), size), tokens=step * tokens_a_step)
        parts[-1]["loss"] = loss * (1 + excess * left) * np.exp(of_run + noise / 3 * random.standard_normal(len(step)))
    frame = pd.concat(parts, ignore_index=True)
    frame = frame[frame["loss"] < UNTRAINED].reset_index(drop=True)
    frame["flops"] = 6 * frame["params"] * frame["tokens"]
    return Made(frame, {}, frame.copy())


def _steps(end: float, shortest: float, *, count: int, doubled: bool) -> np.ndarray:
    """Return the steps of a run's rows, at most 100 and the last among them."""
    if doubled:
        return np.unique(np.ceil(end / 2.0 ** np.arange(min(count, 9))))
    found = np.arange(1, 100) * max(np.floor(shortest / count), 1)
    return np.append(found[found < end], end)


def _sizes(random: Generator) -> tuple[np.ndarray, float]:
    """Return four to eight sizes over a factor of 5 to 100, and tokens a step."""
    spread = 10.0 ** random.uniform(0.7, 2)
    sizes = np.round(10.0 ** random.uniform(7, 8.3) * np.geomspace(1, spread, random.integers(4, 9)))
    return sizes, 2.0 ** random.integers(14, 20)


def _law(random: Generator) -> SurfaceLaw:
    return SurfaceLaw(
        E=random.uniform(1.4, 2), A=random.uniform(200, 600), B=random.uniform(200, 800), alpha=random.uniform(0.3, 0.38),
        beta=random.uniform(0.25, 0.32),
    )  # fmt: skip


def separate_runs(random: Generator) -> Made:
    """Return finished runs of four to eight sizes with three to eight lengths each, in a table with steps but without names.

    Lengths are the same tokens, the same tokens per parameter (by factors, or up to six by equal steps) or the same FLOPs.
    """
    params, tokens_a_step = _sizes(random)
    design = random.choice(["tokens", "ratio", "equally spaced ratio", "flops"])
    lengths = np.geomspace(1, 10.0 ** random.uniform(0.6, 2), random.integers(3, 9))
    if design == "equally spaced ratio":
        lengths = np.arange(1.0, random.integers(3, 7) + 1)
    power = {"tokens": 0, "flops": -1}.get(str(design), 1)
    tokens = 10.0 ** random.uniform(0.5, 1.5) * np.median(params) * np.outer((params / np.median(params)) ** power, lengths)
    step = np.maximum(np.round(tokens.ravel() / tokens_a_step), 1)
    size = np.repeat(params, len(lengths))
    frame = pd.DataFrame({"params": size, "tokens": step * tokens_a_step, "step": step})
    noise = 10.0 ** random.uniform(-3.3, -2.3) * random.standard_normal(len(frame))
    frame["loss"] = surface_loss(_law(random), params=size, tokens=step * tokens_a_step) * np.exp(noise)
    frame["flops"] = 6 * frame["params"] * frame["tokens"]
    for name, values in _decoys(random, size).items():
        if random.random() < 0.5:
            frame[name] = values
    return Made(frame, {}, frame.copy())


def is_named_as_checkpoints(made: Made) -> bool:
    """Return True if a table has a warning that its rows are checkpoints."""
    table = read(made)
    return table is not None and any(
        each.code == "checkpoints" and each.severity is Severity.WARNING for each in table.findings
    )


def read(made: Made) -> RunTable | None:
    """Return the audited table, None if it was refused."""
    try:
        return table_of_frame(made.frame, columns=made.columns)
    except MarinScalingError:
        return None


def is_named(made: Made) -> bool:
    """Return True if the table was refused, has a finding that lowers its status, or was converted to the truth."""
    table = read(made)
    if table is None or is_doubted(made):
        return True
    return len(table.frame) == len(made.truth) and all(
        np.allclose(table.frame[name], made.truth[name], rtol=1e-6) for name in ("flops", "params", "tokens", "loss")
    )


def is_swept(made: Made) -> bool:
    """Return True if the table is taken as a sweep."""
    table = read(made)
    return table is not None and table.sweep is not None and table.sweep.is_in(table.frame)


def is_disturbed(made: Made) -> bool:
    """Return True if a table without faults is refused, doubted, taken as a sweep, or read with another number."""
    table = read(made)
    if table is None or is_doubted(made) or is_swept(made) or len(table.frame) < len(made.truth):
        return True
    columns = ("flops", "params", "tokens", "loss")
    return not all(np.allclose(table.frame[name], made.truth[name], rtol=1e-9) for name in columns)


def two_conventions(random: Generator) -> bool:
    """Return True if a speedup of the same runs, counted by two conventions, is refused or warned of."""
    made = sound(random)
    ours = read(made)
    theirs = read(replace(made, frame=made.frame.assign(flops=made.frame["flops"] * random.uniform(1.2, 1.5))))
    try:
        report = compare_recipes(ours, theirs, convention="marin") if ours and theirs else None
    except MarinScalingError:
        return True
    return report is None or any("convention" in each for each in report.warnings)


WRONG: dict[str, Callable[[Generator], bool]] = {
    "a column in another unit": lambda random: is_named(unit_of_a_column(random)),
    "rows in another unit": lambda random: is_named(units_of_rows(random)),
    "64-bit overflow": lambda random: is_named(overflow(random)),
    "budgets counted by another convention": lambda random: is_named(convention_of_budgets(random)),
    "speedup across two conventions": two_conventions,
    "two to five kinds of runs": lambda random: is_named(groups(random)),
    "two kinds in few noisy runs": lambda random: is_doubted(small_groups(random)),
    "swept learning rates": lambda random: is_swept(sweep(random)),
    "perplexities": lambda random: is_named(perplexity(random)),
    "some losses are perplexities": lambda random: is_named(perplexity_of_rows(random)),
    "some losses in bits": lambda random: is_named(bits_of_rows(random)),
    "checkpoints of unnamed runs": lambda random: is_named_as_checkpoints(checkpoints(random)),
}
BOUND: dict[str, Callable[[Generator], bool]] = {
    "two kinds in few noisy runs, where their law is known": lambda random: is_decidable(small_groups(random)),
}
CORRECT: dict[str, Callable[[Generator], bool]] = {
    "grids without a fault": lambda random: is_disturbed(sound(random)),
    "noisy grids without a fault": lambda random: is_doubted(noisy(random)),
    "seeds, taken as a sweep": lambda random: is_swept(sweep(random, replicates=True)),
    "unnamed runs with steps": lambda random: is_disturbed(separate_runs(random)),
}


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--count", type=int, default=1000, help="tables of each kind")
    chosen = options.parse_args()
    rows = []
    limits = {"wrong": f"at least {LEAST_FOUND:.0%}", "correct": f"at most {MOST_DISTURBED:.0%}", "bound": ""}
    for judged, kinds in (("wrong", WRONG), ("correct", CORRECT), ("bound", BOUND)):
        for place, (kind, check) in enumerate(kinds.items()):
            hits = sum(check(np.random.default_rng([place, n])) for n in range(chosen.count))
            share = hits / chosen.count
            rows.append([judged, kind, f"{chosen.count:,}", f"{share:.1%}", limits[judged]])
            print(rows[-1], flush=True)
    publish(
        "Audits of generated tables",
        columns=["tables", "kind", "count", "refused, named or mended", "wanted"],
        rows=rows,
        packages=["numpy", "scipy", "pandas"],
        notes=[
            "Of correct tables the share is of those that were disturbed: refused, doubted, or read otherwise.",
            "Two kinds in few noisy runs: the audit fits a surface of six coefficients to 14 to 23 runs. The bound is the "
            "share that its test would name if it knew the law; the gap is what the six coefficients cost.",
        ],
        write=chosen.write,
    )


if __name__ == "__main__":
    main()
