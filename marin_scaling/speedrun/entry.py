"""Planned speedrun entry, and its cost before training."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from marin_scaling.accelerators import Machine, accelerator
from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.errors import DocumentError, Finding, error
from marin_scaling.ladder.config import Compute, Data, Evaluation, Seeds
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import RECIPE_FILES, find_recipe
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.run.plan import data_of, model_of, optimizer_of, run_spec
from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import StoredRun
from marin_scaling.speedrun.checks import trial_findings
from marin_scaling.speedrun.from_runs import held_out_set, submission_from_runs
from marin_scaling.speedrun.submission import LEVANTER_FLOPS, SUBMISSION_NAME, Author, Lineage, Submission
from marin_scaling.speedrun.track import Claim, Track, claim_findings
from marin_scaling.strict_model import Part
from marin_scaling.units import format_count, format_duration, format_flops, format_number
from marin_scaling.untrusted_files import is_present
from marin_scaling.untrusted_text import Line, Name, Words
from marin_scaling.yaml_config import read_part

RUNS_PREFIX = "speedrun-"
"""Prefix of the folders of entries' runs in the store, which are not ladders."""


class Entry(Part):
    """Entry to train and submit."""

    name: Name
    """Unique name on the board; the part before the last slash is the scaling group."""
    track: Name
    """Track of the submission."""
    author: Author
    """Author of the entry."""
    description: Words = ""
    """Description of what is new."""
    recipe: str
    """Recipe that makes a run of the budget and width: a name or a recipe file."""
    budget_flops: float = Field(gt=0)
    """Training FLOPs of each run by the recipe's own formula; the board's count adds the output head."""
    hidden_dim: int = Field(gt=0)
    """Width; the recipe sets the other sizes."""
    batch_size: int | None = Field(default=None, gt=0)
    """Sequences per step; default: the recipe's."""
    seeds: Seeds = (0, 1, 2)
    """Seeds, one run each."""
    trials: int = Field(gt=0)
    """Number of runs made to choose the settings, including these."""
    parent: Name | None = None
    """Submission that this entry changes."""
    changes: tuple[Line, ...] = ()
    """Changes from the parent, one per line."""
    data: Data = Data()
    """Training data, as in a ladder file."""
    evaluation: Evaluation = Evaluation()
    """Metric and held-out text, as in a ladder file."""
    compute: Compute = Compute()
    """Computation of the steps, as in a ladder file."""

    @field_validator("data")
    @classmethod
    def _has_no_target(cls, data: Data) -> Data:
        if data.horizon == "target":
            raise ValueError("an entry has no target; give the number of tokens, as in horizon: 1e11")
        return data

    @property
    def runs_folder(self) -> str:
        """Folder of the runs in the store: `speedrun-` and the name in small letters, digits and hyphens."""
        return RUNS_PREFIX + re.sub(r"[^a-z0-9]+", "-", self.name.lower())


def read_entry(path: Path) -> Entry:
    """Read the entry in a YAML file; `DocumentError` names file, line and key of each fault."""
    return read_part(path, Entry, noun="an entry", refused=_refused)


_RUN = "marin-scale speedrun run"


def entry_of(submission: Submission) -> Path | None:
    """Return the entry file that `marin-scale speedrun run` trained, from the repository's root; None if there is none."""
    code = submission.code
    if code is None or code.path is None or code.repository is not None or not (code.command or "").startswith(_RUN):
        return None
    path = Path(code.path)
    return None if path.is_absolute() or ".." in path.parts else path


def recipe_files(entry: Entry, *, root: Path) -> list[Path]:
    """Return the entry's recipe file and the others in its folder, which it can name as its base; empty without one."""
    path = Path(entry.recipe)
    if path.suffix not in RECIPE_FILES or path.is_absolute() or ".." in path.parts:
        return []
    return sorted({root / path, *(each for each in (root / path.parent).glob("*") if each.suffix in RECIPE_FILES)})


def entry_plan(entry: Entry) -> RungPlan:
    """Return the recipe's plan of the entry; `RecipeError` if the recipe cannot make it."""
    recipe = find_recipe(entry.recipe)
    return recipe.plan(budget_flops=entry.budget_flops, hidden_dim=entry.hidden_dim, batch_size=entry.batch_size)


def entry_specs(entry: Entry, *, corpus: TokenCorpus) -> list[RunSpec]:
    """Return the spec of each seed; `DataError` if the text is unsuitable."""
    plan = entry_plan(entry)
    horizon = entry.data.horizon
    simulated = round(horizon) if isinstance(horizon, float) else None
    return [
        run_spec(entry, plan, ladder=entry.runs_folder, seed=seed, corpus=corpus, horizon_tokens=simulated)
        for seed in entry.seeds
    ]


def name_findings(entry: Entry, *, folder: Path) -> Iterator[Finding]:
    """Yield an error if the folder of submissions has one of the entry's name, which `run` would not overwrite."""
    if is_present(path := folder / entry.name / SUBMISSION_NAME):
        said = f"{path} exists already; rename the entry, or delete that folder if it is yours and not yet merged"
        yield error("name", "name", said)


def planned_claim(
    entry: Entry,
    plan: RungPlan,
    *,
    track: Track | None,
    corpus: TokenCorpus | None = None,
    machine: Machine | None = None,
) -> Claim:
    """Return the facts of an entry before training; digests of its text only with its `corpus`.

    A `machine` gives the smallest time, that at an MFU of 1.
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
    """Return the submission of an entry's finished runs; `path` is the entry's file, used to retrain it."""
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
    document["code"] = {**document["code"], "path": path.as_posix(), "command": f"{_RUN} {path.as_posix()}"}
    document["absent"] = {key: why for key, why in made.absent.items() if key not in ("code.path", "code.command")}
    if entry.parent is not None:
        document["lineage"] = Lineage(parent=entry.parent, changes=entry.changes).model_dump()
    return Submission.model_validate(document)


def _refused(what: str | tuple[str, ...]) -> DocumentError:
    return DocumentError(
        what,
        why="An entry is checked before training.",
        fix="Fix the named keys; site/reference/submission-files.md lists all keys.",
    )


MFU_RANGE = (0.5, 0.2)
"""Best and worst MFU of the cost estimate."""


def run_info(
    entry: Entry,
    plan: RungPlan,
    *,
    machine: Machine | None,
    tracks: Mapping[str, Track],
    price_per_chip_hour: float | None,
    folder: Path,
) -> dict[str, Any]:
    """Return sizes, FLOPs and cost as a document; values that need a machine are None without one.

    `price_per_chip_hour` is in US dollars; `folder` is that of submissions. FLOPs are the board's, with the output head.
    """
    track = tracks.get(entry.track)
    claim = planned_claim(entry, plan, track=track, machine=machine)
    counted = trial_findings(entry.trials, runs=len(entry.seeds))
    findings = [*name_findings(entry, folder=folder), *counted, *claim_findings(claim, tracks)]
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
        "hardware_of_track": list(track.hardware) if track else [],
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
    """Return `run_info` as text, configuration first."""
    model, optimizer = (_line(info[key]) for key in ("model", "optimizer"))
    flops, total = (format_flops(info[key]) for key in ("model_flops", "model_flops_of_all_seeds"))
    tokens = format_count(info["trained_tokens"])
    lines = [
        f"{info['name']}, track {info['track']}, recipe {info['recipe']}",
        f"model      {model}",
        f"optimizer  {optimizer}",
        f"size       {format_count(info['params_total'])} parameters, {format_count(info['params_active'])} active",
        f"training   {info['train_steps']} steps of {info['batch_size']} sequences: {tokens} tokens",
        f"FLOPs      {flops} per run, {total} for all {len(info['seeds'])} seeds",
        f"formula    {info['model_flops_formula']}",
        "hardware   " + _range(info["hardware_flops"], lambda value: f"{format_flops(value)} FLOPs") + " per run",
        *_machine_lines(info["machine"], allowed=info["hardware_of_track"]),
        *(f"warning: {doubt}" for doubt in info["doubts"]),
        *(f"rule       {rule}" for rule in info["rules"] or ()),
        *(f"{each['severity']}: {each['where']}: {each['message']}" for each in info["findings"]),
    ]
    return "\n".join(lines)


def _line(part: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {format_number(value)}" if isinstance(value, float) else f"{key} {value}" for key, value in part.items()
    )


def _range(values: Mapping[str, float], shown: Any) -> str:
    return " to ".join(f"{shown(value)} ({key})" for key, value in values.items())


def _machine_lines(machine: Mapping[str, Any] | None, *, allowed: Sequence[str]) -> list[str]:
    if machine is None:
        kind = allowed[0] if allowed else "h100"
        peak = "" if accelerator(kind) else " --peak FLOPS, the dense peak of one chip or core in FLOP/s"
        return [f"machine    unknown; for time and cost add --hardware {shlex.quote(kind)}{peak}"]
    each, together = (f"{machine[key] / 1e12:.6g} TFLOP/s" for key in _PEAKS)
    lines = [
        f"machine    {machine['chips']} x {machine['kind']}, {each} each, {together} together (dense)",
        f"time       {_range(machine['seconds'], format_duration)} per run",
    ]
    if machine["us_dollars"] is not None:
        lines.append(
            f"cost       {_range(machine['us_dollars'], lambda value: f'{format_number(value, 3)} US dollars')} per run"
        )
    return lines


_PEAKS = ("peak_flops_per_second_of_a_chip", "peak_flops_per_second")
