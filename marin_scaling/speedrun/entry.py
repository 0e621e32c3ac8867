"""Speedrun entries: their file, size and cost before training, and their submission."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.errors import DocumentError
from marin_scaling.ladder.config import Compute, Data, Evaluation
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import find_recipe
from marin_scaling.recipe.flops import WITH_LM_HEAD, training_flops
from marin_scaling.run.plan import data_of, model_of, optimizer_of, run_spec
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import StoredRun
from marin_scaling.speedrun.from_runs import held_out_set, submission_from_runs
from marin_scaling.speedrun.hardware import Machine
from marin_scaling.speedrun.submission import LEVANTER_FLOPS, Author, Lineage, Submission
from marin_scaling.speedrun.track import Claim, Track, claim_findings
from marin_scaling.strict_model import Part
from marin_scaling.units import format_count, format_duration, format_flops
from marin_scaling.untrusted_text import Line, Name, Words
from marin_scaling.yaml_config import read_part

RUNS_PREFIX = "speedrun-"
"""What the folders of entries' runs in the store begin with, which are no ladders."""


class Entry(Part):
    """What is to be trained and submitted."""

    name: Name
    """Unique on the board; the part before the last slash is its scaling group."""
    track: Name
    """For which it is submitted."""
    author: Author
    """Who made it."""
    description: Words = ""
    """What is new in it."""
    recipe: str
    """What turns the budget and the width into a run: a name, or a recipe file."""
    budget_flops: float = Field(gt=0)
    """Training FLOPs of each run, by the recipe's own formula; what the board counts has the output head in it."""
    hidden_dim: int = Field(gt=0)
    """Width; the recipe makes the rest of the shape."""
    batch_size: int | None = Field(default=None, gt=0)
    """Sequences a step; else the recipe's."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 1, 2), min_length=1)
    """A run for each."""
    trials: int = Field(gt=0)
    """How many runs were made to choose its settings, these among them."""
    parent: Name | None = None
    """The submission that it changes."""
    changes: tuple[Line, ...] = ()
    """What was changed, a line each."""
    data: Data = Data()
    """What is trained on, as in a ladder file."""
    evaluation: Evaluation = Evaluation()
    """What is measured, as in a ladder file."""
    compute: Compute = Compute()
    """How the steps are computed, as in a ladder file."""

    @field_validator("seeds")
    @classmethod
    def _no_seed_twice(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed stands twice in {', '.join(map(str, seeds))}")
        return seeds

    @property
    def runs_folder(self) -> str:
        """Where its runs lie in the store: `speedrun-` and its name in small letters, digits and hyphens."""
        return RUNS_PREFIX + re.sub(r"[^a-z0-9]+", "-", self.name.lower())


def read_entry(path: Path) -> Entry:
    """The entry in a YAML file; `DocumentError` says file, line and key of what is wrong."""
    return read_part(path, Entry, noun="an entry", refused=_refused)


def entry_plan(entry: Entry) -> RungPlan:
    """What its recipe makes of it; `RecipeError` where it makes no such run."""
    recipe = find_recipe(entry.recipe)
    return recipe.plan(budget_flops=entry.budget_flops, hidden_dim=entry.hidden_dim, batch_size=entry.batch_size)


def entry_specs(entry: Entry, *, corpus: TokenCorpus) -> list[RunSpec]:
    """The spec of each seed; `DataError` where the text does not do for it."""
    plan = entry_plan(entry)
    return [run_spec(entry, plan, ladder=entry.runs_folder, seed=seed, corpus=corpus) for seed in entry.seeds]


def planned_claim(
    entry: Entry,
    plan: RungPlan,
    *,
    track: Track | None,
    corpus: TokenCorpus | None = None,
    machine: Machine | None = None,
) -> Claim:
    """Return what is known of an entry before its training; digests of its text only with its `corpus`.

    On a `machine` it takes at least the seconds of an MFU of 1.
    """
    flops = training_flops(plan.shape, tokens=plan.trained_tokens, convention=WITH_LM_HEAD)
    held_out = held_out_set(entry.data.validation, asked=track.evaluation_name if track else None)
    data = None if corpus is None else data_of(corpus)
    measured = None if data is None else data.held_out[held_out].digest if held_out in data.held_out else data.digest
    return Claim(
        is_plan=True,
        track=entry.track,
        costs={
            "model_flops": flops,
            "parameters": plan.shape.params_total,
            "trained_tokens": plan.trained_tokens,
            "seconds": flops / machine.peak_flops_per_second if machine else None,
        },
        hardware=machine.accelerator.kind if machine else None,
        chips=machine.chips if machine else None,
        data_name=entry.data.source,
        data_digest=data.digest if data else None,
        unique_tokens=data.tokens if data else None,
        evaluation_name=held_out or ", ".join(entry.data.validation) or entry.data.source,
        evaluation_digest=measured,
        seeds=len(entry.seeds),
    )


def submission_of(entry: Entry, runs: Sequence[StoredRun], *, path: Path, track: Track | None = None) -> Submission:
    """The submission of an entry's finished runs; `path` is the entry's file, from which anyone can train it again."""
    made = submission_from_runs(
        runs,
        name=entry.name,
        track=entry.track,
        author=entry.author,
        description=entry.description,
        trials=entry.trials,
        held_out=track.evaluation_name if track else None,
    )
    document = made.model_dump(exclude_none=True)
    document["code"] = {**document["code"], "path": path.as_posix(), "command": f"marin-scale speedrun run {path.as_posix()}"}
    document["absent"] = {key: why for key, why in made.absent.items() if key not in ("code.path", "code.command")}
    if entry.parent is not None:
        document["lineage"] = Lineage(parent=entry.parent, changes=entry.changes).model_dump()
    return Submission.model_validate(document)


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="Every choice of an entry is written down and checked before anything is trained.",
        fix="Correct the file: the keys are in the reference of submission files.",
    )


MFU_RANGE = (0.5, 0.2)
"""From the best to the worst that is planned for."""


def run_info(
    entry: Entry,
    plan: RungPlan,
    *,
    machine: Machine | None,
    tracks: Mapping[str, Track],
    price_per_chip_hour: float | None,
) -> dict[str, Any]:
    """Return size, cost and broken rules of an entry as a document; time and price are None without a machine.

    `price_per_chip_hour` is in US dollars. FLOPs are those that the board counts, with the output head.
    """
    track = tracks.get(entry.track)
    findings = list(claim_findings(planned_claim(entry, plan, track=track, machine=machine), tracks))
    flops = training_flops(plan.shape, tokens=plan.trained_tokens, convention=WITH_LM_HEAD)
    return {
        "name": entry.name,
        "track": entry.track,
        "recipe": plan.recipe,
        "model": model_of(plan).model_dump(mode="json"),
        "optimizer": optimizer_of(plan).model_dump(mode="json"),
        "params_total": plan.shape.params_total,
        "params_active": plan.shape.params_active,
        "batch_size": plan.batch_size,
        "train_steps": plan.train_steps,
        "trained_tokens": plan.trained_tokens,
        "seeds": list(entry.seeds),
        "model_flops": flops,
        "model_flops_of_all_seeds": flops * len(entry.seeds),
        "model_flops_formula": LEVANTER_FLOPS,
        "hardware_flops": {f"mfu {mfu}": flops / mfu for mfu in MFU_RANGE},
        "machine": None if machine is None else _on(machine, flops, price_per_chip_hour=price_per_chip_hour),
        "rules": track.rules() if track else None,
        "findings": [vars(each) for each in findings],
        "doubts": list(plan.doubts),
    }


def _on(machine: Machine, flops: float, *, price_per_chip_hour: float | None) -> dict[str, Any]:
    seconds = {mfu: flops / mfu / machine.peak_flops_per_second for mfu in MFU_RANGE}
    price = None if price_per_chip_hour is None else price_per_chip_hour / 3600 * machine.chips
    return {
        "kind": machine.accelerator.kind,
        "chips": machine.chips,
        "peak_flops_per_second_of_a_chip": machine.accelerator.peak_flops_per_second,
        "peak_flops_per_second": machine.peak_flops_per_second,
        "seconds": {f"mfu {mfu}": value for mfu, value in seconds.items()},
        "us_dollars": None if price is None else {f"mfu {mfu}": value * price for mfu, value in seconds.items()},
    }


def run_info_text(info: Mapping[str, Any]) -> str:
    """The same for a reader, configuration first."""
    model, optimizer = (_line(info[key]) for key in ("model", "optimizer"))
    flops, tokens = info["model_flops"], format_count(info["trained_tokens"])
    lines = [
        f"{info['name']}, for the track {info['track']}, by the recipe {info['recipe']}",
        f"model      {model}",
        f"optimizer  {optimizer}",
        f"size       {format_count(info['params_total'])} parameters, {format_count(info['params_active'])} of them active",
        f"training   {info['train_steps']} steps of {info['batch_size']} sequences: {tokens} tokens",
        f"FLOPs      {format_flops(flops)} a run ({info['model_flops_formula']}), {len(info['seeds'])} seeds: "
        f"{format_flops(info['model_flops_of_all_seeds'])}",
        "hardware   " + _range(info["hardware_flops"], lambda value: f"{format_flops(value)} FLOPs") + " a run",
        *_machine_lines(info["machine"]),
        *(f"note: {doubt}" for doubt in info["doubts"]),
        *(f"rule       {rule}" for rule in info["rules"] or ()),
        *(f"{each['severity']}: {each['where']}: {each['message']}" for each in info["findings"]),
    ]
    return "\n".join(lines)


def _line(part: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}" for key, value in part.items())


def _range(values: Mapping[str, float], shown: Any) -> str:
    return " to ".join(f"{shown(value)} ({key})" for key, value in values.items())


def _machine_lines(machine: Mapping[str, Any] | None) -> list[str]:
    if machine is None:
        return ["machine    not named, so that time and cost are not told: --hardware"]
    each, together = (f"{machine[key] / 1e12:.6g} TFLOP/s" for key in _PEAKS)
    lines = [
        f"machine    {machine['chips']} x {machine['kind']}, {each} each, {together} together (dense)",
        f"time       {_range(machine['seconds'], format_duration)} a run",
    ]
    if machine["us_dollars"] is not None:
        lines.append(f"cost       {_range(machine['us_dollars'], lambda value: f'{value:.3g} US dollars')} a run")
    return lines


_PEAKS = ("peak_flops_per_second_of_a_chip", "peak_flops_per_second")
