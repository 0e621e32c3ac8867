"""Import Marin's speedrun results."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marin_scaling.accelerators import Accelerator, Machine, machine, variants
from marin_scaling.errors import DocumentError
from marin_scaling.printable import joined
from marin_scaling.recipe.model_shape import WITH_LM_HEAD, training_flops
from marin_scaling.speedrun.submission import (
    EXACT,
    LEVANTER_FLOPS,
    Author,
    Compute,
    Data,
    Evaluation,
    Hardware,
    Model,
    SeedResult,
    Shape,
    Submission,
    Training,
)
from marin_scaling.strict_model import LINK_PATTERN

_VOCABULARY = 128_256
"""Vocabulary of Llama 3, which Marin's speedrun used for FLOPs of every data set."""
_SUBSET_TOKENS = 10_000_000_000
_EVALUATION, _BPB = "paloma/c4_en", "eval/paloma/c4_en/bpb"
_NEVER_SAID = {
    "code": "Marin's results contain no commit",
    "environment": "Marin's results contain no software versions",
    "data.digest": "Marin's results contain only a bucket's address",
    "tuning": "Marin's results do not contain the number of tried settings",
    "compute.cost_usd": "Marin's results contain no cost",
    "evaluation.digest": "Marin's results contain only the evaluation's name",
    "evaluation.bytes": "Marin's results contain only the evaluation's name",
    "evaluation.tokenizer_sha256": "Marin's results contain no digest of the tokenizer",
    "seeds.seed": "data_seed is null in the file; Marin's code trained with 42",
    "seeds.nats": "Marin's results contain only bits per byte",
    "seeds.started_at": "Marin's results contain only the end",
    "seeds.log_sha256": "the log is on W&B",
    "seeds.curve": "Marin's results contain only the last value",
    "model.params_non_embedding": "Marin's results contain only all parameters",
}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """One table of a file, its place `where`, and the list of problems."""

    part: Mapping[str, Any]
    where: str
    problems: list[str]

    def problem(self, key: str, said: str) -> None:
        """Add a problem of one key."""
        self.problems.append(f"{self.where}{key}: {said}")

    def table(self, key: str, *, needed: bool = True) -> Keys:
        """Return the table at a key, empty if it is missing; a missing needed table is a problem."""
        found = self.part.get(key)
        if not isinstance(found, Mapping) and (needed or found is not None):
            self.problem(key, "missing key" if found is None else "must be a table of keys")
        return Keys(part=found if isinstance(found, Mapping) else {}, where=f"{self.where}{key}.", problems=self.problems)

    def number(self, key: str) -> float | None:
        """Return the positive number at a key; None if it is missing or null, a problem if it is anything else."""
        found = self.part.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found <= 0:
            self.problem(key, f"{str(found)[:60]!r} is not a positive number")
            return None
        return float(found)

    def count(self, key: str) -> int | None:
        """Return the positive whole number at a key, else as `number`."""
        found = self.number(key)
        if found is not None and not found.is_integer():
            self.problem(key, f"{found} is not a whole number")
            return None
        return None if found is None else int(self.part[key])

    def required(self, key: str, *, why: str = "a required number") -> float:
        """Return the positive number at a key; a problem if there is none."""
        before, found = len(self.problems), self.number(key)
        if found is None and len(self.problems) == before:
            self.problem(key, f"{'null' if key in self.part else 'missing key'}: {why}")
        return found or 1.0

    def required_count(self, key: str) -> int:
        """Return the positive whole number at a key; a problem if there is none."""
        self.required(key)
        return self.count(key) or 1


def marin_shape(run: Mapping[str, Any]) -> str:
    """Return the format of one entry of `runs`: V0, V1, V1b, V2, V3 or V4."""
    if "run_related_info" in run:
        return "V0"
    info = _table(run.get("run_info"))
    if "device" in _table(info.get("resources")):
        return "V4"
    if "model_flops_per_token" in info:
        return "V3"
    if "num_chips" in info:
        return "V2"
    return "V1" if "use_flash_attention" in _table(info.get("model_config")) else "V1b"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def import_marin_results(document: Any, *, name: str, source: str) -> list[Submission]:
    """Return the submission in a `speedrun_results.json`; `name` is its folder below `experiments/speedrun`.

    `DocumentError` names the key that is missing or has a wrong value.
    """
    problems: list[str] = []
    runs = document.get("runs") if isinstance(document, Mapping) else None
    if not isinstance(runs, list) or not any(isinstance(run, Mapping) and _IN_RUNS & run.keys() for run in runs):
        raise foreign_file(source, f"it has no list runs of tables with {' or '.join(sorted(_IN_RUNS))}")
    made = [
        _read(run, name=name, source=source, where=f"runs[{number}].", problems=problems) for number, run in enumerate(runs)
    ]
    if problems:
        raise refusal(source, problems)
    sound = [each for each in made if each is not None]
    if len(sound) > 1 and len({_recipe(each) for each in sound}) == 1:
        seeds = [seed.model_dump() for each in sound for seed in each.seeds]
        return [Submission.model_validate(sound[0].model_dump(exclude_none=True) | {"seeds": seeds})]
    if len(sound) > 1:
        return [each.model_copy(update={"name": f"{name}/{number}"}) for number, each in enumerate(sound, start=1)]
    return sound


def _recipe(each: Submission) -> str:
    """Return a submission without its results, for comparison."""
    parts = each.model_dump(mode="json", include={"data", "model", "training", "compute", "evaluation", "absent"})
    settings = (parts["training"] or {}).get("config", {})
    for key in ("seed", "data_seed"):
        settings.pop(key, None)
    return json.dumps(parts, sort_keys=True)


def _read(run: Any, *, name: str, source: str, where: str, problems: list[str]) -> Submission | None:
    """Return the submission of one run; None if `problems` got a new line."""
    known = len(problems)
    if not isinstance(run, Mapping):
        problems.append(f"{where[:-1]}: must be a table of keys")
        return None
    shape = marin_shape(run)
    keys = Keys(part=run, where=where, problems=problems)
    try:
        facts = _v0_facts(keys) if shape == "V0" else _facts(keys.table("run_info"))
        if len(problems) > known:
            return None
        return _submission(facts, name=name, source=f"{Path(source).name} (Marin's shape {shape})")
    except ValidationError as error:
        for each in error.errors(include_url=False):
            key = ".".join(map(str, each["loc"]))
            problems.append(f"{where}{_KEY_OF.get(str(each['loc'][-1]), key)}: {each['msg'].removeprefix('Value error, ')}")
        return None


_KEY_OF = {
    "bits_per_byte": _BPB,
    "hardware_flops": "training_hardware_flops",
    "log": "wandb_run_link",
    "params_total": "model_size",
    "trained_tokens": "total_tokens",
    "training_seconds": "training_time",
}
"""Marin's keys by those of a submission."""


def moment(text: str) -> datetime:
    """Parse a time in Marin's format.

    >>> moment("2025-12-20 16:05:57 UTC").isoformat()
    '2025-12-20T16:05:57+00:00'
    """
    if text.endswith(" UTC"):
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def author_of(author: Any) -> Author:
    """Return the author in Marin's format; an invalid web address is left out."""
    if not isinstance(author, Mapping):
        return Author(name=str(author or "not named in this file"))
    url = str(author.get("url") or "")
    return Author(
        name=author.get("name") or "not named in this file",
        affiliation=author.get("affiliation") or None,
        url=url if re.fullmatch(LINK_PATTERN, url) else None,
    )


def hardware_of(name: str, found: Machine | None, *, chips: int | None = None, peak: float | None = None) -> Hardware:
    """Return the machine of that name with the stated chips and peak, or those of the hardware table."""
    known: Accelerator | None = found.accelerator if found else None
    return Hardware(
        kind=known.kind if known else name.lower(),
        name=name,
        chips=chips or (found.chips if found else 1),
        peak_flops_per_second=peak or (known.peak_flops_per_second if known else None),
    )


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Facts of one run in any of the six formats; None if the file lacks one."""

    keys: Keys
    """The table with the common keys."""
    authors: tuple[Author, ...]
    description: str
    params_total: int
    model_flops: float | None
    formula: str | None
    hardware: Hardware | None
    bits_per_byte: float
    seconds: float | None
    hardware_flops: float | None


def _facts(keys: Keys) -> _Facts:
    """Return the facts of V1 to V4."""
    seconds, hardware_flops = keys.number("training_time"), keys.number("training_hardware_flops")
    return _Facts(
        keys=keys,
        authors=(author_of(keys.part.get("author")),),
        description=str(keys.part.get("description") or ""),
        params_total=keys.required_count("model_size"),
        model_flops=keys.number("model_flops"),
        formula=None,
        hardware=_hardware(keys, seconds=seconds, hardware_flops=hardware_flops),
        bits_per_byte=keys.required(_BPB, why="the run has no result"),
        seconds=seconds,
        hardware_flops=hardware_flops,
    )


def _v0_facts(keys: Keys) -> _Facts:
    """Return the facts of V0, with the time converted from minutes."""
    info, stats = keys.table("run_related_info"), keys.table("run_stats")
    stated = info.table("hardware_config")
    name = str(stated.part.get("device_type") or "not named")
    minutes = stats.number("training_time_in_minutes")
    return _Facts(
        keys=info,
        authors=(Author(name="not named in this format"),),
        description="",
        params_total=info.required_count("num_parameters"),
        model_flops=stats.number("pre_run_flops_estimate"),
        formula="6 N D, as Marin estimated before a run in April 2025",
        hardware=hardware_of(name, machine(name), chips=stated.count("num_devices"), peak=stated.number("device_flops")),
        bits_per_byte=stats.required(_BPB, why="the run has no result"),
        seconds=None if minutes is None else minutes * 60,
        hardware_flops=stats.number("total_training_flops"),
    )


def _hardware(keys: Keys, *, seconds: float | None, hardware_flops: float | None) -> Hardware | None:
    """Return the machine of V1 to V4; None if no accelerator is named."""
    resources = keys.table("resources", needed=False)
    device = resources.table("device", needed=False)
    name = next(
        (
            str(value)
            for value in (
                device.part.get("variant"),
                device.part.get("type"),
                resources.part.get("tpu_type"),
                resources.part.get("accelerator_type"),
                device.part.get("kind"),
            )
            if value
        ),
        None,
    )
    if name is None:
        return None
    chips, one = keys.count("num_chips"), machine(name)
    peak = keys.number("device_flops") or resources.number("device_flops_override")
    each = peak or (one.accelerator.peak_flops_per_second if one else None)
    used = hardware_flops / seconds / each if hardware_flops and seconds and each else None
    slices = _slices(resources, chips=chips or used, of_one=one.chips if one else 1)
    gpus = device.count("count") or resources.count("gpu_count") or 1
    found = machine(name, count=slices * gpus)
    chips = chips or (found.chips if found else slices * gpus)
    if one and peak is None and hardware_flops and seconds:  # V1 states no peak, and its table was another one
        counted = hardware_flops / seconds / chips
        near = (other.peak_flops_per_second for other in variants(one.accelerator.kind))
        peak = next((value for value in near if math.isclose(value, counted, rel_tol=0.01)), None)
    several = f"{slices} x {name}" if found and found.is_slice and slices > 1 else name
    return hardware_of(several, found, chips=chips, peak=peak)


def _slices(resources: Keys, *, chips: float | None, of_one: int) -> int:
    """Return the number of slices or machines; from a list of numbers the one that matches the chips."""
    for key in ("slice_count", "replicas"):
        possible = resources.part.get(key)
        if not isinstance(possible, list):
            if count := resources.count(key):
                return count
            continue
        counts = [each for each in possible if isinstance(each, int)]
        fitting = [each for each in counts if chips and math.isclose(each * of_one, chips, rel_tol=0.01)]
        if len(fitting) == 1:
            return fitting[0]
        resources.problem(key, f"{possible} lists several numbers, and the number of chips matches none")
    return 1


def _submission(facts: _Facts, *, name: str, source: str) -> Submission:
    info = facts.keys.part
    absent = dict(_NEVER_SAID)
    config = _table(info.get("model_config"))
    shape, why_no_shape = _shape(config)
    dataset = str(info.get("tokenized_dataset") or "not named").rstrip("/").rpartition("/")[2]
    tokens = facts.keys.count("total_tokens")
    training, why_no_training = _training(facts.keys, shape=shape, tokens=tokens)
    dense = not config.get("n_routed_experts")
    seed = SeedResult(
        bits_per_byte=facts.bits_per_byte,
        training_seconds=facts.seconds,
        hardware_flops=facts.hardware_flops,
        finished_at=_finished(facts.keys),
        log=info.get("wandb_run_link") or None,
    )
    unique = _SUBSET_TOKENS if "10B" in dataset else None
    missing = {
        "data.unique_tokens": (unique, "the file does not contain the size of its data set"),
        "data.trained_tokens": (tokens, "the file does not contain the number of tokens"),
        "model.shape": (shape, why_no_shape),
        "model.params_active": (dense or None, "Marin's results contain only all parameters"),
        "training": (training, why_no_training),
        "compute.hardware": (facts.hardware, "the file names no accelerator"),
        "seeds.training_seconds": (seed.training_seconds, "the file does not contain the time"),
        "seeds.hardware_flops": (seed.hardware_flops, "the file does not contain hardware FLOPs"),
        "seeds.finished_at": (seed.finished_at, "the file does not contain the end"),
        "seeds.log": (seed.log, "the file names no run on W&B"),
    }
    absent |= {key: why for key, (value, why) in missing.items() if value is None}
    if facts.hardware is not None and facts.hardware.peak_flops_per_second is None:
        absent["compute.hardware.peak_flops_per_second"] = "the hardware table does not list this chip"
    flops, formula = _counted_by(facts, shape=shape, tokens=tokens)
    return Submission(
        name=name,
        track="fineweb-edu",
        description=facts.description,
        authors=facts.authors,
        data=Data(name=dataset, tokenizer="llama3 (as counted)", unique_tokens=unique, trained_tokens=tokens),
        model=Model(
            params_total=facts.params_total,
            params_active=facts.params_total if dense else None,
            shape=shape,
            config=dict(config),
        ),
        training=training,
        compute=Compute(model_flops=flops, model_flops_formula=formula, hardware=facts.hardware),
        evaluation=Evaluation(name=_EVALUATION),
        seeds=(seed,),
        absent=absent,
        imported_from=source,
    )


def _counted_by(facts: _Facts, *, shape: Shape | None, tokens: int | None) -> tuple[float, str]:
    """Return the stated model FLOPs and their formula: the common one, or that of the model's own class."""
    counted = training_flops(shape, tokens=tokens, convention=WITH_LM_HEAD) if shape and tokens else None
    stated = facts.model_flops or counted
    if stated is None:
        facts.keys.problem("model_flops", "missing key, and sizes or tokens to compute it are missing")
        return 1.0, LEVANTER_FLOPS
    if facts.formula is not None:
        return stated, facts.formula
    is_common = counted is None or math.isclose(stated, counted, rel_tol=EXACT)
    return stated, LEVANTER_FLOPS if is_common else "the model's own class in Marin"


def _training(keys: Keys, *, shape: Shape | None, tokens: int | None) -> tuple[Training | None, str]:
    """Return the training settings, or why they are unknown; a batch schedule is checked against the tokens."""
    settings = keys.table("train_config", needed=False)
    length = settings.count("train_seq_len") or (shape.seq_len if shape else None)
    batch, steps = settings.part.get("train_batch_size"), settings.count("num_train_steps")
    if isinstance(batch, list):
        return None, _schedule(settings, batch, steps=steps, length=length, tokens=tokens)
    size = settings.count("train_batch_size")
    if size is None or steps is None or length is None:
        return None, "the file's train_config has no batch size, steps or sequence length"
    return Training(batch_size=size, seq_len=length, steps=steps, config=dict(settings.part)), ""


def _schedule(settings: Keys, stages: list[Any], *, steps: int | None, length: int | None, tokens: int | None) -> str:
    """Return a batch schedule in words; other tokens than stated are a problem."""
    try:
        starts = [(int(each["start"]), int(each["value"])) for each in stages]
    except (KeyError, TypeError, ValueError):
        settings.problem("train_batch_size", "must be a list of start and value")
        return ""
    words = ", ".join(f"{value} sequences from step {start}" for start, value in starts)
    if steps and length and tokens:
        ends = [*(start for start, _ in starts[1:]), steps]
        counted = length * sum(value * (end - start) for (start, value), end in zip(starts, ends, strict=True))
        if counted != tokens:
            settings.problem("train_batch_size", f"{words} of {steps} give {counted} tokens, but total_tokens is {tokens}")
    return f"a batch schedule: {words}"


def _finished(keys: Keys) -> datetime | None:
    text = keys.part.get("run_completion_timestamp")
    if text is None:
        return None
    try:
        return moment(str(text))
    except ValueError:
        keys.problem("run_completion_timestamp", f"{str(text)[:60]!r} is not a time")
        return None


def _shape(config: Mapping[str, Any]) -> tuple[Shape | None, str]:
    """Return the sizes for the FLOPs formula, or which of them is missing."""
    heads = config.get("num_heads")
    sizes = {
        "hidden_dim": config.get("hidden_dim"),
        "intermediate_dim": config.get("intermediate_dim"),
        "num_layers": config.get("num_layers"),
        "num_heads": heads,
        "num_kv_heads": config.get("num_kv_heads") or heads,
        "seq_len": config.get("max_seq_len") or config.get("seq_len"),
    }
    known = {key: value for key, value in sizes.items() if isinstance(value, int) and value > 0}
    if len(known) < len(sizes):
        return None, f"the file's model_config has no {joined(sorted(set(sizes) - set(known)))}"
    experts = {
        "num_experts": config.get("n_routed_experts") or 0,
        "experts_per_token": config.get("num_experts_per_tok") or 0,
        "shared_intermediate_dim": (config.get("n_shared_experts") or 0) * config["intermediate_dim"],
    }
    return Shape(**known, vocab_size=_VOCABULARY, **experts), ""


_IN_RUNS = {"run_info", "run_related_info"}
"""Keys by which Marin's results are recognized."""


def foreign_file(source: str, reason: str) -> DocumentError:
    """Return the error for a file that is not one of Marin's."""
    return DocumentError(
        f"{source} is not one of Marin's speedrun files: {reason}.",
        fix="For another board's result write a submission.json (site/reference/submission-files.md); to fit a table of runs: "
        f"marin-scale fit {shlex.quote(source)}",
    )


def refusal(source: str, problems: Sequence[str]) -> DocumentError:
    """Return the error that lists every problem of a file."""
    return DocumentError(
        tuple(f"{source}: {each}." for each in problems),
        fix="Correct the named keys, or leave the file out.",
    )
