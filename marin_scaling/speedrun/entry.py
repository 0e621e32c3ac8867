"""Planned speedrun entry, and its cost before training."""

from __future__ import annotations

import difflib
import glob
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from marin_scaling.accelerators import Machine, accelerator
from marin_scaling.data.corpus import TokenCorpus
from marin_scaling.errors import DocumentError, Finding, StorageError, warning
from marin_scaling.files import new_folder, replace_file
from marin_scaling.ladder.config import Compute, Data, Evaluation, Seeds
from marin_scaling.printable import joined, quoted, wrapped
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.find import RECIPE_FILES, find_recipe
from marin_scaling.recipe.model_shape import OWN_COUNT, WITH_LM_HEAD, XLA_COUNT, training_flops
from marin_scaling.run.plan import OwnPlan, data_of, model_of, optimizer_of, run_spec
from marin_scaling.run.spec import BatchStage, RunSpec
from marin_scaling.run.store import StoredRun
from marin_scaling.speedrun.checks import count_findings, trial_findings
from marin_scaling.speedrun.from_runs import held_out_set, submission_from_runs
from marin_scaling.speedrun.own_classes import OwnClasses, own_plan
from marin_scaling.speedrun.submission import LEVANTER_FLOPS, SUBMISSION_NAME, Author, Lineage, Submission, compared_flops
from marin_scaling.speedrun.track import TRACKS_DIR, Claim, Track, claim_findings, read_tracks
from marin_scaling.strict_model import IN_WORDS, NAME_PATTERN, FileName, Part
from marin_scaling.units import counted, format_count, format_duration, format_flops, format_number
from marin_scaling.untrusted_files import is_present
from marin_scaling.untrusted_text import Line, Name, Words
from marin_scaling.yaml_config import read_part

RUNS_PREFIX = "speedrun-"
"""Prefix of the folders of entries' runs in the store, which are not ladders."""


def _with_type(section: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if not isinstance(section.get("type"), str):
        raise ValueError("type is missing; it is Levanter's name of the class, as in type: llama")
    return section


Class = Annotated[dict[str, JsonValue], AfterValidator(_with_type)]
"""A section with the name of a class, `type`, and its settings."""


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
    recipe: str | None = None
    """Recipe that makes a run of the budget and width: a name or a recipe file. Instead, `model` and `optimizer`."""
    budget_flops: float | None = Field(default=None, gt=0)
    """Training FLOPs of each run by the recipe's own formula; the board's count adds the output head."""
    hidden_dim: int | None = Field(default=None, gt=0)
    """Width; the recipe sets the other sizes."""
    model: Class | None = None
    """Model by Levanter's name, with the settings of its class: `{type: llama, hidden_dim: 64, ...}`."""
    optimizer: Class | None = None
    """Optimizer by Levanter's name, with its settings and schedule: `{type: muon, learning_rate: 0.02}`."""
    steps: int | None = Field(default=None, gt=0)
    """Optimizer steps of an entry with a `model`."""
    z_loss_weight: float = Field(default=0.0, ge=0)
    """Weight of the squared log-normalizer of the output in the training loss of an entry with a `model`."""
    code: FileName | None = None
    """Python file next to the entry that registers classes for `model` and `optimizer`."""
    batch_size: Annotated[int, Field(gt=0)] | Annotated[tuple[BatchStage, ...], Field(min_length=1)] | None = None
    """Sequences per step; default: the recipe's. With a `model` also a schedule: `[{start: 0, value: 8}, ...]`."""
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

    @model_validator(mode="after")
    def _names_a_recipe_or_a_model(self) -> Entry:
        of_recipe = {"recipe": self.recipe, "budget_flops": self.budget_flops, "hidden_dim": self.hidden_dim}
        of_model = {"model": self.model, "optimizer": self.optimizer, "steps": self.steps, "batch_size": self.batch_size}
        wanted, others = (of_model, of_recipe) if self.model or self.optimizer else (of_recipe, {**of_model, "code": self.code})
        if missing := [key for key, value in wanted.items() if value is None]:
            raise ValueError(f"{joined(missing)} missing; an entry has {joined(of_recipe)}, or {joined(of_model)}")
        if further := [key for key, value in others.items() if value is not None and key != "batch_size"]:
            raise ValueError(f"{joined(further)} cannot be combined with {next(iter(wanted))}")
        stages = self.batch_stages
        if self.recipe and not isinstance(self.batch_size, int | None):
            raise ValueError("a schedule of batch_size needs a model; a recipe has one batch size")
        starts = [stage.start for stage in stages]
        if stages and (starts[0] or sorted(set(starts)) != starts or starts[-1] >= (self.steps or math.inf)):
            said = f"the stages of batch_size start at steps {joined(map(str, starts))}"
            raise ValueError(f"{said}; they must start at 0, rise, and end before steps, {self.steps}")
        return self

    @property
    def batch_stages(self) -> tuple[BatchStage, ...]:
        """Stages of the batch size: one that starts at step 0 for a number, none for the recipe's."""
        if isinstance(self.batch_size, int):
            return (BatchStage(start=0, value=self.batch_size),)
        return self.batch_size or ()

    @property
    def own_classes(self) -> OwnClasses | None:
        """Classes of model and optimizer; None for an entry of a recipe."""
        if self.model is None or self.optimizer is None or self.steps is None:
            return None
        return OwnClasses(
            model=self.model,
            optimizer=self.optimizer,
            code=self.code,
            batch_stages=self.batch_stages,
            steps=self.steps,
            z_loss_weight=self.z_loss_weight,
            tokenizer=self.data.tokenizer,
            end_token=self.data.end_token,
        )

    @property
    def runs_folder(self) -> str:
        """Folder of the runs in the store: `speedrun-` and the name in small letters, digits and hyphens."""
        return RUNS_PREFIX + re.sub(r"[^a-z0-9]+", "-", self.name.lower())


def read_entry(path: Path) -> Entry:
    """Read the entry in a YAML file; `DocumentError` names file, line and key of each fault."""
    return read_part(path, Entry, noun="an entry", refused=_refused)


_RUN, SUBMIT = "marin-scale speedrun run", "marin-scale speedrun submit"


def entry_of(submission: Submission) -> Path | None:
    """Return the entry file that `speedrun run` trained or `speedrun submit` was given, from the repository's root, or None."""
    code = submission.code
    if code is None or code.path is None or code.repository is not None or not (code.command or "").startswith((_RUN, SUBMIT)):
        return None
    path = Path(code.path)
    return None if path.is_absolute() or ".." in path.parts else path


def is_logged(submission: Submission) -> bool:
    """Return True for an entry whose runs another trainer made, by their logs."""
    return submission.code is not None and (submission.code.command or "").startswith(SUBMIT)


def entry_files(entry: Entry, path: Path, *, root: Path) -> list[Path]:
    """Return the other files that determine the runs of the entry at `path`: its Python file or its recipe file.

    Recipe files of the same folder belong to it, because a recipe can name them as its base.
    """
    if entry.code is not None:
        return [path.parent / entry.code]
    recipe = Path(entry.recipe or "")
    if recipe.suffix not in RECIPE_FILES or recipe.is_absolute() or ".." in recipe.parts:
        return []
    beside = (each for each in (root / recipe.parent).glob("*") if each.suffix in RECIPE_FILES)
    return sorted({root / recipe, *beside})


_STARTER = Path(__file__).parent / "starter"


def write_starter(folder: Path, *, name: str, track: str, author: str) -> Path:
    """Write an entry with a model and an optimizer of its own into `entries/NAME/` of the `folder`, and return its path.

    `DocumentError` for a name that no entry may have, `StorageError` if its folder exists.
    """
    place = folder / "entries" / name
    for each in (name, track):
        if re.fullmatch(NAME_PATTERN, each) is None:
            raise DocumentError(f"{quoted(each)!r} must be {IN_WORDS[NAME_PATTERN]}.", fix="Change it, as in ada/gated.")
    tracks = read_tracks(folder / TRACKS_DIR)
    if tracks and track not in tracks:
        near = joined(difflib.get_close_matches(track, tracks, n=2, cutoff=0.5), separator=" or ") or joined(tracks)
        raise DocumentError(f"{folder / TRACKS_DIR / track}.yaml does not exist.", fix=f"Name a track: {near}.")
    if is_present(place):
        raise StorageError(f"{place} exists already.", fix="Choose another name, or remove that folder.")
    text = (_STARTER / "entry.yaml").read_text().format(name=name, track=track, author=json.dumps(author))
    with new_folder(place) as inside:
        replace_file(inside / "entry.yaml", text.encode())
        replace_file(inside / "model.py", (_STARTER / "model.py.txt").read_bytes())
        read_entry(inside / "entry.yaml")
    return place / "entry.yaml"


def entry_plan(entry: Entry, *, path: Path = Path()) -> RungPlan | OwnPlan:
    """Return the plan of the entry at `path`; `RecipeError` if its recipe cannot make it.

    This runs the code of an entry that has some.
    """
    if (own := entry.own_classes) is not None:
        return own_plan(own, path=path)
    assert entry.recipe is not None  # as the entry's validator requires
    assert entry.budget_flops is not None
    assert entry.hidden_dim is not None
    batch = entry.batch_size if isinstance(entry.batch_size, int) else None
    return find_recipe(entry.recipe).plan(budget_flops=entry.budget_flops, hidden_dim=entry.hidden_dim, batch_size=batch)


def entry_specs(entry: Entry, plan: RungPlan | OwnPlan, *, corpus: TokenCorpus) -> list[RunSpec]:
    """Return the spec of each seed; `DataError` if the text is unsuitable."""
    horizon = entry.data.horizon
    simulated = round(horizon) if isinstance(horizon, float) else None
    return [
        run_spec(entry, plan, ladder=entry.runs_folder, seed=seed, corpus=corpus, horizon_tokens=simulated)
        for seed in entry.seeds
    ]


def name_findings(entry: Entry, *, folder: Path) -> Iterator[Finding]:
    """Yield a warning if the folder of submissions has one of the entry's name, which `run` does not overwrite."""
    if is_present(path := folder / entry.name / SUBMISSION_NAME):
        said = f"{path} exists already; rename the entry, or delete that folder if it is yours and not yet merged"
        yield warning("name", "name", said)


def planned_claim(
    entry: Entry,
    plan: RungPlan | OwnPlan,
    *,
    track: Track | None,
    corpus: TokenCorpus | None = None,
    machine: Machine | None = None,
) -> Claim:
    """Return the facts of an entry before training; digests of its text only with its `corpus`.

    A `machine` gives the smallest time, that at an MFU of 1.
    """
    flops = _compared_flops(plan)
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


def _compared_flops(plan: RungPlan | OwnPlan) -> float:
    """Return the model FLOPs of a run that the board compares."""
    own = training_flops(plan.shape, tokens=plan.trained_tokens, convention=WITH_LM_HEAD)
    if not isinstance(plan, OwnPlan):
        return own
    return compared_flops(own, plan.xla_gradient_flops, has_code=plan.code is not None)


def _formula(plan: RungPlan | OwnPlan) -> str:
    """Return the name of the count that `_compared_flops` gives."""
    if not isinstance(plan, OwnPlan):
        return LEVANTER_FLOPS
    return OWN_COUNT if _compared_flops(plan) == plan.budget_flops else XLA_COUNT


def submission_of(
    entry: Entry,
    runs: Sequence[StoredRun],
    *,
    path: Path,
    plan: RungPlan | OwnPlan,
    track: Track | None = None,
) -> Submission:
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
    return Submission.model_validate(document | of_entry(document, entry, plan=plan))


def of_entry(document: Mapping[str, Any], entry: Entry, *, plan: RungPlan | OwnPlan) -> dict[str, Any]:
    """Return the sections of a submission that its entry determines: counts of own classes, and the parent."""
    found = {}
    if isinstance(plan, OwnPlan):
        counted = {"xla_flops": plan.xla_flops, "xla_gradient_flops": plan.xla_gradient_flops}
        compared = {"model_flops": _compared_flops(plan), "model_flops_formula": _formula(plan)}
        found["compute"] = {**document["compute"], **counted, **compared}
    if entry.parent is not None:
        found["lineage"] = Lineage(parent=entry.parent, changes=entry.changes).model_dump()
    return found


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
    plan: RungPlan | OwnPlan,
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
    trials = trial_findings(entry.trials, runs=len(entry.seeds))
    own = training_flops(plan.shape, tokens=plan.trained_tokens, convention=WITH_LM_HEAD)
    other = list[Finding]()
    if isinstance(plan, OwnPlan):
        other += count_findings(own=own, xla=plan.xla_gradient_flops, has_code=plan.code is not None)
    other += [warning("data", "data", f"{each}: there is no such file or folder here") for each in _missing_places(entry)]
    findings = [*name_findings(entry, folder=folder), *trials, *claim_findings(claim, tracks), *other]
    flops = _compared_flops(plan)
    return {
        "name": entry.name,
        "track": entry.track,
        "recipe": plan.recipe,
        "model": model_of(plan).model_dump(mode="json"),
        "optimizer": optimizer_of(plan).model_dump(mode="json"),
        "params_total": plan.shape.params_total,
        "params_active": plan.shape.params_active,
        "batch_size": plan.batch_size,
        "batch_schedule": [stage.model_dump() for stage in plan.batch_schedule] if isinstance(plan, OwnPlan) else [],
        "train_steps": plan.train_steps,
        "trained_tokens": plan.trained_tokens,
        "seeds": list(entry.seeds),
        "model_flops": flops,
        "model_flops_of_all_seeds": flops * len(entry.seeds),
        "model_flops_formula": _formula(plan),
        "model_flops_by_class": own if isinstance(plan, OwnPlan) else None,
        "xla_gradient_flops": plan.xla_gradient_flops if isinstance(plan, OwnPlan) else None,
        "xla_flops": plan.xla_flops if isinstance(plan, OwnPlan) else None,
        "hardware_flops": {f"mfu {mfu}": flops / mfu for mfu in MFU_RANGE},
        "machine": None if machine is None else _on(machine, flops, price_per_chip_hour=price_per_chip_hour),
        "rules": track.rules() if track else None,
        "hardware_of_track": list(track.hardware) if track else [],
        "findings": [vars(each) for each in findings],
        "doubts": list(plan.doubts),
    }


def _missing_places(entry: Entry) -> list[str]:
    return [each for each in entry.data.local_places if not glob.glob(each, recursive=True)]


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
    model, optimizer = (_line(_flat(info[key])) for key in ("model", "optimizer"))
    flops, total = (format_flops(info[key]) for key in ("model_flops", "model_flops_of_all_seeds"))
    tokens = format_count(info["trained_tokens"])
    made_by = "own model" if info["xla_flops"] else f"recipe {info['recipe']}"
    batches = joined(f"{each['value']} from step {each['start']}" for each in info["batch_schedule"]) or info["batch_size"]
    lines = [
        f"{info['name']}, track {info['track']}, {made_by}",
        f"model      {model}",
        f"optimizer  {optimizer}",
        f"size       {format_count(info['params_total'])} parameters, {format_count(info['params_active'])} active",
        f"training   {info['train_steps']} steps of {batches} sequences: {tokens} tokens",
        f"FLOPs      {flops} per run, {total} for {counted(len(info['seeds']), 'seed')}",
        f"formula    {info['model_flops_formula']}",
        *_count_lines(info),
        "hardware   " + _range(info["hardware_flops"], lambda value: f"{format_flops(value)} FLOPs") + " per run",
        *_machine_lines(info["machine"], allowed=info["hardware_of_track"]),
        *(f"warning: {doubt}" for doubt in info["doubts"]),
        *(f"rule       {rule}" for rule in info["rules"] or ()),
        *(f"{each['severity']}: {each['where']}: {each['message']}" for each in info["findings"]),
    ]
    return "\n".join(wrapped(line, hang=_HANG) for line in lines)


_HANG = 11  # the width of a line's first word


def _count_lines(info: Mapping[str, Any]) -> list[str]:
    """Return both counts of a model whose class counts its FLOPs."""
    if info["xla_flops"] is None:
        return []
    own, gradients, whole = (format_flops(info[key]) for key in ("model_flops_by_class", "xla_gradient_flops", "xla_flops"))
    return [f"counts     {own} by class, {gradients} by XLA, {whole} by XLA with optimizer"]


def _flat(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with the settings of a class beside its other keys."""
    return {key: value for key, value in part.items() if key != "settings"} | dict(part.get("settings", {}))


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
